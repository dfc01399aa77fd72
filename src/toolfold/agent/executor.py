"""Does one command: looks at the budgets and at what the model may use, asks the world, and gives a result to read.

Errors go back to the model as they are, with their hints. What a command may do is decided here and nowhere else.
"""

import asyncio
import fnmatch
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import structs

from toolfold.agent.budgets import BUDGET_OF_COMMAND, FRUITLESS_SEARCHES_MAX, BudgetTracker
from toolfold.agent.commands import Delegate, Extract, Sandbox, Search, Single, UseTool, command_name
from toolfold.agent.conversation import Conversation, to_json
from toolfold.agent.environment import CommandResult, Environment
from toolfold.errors import NotAuthorized, ToolfoldError, ToolNotFound

_RunAgent = Callable[[Delegate, str], Awaitable[CommandResult]]
"""Runs a sub-agent; the text says at which place of the run."""


class _Refused(ToolfoldError):
    """The run's own rules say no."""

    code = "REFUSED"


class CommandExecutor:
    """For one run. `tools` are patterns of the ids that its agent may use, beside those that are always there."""

    def __init__(
        self,
        world: Environment,
        state: Conversation,
        spent: BudgetTracker,
        *,
        tools: tuple[str, ...],
        run_agent: _RunAgent | None,
    ) -> None:
        self._world = world
        self._state = state
        self._spent = spent
        self._tools = tools
        self._always = frozenset(one["tool_id"].casefold() for one in state.preloaded)
        self._run_agent = run_agent

    async def perform(self, command: Single, place: str) -> CommandResult:
        """Never raises for what a model or a tool did wrong, and ends within the run's time."""
        counted = ""
        try:
            counted = self._admitted(command)
            async with asyncio.timeout(self._spent.seconds_left):
                result = await self._perform(command, place)
        except TimeoutError:
            result = error_result(_Refused("the run's time is used up", next_action="give the final report"))
        except ToolfoldError as error:
            result = error_result(error)
        return structs.replace(result, counted=counted)

    def _admitted(self, command: Single) -> str:
        """Raises what the run's rules say against a command; else takes it from its budget, and tells which."""
        if isinstance(command, Search) and self._state.fruitless >= FRUITLESS_SEARCHES_MAX:
            raise _Refused(
                f"{FRUITLESS_SEARCHES_MAX} searches in a row found nothing new",
                hints=[one["tool_id"] for one in self._state.available_tools],
                next_action="use one of the tools in hints, or finish or fail",
            )
        if isinstance(command, UseTool):
            self._check(command.tool_id)
        budget = BUDGET_OF_COMMAND.get(command_name(command), "")
        if not budget:
            return ""
        limit = self._spent.used_up(budget)
        if limit is not None:
            what = budget.replace("_", " ")
            raise _Refused(f"the budget of {limit} {what} is used up", next_action="give the final report")
        self._spent.count(budget)
        return budget

    async def _perform(self, command: Single, place: str) -> CommandResult:
        match command:
            case Search():
                return await self._search(command)
            case UseTool():
                ok, text = await self._world.call(command.tool_id, command.args)
                return CommandResult(ok=ok, text=text, holds_outputs=self._world.holds_outputs())
            case Sandbox():
                ok, text = await self._world.run_script(command.code, self._allowed)
                return CommandResult(ok=ok, text=text, holds_outputs=self._world.holds_outputs())
            case Extract():
                text = await self._world.extract(command.handle, command.extract, command.mode)
                return CommandResult(ok=True, text=text, holds_outputs=True)
            case Delegate():
                return await self._delegate(command, place)
        return CommandResult(ok=True, text="noted")

    async def _search(self, command: Search) -> CommandResult:
        found = await self._world.search(command.query, command.category_path, max(1, min(command.limit, 20)))
        found = tuple(one for one in found if self._allowed(one["tool_id"]))
        if not found:
            raise ToolNotFound(
                f"no tool that this agent may use fits {command.query!r}",
                query=command.query,
                next_action="say it in other words, or fail",
            )
        lines = [f"- {one['tool_id']}: {one['description']}".splitlines()[0] for one in found]
        return CommandResult(ok=True, text="now in available_tools:\n" + "\n".join(lines), found=found)

    def _check(self, tool_id: str) -> None:
        if not self._allowed(tool_id):
            raise NotAuthorized(
                f"this agent may not use {tool_id}",
                hints=list(self._tools),
                next_action="use a tool that fits one of the patterns in hints",
            )
        if self._state.searched and not self._state.knows(tool_id):
            raise _Refused(
                f"{tool_id} was not found by a search",
                hints=[one["tool_id"] for one in self._state.available_tools],
                next_action="search for what you need, then call what was found",
            )

    async def _delegate(self, command: Delegate, place: str) -> CommandResult:
        if self._run_agent is None:
            raise _Refused("there are no sub-agents here", next_action="do it yourself, or fail")
        return await self._run_agent(command, place)

    def _allowed(self, tool_id: str) -> bool:
        name = tool_id.casefold()
        return name in self._always or any(fnmatch.fnmatchcase(name, one.casefold()) for one in self._tools)


def error_result(error: ToolfoldError) -> CommandResult:
    """An error as the model reads it: the same words and hints as anywhere else."""
    return CommandResult(ok=False, text=to_json(error.as_dict()))


def describe_command(command: Single) -> tuple[str, str]:
    """What a command was about, for the heading of its result, and its arguments as JSON, for a stored one."""
    plain = command_as_dict(command)
    detail = next((plain[key] for key in ("tool_id", "query", "handle", "agent", "status") if key in plain), "script")
    given = plain.get("args", {key: value for key, value in plain.items() if key not in ("type", "reasoning", "code")})
    return str(detail), to_json(given)


def command_as_dict(command: Single) -> Any:
    """A command as plain JSON values, for the record."""
    import msgspec

    return msgspec.json.decode(msgspec.json.encode(command, enc_hook=str))
