"""The tokeniser gives the ids of the reference tokeniser; these were recorded with it."""

import pytest

from toolfold.search.encoder import WEIGHTS, _WordPiece

PIECES = _WordPiece.read(WEIGHTS / "vocab.txt")

RECORDED: dict[str, list[int]] = {
    "": [101, 102],
    "   \t\n": [101, 102],
    "Get the weather, please!": [101, 2131, 1996, 4633, 1010, 3531, 999, 102],
    "getOrderById_v2(x=1.5)": [
        101,
        2131,
        8551,
        2121,
        3762,
        3593,
        1035,
        1058,
        2475,
        1006,
        1060,
        1027,
        1015,
        1012,
        1019,
        1007,
        102,
    ],
    "na\xefve Caf\xe9 \xc5NGSTR\xd6M": [101, 15743, 7668, 17076, 15687, 102],
    "\u5929\u6c14\u9884\u62a5 for \u6771\u4eac": [101, 1811, 100, 100, 100, 2005, 1879, 1755, 102],
    "emoji \U0001f326\ufe0f and zero\u200bwidth": [101, 7861, 29147, 2072, 100, 1998, 5717, 9148, 11927, 2232, 102],
    "null \x00 and bell \x07": [101, 19701, 1998, 4330, 102],
    "Stra\xdfe \u0130stanbul \u0391\u03a3": [101, 2358, 27807, 9960, 1155, 29733, 102],
    '{"a": [1, 2]}': [101, 1063, 1000, 1037, 1000, 1024, 1031, 1015, 1010, 1016, 1033, 1065, 102],
    "\u03a9\u2248\xe7\u221a\u222b \ufb01 \xbd": [101, 100, 1984, 1092, 102],
    "\u0e2b\u0e01\u0e14\u0e40": [101, 100, 102],
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd": [
        101,
        1266,
        29799,
        29792,
        29800,
        1259,
        29792,
        29799,
        29800,
        102,
    ],
    "<b>x": [101, 1026, 1038, 1028, 1060, 102],
    "don't re-run": [101, 2123, 1005, 1056, 2128, 1011, 2448, 102],
}


@pytest.mark.parametrize("text", list(RECORDED))
def test_ids_are_those_of_the_reference(text: str) -> None:
    assert PIECES.encode(text, 1000) == RECORDED[text]


def test_a_word_beyond_the_longest_is_unknown() -> None:
    assert PIECES.encode("x" * 120, 1000) == [101, 100, 102]


def test_a_limit_keeps_the_frame_marks() -> None:
    ids = PIECES.encode("weather " * 50, 10)
    assert len(ids) == 10
    assert (ids[0], ids[-1]) == (101, 102)


def test_a_mark_of_the_vocabulary_in_a_text_stays_text() -> None:
    assert 103 not in PIECES.encode("a [MASK] b", 100)


def test_encoding_twice_gives_the_same() -> None:
    assert PIECES.encode("unaffable repositories", 64) == PIECES.encode("unaffable repositories", 64)
