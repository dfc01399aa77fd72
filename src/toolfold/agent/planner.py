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
from toolfold.agent.budgets import Budgets, BudgetTracker
from toolfold.agent.commands import (
    BadCommand,
    Delegate,
    Fail,
    Finish,
    Search,
    Single,
    answer_schema,
    command_name,
    parse_commands,
    tool_offers,
)
from toolfold.agent.conversation import CommandAnswer, Conversation, format_result, to_json
from toolfold.agent.environment import CommandResult, Environment
from toolfold.agent.executor import CommandExecutor, command_as_dict, describe_command, error_result
from toolfold.agent.record import RunRecord
from toolfold.agent.replay import RecordExhausted, RunMemory, RunOpening, prompt_digest
from toolfold.errors import ModelError, ToolfoldError
from toolfold.model import Model, Prompt, Reply, Usage
from toolfold.outputs.prompts import new_nonce, parse_final_report

_BAD_REPLIES_MAX = 4
"""Replies in a row without a command, after which a run gives up."""

_FINAL_REPORT_S = 60.0
"""How long the model may take for its final report when the run's time is over."""

_DEPTH_MAX = 3
"""Agents below one another, the run's own counted."""

_WINDOW_SLACK = 16
"""A part of the model's window that stays free: other models count a little differently."""

_Ending = Literal["finished", "failed", "out_of_budget"]


class AgentDefinition(Struct, frozen=True, kw_only=True):
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


class AgentReport(Struct, frozen=True, kw_only=True):
    """How a run ended. `synthetic`: the model gave no report, this one says why."""

    run: str
    ending: _Ending
    text: str
    data: Any = None
    synthetic: bool = False
    turns: int = 0
    calls: int = 0
    usage: Usage = Usage()

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self, enc_hook=str))
        return found


class RunContext(Struct, frozen=True, kw_only=True):
    """What a run and its sub-agents share."""

    world: Environment
    record: RunRecord
    memory: RunMemory
    run: str
    model_for: Callable[[str], Model]
    """A model by its name; empty: the configured one."""
    agents: Mapping[str, AgentDefinition] = {}


class Planner:
    """One agent on one task. `path` says where it stands in the run: empty at the top."""

    def __init__(
        self, definition: AgentDefinition, around: RunContext, *, path: str = "", above: BudgetTracker | None = None
    ) -> None:
        self._definition = definition
        self._around = around
        self._path = path
        self._world = around.world.under(definition.thresholds)
        self._model = around.model_for(definition.model)
        self.spent = BudgetTracker(definition.budgets, above=above, timed=around.memory.timed)
        self.holds = False
        """Whether stored outputs are there, by what commands came to: a replay has only that."""
        self._opened: RunOpening

    async def run(self, task: str) -> AgentReport:
        around = self._around
        opened = self._opened = around.memory.opened(self._path) or await self._open()
        around.record.write(
            "run.started", self._path, run=around.run, task=task, definition=self._definition, opened=opened
        )
        state = Conversation(task, opened.provider_tree, opened.preloaded, tokens.count)
        try:
            report = await self._loop(state)
        except ModelError as error:
            report = self._report("failed", f"{error.message}. {error.next_action}".strip(), synthetic=True)
        except RecordExhausted as end:
            if self._path:
                raise
            report = self._report("failed", f"{end}. Run it live, or replay a run that was ended", synthetic=True)
        around.record.write("run.ended", self._path, report=report)
        return report

    async def _open(self) -> RunOpening:
        """What a run begins with."""
        world, known, model = self._world, self._around.agents, self._model
        names = self._definition.agents if self._path.count("/") + 1 < _DEPTH_MAX else ()
        answer_tokens = min(model.max_output_tokens, model.context_tokens // 2)
        inventory = await world.inventory()
        return RunOpening(
            model=model.name,
            native=model.calls_tools,
            nonce=new_nonce(),
            provider_tree=prompts.provider_tree({server: list(names) for server, names in inventory.items()}),
            preloaded=await world.preloaded(),
            agents=tuple((name, known[name].description) for name in names if name in known),
            prompt_tokens=model.context_tokens - model.context_tokens // _WINDOW_SLACK - answer_tokens,
            answer_tokens=answer_tokens,
        )

    async def _loop(self, state: Conversation) -> AgentReport:
        performer = CommandExecutor(
            self._world,
            state,
            self.spent,
            tools=self._definition.tools,
            run_agent=self._run_agent if self._opened.agents else None,
        )
        bad = 0
        while True:
            turn = self.spent.steps + 1
            why = self._around.memory.last_turn(self._path, turn, self.spent.exhausted())
            await self._fit(state, turn - 1)
            self.spent.steps = turn
            allowed = self._allowed(final=bool(why))
            reply = await self._ask(state, turn, why, allowed)
            wrapped = parse_final_report(reply.text, self._opened.nonce)
            if wrapped is not None:
                return self._report("finished", wrapped)
            try:
                commands = parse_commands(reply, allowed)
            except BadCommand as problem:
                bad += 1
                if why:
                    return self._gave_none(why)
                if bad >= _BAD_REPLIES_MAX:
                    said = f"{bad} answers in a row were no commands: {problem.message}"
                    return self._report("failed", said, synthetic=True)
                state.add(reply, note=error_result(problem).text)
                continue
            bad = 0
            report = await self._do(state, performer, turn, reply, commands)
            if report is not None:
                return report
            if why:
                return self._gave_none(why)

    async def _do(
        self,
        state: Conversation,
        performer: CommandExecutor,
        turn: int,
        reply: Reply,
        commands: tuple[tuple[str, Single], ...],
    ) -> AgentReport | None:
        """Does the commands of a turn side by side; a finish or fail among them counts when the others are done."""
        work = [(use, one) for use, one in commands if not isinstance(one, (Finish, Fail))]
        results = await asyncio.gather(
            *(self._one(performer, turn, index, one) for index, (_, one) in enumerate(work)), return_exceptions=True
        )
        # In the order of the commands, not of their ends: a replay has to come to the same.
        answers = tuple(self._took(state, *pair, result) for pair, result in zip(work, results, strict=True))
        for _, one in commands:
            if isinstance(one, Finish):
                return self._report("finished", one.report, data=one.data)
            if isinstance(one, Fail):
                return self._report("failed", one.reason)
        state.add(reply, answers)
        return None

    async def _one(self, performer: CommandExecutor, turn: int, index: int, command: Single) -> CommandResult:
        record, memory = self._around.record, self._around.memory
        plain = command_as_dict(command)
        record.write("command.started", self._path, turn=turn, index=index, command=plain)
        started = time.perf_counter()
        result = memory.result(self._path, turn, index, plain)
        if result is None:
            try:
                result = await performer.perform(command, f"{turn}.{index}")
            except RecordExhausted:
                # A sub-agent that was stopped: what came of that is in the record, or this record ends here, too.
                result = memory.done(self._path, turn, index)
                if result is None:
                    raise
            memory.compare(self._path, turn, index, result)
        elif result.counted:
            self.spent.count(result.counted)
        seconds = round(time.perf_counter() - started, 3)
        record.write("command.done", self._path, turn=turn, index=index, result=result, seconds=seconds)
        return result

    def _took(
        self, state: Conversation, use: str, command: Single, result: CommandResult | BaseException
    ) -> CommandAnswer:
        if isinstance(result, BaseException):
            raise result
        self.holds = self.holds or result.holds_outputs
        state.took(result, searched=isinstance(command, Search))
        detail, arguments = describe_command(command)
        return state.answer(use, detail, arguments, format_result(command_name(command), detail, result))

    async def _run_agent(self, command: Delegate, place: str) -> CommandResult:
        around, names = self._around, [name for name, _ in self._opened.agents]
        definition = around.agents.get(command.agent) if command.agent in names else None
        if definition is None:
            raise ToolfoldError(
                f"there is no sub-agent {command.agent!r}", hints=names, next_action="use one of those in hints"
            )
        child = Planner(definition, around, path=f"{self._path}/{place}", above=self.spent)
        report = await child.run(command.task)
        ok = report.ending == "finished"
        return CommandResult(ok=ok, text=report.text, data=report.data, holds_outputs=child.holds)

    async def _fit(self, state: Conversation, turn: int) -> None:
        kept = iter(self._around.memory.stored(self._path, turn))
        messages: list[str] = []

        async def store(name: str, arguments: str, text: str) -> str:
            messages.append(next(kept, "") or await self._world.store(name, arguments, text))
            return messages[-1]

        if await state.fit(self._room(state), store):
            self.holds = True
            self._around.record.write("history.stored", self._path, turn=turn, messages=messages)

    def _room(self, state: Conversation) -> int:
        """Tokens for the history: its budget, or what the model's window has left beside all the rest."""
        budget, window = self._definition.budgets.history_tokens, self._opened.prompt_tokens
        if window is None:
            return budget
        allowed = self._allowed(final=False)
        form = tool_offers(allowed) if self._opened.native else answer_schema(allowed)
        return min(budget, window - sum(map(tokens.count, (self._system(), state.opening(), to_json(form)))))

    # --- the model

    def _allowed(self, *, final: bool) -> tuple[str, ...]:
        """The commands of this turn. The last one has only the report; `tool_output` is there while outputs are."""
        if final:
            return ("finish", "fail")
        names = ["search", "tool"]
        names += ["sandbox"] if self._definition.sandbox else []
        names += ["tool_output"] if self.holds else []
        names += ["agent"] if self._opened.agents else []
        return (*names, "task_status", "batch", "finish", "fail")

    def _system(self) -> str:
        opened = self._opened
        return prompts.system_prompt(
            nonce=opened.nonce,
            native=opened.native,
            own=self._definition.prompt,
            agents=opened.agents,
            allowed=self._allowed(final=False),
        )

    async def _ask(self, state: Conversation, turn: int, why: str, allowed: tuple[str, ...]) -> Reply:
        native = self._opened.native
        prompt = Prompt(
            messages=state.messages(self._system(), prompts.LAST_TURN.format(why=why) if why else ""),
            tools=tool_offers(allowed) if native else (),
            answer_schema=None if native else answer_schema(allowed),
            max_output_tokens=self._opened.answer_tokens,
        )
        record = self._around.record
        record.write("turn.asked", self._path, turn=turn, prompt=prompt_digest(prompt), last=why, commands=allowed)
        started = time.perf_counter()
        try:
            reply = self._around.memory.reply(self._path, turn, prompt) or await self._live(prompt)
        except ModelError as error:
            record.write("turn.failed", self._path, turn=turn, message=error.message, next_action=error.next_action)
            raise
        self.spent.used(reply.usage)
        seconds = round(time.perf_counter() - started, 3)
        record.write("turn.answered", self._path, turn=turn, reply=reply, seconds=seconds)
        return reply

    async def _live(self, prompt: Prompt) -> Reply:
        seconds = max(self.spent.seconds_left or 0.0, _FINAL_REPORT_S)
        try:
            async with asyncio.timeout(seconds):
                return await self._model.complete(prompt)
        except TimeoutError:
            raise ModelError(
                f"{self._model.name} did not answer within {seconds:.0f} s", next_action="try again, or another model"
            ) from None

    # --- the end

    def _report(self, ending: _Ending, text: str, *, data: Any = None, synthetic: bool = False) -> AgentReport:
        return AgentReport(
            run=self._around.run,
            ending=ending,
            text=text,
            data=data,
            synthetic=synthetic,
            turns=self.spent.steps,
            calls=self.spent.calls,
            usage=self.spent.usage(),
        )

    def _gave_none(self, why: str) -> AgentReport:
        return self._report("out_of_budget", f"no final report was given ({why} used up)", synthetic=True)
