"""A server's process: started with a small environment in a session of its own, watched, and ended with its children.

It knows signals, groups and descriptors, and nothing of messages. Above: `stdio.py`. Below: `reaper.py`, which ends
the servers when this process is killed. One reaper serves the whole process; one that was killed is replaced.
"""

import asyncio
import contextlib
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from fnmatch import translate
from pathlib import Path

from toolfold.config.install_hints import install_hint
from toolfold.config.secrets import is_secret_name
from toolfold.errors import ServerUnavailable
from toolfold.wire import reaper
from toolfold.wire.reaper import OWNER_VARIABLE, kill_tagged
from toolfold.wire.types import StdioTarget

__all__ = ["ServerProcess", "withheld_variables"]


class _ReaperClient:
    """Starts the reaper of this process with its first server, and registers process groups with it."""

    def __init__(self) -> None:
        self.owner = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._pipe: int | None = None
        self._pid: int | None = None
        self._count = 0

    def tag(self) -> str:
        """A unique value for the owner variable of one server. The reaper runs from here on."""
        with self._lock:
            self._count += 1
            if self._pipe is None:
                self._start()
            return f"{self.owner}.{self._count}."

    def add(self, group: int) -> None:
        with self._lock:
            self._groups.add(group)
            if not self._send(f"+{group}\n"):
                self._start()

    def remove(self, group: int) -> None:
        with self._lock:
            self._groups.discard(group)
            self._send(f"-{group}\n")

    def _send(self, text: str) -> bool:
        try:
            return self._pipe is not None and os.write(self._pipe, text.encode()) >= 0
        except OSError:
            return False

    def _start(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
        if self._pid is not None:
            with contextlib.suppress(OSError):
                os.waitpid(self._pid, os.WNOHANG)
        reading, self._pipe = os.pipe()
        script = str(Path(reaper.__file__).resolve())
        null = os.devnull
        try:
            self._pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", "-B", script, self.owner, str(os.getpid())],
                {"PATH": os.defpath},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, reading, 0),
                    (os.POSIX_SPAWN_OPEN, 1, null, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 2, null, os.O_WRONLY, 0),
                ],
            )
        finally:
            os.close(reading)
        self._send("".join(f"+{group}\n" for group in self._groups))


_reapers: dict[int, _ReaperClient] = {}


def _reaper() -> _ReaperClient:
    """The client of this process, created on first use."""
    pid = os.getpid()
    # A forked child must not write to its parent's reaper, which would kill the child's servers with the parent.
    if pid not in _reapers:
        _reapers.clear()
        _reapers[pid] = _ReaperClient()
    return _reapers[pid]


# What a server gets of our environment: what the programs that start servers need to work as they do for a person.
# docs/servers.md has the same list. Anything else may be a secret, and is given only by the configuration.
_INHERITED = (
    "HOME", "USER", "LOGNAME", "PATH", "SHELL", "TERM", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "TMP", "TEMP",
    "SSL_CERT_*", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
    "GIT_SSL_CAPATH", "NIX_SSL_CERT_FILE", "AWS_CA_BUNDLE", "HTTPLIB2_CA_CERTS", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "*_PROXY", "*_proxy",
    "NODE_*", "NPM_*", "npm_config_*", "NVM_DIR", "NVM_BIN", "FNM_*", "VOLTA_*", "PNPM_*", "YARN_*", "BUN_*",
    "DENO_*", "COREPACK_*", "UV_*", "PIP_*", "PIPX_*", "PYENV_*", "PYTHON*", "CONDA_*", "MISE_*", "ASDF_*", "JAVA_HOME",
    "GOPATH", "GOROOT", "CARGO_HOME", "RUSTUP_HOME", "GEM_HOME", "GEM_PATH", "DOTNET_*", "HOMEBREW_PREFIX",
    "NIX_PROFILES", "DOCKER_*", "PODMAN_*", "CONTAINER_*", "BUILDKIT_*", "KUBECONFIG",
    "DISPLAY", "WAYLAND_*", "XAUTHORITY", "XDG_*", "DBUS_SESSION_BUS_ADDRESS", "BROWSER", "WSL*",
    "SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "GNUPGHOME", "GIT_SSH", "GIT_SSH_COMMAND",
)  # fmt: skip
_USUAL = re.compile("|".join(map(translate, _INHERITED)))


def _environment(target: StdioTarget) -> dict[str, str]:
    """The harmless part of our own environment, what the target names of the rest, and the target's own on top."""
    named = [re.compile(translate(pattern)) for pattern in target.inherit]
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not value.startswith("()") and (_is_usual(name) or any(pattern.match(name) for pattern in named))
    }
    return inherited | target.env


def _is_usual(name: str) -> bool:
    """Whether every server gets it. A pattern covers no secret, such as `NPM_TOKEN`: that has to be named."""
    return name in _INHERITED or (_USUAL.match(name) is not None and not is_secret_name(name))


def withheld_variables(inherit: tuple[str, ...]) -> list[str]:
    """The names in our environment that a server does not get which inherits these patterns."""
    return sorted(os.environ.keys() - _environment(StdioTarget("", inherit=inherit)).keys())


class ServerProcess:
    """One started server and all that it starts. `on_exit` is called once, in the event loop."""

    def __init__(self, target: StdioTarget, on_exit: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_exit = on_exit
        self.exited = asyncio.Event()
        self.returncode: int | None = None
        env = _environment(target)
        command = _find_command(target, env)
        self._tag = env[OWNER_VARIABLE] = _reaper().tag()
        self._popen, self.stdin, self.stdout, self.stderr = _start(target, command, env)
        self.pid = self._popen.pid
        _reaper().add(self.pid)
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
        """Waits for the end, which closing stdin asks for; then sends SIGTERM, then SIGKILL."""
        try:
            for number in (None, signal.SIGTERM, signal.SIGKILL):
                if number is not None:
                    self._kill(number)
                if await self._gone(grace_s):
                    break
            await self._loop.run_in_executor(None, kill_tagged, self._tag)
        except asyncio.CancelledError:
            self.kill()
            kill_tagged(self._tag)
            raise
        finally:
            _reaper().remove(self.pid)

    async def _gone(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self.exited.wait()
        except TimeoutError:
            return False
        return True


def _find_command(target: StdioTarget, env: dict[str, str]) -> str:
    if target.cwd is not None and not Path(target.cwd).is_dir():
        raise ServerUnavailable(
            f"the working folder {target.cwd} does not exist",
            next_action="correct `cwd` of this server, or create the folder",
        )
    command = target.command
    if target.cwd is not None and "/" in command and not Path(command).is_absolute():
        command = str(Path(target.cwd) / command)
    path = shutil.which(command, path=env.get("PATH"))
    if path is None and Path(command).is_file():
        raise ServerUnavailable(
            f"the command {target.command!r} may not be executed",
            next_action=f"chmod +x {shlex.quote(command)}; or start it with its interpreter, such as `python FILE`",
        )
    if path is None:
        raise ServerUnavailable(
            f"the command {target.command!r} was not found",
            next_action=install_hint(command),
        )
    return str(Path(path).absolute())


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
