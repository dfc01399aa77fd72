"""What the model is shown: the tools found so far, and the history inside a token budget.

History that finds no more room is stored and stands as its handle, oldest first; nothing is ever cut. The tools that
were found stand in the first message, after the inspector, each once.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct, structs

from toolfold.agent import prompts
from toolfold.agent.environment import CommandResult, Descriptor
from toolfold.model import Message, Reply

_STORE_MIN_TOKENS = 400
"""Tokens up to which a result is not worth storing: its handle would take as much."""

_Store = Callable[[str, str, str], Awaitable[str]]
"""`(name, arguments, text)` to the message with the handle."""


class CommandAnswer(Struct, frozen=True, kw_only=True):
    """The answer to one command: whose it is, what it says, and how many tokens that takes."""

    use_id: str
    name: str
    arguments: str
    text: str
    tokens: int
    stored: bool = False


class _Turn(Struct, frozen=True, kw_only=True):
    """What the model said, and what came of it."""

    reply: Reply
    answers: tuple[CommandAnswer, ...]
    note: str = ""
    """Where the reply held no command: what was wrong with it."""
    said_tokens: int = 0
    """How many tokens the reply and the note take, which stay whatever becomes of the answers."""

    @property
    def tokens(self) -> int:
        return self.said_tokens + sum(answer.tokens for answer in self.answers)


class Conversation:
    """One run's. `count` counts tokens the way the model does."""

    def __init__(
        self, task: str, tree: dict[str, object], preloaded: tuple[Descriptor, ...], count: Callable[[str], int]
    ) -> None:
        self.task = task
        self.tree = tree
        self.turns: list[_Turn] = []
        self.searched = False
        self.fruitless = 0
        self.preloaded = preloaded
        self._found: dict[str, Descriptor] = {}
        self._count = count

    @property
    def available_tools(self) -> tuple[Descriptor, ...]:
        """The inspector first, then every tool found, in the order of finding."""
        own = {descriptor["tool_id"] for descriptor in self.preloaded}
        return (*self.preloaded, *(one for tool_id, one in self._found.items() if tool_id not in own))

    def knows(self, tool_id: str) -> bool:
        return any(descriptor["tool_id"].casefold() == tool_id.casefold() for descriptor in self.available_tools)

    def took(self, result: CommandResult, *, searched: bool) -> None:
        """A command came back. What a search found is available from now on; one that found nothing new was fruitless.
        Searching is worth it again after something that counts."""
        self.fruitless = 0 if result.counted else self.fruitless
        if not searched:
            return
        self.searched = True
        new = [one for one in result.found if one["tool_id"] not in self._found]
        for descriptor in new:
            self._found[descriptor["tool_id"]] = descriptor
        self.fruitless = 0 if new else self.fruitless + 1

    def answer(self, use_id: str, name: str, arguments: str, text: str) -> CommandAnswer:
        return CommandAnswer(use_id=use_id, name=name, arguments=arguments, text=text, tokens=self._count(text))

    def add(self, reply: Reply, answers: tuple[CommandAnswer, ...] = (), note: str = "") -> None:
        """A turn is over."""
        said = self._count(reply.text) + sum(self._count(to_json(use)) for use in reply.uses) + self._count(note)
        self.turns.append(_Turn(reply=reply, answers=answers, note=note, said_tokens=said))

    def messages(self, system: str, last: str = "") -> tuple[Message, ...]:
        """The whole conversation. `last` is said at its end."""
        found = [Message(role="system", content=system), Message(role="user", content=self.opening())]
        for turn in self.turns:
            found.append(Message(role="assistant", content=turn.reply.text, uses=turn.reply.uses))
            found += _answer_messages(turn)
        if last:
            found.append(Message(role="user", content=last))
        return tuple(found)

    def opening(self) -> str:
        """The task and what is there."""
        return prompts.opening_message(self.task, self.tree, self.available_tools)

    async def fit(self, budget: int, store: _Store) -> int:
        """Stores what does not fit, oldest first, and tells how many results that were."""
        total = sum(turn.tokens for turn in self.turns)
        moved = 0
        for at, turn in enumerate(self.turns):
            if total <= budget:
                break
            answers = []
            for answer in turn.answers:
                if total > budget and not answer.stored and answer.tokens > _STORE_MIN_TOKENS:
                    message = await store(answer.name, answer.arguments, answer.text)
                    tokens = self._count(message)
                    total += tokens - answer.tokens
                    moved += 1
                    answer = structs.replace(answer, text=message, tokens=tokens, stored=True)  # noqa: PLW2901 - the loop's own value, renewed
                answers.append(answer)
            self.turns[at] = structs.replace(turn, answers=tuple(answers))
        return moved


def _answer_messages(turn: _Turn) -> list[Message]:
    """Native calls are answered one by one; everything else in one message."""
    if turn.reply.uses:
        texts: dict[str, list[str]] = {use.id: [] for use in turn.reply.uses}
        for answer in turn.answers:
            texts[answer.use_id].append(answer.text)
        found = [
            Message(role="tool", use_id=use_id, content="\n\n".join(lines) or turn.note or "(no answer)")
            for use_id, lines in texts.items()
        ]
        return found if turn.note == "" or not turn.answers else [*found, Message(role="user", content=turn.note)]
    body = "\n\n".join(answer.text for answer in turn.answers)
    return [Message(role="user", content="\n\n".join(part for part in (body, turn.note) if part) or "(no answer)")]


def format_result(name: str, detail: str, result: CommandResult) -> str:
    """A result under a line that says what it is of."""
    return f"[{name} {detail}] {'ok' if result.ok else 'failed'}\n{result.text}"


def to_json(value: Any) -> str:
    import msgspec

    return msgspec.json.encode(value, enc_hook=str).decode()
