"""Compact descriptors, the inspector's own among them, and the text that teaches planners to read them."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from toolfold.disclosure.descriptor import describe
from toolfold.disclosure.fold import NOT_DECLARED
from toolfold.disclosure.inspector import inspect_schema
from toolfold.disclosure.inspector_tool import (
    _inspector_definition,
    _inspector_descriptor,
    folding_block,
    inspector_tool,
)
from toolfold.disclosure.observed import _find_contradictions, observe
from toolfold.types import Tool, ToolDefinition

STRING = {"type": "string"}


def a_tool(name: str, inputs: Any, outputs: Any = None, description: str = "Does it.") -> Tool:
    definition = ToolDefinition(
        name=name,
        raw=Raw(b"{}"),
        description=description,
        input_schema=Raw(json.dumps(inputs).encode()),
        output_schema=None if outputs is None else Raw(json.dumps(outputs).encode()),
    )
    return Tool(tool_id=f"shop.{name}", server="shop", definition=definition, fingerprint="")


@pytest.mark.requirement("S-01")
def test_a_descriptor_has_the_fields_of_the_contract() -> None:
    inputs = {
        "type": "object",
        "properties": {
            "expand": {"type": "array", "items": STRING},
            "order_id": STRING,
            "status": {"type": "string", "enum": ["open", "closed"], "default": "open"},
            "limit": {"type": "integer", "default": 10},
        },
        "required": ["order_id"],
    }
    outputs = {"type": "object", "properties": {"id": STRING, "meta": {"type": "object"}}}
    tool = a_tool("get_order", inputs, outputs, "Gets an order.\n\nLong story.")
    assert describe(tool) == {
        "tool_id": "shop.get_order",
        "server": "shop",
        "signature": ("get_order(order_id: string, expand?: string[], status?: string, limit?: integer) -> object"),
        "description": "Gets an order.",
        "input_params": [
            "expand[]: string",
            "order_id: string (required)",
            'status: "open"|"closed" = "open"',
            "limit: integer = 10",
        ],
        "output_fields": [
            "id: string",
            'meta: object (unknown keys; inspect_tool_output(tool_id="shop.get_order", field_path="meta"))',
        ],
        "has_hidden_fields": True,
    }


@pytest.mark.requirement("S-01")
def test_large_inputs_are_folded_and_required_ones_survive() -> None:
    wide = {f"option{number}": STRING for number in range(60)}
    inputs = {"type": "object", "properties": {**wide, "account": STRING}, "required": ["account"]}
    descriptor = describe(a_tool("update", inputs))
    assert len(descriptor["input_params"]) == 30
    assert "account: string (required)" in descriptor["input_params"]
    assert descriptor["input_params"][-1] == '* (+32 more fields; expand_tool(tool_id="shop.update"))'
    assert descriptor["signature"].startswith("update(account: string, option0?: string, ")
    assert descriptor["signature"].endswith(", +53 more) -> any")


@pytest.mark.requirement("S-01")
@pytest.mark.parametrize("inputs", [{}, {"type": "object"}, {"type": "object", "properties": {}}, True, "text", None])
def test_a_tool_that_takes_nothing_or_nonsense_has_no_parameters(inputs: Any) -> None:
    descriptor = describe(a_tool("ping", inputs))
    assert descriptor["signature"] == "ping() -> any"
    assert descriptor["input_params"] == []
    assert (descriptor["output_fields"], descriptor["has_hidden_fields"]) == ([NOT_DECLARED], False)


@pytest.mark.requirement("S-01")
def test_a_schema_that_is_no_json_counts_as_not_declared() -> None:
    definition = ToolDefinition(name="odd", raw=Raw(b"{}"), input_schema=Raw(b"{"), output_schema=Raw(b"nonsense"))
    tool = Tool(tool_id="shop.odd", server="shop", definition=definition, fingerprint="")
    assert describe(tool)["signature"] == "odd() -> any"


@pytest.mark.requirement("S-01")
def test_a_tool_that_declares_nothing_shows_what_was_observed_and_how_often() -> None:
    seen = observe({"rows": [{"id": 1, "label": "x"}]})
    told = describe(a_tool("rows", {}), seen)
    assert told["output_fields"] == ["rows[]: object", "rows[].id: integer", "rows[].label: string"]
    assert told["observed_calls"] == 1
    assert told["signature"] == "rows() -> object"
    declared = describe(a_tool("rows", {}, {"type": "object", "properties": {"rows": STRING}}), seen)
    assert declared["output_fields"] == ["rows: string"]
    assert "observed_calls" not in declared


@pytest.mark.requirement("S-01")
def test_descriptors_of_all_recorded_tools_are_small(shared_data: Path) -> None:
    full = small = 0
    for file in sorted((shared_data / "servers").glob("*.json")):
        for entry in json.loads(file.read_text(encoding="utf-8"))["tools"] or ():
            told = describe(
                a_tool(
                    entry["name"], entry.get("inputSchema"), entry.get("outputSchema"), entry.get("description") or ""
                )
            )
            assert len(told["input_params"]) <= 30
            assert len(told["output_fields"]) <= 30
            full += len(json.dumps(entry))
            small += len(json.dumps(told))
    assert small < full / 2


def test_the_inspector_describes_itself_and_answers_within_its_own_schema() -> None:
    descriptor = _inspector_descriptor()
    assert (descriptor["tool_id"], descriptor["server"]) == ("toolbox.inspect_tool_output", "toolbox")
    assert descriptor["signature"] == (
        "inspect_tool_output(tool_id: string, field_path?: string?, max_depth?: integer, max_fields?: integer)"
        " -> object"
    )
    assert not descriptor["has_hidden_fields"]
    assert inspector_tool().definition.annotations.read_only
    declared = _inspector_definition()["outputSchema"]
    for path in ("", "children[]", "alternatives[]", "note"):
        answer = {"tool_id": "toolbox.inspect_tool_output", **inspect_schema(declared, path)}
        assert _find_contradictions(observe(answer), declared) == []


@pytest.mark.requirement("S-11")
def test_the_directive_block_is_kept_to_the_letter() -> None:
    block = folding_block("shop.get_order", "variants[]")
    assert block.rpartition("\n\n")[2].splitlines() == [
        "**Handling Large Outputs:**",
        "Some tools have large output schemas that are summarized.",
        "* If you see a field marked like `variants[]: object (contains 15 sub-fields; inspect...)`, "
        "it means the details are hidden.",
        "* **Rule:** If you need to access a hidden field to write your plan (e.g., checking a specific variant "
        "attribute), you MUST first call `toolbox.inspect_tool_output(tool_id, field_path)` to see the structure. "
        "Do not guess paths.",
    ]
    for word in ("has_hidden_fields", "unknown keys", "toolbox.inspect_tool_output", "more fields"):
        assert word in block
    assert '"args": {"tool_id": "shop.get_order", "field_path": "variants[]"}' in block
