"""Pages of others press no button: of a caller's sign-in, at its begin and at its end; and a real browser may."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urljoin

import httpx2
import pytest
from provider import Form, Provider, provider
from sign_in_kit import Browser, Chromium, MarkedHttp, write_config
from test_18_elicitation import served

FOREIGN = {
    "another port": {"Origin": "http://127.0.0.1:9999", "Sec-Fetch-Site": "same-site"},
    "another site": {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
    "a page that hides": {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
    "no origin": {"Sec-Fetch-Site": "same-site"},
    "nonsense": {"Origin": "http://["},
}
OWNER = {"Authorization": "Bearer key-of-eve-0123456789"}


@pytest.fixture(scope="module")
def issuer() -> Iterator[Provider]:
    with provider() as running:
        yield running


@asynccontextmanager
async def asked(issuer: Provider, folder: Path) -> AsyncIterator[tuple[httpx2.AsyncClient, str]]:
    """A client of a gateway on plain http, and the address that it gave out for the caller eve."""
    async with MarkedHttp(issuer=issuer.issuer, keys=await issuer.keys()) as server:
        more = 'credentials = "caller"\n[callers.eve]\nkey = "key-of-eve-0123456789"'
        with served(folder, write_config(folder, server.url, more)) as base:
            async with httpx2.AsyncClient(base_url=base, trust_env=False, timeout=60) as http:
                yield http, (await http.post("/v1/sign-ins/box", headers=OWNER)).json()["url"]


def button(page: httpx2.Response) -> str:
    form = Form()
    form.feed(page.text)
    assert form.action, page.text
    return urljoin(str(page.url), form.action)


async def signed_in(http: httpx2.AsyncClient) -> list[str]:
    return [one["server"] for one in (await http.get("/v1/sign-ins", headers=OWNER)).json()["sign_ins"]]


async def test_a_page_of_others_presses_no_button(issuer: Provider, tmp_path: Path) -> None:
    """The cookie and the proof are another's own: they were planted in the browser that follows."""
    async with asked(issuer, tmp_path) as (http, url):
        first = button(await http.get(url))
        for who, headers in FOREIGN.items():
            assert (await http.post(first, headers=headers)).status_code == 403, who
        own = {"Origin": str(http.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
        there = (await http.post(first, headers=own)).headers["location"]
        # Who planted the cookie may have pressed the first one: what leads here afterwards stores nothing by itself.
        page = await http.get(await issuer.visit(there, "victim"))
        assert "will be used by the caller “eve”" in page.text
        second = button(page)
        for who, headers in FOREIGN.items():
            assert (await http.post(second, headers=headers)).status_code == 403, who
        assert await signed_in(http) == []
        assert "Signed in" in (await http.post(second, headers=own)).text
        assert await signed_in(http) == ["box"]
        assert (await http.post(second, headers=own)).status_code == 404


async def test_a_person_in_chromium_signs_in_on_the_pages(issuer: Provider, tmp_path: Path) -> None:
    """What a browser says of our own forms is taken for ours."""
    async with asked(issuer, tmp_path) as (http, url), Chromium(tmp_path / "chromium-profile") as chromium:
        await chromium.open(url)
        await chromium.press()
        await chromium.fill_in({"login": "eve", "password": "x"})
        await chromium.press("form:not(:has(input[name=login])) button")
        await chromium.text("Is this yours?")
        await chromium.press()
        await chromium.text("You are signed in to box")
        assert await signed_in(http) == ["box"]


async def test_over_stdio_pages_of_others_press_nothing_either(issuer: Provider, tmp_path: Path) -> None:
    from test_18_elicitation import conversation

    async with conversation(issuer, tmp_path, "caller") as (_, gateway), Browser(issuer) as browser:
        begun = await gateway.upstreams.credentials.sign_ins.begin("box", "local")
        first = button(await browser._client.get(begun.url))
        for who, headers in FOREIGN.items():
            assert (await browser._client.post(first, headers=headers)).status_code == 403, who
        # The only caller is the one who sits here: the first button is enough.
        assert "Signed in" in await browser.sign_in(begun.url, "ada")
        async with asyncio.timeout(30):
            assert await begun.done is not None
