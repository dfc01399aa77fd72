"""Summaries, line by line: formats, order, budget, and that what is hidden is marked."""

import re
from typing import Any

import pytest

from toolfold.disclosure import fold
from toolfold.disclosure.fold import NOT_DECLARED, flatten_schema_fields, summarize_schema_for_llm

STRING = {"type": "string"}


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def an_array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def many(count: int) -> dict[str, Any]:
    return {f"key{number}": STRING for number in range(count)}


@pytest.mark.requirement("S-02")
def test_the_constants_are_those_of_the_contract() -> None:
    assert fold.MAX_SUMMARY_FIELDS == 30
    assert fold.DEFAULT_SUMMARY_MAX_DEPTH == 3
    assert fold.DEFAULT_INSPECT_MAX_FIELDS == 120
    assert fold.DEFAULT_INSPECT_MAX_DEPTH == 4


@pytest.mark.requirement("S-02")
@pytest.mark.parametrize(
    "path", ["id", "order_id", "a.id", "a[].name", "a.b[].status", "x.created", "url", "email", "a.price", "timestamp"]
)
def test_the_tier_1_pattern_finds_identifiers_at_any_depth(path: str) -> None:
    assert re.search(fold.TIER_1_REGEX, path)


@pytest.mark.requirement("S-02")
@pytest.mark.parametrize("path", ["idea", "names", "a.subtitle", "statuses", "createdAt", "surname"])
def test_the_tier_1_pattern_does_not_find_its_words_inside_others(path: str) -> None:
    assert not re.search(fold.TIER_1_REGEX, path)


@pytest.mark.requirement("S-03")
def test_plain_values_and_arrays_of_them_are_key_and_type() -> None:
    schema = an_object(status=STRING, total={"type": "number"}, tags=an_array(STRING), open={"type": "boolean"})
    expected = ["status: string", "total: number", "tags[]: string", "open: boolean"]
    assert summarize_schema_for_llm(schema) == (expected, False)


@pytest.mark.requirement("S-03")
def test_containers_that_do_not_fit_are_fold_markers_with_the_count_of_their_children() -> None:
    schema = an_object(
        variants=an_array(an_object(**many(31))),
        body=an_object(**many(40)),
        grid=an_array(an_array(an_object(**many(35)))),
    )
    lines, hidden = summarize_schema_for_llm(schema, max_fields=3)
    assert lines == [
        'variants[]: object (contains 31 sub-fields; inspect_tool_output(..., field_path="variants[]"))',
        'body: object (contains 40 sub-fields; inspect_tool_output(..., field_path="body"))',
        'grid[][]: object (contains 35 sub-fields; inspect_tool_output(..., field_path="grid[][]"))',
    ]
    assert hidden


@pytest.mark.requirement("S-03")
def test_the_tools_id_can_stand_in_the_hint() -> None:
    schema = an_object(variants=an_array(an_object(**many(15))))
    lines, _ = summarize_schema_for_llm(schema, max_fields=1, tool_id="shopify.get_order")
    expected = 'inspect_tool_output(tool_id="shopify.get_order", field_path="variants[]")'
    assert lines == [f"variants[]: object (contains 15 sub-fields; {expected})"]


@pytest.mark.requirement("S-03")
@pytest.mark.parametrize(
    "extra", [{}, {"additionalProperties": True}, {"additionalProperties": {}}, {"properties": {}}]
)
def test_an_object_that_declares_nothing_has_unknown_keys(extra: dict[str, Any]) -> None:
    lines, hidden = summarize_schema_for_llm(an_object(metadata={"type": "object", **extra}))
    assert lines == ['metadata: object (unknown keys; inspect_tool_output(..., field_path="metadata"))']
    assert hidden


@pytest.mark.requirement("S-03", "S-05")
def test_fields_that_find_no_room_are_counted_in_an_overflow_line() -> None:
    schema = an_object(ok={"type": "boolean"}, body=an_object(**many(20)))
    lines, hidden = summarize_schema_for_llm(schema, max_fields=11)
    assert lines[:2] == ["ok: boolean", "body: object"]
    assert lines[2:10] == [f"body.key{number}: string" for number in range(8)]
    assert lines[10] == 'body.* (+12 more fields; inspect_tool_output(..., field_path="body"))'
    assert hidden


@pytest.mark.requirement("S-04")
def test_structure_comes_first_then_tier_1_from_any_depth_then_the_rest() -> None:
    address = an_object(city=STRING, country=an_object(code=STRING, id=STRING))
    schema = an_object(customer=an_object(phone=STRING, address=address), note=STRING, id=STRING)
    lines, hidden = summarize_schema_for_llm(schema, max_depth=4)
    assert lines == [
        "customer: object",
        "note: string",
        "id: string",
        "customer.address.country.id: string",
        "customer.phone: string",
        "customer.address.city: string",
        "customer.address.country.code: string",
    ]
    assert not hidden


@pytest.mark.requirement("S-04", "S-05")
def test_more_root_keys_than_lines_keeps_tier_1_and_counts_the_rest() -> None:
    schema = an_object(**many(38), status=STRING, order_id=STRING, customer=an_object(email=STRING, **many(5)))
    lines, hidden = summarize_schema_for_llm(schema)
    assert hidden
    assert len(lines) == 30
    assert {"status: string", "order_id: string", "customer.email: string"} <= set(lines)
    shown = [line for line in lines if re.match(r"\w+: ", line)]
    assert lines[-1] == f'* (+{41 - len(shown)} more fields; inspect_tool_output(..., field_path=""))'
    assert any(line.startswith("customer: object (contains 6 sub-fields;") for line in lines)


@pytest.mark.requirement("S-05")
def test_fields_below_the_depth_limit_are_hidden_and_marked() -> None:
    schema = an_object(a=an_object(b=an_object(c=an_object(deep=STRING))))
    lines, hidden = summarize_schema_for_llm(schema)
    assert hidden
    assert any('field_path="a.b.c"' in line for line in lines)
    assert not any("deep" in line for line in lines)


@pytest.mark.requirement("S-05")
def test_nothing_is_hidden_exactly_at_the_budget_and_something_is_one_over_it() -> None:
    assert summarize_schema_for_llm(an_object(**many(30))) == ([f"key{n}: string" for n in range(30)], False)
    lines, hidden = summarize_schema_for_llm(an_object(**many(31)))
    assert (len(lines), hidden) == (30, True)
    assert summarize_schema_for_llm(an_object(box=an_object(**many(29))))[1] is False
    assert summarize_schema_for_llm(an_object(box=an_object(**many(30))))[1] is True


@pytest.mark.requirement("S-05")
def test_a_budget_of_nothing_hides_everything_and_says_so() -> None:
    assert summarize_schema_for_llm(an_object(**many(3)), max_fields=0) == ([], True)
    lines, hidden = summarize_schema_for_llm(an_object(**many(3)), max_fields=1)
    assert (lines, hidden) == (['* (+3 more fields; inspect_tool_output(..., field_path=""))'], True)


@pytest.mark.requirement("S-06")
def test_the_envelopes_data_is_the_root() -> None:
    envelope = an_object(data=an_object(id=STRING), error=STRING, successful={"type": "boolean"})
    assert summarize_schema_for_llm(envelope) == (["id: string"], False)
    assert summarize_schema_for_llm({"properties": {"data": an_object(id=STRING)}}) == (["id: string"], False)
    listed = an_object(data=an_array(an_object(id=STRING)), error=STRING)
    assert summarize_schema_for_llm(listed) == (["[].id: string"], False)


@pytest.mark.requirement("S-06")
def test_a_data_further_down_keeps_its_siblings() -> None:
    inner = an_object(data=an_object(id=STRING), cursor=STRING)
    lines, _ = summarize_schema_for_llm(an_object(data=inner, error=STRING))
    assert lines == ["data: object", "cursor: string", "data.id: string"]
    lines, _ = summarize_schema_for_llm(an_object(page=inner))
    assert lines == ["page: object", "page.data.id: string", "page.cursor: string"]


@pytest.mark.requirement("S-06")
def test_a_page_with_a_cursor_beside_its_data_is_no_envelope() -> None:
    page = an_object(data=an_array(an_object(id=STRING)), has_more={"type": "boolean"})
    assert summarize_schema_for_llm(page)[0] == ["data[]: object", "has_more: boolean", "data[].id: string"]


@pytest.mark.requirement("S-04")
@pytest.mark.parametrize("key", ["orderId", "createdAt", "updated_at", "userID", "closed_at"])
def test_camel_case_ids_and_times_count_as_tier_1(key: str) -> None:
    schema = an_object(box=an_object(**many(40), **{key: STRING}))
    assert f"box.{key}: string" in summarize_schema_for_llm(schema, max_fields=2)[0]


@pytest.mark.requirement("S-04")
def test_a_container_with_a_tier_1_name_is_no_tier_1_leaf() -> None:
    schema = an_object(box=an_object(status=an_object(**many(40)), **many(5)))
    lines, _ = summarize_schema_for_llm(schema, max_fields=2)
    assert lines == ['box: object (contains 6 sub-fields; inspect_tool_output(..., field_path="box"))']


@pytest.mark.requirement("S-03")
def test_a_root_that_is_an_array_or_a_plain_value_has_lines_too() -> None:
    rows = an_array(an_object(sha=STRING, author=an_object(**many(40))))
    assert summarize_schema_for_llm(rows, max_fields=2)[0] == [
        "[].sha: string",
        '[].author: object (contains 40 sub-fields; inspect_tool_output(..., field_path="[].author"))',
    ]
    assert summarize_schema_for_llm(an_array(STRING)) == (["[]: string"], False)
    assert summarize_schema_for_llm({"type": "integer"}) == (["(root): integer"], False)
    lines, hidden = summarize_schema_for_llm({"type": "object"})
    assert lines == ['(root): object (unknown keys; inspect_tool_output(..., field_path=""))']
    assert hidden


@pytest.mark.parametrize("schema", [{}, True, None, [], "no schema", 7])
def test_what_says_nothing_is_not_declared_and_hides_nothing(schema: Any) -> None:
    assert summarize_schema_for_llm(schema) == ([NOT_DECLARED], False)
    assert flatten_schema_fields(schema) == []


@pytest.mark.requirement("S-12")
def test_the_flat_form_lists_the_first_fields_in_order() -> None:
    address = an_object(city=an_object(name=STRING, code=STRING))
    schema = an_object(
        id=STRING, customer=an_object(email=STRING, address=address), rows=an_array(an_object(sku=STRING))
    )
    assert flatten_schema_fields(schema) == [
        "id: string",
        "customer.email: string",
        "customer.address.city: object",
        "rows[].sku: string",
    ]
    assert flatten_schema_fields(schema, max_fields=2) == ["id: string", "customer.email: string"]
    assert flatten_schema_fields(schema, max_depth=1) == ["id: string", "customer: object", "rows[]: object"]
    assert flatten_schema_fields({"properties": {"data": schema}}) == flatten_schema_fields(schema)
