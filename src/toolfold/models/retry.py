"""A model with patience: asks again after a pause when the failure may pass by itself."""

import asyncio
import random
from typing import TypeVar

from toolfold.errors import ModelError
from toolfold.model import Model, OnText, Prompt, Reply, complete

_ATTEMPTS = 4
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 20.0

_T = TypeVar("_T")


class TransientModelError(ModelError):
    """A failure that may pass: too many requests, a server that is busy, a connection that broke."""

    code = "MODEL_BUSY"


class RetryingModel:
    """Wraps a model."""

    def __init__(self, model: Model, *, attempts: int = _ATTEMPTS, first_pause_s: float = _FIRST_PAUSE_S) -> None:
        self._model = model
        self.name = model.name
        self.context_tokens = model.context_tokens
        self.max_output_tokens = model.max_output_tokens
        self.calls_tools = model.calls_tools
        self._attempts = attempts
        self._first_pause_s = first_pause_s

    def count_tokens(self, text: str) -> int:
        return self._model.count_tokens(text)

    async def complete(self, prompt: Prompt) -> Reply:
        return await self._patiently(prompt, None)

    async def stream(self, prompt: Prompt, on_text: OnText) -> Reply:
        return await self._patiently(prompt, on_text)

    async def _patiently(self, prompt: Prompt, on_text: OnText | None) -> Reply:
        said = False

        def told(piece: str) -> None:
            nonlocal said
            said = True
            if on_text is not None:
                on_text(piece)

        for attempt in range(1, self._attempts + 1):
            try:
                return await complete(self._model, prompt, told if on_text is not None else None)
            except TransientModelError:
                # Half an answer was shown already: saying it anew would show it twice.
                if attempt == self._attempts or said:
                    raise
            pause = min(self._first_pause_s * 2 ** (attempt - 1), _LONGEST_PAUSE_S)
            await asyncio.sleep(pause * random.uniform(0.75, 1.25))  # noqa: S311 - spreads retries, guards nothing
        raise ModelError("no attempt was made", next_action="allow at least one")
