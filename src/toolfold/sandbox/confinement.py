"""Gives up, in the child itself and layer by layer, everything a script does not need. Standard library only.

Landlock, seccomp and the resource limits must hold, or nothing runs; the rest is put on where the system allows it. The
order matters: rules are made while paths can be reached, the filter comes last, for it forbids what the others need.
Above: `child_main.py`. Below: one module for each layer.
"""

import os
import signal
import sys
from typing import Any

from toolfold.sandbox import landlock, libc, rlimits, seccomp
from toolfold.sandbox.reading import DEVICES

TRUNCATION_SINCE, SIGNALS_SINCE = 3, 6


class Unconfined(Exception):
    """A layer that must hold could not be put on."""


def lacking(*, apart: bool) -> str | None:
    """Why a process cannot be confined by our own layers here; nothing where it can."""
    if sys.platform != "linux":
        return "this is not Linux"
    if seccomp.machine() is None:
        return f"there is no system-call filter for {os.uname().machine}"
    abi = landlock.version()
    if abi == 0:
        return "the kernel has no Landlock, or it is switched off (Linux 5.13 or later has it, as `lsm=landlock,…`)"
    if abi < TRUNCATION_SINCE and not apart:
        return f"Landlock {abi} cannot stop a file from being cut short, and namespaces are not allowed to help"
    return None


def confine(place: Any, message: dict[str, Any], home: str) -> list[str]:
    """The layers that hold from here on."""
    way = message["way"]
    if way == "unsafe":
        return []
    why = lacking(apart=place.apart) if way == "native" else None
    if why is not None:
        raise Unconfined(why)
    try:
        numbers = rlimits.wanted(message["limits"], mapped_bytes=place.mapped, tasks=place.tasks())
        if sys.platform != "linux":
            rlimits.apply(numbers)
            return [way, "rlimits"]
        return _put_on(place, message, home, numbers)
    except OSError as error:
        raise Unconfined(f"a layer could not be put on: {error}") from error


def _put_on(place: Any, message: dict[str, Any], home: str, numbers: dict[int, tuple[int, int]]) -> list[str]:
    way = message["way"]
    abi = landlock.version()
    rules = landlock.prepare(abi, [*place.readable, *DEVICES], [home, os.devnull]) if abi else None
    layers = [] if way == "native" else [way]
    libc.drop_bounds()
    if place.drops_to is not None:
        libc.become(place.drops_to, reads_all=place.reads_all)
        layers.append("user")
    libc.hold_capabilities(libc.MAY_READ_ALL if place.reads_all else 0)
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    libc.prctl(libc.PR_SET_PDEATHSIG, int(signal.SIGKILL))
    layers.append("no_new_privs")
    rlimits.apply(numbers)
    layers.append("rlimits")
    if place.groups:
        layers.append("cgroups")
    if place.apart:
        layers.append("namespaces")
    if rules is not None:
        landlock.restrict(rules)
        layers.append("landlock")
    _filter(place, message["limits"], inside=place.apart or way != "native" or abi >= SIGNALS_SINCE)
    return [*layers, "seccomp"]


def _filter(place: Any, limits: dict[str, Any], *, inside: bool) -> None:
    arch = seccomp.machine()
    if arch is None:
        raise OSError(f"there is no system-call filter for {os.uname().machine}")
    seccomp.install(
        seccomp.program(
            arch,
            pid=os.getpid(),
            may_fork=limits["may_fork"],
            may_signal=limits["may_fork"] and inside,
            may_change_modes=place.apart,
        )
    )
