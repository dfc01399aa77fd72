"""What the toolbox itself does, without any server: it answers the inspector of output schemas, and runs programs.

A script and a step of live Python are calls of the toolbox, too: the policy decides on them under an id like any
other's, a person confirms them where it says so, and the observer hears of them. Above: the gateway, `scripts`, `live`.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolfold.calls.confirm import PrintArguments, confirm
from toolfold.calls.pipeline import CallEnd, CallObserver, CallPipeline, Check
from toolfold.catalogue.kinds import TOOLBOX
from toolfold.disclosure.describer import Describer
from toolfold.errors import NotAuthorized
from toolfold.policy.access import AccessControl
from toolfold.policy.view import CatalogueView
from toolfold.text import replace_surrogates
from toolfold.types import CallContext, Caller, Outcome, Tool, ToolCall, ToolDefinition

T = TypeVar("T")


def _program(name: str, *parameters: str) -> Tool:
    properties = {parameter: {"type": "string"} for parameter in parameters}
    schema = Raw(msgspec.json.encode({"type": "object", "properties": properties}))
    definition = ToolDefinition(name=name, raw=schema, input_schema=schema)
    return Tool(tool_id=f"{TOOLBOX}.{name}", server=TOOLBOX, definition=definition, fingerprint=f"{TOOLBOX}.{name}")


# Neither has a risk: a pattern over risks is about what tools do, and those that a script calls are each decided on.
RUN_SCRIPT = _program("run_script", "code")
LIVE_PYTHON = _program("live_python", "function", "expr")
_PROGRAMS = {program.name: program for program in (RUN_SCRIPT, LIVE_PYTHON)}


class _Recorder(CallObserver):
    """Programs emit events of their own: nobody but the record hears of these calls."""

    def __init__(self, record: Callable[[CallEnd], None]) -> None:
        self._record = record

    def ended(self, end: CallEnd) -> None:
        self._record(end)


class Programs:
    """Runs scripts and live Python for callers whose policy allows it."""

    def __init__(
        self, access: AccessControl, print_arguments: PrintArguments, record: Callable[[CallEnd], None]
    ) -> None:
        self._access = access
        self._checks = (self._authorize, confirm(access, print_arguments))
        self._observer = _Recorder(record)

    def check(self, program: Tool, caller: Caller) -> None:
        """Raises `NotAuthorized` where the caller's policy does not allow this."""
        self._access.check_program(program, caller)

    def allows(self, name: str, caller: Caller) -> bool:
        """Whether the caller's policy allows a program, by its name in the toolbox."""
        try:
            self.check(_PROGRAMS[name], caller)
        except NotAuthorized:
            return False
        return True

    async def run(
        self,
        program: Tool,
        arguments: Mapping[str, str],
        context: CallContext,
        work: Callable[[], Awaitable[T]],
        outcome_of: Callable[[T], Outcome],
    ) -> T:
        """Runs `work` as a call of `program`; `outcome_of` says what is recorded of its result."""
        results: list[T] = []

        async def dispatch(call: ToolCall, context: CallContext) -> Outcome:
            results.append(await work())
            return outcome_of(results[0])

        encoded = msgspec.json.encode({name: replace_surrogates(text) for name, text in arguments.items()})
        pipeline = CallPipeline(dispatch, prepare=self._prepare, checks=self._checks, observer=self._observer)
        await pipeline(ToolCall(tool=program, arguments=Raw(encoded)), context)
        return results[0]

    def _prepare(self, call: ToolCall, context: CallContext) -> CallContext:
        return replace(context, caller=self._access.resolve(context.caller))

    def _authorize(self, call: ToolCall, context: CallContext) -> None:
        self.check(call.tool, context.caller)


def answer_toolbox(view_of: Callable[[Caller], CatalogueView], describer: Describer) -> Check:
    """The check that answers such calls itself; it stands last, where the arguments are known to be valid."""

    async def inspect(view: CatalogueView, call: ToolCall) -> Outcome:
        arguments = {"field_path": "", "max_depth": 4, "max_fields": 120, **msgspec.json.decode(call.arguments)}
        answer = await describer.inspect(
            view, arguments["tool_id"], arguments["field_path"], arguments["max_depth"], arguments["max_fields"]
        )
        text = msgspec.json.encode(answer).decode()
        result = {"content": [{"type": "text", "text": text}], "structuredContent": answer}
        return Outcome(raw=Raw(msgspec.json.encode(result)))

    def check(call: ToolCall, context: CallContext) -> Awaitable[Outcome] | None:
        return inspect(view_of(context.caller), call) if call.tool.server == TOOLBOX else None

    return check
