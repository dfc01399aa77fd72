"""What the model reads: the available tools, and the history inside a token budget.

History that does not fit is stored and replaced by its handle, oldest first; nothing is ever cut. The available tools
stand in the first message, after the inspector, each once; a model that calls natively is offered each as well.
"""

import re
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct, structs

from toolfold.agent import prompts
from toolfold.agent.commands import Search, Single, UseTool
from toolfold.agent.environment import CommandResult, Descriptor
from toolfold.agent.record import to_json, to_plain
from toolfold.model import Message, Reply, ToolOffer, ToolUse

# Tokens up to which a result is not worth storing: its handle would take as much.
_STORE_MIN_TOKENS = 400

_SAME_RESULT = "Same call, same result: finish. Answer the task with what you have, or do something else."
# The longest name of a tool that providers take.
_NATIVE_NAME_MAX = 64

# `(name, arguments, text)` to the message with the handle.
_Store = Callable[[str, str, str], Awaitable[str]]


class _Answer(Struct, frozen=True, kw_only=True):
    use_id: str
    name: str
    arguments: str
    text: str
    tokens: int
    stored: bool = False


class _Turn(Struct, frozen=True, kw_only=True):
    """A reply of the model, and the answers to its commands. `note` says what was wrong with a reply without one."""

    reply: Reply
    answers: tuple[_Answer, ...]
    note: str
    fixed_tokens: int  # of the reply and the note, which are never stored

    @property
    def tokens(self) -> int:
        return self.fixed_tokens + sum(answer.tokens for answer in self.answers)


class Conversation:
    """One run's. `count` counts tokens the way the model does."""

    def __init__(
        self,
        task: str,
        tree: dict[str, object],
        preloaded: tuple[Descriptor, ...],
        count: Callable[[str], int],
        *,
        native: bool,
    ) -> None:
        self.searched = False
        self.fruitless_searches = 0
        self.repeated_turns = 0  # in a row, in which every call was made before, with the same result
        self._results: dict[tuple[str, str], str] = {}
        self._native = native
        self.preloaded = preloaded
        self._task = task
        self._tree = tree
        self._turns: list[_Turn] = []
        self._tools: dict[str, Descriptor] = {}
        self._count = count

    @property
    def available_tools(self) -> tuple[Descriptor, ...]:
        """The inspector first, then every tool of a search, in the order they were found."""
        own = {descriptor["tool_id"] for descriptor in self.preloaded}
        return (*self.preloaded, *(tool for tool_id, tool in self._tools.items() if tool_id not in own))

    def has_tool(self, tool_id: str) -> bool:
        return any(descriptor["tool_id"].casefold() == tool_id.casefold() for descriptor in self.available_tools)

    def resolve_tool(self, name: str) -> str | None:
        """The available tool that a model means: by its id, its native name, or its own where one has it."""
        ids = [tool["tool_id"] for tool in self.available_tools]
        for form in (str, _native_name, lambda tool_id: tool_id.partition(".")[2]):
            meant = [tool_id for tool_id in ids if form(tool_id).casefold() == name.casefold()]
            if len(meant) == 1:
                return str(meant[0])
        return None

    def tool_offers(self) -> tuple[ToolOffer, ...]:
        """The available tools for native calls; the inspector among them while it has something to show."""
        folded = any(tool.get("has_hidden_fields") for tool in self.available_tools)
        shown = self.available_tools if folded else self.available_tools[1:]
        return tuple(_tool_offer(tool) for tool in shown)

    def add_turn(
        self, reply: Reply, answered: Sequence[tuple[str, Single, CommandResult]] = (), *, note: str = ""
    ) -> None:
        """A reply with the results of its commands, each with the id of its tool use."""
        if self._native and not reply.uses and answered:
            reply, answered = self._as_native(answered)
        fixed = self._count(reply.text) + sum(self._count(to_json(use)) for use in reply.uses) + self._count(note)
        repeats = [self._is_repeat(command, result) for _, command, result in answered]
        self.repeated_turns = self.repeated_turns + 1 if repeats and all(repeats) else 0
        answers = tuple(self._answer(*item, repeat) for item, repeat in zip(answered, repeats, strict=True))
        self._turns.append(_Turn(reply=reply, answers=answers, note=note, fixed_tokens=fixed))

    def _as_native(
        self, answered: Sequence[tuple[str, Single, CommandResult]]
    ) -> tuple[Reply, Sequence[tuple[str, Single, CommandResult]]]:
        """A turn whose calls a model wrote as text, as if it had made them: so it reads their results as such."""
        ids = [f"turn-{len(self._turns) + 1}-{number}" for number in range(len(answered))]
        uses = [_as_use(use_id, command) for use_id, (_, command, _) in zip(ids, answered, strict=True)]
        items = [(use_id, command, result) for use_id, (_, command, result) in zip(ids, answered, strict=True)]
        return Reply(uses=tuple(uses)), items

    def _is_repeat(self, command: Single, result: CommandResult) -> bool:
        if not isinstance(command, UseTool):
            return False
        call = (command.tool_id.casefold(), to_json(command.args))
        before, self._results[call] = self._results.get(call), result.text
        return before == result.text

    def _answer(self, use_id: str, command: Single, result: CommandResult, repeat: bool) -> _Answer:
        if result.counted:
            self.fruitless_searches = 0  # something was done: searching is worth it again
        if isinstance(command, Search):
            self._add_tools(result.found, found=result.ok)
        plain = to_plain(command)
        keys = ("tool_id", "query", "handle", "agent", "status", "problem")
        detail = str(next((plain[key] for key in keys if key in plain), "script"))
        others = {key: value for key, value in plain.items() if key not in ("type", "reasoning", "code")}
        text = f"[{command.command} {detail}] {'ok' if result.ok else 'error'}\n{result.text}"
        text += f"\n\n{_SAME_RESULT}" if repeat else ""
        return _Answer(
            use_id=use_id,
            name=detail,
            arguments=to_json(plain.get("args", others)),
            text=text,
            tokens=self._count(text),
        )

    def _add_tools(self, tools: Sequence[Descriptor], *, found: bool) -> None:
        """Makes the tools of a search available. A search that found nothing, or nothing new, is fruitless."""
        self.searched = True
        new = {tool["tool_id"]: tool for tool in tools if tool["tool_id"] not in self._tools}
        self._tools.update(new)
        self.fruitless_searches = 0 if new and found else self.fruitless_searches + 1

    def messages(self, system: str, last: str = "") -> tuple[Message, ...]:
        """The whole conversation, with `last` as its last message."""
        messages = [Message(role="system", content=system), Message(role="user", content=self.opening())]
        for turn in self._turns:
            messages.append(Message(role="assistant", content=turn.reply.text, uses=turn.reply.uses))
            messages += _answer_messages(turn)
        if last:
            messages.append(Message(role="user", content=last))
        return tuple(messages)

    def opening(self) -> str:
        """The task and the available tools."""
        return prompts.opening_message(self._task, self._tree, self.available_tools, native=self._native)

    async def fit(self, budget: int, store: _Store) -> int:
        """Stores what does not fit, oldest first. Returns the number of results that were stored."""
        total = sum(turn.tokens for turn in self._turns)
        moved = 0
        for position, turn in enumerate(self._turns):
            if total <= budget:
                break
            answers = list(turn.answers)
            for number, answer in enumerate(answers):
                if total <= budget or answer.stored or answer.tokens <= _STORE_MIN_TOKENS:
                    continue
                message = await store(answer.name, answer.arguments, answer.text)
                tokens = self._count(message)
                total += tokens - answer.tokens
                moved += 1
                answers[number] = structs.replace(answer, text=message, tokens=tokens, stored=True)
            self._turns[position] = structs.replace(turn, answers=tuple(answers))
        return moved


def _native_name(tool_id: str) -> str:
    """A name that every provider takes."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", tool_id)[-_NATIVE_NAME_MAX:]


def _as_use(use_id: str, command: Single) -> ToolUse:
    if isinstance(command, UseTool):
        return ToolUse(use_id, _native_name(command.tool_id), command.args)
    plain = to_plain(command)
    return ToolUse(use_id, plain.pop("type"), {key: value for key, value in plain.items() if value})


def _tool_offer(tool: Descriptor) -> ToolOffer:
    if "args_schema" in tool:
        return ToolOffer(_native_name(tool["tool_id"]), tool["description"], tool["args_schema"])
    arguments = "; ".join(tool.get("input_params", ()))
    description = f"{tool['description']}\nArguments: {arguments}"
    return ToolOffer(_native_name(tool["tool_id"]), description, {"type": "object"})


def _answer_messages(turn: _Turn) -> list[Message]:
    if not turn.reply.uses:
        texts = [answer.text for answer in turn.answers]
        return [Message(role="user", content="\n\n".join(filter(None, [*texts, turn.note])) or "(no answer)")]
    # Providers refuse a conversation in which a native call has no answer of its own.
    answers: dict[str, list[str]] = {use.id: [] for use in turn.reply.uses}
    for answer in turn.answers:
        answers[answer.use_id].append(answer.text)
    return [
        Message(role="tool", use_id=use_id, content="\n\n".join(texts) or turn.note or "(no answer)")
        for use_id, texts in answers.items()
    ]
