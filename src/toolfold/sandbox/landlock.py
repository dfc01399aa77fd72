"""Landlock: which files a child may open, and that it may reach no port, abstract socket or process outside.

It needs no privileges and cannot be undone. What it does not cover is told in `docs/sandbox.md`; `seccomp.py` covers
that. Standard library only. Above: `confinement.py`. Below: three system calls.
"""

import ctypes
import os
import struct
from collections.abc import Iterable

from toolfold.sandbox.libc import syscall

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_GET_VERSION = 1
_PATH_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 1 << 1, 1 << 2, 1 << 3
MAKE_CHAR, MAKE_SOCK, MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_ALL_RIGHTS = (1 << 13) - 1
_NEVER_GRANTED = EXECUTE | MAKE_CHAR | MAKE_SOCK | MAKE_BLOCK | IOCTL_DEV
_FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
NET_BIND_AND_CONNECT = 3
SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 3


def abi_version() -> int:
    """What the kernel offers; 0 where there is no Landlock, or it is switched off."""
    try:
        return syscall("landlock", _CREATE_RULESET, 0, 0, _GET_VERSION)
    except OSError:
        return 0


def _handled_rights(abi: int) -> int:
    """Every file right that this version knows: what is handled and not granted is denied."""
    rights = _ALL_RIGHTS
    for since, right in ((2, REFER), (3, TRUNCATE), (5, IOCTL_DEV)):
        if abi >= since:
            rights |= right
    return rights


def _ruleset_attributes(abi: int) -> bytes:
    """The ruleset as the kernel reads it: files, and from later versions on the network and scopes."""
    words = [_handled_rights(abi)]
    if abi >= 4:
        words.append(NET_BIND_AND_CONNECT)
    if abi >= 6:
        words.append(SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS)
    return struct.pack(f"={len(words)}Q", *words)


def create_ruleset(abi: int, readable: Iterable[str], writable: Iterable[str]) -> int:
    """A descriptor of the rules, made while the paths can still be reached."""
    attribute = _ruleset_attributes(abi)
    rules = syscall("landlock rules", _CREATE_RULESET, ctypes.c_char_p(attribute), len(attribute), 0)
    try:
        for path in readable:
            _grant(rules, path, READ_FILE | READ_DIR)
        for path in writable:
            _grant(rules, path, _handled_rights(abi) & ~_NEVER_GRANTED)
    except BaseException:
        os.close(rules)
        raise
    return rules


def _grant(rules: int, path: str, rights: int) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not os.path.isdir(path):  # noqa: PTH112 - the zygote does without pathlib
            rights &= _FILE_RIGHTS
        rule = struct.pack("=Qi", rights, place)
        syscall(f"landlock rule for {path}", _ADD_RULE, rules, _PATH_BENEATH, ctypes.c_char_p(rule), 0)
    finally:
        os.close(place)


def restrict_self(rules: int) -> None:
    """From here on, for good. The caller has set no_new_privs."""
    try:
        syscall("landlock", _RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)
