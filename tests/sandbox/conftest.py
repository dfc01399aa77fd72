"""One laboratory for all attacks, with its canaries, closed at the end."""

import sys
from collections.abc import Iterator

import pytest
from sandbox_lab import Canaries, Lab

if sys.platform != "linux":
    collect_ignore_glob = ["test_*"]


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    canaries = Canaries(tmp_path_factory.mktemp("host"))
    laboratory = Lab(canaries)
    yield laboratory
    laboratory.close()
    canaries.close()
