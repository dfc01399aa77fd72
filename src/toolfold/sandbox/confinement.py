"""Gives up, in the child itself and layer by layer, everything a script does not need. Standard library only.

Landlock, seccomp and the resource limits must hold, or nothing runs; the rest is added where the system allows it.
Above: `child_main.py`. Below: one module for each layer.
"""

import ctypes
import os
import signal
import struct
import sys
from collections.abc import Iterable
from typing import Any

from toolfold.sandbox import libc, rlimits, seccomp
from toolfold.sandbox.libc import _set_capabilities, syscall
from toolfold.sandbox.readable_paths import DEVICES

# Landlock: which files a child may open, and that it may reach no port, abstract socket or process outside.

# The names and numbers of linux/landlock.h.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_GET_VERSION = 1
_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_SOCK, _MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_ALL_RIGHTS = (1 << 13) - 1
_NEVER_GRANTED = _EXECUTE | _MAKE_CHAR | _MAKE_SOCK | _MAKE_BLOCK | _IOCTL_DEV
# A rule for a file that grants a folder's rights is refused.
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_NET_BIND_AND_CONNECT = 3
_SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 3


def _landlock_abi() -> int:
    """The version the kernel offers; 0 where there is no Landlock, or it is switched off."""
    try:
        return syscall("landlock", _CREATE_RULESET, 0, 0, _GET_VERSION)
    except OSError:
        return 0


def _handled_rights(abi: int) -> int:
    """Every file right that this version knows: what is handled and not granted is denied."""
    rights = _ALL_RIGHTS
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        if abi >= since:
            rights |= right
    return rights


def _create_ruleset(abi: int, readable: Iterable[str], writable: Iterable[str]) -> int:
    """Returns a descriptor of the rules, made while the paths can still be reached."""
    words = [_handled_rights(abi)]
    if abi >= 4:
        words.append(_NET_BIND_AND_CONNECT)
    if abi >= 6:
        words.append(_SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS)
    attributes = struct.pack(f"={len(words)}Q", *words)
    rules = syscall("landlock rules", _CREATE_RULESET, ctypes.c_char_p(attributes), len(attributes), 0)
    try:
        for path in readable:
            _grant(rules, path, _READ_FILE | _READ_DIR)
        for path in writable:
            _grant(rules, path, _handled_rights(abi) & ~_NEVER_GRANTED)
    except BaseException:
        os.close(rules)
        raise
    return rules


def _grant(rules: int, path: str, rights: int) -> None:
    parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not os.path.isdir(path):  # noqa: PTH112 - no pathlib in the zygote
            rights &= _FILE_RIGHTS
        rule = struct.pack("=Qi", rights, parent)
        syscall(f"landlock rule for {path}", _ADD_RULE, rules, _PATH_BENEATH, ctypes.c_char_p(rule), 0)
    finally:
        os.close(parent)


def _restrict_self(rules: int) -> None:
    """Puts the rules on this process, for good. The caller has set no_new_privs."""
    try:
        syscall("landlock", _RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)


_ABI_WITH_TRUNCATE, _ABI_WITH_SIGNAL_SCOPE = 3, 6


class Unconfined(Exception):
    """A layer that must hold could not be added."""


def missing_requirement(*, namespaced: bool) -> str | None:
    """Why a process cannot be confined by our own layers here; `None` where it can."""
    if sys.platform != "linux":
        return "this is not Linux"
    if seccomp.audit_arch() is None:
        return f"there is no system-call filter for {os.uname().machine}"
    abi = _landlock_abi()
    if abi == 0:
        return "the kernel has no Landlock, or it is switched off (Linux 5.13 or later has it, as `lsm=landlock,…`)"
    if abi < _ABI_WITH_TRUNCATE and not namespaced:
        return f"Landlock {abi} cannot stop a file from being cut short, and namespaces are not allowed to help"
    return None


def confine(isolation: Any, message: dict[str, Any], home: str) -> list[str]:
    """Returns the layers that hold from here on."""
    backend = message["backend"]
    if backend == "unsafe":
        return []
    why = missing_requirement(namespaced=isolation.namespaced) if backend == "native" else None
    if why is not None:
        raise Unconfined(why)
    if isolation.uncounted and message["limits"]["may_fork"]:
        # The host counts a few times a second: too late for a process that forks as fast as it can.
        raise Unconfined(f"nothing would bound how many processes it forks: {'; '.join(isolation.problems)}")
    try:
        numbers = rlimits.compute(message["limits"], mapped_bytes=isolation.mapped_bytes, tasks=isolation.tasks())
        if sys.platform != "linux":
            rlimits.apply(numbers)
            return [backend, "rlimits"]
        return _apply_layers(isolation, message, home, numbers)
    except OSError as error:
        raise Unconfined(f"a layer could not be put on: {error}") from error


def _apply_layers(isolation: Any, message: dict[str, Any], home: str, numbers: dict[int, int]) -> list[str]:
    # The order matters: rules are made while paths can be reached, the filter comes last, for it forbids what the
    # others need.
    backend = message["backend"]
    abi = _landlock_abi()
    rules = _create_ruleset(abi, [*isolation.readable, *DEVICES], [home, os.devnull]) if abi else None
    _drop_bounding_set()
    if isolation.uid is not None:
        _switch_user(isolation.uid, keep_capabilities=isolation.reads_all)
    _set_capabilities(1 << libc.CAPABILITIES["DAC_READ_SEARCH"] if isolation.reads_all else 0)
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    libc.prctl(libc.PR_SET_PDEATHSIG, int(signal.SIGKILL))
    rlimits.apply(numbers)
    if rules is not None:
        _restrict_self(rules)
    signals_bounded = isolation.namespaced or backend != "native" or abi >= _ABI_WITH_SIGNAL_SCOPE
    may_fork = message["limits"]["may_fork"]
    seccomp.install(
        seccomp.build_program(
            seccomp.audit_arch(),
            pid=os.getpid(),
            may_fork=may_fork,
            may_signal=may_fork and signals_bounded,
            may_change_modes=isolation.namespaced,
        )
    )
    layers = {
        backend: backend != "native",
        "user": isolation.uid is not None,
        "no_new_privs": True,
        "rlimits": True,
        "cgroups": bool(isolation.cgroups),
        "namespaces": isolation.namespaced,
        "landlock": rules is not None,
        "seccomp": True,
    }
    return [name for name, holds in layers.items() if holds]


def _switch_user(uid: int, *, keep_capabilities: bool) -> None:
    """Becomes another user for good."""
    if keep_capabilities:
        libc.prctl(libc.PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _drop_bounding_set() -> None:
    """Lets no capability be gained again. Doing so takes one: a process that has none needs none of this."""
    for number in range(64):
        try:
            libc.prctl(libc.PR_CAPBSET_DROP, number)
        except OSError:
            return
