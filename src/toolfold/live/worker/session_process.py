"""The session's own process: holds the names, answers one request after the other, and forks for what is risky.

While it evaluates, a snapshot of itself stands by and takes its place if the evaluation is its death. Both hold the
same socket to the supervisor, and never use it at the same time.
"""

import builtins
import keyword
import os
import socket
import sys
import types
from _thread import get_ident
from typing import Any

from toolfold.live.worker import envelopes as answers
from toolfold.live.worker.evaluator import Evaluator
from toolfold.live.worker.exceptions import error_section
from toolfold.live.worker.fork import (
    ChildOutcome,
    InspectionChild,
    Snapshot,
    has_children,
    prepare_inspection_child,
    resident_bytes,
    thread_count,
)
from toolfold.live.worker.frames import FrameReader, encode_frame
from toolfold.live.worker.inspection import assemble, describe_static, sections
from toolfold.live.worker.limits import CODE_MAX, EXPRESSION_MAX
from toolfold.live.worker.namespace import completions, list_globals
from toolfold.live.worker.originals import BUILTINS, SIGINT, Attempt, NeedsFork, exit_process, getpid, signal_functions
from toolfold.live.worker.sources import SourceCache
from toolfold.live.worker.stored_output import make_open_output
from toolfold.live.worker.streams import Streams

globals()["__builtins__"] = BUILTINS

_READ_REFUSED = (
    "stored outputs are opened and read only by the code that is being evaluated: not by another thread, and not while "
    "an object is inspected. Read what you need first, then hand it on"
)


class _Session:
    """One session, from its first name to its end."""

    def __init__(self, link: socket.socket, side: socket.socket, options: dict[str, Any], null: int) -> None:
        self._link = link
        self._side = side
        self._null = null
        self._reader = FrameReader()
        self._waiting: list[dict[str, Any]] = []
        self._commit_max = int(options.get("commit_max_bytes", 0))
        self._in_place = bool(options.get("in_place", False))
        self._asker = 0
        """The thread that evaluates and waits for nothing: only it may ask the host."""
        self._asked = 0
        main = types.ModuleType("__main__")
        main.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = main
        vars(builtins)["open_output"] = make_open_output(self._ask)
        self._evaluator = Evaluator(main.__dict__, SourceCache(), Streams())
        self._on_interrupt: Any = signal_functions.default_int_handler

    def serve(self) -> None:
        signal_functions.signal(SIGINT, signal_functions.SIG_IGN)
        while (request := self._next()) is not None:
            if "op" not in request:
                continue  # the answer to a question that was interrupted
            answer = self._answer(request)
            if answer is not None:
                self._send({"answer": answer, "id": request.get("id")})

    def _next(self) -> dict[str, Any] | None:
        while not self._waiting:
            data = self._link.recv(65536)
            if not data:
                return None
            self._waiting += self._reader.feed(data)
        return self._waiting.pop(0)

    def _send(self, frame: dict[str, Any]) -> None:
        self._link.sendall(encode_frame(frame))

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Something only the host can tell. Anybody else would take the session's next request for the answer."""
        asker = self._asker
        if asker != get_ident():
            return {"error": _READ_REFUSED}
        self._asker = 0
        self._asked += 1
        try:
            self._send({**question, "asked": self._asked})
            while (answer := self._next()) is not None and answer.get("asked") != self._asked:
                pass
        finally:
            self._asker = asker
        return {"error": "the session is ending"} if answer is None else answer

    def _answer(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """`None` in a snapshot that has just become the session: nobody asked it anything yet."""
        operation = request.get("op")
        deadline = float(request.get("deadline_s", 2.0))
        if operation == "list_globals":
            return answers.success(list_globals(self._evaluator.names))
        if operation == "complete":
            return answers.success({"words": completions(str(request.get("text", "")), self._evaluator.names)})
        if operation == "inspect":
            return self._inspect(str(request.get("expr", "")), deadline)
        return self._evaluate(str(operation), str(request.get("expr", "")))

    # Looking

    def _inspect(self, expression: str, deadline: float) -> dict[str, Any]:
        if len(expression) > EXPRESSION_MAX:
            return answers.invalid_arguments(
                f"the expression has {len(expression)} characters; {EXPRESSION_MAX} are allowed"
            )
        name = expression.strip()
        attempt = Attempt()
        with attempt:
            # A plain name that holds plain data needs no fork: nothing of the session runs.
            if name.isidentifier() and not keyword.iskeyword(name):
                return answers.success(describe_static(self._named(name), self._evaluator.sources))
        return self._look(expression, deadline)

    def _named(self, name: str) -> Any:
        names = self._evaluator.names
        if not all(type(key) is str for key in list(names)):
            raise NeedsFork  # looking a name up may compare it with a key of the session's own making
        if name in names:
            return names[name]
        held = vars(builtins)
        if name not in held:
            raise NeedsFork
        return held[name]

    def _look(self, expression: str, deadline: float) -> dict[str, Any]:
        attempt = Attempt()
        child: InspectionChild | None = None
        with attempt:
            child = InspectionChild()
        if child is None:
            return answers.failure("internal", f"the session cannot fork: {_attempt_message(attempt)}", kind="internal")
        if child.pid == 0:
            self._be_looked_through(child, expression)
        return self._seen(child.watch(deadline), deadline)

    def _be_looked_through(self, child: InspectionChild, expression: str) -> None:
        """Never returns."""
        attempt = Attempt()
        with attempt:
            prepare_inspection_child(self._null)
            self._link.close()
            self._side.close()
            inner = Attempt()
            with inner:
                value = self._evaluator.value_of(expression)
                for name, section in sections(value, self._evaluator.sources, user_code=True):
                    child.send({name: section})
                child.send({"whole": True})
            if inner.error is not None:
                child.send({"error": error_section(inner.error)})
        exit_process(0)

    def _seen(self, seen: ChildOutcome, deadline: float) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for frame in seen.frames:
            found.update(frame)
        at, error = found.pop("at", "repr_error"), found.pop("error", None)
        whole = found.pop("whole", False)
        if error is not None and "kind" not in found:
            return {"ok": False, "error": error}
        if whole:
            return answers.success(assemble(found))
        if seen.timed_out and at != "dir_error":
            partial = assemble(found) if "kind" in found else {}
            return answers.inspect_timeout(deadline, partial)
        if "kind" not in found:
            return answers.eval_crashed(seen.ending())
        # The object ended the child, or its names never end: what was known before stays true.
        said = f"no answer within {deadline:g} s" if seen.timed_out else f"the inspecting process {seen.ending()}"
        found[at] = said
        return answers.success(assemble(found))

    # Evaluating

    def _evaluate(self, operation: str, text: str) -> dict[str, Any] | None:
        limit = EXPRESSION_MAX if operation == "eval_expr" else CODE_MAX
        if len(text) > limit:
            return answers.invalid_arguments(f"the code has {len(text)} characters; {limit} are allowed")
        if operation != "interact" and self._may_fork():
            attempt = Attempt()
            snapshot: Snapshot | None = None
            with attempt:
                snapshot = Snapshot()
            if snapshot is not None:
                return self._tried(snapshot, operation, text)
        self._send({"in_place": True})
        return self._run(operation, text)

    def _may_fork(self) -> bool:
        """Whether a fork could take the session's place: alone in its process, no children to wait for, not large."""
        if self._in_place or thread_count() > 1 or has_children():
            return False
        return resident_bytes() <= self._commit_max

    def _tried(self, snapshot: Snapshot, operation: str, text: str) -> dict[str, Any] | None:
        """Evaluates while a snapshot stands by. In the snapshot this returns when it has become the session."""
        if snapshot.pid == 0:
            self._take_over()
            return None
        self._send({"snapshot": snapshot.pid})
        answer = self._run(operation, text)
        snapshot.end()
        return answer

    def _take_over(self) -> None:
        """What was meant for the session before is dropped; the supervisor hears of the change on a line of its own."""
        self._link.setblocking(False)
        attempt = Attempt()
        with attempt:
            while self._link.recv(65536):
                pass
        self._link.setblocking(True)
        self._reader = FrameReader()
        self._waiting.clear()
        self._side.sendall(encode_frame({"took_over": getpid()}))

    def _run(self, operation: str, text: str) -> dict[str, Any]:
        signal_functions.signal(SIGINT, self._on_interrupt)
        attempt = Attempt()
        answer: dict[str, Any] | None = None
        self._asker = get_ident()
        with attempt:
            run = {"eval_expr": self._evaluator.evaluate, "execute": self._evaluator.execute}
            answer = run.get(operation, self._evaluator.interact)(text)
        self._asker = 0
        self._on_interrupt = signal_functions.getsignal(SIGINT)
        signal_functions.signal(SIGINT, signal_functions.SIG_IGN)
        if answer is not None:
            return answer
        return {"ok": False, "error": error_section(attempt.error or RuntimeError("nothing was evaluated"))}


def _attempt_message(attempt: Attempt) -> str:
    return error_section(attempt.error)["message"] if attempt.error is not None else "no reason given"


def run_session(link: socket.socket, side: socket.socket, options: dict[str, Any], null: int) -> None:
    """Never returns: the body of a session's first process."""
    attempt = Attempt()
    with attempt:
        _Session(link, side, options, null).serve()
    if attempt.error is not None:
        os.write(2, f"live session: {error_section(attempt.error)}\n".encode("utf-8", "backslashreplace"))
    exit_process(0 if attempt.error is None else 1)
