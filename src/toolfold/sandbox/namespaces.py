"""Namespaces: a world with no network, no other processes and no files but the readable ones. Standard library only.

Root makes them as it is; others through a user namespace, where the system allows those. The zygote enters once; each
child gets a pid namespace, a mount with its sized scratch folder and, without root, a user namespace of its own, so
that its threads are counted apart. Above: `surroundings.py`. Below: `libc.py`.
"""

import ctypes
import os
import struct

from toolfold.sandbox.libc import library, mount, setns, syscall, unmount_later, unshare
from toolfold.sandbox.reading import DEVICES, real_and_links

NEW_MOUNT, NEW_UTS, NEW_IPC = 0x20000, 0x04000000, 0x08000000
NEW_USER, NEW_PID, NEW_NET = 0x10000000, 0x20000000, 0x40000000
WORLD = NEW_PID | NEW_NET | NEW_IPC | NEW_UTS

NO_SUID, NO_DEVICES, NO_EXECUTION, BIND, RECURSIVE, PRIVATE = 2, 4, 8, 0x1000, 0x4000, 0x40000
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
MOUNT_SETATTR = 442
ATTR_READ_ONLY, ATTR_NO_SUID, ATTR_NO_DEVICES = 1, 2, 4
AT_RECURSIVE = 0x8000
HOME = "/scratch"


def leave_the_world(*, as_root: bool, proc: int) -> None:
    """New namespaces for what this process forks from here on. Its files stay as they are: it tidies up at the end."""
    user, group = os.geteuid(), os.getegid()
    unshare(WORLD if as_root else WORLD | NEW_USER)
    if not as_root:
        map_self(proc, user, group)


def map_self(proc: int, user: int, group: int) -> None:
    """In a new user namespace this process keeps its own numbers, and no others exist."""
    _write(proc, "self/setgroups", "deny")
    _write(proc, "self/uid_map", f"{user} {user} 1")
    _write(proc, "self/gid_map", f"{group} {group} 1")


def _write(folder: int, name: str, text: str) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def build_root(base: str, readable: list[str]) -> None:
    """A new root in memory with the readable paths, read-only, under their own names. `base` is an empty folder."""
    real, links = real_and_links(readable)
    unshare(NEW_MOUNT)
    mount(None, "/", None, RECURSIVE | PRIVATE)
    mount("tmpfs", base, "tmpfs", NO_SUID | NO_DEVICES, "size=4m,mode=755")
    for name in ("old", "new"):
        os.mkdir(f"{base}/{name}", 0o755)  # noqa: PTH102 - no pathlib in the zygote
    os.chdir(base)
    pivot(".", "old")
    os.chdir("/")
    mount("tmpfs", "/new", "tmpfs", NO_SUID, "size=4m,mode=755")
    for path in real:
        _bind(path, no_devices=True)
    for path in DEVICES:
        _bind(path, no_devices=False)
    for link, target in links.items():
        os.makedirs(os.path.dirname("/new" + link), 0o755, exist_ok=True)  # noqa: PTH103, PTH120 - as above
        if not os.path.lexists("/new" + link):
            os.symlink(target, "/new" + link)  # noqa: PTH211 - as above
    os.mkdir("/new" + HOME, 0o755)  # noqa: PTH102 - as above
    os.chdir("/new")
    pivot(".", ".")
    unmount_later(".")
    os.chdir("/")
    _seal("/", 0, ATTR_READ_ONLY | ATTR_NO_SUID)


def pivot(new: str, old: str) -> None:
    number = PIVOT_ROOT[os.uname().machine]
    syscall("pivot_root", number, ctypes.c_char_p(os.fsencode(new)), ctypes.c_char_p(os.fsencode(old)))


def _bind(path: str, *, no_devices: bool) -> None:
    source, target = "/old" + path, "/new" + path
    if os.path.isdir(source):  # noqa: PTH112 - as above
        os.makedirs(target, 0o755, exist_ok=True)  # noqa: PTH103 - as above
    else:
        os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)  # noqa: PTH103, PTH120 - as above
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    mount(source, target, None, BIND | RECURSIVE)
    _seal(target, AT_RECURSIVE, ATTR_READ_ONLY | ATTR_NO_SUID | (ATTR_NO_DEVICES if no_devices else 0))


def _seal(path: str, flags: int, attributes: int) -> None:
    record = struct.pack("=4Q", attributes, 0, 0, 0)
    place = ctypes.c_char_p(os.fsencode(path))
    syscall(f"seal {path}", MOUNT_SETATTR, -100, place, flags, ctypes.c_char_p(record), len(record))


def name_the_host() -> None:
    """The real name of the machine is nobody's business."""
    library().sethostname(b"sandbox", 7)


def fork_apart(own: int) -> int:
    """Forks a process that is pid 1 of a namespace of its own. `own` is a descriptor of this process's namespace."""
    unshare(NEW_PID)
    pid = -1
    try:
        pid = os.fork()
    finally:
        if pid != 0:
            setns(own, NEW_PID)
    return pid


def scratch_file_system(*, user: int, group: int, size: int, files: int) -> int:
    """Mounts a child's folder where every child finds its own, and gives a descriptor of it."""
    options = f"size={size},nr_inodes={files + 1},mode=700,uid={user},gid={group}"
    mount("tmpfs", HOME, "tmpfs", NO_SUID | NO_DEVICES | NO_EXECUTION, options)
    return os.open(HOME, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
