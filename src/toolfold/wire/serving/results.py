"""What the modern era adds to a result, spliced in without decoding what it holds.

Above: `server.py`. Results that say all of it themselves go out as they are.
"""

import re

import msgspec
from msgspec import Raw, Struct

from toolfold.errors import ProtocolViolation
from toolfold.wire.jsonrpc import ABSENT, UNREADABLE, Parts

CACHEABLE = frozenset({"tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"})
"""Results that say how long they may be kept. `server/discover` is written where it is made."""

_FIRST = re.compile(rb'^\s*\{\s*"resultType"\s*:')
_END = re.compile(rb"\s*\}")
_NAME = b'"resultType"'


class _Said(Struct):
    resultType: Raw = ABSENT  # noqa: N815 - the protocol's spelling
    ttlMs: Raw = ABSENT  # noqa: N815 - as above
    cacheScope: Raw = ABSENT  # noqa: N815 - as above


_said = msgspec.json.Decoder(_Said)


def modern(method: str, text: bytes, *, complete: bool = False) -> Parts:
    """The result with the members that every modern result has. What is missing of them is put in front. `complete`: it
    is known to say that nothing is asked for."""
    if method in CACHEABLE:
        return _with(text, _missing(method, text))
    if complete or _FIRST.match(text):
        return (text,)
    if _NAME not in text:
        return _with(text, [b'"resultType":"complete"'])
    return _with(text, _missing(method, text))


def _missing(method: str, text: bytes) -> list[bytes]:
    try:
        said = _said.decode(text)
    except UNREADABLE as error:
        raise ProtocolViolation(f"the result of {method} cannot be read: {error}") from error
    missing = []
    if said.resultType is ABSENT:
        missing.append(b'"resultType":"complete"')
    if method in CACHEABLE:
        if said.ttlMs is ABSENT:
            missing.append(b'"ttlMs":0')
        if said.cacheScope is ABSENT:
            missing.append(b'"cacheScope":"private"')
    return missing


def _with(text: bytes, members: list[bytes]) -> Parts:
    if not members:
        return (text,)
    start = text.find(b"{") + 1
    joint = b"" if _END.match(text, start) else b","
    return b"{" + b",".join(members) + joint, memoryview(text)[start:]
