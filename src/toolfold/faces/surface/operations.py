"""What each operation of the discovery protocol does: arguments in, the gateway asked, the answer out.

One method for each name in `definitions.py`. The MCP surface and the HTTP face run the same ones, so that they cannot
differ. It also keeps the rule "never call a tool without expanding it": a model whose arguments fail on a tool that it
never expanded gets its schema with the error, and a strict configuration refuses the call at once.

Arguments are read leniently where models err and the meaning is clear: a path as "A/B", a JSON object as text, a number
in quotes, `null` for nothing. Strictly where a guess could do harm: an unknown key is named, never dropped. `args` of a
call are not even decoded: they go to the tool as they came.
"""

import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import asdict

from toolfold.disclosure.arguments import Arguments
from toolfold.errors import InvalidArguments, NotExpanded, OutputError, SignInRequired, ToolNotFound
from toolfold.faces.surface.instructions import _name_sign_ins
from toolfold.faces.surface.resource_links import own_addresses
from toolfold.faces.surface.results import Answer, TextAndData, sent_once, to_json, to_result
from toolfold.gateway import Gateway
from toolfold.outputs.tool_output_definition import FAILED, MODES, Mode, failure_text
from toolfold.text import NOTE_KEY, as_path
from toolfold.types import EMPTY_OBJECT, CallContext, Caller, Tool, ToolCall
from toolfold.wire.jsonrpc import DECODE_ERRORS

MAX_LIMIT = 50
# How much of what was sent an error repeats.
MAX_QUOTED = 100
MAX_UNKNOWN = 8
MAX_MESSAGE = 300

# Names that models use for a key. Taken where the operation has the key and the call does not.
ALIASES = {"arguments": "args", "parameters": "args", "category": "category_path"}

NotEmpty = Annotated[str, Meta(min_length=1)]
T = TypeVar("T", bound=Struct)


class _List(Struct, frozen=True):
    path: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    query: str = ""
    limit: int = 10
    cursor: str | None = None


class _SearchNodes(Struct, frozen=True):
    query: str
    limit: int = 5


class _SearchTools(Struct, frozen=True):
    query: str
    category_path: tuple[str, ...] = ()
    limit: int = 5
    cursor: str | None = None


class _ExpandTool(Struct, frozen=True):
    tool_id: str
    args_path: str = ""


class _CallTool(Struct, frozen=True, forbid_unknown_fields=True):
    tool_id: str
    args: Raw = EMPTY_OBJECT
    expect_version: int | None = None


class _InspectToolOutput(Struct, frozen=True):
    tool_id: str
    field_path: str = ""
    max_depth: int = 4
    max_fields: int = 120


class _ToolOutput(Struct, frozen=True):
    handle: NotEmpty
    extract: NotEmpty
    mode: Mode = "auto"


class _Noted(Struct):
    meta: dict[str, Any] = msgspec.field(name="_meta", default_factory=dict)


class _RunScript(Struct, frozen=True):
    code: str


_call_decoder = msgspec.json.Decoder(_CallTool)


def _parse_call(arguments: Raw) -> _CallTool:
    """`parse` for a call."""
    # Most requests are calls, and most of them are just as they should be: those are decoded in one step.
    try:
        call = _call_decoder.decode(arguments)
    except DECODE_ERRORS:
        return _parse(_CallTool, arguments)
    return call if _starts(call.args, b"{") else _parse(_CallTool, arguments)


def _parse(kind: type[T], arguments: Raw) -> T:
    """The arguments as a value of `kind`. Raises `InvalidArguments` that names each wrong key."""
    raw_values = _decode_object(arguments)
    fields = _fields(kind)
    for alias, name in ALIASES.items():
        if alias in raw_values and name in fields and name not in raw_values:
            raw_values[name] = raw_values.pop(alias)
    _refuse_unknown(raw_values, list(fields))
    values: dict[str, Any] = {}
    for name, field in fields.items():
        value = _decode_value(name, raw_values[name]) if name in raw_values else UNSET
        if value is not UNSET:
            values[name] = value if name == "args" else _convert(name, value, field.type)
        elif field.required:
            raise _invalid(name, "is required", list(fields))
    return kind(**values)


# Reading the annotations of a value costs more than reading the value.
@cache
def _fields(kind: type[Struct]) -> dict[str, "msgspec.structs.FieldInfo"]:
    return {field.name: field for field in msgspec.structs.fields(kind)}


def _decode_object(arguments: Raw) -> dict[str, Raw]:
    """The keys, values undecoded. An object that was sent as text is read as the object."""
    try:
        if _starts(arguments, b'"'):
            arguments = Raw(msgspec.json.decode(arguments, type=str).encode())
        elif _starts(arguments, b"n"):
            return msgspec.json.decode(arguments, type=None) or {}
        return msgspec.json.decode(arguments, type=dict[str, Raw])
    except DECODE_ERRORS as error:
        raise InvalidArguments(
            f"the arguments cannot be read as one JSON object: {error}"[:MAX_MESSAGE],
            next_action='give one JSON object, such as {"query": "rename a symbol"}',
        ) from None


def _refuse_unknown(raw_values: dict[str, Raw], fields: list[str]) -> None:
    unknown = [name[:MAX_QUOTED] for name in raw_values if name not in fields][:MAX_UNKNOWN]
    if not unknown:
        return
    action = f"use only {', '.join(fields)}"
    if "args" in fields:
        action = 'put the tool\'s own arguments inside args: {"tool_id": "…", "args": {…}}'
    raise InvalidArguments(
        f"unknown: {', '.join(unknown)}",
        hints=[{"field": name, "problem": f"is unknown; it takes {', '.join(fields)}"} for name in unknown],
        next_action=action,
    )


def _decode_value(name: str, raw: Raw) -> Any:
    """The value that was meant. `UNSET` stands for `null`: as if the key were not there."""
    if name == "args":
        return _decode_args(raw)
    try:
        value = msgspec.json.decode(raw)
    except DECODE_ERRORS:
        raise _invalid(name, "cannot be read as JSON") from None
    if value is None:
        return UNSET
    return _REPAIRS[name](value) if name in _REPAIRS else value


def _decode_args(raw: Raw) -> Raw | UnsetType:
    if _starts(raw, b"n"):
        return UNSET
    if not _starts(raw, b'"'):
        return raw
    try:
        return Raw(msgspec.json.decode(raw, type=str).encode() or b"{}")
    except DECODE_ERRORS:
        return raw  # the call's own check says what is wrong


def _repair_path(value: Any) -> Any:
    """`Coding/Refactoring`, `Coding > Refactoring` and `["Coding","Refactoring"]` as text are the same path."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return msgspec.json.decode(value.encode(), type=list[str])
        except DECODE_ERRORS:
            return [value]
    return as_path(value)


def _repair_tags(value: Any) -> Any:
    return [tag.strip() for tag in value.split(",") if tag.strip()] if isinstance(value, str) else value


def _repair_limit(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"\s*-?\d{1,9}\s*", value, re.ASCII):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return int(max(1, min(value, MAX_LIMIT)))


_REPAIRS: dict[str, Callable[[Any], Any]] = {
    "path": _repair_path,
    "category_path": _repair_path,
    "tags": _repair_tags,
    "limit": _repair_limit,
}


def _convert(name: str, value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _invalid(name, str(error).replace(" - at `$", " at `" + name)) from None


def _invalid(name: str, problem: str, fields: list[str] | None = None) -> InvalidArguments:
    return InvalidArguments(
        f"{name}: {problem}"[:MAX_MESSAGE],
        hints=[{"field": name, "problem": problem[:MAX_MESSAGE]}],
        next_action=f"give {', '.join(fields)}" if fields else f"give {name} as its schema says",
    )


def _starts(raw: Raw, *starts: bytes) -> bool:
    return bytes(memoryview(raw)[:64]).lstrip().startswith(starts)


# A larger input schema is shown folded, by `expand_tool` and in an error: about 2,000 tokens.
MAX_ARGS_SCHEMA_BYTES = 8_000
# A larger result schema is shown folded: 30 lines in its place say what a model needs first.
MAX_RESULT_SCHEMA_BYTES = 4_000
# A larger result is passed on without a note: taking it apart would cost too much.
MAX_NOTED_BYTES = 1 << 20

CONTRADICTED = "results of this tool do not fit its declared result_schema; go by the result. "
FOLDED = "result_schema is large and folded into output_fields; inspect_tool_output opens any part of it"
ARGS_FOLDED = "args_schema is large and folded into args_fields; expand_tool with args_path opens any part of it"


async def call_tool(
    gateway: Gateway, tool_id: str, args: Raw, context: CallContext, *, expect_version: int | None = None
) -> Raw:
    """Calls a tool of the catalogue: the one place where surfaces do."""
    try:
        tool = await gateway.tool(tool_id, context.caller)
    except (SignInRequired, ToolNotFound) as error:
        return await _signed_in(gateway, tool_id, context, error)
    call = ToolCall(tool=tool, arguments=args, expect_version=expect_version)
    outcome = await gateway.calls(call, context)
    result = own_addresses(tool.server, outcome.raw)
    result = sent_once(result) if gateway.settings.outputs.send_once else result
    notes = _own_note(result)
    if tool.definition.output_schema is not None and not outcome.is_error:
        contradicted = await gateway.describer.contradictions(tool)
        notes += [CONTRADICTED + "; ".join(contradicted)] if contradicted else []
    return _with_notes(result, notes) if notes else result


async def _signed_in(gateway: Gateway, tool_id: str, context: CallContext, error: SignInRequired | ToolNotFound) -> Raw:
    """The answer to `NAME.sign_in`, and to any unknown tool of a server that shows this caller nothing yet: asks for
    the sign-in, and says where it is done that there are tools now. Raises `error` of all others."""
    server, _, name = tool_id.partition(".")
    if isinstance(error, SignInRequired):
        from toolfold.calls.sign_in import SignInRequester

        server = error.server
        await SignInRequester(gateway.upstreams).ask(server, context, error)
    elif name != "sign_in" or server not in gateway.upstreams.per_caller or gateway.view(context.caller).hides(server):
        raise error
    await gateway.view(context.caller).settled()
    direct = bool(context.tool_name)  # by a name of its own, which is where no operations are listed
    found = "Its tools are listed now: list the tools again" if direct else "Find its tools with list or a search"
    text = f"Signed in to {server}. {found}."
    return Raw(msgspec.json.encode({"content": [{"type": "text", "text": text}]}))


def _own_note(result: Raw) -> list[str]:
    """What the result itself says was replaced in it."""
    if NOTE_KEY.encode() not in bytes(result):
        return []
    try:
        note = msgspec.json.decode(result, type=_Noted).meta.get(NOTE_KEY)
    except DECODE_ERRORS:  # the words stand elsewhere in it
        note = None
    return [note] if isinstance(note, str) else []


def _with_notes(result: Raw, notes: list[str]) -> Raw:
    """The result with one more text for each thing that is not as a reader would expect."""
    if len(memoryview(result)) > MAX_NOTED_BYTES:
        return result
    parts = msgspec.json.decode(result, type=dict[str, Raw])
    content = msgspec.json.decode(parts.get("content", Raw(b"[]")), type=list[Raw])
    content += [Raw(msgspec.json.encode({"type": "text", "text": f"note: {note}"})) for note in notes]
    return Raw(msgspec.json.encode({**parts, "content": content}))


def _describe_failure(args: Raw, error: dict[str, Any]) -> str:
    """An error of `tool_output`, whatever its arguments were."""
    try:
        asked = msgspec.json.decode(args, type=dict[str, Any])
    except DECODE_ERRORS:
        asked = {}
    mode = asked.get("mode")
    return failure_text(error, handle=str(asked.get("handle", "")), mode=mode if mode in MODES else "auto")


def _arguments(schema: Raw, tool_id: str) -> Arguments:
    return Arguments(msgspec.json.decode(schema), tool_id)


def _folded(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An expanded tool as a model reads it: large schemas are folded, and can be opened part by part."""
    notes = []
    shown: dict[str, Any] = {}
    for key, value in answer.items():
        shown[key] = value
        if key == "args_schema" and len(memoryview(value)) > MAX_ARGS_SCHEMA_BYTES:
            shown |= {key: None, **_arguments(value, answer["tool_id"]).folded()}
            notes.append(ARGS_FOLDED)
        if key == "result_schema" and value is not None and len(memoryview(value)) > MAX_RESULT_SCHEMA_BYTES:
            shown[key] = None
            notes.append(FOLDED)
    return {**shown, "note": "; ".join(notes)} if notes else shown


class Operations:
    """The operations of one gateway."""

    def __init__(self, gateway: Gateway, *, expands: bool = False) -> None:
        """`expands`: a model reads the answers, so that a search expands hits where the configuration lets it."""
        self._gateway = gateway
        self._expands = expands
        self._by_name: dict[str, Callable[[Raw, CallContext], Coroutine[Any, Any, Answer]]] = {
            "list": partial(self._forward, "list", _List),
            "search_nodes": partial(self._forward, "search_nodes", _SearchNodes),
            "search_tool_by_category": self._search_tools,
            "expand_tool": self._expand_tool,
            "call_tool": self._call_tool,
            "inspect_tool_output": partial(self._forward, "inspect_tool_output", _InspectToolOutput),
            "tool_output": self._tool_output,
            "run_script": self._run_script,
        }

    def run(self, name: str, args: Raw, context: CallContext) -> Coroutine[Any, Any, Answer]:
        """Runs an operation of `definitions.DISCOVERY`. Raises what the gateway raises."""
        return self._by_name[name](args, context)

    async def result(self, name: str, args: Raw, context: CallContext) -> Raw:
        """The same as an MCP result. What goes wrong is one, too: of `tool_output`, in plain text like its answers."""
        work = self.run(name, args, context)
        own = (partial(_describe_failure, args),) if name == "tool_output" else ()
        return await to_result(work, context, *own)

    async def _forward(self, name: str, kind: type[Struct], args: Raw, context: CallContext) -> Answer:
        """An operation that is a method of the gateway, under the same name and with the same arguments."""
        method: Callable[..., Coroutine[Any, Any, Answer]] = getattr(self._gateway, name)
        return await method(**asdict(_parse(kind, args)), caller=context.caller)

    async def _search_tools(self, args: Raw, context: CallContext) -> Answer:
        gateway, caller = self._gateway, context.caller
        asked = asdict(_parse(_SearchTools, args))
        expand = self._expands and gateway.settings.discovery.expand_hits
        async with _name_sign_ins(gateway, caller):
            answer = await gateway.search_tool_by_category(**asked, caller=caller, expand=expand)
        await self._share(caller, answer.get("expanded", ()))
        return answer

    async def _share(self, caller: Caller, tool_ids: Iterable[str]) -> None:
        """Has the other gateways know what was expanded, where they may be asked."""
        gateway = self._gateway
        for tool_id in tool_ids if self._asks_others else ():
            if version := gateway.expansions.version(caller, tool_id):
                await gateway.expansions.share(gateway.store, caller, tool_id, version)

    async def _expand_tool(self, args: Raw, context: CallContext) -> Answer:
        parsed = _parse(_ExpandTool, args)
        answer = await self._gateway.expand_tool(parsed.tool_id, caller=context.caller)
        await self._share(context.caller, (answer["tool_id"],))
        if parsed.args_path:
            part = _arguments(answer["args_schema"], answer["tool_id"]).part(parsed.args_path)
            text = to_json({"tool_id": answer["tool_id"], "version": answer["version"], **part})
            return TextAndData({**answer, **part}, await self._store_if_large(text, "expand_tool", args, context))
        return TextAndData(answer, await self._store_if_large(to_json(_folded(answer)), "expand_tool", args, context))

    @property
    def _asks_others(self) -> bool:
        """Whether a call may be refused for what was asked at another gateway."""
        settings = self._gateway.settings
        return settings.discovery.strict and settings.outputs_shared != "off"

    async def _call_tool(self, args: Raw, context: CallContext) -> Answer:
        parsed = _parse_call(args)
        if self._gateway.settings.discovery.strict:
            with suppress(SignInRequired):  # asked for by the call itself
                await self._refuse_unexpanded(parsed.tool_id, context)
        try:
            return await call_tool(
                self._gateway, parsed.tool_id, parsed.args, context, expect_version=parsed.expect_version
            )
        except InvalidArguments as error:
            raise await self._with_schema(error, parsed.tool_id, context) from None

    async def _refuse_unexpanded(self, tool_id: str, context: CallContext) -> None:
        tool, expanded = await self._look_up(tool_id, context)
        if not expanded and self._asks_others:
            gateway, caller = self._gateway, context.caller
            expanded = await gateway.expansions.is_shared(gateway.store, caller, tool.tool_id, tool.version)
        if not expanded:
            error = NotExpanded(
                f"{tool.tool_id} (version {tool.version}) was not expanded before this call",
                hints=[tool.tool_id],
                next_action=f"call expand_tool for {tool.tool_id}, read its args_schema, then call it",
            )
            self._gateway.reject_call(context.caller, tool.tool_id, error)
            raise error

    async def _with_schema(self, error: InvalidArguments, tool_id: str, context: CallContext) -> InvalidArguments:
        """The same error; with the schema for whoever is not known to have it, as it is now."""
        tool, expanded = await self._look_up(tool_id, context)
        if expanded:
            return error
        schema = tool.definition.input_schema
        hint = {"args_schema": msgspec.json.decode(schema)}
        if len(memoryview(schema)) > MAX_ARGS_SCHEMA_BYTES:
            hint = _arguments(schema, tool.tool_id).folded()
        return InvalidArguments(
            error.message,
            hints=[*error.hints, hint],
            next_action=f"{error.next_action}; hints say what it takes, or call expand_tool for {tool.tool_id}",
        )

    async def _look_up(self, tool_id: str, context: CallContext) -> tuple[Tool, bool]:
        """A tool, and whether the caller has expanded this version of it."""
        tool = await self._gateway.tool(tool_id, context.caller)
        return tool, self._gateway.expansions.version(context.caller, tool.tool_id) == tool.version

    async def _tool_output(self, args: Raw, context: CallContext) -> Answer:
        text = await self._gateway.tool_output(**asdict(_parse(_ToolOutput, args)), caller=context.caller)
        return TextAndData({"text": text}, text, text.startswith(FAILED))

    async def _run_script(self, args: Raw, context: CallContext) -> Answer:
        parsed = _parse(_RunScript, args)
        result = await self._gateway.run_script(
            parsed.code, caller=context.caller, on_input=context.on_input, capabilities=context.capabilities
        )
        from toolfold.scripts import report

        origin = {"tool_id": "run_script", "arguments": _sent(args)}
        try:
            printed = {
                name: await self._gateway.outputs.store_large_text(text, **origin, caller=context.caller)
                for name, text in (("stdout", result.stdout), ("stderr", result.stderr))
            }
            stored = {name: kept for name, kept in printed.items() if kept is not None}
            text = await self._store_if_large(report.as_text(result, stored), "run_script", args, context)
        except OutputError as error:  # the script has run
            raise error.after_work() from error.__cause__
        return TextAndData(report.as_dict(result, stored), text, not result.ok)

    async def _store_if_large(self, text: str, operation: str, args: Raw, context: CallContext) -> str:
        """The text, or where it is too large for a result, the message about where it is stored."""
        outputs = self._gateway.outputs
        return await outputs.fit_text(text, tool_id=operation, arguments=_sent(args), caller=context.caller)


def _sent(args: Raw) -> str:
    return bytes(args).decode(errors="replace")
