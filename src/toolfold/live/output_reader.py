"""Stored outputs for a session: the host reads them piece by piece, or, for a trusted session, names the file.

A sandboxed session never learns where an output lies, and can read only the handles that were opened for its caller.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from toolfold.errors import ToolfoldError, UnknownHandle

OpenOutput = Callable[[str], Awaitable[Path]]
"""The file of a stored output. Raises `UnknownHandle` for one that the caller may not read."""
_PIECE_BYTES = 512 * 1024


async def no_outputs(handle: str) -> Path:
    raise UnknownHandle(f"there is no stored output {handle!r} here", next_action="use a handle from a stored result")


class OutputReader:
    """The outputs that one session opened."""

    def __init__(self, open_output: OpenOutput, *, direct: bool) -> None:
        self._open_output = open_output
        self._direct = direct
        self._files: dict[str, Path] = {}

    async def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """What the session asked for, or `error` in words."""
        handle = str(question.get("handle", ""))
        try:
            if question.get("ask") == "open_output":
                path = await self._open_output(handle)
                self._files[handle] = path
                size = (await asyncio.to_thread(path.stat)).st_size
                return {"bytes": size, "path": str(path)} if self._direct else {"bytes": size}
            if question.get("ask") == "read_output":
                offset, size = int(question.get("offset", 0)), int(question.get("size", 0))
                data = await asyncio.to_thread(
                    _read_piece, self._files[handle], max(0, offset), min(max(0, size), _PIECE_BYTES)
                )
                return {"data": data.decode("latin-1")}
        except ToolfoldError as error:
            return {"error": f"{error.message}. {error.next_action}"}
        except (KeyError, TypeError, ValueError):
            return {"error": f"the output {handle!r} was not opened in this session"}
        except OSError as error:
            return {"error": f"the output {handle!r} cannot be read: {os.strerror(error.errno or 0)}"}
        return {"error": f"nothing here answers {question.get('ask')!r}"}


def _read_piece(path: Path, offset: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)
