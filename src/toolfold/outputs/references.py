"""References: `{"$output": "<handle>", "path": "a.b[0]"}` in the arguments of a call stands for a stored output.

The host puts the value in, so a large result moves from one tool to the next without passing through the model. The
handle is checked as on every use; the arguments are checked against the schema afterwards, with the value in place.
Without `path` the value is the text (Base64, if it is binary); with it, the JSON value there. Above: the gateway's
stack of handlers. Below: `store.py`.
"""

import base64
import re
from collections.abc import Awaitable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from toolfold.calls import CallRequest
from toolfold.errors import InvalidArguments, UnknownField
from toolfold.events import Events
from toolfold.outputs.json_path import parse_path, resolve_path, similar_paths
from toolfold.outputs.limiter import run_limited
from toolfold.outputs.store import OutputStore
from toolfold.types import Caller, Stored

REFERENCE_KEY = "$output"
_REFERENCE_KEYS = frozenset({REFERENCE_KEY, "path"})
MAX_REFERENCES = 100
"""In one call."""

_find_reference = re.compile(re.escape(REFERENCE_KEY).encode()).search


class ReferenceResolver:
    """Resolves references. `most`: how many bytes they may put into one call; `held`: how much JSON may be read for
    a path."""

    def __init__(self, store: OutputStore, *, most: int, held: int, events: Events) -> None:
        self._store = store
        self._most = most
        self._held = held
        self._events = events

    def check(self, request: CallRequest) -> Awaitable[CallRequest] | None:
        """For the stack of handlers: the request with the values in place, where it holds references."""
        return None if _find_reference(memoryview(request.arguments)) is None else self._resolved(request)

    async def _resolved(self, request: CallRequest) -> CallRequest:
        arguments = await run_limited(partial(self.resolve, request.arguments, request.caller))
        return msgspec.structs.replace(request, arguments=arguments)

    def resolve(self, arguments: Raw, caller: Caller) -> Raw:
        """The arguments with every reference replaced. What is no JSON is left to the check of the arguments."""
        try:
            given = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return arguments
        filling = _Substitution(self._store, caller, most=self._most, held=self._held)
        value = filling.fill(given)
        for used in filling.used:
            self._events.emit("output.referenced", **used)
        return Raw(msgspec.json.encode(value)) if filling.used else arguments


class _Substitution:
    """One call's arguments. References to one output that follow each other read it once."""

    def __init__(self, store: OutputStore, caller: Caller, *, most: int, held: int) -> None:
        self._store = store
        self._caller = caller
        self._most = self._left = most
        self._held = held
        self._documents: dict[str, Any] = {}
        self.used: list[dict[str, Any]] = []

    def fill(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.fill(item) for item in value]
        if not isinstance(value, dict):
            return value
        if REFERENCE_KEY in value and value.keys() <= _REFERENCE_KEYS:
            return self._value(value[REFERENCE_KEY], value.get("path"))
        return {key: self.fill(item) for key, item in value.items()}

    def _value(self, handle: Any, path: Any) -> Any:
        """What a reference stands for."""
        if not isinstance(handle, str) or not (path is None or isinstance(path, str)):
            raise InvalidArguments(
                f"a reference is {{'{REFERENCE_KEY}': handle, 'path': 'a.b[0]'}}, both texts",
                next_action="give the handle from the tool-result message, and a path or none",
            )
        if len(self.used) >= MAX_REFERENCES:
            raise InvalidArguments(
                f"a call may hold {MAX_REFERENCES} references", next_action="name all items at once with a[].b"
            )
        stored, file = self._store.find(handle, self._caller)
        if path is None:
            self._spend(stored.bytes, stored)
            found: Any = _read_text(stored, file)
            size = stored.bytes
        else:
            found = _value_at(stored, self._document(stored, file, path), path)
            size = len(msgspec.json.encode(found))
            self._spend(size, stored)
        self.used.append({"handle": handle, "tool_id": stored.tool_id, "path": path, "bytes": size})
        return found

    def _document(self, stored: Stored, file: Path, path: str) -> Any:
        """The output as JSON."""
        if stored.handle not in self._documents:
            if stored.bytes > self._held:
                raise InvalidArguments(
                    f"the stored output {stored.handle} has {stored.bytes} bytes: too large to be read for a path, "
                    f"which takes up to {self._held}",
                    next_action="get the part with tool_output, or raise limits.max_frame_bytes",
                )
            try:
                self._documents = {stored.handle: msgspec.json.decode(file.read_bytes())}  # one at a time is held
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise InvalidArguments(
                    f"the stored output {stored.handle} is no JSON, so nothing is at {path!r}",
                    next_action=f"leave `path` out for its whole text, or get the part with tool_output ({error})",
                ) from error
        return self._documents[stored.handle]

    def _spend(self, size: int, stored: Stored) -> None:
        if size > self._left:
            raise InvalidArguments(
                f"the value of {stored.handle} has {size} bytes, and {self._left} of {self._most} "
                "are left in this call",
                next_action="name a part with `path`, or raise outputs.reference_max_bytes",
            )
        self._left -= size


def _read_text(stored: Stored, file: Path) -> str:
    data = file.read_bytes()
    if stored.tokens == 0 and stored.lines == 0 and data:
        return base64.b64encode(data).decode()
    return data.decode("utf-8", "replace")


def _value_at(stored: Stored, document: Any, path: str) -> Any:
    steps = parse_path(path)
    if steps is None:
        raise InvalidArguments(
            f"{path!r} is no path", next_action='write it as a.b[0], a[].b for all items, or ["odd key"]'
        )
    try:
        return resolve_path(document, steps)
    except LookupError:
        near = similar_paths(document, path)
        raise UnknownField(
            f"there is nothing at {path!r} in the stored output {stored.handle}",
            hints=near,
            next_action=f"use one of: {', '.join(near)}" if near else "leave `path` out for the whole text",
        ) from None
