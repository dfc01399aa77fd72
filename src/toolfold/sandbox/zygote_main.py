"""The zygote: one process that has everything imported and forks a child whenever the host asks. Standard library only.

The host starts it as a script (`python -I zygote_main.py CONTROL_FD PACKAGE_ROOT`) and talks to it over a socket pair
(`control_messages.py`). It ends when the host's side closes, and its children with it. It holds nothing of value: no
environment, no credentials, no descriptor but the control socket. Above: `zygote_handle.py` in the host. Below:
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
from functools import partial
from typing import Any


def _main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    # toolfold comes last on the path, so that it can shadow no module of the library.
    sys.path.append(sys.argv[2])
    from toolfold.sandbox.child_main import run_shim
    from toolfold.sandbox.control_messages import MessageReader, send
    from toolfold.sandbox.isolation import enter

    reader = MessageReader(control)
    while not (messages := reader.read()):
        if messages is None:
            return
    configuration = messages[0][0]
    isolation = enter(configuration)
    try:
        entry = _load(configuration["entry"], configuration["preload"])
    except BaseException:
        send(control, {"event": "broken", "why": traceback.format_exc(limit=-3)})
        raise
    isolation.on_imported()
    # What is frozen is never traversed again, so forks keep sharing its pages.
    gc.collect()
    gc.freeze()
    send(control, {"event": "up", "pid": os.getpid(), "problems": isolation.problems})
    _Server(control, partial(run_shim, entry), isolation, configuration).serve(reader)
    isolation.clean_up()


def _load(entry: str, preload: list[str]) -> Callable[[socket.socket], object]:
    """Imports what children will need, and returns the function they run."""
    for name in preload:
        importlib.import_module(name)
    module, _, name = entry.partition(":")
    function: Callable[[socket.socket], object] = getattr(importlib.import_module(module), name)
    return function


class _Server:
    """Serves the host's requests, one at a time, until it is gone."""

    def __init__(self, control: socket.socket, run_shim: Any, isolation: Any, configuration: Any) -> None:
        self._control = control
        self._run_shim = run_shim
        self._isolation = isolation
        self._configuration = configuration
        # The number of a child by the pid of its shim.
        self._numbers: dict[int, int] = {}

    def serve(self, reader: Any) -> None:
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
                if self._control.fileno() in ready:
                    messages = reader.read()
                    if messages is None:
                        return
                    try:
                        for message, descriptors in messages:
                            self._fork(message, descriptors)
                    except BrokenPipeError:
                        return  # the host died while it was told of a child

    def _fork(self, message: dict[str, Any], descriptors: list[int]) -> None:
        from toolfold.sandbox.control_messages import send

        number = message["id"]
        try:
            pid = self._isolation.fork()
        except OSError as error:
            send(self._control, {"event": "failed", "id": number, "why": str(error)})
        else:
            if pid == 0:
                self._control.detach()
                self._run_shim(descriptors, self._isolation, {**self._configuration, **message})
            self._numbers[pid] = number
            try:
                descriptors.append(pidfd := os.pidfd_open(pid))
                handles = [pidfd]
            except (AttributeError, OSError):
                handles = []
            send(self._control, {"event": "forked", "id": number, "pid": pid}, handles)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _reap(self) -> None:
        try:
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                self._isolation.cgroups.remove(self._numbers.pop(pid, 0))
        except ChildProcessError:
            return


if __name__ == "__main__":
    _main()
