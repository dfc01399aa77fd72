"""Runs scripts for the gateway: resolves their needs, starts confined children, and passes their calls on.

One zygote belongs to a runner. It starts with the first script and stays, with children that are ready for the next.
Above: the gateway, which is the `ScriptHost`. Below: `declarations.py`, `tool_specs.py`, `execution.py`, the sandbox.
"""

import asyncio
import itertools
import os
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolfold.calls.toolbox import RUN_SCRIPT
from toolfold.calls.validate import check_seconds
from toolfold.catalogue.metadata import may_write
from toolfold.config import Settings
from toolfold.config.sections import Scripts
from toolfold.containers import BoundedDict
from toolfold.disclosure.observed import decode_schema, is_uninformative, to_schema
from toolfold.errors import (
    LockMismatch,
    NotAuthorized,
    OutputError,
    SandboxError,
    ScriptError,
    ToolfoldError,
    ToolNotFound,
    UpstreamError,
)
from toolfold.events import Events
from toolfold.policy.view import CatalogueView
from toolfold.sandbox.base import ChildLimits
from toolfold.scripts.declarations import parse_script
from toolfold.scripts.execution import Execution
from toolfold.scripts.lock import Lock, LockedNeed
from toolfold.scripts.report import as_dict, as_text
from toolfold.scripts.stubs import stub_files
from toolfold.scripts.tool_specs import SpecCache
from toolfold.scripts.values import Need, ScriptResult, StartFrame
from toolfold.types import LOCAL, CallContext, Caller, Hit, OnInput, Outcome, Tool

if TYPE_CHECKING:
    from toolfold.calls.toolbox import Programs
    from toolfold.disclosure.describer import Describer
    from toolfold.outputs.service import OutputService
    from toolfold.policy.access import AccessControl
    from toolfold.sandbox.zygote import Zygote
    from toolfold.search.service import SearchService, _ResolvedNeed

__all__ = ["Need", "ScriptResult", "ScriptRunner", "_ScriptHost"]

_ENTRY = "toolfold.scripts.runtime.main:main"
# How much longer than a script's own time its process may live, while a person thinks.
_CONFIRMATION_S = 3_600.0
_MAX_MATCHES = 1_000
_MIN_FRAME_BYTES = 4 << 20
# Two tools whose probabilities to fit differ by less are no choice: the first of them is right in two of five cases.
_AS_NEAR = 0.02
# How sure a match must be for a tool that may write; for one of which that is not known, where the need asks to read;
# and for any tool at all.
_SURE, _SURE_TO_READ, _LEAST = 0.7, 0.5, 0.2
# What is longer is parsed in a thread.
_SHORT_SOURCE_CHARS = 8 * 1024


class _ScriptHost(Protocol):
    """What scripts need of the gateway: its settings, its tools as one caller may see them, and its way to call."""

    settings: Settings
    events: Events

    @property
    def search(self) -> "SearchService": ...

    @property
    def describer(self) -> "Describer": ...

    @property
    def outputs(self) -> "OutputService": ...

    @property
    def programs(self) -> "Programs": ...

    @property
    def access(self) -> "AccessControl": ...

    def view(self, caller: Caller) -> CatalogueView: ...

    def reject_call(self, caller: Caller, tool_id: str, error: ToolfoldError) -> None: ...

    async def call_tool(
        self,
        tool_id: str,
        args: Raw,
        *,
        caller: Caller,
        on_input: OnInput | None,
        capabilities: Raw | None,
        confirmed: bool,
        whole: bool,
    ) -> Outcome: ...


class _Slots:
    """How many scripts run at once, shared between callers: whoever waits and runs least comes first, and of several
    such the one whose last turn is longest ago. A quarter is kept for callers who run less than an equal share, and the
    last slot for one who runs none."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._shared = total - max(1, total // 4) if total > 1 else total
        self.running: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        # The order of turns: whoever had one goes to the end.
        self._turns: dict[str, None] = {}

    async def acquire(self, caller: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        self._turns.setdefault(caller)
        self._grant()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(caller)
            else:
                self._forget(caller, turn)
            raise

    def release(self, caller: str) -> None:
        self.running[caller] -= 1
        self.running += Counter()  # forgets who runs none
        self._grant()

    def _forget(self, caller: str, turn: "asyncio.Future[None]") -> None:
        waiting = self._waiting.get(caller, deque())
        with suppress(ValueError):
            waiting.remove(turn)
        if not waiting:
            self._waiting.pop(caller, None)
            if not self.running[caller]:
                self._turns.pop(caller, None)

    def _grant(self) -> None:
        while ready := [caller for caller in self._turns if caller in self._waiting and self._is_free(caller)]:
            caller = min(ready, key=lambda name: self.running[name])  # the first of those that run as many
            turn = self._waiting[caller][0]
            del self._turns[caller]
            self._turns[caller] = None
            self._forget(caller, turn)
            if not turn.done():
                self.running[caller] += 1
                self._turns.setdefault(caller)
                turn.set_result(None)
        self._turns = {name: None for name in self._turns if name in self._waiting or self.running[name]}

    def _is_free(self, caller: str) -> bool:
        running, own = self.running.total(), self.running[caller]
        if not own:
            return running < self._total
        share = self._total // max(2, len({*self.running, *self._waiting}))
        return running < (self._shared if own >= share else self._total - 1)


class ScriptRunner:
    """The scripts of one gateway."""

    def __init__(self, host: _ScriptHost) -> None:
        self._host = host
        self._settings = host.settings.scripts
        self._specs = SpecCache()
        # By whether their children run unconfined.
        self._zygotes: dict[bool, Zygote] = {}
        self._starting = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._slots = _Slots(self._settings.at_once)
        self._frame_bytes = max(_MIN_FRAME_BYTES, 2 * self._settings.output_bytes)
        self._matches: BoundedDict[tuple[str, str | None, int], tuple[Tool, float]] = BoundedDict(_MAX_MATCHES)

    async def aclose(self) -> None:
        """Ends every script that still runs, and the processes that are ready for one."""
        async with self._starting:
            zygotes, self._zygotes = list(self._zygotes.values()), {}
        for zygote in zygotes:
            await zygote.aclose()

    def as_text(self, result: ScriptResult) -> str:
        """A result as a model reads it."""
        return as_text(result)

    async def start(self) -> None:
        """Starts the zygote, so that the first script need not wait for it."""
        await (await self._zygote(self._settings.unsafe)).start()

    async def run(
        self,
        code: str | bytes,
        *,
        caller: Caller = LOCAL,
        locked: Lock | None = None,
        timeout_s: float | None = None,
        args: Sequence[str] = (),
        name: str = "script.py",
        unsafe: bool = False,
        on_input: OnInput | None = None,
        capabilities: Raw | None = None,
        confirmed: bool = False,
        allowed: Callable[[str], bool] | None = None,
        on_needs: Callable[[tuple[Need, ...]], None] | None = None,
    ) -> ScriptResult:
        """Runs a script to its end, whatever that is. Raises `ScriptError` only for one that cannot be started.

        `on_input` and `capabilities` reach the person behind the script, as in `call_tool`: while they think, the
        script's clock stands still. `confirmed` says yes for all its calls. Calls of tools that are not `allowed` fail.
        `on_needs` is called with what the needs became, before the script starts.
        """
        settings = self._settings
        if timeout_s is not None:
            check_seconds(timeout_s)
            settings = replace(settings, wall_s=min(timeout_s, settings.wall_s))
        context = CallContext(caller=caller, on_input=on_input, capabilities=capabilities, confirmed=confirmed)

        async def work() -> ScriptResult:
            start = await self.prepare(code, caller=caller, locked=locked, name=name, args=args)
            if on_needs is not None:
                on_needs(start.needs)
            return await self._execute(start, context, settings, unsafe, allowed)

        text = code if isinstance(code, str) else code.decode(errors="replace")
        return await self._host.programs.run(RUN_SCRIPT, {"code": text}, context, work, _as_outcome)

    async def run_kept(
        self, code: str, lock: Lock | None, name: str, context: CallContext, allowed: Callable[[str], bool]
    ) -> ScriptResult:
        """Runs a script that is kept, as a tool: whoever may call it need not be allowed to run any other."""
        try:
            start = await self.prepare(code, caller=context.caller, locked=lock, name=name)
        except LockMismatch as error:
            again = f"look at the tool again, then run: toolfold scripts lock {name.removesuffix('.py')}"
            raise LockMismatch(error.message, hints=error.hints, next_action=again) from None
        if lock is not None:
            lock.check(start.needs, name)
        return await self._execute(start, context, self._settings, self._settings.unsafe, allowed)

    async def _execute(
        self,
        start: StartFrame,
        context: CallContext,
        settings: Scripts,
        unsafe: bool,
        allowed: Callable[[str], bool] | None,
    ) -> ScriptResult:
        host, caller = self._host, context.caller
        # Gateways that share a store must not number their runs alike.
        run = f"run-{os.getpid():x}-{time.time_ns():x}-{next(self._numbers)}"
        # Whole results: the script itself picks what it needs of them.
        call = partial(
            host.call_tool, caller=caller, capabilities=context.capabilities, confirmed=context.confirmed, whole=True
        )
        zygote = await self._zygote(unsafe or settings.unsafe)
        quotas = host.access.quotas
        await quotas.check_script(caller)
        async with self._slot(caller.name, settings.wall_s), await zygote.take() as child:
            host.events.emit("script.started", run=run, caller=caller.name, needs=list(map(_need_event, start.needs)))
            execution = Execution(
                run,
                child,
                start,
                call=call,
                events=host.events,
                settings=settings,
                on_refused=partial(host.reject_call, caller),
                open_output=partial(_output_file, host, caller),
                allowed=allowed,
                on_input=context.on_input,
            )
            started = time.monotonic()
            try:
                result = await execution.run()
            except asyncio.CancelledError:
                host.events.emit("script.cancelled", run=run)
                raise
            finally:
                await quotas.count_script(caller, time.monotonic() - started)
        if execution.large_summary:
            result = await self._store_summary(result, execution.large_summary, caller)
        outcome, calls = result.outcome, len(result.calls)
        host.events.emit("script.finished", run=run, outcome=outcome, calls=calls, seconds=result.seconds)
        return result

    async def _store_summary(self, result: ScriptResult, text: str, caller: Caller) -> ScriptResult:
        try:
            stored = await self._host.outputs.store_text(text, tool_id="run_script", caller=caller)
        except OutputError as error:
            problem = f"the summary of {len(text):,} characters could not be stored: {error.message}"
            return replace(result, warnings=(*result.warnings, problem))
        return replace(result, stored=stored)

    async def prepare(
        self,
        code: str | bytes,
        *,
        caller: Caller = LOCAL,
        locked: Lock | None = None,
        name: str = "script.py",
        args: Sequence[str] = (),
    ) -> StartFrame:
        """Resolves the needs of a script and describes their tools. Raises `ScriptError` and `LockMismatch`."""
        if len(code) > _SHORT_SOURCE_CHARS:
            source, declared = await asyncio.to_thread(parse_script, code, name)
        else:
            source, declared = parse_script(code, name)
        generation = await self._generation(caller) if declared else None
        pairs = [await self._resolve(need, caller, locked, generation) for need in declared]
        tools = self._specs.describe_all(_result_schemas(pairs))
        signatures = {spec.tool_id: spec.signature for spec in tools}
        return StartFrame(
            source=source,
            name=name,
            needs=tuple(replace(need, signature=signatures.get(need.tool_id, "")) for need, _ in pairs),
            tools=tools,
            args=tuple(args),
            calls_at_once=self._settings.calls_at_once,
            answer_bytes=self._settings.output_bytes,
            summary_bytes=self._settings.kept_bytes,
            frame_bytes=self._frame_bytes,
        )

    async def stubs(
        self, needs: Sequence[str], *, server: str | None = None, caller: Caller = LOCAL
    ) -> tuple[tuple[Need, ...], dict[str, str]]:
        """Returns what the needs become, and stub files by name. Raises `ToolNotFound` for one that nothing fits."""
        generation = await self._generation(caller)
        declared = [Need(query=query, server=server) for query in needs]
        matches = [await self._match(need, caller, generation) for need in declared]
        tools = [await self._lookup(tool.tool_id, caller, current=True) for tool, _ in matches]
        triples = zip(declared, tools, matches, strict=True)
        resolved = tuple(_resolved(need, tool, confidence) for need, tool, (_, confidence) in triples)
        shapes = {tool.tool_id: (tool, await self._observed(tool) or _declared(tool)) for tool in tools}
        return resolved, stub_files(self._specs.describe_all(shapes.values()))

    @asynccontextmanager
    async def _slot(self, caller: str, wall_s: float) -> AsyncIterator[None]:
        """One of the scripts that may run at once. It is waited for as long as the script itself could take."""
        try:
            async with asyncio.timeout(wall_s):
                await self._slots.acquire(caller)
        except TimeoutError:
            running = self._slots.running
            raise SandboxError(
                f"{running.total()} scripts run already, {running[caller]} of them yours, and no turn came within "
                f"{wall_s:g} s",
                next_action="run it again later, or raise scripts.at_once",
            ) from None
        try:
            yield
        finally:
            self._slots.release(caller)

    async def _zygote(self, unsafe: bool) -> "Zygote":
        async with self._starting:
            if unsafe not in self._zygotes:
                from toolfold.sandbox.zygote import Zygote

                settings = self._settings
                limits = ChildLimits(
                    wall_s=settings.wall_s + _CONFIRMATION_S,
                    cpu_s=settings.cpu_s,
                    memory_bytes=settings.memory_bytes,
                    scratch_bytes=settings.scratch_bytes,
                    output_bytes=settings.output_bytes,
                    receive_bytes=self._frame_bytes,
                )
                self._zygotes[unsafe] = Zygote(_ENTRY, limits=limits, ready=settings.ready, unsafe=unsafe)
            return self._zygotes[unsafe]

    async def _resolve(
        self, need: Need, caller: Caller, locked: Lock | None, generation: int | None
    ) -> tuple[Need, Tool | None]:
        if locked is not None and (lock := locked.find(need.query, need.server)) is not None:
            return await self._resolve_locked(need, lock, caller)
        try:
            tool, confidence = await self._match(need, caller, generation)
        except (ToolNotFound, NotAuthorized, UpstreamError) as error:
            return replace(need, problem=error.message, hints=error.hints, next_action=error.next_action), None
        observed = await self._observed(tool) if locked is not None else None
        return replace(_resolved(need, tool, confidence), observed=observed), tool

    async def _resolve_locked(self, need: Need, lock: LockedNeed, caller: Caller) -> tuple[Need, Tool | None]:
        if not lock.tool_id:
            return replace(need, problem="the lock says that nothing fitted this need"), None
        try:
            tool = await self._lookup(lock.tool_id, caller, current=True)
        except ToolNotFound:
            raise lock.mismatch("which is not there any more") from None
        if tool.fingerprint != lock.fingerprint:
            raise lock.mismatch(f"which changed since: {lock.fingerprint} is now {tool.fingerprint}")
        return replace(_resolved(need, tool, lock.confidence), observed=lock.observed), tool

    async def _match(self, need: Need, caller: Caller, generation: int | None) -> tuple[Tool, float]:
        """The tool for a need and how sure the match is. A match stays true as long as the catalogue does."""
        if generation is None:
            return await self._search(need, caller)
        key = (need.query, need.server, generation)
        if key not in self._matches:
            self._matches[key] = await self._search(need, caller)
        return self._matches[key]

    async def _search(self, need: Need, caller: Caller) -> tuple[Tool, float]:
        """By id where the need is one, else by search."""
        tool_id = _as_tool_id(need)
        if tool_id is not None:
            try:
                return await self._lookup(tool_id, caller), 1.0
            except ToolNotFound as error:
                if "." in need.query:
                    raise ToolNotFound(
                        error.message, query=need.query, hints=error.hints, next_action=error.next_action
                    ) from None
        view, search = self._host.view(caller), self._host.search
        try:
            match = await search.resolve(view, need.query, server=need.server, least=_LEAST)
        except ToolNotFound:
            await view.ask()  # servers that were not read yet may have it by now
            match = await search.resolve(view, need.query, server=need.server, least=_LEAST)
        _check_sure(need, match)
        return match.tool, match.confidence

    async def _lookup(self, tool_id: str, caller: Caller, *, current: bool = False) -> Tool:
        return await self._host.describer.tool(self._host.view(caller), tool_id, current=current)

    async def _generation(self, caller: Caller) -> int | None:
        """The catalogue's generation; `None` for somebody who may not see everything: that changes at any time."""
        view = self._host.view(caller)
        if not view.unrestricted:
            return None
        async with view.catalogue.snapshot() as snapshot:
            return snapshot.generation

    async def _observed(self, tool: Tool) -> Any:
        """The schema of what a tool was seen to return, where it declares nothing of use."""
        observed = await self._host.describer.observer.of(tool)
        return to_schema(observed) if observed is not None and is_uninformative(_declared(tool)) else None


async def _output_file(host: _ScriptHost, caller: Caller, handle: str) -> Path:
    return await host.outputs.file(handle, caller)


def _as_tool_id(need: Need) -> str | None:
    """The tool id that a need may be: `git.git_log`, or `git_log` with a server beside it."""
    if not need.query or any(char.isspace() for char in need.query):
        return None
    if need.server is not None:
        return f"{need.server}.{need.query.removeprefix(f'{need.server}.')}"
    return need.query if "." in need.query else None


def _check_sure(need: Need, match: "_ResolvedNeed") -> None:
    """Raises `ScriptError` where another tool is as near, or where the tool may write and the match is not sure."""
    tool, confidence = match.tool, match.confidence
    near = [hit for hit in match.runners_up if hit.confidence >= confidence - _AS_NEAR]
    if near:
        rivals = " and ".join([tool.tool_id, *(hit.tool_id for hit in near)])
        raise _unsure(need, f"fits {rivals} alike", [match, *near])
    sure = _SURE if may_write(need.query, tool.risks) else _SURE_TO_READ
    if confidence < sure and may_write(tool.name, tool.risks):
        what = f"may mean {tool.tool_id}, which may write, and it is not sure ({confidence:.2f})"
        raise _unsure(need, what, [match, *match.runners_up])


def _unsure(need: Need, what: str, candidates: Sequence["_ResolvedNeed | Hit"]) -> ScriptError:
    hints = [
        {"tool_id": hit.tool_id if isinstance(hit, Hit) else hit.tool.tool_id, "confidence": hit.confidence}
        for hit in candidates
    ]
    where = f"line {need.line}: " if need.line else ""
    return ScriptError(
        f"{where}{need.query!r} {what}; nothing was run",
        hints=hints,
        next_action=f'name the one you mean by its id, as in use_tools("{hints[0]["tool_id"]}")',
    )


def _declared(tool: Tool) -> Any:
    return decode_schema(tool.definition.output_schema)


def _result_schemas(pairs: Iterable[tuple[Need, Tool | None]]) -> Iterable[tuple[Tool, Any]]:
    """Each tool once, with the schema of its results: declared, or as the lock has it. What was only seen since decides
    nothing, or the same script would get other types tomorrow."""
    return {tool.tool_id: (tool, need.observed or _declared(tool)) for need, tool in pairs if tool is not None}.values()


def _resolved(need: Need, tool: Tool, confidence: float) -> Need:
    return replace(need, tool_id=tool.tool_id, confidence=confidence, fingerprint=tool.fingerprint)


def _as_outcome(result: ScriptResult) -> Outcome:
    """What the audit log keeps of a script: how much it printed and answered, and whether it failed."""
    return Outcome(raw=Raw(msgspec.json.encode(as_dict(result), enc_hook=str)), is_error=not result.ok)


def _need_event(need: Need) -> dict[str, Any]:
    return {"need": need.query, "tool_id": need.tool_id or None, "confidence": round(need.confidence, 4)}
