"""Who is let into the console, what protects it, and that it can be used by everybody."""

import re
from pathlib import Path

import httpx2
import pytest
from console_kit import HOSTILE, KEY, PLAIN_KEY, WITH_KEYS, chromium, log_in, looking, served, shop, tool

from toolfold.testing.memory_upstream import MemoryUpstream

pytestmark = pytest.mark.requirement("G-07")


async def test_22_the_policy_of_a_page_lets_in_nothing_but_its_own_files(tmp_path: Path) -> None:
    async with served(tmp_path, [shop()]) as site, httpx2.AsyncClient(base_url=site.address) as client:
        page = await client.get("/")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert (page.headers["cache-control"], page.headers["x-content-type-options"]) == ("no-store", "nosniff")
        assert not re.search(r"<[^>]+\s(on\w+|style)=|<script(?![^>]*\ssrc=)|<style|https?://", page.text)
        cookie = page.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        for name in re.findall(r'(?:src|href)="(/console/static/[^"]+)"', page.text):
            asset = await client.get(name)
            assert (asset.status_code, "immutable" in asset.headers["cache-control"]) == (200, True), name
        for name in ("../app.py", "%2e%2e/app.py", "nothing.js"):
            assert not (await client.get(f"/console/static/x/{name}")).is_success
        assert (await client.get("/docs")).status_code == 200


async def test_22_a_form_of_another_page_changes_nothing(tmp_path: Path) -> None:
    async with served(tmp_path, [shop()], owner=True) as site, httpx2.AsyncClient(base_url=site.address) as client:
        page = await client.get("/")
        token = re.search(r'name="token" value="([^"]+)"', page.text)
        assert token is not None
        body = {"tool": "shop.cancel_order", "hide": "yes"}
        refused = [
            await client.post("/hide", data=body),
            await client.post("/hide", data={**body, "token": "x"}),
            await client.post("/hide", data={**body, "token": token[1]}, headers={"origin": "http://localhost:1"}),
            await client.post("/hide", data={**body, "token": token[1]}, headers={"sec-fetch-site": "same-site"}),
            await client.get("/", headers={"host": "evil.example"}),
            await client.get("/console/changes", headers={"sec-fetch-site": "cross-site"}),
        ]
        assert [answer.status_code for answer in refused] == [403] * len(refused)
        # A form of another browser's session is worth nothing here, either.
        async with httpx2.AsyncClient(base_url=site.address) as other:
            await other.get("/")
            assert (await other.post("/hide", data={**body, "token": token[1]})).status_code == 403
        assert "hide" not in site.config.read_text()
        done = await client.post("/hide", data={**body, "token": token[1]}, headers={"origin": site.address})
        assert done.status_code == 303
        assert "hide = true" in site.config.read_text()


async def test_22_a_key_lets_in_and_a_withdrawn_one_does_not(tmp_path: Path) -> None:
    async with (
        served(tmp_path, [shop()], WITH_KEYS) as site,
        chromium() as browser,
        looking(browser, site, expect=["401"]) as page,
    ):
        await page.goto("/")
        assert page.url.endswith("/log-in")
        await page.get_by_label("Key").fill("wrong")
        await page.get_by_role("button", name="Log in").click()
        await page.get_by_role("alert").wait_for()
        await log_in(page, KEY)
        assert await page.get_by_text("root · administrator").is_visible()
        [cookie] = await page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert KEY not in cookie["value"]
        site.config.write_text(site.config.read_text().replace(KEY, "another-key-of-the-administrator"))
        while not page.url.endswith("/log-in"):
            await page.goto("/")
        await log_in(page, "another-key-of-the-administrator")
        await page.get_by_role("button", name="Log out").click()
        await page.wait_for_url("**/log-in")
        await page.goto("/")
        assert page.url.endswith("/log-in")


async def test_22_a_caller_sees_what_its_policy_lets_through(tmp_path: Path) -> None:
    bank = MemoryUpstream("bank", [tool("pay_invoice")])
    async with served(tmp_path, [shop(), bank], WITH_KEYS) as site, chromium() as browser:
        async with looking(browser, site, expect=["403"]) as page:
            await log_in(page, PLAIN_KEY)
            text = await page.inner_text("main")
            assert "shop.find_order" in text
            assert "bank" not in text
            assert await page.get_by_role("button", name="Reconnect").count() == 0
            token = await page.locator("input[name=token]").first.get_attribute("value")
            answer = await page.request.post(
                "/hide", form={"token": token or "", "tool": "shop.find_order", "hide": "yes"}
            )
            assert answer.status == 403, await answer.text()
        steps = await site.gateway.audit_log.steps()
        assert [(one.caller, one.code) for one in steps if one.step == "admin"] == [("ann", "NOT_AUTHORIZED")]


async def test_22_a_person_can_choose_light_or_dark_and_use_the_keyboard_alone(tmp_path: Path) -> None:
    async with (
        served(tmp_path, [shop()]) as site,
        chromium() as browser,
        looking(browser, site, color_scheme="light") as page,
    ):
        await page.goto("/")
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.textContent") == "Skip to the page"
        await page.get_by_role("button", name="Switch to dark").focus()
        await page.keyboard.press("Enter")
        dark = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        await page.reload()
        assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
        assert await page.get_by_role("button", name="Switch to light").is_visible()


async def test_22_what_servers_say_is_text(tmp_path: Path) -> None:
    upstream = MemoryUpstream("shop", [tool("look", HOSTILE)])
    async with served(tmp_path, [upstream], owner=True) as site, chromium() as browser, looking(browser, site) as page:
        await page.goto("/")
        await page.goto("/unused?q=" + "%3Cimg src=x onerror=alert(1)%3E")
        assert await page.get_by_label("Part of an id").input_value() == "<img src=x onerror=alert(1)>"
