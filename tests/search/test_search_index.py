"""Search as its users see it: ranked hits with reasons, inside a place, for what the caller may see."""

import threading

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from search_catalogue import encoder, index, tools

from toolfold.errors import InvalidArguments
from toolfold.search.calibration import _load_calibration
from toolfold.search.document import Document
from toolfold.search.encoder import WEIGHTS, Encoder
from toolfold.search.index import SearchIndex


def first(query: str) -> str:
    return index().search(query)[0].tool_id


@pytest.mark.requirement("D-11")
@pytest.mark.parametrize(
    ("query", "tool_id"),
    [
        ("create a branch in git", "git.git_create_branch"),
        ("will I need an umbrella this weekend", "weather.get_forecast"),
        ("where is my package right now", "shop.track_parcel"),
        ("say this in Spanish", "shop.translate_text"),
        ("report a problem with the project", "tracker.create_issue"),
        ("columns of the customers table", "db.describe_table"),
    ],
)
def test_words_and_meaning_together_put_the_right_tool_first(query: str, tool_id: str) -> None:
    assert first(query) == tool_id


@pytest.mark.requirement("D-11")
def test_search_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("search opened a socket")

    monkeypatch.setattr(socket, "socket", refuse)
    fresh = SearchIndex.open(None, encoder=Encoder())
    fresh.sync(tools())
    assert fresh.search("storm warnings")[0].tool_id == "weather.list_storm_warnings"


def test_a_request_for_several_things_finds_each() -> None:
    query = "Commit my staged changes with a good message. Then send an email to the team about it."
    found = [hit.tool_id for hit in index().search(query, limit=3)]
    assert {"git.git_commit", "mail.send_email"} <= set(found)


def test_a_hit_says_why() -> None:
    hit = index().search("delete old rows from the orders table")[0]
    assert hit.tool_id == "db.delete_rows"
    assert set(hit.why.words) >= {"delete", "rows", "table"}
    assert hit.why.lexical > 1
    assert hit.why.dense > 1
    assert 0 < hit.why.near <= 1
    assert hit.why.part == ""


def test_a_hit_names_the_sentence_it_answers() -> None:
    query = (
        "The meeting went well, everyone was happy with the music, the flowers on the tables and the long speeches. "
        "Please refund the payment for order 17."
    )
    hit = index().search(query)[0]
    assert (hit.tool_id, hit.why.part) == ("shop.refund_payment", "Please refund the payment for order 17.")


@pytest.mark.requirement("D-03")
def test_a_path_narrows_the_search_to_all_below_it() -> None:
    inside = index().search("create something new", path=("Code",), limit=50)
    assert {hit.tool_id.split(".")[0] for hit in inside} == {"git", "tracker"}
    assert len(inside) == 7
    deeper = index().search("create something new", path=("Code", "Issues"), limit=50)
    assert {hit.tool_id.split(".")[0] for hit in deeper} == {"tracker"}
    assert index().search("create something new", path=("Nowhere",)) == []


@pytest.mark.requirement("D-03")
def test_a_request_inside_a_path_ranks_like_one_to_a_catalogue_of_that_path_alone() -> None:
    alone = SearchIndex.open(None, encoder=encoder())
    alone.sync([tool for tool in tools() if tool.paths[0][0] == "Code"])
    inside = [hit.tool_id for hit in index().search("which commits came last", path=("Code",))]
    assert inside == [hit.tool_id for hit in alone.search("which commits came last")]


def test_every_tag_must_be_there() -> None:
    found = index().search("remove things", tags=["risk:destructive"], limit=50)
    assert [hit.tool_id for hit in found] == ["db.delete_rows"]
    assert index().search("remove things", tags=["risk:destructive", "other"]) == []


def test_ids_and_leaving_out_narrow_the_search() -> None:
    ids = ["db.run_query", "db.export_csv"]
    assert {hit.tool_id for hit in index().search("rows", ids=ids)} == set(ids)
    assert "db.run_query" not in {hit.tool_id for hit in index().search("rows", without=["db.run_query"], limit=50)}
    assert index().search("rows", ids=[]) == []


def test_what_a_caller_may_not_see_is_never_found() -> None:
    def allowed(tool_id: str) -> bool:
        return not tool_id.startswith("db.")

    found = index().search("run a sql query on the database table", allowed=allowed, limit=50)
    assert found
    assert not any(hit.tool_id.startswith("db.") for hit in found)


def test_a_permission_that_was_taken_back_counts_at_once() -> None:
    banned: set[str] = set()

    def allowed(tool_id: str) -> bool:
        return tool_id not in banned

    assert index().search("run a sql query", allowed=allowed)[0].tool_id == "db.run_query"
    banned.add("db.run_query")
    assert "db.run_query" not in {hit.tool_id for hit in index().search("run a sql query", allowed=allowed, limit=50)}


def test_equal_tools_keep_one_order_whatever_order_they_came_in() -> None:
    twins = [Document(tool_id=f"s{at}.same", name="same", description="The same tool.") for at in range(30)]
    orders = []
    for order in (twins, twins[::-1]):
        made = SearchIndex.open(None, encoder=encoder())
        made.sync(order)
        orders.append([hit.tool_id for hit in made.search("the same tool", limit=12)])
    assert orders[0] == orders[1]


def test_an_empty_index_finds_nothing() -> None:
    assert SearchIndex.open(None, encoder=encoder()).search("anything") == []


@pytest.mark.parametrize("query", ["", "   ", "\n\t "])
def test_an_empty_request_is_refused_with_advice(query: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        index().search(query)
    assert caught.value.next_action


@pytest.mark.requirement("D-14", "U-04")
@pytest.mark.parametrize(
    "query",
    [
        "mine some bitcoin with the graphics card",
        "compose a symphony for four violins",
        "transplant a kidney",
        "asdfgh qwertz",
    ],
)
def test_nothing_fits_an_impossible_request(query: str) -> None:
    assert not any(hit.fits for hit in index().search(query))


@pytest.mark.requirement("D-14", "U-04")
@pytest.mark.parametrize(
    "query",
    ["send an email to Anna", "show the git log", "refund the payment of order 9", "weather forecast for Oslo"],
)
def test_something_fits_a_request_that_names_a_tool(query: str) -> None:
    hits = index().search(query)
    assert any(hit.fits for hit in hits)
    assert hits[0].confidence > hits[-1].confidence


@pytest.mark.requirement("D-14")
@pytest.mark.parametrize("query", ["open an issue", "has mum's parcel left Hamburg yet", "asdfgh qwertz"])
def test_one_bar_decides_for_every_hit_of_a_request(query: str) -> None:
    hits = index().search(query, limit=50)
    assert all(0 <= hit.confidence <= 1 for hit in hits)
    enough = [hit.confidence for hit in hits if hit.fits]
    assert max((hit.confidence for hit in hits if not hit.fits), default=0.0) < min(enough, default=1.0)
    assert any(hit.fits for hit in hits) == bool(enough)


@pytest.mark.requirement("D-14")
def test_the_bar_is_higher_for_the_words_of_descriptions() -> None:
    bar = _load_calibration(WEIGHTS).bar
    written, said = (
        encoder().queries(["list the parcels of a customer"]),
        encoder().queries(["where on earth is my box?"]),
    )
    assert 0 < bar(said[0]) < bar(written[0]) < 1


@pytest.mark.requirement("D-14")
@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=80), st.integers(1, 30))
def test_16_03_confidence_only_falls_and_does_not_hang_on_the_limit(query: str, limit: int) -> None:
    assume(query.strip())
    said = [hit.confidence for hit in index().search(query, limit=limit)]
    assert said == sorted(said, reverse=True)
    assert said == [hit.confidence for hit in index().search(query, limit=30)][: len(said)]
    nodes = [hit.confidence for hit in index().search_nodes(query)]
    assert nodes == sorted(nodes, reverse=True)


@pytest.mark.parametrize(
    "query", ["send a mail to the team", "refund order 9", "git log", "translate this", "weather in Oslo"]
)
def test_16_03_order_and_confidence_agree(query: str) -> None:
    hits = index().search(query, limit=20)
    assert [hit.confidence for hit in hits] == sorted((hit.confidence for hit in hits), reverse=True)
    assert len({hit.confidence for hit in hits}) > 3


@pytest.mark.requirement("D-14")
def test_a_request_is_less_sure_once_its_tool_is_gone() -> None:
    for query in ("send an email to Anna", "show the git log", "where is parcel 77", "translate this text"):
        there = index().search(query)[0]
        gone = index().search(query, without=[there.tool_id])[0]
        assert gone.confidence < there.confidence


@pytest.mark.requirement("D-04")
@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("rain and storms", ("Weather",)),
        ("work with commits and branches", ("Code", "Git")),
        ("appointments of next week", ("Office", "Calendar")),
        ("bug reports", ("Code", "Issues")),
    ],
)
def test_categories_are_ranked_through_their_tools(query: str, path: tuple[str, ...]) -> None:
    assert index().search_nodes(query)[0].path == path


@pytest.mark.requirement("D-04")
def test_a_category_found_says_by_which_tools_and_how_sure() -> None:
    node = index().search_nodes("send an email")[0]
    assert node.path == ("Office", "Mail")
    assert node.tools[0] == "mail.send_email"
    assert node.confidence == index().search("send an email")[0].confidence


@pytest.mark.requirement("D-04")
def test_categories_below_a_path_only_and_only_of_visible_tools() -> None:
    below = index().search_nodes("create", path=("Code",), limit=50)
    assert {node.path for node in below} == {("Code", "Git"), ("Code", "Issues")}
    seen = index().search_nodes("create", allowed=lambda tool_id: tool_id.startswith("db."), limit=50)
    assert [node.path for node in seen] == [("Data",)]


@pytest.mark.requirement("D-04")
def test_own_words_of_a_category_lift_it() -> None:
    plain = {node.path: node.score for node in index().search_nodes("warehouse", limit=50)}
    lifted = index().search_nodes("warehouse", own_text=lambda path: "warehouse" if path == ("Shop",) else "", limit=50)
    assert {node.path: node.score for node in lifted}[("Shop",)] > plain[("Shop",)]


def test_many_threads_ask_while_one_updates() -> None:
    made = SearchIndex.open(None, encoder=encoder())
    made.sync(tools())
    wrong: list[object] = []

    def ask() -> None:
        for _ in range(15):
            hit = made.search("create a branch in git")[0]
            if hit.tool_id != "git.git_create_branch":
                wrong.append(hit)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(10):
        made.update([Document(tool_id=f"extra.t{number}", name=f"tool_{number}", description="Something else.")])
    for thread in threads:
        thread.join()
    assert wrong == []
