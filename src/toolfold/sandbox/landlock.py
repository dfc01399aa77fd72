"""Landlock: which files a child may open, and that it may reach no port, abstract socket or process outside.

It needs no privileges and cannot be undone. `docs/sandbox.md` says what it does not cover; `seccomp.py` covers that.
Standard library only. Above: `confinement.py`. Below: three system calls.
"""

import ctypes
import os
import struct
from collections.abc import Iterable

from toolfold.sandbox.libc import syscall

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


def abi_version() -> int:
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


def create_ruleset(abi: int, readable: Iterable[str], writable: Iterable[str]) -> int:
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


def restrict_self(rules: int) -> None:
    """Puts the rules on this process, for good. The caller has set no_new_privs."""
    try:
        syscall("landlock", _RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)
