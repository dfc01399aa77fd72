"""Where words stand in a document, and which stretch of time a request names."""

from pathlib import Path

import numpy as np
import pytest
from extract_kit import ask, stored

from toolfold.outputs.local import term_search
from toolfold.outputs.local.request import Term, TermKind
from toolfold.outputs.local.source import Source
from toolfold.outputs.local.term_search import NgramFilter, estimate_counts, find_terms, find_terms_near
from toolfold.outputs.local.time_filter import _parse_time_range

FILLER = b"nothing to see in this line at all\n"


def source_of(folder: Path, content: bytes) -> Source:
    path = folder / "document"
    path.write_bytes(content)
    return Source(path)


def word(text: str, kind: TermKind = "word", *forms: str) -> Term:
    return Term(text, kind, forms or (text,))


def places(source: Source, term: Term, ngrams: NgramFilter | None = None) -> list[int]:
    found: list[int] = find_terms(source, [term], ngrams)[term.text].tolist()
    return found


def test_the_filter_reads_only_parts_that_can_hold_a_word_and_misses_none(tmp_path: Path) -> None:
    part = (FILLER * (term_search.PART // len(FILLER) + 1))[: term_search.PART]
    # Once in a part's middle, once across a border, and once at the very end.
    text = bytearray(part * 20 + b"zebrafish")
    text[5 * len(part) + 1000 : 5 * len(part) + 1009] = b"Zebrafish"
    text[2 * len(part) - 4 : 2 * len(part) + 5] = b"zebrafish"
    with source_of(tmp_path, bytes(text)) as source:
        ngrams = NgramFilter.of(source)
        possible = ngrams.parts(b"zebrafish")
        assert possible is not None
        # A part knows the first bytes of the next one, too.
        assert np.flatnonzero(possible).tolist() == [1, 5, 19, 20]
        expected = [2 * len(part) - 4, 5 * len(part) + 1000, 20 * len(part)]
        assert places(source, word("zebrafish"), ngrams) == expected == places(source, word("zebrafish"))


def test_a_word_that_no_part_can_hold_is_not_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with source_of(tmp_path, FILLER * 9000) as source:
        ngrams = NgramFilter.of(source)
        monkeypatch.setattr(term_search, "_search_block", lambda *_: pytest.fail("a block was read"))
        assert places(source, word("zebrafish"), ngrams) == []


def test_the_filter_says_nothing_of_short_words_and_they_are_found_all_the_same(tmp_path: Path) -> None:
    with source_of(tmp_path, FILLER * 9000 + b"ox") as source:
        ngrams = NgramFilter.of(source)
        assert ngrams.parts(b"ox") is None
        assert places(source, word("ox"), ngrams) == [len(FILLER) * 9000]


@pytest.mark.parametrize(
    ("kind", "form", "text", "expected"),
    [
        ("number", "42", "42 142 420 x42y", [0, 12]),
        ("identifier", "svc-1", "svc-1 svc-10 asvc-1", [0, 14]),
        ("identifier", "1-svc", "1-svc 21-svc", [0]),
        ("phrase", "ab c", "xab cd", [1]),
        ("word", "id", "id idle userId valid a\\nid id7", [0, 12, 24, 27]),
        ("word", "order", "order reorder orders myOrder", [0, 14, 23]),
        ("word", "shipped", "unshipped", [2]),
        ("word", "größe", "Die größe, große", [4]),
        ("word", "-x", "a-x", [1]),
    ],
)
def test_a_word_counts_where_it_is_no_part_of_something_longer(
    tmp_path: Path, kind: TermKind, form: str, text: str, expected: list[int]
) -> None:
    term = word("term", kind, form)
    with source_of(tmp_path, text.encode()) as source:
        assert places(source, term) == expected
        near = find_terms_near(source, [term], np.array([0], dtype=np.int64), 1000)
        assert near["term"].tolist() == expected


def test_near_a_place_means_within_reach_and_each_stretch_is_read_once(tmp_path: Path) -> None:
    with source_of(tmp_path, b"cat " * 100) as source:
        centres = np.array([40, 44, 48, 49, 300, 20], dtype=np.int64)
        found = find_terms_near(source, [word("cat")], centres, 8)["cat"].tolist()
    assert found == [32, 36, 40, 44, 48, 52, 292, 296, 300, 304]


def test_counts_of_a_large_document_are_estimated_from_samples(tmp_path: Path) -> None:
    content = b"common rest of it\n" * 200_000
    with source_of(tmp_path, content) as source:
        estimated = estimate_counts(source, [word("common"), word("absent")])
    assert estimated["common"] == pytest.approx(200_000, rel=0.1)
    assert estimated["absent"] == 0


@pytest.mark.parametrize(
    ("request_", "stretch"),
    [
        ("errors on 2024-05-01", "2024-05-01"),
        ("between 10:05 and 10:20", "10:05:00 to 10:20:00"),
        ("10:05-10:20 please", "10:05:00 to 10:20:00"),
        ("after 3 pm", "15:00:00 to 24:00:00"),
        ("since 2024-05-01 10:05:09", "2024-05-01 10:05:09 to 24:00:00"),
        ("before 12:30 am", "00:00:00 to 00:30:00"),
        ("at 10:05", "10:05:00 to 10:05:59"),
        ("at 10:05:07", "10:05:07 to 10:05:07"),
        ("around 9 am on 2024-05-01", "2024-05-01 09:00:00 to 09:59:59"),
        ("the error at 77:10", "None"),
        ("the 12 slowest calls", "None"),
        ("from Berlin to Paris", "None"),
        ("errors after 2024-05-01", "2024-05-01 and later"),
        ("errors before 2024-05-01", "to 2024-05-01"),
        ("errors from 2024-05-01 to 2024-05-03", "2024-05-01 to 2024-05-03"),
        ("between 2024-05-01 and 2024-05-03", "2024-05-01 to 2024-05-03"),
        ("on 2024-05-01 or 2024-05-03", "None"),
        ("errors not on 2024-05-01", "None"),
        ("errors except between 10:05 and 10:20", "None"),
    ],
)
def test_a_request_names_a_stretch_of_time(request_: str, stretch: str) -> None:
    assert str(_parse_time_range(request_)) == stretch


def iso_log() -> str:
    return "".join(
        f"2024-05-{day:02} {hour:02}:00:00 INFO tick d{day}h{hour} done\n    at frame d{day}h{hour}\n"
        for day in range(1, 6)
        for hour in range(24)
    )


@pytest.mark.parametrize(
    ("request_", "inside", "outside"),
    [
        ("how many ticks from 2024-05-02 22:00 to 2024-05-03 01:00", "d2h23", "d4h0"),
        ("ticks on 2024-05-04 after 22:00", "d4h23", "d3h23"),
    ],
)
def test_lines_of_a_stretch_of_time_are_answered_and_no_others(
    tmp_path: Path, request_: str, inside: str, outside: str
) -> None:
    found = ask(stored(tmp_path, iso_log()), request_).text
    assert inside in found
    assert outside not in found


def test_the_dates_of_a_web_server_s_log_are_understood(tmp_path: Path) -> None:
    lines = "".join(
        f'10.0.0.{hour} - - [{day:02}/May/2024:{hour:02}:30:00 +0000] "GET /d{day}h{hour} HTTP/1.1" 200 512\n'
        for day in range(1, 10)
        for hour in range(24)
    )
    found = ask(stored(tmp_path, lines), "requests on 2024-05-03 between 04:00 and 05:00").text
    assert "/d3h4 " in found
    assert "/d4h4 " not in found


def test_a_text_without_times_is_not_narrowed_by_one(tmp_path: Path) -> None:
    text = "".join(f"paragraph {n} speaks of the harbour and its lamp {n}\n" for n in range(400))
    found = ask(stored(tmp_path, text), "the harbour lamp 321 after 10:00").text
    assert "lamp 321" in found
