"""The bench of schemas runs without any data beside it and says what it measured."""

from benchmarks.schemas import one_level, run


def test_the_bench_runs_on_what_it_makes_itself() -> None:
    told = run(None)
    assert told["name"] == "schemas"
    assert set(told) == {"name", "metrics", "environment"}
    large = told["metrics"]["large"]
    assert large["summary_tokens"]["total"] < large["full_tokens"]["total"]
    assert large["leaves_in_summary_or_one_inspection"] >= large["leaves_in_summary"] > 0
    assert told["metrics"]["recorded"] is None


def test_one_level_shows_sixteen_names_and_no_more() -> None:
    schema = {"type": "object", "properties": {f"k{number}": {"type": "string"} for number in range(40)}}
    assert one_level(schema).count(": string") == 16
