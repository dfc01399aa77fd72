"""The system-call filter: a small program in the kernel's own language, written as bytes.

It is a list of what is allowed; all else is refused. It knows x86_64 and aarch64; any other machine word, and the x32
way into the first, ends the process. Standard library only. Above: `confinement.py`. Below: `syscalls.py`, one prctl.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Sequence

from toolfold.sandbox.libc import PR_SET_SECCOMP, prctl
from toolfold.sandbox.syscalls import AARCH64, ALLOWED, GUARDED, X86_64

FILTER_MODE = 2
LOAD, AND, RETURN = 0x20, 0x54, 0x06
JUMP_EQUAL, JUMP_GREATER_EQUAL, JUMP_ANY_BIT = 0x15, 0x35, 0x45
ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
NUMBER, MACHINE, ARGUMENTS = 0, 4, 16

X32 = 0x40000000
NEWEST_GROUP = 424
"""Calls from here on are young: a C library tries them and falls back when they are said not to exist."""
NAMESPACE_FLAGS = 0x7E020080
THREAD, SAME_FILES = 0x00010000, 0x00000400
UNSHARE = 0x2
"""Of `close_range`: descriptors of a thread's own, where nobody would look for them."""
OUT_OF_BAND = 0x1
"""Of sends and receives: a part of Unix sockets that nothing needs, and that was a way into the kernel before."""
UNIX, STREAM, TYPE_MASK = 1, 1, 0xF
TERMINAL_QUESTIONS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""Is it a terminal, its size, bytes waiting, not blocking, close on exec or not."""
PRCTL_HARMLESS = (1, 2, 3, 15, 16, 21, 23, 38, 39, 0x53564D41)
"""The parent-death signal, whether it may dump, its name, its filter, its bounding set, no_new_privs, memory names."""
PRCTL_OF_PARENTS = (36,)
"""For those who may have children: taking in orphans among their own descendants, so that none is left unburied."""
FCNTL_DENIED = (8, 10, 15, 1024, 1026)
"""Who is signalled, by which signal, leases, notices of a folder: each reaches other processes or files."""

Instruction = tuple[int, int, int, int]


def machine() -> int | None:
    """Which of the two this is; nothing for others."""
    return {"x86_64": X86_64, "aarch64": AARCH64}.get(os.uname().machine)


def _return(action: int) -> Instruction:
    return (RETURN, 0, 0, action)


def _refuse(number: int = errno.EPERM) -> Instruction:
    return _return(REFUSE | number)


def _argument(place: int, *, high: bool = False) -> Instruction:
    return (LOAD, 0, 0, ARGUMENTS + 8 * place + (4 if high else 0))


def _only(place: int, values: Sequence[int], otherwise: Instruction) -> list[Instruction]:
    """Allowed when the argument is one of a few."""
    body = [_argument(place)]
    for value in values:
        body += [(JUMP_EQUAL, 0, 1, value), _return(ALLOW)]
    return [*body, otherwise]


def _not(place: int, values: Sequence[int]) -> list[Instruction]:
    body = [_argument(place)]
    for value in values:
        body += [(JUMP_EQUAL, 0, 1, value), _refuse()]
    return [*body, _return(ALLOW)]


def _without(place: int, bits: int, then: Sequence[Instruction] = ()) -> list[Instruction]:
    """Refused when the argument has any of the bits; else allowed, or as `then` says."""
    return [_argument(place), (JUMP_ANY_BIT, 0, 1, bits), _refuse(), *(then or [_return(ALLOW)])]


def _clone(*, may_fork: bool) -> list[Instruction]:
    """Threads that share their descriptors always; processes where they are allowed; namespaces never."""
    kind: Instruction = (AND, 0, 0, THREAD | SAME_FILES)
    if may_fork:
        return _without(0, NAMESPACE_FLAGS, [kind, (JUMP_EQUAL, 0, 1, THREAD), _refuse(), _return(ALLOW)])
    return _without(0, NAMESPACE_FLAGS, [kind, (JUMP_EQUAL, 0, 1, THREAD | SAME_FILES), _return(ALLOW), _refuse()])


def _socketpair() -> list[Instruction]:
    """What asyncio wakes itself with. A pair of datagram sockets could still send to any path, so streams only."""
    return [
        _argument(0),
        (JUMP_EQUAL, 0, 4, UNIX),
        _argument(1),
        (AND, 0, 0, TYPE_MASK),
        (JUMP_EQUAL, 0, 1, STREAM),
        _return(ALLOW),
        _refuse(),
    ]


def _send() -> list[Instruction]:
    """To the peer alone, not to an address."""
    nowhere = [_argument(4), (JUMP_EQUAL, 0, 3, 0), _argument(4, high=True), (JUMP_EQUAL, 0, 1, 0)]
    return _without(3, OUT_OF_BAND, [*nowhere, _return(ALLOW), _refuse()])


def guards(*, pid: int, may_fork: bool, may_signal: bool, may_change_modes: bool) -> dict[str, list[Instruction]]:
    """What to do about each guarded call. `may_signal`: other layers keep signals within the child's own family."""
    allow, refuse = [_return(ALLOW)], [_refuse()]
    to_itself = allow if may_signal else _only(0, [pid], _refuse())
    modes = allow if may_change_modes else refuse
    forks = allow if may_fork else refuse
    return {
        "clone": _clone(may_fork=may_fork),
        "clone3": [_refuse(errno.ENOSYS)],
        "fork": forks,
        "vfork": forks,
        "socketpair": _socketpair(),
        "kill": to_itself,
        "tgkill": to_itself,
        "tkill": refuse,
        "prctl": _only(0, (*PRCTL_HARMLESS, *(PRCTL_OF_PARENTS if may_fork else ())), _refuse()),
        "ioctl": _only(1, TERMINAL_QUESTIONS, _refuse(errno.ENOTTY)),
        "prlimit64": _only(0, [0, pid], _refuse()),
        "sendto": _send(),
        "recvfrom": _without(3, OUT_OF_BAND),
        "recvmsg": _without(2, OUT_OF_BAND),
        "close_range": _without(2, UNSHARE),
        "fcntl": _not(1, FCNTL_DENIED),
        **dict.fromkeys(
            ("chmod", "fchmod", "fchmodat", "fchmodat2", "utime", "utimes", "utimensat", "futimesat"), modes
        ),
    }


def program(
    arch: int, *, pid: int, may_fork: bool = False, may_signal: bool = False, may_change_modes: bool = False
) -> bytes:
    """The whole filter for one machine."""
    code: list[Instruction] = [(LOAD, 0, 0, MACHINE), (JUMP_EQUAL, 1, 0, arch), _return(KILL), (LOAD, 0, 0, NUMBER)]
    if arch == X86_64:
        code += [(JUMP_GREATER_EQUAL, 0, 1, X32), _return(KILL)]
    for number in ALLOWED[arch].values():
        code += [(JUMP_EQUAL, 0, 1, number), _return(ALLOW)]
    watched = guards(pid=pid, may_fork=may_fork, may_signal=may_signal, may_change_modes=may_change_modes)
    for name, number in GUARDED[arch].items():
        code += [(JUMP_EQUAL, 0, len(watched[name]), number), *watched[name]]
    code += [(JUMP_GREATER_EQUAL, 0, 1, NEWEST_GROUP), _refuse(errno.ENOSYS), _refuse()]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install(filter_bytes: bytes) -> None:
    """From here on, for good. The caller has set no_new_privs."""
    whole = _Program(len(filter_bytes) // 8, filter_bytes)
    prctl(PR_SET_SECCOMP, FILTER_MODE, ctypes.byref(whole))
