"""Whether a document is only a part of a longer list, as it says itself: a page, a cursor, "showing 20 of 400".

Above: `computed.py`. Below: `index.py`.
"""

import re
from typing import Any

from toolfold.outputs.local.facts import PAGES, is_no_record
from toolfold.outputs.local.index import DocumentIndex
from toolfold.outputs.local.json_index import Container, decode_value
from toolfold.outputs.local.render import clip
from toolfold.words import split_identifier

# Where a text speaks of itself: at its beginning and its end.
_ENDS = 2000
_SMALL, _MAX_MEMBERS = 4096, 200
_THINGS = r"(?:results?|rows?|records?|items?|entries|lines|matches|hits|orders|events|objects|documents|of them)"
SAID = re.compile(
    rf"\b(?:showing|displaying|shown|listing|results?|rows?|records?|items?|entries)\W{{1,3}}"
    rf"(?:\d+\s*(?:-|\u2013|to)\s*)?(\d[\d,]*)\s+(?:out )?of\s+(?:about )?(\d[\d,]*)"
    rf"|\bpage:?\s+(\d+)\s*(?:of|/)\s*(\d+)|\b(\d[\d,]*) (?:out )?of (\d[\d,]*) {_THINGS}\b"
    rf"|\b(?:and|\+|\.\.\.|…)\s?(\d[\d,]*) more\b|-- ?more ?--|\b(?:output|results?|list|rows) (?:was |were |is )?"
    rf"(?:truncated|limited|cut off)|\[?truncated\]?$|\bnext[_ -]?(?:cursor|page|token)\b\W{{1,3}}\w",
    re.IGNORECASE | re.MULTILINE,
)
_ATTRIBUTE = re.compile(r"([\w:-]+)\s*=\s*[\"']([^\"'<]*)[\"']")
_MORE = frozenset({"more", "truncated", "partial", "incomplete", "next"})
# What a list's own facts stand under.
_ABOUT = PAGES | {"meta", "metadata", "pagination", "paging", "info", "links", "response", "result", "search"}
_TOTALS = frozenset({"total", "count", "results", "items", "records", "hits", "matches", "size", "number"})


def find_part(index: DocumentIndex, count: int, name: str) -> str:
    """What the document says of more records than the `count` that it holds; empty where it says nothing."""
    facts = index.cached("part", lambda: _own_facts(index))
    if said := facts.get("", ""):
        return str(said)
    for path, value in facts.items():
        if _says_more(path, value) or _is_larger(path, value, count, name):
            # The figure of a statement stands behind its last colon.
            return f'"{path} = {clip(str(value), 60)}"'
    pages = [(path, value) for path, value in facts.items() if _words(path)[-1:] in (["pages"], ["page"])]
    several = [f'"{path} = {value}"' for path, value in pages if str(value).isdecimal() and int(value) > 1]
    return " and ".join(several)


def _words(path: str) -> list[str]:
    return [word.lower() for word in split_identifier(path)]


def _says_more(path: str, value: Any) -> bool:
    words = _words(path.rpartition(".")[2])
    if _MORE.isdisjoint(words) or "previous" in words:
        return False
    # A next page is named, or said to be there.
    return value is True or str(value).lower() == "true" or ("next" in words and _is_given(value))


def _is_given(value: Any) -> bool:
    return isinstance(value, (str, int)) and str(value).strip().lower() not in {"", "false", "null", "none", "0"}


def _is_larger(path: str, value: Any, count: int, name: str) -> bool:
    """Whether a total is that of more records. `total: 12.50` is money, and that of other records is none of these."""
    words = _words(path.rpartition(".")[2])
    about = _TOTALS | set(_words(name))
    counted = isinstance(value, int) and not isinstance(value, bool)
    return counted and "total" in words and about.issuperset(words) and value > count


def _own_facts(index: DocumentIndex) -> dict[str, Any]:
    """What the document says outside of its records, by path; under an empty path what it says in words."""
    if index.format.kind in {"log", "diff", "binary"}:
        return {}
    if index.format.kind == "json-lines":
        return _last_line(index)
    return _members(index, index.json.root, "", 2) if index.json is not None else _said(index)


def _last_line(index: DocumentIndex) -> dict[str, Any]:
    last = index.source.text(*index.source.span_of_lines(index.source.lines, index.source.lines))
    values = decode_value(last.encode()) if last.strip()[-1:] == "}" else {}
    return values if is_no_record(values) else {}


def _said(index: DocumentIndex) -> dict[str, Any]:
    """What a text says of itself, at both ends; of XML the attributes of its root."""
    source = index.source
    head, tail = source.text(0, _ENDS), source.text(max(_ENDS, source.size - _ENDS), source.size)
    if index.structure is not None and index.structure.kind == "markup":
        return _root_attributes(head)
    for match in (*SAID.finditer(head), *SAID.finditer(tail)):
        numbers = [int(own.replace(",", "")) for own in match.groups() if own]
        page = match[3] is not None
        if len(numbers) != 2 or (numbers[1] > 1 if page else numbers[0] < numbers[1]):
            return {"": f'"{clip(match[0].strip().replace(":", ""), 60)}"'}
    return {}


def _root_attributes(head: str) -> dict[str, Any]:
    opening = re.search(r"<[A-Za-z][^>]*>", head)
    own = _ATTRIBUTE.findall(opening[0]) if opening else []
    return {name: int(value) if value.isdecimal() else value for name, value in own}


def _members(index: DocumentIndex, container: Container, path: str, depth: int) -> dict[str, Any]:
    """The scalars of an object, and of the objects in it, that are small enough to be read."""
    facts: dict[str, Any] = {}
    if container.is_array or index.json is None:
        return facts
    for step, start, end in list(index.json.members(container))[:_MAX_MEMBERS]:
        inner = index.json.container_from(start)
        if inner is not None and depth and _ABOUT.issuperset(_words(str(step))) and inner.end - start < _SMALL:
            facts |= _members(index, inner, f"{path}{step}.", depth - 1)
        elif inner is None:
            try:
                facts[f"{path}{step}"] = decode_value(index.source.read(start, min(end, start + _SMALL)).strip())
            except ValueError:
                continue
    return facts
