"""References: `{"$output": "<handle>", "path": "a.b[0]"}` in the arguments of a call stands for a stored output.

The gateway inserts the value, so a large result moves from one tool to the next without passing through the model. The
handle is checked as on every use; the arguments are validated afterwards, with the value in place.
Without `path` the value is the text (Base64, if it is binary); with it, the JSON value there. Above: the gateway's
list of checks. Below: `store.py`.
"""

import base64
import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from toolfold.errors import InvalidArguments, UnknownField
from toolfold.events import Events
from toolfold.outputs.json_path import Step, parse_path, reroot, resolve_path, similar_paths
from toolfold.outputs.limiter import run_limited
from toolfold.outputs.store import OutputStore
from toolfold.types import CallContext, Caller, Stored, ToolCall

REFERENCE_KEY = "$output"
_REFERENCE_KEYS = frozenset({REFERENCE_KEY, "path"})
# Of one call: each may read a file.
MAX_REFERENCES = 100

# Sees to it that what another gateway stored is here.
Bring = Callable[[str, Caller], Awaitable[None]]

_find_handles = re.compile(rb'"\$output"\s*:\s*"([0-9a-f-]{36})"').findall
_find_reference = re.compile(re.escape(REFERENCE_KEY).encode()).search


class ReferenceResolver:
    """Resolves references. They may put `max_bytes` into one call; up to `max_document` of JSON is read for a path."""

    def __init__(
        self, store: OutputStore, *, max_bytes: int, max_document: int, events: Events, bring: Bring | None = None
    ) -> None:
        self._store = store
        self._bring = bring
        self._max_bytes = max_bytes
        self._max_document = max_document
        self._events = events

    def check(self, call: ToolCall, context: CallContext) -> Awaitable[ToolCall] | None:
        """The call with the values in place; `None` where it holds no reference."""
        return None if _find_reference(memoryview(call.arguments)) is None else self._with_values(call, context.caller)

    async def _with_values(self, call: ToolCall, caller: Caller) -> ToolCall:
        if self._bring is not None:
            for handle in dict.fromkeys(_find_handles(bytes(call.arguments))[:MAX_REFERENCES]):
                await self._bring(handle.decode(), caller)
        arguments = await run_limited(partial(self.resolve, call.arguments, caller))
        return msgspec.structs.replace(call, arguments=arguments)

    def resolve(self, arguments: Raw, caller: Caller) -> Raw:
        """The arguments with every reference replaced. What is no JSON is left to the check of the arguments."""
        try:
            value = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return arguments
        substitution = _Substitution(self._store, caller, max_bytes=self._max_bytes, max_document=self._max_document)
        value = substitution.fill(value)
        for used in substitution.used:
            self._events.emit("output.referenced", **used)
        return Raw(msgspec.json.encode(value)) if substitution.used else arguments


class _Substitution:
    """One call's arguments. References to one output that follow each other read it once."""

    def __init__(self, store: OutputStore, caller: Caller, *, max_bytes: int, max_document: int) -> None:
        self._store = store
        self._caller = caller
        self._max_bytes = self._left = max_bytes
        self._max_document = max_document
        self._documents: dict[str, Any] = {}
        self.used: list[dict[str, Any]] = []

    def fill(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.fill(item) for item in value]
        if not isinstance(value, dict):
            return value
        if REFERENCE_KEY in value and value.keys() <= _REFERENCE_KEYS:
            return self._resolve(value[REFERENCE_KEY], value.get("path"))
        return {key: self.fill(item) for key, item in value.items()}

    def _resolve(self, handle: Any, path: Any) -> Any:
        """The value that a reference stands for."""
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
            value: Any = _read_text(stored, file)
            size = stored.bytes
        else:
            value = _value_at(stored, self._document(stored, file, path), path)
            size = len(msgspec.json.encode(value))
            self._spend(size, stored)
        self.used.append({"handle": handle, "tool_id": stored.tool_id, "path": path, "bytes": size})
        return value

    def _document(self, stored: Stored, file: Path, path: str) -> Any:
        """The output as JSON."""
        if stored.handle not in self._documents:
            if stored.bytes > self._max_document:
                raise InvalidArguments(
                    f"the stored output {stored.handle} has {stored.bytes} bytes: too large to be read for a path, "
                    f"which takes up to {self._max_document}",
                    next_action="get the part with tool_output, or raise limits.max_frame_bytes",
                )
            try:
                self._documents = {stored.handle: msgspec.json.decode(file.read_bytes())}  # one at a time is in memory
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise InvalidArguments(
                    f"the stored output {stored.handle} is no JSON, so nothing is at {path!r}",
                    next_action=f"leave `path` out for its whole text, or get the part with tool_output ({error})",
                ) from error
        return self._documents[stored.handle]

    def _spend(self, size: int, stored: Stored) -> None:
        if size > self._left:
            raise InvalidArguments(
                f"the value of {stored.handle} has {size} bytes, and {self._left} of {self._max_bytes} "
                "are left in this call",
                next_action="name a part with `path`, or raise outputs.reference_max_bytes",
            )
        self._left -= size


def _read_text(stored: Stored, file: Path) -> str:
    data = file.read_bytes()
    if stored.binary:
        return base64.b64encode(data).decode()
    return data.decode("utf-8", "replace")


def _resolve_from_either_root(document: Any, steps: list[Step]) -> Any:
    try:
        return resolve_path(document, steps)
    except LookupError:
        if not isinstance(document, dict | list):
            raise
        return resolve_path(document, reroot(steps, list(document) if isinstance(document, dict) else len(document)))


def _value_at(stored: Stored, document: Any, path: str) -> Any:
    steps = parse_path(path)
    if steps is None:
        raise InvalidArguments(
            f"{path!r} is no path", next_action='write it as a.b[0], a[].b for all items, or ["odd key"]'
        )
    try:
        return _resolve_from_either_root(document, steps)
    except LookupError:
        near = similar_paths(document, path)
        raise UnknownField(
            f"there is nothing at {path!r} in the stored output {stored.handle}",
            hints=near,
            next_action=f"use one of: {', '.join(near)}" if near else "leave `path` out for the whole text",
        ) from None
