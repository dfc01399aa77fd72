"""Executes one command: checks the budgets and what the agent may use, asks the environment, and returns a result.

Errors go back to the model as they are, with their hints. What a command may do is decided here and nowhere else.
"""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import structs

from toolfold.agent.budgets import BUDGET_OF_COMMAND, BudgetTracker
from toolfold.agent.commands import Delegate, Extract, Sandbox, Search, Single, Unreadable, UseTool
from toolfold.agent.conversation import Conversation
from toolfold.agent.definition import AgentDefinition
from toolfold.agent.environment import SEARCHED_MAX, CommandResult, Descriptor, Environment
from toolfold.agent.record import to_json
from toolfold.errors import NoMatchInCategory, NotAuthorized, ToolfoldError, ToolNotFound
from toolfold.outputs.tool_output_definition import FAILED

# Searches in a row without a new tool, after which another is refused until something else was done.
_FRUITLESS_SEARCHES_MAX = 3
_HINTS_MAX = 5

# Runs a sub-agent; the text is its place in the run.
_RunAgent = Callable[[Delegate, str], Awaitable[CommandResult]]


class _Refused(ToolfoldError):
    """The run's own rules do not allow it."""

    code = "REFUSED"


class CommandExecutor:
    """For one run of one agent, which may use the tools of its definition, besides those that are preloaded."""

    def __init__(
        self,
        environment: Environment,
        conversation: Conversation,
        tracker: BudgetTracker,
        *,
        definition: AgentDefinition,
        run_agent: _RunAgent,
    ) -> None:
        self._environment = environment
        self._conversation = conversation
        self._tracker = tracker
        self._definition = definition
        self._preloaded = frozenset(descriptor["tool_id"].casefold() for descriptor in conversation.preloaded)
        self._run_agent = run_agent

    async def execute(self, command: Single, place: str) -> CommandResult:
        """Never raises for what a model or a tool did wrong, and ends within the run's time."""
        counted = ""
        try:
            counted = self._admit(command)
            async with asyncio.timeout(self._tracker.seconds_left):
                result = await self._execute(command, place)
        except TimeoutError:
            result = _error_result(_Refused("the run's time is used up", next_action="give the final report"))
        except ToolfoldError as error:
            result = _error_result(error)
        return structs.replace(result, counted=counted)

    def _admit(self, command: Single) -> str:
        """Raises where the run's rules forbid the command; else counts it, and returns the budget that it uses."""
        if isinstance(command, Search) and self._conversation.fruitless_searches >= _FRUITLESS_SEARCHES_MAX:
            raise _Refused(
                f"{_FRUITLESS_SEARCHES_MAX} searches in a row found nothing new",
                hints=self._available_ids(),
                next_action="use one of the tools in hints, or finish or fail",
            )
        if isinstance(command, UseTool):
            self._check_tool(command.tool_id)
        budget = BUDGET_OF_COMMAND.get(command.command, "")
        if not budget:
            return ""
        limit = self._tracker.exceeded_limit(budget)
        if limit is not None:
            what = budget.replace("_", " ")
            raise _Refused(f"the budget of {limit} {what} is used up", next_action="give the final report")
        self._tracker.count(budget)
        return budget

    def _check_tool(self, tool_id: str) -> None:
        if not self._is_allowed(tool_id):
            raise NotAuthorized(
                f"this agent may not use {tool_id}",
                hints=list(self._definition.tools),
                next_action="use a tool that fits one of the patterns in hints",
            )
        # Before the first search a model may know ids from its task; after it, an unknown id is made up.
        if self._conversation.searched and not self._conversation.has_tool(tool_id):
            raise _Refused(
                f"{tool_id} was not found by a search",
                hints=self._available_ids(),
                next_action="search for what you need, then call what was found",
            )

    async def _execute(self, command: Single, place: str) -> CommandResult:
        match command:
            case Search():
                return await self._search(command)
            case UseTool():
                ok, text = await self._environment.call(command.tool_id, command.args)
            case Sandbox():
                ok, text = await self._environment.run_script(command.code, self._is_allowed)
            case Extract():
                text = await self._environment.extract(command.handle, command.extract, command.mode)
                return CommandResult(ok=not text.startswith(FAILED), text=text, holds_outputs=True)
            case Delegate():
                return await self._run_agent(command, place)
            case Unreadable():
                return CommandResult(ok=False, text=f"not done: {command.problem}")
            case _:
                return CommandResult(ok=True, text="noted")
        return CommandResult(ok=ok, text=text, holds_outputs=self._environment.holds_outputs)

    async def _search(self, command: Search) -> CommandResult:
        limit = max(1, min(command.limit, 20))
        # What an agent may use can stand far below what others may.
        searched = limit if "*" in self._definition.tools else SEARCHED_MAX
        try:
            matches = await self._environment.search(command.query, command.category_path, searched)
        except NoMatchInCategory as error:
            return await self._nothing_found(command.query, error)
        tools = [kept for tool in matches if (kept := await self._allowed_hit(tool)) is not None][:limit]
        if not tools:
            nothing = ToolNotFound(
                f"no tool that this agent may use fits {command.query!r}",
                query=command.query,
                next_action="use a tool in hints only if it does that; else say it in other words, or fail",
            )
            return await self._nothing_found(command.query, nothing)
        lines = [f"- {_ids(tool)}: {tool['description']}".splitlines()[0] for tool in tools]
        twins = await self._environment.describe_all(twin for tool in tools for twin in tool.get("same_as", ()))
        return CommandResult(ok=True, text="now in available_tools:\n" + "\n".join(lines), found=(*tools, *twins))

    async def _nothing_found(self, query: str, error: ToolfoldError) -> CommandResult:
        """The error with the nearest tools that this agent may use. They become available: a hint must be of use."""
        hints = [hint for hint in error.hints if isinstance(hint, dict) and self._is_allowed(hint["tool_id"])]
        if hints:
            near = await self._environment.describe_all(hint["tool_id"] for hint in hints)
        else:
            near = await self._environment.nearest(query, self._is_allowed, _HINTS_MAX)
            hints = [{"tool_id": tool["tool_id"], "summary": tool["description"]} for tool in near]
        return CommandResult(
            ok=False, text=to_json({**error.as_dict(), "hints": hints or list(error.hints)}), found=near
        )

    async def _allowed_hit(self, tool: Descriptor) -> Descriptor | None:
        """A hit with those of its ids that this agent may use; none where it may use none."""
        allowed = [one for one in (tool["tool_id"], *tool.get("same_as", ())) if self._is_allowed(one)]
        if not allowed:
            return None
        own = tool if allowed[0] == tool["tool_id"] else (await self._environment.describe_all(allowed[:1]))[0]
        plain = {key: value for key, value in own.items() if key != "same_as"}
        return {**plain, "same_as": allowed[1:]} if allowed[1:] else plain

    def _available_ids(self) -> list[str]:
        return [tool["tool_id"] for tool in self._conversation.available_tools]

    def _is_allowed(self, tool_id: str) -> bool:
        return tool_id.casefold() in self._preloaded or self._definition.allows(tool_id)


def _ids(tool: Descriptor) -> str:
    twins = ", ".join(tool.get("same_as", ()))
    return f"{tool['tool_id']} (the same as {twins})" if twins else str(tool["tool_id"])


def _error_result(error: ToolfoldError) -> CommandResult:
    """An error as the model reads it: the same words and hints as anywhere else."""
    return CommandResult(ok=False, text=to_json(error.as_dict()))
