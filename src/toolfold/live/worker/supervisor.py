"""The supervisor of a session: owns the channel to the host, keeps the deadlines, and never runs a person's code.

It forks the session's process, hands requests on, and ends what does not answer in time: by force where a snapshot of
the session stands by, else first by an interrupt. A session that is lost is told, and a new one begins. `main` is the
entry that the sandbox starts.
"""

import contextlib
import os
import select
import signal
import socket
import time
from typing import Any

from toolfold.live.worker import envelopes as answers
from toolfold.live.worker.fork import ChildOutcome
from toolfold.live.worker.frames import FrameError, FrameReader, encode_frame
from toolfold.live.worker.originals import SIGINT, SIGKILL, exit_process, fork, kill, waitpid
from toolfold.live.worker.session_process import run_session

_INTERRUPT_GRACE_S = 1.0
"""How long an interrupted evaluation may take to end."""
_ANSWER_SLACK_S = 4.0
"""How long a session that keeps its own deadline may be late."""
_PR_SET_CHILD_SUBREAPER = 36


class _Request:
    """What is being answered, and what happens when its time is over."""

    def __init__(self, frame: dict[str, Any]) -> None:
        self.id = frame.get("id")
        self.operation = str(frame.get("op"))
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
        self._gone = ""
        """How a session ended that nobody had asked anything then: the next request is told."""
        self._pid = 0
        self._link: socket.socket
        self._side: socket.socket
        self._from_session: FrameReader
        self._begin()

    def _begin(self) -> None:
        """A fresh session below this process."""
        ours, theirs = socket.socketpair()
        our_side, their_side = socket.socketpair()
        pid = fork()
        if pid == 0:
            ours.close()
            our_side.close()
            self._channel.close()
            run_session(theirs, their_side, self._options, self._null)
        theirs.close()
        their_side.close()
        self._pid = pid
        self._link = ours
        self._side = our_side
        self._from_session = FrameReader()

    def run(self) -> None:
        self._tell({"opened": self._pid})
        while True:
            timeout = None if self._busy is None else max(0.0, self._busy.until - time.monotonic())
            ready, _, _ = select.select([self._channel, self._link, self._side], [], [], timeout)
            if self._channel in ready and not self._hear_host():
                break
            if self._side in ready:
                self._hear_side()
            elif self._link in ready:
                self._hear_session()
            if self._busy is not None and time.monotonic() >= self._busy.until:
                self._overdue(self._busy)
        self._end_session()

    def _tell(self, frame: dict[str, Any]) -> None:
        self._channel.sendall(encode_frame(frame))

    def _hear_host(self) -> bool:
        data = self._channel.recv(65536)
        if not data:
            return False
        for frame in self._from_host.feed(data):
            operation = frame.get("op")
            if operation == "interrupt":
                if self._busy is not None:
                    self._signal(SIGINT)
            elif operation == "told":
                self._hand_on(frame.get("answer") or {})
            elif self._gone:
                self._tell({"id": frame.get("id"), "answer": answers.session_lost(self._gone)})
                self._gone = ""
            else:
                self._busy = _Request(frame)
                self._hand_on(frame)
        return True

    def _hand_on(self, frame: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # a session that is gone is noticed where it is read
            self._link.sendall(encode_frame(frame))

    def _hear_session(self) -> None:
        try:
            data = self._link.recv(65536)
            frames = self._from_session.feed(data) if data else None
        except (FrameError, OSError):
            self._lose("broke the protocol and was ended")
            return
        if frames is None:
            self._lose("")
            return
        for frame in frames:
            self._hear(frame)

    def _hear(self, frame: dict[str, Any]) -> None:
        busy = self._busy
        if busy is None:
            return
        if "ask" in frame:
            self._tell({"id": busy.id, **frame})
        elif "in_place" in frame or type(frame.get("snapshot")) is int:
            busy.in_place = True
            busy.snapshot = frame.get("snapshot", 0)
            busy.until = busy.started + busy.deadline_s
        elif type(frame.get("answer")) is dict and frame.get("id") == busy.id:
            self._finish(busy, frame["answer"])

    def _hear_side(self) -> None:
        """Here a snapshot says that it has taken the place of a session that died."""
        try:
            frames = FrameReader().feed(self._side.recv(4096))
        except (FrameError, OSError):
            frames = []
        if not frames or type(frames[0].get("took_over")) is not int:
            self._lose("")
            return
        status = self._reap()
        self._pid = frames[0]["took_over"]
        # Whatever the dead one still wrote lies before this; half a frame of it would spoil the next.
        self._link.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while self._link.recv(65536):
                pass
        self._link.setblocking(True)
        self._from_session = FrameReader()
        busy, self._busy = self._busy, None
        if busy is not None:
            ending = ChildOutcome([], status, timed_out=False).ending()
            kept = (
                answers.eval_timeout(busy.deadline_s, answers.SESSION_KEPT)
                if busy.expired
                else answers.eval_crashed(ending)
            )
            self._tell({"id": busy.id, "answer": kept})

    def _finish(self, busy: _Request, answer: dict[str, Any]) -> None:
        error = answer.get("error")
        if busy.expired and type(error) is dict and error.get("exc_type") == "KeyboardInterrupt":
            answer = answers.eval_timeout(busy.deadline_s, answers.SESSION_INTERRUPTED)
        self._busy = None
        self._tell({"id": busy.id, "answer": answer})

    def _overdue(self, busy: _Request) -> None:
        if busy.in_place and not busy.expired:
            busy.expired = True
            busy.until = time.monotonic() + (_ANSWER_SLACK_S if busy.snapshot else _INTERRUPT_GRACE_S)
            self._signal(SIGKILL if busy.snapshot else SIGINT)
        else:
            self._lose(f"did not answer within {busy.deadline_s:g} s and was ended")

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            kill(self._pid, number)

    def _lose(self, why: str) -> None:
        ending = self._end_session()
        self._begin()
        busy, self._busy = self._busy, None
        if busy is not None:
            self._tell({"id": busy.id, "answer": answers.session_lost(why or ending)})
        else:
            self._gone = why or ending

    def _end_session(self) -> str:
        """Ends the session's processes; how the last one went, in words."""
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
        return ChildOutcome([], status, timed_out=False).ending()

    def _reap(self) -> int | None:
        """Takes leave of processes that ended; the status of the session's own, where it is among them."""
        found: int | None = None
        while True:
            try:
                pid, status = waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return found
            if pid == 0:
                return found
            if pid == self._pid:
                found = status


def _open_null() -> int:
    try:
        return os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        reading, writing = os.pipe()
        os.close(reading)
        return writing


def _adopt_orphans() -> None:
    """Processes of this session that lose their parent come here, where the system knows such a thing."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main(channel: socket.socket) -> None:
    """Serves sessions until the host closes the channel. The first frame carries the options."""
    channel.setblocking(True)
    signal.signal(SIGINT, signal.SIG_IGN)
    _adopt_orphans()
    reader = FrameReader()
    opening: list[dict[str, Any]] = []
    while not opening:
        data = channel.recv(65536)
        if not data:
            return
        opening = reader.feed(data)
    supervisor = _Supervisor(channel, opening[0].get("options") or {})
    supervisor.run()
    exit_process(0)
