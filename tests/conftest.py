"""Fixtures that every test may use: the folder of real material, and nothing that is not needed everywhere."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Machines differ in speed, so no example is timed. Where a change is checked, the same examples are tried each time;
# elsewhere new ones are.
settings.register_profile("anywhere", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "anywhere")

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real servers, schemas, results and retrieval sets, where they lie beside the checkout."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the folder of recorded real material is not beside this checkout")
    return SHARED_DATA
