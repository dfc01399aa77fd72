"""Reads a docstring: the prose in front, and what it says of each parameter and of the result.

It knows the Google, NumPy and reST forms, and guesses nothing: what fits none of them is prose or is left out. It is
no renderer. `signatures` stands above it.
"""

import inspect
import re

from msgspec import Struct, field

_GOOGLE = re.compile(r"^(Args|Arguments|Parameters|Params|Keyword Args|Other Parameters):\s*$")
_GOOGLE_RETURNS = re.compile(r"^(Returns|Return):\s*(.*)$")
_GOOGLE_OTHER = re.compile(r"^(Raises|Yields|Yield|Examples?|Notes?|Warnings?|See Also|References|Todo):\s*$")
_GOOGLE_ITEM = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?\s*:\s*(.*)$")
_NUMPY_RULE = re.compile(r"^-{3,}\s*$")
_NUMPY_ITEM = re.compile(r"^(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_REST = re.compile(r"^:(param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)$")
_REST_RETURNS = re.compile(r"^:returns?:\s*(.*)$")
_REST_ANY = re.compile(r"^:[a-z]+(?:\s+[^:]+)?:")
_PARAMETER_HEADINGS = {"parameters", "other parameters", "args", "arguments"}


class ParsedDocstring(Struct, frozen=True):
    """What a docstring says. `description` is the prose before the first section, paragraphs kept."""

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    returns: str = ""


def parse_docstring(text: str | None) -> ParsedDocstring:
    """Reads one docstring, `None` included."""
    lines = inspect.cleandoc(text or "").splitlines()
    parameters: dict[str, str] = {}
    returns = ""
    prose: list[str] = []
    in_prose = True
    at = 0
    while at < len(lines):
        line = lines[at]
        if kind := _heading(lines, at):
            in_prose = False
            body, at = _section(lines, at, kind)
            if kind.endswith("parameters"):
                parameters |= _numpy_items(body) if kind.startswith("numpy") else _google_items(body)
            elif kind.endswith("returns"):
                returns = _returns(body, numpy=kind.startswith("numpy"))
            continue
        if _REST_ANY.match(line):
            in_prose = False
            text_of, at = _rest_field(lines, at)
            if match := _REST.match(text_of):
                parameters[match[2]] = match[3].strip()
            elif match := _REST_RETURNS.match(text_of):
                returns = match[1].strip()
            continue
        in_prose = in_prose and not line.startswith(">>>")
        if in_prose:
            prose.append(line.rstrip())
        at += 1
    return ParsedDocstring("\n".join(prose).strip(), parameters, returns)


def _heading(lines: list[str], at: int) -> str:
    """`google-parameters`, `numpy-returns`, `google-other`, …, or nothing where no section starts."""
    line = lines[at]
    if at + 1 < len(lines) and line.strip() and not line.startswith(" ") and _NUMPY_RULE.match(lines[at + 1]):
        name = line.strip().lower()
        if name in _PARAMETER_HEADINGS:
            return "numpy-parameters"
        return "numpy-returns" if name in {"returns", "return"} else "numpy-other"
    if _GOOGLE.match(line):
        return "google-parameters"
    if _GOOGLE_RETURNS.match(line):
        return "google-returns"
    return "google-other" if _GOOGLE_OTHER.match(line) else ""


def _section(lines: list[str], at: int, kind: str) -> tuple[list[str], int]:
    """The lines of the section that starts at `at`, and where the next thing starts."""
    body: list[str] = []
    if kind.startswith("numpy"):
        at += 2
        while at < len(lines) and not _heading(lines, at):
            body.append(lines[at])
            at += 1
        return body, at
    if kind == "google-returns" and (match := _GOOGLE_RETURNS.match(lines[at])) and match[2]:
        body.append("    " + match[2])
    at += 1
    while at < len(lines) and (not lines[at].strip() or lines[at].startswith(" ")):
        body.append(lines[at])
        at += 1
    return body, at


def _rest_field(lines: list[str], at: int) -> tuple[str, int]:
    """A `:field:` with its continuation lines joined."""
    parts = [lines[at].strip()]
    at += 1
    while at < len(lines) and lines[at].startswith(" "):
        parts.append(lines[at].strip())
        at += 1
    return " ".join(parts), at


def _google_items(body: list[str]) -> dict[str, str]:
    """`name (type): text`, each deeper line going on with the item before it."""
    filled = [line for line in body if line.strip()]
    if not filled:
        return {}
    margin = min(_indent(line) for line in filled)
    found: dict[str, str] = {}
    name = ""
    for line in filled:
        match = _GOOGLE_ITEM.match(line.strip()) if _indent(line) == margin else None
        if match:
            name = match[1]
            found[name] = match[2].strip()
        elif name:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found


def _numpy_items(body: list[str]) -> dict[str, str]:
    """`name : type` at the margin, its text below it and deeper."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in body:
        if not line.strip():
            continue
        if not line.startswith(" "):
            match = _NUMPY_ITEM.match(line)
            names = [name.strip().lstrip("*") for name in match[1].split(",")] if match else []
            found |= dict.fromkeys(names, "")
            continue
        for name in names:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found


def _returns(body: list[str], *, numpy: bool) -> str:
    lines = [line for line in body if line.strip()]
    if numpy:
        deeper = [line for line in lines if line.startswith(" ")]
        lines = deeper or lines
    return " ".join(line.strip() for line in lines)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
