"""What a large result says in its last members, without reading the rest of it.

Most results end with a few plain members, such as `isError` and `resultType`. A JSON text that ends with plain members
and one brace has them at its top: a quote that stands right after a comma begins a name, and nothing closes in between.
Whoever finds nothing here reads the whole.
"""

import re

import msgspec
from msgspec import Raw, Struct

from toolfold.errors import ProtocolViolation
from toolfold.wire.jsonrpc import ABSENT, DECODE_ERRORS, Parts

_TAIL_BYTES = 256
_SMALL_BYTES = 1 << 14
"""What is smaller than this is as quickly read whole."""

_TRAILING = re.compile(rb'((?:[,{]\s*"\w+"\s*:\s*(?:"\w*"|true|false|null|-?\d+)\s*)+)\}\s*$')
_MEMBER = re.compile(rb'"(\w+)"\s*:\s*("\w*"|true|false|null|-?\d+)')


_COMPLETE = b'"resultType":"complete",'
_NEIGHBOURS = (b'"structuredContent":', b'"_meta":', b'"isError":', b'"content":')


def is_complete(text: bytes) -> bool:
    """Whether a large result says that nothing is asked for: at its end, or right before another of the members that
    only a result has. A quote that is no escaped one ends a string, so this never stands inside of a text."""
    if len(text) < _SMALL_BYTES:
        return False
    at = text.find(_COMPLETE)
    if at >= 0 and text.startswith(_NEIGHBOURS, at + len(_COMPLETE)):
        return True
    return trailing_members(text).get(b"resultType") == b'"complete"'


def trailing_members(text: bytes | memoryview, *, least: int = _SMALL_BYTES) -> dict[bytes, bytes]:
    """The plain members at the end of a JSON object that is known to be valid, each as it is written."""
    if len(text) < least:
        return {}
    found = _TRAILING.search(bytes(text[-_TAIL_BYTES:]))
    return dict(_MEMBER.findall(found[1])) if found else {}


# --- What the modern era adds to a result, spliced in without decoding what it holds.

_CACHEABLE = frozenset({"tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"})
"""Results that say how long they may be kept. `server/discover` is written where it is made."""

_LEADING_TYPE = re.compile(rb'^\s*\{\s*"resultType"\s*:')
_END = re.compile(rb"\s*\}")
_NAME = b'"resultType"'


class _Members(Struct):
    resultType: Raw = ABSENT  # noqa: N815 - the protocol's spelling
    ttlMs: Raw = ABSENT  # noqa: N815 - as above
    cacheScope: Raw = ABSENT  # noqa: N815 - as above


_members = msgspec.json.Decoder(_Members)


def add_modern_members(method: str, text: bytes, *, complete: bool = False) -> Parts:
    """The result with the members that every modern result has. What is missing of them is put in front. `complete`: it
    is known to say that nothing is asked for."""
    if method in _CACHEABLE:
        return _prepend(text, _missing(method, text))
    if complete or _LEADING_TYPE.match(text):
        return (text,)
    if _NAME not in text:
        return _prepend(text, [b'"resultType":"complete"'])
    return _prepend(text, _missing(method, text))


def _missing(method: str, text: bytes) -> list[bytes]:
    try:
        said = _members.decode(text)
    except DECODE_ERRORS as error:
        raise ProtocolViolation(f"the result of {method} cannot be read: {error}") from error
    missing = []
    if said.resultType is ABSENT:
        missing.append(b'"resultType":"complete"')
    if method in _CACHEABLE:
        if said.ttlMs is ABSENT:
            missing.append(b'"ttlMs":0')
        if said.cacheScope is ABSENT:
            missing.append(b'"cacheScope":"private"')
    return missing


def _prepend(text: bytes, members: list[bytes]) -> Parts:
    if not members:
        return (text,)
    start = text.find(b"{") + 1
    joint = b"" if _END.match(text, start) else b","
    return b"{" + b",".join(members) + joint, memoryview(text)[start:]
