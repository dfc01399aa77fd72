"""The inspector: its answers, its paths, its limits, and what it says to a wrong path."""

import re
from typing import Any

import pytest

from toolfold.disclosure.fold import summarize_schema_for_llm
from toolfold.disclosure.inspector import MAX_INSPECT_FIELDS, inspect_schema
from toolfold.errors import UnknownField

STRING = {"type": "string"}
MARKED = re.compile(r'inspect_tool_output\(\.\.\., field_path="([^"]*)"\)')


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def an_array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


ORDER = an_object(
    id=STRING,
    variants=an_array(an_object(sku=STRING, price=STRING, item=an_object(id=STRING, place=an_object(shelf=STRING)))),
    grid=an_array(an_array(an_object(x={"type": "number"}))),
    pair={"type": "array", "prefixItems": [STRING, an_object(y=STRING)]},
    labels={"type": "object", "additionalProperties": an_object(color=STRING)},
    owner={"oneOf": [{"$ref": "#/$defs/User"}, {"$ref": "#/$defs/Team"}, STRING]},
)
ORDER["$defs"] = {"User": an_object(login=STRING), "Team": an_object(slug=STRING, size={"type": "integer"})}
ORDER["properties"] |= {"a.b": an_object(c=STRING), 'it\'s [1] "x"\n\\': an_object(d=STRING), "*": STRING, "": STRING}


@pytest.mark.requirement("S-07")
def test_the_answer_has_the_fields_of_the_contract() -> None:
    assert inspect_schema(ORDER, "variants[]") == {
        "field_path": "variants[]",
        "node_type": "object",
        "children": [
            {"name": "sku", "type": "string"},
            {"name": "price", "type": "string"},
            {"name": "item", "type": "object"},
        ],
        "flattened_fields": [
            "sku: string",
            "price: string",
            "item: object",
            "item.id: string",
            "item.place.shelf: string",
        ],
        "total_child_fields": 3,
        "truncated": False,
    }


@pytest.mark.requirement("S-07")
def test_lines_are_written_from_the_place_and_hints_from_the_root() -> None:
    answer = inspect_schema(ORDER, "variants[]", max_depth=2)
    assert answer["truncated"]
    assert answer["flattened_fields"][-1] == (
        'item.place: object (contains 1 sub-fields; inspect_tool_output(..., field_path="variants[].item.place"))'
    )


@pytest.mark.requirement("S-07")
def test_an_array_answers_with_the_fields_of_its_items() -> None:
    answer = inspect_schema(ORDER, "variants")
    assert (answer["node_type"], answer["total_child_fields"]) == ("array", 3)
    assert answer["flattened_fields"][0] == "[].sku: string"
    assert '"variants[]"' in answer["note"]


@pytest.mark.requirement("S-07")
def test_truncated_turns_exactly_at_the_limit() -> None:
    schema = an_object(**{f"k{number}": STRING for number in range(120)})
    assert inspect_schema(schema)["truncated"] is False
    schema["properties"]["one_more"] = STRING
    answer = inspect_schema(schema)
    assert answer["truncated"] is True
    assert len(answer["children"]) == len(answer["flattened_fields"]) == 120
    assert answer["total_child_fields"] == 121


@pytest.mark.requirement("S-07")
def test_no_caller_gets_an_unbounded_answer() -> None:
    schema = an_object(**{f"k{number}": STRING for number in range(5_000)})
    answer = inspect_schema(schema, max_fields=10**9, max_depth=10**9)
    assert len(answer["children"]) == len(answer["flattened_fields"]) == MAX_INSPECT_FIELDS
    assert answer["truncated"]
    assert len(inspect_schema(schema, max_fields=-3, max_depth=-1)["flattened_fields"]) == 1


@pytest.mark.requirement("S-08")
@pytest.mark.parametrize(
    ("path", "kind", "total"),
    [
        ("", "object", 10),
        ("id", "string", 0),
        ("variants[].item", "object", 2),
        ("variants[].item.place.shelf", "string", 0),
        ("grid[][]", "object", 1),
        ("grid[][].x", "number", 0),
        ("pair", "tuple", 2),
        ("pair[0]", "string", 0),
        ("pair[1].y", "string", 0),
        ("labels", "object", 1),
        ("labels.*", "object", 1),
        ("labels.*.color", "string", 0),
        ("owner", "union", 3),
        ("owner.slug", "string", 0),
        ("owner<Team>", "object", 2),
        ("owner<Team>.size", "integer", 0),
        ("owner<string>", "string", 0),
        ("['a.b'].c", "string", 0),
        (r"['it\u0027s [1] \u0022x\u0022\u000a\u005c'].d", "string", 0),
        ("['*']", "string", 0),
        ("['']", "string", 0),
    ],
)
def test_every_kind_of_step_can_be_written(path: str, kind: str, total: int) -> None:
    answer = inspect_schema(ORDER, path)
    assert (answer["field_path"], answer["node_type"], answer["total_child_fields"]) == (path, kind, total)


@pytest.mark.requirement("S-08")
@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("variants.sku", "variants[].sku"),
        ("variants[*].sku", "variants[].sku"),
        ("variants[0].sku", "variants[].sku"),
        ("grid.x", "grid[][].x"),
        ("a.b.c", "['a.b'].c"),
        ('["a.b"].c', "['a.b'].c"),
        ("$.variants[]", "variants[]"),
        ("$", ""),
        (" variants[] ", "variants[]"),
        ("labels.urgent.color", "labels.*.color"),
    ],
)
def test_what_is_clearly_meant_is_understood_and_answered_with_the_exact_path(path: str, meant: str) -> None:
    assert inspect_schema(ORDER, path)["field_path"] == meant


@pytest.mark.requirement("S-08")
@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("varients[]", "variants[]"),
        ("variants[].skew", "variants[].sku"),
        ("variants[].place", "variants[].item.place"),
        ("item.place", "variants[].item.place"),
        ("Owner", "owner"),
        ("id.x", None),
        ("owner<Group>", "owner.login"),
        ("variants[", "variants[].sku"),
        ("]][[", "id"),
        ("x" * 100_000, "id"),
    ],
)
def test_a_wrong_path_answers_with_the_nearest_right_ones(path: str, hint: str | None) -> None:
    with pytest.raises(UnknownField) as caught:
        inspect_schema(ORDER, path)
    told = caught.value.as_dict()
    assert told["code"] == "UNKNOWN_FIELD"
    assert told["next_action"]
    assert len(told["message"]) < 400
    assert hint is None or hint in told["hints"]
    for real in told["hints"]:
        inspect_schema(ORDER, real)


@pytest.mark.requirement("S-06", "S-08")
def test_inside_an_envelope_paths_start_at_its_data_and_the_rest_can_still_be_reached() -> None:
    envelope = an_object(data=ORDER, error=an_object(reason=STRING), successful={"type": "boolean"})
    envelope["$defs"] = ORDER["$defs"]
    root = inspect_schema(envelope)
    assert root["total_child_fields"] == 10
    assert "error, successful" in root["note"]
    assert inspect_schema(envelope, "variants[]") == inspect_schema(ORDER, "variants[]")
    assert inspect_schema(envelope, "data.variants[]")["field_path"] == "variants[]"
    assert inspect_schema(envelope, "error")["children"] == [{"name": "reason", "type": "string"}]
    assert "envelope" in inspect_schema(envelope, "error")["note"]


@pytest.mark.requirement("S-07")
def test_unknown_keys_maps_and_values_are_told_in_a_note() -> None:
    schema = an_object(
        open={"type": "object"},
        maps={"type": "object", "patternProperties": {"^x-": STRING}},
        level={"enum": ["low", "high"]},
        lost={"$ref": "https://example.org/elsewhere.json"},
    )
    assert inspect_schema(schema, "open")["children"] == []
    assert "additionalProperties" in inspect_schema(schema, "open")["note"]
    assert inspect_schema(schema, "maps")["children"] == [{"name": "*", "type": "string"}]
    assert "^x-" in inspect_schema(schema, "maps")["note"]
    assert inspect_schema(schema, "level")["note"] == 'one of: "low", "high"'
    assert inspect_schema(schema, "lost")["node_type"] == "unknown"
    assert "https://example.org/elsewhere.json" in inspect_schema(schema, "lost")["note"]


@pytest.mark.requirement("S-08")
def test_the_paths_of_markers_are_exact_also_for_odd_keys() -> None:
    inner = an_object(**{f"k{number}": STRING for number in range(40)})
    keys = [
        "a.b",
        "c[]",
        "d'e",
        'f"g',
        "h\\i",
        "*",
        "",
        " ",
        "j\nk",
        "l<m>",
        "n:o",
        "$",
        "é",
        "\ud800",
        "💡",
        "\u202etxt",
        "y" * 9_000,
    ]
    schema = {"type": "object", "properties": dict.fromkeys(keys, inner)}
    lines, hidden = summarize_schema_for_llm(schema, max_fields=len(keys))
    assert hidden
    paths = [MARKED.search(line) for line in lines]
    assert len({path.group(1) for path in paths if path}) == len(keys)
    for line, path in zip(lines, paths, strict=True):
        assert path is not None
        assert "\n" not in line
        assert "\u202e" not in line
        assert len(line) < 600
        assert line.startswith(f"{path.group(1)}: object (contains 40 sub-fields; ")
        assert inspect_schema(schema, path.group(1))["total_child_fields"] == 40


def test_null_as_a_path_is_the_root() -> None:
    assert inspect_schema(ORDER, None) == inspect_schema(ORDER, "")


@pytest.mark.requirement("S-08", "S-09")
def test_a_wrong_key_in_arrays_that_hold_each_other_ends() -> None:
    rings = an_array(an_array({"anyOf": [{"$ref": "#"}]}))
    with pytest.raises(UnknownField):
        inspect_schema(rings, "0")
