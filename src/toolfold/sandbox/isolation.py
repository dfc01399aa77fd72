"""What all children of a zygote live in: namespaces where the system allows them, else a folder of the host.

Root makes namespaces as it is, others through a user namespace. The zygote enters once, before it imports anything;
each child then gets a pid namespace, a mount with its sized scratch folder and, without root, a user namespace of its
own. What a child gives up by itself is in `confinement.py`. Standard library only. Above: `zygote_main.py`,
`child_main.py`. Below: `libc.py`, `cgroups.py`.
"""

# The zygote does not import pathlib.
# ruff: noqa: PTH102, PTH103, PTH112, PTH116, PTH120, PTH123, PTH211

import contextlib
import ctypes
import os
import resource
import signal
import struct
import sys
import time
from typing import Any

from toolfold.sandbox import cgroups, rlimits
from toolfold.sandbox.libc import (
    CAPABILITIES,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    _capabilities,
    _set_capabilities,
    call,
    prctl,
    syscall,
)
from toolfold.sandbox.readable_paths import DEVICES, readable_paths, resolve_links
from toolfold.sandbox.rmtree import remove_tree

_NOBODY = 65534
_KILL_S = 10.0
_SCRATCH_MOUNT = "/scratch"

# Names and numbers of linux/sched.h and linux/mount.h.
_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x20000, 0x04000000, 0x08000000
_CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
_NAMESPACES = _CLONE_NEWPID | _CLONE_NEWNET | _CLONE_NEWIPC | _CLONE_NEWUTS
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 8, 0x1000, 0x4000, 0x40000
_MNT_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MOUNT_SETATTR = 442
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000


class ZygoteDied(Exception):
    """Raised in a shim whose zygote died."""


class _Isolation:
    """No namespaces: a child lives in a folder of the host, and its shim kills what it started."""

    # Whether a pid and a mount namespace hold each child.
    namespaced = False
    # What root must hold to make a child another user, to end what it forks and to remove its files.
    _for_user: tuple[str, ...] = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")

    def __init__(self, configuration: dict[str, Any]) -> None:
        self.problems: list[str] = []
        self.backend: str = configuration["backend"]
        # A group of a zygote that was killed may still be there when its number is given out again.
        prefix = f"toolfold-{os.getpid()}-{os.urandom(4).hex()}-"
        self.cgroups = cgroups.CgroupSet(prefix, wanted=self.backend == "native")
        self.memory_events: int | None = None
        self.readable = [] if self.backend == "unsafe" else readable_paths(configuration["readable"])
        self.uid: int | None = None
        # Whether the interpreter lies where only root may read: the child keeps that right, and Landlock bounds it.
        self.reads_all = False
        # Whether neither a limit nor a control group counts a child's threads: then the host does.
        self.uncounted = False
        self.mapped_bytes = 0
        self._becomes_user = os.geteuid() == 0 and self.backend in ("native", "bubblewrap")
        self._base: str = configuration["base"]
        self._first_uid: int | None = configuration["first_uid"]
        self._zygote = 0

    def on_imported(self) -> None:
        """Called in the zygote after its imports: what is mapped now does not count against a child."""
        self._zygote = os.getpid()
        self.mapped_bytes = rlimits.mapped_bytes()
        self._decide_user()

    def fork(self) -> int:
        return os.fork()

    def prepare_home(self, message: dict[str, Any]) -> tuple[str, int | None]:
        """Returns the child's folder, and a descriptor of it for the host where it has no path there."""
        home: str = message["home"]
        self._choose_uid(message)
        if self.uid is not None:
            os.chown(home, self.uid, self.uid)
        return home, None

    def join_cgroup(self, message: dict[str, Any]) -> None:
        """Has the kernel count the family together from here on."""
        self.memory_events = self.cgroups.join(int(message["id"]), message["limits"])

    def oom_killed(self, events: int) -> bool:
        """Whether memory ran out for the family. Called in the shim."""
        return self.memory_events is not None and cgroups.oom_killed(events)

    def _choose_uid(self, message: dict[str, Any]) -> None:
        """Root becomes a user that nobody is, another one for each child."""
        if self._becomes_user:
            self.reads_all = not all(map(_others_may_read, self.readable))
            self.uid = _NOBODY if self._first_uid is None else self._first_uid + int(message["id"])

    def _lacking(self) -> list[str]:
        """The capabilities that are missing to make a child another user."""
        needed = self._for_user if self.backend == "native" else ("SETGID", "SETUID")
        if not all(map(_others_may_read, self.readable)):
            needed = (*needed, "DAC_READ_SEARCH")
        held = _capabilities()
        return [f"CAP_{name}" for name in needed if not held >> CAPABILITIES[name] & 1]

    def _decide_user(self) -> None:
        """Whether children become other users. Root that lacks a capability for it confines them as anybody would."""
        if self._becomes_user and (lacking := self._lacking()):
            self._becomes_user = False
            self.problems.append(
                f"no user of its own for each child: toolfold runs as root without {', '.join(lacking)}"
            )
        if os.geteuid() == 0 and self.backend == "native" and not self._becomes_user:
            self.uncounted = not self.cgroups.counts_tasks and not _kernel_counts_tasks()
            if self.uncounted:
                self.problems.append(
                    "no limit of the kernel on threads: it counts none of root's, and no control group does"
                )

    def tasks(self) -> int:
        """How many threads the kernel counts against the child before it has started any."""
        if self.uid not in (None, _NOBODY) or (self.backend == "bubblewrap" and self.uid is None):
            return 4  # a user, or a user namespace, of its own
        return rlimits.count_user_tasks()

    def enter_shim(self) -> None:
        """Makes the shim adopt what its child leaves behind and learn of the zygote's death, to kill the family."""
        signal.signal(signal.SIGTERM, _raise_zygote_died)
        if sys.platform == "linux":
            prctl(PR_SET_CHILD_SUBREAPER, 1)
            prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
            if os.getppid() != self._zygote:
                raise ZygoteDied  # before the signal was asked for

    def kill_descendants(self) -> None:
        """Kills what the child left behind, until nothing is."""
        until = time.monotonic() + _KILL_S
        while time.monotonic() < until:
            for pid in _child_pids():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    time.sleep(0.002)
            except ChildProcessError:
                return

    def clean_up(self) -> None:
        """The host is gone or wants no more. The shims see it, too; what is left on disk goes when they are done."""
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
        self.cgroups.sweep()
        remove_tree(self._base)


class _NamespaceIsolation(_Isolation):
    """A child sees its scratch folder and read-only files, no network and no process but its own.

    The shim, and the zygote, are pid 1 of their namespace: with them goes everything in it.
    """

    namespaced = True
    _for_user = ("SETGID", "SETUID")

    def __init__(self, configuration: dict[str, Any], *, as_root: bool) -> None:
        super().__init__(configuration)
        self._as_root = as_root
        if not as_root:
            if self._becomes_user:
                self.problems.append("no user of its own for each child: root may make only user namespaces here")
            self._becomes_user = False
        self._proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._pid_namespace = -1

    def unshare(self) -> None:
        """Makes namespaces for what this process forks. Its own files stay, since it cleans up at the end."""
        uid, gid = os.geteuid(), os.getegid()
        call("unshare", _NAMESPACES if self._as_root else _NAMESPACES | _CLONE_NEWUSER)
        if not self._as_root:
            self._map_user(uid, gid)

    def enter(self) -> None:
        """Called in the first process of the new pid namespace."""
        self._pid_namespace = os.open("self/ns/pid", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
        _build_root(self._base, self.readable)
        # The real name of the machine is nobody's business.
        with contextlib.suppress(OSError):
            call("sethostname", "sandbox", 7)

    def on_imported(self) -> None:
        self.mapped_bytes = rlimits.mapped_bytes(self._proc)
        self._decide_user()

    def fork(self) -> int:
        """Forks a process that is pid 1 of a namespace of its own."""
        call("unshare", _CLONE_NEWPID)
        pid = -1
        try:
            pid = os.fork()
        finally:
            if pid != 0:
                call("setns", self._pid_namespace, _CLONE_NEWPID)
        return pid

    def prepare_home(self, message: dict[str, Any]) -> tuple[str, int | None]:
        uid, gid = os.geteuid(), os.getegid()
        if self._as_root:
            call("unshare", _CLONE_NEWNS)
            self._choose_uid(message)
            if self.uid is not None:
                uid = gid = self.uid
        else:
            # A user namespace of its own, so that its threads are counted apart.
            call("unshare", _CLONE_NEWNS | _CLONE_NEWUSER)
            self._map_user(uid, gid)
        size, files = message["limits"]["scratch_bytes"], message["limits"]["scratch_files"]
        options = f"size={size},nr_inodes={files + 1},mode=700,uid={uid},gid={gid}"
        _mount("tmpfs", _SCRATCH_MOUNT, "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, options)
        return _SCRATCH_MOUNT, os.open(_SCRATCH_MOUNT, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _map_user(self, uid: int, gid: int) -> None:
        """In a new user namespace this process keeps its own numbers, and no others exist."""
        # The kernel takes a group map from an unprivileged process only once setgroups is denied.
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            file = os.open(f"self/{name}", os.O_WRONLY | os.O_CLOEXEC, dir_fd=self._proc)
            try:
                os.write(file, text.encode())
            finally:
                os.close(file)

    def tasks(self) -> int:
        return 1024 if self.uid == _NOBODY else 2

    def enter_shim(self) -> None:
        prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))

    def kill_descendants(self) -> None:
        pass

    def clean_up(self) -> None:
        pass


def enter(configuration: dict[str, Any]) -> _Isolation:
    """Returns in the process that is to be the zygote, which may be a new one."""
    if configuration["backend"] != "native" or not configuration["namespaces"]:
        return _Isolation(configuration)
    problems = []
    for as_root in (True, False) if os.geteuid() == 0 else (False,):
        namespaces = _NamespaceIsolation(configuration, as_root=as_root)
        why = _try_namespaces(namespaces, configuration)
        if why is None:
            namespaces.unshare()
            _fork_init(configuration["base"], namespaces.cgroups)
            namespaces.enter()
            return namespaces
        namespaces.cgroups.sweep()
        problems.append(f"no namespaces {'as root' if as_root else 'for this user'}: {why}")
    isolation = _Isolation(configuration)
    isolation.problems += problems
    return isolation


def _try_namespaces(namespaces: _NamespaceIsolation, configuration: dict[str, Any]) -> str | None:
    """Tries all of it in throw-away processes, since it cannot be undone in this one. Returns what did not work."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            namespaces.unshare()
            inner = os.fork()
            if inner == 0:
                namespaces.enter()
                namespaces.prepare_home({**configuration, "id": 0})
                os._exit(0)
            os._exit(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]) and 1)
        except OSError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(1)
    os.close(writing)
    with open(reading, "rb") as file:
        why = file.read().decode(errors="replace")
    failed = os.waitpid(pid, 0)[1]
    return (why or "it failed without a word") if failed else None


def _fork_init(base: str, groups: cgroups.CgroupSet) -> None:
    """Forks; the child goes on as pid 1 of the new namespace, the parent waits for it, cleans up and ends with it."""
    pid = os.fork()
    if pid == 0:
        prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        return
    os.close(int(sys.argv[1]))
    status = os.waitpid(pid, 0)[1]
    groups.sweep()
    remove_tree(base)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _build_root(base: str, readable: list[str]) -> None:
    """Builds a root in memory with the readable paths, read-only, under their own names. `base` is an empty folder."""
    real, links = resolve_links(readable)
    call("unshare", _CLONE_NEWNS)
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    _mount("tmpfs", base, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=4m,mode=755")
    for name in ("old", "new"):
        os.mkdir(f"{base}/{name}", 0o755)
    os.chdir(base)
    _pivot_root(".", "old")
    os.chdir("/")
    _mount("tmpfs", "/new", "tmpfs", _MS_NOSUID, "size=4m,mode=755")
    for path in real:
        _bind_mount(path, _ATTR_NODEV)
    for path in DEVICES:
        _bind_mount(path, 0)
    for link, target in links.items():
        os.makedirs(os.path.dirname("/new" + link), 0o755, exist_ok=True)
        if not os.path.lexists("/new" + link):
            os.symlink(target, "/new" + link)
    os.mkdir("/new" + _SCRATCH_MOUNT, 0o755)
    os.chdir("/new")
    # The old root now lies on top of the new one, where it can be detached.
    _pivot_root(".", ".")
    call("umount2", ".", _MNT_DETACH, what="unmount .")
    os.chdir("/")
    _set_mount_attributes("/", 0, _ATTR_RDONLY | _ATTR_NOSUID)


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    call("mount", source, target, kind, flags, options, what=f"mount {kind or source} on {target}")


def _pivot_root(new: str, old: str) -> None:
    syscall("pivot_root", _PIVOT_ROOT[os.uname().machine], new, old)


def _bind_mount(path: str, attributes: int) -> None:
    source, target = "/old" + path, "/new" + path
    if os.path.isdir(source):
        os.makedirs(target, 0o755, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    _mount(source, target, None, _MS_BIND | _MS_REC)
    _set_mount_attributes(target, _AT_RECURSIVE, _ATTR_RDONLY | _ATTR_NOSUID | attributes)


def _set_mount_attributes(path: str, flags: int, attributes: int) -> None:
    record = struct.pack("=4Q", attributes, 0, 0, 0)
    syscall(f"seal {path}", _MOUNT_SETATTR, _AT_FDCWD, path, flags, ctypes.c_char_p(record), len(record))


def _kernel_counts_tasks() -> bool:
    """Whether this user's threads are bounded by a limit: those of the machine's root are not. Tried in a process of
    its own, which gives up first what a child gives up."""
    pid = os.fork()
    if pid == 0:
        try:
            _set_capabilities(0)
            resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
            if os.fork() == 0:
                os._exit(0)
            os.wait()
        except BlockingIOError:
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def _others_may_read(path: str) -> bool:
    while len(path) > 1:
        mode = os.stat(path).st_mode
        if mode & 0o4 == 0 or (os.path.isdir(path) and mode & 0o1 == 0):
            return False
        path = os.path.dirname(path)
    return True


def _raise_zygote_died(*_: object) -> None:
    raise ZygoteDied


def _child_pids() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []
