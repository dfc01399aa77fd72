"""Which configurations that lie in a project the person has accepted: each by its path and its content.

A file that comes with a folder names programs to start and code to import, with what the person's environment and
keyring hold. So one that is merely found counts only once it was accepted, and any change asks again. What toolfold
itself writes where there was nothing, or over what was accepted, is accepted as it is written. The record lies in
toolfold's own folder, never in a project. A program that is named may change without the file: that is not looked into.
Where there is nobody to ask, a `toolfold.toml` that git does not track is taken for the person's own; a change of it
while toolfold serves is not: nothing stops where it waits (`ConfigWatch`).
Above: the reader, `TomlFile`, `toolfold trust --project`. Below: files, `git_index`.
"""

import json
import os
import re
import shlex
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from toolfold.config.dialects import servers_key
from toolfold.config.files import PRIVATE_MODE, locked, path_exists, read_text, write_atomically
from toolfold.config.folders import toolfold_home, working_folder
from toolfold.config.git_index import is_tracked
from toolfold.config.jsonc import is_json, parse_json
from toolfold.config.toml import parse_toml
from toolfold.config.validation import KeyPath
from toolfold.errors import ConfigError, NotAccepted
from toolfold.text import printable
from toolfold.types import ServerSpec

__all__ = ["ACCEPTED_FILE", "ProjectFile", "_Acceptances"]

ACCEPTED_FILE = "accepted.json"

# For machines without a person, such as those of CI.
_TRUST_VARIABLE = "TOOLFOLD_TRUST_PROJECT"
_MAX_FILES = 1000
_MAX_NAMED = 3
_MAX_SHOWN = 200
_BESIDE = "settings beside the servers"
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


class _Entry(Struct, frozen=True):
    """What was accepted: the whole text, and by which each server in it is told from what it becomes."""

    fingerprint: str
    servers: dict[str, str] = {}
    beside: str = ""
    """Of all the rest; empty in a record that older versions wrote."""


class ProjectFile(Struct, frozen=True, kw_only=True):
    """A configuration that was found in a project, as far as a person needs to know it to accept it."""

    path: Path
    servers: tuple[ServerSpec, ...] = ()
    entry: _Entry | None = None
    """What would be accepted; `None` for a file that cannot be read."""
    written: tuple[str, ...] = ()
    """All that stands in it, a line for each setting: with the values as they are written, and nothing masked or cut.
    What is hidden here could be accepted unseen."""
    changes: str = ""
    """How it differs from what was accepted before."""
    problem: str = ""

    @property
    def command(self) -> str:
        """What accepts it."""
        return f"toolfold trust --project {shlex.quote(str(self.path.parent))}"

    @property
    def starts_nothing(self) -> bool:
        return not self.servers and not self.problem

    @property
    def reason(self) -> str:
        if self.problem:
            return f"cannot be read: {self.problem}"
        known = f"has changed since you accepted it ({self.changes})" if self.changes else "was never accepted by you"
        return known + _other_owner(self.path)

    @property
    def starts(self) -> list[str]:
        """Each server as a person may see it in a line."""
        return [_start(spec, len(spec.shown())) for spec in self.servers]

    @property
    def review(self) -> list[str]:
        """All that a person has to see before they accept it."""
        before = ["what you accepted before is not kept: this is all of it as it is now"] if self.changes else []
        return [*before, *(f"it would start {text}" for text in self.starts), *self.written]

    @property
    def warning(self) -> str:
        """For one that counts all the same."""
        return f"{printable(f'{self.path} {self.reason}', 2000)}, and counts all the same; accept it: {self.command}"

    @property
    def text(self) -> str:
        """All of it on one line, without what can be done."""
        more = len(self.servers) - _MAX_NAMED
        few = ", ".join(_start(spec, _MAX_SHOWN) for spec in self.servers[:_MAX_NAMED])
        few += f" and {more:,} more" if more > 0 else ""
        left = printable(f"{self.path} is left out, since it {self.reason}", 2000)
        return f"{left}; it would start {few}" if few else left

    def error(self) -> NotAccepted:
        """For a file that nothing can be done without."""
        found = NotAccepted(
            f"{self.path} {self.reason}",
            hints=self.review,
            next_action=f"read it, and if you trust it: {self.command}",
        )
        found.file = self
        return found


class _Acceptances:
    """The record, in toolfold's own folder."""

    def __init__(self, user_home: Path, environ: Mapping[str, str]) -> None:
        self.path = user_home / ACCEPTED_FILE
        said = environ.get(_TRUST_VARIABLE, "").strip().casefold()
        self._trusts_all, self._trusts_none = said in {"1", "true"}, said in {"0", "false"}

    @classmethod
    def of_person(cls) -> "_Acceptances":
        """That of whoever runs this process."""
        return cls(working_folder() / toolfold_home(os.environ), os.environ)

    def allow(self, file: Path, text: str) -> bool:
        """Whether this text of the file counts. What others can write is never trusted unseen."""
        return (self._trusts_all and not _other_owner(file)) or self.holds(file, _entry(file, text))

    def allow_unattended(self, file: Path) -> bool:
        """Whether a `toolfold.toml` counts unaccepted, where nobody can be asked: a client's gateway, a program, a job.

        People write such a file by hand and go on writing it, and refusing it would stop what worked a minute ago. What
        came with a clone is tracked there; an archive that was unpacked is not told from their own.
        """
        return not (self._trusts_none or _other_owner(file) or is_tracked(file))

    def holds(self, file: Path, entry: _Entry) -> bool:
        """Whether it was accepted."""
        known = self._entries().get(_key(file))
        return known is not None and known.fingerprint == entry.fingerprint

    def examine(self, file: Path, text: str, servers: tuple[ServerSpec, ...]) -> ProjectFile:
        entry, before = _entry(file, text), self._entries().get(_key(file))
        known = before is None or before.fingerprint == entry.fingerprint
        changes = "" if before is None or known else _changes(before, entry)
        written = tuple(line for _, line in _lines(_data(file, text)[0]))
        return ProjectFile(path=file, servers=servers, entry=entry, written=written, changes=changes)

    def accept(self, file: Path, entry: _Entry) -> None:
        """Raises `ConfigError` where nothing can be written."""
        self._put(file, entry)

    def accept_text(self, file: Path, text: str) -> None:
        self._put(file, _entry(file, text))

    def forget(self, file: Path) -> bool:
        """Takes an acceptance back; says whether there was one."""
        known = _key(file) in self._entries()
        self._put(file, None)
        return known

    def _put(self, file: Path, entry: _Entry | None) -> None:
        with locked(self.path):
            entries = self._entries()
            entries.pop(_key(file), None)
            if entry is not None:
                entries[_key(file)] = entry
            kept = dict(list(entries.items())[-_MAX_FILES:])
            write_atomically(self.path, msgspec.json.format(msgspec.json.encode(kept)) + b"\n", PRIVATE_MODE)

    def _entries(self) -> dict[str, _Entry]:
        """A record that is damaged, or that somebody else may have written, accepts nothing."""
        if not path_exists(self.path) or _other_owner(self.path):
            return {}
        try:
            return msgspec.json.decode(read_text(self.path).encode(), type=dict[str, _Entry])
        except (ConfigError, msgspec.MsgspecError, UnicodeError, RecursionError):
            return {}


@contextmanager
def _changing(*paths: Path, running: ProjectFile | None = None) -> Iterator[None]:
    """`locked`; and what is written inside to a configuration that is new, or was accepted as it was, is accepted.

    So is what a gateway writes over what it is `running` on (see `Settings.found`). Raises `NotAccepted` where it would
    not follow.
    """
    environ = os.environ
    user_home = working_folder() / toolfold_home(environ)
    record = _Acceptances(user_home, environ)
    with locked(*paths):
        files = [path for path in paths if path.suffix == ".toml" and not _is_in(path, user_home)]
        kept = [path for path in files if _follows(record, path, running)]
        yield
        texts = {path: read_text(path) for path in filter(path_exists, kept)}
    # The record may lie in a folder that was locked.
    for path, text in texts.items() if _TRUST_VARIABLE not in environ else ():
        with suppress(*() if running else (ConfigError,)):  # then the person is asked
            record.accept_text(path, text)


def _allows(record: _Acceptances, path: Path) -> bool:
    with suppress(ConfigError):
        return record.allow(path, read_text(path))
    return False


def _follows(record: _Acceptances, path: Path, running: ProjectFile | None) -> bool:
    """Whether what is written over the file as it is counts."""
    if not path_exists(path) or _allows(record, path):
        return True
    if running is None or running.path != path:
        return False
    if running.entry is None or running.entry.fingerprint != _mark(read_text(path)):
        raise NotAccepted(
            f"{path} has changed since the gateway took it over, and nobody accepted that: nothing was written",
            next_action=f"read it, and if you trust it: `{running.command}`; then do this again",
        )
    return True


def _is_in(path: Path, folder: Path) -> bool:
    return os.path.realpath(path.parent) == os.path.realpath(folder)


def _key(file: Path) -> str:
    # The folder's real path, and not the file's: a link in a project is that project's.
    path = Path(os.path.realpath(file.parent), file.name)
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _start(spec: ServerSpec, most: int) -> str:
    return f"{spec.name} ({printable(spec.shown(), most)}){'' if spec.enabled else ', disabled'}"


def _entry(file: Path, text: str) -> _Entry:
    value, at = _data(file, text)
    tables: Any = value
    for key in at or ():
        tables = tables[key]
    servers = {name: _mark(repr(table)) for name, table in tables.items()} if isinstance(tables, dict) else {}
    beside = [line for path, line in _lines(value) if at is None or path[: len(at)] != at]
    return _Entry(_mark(text), {} if at is None else servers, _mark("\n".join(beside)))


def _mark(text: str) -> str:
    return sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def _data(file: Path, text: str) -> tuple[Any, KeyPath | None]:
    """What the file says, and where its servers stand in it; nothing of one that cannot be read."""
    try:
        if is_json(file, text):
            value = parse_json(file, text).value
            return value, servers_key(value)
        value = parse_toml(file, text)
    except (ConfigError, RecursionError):
        return {}, None
    return value, ("servers",) if "servers" in value else None


def _lines(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Each setting by its path, and as a line of which no letter steers a terminal."""
    if isinstance(value, dict) and value:
        for key, held in value.items():
            yield from _lines(held, (*path, key))
        return
    name = ".".join(key if _BARE_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False) for key in map(str, path))
    line = f"{name} = {json.dumps(value, ensure_ascii=False, default=str)}"
    yield path, printable(line, len(line))


def _changes(before: _Entry, now: _Entry) -> str:
    kinds = {
        "new": now.servers.keys() - before.servers.keys(),
        "changed": {name for name in before.servers.keys() & now.servers if before.servers[name] != now.servers[name]},
        "gone": before.servers.keys() - now.servers.keys(),
    }
    named = [f"{name} is {kind}" for kind, names in kinds.items() for name in sorted(names)]
    if not named or (before.beside and before.beside != now.beside):
        named.append(_BESIDE)
    changes = ", ".join(named)
    return printable(changes, len(changes))


def _other_owner(path: Path) -> str:
    """Who else may write the file, in words; nothing where only the person may."""
    try:
        status = path.stat()
    except OSError:
        return ""
    if hasattr(os, "geteuid") and status.st_uid not in {os.geteuid(), 0}:
        return f"; it belongs to {_user_name(status.st_uid)}"
    # A group of its owner's own has the owner's number, on systems that make one for each.
    shared = status.st_mode & stat.S_IWGRP and status.st_gid != status.st_uid
    return "; others can write it" if shared or status.st_mode & stat.S_IWOTH else ""


def _user_name(number: int) -> str:
    import pwd

    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"
