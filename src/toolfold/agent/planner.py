"""The loop: ask the model, do what it commands, show it what came of it, until it reports or a budget is used up.

Every run ends in a `Report`: finished, failed, or out of budget, and then with a synthetic report that says so. Nothing
a model or a tool does wrong gets out of here.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from toolfold import tokens
from toolfold.agent import prompts
from toolfold.agent.budgets import Budgets, Spent
from toolfold.agent.commands import (
    BadCommand,
    Delegate,
    Fail,
    Finish,
    Sandbox,
    Search,
    Single,
    UseTool,
    answer_schema,
    name_of,
    offers,
    read,
)
from toolfold.agent.performing import Performer, about, as_plain, failed
from toolfold.agent.record import Record
from toolfold.agent.replay import Memory, Opened, digest
from toolfold.agent.state import Answer, State, Turn, headed
from toolfold.agent.world import Result, World
from toolfold.errors import ModelError, ToolfoldError
from toolfold.model import Model, Prompt, Reply, Usage
from toolfold.outputs.wrapper import final_report, new_nonce

BAD_REPLIES = 4
"""Replies in a row without a command, after which a run gives up."""

LAST_WORD_S = 60.0
"""How long the model may take for its final report when the run's time is over."""

Ending = Literal["finished", "failed", "out_of_budget"]


class Definition(Struct, frozen=True, kw_only=True):
    """An agent: who it is, what it may use, and how much of it."""

    name: str = "planner"
    description: str = ""
    prompt: str = ""
    model: str = ""
    tools: tuple[str, ...] = ("*",)
    agents: tuple[str, ...] = ()
    budgets: Budgets = Budgets()
    sandbox: bool = True
    thresholds: Mapping[str, int] = {}
    """When results of this agent's calls are stored, and how they are extracted from, where it differs."""


class Report(Struct, frozen=True, kw_only=True):
    """How a run ended. `synthetic`: the model gave no report, this one says why."""

    run: str
    ending: Ending
    text: str
    data: Any = None
    synthetic: bool = False
    turns: int = 0
    calls: int = 0
    usage: Usage = Usage()

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self, enc_hook=str))
        return found


class Surroundings(Struct, frozen=True, kw_only=True):
    """What a run and its sub-agents share."""

    world: World
    record: Record
    memory: Memory
    run: str
    model_for: Callable[[str], Model]
    """A model by its name; empty: the configured one."""
    agents: Mapping[str, Definition] = {}


class Planner:
    """One agent on one task. `path` says where it stands in the run: empty at the top."""

    def __init__(self, definition: Definition, around: Surroundings, *, path: str = "") -> None:
        self._definition = definition
        self._around = around
        self._path = path
        self._world = around.world.under(definition.thresholds)
        self._model = around.model_for(definition.model)
        self.spent = Spent(definition.budgets)
        self._holds = False
        self._nonce = ""
        self._native = True
        self._listed: tuple[tuple[str, str], ...] = ()

    async def run(self, task: str) -> Report:
        around = self._around
        opened = around.memory.opened(self._path) or await self._opened()
        self._nonce, self._native, self._listed = opened.nonce, opened.native, opened.agents
        around.record.write(
            "run.started", self._path, run=around.run, task=task, definition=self._definition, opened=opened
        )
        state = State(task, opened.provider_tree, opened.preloaded, tokens.count)
        try:
            report = await self._loop(state)
        except ModelError as error:
            report = self._report("failed", f"{error.message}. {error.next_action}".strip(), synthetic=True)
        around.record.write("run.ended", self._path, report=report)
        return report

    async def _opened(self) -> Opened:
        """What a run begins with."""
        world, known = self._world, self._around.agents
        inventory = await world.inventory()
        return Opened(
            model=self._model.name,
            native=self._model.calls_tools,
            nonce=new_nonce(),
            provider_tree=prompts.provider_tree({server: list(names) for server, names in inventory.items()}),
            preloaded=await world.preloaded(),
            agents=tuple((name, known[name].description) for name in self._definition.agents if name in known),
        )

    async def _loop(self, state: State) -> Report:
        performer = Performer(
            self._world,
            state,
            self.spent,
            tools=self._definition.tools,
            run_agent=self._run_agent if self._definition.agents else None,
        )
        bad = 0
        while True:
            turn = self.spent.steps + 1
            why = self._around.memory.last_turn(self._path, turn, self.spent.exhausted())
            self.spent.steps = turn
            allowed = self._allowed(final=bool(why))
            reply = await self._ask(state, turn, why, allowed)
            wrapped = final_report(reply.text, self._nonce)
            if wrapped is not None:
                return self._report("finished", wrapped)
            try:
                commands = read(reply, allowed)
            except BadCommand as problem:
                bad += 1
                if why or bad >= BAD_REPLIES:
                    return self._gave_none(why or f"{bad} answers in a row were no commands: {problem.message}")
                state.turns.append(Turn(reply=reply, answers=(), note=failed(problem).text))
                continue
            bad = 0
            report = await self._do(state, performer, turn, reply, commands)
            if report is not None:
                return report
            if why:
                return self._gave_none(why)
            await self._fit(state, turn)

    async def _do(
        self, state: State, performer: Performer, turn: int, reply: Reply, commands: tuple[tuple[str, Single], ...]
    ) -> Report | None:
        """Does the commands of a turn side by side; a finish or fail among them counts when the others are done."""
        work = [(use, one) for use, one in commands if not isinstance(one, (Finish, Fail))]
        answers = await asyncio.gather(
            *(self._one(state, performer, (turn, index), use, one) for index, (use, one) in enumerate(work))
        )
        for _, one in commands:
            if isinstance(one, Finish):
                return self._report("finished", one.report, data=one.data)
            if isinstance(one, Fail):
                return self._report("failed", one.reason)
        state.turns.append(Turn(reply=reply, answers=tuple(answers)))
        return None

    async def _one(
        self, state: State, performer: Performer, place: tuple[int, int], use: str, command: Single
    ) -> Answer:
        turn, index = place
        record, memory = self._around.record, self._around.memory
        plain = as_plain(command)
        record.write("command.started", self._path, turn=turn, index=index, command=plain)
        started = time.perf_counter()
        # A sub-agent runs again even in a replay: its own turns are remembered.
        result = None if isinstance(command, Delegate) else memory.result(self._path, turn, index, plain)
        if result is None:
            result = await performer.perform(command, f"{turn}.{index}")
            memory.compare(self._path, turn, index, result)
        else:
            self._remembered(command)
        seconds = round(time.perf_counter() - started, 3)
        record.write("command.done", self._path, turn=turn, index=index, result=result, seconds=seconds)
        self._holds = self._holds or result.holds_outputs
        if isinstance(command, Search):
            state.took(result)
        detail, arguments = about(command)
        return state.answer(use, detail, arguments, headed(name_of(command), detail, result))

    def _remembered(self, command: Single) -> None:
        """A command that the record answers counts all the same."""
        self.spent.calls += isinstance(command, UseTool)
        self.spent.code_runs += isinstance(command, Sandbox)

    async def _run_agent(self, command: Delegate, place: str) -> Result:
        around = self._around
        if command.agent not in self._definition.agents or command.agent not in around.agents:
            known = [name for name in self._definition.agents if name in around.agents]
            raise ToolfoldError(
                f"there is no sub-agent {command.agent!r}", hints=known, next_action="use one of those in hints"
            )
        child = Planner(around.agents[command.agent], around, path=f"{self._path}/{place}")
        report = await child.run(command.task)
        self.spent.include(child.spent)
        ok = report.ending == "finished"
        return Result(ok=ok, text=report.text, data=report.data, holds_outputs=self._world.holds_outputs())

    async def _fit(self, state: State, turn: int) -> None:
        kept = iter(self._around.memory.stored(self._path, turn))
        messages: list[str] = []

        async def store(name: str, arguments: str, text: str) -> str:
            messages.append(next(kept, "") or await self._world.store(name, arguments, text))
            return messages[-1]

        if await state.fit(self._definition.budgets.history_tokens, store):
            self._holds = True
            self._around.record.write("history.stored", self._path, turn=turn, messages=messages)

    # --- the model

    def _allowed(self, *, final: bool) -> tuple[str, ...]:
        """The commands of this turn. The last one has only the report; `tool_output` is there while outputs are."""
        if final:
            return ("finish", "fail")
        names = ["search", "tool"]
        names += ["sandbox"] if self._definition.sandbox else []
        names += ["tool_output"] if self._holds else []
        names += ["agent"] if self._definition.agents else []
        return (*names, "task_status", "batch", "finish", "fail")

    async def _ask(self, state: State, turn: int, why: str, allowed: tuple[str, ...]) -> Reply:
        native = self._native
        system = prompts.system_prompt(
            nonce=self._nonce,
            native=native,
            own=self._definition.prompt,
            agents=self._listed,
            allowed=self._allowed(final=False),
        )
        prompt = Prompt(
            messages=state.messages(system, prompts.LAST_TURN.format(why=why) if why else ""),
            tools=offers(allowed) if native else (),
            answer_schema=None if native else answer_schema(allowed),
        )
        record = self._around.record
        record.write("turn.asked", self._path, turn=turn, prompt=digest(prompt), last=why, commands=allowed)
        started = time.perf_counter()
        reply = self._around.memory.reply(self._path, turn, prompt)
        if reply is None:
            reply = await self._live(prompt, max(self.spent.seconds_left, LAST_WORD_S))
        self.spent.used(reply.usage)
        seconds = round(time.perf_counter() - started, 3)
        record.write("turn.answered", self._path, turn=turn, reply=reply, seconds=seconds)
        return reply

    async def _live(self, prompt: Prompt, seconds: float) -> Reply:
        try:
            async with asyncio.timeout(seconds):
                return await self._model.complete(prompt)
        except TimeoutError:
            raise ModelError(
                f"{self._model.name} did not answer within {seconds:.0f} s", next_action="try again, or another model"
            ) from None

    # --- the end

    def _report(self, ending: Ending, text: str, *, data: Any = None, synthetic: bool = False) -> Report:
        return Report(
            run=self._around.run,
            ending=ending,
            text=text,
            data=data,
            synthetic=synthetic,
            turns=self.spent.steps,
            calls=self.spent.calls,
            usage=self.spent.usage(),
        )

    def _gave_none(self, why: str) -> Report:
        return self._report("out_of_budget", f"no final report was given ({why} used up)", synthetic=True)
