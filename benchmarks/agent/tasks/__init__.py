"""Tasks for an agent: what it is asked, how one could do it, and how to see that it was done.

A plan is a plain function of tools. The scripted policies play it call by call, and as a script from its own source,
so every setting does the very same thing. A check looks at the world or at the final answer, and never at the plan. The
texts stand in a TOML file beside each module of plans.
"""

import ast
import inspect
import re
import sys
import textwrap
import tomllib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from benchmarks.agent.world import World

Tool = Callable[..., Awaitable[Any]]
"""A tool as a plan calls it: keywords in, the result out, its fields as attributes."""

Check = Callable[[World, str], str]
"""Looks at the world and the final answer. Says what is wrong, or nothing."""

FOLDER = "$FOLDER"
"""Stands for the world's folder in a task and in a plan."""


class Task(Struct, frozen=True, kw_only=True):
    """One task."""

    name: str
    text: str
    needs: dict[str, str]
    """tool_id → what one would search for, in the order of the plan's parameters."""
    plan: Callable[..., Awaitable[Any]]
    check: Check
    extracts: dict[str, tuple[str, ...]] = {}
    """tool_id → which parts of its result the plan looks at, for where the whole is too large to show."""
    easy: bool = False
    """One or two calls, for small models: `--only easy`."""

    @property
    def servers(self) -> frozenset[str]:
        return frozenset(tool_id.partition(".")[0] for tool_id in self.needs)

    def prompt(self, world: World) -> str:
        return self.text.replace(FOLDER, str(world.data))

    def script(self, world: World) -> str:
        """The plan as a model would write it for `run_script`: imports, the function, the call."""
        function = ast.parse(textwrap.dedent(inspect.getsource(self.plan))).body[0]
        assert isinstance(function, ast.AsyncFunctionDef)
        function.returns = None
        for argument in [*function.args.args, *([function.args.vararg] if function.args.vararg else [])]:
            argument.annotation = None
        source = ast.unparse(function)
        imports = [f"import {name}" for name in ("asyncio", "json") if f"{name}." in source]
        tools = ", ".join(f'"{tool_id}"' for tool_id in self.needs)
        lines = [*imports, source, f"await {function.name}(*use_tools({tools}))"]
        return "\n".join(lines).replace(FOLDER, str(world.data))


def answers(expected: Callable[[World], Any]) -> Check:
    """The answer holds the value, or each of the values, that is computed from the world."""

    def check(world: World, answer: str) -> str:
        found = expected(world)
        wanted = [str(one) for one in (found if isinstance(found, list) else [found])]
        said = re.sub(r"(?<=\d),(?=\d{3})", "", answer)
        missing = [one for one in wanted if not re.search(rf"(?<![\w.]){re.escape(one)}(?!\w)", said)]
        return f"the answer lacks {', '.join(missing)}" if missing else ""

    return check


def file_holds(path: str, expected: Callable[[World], str]) -> Check:
    """A file has exactly this text, but for spaces at its end."""

    def check(world: World, answer: str) -> str:
        del answer
        found, wanted = world.file(path).rstrip(), expected(world).rstrip()
        return "" if found == wanted else f"{path} holds {found[:80]!r} instead of {wanted[:80]!r}"

    return check


def database_holds(sql: str, expected: list[tuple[Any, ...]] | Callable[[World], list[tuple[Any, ...]]]) -> Check:
    """A query finds exactly these rows."""

    def check(world: World, answer: str) -> str:
        del answer
        found, wanted = world.rows(sql), expected(world) if callable(expected) else expected
        return "" if found == wanted else f"{sql} finds {str(found)[:80]} instead of {str(wanted)[:80]}"

    return check


def holds(what: str, test: Callable[[World], bool]) -> Check:
    """Anything else that must be so."""
    return lambda world, answer: "" if test(world) else f"it is not so that {what}"


def both(*checks: Check) -> Check:
    return lambda world, answer: next((said for one in checks if (said := one(world, answer))), "")


def load_tasks(module: str, checks: Mapping[str, Check]) -> tuple[Task, ...]:
    """The tasks of the TOML file beside a module, with the plans and the checks that the module defines."""
    plans = sys.modules[module]
    data = tomllib.loads(Path(str(plans.__file__)).with_suffix(".toml").read_text(encoding="utf-8"))
    return tuple(
        Task(
            name=entry["name"],
            text=entry["text"],
            needs=entry["needs"],
            plan=getattr(plans, entry["plan"]),
            check=checks[entry["name"]],
            easy=entry.get("easy", False),
            extracts={tool_id: tuple(paths) for tool_id, paths in entry.get("extracts", {}).items()},
        )
        for entry in data["task"]
    )


def usable(tasks: tuple[Task, ...], servers: Mapping[str, object] | frozenset[str]) -> list[Task]:
    """Those whose servers are all there."""
    return [task for task in tasks if task.servers <= set(servers)]
