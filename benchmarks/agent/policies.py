"""Scripted models: each plays a task's plan in one setting, step by step, as a careful model would.

They prove the harness and give exact token figures for one and the same plan. They show nothing about wit: a plan
knows which tools it wants. In toolfold's settings it still searches them first, expands what the search did not, and
counts what search did not find.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from msgspec import Struct

from benchmarks.agent.tasks import FOLDER, Task
from benchmarks.agent.toolsets import native_name
from benchmarks.agent.world import World
from toolfold import tokens
from toolfold.model import Message, Prompt, Reply, ToolUse

Wishes = Sequence[tuple[str, dict[str, Any]]]
Steps = AsyncGenerator[Wishes | str, list[str]]
"""Gives what is to be called next, or the final answer; is sent the results as the model reads them."""

IDLE_ROUNDS = 5
"""After so many rounds of the event loop without a new call, a plan waits for results."""


class PlannedModel:
    """Implements `toolfold.model.Model`: says what its steps say."""

    name = "scripted"
    context_tokens = 1_000_000
    max_output_tokens = 8_000
    calls_tools = True

    def __init__(self, setting: str, task: Task, world: World) -> None:
        self.missed: list[str] = []
        """The tools that the first search for each did not show."""
        self._steps = POLICIES[setting](task, world, self.missed)
        self._turn = 0

    async def complete(self, prompt: Prompt) -> Reply:
        said = await (self._steps.asend(results(prompt.messages)) if self._turn else anext(self._steps))
        self._turn += 1
        if isinstance(said, str):
            return Reply(text=said)
        return Reply(uses=tuple(ToolUse(f"use-{self._turn}-{n}", *wish) for n, wish in enumerate(said)))

    def count_tokens(self, text: str) -> int:
        return tokens.count(text)

    async def aclose(self) -> None:
        await self._steps.aclose()


def results(messages: Sequence[Message]) -> list[str]:
    """What the last calls answered."""
    found: list[str] = []
    for message in reversed(messages):
        if message.role != "tool":
            break
        found.append(message.content)
    return found[::-1]


class Pending(Struct, frozen=True):
    """A call that a plan waits for."""

    tool_id: str
    arguments: dict[str, Any]
    result: "asyncio.Future[Any]"


class Player:
    """Runs a plan and hands its calls out."""

    def __init__(self, task: Task, world: World) -> None:
        self._folder = str(world.data)
        self._calls: list[Pending] = []
        self._running = asyncio.ensure_future(self._run(task))

    async def _run(self, task: Task) -> str:
        try:
            answer = await task.plan(*(self._tool(tool_id) for tool_id in task.needs))
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            return f"The plan failed: {type(error).__name__}: {error}"  # a tool answered something else than expected
        return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)

    def _tool(self, tool_id: str) -> Callable[..., "asyncio.Future[Any]"]:
        def call(**arguments: Any) -> "asyncio.Future[Any]":
            filled = json.loads(json.dumps(arguments).replace(FOLDER, self._folder))
            pending = Pending(tool_id, filled, asyncio.get_running_loop().create_future())
            self._calls.append(pending)
            return pending.result

        return call

    async def pending(self) -> list[Pending]:
        """The calls that the plan makes at once; none when it is done."""
        idle = 0
        while idle < IDLE_ROUNDS and not self._running.done():
            before = len(self._calls)
            await asyncio.sleep(0)
            idle = 0 if len(self._calls) > before else idle + 1
        taken, self._calls = self._calls, []
        return taken

    async def answer(self) -> str:
        return await self._running

    def stop(self) -> None:
        self._running.cancel()


async def native(task: Task, world: World, missed: list[str]) -> Steps:
    """Every definition is offered: the plan's calls, and the answer."""
    del missed  # there is nothing to search
    player = Player(task, world)
    try:
        while calls := await player.pending():
            texts = yield [(native_name(call.tool_id), call.arguments) for call in calls]
            for call, text in zip(calls, texts, strict=True):
                call.result.set_result(as_value(text))
        yield await player.answer()
    finally:
        player.stop()


async def discovering(task: Task, world: World, missed: list[str]) -> Steps:
    """Searches all needs, expands what fits, then calls one after the other; asks large results for parts."""
    texts = yield searches(task.needs)
    if others := missing(task, texts):
        missed += others
        texts = [*texts, *(yield searches(others))]
    if folded := [tool_id for tool_id in task.needs if tool_id not in expanded(texts)]:
        yield [("expand_tool", {"tool_id": tool_id}) for tool_id in folded]
    player = Player(task, world)
    try:
        while calls := await player.pending():
            texts = yield [("call_tool", {"tool_id": call.tool_id, "args": call.arguments}) for call in calls]
            for call, text in zip(calls, texts, strict=True):
                handle = re.search(r'tool_output\(handle = "([^"]+)"', text)
                if handle is None:
                    call.result.set_result(as_value(text))
                    continue
                paths = task.extracts.get(call.tool_id, ())
                parts = (
                    yield [("tool_output", {"handle": handle[1], "extract": path}) for path in paths] or "Too large."
                )
                call.result.set_result(sparse(dict(zip(paths, (extracted(part) for part in parts), strict=True))))
        yield await player.answer()
    finally:
        player.stop()


async def scripting(task: Task, world: World, missed: list[str]) -> Steps:
    """Searches all needs, expands what fits, and does the rest in one script."""
    texts = yield searches(task.needs)
    if others := missing(task, texts):
        missed += others
        texts = [*texts, *(yield searches(others))]
    if folded := [tool_id for tool_id in task.needs if tool_id not in expanded(texts)]:
        yield [("expand_tool", {"tool_id": tool_id}) for tool_id in folded]
    (text,) = yield [("run_script", {"code": task.script(world)})]
    found = re.search(r"^summary: (.*)$", text, re.MULTILINE)
    yield found[1] if found else text


POLICIES: dict[str, Callable[[Task, World, list[str]], Steps]] = {
    "all_tools": native,
    "surface": discovering,
    "scripts": scripting,
}


def searches(needs: Mapping[str, str]) -> Wishes:
    return [("search_tool_by_category", {"query": query, "category_path": []}) for query in needs.values()]


def expanded(texts: Iterable[str]) -> set[str]:
    """The tools that searches expanded by themselves: a model that knows what one takes does not ask again."""
    answers = [json.loads(text) for text in texts]
    return {tool_id for answer in answers for tool_id in answer.get("expanded", ())}


def missing(task: Task, texts: Sequence[str]) -> dict[str, str]:
    """Which tools the searches did not show, each with its own name as the next query."""
    return {
        tool_id: tool_id.replace(".", " ").replace("_", " ")
        for tool_id, text in zip(task.needs, texts, strict=True)
        if f'"tool_id":"{tool_id}"' not in text
    }


def as_value(text: str) -> Any:
    """A result as a plan reads it: fields as attributes; a text that is no JSON as it is."""
    try:
        return json.loads(text, object_hook=lambda fields: SimpleNamespace(**fields))
    except ValueError:
        return text


def extracted(text: str) -> Any:
    """The value in an answer of `tool_output` to a path: the text below the line that names it."""
    return as_value(text.rpartition("\n\n")[2].partition("\n")[2])


def sparse(parts: Mapping[str, Any]) -> Any:
    """A result of which only some paths are known, such as `rows[250]`, to be read like the whole."""
    root: dict[str | int, Any] = {}
    for path, value in parts.items():
        steps = [name or int(number) for name, number in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path)]
        place = root
        for step in steps[:-1]:
            place = place.setdefault(step, {})
        place[steps[-1]] = value
    return _attributes(root)


def _attributes(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    made = {key: _attributes(one) for key, one in value.items()}
    return made if any(isinstance(key, int) for key in made) else SimpleNamespace(**made)
