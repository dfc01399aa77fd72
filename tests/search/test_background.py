"""The foreign tools that a request is compared with belong to the weights and the calibration that ship."""

import hashlib
from pathlib import Path

import pytest
from search_catalogue import encoder, tools

from toolfold.errors import ConfigError
from toolfold.search import ranker
from toolfold.search.calibration import _load_calibration
from toolfold.search.encoder import WEIGHTS
from toolfold.search.index import SearchIndex

MAX_BYTES = 300_000
ROOT = Path(__file__).parents[2]


def test_the_foreign_tools_were_made_by_the_encoder_that_ships_and_are_small() -> None:
    vectors, scales = ranker._load_background(WEIGHTS, encoder().record.key)
    assert vectors.shape == (len(scales), encoder().dims)
    assert (WEIGHTS / ranker.BACKGROUND_FILE).stat().st_size <= MAX_BYTES


def test_the_calibration_was_fitted_with_the_foreign_tools_that_ship() -> None:
    assert (
        _load_calibration(WEIGHTS).cohort == hashlib.sha256((WEIGHTS / ranker.BACKGROUND_FILE).read_bytes()).hexdigest()
    )


def test_another_encoder_is_told_to_make_them_again() -> None:
    with pytest.raises(ConfigError) as caught:
        ranker._load_background(WEIGHTS, "another/1")
    assert "training/background.py" in caught.value.next_action


@pytest.mark.requirement("D-14")
def test_a_request_of_another_world_is_nearer_to_foreign_tools() -> None:
    index = SearchIndex.open(None, encoder=encoder())
    index.sync(tools())
    [(_, here)] = index.explain("send an email to Anna", limit=1)
    [(_, away)] = index.explain("a recipe for a cake without eggs", limit=1)
    assert away["ours"] < 0 < here["ours"]


def test_the_foreign_tools_are_those_of_the_list_they_were_made_from() -> None:
    _, scales = ranker._load_background(WEIGHTS, encoder().record.key)
    lines = (ROOT / "training" / "background.txt").read_text(encoding="utf-8").splitlines()
    assert len(scales) == len(lines) == len({line.split(":")[0] for line in lines})
