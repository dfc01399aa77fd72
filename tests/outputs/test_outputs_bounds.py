"""What a hostile document or request may cost: little time, little memory, and nothing that other tasks wait for."""

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from extract_kit import ask, stored

from toolfold.errors import OutputError
from toolfold.outputs import limiter, truncate
from toolfold.outputs.grep import grep_file
from toolfold.outputs.local import exact, formats, index, json_index, query_words, records, render
from toolfold.outputs.local.index import DocumentIndex, IndexCache
from toolfold.outputs.truncate import truncate_file, truncate_range
from toolfold.testing.scripted_model import ScriptedModel

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(1, 256)) * 400


def test_counting_apart_runs_no_module_that_lies_in_the_current_folder(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"one two three\n" * 700_000)
    planted = tmp_path / "planted"
    planted.mkdir()
    (planted / "msgspec.py").write_text(f"open({str(tmp_path / 'proof')!r}, 'w').close()\nraise SystemExit(3)\n")
    counting = (
        "import os, sys; from toolfold.outputs.token_counter import count_tokens; os.chdir(sys.argv[2])\n"
        "print(count_tokens(os.open(sys.argv[1], os.O_RDONLY), os.stat(sys.argv[1]).st_size, lambda: None))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", counting, str(text), str(planted)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.strip() == str(4 * 700_000)
    assert not (tmp_path / "proof").exists()


BACKTRACKING = [
    (formats.RULE, ["-" * 30_000 + "x", "|" * 30_000, "|-" * 15_000 + "x"], "fullmatch"),
    (formats.INTRODUCTION, [b" " * 60_000 + b"x", b"\n" * 60_000], "match"),
    (exact.PATHLIKE, ["a" * 60_000, "$" * 60_000, "a-" * 30_000, '["' * 30_000], "findall"),
    (exact.REGEX, ["match" + " " * 60_000 + "x"], "findall"),
    (render.BLANKS, [" " * 60_000 + "x", "\t" * 60_000], "findall"),
    (query_words.TOKEN, ["a-" * 30_000, "a" * 60_000, '"' * 60_000, "1," * 30_000, "1." * 30_000], "findall"),
    (query_words.NUMBER, ["1," * 30_000, "$ " * 30_000, "1" * 60_000 + "x"], "findall"),
    (json_index.COMMA, [b'\\"' * 30_000, b"\\'" * 30_000 + b"\\"], "findall"),
    (json_index.KEY, [b'\\"' * 30_000, b" " * 60_000], "match"),
    (json_index.LITERAL_TOKEN, [b'\\"' * 30_000, b"\\'" * 30_000 + b"\\"], "findall"),
    (records.MEASURED, ["a." * 30_000, "1" * 60_000], "findall"),
    (records.PAIR, ["a" * 60_000, 'a="' * 20_000, "a=" * 30_000], "findall"),
    (records.ACCESS, ["1.1.1.1 - - [" * 5_000, '"' * 60_000, " " * 60_000], "match"),
    (records.SYSLOG, ["Jan  1 00:00:00 " * 4_000, "a" * 60_000], "findall"),
    (records.SETTING, [" " * 60_000, "a" * 60_000, "a " * 30_000], "match"),
]


@pytest.mark.timeout(60)  # the square of these sizes takes minutes
@pytest.mark.parametrize(("pattern", "texts", "way"), BACKTRACKING)
def test_no_pattern_of_ours_takes_the_square_of_a_text(pattern: re.Pattern[str], texts: list[str], way: str) -> None:
    for text in texts:
        getattr(pattern, way)(text)


@pytest.mark.timeout(60)
def test_a_request_of_blanks_costs_no_more_than_another(tmp_path: Path) -> None:
    names = ["amount", "price", "weight", "height", "length", "width", "depth", "speed"]
    rows = "".join(",".join([str(number)] * len(names)) + "\n" for number in range(50))
    document = stored(tmp_path, ",".join(names) + "\n" + rows)
    for name in names:
        assert not ask(document, f"how many rows where {name}" + " " * 7900 + "x").failed
        assert not ask(document, f"how many rows where {name} is" + "\t" * 7900).failed
    assert not ask(document, "a" * 300_000).failed


@pytest.mark.parametrize(
    "asked",
    ["lines {}", "bytes 1-{}", "the first {} lines", "rows[{}]", "the {}th row", "row number {}", "amount > {}"],
)
def test_a_number_without_end_is_answered(tmp_path: Path, asked: str) -> None:
    endless = "9" * 5000
    for content in (
        json.dumps({"rows": [{"amount": 1}]}),
        f"id,amount\n1,{endless}\n2,inf\n3,3\n",
        "amount=1e999 ms\n",
    ):
        assert not ask(stored(tmp_path, content), asked.format(endless)).failed
        assert not ask(stored(tmp_path, content), "the highest amount and the sum of amount").failed


@pytest.mark.requirement("O-08")
@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(a|a)*b", r"(.*a){25}", r"^(a?){60}a{60}$", "(x+x+)+y"])
def test_the_search_without_ripgrep_is_linear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    document = stored(tmp_path, "a" * 60 + "!\n" + "x" * 20_000 + "\nplain\n")
    assert grep_file(document.path, pattern, seconds=60).count >= 0


@pytest.mark.parametrize("pattern", [r"(?=a)", r"(a)\1", r"(?<!x)a"])
def test_a_pattern_that_cannot_be_bounded_is_refused_in_clear_words(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(OutputError, match=r"is no regular expression that can be used.*Look-around"):
        grep_file(stored(tmp_path, "a\n").path, pattern)


def test_a_line_that_takes_too_much_memory_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    path = tmp_path / "endless"
    with path.open("wb") as file:
        file.truncate(3 << 30)  # one line of zeros, without a block on the disk
    with pytest.raises(OutputError, match="too much memory"):
        grep_file(path, "a", seconds=60)


def test_only_the_ends_of_a_long_range_are_held(tmp_path: Path) -> None:
    size, largest = 200 << 20, 0

    def read(start: int, end: int) -> bytes:
        nonlocal largest
        assert 0 <= start <= end <= size
        largest = max(largest, end - start)
        return b"a word\n"[:7] * ((end - start) // 7 + 1)

    text = truncate_range(lambda start, end: read(start, end)[: end - start], size, 500)
    assert "are missing here" in text
    assert largest <= truncate.BLOCK
    document = stored(tmp_path, "".join(f"line {number}\n" for number in range(100_000)))
    cut = ask(document, "lines 1-100000").text
    assert cut.split("\n\n", 2)[2].startswith("[lines 1-100000, bytes 0-")
    note = re.search(r"\[\.\.\. (\d+) bytes \((\d+) lines\) are missing here: bytes (\d+)-(\d+)", cut)
    assert note
    assert int(note[1]) == int(note[4]) - int(note[3]) + 1
    assert truncate_file(document.path, 500).count("\n") < 500


def test_what_is_remembered_of_a_document_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "MAX_CACHED_VALUES", 100)
    made: list[str] = []
    known = DocumentIndex(stored(tmp_path, "x\n").path)

    def note(name: str) -> list[str]:
        made.append(name)
        return [name] * 40

    for name in ("a", "b", "c", "a", "c"):
        known.cached(name, partial(note, name))
    assert made == ["a", "b", "c", "a"]


def test_a_document_that_is_gone_is_let_go_of(tmp_path: Path) -> None:
    indexes = IndexCache()
    gone, there = stored(tmp_path, "x\n"), stored(tmp_path, "y\n")
    with indexes.of(gone.path) as first, indexes.of(there.path) as second:
        pass
    gone.path.unlink()
    indexes.drop_gone()
    there_again = indexes.of(there.path)
    with there_again as found:
        assert found is second
    gone.path.write_text("x\n")
    with indexes.of(gone.path) as found:
        assert found is not first


@pytest.mark.parametrize("mode", ["auto", "full-chunked", "read-grep"])
def test_binary_content_is_never_sent_to_a_model(tmp_path: Path, mode: str) -> None:
    import msgspec

    model = ScriptedModel(lambda _: "never")
    document = msgspec.structs.replace(stored(tmp_path, PNG), tokens=0, lines=0, media_type="image/png")
    found = ask(document, "what does it show", mode=mode, model=model)  # type: ignore[arg-type]  # the modes above
    assert not found.failed
    assert "no text but binary data (image/png)" in found.text
    assert not model.prompts


def test_a_binary_file_given_to_extract_is_never_sent_to_a_model(tmp_path: Path) -> None:
    from toolfold import extract

    model = ScriptedModel(lambda _: "never")
    assert "binary data" in extract(b"\x00\x01\x02" * 50_000, "what is it", model=model)
    assert not model.prompts


def test_long_work_leaves_the_shared_threads_alone_and_takes_turns() -> None:
    async def main() -> None:
        go_on, running, most = threading.Event(), 0, 0
        lock, all_taken, loop = threading.Lock(), asyncio.Event(), asyncio.get_running_loop()

        def work() -> int:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
                if running == limiter.MAX_CONCURRENT:
                    loop.call_soon_threadsafe(all_taken.set)
            go_on.wait(60)
            with lock:
                running -= 1
            return 1

        tasks = [asyncio.create_task(limiter.run_limited(work)) for _ in range(limiter.MAX_CONCURRENT * 3)]
        await all_taken.wait()
        # All turns are taken, and what others do in threads goes on.
        assert await asyncio.to_thread(os.getpid) == os.getpid()
        tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        go_on.set()
        assert sum(await asyncio.gather(*tasks[1:])) == limiter.MAX_CONCURRENT * 3 - 1
        assert most == limiter.MAX_CONCURRENT

    asyncio.run(asyncio.wait_for(main(), 60))
