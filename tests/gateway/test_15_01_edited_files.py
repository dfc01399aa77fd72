"""A file that tools are read from is edited while the gateway is open: an OpenAPI document, a module of functions."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from toolfold import Gateway, Settings
from toolfold.errors import ToolChanged, ToolNotFound
from toolfold.types import Outcome, ServerSpec

HEAD = """
openapi: 3.0.3
info: {title: Vans, version: "1"}
servers: [{url: "http://127.0.0.1:9"}]
paths:
"""
GET = """
  /vans/{plate}:
    get:
      operationId: getVan
      summary: One van by its number plate
      parameters: [{name: plate, in: path, required: true, schema: {type: string}}]
      responses: {"200": {description: ok}}
"""
FUEL = """
  /fuel:
    post: {operationId: NAME, summary: Enter a receipt, responses: {"200": {description: ok}}}
"""
LIGHT = '''
def switch_light(room: str) -> str:
    """Turn the lamps of a room on."""
    return "on"
'''
CAT = '''
def feed_cat(grams: int) -> str:
    """Let the feeder give the cat some food."""
    return "fed"
'''


def run(work: Callable[[Gateway], Awaitable[None]], home: Path, *servers: ServerSpec) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), Gateway(Settings(home=home, servers=servers)) as gateway:
            await gateway.build(index=False)
            await work(gateway)

    asyncio.run(main())


def write(file: Path, content: str) -> None:
    file.write_text(content, encoding="utf-8")


def text(outcome: Outcome) -> str:
    return bytes(outcome.result).decode()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    file = tmp_path / f"house_{uuid4().hex}.py"
    file.write_text(LIGHT)
    monkeypatch.syspath_prepend(tmp_path)
    yield file
    sys.modules.pop(file.stem, None)


def house(module: Path) -> ServerSpec:
    return ServerSpec(name="house", transport="functions", document=module.stem)


def test_15_01_an_edited_document_is_followed(tmp_path: Path) -> None:
    document = tmp_path / "vans.yaml"
    document.write_text(HEAD + GET + FUEL.replace("NAME", "logRefuel"))

    async def work(gateway: Gateway) -> None:
        assert (await gateway.expand_tool("vans.getVan"))["version"] == 1
        write(document, HEAD + GET.replace("plate", "number") + FUEL.replace("NAME", "logCharging"))
        assert (await gateway.tool("vans.logCharging")).version == 1
        with pytest.raises(ToolNotFound, match="vans listed it until"):
            await gateway.call_tool("vans.logRefuel", {})
        with pytest.raises(ToolChanged):
            await gateway.call_tool("vans.getVan", {"plate": "x"})
        assert b"number" in bytes((await gateway.expand_tool("vans.getVan"))["args_schema"])

    run(work, tmp_path, ServerSpec(name="vans", transport="openapi", document=str(document)))


def test_15_01_a_document_that_is_broken_by_an_edit_keeps_its_tools_and_says_so(tmp_path: Path) -> None:
    document = tmp_path / "vans.yaml"
    document.write_text(HEAD + GET)

    async def work(gateway: Gateway) -> None:
        write(document, "openapi: [")
        assert "could not be read the last time" in (await gateway.expand_tool("vans.getVan"))["may_be_old"]
        write(document, HEAD + GET + FUEL.replace("NAME", "logRefuel"))
        assert "may_be_old" not in await gateway.expand_tool("vans.logRefuel")

    run(work, tmp_path, ServerSpec(name="vans", transport="openapi", document=str(document)))


def test_15_01_an_edited_module_is_followed(tmp_path: Path, module: Path) -> None:
    async def work(gateway: Gateway) -> None:
        assert "on" in text(await gateway.call_tool("house.switch_light", {"room": "hall"}))
        write(module, LIGHT.replace('"on"', '"lit"') + CAT)
        assert "lit" in text(await gateway.call_tool("house.switch_light", {"room": "hall"}))
        assert "fed" in text(await gateway.call_tool("house.feed_cat", {"grams": 20}))
        write(module, CAT)
        with pytest.raises(ToolNotFound, match="house listed it until"):
            await gateway.call_tool("house.switch_light", {"room": "hall"})

    run(work, tmp_path, house(module))


@pytest.mark.parametrize("broken", ["def feed_cat(:", "raise SystemExit(3)", "def f(*args): ..."])
def test_15_01_a_module_that_is_broken_by_an_edit_goes_on_as_it_was(tmp_path: Path, module: Path, broken: str) -> None:
    async def work(gateway: Gateway) -> None:
        write(module, broken)
        shown = await gateway.expand_tool("house.switch_light")
        assert "could not be read the last time" in shown["may_be_old"]
        assert "on" in text(await gateway.call_tool("house.switch_light", {"room": "hall"}))
        write(module, LIGHT + CAT)
        assert "may_be_old" not in await gateway.expand_tool("house.feed_cat")

    run(work, tmp_path, house(module))


def test_15_01_an_edited_module_is_seen_without_a_call(tmp_path: Path, module: Path) -> None:
    async def work(gateway: Gateway) -> None:
        updated = asyncio.Event()
        gateway.events.subscribe(lambda _: updated.set(), only="catalogue.updated")
        write(module, LIGHT + CAT)
        await gateway.refresh()
        assert updated.is_set()
        assert [tool.tool_id for tool in await gateway.tools_below(())] == ["house.feed_cat", "house.switch_light"]

    run(work, tmp_path, house(module))
