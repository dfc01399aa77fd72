"""The weights that ship are the ones their record names, and give the same vectors each time."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from search_catalogue import encoder

from toolfold.errors import ConfigError
from toolfold.search.array_file import Floats
from toolfold.search.encoder import WEIGHTS, Encoder, _check_weights, _read_record

MAX_BYTES = 30_000_000


def test_the_shipped_weights_are_those_of_the_record_and_small_enough() -> None:
    record = _read_record(WEIGHTS)
    _check_weights(WEIGHTS, record)
    assert sum(file.stat().st_size for file in WEIGHTS.iterdir()) <= MAX_BYTES


def test_changed_weights_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "weights"
    shutil.copytree(WEIGHTS, folder)
    (folder / "vocab.txt").write_text("[UNK]\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"vocab\.txt"):
        Encoder(folder).load()


def test_missing_weights_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        Encoder(tmp_path)
    assert "install" in caught.value.next_action


def test_vectors_are_unit_and_do_not_depend_on_their_neighbours() -> None:
    texts = ["weather", "send an email to the whole team about the meeting tomorrow", ""]
    together = encoder().queries(texts)
    assert np.allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-3)
    for row, text in enumerate(texts):
        assert np.array_equal(encoder().queries([text])[0], together[row])


def test_like_texts_lie_nearer_than_unlike_ones() -> None:
    rain, weather, invoice = encoder().queries(["will it rain tomorrow", "weather forecast", "pay an invoice"])
    assert float(rain @ weather) > float(rain @ invoice) + 0.1


def test_the_runtime_reports_to_nobody_and_leaves_no_file_behind(tmp_path: Path) -> None:
    """onnxruntime keeps an identifier in the temporary folder when it reports on its use."""
    code = "from toolfold.search.encoder import Encoder\nEncoder().load()"
    environment = {name: value for name, value in os.environ.items() if "TELEMETRY" not in name and name != "CI"}
    subprocess.run([sys.executable, "-c", code], env={**environment, "TMPDIR": str(tmp_path)}, check=True, timeout=60)
    assert list(tmp_path.iterdir()) == []


def test_a_request_is_embedded_once_while_it_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Encoder(WEIGHTS)
    embedded: list[Sequence[str]] = []
    whole = own._encode

    def encode(texts: Sequence[str], limits: Sequence[int]) -> Floats:
        embedded.append(texts)
        return whole(texts, limits)

    monkeypatch.setattr(own, "_encode", encode)
    first = own.queries(["weather in Rome", "weather"])
    assert own.queries(("weather in Rome", "weather")) is first
    assert embedded == [("weather in Rome", "weather")]
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 0
    for number in range(100):
        own.queries([f"request {number}"])
    assert len(own._asked) < 100
    assert np.array_equal(own.queries(["weather in Rome", "weather"]), first)
