"""A server's process: started with a small environment in a session of its own, watched, and ended without a rest.

It knows signals, groups and descriptors, and nothing of messages. Above: `stdio.py`. Below: `guard.py`, which sees to
it that nothing outlives us even when we are killed.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from toolfold.config.programs import install_hint
from toolfold.errors import ServerUnavailable
from toolfold.wire.guard import guard
from toolfold.wire.guardian import TAG, sweep
from toolfold.wire.values import StdioTarget

INHERITED = frozenset(
    {
        *("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"),
        *("SSL_CERT_DIR", "SSL_CERT_FILE"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"),
    }
)
"""What a server gets of our environment. Anything else may be a secret, and is given only by the configuration."""


def environment(extra: dict[str, str]) -> dict[str, str]:
    """The safe part of our own environment, and the target's on top."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if (name in INHERITED or name.startswith("LC_")) and not value.startswith("()")
    }
    return kept | extra


class Process:
    """One started server and all that it starts. `on_exit` is told once, in the event loop."""

    def __init__(self, target: StdioTarget, on_exit: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_exit = on_exit
        self.exited = asyncio.Event()
        self.returncode: int | None = None
        env = environment(target.env)
        command = _find(target, env)
        self._tag = env[TAG] = guard().tag()
        self._popen, self.stdin, self.stdout, self.stderr = _start(target, command, env)
        self.pid = self._popen.pid
        guard().add(self.pid)
        self._watch()

    def _watch(self) -> None:
        """A readable pidfd says that the process ended; where there is none, a thread waits for it."""
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            threading.Thread(target=self._wait_in_thread, daemon=True).start()
        else:
            self._loop.add_reader(self._pidfd, self._ended)

    def _wait_in_thread(self) -> None:
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie, so its number stays taken
        else:
            self._popen.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._ended)

    def _ended(self) -> None:
        if self.exited.is_set():
            return
        if hasattr(self, "_pidfd"):
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        self._kill(signal.SIGKILL)  # the rest of its group; the leader is not reaped, so the number is not another's
        self.returncode = self._popen.wait()
        self.exited.set()
        self._on_exit()

    def _kill(self, number: int) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """Ends the whole group at once."""
        if not self.exited.is_set():
            self._kill(signal.SIGKILL)

    async def end(self, grace_s: float) -> None:
        """Waits for the end, which closing stdin asked for; helps with SIGTERM, then with SIGKILL."""
        try:
            for number in (None, signal.SIGTERM, signal.SIGKILL):
                if number is not None:
                    self._kill(number)
                if await self._gone(grace_s):
                    break
            await self._loop.run_in_executor(None, sweep, self._tag)
        except asyncio.CancelledError:
            self.kill()
            sweep(self._tag)
            raise
        finally:
            guard().remove(self.pid)

    async def _gone(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self.exited.wait()
        except TimeoutError:
            return False
        return True


def _find(target: StdioTarget, env: dict[str, str]) -> str:
    if target.cwd is not None and not Path(target.cwd).is_dir():
        raise ServerUnavailable(
            f"the working folder {target.cwd} does not exist",
            next_action="correct `cwd` of this server, or create the folder",
        )
    command = target.command
    if target.cwd is not None and "/" in command and not Path(command).is_absolute():
        command = str(Path(target.cwd) / command)
    found = shutil.which(command, path=env.get("PATH"))
    if found is None:
        raise ServerUnavailable(
            f"the command {target.command!r} was not found",
            next_action=install_hint(command),
        )
    return str(Path(found).absolute())


def _start(target: StdioTarget, command: str, env: dict[str, str]) -> tuple[subprocess.Popen[bytes], int, int, int]:
    """Starts it in a session of its own, with a pipe for each standard stream, ours not blocking."""
    theirs_in, ours_in = os.pipe()
    ours_out, theirs_out = os.pipe()
    ours_err, theirs_err = os.pipe()
    try:
        started = subprocess.Popen(
            [target.command, *target.args],
            executable=command,
            stdin=theirs_in,
            stdout=theirs_out,
            stderr=theirs_err,
            env=env,
            cwd=target.cwd,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        for descriptor in (ours_in, ours_out, ours_err):
            os.close(descriptor)
        raise ServerUnavailable(
            f"{target.command!r} could not be started: {error}",
            next_action="check `command`, `args` and `cwd` of this server",
        ) from error
    finally:
        for descriptor in (theirs_in, theirs_out, theirs_err):
            os.close(descriptor)
    for descriptor in (ours_in, ours_out, ours_err):
        os.set_blocking(descriptor, False)
    return started, ours_in, ours_out, ours_err
