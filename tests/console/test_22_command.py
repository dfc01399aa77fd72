"""`toolfold console` as a person runs it: an address that lets in once, and nobody else."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from console_kit import chromium
from served_config import Served

pytestmark = pytest.mark.requirement("G-07")


@contextmanager
def started(served: Served) -> Iterator[str]:
    """The command, and the address that it printed."""
    command = [sys.executable, "-m", "toolfold", "--config", str(served.config), "--home", str(served.home)]
    with subprocess.Popen(
        [*command, "console", "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()
            assert process.wait(20) == 0


async def test_22_the_command_prints_an_address_that_lets_in_one_browser(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.write(served.table("shop", "buy"))
    with started(served) as address:
        site = address.partition("/enter/")[0]
        assert site.startswith("http://127.0.0.1:")
        # Whoever has not been there is let in nowhere.
        async with httpx2.AsyncClient(base_url=site) as client:
            assert (await client.get("/")).headers["location"] == "/log-in"
            assert (await client.get("/v1/servers")).status_code == 401
            assert (await client.get("/enter/guessed")).status_code == 403
        async with chromium() as browser:
            page = await browser.new_page()
            await page.goto(address)
            await page.get_by_role("heading", name="Home").wait_for()
            await page.get_by_role("button", name="Reconnect shop").wait_for()
            assert await page.get_by_text("local · administrator").is_visible()
            await page.reload()
            assert await page.get_by_role("heading", name="Home").is_visible()
            # Who is in goes on; nobody else does.
            await page.goto(address)
            assert page.url == f"{site}/"
            assert await page.get_by_role("heading", name="Home").is_visible()
            async with httpx2.AsyncClient() as client:
                assert (await client.get(address)).status_code == 403
