"""What the loop needs of the world around it, and the value that each command results in.

The gateway is the real world; a record is another (`replay.py`). Everything that comes out is already folded: text that
a model may read.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

Descriptor = dict[str, Any]
"""The compact descriptor of a tool, as JSON."""


class Result(Struct, frozen=True, kw_only=True):
    """What a command came to. `text` is what the model reads."""

    ok: bool
    text: str
    found: tuple[Descriptor, ...] = ()
    """Descriptors of tools that a search found."""
    holds_outputs: bool = False
    """Whether stored outputs are there afterwards."""
    data: Any = None
    counted: str = ""
    """The budget that it took from, whether it went well or not; empty: none."""


class World(Protocol):
    """The gateway, as the loop sees it. What goes wrong is a `ToolfoldError`."""

    async def inventory(self) -> Mapping[str, Sequence[str]]:
        """The names of all tools by server."""

    async def preloaded(self) -> tuple[Descriptor, ...]:
        """What is available before any search: the inspector."""

    async def search(self, query: str, category_path: Sequence[str], limit: int) -> tuple[Descriptor, ...]:
        """Descriptors of the tools that fit. Raises `NoMatchInCategory`."""

    async def call(self, tool_id: str, args: dict[str, Any]) -> tuple[bool, str]:
        """Whether the tool succeeded, and its text or the message that stands in for it."""

    async def run_script(self, code: str, allowed: Callable[[str], bool]) -> tuple[bool, str]:
        """Runs a script whose calls of tools that are not allowed fail with `NotAuthorized`."""

    async def extract(self, handle: str, extract: str, mode: str) -> str: ...

    async def store(self, name: str, arguments: str, text: str) -> str:
        """Stores a text that finds no more room, and gives the message with its handle."""

    def holds_outputs(self) -> bool: ...

    def under(self, thresholds: Mapping[str, int]) -> "World":
        """The same world for an agent with thresholds of its own: when results are stored, how they are asked."""
