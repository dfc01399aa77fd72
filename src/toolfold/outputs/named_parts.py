"""What a request names by path, lines, bytes or pattern, beyond what one lookup answers.

Several parts in one request are answered one by one, and those that are not answered are named. Lines are those of the
text inside a JSON document of one line. Paths may be written as the tool's schema shows them or from the value itself:
`result[3]`, `[3]`, `$[3]`. Above: `extraction.py`. Below: `local/exact.py`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from toolfold.outputs.json_path import Step, format_path, parse_path, reroot
from toolfold.outputs.local.answer import PREAMBLE
from toolfold.outputs.local.exact import BYTES, ENDS, LINES, PATHLIKE, REGEX, find_exact
from toolfold.outputs.local.index import DocumentIndex, IndexCache
from toolfold.outputs.local.request import MAX_REQUEST
from toolfold.outputs.truncate import truncate_bytes
from toolfold.words import stop_words

# A larger document is not decoded for the text inside it.
MAX_DECODED = 64 << 20
MAX_PARTS = 10
MAX_DEPTH = 48
_FORMS = (BYTES, LINES, ENDS, PATHLIKE)
# Words of a request that ask for the parts that it names, and for nothing besides.
_ASKING = (
    "give show get return print read extract find list quote tell please value values line lines byte bytes field "
    "fields path paths text content document output result file log table json section part range row rows record "
    "records entry entries exact exactly verbatim whole complete"
)


class _Text(Struct, frozen=True):
    """A text of several lines inside a document, and how many such texts there are."""

    steps: list[Step]
    lines: list[str]
    among: int


class NamedParts:
    """What a request names of a document. `request` has its paths as the document has them."""

    def __init__(self, indexes: IndexCache, path: Path, request: str) -> None:
        self._indexes = indexes
        self._path = path
        self._text = request.strip().strip("`")[:MAX_REQUEST]
        self.request = request
        self._forms = [] if REGEX.search(self._text) else [form for form in _FORMS if form.search(self._text)]
        if PATHLIKE in self._forms:
            self._rewrite_paths()

    def _rewrite_paths(self) -> None:
        with self._indexes.of(self._path) as index:
            keys = _root_keys(index)
            if keys is None:
                self._forms.remove(PATHLIKE)
                return
            self._text = PATHLIKE.sub(lambda match: _rewritten(index, match[0], keys), self._text)
        self.request = self._text

    def answer(self, budget: int) -> str | None:
        """The parts; `None` where there are none, or one that a plain lookup answers."""
        parts, rest = _split(self._text, self._forms)
        # Paths among words: the words are searched for, too.
        if not any(map(_asks_place, parts)) and (rest or len(parts) < 2):
            return None
        with self._indexes.of(self._path) as index:
            inner = _inner_text(index, parts, self._text) if any(map(_asks_lines, parts)) else None
            if inner is None and len(parts) == 1 and not rest:
                return None
            if inner is not None:
                name = format_path(inner.steps)
                parts = [part for part in parts if part != name]
                rest = "" if rest == name else rest
            answers = {part: _answer_part(index, inner, part, (budget - 80) // len(parts)) for part in parts}
        return "\n".join([f"{PREAMBLE}\n", *filter(None, answers.values()), *_unanswered(answers, rest)])

    def missing_paths(self) -> str:
        """A line on the paths among words that lead nowhere; nothing where there are none."""
        if PATHLIKE not in self._forms:
            return ""
        written = [match[0].rstrip(".") for match in PATHLIKE.finditer(self._text) if "[" in match[0]][:MAX_PARTS]
        with self._indexes.of(self._path) as index:
            missing = [part for part in written if not _look_up(index, part, 200)]
        return f"\n\nNot answered: {', '.join(missing)}: there is nothing at it." if missing else ""


def _unanswered(answers: Mapping[str, str], rest: str) -> list[str]:
    note = [f"{part}: there is nothing at it" for part, answer in answers.items() if not answer]
    note += [f"“{rest}”"] if rest else []
    return [f"Not answered: {'; '.join(note)}. Ask for it by itself."] if note else []


def _root_keys(index: DocumentIndex) -> list[str] | int | None:
    """The keys of the outermost object, or the number of items of the outermost list; `None` for what is no JSON."""
    if index.json is None:
        return None
    root = index.json.root
    if root.is_array:
        return len(index.json.member_spans(root))
    return [str(step) for step, _, _ in index.json.members(root)]


def _rewritten(index: DocumentIndex, written: str, keys: list[str] | int) -> str:
    steps = parse_path(written.rstrip("."))
    moved = format_path(reroot(steps, keys)) if steps else written
    return moved if not _look_up(index, written, 200) and _look_up(index, moved, 200) else written


def _look_up(index: DocumentIndex, part: str, budget: int) -> str:
    """What is at a part; nothing where nothing is."""
    found = find_exact(index, part, budget)
    return "" if found is None or found.lines[0].startswith("There is nothing at") else "\n".join(found.lines)


def _answer_part(index: DocumentIndex, inner: _Text | None, part: str, budget: int) -> str:
    return _lines_of(inner, part, budget) if inner is not None and _asks_lines(part) else _look_up(index, part, budget)


def _split(text: str, forms: Sequence[re.Pattern[str]]) -> tuple[list[str], str]:
    """The parts that a request names, in order, and what else it says, if that is more than asking for them."""
    spans = sorted(match.span() for form in forms for match in form.finditer(text))
    parts: list[str] = []
    others: list[str] = []
    at = 0
    for start, end in spans:
        if start >= at and len(parts) < MAX_PARTS:
            parts.append(text[start:end].rstrip("."))
            others.append(text[at:start])
            at = end
    ignored = stop_words("documents").union(_ASKING.split())
    telling = [other for other in (*others, text[at:]) if set(re.findall(r"\w+", other.casefold())) - ignored]
    return parts, " … ".join(" ".join(other.split()).strip(" ,.;:?!`'\"") for other in telling)


def _asks_lines(part: str) -> bool:
    return bool(LINES.fullmatch(part) or ENDS.fullmatch(part))


def _asks_place(part: str) -> bool:
    return bool(_asks_lines(part) or BYTES.fullmatch(part))


def _inner_text(index: DocumentIndex, parts: list[str], request: str) -> _Text | None:
    """Of a JSON document in one line, the text whose lines are asked for: named by its path, else the longest."""
    if index.json is None or index.source.lines > 1 or index.source.size > MAX_DECODED:
        return None
    try:
        value = msgspec.json.decode(index.source.read(0, index.source.size))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    texts = [(list(steps), text.splitlines()) for steps, text in _long_texts(value, ())]
    named = {*parts, *re.split(r"[\s,`]+", request)}
    chosen = max(texts, key=lambda text: (format_path(text[0]) in named, len(text[1])), default=None)
    return None if chosen is None else _Text(*chosen, len(texts))


def _long_texts(value: Any, steps: tuple[Step, ...]) -> Iterator[tuple[tuple[Step, ...], str]]:
    if isinstance(value, str):
        if "\n" in value:
            yield steps, value
    elif isinstance(value, dict | list) and len(steps) < MAX_DEPTH:
        members = value.items() if isinstance(value, dict) else enumerate(value)
        for step, member in members:
            yield from _long_texts(member, (*steps, step))


def _lines_of(text: _Text, part: str, budget: int) -> str:
    """Lines of a text inside the document."""
    total, where = len(text.lines), format_path(text.steps)
    first, last = _range(part, total)
    if not 1 <= first <= min(last, total):
        return f"There are no such lines: the text at {where} has lines 1-{total}."
    last = min(last, total)
    others = f" (one of {text.among} texts: name another by its path, `{where} lines 1-9`)" if text.among > 1 else ""
    body = truncate_bytes("\n".join(text.lines[first - 1 : last]).encode("utf-8", "replace"), budget)
    return f"[{where}, lines {first}-{last} of {total}]{others}\n{body}"


def _range(part: str, total: int) -> tuple[int, int]:
    if match := LINES.fullmatch(part):
        return int(match[1]), int(match[2] or match[1])
    match = ENDS.fullmatch(part)
    count = int(match[2]) if match else 0
    if match and match[1].lower() in {"first", "top", "head"}:
        return 1, count
    return max(1, total - count + 1), total
