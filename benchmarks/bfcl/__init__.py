"""`toolfold bench bfcl`: BFCL v4 multi-turn through real MCP servers, in each setting, judged by its official checker.

    official.py   the published tasks, functions and checker
    servers.py    the functions as MCP servers, recorded servers beside them
    settings.py   all definitions in the prompt, toolfold's surface, scripts, FastMCP's search and code mode
    gold.py       the policy that plays the official answers
    endpoint.py   a real model, asked for the same answer each time

With `--policy gold` (the default) the official answer is played: every task must be solved. With `--model` that model
plays, the same loop and prompts in all settings: a fixed sample of 200, with `--seeds 3` three times.
"""

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from benchmarks.agent.loop import Bounds, Played, play
from benchmarks.bfcl.endpoint import SeededModel
from benchmarks.bfcl.gold import GoldModel, altered
from benchmarks.bfcl.official import BfclTask, Official
from benchmarks.bfcl.servers import Playground
from benchmarks.bfcl.settings import OURS, PEERS, Setting, opened
from benchmarks.measurement import environment
from toolfold.config.sections import Model as ModelSettings
from toolfold.errors import ConfigError
from toolfold.model import Model

SAY_EVERY = 50
BOUNDS = Bounds(turns=20, seconds=900.0)
"""Twenty steps for one request are official."""
PLAYED_BY_MODELS = 200
COLUMNS = ("setting", "tools", "seed", "solved", "of", "steps", "calls", "tokens_in", "tokens_out", "seconds")

SPREAD = ("solved", "steps", "tokens_in", "tokens_out")
"""What is told of the runs with several seeds: the least and the most."""


class Ran(Struct, frozen=True, kw_only=True):
    """One task in one setting. `problem` is empty where the official checker is content."""

    task: str
    problem: str
    played: Played
    executed: int
    """Calls that arrived at the servers."""
    seconds: float
    settled: float
    """How long changes of the tools took to be shown, which is not in `seconds`."""
    missed: tuple[str, ...] = ()
    altered: int = 0
    """Results that the model did not read as the servers sent them; only of the gold policy."""


def run(
    data: Path | None = None,
    peers: Path | None = None,
    *,
    model: ModelSettings | None = None,
    wheel: str = "",
    settings: str = "",
    tools: int = 128,
    sample: int = 0,
    seed: int = 0,
    seeds: int = 1,
) -> dict[str, Any]:
    """`settings` are some of the names, with commas; `sample` is how many tasks, chosen by `seed`; 0: all 800, or 200
    where a model plays, which does so with each of so many `seeds`."""
    official = Official(Path(wheel) if wheel else None)
    names = chosen_settings(settings)
    tasks = chosen_tasks(official.tasks(), sample or (PLAYED_BY_MODELS if model is not None else 0), seed)
    playground = Playground(official, data, tools)
    players: dict[int, Model | None] = {seed: None}
    if model is not None:
        players = {one: SeededModel.create(model, one) for one in range(seed, seed + seeds)}
    with tempfile.TemporaryDirectory(prefix="toolfold-bench-") as folder:
        ran = {
            (name, one): asyncio.run(play_all(playground, name, tasks, Path(folder), peers=peers, model=player))
            for name in names
            for one, player in players.items()
        }
    rows = [{**summed(name, playground.tools, found), "seed": one} for (name, one), found in ran.items()]
    by_setting = {name: [row for row in rows if row["setting"] == name] for name in names}
    return {
        "name": "bfcl",
        "table": {"columns": COLUMNS, "rows": [[row[column] for column in COLUMNS] for row in rows]},
        "metrics": {
            "played_by": next((player.name for player in players.values() if player), "gold"),
            "tasks": len(tasks),
            "settings": {name: own[0] for name, own in by_setting.items()},
            "spread": {
                name: {what: (min(values), max(values)) for what in SPREAD if (values := [row[what] for row in own])}
                for name, own in by_setting.items()
            },
            "failures": [
                {"setting": name, "seed": number, "task": one.task, "problem": one.problem}
                for (name, number), found in ran.items()
                for one in found
                if one.problem
            ],
        },
        "environment": environment("bfcl-eval", "mpmath", "rs-bpe"),
    }


def chosen_settings(settings: str) -> tuple[str, ...]:
    names = tuple(filter(None, settings.split(","))) or OURS
    if not set(names) <= {*OURS, *PEERS}:
        raise ConfigError(
            f"{settings!r} names a setting that is not there",
            hints=[*OURS, *PEERS],
            next_action="give --settings some of those in hints, with commas; those of FastMCP need --peers",
        )
    return names


def chosen_tasks(tasks: Sequence[BfclTask], sample: int, seed: int) -> list[BfclTask]:
    """All of them or a sample, those that offer the same functions one after the other."""
    chosen = random.Random(seed).sample(list(tasks), min(sample, len(tasks))) if sample else list(tasks)
    return sorted(chosen, key=lambda task: sorted(task.hidden_at(-1)))


async def play_all(
    playground: Playground,
    name: str,
    tasks: Sequence[BfclTask],
    folder: Path,
    *,
    peers: Path | None = None,
    model: Model | None = None,
    bounds: Bounds = BOUNDS,
) -> list[Ran]:
    """All tasks in one setting."""
    async with playground.served(), opened(name, playground, folder, peers) as setting:
        ran: list[Ran] = []
        for task in tasks:
            player = model or GoldModel(name, playground.official, task)
            ran.append(await play_one(playground, setting, task, player, bounds))
            if len(ran) % SAY_EVERY == 0:
                solved = sum(not one.problem for one in ran)
                sys.stderr.write(f"{name}, {playground.tools} tools: {solved} of {len(ran)} solved so far\n")
        return ran


async def play_one(playground: Playground, setting: Setting, task: BfclTask, player: Model, bounds: Bounds) -> Ran:
    settled = 0.0

    async def next_turn() -> None:
        nonlocal settled
        started = time.perf_counter()
        await setting.settle(playground.next_turn())
        settled += time.perf_counter() - started

    await setting.settle(playground.begin(task))
    async with setting.session() as toolset:
        played = await play(player, toolset, task.requests, bounds, next_turn)
    ran = Ran(
        task=task.name,
        problem=played.ending if played.ending != "answered" else playground.verdict(),
        played=played,
        executed=sum(map(len, playground.turns)),
        seconds=played.seconds - settled,
        settled=settled,
    )
    if not isinstance(player, GoldModel):
        return ran
    changed = altered(player.setting, toolset.read, playground.answers)
    return replace(ran, missed=tuple(player.missed), altered=changed)


def summed(setting: str, tools: int, ran: Sequence[Ran]) -> dict[str, Any]:
    """One setting over all tasks."""
    return {
        "setting": setting,
        "tools": tools,
        "solved": sum(not one.problem for one in ran),
        "of": len(ran),
        "steps": sum(one.played.turns for one in ran),
        "calls": sum(one.played.calls for one in ran),
        "executed": sum(one.executed for one in ran),
        "tokens_in": sum(one.played.input_tokens for one in ran),
        "tokens_out": sum(one.played.output_tokens for one in ran),
        "seconds": round(sum(one.seconds for one in ran), 1),
        "seconds_settling": round(sum(one.settled for one in ran), 1),
        "results_altered": sum(one.altered for one in ran),
        "searches_missed": len([tool_id for one in ran for tool_id in one.missed]),
        "missed": sorted({tool_id for one in ran for tool_id in one.missed}),
    }
