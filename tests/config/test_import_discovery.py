"""`toolfold import` finds the servers of every client, where its documentation says, on every system."""

from pathlib import Path

import pytest
from client_machine import Machine, servers

from toolfold.config.clients import (
    CLIENTS,
    discover,
    plan_import,
    read_client_file,
)
from toolfold.config.clients.discovery import _locations
from toolfold.errors import ConfigError


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.requirement("G-03")
@pytest.mark.parametrize(
    ("platform", "home", "environ", "expected"),
    [
        (
            "linux",
            "/home/me",
            {},
            {
                "claude-desktop": ["/home/me/.config/Claude/claude_desktop_config.json"],
                "claude-code": ["/home/me/.claude.json", "/p/.mcp.json"],
                "cursor": ["/home/me/.cursor/mcp.json", "/p/.cursor/mcp.json"],
                "codex": ["/home/me/.codex/config.toml", "/p/.codex/config.toml"],
                "gemini": ["/home/me/.gemini/settings.json", "/p/.gemini/settings.json"],
                "mcp.json": ["/p/mcp.json"],
            },
        ),
        (
            "darwin",
            "/Users/me",
            {"CODEX_HOME": "/x/codex", "CLAUDE_CONFIG_DIR": "/x/claude", "GEMINI_CLI_HOME": "/x/gem"},
            {
                "claude-desktop": ["/Users/me/Library/Application Support/Claude/claude_desktop_config.json"],
                "claude-code": ["/x/claude/.claude.json", "/p/.mcp.json"],
                "codex": ["/x/codex/config.toml", "/p/.codex/config.toml"],
                "gemini": ["/x/gem/.gemini/settings.json", "/p/.gemini/settings.json"],
            },
        ),
        (
            "win32",
            r"C:\Users\me",
            {"APPDATA": r"D:\Roaming"},
            {
                "claude-desktop": [
                    r"D:\Roaming\Claude\claude_desktop_config.json",
                    r"C:\Users\me\AppData\Local\Packages\Claude_pzs8sxrjxfjjc\LocalCache\Roaming\Claude"
                    r"\claude_desktop_config.json",
                ],
                "claude-code": [r"C:\Users\me\.claude.json", r"\p\.mcp.json"],
                "cursor": [r"C:\Users\me\.cursor\mcp.json", r"\p\.cursor\mcp.json"],
            },
        ),
    ],
)
def test_each_client_is_looked_for_where_its_documentation_says(
    platform: str, home: str, environ: dict[str, str], expected: dict[str, list[str]]
) -> None:
    found = _locations(platform, home, environ, "/p")
    assert {location.client for location in found} == set(CLIENTS)
    for client, paths in expected.items():
        assert [str(location.path) for location in found if location.client == client] == paths


@pytest.mark.requirement("G-03")
@pytest.mark.parametrize(
    ("platform", "home", "user"),
    [
        ("linux", "/home/me", "/home/me/.config/Code/User/mcp.json"),
        ("darwin", "/Users/me", "/Users/me/Library/Application Support/Code/User/mcp.json"),
        ("win32", r"C:\Users\me", r"C:\Users\me\AppData\Roaming\Code\User\mcp.json"),
    ],
)
def test_vs_code_is_looked_for_in_all_its_editions_and_profiles(platform: str, home: str, user: str) -> None:
    found = [str(item.path) for item in _locations(platform, home, {}, "/p") if item.client == "vscode"]
    assert user in found
    assert user.replace("Code", "Code - Insiders", 1) in found
    assert user.replace("Code", "VSCodium", 1) in found
    assert any("profiles" in path and "*" in path for path in found)
    assert found[-2].endswith("mcp.json")
    assert ".vscode" in found[-2]


@pytest.mark.requirement("G-03")
def test_the_servers_of_every_client_are_found_in_both_scopes(machine: Machine) -> None:
    x = {"command": "x"}
    machine.write("~/.config/Claude/claude_desktop_config.json", servers(desktop=x))
    machine.write(
        "~/.claude.json",
        {
            "numStartups": 3,
            **servers(code_user={"type": "http", "url": "https://x.example/mcp"}),
            "projects": {str(machine.project): servers(code_local=x), "/elsewhere": servers(other=x)},
        },
    )
    machine.write(".mcp.json", servers(code_project=x))
    machine.write("~/.cursor/mcp.json", servers(cursor_user={"url": "https://x.example/${env:A}"}))
    machine.write(".cursor/mcp.json", servers(cursor_project=x))
    machine.write("~/.config/Code/User/mcp.json", '{"servers": {"vs_user": {"command": "x"},}, // note\n}')
    machine.write("~/.config/Code - Insiders/User/profiles/a1/mcp.json", {"servers": {"vs_profile": x}})
    machine.write("~/.config/VSCodium/User/settings.json", {"mcp": {"servers": {"vs_legacy": x}}, "editor.x": 1})
    machine.write(".vscode/mcp.json", {"servers": {"vs_project": {**x, "args": ["${workspaceFolder}"]}}})
    machine.write("~/.codex/config.toml", '[mcp_servers.codex_user]\ncommand = "x"\n')
    machine.write(".codex/config.toml", '[mcp_servers.codex_project]\nurl = "https://x.example/mcp"\n')
    machine.write(
        "~/.gemini/settings.json", {"theme": "dark", **servers(gemini_user={"httpUrl": "https://x.example/"})}
    )
    machine.write(".gemini/settings.json", servers(gemini_project=x))
    machine.write("mcp.json", servers(plain=x))
    found = machine.discover()
    names = [(config.client, config.scope, server.name) for config in found for server in config.servers]
    assert names == [
        ("claude-desktop", "user", "desktop"),
        ("claude-code", "user", "code_user"),
        ("claude-code", "local", "code_local"),
        ("claude-code", "project", "code_project"),
        ("cursor", "user", "cursor_user"),
        ("cursor", "project", "cursor_project"),
        ("vscode", "user", "vs_user"),
        ("vscode", "user", "vs_profile"),
        ("vscode", "user", "vs_legacy"),
        ("vscode", "project", "vs_project"),
        ("codex", "user", "codex_user"),
        ("codex", "project", "codex_project"),
        ("gemini", "user", "gemini_user"),
        ("gemini", "project", "gemini_project"),
        ("mcp.json", "project", "plain"),
    ]
    assert all(server.spec is not None for config in found for server in config.servers)
    assert [config.client for config in machine.discover("codex")] == ["codex", "codex"]
    assert [c.project for c in machine.discover("claude-code", all_projects=True) if c.scope == "local"] == [
        machine.project,
        Path("/elsewhere"),
    ]
    vs_project = next(s for c in found for s in c.servers if s.name == "vs_project")
    assert vs_project.table["args"] == [str(machine.project)]


@pytest.mark.requirement("G-03")
def test_codex_and_gemini_keys_become_toolfolds_own(machine: Machine) -> None:
    machine.write(
        "~/.codex/config.toml",
        """
        model = "o3"
        [mcp_servers.web]
        url = "https://x.example/mcp"
        bearer_token_env_var = "WEB_TOKEN"
        http_headers = { "X-Team" = "a" }
        env_http_headers = { "X-Key" = "WEB_KEY" }
        startup_timeout_sec = 20
        tool_timeout_sec = 90
        enabled = false
        [mcp_servers.local]
        command = "x"
        env_vars = ["LANG", "API_TOKEN", { name = "MODE", source = "local" }]
        enabled_tools = ["a"]
        startup_timeout_ms = 5000
        [mcp_servers.local.env]
        A = "1"
        """,
    )
    machine.write(
        "~/.gemini/settings.json",
        {
            "mcp": {"excluded": ["off"]},
            **servers(
                on={"command": "x", "env": {"K": "$MY_KEY", "L": "${OTHER}"}, "timeout": 15000, "trust": True},
                off={"url": "https://x.example/sse", "includeTools": ["a"]},
            ),
        },
    )
    web, local, on, off = (server for config in machine.discover() for server in config.servers)
    assert web.table == {
        "url": "https://x.example/mcp",
        "headers": {"X-Team": "a", "X-Key": "${WEB_KEY}"},
        "bearer_token": "${WEB_TOKEN}",
        "start_timeout_s": 20,
        "call_timeout_s": 90,
        "enabled": False,
    }
    assert local.table == {
        "command": "x",
        "env": {"LANG": "${LANG:-}", "API_TOKEN": "${API_TOKEN}", "MODE": "${MODE:-}", "A": "1"},
        "start_timeout_s": 5.0,
    }
    assert "`enabled_tools` is not taken over" in local.notes[0]
    assert on.table == {"command": "x", "env": {"K": "${MY_KEY}", "L": "${OTHER}"}, "call_timeout_s": 15.0}
    assert off.table == {"url": "https://x.example/sse", "enabled": False}


def test_a_broken_file_is_reported_and_holds_up_nothing(machine: Machine) -> None:
    machine.write("~/.cursor/mcp.json", '{"mcpServers": {')
    machine.write(".mcp.json", servers(good={"command": "x"}, bad={"command": 3}, none={}))
    found = machine.discover()
    assert "mcp.json:1:17: not valid JSON" in found[1].problems[0]
    plan = plan_import(found)
    assert [(item.action, item.name) for item in plan.items] == [("add", "good"), ("broken", "bad"), ("broken", "none")]
    assert "mcpServers.bad.command: expected a string" in plan.items[1].reason
    assert plan.items[1].line == 6
    assert len(plan.problems) == 1


def test_an_unknown_client_is_answered_with_the_nearest(machine: Machine) -> None:
    with pytest.raises(ConfigError) as caught:
        machine.discover("cursr")
    assert caught.value.next_action == "Did you mean 'cursor'?"
    assert set(caught.value.hints) == set(CLIENTS)


def test_any_clients_file_can_be_named_directly(machine: Machine) -> None:
    codex = machine.write("some.toml", '[mcp_servers.a]\ncommand = "x"\n')
    vscode = machine.write(".vscode/mcp.json", {"servers": {"b": {"command": "x"}}})
    assert read_client_file(codex).servers[0].name == "a"
    assert (read_client_file(vscode).dialect, read_client_file(vscode).project) == ("vscode", machine.project)
    with pytest.raises(ConfigError, match="holds no servers"):
        read_client_file(machine.write("x.json", "{}"))


def test_17_01_in_the_home_folder_each_file_is_read_once(machine: Machine) -> None:
    machine.write("~/.cursor/mcp.json", servers(a={"command": "x"}))
    found = discover(platform="linux", environ=machine.environ, cwd=machine.home)
    assert [(config.scope, len(config.servers)) for config in found] == [("user", 1)]
