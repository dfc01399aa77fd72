"""The shape of what a tool returned, merged over its calls: types, which fields are always there, and counts.

No value is kept, only keys, and keys that are data themselves (ids, dates, numbers, addresses) fold into a map. A shape
is bounded whatever comes in: long arrays are sampled, and depth gives way before the number of nodes grows too large.
Merging gives the same shape in any order and grouping, so several gateways may observe on their own and join later.

A shape becomes a JSON Schema, which is shown where the declared one says nothing. A declaration that results contradict
stays as it is, and the contradictions are listed; since no value is kept, `enum`, formats and ranges are not checked.
`Observer` keeps shapes in the store, per tool and version. Not every result is observed: the first ones, then fewer and
fewer, so that calls stay cheap. What contradicts a declared schema is emitted as an event.
"""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec
from msgspec import DecodeError, Raw, Struct, field
from msgspec.json import Decoder, decode

from toolfold.containers import BoundedDict
from toolfold.errors import ToolfoldError
from toolfold.events import Events
from toolfold.schema_walk import Document, Node
from toolfold.schema_walk.paths import ANY, ITEMS, Step, join_path
from toolfold.storage.base import Store, update_state
from toolfold.types import Outcome, Tool

MAX_DEPTH = 10
# An object with more different keys than this is a map.
MAX_KEYS = 200
MAX_NODES = 2_000
# How many values of one result are looked at.
MAX_VISITED = 1_500
SAMPLED_ITEMS = 16
# A part of a result up to this size is decoded whole; a larger one is opened level by level.
SMALL_BYTES = 8_192
# A larger result is not looked at: finding its parts alone would hold up everything else.
MAX_BYTES = 4 << 20
MAX_KEY_CHARS = 100

_DATA_KEY = re.compile(
    r"""
      [+-]?\d[\d.,:_-]*                                             # numbers, times
    | \d{4}-\d{2}-\d{2}.*                                           # dates
    | [0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}          # UUIDs
    | (?=[0-9a-f]*\d)(?=\d*[a-f])[0-9a-f]{12,}                      # hashes
    | (?=.*\d)[0-9A-HJKMNP-TV-Z]{26}                                # ULIDs
    | [A-Za-z]{1,8}_(?=[A-Za-z0-9]*\d)[A-Za-z0-9]{8,}               # ids with a prefix: cus_NffrFeUfNV2Hib
    | [A-Z]{2,10}-\d+                                               # ticket numbers
    | \S+@\S+\.\S+                                                  # mail addresses
    | [a-z][a-z0-9+.-]*://.*                                        # addresses
    | .*[/\\].*                                                     # file names with folders
    """,
    re.VERBOSE | re.DOTALL,
)


# Text is decoded only where it starts like an object or array: most results are prose.
_JSON_START = re.compile(rb'"(?:\s|\\[nrt])*[{\[]')


class _Shape(Struct, frozen=True, omit_defaults=True):
    """What stood at one place."""

    types: dict[str, int] = field(default_factory=dict)
    """JSON type -> how often."""
    fields: "dict[str, _Shape]" = field(default_factory=dict)
    items: "_Shape | None" = None
    values: "_Shape | None" = None
    """The values under keys that are data."""
    folded: bool = False
    """Whether all keys count as data, because there were too many."""

    @property
    def count(self) -> int:
        return sum(self.types.values())


class Observed(Struct, frozen=True, omit_defaults=True):
    """A shape, how many results it comes from, and how deep it still goes."""

    shape: _Shape
    calls: int = 1
    depth: int = MAX_DEPTH


_NULL = Raw(b"null")


class _Result(Struct):
    structuredContent: Raw = _NULL  # noqa: N815 - the name on the wire
    content: Raw = _NULL
    isError: bool = False  # noqa: N815 - the name on the wire


class _Text(Struct):
    type: str = ""
    text: Raw = _NULL


_result = Decoder(_Result)
_text = Decoder(_Text)
_string = Decoder(str)
_raw_object = Decoder(dict[str, Raw])
_raw_list = Decoder(list[Raw])


def observe(value: Any) -> Observed:
    """The shape of one decoded JSON value."""
    tally = _Tally()
    _Visit().add(tally, value, 0)
    return _fitted(tally.shape(), 1, MAX_DEPTH)


def _observe_result(raw: bytes | Raw) -> Observed | None:
    """The shape of a `CallToolResult`: of its structured content, or of its text where that is JSON; else `None`."""
    if len(memoryview(raw)) > MAX_BYTES:
        return None
    try:
        result = _result.decode(raw)
        if result.isError:
            return None
        structured = result.structuredContent
        content = structured if bytes(memoryview(structured)[:5]) != b"null" else _json_text(result.content)
        if content is None:
            return None
        tally = _Tally()
        _Visit().add_raw(tally, content, 0)
    except (DecodeError, RecursionError):
        return None
    return None if tally.types.keys() <= {"null"} else _fitted(tally.shape(), 1, MAX_DEPTH)


def merge(first: Observed, second: Observed) -> Observed:
    """Both together: the same in any order and grouping."""
    depth = min(first.depth, second.depth)
    return _fitted(_join(first.shape, second.shape), first.calls + second.calls, depth)


def _is_due(calls: int, size: int) -> bool:
    """Whether to look at the result of a tool's next call, after so many calls: the first ones, then ever fewer.

    A look at 100 KB costs more than passing it on does, and writing down what was seen more than a small call. The
    twentieth result of a tool seldom brings news: from then on each power of two is looked at, and one in a thousand.
    """
    first, then = (16, 16) if size <= SMALL_BYTES else (3, 128)
    return calls < first or (calls >= then and not calls & (calls - 1)) or calls % 1024 == 0


def _looks_like_data(key: str) -> bool:
    """Whether a key is a value in the place of a name."""
    return len(key) > MAX_KEY_CHARS or not key or _DATA_KEY.fullmatch(key) is not None


def _json_text(content: Raw) -> str | None:
    """The text of a result that is one text, where it starts like a JSON object or array."""
    blocks = _raw_list.decode(content)
    if len(blocks) != 1:
        return None
    block = _text.decode(blocks[0])
    if block.type != "text" or not _JSON_START.match(bytes(memoryview(block.text)[:64])):
        return None
    return _string.decode(block.text)


class _Tally:
    """A shape while it is counted."""

    __slots__ = ("fields", "folded", "items", "types", "values")

    def __init__(self) -> None:
        self.types: dict[str, int] = {}
        self.fields: dict[str, _Tally] = {}
        self.items: _Tally | None = None
        self.values: _Tally | None = None
        self.folded = False

    def shape(self) -> _Shape:
        fields = {key: tally.shape() for key, tally in self.fields.items() if tally.types}
        items = self.items.shape() if self.items is not None else None
        values = self.values.shape() if self.values is not None else None
        return _shape(self.types, fields, items, values, folded=self.folded)


_Add = Callable[[_Tally, Any, int], None]


class _Visit:
    """One walk through one result, within its limit of values."""

    def __init__(self) -> None:
        self.left = MAX_VISITED
        self._is_data: dict[str, bool] = {}

    def add(self, tally: _Tally, value: Any, depth: int) -> None:
        if self.left <= 0:
            return
        self.left -= 1
        kind = _TYPES.get(type(value), "object")
        tally.types[kind] = tally.types.get(kind, 0) + 1
        if depth >= MAX_DEPTH:
            return
        if kind == "object":
            self._object(tally, value, depth + 1, self.add)
        elif kind == "array":
            self._array(tally, value, depth + 1, self.add)

    def add_raw(self, tally: _Tally, raw: Raw | str, depth: int) -> None:
        """The same for a part that is not decoded yet: only what is looked at gets decoded."""
        size = len(raw) if isinstance(raw, str) else len(memoryview(raw))
        if size <= SMALL_BYTES or depth >= MAX_DEPTH:
            self.add(tally, decode(raw), depth)
            return
        start = raw[:64].lstrip()[:1] if isinstance(raw, str) else chr(memoryview(raw)[0])
        if start == "{":
            tally.types["object"] = tally.types.get("object", 0) + 1
            self._object(tally, _raw_object.decode(raw), depth + 1, self.add_raw)
        elif start == "[":
            tally.types["array"] = tally.types.get("array", 0) + 1
            self._array(tally, _raw_list.decode(raw), depth + 1, self.add_raw)
        else:
            self.add(tally, "" if start == '"' else decode(raw), depth)

    def _object(self, tally: _Tally, value: dict[str, Any], depth: int, add: _Add) -> None:
        if len(value) > MAX_KEYS:
            tally.folded = True
        # A map may have any number of keys, and a few of its values tell their type.
        sampled = 0
        for key, item in value.items():
            if tally.folded or self._data(key):
                if sampled == SAMPLED_ITEMS:
                    continue
                sampled += 1
                if tally.values is None:
                    tally.values = _Tally()
                add(tally.values, item, depth)
            else:
                field_tally = tally.fields.get(key)
                if field_tally is None:
                    field_tally = tally.fields[key] = _Tally()
                add(field_tally, item, depth)

    def _array(self, tally: _Tally, value: list[Any], depth: int, add: _Add) -> None:
        if not value:
            return
        if tally.items is None:
            tally.items = _Tally()
        for item in _sample(value):
            add(tally.items, item, depth)

    def _data(self, key: str) -> bool:
        is_data = self._is_data.get(key)
        if is_data is None:
            is_data = self._is_data[key] = _looks_like_data(key)
        return is_data


_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    dict: "object",
    list: "array",
}


def _sample(items: Sequence[Any]) -> Sequence[Any]:
    """All of a short array; of a long one the first half of the sample, and the rest spread over what follows."""
    if len(items) <= SAMPLED_ITEMS:
        return items
    first = SAMPLED_ITEMS // 2
    step = (len(items) - first) // (SAMPLED_ITEMS - first)
    return [*items[:first], *items[first + step - 1 :: step][: SAMPLED_ITEMS - first]]


def _all(shapes: Iterable[_Shape | None]) -> _Shape | None:
    joined: _Shape | None = None
    for shape in shapes:
        if shape is not None:
            joined = shape if joined is None else _join(joined, shape)
    return joined


def _join(first: _Shape, second: _Shape) -> _Shape:
    types = dict(first.types)
    for kind, count in second.types.items():
        types[kind] = types.get(kind, 0) + count
    fields = dict(first.fields)
    for key, shape in second.fields.items():
        fields[key] = _join(fields[key], shape) if key in fields else shape
    items, values = _all([first.items, second.items]), _all([first.values, second.values])
    return _shape(types, fields, items, values, folded=first.folded or second.folded)


def _shape(
    types: dict[str, int], fields: dict[str, _Shape], items: _Shape | None, values: _Shape | None, *, folded: bool
) -> _Shape:
    """A shape whose keys count as data where there are too many."""
    if folded or len(fields) > MAX_KEYS:
        return _Shape(types, {}, items, _all([values, *fields.values()]), folded=True)
    return _Shape(types, fields, items, values)


def _fitted(shape: _Shape, calls: int, depth: int) -> Observed:
    """Cut so deep that it holds no more than `MAX_NODES`."""
    shape = _pruned(shape, depth) if _depth(shape) > depth else shape
    # Depth gives way first: the upper levels are what a summary shows.
    while depth > 1 and _nodes(shape) > MAX_NODES:
        depth -= 1
        shape = _pruned(shape, depth)
    return Observed(shape, calls, depth)


def _below(shape: _Shape) -> list[_Shape]:
    return [*shape.fields.values(), *(part for part in (shape.items, shape.values) if part is not None)]


def _nodes(shape: _Shape) -> int:
    return 1 + sum(map(_nodes, _below(shape)))


def _depth(shape: _Shape) -> int:
    return max((1 + _depth(part) for part in _below(shape)), default=0)


def _pruned(shape: _Shape, depth: int) -> _Shape:
    if depth == 0:
        return _Shape(shape.types)
    return _Shape(
        shape.types,
        {key: _pruned(part, depth - 1) for key, part in shape.fields.items()},
        _pruned(shape.items, depth - 1) if shape.items is not None else None,
        _pruned(shape.values, depth - 1) if shape.values is not None else None,
        shape.folded,
    )


MARK = "x-observed"
MAX_CONTRADICTIONS = 20
_ABSENT = _Shape()
_ORDER = ("object", "array", "string", "integer", "number", "boolean", "null")


class _Contradiction(Struct, frozen=True):
    """One thing that results did and the declared schema does not allow."""

    path: str
    declared: str
    seen: str
    count: int
    """How many of the values looked at."""

    def __str__(self) -> str:
        return f"{self.path or 'the result'}: declared {self.declared}, seen {self.seen}"


def to_schema(observed: Observed) -> dict[str, Any]:
    """A JSON Schema that fits everything observed, marked with the number of results it comes from."""
    return {**_schema(observed.shape), MARK: {"calls": observed.calls}}


def decode_schema(raw: Raw | None) -> Any:
    """A schema as its server sent it, decoded; `None` for what cannot be read, which then counts as not declared."""
    if raw is None:
        return None
    try:
        return decode(raw)
    except (DecodeError, RecursionError):
        return None


def observed_calls(schema: Any) -> int | None:
    """How many results a schema comes from; `None` for a declared one."""
    mark = schema.get(MARK) if isinstance(schema, dict) else None
    calls = mark.get("calls") if isinstance(mark, dict) else None
    return calls if isinstance(calls, int) else None


def result_schema(declared: Any, observed: Observed | None, *, as_seen: bool = False) -> Any:
    """The schema to show: the declared one, or the observed one where that says nothing and there is one.

    With `as_seen` also where results are of another type altogether: a bare array in place of the declared object.
    """
    if observed is None or not (is_uninformative(declared) or (as_seen and _is_of_another_type(declared, observed))):
        return declared
    return to_schema(observed)


def _is_of_another_type(declared: Any, observed: Observed) -> bool:
    root = Document(declared).root
    return root.kind not in {"any", "unknown"} and not any(_allows(root, kind) for kind in observed.shape.types)


def is_uninformative(schema: Any) -> bool:
    """Whether a declaration tells a reader nothing: absent, an open object, or a `result` around one."""
    if not isinstance(schema, dict):
        return True
    root = Document(schema).root
    if root.kind == "object" and root.names == ["result"]:
        inner = root.child(Step("key", "result"))
        return inner is None or _is_vague(inner)
    return _is_vague(root)


def _find_contradictions(observed: Observed, declared: Any) -> list[_Contradiction]:
    """Where the results do not fit the declared schema: wrong types, missing or undeclared fields."""
    if not isinstance(declared, dict):
        return []
    return list(islice(_compare(observed.shape, Document(declared).root, ""), MAX_CONTRADICTIONS))


def _is_vague(node: Node) -> bool:
    for _ in range(4):
        items = node.child(ITEMS) if node.kind == "array" else None
        if items is None:
            break
        node = items
    return node.kind == "any" or node.is_open


def _schema(shape: _Shape) -> dict[str, Any]:
    names = _type_names(shape.types)
    schema: dict[str, Any] = {"type": names[0] if len(names) == 1 else names} if names else {}
    if shape.fields:
        schema["properties"] = {key: _schema(part) for key, part in shape.fields.items()}
        objects = shape.types.get("object", 0)
        required = [key for key, part in shape.fields.items() if part.count >= objects]
        schema |= {"required": required} if required else {}
    if shape.values is not None:
        schema["additionalProperties"] = _schema(shape.values)
    if shape.items is not None:
        schema["items"] = _schema(shape.items)
    return schema


def _type_names(types: Collection[str]) -> list[str]:
    # JSON Schema counts every integer as a number.
    ignored = {"integer"} if "number" in types else set()
    return [kind for kind in _ORDER if kind in types and kind not in ignored]


def _compare(shape: _Shape, node: Node, path: str) -> Iterator[_Contradiction]:
    if node.kind in {"any", "unknown"}:
        return
    for kind, count in shape.types.items():
        if not _allows(node, kind):
            yield _Contradiction(path, node.label, kind, count)
    yield from _compare_fields(shape, node, path)
    below = [(ITEMS, shape.items), (ANY, shape.values)]
    below.extend((Step("key", key), part) for key, part in shape.fields.items())
    for step, part in below:
        child = node.child(step) if part is not None else None
        if child is not None and part is not None:
            yield from _compare(part, child, join_path(path, step))


def _compare_fields(shape: _Shape, node: Node, path: str) -> Iterator[_Contradiction]:
    objects = shape.types.get("object", 0)
    if not objects or "object" not in node.kinds or shape.folded:
        return
    # Where some keys folded into a map, a required one may be among them.
    for name in sorted(node.required) if shape.values is None else ():
        missing = objects - shape.fields.get(name, _ABSENT).count
        if missing > 0:
            yield _Contradiction(join_path(path, Step("key", name)), "required", "missing", missing)
    if node.closed and not node.is_map and node.kind == "object":
        yield from _undeclared_fields(shape, node, path)


def _undeclared_fields(shape: _Shape, node: Node, path: str) -> Iterator[_Contradiction]:
    for name, part in shape.fields.items():
        step = Step("key", name)
        if node.child(step) is None:
            yield _Contradiction(join_path(path, step), "no such field", "present", part.count)


# The types of a declaration that allow a value of another type than their own.
_ALLOWED_BY = {"array": {"tuple"}, "integer": {"number"}}


def _allows(node: Node, kind: str) -> bool:
    if kind == "null":
        return node.nullable or node.kind == "null"
    return not node.kinds.isdisjoint({kind, "any", *_ALLOWED_BY.get(kind, ())})


# The store's namespace for shapes.
_NAMESPACE = "observed"
# Results that wait to be observed. Where more come at once, the others are left out: there will be more of them.
_MAX_QUEUED = 64
_MAX_FOUND = 10_000
# How long a call waits at most to tell of its own result; results that are due are few.
_OWN_RESULT_S = 0.05

log = logging.getLogger("toolfold.gateway")

_decode = msgspec.json.Decoder(Observed).decode
_encode = msgspec.json.Encoder().encode


class Observer:
    """The shapes of one catalogue's results. A call never waits for it: one task takes results in, in their order."""

    def __init__(self, store: Store, events: Events) -> None:
        self._store = store
        self._events = events
        self._calls: dict[tuple[str, str], int] = {}
        self._reported: set[tuple[str, _Contradiction]] = set()
        self._found: BoundedDict[tuple[str, str], list[_Contradiction]] = BoundedDict(_MAX_FOUND)
        self._queue: deque[tuple[Tool, Raw]] = deque()
        self._waiting: set[tuple[str, str]] = set()
        self._task: asyncio.Task[None] | None = None

    def observe(self, tool: Tool, outcome: Outcome) -> None:
        """Queues a successful result where one is due."""
        if outcome.is_error or outcome.spilled is not None:
            return
        key = (tool.tool_id, tool.fingerprint)
        calls = self._calls.get(key, 0)
        self._calls[key] = calls + 1
        if _is_due(calls, len(memoryview(outcome.raw))) and len(self._queue) < _MAX_QUEUED:
            self._queue.append((tool, outcome.raw))
            self._waiting.add(key)
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._drain())

    async def settled(self) -> None:
        """Waits until every queued result is merged."""
        while self._task is not None:
            await asyncio.shield(self._task)

    async def of(self, tool: Tool) -> Observed | None:
        """What this version of a tool returned so far."""
        await self.settled()
        return await self._stored(tool)

    async def contradictions(self, tool: Tool) -> list[_Contradiction]:
        """Where results did not fit what the tool declares. Kept, since every result of such a tool asks for it."""
        key = (tool.tool_id, tool.fingerprint)
        # The result just observed is told of with itself, unless others are before it: a call does not wait for those.
        if self._task is not None and key in self._waiting:
            await asyncio.wait((self._task,), timeout=_OWN_RESULT_S)
        found = self._found.get(key)
        if found is None:
            observed = await self._stored(tool)
            found = self._found[key] = [] if observed is None else _contradictions(tool, observed)
        return found

    async def among(self, tools: Iterable[Tool]) -> list[Tool]:
        """Those of which results were observed."""
        await self.settled()
        observed = await self._store.items(_NAMESPACE)
        return [tool for tool in tools if _key(tool) in observed]

    async def _drain(self) -> None:
        try:
            while self._queue:
                tool, result = self._queue.popleft()
                try:
                    await self._merge(tool, result)
                except ToolfoldError as error:
                    log.warning("what %s returned could not be noted: %s", tool.tool_id, error.message)
                except (msgspec.MsgspecError, UnicodeError):  # a record, or a result, that cannot be read
                    log.exception("what %s returned could not be noted", tool.tool_id)
                self._waiting.discard((tool.tool_id, tool.fingerprint))
        finally:
            self._task = None
            self._waiting.clear()

    async def _merge(self, tool: Tool, result: Raw) -> None:
        # In a thread: decoding a large result would hold up every other call.
        observed = await asyncio.to_thread(_observe_result, result)
        if observed is None:
            return
        merged = observed

        def add(stored: bytes | None) -> bytes:
            nonlocal merged
            merged = merge(_decode(stored), observed) if stored else observed
            return _encode(merged)

        await update_state(self._store, _NAMESPACE, _key(tool), add)
        key = (tool.tool_id, tool.fingerprint)
        self._calls[key] = max(self._calls[key], merged.calls)
        self._report(tool, merged)

    async def _stored(self, tool: Tool) -> Observed | None:
        stored = await self._store.get(_NAMESPACE, _key(tool))
        return None if stored is None else _decode(stored)

    def _report(self, tool: Tool, observed: Observed) -> None:
        """Emits each contradiction once."""
        found = self._found[(tool.tool_id, tool.fingerprint)] = _contradictions(tool, observed)
        for contradiction in found:
            once = (tool.tool_id, msgspec.structs.replace(contradiction, count=0))
            if once not in self._reported:
                self._reported.add(once)
                self._events.emit(
                    "schema.contradicted",
                    tool_id=tool.tool_id,
                    path=contradiction.path,
                    declared=contradiction.declared,
                    seen=contradiction.seen,
                )


def _contradictions(tool: Tool, observed: Observed) -> list[_Contradiction]:
    declared = decode_schema(tool.definition.output_schema)
    return [] if is_uninformative(declared) else _find_contradictions(observed, declared)


def _key(tool: Tool) -> str:
    return f"{tool.tool_id.casefold()}@{tool.fingerprint}"
