"""One scripted plan over a dozen real servers: every definition in the prompt against toolfold's surface.

The servers are recordings, each replayed by a process of its own over stdio. They answer every call with a short text,
so the figures are those of the definitions and of finding tools, not of results.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from msgspec import Struct

from benchmarks.agent.loop import Bounds, Played, play
from benchmarks.agent.policies import PlannedModel
from benchmarks.agent.tasks import Task, Tool
from benchmarks.agent.toolsets import all_tools, config_text, definitions_of, surface
from benchmarks.agent.world import World
from benchmarks.servers import misbehaving_spec
from toolfold.config import Settings
from toolfold.gateway import Gateway
from toolfold.types import ServerSpec

SERVERS = (
    "github",
    "slack",
    "notion",
    "filesystem",
    "git",
    "sqlite",
    "postgres",
    "playwright",
    "time",
    "memory",
    "fetch",
    "grafana",
)

CALLS = 6


async def morning(*tools: Tool) -> Any:
    incidents, log, issues, query, create, post = tools
    found = await asyncio.gather(
        incidents(status="active", limit=5),
        log(repo_path="/srv/shop", max_count=5),
        issues(owner="harbour", repo="shop", state="open"),
        query(sql="SELECT count(*) FROM orders WHERE ordered_on = current_date"),
    )
    issue = await create(owner="harbour", repo="shop", title="Look into the incident of this morning")
    posted = await post(channel_id="C042", text="The morning round is done.")
    return [str(one) for one in [*found, issue, posted]]


TASK = Task(
    name="morning-round",
    text=(
        "Do the morning round: the active incidents, the five newest commits of /srv/shop, the open issues of "
        "harbour/shop, today's orders in the Postgres database; then open an issue about the incident, and post in the "
        "channel C042 that the round is done."
    ),
    needs={
        "grafana.list_incidents": "list incidents",
        "git.git_log": "show the commit logs of a repository",
        "github.list_issues": "list issues in a GitHub repository",
        "postgres.query": "run a read-only SQL query",
        "github.create_issue": "create a new issue in a GitHub repository",
        "slack.slack_post_message": "post a message to a Slack channel",
    },
    plan=morning,
    check=lambda world, answer: "" if answer.count("called ") == CALLS else "not every call was answered",
)


class Measured(Struct, frozen=True):
    """One setting: what it took, and what was wrong."""

    played: Played
    problem: str
    missed: tuple[str, ...]


def measured(data: Path | None) -> dict[str, Any] | str:
    """Tokens of each setting and their ratio, or why there are none."""
    if data is None:
        return "not measured: give --data DIR with recorded servers, servers/NAME.json"
    folder = data / "servers" if (data / "servers").is_dir() else data
    absent = [name for name in SERVERS if not (folder / f"{name}.json").is_file()]
    if absent:
        return f"not measured: {folder} has no recording of {', '.join(absent)}"
    specs = tuple(misbehaving_spec(name, "--replay", str(folder.resolve() / f"{name}.json")) for name in SERVERS)
    with tempfile.TemporaryDirectory(prefix="toolfold-bench-") as place:
        return asyncio.run(_measured(Path(place).resolve(), specs))


async def _measured(root: Path, specs: tuple[ServerSpec, ...]) -> dict[str, Any]:
    definitions = await definitions_of(specs)
    (root / "toolfold.toml").write_text(config_text(specs), encoding="utf-8")
    async with Gateway(Settings(servers=specs, home=root / "home")) as gateway:
        await gateway.build()
    found = {}
    async with all_tools(specs, definitions) as toolset:
        found["all_tools"] = await _played(toolset, "all_tools", root)
    for setting in ("surface", "scripts"):
        without = frozenset() if setting == "scripts" else frozenset({"run_script"})
        async with surface(root / "toolfold.toml", root / "home", "--profile", "discovery", without=without) as toolset:
            found[setting] = await _played(toolset, setting, root)
    whole = _total(found["all_tools"])
    return {
        "servers": list(SERVERS),
        "servers_are": "recordings of real servers, a plausible dozen chosen by hand; calls answer a short text",
        "tools": sum(len(tools) for tools in definitions.values()),
        "calls_of_the_plan": CALLS,
        **{setting: _figures(one, whole) for setting, one in found.items()},
    }


async def _played(toolset: Any, setting: str, root: Path) -> Measured:
    world = World(root)
    model = PlannedModel(setting, TASK, world)
    try:
        played = await play(model, toolset, TASK.text, Bounds())
    finally:
        await model.aclose()
    return Measured(played, TASK.check(world, played.answer), tuple(model.missed))


def _total(one: Measured) -> int:
    return one.played.input_tokens + one.played.output_tokens


def _figures(one: Measured, whole: int) -> dict[str, Any]:
    return {
        "ok": not one.problem,
        "turns": one.played.turns,
        "input_tokens_first_turn": one.played.first_input_tokens,
        "input_tokens": one.played.input_tokens,
        "output_tokens": one.played.output_tokens,
        "to_all_tools": round(_total(one) / whole, 4),
        "searches_missed": list(one.missed),
        "problem": one.problem and f"{one.problem}: {one.played.answer[:300]}",
    }
