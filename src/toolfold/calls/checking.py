"""Checks arguments against the tool's own schema before anything is sent, and says how to put them right.

Nothing is ever fetched for a schema: a reference that leads out of it, or a schema that is none, cannot be checked
against, and then the server is left to judge. Validators are kept by the tool's fingerprint.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw

from toolfold.calls.examples import example_for
from toolfold.calls.stack import Handler, Request
from toolfold.errors import InvalidArguments
from toolfold.types import Outcome, Tool

MAX_PROBLEMS = 8
KEPT = 256


class Checker:
    """Validators of the tools called lately."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def wrap(self, handler: Handler) -> Handler:
        async def checked(request: Request) -> Outcome:
            self.check(request.tool, request.arguments)
            return await handler(request)

        return checked

    def check(self, tool: Tool, arguments: Raw) -> None:
        """Raises `InvalidArguments` that names each field, what was expected, and arguments that would do."""
        given = decoded(tool, arguments)
        validator = self._validator(tool)
        if validator is None:
            return
        if validator.is_valid(given):
            return
        schema = msgspec.json.decode(tool.definition.input_schema)
        problems = list(_problems(validator, given, _names(schema)))
        if problems:
            corrected = msgspec.json.encode(example_for(schema, given)).decode()
            raise InvalidArguments(
                f"the arguments do not fit {tool.tool_id}: {problems[0]['field']}: {problems[0]['problem']}",
                hints=problems,
                next_action=f"call it again with arguments like {corrected}",
            )

    def _validator(self, tool: Tool) -> Any:
        if tool.fingerprint not in self._known:
            while len(self._known) >= KEPT:
                self._known.pop(next(iter(self._known)))
            self._known[tool.fingerprint] = made_validator(tool.definition.input_schema)
        return self._known[tool.fingerprint]


def decoded(tool: Tool, arguments: Raw) -> Any:
    """The arguments as a value. Raises `InvalidArguments` for what is no JSON object."""
    try:
        given = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidArguments(
            f"the arguments of {tool.tool_id} are no JSON: {error}", next_action="give one JSON object"
        ) from error
    if not isinstance(given, dict):
        raise InvalidArguments(
            f"the arguments of {tool.tool_id} must be one JSON object", next_action='give an object, such as {"key": 1}'
        )
    return given


def made_validator(schema: Raw) -> Any:
    """A validator, or `None` where the schema cannot be checked against."""
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(msgspec.json.decode(schema), offline=True)
    except ValueError:  # no schema, or one that leads out of itself
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
            yield {"field": ", ".join(error.kind.unexpected), "problem": f"is unknown{takes}"}
        else:
            yield {"field": _field(error), "problem": _told(error)}


def _field(error: Any) -> str:
    """Where: `a.b[0]`; a missing field by its own name."""
    path = list(error.instance_path)
    if error.kind.name == "required":
        path.append(error.kind.property)
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text or "arguments"


def _told(error: Any) -> str:
    if error.kind.name == "required":
        return "is required"
    message = str(error.message)
    return message if len(message) <= 300 else message[:299] + "…"
