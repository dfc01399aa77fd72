"""How the command line speaks: JSON for programs, colours and progress on a terminal, plain text in a pipe.

Results go to standard output; progress, warnings and errors to standard error, except that with `--json` an error is
JSON on standard output too, so that a program reads one stream.
"""

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, Protocol

from toolfold.errors import ToolfoldError

STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}


class Progress(Protocol):
    """Told as each of a known number of things is done."""

    def __call__(self, label: str) -> None: ...


def wants_colour(stream: IO[str]) -> bool:
    """Colours on a terminal, unless NO_COLOR or a dumb terminal says otherwise; FORCE_COLOR wins over a pipe."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


class Output:
    """One per run. `as_json` is the caller's `--json`."""

    def __init__(self, *, as_json: bool = False, out: IO[str] | None = None, err: IO[str] | None = None) -> None:
        self.as_json = as_json
        self.out = out or sys.stdout
        self.err = err or sys.stderr
        self._colour = {id(self.out): wants_colour(self.out), id(self.err): wants_colour(self.err)}

    def style(self, text: str, *names: str, stream: IO[str] | None = None) -> str:
        if not self._colour[id(stream or self.out)] or not text:
            return text
        codes = ";".join(STYLES[name] for name in names)
        return f"\x1b[{codes}m{text}\x1b[0m"

    def line(self, text: str = "") -> None:
        self.out.write(safe(text) + "\n")

    def note(self, text: str) -> None:
        """Something worth knowing that is not the result."""
        self.err.write(safe(text) + "\n")

    def warn(self, text: str) -> None:
        self.note(f"{self.style('warning:', 'yellow', stream=self.err)} {text}")

    def data(self, value: Any) -> None:
        """The result as JSON: indented for a person, one line for a program."""
        import msgspec

        encoded = msgspec.json.encode(value, enc_hook=str)
        if self.out.isatty():
            encoded = msgspec.json.format(encoded, indent=2)
        self.out.write(encoded.decode() + "\n")

    def error(self, error: ToolfoldError) -> None:
        if self.as_json:
            self.data({"error": error.as_dict()})
            return
        self.note(f"{self.style('error:', 'red', 'bold', stream=self.err)} {error.message}")
        for hint in error.hints:
            text = _hint_text(hint)
            if text not in error.message:
                self.note(f"  - {text}")
        if error.next_action:
            self.note(f"{self.style('next:', 'cyan', stream=self.err)} {error.next_action}")

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str]], *, wrap: bool = True) -> None:
        """Columns side by side; on a terminal the last one is cut to fit."""
        widths = (
            [max(len(headers[i]), *(len(_plain(row[i])) for row in rows)) for i in range(len(headers))] if rows else []
        )
        if not rows:
            return
        room = shutil.get_terminal_size().columns if self.out.isatty() and wrap else 10_000
        for number, row in enumerate((headers, *rows)):
            cells = []
            for i, cell in enumerate(row):
                last = i == len(row) - 1
                padding = "" if last else " " * (widths[i] - len(_plain(cell)))
                cells.append(self.style(cell, "bold") + padding if number == 0 else cell + padding)
            self.line(fit("  ".join(cells), room))

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Progress]:
        """A bar on a terminal; elsewhere nothing, so that logs stay short."""
        if self.as_json or not self.err.isatty() or total == 0:
            yield lambda label: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with RichProgress(*columns, console=Console(file=self.err), transient=True) as bar:
            task = bar.add_task(title, total=total)
            yield lambda label: bar.update(task, advance=1, description=f"{title}: {label}")


def _hint_text(hint: Any) -> str:
    """A hint on one line: text as it is, a wrong field as an error says it, all else as JSON."""
    if isinstance(hint, dict) and hint.keys() == {"field", "problem"}:
        return f"{hint['field']}: {hint['problem']}"
    return hint if isinstance(hint, str) else _to_json(hint)


def _plain(text: str) -> str:
    """The text without the colour codes that `style` adds."""
    if "\x1b" not in text:
        return text
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def safe(text: str) -> str:
    """Text from a server may hold control characters that would steer the terminal: they are shown, not sent."""
    if text.isprintable():
        return text
    kept = []
    pieces = text.split("\x1b")
    for number, piece in enumerate(pieces):
        ours = number > 0 and piece.startswith("[") and piece[1:].partition("m")[0].replace(";", "").isdigit()
        if number > 0:
            kept.append("\x1b" if ours else "\\x1b")
        kept.append("".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in piece))
    return "".join(kept)


def fit(text: str, room: int) -> str:
    """Cut to the room there is. Colour codes take no room and stay."""
    if len(_plain(text)) <= room:
        return text
    import re

    left = max(room - 1, 1)
    kept = []
    for piece in re.split(r"(\x1b\[[0-9;]*m)", text):
        if piece.startswith("\x1b"):
            kept.append(piece)
        else:
            kept.append(piece[:left])
            left -= len(kept[-1])
    return "".join(kept) + "…"


def _to_json(value: Any) -> str:
    """A hint that is no plain text, on one line."""
    import msgspec

    return msgspec.json.encode(value, enc_hook=str).decode()
