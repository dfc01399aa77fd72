"""Servers of other projects that the agent's tasks use: where they lie below `--peers DIR`, and how they get there.

    DIR/excel/bin/excel-mcp-server                   excel    workbooks        PyPI excel-mcp-server
    DIR/git/bin/mcp-server-git                       repo     commits          PyPI mcp-server-git
    DIR/node/node_modules/.bin/mcp-server-memory     memory   knowledge graph  npm @modelcontextprotocol/server-memory

Nothing is installed unless DIR is given. What cannot be installed is said to be absent, and its tasks are left out.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from toolfold.demo.public_servers import PUBLIC_SERVERS, _install_server

INSTALL_S = 300
MEMORY = "@modelcontextprotocol/server-memory"
PYTHON = {"excel": ("excel", "excel"), "repo": ("git", "git-reference")}
"""Server → its folder below DIR, and its entry among the demo's public servers."""
SERVERS = (*PYTHON, "memory")


def find_programs(peers: Path | None) -> tuple[dict[str, str], dict[str, str]]:
    """What starts each of them, and why one is absent. Installs into `peers` what is missing there."""
    if peers is None:
        return {}, dict.fromkeys(SERVERS, "absent: give --peers DIR, a folder for other projects' servers")
    programs: dict[str, str] = {}
    absent: dict[str, str] = {}
    for name in SERVERS:
        program, problem = _memory(peers.resolve()) if name == "memory" else _python(peers.resolve(), name)
        if problem:
            absent[name] = f"absent: {problem}"
        else:
            programs[name] = str(program)
    return programs, absent


def _python(peers: Path, name: str) -> tuple[Path, str]:
    folder, public = PYTHON[name]
    server = next(one for one in PUBLIC_SERVERS if one.name == public)
    program = peers / folder / ("Scripts" if sys.platform == "win32" else "bin") / server.program
    if program.exists():
        return program, ""
    problem = _install_server(server, peers / folder)
    return program, problem or ("" if program.exists() else f"its package brought no {server.program}")


def _memory(peers: Path) -> tuple[Path, str]:
    folder = peers / "node"
    program = folder / "node_modules" / ".bin" / "mcp-server-memory"
    npm = shutil.which("npm")
    if program.exists():
        return program, ""
    if npm is None:
        return program, "npm is not installed"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--no-audit", "--no-fund", MEMORY]
        subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=INSTALL_S)
    except (OSError, subprocess.SubprocessError) as error:
        return program, str(error)
    return program, "" if program.exists() else "its package brought no mcp-server-memory"
