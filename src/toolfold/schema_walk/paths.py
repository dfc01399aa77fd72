"""How a place in a tree of fields is written, and read back.

    orders            the field `orders`
    orders[]          each item of that array
    orders[].id       a field of each item
    grid[][]          the items of the items
    pair[0]           the first place of a tuple
    labels.*          any value of a map
    owner<User>       one alternative of a union
    ['a.b'].c         a key that is not a plain word, in quotes

A key is quoted when it is empty, is `*`, or holds white space or one of `. [ ] < > ( ) ' " : , \\`. Inside the quotes
`' " \\` and control characters stand as `\\u0027`, so a path holds no double quote and can be pasted into JSON.
A very long key is written as its first 160 characters, `…`, and a digest. Reading is more patient than writing:
`["a.b"]`, `[*]`, a leading `$` and a leading dot are understood.
"""

import re
from functools import lru_cache
from typing import Literal, NamedTuple

StepKind = Literal["key", "items", "index", "any", "alternative"]

# A longer key is written as its beginning and a digest, so that no line grows with it.
MAX_KEY_CHARS = 160

# Control characters, and those that nobody sees or that turn the text around.
_UNSEEN = r"\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
_BARE = re.compile(rf"[^\s.\[\]<>()'\":,\\{_UNSEEN}]+")
_ESCAPED = re.compile(rf"['\"\\{_UNSEEN}]")
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
_STEP = re.compile(
    r"""
      \.?\['(?P<single>.*?)'\](?=$|[.\[<])
    | \.?\["(?P<double>.*?)"\](?=$|[.\[<])
    | \.?\[\*?\](?P<items>)
    | \.?\[(?P<index>\d{1,9})\]
    | <(?P<alternative>[^<>]+)>
    | \.?(?P<key>[^.\[\]<>]+)
    """,
    re.VERBOSE | re.DOTALL,
)


class Step(NamedTuple):
    """One step from a node to one below it. `name` is the key as it is, the label, or the place as text."""

    kind: StepKind
    name: str = ""

    def written(self) -> str:
        """The step as it stands in a path, without the dot before it."""
        if self.kind == "key":
            return quote_key(self.name)
        if self.kind == "items":
            return "[]"
        if self.kind == "any":
            return "*"
        return f"[{self.name}]" if self.kind == "index" else f"<{self.name}>"


ITEMS = Step("items")
ANY = Step("any")


@lru_cache(maxsize=4096)
def quote_key(name: str) -> str:
    """A key as a path holds it: plain where possible, else in quotes."""
    name = shorten_key(name)
    if name != "*" and _BARE.fullmatch(name) and name != "$":
        return name
    return "['" + _ESCAPED.sub(lambda match: f"\\u{ord(match.group()):04x}", name) + "']"


def shorten_key(name: str) -> str:
    """A key of bounded length. The short form of a long key stands for it in paths."""
    if len(name) <= MAX_KEY_CHARS:
        return name
    # Imported here: hardly any schema has such a key.
    from hashlib import blake2b

    return f"{name[:MAX_KEY_CHARS]}…{blake2b(name.encode(errors='surrogatepass'), digest_size=4).hexdigest()}"


def join_path(base: str, step: Step) -> str:
    """The path one step below `base`."""
    return append_step(base, step.written())


def append_step(base: str, text: str) -> str:
    """The path one written step below `base`."""
    return f"{base}.{text}" if base and text[0] not in "[<" else base + text


def parse_step(text: str, at: int) -> tuple[Step, int] | None:
    """The step that starts at a position of a path and where it ends, or `None` where nothing readable stands."""
    match = _STEP.match(text, at)
    if match is None:
        return None
    kind = match.lastgroup
    if kind == "items":
        step = ITEMS
    elif kind == "index":
        step = Step("index", str(int(match["index"])))
    elif kind == "alternative":
        step = Step("alternative", match["alternative"])
    elif kind == "key":
        step = ANY if match["key"] == "*" else Step("key", match["key"])
    else:
        quoted = match["single"] if match["single"] is not None else match["double"]
        step = Step("key", _ESCAPE.sub(lambda code: chr(int(code.group(1), 16)), quoted))
    return step, match.end()


def path_start(text: str) -> int:
    """Where the first step of a path begins: after a `$` for the root, if someone wrote one."""
    return 1 if text.startswith("$") and text[1:2] in {"", ".", "["} else 0
