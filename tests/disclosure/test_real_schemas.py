"""Real schemas, all of them: the rules hold, every branch opens, and the suite's schemas are harmless."""

import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from schema_marks import check_listing, mark_of
from schema_oracle import leaves

from toolfold.disclosure.fold import MAX_SCANNED, flatten_schema_fields, root_of, summarize_schema_for_llm
from toolfold.disclosure.inspector import inspect_schema
from toolfold.schema_walk import Document, Node

pytestmark = pytest.mark.load

DEPTH = 4
"""Leaves with up to this many keys in their path are reached in the walk over every schema."""


def real_schemas(shared_data: Path) -> Iterator[tuple[str, Any]]:
    for file in sorted((shared_data / "schemas").glob("*.json")):
        yield file.stem, json.loads(file.read_text(encoding="utf-8"))


def output_schemas(shared_data: Path) -> Iterator[tuple[str, Any]]:
    for file in sorted((shared_data / "servers").glob("*.json")):
        for tool in json.loads(file.read_text(encoding="utf-8"))["tools"] or ():
            if tool.get("outputSchema") is not None:
                yield f"{file.stem}.{tool['name']}", tool["outputSchema"]


def walked(schema: Any, depth: int) -> set[str]:
    """Every leaf that inspector calls alone lead to: plain lines are leaves, marked lines are asked for in turn.

    A union that may be an array has its items below it without a key more, so it is asked for at the last depth, too.
    """
    found: set[str] = set()
    asked = {""}
    queue = deque([""])
    while queue:
        path = queue.popleft()
        answer = inspect_schema(schema, path, max_depth=1, max_fields=1_000)
        assert len(answer["flattened_fields"]) >= answer["total_child_fields"]
        for line in answer["flattened_fields"]:
            mark = mark_of(line)
            if mark is None:
                found.add(below(path, line.rpartition(": ")[0]))
            elif mark.path not in asked and keys_in(mark.path) < depth + (": union<" in line):
                asked.add(mark.path)
                queue.append(mark.path)
            if mark is not None and mark.kind == "open":
                found.add(mark.path)
    return found


def below(path: str, line: str) -> str:
    return path + line if not path or line.startswith("[") else f"{path}.{line}"


def keys_in(path: str) -> int:
    """How many keys a path has. Good enough here: quoted keys count their dots, too, and only end a walk early."""
    return len([part for part in path.replace("[]", "").replace("[", ".").split(".") if part]) if path else 0


def nodes_below(node: Node, limit: int) -> int:
    """Opens up to `limit` nodes, to see that nothing raises."""
    queue, opened = deque([node]), 0
    while queue and opened < limit:
        node = queue.popleft()
        opened += 1
        assert node.label
        queue.extend(child for step in node.steps if (child := node.child(step)) is not None)
    return opened


@pytest.mark.requirement("S-02", "S-03", "S-05")
def test_summaries_of_real_schemas_are_bounded_and_their_marks_are_true(shared_data: Path) -> None:
    seen = 0
    for _, schema in (*real_schemas(shared_data), *output_schemas(shared_data)):
        lines, hidden = summarize_schema_for_llm(schema)
        check_listing(schema, lines, hidden, 30)
        assert len(flatten_schema_fields(schema)) <= 30
        seen += 1
    assert seen > 1_000


@pytest.mark.requirement("S-04")
def test_every_root_key_of_a_real_schema_is_listed_or_counted(shared_data: Path) -> None:
    for name, schema in (*real_schemas(shared_data), *output_schemas(shared_data)):
        total = inspect_schema(schema)["total_child_fields"]
        lines, _ = summarize_schema_for_llm(schema)
        if not total:
            continue
        last = mark_of(lines[-1])
        more = last.number if last is not None and last.kind == "overflow" and last.path in {"", "[]"} else 0
        starts = (line.partition(": ")[0].replace("[]", "") for line in lines[: -1 if more else None])
        shown = {start for start in starts if keys_in(start) == 1 and start != "(root)"}
        assert len(shown) + more == total, name


@pytest.mark.requirement("S-05")
def test_where_nothing_is_hidden_every_leaf_of_a_real_schema_is_listed(shared_data: Path) -> None:
    complete = 0
    for name, schema in (*real_schemas(shared_data), *output_schemas(shared_data)):
        lines, hidden = summarize_schema_for_llm(schema)
        if not hidden:
            listed = {line.rpartition(": ")[0] for line in lines}
            assert leaves(schema, 8) <= listed, name
            complete += 1
    assert complete > 400


@pytest.mark.requirement("S-07", "S-08")
@pytest.mark.timeout(600)
def test_inspector_calls_alone_reach_every_leaf_of_every_real_schema(shared_data: Path) -> None:
    total = 0
    for name, schema in real_schemas(shared_data):
        expected = leaves(schema, DEPTH)
        missing = expected - walked(schema, DEPTH)
        assert not missing, (name, sorted(missing)[:10])
        total += len(expected)
    assert total > 5_000


@pytest.mark.requirement("S-07", "S-08")
@pytest.mark.timeout(600)
def test_inspector_calls_alone_reach_every_leaf_of_every_recorded_output_schema(shared_data: Path) -> None:
    for name, schema in output_schemas(shared_data):
        missing = leaves(schema, DEPTH) - walked(schema, DEPTH)
        assert not missing, (name, sorted(missing)[:10])


@pytest.mark.requirement("S-09")
def test_the_work_on_a_real_schema_does_not_grow_with_its_definitions(shared_data: Path) -> None:
    for name, schema in real_schemas(shared_data):
        node = root_of(schema).node
        summarize_schema_for_llm(schema)
        nodes_below(node, 50)
        assert node.document.visits <= 4 * MAX_SCANNED, name


@pytest.mark.requirement("S-09")
def test_the_schemas_of_the_official_suite_do_no_harm(shared_data: Path) -> None:
    seen = 0
    for file in sorted((shared_data / "suites" / "json-schema-test-suite" / "tests").rglob("*.json")):
        for case in json.loads(file.read_text(encoding="utf-8")):
            schema = case["schema"]
            for budget in (1, 30, 1_000):
                lines, hidden = summarize_schema_for_llm(schema, max_fields=budget, max_depth=6)
                check_listing(schema, lines, hidden, budget)
            nodes_below(Document(schema).root, 200)
            inspect_schema(schema)
            seen += 1
    assert seen > 300
