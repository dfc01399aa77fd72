"""`toolfold` in a process of its own that starts at once: forked from one that has imported the command line.

`run` and `Popen` are those of `subprocess`, and take the same arguments. A command that is `python -m toolfold …` is
started by a server of this worker: a process with one thread, that forks and lets the child run the module as the
interpreter would, with its own streams, folder, environment, signals and exit code. It saves a third of a second for
each, twice that under coverage. All else is started as ever, as is what must start by itself: another encoding or
library, limits, a terminal or a group of its own. Start-up itself is tested with `subprocess`.
"""

import contextlib
import gc
import inspect
import io
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

__all__ = ["Popen", "run", "stop"]

_MODULE = [sys.executable, "-m", "toolfold"]
_NUMBER = struct.Struct("!i")
# What an interpreter reads once, as it starts, and the child cannot make up for.
_READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG")
_MADE_UP_FOR = {"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
_SAME = {"LC_CTYPE": "C.UTF-8", "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8"}
_UNTOUCHED: dict[str, Any] = {"preexec_fn": None, "executable": None, "pass_fds": (), "shell": False, "close_fds": True}
_UNTOUCHED |= {"umask": -1, "start_new_session": False, "process_group": -1, "gid": None, "uid": None, "gids": None}


class _Process(subprocess.Popen[Any]):
    """A process that the server of this worker has forked, or one that was started as ever."""

    _answer: socket.socket | None = None

    def _execute_child(self, *values: Any) -> None:
        start = super()._execute_child  # type: ignore[misc]
        given = inspect.signature(start).bind(*values).arguments
        environment = dict(os.environ if given["env"] is None else given["env"])
        untouched = all(given[name] == value for name, value in _UNTOUCHED.items() if name in given)
        if list(given["args"])[:3] != _MODULE or not untouched or not _can_be_forked(environment):
            start(*values)
            return
        ends = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        streams: list[int] = [number if end == -1 else end for number, end in enumerate(ends)]
        folder = os.path.join(os.getcwd(), os.fspath(given["cwd"] or ""))  # noqa: PTH109, PTH118
        request = json.dumps([list(map(os.fspath, given["args"][3:])), folder, environment]).encode()
        self._answer, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(_control(), [b"."], [*streams, theirs.fileno()])
        self._answer.sendall(_NUMBER.pack(len(request)) + request)
        answer, (self._handle, *_), _, _ = socket.recv_fds(self._answer, _NUMBER.size, 1)
        (self.pid,) = _NUMBER.unpack(answer)
        self._child_created = True
        os.set_inheritable(self._handle, False)
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in pipes))  # type: ignore[attr-defined]

    def _internal_poll(self, *args: Any, **more: Any) -> int | None:
        if self._answer is None:
            code: int | None = super()._internal_poll(*args, **more)  # type: ignore[misc]
            return code
        return self._ended(0)

    def _wait(self, timeout: float | None) -> int:
        if self._answer is None:
            code: int = super()._wait(timeout)  # type: ignore[misc]
            return code
        if self._ended(timeout) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def _ended(self, timeout: float | None) -> int | None:
        """Its exit code as soon as it has one. Several threads may wait, so nothing is taken out of the socket."""
        if self.returncode is None and self._answer is not None:
            poll = select.poll()
            poll.register(self._answer, select.POLLIN)
            if poll.poll(None if timeout is None else timeout * 1000):
                answer = self._answer.recv(_NUMBER.size, socket.MSG_PEEK)
                # Without an answer the server itself has ended.
                self.returncode = _NUMBER.unpack(answer)[0] if answer else -signal.SIGKILL
        return self.returncode

    def send_signal(self, sig: int) -> None:
        if self._answer is None:
            super().send_signal(sig)
        elif self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, sig)

    def __del__(self, *args: Any, **more: Any) -> None:
        super().__del__(*args, **more)
        if self._answer is not None:
            self._answer.close()
            os.close(self._handle)


def _run(
    args: list[str],
    *,
    input: Any = None,  # noqa: A002 - `subprocess.run` calls it so
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> "subprocess.CompletedProcess[Any]":
    """As `subprocess.run`."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with _Process(args, **options) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


if TYPE_CHECKING:
    from subprocess import Popen, run
else:
    Popen, run = _Process, _run


def _can_be_forked(environment: dict[str, str]) -> bool:
    if not hasattr(os, "pidfd_open"):
        return False
    return not any(
        name.startswith(_READ_AT_START) and name not in _MADE_UP_FOR and _SAME.get(name) != value
        for name, value in environment.items()
    )


_lock = threading.Lock()
_server: "tuple[socket.socket, subprocess.Popen[bytes]] | None" = None


def _control() -> socket.socket:
    """The way to the server of this worker, which is started with the first command."""
    global _server  # noqa: PLW0603 - one for each worker
    with _lock:
        if _server is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            environment = {name: value for name, value in os.environ.items() if not name.startswith(_READ_AT_START)}
            # A library that starts threads as it is loaded would have none of them in the child.
            environment["OPENBLAS_NUM_THREADS"] = "1"
            command = [sys.executable, str(Path(__file__).resolve()), str(theirs.fileno())]
            with theirs:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=2, pass_fds=[theirs.fileno()], env=environment
                )
            _server = ours, process
        return _server[0]


def stop() -> None:
    """Ends the server of this worker, if there is one."""
    global _server  # noqa: PLW0603
    if _server is not None:
        _server[0].close()
        _server[1].wait()
        _server = None


_MORE = """audit.call_recorder catalogue.build config.reader faces.mcp_server.surface_app faces.surface.auto gateway
outputs.service outputs.store policy.description_scan sandbox.zygote search.index search.service search.updater
storage.factory storage.sqlite upstream.factory upstream.mcp wire.serving.stdio"""


def _preload() -> None:
    """What most commands import, as far as it starts no thread."""
    from toolfold.faces.cli import COMMANDS

    for name in (*(f"faces.cli.{place.partition(':')[0]}" for place in COMMANDS.values()), *_MORE.split()):
        import_module(f"toolfold.{name}")
    for name in ("numpy", "uvloop", "rs_bpe.bpe", "encodings.utf_8_sig", "encodings.ascii", "zipfile"):
        import_module(name)
    if len(os.listdir("/proc/self/task")) != 1:  # noqa: PTH208
        raise RuntimeError("something that is loaded before the fork has started a thread")
    gc.collect()
    gc.freeze()


def _serve(control: socket.socket) -> "socket.socket | None":
    """Forks for each request. Returns in the child, with its request, and in the server when it is over."""
    answers: dict[int, tuple[int, socket.socket]] = {}
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready != control.fileno():
                poll.unregister(ready)
                pid, answer = answers.pop(ready)
                os.close(ready)
                _, status = os.waitpid(pid, 0)
                with answer, contextlib.suppress(OSError):
                    answer.sendall(_NUMBER.pack(os.waitstatus_to_exitcode(status)))
                continue
            message, descriptors, _, _ = socket.recv_fds(control, 1, 4)
            if not message:
                return None
            answer = socket.socket(fileno=descriptors[3])
            if not (pid := os.fork()):
                control.close()
                for handle, (_, other) in answers.items():
                    os.close(handle)
                    other.close()
                for number, descriptor in enumerate(descriptors[:3]):
                    os.dup2(descriptor, number)
                    os.close(descriptor)
                return answer
            for descriptor in descriptors[:3]:
                os.close(descriptor)
            handle = os.pidfd_open(pid)
            poll.register(handle, select.POLLIN)
            answers[handle] = pid, answer
            with contextlib.suppress(OSError):  # whoever asked has gone
                socket.send_fds(answer, [_NUMBER.pack(pid)], [handle])


def _become(answer: socket.socket) -> None:
    """Makes this process what the interpreter would have made of it."""
    with answer, answer.makefile("rb") as request:
        size = _NUMBER.unpack(request.read(_NUMBER.size))[0]
        arguments, folder, environment = json.loads(request.read(size))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    if not environment.get("LC_ALL") and not environment.get("LANG"):
        os.environ.setdefault("LC_CTYPE", "C.UTF-8")  # which Python does, too
    sys.path[0] = folder
    sys.path[1:1] = list(filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)))
    sys.argv = ["-m", *arguments]
    sys.orig_argv = [*_MODULE, *arguments]
    at_once = bool(environment.get("PYTHONUNBUFFERED"))
    streams: Any = sys
    streams.stdin = streams.__stdin__ = _stream(0, "r")
    streams.stdout = streams.__stdout__ = _stream(1, "w", write_through=at_once)
    streams.stderr = streams.__stderr__ = _stream(2, "w", errors="backslashreplace", write_through=at_once)


def _stream(descriptor: int, mode: str, **options: Any) -> IO[str]:
    raw: Any = open(descriptor, f"{mode}b", closefd=False)  # noqa: SIM115 - it stays open
    errors = options.pop("errors", "strict")
    by_line = descriptor == 2 or raw.isatty()
    return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, line_buffering=by_line, **options)


def _main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    _preload()
    request = _serve(control)
    if request is None:
        return
    _become(request)
    runpy.run_module("toolfold", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
