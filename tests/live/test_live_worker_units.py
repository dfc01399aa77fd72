"""What the worker knows without a process of its own: shapes, stored outputs, names, streams.

The sessions of the other tests run this code in forked processes that are often killed; here it is called directly.
"""

import io
import json
import os
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolfold.live.worker import evaluator as streams
from toolfold.live.worker import fork, session_process
from toolfold.live.worker.frames import FrameError, FrameReader, encode_frame
from toolfold.live.worker.limits import OUTPUT_MAX, PAYLOAD_MAX
from toolfold.live.worker.originals import SIGKILL
from toolfold.live.worker.session_process import _completions, _list_globals
from toolfold.live.worker.stored_output import OutputUnavailable, StoredOutput, _document_shape, make_open_output

MORE = "(seen in the first bytes; there is more)"
PIECE = 512 * 1024


# document_shape


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            '{"a": 1, "b": [{"c": "x"}, {"d": null, "c": "y"}], "e": {}, "f": true}',
            [
                *("a: number", "b: array (2 seen)", "b[]: object (2 fields)", "b[].c: string", "b[].d: null"),
                *("e: object", "f: boolean"),
            ],
        ),
        (' \n\t[1, -2.5e3 , "\\u00e9"] ', ["[]: number"]),
        ("[]", ["[]: null"]),
        ("[[false]]", ["[]: array (1 seen)", "[][]: boolean"]),
        ('["a\nb"]', ["[]: string"]),
        (
            '{"a":{"b":{"c":{"d":{"e":{"f":1}}}}}}',
            [f"{path}: object (1 fields)" for path in ("a", "a.b", "a.b.c", "a.b.c.d", "a.b.c.d.e")],
        ),
    ],
)
def test_json_is_folded_to_one_line_a_field(text: str, lines: list[str]) -> None:
    assert _document_shape(text, whole=True) == ("json", lines, "")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('{"a": 1, "b": "cut o', ["a: number", "b: null"]),
        ('{"a": 1, "b', ["a: number"]),
        ('{"a"', ["a: null"]),
        ('{"a": 12', ["a: null"]),
        ('[{"a": true}, {"b": fal', ["[]: object (2 fields)", "[].a: boolean", "[].b: null"]),
        ("[nonsense]", ["[]: null"]),
        ("{", []),
    ],
)
def test_a_json_text_that_is_cut_off_shows_what_was_complete(text: str, lines: list[str]) -> None:
    assert _document_shape(text, whole=True) == ("json", [*lines, MORE], "")


def test_a_complete_head_of_a_longer_document_says_that_there_is_more() -> None:
    assert _document_shape('{"a": 1}', whole=False)[1] == ["a: number", MORE]


def test_values_nested_beyond_all_reason_end_the_parse_and_not_the_session() -> None:
    form, lines, _ = _document_shape("[" * 50_000, whole=True)
    assert form == "json"
    assert lines[0] == "[]: array (1 seen)"
    assert lines[-1] == MORE


def test_objects_one_after_the_other_are_json_lines() -> None:
    assert _document_shape('{"a": 1}\n{"a": 2}\n', whole=True) == (
        "json lines",
        ["[]: object (1 fields)", "[].a: number"],
        "",
    )


@pytest.mark.parametrize("value", [[{"x": 1}], 1])
def test_15_06_a_wide_document_stops_at_the_bound_on_lines_and_says_so(value: object) -> None:
    lines = _document_shape(json.dumps({f"k{number}": value for number in range(300)}), whole=True)[1]
    assert len(lines) == 200
    assert lines[0].startswith("k0: ")
    assert lines[-1] == "(more than these 199 lines)"
    assert len(_document_shape(json.dumps(dict.fromkeys(map(str, range(200)), 1)), whole=True)[1]) == 200
    columns = ",".join(f"c{number}" for number in range(201))
    assert _document_shape(f"{columns}\n{columns}\n", whole=True)[1][-1] == "(more than these 199 lines)"


@pytest.mark.parametrize(
    ("text", "form", "lines", "separator"),
    [
        ("a, b\n1,2\n3,4\n", "table", ["a: column", "b: column"], ","),
        ("a\tb\n1\t2\n", "table", ["a: column", "b: column"], "\t"),
        ("a,b\n", "text", ["first line: a,b"], ""),
        ("a,b\n1,2\n1,2,3\n", "text", ["first line: a,b"], ""),
        ("plain\nwords\n", "text", ["first line: plain"], ""),
        ("", "text", ["first line: "], ""),
        ("x" * 500, "text", ["first line: " + "x" * 200], ""),
    ],
)
def test_a_text_is_a_table_only_where_its_rows_agree(text: str, form: str, lines: list[str], separator: str) -> None:
    assert _document_shape(text, whole=True) == (form, lines, separator)


# stored_output


class Host:
    """Answers the questions of a session from one text, and stores them."""

    def __init__(self, data: bytes, path: Path | None = None) -> None:
        self.data = data
        self.path = path
        self.questions: list[dict[str, Any]] = []
        self.error = ""

    def __call__(self, question: dict[str, Any]) -> dict[str, Any]:
        self.questions.append(question)
        if self.error:
            return {"error": self.error}
        if question["ask"] == "open_output":
            facts: dict[str, Any] = {"bytes": len(self.data)}
            return facts if self.path is None else {**facts, "path": str(self.path)}
        start = question["offset"]
        return {"data": self.data[start : start + question["size"]].decode("latin-1")}


Opener = Callable[[bytes], StoredOutput]


@pytest.fixture(params=["asked of the host", "read from a file"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens bytes as a stored output, in each of the two ways."""

    def open_it(data: bytes) -> StoredOutput:
        path = None
        if request.param == "read from a file":
            path = tmp_path / "stored"
            path.write_bytes(data)
        return make_open_output(Host(data, path))("out_1")

    return open_it


def test_15_06_a_stored_output_that_is_dropped_closes_its_file(tmp_path: Path) -> None:
    (tmp_path / "stored").write_bytes(b"abc")
    output = make_open_output(Host(b"abc", tmp_path / "stored"))("out_1")
    descriptor = output._file
    assert os.fstat(descriptor).st_size == 3
    del output
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_stored_output_is_read_in_pieces_that_join_to_the_whole(opener: Opener) -> None:
    text = "".join(f"line {number} é\n" for number in range(60_000)) + "the end"
    data = text.encode()
    assert len(data) > PIECE
    output = opener(data)
    assert len(output) == len(data)
    assert [len(piece) for piece in output.pieces()] == [PIECE, len(data) - PIECE]
    assert list(output.lines()) == text.split("\n")
    assert output.text() == text
    assert output.text(5, 6) == data[5:11].decode()
    assert output.text(PIECE - 9, PIECE + 1) == data[PIECE - 9 :].decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("offset", "size", "expected"), [(-5, 3, b"abc"), (2, -1, b""), (3, 10**9, b"def"), (99, 1, b"")]
)
def test_a_read_outside_the_bounds_is_moved_inside_them(
    opener: Opener, offset: int, size: int, expected: bytes
) -> None:
    assert opener(b"abcdef").read(offset, size) == expected


def test_a_last_line_that_ends_is_not_followed_by_an_empty_one(opener: Opener) -> None:
    assert list(opener(b"a\nb\n").lines()) == ["a", "b"]


@pytest.mark.parametrize(
    ("data", "form", "rows"),
    [
        (b"a,b\n1,2\n3,4\n", "table", [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]),
        (b"a\tb\n1\t2\n", "table", [{"a": "1", "b": "2"}]),
        (b'{"a": 1}\n\n{"a": 2}\n', "json lines", [{"a": 1}, {"a": 2}]),
        (b'[{"a": 1}, {"a": 2}]', "json", [{"a": 1}, {"a": 2}]),
        (b'{"a": 1}', "json", [{"a": 1}]),
    ],
)
def test_rows_are_the_records_of_whatever_form_is_stored(
    opener: Opener, data: bytes, form: str, rows: list[Any]
) -> None:
    output = opener(data)
    assert output.form == form
    assert list(output.rows()) == rows


def test_json_decodes_a_document_whole_and_json_lines_to_a_list(opener: Opener) -> None:
    assert opener(b'{"a": [1]}').json() == {"a": [1]}
    assert opener(b'{"a": 1}\n{"a": 2}').json() == [{"a": 1}, {"a": 2}]


def test_the_repr_shows_the_shape_and_counts_the_lines_it_leaves_out(opener: Opener) -> None:
    assert repr(opener(b'{"a": 1}')) == (
        "<stored output out_1: json, 8 bytes\n  a: number\n"
        "  read it with .text(start, size), .lines(), .json(), .rows()>"
    )
    wide = repr(opener(json.dumps(dict.fromkeys(map(str, range(30)), 1)).encode()))
    assert "  23: number\n  … (+6 more)\n" in wide
    assert "24: number" not in wide


def test_opening_loads_only_the_head() -> None:
    host = Host(b"[" + b"1," * PIECE)
    output = make_open_output(host)("out_1")
    assert host.questions == [
        {"ask": "open_output", "handle": "out_1"},
        {"ask": "read_output", "handle": "out_1", "offset": 0, "size": 64 * 1024},
    ]
    assert output.shape[-1] == MORE


def test_what_the_host_refuses_is_raised_with_its_reason() -> None:
    host = Host(b"abc")
    open_output = make_open_output(host)
    output = open_output("out_1")
    host.error = "it has expired"
    with pytest.raises(OutputUnavailable, match="it has expired"):
        open_output("out_1")
    with pytest.raises(OutputUnavailable, match="it has expired"):
        output.read()


# namespace


def test_globals_are_listed_sorted_without_modules_dunders_and_the_workers_own() -> None:
    names = {"b": 1, "a": "x", "__name__": "m", "_toolfold_x": 1, "json": json, 5: 1, "_own": None, "__half": 2.0}
    assert _list_globals(names) == {
        "globals": [
            {"name": "__half", "type_name": "float"},
            {"name": "_own", "type_name": "NoneType"},
            {"name": "a", "type_name": "str"},
            {"name": "b", "type_name": "int"},
        ]
    }


def test_more_globals_than_an_answer_holds_are_cut_and_counted() -> None:
    answer = _list_globals({f"name_{number:05}": number for number in range(5_000)})
    assert answer["truncated"] is True
    assert answer["total"] == 5_000
    assert 100 < len(answer["globals"]) < 5_000
    assert answer["globals"][0]["name"] == "name_00000"
    assert len(json.dumps(answer, separators=(",", ":"))) <= PAYLOAD_MAX


class Box:
    """Something with names to complete."""

    size = 3

    def __init__(self) -> None:
        self.inner = types.SimpleNamespace(value=1, _hidden=2)
        self.wide = dict.fromkeys(range(3))

    @property
    def explosive(self) -> int:
        raise AssertionError("completion ran the session's code")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prin", ["print"]),
        ("lamb", ["lambda"]),
        ("my_", ["my_box", "my_class"]),
        ("my_box.in", ["my_box.inner"]),
        ("my_box.inner.", ["my_box.inner.value"]),
        ("my_box.inner._h", ["my_box.inner._hidden"]),
        ("my_box.ex", ["my_box.explosive"]),
        ("my_class.si", ["my_class.size"]),
        ("my_box.size.real.numer", []),  # `real` is a descriptor, and is not called
        ("my_class.size.bit_l", ["my_class.size.bit_length"]),
        ("str.upp", ["str.upper"]),
        ("nothing.here.at.all", []),
        ("my_box.nothing.x", []),
    ],
)
def test_completion_follows_a_dotted_name_without_running_code(text: str, words: list[str]) -> None:
    assert _completions(text, {"my_box": Box(), "my_class": Box, 7: "no name"}) == words


def test_private_names_are_offered_only_when_asked_for_and_the_list_is_bounded() -> None:
    names = {f"value{number:03}": 0 for number in range(300)} | {"_secret": 1}
    assert _completions("_sec", names) == ["_secret"]
    assert "_secret" not in _completions("", names)
    assert len(_completions("value", names)) == 200


# streams


class Terminal(io.StringIO):
    """A real stream, as far as the session can see."""

    flushed = 0

    def flush(self) -> None:
        self.flushed += 1

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1


def test_a_stream_passes_to_the_real_one_until_it_is_captured() -> None:
    real = Terminal()
    stream = streams._TextStream(real)
    assert stream.write("before") == 6
    stream.flush()
    assert (stream.isatty(), stream.fileno(), stream.writable(), stream.encoding) == (True, 1, True, "utf-8")
    stream.captured = streams._CapturedText()
    stream.write("within")
    stream.flush()
    stream.close()
    assert stream.buffer.writable()
    assert stream.buffer.write(b"\xc3\xa9\xff") == 3
    assert stream.captured.text() == "withiné\\xff"
    assert stream.isatty() is False
    with pytest.raises(io.UnsupportedOperation):
        stream.fileno()
    assert (real.getvalue(), real.flushed) == ("before", 1)


def test_the_buffer_is_the_real_ones_where_there_is_one() -> None:
    raw = io.BytesIO()
    real = io.TextIOWrapper(raw)
    assert streams._TextStream(real).buffer is raw
    bare = Terminal()
    streams._TextStream(bare).buffer.write(b"bytes")
    assert bare.getvalue() == "bytes"


def test_a_session_without_a_real_stream_writes_to_nowhere() -> None:
    stream = streams._TextStream(None)
    assert stream.write("lost") == 4
    stream.flush()
    assert stream.isatty() is False
    with pytest.raises(io.UnsupportedOperation):
        stream.fileno()


def test_a_stream_takes_text_and_nothing_else() -> None:
    not_text: Any = b"bytes"
    with pytest.raises(TypeError, match="must be str, not bytes"):
        streams._TextStream(None).write(not_text)


@pytest.mark.parametrize("pieces", [["x" * (OUTPUT_MAX + 7)], ["x" * OUTPUT_MAX, "y" * 3, "z" * 4]])
def test_captured_output_keeps_its_head_and_counts_the_rest(pieces: list[str]) -> None:
    captured = streams._CapturedText()
    for piece in pieces:
        captured.write(piece)
    assert captured.text() == "x" * OUTPUT_MAX + "… (+7 characters)"


def test_both_streams_are_captured_and_released_together(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = Terminal(), Terminal()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stderr", err)
    both = streams._Streams()
    assert both.release() == ("", "")
    both.capture()
    both.out.write("to out")
    both.err.write("to err")
    assert both.release() == ("to out", "to err")
    both.flush()
    assert (out.getvalue(), err.getvalue(), out.flushed, err.flushed) == ("", "", 1, 1)


# what an inspecting child sent, and how it ended

KIND = {"type": {"name": "X"}, "kind": "object"}


@pytest.mark.parametrize(
    ("frames", "status", "timed_out", "expected"),
    [
        ([KIND, {"whole": True}], 0, False, {"kind": "object"}),
        ([KIND, {"at": "len_error"}], SIGKILL, False, {"len_error": "the inspecting process was ended by SIGKILL"}),
        ([KIND], 3 << 8, False, {"repr_error": "the inspecting process left with exit code 3"}),
        ([KIND, {"at": "dir_error"}], SIGKILL, True, {"dir_error": "no answer within 2 s"}),
    ],
)
def test_what_a_child_sent_before_it_ended_stays_true(
    frames: list[dict[str, Any]], status: int, timed_out: bool, expected: dict[str, Any]
) -> None:
    answer = session_process._inspection_answer(frames, status, timed_out, 2.0)
    assert answer["ok"] is True
    assert expected.items() <= answer["result"].items()


@pytest.mark.parametrize(
    ("frames", "timed_out", "code"),
    [
        ([{"error": {"code": "python_exception"}}], False, "python_exception"),
        ([], True, "inspect_timeout"),
        ([KIND, {"at": "repr_error"}], True, "inspect_timeout"),
        ([], False, "eval_crashed"),
    ],
)
def test_a_child_that_told_too_little_is_an_error(frames: list[dict[str, Any]], timed_out: bool, code: str) -> None:
    answer = session_process._inspection_answer(frames, SIGKILL, timed_out, 2.0)
    assert answer["ok"] is False
    assert answer["error"]["code"] == code
    assert ("partial" in answer["error"]) == (timed_out and bool(frames))


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (None, "ended"),
        (SIGKILL, "was ended by SIGKILL"),
        (50, "was ended by signal 50"),
        (0, "left with exit code 0"),
        (7 << 8, "left with exit code 7"),
    ],
)
def test_a_status_is_put_in_words(status: int | None, text: str) -> None:
    assert fork.exit_text(status) == text


# memory and threads of this process


def test_memory_and_threads_are_measured() -> None:
    assert fork._thread_count() >= 1
    assert 2**20 < fork._resident_bytes() < fork._address_space()


# frames


def test_complete_frames_before_a_bad_one_are_not_lost() -> None:
    reader = FrameReader()
    assert reader.feed(encode_frame({"a": 1}) + encode_frame({"b": 2}) + b"\0\0\0\x02no") == [{"a": 1}, {"b": 2}]
    with pytest.raises(FrameError, match="no JSON"):
        reader.feed(b"")
    with pytest.raises(FrameError, match="no JSON"):
        reader.feed(encode_frame({"c": 3}))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff\xff\xff\xff no frame", "a frame of 4294967295 bytes"),
        (b"\0\0\0\x02no", "no JSON"),
        (b"\0\0\0\x02[]", "no JSON object"),
    ],
)
def test_bytes_that_are_no_frame_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        FrameReader().feed(data)


def test_a_frame_is_returned_once_its_last_byte_is_there() -> None:
    reader, data = FrameReader(), encode_frame({"a": "é"})
    assert [reader.feed(data[at : at + 1]) for at in range(len(data))] == [[]] * (len(data) - 1) + [[{"a": "é"}]]
