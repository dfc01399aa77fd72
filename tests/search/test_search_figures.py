"""What ships gives the figures that were recorded with it, on real sets."""

from pathlib import Path

import pytest
from search_catalogue import encoder

from benchmarks import abstain, retrieval
from toolfold.search.calibration import _load_calibration
from toolfold.search.encoder import WEIGHTS

pytestmark = pytest.mark.load


@pytest.mark.requirement("D-11")
def test_the_shipped_weights_rank_as_recorded(shared_data: Path) -> None:
    found = retrieval.run(shared_data / "retrieval" / "mcptoolbenchpp", encoder=encoder())
    figures = found["metrics"]["sets"]["mcptoolbenchpp"]
    assert figures["toolfold"]["ndcg_at_10"] == pytest.approx(0.950, abs=0.01)
    assert figures["toolfold"]["ndcg_at_10"] > figures["words_alone"]["ndcg_at_10"] + 0.02
    assert figures["toolfold"]["ndcg_at_10"] > figures["fastmcp_formula"]["ndcg_at_10"] + 0.05


@pytest.mark.requirement("D-14")
def test_search_knows_when_nothing_fits_as_recorded(shared_data: Path) -> None:
    data = shared_data / "retrieval" / "metatool"
    found = abstain.run(data, servers=shared_data / "servers", sample=100, encoder=encoder())
    figures = found["metrics"]["mean"]
    assert figures["a_auroc"] > figures["a_auroc_fastmcp_score"] + 0.1
    # A person's own words are refused only where little speaks for a tool: most of these are people's.
    assert figures["b_refused_as_shipped"] >= 0.75
    assert figures["false_refusals_as_shipped"] <= 0.02


def test_the_calibration_was_fitted_with_the_weights_that_ship() -> None:
    assert _load_calibration(WEIGHTS).encoder == encoder().record.key
