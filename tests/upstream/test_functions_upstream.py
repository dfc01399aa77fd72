"""Functions as an upstream: how calls run, fail, time out and are cancelled."""

import asyncio
import contextvars
import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tool_calls import CONTEXT, tool_call

from toolfold.errors import ConfigError, ServerTimeout, ServerUnavailable
from toolfold.types import Outcome, ServerSpec
from toolfold.upstream.functions import _MAX_THREADS, Function, FunctionsUpstream

MODULE = '''
"""A module with tools."""
from pathlib import Path
from textwrap import dedent

def greet(name: str) -> str:
    """Greet somebody."""
    return f"hello {name}"

async def add(a: int, b: int) -> int:
    return a + b

def _private() -> None: ...
class NotAFunction: ...
'''


def ask(functions: list[Function], tool: str, arguments: dict[str, Any] | None = None, **more: Any) -> Outcome:
    async def main() -> Outcome:
        upstream = FunctionsUpstream.of("own", functions, **more)
        await upstream.open()
        try:
            return await upstream.call(tool_call(tool, **(arguments or {})), CONTEXT)
        finally:
            await upstream.aclose()

    return asyncio.run(main())


def text_of(outcome: Outcome) -> str:
    return str(json.loads(bytes(outcome.result))["content"][0]["text"])


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "shop_functions.py").write_text(MODULE)
    (tmp_path / "shop_all.py").write_text(MODULE + '\n__all__ = ["dedent", "greet"]\n')
    (tmp_path / "shop_broken.py").write_text("raise OSError('no shop today')\n")
    (tmp_path / "shop_stars.py").write_text("def f(*args): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("shop_functions", "shop_all", "shop_broken", "shop_stars"):
        sys.modules.pop(name, None)
    return "shop_functions"


def listed(document: str) -> list[str]:
    async def main() -> list[str]:
        upstream = FunctionsUpstream(ServerSpec(name="shop", transport="functions", document=document))
        await upstream.open()
        return [tool.name for tool in (await upstream.listing()).tools]

    return asyncio.run(main())


@pytest.mark.requirement("G-01")
def test_a_module_gives_its_own_public_functions(module: str) -> None:
    assert listed(module) == ["greet", "add"]
    assert listed(f"{module}:add") == ["add"]


def test_all_decides_where_a_module_has_it(module: str) -> None:
    assert module
    assert listed("shop_all") == ["dedent", "greet"]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("shop_missing", "cannot be imported: ModuleNotFoundError"),
        ("shop_broken", "OSError: no shop today"),
        ("shop_functions:nobody", "no function 'nobody'"),
        ("shop_stars", r"takes \*args"),
    ],
)
def test_what_cannot_be_loaded_is_said_with_the_servers_name(module: str, document: str, message: str) -> None:
    assert module
    with pytest.raises(ServerUnavailable, match=message) as caught:
        listed(document)
    assert caught.value.server == "shop"
    assert caught.value.next_action


def test_async_and_plain_functions_answer() -> None:
    async def add(a: int, b: int) -> int:
        return a + b

    def double(a: int) -> int:
        return 2 * a

    assert json.loads(bytes(ask([add, double], "add", {"a": 1, "b": 2}).result))["structuredContent"] == {"result": 3}
    assert text_of(ask([add, double], "double", {"a": 4})) == "8"


def test_plain_functions_run_beside_the_loop_with_the_callers_context() -> None:
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who")

    def tell() -> dict[str, Any]:
        return {"who": who.get(), "main": threading.current_thread() is threading.main_thread()}

    async def main() -> Outcome:
        who.set("mara")
        upstream = FunctionsUpstream.of("own", [tell])
        await upstream.open()
        return await upstream.call(tool_call("tell"), CONTEXT)

    assert json.loads(bytes(asyncio.run(main()).result))["structuredContent"] == {"who": "mara", "main": False}


def test_many_plain_functions_run_at_once() -> None:
    everybody = threading.Barrier(8, timeout=30)

    def meet() -> int:
        return everybody.wait()

    async def main() -> list[Outcome]:
        upstream = FunctionsUpstream.of("own", [meet])
        await upstream.open()
        return await asyncio.gather(*(upstream.call(tool_call("meet"), CONTEXT) for _ in range(8)))

    assert not any(outcome.is_error for outcome in asyncio.run(main()))


@pytest.mark.parametrize("error", [ValueError("no such order"), KeyError("id"), TimeoutError("slow"), SystemExit(3)])
@pytest.mark.parametrize("is_async", [False, True])
def test_an_exception_is_an_error_result_without_a_traceback(error: BaseException, is_async: bool) -> None:
    def plain() -> int:
        raise error

    async def awaited() -> int:
        raise error

    function: Function = awaited if is_async else plain
    outcome = ask([function], function.__name__)
    assert outcome.is_error
    assert text_of(outcome).endswith(f"{type(error).__name__}: {error}")
    assert "Traceback" not in text_of(outcome)


def test_wrong_arguments_and_unknown_tools_are_error_results() -> None:
    def take(count: int) -> None: ...

    wrong = ask([take], "take", {"count": "x"})
    assert wrong.is_error
    assert "`count`: expected `int`, got `str`" in text_of(wrong)
    assert "Usage: take(count)" in text_of(wrong)
    unknown = ask([take], "give")
    assert unknown.is_error
    assert "There are: take" in text_of(unknown)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_function_that_does_not_end_is_given_up(is_async: bool) -> None:
    release = threading.Event()

    def plain() -> None:
        release.wait(60)

    async def awaited() -> None:
        await asyncio.Event().wait()

    function: Function = awaited if is_async else plain
    try:
        with pytest.raises(ServerTimeout, match="did not end within"):
            ask([function], function.__name__, call_timeout_s=0.05)
    finally:
        release.set()


def test_functions_that_never_end_are_bounded_in_number() -> None:
    release = threading.Event()
    running = 0

    def wait() -> None:
        nonlocal running
        running += 1
        release.wait(60)

    async def main() -> None:
        upstream = FunctionsUpstream.of("own", [wait], call_timeout_s=0.2)
        await upstream.open()
        calls = [upstream.call(tool_call("wait"), CONTEXT) for _ in range(_MAX_THREADS + 8)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(result, ServerTimeout) for result in results)
        assert running <= _MAX_THREADS
        release.set()
        upstream.spec = replace(upstream.spec, call_timeout_s=None)
        assert not (await upstream.call(tool_call("wait"), CONTEXT)).is_error

    try:
        asyncio.run(main())
    finally:
        release.set()


def test_cancelling_a_call_goes_on_at_once() -> None:
    started, release = threading.Event(), threading.Event()

    def wait() -> None:
        started.set()
        release.wait(60)

    async def main() -> None:
        upstream = FunctionsUpstream.of("own", [wait])
        await upstream.open()
        task = asyncio.create_task(upstream.call(tool_call("wait"), CONTEXT))
        await asyncio.to_thread(started.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    try:
        asyncio.run(main())
    finally:
        release.set()


def test_two_functions_of_one_name_are_refused() -> None:
    def make() -> Function:
        def same() -> None: ...

        return same

    with pytest.raises(ConfigError, match="two functions would both be the tool 'same'"):
        FunctionsUpstream.of("own", [make(), make()])


def test_a_thread_that_cannot_be_started_costs_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many calls as there are turns fail for want of a thread; the next one runs."""

    def sum_of(a: int, b: int) -> int:
        """Adds."""
        return a + b

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> tuple[list[Outcome], Outcome]:
        upstream = FunctionsUpstream.of("f", [sum_of])
        await upstream.open()
        call = tool_call("sum_of", a=1, b=2)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            failed = [await upstream.call(call, CONTEXT) for _ in range(_MAX_THREADS)]
        return failed, await upstream.call(call, CONTEXT)

    failed, worked = asyncio.run(main())
    assert all("can't start new thread" in text_of(one) for one in failed)
    assert text_of(worked) == "3"
