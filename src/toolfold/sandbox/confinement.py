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
from toolfold.sandbox.readable_paths import DEVICES

_ABI_WITH_TRUNCATE, _ABI_WITH_SIGNAL_SCOPE = 3, 6


class Unconfined(Exception):
    """A layer that must hold could not be put on."""


def missing_requirement(*, apart: bool) -> str | None:
    """Why a process cannot be confined by our own layers here; nothing where it can."""
    if sys.platform != "linux":
        return "this is not Linux"
    if seccomp.audit_arch() is None:
        return f"there is no system-call filter for {os.uname().machine}"
    abi = landlock.abi_version()
    if abi == 0:
        return "the kernel has no Landlock, or it is switched off (Linux 5.13 or later has it, as `lsm=landlock,…`)"
    if abi < _ABI_WITH_TRUNCATE and not apart:
        return f"Landlock {abi} cannot stop a file from being cut short, and namespaces are not allowed to help"
    return None


def confine(place: Any, message: dict[str, Any], home: str) -> list[str]:
    """The layers that hold from here on."""
    way = message["way"]
    if way == "unsafe":
        return []
    why = missing_requirement(apart=place.apart) if way == "native" else None
    if why is not None:
        raise Unconfined(why)
    try:
        numbers = rlimits.compute(message["limits"], mapped_bytes=place.mapped, tasks=place.tasks())
        if sys.platform != "linux":
            rlimits.apply(numbers)
            return [way, "rlimits"]
        return _apply_layers(place, message, home, numbers)
    except OSError as error:
        raise Unconfined(f"a layer could not be put on: {error}") from error


def _apply_layers(place: Any, message: dict[str, Any], home: str, numbers: dict[int, tuple[int, int]]) -> list[str]:
    way = message["way"]
    abi = landlock.abi_version()
    rules = landlock.create_ruleset(abi, [*place.readable, *DEVICES], [home, os.devnull]) if abi else None
    layers = [] if way == "native" else [way]
    libc.drop_bounding_set()
    if place.drops_to is not None:
        libc.switch_user(place.drops_to, reads_all=place.reads_all)
        layers.append("user")
    libc.set_capabilities(libc.CAP_DAC_READ_SEARCH_BIT if place.reads_all else 0)
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
        landlock.restrict_self(rules)
        layers.append("landlock")
    _install_filter(place, message["limits"], inside=place.apart or way != "native" or abi >= _ABI_WITH_SIGNAL_SCOPE)
    return [*layers, "seccomp"]


def _install_filter(place: Any, limits: dict[str, Any], *, inside: bool) -> None:
    arch = seccomp.audit_arch()
    if arch is None:
        raise OSError(f"there is no system-call filter for {os.uname().machine}")
    seccomp.install(
        seccomp._build_program(
            arch,
            pid=os.getpid(),
            may_fork=limits["may_fork"],
            may_signal=limits["may_fork"] and inside,
            may_change_modes=place.apart,
        )
    )
