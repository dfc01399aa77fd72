"""A model that says what it was told to say, for the assistant; as a program, a prompt with such a model beside it."""

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from toolfold.model import OnText, Prompt, Reply, ToolUse


class Scripted:
    """Answers with the given replies, one after the other, and keeps what it was asked."""

    name = "scripted"
    context_tokens = 32_000
    max_output_tokens = 2_000

    def __init__(self, replies: Sequence[Reply], *, calls_tools: bool = True) -> None:
        self._replies = list(replies)
        self.calls_tools = calls_tools
        self.asked: list[Prompt] = []

    async def complete(self, prompt: Prompt) -> Reply:
        self.asked.append(prompt)
        return self._replies.pop(0) if self._replies else Reply(text="I have nothing more to say.")

    async def stream(self, prompt: Prompt, on_text: OnText) -> Reply:
        reply = await self.complete(prompt)
        for word in reply.text.split(" "):
            on_text(word + " ")
        return reply

    def count_tokens(self, text: str) -> int:
        return len(text) // 4


def use(name: str, **arguments: str) -> Reply:
    return Reply(uses=(ToolUse(f"use-{name}", name, dict(arguments)),))


EXPLANATION = (
    "next(42) is None because your own next(x) shadows the built-in one and its body, x + 1, has no return statement. "
    "Write: return x + 1"
)


def main() -> None:
    from toolfold.config import Settings
    from toolfold.faces.cli.repl import _run_repl
    from toolfold.faces.cli.runner import run_with_gateway
    from toolfold.faces.cli.terminal import Output
    from toolfold.gateway import Gateway

    home = Path(sys.argv[1])
    model = Scripted([use("inspect", expr="next"), Reply(text=EXPLANATION)])

    async def work(gateway: Gateway) -> int:
        code = await _run_repl(gateway, Output(), model=model)
        (home / "asked.json").write_bytes(msgspec.json.encode(model.asked))
        return code

    sys.exit(run_with_gateway(Settings(home=home), work))


if __name__ == "__main__":
    main()
