"""One line that says what a tool does, from what its server wrote. Plain words, no markup, never empty.

The text comes from outside and will be read by a model: control characters and invisible ones are taken out here. It is
shortened, never reworded.
"""

import re
import unicodedata

from toolfold.types import ToolDefinition
from toolfold.words import split_identifier

MAX_LENGTH = 100
# A first sentence shorter than this says too little alone; the next is added where it fits.
_SHORT = 24

# Characters of a description that are looked at.
_MAX_READ = 2000

# Markdown and HTML that servers write into descriptions.
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\n]*\)")
_TAG = re.compile(r"</?[A-Za-z][^<>\n]{0,80}>")
_LINE_MARK = re.compile(
    r"^[ \t]*(?:#{1,6}[ \t]+|[-*+•][ \t]+|>[ \t]?|\d{1,2}[.)][ \t]+|[-=*_]{3,}[ \t]*$)", re.MULTILINE
)
_EMPHASIS = re.compile(r"`+|\*{1,3}|(?<!\w)_{1,2}(?=\w)|(?<=\w)_{1,2}(?!\w)|~~")
_PARAGRAPH = re.compile(r"\n[ \t]*\n")
_SENTENCE_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)(?<!\bapprox)[.!?](?=\s+[^a-z\s]|\s*$)")


def summarise(definition: ToolDefinition) -> str:
    """The first sentence of the description, else the title, else the name in words."""
    name = " ".join(split_identifier(definition.name)).lower()
    line = _line(definition.description) or _line(definition.title) or _line(name).capitalize()
    return line or "A tool without a name or description"


def _line(text: str) -> str:
    for paragraph in _PARAGRAPH.split(_plain(text)):
        line = " ".join(paragraph.split())
        if any(mark.isalnum() for mark in line):
            return _cut(line)
    return ""


def _plain(text: str) -> str:
    text = text[:_MAX_READ]
    if not (text.isascii() and text.isprintable()):
        text = "".join(_visible(mark) for mark in text)
    for pattern, instead in ((_FENCE, " "), (_LINK, r"\1"), (_TAG, " "), (_LINE_MARK, ""), (_EMPHASIS, "")):
        text = pattern.sub(instead, text)
    return text.strip()


def _visible(mark: str) -> str:
    """Invisible and control characters vanish; anything that breaks a line does so in one way."""
    if mark == "\n" or mark.isalnum():
        return mark
    kind = unicodedata.category(mark)
    if kind in {"Zl", "Zp"}:
        return "\n"
    if kind[0] == "Z" or mark in "\t\r\v\f":
        return " "
    return "" if kind[0] == "C" else mark


def _cut(line: str) -> str:
    sentence = _sentences(line)
    if len(sentence) <= MAX_LENGTH:
        return sentence
    head = sentence[: MAX_LENGTH - 1]
    space = sentence.rfind(" ", 0, MAX_LENGTH)
    if space > MAX_LENGTH // 2:
        head = sentence[:space]
    return head.rstrip(" ,;:.-\N{EN DASH}\N{EM DASH}(") + "…"


def _sentences(line: str) -> str:
    """The first sentence, or the first few where the first is very short."""
    ends = [match.end() for match in _SENTENCE_END.finditer(line) if match.end() <= MAX_LENGTH]
    end = next((end for end in ends if end >= _SHORT), None)
    if end is None and ends and len(line) > MAX_LENGTH:
        end = ends[0]
    return line[:end]
