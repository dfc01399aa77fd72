"""The vault of these tests has a key of its own and never asks this machine's keyring, and nothing goes to a proxy."""

from pathlib import Path

import pytest

from toolfold.auth.vault import KEY_VARIABLE, Vault


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "a key for tests only")
    for name in ("http_proxy", "https_proxy", "all_proxy"):  # what is refused here must not go to a proxy instead
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(tmp_path / "home")
