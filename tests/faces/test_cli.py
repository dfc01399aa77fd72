"""The command line as a person and a program use it: real processes, real servers, real files."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fork_server
from toolfold.demo.data import make_demo_data

Run = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with three real servers in its `toolfold.toml`, built once."""
    folder = tmp_path_factory.mktemp("project")
    data = make_demo_data(folder / "data")
    servers = {"files": data.files, "sqlite": data.database, "git": data.repository}
    lines = []
    for name, target in servers.items():
        arguments = json.dumps(["-P", "-m", f"toolfold.demo.{name}", str(target)])
        lines.append(f"[servers.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {arguments}\n")
    (folder / "toolfold.toml").write_text("\n".join(lines), encoding="utf-8")
    built = toolfold(folder, "build", "--json")
    assert built.returncode == 0, built.stderr
    return folder


def toolfold(folder: Path, *arguments: str, env: dict[str, str] | None = None, stdin: str = "") -> Run:
    """Runs the command in `folder`, with a home of its own and nothing of this machine's clients."""
    home = folder / "person"
    home.mkdir(exist_ok=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "TOOLFOLD_HOME": str(folder / "state")}
    environment |= {"TOOLFOLD_TRUST_PROJECT": "1", **(env or {})}
    return fork_server.run(
        [sys.executable, "-m", "toolfold", *arguments],
        cwd=folder,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def as_json(done: Run) -> Any:
    return json.loads(done.stdout)


@pytest.mark.requirement("U-01", "G-01")
def test_build_reads_every_server_and_writes_the_registry(place: Path) -> None:
    report = as_json(toolfold(place, "build", "--json"))
    registry = json.loads(Path(report["registry"]).read_text(encoding="utf-8"))
    assert report["failed"] == {}
    assert {server["name"] for server in report["servers"]} == {"files", "git", "sqlite"}
    assert registry["version"] == 1
    assert len(registry["tools"]) == report["tools"] == 17
    keys = {"tool_id", "server", "name", "description", "input_schema", "output_schema", "fingerprint", "paths"}
    assert all(keys <= tool.keys() for tool in registry["tools"])


def test_a_second_build_of_the_same_servers_changes_nothing(place: Path) -> None:
    first = as_json(toolfold(place, "build", "--json"))
    again = as_json(toolfold(place, "build", "--json"))
    assert again["changes"] == []
    assert again["generation"] == first["generation"]


@pytest.mark.requirement("G-01")
def test_one_broken_server_does_not_hold_up_the_rest(tmp_path: Path) -> None:
    data = make_demo_data(tmp_path / "data")
    config = {
        "mcpServers": {
            "gone": {"command": "no-such-program-anywhere"},
            "dies": {"command": sys.executable, "args": ["-c", "import sys; sys.exit('the licence has expired')"]},
            "files": {"command": sys.executable, "args": ["-m", "toolfold.demo.files", str(data.files)]},
        }
    }
    (tmp_path / "mcp.json").write_text(json.dumps(config), encoding="utf-8")
    done = toolfold(tmp_path, "build", "--json")
    report = as_json(done)
    assert done.returncode == 3
    assert report["tools"] == 6
    assert set(report["failed"]) == {"gone", "dies"}
    assert "no-such-program-anywhere" in report["failed"]["gone"]["message"]
    assert "the licence has expired" in json.dumps(report["failed"]["dies"])
    assert all(failure["next_action"] for failure in report["failed"].values())


def test_tree_and_list_show_the_same_categories(place: Path) -> None:
    tree = as_json(toolfold(place, "tree", "--json"))
    page = as_json(toolfold(place, "list", "--json", "--limit", "50"))
    assert tree["tools"] == 17
    assert sorted(node["name"] for node in tree["nodes"]) == sorted(node["name"] for node in page["nodes"])
    assert set(page) == {"path", "nodes", "tools", "next_cursor"}
    assert set(page["nodes"][0]) == {"name", "path", "summary", "tags"}


def test_a_category_is_found_whatever_its_letter_case(place: Path) -> None:
    page = as_json(toolfold(place, "list", "databases", "--json"))
    assert page["path"] == ["Databases"]
    assert {tool["tool_id"] for tool in page["tools"]} >= {"sqlite.query"}
    assert set(page["tools"][0]) == {"tool_id", "path", "summary", "tags", "confidence"}


def test_pages_of_one_entry_lead_through_the_whole_level(place: Path) -> None:
    whole = as_json(toolfold(place, "list", "Servers/git", "--limit", "50", "--json"))
    seen, cursor = [], None
    for _ in range(len(whole["tools"])):
        more = ("--cursor", cursor) if cursor else ()
        page = as_json(toolfold(place, "list", "Servers", "git", "--limit", "1", "--json", *more))
        seen += page["tools"]
        cursor = page["next_cursor"]
    assert seen == whole["tools"]
    assert cursor is None


def test_tools_can_be_listed_by_their_risk(place: Path) -> None:
    page = as_json(toolfold(place, "list", "Servers/sqlite", "--tag", "risk:destructive", "--json"))
    assert [tool["tool_id"] for tool in page["tools"]] == ["sqlite.execute"]


def test_a_wrong_path_answers_with_the_closest_right_one(place: Path) -> None:
    done = toolfold(place, "list", "Databses", "--json")
    error = as_json(done)["error"]
    assert done.returncode == 4
    assert error["code"] == "UNKNOWN_PATH"
    assert ["Databases"] in error["hints"]
    assert error["next_action"]


def test_without_a_catalogue_it_says_what_to_run(tmp_path: Path) -> None:
    done = toolfold(tmp_path, "tree")
    assert done.returncode == 4
    assert "toolfold build" in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "state").exists(), "looking makes no files"


def test_a_damaged_catalogue_is_told_with_a_way_out_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    damaged = tmp_path / "state" / "toolfold.sqlite"
    damaged.write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 40)
    before = damaged.read_bytes()
    done = toolfold(tmp_path, "tree", "--json")
    assert done.returncode == 5
    assert as_json(done)["error"]["code"] == "STORE_DAMAGED"
    assert as_json(done)["error"]["next_action"]
    assert damaged.read_bytes() == before


def test_without_a_configuration_it_says_where_it_looked_and_what_to_run(tmp_path: Path) -> None:
    done = toolfold(tmp_path, "build")
    assert done.returncode == 2
    assert "toolfold.toml" in done.stderr
    assert "toolfold import" in done.stderr


@pytest.mark.requirement("G-06")
def test_a_wrong_configuration_names_file_line_key_and_fix(tmp_path: Path) -> None:
    (tmp_path / "toolfold.toml").write_text('[servers.git]\ncomand = "mcp-server-git"\n', encoding="utf-8")
    done = toolfold(tmp_path, "build")
    assert done.returncode == 2
    for part in ("toolfold.toml", "2", "comand", "command"):
        assert part in done.stderr


@pytest.mark.requirement("G-06")
def test_a_missing_secret_fails_its_own_server_only_and_secrets_are_never_printed(tmp_path: Path) -> None:
    data = make_demo_data(tmp_path / "data")
    python = json.dumps(sys.executable)
    (tmp_path / "toolfold.toml").write_text(
        f'[servers.needy]\ncommand = {python}\nargs = ["-c", "print(1)"]\nenv = {{TOKEN = "${{NO_SUCH_VARIABLE}}"}}\n'
        f'[servers.leaky]\ncommand = {python}\nenv = {{TOKEN = "${{A_TOKEN}}"}}\n'
        "args = [\"-c\", \"import os, sys; sys.exit('my token is ' + os.environ['TOKEN'])\"]\n"
        f"[servers.files]\ncommand = {python}\nargs = {json.dumps(['-m', 'toolfold.demo.files', str(data.files)])}\n",
        encoding="utf-8",
    )
    done = toolfold(tmp_path, "build", "--json", "-vv", env={"A_TOKEN": "s3cret-value-1234567890"})
    report = as_json(done)
    assert report["tools"] == 6
    assert "NO_SUCH_VARIABLE" in report["failed"]["needy"]["message"]
    assert "my token is" in json.dumps(report["failed"]["leaky"])
    assert "s3cret-value" not in done.stdout + done.stderr
    shown = toolfold(tmp_path, "servers", env={"A_TOKEN": "s3cret-value-1234567890"})
    assert "s3cret-value" not in shown.stdout + shown.stderr


def test_servers_tells_what_the_last_build_saw_and_what_is_now(place: Path) -> None:
    before = as_json(toolfold(place, "servers", "--json"))
    now = as_json(toolfold(place, "servers", "--connect", "--json"))
    assert [(state["name"], state["tools"]) for state in before] == [(state["name"], state["tools"]) for state in now]
    assert {state["status"] for state in before} == {"idle"}
    assert {state["status"] for state in now} == {"ready"}


def test_one_server_can_be_read_again_alone(place: Path) -> None:
    report = as_json(toolfold(place, "build", "--server", "git", "--json"))
    assert report["tools"] == 17
    assert report["changes"] == []


def test_an_unknown_server_is_named_with_the_known_ones(place: Path) -> None:
    done = toolfold(place, "build", "--server", "gti", "--json")
    assert done.returncode == 2
    assert "git" in as_json(done)["error"]["next_action"]


@pytest.mark.requirement("G-03")
def test_import_shows_first_and_writes_only_when_told(tmp_path: Path) -> None:
    cursor = tmp_path / "person" / ".cursor"
    cursor.mkdir(parents=True)
    original = json.dumps(
        {"mcpServers": {"git": {"command": "mcp-server-git", "env": {"API_KEY": "sk-abcdef1234567890abcdef"}}}}
    )
    (cursor / "mcp.json").write_text(original, encoding="utf-8")
    shown = toolfold(tmp_path, "import")
    assert "git" in shown.stdout
    assert "sk-abcdef" not in shown.stdout + shown.stderr
    assert not (tmp_path / "state" / "toolfold.toml").exists()
    written = toolfold(tmp_path, "import", "--yes", "--secrets", "env", "--json")
    target = Path(as_json(written)["target"])
    assert "sk-abcdef" not in target.read_text(encoding="utf-8")
    assert as_json(written)["variables"] == ["API_KEY"]
    assert (cursor / "mcp.json").read_text(encoding="utf-8") == original
    again = as_json(toolfold(tmp_path, "import", "--yes", "--json"))
    assert [item["action"] for item in again["items"]] == ["identical"]


def test_doctor_finds_what_is_wrong_and_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "toolfold.toml").write_text(
        '[servers.a]\ncommand = "no-such-program-anywhere"\n[servers.b]\nurl = "http://127.0.0.1:9/${MISSING_ONE}"\n',
        encoding="utf-8",
    )
    done = toolfold(tmp_path, "doctor", "--json")
    wrong = {finding["subject"]: finding for finding in as_json(done)["findings"] if finding["verdict"] == "wrong"}
    assert done.returncode == 1
    assert set(wrong) == {"server a", "server b"}
    assert "MISSING_ONE" in wrong["server b"]["text"]
    assert all(finding["fix"] for finding in wrong.values())


def test_doctor_is_content_with_a_working_project(place: Path) -> None:
    done = toolfold(place, "doctor", "--connect", "--json")
    assert done.returncode == 0, done.stdout
    assert "server git, started" in {finding["subject"] for finding in as_json(done)["findings"]}


@pytest.mark.requirement("D-03", "D-04")
def test_search_and_nodes_answer_requests_in_plain_words(place: Path) -> None:
    found = as_json(toolfold(place, "search", "who", "changed", "this", "line", "--json"))
    assert found["results"][0]["tool_id"] == "git.blame"
    inside = as_json(toolfold(place, "search", "find text in files", "--in", "servers/files", "--json"))
    assert inside["category_path"] == ["Servers", "files"]
    assert inside["results"][0]["tool_id"] == "files.search"
    nodes = as_json(toolfold(place, "nodes", "run a database query", "--json"))
    assert nodes["results"][0]["path"][0] == "Databases"
    explained = toolfold(place, "search", "who changed this line", "--explain").stdout
    assert "nearness" in explained
    assert "line" in explained


@pytest.mark.requirement("D-14")
def test_an_impossible_request_is_refused_with_its_own_exit_code(place: Path) -> None:
    done = toolfold(place, "search", "who changed this line", "--in", "servers/sqlite", "--json")
    assert done.returncode == 4
    assert as_json(done)["error"]["code"] == "NO_MATCH_IN_CATEGORY"
    told = toolfold(place, "search", "who changed this line", "--in", "servers/sqlite").stderr
    assert "  - git.blame: " in told
    assert "  - in Coding" in told


@pytest.mark.requirement("D-05", "D-06")
def test_a_tool_is_expanded_and_called_and_wrong_arguments_are_put_right(place: Path) -> None:
    expanded = as_json(toolfold(place, "expand", "git.log", "--json"))
    assert set(expanded["args_schema"]["properties"]) >= {"limit", "path"}
    called = toolfold(place, "call", "git.log", '{"limit": 2}', "--json")
    assert called.returncode == 0
    assert len(as_json(called)["structuredContent"]["commits"]) == 2
    assert json.loads(toolfold(place, "call", "git.log", "-", stdin='{"limit": 1}').stdout)["more"] is True
    wrong = toolfold(place, "call", "git.log", '{"limit": "2"}', "--json")
    assert wrong.returncode == 4
    assert '{"limit":2}' in as_json(wrong)["error"]["next_action"]
    failed = toolfold(place, "call", "git.show", '{"revision": "no-such-thing"}')
    assert failed.returncode == 1
    assert "no-such-thing" in failed.stdout


@pytest.mark.requirement("S-14")
def test_inspect_output_prints_the_inspectors_answer(place: Path) -> None:
    answer = as_json(toolfold(place, "inspect-output", "git.log", "commits[]", "--json"))
    assert {key: answer[key] for key in ("tool_id", "field_path", "node_type", "truncated")} == {
        "tool_id": "git.log",
        "field_path": "commits[]",
        "node_type": "object",
        "truncated": False,
    }
    assert {"name": "sha", "type": "string"} in answer["children"]
    assert "commits[].sha: string" in toolfold(place, "inspect-output", "git.log").stdout


def test_a_wrong_field_or_tool_answers_with_the_nearest_ones(place: Path) -> None:
    field = as_json(toolfold(place, "inspect-output", "git.log", "comits[]", "--json"))["error"]
    tool = as_json(toolfold(place, "inspect-output", "git.logs", "--json"))["error"]
    assert (field["code"], tool["code"]) == ("UNKNOWN_FIELD", "TOOL_NOT_FOUND")
    assert "commits[]" in field["hints"]
    assert "git.log" in tool["hints"]


@pytest.mark.parametrize("arguments", [("tre",), ("list", "--limit", "0"), ("bench", "no-such"), ("tree", "--nope")])
def test_a_mistyped_command_line_answers_in_json_too(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = toolfold(tmp_path, *arguments, "--json")
    assert done.returncode == 2
    assert as_json(done)["error"]["next_action"]


def test_global_options_stand_before_or_after_the_command(place: Path) -> None:
    assert toolfold(place, "--json", "tree").stdout == toolfold(place, "tree", "--json").stdout


def test_a_pipe_gets_plain_text_and_a_reader_that_leaves_early_is_no_error(place: Path) -> None:
    done = toolfold(place, "tree", "--tools", "--depth", "9")
    assert "\x1b" not in done.stdout
    assert "git.log" in done.stdout
    command = f"{sys.executable} -m toolfold tree --tools --depth 9 | head -n 1; echo ${{PIPESTATUS[0]}}"
    cut = subprocess.run(
        ["bash", "-c", command],
        cwd=place,
        env={
            "PATH": os.environ["PATH"],
            "TOOLFOLD_TRUST_PROJECT": "1",
            "HOME": str(place),
            "TOOLFOLD_HOME": str(place / "state"),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert cut.stdout.splitlines()[-1] == "0"
    assert cut.stderr == ""


def test_the_demo_runs_by_itself_and_leaves_nothing_behind(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    done = toolfold(tmp_path, "demo", env={"TMPDIR": str(temporary)})
    assert done.returncode == 0, done.stderr
    for part in ("git", "files", "sqlite", "Databases", "git.blame", "nothing fits for sure", "toolfold import"):
        assert part in done.stdout
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / "state").exists()


def test_reading_the_tree_loads_no_web_client_and_no_model_library(place: Path) -> None:
    code = (
        "import sys\nfrom toolfold.__main__ import main\ncode = main(['tree'])\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)\nsys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=place,
        env={
            "PATH": os.environ["PATH"],
            "TOOLFOLD_TRUST_PROJECT": "1",
            "HOME": str(place),
            "TOOLFOLD_HOME": str(place / "state"),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    heavy = {"httpx2", "mcp", "pydantic", "rich", "starlette", "uvloop", "numpy", "onnxruntime", "yaml", "keyring"}
    assert not heavy & set(done.stderr.split())


def test_ctrl_c_wakes_a_command_that_just_began_to_wait(tmp_path: Path) -> None:
    """Sent to another thread, the signal interrupts no system call of the main one: as one that comes too early."""
    code = """
import asyncio, signal, threading
from toolfold.faces.cli.runner import event_loop

async def wait():
    threading.Timer(0.5, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT)).start()
    await asyncio.Event().wait()

try:
    asyncio.Runner(loop_factory=event_loop).run(wait())
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=20)
    assert done.stdout == "interrupted\n", done.stderr
