"""Odd requests get an answer or a clear error, the same one each time, for a bounded amount of work."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_catalogue import encoder, index, tools

from toolfold.errors import InvalidArguments
from toolfold.search.array_file import Floats
from toolfold.search.encoder import Encoder
from toolfold.search.index import MAX_HITS, SearchIndex
from toolfold.search.ranker import MAX_SENTENCES, _split_sentences

ODD = {
    "100 KB of one word": "weather " * 12_500,
    "100 KB without a space": "x" * 100_000,
    "100 KB of sentences": "Send an email to Bob. " * 5_000,
    "100 KB of Chinese": "天气" * 17_000,
    "stop words": "what is it that you would do for me",
    "punctuation": "?!... --- ***",
    "code": "def f(x):\n    return [y for y in x if y > 0]\n\nprint(f([1, -1]))",
    "json": '{"tool": "send_email", "args": {"to": ["a@b.c"], "n": null}}',
    "chinese": "明天的天气预报",
    "arabic": "أرسل بريدا إلكترونيا إلى الفريق",
    "russian": "отправить письмо команде",
    "thai": "พยากรณ์อากาศ",
    "emoji": "📧 ➡️ 👩‍💻",
    "control characters": "send\x00 an\x07 email\x1b[31m",
    "lone surrogate": "send \ud800 email",
    "sql": "'; DROP TABLE tools; --",
    "numbers": "1 2 3 4 5",
}


class CountingEncoder(Encoder):
    """The real encoder, noting how much it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.texts = 0

    def queries(self, texts: Sequence[str]) -> Floats:
        self.texts = len(texts)
        return super().queries(texts)


@pytest.mark.parametrize("name", list(ODD))
def test_an_odd_request_is_answered_and_twice_alike(name: str) -> None:
    once, again = index().search(ODD[name]), index().search(ODD[name])
    assert msgspec.json.encode([hit.tool_id for hit in once]) == msgspec.json.encode([hit.tool_id for hit in again])
    assert once == again
    assert len(once) == 10


@pytest.mark.parametrize("name", list(ODD))
def test_the_encoder_reads_few_texts_however_long_the_request(name: str) -> None:
    counting = CountingEncoder()
    small = SearchIndex.open(None, encoder=counting)
    small.sync(tools()[:3])
    small.search(ODD[name])
    assert 1 <= counting.texts <= 1 + MAX_SENTENCES


def test_a_sentence_alone_is_not_split() -> None:
    assert _split_sentences("Send an email to Bob and his wife, then translate it") == []
    assert _split_sentences("Send an email to Bob. Thanks!") == []
    assert len(_split_sentences("Send an email to Bob. Translate the text into German.")) == 2


def test_a_limit_beyond_reason_is_cut() -> None:
    many = [msgspec.structs.replace(tools()[at % 22], tool_id=f"many.t{at}") for at in range(MAX_HITS + 30)]
    made = SearchIndex.open(None, encoder=encoder())
    made.sync(many)
    assert len(made.search("weather", limit=10**9)) == MAX_HITS


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300))
def test_any_text_is_a_request(text: str) -> None:
    if text.strip():
        assert len(index().search(text, limit=3)) == 3
    else:
        with pytest.raises(InvalidArguments):
            index().search(text)


@settings(max_examples=30, deadline=None)
@given(name=st.text(max_size=60), description=st.text(max_size=200), parameter=st.text(max_size=40))
def test_any_text_can_be_a_tool(name: str, description: str, parameter: str) -> None:
    tool = msgspec.structs.replace(
        tools()[0], tool_id=name, name=name, description=description, parameters=((parameter, ""),)
    )
    made = SearchIndex.open(None, encoder=encoder())
    made.sync([tool, tools()[5]])
    assert {hit.tool_id for hit in made.search("anything")} == {name, tools()[5].tool_id}


def test_naughty_strings_are_requests_like_others(shared_data: Path) -> None:
    strings = [
        text
        for file in sorted((shared_data / "suites" / "naughty-strings").glob("*.json"))
        for text in msgspec.json.decode(file.read_bytes())
        if isinstance(text, str) and text.strip()
    ]
    assert strings
    for text in strings:
        assert len(index().search(text, limit=1)) == 1
