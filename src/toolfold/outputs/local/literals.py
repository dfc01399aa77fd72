"""Values as Python prints them: `[{'id': 1, 'name': "O'Neil"}]`, `[(1, None)]`. Many tools answer so.

The same containers as in JSON are found, so that paths, records and counts work alike. Nothing is run: a value is read
as a literal or left as text.
"""

import ast
import re
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from toolfold.outputs.local.source import Offsets, Source

LARGEST = 48 << 20
TOKEN = re.compile(rb"'(?:[^'\\]|\\.?)*+(?:'|\Z)|\"(?:[^\"\\]|\\.?)*+(?:\"|\Z)|[{}\[\](),]", re.DOTALL)
OPENING = re.compile(rb"[\[{(]\s*(?:[\[{(]\s*)?(?:'|\d+\s*,\s*'|\"(?:[^\"\\]|\\.){0,200}\"\s*,\s*')")
QUOTED = re.compile(rb"'(?:[^'\\\n]|\\.){0,200}'\s*[:,\]})]")
AS_JSON = bytes.maketrans(b"()", b"[]")
LONGEST = 1 << 20


def looks_literal(head: bytes, size: int) -> bool:
    return size <= LARGEST and OPENING.match(head) is not None and QUOTED.search(head[:600]) is not None


def structure(source: Source, start: int) -> tuple[Offsets, npt.NDArray[np.uint8]]:
    """Every bracket and comma outside of strings; round brackets count as square ones."""
    text = source.read(start, source.size)
    places = [match.start() for match in TOKEN.finditer(text) if match[0][:1] not in b"'\""]
    where = np.array(places, dtype=np.int64)
    signs = np.frombuffer(text.translate(AS_JSON), dtype=np.uint8)[where] if places else np.zeros(0, np.uint8)
    return where + start, signs


def decode(raw: bytes) -> Any:
    """The value of a JSON text or of a Python literal. Raises `ValueError` for what is neither."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    if len(raw) > LONGEST or (b"'" not in raw and not raw.startswith(b"(")):
        raise ValueError("neither JSON nor a Python literal")
    try:
        value = ast.literal_eval(raw.decode().strip())
        msgspec.json.encode(value)
    except (SyntaxError, MemoryError, RecursionError, TypeError, ValueError, msgspec.MsgspecError) as error:
        raise ValueError("neither JSON nor a Python literal") from error
    return value
