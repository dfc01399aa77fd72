"""`toolfold import --replace` is all or nothing, and `toolfold import --undo` gives every byte back."""

import json
import resource
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from toolfold.__main__ import main
from toolfold.config import Settings
from toolfold.config.clients import Journal, Rewrite, apply, discover, plan_import, put_back, toolfold_entry
from toolfold.errors import ConfigError
from toolfold.faces.cli.terminal import Output

PYTHON = json.dumps(sys.executable)
SERVER = {"command": sys.executable, "args": ["-m", "toolfold.demo.files", "."]}
ENTRY = f'"command": {PYTHON}, "args": ["-m", "toolfold.demo.files", "."]'

ARGS = 'args = ["-m", "toolfold.demo.files", "."]\n'

# A file of each client that `toolfold import` knows, in the form that its client writes, with what is easily lost.
FILES = {
    "home/.config/Claude/claude_desktop_config.json": f'{{\r\n\t"mcpServers": {{"files": {{{ENTRY}}}}}\r\n}}',
    "home/.claude.json": f'{{"n": 1, "mcpServers": {{"files": {{{ENTRY}}}}},\n "projects": {{"PROJECT": '
    f'{{"mcpServers": {{"files": {{{ENTRY}}}}}, "history": ["ä"]}}}}}}\n',
    "home/.cursor/mcp.json": f'\ufeff{{ // my editor\n  "mcpServers": {{ "files": {{{ENTRY}}}, }},\n}}',
    "home/.config/Code/User/mcp.json": f'{{"servers": {{"files": {{"type": "stdio", {ENTRY}}}}}, "inputs": []}}',
    "home/.config/Code/User/settings.json": f'{{"editor.zoom": 1, "mcp": {{"servers": {{"files": {{{ENTRY}}}}}}}}}',
    "home/.codex/config.toml": f'model = "o3" # fast\n\n[mcp_servers.files]\ncommand = {PYTHON}\n'
    f'{ARGS}\n# mine\n[profiles.x]\nmodel = "y"\n',
    "home/.gemini/settings.json": f'{{"theme": "x", "mcpServers": {{"files": {{{ENTRY}, "trust": true}}}}}}\n\n',
    "project/.mcp.json": f'{{"mcpServers": {{"files": {{{ENTRY}}}}}}}',
    "project/.vscode/mcp.json": f'{{"servers": {{"files": {{{ENTRY}}}}}}}',
    "project/.cursor/mcp.json": f'{{"mcpServers": {{"files": {{{ENTRY}}}}}}}',
    "project/.codex/config.toml": f"[mcp_servers.files]\ncommand = {PYTHON}\n{ARGS}",
    "project/.gemini/settings.json": f'{{"mcpServers": {{"files": {{{ENTRY}}}}}}}',
    "project/mcp.json": f'{{"mcpServers": {{"files": {{{ENTRY}}}}}}}',
}


class Person:
    """A home and a project with the files of every client."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name, text in FILES.items():
            self.write(name, text.replace("PROJECT", str(root / "project")))

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        path.chmod(0o640)
        return path

    def files(self) -> dict[str, tuple[bytes, int]]:
        found = [path for path in self.root.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.root)): (path.read_bytes(), path.stat().st_mode) for path in found}


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Person:
    for name in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "TOOLFOLD_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    person = Person(tmp_path)
    monkeypatch.chdir(tmp_path / "project")
    return person


@pytest.mark.requirement("G-03")
def test_17_01_undo_gives_every_clients_file_back_byte_for_byte(
    person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    before = person.files()
    assert main(["import", "--replace", "--yes"]) == 0
    shown = capsys.readouterr()
    assert "2 of 2 servers started" in shown.out
    assert "project/.mcp.json belongs to the project and stays" in shown.err
    after = person.files()
    for name, (content, mode) in before.items():
        if name.startswith("project/"):
            assert after[name] == (content, mode), name
            continue
        assert b"toolfold.toml" in after[name][0], name
        copies = [path for path in after if path.startswith(name + ".") and path.endswith(".bak")]
        assert [after[copy][0] for copy in copies] == [content], name
        assert f"replaced: {Output.short_path(person.root / name)}" in shown.out
    assert main(["import", "--undo"]) == 0
    assert without_logs(person.files()) == before
    assert main(["import", "--undo"]) == 2
    assert "there is no import to undo" in capsys.readouterr().err


def without_logs(files: dict[str, tuple[bytes, int]]) -> dict[str, tuple[bytes, int]]:
    return {name: file for name, file in files.items() if "/logs/" not in name}


def test_17_01_a_projects_files_are_replaced_on_request_and_without_a_path_of_this_machine(person: Person) -> None:
    before = person.files()
    person.write("project/.mcp.json", json.dumps({"mcpServers": {"files": {**SERVER, "cwd": "."}}}))
    inside = (
        f'{{"servers": {{"files": {{"type": "stdio", "command": {PYTHON}, "args": ["${{workspaceFolder}}/x.py"]}}}}}}'
    )
    person.write("project/.vscode/mcp.json", inside)
    written = person.files()
    assert main(["import", "--project", "--replace", "--yes", "--even-failed"]) == 3
    after = person.files()
    for name in written:
        assert (after[name] != written[name]) is name.startswith("project/"), name
    changed = [name for name in written if name.startswith("project/")]
    for name in (*changed, "project/toolfold.toml"):
        assert str(person.root) not in after[name][0].decode(), name
    assert json.loads(after["project/.mcp.json"][0]) == {
        "mcpServers": {"toolfold": {"type": "stdio", "command": "toolfold", "args": ["serve"]}}
    }
    servers = Settings.load(person.root / "project/toolfold.toml").servers
    assert [spec.cwd for spec in servers] == [str(person.root / "project")] * len(servers)
    assert str(person.root / "project/x.py") in servers[1].args
    assert main(["import", "--undo"]) == 0
    assert without_logs(person.files()) == written
    assert len(before) == len(written)


def test_17_01_a_comment_in_one_file_stops_all_of_it_before_anything_is_written(
    person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f'{{\n  "mcpServers": {{\n    // why\n    "files": {{{ENTRY}}}}}}}'
    person.write("home/.cursor/mcp.json", text)
    person.write("home/.codex/config.toml", f"[mcp_servers.files]\ncommand = {PYTHON} # mine\n" + ARGS)
    before = person.files()
    assert main(["import", "--replace", "--yes"]) == 2
    told = capsys.readouterr().err
    assert "~/.cursor/mcp.json:3 has comments among its servers" in told
    assert "~/.codex/config.toml:2 has comments among its servers" in told
    assert "nothing was written" in told
    assert "--drop-comments" in told
    assert person.files() == before
    assert main(["import", "--replace", "--yes", "--drop-comments"]) == 0
    assert main(["import", "--undo"]) == 0
    assert without_logs(person.files()) == before


def test_17_01_servers_that_do_not_start_stay_in_their_client_and_are_shown(
    person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = {"command": sys.executable, "args": ["-c", "import sys; sys.exit('no key in sight')"]}
    both = json.dumps({"mcpServers": {"files": SERVER, "broken": broken}})
    path = person.write("home/.cursor/mcp.json", both)
    lone = person.write("home/.gemini/settings.json", json.dumps({"mcpServers": {"broken": broken}}))
    assert main(["import", "--replace", "--yes"]) == 3
    shown = capsys.readouterr()
    assert "failed: broken: " in shown.err
    assert "no key in sight" in shown.err
    assert "2 of 3 servers started" in shown.out
    assert "broken stays in " in shown.err
    servers = json.loads(path.read_text())["mcpServers"]
    assert (list(servers), servers["broken"]) == (["broken", "toolfold"], broken)
    assert list(json.loads(lone.read_text())["mcpServers"]) == ["broken"]
    own = person.root / "home/.toolfold/toolfold.toml"
    assert "broken" not in own.read_text()
    # What it wrote is kept: it says why.
    assert main(["logs", "broken"]) == 0
    assert "no key in sight" in capsys.readouterr().out
    assert main(["import", "--undo"]) == 0
    assert path.read_text() == both
    assert main(["import", "cursor", "--replace", "--yes", "--even-failed"]) == 3
    assert list(json.loads(path.read_text())["mcpServers"]) == ["toolfold"]
    assert "[servers.broken]" in own.read_text()


def test_17_01_a_failure_in_the_middle_puts_every_file_back(person: Person) -> None:
    big = {"mcpServers": {"files": {"command": "x"}}, "history": "x" * 4_000_000}
    person.write("home/.gemini/settings.json", json.dumps(big))
    before = person.files()
    journal = person.root / "imports.json"
    configs = [config for config in discover() if config.client in {"cursor", "gemini"} and config.scope == "user"]
    rewrites = [Rewrite(path=c.path, configs=(c,), entry=toolfold_entry(c.client, "/c.toml")) for c in configs]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The copy still fits, the new content does not: a disk that is full between two files.
    size = (person.root / "home/.gemini/settings.json").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, hard))
    try:
        with pytest.raises(ConfigError, match=r"settings\.json cannot be written.*every other file is as it was"):
            apply(plan_import([]), person.root / "toolfold.toml", rewrites, journal=journal)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert person.files() == before


def test_17_01_undo_keeps_what_came_since_in_clients_and_in_our_own_file(
    person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["add", "mine", "--", sys.executable, "x.py"])
    main(["import", "--replace", "--yes"])
    claude, codex = person.root / "home/.claude.json", person.root / "home/.codex/config.toml"
    cursor, gemini = person.root / "home/.cursor/mcp.json", person.root / "home/.gemini/settings.json"
    claude.write_text(claude.read_text().replace('"n": 1', '"n": 2'))
    codex.write_text(codex.read_text().replace('model = "o3"', 'model = "o4"') + '\n[mcp_servers.new]\ncommand = "n"\n')
    added = json.loads(gemini.read_text())
    added["mcpServers"]["new"] = {"command": "n"}
    gemini.write_text(json.dumps(added))
    own = person.root / "home/.toolfold/toolfold.toml"
    main(["add", "later", "--", sys.executable, "y.py"])
    capsys.readouterr()
    assert main(["import", "--undo"]) == 0
    shown = capsys.readouterr().out
    assert f"restored: {Output.short_path(claude)}: its servers; what was added or changed since stays" in shown
    assert f"restored: {Output.short_path(own)}: what the import added is gone; what came since stays" in shown
    assert list(tomllib.loads(own.read_text())["servers"]) == ["mine", "later"]
    expected = FILES["home/.claude.json"].replace('"n": 1', '"n": 2').replace("PROJECT", str(person.root / "project"))
    assert claude.read_text() == expected
    assert cursor.read_bytes().decode() == FILES["home/.cursor/mcp.json"]
    assert list(json.loads(gemini.read_text())["mcpServers"]) == ["files", "new"]
    assert 'model = "o4" # fast' in codex.read_text()
    assert '# mine\n[profiles.x]\nmodel = "y"\n' in codex.read_text()
    assert list(tomllib.loads(codex.read_text())["mcp_servers"]) == ["files", "new"]


def test_17_01_a_server_that_a_client_adds_meanwhile_stops_all_of_it(person: Person) -> None:
    configs = [config for config in discover() if config.client in {"cursor", "gemini"} and config.scope == "user"]
    rewrites = [Rewrite(path=c.path, configs=(c,), entry=toolfold_entry(c.client, "/c.toml")) for c in configs]
    text = FILES["home/.gemini/settings.json"].replace('"mcpServers": {', '"mcpServers": {"new": {"command": "n"}, ')
    person.write("home/.gemini/settings.json", text)
    before = person.files()
    with pytest.raises(ConfigError, match="the servers there changed meanwhile") as refused:
        apply(plan_import([]), person.root / "toolfold.toml", rewrites)
    assert refused.value.exit_code == 2
    assert person.files() == before
    # Anything else that the client wrote meanwhile is no reason, and stays.
    person.write("home/.gemini/settings.json", FILES["home/.gemini/settings.json"].replace('"x"', '"y"'))
    apply(plan_import([]), person.root / "toolfold.toml", rewrites)
    assert '"theme": "y"' in (person.root / "home/.gemini/settings.json").read_text()


def test_17_01_one_entry_that_cannot_be_read_stops_all_of_it(
    person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    person.write("home/.cursor/mcp.json", json.dumps({"mcpServers": {"files": SERVER, "odd": {"neither": 1}}}))
    before = person.files()
    assert main(["import", "--replace", "--yes"]) == 2
    assert "odd cannot be taken over, so nothing is replaced" in capsys.readouterr().err
    assert person.files() == before
    assert main(["import", "codex", "--replace", "--yes"]) == 0


def test_17_01_an_import_that_was_killed_is_taken_back_by_the_next_command(
    person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    before = person.files()
    code = (
        "import os, signal, sys\nfrom toolfold.__main__ import main\nfrom toolfold.config import transaction\n"
        "put, done = transaction._put, []\n"
        "def kill(path, content, mode):\n    done.append(put(path, content, mode))\n"
        "    if len(done) == 3:\n        path.with_name(f'.{path.name}.1.12345678.tmp').write_text('half')\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "transaction._put = kill\nmain(['import', '--replace', '--yes'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert without_logs(person.files()) != before
    assert main(["doctor"]) == 1
    assert "an import was killed while it wrote" in capsys.readouterr().out
    assert main(["import"]) == 0
    assert "the last import was killed while it wrote" in capsys.readouterr().err
    assert without_logs(person.files()) == before


def test_17_01_an_import_that_broke_off_is_undone_too(person: Person) -> None:
    before = person.files()
    configs = [config for config in discover() if config.client in {"cursor", "gemini"}]
    rewrites = [Rewrite(path=c.path, configs=(c,), entry=toolfold_entry(c.client, "/c.toml")) for c in configs]
    journal = person.root / "imports.json"
    done = apply(plan_import([]), person.root / "toolfold.toml", rewrites, journal=journal).replaced
    last = done[-1]
    last.path.write_bytes(before[str(last.path.relative_to(person.root))][0])  # as if it had not come to this one
    assert {outcome for _, outcome in Journal(journal, put_back).undo()} == {"restored"}
    assert person.files() == before


def test_17_01_undo_refuses_whole_where_a_backup_is_gone(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    main(["import", "cursor", "--replace", "--yes"])
    (backup,) = (person.root / "home/.cursor").glob("*.bak")
    backup.unlink()
    after = person.files()
    assert main(["import", "--undo"]) == 2
    assert f"the backup ~/.cursor/{backup.name} of" in capsys.readouterr().err
    assert person.files() == after


def test_17_01_json_tells_what_failed_and_what_was_replaced(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    main(["import", "cursor", "--replace", "--yes", "--json"])
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert answer["failed"] == {}
    assert {Path(file["path"]).name for file in answer["replaced"]} == {"mcp.json"}
    main(["import", "--undo", "--json"])
    assert {file["outcome"] for file in json.loads(capsys.readouterr().out)} == {"restored", "removed"}
