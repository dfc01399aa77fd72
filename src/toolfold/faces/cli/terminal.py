"""What the command line prints: JSON for programs, colours and progress on a terminal, plain text in a pipe.

Results go to standard output; progress, warnings and errors to standard error, except that with `--json` an error is
JSON on standard output too, so that a program reads one stream. Above: the commands. Below: nothing of toolfold but
its errors.
"""

import asyncio
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

import msgspec
from msgspec import Raw

from toolfold.errors import InvalidArguments, NoMatchInCategory, OutputError, ToolfoldError, UnknownPath

STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}

# Our own colours carry a number that nobody else can know until they are written. A colour that a server sends is left
# out: it could hide from a person what a model reads. Other sequences, which could move the cursor, are spelt out.
_OURS = f";{int.from_bytes(os.urandom(6))}"
_STYLE_CODE = re.compile(rf"(\x1b\[[0-9;]+{_OURS}m)")
_COLOUR = re.compile(r"(?:\x1b\[|\x9b)[0-9:;]*m")

# Wide enough for any line: in a pipe nothing is cut.
UNLIMITED = 10_000

Progress = Callable[[str], None]

# What a client declares that can show a form.
_ASKS = Raw(b'{"elicitation":{"form":{}}}')

# Below so many columns the last cell of a table goes under the others instead of beside them.
_LEAST_ROOM = 36
_MOST_LINES = 2

_GAP = re.compile(r"(?<=\S)( +)(?=\S)")


def _joined(names: str) -> str:
    """A path as a person types it: `'Files', 'Search'` is Files/Search."""
    return "/".join(name.strip("'\"") for name in names.split(", ")) or "/"


# What errors and notes tell a model, in the words of the command line.
_Words = str | Callable[[re.Match[str]], str]
_FOR_PERSON: tuple[tuple[re.Pattern[str], _Words], ...] = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r"find the tool with list or a search", "find it with: toolfold search 'what it must do'"),
        (r"call the same operation again, list or search_tool_by_category, without", "run it again without"),
        (r"call search_tool_by_category with one of the paths in categories", "search there: --in 'A/B'"),
        (r"call expand_tool for (\S+) again, and use the schema it shows now", r"see how it is: toolfold expand \1"),
        (r"(?<=its schema), which expand_tool shows", ": toolfold expand ID shows it"),
        (r'inspect_tool_output\(tool_id="(.*?)", field_path="(.*?)"\)', r"toolfold inspect-output \1 '\2'"),
        (r'(?<![\w.])expand_tool\(tool_id="(.*?)"\)', r"toolfold expand \1"),
        (r'inspect_tool_output\(\.\.\., field_path="(.*?)"\)', r"toolfold inspect-output ID '\1'"),
        (r"\nCall tool_output\(.*\nProvide precise.*", ""),
        (r"\b1 lines\b", "1 line"),
        (r"there is no category \[(.*)\]", lambda found: f"there is no category {_joined(found[1])}"),
        (r"call list with one of (.*), or with an empty path.*", r"use one of \1, or see all: toolfold tree"),
        (r"use a handle that there is\b", "see what there is: toolfold outputs"),
        (r'call inspect_tool_output with field_path="(.*?)", or with ""', r"give the path '\1', or none"),
        (r"\b(in|from) hints\b", "above"),
        (r"named in `tools` fit, from all categories", "above fit, from all categories"),
        # Not as a part of a tool's id, such as toolbox.run_script.
        (r"(?<![\w.])expand_tool\b", "toolfold expand"),
        (r"(?<![\w.])call_tool\b", "toolfold call"),
        (r"(?<![\w.])search_tool_by_category\b", "toolfold search"),
        (r"(?<![\w.])search_nodes\b", "toolfold nodes"),
        (r"(?<![\w.])inspect_tool_output\b", "toolfold inspect-output"),
        (r"(?<![\w.])tool_output\b", "toolfold output"),
        (r"(?<![\w.])run_script\b", "toolfold run"),
    )
)

# An advice about hints, where there are none.
_NOTHING_ABOVE = re.compile(r"\b(?:use|name) [^,;]*\babove\b[^,;]*(?:, or |; else )")


class Output:
    """The two streams of one command. `as_json` is the caller's `--json`."""

    def __init__(self, *, as_json: bool = False, out: IO[str] | None = None, err: IO[str] | None = None) -> None:
        self.as_json = as_json
        self.out = out or sys.stdout
        self.err = err or sys.stderr
        # Decided for each stream: results may go to a file while errors stay on the terminal.
        self._colour = {id(stream): self.wants_colour(stream) for stream in (self.out, self.err)}
        self._asking = asyncio.Lock()

    @staticmethod
    def wants_colour(stream: IO[str]) -> bool:
        """Colours on a terminal, unless NO_COLOR or a dumb terminal says otherwise; FORCE_COLOR wins over a pipe."""
        if os.environ.get("NO_COLOR"):
            return False
        if os.environ.get("FORCE_COLOR"):
            return True
        return stream.isatty() and os.environ.get("TERM") != "dumb"

    @property
    def width(self) -> int:
        """The columns of a line on standard output."""
        return _columns(self.out)

    def style(self, text: str, *names: str, stream: IO[str] | None = None) -> str:
        if not self._colour[id(stream or self.out)] or not text:
            return text
        codes = ";".join(STYLES[name] for name in names)
        return f"\x1b[{codes}{_OURS}m{text}\x1b[0{_OURS}m"

    @staticmethod
    def for_person(text: str) -> str:
        """What stages tell a model, in the words of the command line."""
        for pattern, words in _FOR_PERSON:
            text = pattern.sub(words, text)
        return text

    @staticmethod
    def short_path(text: Path | str) -> str:
        """A path, or a text with paths in it, as a person writes it: `~` for their home."""
        return re.sub(rf"(?<![\w/.-]){re.escape(str(Path.home()))}(?=/|$|[\s,:;)])", "~", str(text))

    def line(self, text: str = "") -> None:
        self.out.write(safe(text) + "\n")

    def prose(self, text: str, hang: int = 2) -> None:
        """A line that is read and not copied: on a terminal broken between words, the rest indented by `hang`."""
        self.out.write(_folded(safe(text), self.width, hang) + "\n")

    def note(self, text: str, *, as_it_is: bool = False) -> None:
        """Prints something worth knowing that is not the result. Where it cannot be, the result matters more."""
        with suppress(OSError):
            self.err.write(_folded(safe(text), UNLIMITED if as_it_is else _columns(self.err), 2) + "\n")

    def labelled(self, label: str, colour: str, text: str, *, indent: str = "") -> None:
        """A note of one line behind a coloured label: `next: toolfold build`."""
        self.note(f"{indent}{self.style(label, colour, stream=self.err)} {one_line(text)}")

    def warn(self, text: str) -> None:
        self.labelled("warning:", "yellow", text)

    def data(self, value: Any) -> None:
        """Prints the result as JSON: indented for a person, one line for a program."""
        import msgspec

        try:
            encoded = msgspec.json.encode(value, enc_hook=str)
        except UnicodeEncodeError:  # the name of a file that is no UTF-8, which JSON can only escape
            encoded = json.dumps(msgspec.to_builtins(value, enc_hook=str)).encode()
        text = encoded.decode()
        if self.out.isatty():
            indented = msgspec.json.format(encoded, indent=2).decode()
            text = "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in indented)
        self.out.write(text + "\n")

    def answer(self, text: str, *, stored: bool) -> None:
        """Prints what a tool answered as it is; for a person, JSON indented, and of what was stored no word that is for
        models."""
        import msgspec

        if stored:
            text = self.for_person(text)
        if self.out.isatty() and text[:1] in {"{", "["}:
            with suppress(msgspec.DecodeError):
                text = msgspec.json.format(text, indent=2)
        if stored:
            self.prose(text)
        else:
            self.line(text)

    @staticmethod
    def read_piped() -> str:
        """All of standard input. Raises `InvalidArguments` where it is no text."""
        try:
            return sys.stdin.buffer.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InvalidArguments(
                f"what is piped in is no UTF-8: byte {error.start} is {error.object[error.start]:#04x}",
                next_action="pipe it in as UTF-8, such as through iconv -t utf-8",
            ) from None

    def save(self, name: str, source: BinaryIO) -> int:
        """Copies to a file that is not there yet, and closes the source; returns the bytes written."""
        try:
            with source, Path(name).open("xb") as target:
                shutil.copyfileobj(source, target)
                return target.tell()
        except OSError as error:
            action = "name a file that is not there yet, in a folder that is"
            raise OutputError(f"{name} cannot be written: {error.strerror or error}", next_action=action) from error

    def error(self, error: ToolfoldError) -> None:
        if self.as_json:
            self.data({"error": error.as_dict()})
            return
        message = self.short_path(self.for_person(error.message))
        self.note(f"{self.style('error:', 'red', 'bold', stream=self.err)} {message}")
        for hint in error.hints:
            text = _hint_text(hint)
            if text not in error.message:
                self.note(f"  - {self.short_path(one_line(text))}")
        for text in _elsewhere(error):
            self.note(f"  - {one_line(text)}")
        action = self.for_person(error.next_action)
        if action and action.rstrip(".") not in self.for_person(error.message):
            self.labelled("next:", "cyan", action if error.hints else _NOTHING_ABOVE.sub("", action))

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str]], margin: str = "") -> None:
        """Prints columns side by side, but for empty ones; nothing without rows. On a terminal the last column is
        wrapped to fit; where the others leave it no room, it stands below them."""
        if not rows:
            return
        kept = [at for at, column in enumerate(zip(*rows, strict=True)) if any(column)]
        headers = [headers[at] for at in kept]
        rows = [[one_line(row[at]) for at in kept] for row in rows]
        widths = _column_widths(headers, rows)
        before = len(margin) + sum(width + 2 for width in widths[:-1])
        stacked = self.width - before < min(_LEAST_ROOM, widths[-1])
        indent = " " * (len(margin) + 4 if stacked else before)
        heading = [self.style(header, "bold") for header in headers]
        for row in ([*heading[:-1], ""] if stacked else heading, *rows):
            cells = [cell + " " * (width - len(_plain(cell))) for cell, width in zip(row, widths, strict=True)][:-1]
            cells[:1] = [margin + cell for cell in cells[:1]]
            self._row(cells, _wrapped(row[-1], self.width - len(indent)), indent, stacked=stacked)

    def _row(self, cells: list[str], last: list[str], indent: str, *, stacked: bool) -> None:
        first = cells if stacked else [*cells, last.pop(0)]
        for line in ("  ".join(first), *(indent + line for line in last)):
            if line.strip():
                self.line(fit(line.rstrip(), self.width))

    def confirm(self, question: str) -> bool:
        """Asks the person at the terminal, who must say yes."""
        self._ask(question)
        return self._reads_yes()

    def _ask(self, question: str) -> None:
        self.err.write(f"{safe(question)} [y/N] ")
        self.err.flush()

    @staticmethod
    def _reads_yes() -> bool:
        return sys.stdin.readline().strip().casefold() in {"y", "yes"}

    def answering(self) -> dict[str, Any]:
        """The options of a call with which the person at the terminal is asked while it runs; none without a person."""
        return {"on_input": self._answer_form, "capabilities": _ASKS} if self.interactive else {}

    async def _answer_form(self, method: str, params: Raw) -> Raw:
        """Yes or no is asked; whatever else a server wants to know is declined, and that is said."""
        form = msgspec.json.decode(params)
        schema = form.get("requestedSchema") or {}
        boxes = schema.get("properties") or {}
        if [box.get("type") for box in boxes.values()] != ["boolean"]:
            self.note(one_line(f"declined what was asked, since only yes and no are asked here: {form.get('message')}"))
            return Raw(b'{"action":"decline"}')
        loop = asyncio.get_running_loop()
        typed = asyncio.Event()
        async with self._asking:  # a script may make several calls at once
            self._ask(str(form.get("message")))
            # A thread that waits for a line could not be ended by Ctrl-C.
            loop.add_reader(sys.stdin.fileno(), typed.set)
            try:
                await typed.wait()
            finally:
                loop.remove_reader(sys.stdin.fileno())
            if not self._reads_yes():
                return Raw(b'{"action":"decline"}')
        return Raw(msgspec.json.encode({"action": "accept", "content": dict.fromkeys(boxes, True)}))

    @property
    def interactive(self) -> bool:
        """Whether a person can be asked."""
        return not self.as_json and sys.stdin is not None and sys.stdin.isatty() and self.err.isatty()

    @contextmanager
    def progress(self, title: str, total: int | None, label: str = "") -> Iterator[Progress]:
        """A bar on a terminal, moved on by each call; elsewhere nothing, so that logs stay short. Without a total it
        only says that something is done, and for how long."""
        if self.as_json or not self.err.isatty() or total == 0:
            yield lambda label: None
            return
        # Importing rich takes longer than reading a catalogue.
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar
        from rich.table import Column

        column = Column(no_wrap=True, overflow="ellipsis", ratio=1)
        done = [] if total is None else [MofNCompleteColumn()]
        shown = TextColumn("{task.fields[label]}", style="dim", markup=False, table_column=column)
        columns = (TextColumn("{task.description}"), BarColumn(20), *done, TimeElapsedColumn(), shown)
        with Bar(*columns, console=Console(file=self.err), transient=True, expand=True) as bar:
            task = bar.add_task(title, total=total, label=safe(label))
            yield lambda text: bar.update(task, advance=1, label=safe(text))

    @contextmanager
    def counter(self, title: str) -> Iterator[Callable[[int, int], None]]:
        """For work whose size is known once it runs: a bar on a terminal; elsewhere a line when it begins."""
        with ExitStack() as stack:
            steps: list[Progress] = []
            shown = 0

            def show(done: int, total: int) -> None:
                nonlocal shown
                if not steps:
                    if not self.as_json and not self.err.isatty():
                        self.note(f"{title}: {total:,} tools, about {max(1, total // 200):,} s")
                    steps.append(stack.enter_context(self.progress(title, total)))
                for _ in range(done - shown):
                    steps[0](f"{done:,}")
                shown = done

            yield show


def _elsewhere(error: ToolfoldError) -> list[str]:
    """What fits in other places than the one that was asked about."""
    if isinstance(error, NoMatchInCategory):
        return [f"in {' / '.join(path)}" for path in error.categories]
    return [f"{tool['tool_id']}  {tool['summary']}" for tool in error.tools] if isinstance(error, UnknownPath) else []


def _hint_text(hint: Any) -> str:
    """A hint on one line: text as it is, a wrong field in words, all else as JSON."""
    if isinstance(hint, str):
        return hint
    if isinstance(hint, list | tuple) and all(isinstance(name, str) for name in hint):
        return "/".join(hint)  # a category
    for key, text in (("field", "problem"), ("tool_id", "summary"), ("tool_id", "confidence")):
        if isinstance(hint, dict) and {key, text} <= hint.keys() <= {key, text, "same_as"}:
            said = f"{hint[text]:.0%}" if isinstance(hint[text], float) else hint[text]
            return f"{' = '.join((hint[key], *hint.get('same_as', ())))}: {said}"
    import msgspec

    return msgspec.json.encode(hint, enc_hook=str).decode()


def _wrapped(text: str, width: int) -> list[str]:
    """The text on lines of `width` columns, few of them; what is left over is marked. Coloured text is one line."""
    if "\x1b" in text or len(text) <= width:
        return [text]
    return textwrap.wrap(text, width, max_lines=_MOST_LINES, placeholder=" …", break_on_hyphens=False)


def _columns(stream: IO[str]) -> int:
    return shutil.get_terminal_size().columns if stream.isatty() else UNLIMITED


def _folded(text: str, width: int, hang: int) -> str:
    """Safe text with each line that is too long broken between words. Words stay whole: some are copied. Colour codes
    take no columns."""
    if width >= UNLIMITED:
        return text
    lines = []
    for line in text.split("\n"):
        words = _GAP.split(line)
        lines.append(words[0])
        for gap, word in zip(words[1::2], words[2::2], strict=True):
            longer = f"{lines[-1]}{gap}{word}"
            if len(_COLOUR.sub("", longer)) > width:
                longer = " " * min(hang, width * 2 // 5) + word
                lines.append("")
            lines[-1] = longer
    return "\n".join(lines)


def _column_widths(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(_plain(cell)) for cell in column) for column in zip(headers, *rows, strict=True)]


def _plain(text: str) -> str:
    """The text without colour codes."""
    return _STYLE_CODE.sub("", text)


def safe(text: str) -> str:
    """The text without colours of a server, and with every other control character written out: no server steers the
    terminal, or hides something there."""
    if text.isprintable():
        return text
    pieces = _STYLE_CODE.split(text)
    for number, piece in enumerate(pieces):
        plain = _COLOUR.sub("", piece)
        shown = "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in plain)
        pieces[number] = piece.replace(_OURS, "") if number % 2 else shown
    return "".join(pieces)


def one_line(text: str) -> str:
    """What servers and files say forges no line and no column of ours."""
    return text.replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t")


def _escaped(char: str) -> str:
    """A character as JSON may write it, too."""
    return "".join(f"\\u{unit:04x}" for unit in memoryview(char.encode("utf-16-le", "surrogatepass")).cast("H"))


def fit(text: str, width: int) -> str:
    """The text cut to `width` columns. Colour codes take none and stay."""
    if len(_plain(text)) <= width:
        return text
    left = max(width - 1, 1)
    pieces = _STYLE_CODE.split(text)
    for number in range(0, len(pieces), 2):
        pieces[number] = pieces[number][:left]
        left -= len(pieces[number])
    return "".join(pieces) + "…"
