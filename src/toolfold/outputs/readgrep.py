"""Read-grep: a sub-agent looks into the document with Read and Grep until it can report.

Models that call tools do so; others answer with JSON commands. The report must come from the model itself: when it
gives none to the end, the strategy has failed, and nobody makes one up for it.
"""

from functools import partial
from typing import Any

import msgspec

from toolfold.errors import ModelError
from toolfold.model import Message, Prompt, Reply, ToolUse, json_objects
from toolfold.outputs import prompts
from toolfold.outputs.chunked import output_tokens
from toolfold.outputs.document import Document
from toolfold.outputs.reading import OFFERS, Tools
from toolfold.outputs.spending import Spending
from toolfold.outputs.turns import in_turn
from toolfold.outputs.wrapper import final_report

FRUITLESS = 3
"""Answers in a row that are neither a call nor a report."""


async def extract_read_grep(
    document: Document, request: str, spending: Spending, nonce: str, *, turns: int, tool_seconds: float
) -> str:
    """The sub-agent's report. Raises a `ModelError` where there is none."""
    native = spending.model.calls_tools
    tools = Tools(document.path, seconds=tool_seconds)
    messages = opening(document, request, nonce, native=native)
    fruitless = 0
    for turn in range(turns):
        last = turn == turns - 1
        if last:
            messages.append(Message(role="user", content=prompts.LAST_TURN))
        offers = OFFERS if native and not last else ()
        kept = fitting(messages, spending)
        reply = await spending.complete(
            Prompt(messages=tuple(kept), tools=offers, max_output_tokens=output_tokens(spending))
        )
        report = final_report(reply.text, nonce)
        if report is not None:
            return report
        uses = wishes(reply, native=native)
        fruitless = 0 if uses else fruitless + 1
        if fruitless == FRUITLESS:
            break
        messages += await answered(tools, reply, uses, native=native)
    raise ModelError("the sub-agent gave no final report")


def opening(document: Document, request: str, nonce: str, *, native: bool) -> list[Message]:
    begin = prompts.BEGIN.format(bytes=document.bytes, lines=document.lines)
    if not native:
        begin = f"{prompts.COMMANDS.format(handle=document.path.name)}\n\n{begin}"
    return [
        Message(role="system", content=prompts.read_grep_prompt(document, request, nonce)),
        Message(role="user", content=begin),
    ]


async def answered(tools: Tools, reply: Reply, uses: tuple[ToolUse, ...], *, native: bool) -> list[Message]:
    """The model's turn and what it led to."""
    turn = Message(role="assistant", content=reply.text, uses=reply.uses if native else ())
    if not uses:
        return [turn, Message(role="user", content=prompts.GO_ON)]
    found = []
    for use in uses:
        text = await in_turn(partial(tools.run, use.name, use.arguments))
        marked = prompts.as_data(text, f"what {use.name[:20]} found in the document")
        role: Any = "tool" if native else "user"
        found.append(Message(role=role, content=marked, use_id=use.id if native else ""))
    return [turn, *found]


def wishes(reply: Reply, *, native: bool) -> tuple[ToolUse, ...]:
    """The calls that the model wants: native ones, or one JSON command in its text."""
    if reply.uses or native:
        return reply.uses
    command = read_command(reply.text)
    if command is None:
        return ()
    arguments = command.get("arguments", command.get("args", {}))
    return (ToolUse("", str(command["tool"]), arguments if isinstance(arguments, dict) else {}),)


def read_command(text: str) -> dict[str, Any] | None:
    """The first JSON object in a text that names a tool, fenced or bare."""
    return next((found for found in json_objects(text) if isinstance(found.get("tool"), str)), None)


def fitting(messages: list[Message], spending: Spending) -> list[Message]:
    """The conversation, with the oldest tool results emptied where it would not fit the window."""
    room = spending.model.context_tokens - output_tokens(spending) - 200
    sizes = [spending.model.count_tokens(message.content) + 8 for message in messages]
    kept = list(messages)
    for number in range(2, len(kept) - 1):
        if sum(sizes) <= room:
            break
        if kept[number].role in {"tool", "user"}:
            kept[number] = msgspec.structs.replace(kept[number], content="(left out, for lack of room)")
            sizes[number] = 16
    if sum(sizes) > room:
        raise ModelError(
            f"the sub-agent's conversation does not fit the model's window of {spending.model.context_tokens} tokens"
        )
    return kept
