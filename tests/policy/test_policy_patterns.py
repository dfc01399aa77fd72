"""Patterns and policies on single tools: what fits, that deny wins, that groups hold."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from toolfold.config import Policy
from toolfold.errors import ConfigError
from toolfold.policy.access import _compile_policies, _Patterns, _Rules
from toolfold.types import Tool, ToolDefinition


def tool(tool_id: str = "git.push", **fields: Any) -> Tool:
    server, _, name = tool_id.partition(".")
    definition = ToolDefinition(name=name, raw=Raw(b"{}"))
    return Tool(tool_id=tool_id, server=server, definition=definition, fingerprint=tool_id, **fields)


PLACED = tool(
    paths=(("Storage", "Buckets", "Old"), ("Code",)), tags=("money", "risk:destructive"), risks=("destructive",)
)


@pytest.mark.requirement("G-05")
@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("**", True),
        ("*", True),
        ("git.*", True),
        ("GIT.PUSH", True),
        ("git", False),
        ("*.pull", False),
        ("path:Storage/**", True),
        ("path:storage/buckets/old", True),
        ("path:Storage", False),
        ("path:Storage/*", False),
        ("path:Storage/*/Old", True),
        ("path:**/Old", True),
        ("path:**/ld", False),
        ("path:**/Buckets", False),
        ("path:**/uckets/**", False),
        ("path:**/Buckets/**", True),
        ("path:**/**", True),
        ("path:**/Code", True),
        ("path:**/ode", False),
        ("path:Code", True),
        ("path:Code/**", True),
        ("path:Cod", False),
        ("tag:money", True),
        ("tag:mon*", True),
        ("tag:cash", False),
        ("risk:destructive", True),
        ("risk:unstated", False),
        ("server:git", True),
        ("server:g", False),
        ("flag:hidden", False),
    ],
)
def test_a_pattern_fits_what_it_says(pattern: str, fits: bool) -> None:
    assert _Patterns([pattern]).match(PLACED) is fits


def test_a_flag_of_the_check_can_be_named() -> None:
    assert _Patterns(["flag:secre*"]).match(PLACED, ("secrecy",))


def test_an_unknown_kind_of_pattern_is_told() -> None:
    with pytest.raises(ConfigError, match="unknown kind"):
        _Patterns(["colour:red"])


@given(st.lists(st.sampled_from(["git.*", "**", "tag:money", "server:git", "risk:x", "other.*"]), max_size=4))
def test_what_is_denied_is_never_allowed(patterns: list[str]) -> None:
    rules = _Rules(Policy(name="p", allow=tuple(patterns), deny=tuple(patterns)))
    assert not rules.allows(PLACED, ())


@pytest.mark.requirement("G-05")
def test_a_tool_with_groups_is_for_those_groups_alone() -> None:
    guarded = tool(access=("finance", "board"))
    rules = _compile_policies(())["default"]
    assert rules.allows(guarded, ("board", "staff"))
    assert not rules.allows(guarded, ("staff",))
    assert not rules.allows(guarded, ())
    assert rules.allows_everything


def test_a_policy_without_an_allow_list_allows_everything_it_does_not_deny() -> None:
    rules = _Rules(Policy(name="p", deny=("git.*",)))
    assert rules.allows(tool("shop.find"), ())
    assert not rules.allows(tool("git.push"), ())
    assert not _Rules(Policy(name="p", allow=())).allows(tool("shop.find"), ())
