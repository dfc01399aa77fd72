"""`toolfold init`, `add`, `remove`, `enable` and `disable` change `toolfold.toml` in place and keep every comment."""

import json
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it ships no types
import pytest

import fork_server
from toolfold.__main__ import main
from toolfold.config import Settings
from toolfold.config.files import locked
from toolfold.config.reader import _TOP_LEVEL
from toolfold.config.schema import schema_text
from toolfold.config.servers import ALL_KEYS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TOOLFOLD_HOME", raising=False)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "home"


def file_of(home: Path) -> Path:
    return home / ".toolfold" / "toolfold.toml"


def test_17_06_init_writes_a_file_to_begin_with_once(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init"]) == 0
    file = file_of(home)
    assert file.read_text().startswith("#:schema ./toolfold.schema.json\n")
    assert Settings.load(require_servers=False).sources == (file,)
    assert file.with_name("toolfold.schema.json").read_text() == schema_text()
    file.write_text("# mine\n")
    assert main(["init"]) == 0
    assert "is there already, and stays as it is" in capsys.readouterr().out
    assert file.read_text() == "# mine\n"
    assert main(["init", "--project"]) == 0
    assert Path("toolfold.toml").is_file()


def test_17_06_add_takes_a_program_or_an_address(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["add", "git", "--env", "LEVEL=info", "--", "mcp-server-git", "--repository", "."]) == 0
    assert main(["add", "shop", "https://shop.example/mcp", "--header", "Authorization: Bearer ${SHOP_TOKEN}"]) == 0
    assert "set this before you go on: export SHOP_TOKEN=…" in capsys.readouterr().out
    assert tomllib.loads(file_of(home).read_text())["servers"] == {
        "git": {"command": "mcp-server-git", "args": ["--repository", "."], "env": {"LEVEL": "info"}},
        "shop": {"url": "https://shop.example/mcp", "headers": {"Authorization": "Bearer ${SHOP_TOKEN}"}},
    }


def test_17_06_add_warns_of_a_program_that_is_missing_and_still_writes(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["add", "x", "--", "no-such-program", "run"]) == 0
    assert "the program 'no-such-program' is not on PATH: install it" in capsys.readouterr().err
    assert "[servers.x]" in file_of(home).read_text()


def test_17_06_add_takes_an_openapi_document(home: Path) -> None:
    Path("api.json").write_text(json.dumps({"openapi": "3.0.0", "info": {"title": "x"}, "paths": {}}))
    assert main(["add", "inventory", "./api.json"]) == 0
    servers = tomllib.loads(file_of(home).read_text())["servers"]
    assert servers == {"inventory": {"openapi": str(Path("api.json").absolute())}}


def test_17_06_add_names_both_ways_of_a_python_file(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("tools.py").write_text("def look() -> str:\n    return ''\n")
    assert main(["add", "mine", "tools.py"]) == 0
    said = capsys.readouterr().err
    assert "--functions" in said
    assert f"python {Path('tools.py').absolute()}" in said
    assert "chmod" not in said


def test_21_a_folder_of_skills_is_added_by_its_path(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine/notes").mkdir(parents=True)
    Path("mine/notes/SKILL.md").write_text("---\nname: notes\ndescription: Notes.\nallowed-tools: Read\n---\n")
    assert main(["add", "team", "./mine"]) == 0
    servers = tomllib.loads(file_of(home).read_text())["servers"]
    assert servers == {"team": {"skills": str(Path("mine").absolute())}}
    capsys.readouterr()
    assert main(["expand", "skill:team.notes"]) == 0
    said = capsys.readouterr().out
    assert "skill skill://team/notes/SKILL.md" in said
    assert "names Read (not here)" in said


def test_17_06_edits_at_the_same_time_lose_nothing(home: Path) -> None:
    main(["init"])
    for number in range(4):
        main(["add", f"old{number}", "--", "true"])
    client = home / "client.json"
    client.write_text(json.dumps({"mcpServers": {"taken": {"command": "true"}}}))
    commands = [["add", f"new{number}", "--", "true"] for number in range(4)]
    commands += [["disable", "old0"], ["disable", "old1"], ["remove", "old2"], ["import", str(client), "--yes"]]
    running = [fork_server.Popen([sys.executable, "-m", "toolfold", *words]) for words in commands]
    assert [process.wait(60) for process in running] == [0] * len(running)
    servers = tomllib.loads(file_of(home).read_text())["servers"]
    assert sorted(servers) == sorted(["new0", "new1", "new2", "new3", "old0", "old1", "old3", "taken"])
    assert [servers[name].get("enabled", True) for name in ("old0", "old1", "old3")] == [False, False, True]
    assert not [path for path in file_of(home).parent.iterdir() if path.name.endswith((".lock", ".tmp"))]


def test_17_06_a_file_that_another_toolfold_keeps_busy_is_told_in_time(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["add", "x", "--", "true"])
    monkeypatch.setattr("toolfold.config.files._LOCK_S", 0.2)
    with locked(file_of(home)):
        assert main(["add", "y", "--", "true"]) == 2
    assert "another toolfold has been writing in" in capsys.readouterr().err
    assert main(["add", "y", "--", "true"]) == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["git", "--", "other"], "has a server `git` already"),
        (["me", "--", "python3", "-m", "toolfold", "serve"], "`me` is toolfold itself"),
        (["my server", "--", "x"], "Use `my-server`"),
        (["shop"], "toolfold add shop -- COMMAND"),
        (["shop", "https://"], "not an http or https address"),
        (["shop", "--env", "LEVEL", "--", "x"], "NAME=VALUE"),
    ],
)
def test_17_06_what_cannot_be_added_changes_nothing(
    home: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    main(["add", "git", "--", "mcp-server-git"])
    before = file_of(home).read_text()
    assert main(["add", *words]) == 2
    assert told in capsys.readouterr().err
    assert file_of(home).read_text() == before


def test_17_06_comments_and_order_stay_when_servers_are_switched_and_removed(home: Path) -> None:
    text = (
        "# my tools\r\n\r\n[servers.git] # the best\r\n# where it runs\r\ncommand = 'mcp-server-git'\r\n\r\n# shops\r\n"
        '[servers.shop]\r\nurl = "https://shop.example/mcp" # slow\r\n[servers.shop.headers]\r\nX = "1"\r\n\r\n'
        '# off for now\r\n[servers.old]\r\ncommand = "old"\r\nenabled = false # since May\r\n\r\n[limits]\r\n'
        "call_timeout_s = 5\r\n"
    )
    file = file_of(home)
    file.parent.mkdir(parents=True)
    file.write_bytes(text.encode())
    assert main(["disable", "GIT"]) == 0
    assert main(["enable", "old"]) == 0
    changed = text.replace("[servers.git] # the best\r\n", "[servers.git] # the best\r\nenabled = false\r\n")
    changed = changed.replace("enabled = false # since May", "enabled = true # since May")
    assert file.read_bytes().decode() == changed
    assert [spec.enabled for spec in Settings.load().servers] == [False, True, True]
    assert main(["remove", "shop"]) == 0
    start, end = changed.index("[servers.shop]"), changed.index("# off for now")
    assert file.read_bytes().decode() == changed[:start] + "\r\n" + changed[end:]
    (backup,) = file.parent.glob("*.bak")
    assert backup.read_bytes().decode() == changed


def test_17_06_what_is_written_inline_is_refused_and_left_alone(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = file_of(home)
    file.parent.mkdir(parents=True)
    file.write_text('[servers]\ngit = { command = "x" }\n')
    assert main(["disable", "git"]) == 2
    assert "Write it as [servers.git]" in capsys.readouterr().err
    assert main(["remove", "gti"]) == 2
    assert "Did you mean `git`?" in capsys.readouterr().err
    assert file.read_text() == '[servers]\ngit = { command = "x" }\n'


def registry_server(**parts: Any) -> dict[str, Any]:
    return {"name": "io.github.example/weather-mcp", "description": "Weather", "version": "1.0.0", **parts}


SECRET = {"name": "WEATHER_API_KEY", "isRequired": True, "isSecret": True}
CITY = {"type": "positional", "valueHint": "city", "isRequired": True}
NPM = {
    "registryType": "npm",
    "identifier": "@example/weather",
    "version": "1.2.3",
    "transport": {"type": "stdio"},
    "environmentVariables": [SECRET, {"name": "UNITS", "default": "metric"}, {"name": "PROXY_HOST"}],
    "packageArguments": [
        CITY,
        {"type": "named", "name": "--port", "default": "80"},
        {"type": "named", "name": "--all"},
    ],
}
OCI = {
    "registry_type": "oci",
    "identifier": "docker.io/example/weather",
    "version": "2",
    "runtime_arguments": [
        {
            "type": "named",
            "name": "--mount",
            "value": "type=bind,src={source_path},dst={target}",
            "variables": {"source_path": {"is_required": True}, "target": {"default": "/project"}},
        }
    ],
    "environment_variables": [{"name": "WEATHER_API_KEY", "is_secret": True}],
}
REMOTES = [
    {"type": "sse", "url": "https://weather.example/sse"},
    {
        "type": "streamable-http",
        "url": "https://weather.example/mcp",
        "headers": [{"name": "Authorization", "value": "Bearer {token}", "variables": {"token": {"isSecret": True}}}],
    },
]


@pytest.mark.parametrize(
    ("document", "table"),
    [
        (
            registry_server(packages=[NPM]),
            {
                "command": "npx",
                "args": ["-y", "@example/weather@1.2.3", "${WEATHER_MCP_CITY}", "--port", "80", "--all"],
                "env": {"WEATHER_API_KEY": "${WEATHER_API_KEY}", "UNITS": "metric"},
            },
        ),
        (
            {"server": registry_server(packages=[{"registryType": "pypi", "identifier": "weather", "version": "0.5"}])},
            {"command": "uvx", "args": ["weather@0.5"]},
        ),
        (
            registry_server(packages=[OCI]),
            {
                "command": "docker",
                "args": [
                    *("run", "-i", "--rm", "-e", "WEATHER_API_KEY"),
                    *(
                        "--mount",
                        "type=bind,src=${WEATHER_MCP_SOURCE_PATH},dst=/project",
                        "docker.io/example/weather:2",
                    ),
                ],
                "env": {"WEATHER_API_KEY": "${WEATHER_API_KEY}"},
            },
        ),
        (
            registry_server(remotes=REMOTES),
            {"url": "https://weather.example/mcp", "headers": {"Authorization": "Bearer ${WEATHER_MCP_TOKEN}"}},
        ),
    ],
    ids=["npm", "pypi", "oci", "remote"],
)
def test_17_06_add_reads_the_registrys_form(home: Path, document: dict[str, Any], table: dict[str, Any]) -> None:
    Path("server.json").write_text(json.dumps(document))
    assert main(["add", "server.json"]) == 0
    assert tomllib.loads(file_of(home).read_text())["servers"] == {"weather-mcp": table}
    assert main(["add", "mine", "server.json"]) == 0
    assert [spec.name for spec in Settings.load().servers] == ["weather-mcp", "mine"]


def test_17_06_a_strangers_file_gets_no_secret_of_the_person(home: Path) -> None:
    arguments = [
        {"type": "positional", "value": "${AWS_SECRET_ACCESS_KEY}"},
        {"type": "positional", "value": "${keyring:bank/pin}"},
        {"type": "positional", "value": "${x}", "variables": {"x": {"default": "{HOME}"}}},
        {"type": "positional", "value": "\0" + "0\0{x}", "variables": {"x": {"isRequired": True}}},
    ]
    package = {"registryType": "pypi", "identifier": "x${HOME}", "packageArguments": arguments}
    Path("server.json").write_text(json.dumps(registry_server(packages=[package])))
    assert main(["add", "w", "server.json"]) == 0
    args = tomllib.loads(file_of(home).read_text())["servers"]["w"]["args"]
    assert args == ["x$${HOME}", "$${AWS_SECRET_ACCESS_KEY}", "$${keyring:bank/pin}", "$${HOME}", "0${W_X}"]


@pytest.fixture
def registry() -> Iterator[str]:
    """A registry on loopback: one server, and one that never ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            if "endless" in self.path:
                with self.server.lock:  # type: ignore[attr-defined]
                    for _ in range(100):
                        try:
                            self.wfile.write(b" " * 100_000)
                        except OSError:
                            return
            else:
                self.wfile.write(json.dumps({"server": registry_server(remotes=REMOTES)}).encode())

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.lock = threading.Lock()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_17_06_add_downloads_the_registrys_form_within_bounds(
    home: Path, registry: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["add", f"{registry}/v0/servers/io.github.example%2Fweather-mcp/versions/latest"]) == 0
    assert Settings.load().servers[0].url == "https://weather.example/mcp"
    assert main(["add", "w", f"{registry}/endless.json"]) == 2
    assert "larger than 1,048,576 bytes" in capsys.readouterr().err
    assert main(["add", "plain", f"{registry}/mcp"]) == 0
    assert Settings.load().server("plain").url == f"{registry}/mcp"


def test_17_06_the_schema_is_made_from_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert set(schema["properties"]) == set(_TOP_LEVEL)
    assert set(schema["properties"]["servers"]["additionalProperties"]["properties"]) == set(ALL_KEYS)
    jsonschema.Draft7Validator.check_schema(schema)
    example = PAGE.read_text("utf-8").partition("```toml\n")[2].partition("```")[0]
    check = jsonschema.Draft7Validator(schema)
    keys = 'args = ["-x"]\nenv = { A = "b" }\ninherit_env = "C_*"\nenabled = true\nkeep_alive = true\n'
    assert list(check.iter_errors(tomllib.loads(f'[servers.a]\ncommand = "x"\n{keys}'))) == []
    assert list(check.iter_errors(tomllib.loads(example))) == []
    for wrong in (
        '[servers.a]\ncomand = "x"',
        '[servers.a]\ncommand = "x"\nurl = "https://x.example"',
        "[limits]\ncall_timeout_s = -1",
        '[audit]\nvalues = "all"',
        "[no_such_section]",
        '[servers.a]\ncommand = "x"\nenabled = "yes"',
    ):
        assert list(check.iter_errors(tomllib.loads(wrong))), wrong
    described = schema["properties"]["limits"]["properties"]["start_timeout_s"]
    assert described["description"].startswith("From starting a server")
    assert (described["default"], described["maximum"]) == (30.0, 3600)
