"""A plain tool-calling loop, as most programs have one, with exact counts of what the model is sent and says.

It knows nothing of toolfold: what it offers and calls comes as a toolset. Models that cannot call tools natively are
asked for one JSON object a turn.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from toolfold import tokens
from toolfold.errors import ModelError, ToolfoldError
from toolfold.model import Message, Model, Prompt, Reply, ToolOffer, ToolUse, json_objects

SYSTEM = "You do tasks with tools. Call tools until the task is done, then answer in one sentence without calling any."
COMMANDS = """\
You cannot call tools directly. Answer with one JSON object: {"tool": NAME, "arguments": {…}} to call a tool, or
{"answer": TEXT} when the task is done. The tools:
"""
COMMAND_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"tool": {"type": "string"}, "arguments": {"type": "object"}, "answer": {"type": "string"}},
}


class Toolset(Protocol):
    """What a model is offered, and what happens when it calls it. Errors are results, too."""

    async def instructions(self) -> str: ...

    async def offers(self) -> tuple[ToolOffer, ...]: ...

    async def call(self, name: str, arguments: dict[str, Any]) -> str: ...


class Bounds(Struct, frozen=True):
    """Where a loop ends that does not end by itself."""

    turns: int = 30
    """For one request."""
    seconds: float = 300.0
    answer_tokens: int | None = None
    """The longest answer of the model in one turn."""


class Played(Struct, kw_only=True):
    """One run of the loop. Tokens are o200k, over all that was sent in all turns, whatever a provider would bill."""

    ending: str = "answered"
    answer: str = ""
    turns: int = 0
    calls: int = 0
    input_tokens: int = 0
    first_input_tokens: int = 0
    output_tokens: int = 0
    billed_input_tokens: int = 0
    """What the model itself said it took; 0 where it does not say."""
    billed_output_tokens: int = 0
    cost: float | None = None
    seconds: float = 0.0


BeginRequest = Callable[[], Awaitable[None]]


async def _nothing() -> None:
    """What happens before a request where nothing does."""


async def play(
    model: Model, toolset: Toolset, task: str | Sequence[str], bounds: Bounds, begin: BeginRequest = _nothing
) -> Played:
    """Runs until the model answers without a call, or its bounds are reached. `task` may be several requests, said one
    after the other; `begin` is awaited before each."""
    played = Played()
    started = time.perf_counter()
    try:
        async with asyncio.timeout(bounds.seconds):
            messages = [Message(role="system", content=f"{SYSTEM}\n\n{await toolset.instructions()}".strip())]
            for request in [task] if isinstance(task, str) else task:
                await begin()
                messages.append(Message(role="user", content=request))
                await _turns(model, toolset, messages, bounds, played)
                if played.ending != "answered":
                    break
                messages.append(Message(role="assistant", content=played.answer))
    except TimeoutError:
        played.ending = "out_of_time"
    except ModelError as error:
        played.ending = f"model_error: {error.message[:200]}"
    except ToolfoldError as error:
        played.ending = f"tools_error: {error.message[:200]}"
    played.seconds = time.perf_counter() - started
    return played


async def _turns(model: Model, toolset: Toolset, messages: list[Message], bounds: Bounds, played: Played) -> None:
    last = played.turns + bounds.turns
    while played.turns < last:
        prompt = as_prompt(model, messages, await toolset.offers(), bounds)
        count_sent(played, prompt)
        reply = await model.complete(prompt)
        count_output(played, reply)
        if model.calls_tools:
            uses, answer = reply.uses or written_calls(reply.text, prompt.tools, played.turns), reply.text
        else:
            uses, answer = read_command(reply.text, played.turns)
        if not uses:
            played.answer = answer
            return
        results = await asyncio.gather(*(toolset.call(use.name, use.arguments) for use in uses))
        played.calls += len(uses)
        said = reply.text if reply.uses or not model.calls_tools else ""
        messages.append(Message(role="assistant", content=said, uses=uses if model.calls_tools else ()))
        for use, result in zip(uses, results, strict=True):
            role: Any = "tool" if model.calls_tools else "user"
            messages.append(Message(role=role, content=result, use_id=use.id if model.calls_tools else ""))
    played.ending = "out_of_turns"


def as_prompt(model: Model, messages: list[Message], offers: tuple[ToolOffer, ...], bounds: Bounds) -> Prompt:
    if model.calls_tools:
        return Prompt(messages=tuple(messages), tools=offers, max_output_tokens=bounds.answer_tokens)
    first, *rest = messages
    told = f"{first.content}\n\n{COMMANDS}{msgspec.json.encode(offers).decode()}"
    return Prompt(
        messages=(Message(role="system", content=told), *rest),
        answer_schema=COMMAND_SCHEMA,
        max_output_tokens=bounds.answer_tokens,
    )


def written_calls(text: str, offers: tuple[ToolOffer, ...], turn: int) -> tuple[ToolUse, ...]:
    """The first call that a model wrote as text instead of making it: small ones do, and most loops take it."""
    names = {offer.name for offer in offers}
    for said in json_objects(text):
        if said.get("name") in names and isinstance(said.get("arguments"), dict):
            return (ToolUse(f"turn-{turn}", said["name"], said["arguments"]),)
    return ()


def read_command(text: str, turn: int) -> tuple[tuple[ToolUse, ...], str]:
    """The call or the answer in a text; what is neither is taken for an answer, as people would read it."""
    command = next(json_objects(text), {})
    name, arguments = command.get("tool"), command.get("arguments")
    if isinstance(name, str) and name:
        return (ToolUse(f"turn-{turn}", name, arguments if isinstance(arguments, dict) else {}),), ""
    return (), str(command.get("answer") or text)


def sent_tokens(prompt: Prompt) -> int:
    """Everything that goes to the model in one turn."""
    return sum(_message_tokens(one) for one in prompt.messages) + _offered.tokens(prompt.tools)


def count_sent(played: Played, prompt: Prompt) -> None:
    sent = sent_tokens(prompt)
    played.turns += 1
    played.input_tokens += sent
    played.first_input_tokens = played.first_input_tokens or sent


def count_output(played: Played, reply: Reply) -> None:
    played.output_tokens += tokens.count(reply.text) + sum(_use_tokens(one) for one in reply.uses)
    played.billed_input_tokens += reply.usage.input_tokens
    played.billed_output_tokens += reply.usage.output_tokens
    if reply.usage.cost is not None:
        played.cost = (played.cost or 0.0) + reply.usage.cost


def _message_tokens(message: Message) -> int:
    return tokens.count(message.content) + sum(_use_tokens(one) for one in message.uses)


def _use_tokens(use: ToolUse) -> int:
    return tokens.count(use.name) + tokens.count(msgspec.json.encode(use.arguments).decode())


class _Offered:
    """Thousands of definitions are sent again each turn: the same tuple of them is counted once."""

    def __init__(self) -> None:
        self._last: tuple[ToolOffer, ...] = ()
        self._count = 0

    def tokens(self, offers: tuple[ToolOffer, ...]) -> int:
        if offers is not self._last:
            self._last, self._count = offers, sum(_counted(msgspec.json.encode(one)) for one in offers)
        return self._count


_offered = _Offered()


@cache
def _counted(written: bytes) -> int:
    """Definitions are sent again each turn, so each is counted once."""
    return tokens.count(written.decode())
