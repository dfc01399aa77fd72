"""A piece of the conformance kit (`store_conformance.py`): what a store that keeps values in parts must do."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from toolfold.storage.base import Store

OpenStore = Callable[[], AbstractAsyncContextManager[Store]]


def _expect(actual: Any, wanted: Any, what: str) -> None:
    # Not `assert`: the kit must also hold under `python -O`.
    if actual != wanted:
        raise AssertionError(f"{what}: wanted {wanted!r}, found {actual!r}")


async def _parts_are_kept_for_a_while(open_store: OpenStore) -> None:
    big = bytes(range(256)) * 4096
    async with open_store() as one, open_store() as other:
        written = [
            await one.put_part("al", "a", part, value, for_s=60) for part, value in ((1, b"x"), (0, b""), (2, big))
        ]
        _expect(written, [False, True, True], "part 0 begins it, and any other follows")
        for shelf, name in (("al", "b"), ("bob", "a")):
            await one.put_part(shelf, name, 0, b"begun", for_s=60)
        _expect(dict(await other.parts("al", 0)), {"a": b"", "b": b"begun"}, "one part of all on a shelf, for all")
        _expect(dict(await other.parts("al", 2)) == {"a": big}, True, "those that have such a part, exactly")
        _expect(dict(await other.parts("al", 2, "b")), {}, "a part that is not there")
        await other.delete_parts("al", "a")
        _expect(dict(await one.parts("al", 0)), {"b": b"begun"}, "one is removed whole")
        _expect(await one.put_part("al", "a", 3, b"late", for_s=60), False, "and nothing is added to it then")
        await one.delete_parts("al")
        left = [dict(await other.parts(shelf, 0)) for shelf in ("al", "bob")]
        _expect(left, [{}, {"a": b"begun"}], "a shelf is emptied, and others stay")
        for part in (0, 1):
            await one.put_part("bob", "brief", part, b"x", for_s=0.05)
        await asyncio.sleep(0.1)
        _expect(dict(await other.parts("bob", 1)), {}, "what has run out is not there")
        _expect([tuple(found) for found in await other.expired_parts(10)], [("bob", "brief")], "but told of, once")
        await other.delete_parts("bob", "brief")
        _expect(list(await one.expired_parts(10)), [], "until somebody removes it")
