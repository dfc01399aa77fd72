"""The bench of the ontology: its figures are right on cases small enough to work out by hand."""

import pytest
from msgspec import Raw

from benchmarks.agreement import agreement
from benchmarks.ontology import run
from benchmarks.tree_walk import Listings, walk
from toolfold.types import Node, Tool, ToolDefinition


def tool(name: str) -> Tool:
    definition = ToolDefinition(name=name, raw=Raw(b"{}"))
    return Tool(tool_id=name, server="s", definition=definition, fingerprint="", summary=name)


def test_agreement_is_one_for_the_same_groups_and_none_by_chance() -> None:
    same = agreement(["a", "a", "b", "b"], ["x", "x", "y", "y"])
    assert (same["purity"], same["v_measure"], same["adjusted_mutual_information"]) == (1.0, 1.0, 1.0)
    mixed = agreement(["a", "b", "a", "b"] * 5, ["x", "x", "y", "y"] * 5)
    assert mixed["v_measure"] == pytest.approx(0.0, abs=1e-9)
    assert mixed["adjusted_mutual_information"] < 0.01


def test_the_walker_pays_a_call_a_page_and_takes_the_cheapest_place() -> None:
    pytest.importorskip("rs_bpe", reason="exact token counts need the token tables")
    tools = [tool(f"t{number:02}") for number in range(12)]
    nodes = (
        Node(path=("A",), summary="All", tools=12, own_tools=12),
        Node(path=("B",), summary="One", tools=1, own_tools=1),
    )
    placements = {one.tool_id: [("A",)] for one in tools}
    placements["t11"] = [("A",), ("B",)]
    listings = Listings(tools, nodes, placements)
    reached = walk(listings, limit=10)
    assert [reached[name].calls for name in ("t00", "t09", "t10", "t11")] == [2, 2, 3, 2]
    assert reached["t11"].tokens < reached["t00"].tokens < reached["t10"].tokens


def test_without_data_the_bench_says_that_its_set_is_made() -> None:
    pytest.importorskip("rs_bpe", reason="exact token counts need the token tables")
    result = run(None, seeds=1)
    assert result["name"] == "ontology"
    assert "no data folder" in result["environment"]["data"]
    figures = result["metrics"]["made"]
    assert figures["shape"]["most_children"] <= 50
    assert figures["walk"]["limit_50"]["share_within_4_calls"] == 1.0
    assert figures["walk"]["limit_50"]["tokens_median"] < figures["baselines"]["definitions_dumped_tokens"]
