"""The vault of these tests has a key of its own, and never asks this machine's keyring."""

from pathlib import Path

import pytest

from toolfold.auth.vault import KEY_VARIABLE, Vault


@pytest.fixture(autouse=True)
def _vault_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "a key for tests only")


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(tmp_path / "home")
