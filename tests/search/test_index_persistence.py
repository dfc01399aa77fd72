"""The index outlives its process: it opens as it was, changes in place, and survives damage."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from search_catalogue import encoder, tools

from toolfold.errors import StoreDamaged
from toolfold.search.array_file import Floats
from toolfold.search.document import Document
from toolfold.search.encoder import Encoder
from toolfold.search.index import SearchIndex
from toolfold.search.store import MAX_SEGMENTS, TABLE
from toolfold.search.updater import UpdateReport

QUERIES = ("will it rain tomorrow", "open a bug report for the team", "give the customer the money back", "sql")


def opened(folder: Path) -> SearchIndex:
    return SearchIndex.open(folder, encoder=encoder())


def answers(index: SearchIndex) -> list[list[object]]:
    return [list(index.search(query)) for query in QUERIES]


def changed(tool: Document, words: str) -> Document:
    return msgspec.structs.replace(tool, description=f"{tool.description} {words}")


class CountingEncoder(Encoder):
    """The real encoder, noting which texts it read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    def tools(self, texts: Sequence[str]) -> Floats:
        self.read += texts
        return super().tools(texts)


@pytest.mark.requirement("D-11")
def test_an_index_answers_the_same_after_a_restart(tmp_path: Path) -> None:
    first = opened(tmp_path)
    assert first.sync(tools()) == UpdateReport(added=len(tools()), embedded=len(tools()))
    again = opened(tmp_path)
    assert len(again) == len(tools())
    assert answers(again) == answers(first)
    assert again.sync(tools()) == UpdateReport(unchanged=len(tools()))


def test_another_process_gives_the_same_bytes(tmp_path: Path) -> None:
    index = opened(tmp_path)
    index.sync(tools())
    code = (
        "import sys, msgspec; from pathlib import Path; from toolfold.search.index import SearchIndex\n"
        "index = SearchIndex.open(Path(sys.argv[1]))\n"
        "sys.stdout.buffer.write(msgspec.json.encode([index.search(query) for query in sys.argv[2:]]))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path), *QUERIES], capture_output=True, check=True)
    assert done.stdout == msgspec.json.encode(answers(index))


def test_only_the_tools_of_a_changed_server_are_embedded(tmp_path: Path) -> None:
    counting = CountingEncoder()
    index = SearchIndex.open(tmp_path, encoder=counting)
    index.sync(tools())
    counting.read.clear()
    index.update([changed(tool, "Now faster.") if tool.server == "git" else tool for tool in tools()])
    assert len(counting.read) == 4
    assert all("Now faster." in text for text in counting.read)


def test_a_tool_that_moves_or_comes_back_is_not_embedded_again(tmp_path: Path) -> None:
    counting = CountingEncoder()
    index = SearchIndex.open(tmp_path, encoder=counting)
    index.sync(tools())
    counting.read.clear()
    moved = [msgspec.structs.replace(tool, paths=(("Elsewhere",),), category=("Elsewhere",)) for tool in tools()]
    assert index.update(moved).changed == len(tools())
    index.update((), removed=[tool.tool_id for tool in tools()])
    assert len(index) == 0
    assert SearchIndex.open(tmp_path, encoder=counting).sync(tools()) == UpdateReport(added=len(tools()))
    assert counting.read == []


def test_two_tools_with_one_text_are_embedded_once(tmp_path: Path) -> None:
    counting = CountingEncoder()
    twin = msgspec.structs.replace(tools()[0], tool_id=f"{tools()[0].tool_id}-2")
    SearchIndex.open(tmp_path, encoder=counting).sync([tools()[0], twin])
    assert len(counting.read) == 1


steps = st.lists(
    st.tuples(st.sets(st.integers(0, 21), max_size=6), st.sampled_from(["add", "change", "remove"])), max_size=8
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps)
def test_an_index_that_grew_answers_like_one_built_at_once(
    steps: list[tuple[set[int], str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("grown")
    grown = opened(folder)
    holds: dict[str, Document] = {}
    for number, (places, what) in enumerate(steps):
        chosen = [tools()[place] for place in sorted(places)]
        if what == "remove":
            grown.update((), removed=[tool.tool_id for tool in chosen])
            holds = {tool_id: tool for tool_id, tool in holds.items() if tool_id not in ids_of(chosen)}
        else:
            new = [changed(tool, f"Edition {number % 3}.") if what == "change" else tool for tool in chosen]
            grown.update(new)
            holds.update({tool.tool_id: tool for tool in new})
    fresh = SearchIndex.open(None, encoder=encoder())
    fresh.sync(holds.values())
    assert len(grown) == len(holds)
    assert answers(grown) == answers(fresh) == answers(opened(folder))


def ids_of(chosen: Sequence[Document]) -> set[str]:
    return {tool.tool_id for tool in chosen}


def test_many_small_updates_leave_few_files(tmp_path: Path) -> None:
    index = opened(tmp_path)
    for tool in tools():
        index.update([tool])
    rows = [file for file in tmp_path.iterdir() if file.name.startswith("rows-")]
    assert len(rows) <= MAX_SEGMENTS
    fresh = SearchIndex.open(None, encoder=encoder())
    fresh.sync(tools())
    assert answers(index) == answers(fresh)


def test_a_reader_sees_what_another_process_wrote(tmp_path: Path) -> None:
    writer, reader = opened(tmp_path), opened(tmp_path)
    assert len(reader) == 0
    writer.sync(tools())
    assert answers(reader) == answers(writer)


def test_a_reader_keeps_its_files_while_they_are_replaced(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    writer.sync(tools())
    before = writer._store.snapshot
    writer.sync([changed(tool, "Replaced.") for tool in tools()])
    assert before.tool_id(0) == min(tool.tool_id for tool in tools())
    assert np.asarray(before.segments[0].arrays["vector"]).any()


@pytest.mark.parametrize("harm", ["cut", "head", "table", "missing", "table-missing", "empty"])
def test_a_damaged_index_opens_empty_says_so_and_is_built_anew(tmp_path: Path, harm: str) -> None:
    index = opened(tmp_path)
    index.sync(tools())
    expected = answers(index)
    file = next(file for file in tmp_path.iterdir() if file.name.startswith("rows-"))
    whole = file.read_bytes()
    match harm:
        case "cut":
            file.write_bytes(whole[: len(whole) // 2])
        case "head":
            file.write_bytes(whole[:20] + b"\xff" + whole[21:])
        case "table":
            (tmp_path / TABLE).write_bytes(b"not a table at all")
        case "missing":
            file.unlink()
        case "table-missing":
            (tmp_path / TABLE).unlink()
        case _:
            (tmp_path / TABLE).write_bytes(b"")
    again = opened(tmp_path)
    assert len(again) == 0
    assert bool(again.damage) == (harm != "table-missing")
    assert again.search("weather") == []
    again.sync(tools())
    assert again.damage == ""
    assert answers(again) == expected == answers(opened(tmp_path))


def test_changed_contents_are_found_by_verify(tmp_path: Path) -> None:
    index = opened(tmp_path)
    index.sync(tools())
    index.verify()
    file = next(file for file in tmp_path.iterdir() if file.name.startswith("rows-"))
    whole = bytearray(file.read_bytes())
    whole[-40] ^= 0xFF
    file.write_bytes(whole)
    with pytest.raises(StoreDamaged):
        opened(tmp_path).verify()


def test_vectors_of_another_encoder_are_not_used(tmp_path: Path) -> None:
    opened(tmp_path).sync(tools())
    other = Encoder()
    other.record = msgspec.structs.replace(other.record, version="another")
    index = SearchIndex.open(tmp_path, encoder=other)
    assert len(index) == 0
    assert "another version" in index.damage
    assert index.sync(tools()).embedded == len(tools())


def test_a_writer_that_dies_midway_leaves_the_old_state(tmp_path: Path) -> None:
    index = opened(tmp_path)
    index.sync(tools())
    expected = answers(index)
    code = (
        "import os, sys; from pathlib import Path; import toolfold.search.store as store\n"
        "from toolfold.search.index import SearchIndex; from toolfold.search.document import Document\n"
        "store._write_table = lambda *_: os._exit(9)\n"
        "SearchIndex.open(Path(sys.argv[1])).update([Document(tool_id='x', name='get_forecast')])"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 9
    again = opened(tmp_path)
    assert answers(again) == expected
    again.update((), removed=["shop.translate_text"])
    named = [file.name for file in tmp_path.iterdir() if file.name.startswith("rows-")]
    assert len(named) == 1
