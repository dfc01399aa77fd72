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


def last_members(text: bytes | memoryview, *, least: int = SMALL) -> dict[bytes, bytes]:
    """The plain members at the end of a JSON object that is known to be valid, each as it is written."""
    if len(text) < least:
        return {}
    found = _LAST.search(bytes(text[-LOOKED_AT:]))
    return dict(_MEMBER.findall(found[1])) if found else {}
