"""The supervisor of a session: owns the channel to the host, keeps the deadlines, and never runs user code.

It forks the session's process, passes requests on, and ends what does not answer in time: by force where a snapshot
of the session stands by, else first by an interrupt. A lost session is reported, and a new one begins. `main` is the
entry that the sandbox starts.
"""

import contextlib
import os
import select
import signal
import socket
import time
from typing import Any

from toolfold.live.worker import envelopes
from toolfold.live.worker.fork import exit_text
from toolfold.live.worker.frames import FrameError, FrameReader, drain, encode_frame
from toolfold.live.worker.originals import SIGINT, SIGKILL, exit_process, fork, kill, waitpid
from toolfold.live.worker.session_process import run_session

_INTERRUPT_GRACE_S = 1.0  # how long an interrupted evaluation may take to end
_ANSWER_SLACK_S = 4.0  # how late a session may be that keeps its own deadline
_PR_SET_CHILD_SUBREAPER = 36


class _Request:
    """The request that is being answered, and its deadline."""

    def __init__(self, frame: dict[str, Any]) -> None:
        self.id = frame.get("id")
        self.deadline_s = float(frame.get("deadline_s", 2.0))
        self.started = time.monotonic()
        self.until = self.started + self.deadline_s + _ANSWER_SLACK_S
        self.in_place = False
        self.snapshot = 0
        self.expired = False


class _Supervisor:
    """One session after the other on one channel."""

    def __init__(self, channel: socket.socket, options: dict[str, Any]) -> None:
        self._channel = channel
        self._options = options
        self._from_host = FrameReader(64 * 1024 * 1024)
        self._null = _open_null()
        self._busy: _Request | None = None
        # How a session ended while nothing was asked: the next request is answered with it.
        self._unreported = ""
        self._pid = 0
        self._link: socket.socket
        self._side: socket.socket
        self._from_session: FrameReader
        self._start_session()

    def _start_session(self) -> None:
        self._link, their_link = socket.socketpair()
        self._side, their_side = socket.socketpair()
        self._pid = fork()
        if self._pid == 0:
            self._link.close()
            self._side.close()
            self._channel.close()
            run_session(their_link, their_side, self._options, self._null)
        their_link.close()
        their_side.close()
        self._from_session = FrameReader()

    def run(self) -> None:
        self._send({"opened": self._pid})
        while True:
            timeout = None if self._busy is None else max(0.0, self._busy.until - time.monotonic())
            ready, _, _ = select.select([self._channel, self._link, self._side], [], [], timeout)
            if self._channel in ready and not self._read_host():
                break
            if self._side in ready:
                self._read_side()
            elif self._link in ready:
                self._read_session()
            if self._busy is not None and time.monotonic() >= self._busy.until:
                self._expire(self._busy)
        self._end_session()

    def _send(self, frame: dict[str, Any]) -> None:
        self._channel.sendall(encode_frame(frame))

    def _reply(self, request: _Request, answer: dict[str, Any]) -> None:
        self._send({"id": request.id, "answer": answer})

    def _read_host(self) -> bool:
        """False at the end of the channel."""
        data = self._channel.recv(65536)
        if not data:
            return False
        for frame in self._from_host.feed(data):
            operation = frame.get("op")
            if operation == "interrupt":
                if self._busy is not None:
                    self._signal(SIGINT)
            elif operation == "reply":
                self._forward(frame.get("answer") or {})
            elif self._unreported:
                self._reply(_Request(frame), envelopes.session_lost(self._unreported))
                self._unreported = ""
            else:
                self._busy = _Request(frame)
                self._forward(frame)
        return True

    def _forward(self, frame: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the end of a session is noticed where it is read
            self._link.sendall(encode_frame(frame))

    def _read_session(self) -> None:
        try:
            data = self._link.recv(65536)
            frames = self._from_session.feed(data)
        except (FrameError, OSError):
            self._lose_session("broke the protocol and was ended")
            return
        if not data:
            self._lose_session()
        for frame in frames:
            self._handle(frame)

    def _handle(self, frame: dict[str, Any]) -> None:
        # The session runs user code, which can write frames too: what has no request or another shape is ignored.
        busy = self._busy
        if busy is None:
            return
        if "ask" in frame:
            self._send({"id": busy.id, **frame})
        elif "in_place" in frame or type(frame.get("snapshot")) is int:
            busy.in_place = True
            busy.snapshot = frame.get("snapshot", 0)
            busy.until = busy.started + busy.deadline_s
        elif type(frame.get("answer")) is dict and frame.get("id") == busy.id:
            self._finish(busy, frame["answer"])

    def _read_side(self) -> None:
        """A snapshot reports here that it has taken the place of a session that died."""
        try:
            frames = FrameReader().feed(self._side.recv(4096))
        except (FrameError, OSError):
            frames = []
        if not frames or type(frames[0].get("took_over")) is not int:
            self._lose_session()
            return
        status = self._reap()
        self._pid = frames[0]["took_over"]
        drain(self._link)
        self._from_session = FrameReader()
        busy, self._busy = self._busy, None
        if busy is not None and busy.expired:
            self._reply(busy, envelopes.eval_timeout(busy.deadline_s, envelopes.SESSION_KEPT))
        elif busy is not None:
            self._reply(busy, envelopes.eval_crashed(exit_text(status)))

    def _finish(self, busy: _Request, answer: dict[str, Any]) -> None:
        error = answer.get("error")
        if busy.expired and type(error) is dict and error.get("exc_type") == "KeyboardInterrupt":
            answer = envelopes.eval_timeout(busy.deadline_s, envelopes.SESSION_INTERRUPTED)
        self._busy = None
        self._reply(busy, answer)

    def _expire(self, busy: _Request) -> None:
        if busy.in_place and not busy.expired:
            busy.expired = True
            busy.until = time.monotonic() + (_ANSWER_SLACK_S if busy.snapshot else _INTERRUPT_GRACE_S)
            self._signal(SIGKILL if busy.snapshot else SIGINT)
        else:
            self._lose_session(f"did not answer within {busy.deadline_s:g} s and was ended")

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            kill(self._pid, number)

    def _lose_session(self, reason: str = "") -> None:
        ending = self._end_session()
        self._start_session()
        busy, self._busy = self._busy, None
        if busy is not None:
            self._reply(busy, envelopes.session_lost(reason or ending))
        else:
            self._unreported = reason or ending

    def _end_session(self) -> str:
        """Ends the session's processes; how the last one ended, in words."""
        self._link.close()
        self._side.close()
        status = self._reap()
        snapshot = self._busy.snapshot if self._busy is not None else 0
        for pid in (snapshot, self._pid):
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    kill(pid, SIGKILL)
        if status is None:
            with contextlib.suppress(ChildProcessError):
                status = waitpid(self._pid, 0)[1]
        self._reap()
        return exit_text(status)

    def _reap(self) -> int | None:
        """Reaps processes that ended; the status of the session's own, where it is among them."""
        session_status: int | None = None
        while True:
            try:
                pid, status = waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return session_status
            if pid == 0:
                return session_status
            if pid == self._pid:
                session_status = status


def _open_null() -> int:
    try:
        return os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # a sandbox may have no `/dev`
        reading, writing = os.pipe()
        os.close(reading)
        return writing


def _adopt_orphans() -> None:
    """On Linux, processes of the session that lose their parent become children of this one, and can be reaped."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main(channel: socket.socket) -> None:
    """Serves sessions until the host closes the channel. The first frame carries the options."""
    channel.setblocking(True)
    signal.signal(SIGINT, signal.SIG_IGN)
    _adopt_orphans()
    reader = FrameReader()
    frames: list[dict[str, Any]] = []
    while not frames:
        data = channel.recv(65536)
        if not data:
            return
        frames = reader.feed(data)
    _Supervisor(channel, frames[0].get("options") or {}).run()
    exit_process(0)
