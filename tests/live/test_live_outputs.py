"""Stored outputs in a live session: opened by handle, read piece by piece, inspected by their folded shape."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from toolfold import Gateway, LiveSession, Settings
from toolfold.errors import UnknownHandle
from toolfold.live.session import _OutputReader
from toolfold.types import Caller


def with_output(text: str, work: Callable[[LiveSession], Awaitable[Any]], tmp_path: Path, **options: Any) -> Any:
    """Runs `work` in a session that can open `text` by the handle `h`."""
    file = tmp_path / "output"
    file.write_text(text, encoding="utf-8")

    async def open_output(handle: str) -> Path:
        if handle != "h":
            raise UnknownHandle(f"no stored output {handle}", next_action="use h")
        return file

    async def main() -> Any:
        async with LiveSession(open_output=open_output, **options) as session:
            return await work(session)

    return asyncio.run(main())


ORDERS = json.dumps({"orders": [{"id": n, "customer": {"email": f"c{n}@example.org"}} for n in range(50_000)]})


@pytest.mark.requirement("L-13")
@pytest.mark.parametrize("trusted", [False, True], ids=["sandboxed", "trusted"])
def test_a_large_json_output_is_inspected_by_its_folded_shape_and_read_lazily(trusted: bool, tmp_path: Path) -> None:
    async def work(session: LiveSession) -> Any:
        opened = await session.execute("out = open_output('h')")
        assert opened["ok"], opened
        found = await session.inspect("out")
        part = await session.eval_expr("out.text(0, 12)")
        last = await session.eval_expr("out.json()['orders'][-1]['customer']['email']")
        return found["result"], part["result"]["value_repr"], last["result"]["value_repr"]

    found, part, last = with_output(ORDERS, work, tmp_path, trusted=trusted)
    assert found["kind"] == "object"
    assert found["size"] == {"len": len(ORDERS)}
    for line in ("orders: array", "orders[]: object (2 fields)", "orders[].customer.email: string"):
        assert line in found["repr"]["text"]
    assert part == repr(ORDERS[:12])
    assert last == "'c49999@example.org'"


@pytest.mark.requirement("L-13")
def test_tables_json_lines_and_text_have_their_own_forms(tmp_path: Path) -> None:
    async def work(session: LiveSession) -> Any:
        await session.execute("out = open_output('h')")
        answer = await session.eval_expr(
            "(out.form, list(out.rows())[:2] if out.form != 'text' else list(out.lines()))"
        )
        return answer["result"]["value_repr"]

    lines = '{"a": 1}\n{"a": 2}\n{"a": 3}\n'
    assert with_output(lines, work, tmp_path) == "('json lines', [{'a': 1}, {'a': 2}])"
    assert with_output("x,y\n1,2\n3,4\n", work, tmp_path) == "('table', [{'x': '1', 'y': '2'}, {'x': '3', 'y': '4'}])"
    tabs = "x\ty\n1,5\t2\n3,5\t4\n"
    assert with_output(tabs, work, tmp_path) == "('table', [{'x': '1,5', 'y': '2'}, {'x': '3,5', 'y': '4'}])"
    assert with_output("hello there\nyou", work, tmp_path) == "('text', ['hello there', 'you'])"


@pytest.mark.requirement("L-13")
def test_a_huge_output_is_opened_without_being_loaded(tmp_path: Path) -> None:
    file = tmp_path / "huge"
    with file.open("wb") as sparse:
        sparse.write(b'{"rows": [{"id": 1, "name": "first"}, ')
        sparse.truncate(10**9)

    async def open_output(handle: str) -> Path:
        return file

    async def main() -> Any:
        async with LiveSession(open_output=open_output) as session:
            assert (await session.execute("out = open_output('anything')"))["ok"]
            return (await session.inspect("out"))["result"]

    found = asyncio.run(main())
    assert found["size"] == {"len": 10**9}
    assert "rows[].name: string" in found["repr"]["text"]


def test_an_unknown_handle_is_an_error_of_the_code_that_says_what_to_do(tmp_path: Path) -> None:
    async def work(session: LiveSession) -> Any:
        return await session.eval_expr("open_output('other')")

    error = with_output("x", work, tmp_path)["error"]
    assert error["exc_type"] == "OutputUnavailable"
    assert "use h" in error["message"]


@pytest.mark.requirement("L-13")
def test_a_gateway_opens_only_the_outputs_of_the_caller(tmp_path: Path) -> None:
    ann, bob = Caller(name="ann", session="1"), Caller(name="bob", session="1")

    async def main() -> tuple[Any, Any]:
        async with Gateway(Settings(home=tmp_path / "home")) as gateway:
            stored = await gateway.outputs.store_text(ORDERS, tool_id="shop.orders", arguments="{}", caller=ann)
            answers = []
            for caller in (ann, bob):
                async with gateway.live(caller=caller) as session:
                    answers.append(await session.eval_expr(f"open_output({stored.handle!r}).form"))
            return answers[0], answers[1]

    hers, his = asyncio.run(main())
    assert hers["result"]["value_repr"] == "'json'"
    assert his["error"]["exc_type"] == "OutputUnavailable"


IN_A_THREAD = """
import threading
out = open_output('h')
told = []
begin, done = threading.Event(), threading.Event()
def read():
    begin.wait()
    try: told.append(out.text(0, 4))
    except Exception as error: told.append(str(error))
    done.set()
threading.Thread(target=read, daemon=True).start()
"""


@pytest.mark.requirement("L-13")
def test_a_thread_that_reads_an_output_gets_an_error_and_never_the_sessions_next_request(tmp_path: Path) -> None:
    async def work(session: LiveSession) -> Any:
        assert (await session.execute(IN_A_THREAD))["ok"]
        await session.execute("begin.set()")
        waited = await session.eval_expr("(done.wait(), told)")
        return waited["result"]["value_repr"], await session.eval_expr("out.text(0, 4)")

    told, after = with_output("hello there", work, tmp_path)
    assert "not by another thread" in told
    assert after["result"]["value_repr"] == "'hell'"


# An alarm goes off while the session waits for the host.
INTERRUPTED = """
import signal
out = open_output('h')
def heard(*_): raise InterruptedError('now')
signal.signal(signal.SIGALRM, heard)
ask = out._ask
def soon(question):
    signal.setitimer(signal.ITIMER_REAL, 0.000001)
    return ask(question)
out._ask = soon
for _ in range(20):
    try: out.text(0, 4)
    except InterruptedError: pass
signal.setitimer(signal.ITIMER_REAL, 0)
out._ask = ask
"""


def test_a_question_that_was_interrupted_leaves_no_answer_behind(tmp_path: Path) -> None:
    async def work(session: LiveSession) -> Any:
        assert (await session.execute(INTERRUPTED))["ok"]
        return [(await session.eval_expr(f"out.text({at}, 1)"))["result"]["value_repr"] for at in range(5)]

    assert with_output("hello there", work, tmp_path) == ["'h'", "'e'", "'l'", "'l'", "'o'"]


async def test_questions_that_cannot_be_answered_say_why(tmp_path: Path) -> None:
    async def open_output(handle: str) -> Path:
        return tmp_path / "gone"

    reader = _OutputReader(open_output, direct=False)
    assert "cannot be read" in (await reader.answer({"ask": "open_output", "handle": "h"}))["error"]
    assert "was not opened" in (await reader.answer({"ask": "read_output", "handle": "other"}))["error"]
    assert "nothing here answers 'dance'" in (await reader.answer({"ask": "dance"}))["error"]


async def test_a_session_without_outputs_says_so() -> None:
    async with LiveSession(trusted=True) as session:
        assert "there is no stored output 'h' here" in (await session.eval_expr("open_output('h')"))["error"]["message"]
