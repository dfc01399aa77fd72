"""What is known of a stored output, in a small file beside it: so that another process can read it, too.

`{uuid}` is the output, `.about-{uuid}` its record, `.draft-…` one that is still being written. The record is there
before the output gets its name, so whatever has its name is whole. Above: `store.py`, `sweeping.py`.
"""

import os
import re
from pathlib import Path

import msgspec

from toolfold.types import Stored

RECORD = ".about-"
DRAFT = ".draft-"

_HANDLE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_MOST = 64 << 20
_decode = msgspec.json.Decoder(Stored).decode


def is_handle(text: str) -> bool:
    return _HANDLE.fullmatch(text) is not None


def read_record(file: Path) -> Stored | None:
    """The record, or nothing where there is none that can be read."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as opened:
        try:
            return _decode(opened.read(_MOST))
        except (msgspec.MsgspecError, UnicodeDecodeError, OSError):
            return None


def expired(stored: Stored, now: float) -> bool:
    return stored.expires_at is not None and stored.expires_at <= now
