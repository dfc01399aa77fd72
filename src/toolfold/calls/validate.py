"""Checks arguments against the tool's own schema before anything is sent, and says how to put them right.

Nothing is ever fetched for a schema: a reference that leads out of it, or a schema that is none, cannot be checked
against, and then the server is left to judge. Validators are kept by the tool's fingerprint.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from toolfold.calls.example_arguments import example_for
from toolfold.containers import BoundedDict
from toolfold.errors import InvalidArguments, ToolChanged
from toolfold.text import truncate
from toolfold.types import CallContext, Tool, ToolCall

_MAX_PROBLEMS = 8
_MAX_TEXT = 300
# Of the arguments that an error shows: what was given may be huge.
_MAX_EXAMPLE = 2_000
_MAX_VALIDATORS = 256


class ArgumentValidator:
    """Validators of the tools called lately."""

    def __init__(self) -> None:
        # A compiled validator may be large, and a catalogue may hold 100,000 tools.
        self._validators: BoundedDict[str, Any] = BoundedDict(_MAX_VALIDATORS)

    def __call__(self, call: ToolCall, context: CallContext) -> None:
        del context
        if call.expect_version is not None and call.expect_version != call.tool.version:
            raise _changed(call.tool, call.expect_version)
        self.check(call.tool, call.arguments)

    def check(self, tool: Tool, arguments: Raw) -> None:
        """Raises `InvalidArguments` that names each field, what was expected, and arguments that would do."""
        value = _decode(tool, arguments)
        validator = self._validator(tool)
        if validator is None:
            return
        try:
            if validator.is_valid(value):
                return
            schema = msgspec.json.decode(tool.definition.input_schema)
            problems = list(_problems(validator, value, _names(schema)))
            advice = _advice(schema, value) if problems else ""
        except (ValueError, RecursionError) as error:  # what the validator cannot take in, such as very deep values
            raise _unreadable(tool, error) from None
        if problems:
            raise InvalidArguments(
                f"the arguments do not fit {tool.tool_id}: {problems[0]['field']}: {problems[0]['problem']}",
                hints=problems,
                next_action=advice,
            )

    def _validator(self, tool: Tool) -> Any:
        if tool.fingerprint not in self._validators:
            self._validators[tool.fingerprint] = _compile(tool.definition.input_schema)
        return self._validators[tool.fingerprint]


def _changed(tool: Tool, expected: int) -> ToolChanged:
    return ToolChanged(
        f"{tool.tool_id} changed since it was expanded: version {expected} is now {tool.version}",
        next_action=f"call expand_tool for {tool.tool_id} again, and use the schema it shows now",
    )


def _decode(tool: Tool, arguments: Raw) -> Any:
    """The arguments as a value. Raises `InvalidArguments` for what is no JSON object."""
    try:
        value = msgspec.json.decode(arguments)
    except RecursionError as error:
        raise _unreadable(tool, error) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidArguments(
            f"the arguments of {tool.tool_id} are no JSON: {error}", next_action="give one JSON object"
        ) from error
    if not isinstance(value, dict):
        raise InvalidArguments(
            f"the arguments of {tool.tool_id} must be one JSON object", next_action='give an object, such as {"key": 1}'
        )
    return value


def _unreadable(tool: Tool, error: Exception) -> InvalidArguments:
    reason = truncate(str(error) or "they are nested too deep", _MAX_TEXT)
    return InvalidArguments(
        f"the arguments of {tool.tool_id} cannot be checked: {reason}",
        next_action="give plain JSON: less deep, and numbers that fit",
    )


def _advice(schema: Any, value: Any) -> str:
    """Arguments that would do, as near to those given as is short enough to be read."""
    for near in (value, None):
        corrected = msgspec.json.encode(example_for(schema, near)).decode()
        if len(corrected) <= _MAX_EXAMPLE:
            return f"call it again with arguments like {corrected}"
    return "call it again with arguments that fit its schema, which expand_tool shows"


def _compile(schema: Raw) -> Any:
    """A validator, or `None` where the schema cannot be checked against."""
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(msgspec.json.decode(schema), offline=True)
    except (ValueError, RecursionError):  # no schema, one that leads out of itself, or one without end
        return None


def _names(schema: Any) -> list[str]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return list(properties) if isinstance(properties, dict) else []


def _problems(validator: Any, value: Any, names: list[str]) -> Iterator[dict[str, str]]:
    for number, error in enumerate(validator.iter_errors(value)):
        if number == _MAX_PROBLEMS:
            return
        if error.kind.name == "additionalProperties" and not error.instance_path:
            takes = f"; it takes {', '.join(names[:20])}" if names else "; it takes none"
            yield {
                "field": truncate(", ".join(error.kind.unexpected), _MAX_TEXT),
                "problem": truncate(f"is unknown{takes}", _MAX_EXAMPLE),
            }
        else:
            yield {"field": truncate(_field(error), _MAX_TEXT), "problem": _problem_text(error)}


def _field(error: Any) -> str:
    """Where: `a.b[0]`; a missing field by its own name."""
    path = list(error.instance_path)
    if error.kind.name == "required":
        path.append(error.kind.property)
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text or "arguments"


def _problem_text(error: Any) -> str:
    if error.kind.name == "required":
        return "is required"
    return truncate(str(error.message), _MAX_TEXT)


def encode_arguments(tool: Tool, arguments: Mapping[str, Any] | Raw) -> Raw:
    """The arguments as the JSON that is validated and sent."""
    if isinstance(arguments, Raw):
        return arguments
    try:
        return Raw(msgspec.json.encode(dict(arguments)))
    except (TypeError, ValueError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidArguments(
            f"the arguments of {tool.tool_id} cannot be written as JSON: {error}",
            next_action="give plain JSON values: strings, numbers, booleans, null, lists and objects",
        ) from error
