"""A request that is the name of a tool finds that tool first, for sure, however it is spelt."""

import hashlib
import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from msgspec import Raw
from msgspec.structs import replace
from search_catalogue import encoder, index, tools

from toolfold.catalogue.ids import natural_id
from toolfold.search.array_file import Floats
from toolfold.search.document import Document, document_of
from toolfold.search.encoder import Encoder
from toolfold.search.index import SearchIndex
from toolfold.search.names import Names
from toolfold.types import Hit, Tool
from toolfold.upstream.definitions import read_definitions
from toolfold.words import split_identifier

pytestmark = pytest.mark.requirement("Q-03")


class Noise(Encoder):
    """Vectors that say nothing: names must come first whatever the meaning says, and 2,687 tools cost no seconds."""

    def _encode(self, texts: Sequence[str], limits: Sequence[int]) -> Floats:
        seeds = [int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") for text in texts]
        vectors = np.array([np.random.default_rng(seed).normal(size=self.dims) for seed in seeds], dtype=np.float32)
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def document(tool_id: str, name: str, description: str, title: str = "") -> Document:
    server = tool_id.partition(".")[0]
    return Document(tool_id=tool_id, name=name, description=description, server=server, title=title)


def camel(text: str) -> str:
    first, *rest = split_identifier(text)
    return "".join([first.lower(), *(part.capitalize() for part in rest)])


def names_of(tool: Document) -> dict[str, str]:
    return {
        "name": tool.name,
        "shouted": tool.name.upper().replace("_", "-"),
        "in words": " ".join(split_identifier(tool.name)),
        "id": tool.tool_id,
        "server.name": f"{tool.server}.{tool.name}",
        "server/name": f"{tool.server}/{tool.name}",
        "of a client": f"mcp__{tool.server}__{tool.name}",
        "selected": f"select:{tool.tool_id}",
    }


def found_first(hits: list[Hit]) -> list[str]:
    """The ids that are sure, which must come first."""
    sure = [hit.tool_id for hit in hits if hit.confidence == 1.0]
    assert sure == [hit.tool_id for hit in hits[: len(sure)]]
    return sure


def test_16_04_a_name_in_any_spelling_comes_first_and_is_sure() -> None:
    for tool in tools():
        for spelling, name in names_of(tool).items():
            assert found_first(index().search(name, limit=5))[:1] == [tool.tool_id], (spelling, name)
        assert found_first(index().search(camel(tool.name), limit=3)) == [tool.tool_id]


def test_16_04_200_recorded_names_and_ids_in_four_spellings_are_all_first(shared_data: Path) -> None:
    recorded = []
    for file in sorted((shared_data / "servers").glob("*.json")):
        server = json.loads(file.read_text())
        for sent in read_definitions([Raw(json.dumps(tool).encode()) for tool in server["tools"]])[0]:
            tool_id = natural_id(server["name"], sent.name)
            tool = document_of(Tool(tool_id=tool_id, server=server["name"], definition=sent, fingerprint=""))
            recorded.append(replace(tool, description="", parameters=()))  # they take time and name nothing
    held = SearchIndex.open(None, encoder=Noise())
    held.sync(recorded)
    alike: dict[str, set[str]] = {}
    for tool in recorded:
        alike.setdefault(fold(tool.name), set()).add(tool.tool_id)
    missed = []
    for tool in random.Random(16).sample(recorded, 200):
        for spelling in ("name", "shouted", "id", "of a client"):
            name = names_of(tool)[spelling]
            first = held.search(name, limit=1)[0]
            meant = {tool.tool_id} if spelling in ("id", "of a client") else alike[fold(tool.name)]
            if first.confidence != 1.0 or not meant & {first.tool_id, *first.same_as}:
                missed.append((name, first.tool_id, first.confidence))
    assert not missed


def fold(name: str) -> str:
    return "".join(mark for mark in name.casefold() if mark.isalnum())


@pytest.fixture(scope="module")
def crowd() -> SearchIndex:
    made = SearchIndex.open(None, encoder=encoder())
    made.sync(
        [
            document("exa.search", "search", "Search the web."),
            document("ads.search", "search", "Search the library of advertisements."),
            document("web.web_search", "web_search", "Search", title="Search"),
            document("git.log", "log", "List commits."),
            document("vault.git_log", "git_log", "The log of a vault kept in git."),
            document("chat.post", "post", "Post to a channel.", title="Send a message"),
            document("lights.get_label", "get_label", "The label of a light."),
            document("lights.set_label", "set_label", "Gives a light a label."),
            document("hue.turn_on", "turn_on", "Light."),
            document("hue.turn_off", "turn_off", "No light."),
            *tools(),
        ]
    )
    return made


def test_16_04_all_tools_of_one_name_come_first_always_in_the_same_order(crowd: SearchIndex) -> None:
    first = found_first(crowd.search("search", limit=10))
    assert set(first) == {"exa.search", "ads.search", "web.web_search"}
    assert first[2] == "web.web_search", "a name is surer than a title"
    for spelling in ("search", "Search", "SEARCH", "`search`"):
        assert found_first(crowd.search(spelling, limit=10)) == first


def test_16_04_a_whole_id_names_one_tool_even_where_another_is_spelt_alike(crowd: SearchIndex) -> None:
    assert found_first(crowd.search("git.log")) == ["git.log"]
    assert found_first(crowd.search("mcp__git__log")) == ["git.log"]
    by_name = found_first(crowd.search("git_log"))
    assert (set(by_name[:2]), by_name[2:]) == ({"vault.git_log", "git.git_log"}, ["git.log"])


def test_16_04_a_title_is_a_name_and_several_can_be_selected(crowd: SearchIndex) -> None:
    assert found_first(crowd.search("send A MESSAGE")) == ["chat.post"]
    assert set(found_first(crowd.search("select:git.log, chat.post"))) == {"git.log", "chat.post"}


@pytest.mark.parametrize("request_", ["search the web for news", "a log", "select:", "...", "select:,,", "x" * 5000])
def test_16_04_a_request_that_is_no_name_is_searched_as_ever(crowd: SearchIndex, request_: str) -> None:
    assert not found_first(crowd.search(request_))


def test_16_04_a_name_outside_of_the_scope_or_the_view_is_not_found(crowd: SearchIndex) -> None:
    hits = crowd.search("get_label", allowed=lambda tool_id: tool_id != "lights.get_label")
    assert "lights.get_label" not in [hit.tool_id for hit in hits]
    assert not found_first(hits)
    assert not found_first(crowd.search("get_label", path=("Weather",)))


def test_16_04_a_name_is_found_among_more_tools_than_are_compared() -> None:
    many = SearchIndex.open(None, encoder=Noise())
    many.sync([document(f"s{number}.tool_{number}", f"tool_{number}", "Does things.") for number in range(1500)])
    assert [found_first(many.search(f"tool {number}")) for number in (3, 1499)] == [["s3.tool_3"], ["s1499.tool_1499"]]


@pytest.mark.parametrize(
    ("request_", "wanted", "opposite"),
    [
        ("set the label of a light", "lights.set_label", "lights.get_label"),
        ("get the label of a light", "lights.get_label", "lights.set_label"),
        ("please set a label", "lights.set_label", "lights.get_label"),
        ("Hue: set label", "lights.set_label", "lights.get_label"),
        ("open an issue", "tracker.create_issue", "tracker.close_issue"),
    ],
)
def test_16_04_a_verb_that_opposes_counts_against_a_tool(
    crowd: SearchIndex, request_: str, wanted: str, opposite: str
) -> None:
    ids = [hit.tool_id for hit in crowd.search(request_, limit=30)]
    assert ids.index(wanted) < ids.index(opposite)


def test_16_04_verbs_count_only_against_and_only_where_they_are_verbs(crowd: SearchIndex) -> None:
    ranker = crowd._current()

    def opposed(request: str) -> set[str]:
        rows = np.flatnonzero(ranker.snapshot.filed(Names(request).opposed_scopes)).tolist()
        return {ranker.snapshot.tool_id(row) for row in rows}

    assert "lights.get_label" in opposed("set a label")
    assert "lights.set_label" not in opposed("set a label")
    assert "lights.get_label" in opposed("Please set a label.")
    assert not opposed("Set a label. Then tell me what the others say.")
    assert not opposed("set a label, then list all of them")
    for request in ("the set of labels", "is the door locked", "get rid of a label", "labels", "set up an account"):
        assert not opposed(request), request
    assert not opposed("turn the lights")
    assert opposed("turn the lights off, please") == {"hue.turn_on"}
    assert opposed("switch on the lamp") == {"hue.turn_off"}
