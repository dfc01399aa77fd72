"""Risk, cost and access: the protocol's defaults, names that only raise the risk, and the owner's rules."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from toolfold.catalogue.metadata import Rules, _Metadata, _risks_of
from toolfold.config import MetadataRule
from toolfold.storage.records import _parse_definition
from toolfold.types import Annotations

hint = st.none() | st.booleans()
claims = st.builds(Annotations, read_only=hint, destructive=hint, idempotent=hint, open_world=hint)


def metadata(name: str = "do_it", *rules: MetadataRule, **fields: Any) -> _Metadata:
    definition = _parse_definition(json.dumps({"name": name, **fields}).encode())
    return Rules(rules).metadata(f"shop.{name}", definition)


@pytest.mark.requirement("D-12")
@pytest.mark.parametrize(
    ("claimed", "risks"),
    [
        ({}, ("unstated",)),
        ({"readOnlyHint": True}, ("read-only",)),
        ({"readOnlyHint": True, "destructiveHint": False}, ("read-only",)),
        ({"readOnlyHint": True, "destructiveHint": True}, ("destructive",)),
        ({"readOnlyHint": True, "idempotentHint": True, "openWorldHint": True}, ("read-only", "open-world")),
        ({"readOnlyHint": False}, ("destructive",)),
        ({"readOnlyHint": False, "destructiveHint": False}, ()),
        ({"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True}, ("idempotent",)),
        ({"destructiveHint": True, "idempotentHint": True}, ("destructive", "idempotent")),
        ({"destructiveHint": False}, ()),
        ({"openWorldHint": True}, ("open-world", "unstated")),
        ({"openWorldHint": False, "title": "x"}, ("unstated",)),
    ],
)
def test_risks_follow_the_claims_and_the_protocols_defaults_and_stand_in_the_tags(
    claimed: dict[str, Any], risks: tuple[str, ...]
) -> None:
    found = metadata(annotations=claimed)
    assert found.risks == risks
    assert found.tags == tuple(f"risk:{risk}" for risk in risks if risk != "unstated")


@pytest.mark.requirement("D-12")
@pytest.mark.parametrize("name", ["delete_branch", "git-reset", "dropCollection", "hosting_purgeCacheV1", "RM"])
def test_a_destroying_verb_in_the_name_raises_the_risk(name: str) -> None:
    assert metadata(name).risks == ("destructive", "unstated")
    assert metadata(name, annotations={"readOnlyHint": True}).risks == ("destructive",)


@pytest.mark.parametrize(
    "name", ["get_deleted_items", "list_drop_zones", "can_delete", "undelete", "removal_status", "x"]
)
def test_a_name_that_only_looks_destructive_raises_nothing(name: str) -> None:
    assert metadata(name).risks == ("unstated",)


@pytest.mark.requirement("D-12")
@settings(deadline=None)
@given(st.sampled_from(["delete_all", "list_all", "get_delete_log", ""]), claims)
def test_a_name_never_lowers_what_is_claimed(name: str, claimed: Annotations) -> None:
    plain, named = set(_risks_of("do_it", claimed)), set(_risks_of(name, claimed))
    assert named - plain <= {"destructive", "idempotent"}
    assert plain - named <= {"read-only"}
    assert "read-only" not in plain - named or "destructive" in named
    assert not {"read-only", "destructive"} <= named


@pytest.mark.requirement("D-12")
def test_the_owners_rules_add_cost_risk_access_and_tags_by_glob() -> None:
    rules = (
        MetadataRule(match="*", cost=1.0, tags=("ours",)),
        MetadataRule(match="SHOP.*", cost=0.02, risk=("pii",), access=("staff", "admin"), tags=("orders", "ours")),
        MetadataRule(match="other.*", cost=99.0, risk=("never",), access=("nobody",)),
        MetadataRule(match="shop.do_*", access=("staff",), risk=("read-only",)),
    )
    assert metadata("do_it", *rules) == _Metadata(
        risks=("pii", "read-only"),
        tags=("risk:pii", "risk:read-only", "ours", "orders"),
        cost=0.02,
        access=("staff", "admin"),
    )


def test_a_rule_takes_no_flag_away() -> None:
    rule = MetadataRule(match="*", risk=("read-only",))
    assert metadata("delete_it", rule).risks == ("destructive", "read-only")


@pytest.mark.parametrize(
    ("meta", "cost", "tags"),
    [
        ({"cost": 0.5}, 0.5, ()),
        ({"cost": 0.5, "toolfold/cost": 2}, 2.0, ()),
        ({"cost": -1}, None, ()),
        ({"cost": True}, None, ()),
        ({"cost": "free"}, None, ()),
        ({"fastmcp": {"tags": ["Web Search", "risk:read-only", 7, "", "a", "b", "c", "d"]}}, None, "web-search a b c"),
        ({"_fastmcp": {"tags": "no list"}, "deprecated": True}, None, "deprecated"),
        ("not an object", None, ()),
        (None, None, ()),
    ],
)
def test_hints_in_meta_are_read_with_care(meta: Any, cost: float | None, tags: str | tuple[str, ...]) -> None:
    found = metadata(_meta=meta)
    wanted = tuple(tags.split()) if isinstance(tags, str) else tags
    assert (found.cost, found.tags) == (cost, wanted)


def test_a_tool_object_that_cannot_be_read_has_metadata_all_the_same() -> None:
    definition = _parse_definition(b'{"name": "x"}')
    broken = type(definition)(name="x", raw=Raw(b'{"_meta": '))
    assert Rules().metadata("s.x", broken).risks == ("unstated",)


@pytest.mark.requirement("D-12")
def test_no_recorded_tool_that_says_it_destroys_is_without_the_flag(shared_data: Path) -> None:
    for file in sorted((shared_data / "servers").glob("*.json")):
        for tool in json.loads(file.read_text())["tools"]:
            found = Rules().metadata("s.t", _parse_definition(json.dumps(tool).encode()))
            said = tool.get("annotations") or {}
            destroys = said.get("destructiveHint") or (
                said.get("readOnlyHint") is False and "destructiveHint" not in said
            )
            assert ("destructive" in found.risks) or not destroys
            assert ("read-only" in found.risks) <= (said.get("readOnlyHint") is True)
            assert ("unstated" in found.risks) == (not {"readOnlyHint", "destructiveHint"} & said.keys())
