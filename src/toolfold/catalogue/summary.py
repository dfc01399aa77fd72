"""One line that says what a tool does, from what its server wrote. Plain words, no markup, never empty.

The text comes from outside and will be read by a model: control characters and invisible ones are taken out here. It is
shortened, never reworded.
"""

import re
import unicodedata

from toolfold.types import ToolDefinition

MAX_LENGTH = 100
SHORT = 24
"""A first sentence shorter than this says too little alone; the next is added where it fits."""

READ = 2000
"""Characters of a description that are looked at."""

_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\n]*\)")
_TAG = re.compile(r"</?[A-Za-z][^<>\n]{0,80}>")
_LINE_MARK = re.compile(
    r"^[ \t]*(?:#{1,6}[ \t]+|[-*+•][ \t]+|>[ \t]?|\d{1,2}[.)][ \t]+|[-=*_]{3,}[ \t]*$)", re.MULTILINE
)
_EMPHASIS = re.compile(r"`+|\*{1,3}|(?<!\w)_{1,2}(?=\w)|(?<=\w)_{1,2}(?!\w)|~~")
_PARAGRAPH = re.compile(r"\n[ \t]*\n")
_SENTENCE_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)(?<!\bapprox)[.!?](?=\s+[^a-z\s]|\s*$)")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_]+")


def summarise(definition: ToolDefinition) -> str:
    """The first sentence of the description, else the title, else the name in words."""
    for text in (definition.description, definition.title):
        line = _line(text)
        if line:
            return line
    return _line(" ".join(words(definition.name))).capitalize() or "A tool without a name or description"


def words(name: str) -> list[str]:
    """The words of an identifier: `getUserByID` and `get_user_by_id` are the same four."""
    return [word.lower() for word in _WORDS.findall(name)]


def _line(text: str) -> str:
    for paragraph in _PARAGRAPH.split(_plain(text)):
        line = " ".join(paragraph.split())
        if any(one.isalnum() for one in line):
            return _cut(line)
    return ""


def _plain(text: str) -> str:
    text = text[:READ]
    if not (text.isascii() and text.isprintable()):
        text = "".join(_visible(one) for one in text)
    for pattern, instead in ((_FENCE, " "), (_LINK, r"\1"), (_TAG, " "), (_LINE_MARK, ""), (_EMPHASIS, "")):
        text = pattern.sub(instead, text)
    return text.strip()


def _visible(one: str) -> str:
    """Invisible and control characters vanish; anything that breaks a line does so in one way."""
    if one == "\n" or one.isalnum():
        return one
    kind = unicodedata.category(one)
    if kind in {"Zl", "Zp"}:
        return "\n"
    if kind[0] == "Z" or one in "\t\r\v\f":
        return " "
    return "" if kind[0] == "C" else one


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
    for found in _SENTENCE_END.finditer(line):
        end = found.end()
        if end > MAX_LENGTH:
            break
        if end >= SHORT:
            return line[:end]
    first = _SENTENCE_END.search(line)
    if first and len(line) > MAX_LENGTH and first.end() <= MAX_LENGTH:
        return line[: first.end()]
    return line
