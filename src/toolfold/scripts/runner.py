"""Running scripts: needs resolved by the gateway's search, a confined child, and calls that take the gateway's own way.

One zygote belongs to the gateway. It starts with the first script and stays, with children that wait for the next.
"""

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw, Struct

from toolfold.config import Settings
from toolfold.disclosure.descriptor import decode_schema
from toolfold.disclosure.observed import result_schema
from toolfold.errors import NotAuthorized, SandboxError, ToolNotFound
from toolfold.events import Events
from toolfold.policy.view import Scene
from toolfold.sandbox.base import ChildLimits
from toolfold.scripts import declarations as declare
from toolfold.scripts import lock as locks
from toolfold.scripts import report as reports
from toolfold.scripts.execution import Execution
from toolfold.scripts.lock import Lock
from toolfold.scripts.stubs import stub_files
from toolfold.scripts.tool_specs import SpecCache as ScriptDescriber
from toolfold.scripts.tool_specs import with_unique_names
from toolfold.scripts.values import DeclaredNeed, Need, RunLimits, ScriptResult, StartFrame, ToolSpec
from toolfold.types import LOCAL, Caller, Outcome, Tool

if TYPE_CHECKING:
    from toolfold.policy.access import Governor
    from toolfold.sandbox.zygote import Zygote
    from toolfold.wire.types import OnInput

__all__ = ["Lock", "ScriptResult", "ScriptRunner", "locks", "reports"]

_ENTRY = "toolfold.scripts.runtime.main:main"
_CONFIRMATION_S = 3_600.0
"""How much longer than a script's own time its process may live, while a person thinks."""
_MAX_RESOLVED_NEEDS = 1_000
_MIN_FRAME_BYTES = 4 << 20
_SHORT_SOURCE_CHARS = 8 * 1024
"""What is longer is read in a thread."""


class _PreparedScript(Struct, frozen=True):
    """A script that can start: its needs resolved, its tools described."""

    source: str
    needs: tuple[Need, ...]
    tools: tuple[ToolSpec, ...]


class ScriptHost(Scene, Protocol):
    """What scripts need of the gateway."""

    settings: Settings
    events: Events

    @property
    def governor(self) -> "Governor": ...

    async def call_tool(
        self,
        tool_id: str,
        args: Raw,
        *,
        caller: Caller,
        on_input: "OnInput | None",
        capabilities: Raw | None,
        confirmed: bool,
        whole: bool,
    ) -> Outcome: ...


class ScriptRunner:
    """The scripts of one gateway."""

    def __init__(self, gateway: ScriptHost) -> None:
        self._gateway = gateway
        self._settings = gateway.settings.scripts
        self._describer = ScriptDescriber()
        self._zygotes: dict[bool, Zygote] = {}
        self._starting = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._turns = asyncio.Semaphore(self._settings.at_once)
        self._heard_bytes = max(_MIN_FRAME_BYTES, 2 * self._settings.output_bytes)
        self._found: dict[tuple[DeclaredNeed, int], tuple[Tool, float]] = {}

    async def aclose(self) -> None:
        """Ends every script that still runs, and the processes that wait for one."""
        async with self._starting:
            zygotes, self._zygotes = list(self._zygotes.values()), {}
        for zygote in zygotes:
            await zygote.aclose()

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
        on_input: "OnInput | None" = None,
        capabilities: Raw | None = None,
        confirmed: bool = False,
        allowed: Callable[[str], bool] | None = None,
    ) -> ScriptResult:
        """Runs a script to its end, whatever that is. Raises `ScriptError` only for one that cannot be started.

        `on_input` and `capabilities` reach the person behind the script, as in `call_tool`: while they think, the
        script's clock stands still. `confirmed` says yes for all its calls. Calls of tools that are not `allowed` fail.
        """
        events, settings = self._gateway.events, self._settings
        run = f"run-{os.getpid():x}-{time.time_ns():x}-{next(self._numbers)}"
        prepared = await self.prepare(code, caller=caller, locked=locked, name=name)
        limits = RunLimits(
            wall_s=min(timeout_s, settings.wall_s) if timeout_s is not None else settings.wall_s,
            calls=settings.calls,
            calls_at_once=settings.calls_at_once,
            inline_bytes=settings.inline_bytes,
            kept_bytes=settings.kept_bytes,
            answer_bytes=settings.output_bytes,
        )
        start = StartFrame(
            source=prepared.source,
            name=name,
            needs=prepared.needs,
            tools=prepared.tools,
            args=tuple(args),
            calls_at_once=limits.calls_at_once,
            answer_bytes=limits.answer_bytes,
            heard_bytes=self._heard_bytes,
        )
        zygote = await self._zygote(unsafe or settings.unsafe)
        async with self._turn(limits.wall_s), await zygote.take() as child:
            events.emit(
                "script.started", run=run, caller=caller.name, needs=[_need_event(need) for need in prepared.needs]
            )
            harness = Execution(
                run,
                child,
                start,
                call=partial(
                    self._gateway.call_tool, caller=caller, capabilities=capabilities, confirmed=confirmed, whole=True
                ),
                events=events,
                limits=limits,
                refused=partial(self._gateway.governor.refused, caller),
                allowed=allowed,
                on_input=on_input,
            )
            try:
                result = await harness.run()
            except asyncio.CancelledError:
                events.emit("script.cancelled", run=run)
                raise
        events.emit("script.finished", run=run, outcome=result.outcome, calls=len(result.calls), seconds=result.seconds)
        return result

    @asynccontextmanager
    async def _turn(self, wall_s: float) -> AsyncIterator[None]:
        """One of the scripts that may run at once. It is waited for as long as the script itself could take."""
        try:
            async with asyncio.timeout(wall_s):
                await self._turns.acquire()
        except TimeoutError:
            raise SandboxError(
                f"{self._settings.at_once} scripts run already, and none of them ended within {wall_s:g} s",
                next_action="run it again later, or raise scripts.at_once",
            ) from None
        try:
            yield
        finally:
            self._turns.release()

    async def prepare(
        self, code: str | bytes, *, caller: Caller = LOCAL, locked: Lock | None = None, name: str = "script.py"
    ) -> _PreparedScript:
        """Everything that can be known before the script runs. Raises `ScriptError` and `LockMismatch`."""
        if len(code) > _SHORT_SOURCE_CHARS:
            source, wanted = await asyncio.to_thread(declare.parse_script, code, name)
        else:
            source, wanted = declare.parse_script(code, name)
        seen = await self._seen(caller) if wanted else None
        pairs = [await self._resolve(one, caller, locked, seen) for one in wanted]
        return _PreparedScript(
            source, tuple(need for need, _ in pairs), await self._described([tool for _, tool in pairs])
        )

    async def stubs(
        self, needs: Sequence[str], *, server: str | None = None, caller: Caller = LOCAL
    ) -> tuple[tuple[Need, ...], dict[str, str]]:
        """What the needs become, and the stub files for it by name. Raises `ToolNotFound` for one that nothing fits."""
        found: list[Need] = []
        tools: list[Tool | None] = []
        seen = await self._seen(caller)
        for query in needs:
            tool, confidence = await self._find(DeclaredNeed(query, server), caller, seen)
            found.append(_need(DeclaredNeed(query, server), tool, confidence))
            tools.append(tool)
        return tuple(found), stub_files(await self._described(tools))

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
                    heard_bytes=self._heard_bytes,
                )
                self._zygotes[unsafe] = Zygote(_ENTRY, limits=limits, ready=settings.ready, unsafe=unsafe)
            return self._zygotes[unsafe]

    async def _resolve(
        self, wanted: DeclaredNeed, caller: Caller, locked: Lock | None, seen: int | None
    ) -> tuple[Need, Tool | None]:
        if locked is not None and (known := locked.find(wanted.query, wanted.server)) is not None:
            return await self._unlocked(wanted, known, caller)
        try:
            tool, confidence = await self._find(wanted, caller, seen)
        except (ToolNotFound, NotAuthorized) as error:
            need = Need(
                query=wanted.query,
                server=wanted.server,
                line=wanted.line,
                problem=error.message,
                candidates=tuple(str(hint) for hint in error.hints),
                next_action=error.next_action,
            )
            return need, None
        return _need(wanted, tool, confidence), tool

    async def _unlocked(
        self, wanted: DeclaredNeed, known: locks.LockedNeed, caller: Caller
    ) -> tuple[Need, Tool | None]:
        if not known.tool_id:
            return Need(query=wanted.query, server=wanted.server, line=wanted.line, problem=_NOTHING_LOCKED), None
        try:
            tool = await self._gateway.governor.scene(caller).describer.tool(known.tool_id)
        except ToolNotFound:
            raise locks.mismatch(known, "which is not there any more") from None
        if tool.fingerprint != known.fingerprint:
            raise locks.mismatch(known, f"which changed since: {known.fingerprint} is now {tool.fingerprint}")
        return _need(wanted, tool, known.confidence), tool

    async def _seen(self, caller: Caller) -> int | None:
        """The catalogue's generation; `None` for somebody who may not see everything: what that is changes any time."""
        if self._gateway.governor.scene(caller) is not self._gateway:
            return None
        async with self._gateway.catalogue.snapshot() as view:
            return view.generation

    async def _find(self, wanted: DeclaredNeed, caller: Caller, seen: int | None) -> tuple[Tool, float]:
        """By id where the need is one, else by search. What was found stays true as long as the catalogue does."""
        scene = self._gateway.governor.scene(caller)
        if seen is None:
            return await _search(scene, wanted)
        key = (DeclaredNeed(wanted.query, wanted.server), seen)
        if key not in self._found:
            if len(self._found) >= _MAX_RESOLVED_NEEDS:
                self._found.clear()
            self._found[key] = await _search(scene, wanted)
        return self._found[key]

    async def _described(self, tools: Sequence[Tool | None]) -> tuple[ToolSpec, ...]:
        described: list[tuple[Tool, ToolSpec, Any]] = []
        for tool in {tool.tool_id: tool for tool in tools if tool is not None}.values():
            seen = await self._gateway.describer.observer.of(tool)
            output = result_schema(decode_schema(tool.definition.output_schema), seen)
            described.append((tool, self._describer.describe(tool, output), output))
        return with_unique_names(described)


async def _search(scene: Scene, wanted: DeclaredNeed) -> tuple[Tool, float]:
    for tool_id in _as_ids(wanted):
        try:
            return await scene.describer.tool(tool_id), 1.0
        except ToolNotFound as error:
            if "." in wanted.query:
                raise ToolNotFound(
                    error.message, query=wanted.query, hints=error.hints, next_action=error.next_action
                ) from None
    found = await scene.finder.resolve(wanted.query, server=wanted.server)
    return found.tool, found.confidence


_NOTHING_LOCKED = "the lock says that nothing fitted this need"


def _as_ids(wanted: DeclaredNeed) -> list[str]:
    """The tool ids that a need may be: `git.git_log`, or `git_log` with a server beside it."""
    if not wanted.query or any(char.isspace() for char in wanted.query):
        return []
    if wanted.server is not None:
        return [f"{wanted.server}.{wanted.query.removeprefix(f'{wanted.server}.')}"]
    return [wanted.query] if "." in wanted.query else []


def _need(wanted: DeclaredNeed, tool: Tool, confidence: float) -> Need:
    return Need(
        query=wanted.query,
        server=wanted.server,
        line=wanted.line,
        tool_id=tool.tool_id,
        confidence=confidence,
        fingerprint=tool.fingerprint,
    )


def _need_event(need: Need) -> dict[str, Any]:
    return {"need": need.query, "tool_id": need.tool_id or None, "confidence": round(need.confidence, 4)}
