"""Does one command: looks at the budgets and at what the model may use, asks the world, and gives a result to read.

Errors go back to the model as they are, with their hints. What a command may do is decided here and nowhere else.
"""

import asyncio
import fnmatch
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import structs

from toolfold.agent.budgets import BUDGETED, FRUITLESS_SEARCHES, Spent
from toolfold.agent.commands import Delegate, Extract, Sandbox, Search, Single, UseTool, name_of
from toolfold.agent.state import State, as_json
from toolfold.agent.world import Result, World
from toolfold.errors import NotAuthorized, ToolfoldError, ToolNotFound

RunAgent = Callable[[Delegate, str], Awaitable[Result]]
"""Runs a sub-agent; the text says at which place of the run."""


class Refused(ToolfoldError):
    """The run's own rules say no."""

    code = "REFUSED"


class Performer:
    """For one run. `tools` are patterns of the ids that its agent may use, beside those that are always there."""

    def __init__(
        self, world: World, state: State, spent: Spent, *, tools: tuple[str, ...], run_agent: RunAgent | None
    ) -> None:
        self._world = world
        self._state = state
        self._spent = spent
        self._tools = tools
        self._always = frozenset(one["tool_id"].casefold() for one in state.preloaded)
        self._run_agent = run_agent

    async def perform(self, command: Single, place: str) -> Result:
        """Never raises for what a model or a tool did wrong, and ends within the run's time."""
        counted = ""
        try:
            counted = self._admitted(command)
            async with asyncio.timeout(self._spent.seconds_left):
                result = await self._perform(command, place)
        except TimeoutError:
            result = failed(Refused("the run's time is used up", next_action="give the final report"))
        except ToolfoldError as error:
            result = failed(error)
        return structs.replace(result, counted=counted)

    def _admitted(self, command: Single) -> str:
        """Raises what the run's rules say against a command; else takes it from its budget, and tells which."""
        if isinstance(command, Search) and self._state.fruitless >= FRUITLESS_SEARCHES:
            raise Refused(
                f"{FRUITLESS_SEARCHES} searches in a row found nothing new",
                hints=[one["tool_id"] for one in self._state.available_tools],
                next_action="use one of the tools in hints, or finish or fail",
            )
        if isinstance(command, UseTool):
            self._check(command.tool_id)
        budget = BUDGETED.get(name_of(command), "")
        if not budget:
            return ""
        limit = self._spent.used_up(budget)
        if limit is not None:
            what = budget.replace("_", " ")
            raise Refused(f"the budget of {limit} {what} is used up", next_action="give the final report")
        self._spent.count(budget)
        return budget

    async def _perform(self, command: Single, place: str) -> Result:
        match command:
            case Search():
                return await self._search(command)
            case UseTool():
                ok, text = await self._world.call(command.tool_id, command.args)
                return Result(ok=ok, text=text, holds_outputs=self._world.holds_outputs())
            case Sandbox():
                ok, text = await self._world.run_script(command.code, self._allowed)
                return Result(ok=ok, text=text, holds_outputs=self._world.holds_outputs())
            case Extract():
                text = await self._world.extract(command.handle, command.extract, command.mode)
                return Result(ok=True, text=text, holds_outputs=True)
            case Delegate():
                return await self._delegate(command, place)
        return Result(ok=True, text="noted")

    async def _search(self, command: Search) -> Result:
        found = await self._world.search(command.query, command.category_path, max(1, min(command.limit, 20)))
        found = tuple(one for one in found if self._allowed(one["tool_id"]))
        if not found:
            raise ToolNotFound(
                f"no tool that this agent may use fits {command.query!r}",
                query=command.query,
                next_action="say it in other words, or fail",
            )
        lines = [f"- {one['tool_id']}: {one['description']}".splitlines()[0] for one in found]
        return Result(ok=True, text="now in available_tools:\n" + "\n".join(lines), found=found)

    def _check(self, tool_id: str) -> None:
        if not self._allowed(tool_id):
            raise NotAuthorized(
                f"this agent may not use {tool_id}",
                hints=list(self._tools),
                next_action="use a tool that fits one of the patterns in hints",
            )
        if self._state.searched and not self._state.knows(tool_id):
            raise Refused(
                f"{tool_id} was not found by a search",
                hints=[one["tool_id"] for one in self._state.available_tools],
                next_action="search for what you need, then call what was found",
            )

    async def _delegate(self, command: Delegate, place: str) -> Result:
        if self._run_agent is None:
            raise Refused("there are no sub-agents here", next_action="do it yourself, or fail")
        return await self._run_agent(command, place)

    def _allowed(self, tool_id: str) -> bool:
        name = tool_id.casefold()
        return name in self._always or any(fnmatch.fnmatchcase(name, one.casefold()) for one in self._tools)


def failed(error: ToolfoldError) -> Result:
    """An error as the model reads it: the same words and hints as anywhere else."""
    return Result(ok=False, text=as_json(error.as_dict()))


def about(command: Single) -> tuple[str, str]:
    """What a command was about, for the heading of its result, and its arguments as JSON, for a stored one."""
    plain = as_plain(command)
    detail = next((plain[key] for key in ("tool_id", "query", "handle", "agent", "status") if key in plain), "script")
    given = plain.get("args", {key: value for key, value in plain.items() if key not in ("type", "reasoning", "code")})
    return str(detail), as_json(given)


def as_plain(command: Single) -> Any:
    """A command as plain JSON values, for the record."""
    import msgspec

    return msgspec.json.decode(msgspec.json.encode(command, enc_hook=str))
