"""`search.encoder = "large"`: a package of its own, an index of its own, and a clear word where it is not installed."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from search_catalogue import tools

from toolfold import ConfigError, Settings
from toolfold.config.sections import _Search
from toolfold.faces.cli.doctor import _check_encoder
from toolfold.search.encoder import WEIGHTS, Encoder, _weights_of, shared_encoder
from toolfold.search.index import SearchIndex

PACKAGE = Path(__file__).resolve().parents[2] / "packages" / "large"
ITS_WEIGHTS = PACKAGE / "toolfold_large" / "weights"
needs_weights = pytest.mark.skipif(
    not (ITS_WEIGHTS / "encoder.onnx").exists(), reason="the large encoder's weights are not in this checkout"
)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of that name, with the small weights under another record."""
    folder = tmp_path / "site" / "toolfold_large"
    shutil.copytree(WEIGHTS, folder / "weights")
    record = folder / "weights" / "encoder.json"
    record.write_text(record.read_text(encoding="utf-8").replace("toolfold-minilm", "toolfold-other"), encoding="utf-8")
    other = Encoder(folder / "weights").record.key
    with np.load(folder / "weights" / "background.npz") as held:
        arrays = dict(held)
    np.savez(folder / "weights" / "background.npz", **{**arrays, "encoder": np.array(other)})
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(folder.parent)
    return folder


@pytest.fixture(autouse=True)
def forgotten() -> None:
    shared_encoder.cache_clear()
    sys.modules.pop("toolfold_large", None)


def test_without_the_package_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "toolfold_large", None)
    with pytest.raises(ConfigError, match="toolfold-large") as caught:
        _weights_of("large")
    assert "pip install 'toolfold[large]'" in caught.value.next_action
    findings = list(_check_encoder(Settings(home=tmp_path, search=_Search(encoder="large"))))
    assert findings[0].verdict == "wrong"
    assert "toolfold[large]" in findings[0].fix


def test_with_the_package_its_weights_are_used_and_doctor_names_them(tmp_path: Path, installed: Path) -> None:
    assert shared_encoder("large").folder == installed / "weights"
    assert shared_encoder("small").folder == WEIGHTS
    finding, *_ = _check_encoder(Settings(home=tmp_path, search=_Search(encoder="large")))
    assert finding.verdict == "well"
    assert "large encoder" in finding.text
    assert "toolfold-other" in finding.text


def test_two_encoders_share_a_folder_and_neither_spoils_the_others_index(tmp_path: Path, installed: Path) -> None:
    home = tmp_path / "search"
    for _ in range(2):
        for name in ("small", "large"):
            index = SearchIndex.open(home, encoder=shared_encoder(name))
            done = index.sync(tools())
            assert index.search("will it rain tomorrow", limit=1)[0].tool_id == "weather.get_forecast"
    assert done.embedded == 0
    assert not index.damage


@needs_weights
def test_the_large_encoder_understands_and_was_calibrated_with_these_weights() -> None:
    index = SearchIndex.open(None, encoder=Encoder(ITS_WEIGHTS))
    index.sync(tools())
    for request, wanted in {
        "do I need an umbrella on Saturday?": "weather.get_forecast",
        "the customer wants their money back": "shop.refund_payment",
    }.items():
        hit = index.search(request, limit=1)[0]
        assert (hit.tool_id, hit.fits) == (wanted, True)
    assert (ITS_WEIGHTS / "encoder.onnx").stat().st_size <= 60_000_000
