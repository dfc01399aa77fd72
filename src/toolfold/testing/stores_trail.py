"""The part of the conformance kit for stores that is about the trail. `stores.py` joins it to the rest."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from toolfold.storage.base import Store, TrailRow

OpenStore = Callable[[], AbstractAsyncContextManager[Store]]


def _expect(found: Any, wanted: Any, what: str) -> None:
    if found != wanted:
        raise AssertionError(f"{what}: wanted {wanted!r}, found {found!r}")


def _line(number: int, *, caller: str = "alice", session: str = "s1", selection: str = "") -> TrailRow:
    record = f"record {number} \u2713".encode()
    return TrailRow(at=float(number), caller=caller, session=session, selection=selection, record=record)


async def the_trail_keeps_lines_in_order(open_store: OpenStore) -> None:
    async with open_store() as store:
        _expect(await store.trail(), [], "an empty store has no trail")
        await store.append([_line(1), _line(2, session="s2", selection="x")], keep=100)
        await store.append([_line(3, caller="bob"), _line(4, selection="x")], keep=100)
    async with open_store() as store:
        rows = await store.trail()
        _expect([row.at for row in rows], [1.0, 2.0, 3.0, 4.0], "lines stand in the order they were added")
        _expect(rows[3].record, "record 4 \u2713".encode(), "records are kept exactly")
        numbers = [row.number for row in rows]
        _expect(numbers, sorted(set(numbers)), "numbers rise")
        _expect([row.at for row in await store.trail(session="s1")], [1.0, 3.0, 4.0], "by session")
        _expect([row.at for row in await store.trail(session="s1", caller="alice")], [1.0, 4.0], "by caller, too")
        _expect([row.selection for row in rows], ["", "x", "", "x"], "selections are kept")
        _expect([row.at for row in await store.trail(after=rows[1].number)], [3.0, 4.0], "after a number")
        _expect([row.at for row in await store.trail(last=2)], [3.0, 4.0], "the last ones, in order")
        async with store.snapshot() as view:
            _expect(view.generation, 0, "the trail makes no generation")


async def the_trail_is_bounded_and_gives_no_number_twice(open_store: OpenStore) -> None:
    async with open_store() as store:
        for start in range(0, 100, 10):
            await store.append([_line(start + one) for one in range(10)], keep=25)
        rows = await store.trail()
        _expect([row.at for row in rows], [float(at) for at in range(75, 100)], "the newest lines stay")
        await store.append([_line(100)], keep=25, oldest=98.0)
        rows = await store.trail()
        _expect([row.at for row in rows], [98.0, 99.0, 100.0], "old lines go")
        highest = rows[-1].number
        await store.append([], keep=25, oldest=1000.0)
        _expect(await store.trail(), [], "nothing is younger")
        await store.append([_line(2000)], keep=25)
        _expect((await store.trail())[0].number > highest, True, "a number is never given twice")


TRAIL_CHECKS: tuple[Callable[[OpenStore], Awaitable[None]], ...] = (
    the_trail_keeps_lines_in_order,
    the_trail_is_bounded_and_gives_no_number_twice,
)
