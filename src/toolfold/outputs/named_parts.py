"""What a request names by path, lines, bytes or pattern, beyond what one lookup answers.

Several parts in one request are answered one by one, and those that are not answered are named. Lines are those of the
text inside a JSON document of one line. Paths may be written as the tool's schema shows them or from the value itself:
`result[3]`, `[3]`, `$[3]`. Above: `extraction.py`. Below: `local/exact.py`.
"""

import re
from collections.abc import Iterator, Sequence
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
_PLACES = (BYTES, LINES, ENDS)
# Words of a request that ask for the parts that it names, and for nothing besides.
_ASKING = (
    "give show get return print read extract find list quote tell please value values line lines byte bytes field "
    "fields path paths text content document output result file log table json section part range row rows record "
    "records entry entries exact exactly verbatim whole complete"
)


class _Text(Struct, frozen=True):
    """A text of several lines inside a document."""

    steps: tuple[Step, ...]
    lines: list[str]


def rewrite_paths(indexes: IndexCache, path: Path, request: str) -> str:
    """The request with each path as the document has it, where it was written as another view of it shows it."""
    text = request.strip().strip("`")[:MAX_REQUEST]
    if REGEX.search(text) or not PATHLIKE.search(text):
        return request
    with indexes.of(path) as index:
        keys = _root_keys(index)
        return request if keys is None else PATHLIKE.sub(lambda match: _rewritten(index, match[0], keys), text)


def _rewritten(index: DocumentIndex, written: str, keys: list[str] | int) -> str:
    steps = parse_path(written.rstrip("."))
    moved = reroot(steps, keys) if steps else steps
    if moved is None or moved == steps or not _is_there(index, format_path(moved)):
        return written
    return format_path(moved)


def _root_keys(index: DocumentIndex) -> list[str] | int | None:
    """The keys of the outermost object, or the number of items of the outermost list; `None` for what is no JSON."""
    if index.json is None:
        return None
    root = index.json.root
    if root.is_array:
        return len(index.json.member_spans(root))
    return [str(step) for step, _, _ in index.json.members(root)]


def answer_named(indexes: IndexCache, path: Path, request: str, budget: int) -> str | None:
    """The parts that the request names; `None` where it names one that a plain lookup answers, or none."""
    text = request.strip()[:MAX_REQUEST]
    if REGEX.search(text) or not any(form.search(text) for form in (*_PLACES, PATHLIKE)):
        return None
    with indexes.of(path) as index:
        parts, rest = _split(text, _PLACES if index.json is None else (*_PLACES, PATHLIKE))
        if len(parts) == 1 and not rest and not _asks_lines(parts[0]):
            return None
        if not any(map(_asks_place, parts)) and (rest or not parts):
            return None  # words, and paths among them: the words are searched for, too
        answers, missing = _answer_parts(index, parts, budget - 80)
    if answers is None:
        return None
    note = [*(f"{part}: there is nothing at it" for part in missing), *([f"“{rest}”"] if rest else [])]
    left = [f"Not answered: {'; '.join(note)}. Ask for it by itself."] if note else []
    return "\n".join([f"{PREAMBLE}\n", *answers, *left])


def unanswered_paths(indexes: IndexCache, path: Path, request: str) -> str:
    """A line that names the paths of a request in words that lead nowhere; nothing where there are none."""
    text = request.strip()[:MAX_REQUEST]
    if REGEX.search(text) or not re.search(r"\s", text):
        return ""
    with indexes.of(path) as index:
        if index.json is None:
            return ""
        written = [match[0].rstrip(".") for match in PATHLIKE.finditer(text)][:MAX_PARTS]
        missing = [part for part in written if "[" in part and not _is_there(index, part)]
    return f"\n\nNot answered: {', '.join(missing)}: there is nothing at it." if missing else ""


def _is_there(index: DocumentIndex, part: str) -> bool:
    found = find_exact(index, part, 200)
    return found is not None and not found.lines[0].startswith("There is nothing at")


def _split(text: str, forms: Sequence[re.Pattern[str]]) -> tuple[list[str], str]:
    """The parts that a request names, in order, and what else it says, if that is more than asking for them."""
    spans = sorted(match.span() for form in forms for match in form.finditer(text))
    parts: list[str] = []
    rest, at = "", 0
    for start, end in spans:
        if start >= at and len(parts) < MAX_PARTS:
            parts.append(text[start:end].rstrip("."))
            rest += text[at:start] + " "
            at = end
    rest = " ".join((rest + text[at:]).split()).strip(" ,.;:?!`'\"")
    said = set(re.findall(r"\w+", rest.casefold())) - set(_ASKING.split()) - stop_words("documents")
    return parts, rest if said else ""


def _asks_lines(part: str) -> bool:
    return bool(LINES.fullmatch(part) or ENDS.fullmatch(part))


def _asks_place(part: str) -> bool:
    return bool(_asks_lines(part) or BYTES.fullmatch(part))


def _answer_parts(index: DocumentIndex, parts: list[str], budget: int) -> tuple[list[str] | None, list[str]]:
    """The answers, and the parts without one. No answers: a plain lookup does as well."""
    texts = _inner_texts(index) if any(map(_asks_lines, parts)) else []
    if len(parts) == 1 and not texts and _asks_lines(parts[0]) and index.source.lines != 1:
        return None, []
    named = [part for part in parts if not _asks_place(part)]
    inner = _chosen_text(texts, named)
    if inner is not None and named:
        parts = [part for part in parts if parse_path(part) != list(inner.steps)]
    answers: list[str] = []
    missing: list[str] = []
    for part in parts:
        room = budget // len(parts)
        found = find_exact(index, part, room) if inner is None or not _asks_lines(part) else None
        if inner is not None and _asks_lines(part):
            answers.append(_lines_of(inner, part, room, len(texts)))
        elif found is not None and not found.lines[0].startswith("There is nothing at"):
            answers += found.lines
        else:
            missing.append(part)
    return answers, missing


def _inner_texts(index: DocumentIndex) -> list[_Text]:
    """The texts of several lines in a JSON document of one line, the longest first."""
    if index.json is None or index.source.lines > 1 or index.source.size > MAX_DECODED:
        return []
    try:
        value = msgspec.json.decode(index.source.read(0, index.source.size))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    texts = [_Text(steps, text.splitlines()) for steps, text in _long_texts(value, ())]
    return sorted(texts, key=lambda text: -len(text.lines))


def _long_texts(value: Any, steps: tuple[Step, ...]) -> Iterator[tuple[tuple[Step, ...], str]]:
    if isinstance(value, str):
        if "\n" in value:
            yield steps, value
    elif isinstance(value, dict | list) and len(steps) < MAX_DEPTH:
        members = value.items() if isinstance(value, dict) else enumerate(value)
        for step, member in members:
            yield from _long_texts(member, (*steps, step))


def _chosen_text(texts: list[_Text], named: list[str]) -> _Text | None:
    """The text that the request names by its path, else the longest."""
    paths = [parse_path(part) for part in named]
    return next((text for text in texts if list(text.steps) in paths), texts[0] if texts else None)


def _lines_of(text: _Text, part: str, budget: int, texts: int) -> str:
    """Lines of a text inside the document."""
    total, where = len(text.lines), format_path(text.steps)
    first, last = _range(part, total)
    if not 1 <= first <= min(last, total):
        return f"There are no such lines: the text at {where} has lines 1-{total}."
    last = min(last, total)
    others = f" (the longest of {texts} texts: name another with its path, `{where} lines 1-9`)" if texts > 1 else ""
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
