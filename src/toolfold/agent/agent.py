"""Agents on a gateway: runs are recorded in the state folder, replayed from there, and resumed.

`Agent` is what `Gateway.agent()` returns. It owns nothing but its record: servers, outputs and scripts are the
gateway's, which passes itself in. Below: `planner`.
"""

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from toolfold import tokens
from toolfold.agent.definition import AGENTS_FOLDER, AgentDefinition, load_agents
from toolfold.agent.environment import AgentGateway, Environment
from toolfold.agent.planner import AgentReport, Planner, RunContext
from toolfold.agent.record import Event, RunRecord, load_record, summarise_record, to_plain
from toolfold.agent.replay import Divergence, RunMemory, diff_records
from toolfold.errors import ConfigError, ModelError
from toolfold.model import Model, OnText, Prompt, Reply
from toolfold.models.factory import create_model
from toolfold.types import LOCAL, Caller

_RUNS_FOLDER = "runs"
_log = logging.getLogger("toolfold.agent")


class _ReplayReport(Struct, frozen=True, kw_only=True):
    """A recorded run, run again."""

    report: AgentReport
    identical: bool
    events: int
    divergences: tuple[Divergence, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = to_plain(self)
        return plain


class Agent:
    """One agent on one gateway. `model` is a `Model`, a name, or empty for the configured one.

    `listener` is called with each event of a run, `on_text` with each piece of an answer where the model streams.
    """

    def __init__(
        self,
        gateway: AgentGateway,
        name: str = "",
        *,
        model: Model | str = "",
        caller: Caller = LOCAL,
        listener: Callable[[Event], None] | None = None,
        on_text: OnText | None = None,
        definition: AgentDefinition | None = None,
    ) -> None:
        self._gateway = gateway
        self._caller = caller
        self._name = name
        self._model = model
        self._listener = listener
        self._on_text = on_text
        self._given_definition = definition

    def check(self) -> None:
        """Raises `ConfigError` where the agent or its model does not exist, before anything runs."""
        self._create_model(self._definition().model)

    async def run(self, task: str) -> AgentReport:
        """Does a task. Every step is recorded under the state folder, in `runs/`."""
        return await self._run(task, RunMemory(), self._definition())

    async def resume(self, run: str) -> AgentReport:
        """Continues a run that broke off: what it did is remembered, what it was doing is not repeated.

        Without a model of its own this agent takes the one that the run was begun with.
        """
        events = load_record(self._file(run))
        if any(event["event"] == "run.ended" and not event["path"] for event in events):
            raise ConfigError(
                f"the run {run} has ended", next_action=f"see it again with: toolfold agent --replay {run}"
            )
        definition = msgspec.convert(events[0]["definition"], AgentDefinition)
        return await self._run(events[0]["task"], RunMemory(events), definition, events[0]["opened"]["model"])

    async def replay(self, record: "str | Path | Sequence[Event]", *, live_tools: bool = False) -> _ReplayReport:
        """Runs a record again with the model's answers from it, and reports where it differs.

        With `live_tools` the commands are executed for real.
        """
        if isinstance(record, (str, Path)):
            record = load_record(record if isinstance(record, Path) else self._file(record))
        memory = RunMemory(record, live_tools=live_tools, resumes=False)
        started = [event for event in record if event["event"] == "run.started"]
        definitions = [msgspec.convert(event["definition"], AgentDefinition) for event in started]
        again = RunRecord(listener=self._listener)
        context = RunContext(
            environment=Environment(self._gateway, self._caller),
            record=again,
            memory=memory,
            run=started[0]["run"],
            model_for=lambda _: _RecordedModel(),
            agents={definition.name: definition for definition in definitions},
        )
        report = await Planner(definitions[0], context).run(started[0]["task"])
        divergences = tuple(memory.divergences) or tuple(diff_records(record, again.events))
        return _ReplayReport(
            report=report, identical=not divergences, events=len(again.events), divergences=divergences
        )

    def runs(self) -> list[dict[str, Any]]:
        """The recorded runs, the newest first. Files that cannot be read are logged and left out."""
        summaries = []
        for file in sorted(self._folder.glob("*.jsonl"), reverse=True):
            try:
                summaries.append(summarise_record(file))
            except ConfigError as error:
                _log.warning("%s", error.message)
        return summaries

    def events(self, run: str) -> list[Event]:
        """What is recorded of a run, in order. Raises `ConfigError` where there is none of that name."""
        return load_record(self._file(run))

    async def _run(
        self, task: str, memory: RunMemory, definition: AgentDefinition, begun_with: str = ""
    ) -> AgentReport:
        run = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}"
        async with AsyncExitStack() as resources:
            record = RunRecord(self._folder / f"{run}.jsonl", listener=self._listener)
            resources.callback(record.close)
            context = RunContext(
                environment=Environment(self._gateway, self._caller),
                record=record,
                memory=memory,
                run=run,
                # One connection for each model, for the whole run.
                model_for=cache(partial(self._create_model, begun_with=begun_with, resources=resources)),
                agents=self._agents(),
                on_text=self._on_text,
            )
            return await Planner(definition, context).run(task)

    def _create_model(self, name: str, begun_with: str = "", resources: AsyncExitStack | None = None) -> Model:
        if self._model and not isinstance(self._model, str):
            return self._model
        return create_model(self._gateway.settings.model, name or str(self._model) or begun_with, resources)

    def _definition(self) -> AgentDefinition:
        if self._given_definition is not None:
            return self._given_definition
        agents = self._agents()
        default = AgentDefinition(agents=tuple(agents))
        name = self._name or default.name
        if name not in agents and name != default.name:
            raise ConfigError(
                f"there is no agent {name!r}",
                hints=sorted(agents),
                next_action=f"write it as {AGENTS_FOLDER / (name + '.md')}, or name one of those in hints",
            )
        return agents.get(name, default)

    def _agents(self) -> Mapping[str, AgentDefinition]:
        settings = self._gateway.settings
        folders = [settings.project / AGENTS_FOLDER] if settings.project else []
        return load_agents([*folders, settings.user_home / "agents"])

    @property
    def _folder(self) -> Path:
        return self._gateway.settings.home / _RUNS_FOLDER

    def _file(self, run: str) -> Path:
        # A run id comes from a command line or a URL: it must not leave the folder.
        if "/" in run or run.startswith("."):
            raise ConfigError(f"{run!r} is no run", next_action="see `toolfold agent --runs`")
        return self._folder / f"{run}.jsonl"


class _RecordedModel:
    """Stands in for the model of a replay: its answers come from the record."""

    name = "absent"
    context_tokens = 0
    max_output_tokens = 0
    calls_tools = True

    async def complete(self, prompt: Prompt) -> Reply:
        raise ModelError("a replay asks no model", next_action="run it live")

    def count_tokens(self, text: str) -> int:
        return tokens.count(text)
