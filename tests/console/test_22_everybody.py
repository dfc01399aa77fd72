"""Every page, for everybody: axe-core finds no violation in either theme, nothing is cut off on a phone, and each is
quick with ten thousand tools and a hundred thousand events."""

from pathlib import Path

import pytest
from console_kit import (
    HOSTILE,
    axe_script,
    chromium,
    looking,
    many_steps,
    served,
    session_steps,
    shop,
    tool,
    violations,
)
from playwright.async_api import Page

from toolfold.faces.console.pages import MENU
from toolfold.testing.memory_upstream import MemoryUpstream

pytestmark = pytest.mark.requirement("G-07")
PAGES = [address for address, _ in MENU]
MORE = [
    "/unused",
    "/traces/session?caller=local&session=stdio-1",
    "/traces/repeat?caller=local&session=stdio-1&step=4",
    "/search?q=find+an+order&beside=fly+to+the+moon",
    "/tree?path=Servers",
    "/tree/changes",
    "/schemas?tool=shop.find_order",
]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("filled", [False, True])
async def test_22_no_page_breaks_a_rule_of_accessibility(tmp_path: Path, theme: str, filled: bool) -> None:
    axe_script()
    upstreams = [shop(), MemoryUpstream("odd", [tool("look", HOSTILE)])] if filled else []
    async with served(tmp_path, upstreams, owner=True, build=filled) as site, chromium() as browser:
        if filled:
            await site.record([*session_steps(1), *session_steps(2, code="SERVER_TIMEOUT", tool_id="odd.look")])
        for width in (1280, 360):
            viewport = {"width": width, "height": 800}
            async with looking(browser, site, color_scheme=theme, viewport=viewport) as page:
                for address in [*PAGES, *(MORE if filled else ())]:
                    await page.goto(address)
                    assert await violations(page) == [], (address, width)
                    assert await page.evaluate("document.documentElement.scrollWidth") <= width, address


@pytest.mark.load
async def test_22_every_page_is_quick_with_ten_thousand_tools_and_a_hundred_thousand_events(tmp_path: Path) -> None:
    upstreams = [MemoryUpstream(f"s{number}", [tool(f"do_{at}") for at in range(1000)]) for number in range(10)]
    # Search takes in each new tool once, in 5 ms: that is no business of a page.
    async with served(tmp_path, upstreams, owner=True, index=False) as site, chromium() as browser:
        await site.record(many_steps(100_000, [f"s{number}.do_{at}" for number in range(10) for at in range(50)]))
        async with looking(browser, site) as page:
            await page.goto("/")  # what is counted and added up once, in the background
            await page.locator(".tile.main", has_text="%").wait_for()
            await page.locator(".tile", has_text="Calls").wait_for()
            while not (await site.gateway.audit_log.activity()).complete:
                await page.wait_for_timeout(100)
            slow = {}
            for address in PAGES:
                # The quickest of a few: other programs want the processor, too.
                took = min([await _load_ms(page, address) for _ in range(3)])
                if took >= 1_000:
                    slow[address] = took
            assert not slow


async def _load_ms(page: Page, address: str) -> float:
    await page.goto(address)
    return float(await page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))
