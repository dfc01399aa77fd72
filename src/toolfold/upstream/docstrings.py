"""Parses a docstring: the prose in front, and what it says of each parameter and of the result.

It knows the Google, NumPy and reST forms, and guesses nothing: what fits none of them is prose or is left out. It is
no renderer. `function_tool` stands above it.
"""

import inspect
import re
from collections.abc import Callable

from msgspec import Struct, field

_GOOGLE = {
    "parameters": re.compile(r"^(Args|Arguments|Parameters|Params|Keyword Args|Other Parameters):\s*$"),
    "returns": re.compile(r"^(?:Returns|Return):\s*(.*)$"),
    "other": re.compile(r"^(Raises|Yields|Yield|Examples?|Notes?|Warnings?|See Also|References|Todo):\s*$"),
}
_GOOGLE_ITEM = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?\s*:\s*(.*)$")
_NUMPY = {"parameters": {"parameters", "other parameters", "args", "arguments"}, "returns": {"returns", "return"}}
_NUMPY_RULE = re.compile(r"^-{3,}\s*$")
_NUMPY_ITEM = re.compile(r"^(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_REST = re.compile(r"^:(param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)$")
_REST_RETURNS = re.compile(r"^:returns?:\s*(.*)$")
_REST_ANY = re.compile(r"^:[a-z]+(?:\s+[^:]+)?:")


class ParsedDocstring(Struct, frozen=True):
    """What a docstring says. `description` is the prose before the first section, with its paragraphs."""

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    returns: str = ""


def parse_docstring(text: str | None) -> ParsedDocstring:
    """Parses one docstring, `None` included."""
    return _Parser(inspect.cleandoc(text or "").splitlines()).parse()


class _Parser:
    """One pass over the lines; `_at` is the line that comes next."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0
        self._parameters: dict[str, str] = {}
        self._returns = ""

    def parse(self) -> ParsedDocstring:
        prose: list[str] = []
        in_prose = True
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if heading := self._heading(self._at):
                in_prose = False
                self._section(*heading)
            elif _REST_ANY.match(line):
                in_prose = False
                self._rest_field()
            else:
                in_prose = in_prose and not line.startswith(">>>")
                prose += [line.rstrip()] if in_prose else []
                self._at += 1
        return ParsedDocstring("\n".join(prose).strip(), self._parameters, self._returns)

    def _heading(self, at: int) -> tuple[str, str] | None:
        """`("google", "parameters")`, `("numpy", "other")`, …, or nothing where no section starts."""
        line = self._lines[at]
        below = self._lines[at + 1] if at + 1 < len(self._lines) else ""
        if line.strip() and not line.startswith(" ") and _NUMPY_RULE.match(below):
            name = line.strip().lower()
            return "numpy", next((kind for kind, names in _NUMPY.items() if name in names), "other")
        kind = next((kind for kind, pattern in _GOOGLE.items() if pattern.match(line)), None)
        return ("google", kind) if kind else None

    def _section(self, form: str, kind: str) -> None:
        take_body, parse_items = (
            (self._numpy_body, _numpy_items) if form == "numpy" else (self._google_body, _google_items)
        )
        lines = [line for line in take_body() if line.strip()]
        if kind == "parameters":
            self._parameters |= parse_items(lines)
        elif kind == "returns":
            # NumPy names the type at the margin, and says what it is below; Google's lines are all deeper.
            deeper = [line for line in lines if line.startswith(" ")]
            self._returns = " ".join(line.strip() for line in deeper or lines)

    def _numpy_body(self) -> list[str]:
        self._at += 2
        return self._take(lambda line: not self._heading(self._at))

    def _google_body(self) -> list[str]:
        match = _GOOGLE["returns"].match(self._lines[self._at])
        self._at += 1
        # The text of `Returns:` may begin in its own line.
        first = ["    " + match[1]] if match else []
        return first + self._take(lambda line: not line.strip() or line.startswith(" "))

    def _rest_field(self) -> None:
        """A `:field:` with its continuation lines."""
        first = self._lines[self._at].strip()
        self._at += 1
        text = " ".join([first, *(line.strip() for line in self._take(lambda line: line.startswith(" ")))])
        if match := _REST.match(text):
            self._parameters[match[2]] = match[3].strip()
        elif match := _REST_RETURNS.match(text):
            self._returns = match[1].strip()

    def _take(self, belongs: Callable[[str], bool]) -> list[str]:
        """The next lines, up to the first that does not belong to them."""
        start = self._at
        while self._at < len(self._lines) and belongs(self._lines[self._at]):
            self._at += 1
        return self._lines[start : self._at]


def _google_items(lines: list[str]) -> dict[str, str]:
    """`name (type): text`; each deeper line continues the item before it."""
    margin = min((_indent(line) for line in lines), default=0)
    items: dict[str, str] = {}
    name = ""
    for line in lines:
        match = _GOOGLE_ITEM.match(line.strip()) if _indent(line) == margin else None
        if match:
            name = match[1]
            items[name] = match[2].strip()
        elif name:
            items[name] = f"{items[name]} {line.strip()}".strip()
    return items


def _numpy_items(lines: list[str]) -> dict[str, str]:
    """`name : type` at the margin, its text below it and deeper."""
    items: dict[str, str] = {}
    names: list[str] = []
    for line in lines:
        if not line.startswith(" "):
            match = _NUMPY_ITEM.match(line)
            names = [name.strip().lstrip("*") for name in match[1].split(",")] if match else []
            items |= dict.fromkeys(names, "")
            continue
        for name in names:
            items[name] = f"{items[name]} {line.strip()}".strip()
    return items


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
