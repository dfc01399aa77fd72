"""`toolfold doctor` tells the truth about what is broken: each state is made for real, and named with a fix."""

import json
import os
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import filed_stdio
import pytest

from toolfold.__main__ import main

TOOL = {
    "name": "find",
    "description": "Finds an order.",
    "inputSchema": {"type": "object", "properties": {"limit": {"type": "integer"}}},
}


class Broken:
    """A person's home and a configuration, in which one thing is broken."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.home = root, root / "state"
        self.config = root / "toolfold.toml"
        self.options: list[str] = []
        self._capsys = capsys
        self.environ = monkeypatch
        for name in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "TOOLFOLD_HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(root))
        monkeypatch.chdir(root)
        (root / "tools.json").write_text(json.dumps([TOOL]))
        self.write()

    def table(self, name: str = "shop", more: str = "") -> str:
        args = json.dumps([filed_stdio.__file__, str(self.root / "tools.json")])
        return f"[servers.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {args}\n{more}\n"

    def write(self, *more: str) -> None:
        self.config.write_text("\n".join((self.table(), *more)))
        self.config.chmod(0o600)

    def built(self, *more: str) -> None:
        self.write(*more)
        assert self.run("build", "--no-search")[0] in (0, 3)

    def run(self, *words: str) -> tuple[int, str, str]:
        code = main(["--config", str(self.config), "--home", str(self.home), *words])
        return code, *self._capsys.readouterr()

    def store(self) -> Path:
        return self.home / "toolfold.sqlite"

    def execute(self, *statements: str) -> None:
        with sqlite3.connect(self.store()) as connection:
            for statement in statements:
                connection.execute(statement)
        connection.close()

    def findings(self) -> list[dict[str, str]]:
        code, out, err = self.run("--json", "doctor", *self.options)
        assert out, err
        found: list[dict[str, str]] = json.loads(out)["findings"]
        assert code == (1 if any(finding["verdict"] == "wrong" for finding in found) else 0)
        return found


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Broken:
    return Broken(tmp_path, monkeypatch, capsys)


@pytest.fixture(autouse=True)
def _no_attacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sandbox has tests of its own, and takes a second."""
    monkeypatch.setattr("toolfold.faces.cli.doctor._check_sandbox", lambda *, verbose: ())


def dead_port() -> int:
    """A port that nobody answers at, and that nobody else is given: it stays taken as long as this process lives."""
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    port: int = taken.getsockname()[1]
    taken.detach()
    return port


class Refusing(BaseHTTPRequestHandler):
    def answer(self) -> None:
        self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST = do_DELETE = answer  # noqa: N815 - the names that the library looks for

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its own name
        del format, args


SERVERS: list[ThreadingHTTPServer] = []


@pytest.fixture(autouse=True)
def _stop_servers() -> Iterator[None]:
    yield
    while SERVERS:
        server = SERVERS.pop()
        server.shutdown()
        server.server_close()


def refusing(context: ssl.SSLContext | None = None) -> str:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    SERVERS.append(server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"{'https' if context else 'http'}://127.0.0.1:{server.server_address[1]}"


def program_without_permission(broken: Broken) -> None:
    program = broken.root / "server.sh"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o644)
    broken.write(f'[servers.x]\ncommand = "{program}"\n')


def untrusted(broken: Broken) -> None:
    certificate = broken.root / "own.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    files = ["-keyout", str(certificate) + ".key", "-out", str(certificate)]
    subprocess.run([*command, *files], check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, str(certificate) + ".key")
    broken.write(f'[servers.x]\nurl = "{refusing(context)}/mcp"\n')


def connect(broken: Broken, *more: str) -> None:
    broken.options = ["--connect"]
    broken.write(*more)


def folder_in_place_of_the_file(broken: Broken) -> None:
    broken.config.unlink()
    broken.config.mkdir()


def file_in_place_of_the_home(broken: Broken) -> None:
    broken.home.write_text("")


def corrupt(broken: Broken) -> None:
    broken.built()
    broken.store().write_bytes(b"SQLite format 3\0" + b"\xff" * 8192)
    for more in ("-wal", "-shm"):
        Path(f"{broken.store()}{more}").unlink(missing_ok=True)


def of_another_version(broken: Broken) -> None:
    broken.built()
    broken.execute("PRAGMA user_version = 999")


def stale(broken: Broken) -> None:
    broken.built()
    broken.write(broken.table("more"))


def cut_registry(broken: Broken) -> None:
    broken.built()
    registry = broken.home / "tool_registry.json"
    registry.write_bytes(registry.read_bytes()[:-5])


def damaged_trust(broken: Broken) -> None:
    broken.built()
    broken.execute("UPDATE state SET value = x'7b' WHERE namespace = 'trust'")


def locked_store(broken: Broken) -> None:
    broken.built()
    holder = sqlite3.connect(broken.store(), isolation_level=None, check_same_thread=False)
    holder.execute("PRAGMA journal_mode = DELETE")
    holder.execute("BEGIN EXCLUSIVE")
    LOCKS.append(holder)


LOCKS: list[sqlite3.Connection] = []


@pytest.fixture(autouse=True)
def _release() -> Iterator[None]:
    yield
    while LOCKS:
        LOCKS.pop().close()


def client_that_forgot(broken: Broken) -> None:
    cursor = broken.root / ".cursor" / "mcp.json"
    cursor.parent.mkdir()
    entry = {"command": sys.executable, "args": [filed_stdio.__file__, str(broken.root / "tools.json")]}
    text = json.dumps({"mcpServers": {"shop2": entry}})
    cursor.write_text(text)
    assert broken.run("import", "cursor", "--replace", "--yes")[0] == 0
    cursor.write_text(text)


def client_with_a_toolfold_that_is_gone(broken: Broken) -> None:
    cursor = broken.root / ".cursor" / "mcp.json"
    cursor.parent.mkdir()
    entry = {"command": str(broken.root / "venv/bin/toolfold"), "args": ["serve"]}
    cursor.write_text(json.dumps({"mcpServers": {"toolfold": entry}}))


def client_with_a_configuration_that_is_gone(broken: Broken) -> None:
    cursor = broken.root / ".cursor" / "mcp.json"
    cursor.parent.mkdir()
    args = ["-m", "toolfold", "--config", str(broken.root / "gone.toml"), "serve"]
    cursor.write_text(json.dumps({"mcpServers": {"toolfold": {"command": sys.executable, "args": args}}}))


def broken_record_of_imports(broken: Broken) -> None:
    broken.home.mkdir()
    (broken.home / "imports.json").write_text("{")


def written(name: str, text: str, *more: str) -> Callable[[Broken], None]:
    def make(broken: Broken) -> None:
        (broken.root / name).write_text(text)
        broken.write(*more)

    return make


def configured(*more: str) -> Callable[[Broken], None]:
    return lambda broken: broken.write(*more)


def built(*more: str) -> Callable[[Broken], None]:
    return lambda broken: broken.built(*more)


def plain_secret(broken: Broken) -> None:
    broken.write('[servers.x]\ncommand = "true"\nenv = { TOKEN = "sk-abcdefabcdefabcdefabcdef123456" }\n')
    broken.config.chmod(0o644)


PORT = dead_port()
URL = f"http://127.0.0.1:{PORT}"
X = "[servers.x]\n"
KEY = "k" * 20

# What is broken, what doctor must call it, about what, and words of what it says.
STATES: dict[str, tuple[Callable[[Broken], None], str, str, str]] = {
    "a program that is missing": (configured(X + 'command = "no-such-x"\n'), "wrong", "server x", "not on PATH"),
    "a path that is missing": (configured(X + 'command = "/no/such"\n'), "wrong", "server x", "is not there"),
    "a program not executable": (program_without_permission, "wrong", "server x", "may not be executed"),
    "a folder that is missing": (configured(X + 'command = "true"\ncwd = "no"\n'), "wrong", "server x", "its folder"),
    "a dead address": (
        configured(X + f'url = "{URL}/mcp"\n'),
        "wrong",
        "server x",
        f"nobody answers at 127.0.0.1:{PORT}",
    ),
    "a name that is nobody's": (configured(X + 'url = "http://no.invalid/"\n'), "wrong", "server x", "nobody answers"),
    "bad TLS": (untrusted, "wrong", "server x", "no TLS to trust"),
    "no TLS at all": (
        lambda broken: broken.write(X + f'url = "{refusing().replace("http:", "https:")}/mcp"\n'),
        "wrong",
        "server x",
        "no TLS to trust",
    ),
    "a secret that is not set": (
        configured(X + f'url = "{URL}"\nbearer_token = "${{NO_SUCH_TOKEN}}"\n'),
        "wrong",
        "server x",
        "NO_SUCH_TOKEN not set",
    ),
    "a secret that is refused": (
        lambda broken: connect(broken, X + f'url = "{refusing()}/mcp"\nbearer_token = "expired"\n'),
        "wrong",
        "server x, started",
        "401",
    ),
    "an env_file that is missing": (
        configured(X + 'command = "true"\nenv_file = "no.env"\n'),
        "wrong",
        "server x",
        "its env_file",
    ),
    "an OpenAPI file that is missing": (configured(X + 'openapi = "no.json"\n'), "wrong", "server x", "its document"),
    "an OpenAPI file that is broken": (
        written("api.json", "{", X + 'openapi = "api.json"\n'),
        "wrong",
        "server x",
        "api.json",
    ),
    "a module that is missing": (
        configured(X + 'functions = "no_such_package.tools"\n'),
        "wrong",
        "server x",
        "no Python module no_such_package.tools",
    ),
    "a file of functions that is missing": (
        configured(X + 'functions = "./no.py"\n'),
        "wrong",
        "configuration",
        "there is no file",
    ),
    "a file of functions that is no Python": (
        written("tools.py", "def (\n", X + 'functions = "./tools.py"\n'),
        "wrong",
        "server x",
        "is no Python",
    ),
    "a configuration that is no file": (
        folder_in_place_of_the_file,
        "wrong",
        "configuration",
        "is a directory",
    ),
    "a configuration with a mistake": (configured("[servers.y\n"), "wrong", "configuration", "toolfold.toml:"),
    "two servers of one name": (
        configured("[servers.SHOP]\ncommand = 'x'\n"),
        "wrong",
        "configuration",
        "same server name",
    ),
    "itself among the servers": (
        configured("[servers.me]\ncommand = 'toolfold'\nargs = ['serve']\n"),
        "mind",
        "configuration",
        "toolfold itself",
    ),
    "a variable that names no setting": (
        lambda broken: broken.environ.setenv("TOOLFOLD_LIMITS__NO_SUCH", "1"),
        "wrong",
        "configuration",
        "names no setting",
    ),
    "a home that is a file": (file_in_place_of_the_home, "wrong", "configuration", "is no folder"),
    "a home where nothing can be written": (
        lambda broken: setattr(broken, "home", Path("/proc/toolfold")),
        "wrong",
        "state folder",
        "nothing can be written",
    ),
    "a home that is a full device": (
        lambda broken: setattr(broken, "home", Path("/dev/full")),
        "wrong",
        "configuration",
        "is no folder",
    ),
    "no folder for outputs": (
        configured('[outputs]\ndirectory = "/proc/outputs"\n'),
        "wrong",
        "outputs",
        "nothing can be written",
    ),
    "a catalogue that is corrupt": (corrupt, "wrong", "catalogue", "toolfold.sqlite"),
    "a catalogue of another version": (of_another_version, "wrong", "catalogue", "newer toolfold"),
    "a catalogue that is stale": (stale, "mind", "catalogue", "more is new"),
    "no catalogue": (configured(), "mind", "catalogue", "there is no catalogue"),
    "a catalogue that is locked": (locked_store, "wrong", "catalogue", "toolfold.sqlite"),
    "a build that failed": (
        built(X + 'command = "true"\n'),
        "wrong",
        "server x",
        "failed when it was last read",
    ),
    "a registry that is cut": (cut_registry, "mind", "registry", "is cut"),
    "trust that is damaged": (damaged_trust, "wrong", "trust", "what was accepted of shop"),
    "a broken ontology": (
        written("o.toml", "[[moove]]\n", '[ontology]\nfile = "o.toml"\n'),
        "wrong",
        "ontology",
        "o.toml",
    ),
    "a missing ontology": (configured('[ontology]\nfile = "o.toml"\n'), "wrong", "configuration", "there is no file"),
    "a policy that fits nothing": (
        built("[policy.default]\ndeny = ['shpo.*']\n"),
        "mind",
        "pattern",
        '[policy.default] deny: "shpo.*" fits no tool',
    ),
    "a subset that fits nothing": (built("[subsets.a]\ntools = ['shpo.*']\n"), "mind", "pattern", "[subsets.a]"),
    "a rule that fits nothing": (built("[tools.'shop.fnid']\nhide = true\n"), "mind", "pattern", '"shop.fnid"'),
    "a pin that fits nothing": (built("[discovery]\npin = ['shop.fnid']\n"), "mind", "pattern", "[discovery] pin"),
    "a risk that is misspelt": (
        configured("[policy.default]\nconfirm = ['risk:destuctive']\n"),
        "wrong",
        "configuration",
        "Did you mean `risk:destructive`",
    ),
    "a fixed value that does not fit": (
        built("[tools.'shop.find']\nfixed = { limit = 'many' }\n"),
        "mind",
        "server shop",
        "refuses what [tools] fixes for 'limit'",
    ),
    "a fixed value that it does not take": (
        built("[tools.'shop.find']\nfixed = { limti = 3 }\n"),
        "mind",
        "server shop",
        "takes no 'limti'",
    ),
    "a group that nobody is in": (
        configured("[tools.'shop.*']\naccess = ['admins']\n"),
        "mind",
        "callers",
        "no caller is in admins",
    ),
    "a caller whose key is not set": (
        configured('[callers.ann]\nkey = "${NO_SUCH_KEY}"\n'),
        "wrong",
        "callers",
        "NO_SUCH_KEY not set",
    ),
    "a plain secret": (plain_secret, "mind", "secrets", "plain text in [servers.x]"),
    "a plain secret that others can read": (plain_secret, "mind", "secrets", "others on this machine can read"),
    "a plain key of a caller": (configured(f'[callers.ann]\nkey = "{KEY}"\n'), "mind", "secrets", "[callers.ann]"),
    "a model whose key is not set": (
        configured(f'[model]\nname = "openai-compatible:m"\nbase_url = "{URL}/v1"\nkey = "${{NO_SUCH_KEY}}"\n'),
        "wrong",
        "model",
        "NO_SUCH_KEY not set",
    ),
    "a model that does not answer": (
        lambda broken: connect(broken, f'[model]\nname = "openai-compatible:m"\nbase_url = "{URL}/v1"\n'),
        "wrong",
        "model",
        "nobody answers",
    ),
    "a model that refuses the key": (
        lambda broken: connect(
            broken, f'[model]\nname = "openai-compatible:m"\nbase_url = "{refusing()}/v1"\nkey = "expired"\n'
        ),
        "wrong",
        "model",
        "refuses the key",
    ),
    "scripts without a sandbox": (configured("[scripts]\nunsafe = true\n"), "mind", "sandbox", "scripts.unsafe"),
    "a client that no longer starts toolfold": (client_that_forgot, "mind", "client", "no longer starts toolfold"),
    "a client whose toolfold is gone": (client_with_a_toolfold_that_is_gone, "wrong", "client", "is not there"),
    "a client whose configuration is gone": (
        client_with_a_configuration_that_is_gone,
        "wrong",
        "client",
        "gone.toml is not there",
    ),
    "a record of imports that is broken": (broken_record_of_imports, "wrong", "import", "record of imports"),
    "a server that is disabled": (
        configured(X + 'command = "true"\nenabled = false\n'),
        "mind",
        "server x",
        "disabled",
    ),
}
# What nobody but whoever wrote it can mend, or what needs no mending.
NO_FIX = {"itself among the servers", "a server that is disabled"}


@pytest.mark.parametrize("name", STATES)
def test_17_doctor_names_what_is_broken_and_says_what_to_do(broken: Broken, name: str) -> None:
    make, verdict, subject, text = STATES[name]
    make(broken)
    found = broken.findings()
    fitting = [
        finding for finding in found if finding["subject"] == subject and text in finding["text"] + finding["fix"]
    ]
    assert [finding["verdict"] for finding in fitting] == [verdict], json.dumps(found, indent=1)
    assert fitting[0]["fix"] or name in NO_FIX or subject.startswith("server shop"), fitting


def test_17_doctor_finds_nothing_where_nothing_is_broken(broken: Broken) -> None:
    broken.built(
        "[tools.'shop.find']\nname = 'look'\nfixed = { limit = 3 }\nrisk = ['money']\n",
        "[policy.default]\nconfirm = ['risk:money', 'risk:read*', 'shop.*']\n",
    )
    assert {finding["verdict"] for finding in broken.findings()} == {"well"} or os.geteuid() == 0
    assert [finding for finding in broken.findings() if finding["verdict"] == "wrong"] == []


def test_17_doctor_does_not_call_hidden_and_renamed_tools_gone(broken: Broken) -> None:
    other = {**TOOL, "name": "drop"}
    (broken.root / "tools.json").write_text(json.dumps([TOOL, other]))
    broken.built("[tools.'shop.find']\nname = 'look'\n[tools.'shop.drop']\nhide = true\n")
    assert [finding["text"] for finding in broken.findings() if finding["subject"] == "pattern"] == []
    code, _, err = broken.run("call", "shop.find", "{}")
    assert code == 4
    assert "'shop.find' is called shop.look here, by the owner's [tools]" in err
