"""What one extraction may spend on its model, and what it has spent. Every call of a strategy goes through here."""

from toolfold.errors import ModelError
from toolfold.model import Model, Prompt, Reply, Usage


class ModelBudget:
    """A model whose tokens and cost are counted over all calls; a call beyond a limit is refused."""

    def __init__(self, model: Model, max_tokens: int = 0, max_cost: float = 0.0) -> None:
        self.model = model
        self._max_tokens = max_tokens
        self._max_cost = max_cost
        self._reserved = 0
        self.usage = Usage()
        self.calls = 0

    @property
    def output_tokens(self) -> int:
        """Tokens reserved for one answer: the model's limit, and at most half of its window."""
        return max(1, min(self.model.max_output_tokens, self.model.context_tokens // 2))

    async def complete(self, prompt: Prompt) -> Reply:
        size = sum(self.model.count_tokens(message.content) for message in prompt.messages)
        wanted = size + (prompt.max_output_tokens or 0)
        self._check(wanted)
        # Chunks are asked concurrently: what is under way counts as spent, else all of them would pass the check.
        self._reserved += wanted
        try:
            reply = await self.model.complete(prompt)
        finally:
            self._reserved -= wanted
        self.calls += 1
        used = reply.usage
        cost = self.usage.cost if used.cost is None else (self.usage.cost or 0.0) + used.cost
        # Not every provider reports its use: then it is counted here.
        self.usage = Usage(
            self.usage.input_tokens + (used.input_tokens or size),
            self.usage.output_tokens + (used.output_tokens or self.model.count_tokens(reply.text)),
            cost,
        )
        return reply

    def _check(self, wanted: int) -> None:
        spent = self.usage.input_tokens + self.usage.output_tokens + self._reserved
        if self._max_tokens and spent + wanted > self._max_tokens:
            raise ModelError(
                f"the extraction may take {self._max_tokens} tokens: {spent} are spent, and a call needs {wanted}",
                next_action="ask for less, or raise extract_max_tokens in [outputs]",
            )
        if self._max_cost and (self.usage.cost or 0.0) >= self._max_cost:
            raise ModelError(
                f"the extraction may cost {self._max_cost} US dollars, and {self.usage.cost} are spent",
                next_action="ask for less, or raise extract_max_cost in [outputs]",
            )
