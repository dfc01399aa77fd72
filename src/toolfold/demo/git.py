"""A small real MCP server for a git repository: `python -m toolfold.demo.git DIRECTORY`.

It runs the `git` executable and only reads. A repository's configuration can name programs: to make diffs, to check
signatures, to convert files, to fetch what is missing, as hooks. None of them is started, those of submodules neither.
An argument can never be taken for an option.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from toolfold.demo.server import serve
from toolfold.upstream.function_tool import Function, tool

_TIMEOUT_S = 30
# The most characters of a patch that one call returns.
_MAX_TEXT = 200_000

_Count = Annotated[int, Meta(ge=1, le=1000)]

_FIELD, _RECORD = "\x1f", "\x1e"
_COMMIT_FORMAT = "%H%x1f%an%x1f%ae%x1f%aI%x1f%s%x1e"


class Commit(Struct):
    """One commit."""

    sha: Annotated[str, Meta(description="The full hash.")]
    author: str
    email: str
    date: Annotated[str, Meta(description="When it was written, ISO 8601.")]
    subject: Annotated[str, Meta(description="The first line of its message.")]


class Log(Struct):
    """Commits, newest first."""

    commits: list[Commit]
    more: Annotated[bool, Meta(description="Whether older commits follow; raise `skip` to get them.")]


class FileChange(Struct):
    """What happened to one file."""

    path: str
    added: Annotated[int | None, Meta(description="Lines added; null for a binary file.")]
    deleted: Annotated[int | None, Meta(description="Lines deleted; null for a binary file.")]


class Diff(Struct):
    """A difference between two states."""

    files: list[FileChange]
    patch: Annotated[str, Meta(description="The unified diff.")]
    truncated: Annotated[bool, Meta(description="Whether the patch was cut; narrow it with `path`.")]


class CommitDetails(Struct):
    """One commit with its whole message and its change."""

    commit: Commit
    message: str
    parents: list[str]
    change: Diff


class StatusEntry(Struct):
    """A file that differs from the last commit."""

    path: str
    index: Annotated[str, Meta(description="State in the index: M, A, D, R, ? or a dot for unchanged.")]
    worktree: Annotated[str, Meta(description="State in the working tree, same letters.")]


class Status(Struct):
    """Where the working tree stands."""

    branch: str
    head: str
    clean: bool
    entries: list[StatusEntry]


class Branch(Struct):
    """A local branch and its newest commit."""

    name: str
    current: bool
    sha: str
    date: str
    subject: str


class BlameLine(Struct):
    """A line and the commit that last changed it."""

    number: int
    sha: str
    author: str
    date: str
    text: str


class Match(Struct):
    """A line that matches."""

    path: str
    line: int
    text: str


class Matches(Struct):
    """Lines that match, in the order of their files."""

    matches: list[Match]
    truncated: bool


class GitTools:
    """The tools, for one repository."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.resolve()

    def functions(self) -> list[Function]:
        return [self.log, self.show, self.diff, self.status, self.branches, self.blame, self.search]

    @tool(title="Commit history", read_only=True, open_world=False)
    def log(self, revision: str = "HEAD", path: str = "", author: str = "", limit: _Count = 20, skip: int = 0) -> Log:
        """List commits of a branch, newest first, optionally only those that touch a path or are by an author.

        Args:
            revision: Branch, tag or commit to start from.
            path: Only commits that change this file or folder.
            author: Only commits whose author's name or address contains this text.
            limit: How many commits at most.
            skip: How many of the newest to leave out, to page through a long history.
        """
        # One more than asked for shows whether older commits follow.
        options = [f"--max-count={limit + 1}", f"--skip={max(skip, 0)}", f"--format={_COMMIT_FORMAT}"]
        if author:
            options += ["--fixed-strings", "--regexp-ignore-case", f"--author={author}"]
        text = self._git("log", *options, _safe(revision), "--", *_paths(path))
        commits = [_commit(record) for record in text.split(_RECORD) if record.strip()]
        return Log(commits[:limit], len(commits) > limit)

    @tool(title="Show a commit", read_only=True, open_world=False)
    def show(self, revision: str, path: str = "") -> CommitDetails:
        """Show one commit: author, date, whole message, parents, and the patch it made.

        Args:
            revision: The commit: a hash, a branch, a tag, or `HEAD~2`.
            path: Only the part of the patch that concerns this file or folder.
        """
        commit_id = _safe(revision)
        head = self._git("show", "--no-patch", f"--format=%P%x1f%B%x1f{_COMMIT_FORMAT}", commit_id, "--")
        parents, message, commit = head.split(_FIELD, 2)
        where = ("--", *_paths(path))
        stat = self._git("show", "--format=", "--numstat", *_PLAIN, commit_id, *where)
        patch = self._git("show", "--format=", "--patch", *_PLAIN, commit_id, *where)
        return CommitDetails(_commit(commit), message.strip(), parents.split(), _diff(stat, patch))

    @tool(title="Compare states", read_only=True, open_world=False)
    def diff(self, base: str = "HEAD", target: str = "", path: str = "") -> Diff:
        """Compare two commits or branches, or a commit with the working tree.

        Args:
            base: The state to compare from.
            target: The state to compare to. Empty: the files as they are on disk now.
            path: Only this file or folder.
        """
        ends = [_safe(base), *([_safe(target)] if target else []), "--", *_paths(path)]
        return _diff(self._git("diff", "--numstat", *_PLAIN, *ends), self._git("diff", "--patch", *_PLAIN, *ends))

    @tool(title="Working tree status", read_only=True, open_world=False)
    def status(self) -> Status:
        """Tell the current branch and which files differ from the last commit."""
        text = self._git("status", "--porcelain=v2", "--branch", "--untracked-files=all", _NO_SUBMODULES, "-z")
        status = Status("", "", True, [])
        parts = iter(text.split("\0"))
        for part in parts:
            kind, _, rest = part.partition(" ")
            if kind == "#":
                key, _, value = rest.partition(" ")
                status.branch = value if key == "branch.head" else status.branch
                status.head = value if key == "branch.oid" else status.head
            elif kind in {"1", "2"}:
                fields = rest.split(" ", 8 if kind == "2" else 7)
                status.entries.append(StatusEntry(fields[-1], fields[0][0], fields[0][1]))
                if kind == "2":
                    next(parts, "")  # A renamed file's old name follows it.
            elif kind in {"?", "u"}:
                path = rest if kind == "?" else rest.rsplit(" ", 1)[-1]
                status.entries.append(StatusEntry(path, kind.upper(), kind.upper()))
        status.clean = not status.entries
        return status

    @tool(title="Branches", read_only=True, open_world=False)
    def branches(self) -> list[Branch]:
        """List the local branches with their newest commits, the most recently changed first."""
        layout = "%(refname:short)%1f%(HEAD)%1f%(objectname)%1f%(committerdate:iso-strict)%1f%(subject)"
        text = self._git("for-each-ref", "--sort=-committerdate", f"--format={layout}", "refs/heads")
        rows = [line.split(_FIELD) for line in text.splitlines() if line]
        return [Branch(row[0], row[1] == "*", row[2], row[3], row[4]) for row in rows]

    @tool(title="Blame", read_only=True, open_world=False)
    def blame(self, path: str, revision: str = "HEAD", start: int = 1, lines: _Count = 200) -> list[BlameLine]:
        """Tell for each line of a file which commit and author changed it last.

        Args:
            path: The file, from the root of the repository.
            revision: The state of the file to look at.
            start: The first line, counted from 1.
            lines: How many lines at most.
        """
        span = f"-L{max(start, 1)},+{lines}"
        text = self._git("blame", "--line-porcelain", "--no-textconv", span, _safe(revision), "--", path)
        return _blame_lines(text)

    @tool(title="Search in files", read_only=True, open_world=False)
    def search(
        self, pattern: str, revision: str = "HEAD", path: str = "", regex: bool = False, limit: _Count = 100
    ) -> Matches:
        """Find lines in the repository's files that contain a text or match a regular expression.

        Args:
            pattern: What to look for.
            revision: The state of the files to search.
            path: Only in this file or folder.
            regex: Whether `pattern` is an extended regular expression. Letter case counts then.
            limit: How many lines at most.
        """
        how = ["--extended-regexp"] if regex else ["--fixed-strings", "--ignore-case"]
        text = self._git(
            "grep", "-n", "-z", "-I", "--full-name", *how, "-e", pattern, _safe(revision), "--", *_paths(path), none=1
        )
        matches: list[Match] = []
        for line in text.split("\n"):
            fields = line.split("\0", 2)
            if len(fields) == 3:
                matches.append(Match(fields[0].partition(":")[2], int(fields[1]), fields[2][:500]))
        return Matches(matches[:limit], len(matches) > limit)

    def _git(self, *args: str, none: int | None = None) -> str:
        """The output of a git command. `none`: the exit status that means "nothing found"."""
        return self._run([*_SETTINGS, *self._without_filters()], args, none)

    def _without_filters(self) -> list[str]:
        """Settings that switch off each program that converts files on their way into git or out of it."""
        # Reading the configuration starts no program, so it is done without the settings.
        keys = self._run([], ("config", "-z", "--name-only", "--get-regexp", r"^filter\."), none=1).split("\0")
        names = sorted({key.rpartition(".")[0] for key in keys if key})
        odd = [name for name in names if "=" in name]
        if odd:
            raise RuntimeError(f"this repository has a filter that cannot be switched off: {odd[0]}")
        off = ("clean=", "smudge=", "process=", "required=false")
        return [part for name in names for key in off for part in ("-c", f"{name}.{key}")]

    def _run(self, settings: Sequence[str], args: Sequence[str], none: int | None) -> str:
        import os
        import subprocess

        # Nothing else of the environment: GIT_* variables would lead to another repository.
        environment = {key: os.environ[key] for key in ("PATH", "HOME", "SYSTEMROOT") if key in os.environ}
        environment |= {"LC_ALL": "C.UTF-8", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
        environment |= {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": ""}
        try:
            done = subprocess.run(
                ["git", *settings, "--no-pager", *args],
                cwd=self._directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except FileNotFoundError:
            raise RuntimeError("the `git` program is not installed on this machine") from None
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"git {args[0]} took over {_TIMEOUT_S} s; ask for less") from None
        if done.returncode not in (0, none):
            raise RuntimeError(done.stderr.decode("utf-8", "replace").strip() or f"git {args[0]} failed")
        return done.stdout.decode("utf-8", "replace")


# A repository is foreign data, and its configuration can name programs: each of these keys runs one.
_SETTINGS = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "log.showSignature=false"]
_SETTINGS += ["-c", "core.quotePath=false"]
_NO_SUBMODULES = "--ignore-submodules=dirty"
_PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short", _NO_SUBMODULES)


def _safe(revision: str) -> str:
    # A leading dash would make it an option of git.
    if not revision or revision.startswith("-") or "\0" in revision:
        raise ValueError(f"{revision!r} is no revision: give a branch, a tag, a hash or HEAD~N")
    return revision


def _paths(path: str) -> list[str]:
    # The prefix makes a path a plain one: without it `:(exclude)x` would be a pattern.
    return [f":(literal,top){path}"] if path else []


def _commit(record: str) -> Commit:
    sha, author, email, date, subject = record.strip().rstrip(_RECORD).split(_FIELD, 4)
    return Commit(sha, author, email, date, subject)


def _diff(numstat: str, patch: str) -> Diff:
    files: list[FileChange] = []
    for line in numstat.split("\n"):
        fields = line.split("\t", 2)
        if len(fields) == 3:
            added, deleted = (int(text) if text.isdecimal() else None for text in fields[:2])
            files.append(FileChange(fields[2], added, deleted))
    return Diff(files, patch[:_MAX_TEXT], len(patch) > _MAX_TEXT)


def _blame_lines(text: str) -> list[BlameLine]:
    from datetime import UTC, datetime

    lines: list[BlameLine] = []
    sha, number, fields = "", 0, {"author": "", "author-time": "0"}
    for line in text.split("\n"):
        if line.startswith("\t"):
            date = datetime.fromtimestamp(int(fields["author-time"]), UTC).isoformat()
            lines.append(BlameLine(number, sha, fields["author"], date, line[1:]))
            continue
        key, _, value = line.partition(" ")
        if len(key) == 40 and value[:1].isdecimal():
            sha, number = key, int(value.split()[1])
        elif key in fields:
            fields[key] = value
    return lines


def main() -> None:
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    if not directory.is_dir():
        sys.exit(f"{directory} is no directory. Usage: python -m toolfold.demo.git DIRECTORY")
    serve(
        "demo-git",
        GitTools(directory).functions(),
        instructions="Reads one git repository: history, commits, differences, branches, blame, search.",
    )


if __name__ == "__main__":
    main()
