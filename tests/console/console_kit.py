"""A console that is served in this process, and a real browser that looks at it."""

import asyncio
import os
import random
import shutil
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright

from toolfold import Settings
from toolfold.audit.record import Step, encode_step
from toolfold.faces.config_watch import ConfigWatch
from toolfold.faces.console import _console_routes
from toolfold.faces.http_api import make_app
from toolfold.faces.identity import Identities
from toolfold.faces.mcp_server.http import listening_socket, make_guard, run_site
from toolfold.gateway import Gateway
from toolfold.storage.base import AuditRow
from toolfold.testing.memory_upstream import MemoryUpstream

KEY, PLAIN_KEY = "a-key-of-the-administrator", "a-key-of-somebody-else"
# Text that would run, wherever a page took it for a part of itself.
HOSTILE = '<img src=x onerror="window.broken=1"><script>window.broken=1</script>{{ 7*7 }}\'"&'
WITH_KEYS = f"""
[callers.root]
key = "{KEY}"
policy = "operators"
[callers.ann]
key = "{PLAIN_KEY}"
policy = "shoppers"
[policy.operators]
admin = true
[policy.shoppers]
allow = ["shop.*"]
"""


def tool(name: str, description: str = "", **fields: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"text": {"type": "string", "description": description}}}
    return {"name": name, "description": description or f"Does {name} in the shop.", "inputSchema": schema, **fields}


def shop() -> MemoryUpstream:
    return MemoryUpstream("shop", [tool("find_order", "Finds an order of a customer."), tool("cancel_order")])


class Site:
    """A console that is up: where it is, and the gateway behind it."""

    def __init__(self, gateway: Gateway, address: str, config: Path) -> None:
        self.gateway = gateway
        self.address = address
        self.config = config

    async def record(self, steps: Iterable[Step]) -> None:
        rows = [
            AuditRow(
                at=one.at, caller=one.caller, session=one.session, selection=one.selection, record=encode_step(one)
            )
            for one in steps
        ]
        await self.gateway.store.append_audit(rows, keep=10**9)


@asynccontextmanager
async def served(
    home: Path,
    upstreams: Sequence[MemoryUpstream] = (),
    config: str = "",
    *,
    owner: bool = False,
    build: bool = True,
    index: bool = True,
) -> AsyncIterator[Site]:
    """The HTTP face with the console, on a free port, with a configuration that is followed."""
    file = home / "toolfold.toml"
    file.write_text(f'[ontology]\nfile = "ontology.toml"\n{config}')
    (home / "ontology.toml").touch()

    def load() -> Settings:
        return Settings.load(file, home=home / "state", require_servers=False)

    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(Gateway(load(), upstreams=upstreams))
        if build:
            await gateway.build(index=index)
        identities = Identities(gateway.settings)
        guard = make_guard("127.0.0.1", identities)
        bound = stack.enter_context(listening_socket("127.0.0.1", 0))
        app = make_app(gateway, guard, more=_console_routes(gateway, guard, owner=owner))
        stop = asyncio.Event()
        watching = asyncio.ensure_future(ConfigWatch(gateway, load, identities.reconfigure).run())
        serving = asyncio.ensure_future(run_site(app, bound, stop))
        try:
            yield Site(gateway, f"http://127.0.0.1:{bound.getsockname()[1]}", file)
        finally:
            watching.cancel()
            stop.set()
            await asyncio.gather(serving, watching, return_exceptions=True)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Debian's own. Skips the test where there is none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("there is no chromium here")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def looking(browser: Browser, site: Site, *, expect: Sequence[str] = (), **options: Any) -> AsyncIterator[Page]:
    """A page of a browser of its own. Whatever it complains of fails the test, but for what is expected; and so does
    a text that ran."""
    complaints: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not any(text in message.text for text in expect):
            complaints.append(message.text)

    context = await browser.new_context(base_url=site.address, **options)
    page = await context.new_page()
    page.on("console", heard)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.set_default_timeout(20_000)
    try:
        yield page
        assert await page.evaluate("window.broken") is None
        assert not complaints, complaints
    finally:
        await context.close()


async def log_in(page: Page, key: str) -> None:
    await page.goto("/")
    await page.get_by_label("Key").fill(key)
    await page.keyboard.press("Enter")
    await page.get_by_role("heading", name="Home").wait_for()


def axe_script() -> Path:
    """axe-core, where `.ci/run` installed it."""
    script = Path(os.environ.get("TOOLFOLD_TEST_NODE", "")) / "node_modules" / "axe-core" / "axe.min.js"
    if not os.environ.get("TOOLFOLD_TEST_NODE") or not script.exists():
        pytest.skip("axe-core is not installed: see .ci/run")
    return script


async def violations(page: Page) -> list[str]:
    """What axe-core finds wrong with the page as it is now."""
    if not await page.evaluate("'axe' in window"):
        # By the debugger: the page's own policy lets no script in.
        await page.evaluate(axe_script().read_text(encoding="utf-8") + ";0")
    found = await page.evaluate("axe.run(document, {resultTypes: ['violations']}).then((done) => done.violations)")
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]} {one['nodes'][0]['failureSummary']}" for one in found]


def session_steps(
    number: int, *, tool_id: str = "shop.find_order", caller: str = "local", at: float = 0.0, **call: Any
) -> list[Step]:
    """A search, a choice, an expansion and a call of one session."""
    at = at or time.time() - 60
    about: dict[str, Any] = {"caller": caller, "session": f"stdio-{number}"}
    chosen: dict[str, Any] = {**about, "selection": f"c{number}", "search": f"s{number}", "tool_id": tool_id}
    found: dict[str, Any] = {
        "results": (tool_id, "shop.cancel_order"),
        "confidence": (0.9, 0.2),
        "query": "find an order",
    }
    ended: dict[str, Any] = {"result_bytes": 800, "seconds": 0.05, "argument_bytes": 20, **call}
    return [
        Step(id=f"s{number}", step="search", at=at, shown_bytes=400, shown_tokens=100, **about, **found),
        Step(id=f"h{number}", step="choose", at=at + 0.1, query="find an order", rank=1, **chosen),
        Step(id=f"x{number}", step="expand", at=at + 0.2, version=1, shown_bytes=200, shown_tokens=50, **chosen),
        Step(id=f"a{number}", step="call", at=at + 0.3, version=1, **ended, **chosen),
    ]


def many_steps(count: int, tool_ids: Sequence[str]) -> list[Step]:
    """So many steps of a month, always the same."""
    chance = random.Random(1)
    started = time.time() - 29 * 86_400
    made: list[Step] = []
    for number in range(count // 4):
        at = started + number * 29 * 86_400 / (count / 4)
        steps = session_steps(number // 20, tool_id=chance.choice(tool_ids), at=at, seconds=chance.expovariate(20))
        made += [Step(**{**_fields(step), "id": f"{step.id}-{number}"}) for step in steps]
    return made


def _fields(step: Step) -> dict[str, Any]:
    return {name: getattr(step, name) for name in step.__struct_fields__}
