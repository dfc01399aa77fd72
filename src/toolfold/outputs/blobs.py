"""Where the bytes of outputs lie that every gateway of one store may read: in the store itself, or in a bucket.

Both keep bytes under a shelf and a name, and know neither callers nor permissions. Above: `shared.py`, which says whose
shelf it is, and checks what it gets.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from toolfold.errors import ConfigError, OutputError
from toolfold.outputs.document import open_regular_file
from toolfold.storage.base import Store

if TYPE_CHECKING:
    from obstore.store import S3Store

# Part 0 begins an output in the store, the next is its entry, and its bytes follow.
FIRST_CHUNK = 2
CHUNK_BYTES = 1 << 20

_CODE = re.compile(r"<Code>(\w{1,80})</Code>")
_CONNECT_S = 5.0
_REQUEST_S = 60.0
_RETRIES = 2


class Blobs(Protocol):
    """Bytes by shelf and name."""

    async def write(self, shelf: str, name: str, file: Path, *, for_s: float) -> bool:
        """Writes a whole file. `False`: what it belongs to was removed meanwhile. Raises `ToolfoldError`, `OSError`."""

    def read(self, shelf: str, name: str) -> AsyncIterator[bytes]:
        """The bytes in pieces; fewer than there should be where they are gone. Raises `ToolfoldError`."""

    async def delete(self, shelf: str, name: str) -> None:
        """Removes them, where they do not go with their entry."""


class _StoreBlobs:
    """In the store, in chunks. They run out, and are removed, with the entry."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def write(self, shelf: str, name: str, file: Path, *, for_s: float) -> bool:
        with open_regular_file(file) as opened:
            part = FIRST_CHUNK
            while chunk := await asyncio.to_thread(opened.read, CHUNK_BYTES):
                if not await self._store.put_part(shelf, name, part, chunk, for_s=for_s):
                    return False
                part += 1
        return True

    async def read(self, shelf: str, name: str) -> AsyncIterator[bytes]:
        part = FIRST_CHUNK
        while (chunk := (await self._store.parts(shelf, part, name)).get(name)) is not None:
            yield chunk
            part += 1

    async def delete(self, shelf: str, name: str) -> None:
        """Nothing is left to do."""


class _BucketBlobs:
    """In an S3-compatible bucket, an object each. Keys, region and endpoint come from the environment (`AWS_…`)."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._store = _bucket(address)

    async def write(self, shelf: str, name: str, file: Path, *, for_s: float) -> bool:
        import obstore

        with open_regular_file(file) as opened, _translated(self._address):
            await obstore.put_async(self._store, f"{shelf}/{name}", opened)
        return True

    async def read(self, shelf: str, name: str) -> AsyncIterator[bytes]:
        import obstore

        with _translated(self._address):
            try:
                found = await obstore.get_async(self._store, f"{shelf}/{name}")
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return
            async for chunk in found.stream(min_chunk_size=CHUNK_BYTES):
                yield bytes(chunk)

    async def delete(self, shelf: str, name: str) -> None:
        import obstore

        with _translated(self._address):
            await obstore.delete_async(self._store, f"{shelf}/{name}")


def _bucket(address: str) -> "S3Store":
    try:
        from obstore.store import S3Store
    except ImportError:
        raise ConfigError(
            f"outputs.shared = {address!r} needs the extra `s3`, which is not installed",
            next_action="install it: pip install 'toolfold[s3]', or set outputs.shared to \"store\"",
        ) from None
    with _translated(address):
        return S3Store.from_url(
            address,
            client_options={
                "connect_timeout": timedelta(seconds=_CONNECT_S),
                "timeout": timedelta(seconds=_REQUEST_S),
                # Options of one's own replace all that the client would read from the environment.
                "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").casefold() in ("1", "true"),
            },
            retry_config={"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_REQUEST_S)},
        )


@contextmanager
def _translated(address: str) -> Iterator[None]:
    """Raises an `OutputError` in place of whatever the bucket's client raises inside."""
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        # What the service said is in the XML of its answer; the rest are the client's own structures.
        text = str(error)
        said = _CODE.search(text)
        reason = said[1] if said is not None else text.partition("\n")[0][:300]
        raise OutputError(
            f"the bucket {address} does not work: {reason}",
            next_action="try again; if it lasts, check the bucket and AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "
            "AWS_REGION and AWS_ENDPOINT_URL of this gateway",
        ) from error
