"""The store of large outputs: a file a handle, a folder a session, nothing half, nothing of anybody else.

An output is written under a draft's name and gets its own only when it is whole. Who asks is checked on each use: a
handle is looked for in the folder of that caller's session only, so one of somebody else is as unknown as one that
never was. All of this blocks and may be called from any thread. Above: `keeping.py`, the gateway. Below: `folders.py`,
`records.py`, `sweeping.py`.
"""

import fcntl
import os
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import msgspec

from toolfold.errors import OutputError, UnknownHandle
from toolfold.outputs.document import Document
from toolfold.outputs.folders import (
    DRAFT_PREFIX,
    RECORD_PREFIX,
    SessionFolder,
    create_folder,
    is_empty,
    is_expired,
    is_handle,
    list_files,
    persistent_folder,
    read_record,
    recorded_arguments,
    remove_expired,
    sweep,
)
from toolfold.outputs.token_counter import Counts
from toolfold.types import Caller, Stored
from toolfold.wire.spill import storage_full

SessionKey = tuple[str, str]
"""A caller's name and session: whose folder it is."""

NO_OUTPUTS = "call the tool again, and use the handle in the same session: it lives as long as its client is connected"


class OutputStore:
    """All sessions of one gateway. With `note`, the local session's outputs outlive it: see `folders.remembered`."""

    def __init__(self, base: Path, *, lifetime_s: float = 86_400.0, note: Path | None = None) -> None:
        self.base = base
        self._lifetime = lifetime_s
        self._note = note
        self._folders: dict[SessionKey, SessionFolder] = {}
        self._lock = threading.RLock()
        self._closed = False

    def draft(self, caller: Caller) -> "Draft":
        """A new output on its way."""
        with self._lock:  # so that nobody takes the folder away before the draft stands in it
            return Draft(self._folder(caller), caller, self._lifetime)

    def all(self, caller: Caller) -> list[Stored]:
        """What this caller's session holds, the oldest first."""
        folder = self._known(caller)
        if folder is None:
            return []
        remove_expired(folder.path, time.time())
        records = [_load_record(file) for file in list_files(folder.path) if file.name.startswith(RECORD_PREFIX)]
        whole = [found for found in records if found is not None and (folder.path / found.handle).is_file()]
        return sorted((found for found in whole if _belongs(found, caller)), key=lambda found: (found.at, found.handle))

    def find(self, handle: str, caller: Caller) -> tuple[Stored, Path]:
        """An output and its file. Raises `UnknownHandle`."""
        folder = self._known(caller)
        found = None
        if folder is not None and is_handle(handle):
            found = _load_record(folder.path / f"{RECORD_PREFIX}{handle}")
        if folder is None or found is None or not _belongs(found, caller) or found.handle != handle:
            raise _unknown_handle(handle, [one.handle for one in self.all(caller)])
        if is_expired(found, time.time()):
            self._forget(folder, handle)
            raise UnknownHandle(
                f"the stored output {handle} expired: it was kept for {self._lifetime:g} s",
                next_action=f"call {found.tool_id} again with the same arguments, and use the new handle",
            )
        path = folder.path / handle
        if not path.is_file() or path.is_symlink():
            raise _unknown_handle(handle, [one.handle for one in self.all(caller)])
        return found, path

    def document(self, handle: str, caller: Caller) -> Document:
        """An output as extraction takes it."""
        found, path = self.find(handle, caller)
        return Document(
            path=path,
            tool=found.tool_id,
            arguments=found.arguments,
            handle=found.handle,
            bytes=found.bytes,
            lines=found.lines,
            tokens=found.tokens,
            media_type=found.media_type,
        )

    def end(self, caller: Caller) -> bool:
        """The session is over: its outputs go, those that outlive it excepted. Tells whether there were any."""
        with self._lock:
            folder = self._folders.pop(_key(caller), None)
        if folder is None:
            return False
        self._let_go(caller, folder)
        return True

    def close(self) -> None:
        """All sessions are over. Safe to call twice."""
        with self._lock:
            self._closed = True
            folders, self._folders = self._folders, {}
        for (name, session), folder in folders.items():
            self._let_go(Caller(name=name, session=session), folder)

    def sweep(self) -> list[Path]:
        """Clears away what earlier processes left behind."""
        return sweep(self.base)

    def purge(self) -> None:
        """Removes what outlived its time in any session, and folders that hold nothing any more."""
        for key, folder in tuple(self._folders.items()):
            remove_expired(folder.path, time.time())
            with self._lock:
                if self._folders.get(key) is folder and is_empty(folder.path):
                    del self._folders[key]
                    self._let_go(Caller(name=key[0], session=key[1]), folder)

    def _let_go(self, caller: Caller, folder: SessionFolder) -> None:
        if self._outlives(caller):
            folder.release()
        else:
            folder.remove()

    def _outlives(self, caller: Caller) -> bool:
        return self._note is not None and _key(caller) == _key(Caller())

    def knows(self, caller: Caller) -> bool:
        """Whether the session may hold something. Asks no disk but for outputs that outlive a gateway."""
        return _key(caller) in self._folders or (self._outlives(caller) and self._note is not None)

    def _known(self, caller: Caller) -> SessionFolder | None:
        """The session's folder where it has one; none is made for looking."""
        with self._lock:
            known = self._folders.get(_key(caller))
        if known is None and self._note is not None and self._outlives(caller) and self._note.exists():
            return self._folder(caller)
        return known

    def _folder(self, caller: Caller) -> SessionFolder:
        with self._lock:
            if self._closed:
                raise OutputError("the gateway is closed, so nothing can be stored", next_action="open it again")
            known = self._folders.get(_key(caller))
            if known is not None and not known.path.is_dir():
                known.release()  # somebody took the folder away
                known = None
            if known is None:
                kept = self._note if self._outlives(caller) else None
                known = create_folder(self.base) if kept is None else persistent_folder(kept, self.base)
                self._folders[_key(caller)] = known
            return known

    def _forget(self, folder: SessionFolder, handle: str) -> None:
        for name in (handle, f"{RECORD_PREFIX}{handle}"):
            (folder.path / name).unlink(missing_ok=True)


class Draft:
    """An output that is being written. It is nobody's until `finish`."""

    def __init__(self, folder: SessionFolder, caller: Caller, lifetime_s: float) -> None:
        self.handle = str(uuid.uuid4())
        self._folder = folder.path
        self._caller = caller
        self._lifetime = lifetime_s
        self._path = folder.path / f"{DRAFT_PREFIX}{self.handle}"
        self._about = folder.path / f"{RECORD_PREFIX}{self.handle}"
        self.descriptor = self._attempt(self._opened)

    def _opened(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return descriptor

    def write(self, piece: bytes) -> None:
        view = memoryview(piece)
        while view:
            view = view[self._attempt(lambda: os.write(self.descriptor, view)) :]  # noqa: B023 - called at once

    def finish(self, counts: Counts, *, tool_id: str, arguments: str, media_type: str) -> Stored:
        """Gives it its name: from now on it can be read."""
        now = time.time()
        stored = Stored(
            handle=self.handle,
            tool_id=tool_id,
            caller=self._caller.name,
            session=self._caller.session,
            bytes=counts.bytes,
            lines=counts.lines,
            tokens=counts.tokens,
            arguments=recorded_arguments(arguments),
            media_type=media_type,
            at=now,
            expires_at=now + self._lifetime,
        )
        self._attempt(lambda: self._name(msgspec.json.encode(stored)))
        self._close()
        return stored

    def _name(self, record: bytes) -> int:
        draft = self._folder / f"{DRAFT_PREFIX}about-{self.handle}"
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(record)
            draft.rename(self._about)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        self._path.rename(self._folder / self.handle)
        return 0

    def discard(self) -> None:
        """It is not wanted, or could not be written. Safe to call twice, and after `finish`."""
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
                "the session ended while its result was being stored", next_action="call the tool again"
            ) from error
        except OSError as error:
            raise storage_full(error, str(self._folder.parent)) from error


def _key(caller: Caller) -> SessionKey:
    return (caller.name, caller.session)


def _load_record(file: Path) -> Stored | None:
    try:
        return read_record(file)
    except OSError as error:
        raise OutputError(
            f"the stored outputs cannot be read: {error.strerror or error}", next_action="try again a little later"
        ) from error


def _belongs(stored: Stored, caller: Caller) -> bool:
    return (stored.caller, stored.session) == _key(caller)


def _unknown_handle(handle: str, known: list[str]) -> UnknownHandle:
    return UnknownHandle(
        f"there is no stored output {handle[:80]!r} in this session",
        hints=known[-10:],
        next_action=NO_OUTPUTS if not known else "use one of the handles in the hints, or call the tool again",
    )
