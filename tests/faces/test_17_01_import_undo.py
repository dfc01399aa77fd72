"""`toolfold import --replace` is all or nothing, and `toolfold import --undo` gives every byte back."""

import json
import resource
import sys
from pathlib import Path
from typing import Any

import pytest

from toolfold.__main__ import main
from toolfold.config.clients import Rewrite, apply, discover, plan_import, put_back, toolfold_entry, undo
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
    shown = capsys.readouterr().out
    assert "2 of 2 servers started" in shown
    after = person.files()
    for name, (content, _) in before.items():
        assert b"toolfold.toml" in after[name][0], name
        copies = [path for path in after if path.startswith(name + ".") and path.endswith(".bak")]
        assert [after[copy][0] for copy in copies] == [content], name
        assert f"replaced: {Output.short_path(person.root / name)}" in shown
    assert main(["import", "--undo"]) == 0
    assert person.files() == before
    assert main(["import", "--undo"]) == 2
    assert "there is no import to undo" in capsys.readouterr().err


def test_17_01_a_comment_in_one_file_stops_all_of_it_before_anything_is_written(
    person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f'{{\n  "mcpServers": {{\n    // why\n    "files": {{{ENTRY}}}}}}}'
    cursor = person.write("home/.cursor/mcp.json", text)
    codex = person.write("home/.codex/config.toml", f"[mcp_servers.files]\ncommand = {PYTHON} # mine\n" + ARGS)
    before = person.files()
    assert main(["import", "--replace", "--yes"]) == 2
    told = capsys.readouterr().err
    assert f"{cursor}:3 has comments among its servers" in told
    assert f"{codex}:2 has comments among its servers" in told
    assert "nothing was written" in told
    assert "--drop-comments" in told
    assert person.files() == before
    assert main(["import", "--replace", "--yes", "--drop-comments"]) == 0
    assert main(["import", "--undo"]) == 0
    assert person.files() == before


def test_17_01_servers_that_do_not_start_are_shown_before_all_is_written(
    person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = {"command": sys.executable, "args": ["-c", "import sys; sys.exit('no key in sight')"]}
    path = person.write("home/.cursor/mcp.json", json.dumps({"mcpServers": {"files": SERVER, "broken": broken}}))
    assert main(["import", "cursor", "--replace", "--yes"]) == 3
    shown = capsys.readouterr()
    assert "failed: broken: " in shown.err
    assert "no key in sight" in shown.err
    assert "2 of 3 servers started" in shown.out
    assert list(json.loads(path.read_text())["mcpServers"]) == ["toolfold"]


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


def test_17_01_undo_keeps_what_a_client_wrote_since(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    main(["import", "--replace", "--yes"])
    claude, codex = person.root / "home/.claude.json", person.root / "home/.codex/config.toml"
    claude.write_text(claude.read_text().replace('"n": 1', '"n": 2'))
    codex.write_text(codex.read_text().replace('model = "o3"', 'model = "o4"'))
    own = person.root / "home/.toolfold/toolfold.toml"
    own.write_text(own.read_text() + "\n# mine\n")
    capsys.readouterr()
    assert main(["import", "--undo"]) == 0
    shown = capsys.readouterr().out
    assert f"restored: {Output.short_path(claude)}: its servers; all else in it was changed since and stays" in shown
    assert f"kept: {Output.short_path(own)}" in shown
    expected = FILES["home/.claude.json"].replace('"n": 1', '"n": 2').replace("PROJECT", str(person.root / "project"))
    assert claude.read_text() == expected
    assert 'model = "o4" # fast' in codex.read_text()
    assert '# mine\n[profiles.x]\nmodel = "y"\n' in codex.read_text()
    assert f"[mcp_servers.files]\ncommand = {PYTHON}\n" in codex.read_text()


def test_17_01_an_import_that_broke_off_is_undone_too(person: Person) -> None:
    before = person.files()
    configs = [config for config in discover() if config.client in {"cursor", "gemini"}]
    rewrites = [Rewrite(path=c.path, configs=(c,), entry=toolfold_entry(c.client, "/c.toml")) for c in configs]
    journal = person.root / "imports.json"
    done = apply(plan_import([]), person.root / "toolfold.toml", rewrites, journal=journal).replaced
    last = done[-1]
    last.path.write_bytes(before[str(last.path.relative_to(person.root))][0])  # as if it had not come to this one
    assert {outcome for _, outcome in undo(journal, put_back)} == {"restored"}
    assert person.files() == before


def test_17_01_undo_refuses_whole_where_a_backup_is_gone(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    main(["import", "cursor", "--replace", "--yes"])
    (backup,) = (person.root / "home/.cursor").glob("*.bak")
    backup.unlink()
    after = person.files()
    assert main(["import", "--undo"]) == 2
    assert f"the backup {backup} of" in capsys.readouterr().err
    assert person.files() == after


def test_17_01_json_tells_what_failed_and_what_was_replaced(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    main(["import", "cursor", "--replace", "--yes", "--json"])
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert answer["failed"] == {}
    assert {Path(file["path"]).name for file in answer["replaced"]} == {"mcp.json"}
    main(["import", "--undo", "--json"])
    assert {file["outcome"] for file in json.loads(capsys.readouterr().out)} == {"restored", "removed"}
