"""A file as a response, opened before its size is told: one that is removed meanwhile is sent whole all the same.

Above: `app.py`.
"""

import os
from pathlib import Path
from typing import Any

from starlette.responses import FileResponse
from starlette.types import Receive, Scope, Send


class OpenFileResponse(FileResponse):
    """Raises `FileNotFoundError` at once where there is none."""

    def __init__(self, path: Path, **options: Any) -> None:
        self._file = path.open("rb")
        descriptor = self._file.fileno()
        super().__init__(f"/dev/fd/{descriptor}", stat_result=os.fstat(descriptor), **options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await super().__call__(scope, receive, send)
