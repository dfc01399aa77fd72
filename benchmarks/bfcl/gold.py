"""The policy `gold`: plays the official answer of each turn through a setting, as a model would that knows it.

It shows nothing about wit. It proves that nothing between a model and the servers breaks a task, and gives exact counts
for one and the same plan. What has to be found is searched for by its name in words, then by its description, then
expanded, unless the search did that; what an earlier turn of the task found is known.
"""

import json
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

from benchmarks.agent.policies import Wishes, expanded, results
from benchmarks.agent.toolsets import native_name
from benchmarks.bfcl.official import BfclTask, Call, Official
from toolfold import tokens
from toolfold.model import Prompt, Reply, ToolUse

DONE = "Done."
STORED = "Call tool_output(handle"
CALLED_BY = {"all_tools": "", "surface": "call_tool", "scripts": "run_script"}
"""Which operation calls the tools; empty: each tool by itself."""
Steps = Generator[Wishes | str, list[str], None]
"""Gives what is to be called next, or the answer to a request; is sent the results as the model reads them."""


class GoldModel:
    """Implements `toolfold.model.Model`: says what the official answer says."""

    name = "gold"
    context_tokens = 10_000_000
    max_output_tokens = 100_000
    calls_tools = True

    def __init__(self, setting: str, official: Official, task: BfclTask) -> None:
        self.setting = setting
        self.missed: list[str] = []
        """The tools that the first search for each did not show."""
        plan = [[_Step(official, call) for call in official.calls(task, turn)] for turn in range(len(task.answers))]
        self._steps = POLICIES[setting](plan, self.missed)
        self._turn = 0

    async def complete(self, prompt: Prompt) -> Reply:
        said = self._steps.send(results(prompt.messages)) if self._turn else next(self._steps)
        self._turn += 1
        if isinstance(said, str):
            return Reply(text=said)
        return Reply(uses=tuple(ToolUse(f"use-{self._turn}-{n}", *wish) for n, wish in enumerate(said)))

    def count_tokens(self, text: str) -> int:
        return tokens.count(text)


class _Step:
    """One official call, and the words for it."""

    def __init__(self, official: Official, call: Call) -> None:
        self.name, self.arguments = call
        self.server = official.server_of[self.name]
        self.tool_id = f"{self.server}.{self.name}"
        self.fastmcp = f"{self.server}_{self.name}"
        said = next(tool["description"] for tool in official.definitions[self.server] if tool["name"] == self.name)
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", self.name).replace("_", " ").lower()
        self.queries = (words, said.partition("Tool description: ")[2] or said)


Plan = Sequence[Sequence[_Step]]


def _direct(plan: Plan, missed: list[str]) -> Steps:
    del missed  # there is nothing to search
    for turn in plan:
        if turn:
            yield [(native_name(step.tool_id), step.arguments) for step in turn]
        yield DONE


def _surface(plan: Plan, missed: list[str]) -> Steps:
    known: set[str] = set()
    for turn in plan:
        yield from _discover(turn, known, missed)
        if turn:
            yield [("call_tool", {"tool_id": step.tool_id, "args": step.arguments}) for step in turn]
        yield DONE


def _scripts(plan: Plan, missed: list[str]) -> Steps:
    known: set[str] = set()
    for turn in plan:
        yield from _discover(turn, known, missed)
        if turn:
            needs = {step.tool_id: step.name for step in turn}
            names = ", ".join(needs.values())
            first = f"{names} = use_tools({', '.join(map(json.dumps, needs))})"
            calls = (f"await {step.name}({_keywords(step.arguments)})" for step in turn)
            yield [("run_script", {"code": f"{first}\n[{', '.join(calls)}]"})]
        yield DONE


def _discover(turn: Sequence[_Step], known: set[str], missed: list[str]) -> Steps:
    """Searches what is not known yet, and expands it."""
    new = _unknown(turn, known, lambda step: step.tool_id)
    texts = yield from _search(new, missed, _toolfold_search, lambda step: f'"tool_id":"{step.tool_id}"')
    if folded := [step for step in new if step.tool_id not in expanded(texts)]:
        yield [("expand_tool", {"tool_id": step.tool_id}) for step in folded]


def _fastmcp_search(plan: Plan, missed: list[str]) -> Steps:
    known: set[str] = set()
    for turn in plan:
        new = _unknown(turn, known, lambda step: step.fastmcp)
        yield from _search(new, missed, _peer_search("search_tools"), lambda step: f'"{step.fastmcp}"')
        if turn:
            yield [("call_tool", {"name": step.fastmcp, "arguments": step.arguments}) for step in turn]
        yield DONE


def _fastmcp_code(plan: Plan, missed: list[str]) -> Steps:
    known: set[str] = set()
    for turn in plan:
        new = _unknown(turn, known, lambda step: step.fastmcp)
        yield from _search(new, missed, _peer_search("search"), lambda step: step.fastmcp)
        if new:
            yield [("get_schema", {"tools": [step.fastmcp for step in new]})]
        if turn:
            calls = (f"await call_tool({step.fastmcp!r}, {step.arguments!r})" for step in turn)
            yield [("execute", {"code": f"return [{', '.join(calls)}]"})]
        yield DONE


POLICIES: dict[str, Callable[[Plan, list[str]], Steps]] = {
    "all_tools": _direct,
    "surface": _surface,
    "scripts": _scripts,
    "fastmcp_search": _fastmcp_search,
    "fastmcp_code": _fastmcp_code,
}


def _toolfold_search(query: str) -> tuple[str, dict[str, Any]]:
    return "search_tool_by_category", {"query": query, "category_path": []}


def _peer_search(name: str) -> Callable[[str], tuple[str, dict[str, Any]]]:
    return lambda query: (name, {"query": query})


def _search(
    new: Sequence[_Step],
    missed: list[str],
    wish: Callable[[str], tuple[str, dict[str, Any]]],
    shown: Callable[[_Step], str],
) -> Generator[Wishes | str, list[str], list[str]]:
    """By name, and by description what that did not show. Gives all that it read."""
    wanted, answers = list(new), list[str]()
    for attempt in range(2):
        if not wanted:
            break
        texts = yield [wish(step.queries[attempt]) for step in wanted]
        answers += texts
        read = [text.replace('": "', '":"') for text in texts]
        wanted = [step for step, text in zip(wanted, read, strict=True) if shown(step) not in text]
        if attempt == 0:
            missed += [step.tool_id for step in wanted]
    return answers


def _unknown(turn: Iterable[_Step], known: set[str], name: Callable[[_Step], str]) -> list[_Step]:
    new = list({name(step): step for step in turn if name(step) not in known}.values())
    known.update(map(name, new))
    return new


def _keywords(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())


def altered(setting: str, read: Sequence[tuple[str, str]], answers: Sequence[Sequence[str]]) -> int:
    """How many results reached the model other than the servers sent them. One that is kept under a handle is whole."""
    if setting not in CALLED_BY:
        return 0
    texts = [text for name, text in read if CALLED_BY[setting] in {"", name}]
    sent: Sequence[Any] = [answer for turn in answers for answer in turn]
    if setting == "scripts":
        sent = [[_value(answer) for answer in turn] for turn in answers if turn]
    pairs = [(text, answer) for text, answer in zip(texts, sent, strict=False) if STORED not in text]
    same = [(_summary(text) if setting == "scripts" else text) == answer for text, answer in pairs]
    return same.count(False) + abs(len(texts) - len(sent))


def _summary(text: str) -> Any:
    found = re.search(r"^summary: (.*)$", text, re.MULTILINE)
    return [_value(one) for one in json.loads(found[1])] if found else text


def _value(answer: Any) -> Any:
    try:
        return json.loads(answer) if isinstance(answer, str) else answer
    except ValueError:
        return answer
