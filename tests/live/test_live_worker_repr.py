"""The bounded repr, called in the test's own process: what it writes, and where it stops."""

import collections
import math
from collections.abc import Callable
from typing import Any

import pytest

from toolfold.live.worker.bounded_repr import bounded_repr, builtin_len, error_text, safe_repr, set_items
from toolfold.live.worker.originals import NeedsFork


class MyList(list[Any]):
    """Keeps the built-in repr."""


@pytest.mark.parametrize(
    "value",
    [
        *([], [1, [2.5, "x"]], MyList([1]), (), (1,), (1, 2), {}, {"a": {"b": None}}, set(), {3, 1, 2}),
        *(frozenset(), frozenset({1}), collections.deque([1]), collections.deque([1, 2], maxlen=2)),
        *(collections.defaultdict(int, {"a": 1}), {"a": 1}.keys(), {"a": 1}.values(), {"a": 1}.items()),
        *(ValueError("x", 1), KeyError(), range(3), range(0, 9, 2), slice(1, 2), b"ab", bytearray(b"ab"), True, None),
        *(..., 10**50, -1, math.inf, 1j, len, int, "it's"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_plain_values_are_written_as_repr_writes_them_without_user_code(value: object) -> None:
    text = repr(value)
    assert bounded_repr(value, 4096, user_code=False) == {"text": text, "truncated": False, "original_len": len(text)}
    assert bounded_repr(value, 1, user_code=False)["text"] == text[:1]


@pytest.mark.parametrize(
    ("make", "inside"),
    [(list, "[[...]]"), (collections.deque, "deque([[...]])")],
)
def test_a_container_inside_itself_is_written_once(make: Callable[[], Any], inside: str) -> None:
    value = make()
    value.append(value)
    assert bounded_repr(value, 100, user_code=False)["text"] == inside


def test_depth_and_the_number_of_values_are_bounded() -> None:
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]
    assert bounded_repr(deep, 4096, user_code=False)["text"] == "[" * 64 + "…" + "]" * 64
    assert bounded_repr([0] * 50, 4096, user_code=False, nodes=3) == {
        "text": "[0, 0, ",
        "truncated": True,
        "original_len": 7,
        "original_len_is_minimum": True,
    }


@pytest.mark.parametrize(("value", "head"), [("x" * 200_000, "'xxx"), (b"x" * 200_000, "b'xx")])
def test_of_a_huge_text_only_the_head_is_written(value: Any, head: str) -> None:
    section = bounded_repr(value, 4, user_code=False)
    assert section["text"] == head
    assert section["truncated"] is True
    assert section["original_len_is_minimum"] is True
    assert section["original_len"] >= 200_000


def test_an_integer_too_long_to_convert_is_named_by_its_size() -> None:
    assert bounded_repr(1 << 20_000, 100, user_code=False)["text"] == "<int of 20001 bits>"


class Speaks:
    """Has a repr of its own."""

    def __init__(self, text: Any) -> None:
        self.text = text

    def __repr__(self) -> str:
        if isinstance(self.text, BaseException):
            raise self.text
        return str(self.text)


def test_a_repr_of_the_users_runs_only_where_it_may() -> None:
    with pytest.raises(NeedsFork):
        bounded_repr([Speaks("hi")], 100, user_code=False)
    with pytest.raises(NeedsFork):
        safe_repr(Speaks("hi"), 100, user_code=False)
    assert bounded_repr([Speaks("hi")], 100, user_code=True)["text"] == "[hi]"
    cut = bounded_repr(Speaks("x" * 50), 10, user_code=True)
    assert cut == {"text": "x" * 10, "truncated": True, "original_len": 50}


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
def test_a_broken_repr_is_raised_at_the_top_and_named_inside_a_container(error: BaseException) -> None:
    with pytest.raises(type(error)):
        bounded_repr(Speaks(error), 100, user_code=True)
    name = type(error).__name__
    assert bounded_repr([Speaks(error)], 100, user_code=True)["text"] == f"[<Speaks with a broken repr: {name}>]"
    assert safe_repr(Speaks(error), 100, user_code=True).endswith(f"(repr failed: {name})")


def test_a_huge_counter_is_named_and_not_written() -> None:
    section = bounded_repr(collections.Counter(range(100_001)), 4096, user_code=True)
    assert section["text"] == "<collections.Counter of 100001 items>"
    assert section["original_len_is_minimum"] is True


def test_a_safe_repr_ends_with_an_ellipsis_where_it_was_cut() -> None:
    assert safe_repr("abcdef", 5, user_code=False) == "'abc…"
    assert safe_repr("abc", 5, user_code=False) == "'abc'"


def test_lengths_come_from_the_built_in_base_alone() -> None:
    class Liar(dict[str, int]):
        def __len__(self) -> int:
            raise AssertionError("the session's code ran")

    assert builtin_len(Liar(a=1)) == 1
    assert builtin_len(object()) is None


def test_only_small_sets_of_one_plain_type_are_sorted() -> None:
    assert list(set_items({"b", "c", "a"})) == ["a", "b", "c"]
    assert list(set_items(frozenset({3, -1}))) == [-1, 3]
    assert set(set_items({1, "a"})) == {1, "a"}
    assert set(set_items(set(range(10_001)))) == set(range(10_001))


class Mute(Exception):
    """Cannot be written."""

    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("x" * 400), "ValueError: " + "x" * 300),
        (ValueError(), "ValueError"),
        (Mute(), "Mute"),
    ],
)
def test_an_error_in_short_is_its_name_and_as_much_message_as_can_be_read(error: BaseException, text: str) -> None:
    assert error_text(error) == text
