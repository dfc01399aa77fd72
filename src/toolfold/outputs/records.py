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
_MOST = 1 << 20
MOST_ARGUMENTS = 64 << 10
"""Longer arguments are not kept: a record stays small."""

_decode = msgspec.json.Decoder(Stored).decode


def is_handle(text: str) -> bool:
    return _HANDLE.fullmatch(text) is not None


def kept_arguments(arguments: str) -> str:
    """The arguments as a record holds them, JSON in any case."""
    if len(arguments) <= MOST_ARGUMENTS:
        return arguments
    return f'"(arguments of {len(arguments)} characters, too long to keep)"'


def read_record(file: Path) -> Stored | None:
    """The record; nothing where there is none, or none of ours. Raises `OSError` where nobody can tell just now."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as opened:
        try:
            return _decode(opened.read(_MOST))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None


def expired(stored: Stored, now: float) -> bool:
    return stored.expires_at is not None and stored.expires_at <= now
