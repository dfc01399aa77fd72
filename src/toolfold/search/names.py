"""Names in requests: when a request is the name of a tool, and which verbs in names say the opposite of its own.

A name is compared without letter case and separators, so that `getLabel`, `get_label` and `Get label` are one. What is
compared is filed in the index beside the places of a tool, and looked up there (`segment.py`).
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence

from toolfold.search.document import Document
from toolfold.types import Tool
from toolfold.words import opposite_verbs, split_identifier, stop_words

# The ways to name a tool, the surest first: its own name, its server's and its own, its title.
_KINDS = ("name", "full", "title")
# A longer request is a text and no name.
_MAX_NAME = 200
_MAX_NAMES = 20
_MAX_REQUEST = 1_000
_QUOTES = " \t\r\n\"'`\u201c\u201d\u2018\u2019"
_SEPARATORS = re.compile(r"[\W_]+")
_SENTENCE_END = re.compile(r"[.!?;]\s|\n")
# What follows one of these is no verb: "the lock", "a list of orders".
_BEFORE_NOUNS = frozenset(
    ("a", "an", "the", "this", "that", "these", "those", "my", "our", "your", "its", "their", "of")
)
# A verb means something else before these: "get rid of", "set up", "write down".
_PARTICLES = frozenset(("rid", "up", "into", "out", "down", "at", "off", "back", "over"))
# Their meaning lies in a word that may follow later: "turn the lights off".
_SWITCHES = frozenset(("turn", "switch", "power"))


class Names:
    """What a request says by names: which tools it may be the name of, and what they must not do."""

    def __init__(self, request: str) -> None:
        self.requested = _names_in(request)
        opposites = opposite_verbs().get(_verb_of(request[:_MAX_REQUEST]), frozenset())
        self.opposed_scopes = [_verb_scope(verb) for verb in sorted(opposites)]

    def missing_among(self, tools: Iterable[Tool]) -> list[str]:
        """Of several names that are requested those that no tool has."""
        known = {_fold(text) for tool in tools for text in (tool.tool_id, tool.name, tool.definition.title)}
        return [name for name in self.requested if _fold(name) not in known]

    @staticmethod
    def scopes_of(name: str) -> list[str]:
        """Where tools of this name are filed, by the way it names them, the surest first."""
        return [_name_scope(kind, name) for kind in _KINDS]

    @staticmethod
    def is_id(name: str, tool_id: str) -> bool:
        """Whether a name is a whole id, as we or a client write it: `git.log`, `git/log`, `git__log`."""
        return _plain_id(name) == _plain_id(tool_id)

    @staticmethod
    def scopes_of_tool(tool: Document) -> list[str]:
        """Everything under which a tool is filed by its names, and by the verb of its name."""
        names = {"name": [tool.name], "full": [tool.tool_id, f"{tool.server}{tool.name}"], "title": [tool.title]}
        scopes = dict.fromkeys(_name_scope(kind, name) for kind in _KINDS for name in names[kind] if _fold(name))
        verb = _first_verb([part.lower() for part in split_identifier(tool.name)])
        return [*scopes, *([_verb_scope(verb)] if verb else [])]


def _name_scope(kind: str, name: str) -> str:
    return f"{kind}\x00{_fold(name)}"


def _verb_scope(verb: str) -> str:
    return f"verb\x00{verb}"


def _fold(name: str) -> str:
    plain = name if name.isascii() else unicodedata.normalize("NFKC", name)
    return _SEPARATORS.sub("", plain.casefold())


def _plain_id(name: str) -> str:
    return re.sub(r"__|/", ".", name).casefold()


def _names_in(request: str) -> list[str]:
    """The request itself without quotes and prefixes, or each of several behind `select:`; none where it is a text."""
    text = request.strip(_QUOTES)
    if len(text) > _MAX_NAME * _MAX_NAMES:
        return []
    start, colon, rest = text.partition(":")
    names = rest.split(",")[:_MAX_NAMES] if colon and start.strip().casefold() == "select" else [text]
    plain = [name.strip(_QUOTES).removeprefix("mcp__") for name in names]
    return [name for name in plain if _fold(name) and len(name) <= _MAX_NAME]


def _verb_of(request: str) -> str:
    """The verb that a request begins with, courtesies and the name of a product aside; empty where it has none, has
    several sentences, or also names the opposite: "create a report, then list it" wants both."""
    if _SENTENCE_END.search(request.strip()):
        return ""
    words = [part for word in request.split() for part in split_identifier(word)]
    lowered = [word.lower() for word in words]
    verb = _leading_verb(words, lowered)
    return "" if opposite_verbs().get(verb, frozenset()).intersection(lowered) else verb


def _leading_verb(words: Sequence[str], lowered: Sequence[str]) -> str:
    for at, word in enumerate(lowered):
        if _is_verb(word):
            is_noun = at > 0 and lowered[at - 1] in _BEFORE_NOUNS
            return "" if is_noun or _has_particle(lowered[at:]) else _first_verb(lowered[at:])
        if word not in stop_words("search") and not words[at][0].isupper():
            break
    return ""


def _has_particle(words: Sequence[str]) -> bool:
    return words[0] not in _SWITCHES and not _PARTICLES.isdisjoint(words[1:2])


def _first_verb(words: Sequence[str]) -> str:
    """The first verb of which an opposite is known; empty where there is none."""
    verb = next(filter(_is_verb, words), "")
    return next((word for word in words if word in ("on", "off")), "") if verb in _SWITCHES else verb


def _is_verb(word: str) -> bool:
    return word in _SWITCHES or word in opposite_verbs()
