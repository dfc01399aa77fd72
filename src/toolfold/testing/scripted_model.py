"""A language model for tests: it answers from a list or a function, and records what it was asked."""

from collections.abc import Callable, Iterable

from toolfold import tokens
from toolfold.errors import ModelError
from toolfold.model import Prompt, Reply, Usage

# What the model says, or the error that it fails with.
Answer = str | Reply | ModelError

__all__ = ["Answer", "ScriptedModel"]


class ScriptedModel:
    """Implements `toolfold.model.Model`. Given a list, it fails when the list is used up."""

    def __init__(
        self,
        answers: Iterable[Answer] | Callable[[Prompt], Answer] = (),
        *,
        name: str = "scripted",
        context_tokens: int = 32_000,
        max_output_tokens: int = 2_000,
        calls_tools: bool = True,
        price: float | None = None,
    ) -> None:
        self._answers = answers if callable(answers) else iter(list(answers))
        self.name = name
        self.context_tokens = context_tokens
        self.max_output_tokens = max_output_tokens
        self.calls_tools = calls_tools
        self._price = price
        # Every prompt it was given, in order.
        self.prompts: list[Prompt] = []

    async def complete(self, prompt: Prompt) -> Reply:
        self.prompts.append(prompt)
        answer = self._answers(prompt) if callable(self._answers) else next(self._answers, None)
        if answer is None:
            raise ModelError("the script of the model is used up")
        if isinstance(answer, ModelError):
            raise answer
        if isinstance(answer, Reply):
            return answer
        input_tokens = sum(self.count_tokens(message.content) for message in prompt.messages)
        return Reply(text=answer, usage=Usage(input_tokens, self.count_tokens(answer), self._price))

    def count_tokens(self, text: str) -> int:
        return tokens.count(text)
