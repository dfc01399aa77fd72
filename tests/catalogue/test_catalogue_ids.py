"""Stable ids: fit for every client, unique, independent of order, kept over builds, and nothing silent."""

import re
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolfold.catalogue.ids import Key, _hashed_id, assign_ids, natural_id

FIT = re.compile(r"[A-Za-z0-9_.-]{1,64}")

names = st.text(max_size=90) | st.text("aAbB._-/ é", max_size=6)
keys = st.sets(st.tuples(names, names), max_size=12)


@settings(deadline=None)
@given(keys, keys, st.randoms(use_true_random=False))
def test_every_id_fits_is_unique_is_kept_and_does_not_depend_on_order(
    first: set[Key], second: set[Key], order: object
) -> None:
    before = assign_ids(first, {}).ids
    assert_sound(before)
    shuffled = list(first)
    order.shuffle(shuffled)  # type: ignore[attr-defined] # hypothesis types its random source as an object
    assert assign_ids(shuffled, {}).ids == before
    after = assign_ids(first | second, before)
    assert_sound(after.ids)
    assert {key: after.ids[key] for key in first} == before
    told = " ".join(after.warnings)
    for (server, name), tool_id in after.ids.items():
        assert tool_id == f"{server}.{name}" or tool_id in told or f'the ids of server "{server}" begin' in told


def assert_sound(ids: Mapping[Key, str]) -> None:
    assert all(FIT.fullmatch(tool_id) for tool_id in ids.values())
    assert len({tool_id.casefold() for tool_id in ids.values()}) == len(ids)


@pytest.mark.parametrize(
    ("server", "name", "tool_id"),
    [
        ("git", "git_log", "git.git_log"),
        ("git", "_private", "git._private"),
        ("fs", "files/read", "fs.files.read"),
        ("@scope/my server", "run", "scope_my_server.run"),
        ("Bücher", "leihen", "Bucher.leihen"),
    ],
)
def test_ids_that_one_would_expect(server: str, name: str, tool_id: str) -> None:
    assert natural_id(server, name) == tool_id


def test_a_long_name_keeps_its_beginning_and_ends_in_a_hash_that_never_changes() -> None:
    tool_id = natural_id(
        "a-server-with-quite-a-long-name-of-its-own", "list_all_the_things_that_anyone_could_want_to_see"
    )
    assert tool_id == "a-server-with-quite-a-lo.list_all_the_things_that_anyon-b6cb0c3a"
    assert len(tool_id) == 64


def test_names_without_a_usable_letter_get_an_id_all_the_same() -> None:
    ids = assign_ids([("サーバー", "ツール"), ("服务器", "工具"), ("s", ""), ("", "t")], {})
    assert_sound(ids.ids)
    assert ids.ids["s", ""] == _hashed_id("s", "")
    assert len(ids.warnings) >= 4


def test_a_collision_is_resolved_the_same_way_every_time_and_names_both_tools() -> None:
    found = assign_ids([("a.b", "c"), ("a", "b.c")], {})
    assert found.ids == {("a", "b.c"): "a.b.c", ("a.b", "c"): _hashed_id("a.b", "c")}
    assert found.warnings == (
        f'the tool "c" of server "a.b" has the id {_hashed_id("a.b", "c")}, '
        'since the tool "b.c" of server "a" has a.b.c',
    )


def test_names_that_differ_only_in_case_get_different_ids() -> None:
    found = assign_ids([("git", "Log"), ("git", "log")], {})
    assert found.ids == {("git", "Log"): "git.Log", ("git", "log"): _hashed_id("git", "log")}
    assert len(found.warnings) == 1


def test_the_tool_that_was_there_first_keeps_its_id_and_the_newcomer_is_told_of() -> None:
    before = assign_ids([("my server", "run")], {}).ids
    after = assign_ids([("my_server", "run"), ("my server", "run")], before)
    assert after.ids["my server", "run"] == "my_server.run"
    assert after.ids["my_server", "run"] == _hashed_id("my_server", "run")
    assert 'the tool "run" of server "my server" has my_server.run' in after.warnings[-1]


def test_without_a_past_the_tool_whose_name_fits_as_it_is_has_the_id() -> None:
    ids = assign_ids([("my server", "run"), ("my_server", "run")], {}).ids
    assert ids["my_server", "run"] == "my_server.run"


def test_an_id_stays_when_the_tool_it_had_to_give_way_to_is_gone() -> None:
    before = assign_ids([("git", "Log"), ("git", "log")], {}).ids
    after = assign_ids([("git", "log")], before)
    assert after.ids == {("git", "log"): _hashed_id("git", "log")}
    assert after.warnings == (
        f'the tool "log" of server "git" keeps the id {_hashed_id("git", "log")}, since git.log was taken when it came',
    )
