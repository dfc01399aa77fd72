"""What a model may ask for in a turn, as typed values, and how they are parsed from its reply.

A model that calls tools natively gets an offer for each tool and command; any other writes JSON, fenced or bare. Both
are read in whatever form models give them. What cannot be parsed raises `BadCommand`, whose text the model reads.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct, field

from toolfold.errors import ToolfoldError
from toolfold.model import Reply, ToolOffer, ToolUse, json_objects
from toolfold.outputs.tool_output_definition import MODES, Mode

_BATCH_MAX = 20


class _Command(Struct, frozen=True, kw_only=True, tag_field="type"):
    reasoning: str = ""

    @property
    def command(self) -> str:
        return str(self.__struct_config__.tag)


class Search(_Command, frozen=True, kw_only=True, tag="search"):
    """Find tools by what they must do. Tools that it finds are added to `available_tools`."""

    query: str
    category_path: tuple[str, ...] = ()
    limit: int = 5


class UseTool(_Command, frozen=True, kw_only=True, tag="tool"):
    """Call one of `available_tools`, with arguments that fit its `input_params`."""

    tool_id: str
    args: dict[str, Any] = field(default_factory=dict)


class Sandbox(_Command, frozen=True, kw_only=True, tag="sandbox"):
    """Run a Python script, for many calls or for computing. It says what its tools must do with `use_tools("…")`
    from `runtime.discovery`, imports them from `servers.<server>`, and returns a summary from main()."""

    code: str


class Extract(_Command, frozen=True, kw_only=True, tag="tool_output"):
    """Ask something of a result that was too large to show, by its handle."""

    handle: str
    extract: str
    mode: Mode = "auto"


class Delegate(_Command, frozen=True, kw_only=True, tag="agent"):
    """Give a part of the task to one of the sub-agents."""

    agent: str
    task: str


class _Status(_Command, frozen=True, kw_only=True, tag="task_status"):
    """Say how far the task has come."""

    status: str


class Finish(_Command, frozen=True, kw_only=True, tag="finish"):
    """Ends the run with the final report, when the task is done."""

    report: str
    data: Any = None


class Fail(_Command, frozen=True, kw_only=True, tag="fail"):
    """Gives the task up, when no tool can do it."""

    reason: str


class Unreadable(_Command, frozen=True, kw_only=True, tag="unreadable"):
    """One of several commands, which cannot be read."""

    problem: str


Single = Search | UseTool | Sandbox | Extract | Delegate | _Status | Finish | Fail | Unreadable


class _Batch(_Command, frozen=True, kw_only=True, tag="batch"):
    """Several commands at once, side by side."""

    commands: tuple[Single, ...]


_COMMAND_TYPES: dict[str, type[Struct]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (Search, UseTool, Sandbox, Extract, Delegate, _Status, _Batch, Finish, Fail)
}
COMMAND_DESCRIPTIONS = {name: " ".join((kind.__doc__ or "").split()) for name, kind in _COMMAND_TYPES.items()}


class BadCommand(ToolfoldError):
    """A reply that is not a command."""

    code = "BAD_COMMAND"


# The id of the tool that a model means, by its id, by the name of its native offer, or by its own name alone.
Resolve = Callable[[str], str | None]

# Some models write their reasoning into the answer; JSON in it is no command.
THINKING = re.compile(r"<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
# Under which keys models name what they call, and give its arguments.
_NAME_KEYS = ("type", "name", "tool", "tool_name", "command", "action")
_CALL_TYPES = ("function", "tool_call", "tool_use")
_ARGUMENT_KEYS = ("args", "arguments", "parameters", "params", "input", "action_input")
_REPORT_KEYS = ("report", "answer", "final_answer")
_TOOL_ID = re.compile(r"[\w-]+(\.[\w-]+)+")


def parse_commands(
    reply: Reply, allowed: tuple[str, ...], resolve: Resolve = lambda name: None
) -> tuple[tuple[str, Single], ...]:
    """The commands of a reply, each with the id that its answer needs. Raises `BadCommand` where none can be read.

    Of several, one that cannot be read is `Unreadable`: the others are done.
    """
    reader = _Reader(allowed, resolve)
    if reply.uses:
        commands = [(use.id, single) for use in reply.uses for single in reader.singles(_from_use(use))]
    else:
        commands = [("", single) for single in reader.from_text(reply.text)]
    if len(commands) > _BATCH_MAX:
        raise _bad_command(f"{len(commands)} commands at once; at most {_BATCH_MAX} are done in one turn", allowed)
    if all(isinstance(command, Unreadable) for _, command in commands):
        raise _bad_command(next((c.problem for _, c in commands if isinstance(c, Unreadable)), _NO_COMMAND), allowed)
    return tuple(commands)


_NO_COMMAND = "no command was given"


def _from_use(use: ToolUse) -> dict[str, Any]:
    return {"name": use.name, "arguments": use.arguments}


class _Reader:
    """Reads commands from the forms that models give them in."""

    def __init__(self, allowed: tuple[str, ...], resolve: Resolve) -> None:
        self._allowed = allowed
        self._resolve = resolve

    def from_text(self, text: str) -> list[Single]:
        """The first command in a text; where none can be read, raises what is wrong with the first that tries."""
        problem = "it holds no whole JSON object"
        for candidate in json_objects(THINKING.sub("", text)):
            singles = self.singles(candidate)
            if any(not isinstance(single, Unreadable) for single in singles):
                return singles
            problem = next((one.problem for one in singles if isinstance(one, Unreadable)), _NO_COMMAND)
        raise _bad_command(f"the answer is no command: {problem}", self._allowed)

    def singles(self, values: dict[str, Any]) -> list[Single]:
        """What one JSON object asks for: a command, or those of a batch."""
        plain = self._plain(values)
        if plain.get("type") != "batch":
            return [self._single(plain)]
        commands = plain.get("commands")
        if not isinstance(commands, list):
            return [Unreadable(problem="a batch needs `commands`, a list")]
        return [
            self._single(self._plain(one)) if isinstance(one, dict) else Unreadable(problem=f"{one!r} is no command")
            for one in commands[: _BATCH_MAX + 1]
        ]

    def _single(self, plain: dict[str, Any]) -> Single:
        name = plain.get("type")
        if name not in _COMMAND_TYPES:
            return Unreadable(problem=f"there is no command {name!r}" if name else "it names no command")
        if name not in self._allowed:
            return Unreadable(problem=f"the command {name!r} is not there in this turn")
        try:
            single: Single = msgspec.convert(plain, Single)
        except msgspec.ValidationError as error:
            return Unreadable(problem=f"the command {name!r} cannot be read: {error}")
        return single

    def _plain(self, values: dict[str, Any]) -> dict[str, Any]:
        """A command in our own form, from `{"name", "arguments"}`, a tool's id as the command, and the like."""
        if isinstance(values.get("function"), dict):
            values = values["function"]
        key = next((key for key in _NAME_KEYS if _names_call(values.get(key))), "")
        if not key:
            return self._own_form("finish", values) if _report(values) else {**values, "type": ""}
        name = values[key].strip()
        rest = {other: value for other, value in values.items() if other != key}
        tool_id = self._tool_id(name, is_call=key == "type" or not rest or _given_key(rest) != "")
        if name in self._allowed or (name in _COMMAND_TYPES and tool_id is None):
            return self._own_form(name, rest)
        if tool_id is None:
            return {**rest, "type": name}
        return {"type": "tool", "tool_id": tool_id, "args": _arguments(rest)}

    def _tool_id(self, name: str, *, is_call: bool) -> str | None:
        """The tool that a call names, available or not. Data has names, too: `{"name": "log"}` may be none."""
        if not is_call:
            return None
        return self._resolve(name) or (name if _TOOL_ID.fullmatch(name) else None)

    def _own_form(self, name: str, rest: dict[str, Any]) -> dict[str, Any]:
        own = _COMMAND_TYPES[name].__struct_fields__
        if not any(key in own and key != "args" for key in rest):
            given = _arguments(rest)
            rest = given if isinstance(given, dict) else {}
        if name == "tool":
            rest = self._tool_form(rest)
        elif name == "finish" and _report(rest):
            rest = {**rest, "report": _report(rest)}
        return {**rest, "type": name}

    def _tool_form(self, rest: dict[str, Any]) -> dict[str, Any]:
        key = next((key for key in ("tool_id", *_NAME_KEYS) if isinstance(rest.get(key), str)), "")
        if not key:
            return rest
        args = _arguments({name: value for name, value in rest.items() if name != key})
        return {"tool_id": self._resolve(rest[key]) or rest[key], "args": args}


def _names_call(value: Any) -> bool:
    return isinstance(value, str) and value not in _CALL_TYPES


def _given_key(rest: dict[str, Any]) -> str:
    """Under which key arguments are given."""
    return next((key for key in _ARGUMENT_KEYS if key in rest), "")


def _arguments(rest: dict[str, Any]) -> Any:
    """The arguments among the other values of a call: an object, an object as text, or the values themselves.

    What cannot be read stays as it is, and is refused: a call without the arguments it was given does something else.
    """
    key = _given_key(rest)
    if not key:
        return {key: value for key, value in rest.items() if key != "reasoning"}
    given = rest[key]
    if isinstance(given, str):
        given = next(json_objects(given), given)
    return {} if given is None or given == "" else given


def _report(values: dict[str, Any]) -> str:
    return next((values[key] for key in _REPORT_KEYS if isinstance(values.get(key), str)), "")


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
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


# No example of a whole query: small models would search for it.
_QUERY = "One whole sentence: what the tool must do, with what kind of thing, in which product."
_SCHEMAS: dict[str, dict[str, Any]] = {
    "search": _schema(
        ("query",),
        query={"type": "string", "description": _QUERY},
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
    "fail": _schema(("reason",), reason={"type": "string", "description": "What is missing."}),
}


def tool_offers(allowed: tuple[str, ...]) -> tuple[ToolOffer, ...]:
    """The commands as native tools."""
    return tuple(ToolOffer(name, COMMAND_DESCRIPTIONS[name], _SCHEMAS[name]) for name in allowed)


def answer_schema(allowed: tuple[str, ...]) -> dict[str, Any]:
    """The commands as one JSON Schema, for models that only write JSON."""
    options = []
    for name in allowed:
        schema = _SCHEMAS[name]
        properties = {"type": {"const": name}, **schema["properties"], **_REASONING}
        options.append({**schema, "properties": properties, "required": ["type", *schema["required"]]})
    return {"anyOf": options}
