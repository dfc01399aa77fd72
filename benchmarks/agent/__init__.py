"""`toolfold bench agent`: the same tasks with every tool in the prompt, with toolfold's surface, scripts, and agent.

The tasks and the checks are the same in all, and the loop in all but the last, which only a model plays. Without
`--model` scripted policies play: they prove the harness, and give exact tokens for one and the same plan. With it
that model decides, and success tells something about it. Data is made anew for every task and setting; nothing is left
behind.
"""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from msgspec import Struct

from benchmarks.agent import twelve_servers
from benchmarks.agent.crowd import crowd
from benchmarks.agent.loop import Bounds, Played, Toolset, play
from benchmarks.agent.peers import find_programs
from benchmarks.agent.planner import play_agent
from benchmarks.agent.policies import PlannedModel
from benchmarks.agent.tasks import Task, commits, excel_memory, files, git, joint, sqlite, usable
from benchmarks.agent.toolsets import all_tools, config_text, definitions_of, surface
from benchmarks.agent.world import World
from benchmarks.measurement import environment, percentile
from toolfold.config import Settings
from toolfold.config.sections import Model as ModelSettings
from toolfold.errors import ConfigError
from toolfold.gateway import Gateway
from toolfold.model import Model
from toolfold.models.factory import create_model
from toolfold.types import ServerSpec

SETTINGS = ("all_tools", "surface", "scripts")
AS_INSTALLED = "as_installed"
"""The surface in the profile that people get without choosing one: few tools are then offered as they are."""
AGENT = "agent"
PLAYED_BY_MODELS = (AS_INSTALLED, AGENT)
"""The settings that only a model plays."""
TASKS: tuple[Task, ...] = (
    *files.TASKS,
    *sqlite.TASKS,
    *git.TASKS,
    *joint.TASKS,
    *excel_memory.TASKS,
    *commits.TASKS,
)
MAX_ANSWER = 500
"""How much of a wrong answer is shown."""
DEMO = frozenset({"files", "git", "sqlite"})


class Ran(Struct, frozen=True, kw_only=True):
    """One task in one setting. `problem` is empty where the check found what it wanted."""

    task: str
    setting: str
    problem: str
    played: Played
    missed: tuple[str, ...] = ()
    """The tools that a policy's first searches did not show."""


def run(
    data: Path | None = None,
    peers: Path | None = None,
    model: ModelSettings | None = None,
    *,
    only: str = "*",
    settings: str = "",
    tools: int = 0,
) -> dict[str, Any]:
    """`settings` are some of the names, with commas; `tools`: how many there are, the rest from recorded servers."""
    chosen = create_model(model) if model is not None else None
    programs, absent = find_programs(peers)
    tasks = chosen_tasks(only, frozenset(programs))
    names = chosen_settings(settings, played=chosen is not None)
    with tempfile.TemporaryDirectory(prefix="toolfold-bench-") as folder:
        harness = Harness(Path(folder).resolve(), programs, crowd(data, tools))
        ran = asyncio.run(harness.run_all(tasks, model=chosen, settings=names))
        metrics = {
            "model": chosen.name if chosen else "scripted policies: they prove the harness and count tokens",
            "servers": dict.fromkeys(sorted(DEMO | set(programs)), "there") | absent,
            "tools": {name: len(tools) for name, tools in harness.definitions.items()},
            "tasks": len(tasks),
            "settings": {setting: summed([one for one in ran if one.setting == setting]) for setting in names},
            "tokens_to_all_tools": compared(ran),
            "searches_missed": sorted({tool_id for one in ran for tool_id in one.missed}),
            "failures": [
                {
                    "task": one.task,
                    "setting": one.setting,
                    "problem": one.problem,
                    "answer": one.played.answer[:MAX_ANSWER],
                }
                for one in ran
                if one.problem
            ],
            "by_task": by_task(ran),
        }
    metrics["twelve_servers"] = twelve_servers.measured(data)
    return {"name": "agent", "metrics": metrics, "environment": environment("msgspec", "rs-bpe", "pydantic-ai-slim")}


def chosen_tasks(only: str, programs: frozenset[str]) -> list[Task]:
    """Those whose servers are there, and whose name fits; `easy` names those that are."""
    tasks = [
        task for task in usable(TASKS, DEMO | programs) if fnmatch(task.name, only) or (only == "easy" and task.easy)
    ]
    if not tasks:
        raise ConfigError(
            f"no task fits {only!r}",
            hints=[task.name for task in TASKS],
            next_action="give --only a pattern such as 'sqlite-*', or easy",
        )
    return tasks


def chosen_settings(settings: str, *, played: bool) -> tuple[str, ...]:
    known = (*SETTINGS, *PLAYED_BY_MODELS) if played else SETTINGS
    names = tuple(filter(None, settings.split(","))) or known
    if not set(names) <= set(known):
        raise ConfigError(
            f"{settings!r} names a setting that is not there",
            hints=list(known),
            next_action="give --settings some of those in hints, with commas; the last two need --model",
        )
    return names


class Harness:
    """Plays tasks in a folder that it fills anew each time."""

    def __init__(self, root: Path, programs: dict[str, str], others: tuple[ServerSpec, ...] = ()) -> None:
        self.world = World(root, programs, others)
        self.definitions: dict[str, list[dict[str, Any]]] = {}
        self._config = root / "toolfold.toml"
        self._built = root / "built"

    async def prepare(self) -> None:
        """Lists the servers and builds the catalogue, once: every run begins with a copy of it."""
        servers = self.world.fresh().servers()
        self.definitions = await definitions_of(servers)
        self._config.write_text(config_text(servers), encoding="utf-8")
        async with Gateway(Settings(servers=servers, home=self._built)) as gateway:
            await gateway.build()

    async def run_all(
        self,
        tasks: Sequence[Task],
        *,
        model: Model | None = None,
        settings: Sequence[str] = SETTINGS,
        bounds: Bounds | None = None,
    ) -> list[Ran]:
        await self.prepare()
        return [
            await self.run_one(task, setting, model=model, bounds=bounds or Bounds())
            for task in tasks
            for setting in settings
        ]

    async def run_one(self, task: Task, setting: str, *, model: Model | None, bounds: Bounds) -> Ran:
        world = self.world.fresh()
        if setting == AGENT:
            assert model is not None
            played = await play_agent(model, world, self._fresh_home(), task.prompt(world), bounds)
            problem = "" if played.ending == "answered" else played.ending
            problem = problem or task.check(world, played.answer)
            return Ran(task=task.name, setting=setting, problem=problem, played=played)
        async with self._toolset(setting) as toolset, played_by(model, setting, task, world) as player:
            played = await play(player, toolset, task.prompt(world), bounds)
        problem = "" if played.ending == "answered" else played.ending
        missed = tuple(player.missed) if isinstance(player, PlannedModel) else ()
        return Ran(
            task=task.name,
            setting=setting,
            problem=problem or task.check(world, played.answer),
            played=played,
            missed=missed,
        )

    def _toolset(self, setting: str) -> AbstractAsyncContextManager[Toolset]:
        if setting == "all_tools":
            return all_tools(self.world.servers(), self.definitions)
        # `surface` and `scripts` differ in this alone: whether there are scripts.
        without = frozenset() if setting in ("scripts", AS_INSTALLED) else frozenset({"run_script"})
        profile = () if setting == AS_INSTALLED else ("--profile", "discovery")
        return surface(self._config, self._fresh_home(), *profile, without=without)

    def _fresh_home(self) -> Path:
        home = self.world.root / "home"
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(self._built, home)
        return home


@asynccontextmanager
async def played_by(model: Model | None, setting: str, task: Task, world: World) -> AsyncIterator[Model]:
    """The model, or the policy for this task in this setting."""
    if model is not None:
        yield model
        return
    planned = PlannedModel(setting, task, world)
    try:
        yield planned
    finally:
        await planned.aclose()


def summed(ran: Sequence[Ran]) -> dict[str, Any]:
    """One setting over all tasks."""
    played = [one.played for one in ran]
    costs = [one.cost for one in played if one.cost is not None]
    return {
        "succeeded": sum(not one.problem for one in ran),
        "of": len(ran),
        "turns": sum(one.turns for one in played),
        "calls": sum(one.calls for one in played),
        "input_tokens": sum(one.input_tokens for one in played),
        "input_tokens_first_turn_p50": percentile([one.first_input_tokens for one in played], 0.5),
        "input_tokens_per_task_p50": percentile([one.input_tokens for one in played], 0.5),
        "output_tokens": sum(one.output_tokens for one in played),
        "billed_input_tokens": sum(one.billed_input_tokens for one in played) or None,
        "billed_output_tokens": sum(one.billed_output_tokens for one in played) or None,
        "cost_usd": round(sum(costs), 4) if costs else None,
        "seconds": round(sum(one.seconds for one in played), 1),
    }


def compared(ran: Sequence[Ran]) -> dict[str, float]:
    """Input and output tokens of the other settings, in parts of those with every tool in the prompt."""
    total = {
        setting: sum(one.played.input_tokens + one.played.output_tokens for one in ran if one.setting == setting)
        for setting in (*SETTINGS, *PLAYED_BY_MODELS)
    }
    return {
        setting: round(total[setting] / total["all_tools"], 3)
        for setting in (*SETTINGS[1:], *PLAYED_BY_MODELS)
        if total["all_tools"] and total[setting]
    }


def by_task(ran: Sequence[Ran]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for one in ran:
        played = one.played
        found.setdefault(one.task, {})[one.setting] = {
            "ok": not one.problem,
            "turns": played.turns,
            "calls": played.calls,
            "input_tokens": played.input_tokens,
            "output_tokens": played.output_tokens,
            "cost_usd": played.cost,
            "seconds": round(played.seconds, 2),
        }
    return found
