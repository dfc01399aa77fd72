"""Learning from use: off where it is switched off, bounded, local, and without the words of a request."""

from pathlib import Path
from typing import Any

import numpy as np
from search_catalogue import encoder, tools

from toolfold.search.index import SearchIndex
from toolfold.search.segment import hash64
from toolfold.search.usage import LIFT, MAX_CHOICES, Usage

QUERY = "put it on the list for the team"


def opened(folder: Path | None, *, learn: bool) -> SearchIndex:
    index = SearchIndex.open(folder, encoder=encoder(), learn=learn)
    index.sync(tools())
    return index


def test_nothing_is_learned_unless_switched_on(tmp_path: Path) -> None:
    index = opened(tmp_path, learn=False)
    before = index.search(QUERY)
    assert not index.learn(QUERY, "db.export_csv")
    assert index.search(QUERY) == before
    assert not list(tmp_path.glob("usage*"))


def test_a_chosen_tool_rises_for_requests_like_it_and_says_so() -> None:
    index = opened(None, learn=True)
    plain = {hit.tool_id: hit for hit in index.search(QUERY, limit=50)}
    assert index.learn(QUERY, "tracker.create_issue")
    lifted = {hit.tool_id: hit for hit in index.search("put this on the list for our team", limit=50)}
    assert 0 < lifted["tracker.create_issue"].why.prior <= LIFT
    assert lifted["tracker.create_issue"].score > plain["tracker.create_issue"].score
    assert lifted["mail.send_email"].why.prior == 0


def test_other_requests_stay_as_they_were() -> None:
    index = opened(None, learn=True)
    before = index.search("storm warnings for the coast")
    index.learn(QUERY, "tracker.create_issue")
    assert index.search("storm warnings for the coast") == before


def test_habit_does_not_drown_a_clear_match() -> None:
    index = opened(None, learn=True)
    for _ in range(50):
        index.learn("send an email to the team", "db.export_csv")
    assert index.search("send an email to the team")[0].tool_id == "mail.send_email"


def test_what_was_learned_outlives_the_process_and_keeps_no_words(tmp_path: Path) -> None:
    opened(tmp_path, learn=True).learn(QUERY, "tracker.create_issue")
    again = opened(tmp_path, learn=True)
    hit = next(hit for hit in again.search(QUERY, limit=50) if hit.tool_id == "tracker.create_issue")
    assert hit.why.prior > 0
    for file in tmp_path.glob("usage*"):
        assert b"list for the team" not in file.read_bytes()


def test_a_damaged_memory_is_an_empty_one(tmp_path: Path) -> None:
    opened(tmp_path, learn=True).learn(QUERY, "tracker.create_issue")
    for file in tmp_path.glob("usage*"):
        file.write_bytes(b"broken")
    assert opened(tmp_path, learn=True).search(QUERY) == opened(None, learn=False).search(QUERY)


def test_memory_is_bounded() -> None:
    usage = Usage(None, encoder().record)
    vector = encoder().queries([QUERY])[0]
    for _ in range(MAX_CHOICES + 5):
        usage.learn(vector, "x")
    assert len(usage) == MAX_CHOICES


def test_what_a_caller_may_not_see_does_not_rise() -> None:
    index = opened(None, learn=True)
    index.learn(QUERY, "tracker.create_issue")
    found = index.search(QUERY, allowed=lambda tool_id: not tool_id.startswith("tracker."), limit=50)
    assert not any(hit.tool_id.startswith("tracker.") for hit in found)


def test_what_is_learned_while_a_request_is_ranked_does_not_break_it() -> None:
    usage = Usage(None, encoder().record)
    request = encoder().queries(["read a file"])[0]
    usage.learn(request, "files.read")

    class Busy(dict[str, Any]):
        """Somebody learns whenever a column is read."""

        def __getitem__(self, name: str) -> Any:
            column = super().__getitem__(name)
            usage._choices = Busy({key: np.concatenate([value, value]) for key, value in self.items()})
            return column

    usage._choices = Busy(usage._choices)
    assert list(usage.lifts(request)) == [hash64("files.read")]
