"""The benches of search run on a small set of our own and report in the common form."""

import json
from pathlib import Path

import pytest
from search_catalogue import encoder, tools

from benchmarks import abstain, retrieval, search
from benchmarks.retrieval_sets import PeerBM25, ToolRow, auroc, measures, ndcg
from toolfold.errors import ConfigError

pytestmark = pytest.mark.load

ASKED = {
    "weather.get_forecast": "will it rain in Oslo tomorrow",
    "git.git_commit": "record my staged changes",
    "mail.send_email": "write to Anna by email",
    "shop.track_parcel": "where is my parcel",
}


def a_set(folder: Path) -> Path:
    folder.mkdir(parents=True)
    rows = [
        {
            "id": tool.tool_id,
            "name": tool.name,
            "description": tool.description,
            "parameters": {"type": "object", "properties": {name: {} for name, _ in tool.parameters}},
            "category": list(tool.category),
            "server": tool.server,
        }
        for tool in tools()
    ]
    queries = [
        {"qid": f"q{at}", "query": query, "relevant": [tool_id], "split": split}
        for split in ("test", "train")
        for at, (tool_id, query) in enumerate(ASKED.items())
    ]
    for name, lines in (("tools", rows), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return folder


def servers(folder: Path) -> Path:
    folder.mkdir()
    for name, what in (("postgres", "Run a statement on the server"), ("redis", "Read a key from the cache")):
        listed = [{"name": f"{name}_{at}", "description": f"{what}, kind {at}.", "inputSchema": {}} for at in range(4)]
        record = {"name": name, "initialize": {}, "tools": listed}
        (folder / f"{name}.json").write_text(json.dumps(record), encoding="utf-8")
    return folder


def test_retrieval_measures_three_ways_and_writes_what_was_found(tmp_path: Path) -> None:
    a_set(tmp_path / "sets" / "ours")
    ranked = tmp_path / "ranked.jsonl"
    found = retrieval.run(tmp_path / "sets", ranked=ranked, encoder=encoder())
    assert found["name"] == "retrieval"
    figures = found["metrics"]["sets"]["ours"]
    assert figures["queries"] == 4
    for way in ("toolfold", "words_alone", "fastmcp_formula"):
        assert set(figures[way]) == {"ndcg_at_10", "recall_at_1", "recall_at_5", "recall_at_10", "first_hit"}
    assert figures["toolfold"]["first_hit"] == 1.0
    lines = [json.loads(line) for line in ranked.read_text(encoding="utf-8").splitlines()]
    assert [line["qid"] for line in lines] == ["q0", "q1", "q2", "q3"]
    assert [line["ranked"][0] for line in lines] == list(ASKED)
    assert all(len(line["ranked"]) == len(line["confidence"]) == 20 for line in lines)


def test_retrieval_takes_a_set_itself_and_keeps_its_index(tmp_path: Path) -> None:
    folder = a_set(tmp_path / "ours")
    first = retrieval.run(folder, cache=tmp_path / "cache", encoder=encoder())
    again = retrieval.run(folder, cache=tmp_path / "cache", encoder=encoder())
    embedded = [run["metrics"]["sets"]["ours"]["embedded"] for run in (first, again)]
    assert embedded == [len(tools()), 0]
    assert first["metrics"]["mean"] == again["metrics"]["mean"]


def test_retrieval_measures_learning_from_use(tmp_path: Path) -> None:
    found = retrieval.run(a_set(tmp_path / "ours"), learned=4, encoder=encoder())
    assert found["metrics"]["sets"]["ours"]["learned_from"] == 4


def test_a_folder_without_a_set_is_told_what_one_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        retrieval.run(tmp_path, encoder=encoder())
    assert "tools.jsonl" in caught.value.next_action


@pytest.mark.requirement("D-14")
def test_abstention_is_measured_by_both_protocols(tmp_path: Path) -> None:
    a_set(tmp_path / "sets" / "ours")
    found = abstain.run(tmp_path / "sets", servers=servers(tmp_path / "servers"), encoder=encoder())
    mean = found["metrics"]["mean"]
    assert mean["a_auroc"] >= 0.7
    assert mean["b_refused_at_5_percent_false"] >= 0.5
    assert mean["b_refused_fastmcp_as_it_is"] <= 1
    assert found["metrics"]["reliability"]


def test_search_costs_are_measured_at_each_size(tmp_path: Path) -> None:
    found = search.run(servers(tmp_path / "servers"), sizes=(20, 60), encoder=encoder())
    assert found["metrics"]["20"]["tools"] == 20
    assert found["metrics"]["60"]["tools"] == 60
    assert "absent" in found["metrics"]["60"]["fastmcp"]
    assert found["metrics"]["embedding_cpu_s_per_10000"] > 0


def test_varied_tools_keep_distinct_ids() -> None:
    made = search.varied(tools(), 200, seed=1)
    assert len({tool.tool_id for tool in made}) == 200


def test_ndcg_of_known_rankings() -> None:
    assert ndcg(["a", "b"], ["a"]) == 1.0
    assert ndcg(["b", "a"], ["a"]) == pytest.approx(0.6309, abs=1e-4)
    assert ndcg(["b"], ["a"]) == 0.0
    assert ndcg(["a", "x", "b"], ["a", "b"]) == pytest.approx(0.9197, abs=1e-4)


def test_measures_of_known_rankings() -> None:
    found = measures([(["a", "b"], ["a", "b"]), (["x", "a"], ["a"])])
    assert found["recall_at_1"] == 0.25
    assert found["recall_at_5"] == 1.0
    assert found["first_hit"] == 0.5


def test_auroc_counts_ties_half() -> None:
    assert auroc([0.9, 0.8], [0.1, 0.2]) == 1.0
    assert auroc([0.5], [0.5]) == 0.5
    assert auroc([0.1], [0.5, 0.1]) == 0.25


def test_the_peer_formula_is_the_peers() -> None:
    """Two tools, by hand: idf of a word that one of two holds is ln 2."""
    rows = [ToolRow("a", "alpha beta"), ToolRow("b", "gamma beta")]
    peer = PeerBM25(rows)
    assert peer.ranked("alpha", 5) == ["a"]
    assert float(peer.scores("alpha")[0]) == pytest.approx(0.6931, abs=1e-3)
    assert float(peer.scores("alpha alpha")[0]) == pytest.approx(2 * 0.6931, abs=1e-3)
