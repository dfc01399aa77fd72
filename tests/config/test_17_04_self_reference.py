"""toolfold never serves itself, and a project's `.mcp.json` adds to what the person has."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from client_machine import Machine, servers

from toolfold.config import Settings
from toolfold.faces.cli.doctor import _check_configuration
from toolfold.upstream.pool import Pool

ITSELF = {"command": "uvx", "args": ["toolfold", "serve"]}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_17_04_it_is_left_out_of_every_file_with_a_warning(machine: Machine) -> None:
    files = [
        machine.write("toolfold.toml", '[servers.me]\ncommand = "/opt/bin/toolfold"\nargs = ["serve"]\n'),
        machine.write(".mcp.json", servers(me=ITSELF)),
        machine.write("mcp.json", servers(me={"command": "python", "args": ["-m", "toolfold", "serve"]})),
    ]
    for file in files:
        loaded = Settings.load(file, environ=machine.environ, cwd=machine.project, require_servers=False)
        assert loaded.servers == ()
        assert [warning for warning in loaded.warnings if "left out, since it is toolfold itself" in warning]


def test_17_04_a_projects_file_adds_to_the_persons(machine: Machine) -> None:
    own = machine.write(
        "~/.toolfold/toolfold.toml",
        '[limits]\ncall_timeout_s = 5\n[defaults]\nenv = { LEVEL = "x" }\n[policy.default]\n'
        'deny = ["risk:destructive"]\n[servers.mail]\ncommand = "mail"\n[servers.git]\ncommand = "my-git"\n',
    )
    project = machine.write(".mcp.json", servers(GIT={"command": "their-git"}, shop={"command": "shop"}, me=ITSELF))
    loaded = machine.load()
    assert [(spec.name, spec.command, spec.cwd) for spec in loaded.servers] == [
        ("mail", "mail", None),
        ("GIT", "their-git", str(machine.project)),
        ("shop", "shop", str(machine.project)),
    ]
    assert (loaded.limits.call_timeout_s, loaded.policies[0].deny) == (5, ("risk:destructive",))
    assert loaded.servers[2].env == {"LEVEL": "x"}
    assert loaded.sources == (own, project)
    assert loaded.home.parent == own.parent / "projects"
    assert f"{project}: `git` counts here, and not the server of that name in {own}" in loaded.warnings


def test_17_04_a_projects_file_that_names_toolfold_alone_changes_nothing(machine: Machine) -> None:
    own = machine.write("~/.toolfold/toolfold.toml", '[servers.mail]\ncommand = "mail"\n')
    machine.write(".mcp.json", servers(toolfold=ITSELF))
    loaded = machine.load()
    assert ([spec.name for spec in loaded.servers], loaded.sources, loaded.home) == (["mail"], (own,), own.parent)


def test_17_04_doctor_says_which_file_counts(machine: Machine) -> None:
    own = machine.write("~/.toolfold/toolfold.toml", '[servers.mail]\ncommand = "mail"\n')
    added = machine.write(".mcp.json", servers(me=ITSELF, shop={"command": "shop"}))
    told = [finding.text for finding in _check_configuration(machine.load())]
    assert told[0] == f"{own} and {added}, 2 of 2 servers enabled"
    assert "left out, since it is toolfold itself" in told[1]
    machine.write("toolfold.toml", '[servers.shop]\ncommand = "shop"\n')
    told = [finding.text for finding in _check_configuration(machine.load())]
    assert told[1] == f"{own} is not read here: the file above counts alone"


def test_17_04_what_a_script_hides_is_refused_once_it_answers(tmp_path: Path) -> None:
    script = tmp_path / "start-tools"
    options = f"--home {tmp_path / 'home'} --config {tmp_path / 'toolfold.toml'}"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} -m toolfold {options} serve\n")
    script.chmod(0o755)
    (tmp_path / "toolfold.toml").write_text(f"[servers.tools]\ncommand = {json.dumps(str(script))}\n")
    loaded = Settings.load(tmp_path / "toolfold.toml", environ={"HOME": str(tmp_path)})

    async def listing() -> str:
        async with Pool(loaded.servers) as pool:
            ((_, result),) = [item async for item in pool.listings()]
            return str(result)

    assert "tools is toolfold itself" in asyncio.run(listing())
