"""Follows the configuration while a gateway serves: looks at its files, and takes over what changed in them.

A file that cannot be used, or that the person has not accepted as it is now, changes nothing: the gateway goes on as it
was, and the log says why, once. Only files are looked at, and none is written, so that nothing here can set itself off.
Whoever runs it keeps it running (`TaskSet.keep`): a caller whose access was taken away must lose it also after a fault
here. Above: `toolfold serve`. Below: the gateway.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from toolfold.config import Settings
from toolfold.config.acceptance import ACCEPTED_FILE
from toolfold.config.toml_file import TomlFile
from toolfold.errors import ConfigError, ToolfoldError
from toolfold.gateway import Gateway

__all__ = ["ConfigWatch"]

log = logging.getLogger("toolfold.serve")

CHECK_S = 0.25
# A file that changes all the time is read after so many looks, as it is then.
_MAX_LOOKS = 10
_MAX_PROBLEMS = 3
# How a section is called in the file, where `Settings` calls it otherwise.
_SECTIONS = {"ontology_file": "ontology"}

_State = tuple[tuple[int, int, int] | None, ...]


class ConfigWatch:
    """Watches the files that `load` reads. `check` sees each new settings first, and may refuse them by raising."""

    def __init__(
        self, gateway: Gateway, load: Callable[[], Settings], check: Callable[[Settings], None] | None = None
    ) -> None:
        self._gateway = gateway
        self._load = load
        self._check = check
        self._latest = gateway.settings
        self._asked = asyncio.Event()
        self._said = ""
        # Whether the gateway has all of the latest settings: taking them over may fail in the middle.
        self._whole = True

    def reload(self) -> None:
        """Asks for the configuration to be read now, changed or not."""
        self._asked.set()

    async def run(self) -> None:
        """Watches until it is cancelled."""
        seen: _State = ()  # it may have changed since it was read
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_S):
                    await self._asked.wait()
            asked = self._asked.is_set()
            self._asked.clear()
            now = self._look()
            if asked or now != seen:
                seen = await self._settled(now)
                await self._take_over(asked)

    def _look(self) -> _State:
        # What is accepted meanwhile counts, too.
        return tuple(map(_state, (*self._latest.sources, self._latest.user_home / ACCEPTED_FILE)))

    async def _settled(self, state: _State) -> _State:
        """Waits until whoever writes the file is done: half of it may be a valid file, too."""
        for _ in range(_MAX_LOOKS):
            await asyncio.sleep(CHECK_S / 2)
            before, state = state, self._look()
            if before == state:
                break
        return state

    async def _take_over(self, asked: bool) -> None:
        try:
            settings = await asyncio.to_thread(self._load)
            _check_whole(self._latest, settings)
            if settings == self._latest and self._whole:
                if asked or self._said:
                    log.info("the configuration is as it was")
                self._said = ""
                return
            if self._check is not None:
                self._check(settings)
        except ToolfoldError as error:
            text = "; ".join([error.message, *_more(error)])
            if asked or text != self._said:
                log.warning("the new configuration is not used, the earlier one stays: %s", text)
            self._said = text
            return
        self._said = ""
        await self._apply(settings)

    async def _apply(self, settings: Settings) -> None:
        self._latest, self._whole = settings, False
        try:
            rest = await self._gateway.reconfigure(settings)
        except ToolfoldError as error:  # the store's: what it could not write, a build writes
            log.error("the configuration was read again, and not all of it could be taken over: %s", error)  # noqa: TRY400
            return
        self._whole = True
        log.info("the configuration was read again%s", _outcome(rest))
        for warning in (*settings.warnings, *settings.file_warnings):
            log.warning("%s", warning)


def _check_whole(before: Settings, now: Settings) -> None:
    """Refuses what looks like an accident: a file that is gone, or was emptied; and one that is not accepted."""
    _check_accepted(before, now)
    _check_there(before, now)
    if before.servers and not now.servers and not _names_none(now):
        raise ConfigError(
            f"{now.sources[0] if now.sources else 'the configuration'} names no servers any more",
            next_action="to serve none, write an empty [servers] there, or disable them",
        )


def _check_accepted(before: Settings, now: Settings) -> None:
    for left in now.withheld:
        if left.path in before.sources:
            raise ConfigError(left.text, next_action=f"accept it: {left.command}")
    for file in now.unaccepted:  # at the start it counted; a change of it waits
        if file not in before.unaccepted:
            raise ConfigError(f"{file.path} {file.reason}", next_action=f"accept it: {file.command}")


def _check_there(before: Settings, now: Settings) -> None:
    if gone := [path for path in before.sources if path not in now.sources and _state(path) is None]:
        raise ConfigError(f"{gone[0]} is no longer there", next_action="put it back, or start toolfold anew")
    if now.home != before.home:
        where = now.sources[-1] if now.sources else "no file"
        raise ConfigError(f"{where} counts here now, with a state folder of its own", next_action="start toolfold anew")
    if missing := set(before.sources).difference(now.sources):
        raise ConfigError(f"{min(missing)} no longer counts here", next_action="start toolfold anew")


def _names_none(settings: Settings) -> bool:
    """Whether a file says that there is no server: one that was cut short says nothing. JSON always says it."""
    return any(source.suffix != ".toml" or TomlFile(source).names_servers() for source in settings.sources)


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - follows links, as reading does
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _more(error: ToolfoldError) -> Sequence[str]:
    """What else is wrong, and what to do."""
    texts = [text for text in (*error.hints[:_MAX_PROBLEMS], error.next_action) if isinstance(text, str)]
    return [text for text in texts if text and text not in error.message]


def _outcome(rest: Sequence[str]) -> str:
    names = ", ".join(name if "." in name else f"[{_SECTIONS.get(name, name)}]" for name in rest)
    return f"; what changed in {names} takes effect when toolfold is started anew" if rest else ""
