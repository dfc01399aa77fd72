"""What a large result says in its last members, without reading the rest of it.

Most results end with a few plain members, such as `isError` and `resultType`. A JSON text that ends with plain members
and one brace has them at its top: a quote that stands right after a comma begins a name, and nothing closes in between.
Whoever finds nothing here reads the whole.
"""

import re

LOOKED_AT = 256
SMALL = 1 << 14
"""What is smaller than this is as quickly read whole."""

_LAST = re.compile(rb'((?:[,{]\s*"\w+"\s*:\s*(?:"\w*"|true|false|null|-?\d+)\s*)+)\}\s*$')
_MEMBER = re.compile(rb'"(\w+)"\s*:\s*("\w*"|true|false|null|-?\d+)')


_COMPLETE = b'"resultType":"complete",'
_NEIGHBOURS = (b'"structuredContent":', b'"_meta":', b'"isError":', b'"content":')


def says_complete(text: bytes) -> bool:
    """Whether a large result says that nothing is asked for: at its end, or right before another of the members that
    only a result has. A quote that is no escaped one ends a string, so this never stands inside of a text."""
    if len(text) < SMALL:
        return False
    at = text.find(_COMPLETE)
    if at >= 0 and text.startswith(_NEIGHBOURS, at + len(_COMPLETE)):
        return True
    return last_members(text).get(b"resultType") == b'"complete"'


def last_members(text: bytes | memoryview, *, least: int = SMALL) -> dict[bytes, bytes]:
    """The plain members at the end of a JSON object that is known to be valid, each as it is written."""
    if len(text) < least:
        return {}
    found = _LAST.search(bytes(text[-LOOKED_AT:]))
    return dict(_MEMBER.findall(found[1])) if found else {}
