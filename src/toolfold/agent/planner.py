"""The loop: ask the model, execute its commands, show it the results, until it reports or a budget is used up.

Every run ends in an `AgentReport`: finished, failed, or out of budget, and then with a synthetic report that says so.
Nothing that a model or a tool does wrong raises here. Above: `agent`. Below: `executor`, `conversation`, `replay`.
"""

import asyncio
import hashlib
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct

from toolfold import tokens
from toolfold.agent import prompts
from toolfold.agent.budgets import BudgetTracker
from toolfold.agent.commands import (
    COMMAND_DESCRIPTIONS,
    THINKING,
    BadCommand,
    Delegate,
    Fail,
    Finish,
    Single,
    Unreadable,
    answer_schema,
    parse_commands,
    tool_offers,
)
from toolfold.agent.conversation import Conversation
from toolfold.agent.definition import AgentDefinition
from toolfold.agent.environment import CommandResult, Environment
from toolfold.agent.executor import CommandExecutor
from toolfold.agent.record import RunRecord, to_json, to_plain
from toolfold.agent.replay import RecordExhausted, RunMemory, RunOpening
from toolfold.disclosure.inspector_tool import inspector_tool, with_inspector
from toolfold.errors import ModelError, ToolfoldError
from toolfold.model import Model, OnText, Prompt, Reply, ToolOffer, Usage, complete
from toolfold.outputs.prompts import new_nonce, parse_final_report

_REPEATED_TURNS_MAX = 2  # in a row with nothing but calls that were made before; then comes the last turn
_BAD_REPLIES_MAX = 4  # in a row without a command; then the run has failed
_FINAL_REPORT_S = 60.0  # for the final report when the run's time is over
_DEPTH_MAX = 3  # agents below one another, with the run's own
_WINDOW_SLACK = 16  # a sixteenth of the model's window stays free: other models count a little differently

# Text with JSON, code or tags is a try at a command.
_MARKUP = re.compile(r"[{]|```|</?[\w-]+[ >]")

_Ending = Literal["finished", "failed", "out_of_budget"]
_Commands = tuple[tuple[str, Single], ...]


class AgentReport(Struct, frozen=True, kw_only=True):
    """How a run ended. `synthetic`: the model gave no report, this one says why."""

    run: str
    ending: _Ending
    text: str
    data: Any = None
    synthetic: bool = False
    turns: int = 0
    calls: int = 0
    scripts: int = 0
    usage: Usage = Usage()

    def as_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = to_plain(self)
        return plain


class RunContext(Struct, frozen=True, kw_only=True):
    """What a run and its sub-agents share."""

    environment: Environment
    record: RunRecord
    memory: RunMemory
    run: str
    model_for: Callable[[str], Model]  # a model by its name; empty: the configured one
    agents: Mapping[str, AgentDefinition] = {}
    on_text: OnText | None = None  # is called with each piece of an answer


class Planner:
    """One agent on one task. `path` is its place in the run: empty at the top."""

    def __init__(
        self, definition: AgentDefinition, context: RunContext, *, path: str = "", parent: BudgetTracker | None = None
    ) -> None:
        self._definition = definition
        self._context = context
        self._record = context.record
        self._memory = context.memory
        self._path = path
        self._environment = context.environment.with_thresholds(definition.thresholds)
        self._model = context.model_for(definition.model)
        self._tracker = BudgetTracker(definition.budgets, parent=parent, timed=context.memory.timed)
        # Whether there are stored outputs, by the results of commands: a replay has only those.
        self.holds_outputs = False
        self._worked = False  # whether a command of the turn before succeeded
        self._opening: RunOpening
        self._conversation: Conversation

    async def run(self, task: str) -> AgentReport:
        opening = self._opening = self._memory.opening(self._path) or await self._create_opening(task)
        self._record.write(
            "run.started", self._path, run=self._context.run, task=task, definition=self._definition, opened=opening
        )
        # Where every tool is offered natively, the offers are the state: written out again it only distracts.
        tree = {} if opening.all_offered and opening.native else opening.provider_tree
        self._conversation = Conversation(task, tree, opening.preloaded, tokens.count, native=opening.native)
        try:
            report = await self._loop()
        except ModelError as error:
            report = self._report("failed", f"{error.message}. {error.next_action}".strip(), synthetic=True)
        except RecordExhausted as end:
            if self._path:
                raise
            report = self._report("failed", f"{end}. Run it live, or replay a run that was ended", synthetic=True)
        self._record.write("run.ended", self._path, report=report)
        return report

    async def _create_opening(self, task: str) -> RunOpening:
        model, agents = self._model, self._context.agents
        allows = self._definition.allows
        offered, all_offered = await self._environment.first_tools(task, allows)
        inspector = self._environment.with_schema(with_inspector([])[0], inspector_tool())
        names = self._definition.agents if self._path.count("/") + 1 < _DEPTH_MAX else ()
        answer_tokens = min(model.max_output_tokens, model.context_tokens // 2)
        return RunOpening(
            model=model.name,
            native=model.calls_tools,
            nonce=new_nonce(),
            provider_tree=prompts.provider_tree(await self._environment.inventory(allows)),
            preloaded=(inspector, *offered),
            all_offered=all_offered,
            agents=tuple((name, agents[name].description) for name in names if name in agents),
            prompt_tokens=model.context_tokens - model.context_tokens // _WINDOW_SLACK - answer_tokens,
            answer_tokens=answer_tokens,
        )

    async def _loop(self) -> AgentReport:
        executor = CommandExecutor(
            self._environment,
            self._conversation,
            self._tracker,
            definition=self._definition,
            run_agent=self._run_agent,
        )
        bad_replies = 0
        while True:
            turn = self._tracker.steps + 1
            exhausted = self._memory.last_turn(self._path, turn, self._exhausted())
            await self._fit_history(turn - 1)
            self._tracker.steps = turn
            allowed = self._allowed_commands(final=bool(exhausted))
            reply = await self._ask(turn, exhausted, allowed)
            try:
                commands = self._read(reply, allowed)
            except BadCommand as problem:
                report = self._plain_report(reply, told=bad_replies > 0)
                if report is not None:
                    return report
                bad_replies += 1
                if not exhausted and bad_replies >= _BAD_REPLIES_MAX:
                    message = f"{bad_replies} answers in a row were no commands: {problem.message}"
                    return self._report("failed", message, synthetic=True)
                self._conversation.add_turn(reply, note=self._note(problem, reply))
            else:
                bad_replies = 0
                report = await self._execute(executor, turn, reply, commands)
                if report is not None:
                    return report
            if exhausted:
                message = f"no final report was given ({exhausted} used up)"
                return self._report("out_of_budget", message, synthetic=True)

    def _exhausted(self) -> str:
        repeats = self._conversation.repeated_turns
        stuck = f"{repeats} repeats of the same call" if repeats >= _REPEATED_TURNS_MAX else ""
        return self._tracker.exhausted() or stuck

    def _read(self, reply: Reply, allowed: tuple[str, ...]) -> _Commands:
        """The commands of a reply; a report in the wrapper is one, too. Raises `BadCommand`."""
        resolve = self._conversation.resolve_tool
        final = parse_final_report(reply.text, self._opening.nonce)
        commands = parse_commands(reply, allowed, resolve) if final is None else (("", Finish(report=final)),)
        return tuple((use_id, self._check_report(command, allowed)) for use_id, command in commands)

    def _check_report(self, command: Single, allowed: tuple[str, ...]) -> Single:
        """Raises `BadCommand` for a report that holds a command to do something; a finish or fail counts."""
        if not isinstance(command, Finish):
            return command
        try:
            commands = parse_commands(Reply(text=command.report), allowed, self._conversation.resolve_tool)
        except BadCommand:
            return command
        held = [one for _, one in commands if not isinstance(one, Unreadable)]
        if isinstance(held[0], (Finish, Fail)):
            return held[0]
        raise BadCommand(
            "the report holds a command, which was not done",
            next_action="give the command by itself; report when its result is there",
        )

    def _note(self, problem: BadCommand, reply: Reply) -> str:
        """What a model is told that gave no command. One that calls natively reads words: JSON it would repeat."""
        if not self._opening.native:
            return to_json(problem.as_dict())
        what = "The last call did not work" if self._tracker.calls else "No tool was called yet"
        what = what if _plain_words(reply) else f"Nothing was done: {problem.message}"
        return f"{what}. Call one of the tools now; if none can help, give the answer again in plain words."

    def _plain_report(self, reply: Reply, *, told: bool) -> AgentReport | None:
        """Plain words are the report, once something worked, or where they are said again."""
        text = _plain_words(reply)
        return self._report("finished", text) if text and (self._worked or told) else None

    async def _execute(
        self, executor: CommandExecutor, turn: int, reply: Reply, commands: _Commands
    ) -> AgentReport | None:
        """Executes the commands of a turn concurrently; a finish or fail among them counts when the others are done."""
        work = [(use_id, command) for use_id, command in commands if not isinstance(command, (Finish, Fail))]
        results = await asyncio.gather(
            *(self._execute_one(executor, turn, index, command) for index, (_, command) in enumerate(work)),
            return_exceptions=True,
        )
        # In the order of the commands, not of their ends: a replay must have the same conversation.
        answered = []
        for pair, result in zip(work, results, strict=True):
            if isinstance(result, BaseException):
                raise result
            self.holds_outputs = self.holds_outputs or result.holds_outputs
            answered.append((*pair, result))
        self._worked = any(result.ok for _, _, result in answered)
        report = self._final_report(commands)
        if report is None:
            self._conversation.add_turn(reply, answered)
        return report

    def _final_report(self, commands: _Commands) -> AgentReport | None:
        """What the first finish or fail among these commands reports."""
        for _, command in commands:
            if isinstance(command, Finish):
                return self._report("finished", command.report, data=command.data)
            if isinstance(command, Fail):
                return self._report("failed", command.reason)
        return None

    async def _execute_one(self, executor: CommandExecutor, turn: int, index: int, command: Single) -> CommandResult:
        # Written before and after: a run that breaks off never repeats what it may have done already.
        plain = to_plain(command)
        self._record.write("command.started", self._path, turn=turn, index=index, command=plain)
        started = time.perf_counter()
        try:
            result = self._memory.result(self._path, turn, index, plain)
        except RecordExhausted as end:
            if end.counted:
                self._tracker.count(end.counted)
            raise
        if result is None:
            try:
                result = await executor.execute(command, f"{turn}.{index}")
            except RecordExhausted:
                # A sub-agent that was stopped: its result is in the record, or this record ends here, too.
                result = self._memory.recorded_result(self._path, turn, index)
                if result is None:
                    raise
            self._memory.compare(self._path, turn, index, result)
        elif result.counted:
            self._tracker.count(result.counted)
        seconds = round(time.perf_counter() - started, 3)
        self._record.write("command.done", self._path, turn=turn, index=index, result=result, seconds=seconds)
        return result

    async def _run_agent(self, command: Delegate, place: str) -> CommandResult:
        names = [name for name, _ in self._opening.agents]
        definition = self._context.agents.get(command.agent) if command.agent in names else None
        if definition is None:
            raise ToolfoldError(
                f"there is no sub-agent {command.agent!r}", hints=names, next_action="use one of those in hints"
            )
        child = Planner(definition, self._context, path=f"{self._path}/{place}", parent=self._tracker)
        report = await child.run(command.task)
        ok = report.ending == "finished"
        return CommandResult(ok=ok, text=report.text, data=report.data, holds_outputs=child.holds_outputs)

    async def _fit_history(self, turn: int) -> None:
        recorded = iter(self._memory.stored_messages(self._path, turn))
        messages: list[str] = []

        async def store(name: str, arguments: str, text: str) -> str:
            messages.append(next(recorded, "") or await self._environment.store(name, arguments, text))
            return messages[-1]

        if await self._conversation.fit(self._history_room(), store):
            self.holds_outputs = True
            self._record.write("history.stored", self._path, turn=turn, messages=messages)

    def _history_room(self) -> int:
        """Tokens for the history: its budget, or what the model's window has left beside all the rest."""
        budget, window = self._definition.budgets.history_tokens, self._opening.prompt_tokens
        if window is None:
            return budget
        allowed = self._allowed_commands(final=False)
        form = self._offers(allowed) if self._opening.native else answer_schema(self._shown_commands(allowed))
        fixed = (self._system_prompt(), self._conversation.opening(), to_json(form))
        return min(budget, window - sum(map(tokens.count, fixed)))

    def _allowed_commands(self, *, final: bool) -> tuple[str, ...]:
        """The commands of this turn. The last turn has only the report; `tool_output` needs stored outputs."""
        if final:
            return ("finish", "fail")
        names = ["search", "tool"]
        names += ["sandbox"] if self._definition.sandbox else []
        names += ["tool_output"] if self.holds_outputs else []
        names += ["agent"] if self._opening.agents else []
        return (*names, "task_status", "batch", "finish", "fail")

    def _shown_commands(self, allowed: tuple[str, ...]) -> tuple[str, ...]:
        """The commands that the model is told of: others are done if it gives them, and would only distract it."""
        hidden = {"search"} if self._opening.all_offered else set()
        hidden |= {"batch", "tool", "task_status"} if self._opening.native else set()
        hidden |= {"finish"} if self._opening.native and "tool" in allowed else set()
        return tuple(name for name in allowed if name not in hidden)

    def _offers(self, allowed: tuple[str, ...]) -> tuple[ToolOffer, ...]:
        """What a model may call natively: its tools, and the commands that these do not stand for."""
        tools = self._conversation.tool_offers() if "tool" in allowed else ()
        return (*tools, *tool_offers(self._shown_commands(allowed)))

    def _system_prompt(self) -> str:
        return prompts.system_prompt(
            nonce=self._opening.nonce,
            native=self._opening.native,
            own=self._definition.prompt,
            agents=self._opening.agents,
            commands=self._shown_commands(self._allowed_commands(final=False)),
            available=self._conversation.available_tools,
        )

    async def _ask(self, turn: int, exhausted: str, allowed: tuple[str, ...]) -> Reply:
        native = self._opening.native
        last_turn = prompts.NATIVE_LAST_TURN if native else prompts.LAST_TURN
        last = last_turn.format(why=exhausted) if exhausted else ""
        prompt = Prompt(
            messages=self._conversation.messages(self._system_prompt(), last),
            tools=self._offers(allowed) if native else (),
            answer_schema=None if native else answer_schema(self._shown_commands(allowed)),
            max_output_tokens=self._opening.answer_tokens,
        )
        digest = hashlib.sha256(to_json(prompt).encode()).hexdigest()[:16]
        self._record.write("turn.asked", self._path, turn=turn, prompt=digest, last=exhausted, commands=allowed)
        started = time.perf_counter()
        try:
            reply = self._memory.reply(self._path, turn, digest) or await self._complete(prompt)
        except ModelError as error:
            self._record.write(
                "turn.failed", self._path, turn=turn, message=error.message, next_action=error.next_action
            )
            raise
        self._tracker.add_usage(reply.usage)
        seconds = round(time.perf_counter() - started, 3)
        self._record.write("turn.answered", self._path, turn=turn, reply=reply, seconds=seconds)
        return reply

    async def _complete(self, prompt: Prompt) -> Reply:
        seconds = max(self._tracker.seconds_left or 0.0, _FINAL_REPORT_S)
        try:
            async with asyncio.timeout(seconds):
                return await complete(self._model, prompt, self._context.on_text)
        except TimeoutError:
            raise ModelError(
                f"{self._model.name} did not answer within the {seconds:.0f} s that the run had left",
                next_action="give the agent more time (`limits: {seconds: …}` in its file), or take a faster model",
            ) from None

    def _report(self, ending: _Ending, text: str, *, data: Any = None, synthetic: bool = False) -> AgentReport:
        return AgentReport(
            run=self._context.run,
            ending=ending,
            text=text,
            data=data,
            synthetic=synthetic,
            turns=self._tracker.steps,
            calls=self._tracker.calls,
            scripts=self._tracker.code_runs,
            usage=self._tracker.usage(),
        )


def _plain_words(reply: Reply) -> str:
    """The text of a reply that is plain words; empty where it calls, is cut off, or looks like a try at a command."""
    text = THINKING.sub("", reply.text).strip()
    tried = reply.uses or reply.cut or text.casefold() in COMMAND_DESCRIPTIONS or _MARKUP.search(text)
    return "" if tried else text
