"""Results are walked, unescaped and counted a piece at a time, and come out as if they had been read whole."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolfold import tokens
from toolfold.errors import ProtocolViolation
from toolfold.outputs.json_scan import BytesSource, JsonScanner, iter_base64, iter_string
from toolfold.outputs.split import _read_layout, _repetition
from toolfold.outputs.token_counter import _next_cut, _token_pieces

TEXTS = st.text(st.characters(codec="utf-8"), max_size=80)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=20,
)


def read_back(literal: bytes, size: int = 1 << 20) -> bytes:
    return b"".join(iter_string(BytesSource(literal), 0, len(literal), size=size))


@pytest.mark.requirement("O-14")
@given(TEXTS, st.booleans(), st.integers(12, 40))
def test_a_string_comes_out_of_its_escapes_whatever_the_pieces(text: str, ascii_only: bool, size: int) -> None:
    literal = json.dumps(text, ensure_ascii=ascii_only).encode()
    assert read_back(literal, size) == text.encode()


@pytest.mark.parametrize("size", range(12, 30))
def test_a_surrogate_pair_is_never_torn(size: int) -> None:
    text = 'a"\\\n😀ü\\u0041😀'
    literal = json.dumps(text * 20).encode()
    assert read_back(literal, size).decode() == text * 20


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        (rb'"a\ud800b"', "a\ufffdb"),
        (rb'"\ude00\ud83d"', "\ufffd\ufffd"),
        (b'"a\tb\\n"', "a\tb\n"),
        (b'"\xff\xfe"', "\ufffd\ufffd"),
    ],
)
def test_what_is_no_proper_text_is_replaced_and_never_refused(literal: bytes, text: str) -> None:
    assert read_back(literal).decode() == text


@pytest.mark.parametrize("literal", [rb'"\x41"', rb'"\u12g4"', rb'"\u00"'])
def test_an_escape_that_does_not_exist_is_an_error_that_says_so(literal: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="escape"):
        read_back(literal)


@given(VALUES, st.integers(1, 3))
def test_the_end_of_any_value_is_found(value: object, indent: int) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False).encode()
    for size in (512, 1 << 20):
        assert JsonScanner(BytesSource(text + b' , "next"'), size=size).value_end(0) == len(text)


@pytest.mark.parametrize("depth", [10, 5_000, 400_000])
def test_deep_nesting_costs_time_in_proportion(depth: int) -> None:
    text = b"[" * depth + b'"]\\\\"' + b"]" * depth
    assert JsonScanner(BytesSource(text + b"]")).value_end(0) == len(text)


@pytest.mark.parametrize("cut", range(1, 60))
def test_an_answer_that_was_cut_off_is_never_taken_for_whole(cut: int) -> None:
    text = json.dumps({"result": {"content": [{"type": "text", "text": 'a"b'}], "isError": True}, "id": 1}).encode()
    assert _read_layout(BytesSource(text), enveloped=True).is_error
    with pytest.raises(ProtocolViolation):
        _read_layout(BytesSource(text[:-cut]), enveloped=True)


@pytest.mark.requirement("O-03")
@given(st.text(st.sampled_from("aB1 \n\t\r'\u2019\"/.,{}[]-_漢。、　éüЖ😀s"), max_size=300), st.integers(40, 80))
def test_counting_in_pieces_gives_the_count_of_the_whole(text: str, size: int) -> None:
    # Good places to cut stand in every piece of this size.
    data = "".join(part + " word, " for part in _parts(text, 8)).encode()
    pieces = list(_token_pieces(lambda at, length: data[at : at + length], 0, len(data), size=size))
    assert b"".join(pieces) == data
    assert sum(tokens.count(piece.decode()) for piece in pieces) == tokens.count(data.decode())
    cut = _next_cut(lambda at, length: data[at : at + length], len(data) // 2, len(data))
    assert tokens.count(data[:cut].decode()) + tokens.count(data[cut:].decode()) == tokens.count(data.decode())


def _parts(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


@pytest.mark.requirement("O-03")
def test_counts_of_real_results_are_exact(shared_data: Path) -> None:
    import gzip

    for file in sorted((shared_data / "results").glob("*.json.gz")):
        result = json.loads(gzip.decompress(file.read_bytes()))["response"]["result"]
        data = "".join(block.get("text", "") for block in result["content"])[:300_000].encode()
        for size in (1000, 65_536):
            pieces = list(_token_pieces(lambda at, length: data[at : at + length], 0, len(data), size=size))  # noqa: B023 - used at once
            assert sum(tokens.count(piece.decode("utf-8", "replace")) for piece in pieces) == tokens.count(
                data.decode("utf-8", "replace")
            )


@pytest.mark.parametrize(
    ("text", "structured", "same"),
    [
        ('{"a": [1, 2.5, "x y"]}', {"a": [1, 2.5, "x y"]}, True),
        ('{\n  "a": "\\u00e9\\/\\n \\"q\\""\n}', {"a": 'é/\n "q"'}, True),
        ("plain words", {"result": "plain words"}, True),
        ("[1, 2]", {"result": [1, 2]}, True),
        ('{"a": 1}', {"a": 2}, False),
        ("Found 2 orders.", {"orders": [1, 2]}, False),
        ("plain words", {"result": "other words"}, False),
        ('{"a": "\\\\u0041"}', {"a": "A"}, False),
    ],
)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_text_that_repeats_the_structured_content_is_told(
    text: str, structured: object, same: bool, ascii_only: bool
) -> None:
    result = {"content": [{"type": "text", "text": text}], "structuredContent": structured}
    source = BytesSource(json.dumps(result, ensure_ascii=ascii_only).encode())
    assert (_repetition(source, _read_layout(source)) != "none") is same


def test_a_list_that_came_as_a_block_an_item_is_a_repetition_too() -> None:
    blocks = [{"type": "text", "text": json.dumps(item)} for item in ({"a": 1}, {"a": 2})]
    source = BytesSource(
        json.dumps({"content": blocks, "structuredContent": {"result": [{"a": 1}, {"a": 2}]}}).encode()
    )
    assert _repetition(source, _read_layout(source)) == "wrapped"


@given(st.binary(max_size=200), st.integers(12, 40))
def test_binary_content_comes_out_of_its_base64(data: bytes, size: int) -> None:
    import base64

    literal = b'"' + base64.b64encode(data) + b'"'
    assert b"".join(iter_base64(BytesSource(literal), 0, len(literal))) == data
