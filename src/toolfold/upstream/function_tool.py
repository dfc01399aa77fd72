"""A Python function as a tool: its signature, hints and docstring give the definition; JSON goes in, JSON comes out.

It needs no event loop, so that a small server can use it alone. `functions` stands above it and makes it an upstream.

What the model passes is checked against the hints, and all wrong arguments are named together. What a function returns
becomes a text; where its hint says more than "a text", `structuredContent` carries the value, as an object: a value
that is no object stands under `result`.

Schemas and decoding are msgspec's; added here are Pydantic models (recognised by their methods, never imported),
descriptions in `Annotated`, and schemas whose references all point into one `$defs`.
"""

import functools
import inspect
import json
import re
import typing
from collections.abc import Callable
from typing import Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.json import Decoder

from toolfold.errors import ConfigError, InvalidArguments
from toolfold.text import NOTE_KEY, REPLACED, replace_escaped_halves, replace_whole_numbers
from toolfold.types import Annotations, ToolDefinition
from toolfold.upstream.definitions import make_definition
from toolfold.upstream.docstrings import ParsedDocstring, parse_docstring

Function = Callable[..., Any]
_JsonSchema = dict[str, Any]

_F = TypeVar("_F", bound=Function)

_NAME = re.compile(r"[A-Za-z0-9_\-.]{1,128}")
_MARK = "__toolfold_tool__"
_arguments = Decoder(dict[str, Raw])


class _Mark(Struct, frozen=True, kw_only=True):
    """What `@tool(...)` says of a function beyond its signature."""

    name: str = ""
    title: str = ""
    description: str = ""
    annotations: Annotations = Annotations()


def tool(
    *,
    name: str = "",
    title: str = "",
    description: str = "",
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
) -> Callable[[_F], _F]:
    """Marks a function with what its signature cannot say. The function itself stays as it is."""
    claims = Annotations(read_only=read_only, destructive=destructive, idempotent=idempotent, open_world=open_world)
    mark = _Mark(name=name, title=title, description=description, annotations=claims)

    def marked(function: _F) -> _F:
        setattr(function, _MARK, mark)
        return function

    return marked


class _Parameter(Struct, frozen=True):
    """One parameter: how its JSON is read, and whether it must be there."""

    name: str
    decoder: Decoder[Any]
    default: Any
    positional: bool

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty


class FunctionTool(Struct, frozen=True):
    """A function with its definition. `wrapped`: the result stands under `result` in `structuredContent`."""

    definition: ToolDefinition
    function: Function
    parameters: tuple[_Parameter, ...]
    structured: bool
    wrapped: bool
    returns_nothing: bool
    is_async: bool

    def bind(self, arguments: Raw) -> functools.partial[Any]:
        """The function with its arguments filled in. Raises `InvalidArguments` that names every wrong one."""
        try:
            given = _arguments.decode(arguments)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._refused([f"the arguments must be one JSON object: {error}"]) from None
        problems: list[str] = []
        values: dict[str, Any] = {}
        for parameter in self.parameters:
            if parameter.name in given:
                try:
                    values[parameter.name] = _decode_argument(parameter.decoder, given.pop(parameter.name))
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    problems.append(_describe_decode_error(parameter.name, error))
            elif parameter.required:
                problems.append(f"`{parameter.name}` is missing")
        problems += [f"`{name[:80]}` is no argument of this tool" for name in given]
        if problems:
            raise self._refused(problems)
        # A positional parameter cannot be left out before one that is given: its default goes in its place.
        positional = [values.pop(item.name, item.default) for item in self.parameters if item.positional]
        return functools.partial(self.function, *positional, **values)

    def _refused(self, problems: list[str]) -> InvalidArguments:
        names = [parameter.name if parameter.required else f"{parameter.name}?" for parameter in self.parameters]
        return InvalidArguments(
            f"{self.definition.name}: {'; '.join(problems)}.",
            hints=[f"{self.definition.name}({', '.join(names)})"],
            next_action="Correct the arguments and call again.",
        )

    def result(self, value: Any) -> Raw:
        """A returned value as the JSON of a `CallToolResult`."""
        try:
            encoded, replaced = _encode_value(value)
        except (TypeError, NotImplementedError, ValueError, OverflowError, RecursionError) as error:
            return error_result(f"{self.definition.name} returned something that has no JSON form: {error}")
        text = msgspec.json.decode(encoded) if isinstance(value, str) else encoded.decode()
        if self.returns_nothing and value is None:
            text = "Done."
        body: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
        if replaced:
            body["_meta"] = {NOTE_KEY: REPLACED}
        if self.structured:
            body["structuredContent"] = {"result": Raw(encoded)} if self.wrapped else Raw(encoded)
        return Raw(msgspec.json.encode(body))


def error_result(text: str) -> Raw:
    """A `CallToolResult` that tells the model what went wrong."""
    return Raw(msgspec.json.encode({"content": [{"type": "text", "text": text}], "isError": True}))


def invalid_arguments_result(error: InvalidArguments) -> Raw:
    """Wrong arguments as a result that the model can act on."""
    usage = f" Usage: {error.hints[0]}." if error.hints else ""
    return error_result(f"{error.message}{usage} {error.next_action}")


def exception_result(error: BaseException) -> Raw:
    """An exception of the function: its type and message, and no traceback."""
    message = str(error)
    return error_result(f"{type(error).__name__}: {message}" if message else type(error).__name__)


def _decode_argument(decoder: Decoder[Any], raw: Raw) -> Any:
    """An argument as its function takes it. For JSON Schema `1.0` is an integer, so that it is one here, too."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError:
        whole = replace_whole_numbers(bytes(raw))
        if whole == bytes(raw):
            raise
        return decoder.decode(whole)


def _describe_decode_error(name: str, error: Exception) -> str:
    """msgspec says `Expected int, got str - at $.a[0]`: the place moves to the front, with the parameter's name."""
    text, _, place = str(error).partition(" - at ")
    where = name + place.strip("`").removeprefix("$")
    return f"`{where}`: {text[:1].lower()}{text[1:]}"


def make_function_tool(function: Function) -> FunctionTool:
    """Makes a tool of a function. Raises `ConfigError` that says why it cannot be one."""
    target = function.func if isinstance(function, functools.partial) else function
    label = getattr(target, "__qualname__", repr(target))
    mark: _Mark = getattr(target, _MARK, _Mark())
    name = mark.name or getattr(target, "__name__", "")
    _check_callable(target, name, label)
    doc = parse_docstring(inspect.getdoc(target))
    types = _hints_of(target, label)
    parameters = _parameters_of(function, label)
    properties, defs, decoders, returns = _schemas_of(label, parameters, types, doc)
    required = [item.name for item in parameters if item.default is inspect.Parameter.empty]
    input_schema = {"type": "object", "properties": properties} | ({"required": required} if required else {})
    returned = types.get("return", typing.Any)
    output_schema, wrapped = _output(returns, defs, returned, doc.returns)
    definition = make_definition(
        name=name,
        title=mark.title,
        description=mark.description or doc.description,
        inputSchema=_standalone_schema(input_schema | {"additionalProperties": False}, defs),
        outputSchema=output_schema,
        annotations=_claims(mark.annotations),
    )
    return FunctionTool(
        definition=definition,
        function=function,
        parameters=tuple(
            _Parameter(item.name, decoder, item.default, item.kind is inspect.Parameter.POSITIONAL_ONLY)
            for item, decoder in zip(parameters, decoders, strict=True)
        ),
        structured=output_schema is not None,
        wrapped=wrapped,
        returns_nothing=returned in (None, type(None)),
        is_async=inspect.iscoroutinefunction(target),
    )


def _check_callable(target: Function, name: str, label: str) -> None:
    if not _NAME.fullmatch(name):
        raise _not_a_tool(label, f"{name!r} is no tool name", 'Give it one of ASCII letters: @tool(name="…").')
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise _not_a_tool(label, "it is a generator, and a tool gives one result", "Return a list instead of yielding.")


def _not_a_tool(label: str, why: str, next_action: str) -> ConfigError:
    return ConfigError(f"{label} cannot be a tool: {why}.", next_action=next_action)


def _hints_of(target: Function, label: str) -> dict[str, Any]:
    # An object with `__call__` has its hints there.
    holder = target if hasattr(target, "__annotations__") else type(target).__call__
    try:
        return typing.get_type_hints(holder, include_extras=True)
    except (NameError, TypeError, SyntaxError, AttributeError) as error:
        raise _not_a_tool(
            label,
            f"a type hint cannot be resolved ({error})",
            "Import the type at run time, at the top of the module.",
        ) from None


def _parameters_of(function: Function, label: str) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError) as error:
        raise _not_a_tool(label, f"it has no signature ({error})", "Wrap it in a function of your own.") from None
    for item in parameters:
        if item.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            stars = "*" if item.kind is inspect.Parameter.VAR_POSITIONAL else "**"
            better = f"{item.name}: list[…]" if stars == "*" else f"{item.name}: dict[str, …]"
            raise _not_a_tool(label, f"it takes {stars}{item.name}", f"Take `{better}`: a tool has named arguments.")
    return parameters


def _schemas_of(
    label: str, parameters: list[inspect.Parameter], types: dict[str, Any], doc: ParsedDocstring
) -> tuple[dict[str, Any], _JsonSchema, list[Decoder[Any]], _JsonSchema]:
    """The properties, their `$defs`, a decoder each, and the schema of what is returned."""
    split = [_split_description(types.get(item.name, typing.Any)) for item in parameters]
    kinds = [kind for kind, _ in split]
    returned, _ = _split_description(types.get("return", typing.Any))
    try:
        parts, defs = _build_schemas([*kinds, returned])
        decoders = [_make_decoder(kind) for kind in kinds]
    except (TypeError, NotImplementedError) as error:
        raise _not_a_tool(
            label,
            f"a type hint has no JSON form ({error})",
            "Use primitives, containers, dataclasses, TypedDict, msgspec.Struct or Pydantic models.",
        ) from None
    properties: dict[str, Any] = {}
    for item, part, (_, description) in zip(parameters, parts, split, strict=False):
        text = description or doc.parameters.get(item.name, "")
        properties[item.name] = ({"description": text} if text else {}) | part | _default(item)
    return properties, defs, decoders, parts[-1]


def _default(item: inspect.Parameter) -> dict[str, Any]:
    if item.default is inspect.Parameter.empty:
        return {}
    try:
        return {"default": _to_builtins(item.default)}
    except (TypeError, NotImplementedError):
        return {}  # A default that JSON cannot say still holds in Python; the schema only does not show it.


def _output(returns: _JsonSchema, defs: _JsonSchema, hint: Any, description: str) -> tuple[_JsonSchema | None, bool]:
    """The `outputSchema`, where the hint says more than "a text", and whether the value stands under `result`."""
    kind, _ = _split_description(hint)
    if kind in (typing.Any, None, type(None), str, object, inspect.Parameter.empty):
        return None, False
    schema = _standalone_schema(returns, defs)
    if schema.get("type") == "object":
        return schema, False
    inner = ({"description": description} if description else {}) | returns
    wrapper = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    return _standalone_schema(wrapper, defs), True


def _claims(claims: Annotations) -> dict[str, bool]:
    named = {
        "readOnlyHint": claims.read_only,
        "destructiveHint": claims.destructive,
        "idempotentHint": claims.idempotent,
        "openWorldHint": claims.open_world,
    }
    return {key: value for key, value in named.items() if value is not None}


def _is_pydantic(kind: object) -> bool:
    """Whether `kind` is a Pydantic v2 model class, judged by what it can do."""
    return isinstance(kind, type) and hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate")


def _split_description(hint: Any) -> tuple[Any, str]:
    """Splits the description off `Annotated[T, …]`: a text, `Doc(...)`, `Meta(description=…)`, `Field(description=…)`.

    What msgspec reads itself stays in the hint.
    """
    if get_origin(hint) is not typing.Annotated:
        return hint, ""
    kind, *extras = get_args(hint)
    texts = [extra if isinstance(extra, str) else _description_of(extra) for extra in extras]
    for extra in extras:
        if isinstance(extra, Meta):
            kind = typing.Annotated[kind, extra]
    return kind, next(filter(None, texts), "")


def _description_of(extra: object) -> str:
    text = getattr(extra, "description", None) or getattr(extra, "documentation", None)
    return text if isinstance(text, str) else ""


def _build_schemas(hints: list[Any]) -> tuple[list[_JsonSchema], _JsonSchema]:
    """A schema for each hint, and the `$defs` that they share. Raises `TypeError` for a hint nobody can read."""
    shared: _JsonSchema = {}

    def hook(kind: type) -> _JsonSchema:
        if kind is object:  # anything at all, as `Any` is
            return {"description": "anything"}
        if not _is_pydantic(kind):
            raise NotImplementedError
        model: Any = kind
        # Each model brings its own definitions: its name in front keeps those of two models apart.
        schema: _JsonSchema = model.model_json_schema(ref_template=f"#/$defs/{kind.__name__}.{{model}}")
        for name, definition in schema.pop("$defs", {}).items():
            shared[f"{kind.__name__}.{name}"] = definition
        return schema

    parts, definitions = msgspec.json.schema_components(hints, schema_hook=hook, ref_template="#/$defs/{name}")
    return list(parts), {**definitions, **shared}


def _standalone_schema(schema: _JsonSchema, definitions: _JsonSchema) -> _JsonSchema:
    """One schema that stands alone: a reference at its root is written out, and `$defs` holds only what is used."""
    name = _referenced(schema)
    while name is not None and name in definitions:
        schema = {**definitions[name], **{key: value for key, value in schema.items() if key != "$ref"}}
        name = _referenced(schema)
    # A definition that nothing refers to would cost every reader of the schema.
    used = _used(schema, definitions)
    return {**schema, "$defs": {name: definitions[name] for name in sorted(used)}} if used else schema


def _referenced(schema: _JsonSchema) -> str | None:
    reference = schema.get("$ref")
    return reference.removeprefix("#/$defs/") if isinstance(reference, str) else None


def _used(schema: _JsonSchema, definitions: _JsonSchema) -> set[str]:
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


def _make_decoder(hint: Any) -> Decoder[Any]:
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


def _encode_value(value: Any) -> tuple[bytes, bool]:
    """A result as JSON, and whether something had to be replaced. Raises `TypeError` where it has no JSON form."""
    try:
        return msgspec.json.encode(value, enc_hook=_encode_model), False
    except UnicodeEncodeError:  # half of a character costs that character, not the result
        return replace_escaped_halves(json.dumps(_to_builtins(value)).encode()), True


def _to_builtins(value: Any) -> Any:
    """A default value as plain JSON values."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_encode_model)


def _encode_model(value: Any) -> Any:
    if _is_pydantic(type(value)):
        return value.model_dump(mode="json")
    raise NotImplementedError(f"a value of type {type(value).__name__} has no JSON form")
