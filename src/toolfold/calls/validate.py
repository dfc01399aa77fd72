"""Checks arguments against the tool's own schema before anything is sent, and says how to put them right.

Nothing is ever fetched for a schema: a reference that leads out of it, or a schema that is none, cannot be checked
against, and then the server is left to judge. Validators are kept by the tool's fingerprint.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw

from toolfold.calls.example_arguments import example_for
from toolfold.calls.pipeline import CallRequest
from toolfold.errors import InvalidArguments, ToolChanged
from toolfold.types import Tool

MAX_PROBLEMS = 8
MAX_TEXT = 300
MAX_EXAMPLE = 2_000
"""Of the arguments that an error shows: what was given may be huge."""
KEPT = 256


class ArgumentValidator:
    """Validators of the tools called lately."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def __call__(self, request: CallRequest) -> None:
        if request.expect_version is not None and request.expect_version != request.tool.version:
            raise _changed(request.tool, request.expect_version)
        self.check(request.tool, request.arguments)

    def check(self, tool: Tool, arguments: Raw) -> None:
        """Raises `InvalidArguments` that names each field, what was expected, and arguments that would do."""
        given = decode_arguments(tool, arguments)
        validator = self._validator(tool)
        if validator is None:
            return
        try:
            if validator.is_valid(given):
                return
            schema = msgspec.json.decode(tool.definition.input_schema)
            problems = list(_problems(validator, given, _names(schema)))
            advice = _advice(schema, given) if problems else ""
        except (ValueError, RecursionError) as error:  # what the validator cannot take in, such as very deep values
            raise _unreadable(tool, error) from None
        if problems:
            raise InvalidArguments(
                f"the arguments do not fit {tool.tool_id}: {problems[0]['field']}: {problems[0]['problem']}",
                hints=problems,
                next_action=advice,
            )

    def _validator(self, tool: Tool) -> Any:
        if tool.fingerprint not in self._known:
            while len(self._known) >= KEPT:
                self._known.pop(next(iter(self._known)))
            self._known[tool.fingerprint] = compile_validator(tool.definition.input_schema)
        return self._known[tool.fingerprint]


def _changed(tool: Tool, expected: int) -> ToolChanged:
    return ToolChanged(
        f"{tool.tool_id} changed since it was expanded: version {expected} is now {tool.version}",
        next_action=f"call expand_tool for {tool.tool_id} again, and use the schema it shows now",
    )


def decode_arguments(tool: Tool, arguments: Raw) -> Any:
    """The arguments as a value. Raises `InvalidArguments` for what is no JSON object."""
    try:
        given = msgspec.json.decode(arguments)
    except RecursionError as error:
        raise _unreadable(tool, error) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidArguments(
            f"the arguments of {tool.tool_id} are no JSON: {error}", next_action="give one JSON object"
        ) from error
    if not isinstance(given, dict):
        raise InvalidArguments(
            f"the arguments of {tool.tool_id} must be one JSON object", next_action='give an object, such as {"key": 1}'
        )
    return given


def _unreadable(tool: Tool, error: Exception) -> InvalidArguments:
    return InvalidArguments(
        f"the arguments of {tool.tool_id} cannot be checked: {_truncate(str(error) or 'they are nested too deep')}",
        next_action="give plain JSON: less deep, and numbers that fit",
    )


def _advice(schema: Any, given: Any) -> str:
    """Arguments that would do, as near to those given as is short enough to be read."""
    for near in (given, None):
        corrected = msgspec.json.encode(example_for(schema, near)).decode()
        if len(corrected) <= MAX_EXAMPLE:
            return f"call it again with arguments like {corrected}"
    return "call it again with arguments that fit its schema, which expand_tool shows"


def compile_validator(schema: Raw) -> Any:
    """A validator, or `None` where the schema cannot be checked against."""
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(msgspec.json.decode(schema), offline=True)
    except (ValueError, RecursionError):  # no schema, one that leads out of itself, or one without end
        return None


def _names(schema: Any) -> list[str]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return list(properties) if isinstance(properties, dict) else []


def _problems(validator: Any, given: Any, known: list[str]) -> Iterator[dict[str, str]]:
    for number, error in enumerate(validator.iter_errors(given)):
        if number == MAX_PROBLEMS:
            return
        if error.kind.name == "additionalProperties" and not error.instance_path:
            takes = f"; it takes {', '.join(known[:20])}" if known else "; it takes none"
            yield {
                "field": _truncate(", ".join(error.kind.unexpected)),
                "problem": _truncate(f"is unknown{takes}", MAX_EXAMPLE),
            }
        else:
            yield {"field": _truncate(_field(error)), "problem": _problem_text(error)}


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
    return _truncate(str(error.message))


def _truncate(text: str, limit: int = MAX_TEXT) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
