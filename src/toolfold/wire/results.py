"""Members of a result, read at its end and added at its start without decoding what lies between.

Both matter for large results only: a small one is as quickly parsed. Above: `connection.py`, `serving/server.py`
and `toolfold.upstream`. Below: `jsonrpc.py`.
"""

import re

import msgspec
from msgspec import Raw, Struct

from toolfold.errors import ProtocolViolation
from toolfold.wire.jsonrpc import ABSENT, DECODE_ERRORS, Parts

_TAIL_BYTES = 256
# What is smaller than this is as quickly read whole.
_SMALL_BYTES = 1 << 14

_TRAILING = re.compile(rb'((?:[,{]\s*"\w+"\s*:\s*(?:"\w*"|true|false|null|-?\d+)\s*)+)\}\s*$')
_MEMBER = re.compile(rb'"(\w+)"\s*:\s*("\w*"|true|false|null|-?\d+)')
_COMPLETE = b'"resultType":"complete",'
_NEIGHBOURS = (b'"structuredContent":', b'"_meta":', b'"isError":', b'"content":')

# Results that must say how long they may be cached; `server/discover` is written in `server.py`.
_CACHEABLE = frozenset({"tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"})

_LEADING_TYPE = re.compile(rb'^\s*\{\s*"resultType"\s*:')
_END = re.compile(rb"\s*\}")
_NAME = b'"resultType"'


class _Members(Struct):
    resultType: Raw = ABSENT  # noqa: N815 - the protocol's spelling
    ttlMs: Raw = ABSENT  # noqa: N815 - as above
    cacheScope: Raw = ABSENT  # noqa: N815 - as above


_members = msgspec.json.Decoder(_Members)


def is_complete(text: bytes) -> bool:
    """Whether a large result says `"resultType":"complete"`: at its end, or right before another member of a result."""
    if len(text) < _SMALL_BYTES:
        return False
    if trailing_members(text).get(b"resultType") == b'"complete"':
        return True
    # Inside a string its quotes would be escaped, so the bytes can only be a member; a neighbour shows that it is the
    # result's own and not one of `structuredContent`.
    at = text.find(_COMPLETE)
    return at >= 0 and text.startswith(_NEIGHBOURS, at + len(_COMPLETE))


def trailing_members(text: bytes | memoryview, *, least: int = _SMALL_BYTES) -> dict[bytes, bytes]:
    """The plain members at the end of a JSON object that is known to be valid, each as it is written.

    A text that ends with plain members and one brace has them at its top: a quote right after a comma begins a name,
    and nothing is closed in between.
    """
    if len(text) < least:
        return {}
    match = _TRAILING.search(bytes(text[-_TAIL_BYTES:]))
    return dict(_MEMBER.findall(match[1])) if match else {}


def add_modern_members(method: str, text: bytes, *, complete: bool = False) -> Parts:
    """The result with the members that every modern result must have. `complete`: it is known to have `resultType`."""
    if method in _CACHEABLE:
        return _prepend(text, _missing(method, text))
    if complete or _LEADING_TYPE.match(text):
        return (text,)
    if _NAME not in text:
        return _prepend(text, [b'"resultType":"complete"'])
    return _prepend(text, _missing(method, text))


def _missing(method: str, text: bytes) -> list[bytes]:
    try:
        members = _members.decode(text)
    except DECODE_ERRORS as error:
        raise ProtocolViolation(f"the result of {method} cannot be read: {error}") from error
    missing = []
    if members.resultType is ABSENT:
        missing.append(b'"resultType":"complete"')
    if method in _CACHEABLE:
        if members.ttlMs is ABSENT:
            missing.append(b'"ttlMs":0')
        if members.cacheScope is ABSENT:
            missing.append(b'"cacheScope":"private"')
    return missing


def _prepend(text: bytes, members: list[bytes]) -> Parts:
    if not members:
        return (text,)
    start = text.find(b"{") + 1
    joint = b"" if _END.match(text, start) else b","
    return b"{" + b",".join(members) + joint, memoryview(text)[start:]
