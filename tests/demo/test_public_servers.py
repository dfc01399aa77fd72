"""Installing the public servers of the demo: with an interpreter that plays along, fails, or is not there."""

import sys
from pathlib import Path
from typing import Any

import pytest

from toolfold.demo.public_servers import PUBLIC_SERVERS, install_public_servers


def fake_python(folder: Path, pip: str) -> str:
    """An interpreter that makes an environment whose own interpreter runs `pip` instead of pip."""
    program = folder / "python"
    program.write_text(
        "#!/bin/sh\n"
        'if [ "$3" != venv ]; then exit 9; fi\n'
        'mkdir -p "$4/bin"\n'
        f'cat > "$4/bin/python" <<\'END\'\n#!/bin/sh\necho "$@" >> {folder}/pip.log\n{pip}\nEND\n'
        'chmod +x "$4/bin/python"\n'
    )
    program.chmod(0o755)
    return str(program)


def install(folder: Path) -> tuple[list[Any], list[str]]:
    reports: list[str] = []
    return install_public_servers(folder / "demo", report=reports.append), reports


def test_each_is_installed_into_an_environment_of_its_own_after_it_was_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", fake_python(tmp_path, "exit 0"))
    servers, reports = install(tmp_path)
    home = tmp_path / "demo"
    assert [server.name for server in servers] == [server.name for server in PUBLIC_SERVERS]
    assert len({server.command for server in servers}) == len(PUBLIC_SERVERS)
    by_name = {server.name: server for server in servers}
    assert by_name["sqlite-reference"].command == f"{home}/environments/sqlite-reference/bin/mcp-server-sqlite"
    assert by_name["sqlite-reference"].args == ("--db-path", f"{home}/data/shop.db")
    assert by_name["time"].cwd == str(home)
    assert reports[-1] == f"installing mcp-server-sqlite mcp<2 into {home}/environments/sqlite-reference"
    lines = (tmp_path / "pip.log").read_text().splitlines()
    assert lines[-1] == "-I -m pip install --quiet --disable-pip-version-check mcp-server-sqlite mcp<2"


@pytest.mark.parametrize(
    ("pip", "problem"),
    [
        ("echo first >&2; echo 'ERROR: no such package' >&2; exit 1", "ERROR: no such package"),
        ("exit 3", "exit code 3"),
    ],
)
def test_what_cannot_be_installed_is_reported_with_the_last_line_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pip: str, problem: str
) -> None:
    only_time = f'case "$*" in *mcp-server-time*) exit 0;; esac\n{pip}'
    monkeypatch.setattr(sys, "executable", fake_python(tmp_path, only_time))
    servers, reports = install(tmp_path)
    assert [server.name for server in servers] == ["time"]
    assert f"left out git-reference: {problem}" in reports
    assert sum(report.startswith("left out ") for report in reports) == len(PUBLIC_SERVERS) - 1


def test_an_interpreter_that_is_not_there_leaves_all_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    servers, reports = install(tmp_path)
    assert servers == []
    assert "No such file" in reports[1]
