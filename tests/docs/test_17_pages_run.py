"""Every command and program in the README and on the pages of `docs/` runs as printed.

A page is one session: its blocks run in order, in a clean home and a folder of its own, which is what
`toolfold demo --keep` leaves, under git, unless the page prints a configuration of its own.

    ```sh                     commands, run by bash; the first that fails ends them
    ```python                 a program; with `>>>` a session of the prompt
    ```toml                   a part of a toolfold.toml: it must load
    ```toml toolfold.toml     a file of that name, in whatever language: the commands after it find it
    ```json                   must be JSON
    ```text ```markdown       something to read

`<!-- not run: WHY -->` above a block leaves it out: for a paid model, a service or a program of others.
"""

import doctest
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from toolfold import Settings
from toolfold.__main__ import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
READ_ONLY = {"text", "markdown"}
# A block at the end of a list item is indented with it.
FENCE = re.compile(
    r"(?:<!-- not run: (?P<why>[^>]+) -->\n)?^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
# Of the commands that are typed at a shell: an indented block of them would not be run.
COMMAND = re.compile(r"^    +(?:toolfold|python3?|pip|curl|git|uvx|pipx|npx|claude|codex) ", re.MULTILINE)


class Block(NamedTuple):
    language: str
    file: str
    text: str
    why_not: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        language, _, file = match["info"].strip().partition(" ")
        code = textwrap.dedent(match["text"])
        found.append(Block(language, file, code, match["why"] or "", text.count("\n", 0, match.start()) + 1))
    return found


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `toolfold demo --keep` leaves."""
    folder = tmp_path_factory.mktemp("demo") / "kept"
    assert main(["demo", "--keep", str(folder), "--json"]) == 0
    return folder


class Session:
    """The folder, the home and the servers of one page."""

    def __init__(self, folder: Path, home: Path, resources: ExitStack) -> None:
        self.folder = folder
        self.resources = resources
        program = Path(sys.executable).parent
        path = f"{program}:{os.environ['PATH']}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TOOLFOLD_", "XDG_"))}
        self.env = {**kept, "HOME": str(home), "PATH": path, "NO_COLOR": "1", "GIT_CONFIG_GLOBAL": os.devnull}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def run(self, command: list[str], where: str) -> None:
        done = subprocess.run(
            command,
            check=False,
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, f"{where}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"

    def accept(self) -> None:
        """What a person at a terminal answers when toolfold asks about a file that it did not write."""
        self.run([sys.executable, "-m", "toolfold", "trust", "--project"], "trust")

    def shell(self, text: str, where: str) -> None:
        # 8080 may be taken here; what goes on until it is stopped goes on behind the commands that follow.
        text = text.replace("8080", str(self.port))
        ready = f"http://127.0.0.1:{self.port}/healthz"
        waits = f"curl -s --retry 100 --retry-delay 1 --retry-connrefused -o served.txt {ready}"
        served = r"\g<0> >served.log 2>&1 & echo $! >>pids" + f"\n{waits}"
        text = re.sub(r"^toolfold serve --http [^\n#]*[^\n# ]", served, text, flags=re.MULTILINE)
        self.run(["bash", "-euo", "pipefail", "-c", text], where)
        with suppress(FileNotFoundError):
            for pid in (self.folder / "pids").read_text().split():
                self.resources.callback(_stop, int(pid))
            (self.folder / "pids").unlink()


def _stop(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


@pytest.fixture
def session(tmp_path: Path, kept: Path) -> Iterator[Session]:
    folder, home = tmp_path / "project", tmp_path / "home"
    shutil.copytree(kept, folder, ignore=shutil.ignore_patterns("home"))
    shutil.copytree(ROOT / "examples", folder / "examples")
    for git in (
        ["init", "-q"],
        ["add", "toolfold.toml"],
        ["-c", "user.name=Ann", "-c", "user.email=a@b.c", "commit", "-qm", "First"],
    ):
        subprocess.run(["git", *git], cwd=folder, check=True, timeout=60)
    servers = {"time": {"command": sys.executable, "args": ["-P", "-m", "toolfold.demo.files", str(folder)]}}
    for client in (".cursor/mcp.json", ".config/Claude/claude_desktop_config.json"):
        (home / client).parent.mkdir(parents=True)
        (home / client).write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    with ExitStack() as resources:
        new = Session(folder, home, resources)
        new.accept()
        yield new


@pytest.mark.timeout(300)  # a page is a session of up to thirty commands, each a process
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem)
def test_17_05_what_a_page_prints_runs(page: Path, session: Session) -> None:
    remembered: dict[str, object] = {}
    for block in blocks(page):
        where = f"{page.name}:{block.line}"
        if block.why_not:
            continue
        if block.file:
            (session.folder / block.file).write_text(block.text, encoding="utf-8")
            if block.file == "toolfold.toml":
                session.accept()
        elif block.language == "sh":
            session.shell(block.text, where)
        elif block.language == "python" and ">>> " in block.text:
            test = doctest.DocTestParser().get_doctest(block.text, remembered, where, where, 0)
            assert doctest.DocTestRunner().run(test, clear_globs=False).failed == 0
            remembered = test.globs
        elif block.language == "python":
            session.run([sys.executable, "-c", block.text], where)
        elif block.language == "toml":
            file = session.folder / "part.toml"
            file.write_text(block.text, encoding="utf-8")
            assert Settings.load(file, environ=session.env, require_servers=False).warnings == ()
        elif block.language == "json":
            json.loads(block.text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_17_05_every_block_says_what_it_is_and_every_command_stands_in_one(page: Path) -> None:
    known = READ_ONLY | {"sh", "python", "toml", "json", "yaml"}
    found = blocks(page)
    # The layout that the gates read stands in a block without a language.
    odd = [
        f"{block.line}: {block.language}"
        for block in found
        if block.language not in known and page.stem != "architecture"
    ]
    assert not odd
    assert not COMMAND.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    assert not [block.line for block in found if block.why_not and len(block.why_not.split()) < 3]


def test_17_05_nothing_tells_to_get_toolfold_from_an_index_it_is_not_in() -> None:
    for page in PAGES:
        assert not re.search(r"\b(uvx|pipx( run| install)?) toolfold\b", page.read_text(encoding="utf-8")), page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_22_a_program_of_the_examples_stands_on_a_page_as_it_lies_in_its_file(page: Path) -> None:
    for block in blocks(page):
        if block.file.startswith("examples/"):
            assert block.text == (ROOT / block.file).read_text(encoding="utf-8"), f"{page.name}:{block.line}"
