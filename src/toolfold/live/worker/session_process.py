"""The session's own process: holds the names, answers one request after the other, and forks for what is risky.

While it evaluates, a snapshot of itself stands by and takes its place if the evaluation ends the process. Both hold
the same socket to the supervisor, and never use it at the same time. Above: `supervisor`, in the parent process.
"""

import builtins
import keyword
import os
import socket
import sys
import types
from _thread import get_ident
from typing import Any

from toolfold.live.worker import envelopes
from toolfold.live.worker.evaluator import Evaluator
from toolfold.live.worker.exceptions import error_section
from toolfold.live.worker.fork import InspectionChild, SessionForks, Snapshot, exit_text
from toolfold.live.worker.frames import FrameReader, drain, dumps, encode_frame
from toolfold.live.worker.inspection import assemble, describe_static, sections
from toolfold.live.worker.introspection import (
    MISSING,
    instance_dict,
    is_class,
    is_derived,
    plain_name,
    static_names,
    type_attribute,
    type_name,
)
from toolfold.live.worker.limits import CODE_MAX, EXPRESSION_MAX, PAYLOAD_MAX
from toolfold.live.worker.originals import BUILTINS, SIGINT, Attempt, NeedsFork, exit_process, getpid, signal_functions
from toolfold.live.worker.stored_output import make_open_output

# The names of a session: `list_globals`, and completion at the prompt. Neither runs code of the session.

globals()["__builtins__"] = BUILTINS

_OWN_PREFIX = "_toolfold"
_COMPLETIONS_MAX = 200


def _is_listed(name: object, value: object) -> bool:
    if type(name) is not str or name.startswith(_OWN_PREFIX):
        return False
    return not (name.startswith("__") and name.endswith("__")) and not is_derived(type(value), types.ModuleType)


def _list_globals(names: dict[Any, Any]) -> dict[str, Any]:
    """The names with their types, sorted: all, or as many as an answer holds, and then `total` has their number."""
    entries = [
        {"name": plain_name(name), "type_name": type_name(type(value))}
        for name, value in list(names.items())
        if _is_listed(name, value)
    ]
    entries.sort(key=lambda entry: entry["name"])
    room = PAYLOAD_MAX - 200
    for number, entry in enumerate(entries):
        room -= len(dumps(entry)) + 1
        if room < 0:
            return {"globals": entries[:number], "truncated": True, "total": len(entries)}
    return {"globals": entries}


def _completions(text: str, names: dict[Any, Any]) -> list[str]:
    """The words that may stand in place of the dotted name at the end of `text`."""
    *path, start = text.split(".")
    private = start.startswith("_")
    prefix = "".join(f"{part}." for part in path)
    words = sorted(name for name in _candidates(path, names) if name.startswith(start))
    return [prefix + name for name in words if private or name[:1] != "_"][:_COMPLETIONS_MAX]


def _candidates(path: list[str], names: dict[Any, Any]) -> list[str]:
    if not path:
        return [name for name in {**dict.fromkeys(keyword.kwlist), **BUILTINS, **names} if type(name) is str]
    value = _resolve_path(path, names)
    return [] if value is MISSING else list(static_names(value))


def _resolve_path(path: list[str], names: dict[Any, Any]) -> Any:
    value = names.get(path[0], BUILTINS.get(path[0], MISSING))
    for name in path[1:]:
        if value is MISSING:
            return MISSING
        own = instance_dict(value) or {}
        value = own[name] if name in own else type_attribute(value if is_class(value) else type(value), name)
    return value


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
        self._forks = SessionForks() if options.get("end_forks", False) else None
        # The thread that evaluates and has no question open: only it may ask the host.
        self._asker = 0
        self._questions = 0
        main = types.ModuleType("__main__")
        main.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = main
        vars(builtins)["open_output"] = make_open_output(self._ask)
        self._evaluator = Evaluator(main.__dict__)
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
        """Asks the host something."""
        # Another thread would take the session's next request for its answer.
        asker = self._asker
        if asker != get_ident():
            return {"error": _READ_REFUSED}
        self._asker = 0
        self._questions += 1
        try:
            self._send({**question, "question": self._questions})
            while (answer := self._next()) is not None and answer.get("question") != self._questions:
                pass
        finally:
            self._asker = asker
        return {"error": "the session is ending"} if answer is None else answer

    def _answer(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """`None` in a snapshot that has just become the session: it was not asked anything yet."""
        operation = request.get("op")
        deadline = float(request.get("deadline_s", 2.0))
        if operation == "list_globals":
            return envelopes.success(_list_globals(self._evaluator.names))
        if operation == "complete":
            return envelopes.success({"words": _completions(str(request.get("text", "")), self._evaluator.names)})
        if operation == "inspect":
            return self._inspect(str(request.get("expr", "")), deadline)
        answer = self._evaluate(str(operation), str(request.get("expr", "")))
        if self._forks is not None:
            self._forks.end()
        return answer

    def _inspect(self, expression: str, deadline: float) -> dict[str, Any]:
        size = len(expression)
        if size > EXPRESSION_MAX:
            return envelopes.invalid_arguments(f"the expression has {size} characters; {EXPRESSION_MAX} are allowed")
        name = expression.strip()
        with Attempt():
            # A plain name that holds plain data needs no fork: nothing of the session runs.
            if name.isidentifier() and not keyword.iskeyword(name):
                return envelopes.success(describe_static(self._lookup(name), self._evaluator.sources))
        return self._inspect_in_child(expression, deadline)

    def _lookup(self, name: str) -> Any:
        names = self._evaluator.names
        if not all(type(key) is str for key in list(names)):
            raise NeedsFork  # a lookup may compare the name with a key that has an `__eq__` of its own
        if name in names:
            return names[name]
        if name not in vars(builtins):
            raise NeedsFork
        return vars(builtins)[name]

    def _inspect_in_child(self, expression: str, deadline: float) -> dict[str, Any]:
        child: InspectionChild | None = None
        with Attempt() as attempt:
            child = InspectionChild()
        if child is None:
            reason = error_section(attempt.error)["message"] if attempt.error is not None else "no reason given"
            return envelopes.failure("internal", f"the session cannot fork: {reason}", kind="internal")
        if child.pid == 0:
            self._run_inspection(child, expression)
        return _inspection_answer(*child.collect(deadline), deadline)

    def _run_inspection(self, child: InspectionChild, expression: str) -> None:
        """In the forked child; never returns."""
        with Attempt():
            child.prepare(self._null)
            self._link.close()
            self._side.close()
            with Attempt() as attempt:
                value = self._evaluator.value_of(expression)
                # Each section is sent at once, so that a crash in a later one loses nothing.
                for name, section in sections(value, self._evaluator.sources, user_code=True):
                    child.send({name: section})
                child.send({"whole": True})
            if attempt.error is not None:
                child.send({"error": error_section(attempt.error)})
        exit_process(0)

    def _evaluate(self, operation: str, text: str) -> dict[str, Any] | None:
        limit = EXPRESSION_MAX if operation == "eval_expr" else CODE_MAX
        if len(text) > limit:
            return envelopes.invalid_arguments(f"the code has {len(text)} characters; {limit} are allowed")
        if operation != "interact" and not self._in_place and Snapshot.is_possible(self._commit_max):
            snapshot: Snapshot | None = None
            with Attempt():
                snapshot = Snapshot()
            if snapshot is not None:
                return self._evaluate_with(snapshot, operation, text)
        self._send({"in_place": True})
        return self._run(operation, text)

    def _evaluate_with(self, snapshot: Snapshot, operation: str, text: str) -> dict[str, Any] | None:
        """Evaluates while a snapshot stands by. In the snapshot this returns when it has become the session."""
        if snapshot.pid == 0:
            self._take_over()
            return None
        self._send({"snapshot": snapshot.pid})
        answer = self._run(operation, text)
        snapshot.discard()
        return answer

    def _take_over(self) -> None:
        """Drops what was sent to the dead session, and tells the supervisor on a socket of its own."""
        drain(self._link)
        self._reader = FrameReader()
        self._waiting.clear()
        self._side.sendall(encode_frame({"took_over": getpid()}))

    def _run(self, operation: str, text: str) -> dict[str, Any]:
        signal_functions.signal(SIGINT, self._on_interrupt)
        answer: dict[str, Any] | None = None
        session = getpid()
        self._asker = get_ident()
        with Attempt() as attempt:
            run = {"eval_expr": self._evaluator.evaluate, "execute": self._evaluator.execute}
            answer = run.get(operation, self._evaluator.interact)(text)
        if getpid() != session:
            exit_process(0)  # the code has forked, and this is not the session but the other one
        self._asker = 0
        self._on_interrupt = signal_functions.getsignal(SIGINT)
        signal_functions.signal(SIGINT, signal_functions.SIG_IGN)
        if answer is not None:
            return answer
        return {"ok": False, "error": error_section(attempt.error or RuntimeError("nothing was evaluated"))}


def _inspection_answer(frames: list[dict[str, Any]], status: int, timed_out: bool, deadline: float) -> dict[str, Any]:
    ready: dict[str, Any] = {}
    for frame in frames:
        ready.update(frame)
    at, error = ready.pop("at", "repr_error"), ready.pop("error", None)
    whole = ready.pop("whole", False)
    if error is not None and "kind" not in ready:
        return {"ok": False, "error": error}
    if whole:
        return envelopes.success(assemble(ready))
    if timed_out and at != "dir_error":
        return envelopes.inspect_timeout(deadline, assemble(ready) if "kind" in ready else {})
    ending = exit_text(status)
    if "kind" not in ready:
        return envelopes.eval_crashed(ending)
    # The object ended the child, or its `__dir__` never ends: the sections before that stay true.
    ready[at] = f"no answer within {deadline:g} s" if timed_out else f"the inspecting process {ending}"
    return envelopes.success(assemble(ready))


def run_session(link: socket.socket, side: socket.socket, options: dict[str, Any], null: int) -> None:
    """The body of a session's first process; never returns."""
    with Attempt() as attempt:
        _Session(link, side, options, null).serve()
    if attempt.error is not None:
        os.write(2, f"live session: {error_section(attempt.error)}\n".encode("utf-8", "backslashreplace"))
    exit_process(0 if attempt.error is None else 1)
