"""Approvals: calls that wait for a person's yes, whoever gives it first: the client's user, or an administrator."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from secrets import token_urlsafe

from msgspec import Struct

from toolfold.types import Caller, Tool

__all__ = ["Approvals", "Waiting"]


class Waiting(Struct, frozen=True):
    """A call that is held until a person has answered."""

    key: str
    """Like no other, also of another process: a page that was opened before a restart answers no other call."""
    tool_id: str
    risks: tuple[str, ...]
    caller: Caller
    arguments: str
    """As a person may read them, without secrets."""
    since: float
    answer: asyncio.Future[bool]


class Approvals:
    """The calls of this process that wait. It keeps nothing once they are answered."""

    def __init__(self) -> None:
        self._waiting: dict[str, Waiting] = {}

    @property
    def waiting(self) -> Sequence[Waiting]:
        return tuple(self._waiting.values())

    @contextmanager
    def hold(self, tool: Tool, caller: Caller, arguments: str) -> Iterator[Waiting]:
        """Lists a call for as long as somebody may answer."""
        answer = asyncio.get_running_loop().create_future()
        waiting = Waiting(token_urlsafe(16), tool.tool_id, tool.risks, caller, arguments, time.time(), answer)
        self._waiting[waiting.key] = waiting
        try:
            yield waiting
        finally:
            del self._waiting[waiting.key]

    def decide(self, key: str, *, yes: bool) -> Waiting | None:
        """Answers a call that waits; `None` where none does any more."""
        waiting = self._waiting.get(key)
        if waiting is None or waiting.answer.done():
            return None
        waiting.answer.set_result(yes)
        return waiting
