"""Read-grep: a sub-agent looks into the document with Read and Grep until it can report.

Models that call tools do so; others answer with JSON commands. The report must come from the model itself: when it
gives none to the end, the strategy has failed, and nobody makes one up for it.
"""

from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from toolfold.errors import ModelError
from toolfold.model import Message, Prompt, Reply, ToolOffer, ToolUse, json_objects
from toolfold.outputs import prompts
from toolfold.outputs.budget import ModelBudget
from toolfold.outputs.document import Document, open_regular_file
from toolfold.outputs.full_chunked import output_tokens
from toolfold.outputs.grep import grep_file
from toolfold.outputs.limiter import run_limited
from toolfold.outputs.prompts import parse_final_report

# --- Read and Grep, the two tools of the read-grep sub-agent. They reach one file, the document, and nothing else.

MAX_BYTES = 16_000
MAX_LINES = 400
MAX_HITS = 100

READ = ToolOffer(
    "Read",
    "Read lines of the file, numbered. For very long lines, read bytes instead.",
    {
        "type": "object",
        "properties": {
            "file": {"type": "string"},
            "first_line": {"type": "integer", "minimum": 1},
            "lines": {"type": "integer", "minimum": 1, "maximum": MAX_LINES},
            "first_byte": {"type": "integer", "minimum": 0},
            "bytes": {"type": "integer", "minimum": 1, "maximum": MAX_BYTES},
        },
        "required": ["file"],
    },
)
GREP = ToolOffer(
    "Grep",
    "Find the lines of the file that a regular expression fits, with their numbers and bytes.",
    {
        "type": "object",
        "properties": {
            "file": {"type": "string"},
            "pattern": {"type": "string"},
            "ignore_case": {"type": "boolean"},
        },
        "required": ["file", "pattern"],
    },
)
TOOL_OFFERS = (READ, GREP)


class _DocumentTools:
    """Both tools, bound to one document."""

    def __init__(self, path: Path, *, seconds: float = 20.0) -> None:
        self._path = path
        self._seconds = seconds

    def run(self, name: str, arguments: dict[str, Any]) -> str:
        """The result as text; what is wrong with a call is said, so that the model can mend it."""
        if name not in {"Read", "Grep"}:
            return f"There is no tool {name!r}. Only Read and Grep can be used."
        file = arguments.get("file", self._path.name)
        if file != self._path.name:
            return f"{file!r} cannot be opened. The only file is {self._path.name!r}."
        try:
            with open_regular_file(self._path) as opened:
                return self._read(opened, arguments) if name == "Read" else self._grep(arguments)
        except OSError as error:
            return f"The file cannot be opened: {error.strerror or error}."

    def _grep(self, arguments: dict[str, Any]) -> str:
        pattern = arguments.get("pattern")
        if not isinstance(pattern, str) or not pattern:
            return "Grep needs a pattern, a regular expression."
        ignore = arguments.get("ignore_case") is True
        found = grep_file(self._path, pattern, ignore_case=ignore, most=MAX_HITS, seconds=self._seconds)
        if found.problem:
            return found.problem
        lines = [f"{found.count} lines fit." if found.count else "No line fits."]
        size = 0
        for hit in found.hits:
            lines.append(f"[line {hit.line}, bytes {hit.start}-{max(hit.start, hit.end - 1)}] {hit.text}")
            size += len(lines[-1])
            if size > MAX_BYTES:
                break
        if len(lines) - 1 < found.count:
            lines.append(f"({found.count - len(lines) + 1} more lines fit: use a narrower pattern.)")
        return "\n".join(lines)

    def _read(self, file: BinaryIO, arguments: dict[str, Any]) -> str:
        if "first_byte" in arguments:
            start = _whole_number(arguments.get("first_byte"), 0)
            file.seek(start)
            raw = file.read(min(_whole_number(arguments.get("bytes"), MAX_BYTES), MAX_BYTES))
            return f"[bytes {start}-{start + len(raw) - 1}]\n{raw.decode(errors='replace')}" if raw else "Past the end."
        first = max(1, _whole_number(arguments.get("first_line"), 1))
        count = min(max(1, _whole_number(arguments.get("lines"), 100)), MAX_LINES)
        shown, size, offset = [], 0, 0
        number = 0
        while number < first + count - 1 and size < MAX_BYTES and (line := file.readline(MAX_BYTES + 1)):
            number += 1
            long = len(line) > MAX_BYTES
            begin, offset = offset, offset + len(line)
            while long and not line.endswith(b"\n") and (rest := file.readline(MAX_BYTES)):
                offset += len(rest)
                if rest.endswith(b"\n"):
                    break
            if number >= first:
                part = line[:2000].decode(errors="replace").rstrip("\n")
                cut = (
                    f" … (a long line of bytes {begin}-{offset - 1}: read it with first_byte)"
                    if offset - begin > 2000
                    else ""
                )
                shown.append(f"{number}: {part}{cut}")
                size += len(part)
        return "\n".join(shown) if shown else f"Past the end: the file has {number} lines."


def _whole_number(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 60 else default


MAX_FRUITLESS = 3
"""Answers in a row that are neither a call nor a report."""


async def extract_read_grep(
    document: Document, request: str, spending: ModelBudget, nonce: str, *, turns: int, tool_seconds: float
) -> str:
    """The sub-agent's report. Raises a `ModelError` where there is none."""
    native = spending.model.calls_tools
    tools = _DocumentTools(document.path, seconds=tool_seconds)
    messages = _opening_messages(document, request, nonce, native=native)
    fruitless = 0
    for turn in range(turns):
        last = turn == turns - 1
        if last:
            messages.append(Message(role="user", content=prompts.LAST_TURN))
        offers = TOOL_OFFERS if native and not last else ()
        kept = _fit_window(messages, spending)
        reply = await spending.complete(
            Prompt(messages=tuple(kept), tools=offers, max_output_tokens=output_tokens(spending))
        )
        report = parse_final_report(reply.text, nonce)
        if report is not None:
            return report
        uses = _requested_calls(reply, native=native)
        fruitless = 0 if uses else fruitless + 1
        if fruitless == MAX_FRUITLESS:
            break
        messages += await _run_tools(tools, reply, uses, native=native)
    raise ModelError("the sub-agent gave no final report")


def _opening_messages(document: Document, request: str, nonce: str, *, native: bool) -> list[Message]:
    begin = prompts.BEGIN.format(bytes=document.bytes, lines=document.lines)
    if not native:
        begin = f"{prompts.JSON_COMMANDS.format(handle=document.path.name)}\n\n{begin}"
    return [
        Message(role="system", content=prompts.read_grep_prompt(document, request, nonce)),
        Message(role="user", content=begin),
    ]


async def _run_tools(tools: _DocumentTools, reply: Reply, uses: tuple[ToolUse, ...], *, native: bool) -> list[Message]:
    """The model's turn and what it led to."""
    turn = Message(role="assistant", content=reply.text, uses=reply.uses if native else ())
    if not uses:
        return [turn, Message(role="user", content=prompts.GO_ON)]
    found = []
    for use in uses:
        text = await run_limited(partial(tools.run, use.name, use.arguments))
        marked = prompts.mark_as_data(text, f"what {use.name[:20]} found in the document")
        role: Any = "tool" if native else "user"
        found.append(Message(role=role, content=marked, use_id=use.id if native else ""))
    return [turn, *found]


def _requested_calls(reply: Reply, *, native: bool) -> tuple[ToolUse, ...]:
    """The calls that the model wants: native ones, or one JSON command in its text."""
    if reply.uses or native:
        return reply.uses
    command = _parse_command(reply.text)
    if command is None:
        return ()
    arguments = command.get("arguments", command.get("args", {}))
    return (ToolUse("", str(command["tool"]), arguments if isinstance(arguments, dict) else {}),)


def _parse_command(text: str) -> dict[str, Any] | None:
    """The first JSON object in a text that names a tool, fenced or bare."""
    return next((found for found in json_objects(text) if isinstance(found.get("tool"), str)), None)


def _fit_window(messages: list[Message], spending: ModelBudget) -> list[Message]:
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
