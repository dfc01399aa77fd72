"""The searching process of a grep, its steps taken in this one: RE2, ripgrep's events, and its bounds."""

import base64
import io
import json
import sys
from pathlib import Path

import msgspec
import pytest

from toolfold.outputs import grep
from toolfold.outputs.grep import _GrepResult, _Job


def job(path: Path, pattern: str, *, ignore_case: bool = False, limit: int = 200, ripgrep: str = "") -> _Job:
    return _Job(str(path), pattern, ignore_case, limit, ripgrep)


def document(folder: Path, content: bytes) -> Path:
    path = folder / "document"
    path.write_bytes(content)
    return path


def ripgrep(folder: Path, events: list[object], *, code: int = 0) -> str:
    """A program that writes these events as ripgrep would, and the arguments it was given beside it."""
    program = folder / "rg"
    written = "".join(json.dumps(event) + "\n" for event in events)
    program.write_text(
        f"#!{sys.executable}\nimport sys, pathlib\n"
        f"pathlib.Path({str(folder / 'arguments')!r}).write_text('\\n'.join(sys.argv[1:]))\n"
        f"sys.stdout.write({written!r})\nsys.exit({code})\n"
    )
    program.chmod(0o755)
    return str(program)


def match_event(line: int, offset: int, text: dict[str, str], *spans: tuple[int, int]) -> dict[str, object]:
    submatches = [{"start": start, "end": end} for start, end in spans]
    data = {"lines": text, "line_number": line, "absolute_offset": offset, "submatches": submatches}
    return {"type": "match", "data": data}


def test_lines_are_found_with_their_bytes_and_without_their_ends(tmp_path: Path) -> None:
    path = document(tmp_path, b"alpha 1\r\nbeta\nalpha 2")
    found = grep._search_re2(job(path, "alpha"))
    assert [(hit.line, hit.start, hit.end, hit.text) for hit in found.hits] == [
        (1, 0, 7, "alpha 1"),
        (3, 14, 21, "alpha 2"),
    ]


def test_all_matching_lines_are_counted_and_only_so_many_returned(tmp_path: Path) -> None:
    found = grep._search_re2(job(document(tmp_path, b"x\n" * 9), "x", limit=2))
    assert ([hit.line for hit in found.hits], found.count) == ([1, 2], 9)


@pytest.mark.parametrize(("ignore_case", "count"), [(False, 1), (True, 2)])
def test_case_counts_unless_it_is_to_be_ignored(tmp_path: Path, ignore_case: bool, count: int) -> None:
    found = grep._search_re2(job(document(tmp_path, b"Error\nerror\n"), "error", ignore_case=ignore_case))
    assert found.count == count


@pytest.mark.parametrize("pattern", ["(unclosed", r"(a)\1", "(?=a)"])
def test_a_pattern_that_cannot_be_bounded_is_refused_with_the_reason(tmp_path: Path, pattern: str) -> None:
    found = grep._search_re2(job(document(tmp_path, b"a\n"), pattern))
    assert found.problem.startswith(f"{pattern!r} is no regular expression that can be used: ")
    assert found.problem.endswith(grep.UNSUPPORTED)


def test_of_a_long_line_the_part_around_the_match_is_returned(tmp_path: Path) -> None:
    line = b"a" * 1000 + b"needle" + b"b" * 1000
    (hit,) = grep._search_re2(job(document(tmp_path, b"first\n" + line + b"\n"), "needle")).hits
    assert hit.text == "a" * 200 + "needle" + "b" * 200
    assert (hit.start, hit.end) == (6 + 800, 6 + 1206)


def test_a_match_longer_than_the_part_is_cut_as_well(tmp_path: Path) -> None:
    (hit,) = grep._search_re2(job(document(tmp_path, b"a" * 5000), "a+")).hits
    assert (hit.start, hit.end) == (0, grep.CLIP + grep.CLIP // 2)


def test_the_events_of_ripgrep_become_hits_also_where_a_line_is_no_utf8(tmp_path: Path) -> None:
    path = document(tmp_path, b"")
    raw = base64.b64encode(b"caf\xe9\n").decode()
    events = [
        {"type": "begin", "data": {}},
        match_event(2, 10, {"text": "one\r\n"}, (0, 3)),
        match_event(5, 40, {"bytes": raw}),
        match_event(6, 50, {"text": "over the limit\n"}, (0, 1)),
        {"type": "end", "data": {}},
    ]
    program = ripgrep(tmp_path, list(events))
    found = grep._search_ripgrep(job(path, "-o", ignore_case=True, limit=2, ripgrep=program))
    assert found is not None
    assert [(hit.line, hit.start, hit.end, hit.text) for hit in found.hits] == [
        (2, 10, 13, "one"),
        (5, 40, 44, "caf\ufffd"),
    ]
    assert found.count == 3
    arguments = (tmp_path / "arguments").read_text().split("\n")
    assert "--ignore-case" in arguments
    assert arguments[-4:] == ["-e", "-o", "--", "-"]


def process(monkeypatch: pytest.MonkeyPatch, given: _Job) -> _GrepResult:
    """What the searching process writes for a job. Its limits would stay in force here, so they are left out."""
    output = io.BytesIO()
    monkeypatch.setattr(grep, "_limit_resources", lambda: None)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(msgspec.json.encode(given))))
    held = io.TextIOWrapper(output)
    monkeypatch.setattr(sys, "stdout", held)
    grep._main()
    return msgspec.json.decode(output.getvalue(), type=_GrepResult)


def test_no_match_is_an_answer_of_ripgrep_and_not_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = job(document(tmp_path, b"here\n"), "here", ripgrep=ripgrep(tmp_path, [], code=1))
    assert process(monkeypatch, given) == _GrepResult()
    assert "--ignore-case" not in (tmp_path / "arguments").read_text()


def test_a_pattern_that_ripgrep_refuses_goes_to_re2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = job(document(tmp_path, b"here\n"), "here", ripgrep=ripgrep(tmp_path, [], code=2))
    assert process(monkeypatch, given).count == 1
