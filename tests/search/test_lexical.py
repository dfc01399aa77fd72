"""Scores by words agree with the formula written out the slow way."""

import math

import pytest
from search_catalogue import encoder, tools

from toolfold.search.document import weighted_terms
from toolfold.search.index import SearchIndex
from toolfold.search.ranker import LENGTH, SATURATION, _LexicalScorer
from toolfold.search.store import IndexStore
from toolfold.search.updater import update_index
from toolfold.words import query_terms


def store() -> IndexStore:
    made = IndexStore(None, encoder().record.key)
    update_index(made, encoder(), tools(), (), only=True)
    return made


def by_formula(query: str) -> dict[str, float]:
    """BM25 over weighted counts, as a textbook has it."""
    counts = {tool.tool_id: weighted_terms(tool) for tool in tools()}
    mean = sum(sum(count.values()) for count in counts.values()) / len(counts)
    found = {}
    for tool_id, count in counts.items():
        total = 0.0
        for term in query_terms(query):
            holders = sum(term in other for other in counts.values())
            worth = math.log(1 + (len(counts) - holders + 0.5) / (holders + 0.5))
            times = count.get(term, 0.0)
            damping = SATURATION * (1 - LENGTH + LENGTH * sum(count.values()) / mean)
            total += worth * times * (SATURATION + 1) / (times + damping)
        found[tool_id] = total
    return found


@pytest.mark.parametrize("query", ["delete rows of a table", "issue issue issue", "weather", "nothing of the kind zzz"])
def test_scores_are_those_of_the_formula(query: str) -> None:
    snapshot = store().snapshot
    lexical = _LexicalScorer(snapshot, snapshot.alive)
    scores = lexical.scores(lexical.terms(query))
    expected = by_formula(query)
    for row in range(snapshot.total):
        assert float(scores[row]) == pytest.approx(expected[snapshot.tool_id(row)], abs=1e-4)


def test_the_words_a_tool_holds_add_up_to_its_score() -> None:
    snapshot = store().snapshot
    lexical = _LexicalScorer(snapshot, snapshot.alive)
    terms = lexical.terms("create a new issue in the tracker")
    scores = lexical.scores(terms)
    for row in range(snapshot.total):
        assert sum(gain for _, gain in lexical.matches(terms, row)) == pytest.approx(float(scores[row]), abs=1e-4)


def test_words_of_tools_that_left_count_no_more() -> None:
    grown = SearchIndex.open(None, encoder=encoder())
    grown.sync(tools())
    grown.update((), removed=[tool.tool_id for tool in tools() if tool.server == "db"])
    fresh = SearchIndex.open(None, encoder=encoder())
    fresh.sync([tool for tool in tools() if tool.server != "db"])
    assert grown.search("delete rows of a table") == fresh.search("delete rows of a table")
