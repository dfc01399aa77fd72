"""`toolfold bench results`: large results in a loop. "Find X in what Y returns", in three ways to hand a result on.

    whole       all of it stands in the prompt, and is sent again with every step
    truncated   its top and its bottom, together as large as toolfold lets a result be; the rest is gone
    handles     `toolfold serve`: a handle, and `tool_output` for a part

Results are real: those of BFCL's official calls over 12 KB, and recorded ones of other servers (`--data`). Questions
are made by rules that know nothing of toolfold (`outputs/recorded.py`), three for each result, asked one after the
other in one conversation. Without `--model` a policy asks for each piece in the words of the question, for an entry of
a list by its path: what it read must hold the piece. With it that model plays, in the same loop and with the same
words: its answer must hold it.
"""

import asyncio
import json
import random
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from benchmarks.agent.loop import Bounds, Played, Toolset, play
from benchmarks.agent.policies import results as read_last
from benchmarks.agent.toolsets import OPTIONS, AllTools, Surface, definitions_of
from benchmarks.bfcl.endpoint import SeededModel
from benchmarks.bfcl.official import Official
from benchmarks.bfcl.servers import Json, ServedApp, Servers, text_result
from benchmarks.bfcl.settings import built
from benchmarks.measurement import environment
from benchmarks.outputs import holds
from benchmarks.outputs.documents import Question
from benchmarks.outputs.recorded import questions_about, recorded_texts
from benchmarks.processes import free_port, started
from toolfold import tokens
from toolfold.config.sections import Limits
from toolfold.config.sections import Model as ModelSettings
from toolfold.errors import ConfigError
from toolfold.model import Model, Prompt, Reply, ToolOffer, ToolUse
from toolfold.schema_walk.paths import Step, join_path
from toolfold.wire import HttpTarget, connect

SETTINGS = ("whole", "truncated", "handles")
LIMIT = Limits().tool_response_max_bytes
WINDOW = Limits().context_tokens
QUESTIONS = 3
SEED = 20260728
BOUNDS = Bounds(turns=8, seconds=600.0)
TOOL = "records_read"
COLUMNS = ("setting", "results", "found", "of", "over_window", "steps", "tokens_in", "tokens_out")


class _Asked(Question, frozen=True):
    """A question, and the path of what it asks for, where a person would see it: empty, the words do."""

    path: str = ""


class _Task(Struct, frozen=True):
    """A result, by its name, and what is asked of it."""

    name: str
    source: str
    questions: tuple[_Asked, ...]


class _Ran(Struct, frozen=True):
    task: _Task
    found: int
    played: Played
    """Not at all where the result alone is larger than a window of 128,000 tokens."""


def run(
    data: Path | None = None,
    *,
    model: ModelSettings | None = None,
    wheel: str = "",
    settings: str = "",
    sample: int = 0,
    seed: int = 0,
) -> dict[str, Any]:
    """`settings` are some of the names, with commas; `sample` is how many results, chosen by `seed`; 0: all."""
    names = tuple(filter(None, settings.split(","))) or SETTINGS
    if not set(names) <= set(SETTINGS):
        raise ConfigError(f"{settings!r} names a setting that is not there", hints=SETTINGS, next_action="use those")
    texts = dict(large_results(Official(Path(wheel) if wheel else None)))
    if data is not None:
        texts |= {f"recorded/{name}": text for name, text in recorded_texts(data)}
    tasks = list(made_tasks(texts))
    if sample:
        tasks = random.Random(seed).sample(tasks, min(sample, len(tasks)))
    player = SeededModel.create(model, seed) if model is not None else None
    ran = {name: asyncio.run(_play_all(name, tasks, texts, player)) for name in names}
    sources = sorted({task.source for task in tasks})
    rows = [
        {"setting": name, "source": source, **_summed([one for one in found if one.task.source == source])}
        for name, found in ran.items()
        for source in sources
    ]
    columns = (COLUMNS[0], "source", *COLUMNS[1:])
    return {
        "name": "results",
        "table": {"columns": columns, "rows": [[row[column] for column in columns] for row in rows]},
        "metrics": {
            "played_by": player.name if player is not None else "reader",
            "rows": rows,
            "tasks": [
                {"setting": name, "result": one.task.name, "found": one.found, "tokens_in": one.played.input_tokens}
                for name, found in ran.items()
                for one in found
            ],
        },
        "environment": environment("bfcl-eval", "mpmath", "rs-bpe"),
    }


def large_results(official: Official) -> Iterator[tuple[str, str]]:
    """What BFCL's official calls return that is too large to show."""
    for task in official.tasks():
        if not task.long_context:
            continue
        official.forget()
        for turn in range(len(task.answers)):
            for number, (name, arguments) in enumerate(official.calls(task, turn)):
                _, text = official.execute(task, official.server_of[name], name, arguments)
                if len(text.encode()) > LIMIT:
                    yield f"{task.name}/{turn}/{number}/{name}", text
    official.forget()


def made_tasks(texts: dict[str, str]) -> Iterator[_Task]:
    """Questions about each, where the rules find any."""
    for name, text in texts.items():
        rng = random.Random(f"{SEED} {name}")
        recorded = name.startswith("recorded/")
        questions = (
            _questions_about_fields(text, rng)
            if not recorded
            else [_Asked(one.request, one.answer) for one in questions_about(text, rng, QUESTIONS)]
        )
        if questions:
            yield _Task(name, "recorded" if recorded else "bfcl", tuple(questions[:QUESTIONS]))


def _questions_about_fields(text: str, rng: random.Random) -> list[_Asked]:
    """About one object: a field of it, and entries of its lists, by their place. Each value stands there once."""
    fields = json.loads(text)
    lists = {key: value for key, value in fields.items() if isinstance(value, list)}
    plain = [_Asked(f"What is the {key}?", str(value)) for key, value in fields.items() if key not in lists]
    places = [
        _Asked(f"What is entry {number} of {key}?", str(entry), f"{join_path('', Step('key', key))}[{number - 1}]")
        for key, entries in lists.items()
        for number, entry in enumerate(entries, 1)
    ]
    made = [[one for one in rng.sample(some, len(some)) if text.count(one.answer) == 1] for some in (plain, places)]
    return [*made[0][:1], *made[1][: QUESTIONS - 1]]


class _Reader:
    """Implements `toolfold.model.Model`: calls the tool once, and asks a handle for each piece in the words of the
    question. It answers with all that it has read for it."""

    name = "reader"
    context_tokens = 100_000_000
    max_output_tokens = 100_000
    calls_tools = True

    def __init__(self, task: _Task) -> None:
        self._read = ""
        self._waiting = list(task.questions)
        self._first = ToolUse("first", TOOL, {"name": task.name})
        self.pieces: list[str] = []

    async def complete(self, prompt: Prompt) -> Reply:
        texts = read_last(prompt.messages)
        if not texts and not self._read:
            return Reply(uses=(self._first,))
        self._read = self._read or texts[0]
        handle = self._read.partition('tool_output(handle = "')[2].partition('"')[0]
        question = self._waiting[0]
        if handle and (not texts or texts[0] is self._read):
            asked = {"handle": handle, "extract": question.path or question.request}
            return Reply(uses=(ToolUse(f"piece-{len(self.pieces)}", "tool_output", asked),))
        self.pieces.append(texts[0] if handle else self._read)
        del self._waiting[0]
        return Reply(text="Found.")

    def count_tokens(self, text: str) -> int:
        return tokens.count(text)


class _Heard:
    """A model whose answers to the questions are kept."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.pieces: list[str] = []
        self.name, self.context_tokens, self.max_output_tokens = model.name, WINDOW, model.max_output_tokens
        self.calls_tools, self.count_tokens = model.calls_tools, model.count_tokens

    async def complete(self, prompt: Prompt) -> Reply:
        reply = await self._model.complete(prompt)
        if not reply.uses:
            self.pieces.append(reply.text)
        return reply


async def _play_all(name: str, tasks: Sequence[_Task], texts: dict[str, str], model: Model | None) -> list[_Ran]:
    def read(_: str, arguments: Json) -> Json:
        text = texts.get(str(arguments.get("name")))
        return text_result(text) if text is not None else text_result("there is no such record", failed=True)

    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    tool = {"name": "read", "description": "Reads one record by its name.", "inputSchema": schema}
    servers = Servers({"records": ServedApp("records", [tool], read)})
    async with servers.served(), _offered(name, servers) as toolset:
        return [
            _Ran(task, 0, played=Played(ending="over_window"))
            if name == "whole" and tokens.count(texts[task.name]) > WINDOW
            else await _play_one(task, toolset, model)
            for task in tasks
        ]


async def _play_one(task: _Task, toolset: Toolset, model: Model | None) -> _Ran:
    player = _Heard(model) if model is not None else _Reader(task)
    requests = [f"In the record {task.name}: {question.request}" for question in task.questions]
    played = await play(player, toolset, requests, BOUNDS)
    found = sum(holds(text, question.answer) for text, question in zip(player.pieces, task.questions, strict=False))
    return _Ran(task, found, played)


@asynccontextmanager
async def _offered(name: str, servers: Servers) -> AsyncIterator[Toolset]:
    if name != "handles":
        tools = AllTools(servers.specs, await definitions_of(servers.specs))
        try:
            yield tools if name == "whole" else _Truncated(tools)
        finally:
            await tools.aclose()
        return
    with tempfile.TemporaryDirectory(prefix="toolfold-bench-") as folder, ExitStack() as processes:
        port = free_port()
        command = [*await built(servers, Path(folder)), "serve", "--profile", "direct", "--http", f"127.0.0.1:{port}"]
        await asyncio.to_thread(started, command, port, processes)
        connection = await connect(HttpTarget(f"http://127.0.0.1:{port}/mcp"), options=OPTIONS, era="legacy")
        try:
            yield Surface(connection)
        finally:
            await connection.aclose()


class _Truncated:
    """The same tools, whose results are cut in the middle."""

    def __init__(self, tools: AllTools) -> None:
        self._tools = tools
        self.instructions = tools.instructions

    async def offers(self) -> tuple[ToolOffer, ...]:
        return await self._tools.offers()

    async def call(self, name: str, arguments: Json) -> str:
        text = await self._tools.call(name, arguments)
        left = len(text) - LIMIT
        return text if left <= 0 else f"{text[: LIMIT // 2]}\n… {left} characters left out …\n{text[-LIMIT // 2 :]}"


def _summed(ran: Sequence[_Ran]) -> dict[str, Any]:
    return {
        "results": len(ran),
        "found": sum(one.found for one in ran),
        "of": sum(len(one.task.questions) for one in ran),
        "over_window": sum(one.played.ending == "over_window" for one in ran),
        "steps": sum(one.played.turns for one in ran),
        "tokens_in": sum(one.played.input_tokens for one in ran),
        "tokens_out": sum(one.played.output_tokens for one in ran),
    }
