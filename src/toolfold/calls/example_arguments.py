"""Arguments that would do: what was given where it fits, and the plainest value that the schema allows where not.

For error messages. A key that is nearly one of the schema's keeps its value under the right name. Local references are
followed, and depth and size are bounded. Nothing is validated here: whoever shows an example checks it first.
"""

import math
import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import reduce
from importlib import import_module
from typing import Any

from toolfold.schema_walk.compile_schema import compile_schema
from toolfold.schema_walk.keywords import Resolver

__all__ = ["example_for"]

_MAX_DEPTH = 8
_MAX_REFERENCES = 20
# Values of one example, and characters of a text made for a pattern or a length.
_MAX_VALUES = 400
_MAX_TEXT = 1_000
_MAX_PATTERN = 300
# How many keys, and which, are compared with those that are missing.
_MAX_KEYS = 100
_MAX_KEY_CHARS = 100

# Of each type the plainest value, and how Python holds its values.
_PLAIN = {"string": "text", "integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}, "null": None}
_TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "array": list,
    "object": dict,
    "null": type(None),
}

_FORMATS = {
    "date-time": "2026-01-31T12:00:00Z",
    "date": "2026-01-31",
    "time": "12:00:00Z",
    "duration": "P1D",
    "email": "name@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    **dict.fromkeys(("uri", "url", "uri-reference", "iri"), "https://example.com"),
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
    "json-pointer": "/a",
    "regex": ".*",
}

_UNIONS = ("anyOf", "oneOf")


def example_for(schema: Any, arguments: Any = None) -> Any:
    """An example of a schema, as near to `arguments` as it can be."""
    return _Example(schema).of(schema, arguments, 0)


class _Example:
    """One example on its way: the document that references lead into, and how much may still be made."""

    def __init__(self, root: Any) -> None:
        self._resolver = Resolver(root)
        self.left = _MAX_VALUES

    def of(self, schema: Any, value: Any, depth: int) -> Any:
        schema = self._merged(schema)
        self.left -= 1
        if not isinstance(schema, dict) or depth > _MAX_DEPTH or self.left < 0:
            return value
        for _ in range(_MAX_DEPTH):  # unions may hold unions
            schema = self._chosen(schema, value)
        if "const" in schema:
            return schema["const"]
        if _items(schema, "enum"):
            return _nearest_value(schema["enum"], value, schema.get("default"))
        return self._of_type(schema, _sample(schema) if value is None else value, depth)

    def _of_type(self, schema: dict[str, Any], value: Any, depth: int) -> Any:
        kind, value = _typed(value, _kinds(schema))
        if kind == "object":
            return self._object(schema, value, depth)
        if kind == "array":
            return self._array(schema, value, depth)
        if kind == "string":
            return _text(schema, value)
        return _number(schema, value, kind) if kind in {"integer", "number"} else value

    def _object(self, schema: dict[str, Any], value: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = _members(schema, "properties")
        required = list(dict.fromkeys((*_names(schema, "required"), *_dependent(schema, value))))
        value = _with_right_keys(value, properties, required, closed=schema.get("additionalProperties") is False)
        made: dict[str, Any] = {}
        for name in dict.fromkeys((*required, *value)):
            inner = properties.get(name, _for_other_keys(schema, name))
            is_null = value.get(name, ...) is None
            item = None if is_null and self._allows_null(inner) else self.of(inner, value.get(name), depth + 1)
            # Models send `null` for what they leave out.
            if not is_null or name in required or item is None:
                made[name] = item
        missing = [name for name in properties if name not in made]
        for name in missing[: max(0, int(_bound(schema, "minProperties", 0)) - len(made))]:
            made[name] = self.of(properties[name], None, depth + 1)
        return made

    def _array(self, schema: dict[str, Any], value: list[Any], depth: int) -> list[Any]:
        least, most = _bound(schema, "minItems", 0), _bound(schema, "maxItems", math.inf)
        least = max(least, 1) if "contains" in schema else least
        made: list[Any] = []
        for place in range(int(min(max(len(value), least), most, _MAX_VALUES))):
            inner = _schema_at(schema, place)
            if inner is False:
                break
            given = value[place] if place < len(value) else None
            item = self.of(inner, given, depth + 1)
            if item is None and "contains" in schema:
                item = self.of(schema["contains"], given, depth + 1)
            if not schema.get("uniqueItems") or item not in made:
                made.append(item)
            elif place >= len(value):
                made.append(self._another(inner, item, made))
        return made

    def _another(self, schema: Any, item: Any, made: list[Any]) -> Any:
        """A value for an array whose items must differ."""
        schema = self._merged(schema)
        if isinstance(schema, dict) and isinstance(schema.get("enum"), list):
            return next((value for value in schema["enum"] if value not in made), item)
        return f"{item}{len(made) + 1}" if isinstance(item, str) else len(made) + 1

    def _allows_null(self, schema: Any) -> bool:
        schema = self._merged(schema)
        if not isinstance(schema, dict):
            return True
        unions = [_items(schema, keyword) for keyword in _UNIONS if isinstance(schema.get(keyword), list)]
        if unions:
            return any(self._allows_null(part) for parts in unions for part in parts)
        kinds, values = _kinds(schema), schema.get("enum")
        return (not kinds or "null" in kinds) and (not isinstance(values, list) or None in values)

    def _chosen(self, schema: dict[str, Any], value: Any) -> dict[str, Any]:
        """The alternative that a value is nearest to, together with what holds beside the union."""
        keyword = next((name for name in _UNIONS if _items(schema, name)), None)
        if keyword is None:
            return schema
        beside = _without(schema, keyword)
        usable = self._usable_parts(schema[keyword], beside, value)
        best: dict[str, Any] = max(usable, key=lambda part: self._nearness(part, value), default={})
        return _joined(beside, _with_marks(best) if keyword == "oneOf" else best)

    def _usable_parts(self, parts: list[Any], beside: dict[str, Any], value: Any) -> list[dict[str, Any]]:
        """The alternatives that what holds beside them allows; null for a value only where there is no other."""
        objects = filter(_is_object, map(self._merged, parts))
        usable = [part for part in objects if not _excluded(part, beside)]
        return [part for part in usable if value is not None or _kinds(part) != ["null"]] or usable

    def _nearness(self, schema: dict[str, Any], value: Any) -> float:
        if "const" in schema:
            return 3.0 if _same(schema["const"], value) else -1.0
        if isinstance(schema.get("enum"), list):
            return 3.0 if any(_same(item, value) for item in schema["enum"]) else 0.0
        kinds = _kinds(schema)
        if not _is_one(value, kinds):
            return -2.0 if kinds == ["null"] else 0.0
        return self._likeness(schema, value) if isinstance(value, dict) else 0.5 + 0.5 * bool(kinds)

    def _likeness(self, schema: dict[str, Any], value: dict[str, Any]) -> float:
        """How many of an object's keys a schema knows; what can hold one value only counts double, or not at all."""
        known = _members(schema, "properties")
        total = 1.0 - 0.1 * len(set(_names(schema, "required")) - value.keys())
        for name in value.keys() & known.keys():
            part = self._merged(known[name])
            if _is_mark(part):
                total += 2.0 if _same(part["const"], value[name]) else 0.0
            else:
                total += isinstance(part, dict)
        return total

    def _merged(self, schema: Any, left: int = _MAX_REFERENCES) -> Any:
        """A schema with what it refers to and what all holds together; nothing where that leads nowhere."""
        while isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
            left -= 1
            found = self._resolver.find(schema["$ref"], self._resolver.home) if left >= 0 else None
            target = True if found is None else found[0]
            schema = _joined(target, _without(schema, "$ref")) if isinstance(target, dict) else target
        if left <= 0 or not isinstance(schema, dict) or not isinstance(schema.get("allOf"), list):
            return schema
        parts = [self._merged(part, left - 1) for part in schema["allOf"]]
        return reduce(_joined, filter(_is_object, parts), _without(schema, "allOf"))


# Foreign schemas hold anything anywhere: a keyword is read as what it should be, or as nothing.


def _members(schema: Any, keyword: str) -> dict[str, Any]:
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}


def _items(schema: dict[str, Any], keyword: str) -> list[Any]:
    value = schema.get(keyword)
    return value if isinstance(value, list) else []


def _names(schema: dict[str, Any], keyword: str) -> list[str]:
    return [name for name in _items(schema, keyword) if isinstance(name, str)]


def _bound(schema: dict[str, Any], keyword: str, otherwise: float) -> float:
    bound = schema.get(keyword)
    return bound if isinstance(bound, (int, float)) and not isinstance(bound, bool) else otherwise


def _kinds(schema: dict[str, Any]) -> list[str]:
    kind = schema.get("type")
    if isinstance(kind, (str, list)):
        return [kind] if isinstance(kind, str) else _names(schema, "type")
    if "properties" in schema or "required" in schema:
        return ["object"]
    return ["array"] if "items" in schema else []


def _is_object(schema: Any) -> bool:
    return isinstance(schema, dict)


def _is_mark(schema: Any) -> bool:
    """Whether it allows one value only, which tells alternatives apart."""
    return isinstance(schema, dict) and "const" in schema


def _with_marks(schema: dict[str, Any]) -> dict[str, Any]:
    """What tells it from other alternatives must be said."""
    marks = [name for name, part in _members(schema, "properties").items() if _is_mark(part)]
    return {**schema, "required": [*_names(schema, "required"), *marks]} if marks else schema


def _without(schema: dict[str, Any], keyword: str) -> dict[str, Any]:
    return {key: item for key, item in schema.items() if key != keyword}


def _joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Both at once. Of one keyword the second counts, where they cannot be put together."""
    joined = {**first, **second}
    for keyword in ("properties", "patternProperties"):
        if _members(second, keyword):
            joined[keyword] = {**_members(first, keyword), **second[keyword]}
    if "required" in first and "required" in second:
        joined["required"] = [*_names(first, "required"), *_names(second, "required")]
    return joined


def _excluded(part: dict[str, Any], beside: dict[str, Any]) -> bool:
    kinds, outer = _kinds(part), _kinds(beside)
    return bool(kinds and outer) and not set(kinds) & set(outer)


def _samples(schema: dict[str, Any]) -> Iterator[Any]:
    """What the schema itself proposes."""
    for sample in (schema.get("default"), schema.get("example"), *_items(schema, "examples")[:4]):
        if sample is not None:
            yield sample


def _sample(schema: dict[str, Any]) -> Any:
    return next((sample for sample in _samples(schema) if _is_one(sample, _kinds(schema))), None)


def _same(first: Any, second: Any) -> bool:
    """Equal as JSON: `true` is not `1`."""
    return first == second and isinstance(first, bool) == isinstance(second, bool)


def _nearest_value(values: list[Any], value: Any, default: Any) -> Any:
    """The value itself, or the listed one that looks most like it."""
    for candidate in (value, default):
        if candidate is not None and any(_same(item, candidate) for item in values):
            return candidate
    texts = {str(item).casefold(): item for item in reversed(values) if item is not None}
    close = get_close_matches(str(value).casefold(), texts, 1) if value is not None else []
    return texts[close[0]] if close else next(reversed(texts.values()), None)


def _dependent(schema: dict[str, Any], value: dict[str, Any]) -> Iterator[str]:
    for keyword in ("dependentRequired", "dependencies"):
        rules = _members(schema, keyword)
        for name in rules.keys() & value.keys():
            yield from _names(rules, name)


def _plain_key(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()


def _with_right_keys(
    value: dict[str, Any], properties: dict[str, Any], required: list[str], *, closed: bool
) -> dict[str, Any]:
    """The same values: an unknown key under the known name that it nearly is, or dropped where the object is closed."""
    known = dict.fromkeys((*properties, *required))
    missing = {_plain_key(name): name for name in reversed(known) if name not in value}
    right: dict[str, Any] = {}
    for number, (name, given) in enumerate(value.items()):
        close = _near_keys(_plain_key(name), missing) if name not in known and number < _MAX_KEYS else []
        mistyped = close and _is_mistyped(missing[close[0]], required, closed=closed)
        meant = missing.pop(close[0]) if mistyped else name
        if meant in known or not closed:
            right[meant] = given
    return right


def _is_mistyped(meant: str, required: list[str], *, closed: bool) -> bool:
    """Where other keys are allowed, only a required one that is missing shows that a key was mistyped."""
    return closed or meant in required


def _near_keys(key: str, missing: dict[str, str]) -> list[str]:
    """The missing key that an unknown one stands for: nearly the same letters, or the beginning of one alone."""
    if len(key) >= _MAX_KEY_CHARS:
        return []
    close = get_close_matches(key, missing, 1, 0.75)
    begun = [name for name in missing if len(key) >= 3 and name.startswith(key)]
    return close or (begun if len(begun) == 1 else [])


def _for_other_keys(schema: dict[str, Any], name: str) -> Any:
    patterns = _members(schema, "patternProperties")
    if len(patterns) == 1:
        return next(iter(patterns.values()))
    return schema.get("additionalProperties", True) if name not in _names(schema, "required") else True


def _schema_at(schema: dict[str, Any], place: int) -> Any:
    """What holds for one item of an array, in the older and the newer way to say it."""
    items = schema.get("items", True)
    places = items if isinstance(items, list) else _items(schema, "prefixItems")
    if place < len(places):
        return places[place]
    return schema.get("additionalItems", True) if isinstance(items, list) else items


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(kind, ()))


def _is_one(value: Any, kinds: list[str]) -> bool:
    return not kinds or any(_is(value, kind) for kind in kinds)


def _typed(value: Any, kinds: list[str]) -> tuple[str, Any]:
    """The type that a value has or should have, and the value as one of that type."""
    if value is not None and _is_one(value, kinds):
        return next((kind for kind in kinds if _is(value, kind)), ""), value
    kind = next((kind for kind in kinds if kind != "null"), "null")
    return kind, _convert(value, kind)


def _convert(value: Any, kind: str) -> Any:
    """`"5"` for an integer is most likely meant as 5."""
    if kind in {"integer", "number"} and isinstance(value, (str, float)):
        return _parsed_number(value, kind)
    if kind == "boolean" and isinstance(value, str):
        return value.strip().casefold() not in {"false", "no", "off", "0"}
    if kind == "string" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return [value] if kind == "array" and value is not None else _PLAIN.get(kind)


def _parsed_number(value: str | float, kind: str) -> Any:
    try:
        number = float(value)
        return int(number) if kind == "integer" else number if math.isfinite(number) else _PLAIN[kind]
    except (ValueError, OverflowError):
        return _PLAIN[kind]


def _number(schema: dict[str, Any], value: Any, kind: str) -> Any:
    """The allowed number that is nearest."""
    step = _bound(schema, "multipleOf", 0) or (1 if kind == "integer" else 0)
    low, high = _range(schema, step)
    if low <= value <= high and not (step and value % step):
        return value
    near = min(max(value, low), high)
    if step:
        near = (math.ceil if near <= low else math.floor)(near / step) * step
    return int(near) if kind == "integer" else near


def _range(schema: dict[str, Any], step: float) -> tuple[float, float]:
    """The least and the greatest number, also where the bounds themselves are not allowed."""
    least, most = _bound(schema, "minimum", -math.inf), _bound(schema, "maximum", math.inf)
    above, below = _bound(schema, "exclusiveMinimum", -math.inf), _bound(schema, "exclusiveMaximum", math.inf)
    gap = step or min(1.0, (below - above) / 2)
    return max(least, above + gap), min(most, below - gap)


def _text(schema: dict[str, Any], value: str) -> str:
    """The text where it fits; else one of the right length, of the schema's samples, or for its format or pattern."""
    checked = {key: schema[key] for key in ("pattern", "format", "minLength", "maxLength") if key in schema}
    validator = compile_schema(checked, formats=True) if checked else None
    return next((text for text in _texts(schema, value) if validator is None or validator.is_valid(text)), value)


def _texts(schema: dict[str, Any], value: str) -> Iterator[str]:
    least, most = int(_bound(schema, "minLength", 0)), int(_bound(schema, "maxLength", _MAX_TEXT))
    form = _FORMATS.get(str(schema.get("format")), "")
    texts = [form if value == _PLAIN["string"] else "", value, *_samples(schema), form]
    yield from (text for text in texts if text and isinstance(text, str))
    if isinstance(schema.get("pattern"), str):
        yield from filter(None, (_text_for(schema["pattern"], repeats) for repeats in (1, 0, least)))
    long = (value or "x") * math.ceil(min(least, _MAX_TEXT) / max(1, len(value)))
    yield long[:least] if least > len(value) else value[:most]


def _text_for(pattern: str, repeats: int) -> str:
    """A plain text for a pattern, its parts repeated where they may be; nothing for one that cannot be read."""
    # The standard library's own reading of a pattern.
    parser = import_module("re._parser")

    try:
        tree = parser.parse(pattern[:_MAX_PATTERN])
        return "".join(_written(tree, min(repeats, _MAX_TEXT)))[:_MAX_TEXT]
    except (re.error, RecursionError, OverflowError):
        return ""


def _written(tree: Any, repeats: int) -> Iterator[str]:
    """Each part of a parsed pattern as the shortest text for it."""
    for operation, argument in tree:
        name = str(operation)
        if name == "LITERAL":
            yield chr(argument)
        elif name in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}:
            low, high, inner = argument
            yield "".join(_written(inner, repeats)) * min(max(low, repeats), int(high), _MAX_TEXT)
        elif name in {"SUBPATTERN", "ATOMIC_GROUP"}:
            yield from _written(argument[-1] if name == "SUBPATTERN" else argument, repeats)
        elif name == "BRANCH":
            yield from _written(argument[1][0], repeats)
        else:
            yield _character(name, argument)


_CATEGORIES = {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " "}


def _character(name: str, argument: Any) -> str:
    """One character for a set, a dot or a class; nothing for an anchor, or for what only looks around."""
    if name == "IN":
        return _member(argument)
    if name == "CATEGORY":
        return _CATEGORIES.get(str(argument), "a")
    if name == "NOT_LITERAL":
        return "x" if argument != ord("x") else "y"
    return "x" if name == "ANY" else ""


def _member(parts: Any) -> str:
    """A character of a set."""
    if str(parts[0][0]) == "NEGATE":
        signs = (sign for sign in "xa1_-é" if not any(_holds(str(kind), part, sign) for kind, part in parts[1:]))
        return next(signs, "")
    kind, part = parts[0]
    if str(kind) == "CATEGORY":
        return _character("CATEGORY", part)
    return chr(part[0] if str(kind) == "RANGE" else part)


def _holds(kind: str, part: Any, sign: str) -> bool:
    """Whether a part of a set of characters holds one."""
    if kind == "RANGE":
        return bool(part[0] <= ord(sign) <= part[1])
    if kind == "LITERAL":
        return bool(part == ord(sign))
    return sign == _CATEGORIES.get(str(part), "_") or (str(part) == "CATEGORY_WORD" and sign.isalnum())
