"""The git server looks at a repository that is not trusted: nothing that it configures is started."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from toolfold.demo.data import make_demo_data
from toolfold.demo.git import GitTools

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="the git program is not installed")

CONFIG = """
[core]
    fsmonitor = {fsmonitor}
    pager = {pager}
    hooksPath = {hooks}
    sshCommand = {ssh}
[diff]
    external = {external}
    submodule = diff
[diff "x"]
    textconv = {textconv}
    command = {command}
[filter "a.b"]
    clean = {clean}
    smudge = {smudge}
    required = true
[filter "y"]
    process = {process}
[log]
    showSignature = true
[gpg]
    program = {gpg}
[gpg "ssh"]
    program = {gpg}
[core]
    repositoryFormatVersion = 1
[extensions]
    partialClone = origin
[remote "origin"]
    promisor = true
    url = {folder}
    uploadpack = {uploadpack}
"""
PROGRAMS = ["fsmonitor", "pager", "ssh", "external", "textconv", "command", "clean", "smudge", "process", "gpg"]
PROGRAMS += ["uploadpack", "post-index-change"]
SIGNED = """tree {tree}
author A <a@b.c> 1700000000 +0000
committer A <a@b.c> 1700000000 +0000
gpgsig -----BEGIN PGP SIGNATURE-----
 nothing
 -----END PGP SIGNATURE-----

signed
"""


def git(folder: Path, *args: str, given: str = "") -> str:
    command = ["git", "-C", str(folder), *args]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def trap(folder: Path, name: str) -> str:
    """A program that leaves a mark once it has run."""
    path = folder / name
    path.write_text(f"#!/bin/sh\necho {name} >> '{folder}/marks'\nexit 1\n")
    path.chmod(0o755)
    return str(path)


def hostile(folder: Path, config: str = CONFIG) -> Path:
    """A repository that plants programs wherever git could start one."""
    repository = make_demo_data(folder).repository
    assert repository is not None
    given = SIGNED.format(tree=git(repository, "rev-parse", "HEAD^{tree}"))
    signed = git(repository, "hash-object", "-t", "commit", "-w", "--stdin", given=given)
    git(repository, "update-ref", "refs/heads/signed", signed)
    _add_submodule(repository, trap(folder, "submodule"))
    programs = {name: trap(folder, name) for name in PROGRAMS}
    with (repository / ".git" / "config").open("a") as file:
        file.write(config.format(folder=repository, hooks=folder, **programs))
    (repository / ".gitattributes").write_text("*.md diff=x filter=a.b\n*.py filter=y\n")
    for path in repository.rglob("*.*"):
        if path.is_file() and ".git/" not in str(path):
            os.utime(path, (0, 0))  # git must look into it
    (repository / "README.md").write_text("changed\n")
    (repository / "tides" / "core.py").write_text("changed\n")
    return repository


def _add_submodule(repository: Path, program: str) -> None:
    inner = repository / "inner"
    git(repository, "init", "-q", str(inner))
    (inner / "a.txt").write_text("a\n")
    git(inner, "add", "a.txt")
    git(inner, "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q", "-m", "a")
    git(inner, "config", "filter.z.clean", program)
    (inner / ".gitattributes").write_text("*.txt filter=z\n")
    (inner / "a.txt").write_text("b\n")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{git(inner, 'rev-parse', 'HEAD')},inner")


CALLS: dict[str, Callable[[GitTools], object]] = {
    "log": lambda tools: tools.log("signed"),
    "log of a path": lambda tools: tools.log(path="README.md"),
    "show": lambda tools: tools.show("HEAD"),
    "show what is signed": lambda tools: tools.show("signed"),
    "diff": lambda tools: tools.diff(),
    "diff of two": lambda tools: tools.diff("HEAD~1", "HEAD"),
    "status": lambda tools: tools.status(),
    "branches": lambda tools: tools.branches(),
    "blame": lambda tools: tools.blame("README.md"),
    "search": lambda tools: tools.search("tide"),
}


@pytest.mark.parametrize("call", CALLS)
def test_no_program_of_the_repository_is_started(call: str, tmp_path: Path) -> None:
    tools = GitTools(hostile(tmp_path))
    assert CALLS[call](tools)
    assert marks(tmp_path) == []


def test_what_is_missing_is_fetched_from_nowhere(tmp_path: Path) -> None:
    tools = GitTools(hostile(tmp_path))
    with pytest.raises(RuntimeError):
        tools.show("1" * 40)
    assert marks(tmp_path) == []


def test_a_filter_that_cannot_be_switched_off_is_refused(tmp_path: Path) -> None:
    repository = hostile(tmp_path, '[filter "a=b"]\n    clean = {clean}\n')
    (repository / ".gitattributes").write_text("*.md filter=a=b\n")
    for call in ("diff", "status"):
        with pytest.raises(RuntimeError, match="a=b"):
            CALLS[call](GitTools(repository))
    assert marks(tmp_path) == []


def test_the_traps_do_spring(tmp_path: Path) -> None:
    repository = hostile(tmp_path)
    for args in (
        ("diff",),
        ("diff", "--", "tides"),
        ("diff", "--", "inner"),
        ("status",),
        ("log", "signed"),
        ("blame", "README.md"),
        ("show", "1" * 40),
    ):
        subprocess.run(["git", "-C", str(repository), *args], capture_output=True, check=False, timeout=60)
    assert {"clean", "process", "gpg", "textconv", "uploadpack", "fsmonitor", "submodule"} <= set(marks(tmp_path))


def marks(folder: Path) -> list[str]:
    file = folder / "marks"
    return file.read_text().split() if file.exists() else []
