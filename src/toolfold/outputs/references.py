"""References: `{"$output": "<handle>", "path": "a.b[0]"}` in the arguments of a call stands for a stored output.

The host puts the value in, so a large result moves from one tool to the next without passing through the model. The
handle is checked as on every use; the arguments are checked against the schema afterwards, with the value in place.
Without `path` the value is the text (Base64, if it is binary); with it, the JSON value there. Above: the gateway's
stack of handlers. Below: `store.py`.
"""

import asyncio
import base64
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from toolfold.calls import Handler, Request
from toolfold.errors import InvalidArguments, UnknownField
from toolfold.events import Events
from toolfold.outputs.paths import at_path, near_paths, read_path
from toolfold.outputs.store import OutputStore
from toolfold.types import Caller, Outcome, Stored

MARK = "$output"
_KEYS = frozenset({MARK, "path"})


class References:
    """Resolves references. `most`: how many bytes they may put into one call; `held`: how much JSON may be read for
    a path."""

    def __init__(self, store: OutputStore, *, most: int, held: int, events: Events) -> None:
        self._store = store
        self._most = most
        self._held = held
        self._events = events

    def wrap(self, handler: Handler) -> Handler:
        async def resolved(request: Request) -> Outcome:
            if MARK.encode() not in bytes(request.arguments):
                return await handler(request)
            arguments = await asyncio.to_thread(self.resolve, request.arguments, request.caller)
            return await handler(msgspec.structs.replace(request, arguments=arguments))

        return resolved

    def resolve(self, arguments: Raw, caller: Caller) -> Raw:
        """The arguments with every reference replaced. What is no JSON is left to the check of the arguments."""
        try:
            given = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return arguments
        filling = _Filling(self, caller)
        value = filling.fill(given)
        return Raw(msgspec.json.encode(value)) if filling.used else arguments

    def value(self, handle: Any, path: Any, caller: Caller, room: int) -> tuple[Any, int]:
        """What a reference stands for, and its size."""
        if not isinstance(handle, str) or not (path is None or isinstance(path, str)):
            raise InvalidArguments(
                f"a reference is {{'{MARK}': handle, 'path': 'a.b[0]'}}, both texts",
                next_action="give the handle from the tool-result message, and a path or none",
            )
        stored, file = self._store.find(handle, caller)
        if path is None:
            self._fits(stored.bytes, stored, room)
            return _text(stored, file), stored.bytes
        if stored.bytes > self._held:
            raise InvalidArguments(
                f"the stored output {handle} has {stored.bytes} bytes: too large to be read for a path, "
                f"which takes up to {self._held}",
                next_action="get the part with tool_output, or raise limits.max_frame_bytes",
            )
        found = _found(stored, file, path)
        size = len(msgspec.json.encode(found))
        self._fits(size, stored, room)
        self._events.emit("output.referenced", handle=handle, tool_id=stored.tool_id, path=path, bytes=size)
        return found, size

    def _fits(self, size: int, stored: Stored, room: int) -> None:
        if size > room:
            raise InvalidArguments(
                f"the value of {stored.handle} has {size} bytes, and {room} of {self._most} are left in this call",
                next_action="name a part with `path`, or raise outputs.reference_max_bytes",
            )

    @property
    def most(self) -> int:
        return self._most


class _Filling:
    """One call's arguments."""

    def __init__(self, references: References, caller: Caller) -> None:
        self._references = references
        self._caller = caller
        self._left = references.most
        self.used = False

    def fill(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.fill(item) for item in value]
        if not isinstance(value, dict):
            return value
        if MARK in value and value.keys() <= _KEYS:
            self.used = True
            found, size = self._references.value(value[MARK], value.get("path"), self._caller, self._left)
            self._left -= size
            return found
        return {key: self.fill(item) for key, item in value.items()}


def _text(stored: Stored, file: Path) -> str:
    data = file.read_bytes()
    if stored.tokens == 0 and stored.lines == 0 and data:
        return base64.b64encode(data).decode()
    return data.decode("utf-8", "replace")


def _found(stored: Stored, file: Path, path: str) -> Any:
    try:
        document = msgspec.json.decode(file.read_bytes())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArguments(
            f"the stored output {stored.handle} is no JSON, so nothing is at {path!r}",
            next_action=f"leave `path` out for its whole text, or get the part with tool_output ({error})",
        ) from error
    steps = read_path(path)
    if steps is None:
        raise InvalidArguments(
            f"{path!r} is no path", next_action='write it as a.b[0], a[].b for all items, or ["odd key"]'
        )
    try:
        return at_path(document, steps)
    except LookupError:
        near = near_paths(document, path)
        raise UnknownField(
            f"there is nothing at {path!r} in the stored output {stored.handle}",
            hints=near,
            next_action=f"use one of: {', '.join(near)}" if near else "leave `path` out for the whole text",
        ) from None
