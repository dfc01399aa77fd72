"""What the tests of signing in share."""

import pytest


@pytest.fixture
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused here must not go to a proxy of this machine instead."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
