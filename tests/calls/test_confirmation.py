"""The question before a call is one that every version of the protocol knows."""

import json
from pathlib import Path

import jsonschema_rs
import pytest
from msgspec import Raw

from toolfold.calls.confirm import MAX_SHOWN_CHARS, _confirmation_form, _is_accepted, can_ask


@pytest.mark.requirement("G-05")
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", "2026-07-28"])
def test_the_form_fits_the_protocols_own_schema_in_both_eras(version: str, shared_data: Path) -> None:
    schema = json.loads((shared_data / "mcp-schema" / version / "schema.json").read_text("utf-8"))
    known = schema.get("$defs") or schema["definitions"]
    asked = json.loads(bytes(_confirmation_form("shop.delete_order", ("destructive",), '{"order_id":7}')))
    where = "$defs" if "$defs" in schema else "definitions"
    name = "ElicitRequestFormParams" if "ElicitRequestFormParams" in known else "ElicitRequest"
    instance = asked if name != "ElicitRequest" else {"method": "elicitation/create", "params": asked}
    jsonschema_rs.validate(
        {"$schema": schema["$schema"], where: known, "allOf": [{"$ref": f"#/{where}/{name}"}]}, instance
    )


def test_long_arguments_are_cut_in_the_question() -> None:
    asked = json.loads(bytes(_confirmation_form("shop.delete_order", (), "x" * 10_000)))
    assert len(asked["message"]) < MAX_SHOWN_CHARS + 200


@pytest.mark.parametrize(
    ("declared", "can"),
    [
        (None, False),
        (b"{}", False),
        (b'{"elicitation":null}', False),
        (b'{"elicitation":{}}', True),
        (b'{"elicitation":{"form":{}}}', True),
        (b'{"elicitation":{"form":{},"url":{}}}', True),
        (b'{"elicitation":{"url":{}}}', False),
        (b'{"elicitation":[]}', False),
        (b"\xff", False),
    ],
)
def test_only_a_client_that_declared_forms_is_asked(declared: bytes | None, can: bool) -> None:
    assert can_ask(None if declared is None else Raw(declared)) is can


def test_a_yes_is_an_accepted_form_with_the_box_ticked() -> None:
    assert _is_accepted(Raw(b'{"action":"accept","content":{"confirm":true,"more":1},"_meta":{}}'))
    for answer in (b"\xff", b"null", b'{"action":"accept","content":{"confirm":1}}', b'{"content":{"confirm":true}}'):
        assert not _is_accepted(Raw(answer))
