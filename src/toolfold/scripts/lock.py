"""A lock: which tool each need of a script became, so that it is the same tomorrow, or fails and says so."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from toolfold.errors import LockMismatch, ScriptError
from toolfold.scripts.values import Need

_VERSION = 1
SUFFIX = ".lock"


class LockedNeed(Struct, frozen=True, kw_only=True):
    """One need and its tool; without a tool: nothing fitted it."""

    need: str
    server: str | None = None
    tool_id: str = ""
    fingerprint: str = ""
    confidence: float = 0.0


class Lock(Struct, frozen=True, kw_only=True):
    """The contents of a `script.py.lock`."""

    needs: tuple[LockedNeed, ...] = ()
    version: int = _VERSION

    def find(self, query: str, server: str | None) -> LockedNeed | None:
        return next((one for one in self.needs if (one.need, one.server) == (query, server)), None)


def create(needs: Iterable[Need]) -> Lock:
    return Lock(
        needs=tuple(
            LockedNeed(
                need=need.query,
                server=need.server,
                tool_id=need.tool_id,
                fingerprint=need.fingerprint,
                confidence=round(need.confidence, 4),
            )
            for need in needs
        )
    )


def dump(lock: Lock) -> bytes:
    return msgspec.json.format(msgspec.json.encode(lock), indent=2) + b"\n"


def load(data: bytes, name: str = "the lock") -> Lock:
    try:
        lock = msgspec.json.decode(data, type=Lock)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ScriptError(f"{name} cannot be read: {error}", next_action="remove it to lock the script anew") from None
    if lock.version != _VERSION:
        raise ScriptError(f"{name} is of version {lock.version}", next_action="remove it to lock the script anew")
    return lock


def mismatch(locked: LockedNeed, what: str) -> LockMismatch:
    hints: list[Any] = [{"need": locked.need, "tool_id": locked.tool_id, "fingerprint": locked.fingerprint}]
    return LockMismatch(
        f"{locked.need!r} was locked to {locked.tool_id}, {what}",
        hints=hints,
        next_action="look at the tool again, then remove the lock to accept what is there now",
    )
