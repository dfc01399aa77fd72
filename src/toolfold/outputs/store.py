"""The store of large outputs: one file for each handle, one folder for each session.

The caller is checked on each use: a handle is looked up in the folder of that caller's session only, so another
caller's handle is as unknown as one that never existed. All of this blocks and may be called from any thread.

A folder is `ai-agent-{session}` under the base, private to its owner, and swept once abandoned. In it, `{uuid}` is an
output, `.about-{uuid}` its record, and `.draft-…` one that is still being written. The record is there before the
output gets its name, so whatever has its name is whole. Nothing here follows a link or touches what another user made.
Above: `split.py`, `service.py`.
"""

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from toolfold.containers import BoundedDict
from toolfold.errors import OutputError, OutputFull, UnknownHandle
from toolfold.outputs.document import Document
from toolfold.outputs.issued import MAX_HELD, IssuedHandles
from toolfold.outputs.token_counter import Counts
from toolfold.types import LOCAL, Caller, Stored
from toolfold.wire.spill import DISK_FULL_ERRNOS, storage_full

PREFIX = "ai-agent-"
RECORD_PREFIX = ".about-"
DRAFT_PREFIX = ".draft-"
# The file that marks a folder as ours. Its lock is held while the session lives: the system drops the lock with the
# process, however that ends, whereas a process id in a file may belong to another process by now.
MARK = ".toolfold"
# What the mark says: whether the folder outlives the process that created it.
PERSISTENT = b"kept\n"
TRANSIENT = b"held\n"
# A record stays small: longer arguments are left out of it.
MAX_ARGUMENTS = 64 << 10
_MAX_RECORD_BYTES = 1 << 20
# A folder without a mark, or a draft without a lock, may have been created a moment ago.
GRACE_S = 60.0
_NAME = re.compile(r"ai-agent-[0-9a-f]{32}")
_HANDLE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_MAX_ATTEMPTS = 5
_decode = msgspec.json.Decoder(Stored).decode
# A caller's name and session: whose folder it is.
SessionKey = tuple[str, str]
CALL_AGAIN = "call the tool again, and use the handle in the same session: it lives as long as its client is connected"
ELSEWHERE = "belongs to another session of yours, and can be read there only"
ENDED = "was removed when its session ended"
LOST = "is lost: something else than toolfold removed its file"
OTHER_RUN = "was stored by another run of toolfold: it ended with that, or can be read there only"


class _SessionFolder:
    """One session's folder. `lock` is the locked mark, where this process holds it."""

    def __init__(self, path: Path, lock: int | None = None) -> None:
        self.path = path
        self._lock = lock

    def remove(self) -> None:
        """Removes the folder and all in it. Safe to call twice."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.release()

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class OutputStore:
    """The outputs of all sessions of one gateway. With `note`, those of the local session outlive it; `issued` is the
    file that tells the next run of handles that are gone."""

    def __init__(
        self, base: Path, *, lifetime_s: float = 86_400.0, note: Path | None = None, issued: Path | None = None
    ) -> None:
        self.base = base
        self._lifetime = lifetime_s
        self._note = note
        self._folders: dict[SessionKey, _SessionFolder] = {}
        self._issued = IssuedHandles(issued)
        self._ended: BoundedDict[str, None] = BoundedDict(MAX_HELD)
        self._lock = threading.RLock()
        self._closed = False

    def draft(self, caller: Caller) -> "Draft":
        """Begins a new output."""
        with self._lock:  # a purge must not remove the empty folder before the draft is in it
            return Draft(self._folder(caller), caller, self._lifetime, self._issued)

    def copy(self, handle: str, caller: Caller) -> "Draft":
        """Begins the copy of an output that another gateway stored."""
        with self._lock:
            return Draft(self._folder(caller), caller, self._lifetime, self._issued, handle)

    def scratch(self) -> Path:
        """A folder for files of this process. It goes with the store, or is swept when the process is gone."""
        return self._folder(LOCAL).path

    def all(self, caller: Caller) -> list[Stored]:
        """The outputs of this caller's session, the oldest first."""
        folder = self._existing(caller)
        if folder is None:
            return []
        _remove_expired(folder.path, time.time())
        records = [_load_record(file) for file in _list_files(folder.path) if file.name.startswith(RECORD_PREFIX)]
        own = (record for record in records if record is not None and _belongs(record, caller))
        whole = (record for record in own if (folder.path / record.handle).is_file())
        return sorted(whole, key=lambda record: (record.at, record.handle))

    def held(self) -> list[tuple[Caller, list[str]]]:
        """The handles in the folder of each session."""
        found = []
        for (name, session), folder in tuple(self._folders.items()):
            handles = [file.name for file in _list_files(folder.path) if _is_handle(file.name)]
            found.append((Caller(name=name, session=session), handles))
        return found

    def holds(self, handle: str, caller: Caller) -> bool:
        """Whether the output lies in the session's folder."""
        folder = self._existing(caller)
        return folder is not None and (folder.path / handle).is_file()

    def drop(self, handles: Iterable[str], caller: Caller) -> None:
        """Removes outputs that ended elsewhere."""
        folder = self._existing(caller)
        for handle in handles:
            self._ended[handle] = None
            if folder is not None:
                _remove_output(folder.path, handle)

    def find(self, handle: str, caller: Caller) -> tuple[Stored, Path]:
        """An output and its file. Raises `UnknownHandle`."""
        # Only a handle's form is ever joined to a path: `..` and the like are unknown before a file is opened.
        folder = self._existing(caller) if _is_handle(handle) else None
        record = None if folder is None else _load_record(folder.path / f"{RECORD_PREFIX}{handle}")
        if folder is None or record is None or not _belongs(record, caller) or record.handle != handle:
            raise self._unknown_handle(handle, caller)
        path = folder.path / handle
        if _is_expired(record, time.time()):
            _remove_output(folder.path, handle)
            raise _gone(handle, record.tool_name, _expired(record.at, record.expires_at))
        if not path.is_file() or path.is_symlink():
            raise _gone(handle, record.tool_name, LOST)
        return record, path

    def _unknown_handle(self, handle: str, caller: Caller) -> UnknownHandle:
        """What became of a handle that leads to nothing. Another caller's is as unknown as one that never was."""
        issued = self._issued.find(handle) if _is_handle(handle) else None
        if issued is not None and issued.caller == caller.name:
            return _gone(handle, issued.tool_name, self._what_became(issued, caller))
        handles = [record.handle for record in self.all(caller)]
        return UnknownHandle(
            f"there is no stored output {handle[:80]!r} in this session: it never was, or is long gone",
            hints=handles[-10:],
            next_action="use a handle that there is, or call the tool again" if handles else CALL_AGAIN,
        )

    def _what_became(self, issued: Stored, caller: Caller) -> str:
        if _is_expired(issued, time.time()):
            return _expired(issued.at, issued.expires_at)
        if issued.handle in self._ended:
            return ENDED
        if issued.handle not in self._issued.own:
            return OTHER_RUN
        if (issued.caller, issued.session) not in self._folders:
            return ENDED
        return LOST if issued.session == caller.session else ELSEWHERE

    def document(self, handle: str, caller: Caller) -> Document:
        """An output as extraction takes it."""
        record, path = self.find(handle, caller)
        return Document(
            path=path,
            tool=record.tool_name,
            arguments=record.arguments,
            handle=record.handle,
            bytes=record.bytes,
            lines=record.lines,
            tokens=record.tokens,
            media_type=record.media_type,
            stored=True,
        )

    def end(self, caller: Caller) -> bool:
        """Removes the outputs of a session that is over, unless they outlive it. Returns whether there were any."""
        with self._lock:
            folder = self._folders.pop(_key(caller), None)
            if folder is None:
                return False
        self._drop(caller, folder)
        return True

    def close(self) -> None:
        """Ends all sessions. Safe to call twice."""
        with self._lock:
            self._closed = True
            folders, self._folders = self._folders, {}
        for (name, session), folder in folders.items():
            self._drop(Caller(name=name, session=session), folder)

    def sweep(self) -> list[Path]:
        """Removes the folders of processes that are gone."""
        return _sweep(self.base)

    def purge(self) -> None:
        """Removes expired outputs in every session, and folders that are empty then."""
        for key, folder in tuple(self._folders.items()):
            _remove_expired(folder.path, time.time())
            with self._lock:
                if self._folders.get(key) is folder and _is_empty(folder.path):
                    del self._folders[key]
                    self._drop(Caller(name=key[0], session=key[1]), folder)

    def _drop(self, caller: Caller, folder: _SessionFolder) -> None:
        if self._outlives(caller):
            folder.release()
        else:
            folder.remove()

    def _outlives(self, caller: Caller) -> bool:
        return self._note is not None and _key(caller) == _key(Caller())

    def may_hold(self, caller: Caller) -> bool:
        """Whether the session may hold outputs. Does not look at the disk."""
        return _key(caller) in self._folders or (self._outlives(caller) and self._note is not None)

    def _existing(self, caller: Caller) -> _SessionFolder | None:
        """The session's folder, if it has one; none is created to look into."""
        with self._lock:
            folder = self._folders.get(_key(caller))
        if folder is None and self._note is not None and self._outlives(caller) and self._note.exists():
            return self._folder(caller)
        return folder

    def _folder(self, caller: Caller) -> _SessionFolder:
        with self._lock:
            if self._closed:
                raise OutputError("the gateway is closed, so nothing can be stored", next_action="open it again")
            folder = self._folders.get(_key(caller))
            if folder is not None and not folder.path.is_dir():
                folder.release()  # a cleaner of temporary files took the folder away
                folder = None
            if folder is None:
                note = self._note if self._outlives(caller) else None
                folder = _create_folder(self.base) if note is None else _persistent_folder(note, self.base)
                self._folders[_key(caller)] = folder
            return folder


class Draft:
    """An output that is being written. Nobody can read it before `finish`."""

    def __init__(
        self, folder: _SessionFolder, caller: Caller, lifetime_s: float, issued: IssuedHandles, handle: str = ""
    ) -> None:
        self.handle = handle or str(uuid.uuid4())
        self._folder = folder.path
        self._caller = caller
        self._lifetime = lifetime_s
        self._issued = issued
        # Several processes may copy one handle at once: each into a file of its own.
        self._mark = str(uuid.uuid4()) if handle else self.handle
        self._path = folder.path / f"{DRAFT_PREFIX}{self._mark}"
        self._about = folder.path / f"{RECORD_PREFIX}{self.handle}"
        self.descriptor = self._attempt(self._open)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # tells a sweep that somebody still writes it
        return descriptor

    def write(self, piece: bytes) -> None:
        view = memoryview(piece)
        while view:
            view = view[self._attempt(lambda: os.write(self.descriptor, view)) :]  # noqa: B023 - called at once

    def finish(self, counts: Counts, *, tool_id: str, arguments: str, media_type: str, shown_as: str = "") -> Stored:
        """Writes the record and gives the output its name: from now on it can be read."""
        now = time.time()
        stored = Stored(
            handle=self.handle,
            tool_id=tool_id,
            caller=self._caller.name,
            session=self._caller.session,
            bytes=counts.bytes,
            lines=counts.lines,
            tokens=counts.tokens,
            arguments=_recorded_arguments(arguments),
            media_type=media_type,
            at=now,
            expires_at=now + self._lifetime,
            shown_as=shown_as,
        )
        return self.adopt(stored)

    def adopt(self, stored: Stored) -> Stored:
        """The same for what was stored before, elsewhere."""
        self._attempt(lambda: self._publish(msgspec.json.encode(stored)))
        self._close()
        self._issued.add(stored)
        return stored

    def _publish(self, record: bytes) -> int:
        draft = self._folder / f"{DRAFT_PREFIX}about-{self._mark}"
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(record)
            draft.rename(self._about)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        # Last: whatever has its own name is whole and has its record.
        self._path.rename(self._folder / self.handle)
        return 0

    def discard(self) -> None:
        """Removes it. Safe to call twice, and after `finish`."""
        for path in (self._path, self._about, self._folder / self.handle):
            path.unlink(missing_ok=True)
        self._close()

    def _close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _attempt(self, work: Callable[[], int]) -> int:
        try:
            return work()
        except FileNotFoundError as error:
            raise OutputError(
                "the session ended while its result was being stored", next_action="keep the session open"
            ) from error
        except OSError as error:
            raise storage_full(error, str(self._folder.parent)) from error


def _gone(handle: str, tool: str, why: str) -> UnknownHandle:
    return UnknownHandle(
        f"the stored output {handle} {why}",
        tool=tool,
        next_action=f"call {tool} again with the same arguments, and use the new handle",
    )


def _expired(at: float, expires_at: float | None) -> str:
    return f"expired: it was kept for {(expires_at or at) - at:.6g} s"


def _key(caller: Caller) -> SessionKey:
    return (caller.name, caller.session)


def _load_record(file: Path) -> Stored | None:
    try:
        return _read_record(file)
    except OSError as error:
        raise OutputError(
            f"the stored outputs cannot be read: {error.strerror or error}", next_action="try again a little later"
        ) from error


def _belongs(stored: Stored, caller: Caller) -> bool:
    """Whether it is an output of this caller's session."""
    return (stored.caller, stored.session) == _key(caller)


def _create_folder(base: Path, *, persistent: bool = False) -> _SessionFolder:
    """Creates a folder with a name that nobody can guess. Raises `OutputError` or `OutputFull`."""
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        for _ in range(_MAX_ATTEMPTS):
            path = base / f"{PREFIX}{secrets.token_hex(16)}"
            path.mkdir(mode=0o700)
            lock = _lock_mark(path, persistent)
            if lock is not None:
                return _SessionFolder(path, lock)
    except OSError as error:
        if error.errno in DISK_FULL_ERRNOS:
            raise storage_full(error, str(base)) from error
        raise _no_folder(base, error.errno) from error
    raise OutputFull(f"no folder for stored results stays in {base}", next_action="choose another folder")


def _no_folder(base: Path, number: int | None) -> OutputError:
    return OutputError(
        f"no folder for stored results can be made in {base}: {os.strerror(number or 0)}",
        next_action="choose another folder with `outputs.directory`",
    )


def _lock_mark(path: Path, persistent: bool) -> int | None:
    """Creates and locks the mark; `None` where another process swept the folder in between."""
    try:
        lock = os.open(path / MARK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH if persistent else fcntl.LOCK_EX)
        os.write(lock, PERSISTENT if persistent else TRANSIENT)
        in_place = (path / MARK).stat().st_ino == os.fstat(lock).st_ino
    except FileNotFoundError:
        in_place = False
    except OSError:
        os.close(lock)
        raise
    if not in_place:
        os.close(lock)
        return None
    return lock


def _persistent_folder(note: Path, base: Path) -> _SessionFolder:
    """The folder that outlives this process, whose name is in the private file `note`; created where it is gone."""
    try:
        name = note.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        name = ""
    folder = _open_persistent(base, name)
    if folder is not None:
        return folder
    folder = _create_folder(base, persistent=True)
    draft = note.with_name(f".{note.name}.{secrets.token_hex(4)}")
    for left in note.parent.glob(f".{note.name}.*"):  # of processes that were killed right here
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > GRACE_S:
                left.unlink()
    try:
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(folder.path.name + "\n")
        draft.replace(note)
    except OSError as error:
        folder.remove()
        raise OutputError(
            f"{note} cannot be written: {os.strerror(error.errno or 0)}",
            next_action="choose another state folder with --home DIR or TOOLFOLD_HOME",
        ) from error
    return folder


def _open_persistent(base: Path, name: str) -> _SessionFolder | None:
    """Opens a persistent folder, if it is there, ours and private. Several processes may hold it at once."""
    path = base / name
    if not _is_own_folder(path):
        return None
    try:
        lock = os.open(path / MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    fcntl.flock(lock, fcntl.LOCK_SH)
    # While this waited for the lock, a sweep may have removed the folder.
    if not (path / MARK).exists() or os.read(lock, 16) != PERSISTENT:
        os.close(lock)
        return None
    return _SessionFolder(path, lock)


def _is_own_folder(path: Path) -> bool:
    """Whether it has a session's name and is a real folder of this user that nobody else can enter."""
    if not _NAME.fullmatch(path.name):
        return False
    try:
        facts = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o077


def _is_handle(text: str) -> bool:
    """Whether it has a handle's form."""
    return _HANDLE.fullmatch(text) is not None


def _recorded_arguments(arguments: str) -> str:
    """The arguments as a record holds them, JSON in any case."""
    if len(arguments) <= MAX_ARGUMENTS:
        return arguments
    return f'"(arguments of {len(arguments)} characters, too long to keep)"'


def _read_record(file: Path) -> Stored | None:
    """A record; `None` where there is none, or none of ours. Raises `OSError` where it cannot be read at the moment."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as opened:
        try:
            return _decode(opened.read(_MAX_RECORD_BYTES))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None


def _is_expired(stored: Stored, now: float) -> bool:
    return stored.expires_at is not None and stored.expires_at <= now


def _list_files(path: Path) -> list[Path]:
    """The files in a folder; none where a cleaner of temporary files has taken the folder away."""
    try:
        return list(path.iterdir())
    except FileNotFoundError:
        return []


def _is_empty(path: Path) -> bool:
    """Whether a session's folder holds nothing but its mark."""
    return all(file.name == MARK for file in _list_files(path))


def _sweep(base: Path, *, now: float | None = None) -> list[Path]:
    """Removes the folders under `base` that no living process holds, and returns them."""
    now = time.time() if now is None else now
    return [path for path in _own_folders(base) if _sweep_folder(path, now)]


def _own_folders(base: Path) -> Iterator[Path]:
    try:
        with os.scandir(base) as entries:
            names = [entry.name for entry in entries if entry.name.startswith(PREFIX)]
    except OSError:
        return
    yield from (base / name for name in names if _is_own_folder(base / name))


def _sweep_folder(path: Path, now: float) -> bool:
    with contextlib.suppress(OSError):
        try:
            mark = os.open(path / MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            # Its process died between creating the folder and marking it, so that it is empty: rmdir removes no other.
            if now - path.stat().st_mtime > GRACE_S:
                path.rmdir()
                return True
            return False
        try:
            return _sweep_marked(path, mark, now)
        finally:
            os.close(mark)
    return False


def _sweep_marked(path: Path, mark: int, now: float) -> bool:
    persistent = os.read(mark, 16) == PERSISTENT
    if persistent:
        _remove_expired(path, now)
    if not _try_lock(mark) or (persistent and not _is_empty(path)):
        return False
    shutil.rmtree(path, ignore_errors=True)
    return True


def _remove_expired(path: Path, now: float) -> None:
    """Removes outputs whose lifetime is over, and drafts that nobody writes any more."""
    for file in _list_files(path):
        name = file.name
        if name.startswith(RECORD_PREFIX):
            try:
                record = _read_record(file)
            except OSError:  # too many open files, say: the next round looks again
                continue
            if record is None or _is_expired(record, now):
                _remove_output(path, name.removeprefix(RECORD_PREFIX))
        elif name.startswith(DRAFT_PREFIX) and _is_abandoned(file, now):
            file.unlink(missing_ok=True)


def _remove_output(folder: Path, handle: str) -> None:
    for name in (handle, f"{RECORD_PREFIX}{handle}"):
        (folder / name).unlink(missing_ok=True)


def _is_abandoned(draft: Path, now: float) -> bool:
    with contextlib.suppress(OSError):
        descriptor = os.open(draft, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return now - os.fstat(descriptor).st_mtime > GRACE_S and _try_lock(descriptor)
        finally:
            os.close(descriptor)
    return False


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
