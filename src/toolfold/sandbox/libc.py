"""Calls to the C library that Python does not offer. Standard library only, nothing loaded at import.

A call that fails raises `OSError` with the system's own number. Above: the layers. Below: libc.
"""

import ctypes
import functools
import os

CAPABILITIES = {"CHOWN": 0, "DAC_OVERRIDE": 1, "DAC_READ_SEARCH": 2, "FOWNER": 3, "KILL": 5, "SETGID": 6, "SETUID": 7}
"""Those that matter here, by their numbers."""
_CAPABILITY_VERSION_3 = 0x20080522

PR_SET_PDEATHSIG = 1
PR_SET_KEEPCAPS = 8
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def call(function: str, *arguments: object, what: str = "") -> int:
    """Calls a C function that returns an `int`, negative on failure. `what` names the call in an error."""
    words = [
        # Without a type, ctypes passes an integer as 32 bits, and a variadic function would read garbage above them.
        ctypes.c_long(word) if isinstance(word, int) else os.fsencode(word) if isinstance(word, str) else word
        for word in arguments
    ]
    result: int = getattr(_library(), function)(*words)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what or function}: {os.strerror(number)}")
    return result


def syscall(what: str, number: int, *arguments: object) -> int:
    """Makes a system call by its number, for those that the C library has no function for."""
    return call("syscall", number, *arguments, what=what)


def prctl(option: int, *arguments: object) -> int:
    # Some options refuse to work unless the arguments they do not use are zero.
    return call("prctl", option, *arguments, *[0] * (4 - len(arguments)), what=f"prctl {option}")


def _capabilities() -> int:
    """The effective ones of this process, a bit for each."""
    sets = (ctypes.c_uint32 * 6)()
    call("capget", (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), sets)
    return sets[0] | sets[3] << 32


def _set_capabilities(bits: int) -> None:
    """Keeps only these, of those that are held."""
    sets = (ctypes.c_uint32 * 6)(bits, bits, 0, 0, 0, 0)
    call("capset", (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), sets)
