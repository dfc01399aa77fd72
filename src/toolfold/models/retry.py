"""A model that is asked again after a pause when the failure may be temporary."""

import asyncio
import random

from toolfold.errors import ModelError
from toolfold.model import Model, OnText, Prompt, Reply, complete

_ATTEMPTS = 4
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 20.0
# A model that was too slow is not asked again: the same request would take as long.
SLOW_ADVICE = "raise [model] timeout_s, or set [model] stream = true: each piece of an answer then has that time"


class TransientModelError(ModelError):
    """A failure that may be temporary: too many requests, a server that is busy, a connection that broke."""

    code = "MODEL_BUSY"


class RetryingModel:
    """Wraps a model."""

    def __init__(self, model: Model, *, attempts: int = _ATTEMPTS, first_pause_s: float = _FIRST_PAUSE_S) -> None:
        self._model = model
        self.name = model.name
        self.context_tokens = model.context_tokens
        self.max_output_tokens = model.max_output_tokens
        self.calls_tools = model.calls_tools
        self.count_tokens = model.count_tokens
        self._attempts = attempts
        self._first_pause_s = first_pause_s

    async def complete(self, prompt: Prompt) -> Reply:
        return await self._retry(prompt, None)

    async def stream(self, prompt: Prompt, on_text: OnText) -> Reply:
        return await self._retry(prompt, on_text)

    async def _retry(self, prompt: Prompt, on_text: OnText | None) -> Reply:
        streamed = False

        def forward(piece: str) -> None:
            nonlocal streamed
            streamed = True
            if on_text is not None:
                on_text(piece)

        attempt = 1
        while True:
            try:
                return await complete(self._model, prompt, forward if on_text is not None else None)
            except TransientModelError:
                # Half an answer was shown already: a second attempt would show it twice.
                if attempt >= self._attempts or streamed:
                    raise
            pause = min(self._first_pause_s * 2 ** (attempt - 1), _LONGEST_PAUSE_S)
            await asyncio.sleep(pause * random.uniform(0.75, 1.25))  # noqa: S311 - spreads retries, guards nothing
            attempt += 1
