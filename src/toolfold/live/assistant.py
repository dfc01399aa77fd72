"""The assistant beside the prompt: a short loop of a model and the three tools over one session.

Any `Model` will do: one that calls tools natively is offered them, another is asked for JSON commands. Rounds and the
length of the conversation are bounded. Each step is told as an event, whole; what a person sees of it is short.
"""

from typing import Any, Protocol

import msgspec

from toolfold.live.prompts import COMMANDS, OFFERS, SYSTEM
from toolfold.live.session import Envelope, LiveSession
from toolfold.model import Message, Model, Prompt, Reply, ToolUse, complete, json_objects

_ROUNDS_MAX = 8
_RECENT_MAX_CHARS = 4000
_ANSWER_TOKENS = 1200


class AssistantListener(Protocol):
    """Told what the assistant says and does, as it happens."""

    def text(self, piece: str) -> None: ...

    def tool(self, name: str, arguments: dict[str, Any], answer: Envelope) -> None: ...


class Assistant:
    """One conversation about one session."""

    def __init__(self, model: Model, session: LiveSession, watcher: AssistantListener) -> None:
        self.model = model
        self._session = session
        self._watcher = watcher
        self._exchanges: list[list[Message]] = []

    async def ask(self, question: str, *, recent: str = "") -> str:
        """Answers a question. `recent` is what was typed and shown at the prompt before it."""
        text = f"Recently at the prompt:\n{recent[-_RECENT_MAX_CHARS:]}\n\nQuestion: {question}" if recent else question
        exchange = [Message(role="user", content=text)]
        self._exchanges.append(exchange)
        self._session.events.emit("live.ask", question=question, model=self.model.name)
        answer = ""
        for number in range(_ROUNDS_MAX):
            last = number == _ROUNDS_MAX - 1
            reply = await self._reply(exchange, tools=not last)
            uses = () if last else self._uses(reply)
            exchange.append(Message(role="assistant", content=reply.text, uses=reply.uses if not last else ()))
            if not uses:
                answer = self._said(reply)
                break
            exchange += [await self._used(use) for use in uses]
        self._session.events.emit("live.answer", text=answer)
        return answer

    async def _reply(self, exchange: list[Message], *, tools: bool) -> Reply:
        native = self.model.calls_tools
        system = SYSTEM if native else f"{SYSTEM}\n\n{COMMANDS}"
        if not tools:
            system += "\n\nNo more tools now: give your answer."
        prompt = Prompt(
            messages=(Message(role="system", content=system), *self._fitting()),
            tools=OFFERS if native and tools else (),
            max_output_tokens=min(_ANSWER_TOKENS, self.model.max_output_tokens),
        )
        # JSON commands are not for a person to read: only native answers are told as they come.
        reply = await complete(self.model, prompt, self._watcher.text if native else None)
        if not native and not (tools and self._uses(reply)):
            self._watcher.text(self._said(reply))
        return reply

    def _fitting(self) -> list[Message]:
        """The conversation from the first whole exchange that still fits in half of the model's window."""
        room = self.model.context_tokens // 2
        while len(self._exchanges) > 1:
            size = sum(self.model.count_tokens(one.content) for each in self._exchanges for one in each)
            if size <= room:
                break
            self._exchanges.pop(0)
        return [message for each in self._exchanges for message in each]

    def _uses(self, reply: Reply) -> tuple[ToolUse, ...]:
        if self.model.calls_tools:
            return reply.uses
        command = next((one for one in json_objects(reply.text) if isinstance(one.get("tool"), str)), None)
        if command is None:
            return ()
        arguments = command.get("arguments")
        return (ToolUse("command", command["tool"], arguments if isinstance(arguments, dict) else {}),)

    def _said(self, reply: Reply) -> str:
        if self.model.calls_tools:
            return reply.text
        return str(next((one["answer"] for one in json_objects(reply.text) if "answer" in one), reply.text))

    async def _used(self, use: ToolUse) -> Message:
        answer = await self._session.dispatch(use.name, use.arguments)
        self._watcher.tool(use.name, use.arguments, answer)
        text = msgspec.json.encode(answer).decode()
        if self.model.calls_tools:
            return Message(role="tool", content=text, use_id=use.id)
        return Message(role="user", content=f"Result of {use.name}:\n{text}")


def format_tool_call(name: str, arguments: dict[str, Any], answer: Envelope, width: int = 100) -> str:
    """A tool call on one line: what was asked, and the gist of what came back."""
    asked = f"{name}({arguments.get('expr', '')})"
    text = f"{asked} → {_summarise(answer)}"
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"


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
