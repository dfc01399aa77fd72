"""A lock: which tool each need of a script became, so that it is the same tomorrow, or fails and says so."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from toolfold.errors import LockMismatch, ScriptError
from toolfold.scripts.values import Need

__all__ = ["SUFFIX", "Lock", "LockedNeed"]

# Of the file's format. Another version is refused, never guessed at.
_VERSION = 1
SUFFIX = ".lock"


class LockedNeed(Struct, frozen=True, kw_only=True):
    """One need and its tool; without a tool: nothing fitted it.

    `observed` is what its results were seen to be when it was locked, where the tool declares nothing.
    """

    need: str
    server: str | None = None
    tool_id: str = ""
    fingerprint: str = ""
    confidence: float = 0.0
    observed: Any = None

    def mismatch(self, what: str) -> LockMismatch:
        hints: list[Any] = [{"need": self.need, "tool_id": self.tool_id, "fingerprint": self.fingerprint}]
        return LockMismatch(
            f"{self.need!r} was locked to {self.tool_id}, {what}",
            hints=hints,
            next_action="look at the tool again (what changed since you accepted it: "
            f"toolfold trust --list {self.tool_id}), then remove the lock to accept what is there now",
        )


class Lock(Struct, frozen=True, kw_only=True):
    """The contents of a `script.py.lock`."""

    needs: tuple[LockedNeed, ...] = ()
    version: int = _VERSION

    @classmethod
    def create(cls, needs: Iterable[Need]) -> "Lock":
        """Locks each need to the tool it was resolved to."""
        return cls(
            needs=tuple(
                LockedNeed(
                    need=need.query,
                    server=need.server,
                    tool_id=need.tool_id,
                    fingerprint=need.fingerprint,
                    confidence=round(need.confidence, 4),
                    observed=need.observed,
                )
                for need in needs
            )
        )

    @classmethod
    def load(cls, data: bytes, name: str = "the lock") -> "Lock":
        """Reads a lock file. Raises `ScriptError`."""
        advice = "remove it to lock the script anew"
        try:
            lock = msgspec.json.decode(data, type=Lock)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ScriptError(f"{name} cannot be read: {error}", next_action=advice) from None
        if lock.version != _VERSION:
            raise ScriptError(f"{name} is of version {lock.version}", next_action=advice)
        return lock

    def dump(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    def find(self, query: str, server: str | None) -> LockedNeed | None:
        return next((need for need in self.needs if (need.need, need.server) == (query, server)), None)

    def check(self, needs: Iterable[Need], name: str) -> None:
        """Raises `LockMismatch` for a need that came since the script was locked."""
        for need in needs:
            if self.find(need.query, need.server) is None:
                raise LockMismatch(
                    f"{name} needs {need.query!r}, which is not in its lock",
                    hints=[{"need": need.query, "tool_id": need.tool_id}],
                    next_action=f"look at it, then run: toolfold scripts lock {name.removesuffix('.py')}",
                )
