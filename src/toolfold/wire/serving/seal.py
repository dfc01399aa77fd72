"""Seals: what a client carries and any gateway of the same store opens, and nobody else.

The keys lie in the store, where `swap` makes the first: all gateways have the same. Each week whichever gateway notices
first makes a new one; values are sealed with the newest and opened with any of the last eight, so for seven weeks. Who
wants no key in the database names secrets instead (`[serve] seal_keys`): the first seals, the others still open. What
is in a value, and until when it holds, is for its user to say. Above: sessions, states and messages between gateways.
"""

import asyncio
import base64
import hashlib
import os
import time
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from toolfold.storage.base import Store

__all__ = ["Seals"]

_PLACE = ("serving", "seal-keys")
_ROTATE_S = 7 * 86400.0
_KEPT = 8
# Keys are looked up in the store at most this often, whatever strange values arrive.
_PAUSE_S = 0.5
_ID_BYTES, _NONCE_BYTES, _TAG_BYTES = 8, 12, 16
_OVERHEAD = _ID_BYTES + _NONCE_BYTES + _TAG_BYTES


class _Key(Struct, frozen=True):
    secret: bytes
    made: float

    @property
    def name(self) -> bytes:
        return hashlib.sha256(b"toolfold-seal-1" + self.secret).digest()[:_ID_BYTES]

    @property
    def is_due(self) -> bool:
        return abs(time.time() - self.made) > _ROTATE_S  # a clock that was wrong once delays nothing


class Seals:
    """Seals values and opens them. Without a store and without `given` secrets: with a key of this process."""

    def __init__(self, store: Store | None = None, given: Sequence[str] = ()) -> None:
        self._store = None if given else store
        self._given = tuple(given)
        self._keys = [_new_key()]
        self._by_name = {key.name: key for key in self._keys}
        self._reading: asyncio.Task[None] | None = None
        self._read_at = -_PAUSE_S

    async def open(self) -> None:
        """Takes over the shared keys, and makes a new one where it is time. To be called before the first use."""
        if self._given:
            self._take(await asyncio.to_thread(_derive, self._given))
        while self._store is not None:
            found = await self._store.get(*_PLACE)
            keys = msgspec.msgpack.decode(found, type=list[_Key]) if found is not None else []
            if keys and not keys[-1].is_due:
                self._take(keys)
                return
            renewed = [*keys, _new_key()][-_KEPT:]
            if await self._store.swap(*_PLACE, found, msgspec.msgpack.encode(renewed)):
                self._take(renewed)
                return

    def _take(self, keys: list[_Key]) -> None:
        self._keys, self._by_name = keys, {key.name: key for key in keys}

    @property
    def is_due(self) -> bool:
        """Whether it is time for a new key: then `open` makes it."""
        return self._store is not None and self._keys[-1].is_due

    def seal(self, purpose: str, data: bytes) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key, nonce = self._keys[-1], os.urandom(_NONCE_BYTES)
        return key.name + nonce + AESGCM(key.secret).encrypt(nonce, data, purpose.encode())

    def seal_text(self, purpose: str, data: bytes) -> str:
        """The same in letters, digits, `-` and `_`."""
        return _as_text(self.seal(purpose, data))

    def unseal(self, purpose: str, sealed: bytes) -> bytes | None:
        """What was sealed for this purpose; nothing for whatever is not whole, not ours or too old. Which of them it
        is, nobody learns. Another gateway may have made a key since: see `find_key`."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = self._by_name.get(sealed[:_ID_BYTES])
        if key is None or len(sealed) < _OVERHEAD:
            return None
        nonce, rest = sealed[_ID_BYTES : _ID_BYTES + _NONCE_BYTES], sealed[_ID_BYTES + _NONCE_BYTES :]
        try:
            return AESGCM(key.secret).decrypt(nonce, rest, purpose.encode())
        except InvalidTag:
            return None

    def unseal_text(self, purpose: str, text: str) -> bytes | None:
        sealed = _from_text(text)
        # Bits that the last letter has to spare must not make two names of one value.
        return self.unseal(purpose, sealed) if _as_text(sealed) == text else None

    async def find_key(self, sealed: bytes | str) -> None:
        """Looks in the store for the key of a value, where it is not known here. Raises `StoreError`."""
        sealed = sealed if isinstance(sealed, bytes) else _from_text(sealed)
        if self._store is not None and len(sealed) >= _OVERHEAD and sealed[:_ID_BYTES] not in self._by_name:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.ensure_future(self._read_after_pause())
            await asyncio.shield(self._reading)

    async def _read_after_pause(self) -> None:
        await asyncio.sleep(max(0.0, self._read_at + _PAUSE_S - time.monotonic()))
        self._read_at = time.monotonic()
        await self.open()


def _as_text(sealed: bytes) -> str:
    return base64.urlsafe_b64encode(sealed).decode().rstrip("=")


def _from_text(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
    except ValueError:
        return b""


def _new_key() -> _Key:
    return _Key(os.urandom(32), time.time())


def _derive(given: Sequence[str]) -> list[_Key]:
    """The newest last. A person may have chosen a short one: each guess shall cost something."""
    return [
        _Key(hashlib.scrypt(secret.encode(), salt=b"toolfold-seal-1", n=2**14, r=8, p=1, dklen=32), time.time())
        for secret in reversed(given)
    ]
