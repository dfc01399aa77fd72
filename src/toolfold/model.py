"""A language model, as two methods: complete a conversation, count tokens. Everything else is an adapter's business.

Stages that can use a model take one of these, or `None`. Nothing here opens a connection. Adapters for real providers
are in `toolfold.models`, the scripted model for tests in `toolfold.testing`.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec
from msgspec import Struct

Role = Literal["system", "user", "assistant", "tool"]


class ToolUse(Struct, frozen=True):
    """A call of one of the offered tools that the model requests. The answer refers to its `id`."""

    id: str
    name: str
    arguments: dict[str, Any]


class Message(Struct, frozen=True, kw_only=True):
    """One turn of a conversation."""

    role: Role
    content: str = ""
    uses: tuple[ToolUse, ...] = ()  # of an `assistant`: the calls it requests
    use_id: str = ""  # of a `tool`: the call that this answers


class ToolOffer(Struct, frozen=True):
    """A tool that the model may call in this turn. `parameters` is a JSON Schema."""

    name: str
    description: str
    parameters: dict[str, Any]


class Usage(Struct, frozen=True):
    """What a completion used. `cost` is in US dollars, `None` where the price is unknown."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None


class Reply(Struct, frozen=True, kw_only=True):
    """The model's answer, and the calls that it requests."""

    text: str = ""
    uses: tuple[ToolUse, ...] = ()
    usage: Usage = Usage()
    cut: bool = False  # the answer ended at the token limit


class Prompt(Struct, frozen=True, kw_only=True):
    """What a model is asked: the conversation, the tools it may call, and the form its answer must have."""

    messages: tuple[Message, ...]
    tools: tuple[ToolOffer, ...] = ()
    answer_schema: dict[str, Any] | None = None  # the answer must be JSON of this schema
    max_output_tokens: int | None = None


class Model(Protocol):
    """Any language model. Implementations raise `ModelError` for every failure, and allow concurrent calls."""

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


# Called with each piece of an answer as it arrives.
OnText = Callable[[str], None]


@runtime_checkable
class _StreamingModel(Protocol):
    """A model that can also stream its answer."""

    async def stream(self, prompt: Prompt, on_text: OnText) -> Reply: ...


async def complete(model: Model, prompt: Prompt, on_text: OnText | None = None) -> Reply:
    """Asks a model; streams where the model can and `on_text` is given."""
    if on_text is not None and isinstance(model, _StreamingModel):
        return await model.stream(prompt, on_text)
    reply = await model.complete(prompt)
    if on_text is not None and reply.text:
        on_text(reply.text)
    return reply


# Each brace that begins no object costs a scan to the error: a text of braces alone would take quadratic time.
_BROKEN_MAX = 200


def json_objects(text: str) -> Iterator[dict[str, Any]]:
    """The outermost JSON objects in what a model wrote, in their order: bare, fenced, or between other words.

    An object that is broken or cut off is skipped up to its break.
    """
    decoder, broken = json.JSONDecoder(), 0
    at = text.find("{")
    while at >= 0 and broken < _BROKEN_MAX:
        try:
            _, end = decoder.raw_decode(text, at)
            value = msgspec.json.decode(text[at:end].encode())  # strict: no NaN, no lone surrogates
        except json.JSONDecodeError as error:
            broken += 1
            at = text.find("{", max(error.pos, at + 1))
        except (msgspec.DecodeError, RecursionError, ValueError):
            return
        else:
            yield value
            at = text.find("{", end)
