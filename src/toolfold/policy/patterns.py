"""The patterns of a policy, made ready to be asked for many tools.

    git.*, **           a tool's id, with * for any letters
    path:Storage/**     a category: * is one step, ** any number of them; a tool fits by any of its places
    tag:money           a tag
    risk:destructive    a risk: what the server claims, what the name says, what the owner adds. `risk:unstated` too
    server:git          the configured name of a server
    flag:instructions   something that the check of descriptions found

Letter case never counts.
"""

import re
from collections.abc import Callable, Iterable
from fnmatch import translate

from msgspec import Struct

from toolfold.config.callers import PATTERN_KINDS
from toolfold.errors import ConfigError
from toolfold.types import Tool

EVERYTHING = frozenset({"*", "**"})

Flags = tuple[str, ...]
Words = Callable[[Tool, Flags], Iterable[str]]

_WORDS: dict[str, Words] = {
    "id": lambda tool, flags: (tool.tool_id,),
    "path": lambda tool, flags: ("/".join(path) for path in tool.paths),
    "tag": lambda tool, flags: tool.tags,
    "risk": lambda tool, flags: tool.risks,
    "server": lambda tool, flags: (tool.server,),
    "flag": lambda tool, flags: flags,
}


class Patterns:
    """Several patterns; a tool fits if it fits one of them."""

    def __init__(self, texts: Iterable[str]) -> None:
        texts = tuple(texts)
        self.everything = any(text.strip() in EVERYTHING for text in texts)
        self.nothing = not texts
        self.asks_flags = False
        by_kind: dict[str, list[str]] = {}
        for text in () if self.everything else texts:
            kind, colon, rest = text.strip().partition(":")
            if colon and kind not in PATTERN_KINDS:
                raise ConfigError(
                    f"a policy has the pattern {text[:80]!r} of an unknown kind",
                    hints=[f"{known}:" for known in PATTERN_KINDS],
                    next_action="use one of these kinds, or a tool's id without a colon",
                )
            self.asks_flags |= kind == "flag" and bool(colon)
            by_kind.setdefault(kind if colon else "id", []).append(rest if colon else kind)
        self._asked = [(_WORDS[kind], _joined(kind, parts)) for kind, parts in by_kind.items()]

    def fit(self, tool: Tool, flags: Flags = ()) -> bool:
        if self.everything:
            return True
        return any(pattern.match(word) for words, pattern in self._asked for word in words(tool, flags))


def _joined(kind: str, parts: list[str]) -> re.Pattern[str]:
    made = (_path(part) if kind == "path" else translate(part) for part in parts)
    return re.compile("|".join(f"(?:{one})" for one in made), re.IGNORECASE)


def _path(text: str) -> str:
    """`Storage/**` is Storage and all below it; `*/Orders` is Orders one step down, anywhere."""
    steps = [step.strip() for step in text.strip().strip("/").split("/") if step.strip()]
    steps = [step for number, step in enumerate(steps) if step != "**" or steps[number - 1 : number] != ["**"]]
    found = ""
    for number, step in enumerate(steps):
        if step == "**":
            found += "(?:/.*)?" if number else ".*" if len(steps) == 1 else "(?:.*/)?"
        else:
            joint = "" if number == 0 or (number == 1 and steps[0] == "**") else "/"
            found += joint + re.escape(step).replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
    return rf"{found}\Z"


# --- What the check of a tool's texts finds, as a value. The check itself is `scanning.py`, loaded only where it ru


class Flag(Struct, frozen=True):
    """One finding: its kind, as `flag:` patterns name it, what it is, and a few words around the place."""

    kind: str
    reason: str
    excerpt: str = ""
