"""The shape of what a tool returned, merged over its calls: types, which fields are always there, and counts.

No value is kept, only keys, and keys that are data themselves (ids, dates, numbers, addresses) fold into a map. A shape
is bounded whatever comes in: long arrays are sampled, and depth gives way before the number of nodes grows too large.
Merging gives the same shape in any order and grouping, so several gateways may observe on their own and join later.

Above: whoever keeps shapes per tool version. Beside: `observed_schema.py` turns a shape into a schema.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from msgspec import DecodeError, Raw, Struct, field
from msgspec.json import Decoder, decode

from toolfold.schema_walk import Document, Node
from toolfold.schema_walk.paths import ANY, ITEMS, Step, join_path

MAX_DEPTH = 10
MAX_KEYS = 200
"""An object that was seen with more different keys than this is a map."""
MAX_NODES = 2_000
MAX_VISITED = 1_500
"""How many values of one result are looked at."""
SAMPLED_ITEMS = 16
SMALL_BYTES = 8_192
"""A part of a result up to this size is decoded whole; a larger one is opened level by level."""
MAX_BYTES = 4 << 20
"""A larger result is not looked at: finding its parts alone would hold up everything else."""
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


_JSON_START = re.compile(rb'"(?:\s|\\[nrt])*[{\[]')


class Shape(Struct, frozen=True, omit_defaults=True):
    """What was seen at one place."""

    types: dict[str, int] = field(default_factory=dict)
    """JSON type -> how often."""
    fields: "dict[str, Shape]" = field(default_factory=dict)
    items: "Shape | None" = None
    values: "Shape | None" = None
    """The values under keys that are data."""
    folded: bool = False
    """Whether all keys count as data, because there were too many."""

    @property
    def count(self) -> int:
        return sum(self.types.values())


class Observed(Struct, frozen=True, omit_defaults=True):
    """A shape, how many results it comes from, and how deep it still goes."""

    shape: Shape
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


def observe_result(raw: bytes | Raw) -> Observed | None:
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


def merge(one: Observed, other: Observed) -> Observed:
    """Both together: the same in any order and grouping."""
    depth = min(one.depth, other.depth)
    return _fitted(_join(one.shape, other.shape), one.calls + other.calls, depth)


def is_due(calls: int, size: int) -> bool:
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

    def shape(self) -> Shape:
        fields = {key: tally.shape() for key, tally in self.fields.items() if tally.types}
        items = self.items.shape() if self.items is not None else None
        values = self.values.shape() if self.values is not None else None
        if self.folded or len(fields) > MAX_KEYS:
            return Shape(self.types, {}, items, _all([values, *fields.values()]), folded=True)
        return Shape(self.types, fields, items, values)


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
                known = tally.fields.get(key)
                if known is None:
                    known = tally.fields[key] = _Tally()
                add(known, item, depth)

    def _array(self, tally: _Tally, value: list[Any], depth: int, add: _Add) -> None:
        if not value:
            return
        if tally.items is None:
            tally.items = _Tally()
        for item in _sample(value):
            add(tally.items, item, depth)

    def _data(self, key: str) -> bool:
        known = self._is_data.get(key)
        if known is None:
            known = self._is_data[key] = _looks_like_data(key)
        return known


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


def _all(shapes: Iterable[Shape | None]) -> Shape | None:
    joined: Shape | None = None
    for shape in shapes:
        if shape is not None:
            joined = shape if joined is None else _join(joined, shape)
    return joined


def _join(one: Shape, other: Shape) -> Shape:
    types = dict(one.types)
    for kind, count in other.types.items():
        types[kind] = types.get(kind, 0) + count
    items = _all([one.items, other.items])
    values = _all([one.values, other.values])
    if one.folded or other.folded or len(one.fields.keys() | other.fields.keys()) > MAX_KEYS:
        return Shape(types, {}, items, _all([values, *one.fields.values(), *other.fields.values()]), folded=True)
    fields = dict(one.fields)
    for key, shape in other.fields.items():
        fields[key] = _join(fields[key], shape) if key in fields else shape
    return Shape(types, fields, items, values)


def _fitted(shape: Shape, calls: int, depth: int) -> Observed:
    """Cut so deep that it holds no more than `MAX_NODES`."""
    shape = _pruned(shape, depth) if _depth(shape) > depth else shape
    while depth > 1 and _nodes(shape) > MAX_NODES:
        depth -= 1
        shape = _pruned(shape, depth)
    return Observed(shape, calls, depth)


def _below(shape: Shape) -> list[Shape]:
    return [*shape.fields.values(), *(part for part in (shape.items, shape.values) if part is not None)]


def _nodes(shape: Shape) -> int:
    return 1 + sum(map(_nodes, _below(shape)))


def _depth(shape: Shape) -> int:
    return max((1 + _depth(part) for part in _below(shape)), default=0)


def _pruned(shape: Shape, depth: int) -> Shape:
    if depth == 0:
        return Shape(shape.types)
    return Shape(
        shape.types,
        {key: _pruned(part, depth - 1) for key, part in shape.fields.items()},
        _pruned(shape.items, depth - 1) if shape.items is not None else None,
        _pruned(shape.values, depth - 1) if shape.values is not None else None,
        shape.folded,
    )


# --- From an observed shape to a JSON Schema, and from both to the schema that is shown.

MARK = "x-observed"
MAX_CONTRADICTIONS = 20
_ORDER = ("object", "array", "string", "integer", "number", "boolean", "null")


class Contradiction(Struct, frozen=True):
    """One thing that results did and the declared schema does not allow."""

    path: str
    declared: str
    seen: str
    count: int
    """How many of the values looked at."""


def to_schema(observed: Observed) -> dict[str, Any]:
    """A JSON Schema that fits everything observed, marked with the number of results it comes from."""
    return {**_schema(observed.shape), MARK: {"calls": observed.calls}}


def observed_calls(schema: Any) -> int | None:
    """How many results a schema comes from; `None` for a declared one."""
    mark = schema.get(MARK) if isinstance(schema, dict) else None
    calls = mark.get("calls") if isinstance(mark, dict) else None
    return calls if isinstance(calls, int) else None


def result_schema(declared: Any, observed: Observed | None) -> Any:
    """The schema to show: the declared one, or the observed one where that says nothing and something was seen."""
    if observed is not None and is_uninformative(declared):
        return to_schema(observed)
    return declared


def is_uninformative(schema: Any) -> bool:
    """Whether a declaration tells a reader nothing: absent, an open object, or a `result` around one."""
    if not isinstance(schema, dict):
        return True
    root = Document(schema).root
    if root.kind == "object" and root.names == ["result"]:
        inner = root.child(Step("key", "result"))
        return inner is None or _is_vague(inner)
    return _is_vague(root)


def find_contradictions(observed: Observed, declared: Any) -> list[Contradiction]:
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


def _schema(shape: Shape) -> dict[str, Any]:
    types = {kind for kind in shape.types if kind != "integer" or "number" not in shape.types}
    names = [kind for kind in _ORDER if kind in types]
    schema: dict[str, Any] = {"type": names[0] if len(names) == 1 else names} if names else {}
    if shape.fields:
        schema["properties"] = {key: _schema(part) for key, part in shape.fields.items()}
        always = [key for key, part in shape.fields.items() if part.count >= shape.types.get("object", 0)]
        if always:
            schema["required"] = always
    if shape.values is not None:
        schema["additionalProperties"] = _schema(shape.values)
    if shape.items is not None:
        schema["items"] = _schema(shape.items)
    return schema


def _compare(shape: Shape, node: Node, path: str) -> Iterator[Contradiction]:
    if node.kind in {"any", "unknown"}:
        return
    for kind, count in shape.types.items():
        if not _allows(node, kind):
            yield Contradiction(path, node.label, kind, count)
    yield from _compare_fields(shape, node, path)
    below = [(ITEMS, shape.items), (ANY, shape.values)]
    below.extend((Step("key", key), part) for key, part in shape.fields.items())
    for step, part in below:
        child = node.child(step) if part is not None else None
        if child is not None and part is not None:
            yield from _compare(part, child, join_path(path, step))


def _compare_fields(shape: Shape, node: Node, path: str) -> Iterator[Contradiction]:
    objects = shape.types.get("object", 0)
    if not objects or "object" not in node.kinds or shape.folded:
        return
    for name in sorted(node.required):
        seen = shape.fields[name].count if name in shape.fields else 0
        if seen < objects and shape.values is None:
            yield Contradiction(join_path(path, Step("key", name)), "required", "missing", objects - seen)
    if node.closed and not node.is_map and node.kind == "object":
        for name, part in shape.fields.items():
            if node.child(Step("key", name)) is None:
                yield Contradiction(join_path(path, Step("key", name)), "no such field", "present", part.count)


def _allows(node: Node, kind: str) -> bool:
    if kind == "null":
        return node.nullable or node.kind == "null"
    if kind == "array":
        return not node.kinds.isdisjoint({"array", "tuple", "any"})
    if kind == "integer":
        return not node.kinds.isdisjoint({"integer", "number", "any"})
    return kind in node.kinds or "any" in node.kinds
