"""The vault of several gateways: every sign-in sealed in the store that they share.

What is sealed, and with what, is as in the files of `vault.py`; the key must be the same for all, so it is never made
here. One gateway at a time renews a sign-in: a lease says which. What others write is noticed within seconds, by a
number that changes with each of them. Above: credentials and sessions, which know only the vault.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path

from toolfold.auth.vault import KEY_VARIABLE, Credential, Vault, _key_from, _RenewalWait
from toolfold.config import MIN_KEY_LENGTH, fill
from toolfold.errors import ServerUnavailable, StoreError
from toolfold.storage.base import Store

_SEALED, _STAMPS, _ISSUERS = "sign-ins", "sign-in stamps", "sign-in issuers"
_REVISION = ("sign-in revision", "now")
_LOOK_S = 2.0
# A gateway that is gone holds a renewal up for so long; one that works on prolongs it.
_LEASE_S = 15.0
_WAIT_S = 60.0

log = logging.getLogger("toolfold.auth")

_OpenStore = Callable[[], AbstractAsyncContextManager[Store]]


class _SharedVault(Vault):
    """The sign-ins of all gateways of one store. `key` is a reference to what they are sealed with, which the
    environment's `TOOLFOLD_VAULT_KEY` comes before."""

    def __init__(self, home: Path, opened: _OpenStore, key: str = "") -> None:
        super().__init__(home)
        self._opened = opened
        self._reference = key
        self._stamps: dict[str, bytes] | None = None
        self._revision: bytes | None = None
        self._changes = 0
        self._following: asyncio.Task[None] | None = None

    async def _get(self, server: str, caller: str) -> Credential | None:
        name = self._path(server, caller).name
        async with self._store() as store:
            sealed = await store.get(_SEALED, name)
        return None if sealed is None else await asyncio.to_thread(self._unseal, sealed, name, server)

    async def _put(self, credential: Credential) -> None:
        name = self._path(credential.server, credential.caller).name
        sealed = await asyncio.to_thread(self._seal, credential, name)
        # Whole in any case: a renewed token that is not kept ends the sign-in.
        await asyncio.shield(self._write_sealed(name, sealed))

    async def _write_sealed(self, name: str, sealed: bytes) -> None:
        async with self._store() as store:
            await store.put(_SEALED, name, sealed)
            await self._tell(store, name, _stamp(sealed))

    async def _tell(self, store: Store, name: str, stamp: bytes) -> None:
        """Has everybody know what became of one. The number last: whoever sees it finds the rest."""
        if stamp:
            await store.put(_STAMPS, name, stamp)
        else:
            await store.delete(_STAMPS, name)
        await store.put(*_REVISION, secrets.token_bytes(8))
        self._note({**(self._stamps or {}), name: stamp})

    def _note(self, stamps: dict[str, bytes]) -> None:
        stamps = {name: stamp for name, stamp in stamps.items() if stamp}
        self._changes += stamps != self._stamps
        self._stamps = stamps

    async def write_unwritten(self) -> None:
        if self._unwritten:
            with contextlib.suppress(ServerUnavailable):
                await self._look()  # whoever signed in at another gateway since is not to be written over
        await super().write_unwritten()

    async def delete(self, server: str, caller: str = "") -> bool:
        name, was_held = self._path(server, caller).name, self._let_go(server, caller)
        async with self._store() as store:
            there = await store.get(_SEALED, name) is not None
            await store.delete(_SEALED, name)
            await self._tell(store, name, b"")
        return there or was_held

    async def unlock(self, *, room: bool = True) -> None:
        """Raises where nothing could be kept, since there is no key."""
        await asyncio.to_thread(self._load_key)

    async def list(self) -> tuple[Credential, ...]:
        return tuple(one for one in (await self.entries()).values() if isinstance(one, Credential))

    async def _entries(self) -> dict[tuple[str, str], Credential | ServerUnavailable]:
        async with self._store() as store:
            sealed = await store.items(_SEALED)
        return await asyncio.to_thread(self._unseal_all, dict(sealed))

    def _unseal_all(self, sealed: dict[str, bytes]) -> dict[tuple[str, str], Credential | ServerUnavailable]:
        found: dict[tuple[str, str], Credential | ServerUnavailable] = {}
        for name, value in sealed.items():
            server, _, mark = name.removesuffix(".sealed").partition(".")
            try:
                credential = self._unseal(value, name, server)
            except ServerUnavailable as error:
                found[server, mark and f"#{mark}"] = error
            else:
                found[server, credential.caller] = credential
        return found

    async def issuer_of(self, server: str, client_id: str, issuer: str, *, chosen: bool) -> str:
        name = f"{server.casefold()}.{hashlib.sha256(client_id.encode()).hexdigest()[:32]}"
        known = [one for one in await self.list() if (one.server, one.client_id) == (server, client_id)]
        first = min(known, key=lambda one: one.obtained_at).issuer if known else issuer
        async with self._store() as store:
            if chosen:
                await store.put(_ISSUERS, name, issuer.encode())
            else:
                await store.swap(_ISSUERS, name, None, first.encode())
            return (await store.get(_ISSUERS, name) or b"").decode(errors="replace")

    def stamp(self, server: str, caller: str = "") -> tuple[int, ...]:
        """What differs once another gateway wrote this credential, some seconds later; nothing where there is none."""
        if self._stamps is None:
            self._look_first()
        stamp = (self._stamps or {}).get(self._path(server, caller).name, b"")
        return tuple(stamp)

    def changed_at(self) -> int:
        return self._changes

    def _look_first(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # a command, which asks between two loops
            asyncio.run(self._look())
        else:
            log.debug("sign-ins are asked for before anybody looked for those of other gateways")

    async def follow(self) -> None:
        if self._following is None:
            await self._look()
            self._following = asyncio.get_running_loop().create_task(self._keep_looking())

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self._look()
            except ServerUnavailable as error:  # the next round may do
                log.debug("%s", error)

    async def _look(self) -> None:
        async with self._store() as store:
            revision = await store.get(*_REVISION) or b""
            if revision != self._revision:
                self._note(dict(await store.items(_STAMPS)))
                self._revision = revision

    async def aclose(self) -> None:
        await super().aclose()
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    @asynccontextmanager
    async def lock(self, server: str, caller: str = "") -> AsyncIterator[None]:
        """Only one, of all gateways, renews a credential: a refresh token that is used twice ends the sign-in."""
        name, holder = f"sign-in/{self._path(server, caller).name}", secrets.token_hex(8)
        async with self._store() as store:
            waits = _RenewalWait(server, other="gateway", for_s=_WAIT_S)
            while not await store.take_lease(name, holder, for_s=_LEASE_S):
                await waits.pause()
            prolonging = asyncio.get_running_loop().create_task(_prolong(store, name, holder))
            try:
                yield
            finally:
                prolonging.cancel()
                await asyncio.gather(prolonging, return_exceptions=True)
                with contextlib.suppress(StoreError):  # it runs out by itself
                    await store.release_lease(name, holder)

    @asynccontextmanager
    async def _store(self) -> AsyncIterator[Store]:
        with _translated():
            async with self._opened() as store:
                yield store

    def _load_key(self) -> bytes:
        if self._key is None:
            secret, source = os.environ.get(KEY_VARIABLE, "").strip(), KEY_VARIABLE
            self.key_source = "environment"
            if not secret and self._reference:
                secret, source = fill(self._reference, "[sign_in]").strip(), "sign_in.key"
                self.key_source = "configuration"
            if len(secret) < MIN_KEY_LENGTH:
                what = f"{source} has fewer than {MIN_KEY_LENGTH} characters" if secret else "there is no key for them"
                raise ServerUnavailable(
                    f"sign-ins are kept in the store, for all gateways, and {what}",
                    next_action=f"Set {KEY_VARIABLE} to the same secret for every gateway, such as what `openssl rand "
                    '-base64 32` prints, or name it in sign_in.key; else set sign_in.shared = "off".',
                )
            self._key = _key_from(secret)
        return self._key


async def _prolong(store: Store, name: str, holder: str) -> None:
    while True:
        await asyncio.sleep(_LEASE_S / 3)
        with contextlib.suppress(StoreError):  # there is another chance before it runs out
            await store.take_lease(name, holder, for_s=_LEASE_S)


def _stamp(sealed: bytes) -> bytes:
    return hashlib.sha256(sealed).digest()[:8]


@contextmanager
def _translated() -> Iterator[None]:
    """Raises what sessions expect in place of the store's errors."""
    try:
        yield
    except StoreError as error:
        raise ServerUnavailable(
            f"the sign-ins in the store cannot be reached: {error.message}",
            next_action=error.next_action or "try again a little later",
        ) from error
