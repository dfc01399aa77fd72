"""A language model, as two methods: complete a conversation, count tokens. Everything else is an adapter's business.

Stages that can use a model take one of these, or `None`. Nothing here talks to anybody. The scripted model for tests
stands in `toolfold.testing`, adapters for real providers in `toolfold.agent`.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec
from msgspec import Struct

Role = Literal["system", "user", "assistant", "tool"]


class ToolUse(Struct, frozen=True):
    """A model's wish to call one of the tools it was offered. `id` ties the answer to it."""

    id: str
    name: str
    arguments: dict[str, Any]


class Message(Struct, frozen=True, kw_only=True):
    """One turn of a conversation."""

    role: Role
    content: str = ""
    uses: tuple[ToolUse, ...] = ()
    """For `assistant`: what it wanted called."""
    use_id: str = ""
    """For `tool`: which wish this answers."""


class ToolOffer(Struct, frozen=True):
    """A tool that the model may call in this turn. `parameters` is a JSON Schema."""

    name: str
    description: str
    parameters: dict[str, Any]


class Usage(Struct, frozen=True):
    """What a completion took. `cost` is in US dollars, `None` where the price is not known."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None


class Reply(Struct, frozen=True, kw_only=True):
    """What the model said and wants called."""

    text: str = ""
    uses: tuple[ToolUse, ...] = ()
    usage: Usage = Usage()
    cut: bool = False
    """The answer ended at the token limit, not by itself."""


class Prompt(Struct, frozen=True, kw_only=True):
    """What a model is asked: the conversation, the tools it may call, and the form its answer must have."""

    messages: tuple[Message, ...]
    tools: tuple[ToolOffer, ...] = ()
    answer_schema: dict[str, Any] | None = None
    """Where set, the answer must be JSON of this schema."""
    max_output_tokens: int | None = None


class Model(Protocol):
    """Any language model. Implementations raise a `ModelError` for whatever goes wrong, and may be called at once."""

    @property
    def name(self) -> str: ...

    @property
    def context_tokens(self) -> int:
        """The window: prompt and answer together."""

    @property
    def max_output_tokens(self) -> int: ...

    @property
    def calls_tools(self) -> bool:
        """Whether it can call tools natively. Others are asked for JSON commands."""

    async def complete(self, prompt: Prompt) -> Reply: ...

    def count_tokens(self, text: str) -> int: ...


OnText = Callable[[str], None]
"""Told each piece of an answer as it comes."""


@runtime_checkable
class StreamingModel(Protocol):
    """A model that can also tell its answer piece by piece."""

    async def stream(self, prompt: Prompt, on_text: OnText) -> Reply: ...


async def complete(model: Model, prompt: Prompt, on_text: OnText | None = None) -> Reply:
    """Asks a model, piece by piece where it can and somebody listens."""
    if on_text is not None and isinstance(model, StreamingModel):
        return await model.stream(prompt, on_text)
    reply = await model.complete(prompt)
    if on_text is not None and reply.text:
        on_text(reply.text)
    return reply


_BROKEN_MAX = 200
"""Braces that begin no object, after which nobody looks for more."""


def json_objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in what a model wrote, outermost ones, in their order: bare, fenced, or between other words.

    An object that is broken or cut off gives nothing, nor does what stands before its break.
    """
    decoder, broken = json.JSONDecoder(), 0
    at = text.find("{")
    while at >= 0 and broken < _BROKEN_MAX:
        try:
            _, end = decoder.raw_decode(text, at)
            found = msgspec.json.decode(text[at:end].encode())  # strict: no NaN, no half characters
        except json.JSONDecodeError as error:
            broken += 1
            at = text.find("{", max(error.pos, at + 1))
        except (msgspec.DecodeError, RecursionError, ValueError):
            return
        else:
            yield found
            at = text.find("{", end)
