"""Deadlines: each is told in its time and order, a stopped one never, and none is kept when it is over."""

import asyncio

from toolfold.wire.deadlines import Deadlines


def test_deadlines_come_due_in_the_order_of_their_times_and_stopped_ones_never() -> None:
    async def main() -> None:
        deadlines, told, over = Deadlines(), list[str](), asyncio.Event()
        deadlines.start(0.05, lambda: told.append("second"))
        deadlines.start(0.02, lambda: told.append("first"))
        deadlines.start(0.02, lambda: told.append("never")).stop()
        deadlines.start(0.08, over.set)
        await asyncio.wait_for(over.wait(), 30)
        assert told == ["first", "second"]

    asyncio.run(main())


def test_one_that_is_started_later_is_not_told_with_an_earlier_one_of_the_same_length() -> None:
    async def main() -> None:
        deadlines, at = Deadlines(), list[float]()
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        began = loop.time()
        deadlines.start(0.05, lambda: at.append(loop.time() - began))
        await asyncio.sleep(0.03)
        again = loop.time() - began

        def last() -> None:
            at.append(loop.time() - began)
            over.set()

        deadlines.start(0.05, last)
        await asyncio.wait_for(over.wait(), 30)
        assert at[0] >= 0.048
        assert at[1] >= again + 0.048

    asyncio.run(main())


def test_many_that_end_in_time_leave_nothing_behind() -> None:
    async def main() -> None:
        deadlines, told = Deadlines(), list[int]()
        for number in range(10_000):
            deadlines.start(0.02, lambda number=number: told.append(number)).stop()  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        kept = deadlines.start(0.02, lambda: told.append(-1))
        kept.stop()
        kept.stop()
        await asyncio.sleep(0.06)
        assert told == []
        assert not deadlines._queues

    asyncio.run(main())
