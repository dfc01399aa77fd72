"""What of a tool is searchable."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from toolfold.search.document import MAX_PARAMETERS, Document, _parameters_of, document_of, tool_text, weighted_terms
from toolfold.types import Tool, ToolDefinition
from toolfold.words import _stem

SCHEMA = {
    "type": "object",
    "properties": {
        "repo": {"type": "string", "description": "Name of the repository"},
        "filter": {"type": "object", "properties": {"author": {"type": "string", "description": "Who wrote it"}}},
        "labels": {"type": "array", "items": {"type": "object", "properties": {"colour": {}}}},
    },
}


def test_parameters_are_found_at_every_level() -> None:
    assert _parameters_of(SCHEMA) == (
        ("repo", "Name of the repository"),
        ("filter", ""),
        ("labels", ""),
        ("author", "Who wrote it"),
        ("colour", ""),
    )


def test_a_plain_list_of_parameters_is_read_too() -> None:
    assert _parameters_of([{"name": "city", "description": "Where"}, {"type": "x"}, "odd"]) == (("city", "Where"),)


def test_parameters_are_bounded_and_a_deep_schema_ends() -> None:
    schema: dict[str, object] = {}
    for _ in range(200):
        schema = {"properties": {"again": schema, "more": {}}}
    assert len(_parameters_of(schema)) <= MAX_PARAMETERS
    assert len(_parameters_of({"properties": {f"p{at}": {} for at in range(500)}})) == MAX_PARAMETERS


@given(st.recursive(st.none() | st.booleans() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_any_json_can_stand_as_a_schema(schema: object) -> None:
    _parameters_of(schema)


def test_a_catalogue_entry_becomes_a_document() -> None:
    definition = ToolDefinition(
        name="list_issues",
        title="Issues",
        description="All issues.",
        raw=msgspec.Raw(b"{}"),
        input_schema=msgspec.Raw(msgspec.json.encode(SCHEMA)),
    )
    tool = Tool(
        tool_id="hub.list_issues", server="hub", definition=definition, fingerprint="f", paths=(("Code", "Issues"),)
    )
    found = document_of(tool)
    assert found.description == "Issues. All issues."
    assert found.category == ("Code", "Issues")
    assert found.parameters[0] == ("repo", "Name of the repository")


def test_a_name_counts_more_than_a_description_and_that_more_than_a_parameter() -> None:
    tool = Document(tool_id="x", name="alpha", description="beta", parameters=(("gamma", "delta"),), server="epsilon")
    counts = weighted_terms(tool)
    assert counts[_stem("alpha")] > counts[_stem("beta")] > counts[_stem("gamma")] == counts[_stem("delta")]
    assert counts[_stem("epsilon")] > 0


def test_the_encoder_reads_name_description_and_parameter_names() -> None:
    tool = Document(tool_id="x", name="getOrderById", description="One order.", parameters=(("orderId", "Its key"),))
    assert tool_text(tool) == "get order by id: One order. order id"
