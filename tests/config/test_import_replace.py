"""A client is pointed at toolfold only on request, with a backup, and with all else in its file kept."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from client_machine import Machine, servers

from toolfold.config.clients import ClientConfig, Rewrite, apply, backups, plan_import, restore, toolfold_entry
from toolfold.config.transaction import WrittenFile
from toolfold.errors import ConfigError


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def replace_servers(
    config: ClientConfig, entry: dict[str, Any], *, drop_comments: bool = False, now: float | None = None
) -> WrittenFile:
    rewrite = Rewrite(path=config.path, configs=(config,), entry=entry, drop_comments=drop_comments)
    (done,) = apply(plan_import([]), config.path.with_name("toolfold.toml"), [rewrite], now=now).replaced
    return done


@pytest.mark.requirement("G-03")
def test_a_client_is_pointed_at_toolfold_only_there_and_can_be_restored(machine: Machine) -> None:
    before, after = '{\n\t// my theme\n\t"theme": "dark",\n\t"mcpServers": ', ',\n\t"z": 1, // end\n}\n'
    text = before + '{\n\t\t"a": {"command": "x"}\n\t}' + after
    source = machine.write("~/.cursor/mcp.json", text)
    (config,) = machine.discover()
    done = replace_servers(config, toolfold_entry("cursor", "/h/toolfold.toml"), now=0)
    new = source.read_text()
    entry = (
        '{\n\t\t"toolfold": {\n\t\t\t"command": "toolfold",\n\t\t\t"args": [\n\t\t\t\t"--config",\n'
        '\t\t\t\t"/h/toolfold.toml",\n\t\t\t\t"serve"\n\t\t\t]\n\t\t}\n\t}'
    )
    assert new == before + entry + after
    assert done.backup is not None
    assert done.backup.read_text() == text
    assert plan_import(machine.discover()).items[0].action == "itself"
    restore(done.backup)
    assert source.read_text() == text


def test_comments_among_the_servers_are_not_lost_unless_told(machine: Machine) -> None:
    source = machine.write("~/.cursor/mcp.json", '{"mcpServers": { // mine\n "a": {"command": "x"}}}')
    codex = machine.write("~/.codex/config.toml", '[mcp_servers.a]\n# why\ncommand = "x"\n')
    cursor, other = machine.discover()
    for config, file in ((cursor, source), (other, codex)):
        before = file.read_text()
        with pytest.raises(ConfigError, match="comments among its servers"):
            replace_servers(config, toolfold_entry(config.client, "c.toml"))
        assert file.read_text() == before
        assert backups(file) == []
        replace_servers(config, toolfold_entry(config.client, "c.toml"), drop_comments=True)
        assert len(backups(file)) == 1


def test_the_entry_of_one_project_is_replaced_and_the_rest_of_claudes_file_stays(machine: Machine) -> None:
    project = str(machine.project)
    content = {"n": 1, **servers(u={"command": "x"}), "projects": {project: {**servers(l={"command": "y"}), "h": [1]}}}
    source = machine.write("~/.claude.json", content)
    local = next(config for config in machine.discover() if config.scope == "local")
    entry = toolfold_entry("claude-code", "c.toml")
    replace_servers(local, entry)
    expected = {**content, "projects": {project: {"mcpServers": {"toolfold": entry}, "h": [1]}}}
    assert json.loads(source.read_text()) == expected


def test_codex_tables_are_replaced_and_all_else_stays(machine: Machine) -> None:
    text = (
        'model = "o3" # fast\n\n[mcp_servers.a]\ncommand = "x"\n[mcp_servers.a.env]\nK = "v"\n\n# my profile\n'
        '[profiles.x]\nmodel = "y"\n\n[mcp_servers."b c"]\nurl = "https://x.example/"\n'
    )
    source = machine.write("~/.codex/config.toml", text)
    (config,) = machine.discover()
    replace_servers(config, toolfold_entry("codex", "c.toml"))
    new = source.read_text()
    assert new.startswith('model = "o3" # fast\n')
    assert '# my profile\n[profiles.x]\nmodel = "y"\n' in new
    assert tomllib.loads(new)["mcp_servers"] == {
        "toolfold": {"command": "toolfold", "args": ["--config", "c.toml", "serve"]}
    }
    inline = machine.write("~/.codex/config.toml", 'mcp_servers = { a = { command = "x" } }\n')
    with pytest.raises(ConfigError, match="cannot be rewritten safely"):
        replace_servers(machine.discover()[0], toolfold_entry("codex", "c.toml"))
    assert inline.read_text() == 'mcp_servers = { a = { command = "x" } }\n'
