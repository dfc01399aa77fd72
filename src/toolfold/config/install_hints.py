"""What keeps a server from starting, as far as it shows without starting it, and how to install common programs."""

import importlib.util
import os
import shutil
from pathlib import Path, PurePath

from toolfold.config.secrets import missing
from toolfold.types import ServerSpec

__all__ = ["install_hint", "problem_of"]

_COMMON = {
    "npx": "install Node.js, which brings npx",
    "node": "install Node.js",
    "uvx": "install uv, which brings uvx: pip install uv",
    "uv": "install uv: pip install uv",
    "docker": "install Docker and start it",
}


def install_hint(command: str) -> str:
    """What to do when `command` is not there."""
    return _COMMON.get(PurePath(command).name, "install it, or write its full path as `command`")


def problem_of(spec: ServerSpec) -> tuple[str, str] | None:
    """What is wrong with a server, and what to do about it; `None` where nothing shows."""
    if absent := missing(spec):
        return f"{' and '.join(absent)} not set", f"export {absent[0]}=…, then try again"
    if spec.cwd and not Path(spec.cwd).is_dir():
        return f"its folder {spec.cwd} does not exist", "correct `cwd`"
    if spec.env_file and not os.access(spec.env_file, os.R_OK):
        return f"its env_file {spec.env_file} cannot be read", "correct `env_file`, or write the file"
    if spec.transport == "skills" and not Path(spec.document).is_dir():
        return f"there is no folder {spec.document}", "correct `skills`: a path starts at the file's folder"
    checks = {"stdio": _program_problem, "openapi": _document_problem, "functions": _module_problem}
    return checks[spec.transport](spec) if spec.transport in checks else None


def _program_problem(spec: ServerSpec) -> tuple[str, str] | None:
    command = spec.command
    if "${" in command:
        return None
    if "/" not in command:
        there = shutil.which(command, path=spec.env.get("PATH"))
        return None if there else (f"the program {command!r} is not on PATH", install_hint(command))
    file = Path(spec.cwd or ".", command)
    if not file.is_file():
        return f"the program {command} is not there", install_hint(command)
    if os.access(file, os.X_OK):
        return None
    way = f"chmod +x {file}"
    if file.suffix == ".py":
        way = f"for an MCP server: python {file}; for Python functions: toolfold add {spec.name} --functions {file}"
    return f"the program {command} may not be executed", way


def _document_problem(spec: ServerSpec) -> tuple[str, str] | None:
    if "://" in spec.document or "${" in spec.document or os.access(spec.document, os.R_OK):
        return None
    return f"its document {spec.document} cannot be read", "correct `openapi`: a path starts at the file's folder"


def _module_problem(spec: ServerSpec) -> tuple[str, str] | None:
    module = spec.document.partition(":")[0]
    package, beside = module.partition(".")[0], Path(spec.cwd or ".")
    if module.endswith(".py") or importlib.util.find_spec(package) is not None:
        return None
    if (beside / f"{package}.py").is_file() or (beside / package).is_dir():
        return None
    return f"there is no Python module {module}", f"install it beside toolfold, or write {beside / package}.py"
