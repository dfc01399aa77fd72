"""The examples in the page on schemas are what the program does."""

import doctest
from pathlib import Path


def test_the_examples_in_the_page_run() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "schemas.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert tried >= 10
    assert not failed
