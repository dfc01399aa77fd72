"""Fixtures that every test may use: the folder of real material, and nothing that is not needed everywhere."""

from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real servers, schemas, results and retrieval sets, where they lie beside the checkout."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the folder of recorded real material is not beside this checkout")
    return SHARED_DATA
