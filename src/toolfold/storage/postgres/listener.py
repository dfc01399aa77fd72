"""Tells a gateway that another one wrote to the PostgreSQL store, by LISTEN and NOTIFY on a connection of its own.

Through a pooler that gives each transaction another session nothing is heard: a trial shows that, and the store is then
looked at once a second. Whenever it begins to listen, anew or for the first time, all who wait are told: what was
written before is not missed.
"""

import asyncio
import logging
from secrets import token_hex
from weakref import WeakKeyDictionary

import psycopg

from toolfold.errors import StoreError
from toolfold.storage.postgres.connection import Connection, _Address, _Session, _Sessions

CHANNEL = "toolfold"

# How long a trial may take to be heard, and how often a store is looked at that cannot be listened to.
_TRIAL_S = 2.0
_POLL_S = 1.0
# How often a silent connection is asked whether it is still there.
_CHECK_S = 30.0
# The pause before a lost connection is opened again.
_PAUSE_S = 0.5

log = logging.getLogger("toolfold.storage")


class _Listener:
    """Counts what others wrote; each task that waits is told of all of it once."""

    def __init__(self, sessions: _Sessions, url: str) -> None:
        self.own = token_hex(8)
        self._sessions = sessions
        self._address = _Address(url, sessions.address.timeout_s) if url else sessions.address
        self._count = 0
        self._told: WeakKeyDictionary[asyncio.Task[object], int] = WeakKeyDictionary()
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def wait(self) -> None:
        """Returns once there is news for this task; the first time, as soon as it is listened."""
        if self._task is None:
            self._task = asyncio.create_task(self._listen(), name="listening to PostgreSQL")
        waiter = asyncio.current_task() or self._task  # which is never itself the one that waits
        while self._told.get(waiter, 0) == self._count:
            await self._news.wait()
        self._told[waiter] = self._count

    async def aclose(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _tell(self) -> None:
        self._count += 1
        self._news.set()
        self._news = asyncio.Event()

    async def _listen(self) -> None:
        while True:
            try:
                connection = await self._address.connect()
                try:
                    await self._follow(connection)
                finally:
                    await connection.close()
            except (StoreError, psycopg.Error) as error:
                log.debug("what others write is not heard at the moment: %s", error)
            await asyncio.sleep(_PAUSE_S)

    async def _follow(self, connection: Connection) -> None:
        """Follows what others write, until that fails."""
        session = _Session(connection, self._address)
        await session.run(f"LISTEN {CHANNEL}", binary=False)
        self._tell()
        if not await self._hears(connection):
            await connection.close()
            text = "%s passes no notifications on and is looked at every %g s: storage.listen_url can name PostgreSQL"
            log.warning(text, self._address.shown, _POLL_S)
            await self._poll()
        while True:
            async for notice in connection.notifies(timeout=_CHECK_S):
                if notice.payload != self.own:
                    self._tell()
            await session.run("SELECT 1")

    async def _hears(self, connection: Connection) -> bool:
        """Whether a word from another session arrives here."""
        trial = token_hex(8)
        async with self._sessions.session() as other:
            await other.run("SELECT pg_notify(%s, %s)", [CHANNEL, trial])
        async for notice in connection.notifies(timeout=_TRIAL_S):
            if notice.payload == trial:
                return True
            if notice.payload != self.own:
                self._tell()
        return False

    async def _poll(self) -> None:
        """Looks which transactions are over: where that is as before, nobody wrote anything."""
        seen = ""
        while True:
            async with self._sessions.session() as session:
                now = str((await session.run("SELECT pg_current_snapshot()::text"))[0][0])
            if now != seen:
                seen = now
                self._tell()
            await asyncio.sleep(_POLL_S)
