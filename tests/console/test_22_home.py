"""Home: what was saved and called, tools that nobody uses, and how the servers are."""

from pathlib import Path

import pytest
from console_kit import chromium, looking, served, session_steps, shop

from toolfold.errors import ServerUnavailable

pytestmark = pytest.mark.requirement("G-07")


async def test_22_a_first_visit_says_what_to_do(tmp_path: Path) -> None:
    async with served(tmp_path, build=False) as site, chromium() as browser, looking(browser, site) as page:
        await page.goto("/")
        assert await page.get_by_role("heading", name="Nothing is connected yet").is_visible()
        assert await page.get_by_text("toolfold import").is_visible()


async def test_22_home_says_what_was_saved_and_grows_as_it_happens(tmp_path: Path) -> None:
    async with served(tmp_path, [shop()]) as site, chromium() as browser, looking(browser, site) as page:
        await page.goto("/")
        assert await page.get_by_role("heading", name="No agent has asked for anything yet").is_visible()
        await page.get_by_text("live").wait_for()
        await site.record(
            [*session_steps(1, stored="h-1", stored_bytes=90_000), *session_steps(2, code="SERVER_TIMEOUT")]
        )
        await page.get_by_role("heading", name="Used most").wait_for()
        await page.get_by_text("1 failed").wait_for()
        top = page.get_by_role("region", name="Used most")
        assert "shop.find_order" in await top.inner_text()
        saved = await page.locator(".tile.main").inner_text()
        assert "%" in saved
        table = page.locator("details")
        await page.get_by_text("The figures as a table").click()
        assert await table.get_by_role("columnheader", name="without toolfold").is_visible()
        # What a person opened stays open when something new comes.
        await site.record(session_steps(3))
        await page.locator(".tile", has_text="Calls").get_by_text("3", exact=True).wait_for()
        assert await table.get_by_role("columnheader", name="without toolfold").is_visible()
        assert await page.locator(".plot canvas").count() == 3


async def test_22_a_tool_is_hidden_with_one_click_and_comes_back_with_another(tmp_path: Path) -> None:
    async with served(tmp_path, [shop()], owner=True) as site, chromium() as browser, looking(browser, site) as page:
        await page.goto("/")
        await page.get_by_role("button", name="Hide shop.cancel_order").focus()
        await page.keyboard.press("Enter")
        await page.get_by_role("status").get_by_text("shop.cancel_order is hidden").wait_for()
        assert "hide = true" in site.config.read_text()
        while "shop.cancel_order" in [one.tool_id for one in await site.gateway.tools_below(())]:
            await page.wait_for_timeout(50)
        await page.get_by_role("button", name="Undo").click()
        await page.get_by_role("status").get_by_text("shown again").wait_for()
        assert "hide" not in site.config.read_text()
        while "shop.cancel_order" not in [one.tool_id for one in await site.gateway.tools_below(())]:
            await page.wait_for_timeout(50)


async def test_22_a_server_that_failed_says_why_and_is_read_again(tmp_path: Path) -> None:
    upstream = shop()
    async with served(tmp_path, [upstream], owner=True) as site, chromium() as browser, looking(browser, site) as page:
        upstream.list_error = ServerUnavailable("the shop is closed", server="shop", next_action="open it")
        await page.goto("/")
        await page.get_by_role("button", name="Reconnect shop").click()
        await page.get_by_role("status").get_by_text("the shop is closed").wait_for()
        upstream.list_error = None
        await page.get_by_role("button", name="Reconnect shop").click()
        await page.get_by_role("status").get_by_text("shop was read anew").wait_for()
