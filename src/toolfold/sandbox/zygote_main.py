"""The zygote: one process that has everything imported and forks a child whenever the host asks. Standard library only.

The host starts it as a script (`python -I zygote_main.py CONTROL_FD PACKAGE_ROOT`) and speaks with it over a socket
pair (`control.py`). It ends when the host's side closes, and its children with it. It holds nothing of worth: no
environment, no credentials, no descriptor but the control socket. Above: `nursery.py` in the host. Below:
`child_main.py`.
"""

import gc
import importlib
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any


def _main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    sys.path.append(sys.argv[2])
    from toolfold.sandbox.control_messages import MessageAssembler, receive, send

    assembler = MessageAssembler()
    messages: list[Any] = []
    while not messages:
        data, fds = receive(control)
        if not data:
            return
        messages = assembler.feed(data, fds)
    configuration = messages[0][0]
    from toolfold.sandbox import isolation as surroundings

    place = surroundings.enter(configuration)
    try:
        entry = _load(configuration["entry"], configuration["preload"])
    except BaseException:
        send(control, {"event": "broken", "why": traceback.format_exc(limit=-3)})
        raise
    place.imported()
    gc.collect()
    gc.freeze()
    send(control, {"event": "up", "pid": os.getpid(), "problems": place.problems})
    _Server(control, assembler, entry, place, configuration).serve()
    place.over()


def _load(entry: str, preload: list[str]) -> Callable[[socket.socket], object]:
    """Imports what children will need, and finds the function they run."""
    for name in preload:
        importlib.import_module(name)
    module, _, function = entry.partition(":")
    found: Callable[[socket.socket], object] = getattr(importlib.import_module(module), function)
    return found


class _Server:
    """Serves the host's requests, one at a time, until it is gone."""

    def __init__(self, control: socket.socket, assembler: Any, entry: Any, place: Any, configuration: Any) -> None:
        from toolfold.sandbox import child_main
        from toolfold.sandbox import control_messages as messages

        self._control = control
        self._assembler = assembler
        self._entry = entry
        self._place = place
        self._configuration = configuration
        self._child_main = child_main
        self._messages = messages
        self._numbers: dict[int, int] = {}

    def serve(self) -> None:
        woken, waking = os.pipe()
        os.set_blocking(waking, False)
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            while True:
                ready = {key.fd for key, _ in selector.select()}
                if woken in ready:
                    os.read(woken, 4096)
                    self._reap()
                if self._control.fileno() in ready and not self._answer():
                    return

    def _answer(self) -> bool:
        try:
            data, fds = self._messages.receive(self._control)
        except OSError:
            return False
        if not data:
            return False
        try:
            for message, descriptors in self._assembler.feed(data, fds):
                self._fork(message, descriptors)
        except BrokenPipeError:
            return False  # the host died while it was told of a child
        return True

    def _fork(self, message: dict[str, Any], descriptors: list[int]) -> None:
        try:
            pid = self._place.fork()
        except OSError as error:
            self._messages.send(self._control, {"event": "failed", "id": message["id"], "why": str(error)})
        else:
            if pid == 0:
                self._control.detach()
                self._child_main.shim(self._entry, descriptors, self._place, {**self._configuration, **message})
            self._numbers[pid] = message["id"]
            self._tell(message["id"], pid)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _tell(self, number: int, pid: int) -> None:
        try:
            handles = [os.pidfd_open(pid)]
        except (AttributeError, OSError):
            handles = []
        self._messages.send(self._control, {"event": "forked", "id": number, "pid": pid}, handles)
        for handle in handles:
            os.close(handle)

    def _reap(self) -> None:
        try:
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                self._place.groups.remove(self._numbers.pop(pid, 0))
        except ChildProcessError:
            return


if __name__ == "__main__":
    _main()
