"""Where children live: in namespaces where the system allows them, else in a folder of the host. Standard library only.

`enter` is called once, in the zygote, before anything is imported there. Which layers a child puts on itself is decided
in `confinement.py`. Above: `zygote_main.py`, `child_main.py`. Below: `namespaces.py`.
"""

import contextlib
import ctypes
import os
import signal
import struct
import sys
import time
from typing import Any

from toolfold.sandbox import cgroups, rlimits
from toolfold.sandbox.libc import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    _library,
    mount,
    prctl,
    setns,
    syscall,
    unmount_detached,
    unshare,
)
from toolfold.sandbox.readable_paths import DEVICES, readable_paths, resolve_links
from toolfold.sandbox.rmtree import remove_tree

# --- Namespaces: a world with no network, no other processes and no files but the readable ones. Standard library o

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x20000, 0x04000000, 0x08000000
_CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
_NAMESPACES = _CLONE_NEWPID | _CLONE_NEWNET | _CLONE_NEWIPC | _CLONE_NEWUTS

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 8, 0x1000, 0x4000, 0x40000
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MOUNT_SETATTR = 442
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
_AT_RECURSIVE = 0x8000
_SCRATCH_MOUNT = "/scratch"


def _unshare_namespaces(*, as_root: bool, proc: int) -> None:
    """New namespaces for what this process forks from here on. Its files stay as they are: it tidies up at the end."""
    user, group = os.geteuid(), os.getegid()
    unshare(_NAMESPACES if as_root else _NAMESPACES | _CLONE_NEWUSER)
    if not as_root:
        _map_user(proc, user, group)


def _map_user(proc: int, user: int, group: int) -> None:
    """In a new user namespace this process keeps its own numbers, and no others exist."""
    _write_at(proc, "self/setgroups", "deny")
    _write_at(proc, "self/uid_map", f"{user} {user} 1")
    _write_at(proc, "self/gid_map", f"{group} {group} 1")


def _write_at(folder: int, name: str, text: str) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def _build_root(base: str, readable: list[str]) -> None:
    """A new root in memory with the readable paths, read-only, under their own names. `base` is an empty folder."""
    real, links = resolve_links(readable)
    unshare(_CLONE_NEWNS)
    mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    mount("tmpfs", base, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=4m,mode=755")
    for name in ("old", "new"):
        os.mkdir(f"{base}/{name}", 0o755)  # noqa: PTH102 - no pathlib in the zygote
    os.chdir(base)
    _pivot_root(".", "old")
    os.chdir("/")
    mount("tmpfs", "/new", "tmpfs", _MS_NOSUID, "size=4m,mode=755")
    for path in real:
        _bind_mount(path, no_devices=True)
    for path in DEVICES:
        _bind_mount(path, no_devices=False)
    for link, target in links.items():
        os.makedirs(os.path.dirname("/new" + link), 0o755, exist_ok=True)  # noqa: PTH103, PTH120 - as above
        if not os.path.lexists("/new" + link):
            os.symlink(target, "/new" + link)  # noqa: PTH211 - as above
    os.mkdir("/new" + _SCRATCH_MOUNT, 0o755)  # noqa: PTH102 - as above
    os.chdir("/new")
    _pivot_root(".", ".")
    unmount_detached(".")
    os.chdir("/")
    _set_mount_attributes("/", 0, _ATTR_RDONLY | _ATTR_NOSUID)


def _pivot_root(new: str, old: str) -> None:
    number = _PIVOT_ROOT[os.uname().machine]
    syscall("pivot_root", number, ctypes.c_char_p(os.fsencode(new)), ctypes.c_char_p(os.fsencode(old)))


def _bind_mount(path: str, *, no_devices: bool) -> None:
    source, target = "/old" + path, "/new" + path
    if os.path.isdir(source):  # noqa: PTH112 - as above
        os.makedirs(target, 0o755, exist_ok=True)  # noqa: PTH103 - as above
    else:
        os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)  # noqa: PTH103, PTH120 - as above
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    mount(source, target, None, _MS_BIND | _MS_REC)
    _set_mount_attributes(target, _AT_RECURSIVE, _ATTR_RDONLY | _ATTR_NOSUID | (_ATTR_NODEV if no_devices else 0))


def _set_mount_attributes(path: str, flags: int, attributes: int) -> None:
    record = struct.pack("=4Q", attributes, 0, 0, 0)
    place = ctypes.c_char_p(os.fsencode(path))
    syscall(f"seal {path}", _MOUNT_SETATTR, -100, place, flags, ctypes.c_char_p(record), len(record))


def _set_hostname() -> None:
    """The real name of the machine is nobody's business."""
    _library().sethostname(b"sandbox", 7)


def _fork_into_pid_namespace(own: int) -> int:
    """Forks a process that is pid 1 of a namespace of its own. `own` is a descriptor of this process's namespace."""
    unshare(_CLONE_NEWPID)
    pid = -1
    try:
        pid = os.fork()
    finally:
        if pid != 0:
            setns(own, _CLONE_NEWPID)
    return pid


def _mount_scratch(*, user: int, group: int, size: int, files: int) -> int:
    """Mounts a child's folder where every child finds its own, and gives a descriptor of it."""
    options = f"size={size},nr_inodes={files + 1},mode=700,uid={user},gid={group}"
    mount("tmpfs", _SCRATCH_MOUNT, "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, options)
    return os.open(_SCRATCH_MOUNT, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


_NOBODY = 65534
_KILL_S = 10.0


class Isolation:
    """No namespaces: a child lives in a folder of the host, and its shim ends what it started."""

    apart = False
    """Whether a pid and a mount namespace hold each child."""

    def __init__(self, configuration: dict[str, Any]) -> None:
        self.problems: list[str] = []
        self.groups = cgroups.CgroupSet(f"toolfold-{os.getpid()}-", wanted=configuration["way"] == "native")
        self.events: int | None = None
        self.way: str = configuration["way"]
        self.readable = [] if self.way == "unsafe" else readable_paths(configuration["readable"])
        self._base: str = configuration["base"]
        self.drops_to: int | None = None
        self.reads_all = False
        """Whether the interpreter lies where only root may read: the child keeps that right, and Landlock bounds it."""
        self.mapped = 0
        self._zygote = 0
        self._first_user: int | None = configuration["first_user"]

    def imported(self) -> None:
        """Told in the zygote when everything is imported: what is mapped now does not count against a child."""
        self._zygote = os.getpid()
        self.mapped = rlimits.mapped_bytes()

    def fork(self) -> int:
        return os.fork()

    def prepare_home(self, message: dict[str, Any]) -> tuple[str, int | None]:
        """The child's folder, and a descriptor of it for the host where it has no path there."""
        home: str = message["home"]
        self.choose_user(message)
        if self.drops_to is not None:
            os.chown(home, self.drops_to, self.drops_to)
        return home, None

    def join_group(self, message: dict[str, Any]) -> None:
        """The family is counted together from here on."""
        self.events = self.groups.join(int(message["id"]), message["limits"])

    def starved(self, events: int) -> bool:
        """Whether memory ran out for the family, asked in the shim."""
        return self.events is not None and cgroups.oom_killed(events)

    def choose_user(self, message: dict[str, Any]) -> None:
        """Root becomes a user that nobody is, another one for each child."""
        if os.geteuid() == 0 and self.way in ("native", "bubblewrap"):
            self.reads_all = not self._others_may_read()
            self.drops_to = _NOBODY if self._first_user is None else self._first_user + int(message["id"])

    def _others_may_read(self) -> bool:
        for path in self.readable:
            walked = path
            while len(walked) > 1:
                mode = os.stat(walked).st_mode  # noqa: PTH116 - no pathlib in the zygote
                if mode & 0o4 == 0 or (os.path.isdir(walked) and mode & 0o1 == 0):  # noqa: PTH112 - as above
                    return False
                walked = os.path.dirname(walked)  # noqa: PTH120 - as above
        return True

    def tasks(self) -> int:
        """How many threads the kernel counts against the child before it has started any."""
        if self.drops_to not in (None, _NOBODY) or (self.way == "bubblewrap" and self.drops_to is None):
            return 4  # a user, or a user namespace, of its own
        return rlimits.count_user_tasks()

    def settle_shim(self) -> None:
        """The shim inherits what its child leaves behind, and hears when the zygote dies: there is a family to end."""
        signal.signal(signal.SIGTERM, _raise_zygote_died)
        if sys.platform == "linux":
            prctl(PR_SET_CHILD_SUBREAPER, 1)
            prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
            if os.getppid() != self._zygote:
                raise ZygoteDied  # it died before it could be told

    def over(self) -> None:
        """The host is gone or wants no more. The shims see it, too; what is left on disk goes when they are done."""
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
        self.groups.sweep()
        remove_tree(self._base)

    def end_the_rest(self) -> None:
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


class _NamespaceIsolation(Isolation):
    """Namespaces: a child sees its scratch folder and read-only files, no network and no process but its own."""

    apart = True

    def __init__(self, configuration: dict[str, Any], *, as_root: bool) -> None:
        super().__init__(configuration)
        self._as_root = as_root
        self._proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._own_pids = -1

    def leave(self) -> None:
        _unshare_namespaces(as_root=self._as_root, proc=self._proc)

    def arrive(self) -> None:
        """In the first process of the new pid namespace."""
        self._own_pids = os.open("self/ns/pid", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
        _build_root(self._base, self.readable)
        _set_hostname()

    def imported(self) -> None:
        self.mapped = rlimits.mapped_bytes(self._proc)

    def fork(self) -> int:
        return _fork_into_pid_namespace(self._own_pids)

    def prepare_home(self, message: dict[str, Any]) -> tuple[str, int | None]:
        user, group = os.geteuid(), os.getegid()
        if self._as_root:
            unshare(_CLONE_NEWNS)
            self.choose_user(message)
            if self.drops_to is not None:
                user = group = self.drops_to
        else:
            unshare(_CLONE_NEWNS | _CLONE_NEWUSER)
            _map_user(self._proc, user, group)
        limits = message["limits"]
        place = _mount_scratch(user=user, group=group, size=limits["scratch_bytes"], files=limits["scratch_files"])
        return _SCRATCH_MOUNT, place

    def tasks(self) -> int:
        return 1024 if self.drops_to == _NOBODY else 2

    def settle_shim(self) -> None:
        """The shim is pid 1: with it goes everything."""
        prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))

    def over(self) -> None:
        """This process is pid 1: with it goes everything."""

    def end_the_rest(self) -> None:
        """The shim is pid 1: with it goes everything."""


class ZygoteDied(Exception):
    """Raised in a shim whose zygote died."""


def _raise_zygote_died(*_: object) -> None:
    raise ZygoteDied


def enter(configuration: dict[str, Any]) -> Isolation:
    """Returns in the process that is to be the zygote, which may be a new one."""
    if configuration["way"] != "native" or not configuration["namespaces"]:
        return Isolation(configuration)
    problems = []
    for as_root in (True, False) if os.geteuid() == 0 else (False,):
        world = _NamespaceIsolation(configuration, as_root=as_root)
        why = _try_namespaces(world, configuration)
        if why is None:
            world.leave()
            _fork_init(configuration["base"], world.groups)
            world.arrive()
            return world
        world.groups.sweep()
        problems.append(f"no namespaces {'as root' if as_root else 'for this user'}: {why}")
    place = Isolation(configuration)
    place.problems = problems
    return place


def _try_namespaces(world: _NamespaceIsolation, configuration: dict[str, Any]) -> str | None:
    """Tries all of it in processes that are thrown away: it cannot be undone in this one. Says what did not work."""
    told, telling = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            world.leave()
            inner = os.fork()
            if inner == 0:
                world.arrive()
                world.prepare_home({**configuration, "id": 0})
                os._exit(0)
            os._exit(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]) and 1)
        except OSError as error:
            os.write(telling, str(error).encode())
        finally:
            os._exit(1)
    os.close(telling)
    with open(told, "rb") as file:  # noqa: PTH123 - a descriptor
        why = file.read().decode(errors="replace")
    failed = os.waitpid(pid, 0)[1]
    return (why or "it failed without a word") if failed else None


def _fork_init(base: str, groups: cgroups.CgroupSet) -> None:
    """Forks; the child goes on as pid 1 of the new namespace, the parent waits for it, tidies up and ends with it."""
    pid = os.fork()
    if pid == 0:
        prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        return
    os.close(int(sys.argv[1]))
    status = os.waitpid(pid, 0)[1]
    groups.sweep()
    remove_tree(base)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _child_pids() -> list[int]:
    pid = os.getpid()
    try:
        with open(f"/proc/self/task/{pid}/children", encoding="ascii") as file:  # noqa: PTH123 - as above
            return [int(each) for each in file.read().split()]
    except OSError:
        return []
