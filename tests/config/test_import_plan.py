"""`toolfold import` plans before it writes, and then writes with a backup and nothing that would not load."""

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from client_machine import Machine, servers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolfold.config import Settings
from toolfold.config.clients import (
    apply,
    backups,
    discover,
    plan_import,
    read_client_file,
    restore,
)
from toolfold.config.self_reference import is_toolfold
from toolfold.errors import ConfigError, SecretNotFound
from toolfold.types import ServerSpec

TOKEN = "ghp_" + "a1B2c3D4" * 5


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.requirement("G-03")
def test_a_plan_says_what_is_added_renamed_identical_or_toolfold_itself(machine: Machine) -> None:
    machine.write("toolfold.toml", '[servers.git]\ncommand = "git-server"\n[servers.web]\nurl = "https://x.example/"\n')
    machine.write(
        "~/.cursor/mcp.json",
        servers(
            Git={"command": "other-git"},
            web2={"url": "https://x.example/"},
            me={"command": "uvx", "args": ["toolfold", "serve"]},
            new={"command": "n"},
        ),
    )
    machine.write(".mcp.json", servers(git={"command": "git-server"}, new={"command": "n2"}))
    plan = plan_import(machine.discover(), machine.load())
    assert [(item.client, item.written, item.action, item.name, item.reason) for item in plan.items] == [
        ("claude-code", "git", "identical", "git", "the same as `git`"),
        ("claude-code", "new", "add", "new", ""),
        ("cursor", "Git", "rename", "Git-cursor", "`Git` is taken by a different server"),
        ("cursor", "web2", "identical", "web2", "the same as `web`"),
        ("cursor", "me", "itself", "me", "it is toolfold itself"),
        ("cursor", "new", "rename", "new-cursor", "`new` is taken by a different server"),
    ]
    assert "cwd" not in plan.items[1].table


@pytest.mark.parametrize(
    "command",
    [
        "toolfold serve",
        "/opt/bin/toolfold --config x serve",
        r"C:\bin\toolfold.exe serve",
        "uvx toolfold serve",
        "uvx --from toolfold[keyring]==1.2 toolfold serve",
        "pipx run toolfold@latest serve",
        "python3.12 -m toolfold serve",
        "uv --directory /x run toolfold serve",
        "npx -y toolfold serve",
        "timeout 600 /opt/venv/bin/toolfold --config x serve",
        "docker run -i --rm ghcr.io/toolfold/toolfold:1 serve",
    ],
)
def test_toolfold_is_recognised_however_it_is_started(command: str) -> None:
    program, *args = command.split(" ")
    assert is_toolfold("x", ServerSpec(name="x", transport="stdio", command=program, args=tuple(args)))
    shell = ServerSpec(name="x", transport="stdio", command="bash", args=("-lc", f"exec {command}"))
    assert is_toolfold("x", shell) or "toolfold serve" not in command


def test_a_server_that_only_mentions_toolfold_is_not_toolfold() -> None:
    files = ServerSpec(name="files", transport="stdio", command="npx", args=("server-filesystem", "/src/toolfold"))
    python = ServerSpec(name="toolfold", transport="stdio", command="python", args=("toolfold.py",))
    web = ServerSpec(name="toolfold", transport="http", url="https://toolfold.example/mcp")
    local = ServerSpec(name="toolfold", transport="http", url="http://127.0.0.1:8080/mcp")
    assert [is_toolfold(spec.name, spec) for spec in (files, python, web, local)] == [False, False, False, True]


def secret_servers() -> dict[str, Any]:
    return servers(
        hub={"command": "npx", "args": ["hub", "--key", "sesame-arg"], "env": {"GITHUB_TOKEN": TOKEN, "LEVEL": "x"}},
        hub2={"command": "npx", "args": ["two"], "env": {"GITHUB_TOKEN": "sesame-other"}},
        web={"url": "https://x.example/", "headers": {"Authorization": "Bearer sesame-web"}},
    )


@pytest.mark.requirement("G-03", "G-06")
def test_secrets_in_plain_text_are_kept_with_a_warning_and_never_shown(machine: Machine) -> None:
    machine.write("~/.cursor/mcp.json", secret_servers())
    plan = plan_import(machine.discover())
    assert [[s.place for s in item.secrets] for item in plan.items] == [
        ["env.GITHUB_TOKEN", "args[2]"],
        ["env.GITHUB_TOKEN"],
        ["headers.Authorization"],
    ]
    assert len(plan.warnings) == 4
    shown = (
        repr(plan),
        str(plan.items),
        plan.preview(),
        str(plan.warnings),
        json.dumps([i.as_dict() for i in plan.items]),
    )
    for text in shown:
        assert "sesame" not in text
        assert TOKEN not in text
    assert 'args = ["hub", "--key", "***"]' in plan.preview()
    done = apply(plan, machine.project / "toolfold.toml")
    assert done.private
    assert stat.S_IMODE(done.target.stat().st_mode) == 0o600
    assert machine.load().server("hub").env["GITHUB_TOKEN"] == TOKEN


@pytest.mark.requirement("G-03", "G-06")
def test_secrets_move_to_variables_on_request_and_a_second_import_finds_nothing_new(machine: Machine) -> None:
    machine.write("~/.cursor/mcp.json", secret_servers())
    plan = plan_import(machine.discover(), secrets="env")
    done = apply(plan, machine.project / "toolfold.toml")
    text = done.target.read_text()
    assert "sesame" not in text
    assert TOKEN not in text
    assert not done.private
    assert done.variables == plan.variables == ("GITHUB_TOKEN", "HUB_KEY", "HUB2_GITHUB_TOKEN", "WEB_TOKEN")
    loaded = machine.load()
    assert loaded.server("hub2").env == {"GITHUB_TOKEN": "${HUB2_GITHUB_TOKEN}"}
    assert loaded.server("web").headers == {"Authorization": "Bearer ${WEB_TOKEN}"}
    assert {item.action for item in plan_import(machine.discover(), loaded).items} == {"identical"}


@pytest.mark.requirement("G-06")
def test_all_secrets_of_one_text_move_and_none_is_shown(machine: Machine) -> None:
    address = "https://me:sesame-1@x.example/?api_key=sesame-long-2&token=sesame-3"
    machine.write("~/.cursor/mcp.json", servers(web={"url": address}))
    kept = plan_import(machine.discover())
    assert "sesame" not in f"{kept.preview()} {kept.items}"
    moved = plan_import(machine.discover(), secrets="env")
    apply(moved, machine.project / "toolfold.toml")
    assert moved.variables == ("WEB_URL_PASSWORD", "WEB_API_KEY", "WEB_TOKEN")
    expected = "https://me:${WEB_URL_PASSWORD}@x.example/?api_key=${WEB_API_KEY}&token=${WEB_TOKEN}"
    assert machine.load().server("web").url == expected


@pytest.mark.requirement("G-06")
def test_a_new_file_with_values_that_may_be_secrets_is_for_its_owner_alone(machine: Machine) -> None:
    machine.write("~/.cursor/mcp.json", servers(web={"command": "x", "env": {"DOOR": "opens"}}))
    done = apply(plan_import(machine.discover()), machine.project / "toolfold.toml")
    assert not done.private
    assert stat.S_IMODE(done.target.stat().st_mode) == 0o600
    machine.write("~/.cursor/mcp.json", servers(web={"command": "x", "env": {"DOOR": "${DOOR}"}}))
    done = apply(plan_import(machine.discover()), machine.project / "other.toml")
    assert stat.S_IMODE(done.target.stat().st_mode) == 0o644


def test_secrets_move_to_the_keyring_on_request(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    import keyring
    from keyring.backend import KeyringBackend

    from toolfold.config import resolve

    held: dict[tuple[str, str], str] = {}

    class Memory(KeyringBackend):
        priority = 1

        def get_password(self, service: str, username: str) -> str | None:
            return held.get((service, username))

        def set_password(self, service: str, username: str, password: str) -> None:
            held[service, username] = password

    before = keyring.get_keyring()
    keyring.set_keyring(Memory())  # type: ignore[no-untyped-call]  # keyring's base class has no types
    try:
        machine.write("~/.cursor/mcp.json", secret_servers())
        apply(plan_import(machine.discover(), secrets="keyring"), machine.project / "toolfold.toml")
        spec = machine.load().server("web")
        assert spec.headers == {"Authorization": "Bearer ${keyring:toolfold/web/WEB_TOKEN}"}
        assert resolve(spec, environ={}).headers == {"Authorization": "Bearer sesame-web"}
    finally:
        keyring.set_keyring(before)
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(SecretNotFound, match="not installed"):
        apply(plan_import(machine.discover(), secrets="keyring"), machine.project / "other.toml")
    assert not (machine.project / "other.toml").exists()


@pytest.mark.requirement("G-03")
def test_applying_keeps_every_character_and_a_backup_and_leaves_the_client_alone(machine: Machine) -> None:
    old = '# mine\r\n[servers.a] # first\r\ncommand = "x"\r\n\r\n[limits]\r\ncall_timeout_s = 5'
    target = machine.write("toolfold.toml", "")
    target.write_bytes(old.encode())
    target.chmod(0o640)
    source = machine.write("~/.cursor/mcp.json", servers(b={"command": "y", "args": ['quote" back\\ tab\t']}))
    original = source.read_bytes()
    plan = plan_import(machine.discover(), machine.load())
    assert target.read_bytes() == old.encode()
    done = apply(plan, target, now=0)
    assert done.backup is not None
    assert done.backup.read_bytes() == old.encode()
    assert target.read_bytes().startswith(old.encode() + b"\r\n\r\n[servers.b]\r\n")
    assert stat.S_IMODE(target.stat().st_mode) == stat.S_IMODE(done.backup.stat().st_mode) == 0o640
    assert [spec.name for spec in machine.load().servers] == ["a", "b"]
    assert source.read_bytes() == original
    assert [path.name for path in machine.project.iterdir()].count(".toolfold.toml") == 0

    apply(
        plan_import([read_client_file(machine.write("m.json", servers(c={"command": "z"})))], machine.load()),
        target,
        now=0,
    )
    assert len(backups(target)) == 2
    assert restore(done.backup, now=0) in backups(target)
    assert target.read_bytes() == old.encode()
    assert len(backups(target)) == 3


def test_an_import_without_anything_new_writes_nothing(machine: Machine) -> None:
    done = apply(plan_import([]), machine.project / "toolfold.toml")
    assert (done.added, done.backup) == ((), None)
    assert not (machine.project / "toolfold.toml").exists()


def test_a_link_stays_a_link(machine: Machine) -> None:
    real = machine.write("dotfiles/toolfold.toml", "")
    link = machine.project / "toolfold.toml"
    link.symlink_to(real)
    machine.write(".mcp.json", servers(a={"command": "x"}))
    apply(plan_import(machine.discover()), link)
    assert link.is_symlink()
    assert "servers.a" in real.read_text()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('servers = { a = { command = "x" } }\n', "inline table"),
        ('[servers.NEW]\ncommand = "x"\n', "has changed since"),
        ("[servers", "not valid TOML"),
        ("servers = 3\n", "inline table"),
    ],
)
def test_what_cannot_be_added_safely_is_refused_and_nothing_changes(machine: Machine, text: str, says: str) -> None:
    target = machine.write("toolfold.toml", text)
    machine.write(".mcp.json", servers(new={"command": "y"}))
    with pytest.raises(ConfigError, match=says):
        apply(plan_import(machine.discover()), target)
    assert target.read_text() == text
    assert backups(target) == []


def test_a_projects_server_keeps_its_folder_when_it_moves_elsewhere(machine: Machine) -> None:
    machine.write(".mcp.json", servers(a={"command": "node", "args": ["dist/a.js"]}, b={"command": "x", "cwd": "sub"}))
    a, b = plan_import(machine.discover()).items
    assert (a.table["cwd"], b.table["cwd"]) == (str(machine.project), str(machine.project / "sub"))


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "command": TEXT,
        "args": st.lists(TEXT, max_size=3),
        "env": st.dictionaries(TEXT, TEXT | st.integers() | st.booleans(), max_size=3),
        "url": st.just("https://x.example/mcp?key=abcdefgh") | TEXT,
        "headers": st.dictionaries(st.sampled_from(["Authorization", "X-Key"]), TEXT),
        "disabled": st.booleans(),
        "type": st.sampled_from(["stdio", "http", "sse", "streamableHttp"]),
        "auth": st.just("oauth"),
        "timeout": st.integers(),
        "cwd": TEXT,
    },
)


@pytest.mark.requirement("G-03")
@given(entries=st.dictionaries(TEXT, ENTRY, max_size=4), mode=st.sampled_from(["keep", "env"]))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_imported_loads_again_with_the_same_meaning(
    tmp_path: Path, entries: dict[str, Any], mode: Any
) -> None:
    source, target = tmp_path / "mcp.json", tmp_path / "toolfold.toml"
    source.write_text(json.dumps({"mcpServers": entries}), "utf-8")
    target.unlink(missing_ok=True)
    found = discover("mcp.json", home=tmp_path / "home", environ={}, cwd=tmp_path)
    plan = plan_import(found, Settings(project=tmp_path), secrets=mode)
    apply(plan, target)
    loaded = (
        Settings.load(target, environ={"HOME": str(tmp_path / "home")}, cwd=tmp_path, require_servers=False)
        if plan.additions
        else Settings()
    )
    by_name = {server.written: server.spec for config in found for server in config.servers}
    assert len(loaded.servers) == len(plan.additions)
    for item in plan.additions:
        spec, again = by_name[item.written], loaded.server(item.name)
        assert spec is not None
        assert (spec.transport, spec.command, spec.enabled, spec.cwd) == (
            again.transport,
            again.command,
            again.enabled,
            again.cwd,
        )
        if mode == "keep":
            assert (spec.args, spec.env, spec.url, spec.headers) == (again.args, again.env, again.url, again.headers)
