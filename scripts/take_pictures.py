"""Takes the pictures of the documentation: the real console, after the real demo, in a real browser without a window.

    .venv/bin/python scripts/take_pictures.py [DIR]          # default: docs/pictures, where the pages look for them

Needs Debian's `chromium`. Nothing is fetched from anywhere. `.ci/run` takes them anew on every change; whoever changes
the console looks at them and commits them.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Locator, Page, sync_playwright

from toolfold import Gateway, Settings
from toolfold.testing.scripted_model import ScriptedModel

ROOT = Path(__file__).resolve().parents[1]
SIZE = (1120, 700)
LARGEST, LARGEST_TOGETHER = 150_000, 1_500_000
WALK = urlencode({"caller": "local", "session": "demo"})
NEEDS = urlencode({"q": "who wrote this line of code, and when", "beside": "order a taxi to the airport"})


def _scroll_to(heading: Locator) -> None:
    heading.evaluate("it => window.scrollTo({top: it.getBoundingClientRect().top - 100, behavior: 'instant'})")


def _open_output(page: Page) -> None:
    page.locator("#stored a").first.click()
    page.locator("#question").fill("rows[3]")
    page.get_by_role("button", name="Ask").click()
    page.locator("#answer").wait_for()
    _scroll_to(page.locator("#ask"))


def _open_script(page: Page) -> None:
    page.get_by_role("link", name="forty_calls").first.click()
    page.wait_for_url("**/runs/script*")


def _open_run(page: Page) -> None:
    page.locator("a[href*='/runs/one']").first.click()
    page.wait_for_url("**/runs/one*")
    _scroll_to(page.get_by_role("heading", level=2).nth(1))


def _only_look(page: Page) -> None:
    pass


# A run of an agent on the real tools. What a model would say stands here: none is asked.
TASK = "How many orders are open, and who wrote the line with the period of the tide?"
ANSWERS = [
    {"type": "search", "query": "run one SELECT on the database"},
    {"type": "tool", "tool_id": "sqlite.query", "args": {"sql": "SELECT count(*) FROM orders WHERE status = 'open'"}},
    {"type": "tool", "tool_id": "git.blame", "args": {"path": "tides/core.py", "start": 7, "lines": 1}},
    {"type": "finish", "report": "47 orders are open. Mara Brandt wrote that line, on 13 March 2024.", "data": {}},
]


async def _run_agent(settings: Settings) -> None:
    model = ScriptedModel([json.dumps(answer) for answer in ANSWERS], calls_tools=False)
    async with Gateway(settings) as gateway:
        await gateway.agent(model=model).run(TASK)


# The name of each picture, the page it begins at, and what is done there.
PICTURES: dict[str, tuple[str, Callable[[Page], None]]] = {
    "home": ("/?range=24h", _only_look),
    "trace": (f"/traces/session?{WALK}", _only_look),
    "tree": ("/tree", _only_look),
    "search": (f"/search?{NEEDS}", _only_look),
    "schemas": ("/schemas?tool=git.show", _only_look),
    "output": ("/outputs", _open_output),
    "script": ("/runs", _open_script),
    "agent": ("/runs", _open_run),
}


@contextmanager
def _demo(folder: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """The address of the demo's console, and what adds a script and a run to it. None of it is of whoever runs this."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TOOLFOLD_", "XDG_"))}
    env["HOME"] = str(folder)
    kept, toolfold = folder / "kept", [sys.executable, "-m", "toolfold"]

    def add_programs() -> None:
        where = ["--config", str(kept / "toolfold.toml"), "--home", str(kept / "home")]
        script = str(ROOT / "examples" / "forty_calls.py")
        subprocess.run([*toolfold, *where, "scripts", "add", script], env=env, check=True, timeout=120)
        settings = Settings.load(kept / "toolfold.toml", home=kept / "home")
        with ThreadPoolExecutor(1) as thread:  # in this one the browser's loop runs
            thread.submit(asyncio.run, _run_agent(settings)).result()

    command = [*toolfold, "demo", "--keep", str(kept), "--serve", "--json"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as process:
        try:
            _, served = (json.loads(line) for line in islice(process.stdout or (), 2))
            yield served["url"], add_programs
        finally:
            process.terminate()


def take(address: str, add_programs: Callable[[], None], folder: Path) -> list[Path]:
    """Every picture as a file of the folder."""
    site, taken = address.partition("/enter/")[0], []
    with sync_playwright() as playwright:
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        if program is None:
            sys.exit("there is no chromium here: apt-get install chromium")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]}, color_scheme="light")
        page.set_default_timeout(60_000)
        page.goto(address)
        for name, (start, then) in PICTURES.items():
            if name == "script":
                add_programs()
            page.goto(site + start)
            then(page)
            page.wait_for_load_state("load")
            page.evaluate("document.fonts.ready")
            file = folder / f"{name}.png"
            page.screenshot(path=file, animations="disabled")
            taken.append(file)
        browser.close()
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "docs" / "pictures")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="toolfold-pictures-") as temporary, _demo(Path(temporary)) as demo:
        sizes = {file.name: file.stat().st_size for file in take(*demo, folder)}
    sys.stdout.writelines(f"{name}: {size:,} bytes\n" for name, size in sizes.items())
    return max(sizes.values()) > LARGEST or sum(sizes.values()) > LARGEST_TOGETHER


if __name__ == "__main__":
    raise SystemExit(main())
