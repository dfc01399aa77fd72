"""The assistant beside the prompt: a short loop of a model and the three tools over one session.

Any `Model` will do: one that calls tools natively is offered them, another is asked for JSON commands. Rounds and the
length of the conversation are bounded. Each step is emitted as an event, whole; a person sees it in short.
"""

from typing import Any, Protocol

import msgspec

from toolfold.live.prompts import COMMANDS, OFFERS, SYSTEM
from toolfold.live.session import Envelope, LiveSession
from toolfold.model import Message, Model, Prompt, Reply, ToolUse, complete, json_objects
from toolfold.text import truncate

_ROUNDS_MAX = 8
_RECENT_MAX_CHARS = 4000
_ANSWER_TOKENS = 1200


class AssistantListener(Protocol):
    """Called with what the assistant says and does, as it happens."""

    def text(self, piece: str) -> None: ...

    def tool(self, name: str, arguments: dict[str, Any], answer: Envelope) -> None: ...


class Assistant:
    """One conversation about one session."""

    def __init__(self, model: Model, session: LiveSession, listener: AssistantListener) -> None:
        self.model = model
        self._session = session
        self._listener = listener
        self._exchanges: list[list[Message]] = []

    async def ask(self, question: str, *, recent: str = "") -> str:
        """Answers a question. `recent` is what was typed and printed at the prompt before it."""
        text = f"Recently at the prompt:\n{recent[-_RECENT_MAX_CHARS:]}\n\nQuestion: {question}" if recent else question
        exchange = [Message(role="user", content=text)]
        self._exchanges.append(exchange)
        self._session.events.emit("live.ask", question=question, model=self.model.name)
        answer = ""
        for number in range(_ROUNDS_MAX):
            last = number == _ROUNDS_MAX - 1
            reply = await self._complete(tools=not last)
            uses = () if last else self._tool_uses(reply)
            exchange.append(Message(role="assistant", content=reply.text, uses=reply.uses if not last else ()))
            if not uses:
                answer = self._answer_text(reply)
                break
            exchange += [await self._call_tool(use) for use in uses]
        self._session.events.emit("live.answer", text=answer)
        return answer

    async def _complete(self, *, tools: bool) -> Reply:
        native = self.model.calls_tools
        system = SYSTEM if native else f"{SYSTEM}\n\n{COMMANDS}"
        if not tools:
            system += "\n\nNo more tools now: give your answer."
        prompt = Prompt(
            messages=(Message(role="system", content=system), *self._history()),
            tools=OFFERS if native and tools else (),
            max_output_tokens=min(_ANSWER_TOKENS, self.model.max_output_tokens),
        )
        # JSON commands are not for a person to read: only native answers are streamed.
        reply = await complete(self.model, prompt, self._listener.text if native else None)
        if not native and not (tools and self._tool_uses(reply)):
            self._listener.text(self._answer_text(reply))
        return reply

    def _history(self) -> list[Message]:
        """The conversation from the first whole exchange that still fits in half of the model's window."""
        room = self.model.context_tokens // 2
        while len(self._exchanges) > 1:
            if sum(self.model.count_tokens(message.content) for each in self._exchanges for message in each) <= room:
                break
            self._exchanges.pop(0)
        return [message for exchange in self._exchanges for message in exchange]

    def _tool_uses(self, reply: Reply) -> tuple[ToolUse, ...]:
        if self.model.calls_tools:
            return reply.uses
        command = next((item for item in json_objects(reply.text) if isinstance(item.get("tool"), str)), None)
        if command is None:
            return ()
        arguments = command.get("arguments")
        return (ToolUse("command", command["tool"], arguments if isinstance(arguments, dict) else {}),)

    def _answer_text(self, reply: Reply) -> str:
        if self.model.calls_tools:
            return reply.text
        return str(next((item["answer"] for item in json_objects(reply.text) if "answer" in item), reply.text))

    async def _call_tool(self, use: ToolUse) -> Message:
        answer = await self._session.dispatch(use.name, use.arguments)
        self._listener.tool(use.name, use.arguments, answer)
        text = msgspec.json.encode(answer).decode()
        if self.model.calls_tools:
            return Message(role="tool", content=text, use_id=use.id)
        return Message(role="user", content=f"Result of {use.name}:\n{text}")


def format_tool_call(name: str, arguments: dict[str, Any], answer: Envelope, width: int = 100) -> str:
    """A tool call on one line: the expression, and the answer in short."""
    return truncate(" ".join(f"{name}({arguments.get('expr', '')}) → {_summarise(answer)}".split()), width)


def _summarise(answer: Envelope) -> str:
    if not answer.get("ok"):
        error = answer.get("error") or {}
        return f"{error.get('code')}: {error.get('message', '')}"
    result = answer["result"]
    if "globals" in result:
        return f"{len(result['globals'])} names"
    if "value_repr" in result:
        return str(result["value_repr"])
    signature = (result.get("callable") or {}).get("signature") or ""
    return f"{result['kind']} {result['type']['name']}{signature} {(result.get('repr') or {}).get('text', '')}"
