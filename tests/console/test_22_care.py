"""What a person is told before something is changed, and where: the risk of a call, and that one waits for a yes."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from console_kit import KEY, WITH_KEYS, chromium, log_in, looking, served, session_steps, tool
from msgspec import Raw
from msgspec.structs import replace

from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import Caller

pytestmark = pytest.mark.requirement("G-07")
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
RISKY: dict[str, dict[str, Any]] = {
    "look": {"annotations": {"readOnlyHint": True}},
    "drop": {"annotations": {"readOnlyHint": False, "destructiveHint": True}},
    "touch": {},
}


def risky() -> MemoryUpstream:
    return MemoryUpstream("shop", [tool(name, inputSchema=TEXT, **fields) for name, fields in RISKY.items()])


async def test_22_a_call_is_repeated_only_by_who_knows_what_it_may_do(tmp_path: Path) -> None:
    config = WITH_KEYS.replace("admin = true", 'admin = true\nconfirm = ["*.drop"]')
    async with served(tmp_path, [risky()], config) as site, chromium() as browser, looking(browser, site) as page:
        await log_in(page, KEY)
        root = Caller(name="root", policy="operators")
        for name, words, button, asks in (
            ("look", "only reads", "primary", False),
            ("drop", "may delete or overwrite something", "danger", True),
            ("touch", "its server does not say", "danger", False),
        ):
            await site.gateway.call_tool(f"shop.{name}", {"text": "x"}, caller=root, confirmed=True)
            await page.goto("/traces/session?caller=root&session=")
            assert await page.get_by_role("heading", name="Without a session").is_visible()
            await page.get_by_role("link", name="Repeat with other arguments").last.click()
            await page.get_by_text(words).wait_for()
            press = page.get_by_role("button", name=f"Call shop.{name}")
            assert await press.get_attribute("class") == button
            assert await page.get_by_text("pressing is it").count() == asks
            given = json.loads(await page.get_by_label("Arguments, as JSON").input_value())
            beside = page.get_by_role("group", name="Arguments that would fit")
            if name == "look":
                assert given.keys() == {"text"}
                assert await beside.count() == 0
            else:  # nothing that somebody made up is sent by pressing once
                assert given == {}
                assert json.loads(await beside.inner_text()).keys() == {"text"}
        await page.get_by_label("Arguments, as JSON").fill('{"text": "y"}')
        await press.click()
        await page.get_by_role("heading", name="It answered").wait_for()
        assert await press.get_attribute("class") == "danger"
        await page.goto("/traces/session?caller=root&session=")
        async with page.expect_download() as waiting:
            await page.get_by_role("link", name="Export").click()
        assert (await waiting.value).suggested_filename == "session.html"


async def test_22_every_page_says_that_a_call_waits_for_a_yes(tmp_path: Path) -> None:
    async def nobody_answers(method: str, params: Raw) -> Raw:
        await asyncio.get_running_loop().create_future()
        return Raw(b"{}")

    config = WITH_KEYS.replace('allow = ["shop.*"]', 'allow = ["shop.*"]\nconfirm = ["shop.drop"]')
    async with served(tmp_path, [risky()], config) as site, chromium() as browser, looking(browser, site) as page:
        await log_in(page, KEY)
        await page.goto("/runs")
        await page.get_by_text("live").wait_for()
        access = page.get_by_role("navigation", name="Pages").get_by_role("link", name="Access")
        assert (await access.inner_text()).strip() == "Access"
        call = asyncio.ensure_future(
            site.gateway.call_tool(
                "shop.drop",
                {"text": "all"},
                caller=Caller(name="ann", policy="shoppers", session="s-1"),
                capabilities=Raw(b'{"elicitation":{"form":{}}}'),
                on_input=nobody_answers,
            )
        )
        await page.get_by_role("link", name="Access 1 waiting for a yes").click()
        await page.get_by_role("region", name="Calls that wait for a yes").get_by_text("may delete").wait_for()
        await page.get_by_role("button", name="Allow the call of shop.drop").click()
        await page.get_by_role("status").get_by_text("Allowed").wait_for()
        assert not (await call).is_error
        await page.get_by_role("link", name="Access", exact=True).wait_for()


async def test_22_a_script_stands_before_the_calls_that_it_made(tmp_path: Path) -> None:
    async with served(tmp_path, [risky()], owner=True) as site, chromium() as browser, looking(browser, site) as page:
        call = replace(session_steps(1)[-1], seconds=0.1)
        script = replace(call, id="s", tool_id="toolbox.run_script", at=call.at - 0.1, seconds=0.5)
        await site.record([call, script])  # it is recorded when it ends
        await page.goto("/traces/session?caller=local&session=stdio-1")
        await page.locator(".trace > li").nth(1).wait_for()
        kinds = [text.split()[0] for text in await page.locator(".trace > li").all_inner_texts()]
        assert kinds == ["script", "call"]
