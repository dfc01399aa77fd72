"""Stored outputs that every gateway of one store can read: the index of all handles, and the way of one from here to
there.

An output stays a file of the gateway that stored it. Beside that its bytes go to `blobs.py` and an entry to the index,
on a shelf for each caller's session; another gateway that is asked for it fetches it once, checks it, and has it as a
file of its own session folder from then on. What is removed from the index is over: each gateway drops its copy. An
entry is written last, so whatever is listed is whole; what a gateway left half done runs out. Above: `service.py`.
"""

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from toolfold.config import Settings
from toolfold.containers import BoundedDict, TaskSet
from toolfold.errors import OutputError, StoreError, ToolfoldError, UnknownHandle
from toolfold.events import Events
from toolfold.outputs.blobs import CHUNK_BYTES, Blobs, _BucketBlobs, _StoreBlobs
from toolfold.outputs.document import open_regular_file
from toolfold.outputs.store import OutputStore, _belongs, _is_handle
from toolfold.storage.base import Store
from toolfold.types import Caller, Stored

log = logging.getLogger("toolfold.outputs")

_SHELVES = "outputs/"
_BEGUN, _ENTRY = 0, 1
# Of one gateway, at once; and how long one may take, the waiting for its turn included.
_MAX_FETCHES = 4
_FETCH_S = 120.0
_SHARE_S = 60.0
_CLOSE_S = 5.0
# Handles that this gateway knows to be in the index.
_MAX_KNOWN = 100_000
# What one round of cleaning removes.
_MAX_EXPIRED = 1000
_SWEEP_LEASE = "outputs.sweep"
_SWEEP_S = 50.0


class _Entry(Struct, frozen=True):
    """What the index has of one output. Without a checksum its bytes are with one gateway alone."""

    stored: Stored
    sha256: str = ""


_decode = msgspec.json.Decoder(_Entry).decode


def shared_outputs(settings: Settings, store: Store, local: OutputStore, events: Events) -> "_SharedOutputs | None":
    """What the configuration says; `None`: each gateway keeps its outputs to itself."""
    where = settings.outputs_shared
    if where == "off":
        return None
    blobs: Blobs = _StoreBlobs(store) if where == "store" else _BucketBlobs(where)
    return _SharedOutputs(store, local, blobs, max_bytes=settings.outputs.shared_max_bytes, events=events)


class _SharedOutputs:
    """The outputs of all gateways of one store, as one of them sees it. `local` are its own files."""

    def __init__(self, store: Store, local: OutputStore, blobs: Blobs, *, max_bytes: int, events: Events) -> None:
        self._store = store
        self._local = local
        self._blobs = blobs
        self._max_bytes = max_bytes
        self._events = events
        self._gateway = secrets.token_hex(8)
        self._known: BoundedDict[str, float] = BoundedDict(_MAX_KNOWN)
        self._slots = asyncio.Semaphore(_MAX_FETCHES)
        self._fetches: dict[tuple[str, str], asyncio.Task[OutputError | None]] = {}
        self._tasks = TaskSet(log)

    async def share(self, outputs: Sequence[Stored]) -> None:
        """Shows outputs that were just stored here to all gateways. One that cannot be is read here only, and logged:
        the call that made it has succeeded."""
        for stored in outputs:
            shelf = _shelf(_caller(stored))
            try:
                async with asyncio.timeout(_SHARE_S):
                    await self._share(stored, shelf)
            except (ToolfoldError, OSError, TimeoutError) as error:
                reason = str(error) or f"it took over {_SHARE_S:g} s"
                log.warning("the stored output %s can be read at this gateway only: %s", stored.handle, reason)
                self._events.emit("output.unshared", handle=stored.handle, tool_id=stored.tool_id, error=reason)
                self._tasks.start(self._discard(shelf, stored.handle), name=f"unsharing {stored.handle}")
            except asyncio.CancelledError:  # nobody hears of the call's result: nothing of it stays
                self._local.drop([one.handle for one in outputs], _caller(stored))
                self._tasks.start(self._discard(shelf, stored.handle), name=f"unsharing {stored.handle}")
                raise

    async def _share(self, stored: Stored, shelf: str) -> None:
        handle, for_s = stored.handle, _left(stored)
        await self._store.put_part(shelf, handle, _BEGUN, b"", for_s=for_s)
        entry = _Entry(stored)
        if stored.bytes <= self._max_bytes:
            _, file = await asyncio.to_thread(self._local.find, handle, _caller(stored))
            entry = _Entry(stored, await asyncio.to_thread(_checksum, file))
            if not await self._blobs.write(shelf, handle, file, for_s=for_s):
                return
        if await self._store.put_part(shelf, handle, _ENTRY, msgspec.json.encode(entry), for_s=for_s):
            self._known[handle] = time.time() + for_s
        else:  # its session ended at another gateway
            await self._blobs.delete(shelf, handle)

    async def _discard(self, shelf: str, handle: str) -> None:
        try:
            await self._blobs.delete(shelf, handle)
            await self._store.delete_parts(shelf, handle)
        except ToolfoldError as error:
            log.info("what was shared of %s runs out by itself: %s", handle, error)

    async def list(self, caller: Caller, here: Sequence[Stored]) -> list[Stored]:
        """The outputs of this caller's session, the oldest first: those that lie `here`, less what ended elsewhere, and
        all others."""
        found = await self._store.parts(_shelf(caller), _ENTRY)
        entries = [_read(handle, value, caller) for handle, value in found.items()]
        outputs = {entry.stored.handle: entry.stored for entry in entries if entry is not None}
        ended = [stored.handle for stored in here if stored.handle not in outputs and self._is_known(stored.handle)]
        if ended:
            await asyncio.to_thread(self._local.drop, ended, caller)
        outputs |= {stored.handle: stored for stored in here if stored.handle not in ended}
        return sorted(outputs.values(), key=lambda stored: (stored.at, stored.handle))

    async def bring(self, handle: str, caller: Caller) -> None:
        """Sees to it that an output of this caller's session is here, wherever it was stored, and that one that is
        over is not. Of any other handle nothing is done. Raises `OutputError`, `UnknownHandle`."""
        if not _is_handle(handle):
            return
        held = await asyncio.to_thread(self._local.holds, handle, caller)
        try:
            entry = _read(handle, (await self._store.parts(_shelf(caller), _ENTRY, handle)).get(handle), caller)
        except StoreError as error:
            if held:  # what is here can be read without the others
                return
            raise OutputError(
                f"the stored output {handle} is not at this gateway, and the store that tells where it is fails: "
                f"{error.message}",
                next_action=error.next_action or "try again a little later",
            ) from error
        if entry is not None and not held:
            await self._fetch_once(entry, caller)
        elif entry is None and held and self._is_known(handle):
            await asyncio.to_thread(self._local.drop, [handle], caller)

    def _is_known(self, handle: str) -> bool:
        """Whether it was in the index, and should be there still."""
        return self._known.get(handle, 0.0) > time.time()

    async def _fetch_once(self, entry: _Entry, caller: Caller) -> None:
        stored = entry.stored
        if not entry.sha256 or stored.bytes > self._max_bytes:
            raise UnknownHandle(
                f"the stored output {stored.handle} is with the one gateway that stored it: its {stored.bytes} bytes "
                f"are over the {self._max_bytes} up to which gateways share one (outputs.shared_max_bytes)",
                tool=stored.tool_name,
                next_action=f"call {stored.tool_name} again and ask it for less, or raise outputs.shared_max_bytes",
            )
        key = (_shelf(caller), stored.handle)
        task = self._fetches.get(key)
        if task is None:
            task = self._fetches[key] = self._tasks.start(self._fetch(entry, caller), name=f"fetching {stored.handle}")
            task.add_done_callback(lambda _: self._fetches.pop(key, None))
        # Shielded: one caller that is cancelled must not cancel what the others wait for.
        if (error := await asyncio.shield(task)) is not None:
            raise error

    async def _fetch(self, entry: _Entry, caller: Caller) -> OutputError | None:
        """Brings one output here. Returns what to tell who waits for it: as an error of its own it would be logged."""
        stored = entry.stored
        try:
            async with asyncio.timeout(_FETCH_S), self._slots:
                if await asyncio.to_thread(self._local.holds, stored.handle, caller):
                    return None  # whoever asked had looked before another brought it
                await self._copy(entry, caller)
        except TimeoutError:
            return OutputError(
                f"the stored output {stored.handle} could not be fetched within {_FETCH_S:g} s",
                next_action="try again a little later",
            )
        except OutputError as error:
            return error
        except ToolfoldError as error:
            return OutputError(
                f"the stored output {stored.handle} cannot be fetched: {error.message}",
                next_action=error.next_action or "try again a little later",
            )
        self._known[stored.handle] = time.time() + _left(stored)
        self._events.emit("output.fetched", handle=stored.handle, tool_id=stored.tool_id, bytes=stored.bytes)
        return None

    async def _copy(self, entry: _Entry, caller: Caller) -> None:
        stored, shelf = entry.stored, _shelf(caller)
        draft = await asyncio.to_thread(self._local.copy, stored.handle, caller)
        try:
            digest, size = hashlib.sha256(), 0
            async for piece in self._blobs.read(shelf, stored.handle):
                size += len(piece)
                if size > stored.bytes:
                    break
                digest.update(piece)
                await asyncio.to_thread(draft.write, piece)
            if size == stored.bytes and digest.hexdigest() == entry.sha256:
                await asyncio.to_thread(draft.adopt, stored)
                return
        except BaseException:
            draft.discard()
            raise
        draft.discard()
        if await self._store.parts(shelf, _ENTRY, stored.handle):  # else it was removed meanwhile, and `find` says so
            raise OutputError(
                f"the stored output {stored.handle} is damaged where gateways share it: its {stored.bytes} bytes are "
                "not there as they were stored",
                next_action=f"call {stored.tool_name} again with the same arguments, and use the new handle",
            )

    async def end(self, caller: Caller) -> None:
        """Removes a session that is over, everywhere. A gateway that has copies drops them when it looks next."""
        shelf = _shelf(caller)
        try:
            handles = await self._store.parts(shelf, _BEGUN)
            for handle in handles:
                await self._blobs.delete(shelf, handle)
            if handles:
                await self._store.delete_parts(shelf)
        except ToolfoldError as error:
            log.warning("what other gateways have of a session that ended runs out by itself: %s", error)

    async def purge(self) -> None:
        """Removes what has run out, whoever left it, and here the copies of what ended elsewhere."""
        for caller, handles in await asyncio.to_thread(self._local.held):
            if known := set(filter(self._is_known, handles)):
                ended = known - (await self._store.parts(_shelf(caller), _BEGUN)).keys()
                await asyncio.to_thread(self._local.drop, ended, caller)
        if await self._store.take_lease(_SWEEP_LEASE, self._gateway, for_s=_SWEEP_S):  # one at a time is enough
            for shelf, name in await self._store.expired_parts(_MAX_EXPIRED):
                if shelf.startswith(_SHELVES):
                    await self._blobs.delete(shelf, name)
                await self._store.delete_parts(shelf, name)
            await self._store.release_lease(_SWEEP_LEASE, self._gateway)

    async def aclose(self) -> None:
        """Waits for what is being cleared away; what is shared stays, for the other gateways and for the next start."""
        for task in tuple(self._fetches.values()):
            task.cancel()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._tasks.wait()
        except TimeoutError:
            await self._tasks.cancel()


def _shelf(caller: Caller) -> str:
    # A caller's name may hold anything, so the two are told apart before they are hashed.
    return _SHELVES + hashlib.sha256(msgspec.json.encode((caller.name, caller.session))).hexdigest()


def _caller(stored: Stored) -> Caller:
    return Caller(name=stored.caller, session=stored.session)


def _left(stored: Stored) -> float:
    return max(0.0, (stored.expires_at or time.time()) - time.time())


def _read(handle: str, value: bytes | None, caller: Caller) -> _Entry | None:
    """An entry of this caller's session; `None` where there is none, or none of ours."""
    if value is None:
        return None
    try:
        entry = _decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        log.warning("the entry of the shared output %s is damaged, or of another version of toolfold", handle)
        return None
    return entry if _belongs(entry.stored, caller) and entry.stored.handle == handle else None


def _checksum(file: Path) -> str:
    digest = hashlib.sha256()
    with open_regular_file(file) as opened:
        while piece := opened.read(CHUNK_BYTES):
            digest.update(piece)
    return digest.hexdigest()
