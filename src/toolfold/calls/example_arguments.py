"""Arguments that would do: what was given where it fits, and the plainest value that the schema allows where not.

For error messages. A key that is nearly one of the schema's keeps its value under the right name. Local references are
followed, and depth and size are bounded. Nothing is validated here: whoever shows an example checks it first.
"""

import math
import re
from collections.abc import Iterator
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from toolfold.calls.compile_schema import compile_schema

_MAX_DEPTH = 8
_MAX_REFERENCES = 20
# Values of one example, and characters of a text made for a pattern or a length.
_MAX_VALUES = 400
_MAX_TEXT = 1_000
_MAX_PATTERN = 300
# How many keys, and which, are compared with those that are missing.
_MAX_KEYS = 100
_MAX_KEY_CHARS = 100

_PLAIN: dict[str, Any] = {
    "string": "text",
    "integer": 1,
    "number": 1.0,
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
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
    "uri": "https://example.com",
    "url": "https://example.com",
    "uri-reference": "https://example.com",
    "iri": "https://example.com",
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
        self.root = root
        self.left = _MAX_VALUES

    def of(self, schema: Any, value: Any, depth: int) -> Any:
        schema = self._merged(schema)
        self.left -= 1
        if not isinstance(schema, dict) or depth > _MAX_DEPTH or self.left < 0:
            return value
        for _ in range(_MAX_DEPTH):  # unions may hold unions
            union = next((name for name in _UNIONS if isinstance(schema.get(name), list) and schema[name]), None)
            schema = self._chosen(schema, union, value) if union is not None else schema
        if "const" in schema:
            return schema["const"]
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return _nearest_value(schema["enum"], value, schema.get("default"))
        if value is None:
            value = next((sample for sample in _samples(schema) if _fits_type(sample, schema)), None)
        return self._of_type(schema, value, depth)

    def _of_type(self, schema: dict[str, Any], value: Any, depth: int) -> Any:
        kinds = _kinds(schema)
        if not kinds:
            return value
        kind = next((kind for kind in kinds if _is(value, kind)), None)
        if kind is None or (value is None and kinds != ["null"]):
            kind = next((kind for kind in kinds if kind != "null"), kinds[0])
            value = _convert(value, kind)
        if kind == "object":
            return self._object(schema, value or {}, depth)
        if kind == "array":
            return self._array(schema, value or [], depth)
        if kind == "string" and isinstance(value, str):
            return _text(schema, value)
        return _number(schema, value, kind) if kind in {"integer", "number"} else value

    def _object(self, schema: dict[str, Any], value: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        required = list(dict.fromkeys((*_names(schema.get("required")), *_dependent(schema, value))))
        value = _with_right_keys(value, properties, required, closed=schema.get("additionalProperties") is False)
        made: dict[str, Any] = {}
        for name in dict.fromkeys((*required, *value)):
            inner = properties.get(name, _for_other_keys(schema, name))
            given = value.get(name)
            if given is not None or name not in value or not self._allows_null(inner):
                given = self.of(inner, given, depth + 1)
            # Models send `null` for what they leave out.
            if value.get(name, given) is not None or name in required or given is None:
                made[name] = given
        least = schema.get("minProperties")
        for name in properties:
            if not isinstance(least, int) or len(made) >= least:
                break
            made.setdefault(name, self.of(properties[name], None, depth + 1))
        return made

    def _array(self, schema: dict[str, Any], value: list[Any], depth: int) -> list[Any]:
        items = schema.get("items", True)
        places = items if isinstance(items, list) else schema.get("prefixItems")
        places = places if isinstance(places, list) else []
        rest = schema.get("additionalItems", True) if isinstance(items, list) else items
        least, most = _bound(schema, "minItems", 0), _bound(schema, "maxItems", math.inf)
        least = max(least, 1) if "contains" in schema else least
        made: list[Any] = []
        for place in range(int(min(max(len(value), least), most, _MAX_VALUES))):
            given = value[place] if place < len(value) else None
            inner = places[place] if place < len(places) else rest
            if inner is False:
                break
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
        values = schema.get("enum") if isinstance(schema, dict) else None
        if isinstance(values, list):
            return next((value for value in values if value not in made), item)
        return f"{item}{len(made) + 1}" if isinstance(item, str) else len(made) + 1

    def _allows_null(self, schema: Any) -> bool:
        schema = self._merged(schema)
        if not isinstance(schema, dict):
            return True
        if any(isinstance(schema.get(keyword), list) for keyword in _UNIONS):
            return any(self._allows_null(part) for keyword in _UNIONS for part in schema.get(keyword) or ())
        kinds, values = _kinds(schema), schema.get("enum")
        return (not kinds or "null" in kinds) and (not isinstance(values, list) or None in values)

    def _chosen(self, schema: dict[str, Any], keyword: str, value: Any) -> dict[str, Any]:
        """The alternative that a value is nearest to, together with what holds beside the union."""
        parts = [self._merged(part) for part in schema[keyword]]
        beside = {key: item for key, item in schema.items() if key != keyword}
        usable = [part for part in parts if isinstance(part, dict) and not _excluded(part, beside)]
        if not usable:
            return beside
        real = [part for part in usable if _kinds(part) != ["null"]] or usable
        best = max(real if value is None else usable, key=lambda part: self._nearness(part, value))
        if keyword == "oneOf":  # what tells the alternatives apart must be said
            best = {**best, "required": [*_names(best.get("required")), *_marks(best)]}
        return _joined(beside, best)

    def _nearness(self, schema: dict[str, Any], value: Any) -> float:
        if "const" in schema:
            return 3.0 if _same(schema["const"], value) else -1.0
        if isinstance(schema.get("enum"), list):
            return 3.0 if any(_same(item, value) for item in schema["enum"]) else 0.0
        kinds = _kinds(schema)
        if kinds and not any(_is(value, kind) for kind in kinds):
            return 0.0 if kinds != ["null"] else -2.0
        if not isinstance(value, dict):
            return 1.0 if kinds else 0.5
        properties = schema.get("properties")
        known = properties if isinstance(properties, dict) else {}
        total = 1.0
        for name, given in value.items():
            part = self._merged(known[name]) if name in known else None
            if isinstance(part, dict):
                total += 2.0 if "const" in part and _same(part["const"], given) else 0.0 if "const" in part else 1.0
        return total - 0.1 * len(set(_names(schema.get("required"))) - value.keys())

    def _merged(self, schema: Any, left: int = _MAX_REFERENCES) -> Any:
        """A schema with what it refers to and what all holds together; nothing where that leads nowhere."""
        while isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
            left -= 1
            if left < 0:
                return True
            target = self._find(schema["$ref"])
            beside = {key: item for key, item in schema.items() if key != "$ref"}
            schema = _joined(target, beside) if isinstance(target, dict) else target
        if isinstance(schema, dict) and isinstance(schema.get("allOf"), list) and left > 0:
            merged = {key: item for key, item in schema.items() if key != "allOf"}
            for part in [self._merged(part, left - 1) for part in schema["allOf"]]:
                merged = _joined(merged, part) if isinstance(part, dict) else merged
            return merged
        return schema

    def _find(self, reference: str) -> Any:
        schema = self.root
        for step in reference.removeprefix("#").strip("/").split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(schema, list) and name.isdecimal() and int(name) < len(schema):
                schema = schema[int(name)]
            elif name:
                schema = schema.get(name) if isinstance(schema, dict) else None
        return schema


def _joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Both at once. Of one keyword the second counts, where they cannot be put together."""
    joined = {**first, **second}
    for keyword in ("properties", "patternProperties"):
        if isinstance(first.get(keyword), dict) and isinstance(second.get(keyword), dict):
            joined[keyword] = {**first[keyword], **second[keyword]}
    if "required" in first and "required" in second:
        joined["required"] = [*_names(first["required"]), *_names(second["required"])]
    return joined


def _excluded(part: dict[str, Any], beside: dict[str, Any]) -> bool:
    kinds, outer = _kinds(part), _kinds(beside)
    return bool(kinds and outer) and not set(kinds) & set(outer)


def _kinds(schema: dict[str, Any]) -> list[str]:
    kind = schema.get("type")
    if isinstance(kind, str):
        return [kind]
    if isinstance(kind, list):
        return [name for name in kind if isinstance(name, str)]
    if "properties" in schema or "required" in schema:
        return ["object"]
    return ["array"] if "items" in schema else []


def _samples(schema: dict[str, Any]) -> Iterator[Any]:
    """What the schema itself proposes."""
    for keyword in ("default", "example", "examples"):
        sample = schema.get(keyword)
        if keyword == "examples":
            yield from sample[:4] if isinstance(sample, list) else ()
        elif sample is not None:
            yield sample


def _fits_type(value: Any, schema: dict[str, Any]) -> bool:
    kinds = _kinds(schema)
    return value is not None and (not kinds or any(_is(value, kind) for kind in kinds))


def _same(first: Any, second: Any) -> bool:
    """Equal as JSON: `true` is not `1`."""
    return first == second and isinstance(first, bool) == isinstance(second, bool)


def _nearest_value(values: list[Any], value: Any, default: Any) -> Any:
    """The value itself, or the listed one that looks most like it."""
    for candidate in (value, default):
        if candidate is not None and any(_same(item, candidate) for item in values):
            return candidate
    known = [item for item in values if item is not None] or values
    texts = {str(item).casefold(): item for item in reversed(known)}
    close = get_close_matches(str(value).casefold(), texts, 1) if value is not None else []
    return texts[close[0]] if close else known[0]


def _names(value: Any) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def _marks(schema: dict[str, Any]) -> Iterator[str]:
    """The fields that can hold one value only."""
    properties = schema.get("properties")
    for name, part in properties.items() if isinstance(properties, dict) else ():
        if isinstance(part, dict) and "const" in part:
            yield name


def _dependent(schema: dict[str, Any], value: dict[str, Any]) -> Iterator[str]:
    for keyword in ("dependentRequired", "dependencies"):
        rules = schema.get(keyword)
        for name, needed in rules.items() if isinstance(rules, dict) else ():
            if name in value:
                yield from _names(needed)


def _plain_key(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()


def _with_right_keys(
    value: dict[str, Any], properties: dict[str, Any], required: list[str], *, closed: bool
) -> dict[str, Any]:
    """The same values: an unknown key under the known name that it nearly is, or dropped where the object is closed."""
    known = {**properties, **dict.fromkeys(required)}
    missing = {_plain_key(name): name for name in reversed(known) if name not in value}
    right: dict[str, Any] = {}
    for number, (name, given) in enumerate(value.items()):
        # Where other keys are allowed, only a required one that is missing shows that a key was mistyped.
        close = _near_keys(_plain_key(name), missing) if name not in known and number < _MAX_KEYS else []
        if close and (closed or missing[close[0]] in required):
            right[missing.pop(close[0])] = given
        elif name in known or not closed:
            right[name] = given
    return right


def _near_keys(key: str, missing: dict[str, str]) -> list[str]:
    """The missing key that an unknown one stands for: nearly the same letters, or the beginning of one alone."""
    if len(key) >= _MAX_KEY_CHARS:
        return []
    close = get_close_matches(key, missing, 1, 0.75)
    begun = [name for name in missing if len(key) >= 3 and name.startswith(key)]
    return close or (begun if len(begun) == 1 else [])


def _for_other_keys(schema: dict[str, Any], name: str) -> Any:
    patterns = schema.get("patternProperties")
    if isinstance(patterns, dict) and len(patterns) == 1:
        return next(iter(patterns.values()))
    return schema.get("additionalProperties", True) if name not in _names(schema.get("required")) else True


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(kind, ()))


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


def _bound(schema: dict[str, Any], keyword: str, otherwise: float) -> float:
    bound = schema.get(keyword)
    return bound if isinstance(bound, (int, float)) and not isinstance(bound, bool) else otherwise


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
    least, most = int(_bound(schema, "minLength", 0)), int(_bound(schema, "maxLength", _MAX_TEXT))
    long = (value or "x") * math.ceil(min(least, _MAX_TEXT) / max(1, len(value)))
    sized = long[:least] if least > len(value) else value[:most]
    pattern, form = schema.get("pattern"), _FORMATS.get(str(schema.get("format")), "")
    samples = [value, *(text for text in _samples(schema) if isinstance(text, str)), form]
    if value == _PLAIN["string"] and form:
        samples.insert(0, form)
    if isinstance(pattern, str):
        samples.extend(_text_for(pattern, repeats) for repeats in (1, 0, least))
    checked = {key: schema[key] for key in ("pattern", "format", "minLength", "maxLength") if key in schema}
    validator = compile_schema(checked, formats=True) if checked else None
    fitting = (text for text in (*filter(None, samples), sized) if validator is None or validator.is_valid(text))
    return next(fitting, value)


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
