"""The aims of docs/architecture.md are met. Coverage is not among them here: `.ci/run` gates it over the whole run."""

from functools import cache

import pytest
from measure import BEGIN, END, PAGE, Measure, collect

NAMES = ("lines", "code", "names", "comments", "small", "gerunds", "gateway", "complex", "worst", "crossings", "shapes")

# Aims that the source does not reach yet, with what holds meanwhile: these figures may only shrink.
# docs/architecture.md says why.
HOLDS = {"lines": 92_448, "code": 66_990, "names": 1_118}


@cache
def measures() -> dict[str, Measure]:
    return {row.name: row for row in collect(skip=["coverage"])}


@pytest.mark.parametrize("name", NAMES)
def test_the_aim_is_met(name: str) -> None:
    row = measures()[name]
    met = row.met if name not in HOLDS else row.value is not None and row.value <= HOLDS[name]
    assert met, f"{row.title}: {row.shown}, the aim is {row.aim}\n" + "\n".join(row.behind)


def test_an_aim_that_is_reached_leaves_the_list() -> None:
    assert not [name for name in HOLDS if measures()[name].met]


def test_every_measure_is_tested() -> None:
    assert set(measures()) == set(NAMES)


def test_the_page_has_a_place_for_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page.index(BEGIN) < page.index(END)
