"""The few calls to the C library that Python does not offer. Standard library only, nothing loaded at import.

A call that fails raises `OSError` with the system's own number. Above: the layers. Below: libc.
"""

import ctypes
import functools
import os

PR_SET_PDEATHSIG = 1
PR_SET_KEEPCAPS = 8
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
CAP_DAC_READ_SEARCH_BIT = 1 << 2


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(what: str, number: int, *arguments: object) -> int:
    """A system call by its number; integers travel as machine words."""
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    call = _library().syscall
    call.restype = ctypes.c_long
    return _checked(call(ctypes.c_long(number), *words), what)


def prctl(option: int, *arguments: object) -> int:
    words = [ctypes.c_ulong(each) if isinstance(each, int) else each for each in arguments]
    words += [ctypes.c_ulong(0)] * (4 - len(words))
    return _checked(_library().prctl(ctypes.c_int(option), *words), f"prctl {option}")


def unshare(flags: int) -> None:
    _checked(_library().unshare(ctypes.c_int(flags)), "unshare")


def setns(descriptor: int, kind: int) -> None:
    _checked(_library().setns(ctypes.c_int(descriptor), ctypes.c_int(kind)), "setns")


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    result = _library().mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])
    _checked(result, f"mount {kind or source} on {target}")


def unmount_detached(target: str) -> None:
    _checked(_library().umount2(os.fsencode(target), ctypes.c_int(2)), f"unmount {target}")


def switch_user(user: int, *, reads_all: bool) -> None:
    """Another user for good. With `reads_all` it keeps the one right to read what that user may not."""
    if reads_all:
        prctl(PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def drop_bounding_set() -> None:
    """No capability can ever be gained again. It takes one to do so: who has none needs none."""
    for number in range(64):
        try:
            prctl(PR_CAPBSET_DROP, number)
        except OSError:
            return


def set_capabilities(bits: int) -> None:
    """Only these, of those that are held."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)(bits, bits, 0, 0, 0, 0)
    _checked(_library().capset(header, sets), "capset")
