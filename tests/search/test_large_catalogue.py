"""A catalogue too large to compare in full: what passes the coarse comparison, and what is found all the same."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from search_catalogue import encoder, tools

from toolfold.errors import ConfigError
from toolfold.search import ranker
from toolfold.search.document import Document
from toolfold.search.index import SearchIndex

_VERBS = ["list", "fetch", "rename", "archive", "restore", "copy", "merge", "split", "lock", "audit"]
_THINGS = [
    "invoice",
    "vineyard",
    "tractor",
    "violin",
    "glacier",
    "passport",
    "lantern",
    "harbour",
    "beehive",
    "tapestry",
]
_PLACES = [
    "north",
    "south",
    "east",
    "west",
    "upper",
    "lower",
    "inner",
    "outer",
    "old",
    "new",
    "near",
    "far",
    "first",
    "second",
    "third",
]


def others() -> list[Document]:
    """Fifteen hundred tools that have nothing to do with the two dozen."""
    return [
        Document(
            tool_id=f"other.{verb}_{thing}_{place}",
            name=f"{verb}_{thing}_{place}",
            description=f"{verb.title()} the {thing} of the {place} wing.",
            parameters=(),
            server="other",
            category=("Other",),
            paths=(("Other",),),
            tags=(),
        )
        for verb in _VERBS
        for thing in _THINGS
        for place in _PLACES
    ]


@cache
def large() -> SearchIndex:
    """It learns in one test, from a request that is like none of the others."""
    made = SearchIndex.open(None, encoder=encoder(), learn=True)
    made.sync([*tools(), *others()])
    return made


@pytest.mark.parametrize(
    ("query", "tool_id"),
    [
        ("send an email to Anna", "mail.send_email"),
        ("give the customer the money back", "shop.refund_payment"),
        ("what changed between two revisions", "git.git_diff"),
        ("archive the violin of the upper wing", "other.archive_violin_upper"),
    ],
)
def test_the_tool_asked_for_is_found_among_many(query: str, tool_id: str) -> None:
    assert large().search(query)[0].tool_id == tool_id


def test_fewer_rows_are_compared_than_there_are_and_the_exact_ones_score_the_same() -> None:
    index = large()
    current = index._current()
    alive = current.snapshot.alive
    request = encoder().queries(["send an email to Anna"])
    rows = current._dense.candidates(request, alive)
    assert ranker.EXACT * 0.9 <= len(rows) < current.snapshot.count
    exact = current._dense.similarities(request, np.flatnonzero(alive))[0]
    assert np.array_equal(current._dense.similarities(request, rows)[0], exact[np.isin(np.flatnonzero(alive), rows)])
    assert int(exact.argmax()) in np.searchsorted(np.flatnonzero(alive), rows)


def test_each_sentence_of_a_request_brings_rows_of_its_own() -> None:
    dense = large()._current()._dense
    alive = large()._current().snapshot.alive
    sentences = ["Rename the old lantern. Close the open issue.", "Rename the old lantern.", "Close the open issue."]
    whole = dense.candidates(encoder().queries(sentences[:1]), alive)
    together = dense.candidates(encoder().queries(sentences), alive)
    assert set(whole.tolist()) <= set(together.tolist())
    assert together.tolist() == sorted(set(together.tolist()))
    found = [hit.tool_id for hit in large().search(sentences[0], limit=20)]
    assert "tracker.close_issue" in found


def test_a_search_in_a_part_of_the_catalogue_finds_nothing_outside_of_it() -> None:
    current = large()._current()
    mask = current.snapshot.alive.copy()
    mask[np.flatnonzero(mask)[::10]] = False
    assert int(mask.sum()) > ranker.EXACT
    ranking = current.rank("copy the passport of the far wing", mask, 50)
    assert mask[ranking.rows].all()
    assert ranking.searched == int(mask.sum())


def test_the_same_request_gives_the_same_numbers_when_the_usual_similarity_is_remembered() -> None:
    index = large()
    first = index.search("book a slot in the calendar")
    assert index._current()._sample is not None
    assert index.search("book a slot in the calendar") == first


def test_a_tool_chosen_before_is_ranked_though_nothing_else_speaks_for_it() -> None:
    index = large()
    query = "storm and flood warnings for the coast"
    current = index._current()
    request = encoder().queries([query])
    passed = set(current._dense.candidates(request, current.snapshot.alive).tolist())
    ids = {current.snapshot.tool_id(row): row for row in np.flatnonzero(current.snapshot.alive).tolist()}
    far = next(tool_id for tool_id, row in ids.items() if row not in passed and tool_id.startswith("other."))
    assert far not in {hit.tool_id for hit in index.search(query, limit=200)}
    assert index.learn(query, far)
    ranking = index._current().rank(query, current.snapshot.alive, len(ids))
    place = ranking.rows.tolist().index(ids[far])
    assert ranking.prior[place] > 0


def test_background_tools_that_cannot_be_read_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        ranker._load_background(tmp_path, "some encoder that was never asked for")
    assert caught.value.next_action == "install toolfold again"
