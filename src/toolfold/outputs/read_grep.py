"""Read-grep: a sub-agent looks into the document with Read and Grep until it can report.

Models that call tools do so; others answer with JSON commands. The report must come from the model itself: when it
gives none to the end, the strategy has failed, and nobody makes one up for it. Both tools reach one file, the document,
and nothing else. Above: `extraction.py`. Below: `grep.py`.
"""

from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from toolfold.errors import ModelError, OutputError
from toolfold.model import Message, Prompt, Reply, ToolOffer, ToolUse, json_objects
from toolfold.outputs import prompts
from toolfold.outputs.document import Document, open_regular_file
from toolfold.outputs.grep import grep_file
from toolfold.outputs.limiter import run_limited
from toolfold.outputs.model_budget import ModelBudget

# Answers in a row that are neither a call nor a report.
MAX_FRUITLESS = 3
MAX_BYTES = 16_000
MAX_LINES = 400
MAX_LINE = 2000
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


async def extract_read_grep(
    document: Document, request: str, budget: ModelBudget, nonce: str, *, turns: int, tool_seconds: float
) -> str:
    """The sub-agent's report. Raises a `ModelError` where there is none."""
    native = budget.model.calls_tools
    tools = _DocumentTools(document.path, seconds=tool_seconds)
    messages = _opening_messages(document, request, nonce, native=native)
    fruitless = 0
    for turn in range(turns):
        last = turn == turns - 1
        if last:
            messages.append(Message(role="user", content=prompts.LAST_TURN))
        offers = TOOL_OFFERS if native and not last else ()
        fitted = tuple(_fit_window(messages, budget))
        reply = await budget.complete(Prompt(messages=fitted, tools=offers, max_output_tokens=budget.output_tokens))
        report = prompts.parse_final_report(reply.text, nonce)
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
        Message(role="system", content=prompts.system_prompt("read_grep", document, request, nonce)),
        Message(role="user", content=begin),
    ]


async def _run_tools(
    tools: "_DocumentTools", reply: Reply, uses: tuple[ToolUse, ...], *, native: bool
) -> list[Message]:
    """The model's turn, and a message for each call with its result."""
    turn = Message(role="assistant", content=reply.text, uses=reply.uses if native else ())
    if not uses:
        return [turn, Message(role="user", content=prompts.GO_ON)]
    results = []
    for use in uses:
        text = await run_limited(partial(tools.run, use.name, use.arguments))
        marked = prompts.mark_as_data(text, f"what {use.name[:20]} found in the document")
        role: Any = "tool" if native else "user"
        results.append(Message(role=role, content=marked, use_id=use.id if native else ""))
    return [turn, *results]


def _requested_calls(reply: Reply, *, native: bool) -> tuple[ToolUse, ...]:
    """The calls that the model wants: native ones, or one JSON command in its text."""
    if reply.uses or native:
        return reply.uses
    objects = json_objects(reply.text)
    command = next((item for item in objects if isinstance(item.get("tool"), str)), None)
    if command is None:
        return ()
    arguments = command.get("arguments", command.get("args", {}))
    return (ToolUse("", str(command["tool"]), arguments if isinstance(arguments, dict) else {}),)


def _fit_window(messages: list[Message], budget: ModelBudget) -> list[Message]:
    """The conversation, with the oldest tool results emptied where it would not fit the window."""
    room = budget.model.context_tokens - budget.output_tokens - 200
    sizes = [budget.model.count_tokens(message.content) + 8 for message in messages]
    fitted = list(messages)
    for number in range(2, len(fitted) - 1):
        if sum(sizes) <= room:
            break
        if fitted[number].role in {"tool", "user"}:
            fitted[number] = msgspec.structs.replace(fitted[number], content="(left out, for lack of room)")
            sizes[number] = 16
    if sum(sizes) > room:
        raise ModelError(
            f"the sub-agent's conversation does not fit the model's window of {budget.model.context_tokens} tokens"
        )
    return fitted


class _DocumentTools:
    """Both tools, bound to one document.

    A name is compared, never joined into a path: `..`, absolute names, links, devices and names with newlines all
    differ from the one name that counts.
    """

    def __init__(self, path: Path, *, seconds: float = 20.0) -> None:
        self._path = path
        self._seconds = seconds

    def run(self, name: str, arguments: dict[str, Any]) -> str:
        """The result as text; errors are part of it, so that the model can correct the call."""
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
        try:
            result = grep_file(self._path, pattern, ignore_case=ignore, limit=MAX_HITS, seconds=self._seconds)
        except OutputError as error:
            return error.message
        lines = [f"{result.count} lines fit." if result.count else "No line fits."]
        size = 0
        for hit in result.hits:
            lines.append(f"[line {hit.line}, bytes {hit.start}-{max(hit.start, hit.end - 1)}] {hit.text}")
            size += len(lines[-1])
            if size > MAX_BYTES:
                break
        if len(lines) - 1 < result.count:
            lines.append(f"({result.count - len(lines) + 1} more lines fit: use a narrower pattern.)")
        return "\n".join(lines)

    def _read(self, file: BinaryIO, arguments: dict[str, Any]) -> str:
        if "first_byte" in arguments:
            start = _whole_number(arguments.get("first_byte"), 0)
            file.seek(start)
            raw = file.read(min(_whole_number(arguments.get("bytes"), MAX_BYTES), MAX_BYTES))
            return f"[bytes {start}-{start + len(raw) - 1}]\n{raw.decode(errors='replace')}" if raw else "Past the end."
        first = max(1, _whole_number(arguments.get("first_line"), 1))
        last = first - 1 + min(max(1, _whole_number(arguments.get("lines"), 100)), MAX_LINES)
        lines, size, number, offset = [], 0, 0, 0
        while number < last and size < MAX_BYTES and (line := file.readline(MAX_BYTES + 1)):
            number += 1
            start, offset = offset, offset + len(line) + _skip_rest(file, line)
            if number >= first:
                text = line[:MAX_LINE].decode(errors="replace").rstrip("\n")
                is_cut = offset - start > MAX_LINE
                note = f" … (a long line of bytes {start}-{offset - 1}: read it with first_byte)" if is_cut else ""
                lines.append(f"{number}: {text}{note}")
                size += len(text)
        return "\n".join(lines) if lines else f"Past the end: the file has {number} lines."


def _skip_rest(file: BinaryIO, line: bytes) -> int:
    """Reads on to the end of a line of which only the beginning was read; returns how many bytes that took."""
    size = 0
    # A file may be one line of a gigabyte: its rest passes in pieces.
    while len(line) >= MAX_BYTES and not line.endswith(b"\n") and (line := file.readline(MAX_BYTES)):
        size += len(line)
    return size


def _whole_number(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 60 else default
