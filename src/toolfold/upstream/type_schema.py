"""Type hints as JSON Schema, JSON as the hinted types, and results as JSON.

msgspec does the work; this adds Pydantic models (found by their methods, never imported here), short descriptions in
`Annotated`, and schemas whose references all point into one `$defs`. `signatures` stands above it.
"""

import typing
from typing import Any, get_args, get_origin

import msgspec
from msgspec import Meta
from msgspec.json import Decoder

_REF_TEMPLATE = "#/$defs/{name}"

JsonSchema = dict[str, Any]


def _is_pydantic(kind: object) -> bool:
    """Whether `kind` is a Pydantic v2 model class, judged by what it can do."""
    return isinstance(kind, type) and hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate")


def split_description(hint: Any) -> tuple[Any, str]:
    """Takes a description out of `Annotated[T, …]`: a text, `Doc(...)`, `Meta(description=…)`, `Field(description=…)`.

    What msgspec reads itself stays in the hint.
    """
    if get_origin(hint) is not typing.Annotated:
        return hint, ""
    kind, *extras = get_args(hint)
    description = ""
    kept: list[Any] = []
    for extra in extras:
        text = extra if isinstance(extra, str) else _description_of(extra)
        description = description or text
        if isinstance(extra, Meta):
            kept.append(extra)
    for extra in kept:
        kind = typing.Annotated[kind, extra]
    return kind, description


def _description_of(extra: object) -> str:
    text = getattr(extra, "description", None) or getattr(extra, "documentation", None)
    return text if isinstance(text, str) else ""


def build_schemas(hints: list[Any]) -> tuple[list[JsonSchema], JsonSchema]:
    """A schema for each hint, and the `$defs` that they share. Raises `TypeError` for a hint nobody can read."""
    shared: JsonSchema = {}

    def hook(kind: type) -> JsonSchema:
        if kind is object:  # anything at all, as `Any` is
            return {"description": "anything"}
        if not _is_pydantic(kind):
            raise NotImplementedError
        model: Any = kind
        # Each model brings its own definitions: its name in front keeps those of two models apart.
        schema: JsonSchema = model.model_json_schema(ref_template=f"#/$defs/{kind.__name__}.{{model}}")
        for name, definition in schema.pop("$defs", {}).items():
            shared[f"{kind.__name__}.{name}"] = definition
        return schema

    parts, definitions = msgspec.json.schema_components(hints, schema_hook=hook, ref_template=_REF_TEMPLATE)
    return list(parts), {**definitions, **shared}


def standalone_schema(schema: JsonSchema, definitions: JsonSchema) -> JsonSchema:
    """One schema that stands alone: a reference at its root is written out, and `$defs` holds only what is used."""
    name = _referenced(schema)
    while name is not None and name in definitions:
        schema = {**definitions[name], **{key: value for key, value in schema.items() if key != "$ref"}}
        name = _referenced(schema)
    used = _used(schema, definitions)
    return {**schema, "$defs": {name: definitions[name] for name in sorted(used)}} if used else schema


def _referenced(schema: JsonSchema) -> str | None:
    reference = schema.get("$ref")
    return reference.removeprefix("#/$defs/") if isinstance(reference, str) else None


def _used(schema: JsonSchema, definitions: JsonSchema) -> set[str]:
    used: set[str] = set()
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            name = _referenced(part)
            if name is not None and name in definitions and name not in used:
                used.add(name)
                waiting.append(definitions[name])
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
    return used


def make_decoder(hint: Any) -> Decoder[Any]:
    """Reads JSON into `hint`. Raises `msgspec.ValidationError` with the place of the fault."""
    return Decoder(hint, dec_hook=_decode_model)


def _decode_model(kind: type, value: Any) -> Any:
    if kind is object:
        return value
    if not _is_pydantic(kind):
        raise NotImplementedError(f"values of {kind!r} cannot be read from JSON")
    model: Any = kind
    try:
        return model.model_validate(value)
    except ValueError as error:
        # msgspec puts the path of the model in front of this; Pydantic's own text is long and links to its pages.
        raise ValueError(_summarise_errors(error)) from None


def _summarise_errors(error: ValueError) -> str:
    """Pydantic's list of faults as `place: fault`, or the text of another error."""
    faults = getattr(error, "errors", None)
    if not callable(faults):
        return str(error)
    places = [(".".join(map(str, fault["loc"])), fault["msg"]) for fault in faults()]
    return ", ".join(f"`{place}`: {text}" if place else str(text) for place, text in places)


def encode_value(value: Any) -> bytes:
    """A result as JSON. Raises `TypeError` where it holds something that has no JSON form."""
    return msgspec.json.encode(value, enc_hook=_encode_model)


def to_builtins(value: Any) -> Any:
    """A default value as plain JSON values."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_encode_model)


def _encode_model(value: Any) -> Any:
    if _is_pydantic(type(value)):
        return value.model_dump(mode="json")
    raise NotImplementedError(f"a value of type {type(value).__name__} has no JSON form")
