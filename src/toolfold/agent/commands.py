"""What a model may ask for in a turn, as typed values, and how they are parsed from its reply.

A model that calls tools natively gets one offer a command; any other writes JSON, fenced or bare. What cannot be parsed
raises `BadCommand`, whose text goes back to the model as it is.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct, field

from toolfold.errors import ToolfoldError
from toolfold.model import Reply, ToolOffer, ToolUse, json_objects
from toolfold.outputs.tool_output_definition import MODES, Mode

_BATCH_MAX = 20


class _Command(Struct, frozen=True, kw_only=True, tag_field="type"):
    reasoning: str = ""


class Search(_Command, frozen=True, kw_only=True, tag="search"):
    """Find tools for a need in plain words."""

    query: str
    category_path: tuple[str, ...] = ()
    limit: int = 5


class UseTool(_Command, frozen=True, kw_only=True, tag="tool"):
    """Call one tool."""

    tool_id: str
    args: dict[str, Any] = field(default_factory=dict)


class Sandbox(_Command, frozen=True, kw_only=True, tag="sandbox"):
    """Run a Python script that declares its tools with `use_tools`."""

    code: str


class Extract(_Command, frozen=True, kw_only=True, tag="tool_output"):
    """Ask something of a stored output."""

    handle: str
    extract: str
    mode: Mode = "auto"


class Delegate(_Command, frozen=True, kw_only=True, tag="agent"):
    """Give a task to a sub-agent."""

    agent: str
    task: str


class _Status(_Command, frozen=True, kw_only=True, tag="task_status"):
    """Say how far the task has come."""

    status: str


class Finish(_Command, frozen=True, kw_only=True, tag="finish"):
    """The task is done: the final report."""

    report: str
    data: Any = None


class Fail(_Command, frozen=True, kw_only=True, tag="fail"):
    """The task cannot be done."""

    reason: str


Single = Search | UseTool | Sandbox | Extract | Delegate | _Status | Finish | Fail


class _Batch(_Command, frozen=True, kw_only=True, tag="batch"):
    """Several commands at once, side by side."""

    commands: tuple[Single, ...]


Command = Single | _Batch

_COMMAND_TYPES: dict[str, type[Struct]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (Search, UseTool, Sandbox, Extract, Delegate, _Status, _Batch, Finish, Fail)
}


class BadCommand(ToolfoldError):
    """A reply that is not a command."""

    code = "BAD_COMMAND"


# Some models write their reasoning into the answer; JSON in it is no command.
_THINKING = re.compile(r"<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)


def parse_commands(reply: Reply, allowed: tuple[str, ...]) -> tuple[tuple[str, Single], ...]:
    """The commands of a reply, each with the id that its answer needs. Raises `BadCommand`."""
    commands: list[tuple[str, Single]] = []
    if reply.uses:
        for use in reply.uses:
            commands += [(use.id, single) for single in _flatten(_from_use(use, allowed), allowed)]
    else:
        commands += [("", single) for single in _flatten(_from_text(reply.text), allowed)]
    if not commands:
        raise _bad_command("no command was given", allowed)
    if len(commands) > _BATCH_MAX:
        raise _bad_command(f"{len(commands)} commands at once; at most {_BATCH_MAX} are done in one turn", allowed)
    return tuple(commands)


def _flatten(command: Command, allowed: tuple[str, ...]) -> Iterator[Single]:
    for single in command.commands if isinstance(command, _Batch) else (command,):
        if command_name(single) not in allowed:
            raise _bad_command(f"the command {command_name(single)!r} is not there in this turn", allowed)
        yield single


def command_name(command: Command) -> str:
    return str(command.__struct_config__.tag)


def _from_use(use: ToolUse, allowed: tuple[str, ...]) -> Command:
    if use.name not in _COMMAND_TYPES:
        raise _bad_command(f"there is no command {use.name!r}", allowed)
    try:
        return _convert({**use.arguments, "type": use.name})
    except msgspec.ValidationError as error:
        raise _bad_command(f"the command {use.name!r} cannot be read: {error}", allowed) from error


def _from_text(text: str) -> Command:
    problem = "it holds no whole JSON object"
    for candidate in json_objects(_THINKING.sub("", text)):
        try:
            return _convert(candidate)
        except msgspec.ValidationError as error:
            problem = str(error)
    raise _bad_command(f"the answer is no command: {problem}", tuple(_COMMAND_TYPES))


def _convert(values: dict[str, Any]) -> Command:
    command: Command = msgspec.convert(values, Command)
    return command


def _bad_command(problem: str, allowed: tuple[str, ...]) -> BadCommand:
    return BadCommand(
        problem,
        hints=[f"commands: {', '.join(allowed)}"],
        next_action='answer with one command, such as {"type": "search", "query": "…"}',
    )


_TEXT = {"type": "string"}
_REASONING = {"reasoning": {"type": "string", "description": "Why, in a few words."}}


def _schema(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**properties, **_REASONING},
        "required": list(required),
        "additionalProperties": False,
    }


_SCHEMAS: dict[str, dict[str, Any]] = {
    "search": _schema(
        ("query",),
        query={"type": "string", "description": "What you want to get done, in plain words."},
        category_path={"type": "array", "items": _TEXT},
        limit={"type": "integer", "minimum": 1, "maximum": 20},
    ),
    "tool": _schema(("tool_id", "args"), tool_id=_TEXT, args={"type": "object"}),
    "sandbox": _schema(
        ("code",), code={"type": "string", "description": "A whole Python script; its tools declared with use_tools."}
    ),
    "tool_output": _schema(
        ("handle", "extract"), handle=_TEXT, extract=_TEXT, mode={"type": "string", "enum": list(MODES)}
    ),
    "agent": _schema(("agent", "task"), agent=_TEXT, task=_TEXT),
    "task_status": _schema(("status",), status=_TEXT),
    "batch": _schema(("commands",), commands={"type": "array", "items": {"type": "object"}, "maxItems": _BATCH_MAX}),
    "finish": _schema(("report",), report={"type": "string", "description": "The final report."}, data={}),
    "fail": _schema(("reason",), reason=_TEXT),
}


def tool_offers(allowed: tuple[str, ...]) -> tuple[ToolOffer, ...]:
    """The commands as native tools."""
    return tuple(ToolOffer(name, (_COMMAND_TYPES[name].__doc__ or "").strip(), _SCHEMAS[name]) for name in allowed)


def answer_schema(allowed: tuple[str, ...]) -> dict[str, Any]:
    """The commands as one JSON Schema, for models that only write JSON."""
    options = []
    for name in allowed:
        schema = _SCHEMAS[name]
        properties = {"type": {"const": name}, **schema["properties"]}
        options.append({**schema, "properties": properties, "required": ["type", *schema["required"]]})
    return {"anyOf": options}
