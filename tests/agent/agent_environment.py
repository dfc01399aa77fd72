"""A small environment for the planner: three tools, a scripted model, and a run with what is left of it."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from toolfold import tokens
from toolfold.agent.definition import AgentDefinition
from toolfold.agent.environment import Descriptor, Environment
from toolfold.agent.planner import AgentReport, Planner, RunContext
from toolfold.agent.record import RunRecord
from toolfold.agent.replay import RunMemory
from toolfold.errors import NoMatchInCategory
from toolfold.model import Model, Prompt, Reply, ToolUse, Usage

INSPECTOR = {"tool_id": "toolbox.inspect_tool_output", "description": "Shows structure."}
TOOLS = {name: {"tool_id": name, "description": f"Does {name}."} for name in ("shop.find", "shop.pay", "git.log")}

Say = str | dict[str, Any] | tuple[dict[str, Any], ...] | Exception | asyncio.Event


class Scripted:
    """Says one thing after the other. A dictionary is a command, a tuple several at once."""

    name = "scripted"
    max_output_tokens = 4_000

    def __init__(self, *says: Say, calls_tools: bool = True, context_tokens: int = 100_000) -> None:
        self.context_tokens = context_tokens
        self.prompts: list[Prompt] = []
        self.calls_tools = calls_tools
        self._says = list(says)

    async def complete(self, prompt: Prompt) -> Reply:
        self.prompts.append(prompt)
        said = self._says.pop(0) if len(self._says) > 1 else self._says[0]
        if isinstance(said, Exception):
            raise said
        assert not isinstance(said, asyncio.Event)
        usage = Usage(100, 10, 0.01)
        if isinstance(said, str):
            return Reply(text=said.replace("NONCE", nonce(prompt)), usage=usage)
        commands = said if isinstance(said, tuple) else (said,)
        if not self.calls_tools:
            one = commands[0] if len(commands) == 1 else {"type": "batch", "commands": list(commands)}
            return Reply(text=f"```json\n{msgspec.json.encode(one).decode()}\n```", usage=usage)
        uses = tuple(
            ToolUse(f"u{number}", one["type"], {key: value for key, value in one.items() if key != "type"})
            for number, one in enumerate(commands)
        )
        return Reply(uses=uses, usage=usage)

    def count_tokens(self, text: str) -> int:
        return tokens.count(text)


class Hangs(Scripted):
    """Where it says an event, it waits for that."""

    async def complete(self, prompt: Prompt) -> Reply:
        said = self._says[0]
        if isinstance(said, asyncio.Event):
            self._says.pop(0)
            await said.wait()
        return await super().complete(prompt)


def nonce(prompt: Prompt) -> str:
    return prompt.messages[0].content.partition("<ai-agent-")[2].partition("-FINAL")[0]


class FakeEnvironment(Environment):
    """Three tools, and texts that are kept under short handles."""

    def __init__(self) -> None:
        self.called: list[tuple[str, dict[str, Any]]] = []
        self.kept: dict[str, str] = {}
        self.holds_outputs = False
        self.answer: Callable[[str, dict[str, Any]], tuple[bool, str]] = lambda tool_id, args: (True, f"{tool_id} done")
        self.hang = False
        self.few = False
        """Whether all tools are offered without a search."""
        self.may: set[str] = set()
        """What the last script was allowed to call."""

    async def inventory(self, allows: Callable[[str], bool]) -> Mapping[str, Sequence[str]]:
        names = {"shop": ["find", "pay"], "git": ["log"]}
        return {server: tools for server, tools in names.items() if allows(f"{server}.{tools[0]}")}

    async def first_tools(self, task: str, allows: Callable[[str], bool]) -> tuple[tuple[Descriptor, ...], bool]:
        return (tuple(tool for name, tool in TOOLS.items() if allows(name)), True) if self.few else ((), False)

    async def search(self, query: str, category_path: Sequence[str], limit: int) -> tuple[Descriptor, ...]:
        found = tuple(one for name, one in TOOLS.items() if query in name)
        if not found:
            raise NoMatchInCategory(f"no tool fits {query!r}", hints=[["Shop"]], next_action="search in Shop")
        return found[:limit]

    async def nearest(self, query: str, allows: Callable[[str], bool], limit: int) -> tuple[Descriptor, ...]:
        return ()

    async def describe_all(self, tool_ids: Iterable[str]) -> tuple[Descriptor, ...]:
        return tuple(TOOLS[tool_id] for tool_id in tool_ids)

    async def call(self, tool_id: str, args: dict[str, Any]) -> tuple[bool, str]:
        self.called.append((tool_id, args))
        if self.hang:
            await asyncio.Event().wait()
        return self.answer(tool_id, args)

    async def run_script(self, code: str, allowed: Callable[[str], bool]) -> tuple[bool, str]:
        self.may = {name for name in (*TOOLS, INSPECTOR["tool_id"]) if allowed(name)}
        return True, f"ran {len(code)} characters"

    async def extract(self, handle: str, extract: str, mode: str) -> str:
        return f"{extract} of {self.kept[handle][:20]}"

    async def store(self, name: str, arguments: str, text: str) -> str:
        handle = f"h{len(self.kept)}"
        self.kept[handle] = text
        self.holds_outputs = True
        return f'Tool output is too large. Call tool_output(handle = "{handle}", …).'

    def with_thresholds(self, thresholds: Mapping[str, int]) -> "FakeEnvironment":
        return self


class Run:
    """One run, with what is left of it."""

    def __init__(
        self,
        model: Model,
        *,
        environment: FakeEnvironment | None = None,
        definition: AgentDefinition | None = None,
        agents: Mapping[str, AgentDefinition] | None = None,
        memory: RunMemory | None = None,
        task: str = "the task",
    ) -> None:
        self.environment = environment or FakeEnvironment()
        self.record = RunRecord()
        self.memory = memory or RunMemory()
        around = RunContext(
            environment=self.environment,
            record=self.record,
            memory=self.memory,
            run="r1",
            model_for=lambda name: model,
            agents=agents or {},
        )
        planner = Planner(definition or AgentDefinition(), around)
        self.report: AgentReport = asyncio.run(planner.run(task))

    def results(self) -> list[dict[str, Any]]:
        return [event["result"] for event in self.record.events if event["event"] == "command.done"]


SEARCH = {"type": "search", "query": "shop"}
FIND = {"type": "tool", "tool_id": "shop.find", "args": {"q": 1}}
FINISH = {"type": "finish", "report": "done", "data": {"n": 1}}
