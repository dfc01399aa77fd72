"""Where children live: in namespaces where the system allows them, else in a folder of the host. Standard library only.

`enter` is called once, in the zygote, before anything is imported there. Which layers a child puts on itself is decided
in `confinement.py`. Above: `zygote_main.py`, `child_main.py`. Below: `namespaces.py`.
"""

import contextlib
import os
import signal
import sys
import time
from typing import Any

from toolfold.sandbox import cgroups, namespaces, rlimits
from toolfold.sandbox.libc import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, prctl, unshare
from toolfold.sandbox.reading import readable_paths
from toolfold.sandbox.removing import remove_tree

NOBODY = 65534
ENDING_S = 10.0


class Place:
    """No namespaces: a child lives in a folder of the host, and its shim ends what it started."""

    apart = False
    """Whether a pid and a mount namespace hold each child."""

    def __init__(self, configuration: dict[str, Any]) -> None:
        self.problems: list[str] = []
        self.groups = cgroups.Groups(f"toolfold-{os.getpid()}-", wanted=configuration["way"] == "native")
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
        self.mapped = rlimits.mapped()

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
        return self.events is not None and cgroups.starved(events)

    def choose_user(self, message: dict[str, Any]) -> None:
        """Root becomes a user that nobody is, another one for each child."""
        if os.geteuid() == 0 and self.way in ("native", "bubblewrap"):
            self.reads_all = not self._others_may_read()
            self.drops_to = NOBODY if self._first_user is None else self._first_user + int(message["id"])

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
        if self.drops_to not in (None, NOBODY) or (self.way == "bubblewrap" and self.drops_to is None):
            return 4  # a user, or a user namespace, of its own
        return rlimits.tasks_of_this_user()

    def settle_shim(self) -> None:
        """The shim inherits what its child leaves behind, and hears when the zygote dies: there is a family to end."""
        signal.signal(signal.SIGTERM, _abandon)
        if sys.platform == "linux":
            prctl(PR_SET_CHILD_SUBREAPER, 1)
            prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
            if os.getppid() != self._zygote:
                raise Abandoned  # it died before it could be told

    def over(self) -> None:
        """The host is gone or wants no more. The shims see it, too; what is left on disk goes when they are done."""
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
        self.groups.sweep()
        remove_tree(self._base)

    def end_the_rest(self) -> None:
        """Kills what the child left behind, until nothing is."""
        until = time.monotonic() + ENDING_S
        while time.monotonic() < until:
            for pid in _children():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    time.sleep(0.002)
            except ChildProcessError:
                return


class World(Place):
    """Namespaces: a child sees its scratch folder and read-only files, no network and no process but its own."""

    apart = True

    def __init__(self, configuration: dict[str, Any], *, as_root: bool) -> None:
        super().__init__(configuration)
        self._as_root = as_root
        self._proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._own_pids = -1

    def leave(self) -> None:
        namespaces.leave_the_world(as_root=self._as_root, proc=self._proc)

    def arrive(self) -> None:
        """In the first process of the new pid namespace."""
        self._own_pids = os.open("self/ns/pid", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
        namespaces.build_root(self._base, self.readable)
        namespaces.name_the_host()

    def imported(self) -> None:
        self.mapped = rlimits.mapped(self._proc)

    def fork(self) -> int:
        return namespaces.fork_apart(self._own_pids)

    def prepare_home(self, message: dict[str, Any]) -> tuple[str, int | None]:
        user, group = os.geteuid(), os.getegid()
        if self._as_root:
            unshare(namespaces.NEW_MOUNT)
            self.choose_user(message)
            if self.drops_to is not None:
                user = group = self.drops_to
        else:
            unshare(namespaces.NEW_MOUNT | namespaces.NEW_USER)
            namespaces.map_self(self._proc, user, group)
        limits = message["limits"]
        place = namespaces.scratch_file_system(
            user=user, group=group, size=limits["scratch_bytes"], files=limits["scratch_files"]
        )
        return namespaces.HOME, place

    def tasks(self) -> int:
        return 1024 if self.drops_to == NOBODY else 2

    def settle_shim(self) -> None:
        """The shim is pid 1: with it goes everything."""
        prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))

    def over(self) -> None:
        """This process is pid 1: with it goes everything."""

    def end_the_rest(self) -> None:
        """The shim is pid 1: with it goes everything."""


class Abandoned(Exception):
    """Raised in a shim whose zygote died."""


def _abandon(*_: object) -> None:
    raise Abandoned


def enter(configuration: dict[str, Any]) -> Place:
    """Returns in the process that is to be the zygote, which may be a new one."""
    if configuration["way"] != "native" or not configuration["namespaces"]:
        return Place(configuration)
    problems = []
    for as_root in (True, False) if os.geteuid() == 0 else (False,):
        world = World(configuration, as_root=as_root)
        why = _attempt(world, configuration)
        if why is None:
            world.leave()
            _become_the_first(configuration["base"], world.groups)
            world.arrive()
            return world
        world.groups.sweep()
        problems.append(f"no namespaces {'as root' if as_root else 'for this user'}: {why}")
    place = Place(configuration)
    place.problems = problems
    return place


def _attempt(world: World, configuration: dict[str, Any]) -> str | None:
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


def _become_the_first(base: str, groups: cgroups.Groups) -> None:
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


def _children() -> list[int]:
    pid = os.getpid()
    try:
        with open(f"/proc/self/task/{pid}/children", encoding="ascii") as file:  # noqa: PTH123 - as above
            return [int(each) for each in file.read().split()]
    except OSError:
        return []
