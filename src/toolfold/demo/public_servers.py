"""Public servers for `toolfold demo --more`: each installed from the package index into an environment of its own.

They pin different versions of the same libraries, so none shares an environment. What cannot be installed is
reported and left out.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from toolfold.types import ServerSpec

__all__ = ["install_public_servers"]

_INSTALL_TIMEOUT_S = 300


class _PublicServer(Struct, frozen=True):
    """A package, the program it brings, and how to start it. `{folder}` is a folder it may use."""

    name: str
    packages: tuple[str, ...]
    program: str
    args: tuple[str, ...] = ()


PUBLIC_SERVERS = (
    _PublicServer("git-reference", ("mcp-server-git",), "mcp-server-git", ("--repository", "{folder}/data/repository")),
    _PublicServer("time", ("mcp-server-time",), "mcp-server-time"),
    _PublicServer("calculator", ("mcp-server-calculator",), "mcp-server-calculator"),
    _PublicServer("excel", ("excel-mcp-server",), "excel-mcp-server", ("stdio",)),
    _PublicServer(
        "sqlite-reference",
        ("mcp-server-sqlite", "mcp<2"),
        "mcp-server-sqlite",
        ("--db-path", "{folder}/data/shop.db"),
    ),
)


def install_public_servers(folder: Path, *, report: Callable[[str], None]) -> list[ServerSpec]:
    """Installs each and gives what starts it. Each install is reported before it starts, with its exact packages."""
    servers = []
    for server in PUBLIC_SERVERS:
        environment = folder / "environments" / server.name
        report(f"installing {' '.join(server.packages)} into {environment}")
        problem = _install_server(server, environment)
        if problem:
            report(f"left out {server.name}: {problem}")
            continue
        args = tuple(arg.format(folder=folder) for arg in server.args)
        command = str(environment / "bin" / server.program)
        servers.append(ServerSpec(name=server.name, transport="stdio", command=command, args=args, cwd=str(folder)))
    return servers


def _install_server(server: _PublicServer, environment: Path) -> str:
    """Why it could not be installed, or an empty text."""
    # -I: neither the working folder nor PYTHONPATH takes part.
    pip = [str(environment / "bin" / "python"), "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        subprocess.run(
            [sys.executable, "-I", "-m", "venv", str(environment)],
            capture_output=True,
            check=True,
            timeout=_INSTALL_TIMEOUT_S,
        )
        subprocess.run([*pip, *server.packages], capture_output=True, check=True, timeout=_INSTALL_TIMEOUT_S)
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {error.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return ""
