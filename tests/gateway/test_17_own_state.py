"""A gateway that a program makes from values keeps its state to itself: the person's catalogue is never touched."""

import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

import fork_server
from toolfold import BlockingGateway, Gateway, Settings
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import ServerSpec

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


async def weather(city: str) -> dict[str, str]:
    """Tells tomorrow's weather in a city."""
    return {"city": city, "sky": "clear"}


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's home with a built catalogue of one tool."""
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "mine.py").write_text('def mine() -> str:\n    """Is mine."""\n    return "mine"\n', encoding="utf-8")
    (home / "toolfold.toml").write_text('[servers.mine]\nfunctions = "mine"\n', encoding="utf-8")
    monkeypatch.setenv("TOOLFOLD_HOME", str(home))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(home)
    command = [sys.executable, "-m", "toolfold", "build", "--no-search"]
    fork_server.run(command, check=True, capture_output=True, timeout=60)
    return home


def persons_tools() -> list[str]:
    async def read() -> list[str]:
        async with Gateway(Settings.load(), create=False) as gateway:
            return [tool.tool_id for tool in await gateway.tools_below(())]

    return run(read())


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "settings",
    [
        Settings,
        lambda: Settings(servers=(ServerSpec(name="sums", transport="functions", document="statistics:mean"),)),
        Settings.load,
    ],
)
def test_17_03_a_program_never_writes_into_the_persons_catalogue(person: Path, settings: Any) -> None:
    before = files(person)

    async def program() -> None:
        async with Gateway(settings(), upstreams=[MemoryUpstream("shop", [add])]) as gateway:
            await gateway.build()
            assert "shop.add" in {tool.tool_id for tool in await gateway.tools_below(())}

    run(program())
    assert files(person) == before
    assert persons_tools() == ["mine.mine"]


def test_17_03_an_empty_gateway_wipes_nothing(person: Path) -> None:
    async def program() -> None:
        async with Gateway() as gateway:
            await gateway.build()

    run(program())
    assert persons_tools() == ["mine.mine"]


def test_17_03_functions_just_work() -> None:
    async def program() -> None:
        async with Gateway(functions=[add, weather]) as gateway:
            page = await gateway.search_tool_by_category("add two numbers")
            assert page["results"][0]["tool_id"] == "functions.add"
            outcome = await gateway.call_tool("functions.weather", {"city": "Bern"})
            assert b'"sky":"clear"' in bytes(outcome.result).replace(b" ", b"")

    run(program())


SCRIPT = 'import asyncio\nadd = use_tools("functions.add")\nprint(asyncio.run(add(a=1, b=2)))'


@pytest.mark.parametrize(
    ("first", "given", "found"),
    [
        ("tree", (), lambda tree: tree.tools == 1),
        ("inventory", (), lambda names: names["functions"] == ["add"]),
        ("descriptor", ("functions.add",), lambda descriptor: descriptor["server"] == "functions"),
        ("list", (), lambda page: page["nodes"]),
        ("run_script", (SCRIPT,), lambda result: result.stdout == "result=3\n"),
    ],
)
def test_17_03_whatever_is_asked_first_finds_the_functions(first: str, given: tuple[str, ...], found: Any) -> None:
    with Gateway(functions=[add]).blocking() as gateway:
        answer = getattr(gateway, first)(*given)
    assert found(answer), answer


def test_17_03_the_blocking_form_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    gateway = BlockingGateway(functions=[add])
    for _ in range(2):  # opened again it starts anew
        with gateway:
            assert gateway.call_tool("functions.add", {"a": 1, "b": 2}).is_error is False
            assert gateway.inventory()["functions"] == ["add"]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_17_03_told_where_it_keeps_its_state_there(tmp_path: Path) -> None:
    with BlockingGateway(Settings(home=tmp_path / "state"), functions=[add]) as gateway:
        gateway.build()
    assert (tmp_path / "state" / "toolfold.sqlite").is_file()
    with BlockingGateway(Settings(home=tmp_path / "state"), create=False) as gateway:
        assert [tool.tool_id for tool in gateway.tools_below(())] == ["functions.add"]
