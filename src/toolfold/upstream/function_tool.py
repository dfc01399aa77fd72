"""A Python function as a tool: its signature, hints and docstring give the definition; JSON goes in, JSON comes out.

It needs no event loop, so that a small server can use it alone. `functions` stands above it and makes it an upstream.

What the model passes is checked against the hints, and every wrong argument is told at once. What a function returns
becomes a text; where its hint says more than "a text", `structuredContent` carries the value, as an object: a value
that is no object stands under `result`.
"""

import functools
import inspect
import re
import typing
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.json import Decoder

from toolfold.errors import ConfigError, InvalidArguments
from toolfold.types import Annotations, ToolDefinition
from toolfold.upstream import type_schema as hints
from toolfold.upstream.definitions import read_definition
from toolfold.upstream.docstrings import ParsedDocstring, parse_docstring

Function = Callable[..., Any]

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
    says_nothing: bool
    is_async: bool

    def bind(self, arguments: Raw) -> functools.partial[Any]:
        """The function with its arguments filled in. Raises `InvalidArguments` that names every wrong one."""
        try:
            given = _arguments.decode(arguments)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._refused([f"the arguments must be one JSON object: {error}"]) from None
        problems: list[str] = []
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for parameter in self.parameters:
            if parameter.name not in given:
                if parameter.required:
                    problems.append(f"`{parameter.name}` is missing")
                elif parameter.positional:
                    positional.append(parameter.default)
                continue
            try:
                value = parameter.decoder.decode(given[parameter.name])
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                problems.append(_describe_decode_error(parameter.name, error))
                continue
            if parameter.positional:
                positional.append(value)
            else:
                named[parameter.name] = value
        known = {parameter.name for parameter in self.parameters}
        problems += [f"`{name[:80]}` is no argument of this tool" for name in given if name not in known]
        if problems:
            raise self._refused(problems)
        return functools.partial(self.function, *positional, **named)

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
            encoded = hints.encode_value(value)
        except (TypeError, NotImplementedError, OverflowError, RecursionError, UnicodeEncodeError) as error:
            return error_result(f"{self.definition.name} returned something that has no JSON form: {error}")
        text = value if isinstance(value, str) else encoded.decode()
        if self.says_nothing and value is None:
            text = "Done."
        body: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
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
    if not _NAME.fullmatch(name):
        raise _not_a_tool(label, f"{name!r} is no tool name", 'Give it one of ASCII letters: @tool(name="…").')
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise _not_a_tool(label, "it is a generator, and a tool gives one result", "Return a list instead of yielding.")
    doc = parse_docstring(inspect.getdoc(target))
    types = _hints_of(target, label)
    parameters = _parameters_of(function, label)
    properties, defs, decoders, returns = _schemas_of(label, parameters, types, doc)
    wire: dict[str, Any] = {"name": name}
    if mark.title:
        wire["title"] = mark.title
    if description := mark.description or doc.description:
        wire["description"] = description
    required = [item.name for item in parameters if item.default is inspect.Parameter.empty]
    wire["inputSchema"] = hints.standalone_schema(
        {"type": "object", "properties": properties}
        | ({"required": required} if required else {})
        | {"additionalProperties": False},
        defs,
    )
    structured, wrapped = _output(wire, returns, defs, types.get("return", typing.Any), doc.returns)
    if claims := _claims(mark.annotations):
        wire["annotations"] = claims
    definition, _ = read_definition(Raw(msgspec.json.encode(wire)))
    if definition is None:  # pragma: no cover - the name was checked above
        raise _not_a_tool(label, "its definition cannot be read back", "")
    return FunctionTool(
        definition=definition,
        function=function,
        parameters=tuple(
            _Parameter(item.name, decoder, item.default, item.kind is inspect.Parameter.POSITIONAL_ONLY)
            for item, decoder in zip(parameters, decoders, strict=True)
        ),
        structured=structured,
        wrapped=wrapped,
        says_nothing=types.get("return", typing.Any) in (None, type(None)),
        is_async=inspect.iscoroutinefunction(target),
    )


def _not_a_tool(label: str, why: str, next_action: str) -> ConfigError:
    return ConfigError(f"{label} cannot be a tool: {why}.", next_action=next_action)


def _hints_of(target: Function, label: str) -> dict[str, Any]:
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
) -> tuple[dict[str, Any], hints.JsonSchema, list[Decoder[Any]], hints.JsonSchema]:
    """The properties, their `$defs`, a decoder each, and the schema of what is returned."""
    split = [hints.split_description(types.get(item.name, typing.Any)) for item in parameters]
    kinds = [kind for kind, _ in split]
    returned, _ = hints.split_description(types.get("return", typing.Any))
    try:
        parts, defs = hints.build_schemas([*kinds, returned])
        decoders = [hints.make_decoder(kind) for kind in kinds]
    except (TypeError, NotImplementedError) as error:
        raise _not_a_tool(
            label,
            f"a type hint has no JSON form ({error})",
            "Use primitives, containers, dataclasses, TypedDict, msgspec.Struct or Pydantic models.",
        ) from None
    properties: dict[str, Any] = {}
    for item, part, (_, description) in zip(parameters, parts, split, strict=False):
        told = description or doc.parameters.get(item.name, "")
        properties[item.name] = ({"description": told} if told else {}) | part | _default(item)
    return properties, defs, decoders, parts[-1]


def _default(item: inspect.Parameter) -> dict[str, Any]:
    if item.default is inspect.Parameter.empty:
        return {}
    try:
        return {"default": hints.to_builtins(item.default)}
    except (TypeError, NotImplementedError):
        return {}  # A default that JSON cannot say still holds in Python; the schema only does not show it.


def _output(
    wire: dict[str, Any], returns: hints.JsonSchema, defs: hints.JsonSchema, hint: Any, told: str
) -> tuple[bool, bool]:
    """Puts `outputSchema` into `wire` where the hint says more than "a text"; `(structured, wrapped)`."""
    kind, _ = hints.split_description(hint)
    if kind in (typing.Any, None, type(None), str, object, inspect.Parameter.empty):
        return False, False
    schema = hints.standalone_schema(returns, defs)
    wrapped = schema.get("type") != "object"
    if wrapped:
        inner = ({"description": told} if told else {}) | returns
        schema = hints.standalone_schema(
            {"type": "object", "properties": {"result": inner}, "required": ["result"]}, defs
        )
    wire["outputSchema"] = schema
    return True, wrapped


def _claims(claims: Annotations) -> dict[str, bool]:
    named = {
        "readOnlyHint": claims.read_only,
        "destructiveHint": claims.destructive,
        "idempotentHint": claims.idempotent,
        "openWorldHint": claims.open_world,
    }
    return {key: value for key, value in named.items() if value is not None}
