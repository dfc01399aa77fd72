"""Whether an answer holds the truth, and whether it states something false. Above: `benchmarks/outputs/asked`.

An answer has passages of the document and, outside them, lines of its own. A passage is never false. A line of its own
is held against the truth only where it claims something: a number, an extreme, or that something is absent.
"""

import re

from msgspec import Struct

from benchmarks.outputs.asked.found import Truth, Value

COMPUTED = {"count", "negation", "sum", "average", "window"}
"""Kinds whose numbers stand nowhere in the document: in a passage one would stand by chance, so it must be stated."""

HEADER = re.compile(r"\[(?:lines?|bytes?|rows?|records?|pages?) \d")
OPENING = re.compile(
    r"made without a language model|only what |it begins|it ends|searched |"
    r"nothing was computed|fields of the |its shape: |by the names of keys:",
    re.IGNORECASE,
)
"""How lines begin that say how the answer was made, or what there is to ask for: they claim nothing."""

READING = re.compile(r"^(?:if \w.* (?:is|are) meant|not in the order of its times:)", re.IGNORECASE)
"""How a second reading of a question begins: an answer with several misleads only where none of them is true."""

ABSENT = re.compile(r"^(?:not in the document|not (?:there|found)|absent|missing)\b[^:]*: *(.+?)\.?$", re.IGNORECASE)
NOTHING = re.compile(
    r"^(?:nothing(?! was computed)|no match|no (?:row|record|line|entry|value|field|column)s?)\b.*|"
    r".*\b(?:was not found|is not in|does not (?:say|hold|contain|have))\b.*",
    re.IGNORECASE,
)
EXTREME = r"max(?:imum)?|min(?:imum)?|largest|smallest|biggest|highest|lowest|greatest|least|most|longest|shortest"
CLAIMS = {
    "count": re.compile(r"\b(?:count|number|how many|there are)\b", re.IGNORECASE),
    "sum": re.compile(r"\b(?:sum|total)\b", re.IGNORECASE),
    "average": re.compile(r"\b(?:mean|average|median)\b", re.IGNORECASE),
    "extreme": re.compile(rf"\b(?:{EXTREME})\b", re.IGNORECASE),
    "order": re.compile(r"\b(?:first|last|earliest|latest|oldest|newest)\b", re.IGNORECASE),
    "lookup": re.compile(r"^(?:value|answer|result)\b.*[:=]|^.+ (?:of|where|with|for) .+: \S", re.IGNORECASE),
}
BESIDE = re.compile(
    r"\bholds? (?:all|'|\")|\bwith the text\b|\bbegins? with\b|\bin the (?:document|table)\b|"
    r"\belements in \S|\boutermost\b|<\w+> elements|^values of ",
    re.IGNORECASE,
)
"""Tallies of words or values, and sizes of a whole, that say so: no answer to what was asked. Counted on their own."""
NUMBER = re.compile(r"(?<![\w.-])-?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?!\w|\.\d)")
PLAIN = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?!\w|\.\d)")
NEAR = 500
"""Characters around a truth within which what a claim names belongs to the same record."""


def holds(text: str, truth: Truth) -> bool:
    """Whether all that is true stands in a text, each as a whole token and in one of its spellings."""
    flat = " ".join(text.split())
    return all(
        any(stands(one, flat) for one in (wanted if isinstance(wanted, tuple) else (wanted,))) for wanted in truth
    )


def stands(wanted: Value, flat: str) -> bool:
    if not isinstance(wanted, str):
        return any(equals(token, wanted) for token in NUMBER.findall(flat) + PLAIN.findall(flat))
    word = " ".join(wanted.split())
    before = r"(?<!\w)(?<!\d\.)" if word[0].isdigit() else r"(?<!\w)" if word[0].isalnum() else ""
    after = r"(?!\w|\.\d)" if word[-1].isdigit() else r"(?!\w)" if word[-1].isalnum() else ""
    return re.search(before + re.escape(word) + after, flat, re.IGNORECASE) is not None


def equals(token: str, wanted: float) -> bool:
    """A number may be rounded, to no less than one decimal where it has any."""
    digits = token.replace(",", "")
    decimals = len(digits.partition(".")[2])
    return abs(float(digits) - wanted) < 0.5000001 * 10**-decimals if decimals else float(digits) == wanted


def must_be_stated(kind: str, truth: Truth) -> bool:
    return kind in COMPUTED and all(isinstance(wanted, (int, float)) for wanted in truth)


def answered(answer: str, document: str, kind: str, truth: Truth) -> bool:
    stated = must_be_stated(kind, truth)
    return holds("\n".join(own_lines(answer, document)) if stated else answer, truth)


def own_lines(answer: str, document: str) -> list[str]:
    """Lines that are no part of the document: neither under a passage's header nor to be found in it."""
    squeezed = squeeze(document)
    lines, inside = [], False
    for line in answer.split("\n"):
        if not line.strip():
            inside = False
        elif HEADER.search(line):
            inside = True
        elif not inside and not OPENING.match(line.strip()) and not is_quoted(line, squeezed):
            lines.append(line.strip())
    return lines


def squeeze(text: str) -> str:
    return re.sub(r"[\s\"']+", "", text)


def is_quoted(line: str, squeezed: str) -> bool:
    """Whether each part of a line, between marks of what was left out, is in the document."""
    return all(squeeze(part) in squeezed for part in re.split(r"…|\.\.\.", line))


class Verdict(Struct, frozen=True):
    """Lines of an answer that state something false, and those that count something else and say so."""

    misleading: list[str]
    beside: list[str]


def judge(answer: str, document: str, kind: str, truth: Truth | None) -> Verdict:
    """Without a truth, whatever is definite misleads."""
    lines = own_lines(answer, document)
    wrong = [line for line in lines if denies(line, document, truth)]
    claims = [line for line in lines if not ABSENT.match(line) and not NOTHING.match(line) and has_value(line)]
    made = [line for line in claims if would_answer(line, kind, truth)]
    if truth is not None and must_be_stated(kind, truth):
        made = [] if any(holds(line, truth) for line in made) else made
    elif truth is not None:
        false = [line for line in made if not belongs(line, document, truth)]
        made = [] if any(map(READING.match, made)) and len(false) < len(made) else false
    beside = [line for line in made if BESIDE.search(line)]
    return Verdict(wrong + [line for line in made if line not in beside], beside)


def would_answer(line: str, kind: str, truth: Truth | None) -> bool:
    """Whether a claim is of the sort that answers a question of this kind."""
    made = {family for family, claim in CLAIMS.items() if claim.search(line)}
    if truth is None:
        return bool(made)
    if must_be_stated(kind, truth):
        return (kind if kind in {"sum", "average"} else "count") in made
    return bool(made & {"extreme", "order"}) or made == {"lookup"}


def has_value(line: str) -> bool:
    return NUMBER.search(line) is not None or ": " in line


def denies(line: str, document: str, truth: Truth | None) -> bool:
    """Whether a line says of something in the document that it is not there."""
    if (absent := ABSENT.match(line)) is not None:
        return any(occurs(term.strip(" '\""), document) for term in absent.group(1).split(", "))
    return truth is not None and NOTHING.match(line) is not None


def occurs(term: str, document: str) -> bool:
    """A word, or the stem of one, that begins a word of the document."""
    after = "" if term.isalpha() and len(term) > 4 else r"(?!\w)"
    return bool(term) and re.search(r"(?<!\w)" + re.escape(term) + after, document, re.IGNORECASE) is not None


def belongs(line: str, document: str, truth: Truth) -> bool:
    """Whether a claim names a truth, or a value of the record that has it."""
    spelled = [one for wanted in truth for one in (wanted if isinstance(wanted, tuple) else (wanted,))]
    if any(stands(one, line) for one in spelled):
        return True
    value = line.partition(": ")[2] or line
    number = NUMBER.search(value)
    named, flat = number.group() if number else value.strip(" .\"'"), " ".join(document.split())
    places = [match for one in spelled for match in re.finditer(re.escape(str(one)), flat)]
    return any(stands(named, flat[max(0, place.start() - NEAR) : place.end() + NEAR]) for place in places)
