"""The parsers alone: lines, event streams, noise, headers."""

import asyncio
import json
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from toolfold.errors import ServerUnavailable
from toolfold.wire import ToolList
from toolfold.wire.dispatcher import Dispatcher
from toolfold.wire.headers import ParameterHeaders, _keyword_problem, encode_header
from toolfold.wire.jsonrpc import parse_number, remote_error
from toolfold.wire.pipes import LineFramer
from toolfold.wire.repair import repair, replace_invalid_utf8
from toolfold.wire.spill import Edges
from toolfold.wire.sse import Event, SseParser
from toolfold.wire.types import Handlers, HttpTarget, WireOptions


def lines_of(pieces: list[bytes], limit: int = 1000) -> list[bytes | int]:
    found: list[bytes | int] = []
    framer = LineFramer(limit, found.append, lambda edges: found.append(edges.size))
    for piece in pieces:
        framer.feed(piece)
    if rest := framer.rest():
        found.append(rest)
    return found


@given(st.lists(st.binary(max_size=40), max_size=20), st.lists(st.integers(0, 200), max_size=10))
def test_lines_do_not_depend_on_how_they_are_cut(parts: list[bytes], cuts: list[int]) -> None:
    whole = b"\n".join(parts)
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    pieces = [whole[start:end] for start, end in pairwise(places)]
    assert lines_of(pieces) == [line for line in whole.split(b"\n") if line]


@given(st.integers(1, 300), st.integers(1, 64))
def test_a_line_over_the_cap_is_counted_and_not_kept(size: int, piece: int) -> None:
    whole = b"a" * size + b"\nb\n"
    pieces = [whole[start : start + piece] for start in range(0, len(whole), piece)]
    assert lines_of(pieces, 100) == [size if size > 100 else b"a" * size, b"b"]


def test_a_hundred_megabytes_in_small_pieces_take_linear_time() -> None:
    piece = b"x" * 65536
    found: list[int] = []
    framer = LineFramer(1 << 30, lambda line: found.append(len(line)), lambda *_: None)
    for _ in range(1600):
        framer.feed(piece)
    framer.feed(b"\n")
    assert found == [1600 * 65536]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("piece", [1, 2, 3, 1000])
def test_events_do_not_depend_on_how_they_are_cut(end: bytes, piece: int) -> None:
    lines = [b"\xef\xbb\xbf: comment", b"", b"id: 7", b"retry: 50", b"data: ", b"", b"event: endpoint", b"data:one"]
    whole = end.join([*lines, b"data: two", b"", b"data: last", b"", b"data: never finished"])
    parser = SseParser(1000)
    found = [event for at in range(0, len(whole), piece) for event in parser.feed(whole[at : at + piece])]
    assert found == [
        Event(b"", "message", "7", 50),
        Event(b"one\ntwo", "endpoint"),
        Event(b"last"),
    ]


def test_an_event_over_the_cap_is_skipped_and_said() -> None:
    parser = SseParser(100)
    found: list[Event] = []
    for at in range(50):
        found += parser.feed(b"data: " + b"x" * 20 if at == 0 else b"x" * 20)
    found += parser.feed(b"\n\ndata: next\n\n")
    assert [(event.oversized, event.data) for event in found] == [(True, b""), (False, b"next")]


@pytest.mark.parametrize(
    ("line", "count", "noise"),
    [
        (b'Loading {50%}... {"jsonrpc":"2.0","id":1,"result":{}} done', 1, "Loading {50%}...  done"),
        (b'{"id":1,"result":1}{"id":2,"result":2}', 2, ""),
        (b'[{"id":1,"result":1},{"method":"x"},7]', 2, '[{"id":1,"result":1},{"method":"x"},7]'),
        (b"\x1b[31mred\x1b[0m", 0, "red"),
        (b'{"level":"info","id":3}', 0, '{"level":"info","id":3}'),
        (b'{"jsonrpc":"2.0","id":[1],"result":{}}', 1, ""),
    ],
)
def test_messages_are_found_among_noise(line: bytes, count: int, noise: str) -> None:
    found = repair(line)
    assert (len(found.messages), found.noise) == (count, noise)


def test_noise_of_any_depth_or_size_is_no_danger() -> None:
    for line in (b"[" * 200_000, b'{"a":' * 200_000, b"{" * 500_000, b'{"id":1e999999,"result":{}}'):
        repair(line)


@pytest.mark.parametrize(
    ("head", "tail", "number"),
    [
        (b'{"jsonrpc":"2.0","id":12,"result":', b"", 12),
        (b'{"id": "12", "result":', b"", 12),
        (b'{"result":{"id":5', b'"},"jsonrpc":"2.0","id":7}', 7),
        (b'{"result":', b'},"id":7,"jsonrpc":"2.0"}', 7),
        (b'{"jsonrpc":"2.0","method":"x","params":{"id":3', b'"id":4}', None),
        (b'{"result":{"text":"', b'"}}', None),
    ],
)
def test_the_id_of_an_oversized_answer_is_found_at_its_edges(head: bytes, tail: bytes, number: int | None) -> None:
    assert Edges(head, tail).number == number


@given(st.binary(max_size=100))
def test_text_is_made_utf8_and_left_alone_where_it_is(data: bytes) -> None:
    cleaned = replace_invalid_utf8(data)
    assert cleaned.decode() is not None
    try:
        data.decode()
    except UnicodeDecodeError:
        return
    assert cleaned == data


@pytest.mark.parametrize(
    ("given_id", "number"),
    [(7, 7), (7.0, 7), ("7", 7), (7.5, None), ("x", None), (None, None), (True, None), ("-7", None), ("9" * 30, None)],
)
def test_ids_are_read_kindly(given_id: object, number: int | None) -> None:
    assert parse_number(given_id) == number


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        ({"code": -1, "message": "m"}, -1, "m"),
        ({"code": "-1", "message": 5}, 0, "the server gave no reason"),
        ({}, 0, "the server gave no reason"),
        ("plain words", 0, "plain words"),
        (None, 0, "the server gave no reason"),
        ([1], 0, "the server gave no reason"),
    ],
)
def test_errors_are_read_kindly(error: object, code: int, message: str) -> None:
    found = remote_error(Raw(json.dumps(error).encode()))
    assert (found.rpc_code, found.message) == (code, message)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("", ""),
        (" padded", "=?base64?IHBhZGRlZA==?="),
        ("naïve", "=?base64?bmHDr3Zl?="),
        ("a\nb", "=?base64?YQpi?="),
        ("=?base64?x?=", "=?base64?PT9iYXNlNjQ/eD89?="),
    ],
)
def test_header_values_that_cannot_stand_as_they_are_go_as_base64(text: str, shown: str) -> None:
    assert encode_header(text) == shown


def marked(**properties: object) -> Raw:
    tool = {"name": "t", "inputSchema": {"type": "object", "properties": properties}}
    return Raw(json.dumps(tool).encode())


def test_marked_parameters_become_headers() -> None:
    headers = ParameterHeaders()
    nested = {"type": "object", "properties": {"deep": {"type": "boolean", "x-mcp-header": "Deep"}}}
    tool = marked(region={"type": "string", "x-mcp-header": "Region"}, nested=nested)
    assert headers.update(ToolList((tool,))).warnings == ()
    arguments = Raw(b'{"region":"us","nested":{"deep":true}}')
    assert headers.for_call("t", arguments) == {"Mcp-Param-Region": "us", "Mcp-Param-Deep": "true"}
    assert headers.for_call("t", Raw(b'{"region":null}')) == {}
    assert headers.for_call("other", arguments) == {}


@pytest.mark.parametrize(
    "schema",
    [
        {"x-mcp-header": "Root"},
        {"properties": {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}}},
        {"anyOf": [{"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}]},
        {"$defs": {"a": {"type": "string", "x-mcp-header": "A"}}},
        {"properties": {"a": {"type": ["string", "null"], "x-mcp-header": "A"}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": 5}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": "A: B"}}},
    ],
)
def test_wrong_marks_are_found(schema: object) -> None:
    assert _keyword_problem(schema)


def test_data_that_only_looks_like_a_mark_is_none() -> None:
    schema = {"properties": {"a": {"default": {"x-mcp-header": "A"}, "enum": [{"x-mcp-header": ""}]}}}
    assert _keyword_problem(schema) == ""


def test_the_wire_loads_no_http_client_before_one_is_needed() -> None:
    code = "import sys, toolfold.wire; print([m for m in ('httpx2', 'mcp', 'uvloop', 'anyio') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_capabilities_must_be_an_object() -> None:
    with pytest.raises(ValueError, match="JSON object"):
        Dispatcher(Handlers(), Raw(b"[]"))


@pytest.mark.parametrize("url", ["ftp://x/", "nothing", "http://", "http://[::1"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    from toolfold.wire.http_client import HttpClient

    async def main() -> None:
        HttpClient(HttpTarget(url), WireOptions())

    with pytest.raises(ServerUnavailable, match="address"):
        asyncio.run(main())


def test_a_header_that_cannot_be_sent_is_named_and_its_value_not_shown() -> None:
    from toolfold.wire.http_client import HttpClient

    async def main() -> None:
        HttpClient(HttpTarget("http://127.0.0.1/", {"Authorization": "Bearer secret\nX: y"}), WireOptions())

    with pytest.raises(ServerUnavailable, match="Authorization") as caught:
        asyncio.run(main())
    assert "secret" not in str(caught.value.as_dict())
