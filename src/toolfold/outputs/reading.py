"""Read and Grep, the two tools of the read-grep sub-agent. They reach one file, the document, and nothing else.

A name is compared, never joined into a path: `..`, absolute names, links, devices and names with newlines all differ
from the one name that counts. The file is opened without following links, and must be a plain file.
"""

from pathlib import Path
from typing import Any, BinaryIO

from toolfold.model import ToolOffer
from toolfold.outputs.grepping import grep_file
from toolfold.outputs.plainfile import open_plain

MOST_BYTES = 16_000
MOST_LINES = 400
MOST_HITS = 100

READ = ToolOffer(
    "Read",
    "Read lines of the file, numbered. For very long lines, read bytes instead.",
    {
        "type": "object",
        "properties": {
            "file": {"type": "string"},
            "first_line": {"type": "integer", "minimum": 1},
            "lines": {"type": "integer", "minimum": 1, "maximum": MOST_LINES},
            "first_byte": {"type": "integer", "minimum": 0},
            "bytes": {"type": "integer", "minimum": 1, "maximum": MOST_BYTES},
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
OFFERS = (READ, GREP)


class Tools:
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
            with open_plain(self._path) as opened:
                return self._read(opened, arguments) if name == "Read" else self._grep(arguments)
        except OSError as error:
            return f"The file cannot be opened: {error.strerror or error}."

    def _grep(self, arguments: dict[str, Any]) -> str:
        pattern = arguments.get("pattern")
        if not isinstance(pattern, str) or not pattern:
            return "Grep needs a pattern, a regular expression."
        ignore = arguments.get("ignore_case") is True
        found = grep_file(self._path, pattern, ignore_case=ignore, most=MOST_HITS, seconds=self._seconds)
        if found.problem:
            return found.problem
        lines = [f"{found.count} lines fit." if found.count else "No line fits."]
        size = 0
        for hit in found.hits:
            lines.append(f"[line {hit.line}, bytes {hit.start}-{max(hit.start, hit.end - 1)}] {hit.text}")
            size += len(lines[-1])
            if size > MOST_BYTES:
                break
        if len(lines) - 1 < found.count:
            lines.append(f"({found.count - len(lines) + 1} more lines fit: use a narrower pattern.)")
        return "\n".join(lines)

    def _read(self, file: BinaryIO, arguments: dict[str, Any]) -> str:
        if "first_byte" in arguments:
            start = whole_number(arguments.get("first_byte"), 0)
            file.seek(start)
            raw = file.read(min(whole_number(arguments.get("bytes"), MOST_BYTES), MOST_BYTES))
            return f"[bytes {start}-{start + len(raw) - 1}]\n{raw.decode(errors='replace')}" if raw else "Past the end."
        first = max(1, whole_number(arguments.get("first_line"), 1))
        count = min(max(1, whole_number(arguments.get("lines"), 100)), MOST_LINES)
        shown, size, offset = [], 0, 0
        number = 0
        while number < first + count - 1 and size < MOST_BYTES and (line := file.readline(MOST_BYTES + 1)):
            number += 1
            long = len(line) > MOST_BYTES
            begin, offset = offset, offset + len(line)
            while long and not line.endswith(b"\n") and (rest := file.readline(MOST_BYTES)):
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


def whole_number(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 60 else default
