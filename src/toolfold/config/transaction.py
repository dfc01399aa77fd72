"""Writes several files together, all or none, and keeps a record by which the last such writing is undone.

The record comes first, then a backup of each file, then the files: whatever breaks off in between, every file is put
back, or the record says where its backup lies. A file that somebody else changed since is not put back whole: only the
part that was written here is. Above: the import. Below: `files`.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolfold.config.acceptance import _changing
from toolfold.config.files import (
    PRIVATE_MODE,
    _free_name,
    _remove_stale,
    create_backup,
    locked,
    path_exists,
    write_atomically,
)
from toolfold.config.validation import KeyPath
from toolfold.errors import ConfigError

_MAX_RECORDS = 50


class FileChange(Struct, frozen=True, kw_only=True):
    """One file to write. `old` is what it was computed from, `None` where there is no file yet."""

    path: Path
    old: bytes | None
    new: bytes | None
    """`None`: the file goes."""
    mode: int
    keys: tuple[KeyPath, ...] = ()
    """The parts of the file that change, where the rest is another program's."""
    added: dict[str, str] = {}
    """The servers that come into a file of our own, with a mark of each."""


class WrittenFile(Struct, frozen=True, kw_only=True):
    """A file that was written, as the record keeps it."""

    path: Path
    backup: Path | None
    before: str
    """The fingerprint of the old content; empty where there was no file."""
    after: str
    mode: int
    keys: tuple[KeyPath, ...] = ()
    added: dict[str, str] = {}


class _Record(Struct, frozen=True, kw_only=True):
    at: str
    files: tuple[WrittenFile, ...]
    done: bool = True
    """Whether every file was written: else whoever wrote was killed meanwhile."""


# Gives the content of a file that others changed since, without what was written; the last is the backup's content.
PutBack = Callable[[WrittenFile, bytes, bytes], bytes]
_Undone = list[tuple[WrittenFile, str]]


def write_all(
    changes: Sequence[FileChange], journal: Path | None = None, *, now: float | None = None
) -> list[WrittenFile]:
    """Writes every change, or none: then it raises `ConfigError`, and every file is as it was.

    The record goes to `journal`; without one there are backups all the same.
    """
    for change in changes:
        if _content(change.path) != change.old:
            raise ConfigError(
                f"{change.path} was changed by another program meanwhile; nothing was written",
                next_action="Close that program if it writes the file often, and run it again.",
            )
    files: list[WrittenFile] = []
    records = _records(journal)
    try:
        # The record comes first: of a writing that is killed, it says what lies about.
        files.extend(_planned(change, now) for change in changes)
        record = _Record(at=_stamp(now), files=tuple(files), done=False)
        _write_records(journal, [*records, record])
        _back_up(changes, files)
        _write_files(changes)
        try:
            _write_records(journal, [*records, replace(record, done=True)])
        except ConfigError:
            _write_files(
                [
                    replace(change, old=change.new, new=change.old, mode=file.mode)
                    for change, file in zip(changes, files, strict=True)
                ]
            )
            raise
    except BaseException:
        # Where a file could not be put back, its backup and the record are what is left of it.
        if all(_content(change.path) == change.old for change in changes):
            for file in files:
                _remove(file.backup)
            _write_records(journal, records)
        raise
    return files


def _back_up(changes: Sequence[FileChange], files: Sequence[WrittenFile]) -> None:
    for change, file in zip(changes, files, strict=True):
        if file.backup is not None:
            create_backup(change.path, file.backup)
            file.backup.chmod(file.mode & change.mode)  # the copy may hold the same secrets


def _planned(change: FileChange, now: float | None) -> WrittenFile:
    exists = change.old is not None
    return WrittenFile(
        path=change.path,
        backup=_free_name(change.path, now) if exists else None,
        before=_fingerprint(change.old),
        after=_fingerprint(change.new),
        mode=change.path.stat().st_mode & 0o777 if exists else change.mode,
        keys=change.keys,
        added=change.added,
    )


def _write_files(changes: Sequence[FileChange]) -> None:
    """Writes each, and puts back those that were written should one fail."""
    modes = [change.path.stat().st_mode & 0o777 if change.old is not None else change.mode for change in changes]
    begun: list[tuple[FileChange, int]] = []
    try:
        for change, mode in zip(changes, modes, strict=True):
            begun.append((change, mode))
            _put(change.path, change.new, change.mode)
    except BaseException as error:
        lost = [change.path for change, mode in begun if not _is_put(change.path, change.old, mode)]
        if lost:
            raise ConfigError(
                f"{error}; and {', '.join(map(str, lost))} could not be put back",
                next_action="Copy the backup beside each of them over it by hand: NAME.DATE-TIME.bak.",
            ) from error
        if isinstance(error, ConfigError):
            raise ConfigError(
                f"{error.message}; nothing else was changed: every other file is as it was",
                next_action=error.next_action,
            ) from None
        raise


def _is_put(path: Path, content: bytes | None, mode: int) -> bool:
    with contextlib.suppress(ConfigError):
        if _content(path) != content:
            _put(path, content, mode)
        return True
    return False


def _put(path: Path, content: bytes | None, mode: int) -> None:
    if content is not None:
        write_atomically(path, content, mode)
        return
    _remove(path)
    if path_exists(path):
        raise ConfigError(f"{path} cannot be removed", next_action="Check the folder's permissions.")


class Journal:
    """The record of what was written. `put_back` takes what was written out of a file that others changed since."""

    def __init__(self, path: Path, put_back: PutBack) -> None:
        self.path = path
        self._put_back = put_back

    def undo(self) -> _Undone:
        """Undoes the last record: each file with `restored`, `removed`, `merged`, `cleared` or `kept`. All or nothing.

        `merged`: somebody changed the file since, and only the recorded parts were put back; its backup stays.
        `cleared`: the same of a file of toolfold's own, which lost what was added. `kept`: nothing of that was still
        there.
        """
        own = [file.path for record in _records(self.path)[-1:] for file in record.files if not file.keys]
        with _changing(self.path, *own):
            records = _records(self.path)
            if not records:
                raise ConfigError(
                    "there is no import to undo",
                    next_action="Backups of earlier times lie beside each file: NAME.DATE-TIME.bak.",
                )
            return _undo(self.path, records, self._put_back)

    def recover(self) -> _Undone:
        """Undoes the last record where whoever wrote it was killed meanwhile, and removes what lies about of it."""
        _remove_stale(self.path)
        for path in {file.path for record in _records(self.path) for file in record.files}:
            _remove_stale(path)
        if not self.is_broken_off():
            return []
        with locked(self.path):  # whoever is still at it has this lock
            if not self.is_broken_off():
                return []
            records = _records(self.path)
            for file in records[-1].files:
                _remove_stale(file.path, is_locked=True)
            return _undo(self.path, records, self._put_back)

    def is_broken_off(self) -> bool:
        """Whether the last writing did not come to its end, or is under way."""
        return any(not record.done for record in _records(self.path)[-1:])

    def replaced(self) -> list[Path]:
        """The files of other programs that records not undone are about."""
        return [file.path for record in _records(self.path) for file in record.files if file.keys]


def _undo(journal: Path, records: Sequence[_Record], put_back: PutBack) -> _Undone:
    outcomes: _Undone = []
    changes: list[FileChange] = []
    for file in records[-1].files:
        current = _content(file.path)
        outcome, content = _earlier(file, current, put_back)
        outcomes.append((file, outcome))
        if content != current:
            mode = file.path.stat().st_mode & 0o777 if outcome in {"merged", "cleared"} else file.mode
            changes.append(FileChange(path=file.path, old=current, new=content, mode=mode))
    _write_files(changes)
    for file, outcome in outcomes:
        if outcome in {"restored", "removed"}:
            _remove(file.backup)
    _write_records(journal, records[:-1])
    return outcomes


def _earlier(file: WrittenFile, current: bytes | None, put_back: PutBack) -> tuple[str, bytes | None]:
    """What becomes of a file, and its content then."""
    if _fingerprint(current) == file.before:
        return "restored", current
    old = _backup_of(file)
    if current is None or _fingerprint(current) == file.after:
        return ("removed" if old is None else "restored"), old
    if file.keys:
        return "merged", put_back(file, current, old or b"")
    content = put_back(file, current, old or b"") if file.added else current
    return ("kept" if content == current else "cleared"), content


def _backup_of(file: WrittenFile) -> bytes | None:
    """The content that a file had; `None` where there was no file."""
    if file.backup is None:
        return None
    old = _content(file.backup)
    if old is None or _fingerprint(old) != file.before:
        raise ConfigError(
            f"the backup {file.backup} of {file.path} is gone or was changed; nothing was undone",
            next_action="Put the backup back, or correct the file by hand.",
        )
    return old


def _records(journal: Path | None) -> list[_Record]:
    data = None if journal is None else _content(journal)
    try:
        return [] if data is None else msgspec.json.decode(data, type=list[_Record], dec_hook=_path)
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"{journal}, the record of imports, cannot be read: {error}",
            next_action="Move it away; backups lie beside each file: NAME.DATE-TIME.bak.",
        ) from None


def _write_records(journal: Path | None, records: Sequence[_Record]) -> None:
    if records and journal is not None:
        data = msgspec.json.encode(records[-_MAX_RECORDS:], enc_hook=str)
        write_atomically(journal, msgspec.json.format(data) + b"\n", PRIVATE_MODE)
    else:
        _remove(journal)


def _path(kind: type, value: str) -> Path:
    return Path(value)


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path_exists(path) else None
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror or error}", next_action="Check its permissions."
        ) from None


def _fingerprint(content: bytes | None) -> str:
    return "" if content is None else sha256(content).hexdigest()


def _remove(path: Path | None) -> None:
    if path is not None:
        with contextlib.suppress(OSError):
            path.unlink()


def _stamp(now: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
