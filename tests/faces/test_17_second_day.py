"""What somebody meets after the first hour: odd results, files that change under a gateway, things stopped half way."""

import asyncio
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import filed_stdio
import pytest

import fork_server
from toolfold.config.files import create_backup
from toolfold.errors import ConfigError
from toolfold.faces.cli.parser import parse
from toolfold.faces.cli.server_lines import _Lines
from toolfold.telemetry.server_logs import ServerLogs

SCHEMA = {"type": "object", "properties": {}}
NOTE = "the text of the note\nsecond line"
RESULTS: dict[str, Any] = {
    "note": [{"type": "resource", "resource": {"uri": "note://1", "mimeType": "text/plain", "text": NOTE}}],
    "bare_note": [{"type": "resource", "resource": {"uri": "note://1", "text": NOTE}}],
    "link": [{"type": "resource_link", "uri": "https://example.org/report", "name": "report"}],
    "both": [{"type": "text", "text": "found it:"}, {"type": "resource", "resource": {"uri": "n://1", "text": NOTE}}],
}

Done = subprocess.CompletedProcess[str]


class Place:
    """A home with a configuration of its own, and a shell in it."""

    def __init__(self, root: Path) -> None:
        self.root, self.config = root, root / ".toolfold" / "toolfold.toml"
        self.config.parent.mkdir()
        self.env = {"HOME": str(root), "PATH": os.environ["PATH"]}

    def serve_file(self, name: str, tools: dict[str, Any], more: str = "") -> None:
        """Adds a server of these tools, each with what it answers."""
        file = self.root / f"{name}.json"
        listed = [
            {"name": tool, "description": f"Gets the {tool}.", "inputSchema": SCHEMA, "answer": answer}
            for tool, answer in tools.items()
        ]
        file.write_text(json.dumps(listed))
        args = json.dumps([filed_stdio.__file__, str(file)])
        with self.config.open("a") as config:
            config.write(f"[servers.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {args}\n{more}\n")
        self.config.chmod(0o600)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "toolfold", *words]

    def run(self, *words: str, code: int | None = 0, **more: Any) -> Done:
        options = {"cwd": self.root, "env": self.env, "capture_output": True, "text": True, "timeout": 90, **more}
        done: Done = fork_server.run(self.command(*words), check=False, **options)
        assert code is None or done.returncode == code, f"{words}\n{done.stdout}\n{done.stderr}"
        return done


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_text_resources_and_links_are_text_on_every_face(place: Place) -> None:
    place.serve_file("n", {name: {"content": blocks} for name, blocks in RESULTS.items()})
    assert place.run("call", "n.note").stdout == f"{NOTE}\n"
    assert place.run("call", "n.bare_note").stdout == f"{NOTE}\n"
    assert place.run("call", "n.link").stdout == "https://example.org/report\n"
    place.run("call", "n.note", "--save", "saved")
    assert (place.root / "saved").read_text() == NOTE
    script = "from toolfold import use_tools\n" + "".join(
        f"{name} = use_tools('n.{name}')\nprint(repr((await {name}()).text))\n" for name in RESULTS
    )
    (place.root / "s.py").write_text(script)
    printed = place.run("run", "s.py").stdout.splitlines()
    expected = [NOTE, NOTE, "https://example.org/report", f"found it:\n{NOTE}"]
    assert [line for line in printed if line in map(repr, expected)] == [repr(text) for text in expected], printed
    (place.root / "p.py").write_text(
        "import toolfold\nwith toolfold.BlockingGateway(toolfold.Settings.load()) as gateway:\n"
        "    print(repr(gateway.call_tool('n.both', {}).text))\n"
    )
    text = subprocess.check_output([sys.executable, "p.py"], cwd=place.root, env=place.env, text=True, timeout=60)
    assert text.strip() == repr(f"found it:\n{NOTE}")


def test_an_empty_result_is_saved_as_nothing_and_an_error_without_words_is_told(place: Place) -> None:
    place.serve_file("n", {"nothing": {"content": []}, "bad": {"content": [], "isError": True}})
    place.run("call", "n.nothing", "--save", "saved")
    assert (place.root / "saved").read_bytes() == b""
    assert "did not say why" in place.run("call", "n.bad", code=1).stderr


def client(place: Place, name: str, text: str | dict[str, Any]) -> Path:
    path = place.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if isinstance(text, str) else json.dumps(text, indent=2))
    return path


def files_server(place: Place) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-m", "toolfold.demo.files", str(place.root)]}


BROKEN = '{"mcpServers":{"a":{"command":"echo"'


def test_a_client_file_that_cannot_be_read_stops_a_replacement_before_anything_is_written(place: Place) -> None:
    broken = client(place, ".cursor/mcp.json", BROKEN)
    alone = place.run("import", "cursor", "--yes", "--replace", code=2)
    assert "claude-desktop" not in alone.stderr, "only cursor was asked for"
    good = client(place, ".gemini/settings.json", {"mcpServers": {"files": files_server(place)}})
    before = good.read_bytes()
    both = place.run("import", "--yes", "--replace", code=2)
    assert "nothing is replaced" in both.stderr
    assert str(broken.relative_to(place.root)) in both.stderr
    assert good.read_bytes() == before
    assert not place.config.exists()
    place.run("import", "cursor", "--yes", code=2)
    client(place, ".cursor/mcp.json", {"mcpServers": {"a": {"command": 7}}})
    nothing = place.run("import", "cursor", "--yes", code=2)
    assert "0 of 1 servers would be added" in nothing.stdout


def test_vs_code_goes_on_asking_for_the_inputs_of_servers_that_toolfold_takes_over(place: Place) -> None:
    entry = {"type": "stdio", **files_server(place), "env": {"WEATHER_KEY": "${input:weather-key}"}}
    inputs = [{"type": "promptString", "id": "weather-key", "description": "key", "password": True}]
    path = client(place, ".config/Code/User/mcp.json", {"inputs": inputs, "servers": {"weather": entry}})
    before = path.read_bytes()
    place.env["TOOLFOLD_INPUT_WEATHER_KEY"] = "k"
    done = place.run("import", "vscode", "--yes", "--replace")
    written = json.loads(path.read_text())["servers"]["toolfold"]
    assert written["env"] == {"TOOLFOLD_INPUT_WEATHER_KEY": "${input:weather-key}"}
    assert "TOOLFOLD_INPUT_WEATHER_KEY" in done.stdout + done.stderr, "other clients need it, too"
    place.run("import", "--undo")
    assert path.read_bytes() == before


def test_what_an_import_says_is_true_when_it_says_it(place: Place) -> None:
    commented = '{"mcpServers": {\n // mine\n "files": ' + json.dumps(files_server(place)) + "}}"
    client(place, ".cursor/mcp.json", commented)
    refused = place.run("import", "cursor", "--yes", "--replace", code=2)
    assert "are added" not in refused.stdout
    assert "1 of 1 servers would be added" in refused.stdout
    done = place.run("import", "cursor", "--yes", "--replace", "--drop-comments")
    assert "start the clients anew" in done.stdout


def test_a_server_of_one_project_of_claude_code_is_told_as_such(place: Place) -> None:
    project = place.root / "proj"
    project.mkdir()
    secret = {**files_server(place), "env": {"API_KEY": "sk-0123456789abcdef0123456789abcdef"}}
    mine = {
        "mcpServers": {"everywhere": files_server(place)},
        "projects": {str(project): {"mcpServers": {"db": secret}}},
    }
    client(place, ".claude.json", mine)
    elsewhere = place.run("import", "claude-code")
    assert "db of ~/proj is left out" in elsewhere.stderr
    there = place.run("import", "claude-code", "--yes", cwd=project)
    assert "(local)" in there.stdout
    assert f"db: its client has it for {project} alone" in there.stderr
    place.run("remove", "db")
    undone = place.run("import", "--undo")
    assert "copies of it are left, with the secrets" in undone.stderr
    [copy] = place.config.parent.glob("toolfold.toml.*.bak")
    assert copy.name in undone.stderr


# Dies where it would put the file of a number into its place, with what it wrote so far beside it.
DIES = """
import os, pathlib, sys
left = [int(sys.argv[1])]
put = pathlib.Path.replace
def replace(path, target):
    left[0] -= 1
    return put(path, target) if left[0] else os._exit(9)
pathlib.Path.replace = replace
from toolfold.__main__ import main
sys.exit(main(sys.argv[2:]))
"""


REPLACE = "cursor --yes --replace"


@pytest.mark.parametrize(("number", "words"), [(1, REPLACE), (3, REPLACE), (1, "--undo")])
def test_an_import_that_is_killed_leaves_nothing_after_the_next_one(place: Place, number: int, words: str) -> None:
    path = client(place, ".cursor/mcp.json", {"mcpServers": {"files": files_server(place)}})
    before = path.read_bytes()
    if words == "--undo":
        place.run("import", "cursor", "--yes", "--replace")
    command = [sys.executable, "-c", DIES, str(number), "import", *words.split()]
    assert subprocess.run(command, env=place.env, cwd=place.root, timeout=60, check=False).returncode == 9
    place.run("import", "cursor", "--yes", "--replace")
    place.run("import", "--undo")
    assert path.read_bytes() == before
    assert [item.name for item in path.parent.iterdir()] == ["mcp.json"]
    assert not list(place.config.parent.glob("*.bak"))
    assert not list(place.config.parent.glob(".*.tmp"))


def test_half_a_backup_on_a_full_disk_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("x" * 100)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="No space left") as raised:
        create_backup(path, tmp_path / "mcp.json.bak")
    assert "free space" in raised.value.next_action
    assert [item.name for item in tmp_path.iterdir()] == ["mcp.json"]


def test_stats_agree_for_each_caller_in_text_and_json(place: Place) -> None:
    place.serve_file("time", {"now": {"content": []}})
    place.serve_file("other", {f"tool_{number}": {"content": []} for number in range(20)})
    with place.config.open("a") as config:
        config.write('[policy.narrow]\nallow = ["time.*"]\n[callers.tim]\nkey = "a-key-of-enough-characters"\n')
        config.write('policy = "narrow"\n')
    place.run("build", "--no-search")
    (place.root / "p.py").write_text(
        "import toolfold\nfrom toolfold.types import Caller\n"
        "with toolfold.BlockingGateway(toolfold.Settings.load()) as gateway:\n"
        "    gateway.list(caller=Caller(name='tim', policy='narrow', session='s'))\n"
    )
    subprocess.check_call([sys.executable, "p.py"], cwd=place.root, env=place.env, timeout=60)
    own = json.loads(place.run("--json", "stats", "--as", "tim").stdout)
    assert own["tools"] == 1
    assert place.run("stats", "--as", "tim").stdout.startswith(f"1 tool, {own['full_tokens']:,} tokens")
    everybody = json.loads(place.run("--json", "stats").stdout)
    assert everybody["tools"] == 21
    assert everybody["sessions"] == own["sessions"]


def test_options_may_stand_anywhere_among_the_arguments() -> None:
    def read(line: str) -> Any:
        return parse(line.split())

    between = read("call a.echo a=1 --timeout 5 b=2 --yes c=3")
    assert (between.tool_id, between.args, between.timeout, between.yes) == ("a.echo", ["a=1", "b=2", "c=3"], 5, True)
    assert read("--config x call a.echo --timeout 5 a=1").config == "x"
    assert read("search show --limit 2 env").query == ["show", "env"]
    address = read("add u --env A=b https://x")
    assert (address.name, address.target, address.env) == ("u", ["https://x"], ["A=b"])
    with pytest.raises(ConfigError, match="unknown: --bogus"):
        read("--bogus completion bash")
    kept = read("scripts run --yes x y=1")
    assert (kept.action, kept.script, kept.args, kept.yes) == ("run", "x", ["y=1"], True)
    assert read("add w --env A=b -- echo -n").target == ["echo", "-n"]


def test_a_wrong_option_never_leads_to_yes() -> None:
    for line in ("call t --as alice", "run s.py --as alice", "import --yess"):
        with pytest.raises(ConfigError) as raised:
            parse(line.split())
        assert "mean --yes" not in raised.value.message
    with pytest.raises(ConfigError, match="as yourself"):
        parse(["call", "t", "--as", "alice"])
    with pytest.raises(ConfigError, match="up to 50"):
        parse(["search", "x", "--limit", "51"])


def test_keys_that_name_nothing_are_refused(place: Place) -> None:
    place.serve_file("n", {"echo": {"content": []}})
    for word in ("a..b=1", ".=1", "l[0]=1"):
        assert "names no argument" in place.run("call", "n.echo", word, code=4).stderr


def test_what_is_piped_in_is_told_as_such_and_may_have_a_mark(place: Place) -> None:
    place.serve_file("n", {"echo": {"content": []}})
    wrong: Any = place.run("call", "n.echo", "-", code=4, input=b'{"a":"\xff"}', text=False)
    assert b"what is piped in is no UTF-8" in wrong.stderr
    place.run("call", "n.echo", "-", input=b'\xef\xbb\xbf{"a":"b"}', text=False)


def test_a_registry_that_is_a_folder_is_refused_before_any_server_is_read(place: Place) -> None:
    place.serve_file("n", {"echo": {"content": []}})
    for folder in (".", "/", ".."):
        refused = place.run("build", "--registry", folder, code=2)
        assert "is a folder" in refused.stderr
    assert not (place.config.parent / "toolfold.sqlite").exists()


def test_a_broken_script_is_shown_with_its_own_line_and_name(place: Place) -> None:
    place.serve_file("n", {"echo": {"content": []}})
    folder = place.config.parent / "scripts"
    folder.mkdir()
    (folder / "k.py").write_text("def main(:\n")
    (place.root / "k.py").write_text('PASSWORD = "line of an unrelated file"\n')
    for words in (["scripts", "run", "k"], ["scripts"]):
        said = place.run(*words, code=None).stderr
        assert "PASSWORD" not in said
        assert "k.py, line 1: invalid syntax: def main(:" in said
    assert place.run("scripts", "show", "k").stdout == "def main(:\n"


def test_doctor_has_one_verdict_for_each_server(place: Place) -> None:
    place.serve_file("n", {"echo": {"content": []}})
    with place.config.open("a") as config:
        config.write('[servers.crashy]\ncommand = "/bin/sh"\nargs = ["-c", "exit 3"]\n')
    place.run("build", "--no-search", code=3)
    findings = json.loads(place.run("--json", "doctor", code=1).stdout)["findings"]
    verdicts = [finding["verdict"] for finding in findings if finding["subject"] == "server crashy"]
    assert verdicts == ["wrong"]


def test_the_tree_names_what_stands_beside_the_parts_of_a_category(place: Place) -> None:
    place.serve_file("one", {"now": {"content": []}})
    place.serve_file("many", {f"tool_{number}": {"content": []} for number in range(6)})
    shown = place.run("tree").stdout
    assert "and 1 tool beside these: one.now" in shown
    nodes = json.loads(place.run("--json", "tree").stdout)["nodes"]
    servers = next(node for node in nodes if node["name"] == "Servers")
    assert servers["own_tools"] + sum(node["tools"] for node in servers["nodes"]) == servers["tools"] == 7


def test_a_server_that_fails_says_why_and_not_where(place: Place) -> None:
    (place.root / "crash.py").write_text("def go():\n    raise RuntimeError('the licence has expired')\ngo()\n")
    args = json.dumps([str(place.root / "crash.py")])
    place.config.write_text(f"[servers.crash]\ncommand = {json.dumps(sys.executable)}\nargs = {args}\n")
    said = place.run("build", "--no-search", code=3).stderr
    failed = next(line for line in said.splitlines() if line.startswith("failed:"))
    assert failed.endswith("its last words: RuntimeError: the licence has expired")
    assert "  - " not in said, "nothing of it is said again"
    assert 'File "' in place.run("logs", "crash").stdout, "the log has the whole of it"


PROBED = """WARNING:root:Failed to validate request: 31 validation errors for ClientRequest
PingRequest.method
  Input should be 'ping' [type=literal_error, input_value='server/discover', input_type=str]
    For further information visit https://errors.pydantic.dev/2.11/v/literal_error
InitializeRequest.params.protocolVersion
  Field required [type=missing, input_value={'_meta': {}}, input_type=dict]
    For further information visit https://errors.pydantic.dev/2.11/v/missing
loading the index: 40 %"""


def test_what_a_server_says_of_our_own_question_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _Lines(200, 0.0)
    for line in PROBED.splitlines():
        lines.take("old", line)
    assert capsys.readouterr().err == "  old: loading the index: 40 %\n"


def test_another_process_and_its_failures_are_told_as_such(place: Place) -> None:
    place.serve_file("n", {"now": {"content": []}})
    place.serve_file("input", {"now": {"content": []}}, 'env = { K = "${MISSING_HERE}" }')
    place.run("build", "--no-search", code=3)
    place.env["MISSING_HERE"] = "here"
    said = place.run("servers", code=3).stderr
    assert "by this toolfold or another; a call tries it again" in said
    logs = ServerLogs(place.config.parent / "logs")

    async def started(*pids: int) -> None:
        for pid in pids:
            logs.write("n", f"started in 0.1 s, process {pid}", "toolfold")
        logs.flush()

    with subprocess.Popen(["sleep", "60"]) as running:
        with subprocess.Popen(["true"]) as gone:
            gone.wait(20)
        # Another client's toolfold started one of its own meanwhile, and left.
        asyncio.run(started(running.pid, gone.pid))
        states = {state["name"]: state for state in json.loads(place.run("--json", "servers", code=3).stdout)}
        assert (states["n"]["status"], states["n"]["pid"]) == ("ready", running.pid)
        running.kill()
    states = {state["name"]: state for state in json.loads(place.run("--json", "servers", code=3).stdout)}
    assert (states["n"]["status"], states["n"]["pid"]) == ("idle", None)


def test_added_files_are_found_from_every_folder_and_functions_can_be_added(place: Place) -> None:
    project = place.root / "proj"
    project.mkdir()
    (project / "wx.py").write_text("")
    (project / "mine.py").write_text('def add(a: int) -> int:\n    "Adds one."\n    return a + 1\n')
    place.run("add", "wx", "--", sys.executable, "wx.py", "--flag", "plain", cwd=project)
    place.run("add", "mine", "--functions", "mine.py:add", cwd=project)
    written = tomllib.loads(place.config.read_text())["servers"]
    assert written["wx"]["args"] == [str(project / "wx.py"), "--flag", "plain"]
    assert written["mine"] == {"functions": f"{project}/mine.py:add"}
    place.run("remove", "wx")
    assert place.run("call", "mine.add", "a=1").stdout == "2\n"


def test_a_program_that_is_no_server_and_a_brace_that_is_missing_are_told(place: Place) -> None:
    place.config.write_text('[servers.cat]\ncommand = "cat"\nenv = { K = "${API_KEY" }\n')
    said = place.run("build", "--no-search", code=3).stderr
    assert "it sends back what it is sent: this is no MCP server" in said
    assert "does not answer" not in said
    assert "`${` that is not closed" in said
    place.config.write_text('[servers.a]\ncomand = "x"\nfoo = 1\n')
    said = place.run("build", code=2).stderr
    assert "comand" in said
    assert "foo" in said


def test_nothing_is_said_twice(place: Place) -> None:
    place.config.write_text("[polic]\n")
    said = place.run("build", code=2).stderr
    assert said.count("Did you mean `policy`?") == 1
    assert "words" not in place.run("completion", code=2).stderr
    (place.root / "bare.json").write_text(json.dumps([{"name": "bare", "description": "Bare."}]))
    args = json.dumps([filed_stdio.__file__, str(place.root / "bare.json")])
    place.config.write_text(f"[servers.n]\ncommand = {json.dumps(sys.executable)}\nargs = {args}\n")
    folder = place.config.parent / "scripts"
    folder.mkdir()
    (folder / "k.py").write_text('"Does nothing."\n')
    built = place.run("build", "--no-search")
    assert (built.stdout + built.stderr).count("no inputSchema") == 1
    assert "2 tools of 1 server and the scripts that are kept (1 working)" in built.stdout
    assert "init --project" in place.run("init").stderr


def test_the_help_is_never_broken_into_the_first_column(place: Place) -> None:
    text = place.run("--help", env={**place.env, "COLUMNS": "80"}).stdout
    codes = text.partition("exit codes:\n")[2].splitlines()
    assert codes
    assert all(line.startswith("  ") for line in codes if line)


def test_what_a_script_prints_and_returns_is_shown_once(place: Place) -> None:
    place.serve_file("n", {"echo": {"content": []}})
    code = 'def main():\n    print("found:")\n    print({"a": 1})\n    return {"a": 1}\nmain()\n'
    (place.root / "s.py").write_text(code)
    assert place.run("run", "s.py").stdout == "found:\n{'a': 1}\n"
    (place.root / "t.py").write_text('def main():\n    "Says."\n    print("hello")\n    return "other"\n')
    place.run("scripts", "add", "t.py")
    assert place.run("scripts", "run", "t").stdout == "hello\nother\n"
    (place.root / "u.py").write_text('def main():\n    "Says."\n    print("hello")\n    return "hello"\n')
    place.run("scripts", "add", "u.py")
    assert place.run("scripts", "run", "u").stdout == "hello\n"
