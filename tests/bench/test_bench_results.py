"""`toolfold bench results`: pieces of real large results are found through handles, for a part of the tokens."""

import importlib.util
import json

import pytest

from benchmarks.bfcl.official import INSTALL
from toolfold.faces.cli import run as main

pytestmark = [pytest.mark.load, pytest.mark.timeout(300)]


def test_20_handles_find_every_piece_for_a_part_of_the_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    if importlib.util.find_spec("bfcl_eval") is None or importlib.util.find_spec("mpmath") is None:
        pytest.skip(f"BFCL is not here: {INSTALL}")
    assert main(["bench", "results", "--sample", "4", "--seed", "1", "--json"]) == 0
    rows = {row["setting"]: row for row in json.loads(capsys.readouterr().out)["metrics"]["rows"]}
    assert all(row["results"] == 4 and row["of"] == 12 for row in rows.values())
    assert rows["handles"]["found"] == rows["whole"]["found"] == 12
    assert rows["truncated"]["found"] < 12
    assert rows["handles"]["tokens_in"] * 3 < rows["whole"]["tokens_in"]
