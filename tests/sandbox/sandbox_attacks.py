"""The attacks, one property each. Each leaves in `result` what it gained; an error, or nothing, is a defeat.

`controlled` attacks do gain something in a process that is not confined: that proves the attack and the canary.
"""

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Attack:
    name: str
    code: str
    controlled: bool = False

    @property
    def runs_here(self) -> bool:
        """Those that name a system call by its number know one machine only."""
        return "call(" not in self.code.replace("syscall(", "") or os.uname().machine == "x86_64"


def attacks(text: str) -> list[Attack]:
    """Each starts with a line `# name`, or `# name !` when it is controlled."""
    found = []
    for part in text.split("\n# ")[1:]:
        title, _, code = part.partition("\n")
        found.append(Attack(title.removesuffix(" !"), code, controlled=title.endswith(" !")))
    return found


FILES = attacks("""
# reads a system file !
result = open("/etc/passwd").read()
# reads a secret of the same user !
result = open(canary["secret"]).read()
# lists the folder of a secret !
result = os.listdir(canary["folder"])
# lists the home folder of the host
result = os.listdir(canary["home"])
# lists the root of all other things
result = [name for name in os.listdir("/") if name not in ("scratch",)]
# reads through a symbolic link !
os.symlink(canary["secret"], "link")
result = open("link").read()
# reads through a hard link
os.link(canary["secret"], "hard")
result = open("hard").read()
# walks up from its folder !
result = open("../" * 30 + canary["secret"]).read()
# goes through the root of its own process !
result = open("/proc/self/root" + canary["secret"]).read()
# goes through the working folder of its own process !
result = open("/proc/self/cwd/" + "../" * 30 + canary["secret"]).read()
# goes through the root of a host process !
result = open(f"/proc/{canary['victim']}/root" + canary["secret"]).read()
# opens without following any check of Python !
result = os.read(call(257, -100, ctypes.c_char_p(canary["secret"].encode()), 0, 0), 100).decode()
# opens with openat2 !
how = (ctypes.c_uint64 * 3)(0, 0, 0)
result = os.read(call(437, -100, ctypes.c_char_p(canary["secret"].encode()), ctypes.byref(how), 24), 100).decode()
# creates a file beside a secret
result = open(canary["folder"] + "/new", "w").write("x")
# appends to a secret
result = open(canary["secret"], "a").write("x")
# cuts a secret short
os.truncate(canary["secret"], 0); result = "cut"
# cuts a secret short while opening it to read
os.open(canary["secret"], os.O_RDONLY | os.O_TRUNC); result = "cut"
# removes a secret
os.unlink(canary["secret"]); result = "gone"
# renames a secret into its folder
os.rename(canary["secret"], "mine"); result = "moved"
# exchanges a secret with a file of its own
open("mine", "w").close()
result = call(316, -100, ctypes.c_char_p(b"mine"), -100, ctypes.c_char_p(canary["secret"].encode()), 2) + 1
# changes the mode of a secret
os.chmod(canary["secret"], 0o644); result = "changed"
# changes the mode of a secret by the newest call
result = call(452, -100, ctypes.c_char_p(canary["secret"].encode()), 0o644, 0) + 1
# gives a secret to another user
os.chown(canary["secret"], 12345, 12345); result = "given"
# sets an attribute of a secret
os.setxattr(canary["secret"], "user.mark", b"x"); result = "marked"
# changes the times of a secret
os.utime(canary["secret"], (1, 1)); result = "changed"
# writes into the temporary folder
result = open("/tmp/toolfold-escape", "w").write("x")
# writes into shared memory
result = open("/dev/shm/toolfold-escape", "w").write("x")
# plants a start-up file for a shell
result = open(canary["home"] + "/.bashrc", "a").write("x")
# plants a hook for git
os.makedirs(canary["tests"] + "/../../.git/hooks", exist_ok=True)
result = open(canary["tests"] + "/../../.git/hooks/pre-commit", "w").write("x")
# plants a module that Python loads at its start
import sysconfig
result = open(sysconfig.get_paths()["purelib"] + "/sitecustomize.py", "a").write("")
# plants a path file
import sysconfig
result = open(sysconfig.get_paths()["purelib"] + "/escape.pth", "w").write("")
# plants compiled code beside the standard library
import json, os.path
result = open(os.path.dirname(json.__file__) + "/__pycache__/escape.pyc", "wb").write(b"x")
# changes the source of toolfold
import toolfold.sandbox.frames as frames
result = open(frames.__file__, "a").write("#")
# reads the raw disk
result = open("/dev/vda", "rb").read(1)
# reads the memory of the machine
result = open("/dev/mem", "rb").read(1)
# makes a device of its own
os.mknod("null", 0o20666, os.makedev(1, 3)); result = "made"
# opens a file by its handle
handle = (ctypes.c_uint32 * 40)(128)
result = call(304, -100, ctypes.byref(handle), 0)
# learns the handle of a file
handle = (ctypes.c_uint32 * 40)(128); number = ctypes.c_int()
result = call(303, -100, ctypes.c_char_p(canary["secret"].encode()), ctypes.byref(handle), ctypes.byref(number), 0) + 1
# watches what happens to a secret !
fd = call(294, 0)
result = call(254, fd, ctypes.c_char_p(canary["secret"].encode()), 0xFFF)
""")

NETWORK = attacks("""
# connects to a server of the host !
socket.create_connection(("127.0.0.1", canary["tcp"])).close(); result = "connected"
# sends a datagram !
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", canary["udp"])); result = "sent"
# listens
result = socket.create_server(("127.0.0.1", 0)).getsockname()
# connects to a socket by its path !
s = socket.socket(socket.AF_UNIX); s.connect(canary["unix"]); s.close(); result = "connected"
# sends to a datagram socket by its path !
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", canary["datagrams"]); result = "sent"
# sends to a path from a pair of datagram sockets !
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.sendto(b"x", canary["datagrams"]); result = "sent"
# sends to a path from a pair of packet sockets
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET); a.sendto(b"x", canary["datagrams"]); result = "sent"
# connects the socket it has to another place
channel.connect(canary["unix"]); result = "connected"
# connects to an abstract socket !
s = socket.socket(socket.AF_UNIX); s.connect("\\0" + canary["abstract"]); s.close(); result = "connected"
# binds an abstract name
s = socket.socketpair()[0]; s.bind("\\0toolfold-escape"); result = "bound"
# resolves a name
result = socket.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM) and socket.getaddrinfo("example.com", 80)
# asks a name server
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b"\\0" * 12, ("127.0.0.53", 53)); result = "asked"
# sends out of band to itself !
a, b = socket.socketpair(); result = a.send(b"x", socket.MSG_OOB)
# has the kernel look for bytes out of band !
try:
    socket.socketpair()[0].recv(1, socket.MSG_OOB)
except OSError as error:
    result = error.errno != errno.EPERM
# has the kernel look for a message out of band !
try:
    socket.socketpair()[0].recvmsg(1, 0, socket.MSG_OOB)
except OSError as error:
    result = error.errno != errno.EPERM
# sends descriptors to itself !
a, b = socket.socketpair(); result = socket.send_fds(a, [b"x"], [1])
# opens a raw socket
result = socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).fileno()
# opens a packet socket
result = socket.socket(socket.AF_PACKET, socket.SOCK_RAW).fileno()
# speaks to the kernel by netlink
result = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).fileno()
# reaches a hypervisor
result = socket.socket(40, socket.SOCK_STREAM).fileno()
""")

PROCESSES = attacks("""
# reads the environment of the host !
result = open(f"/proc/{canary['host']}/environ", "rb").read().decode(errors="replace")
# reads the environment of the first process
result = open("/proc/1/environ", "rb").read().decode(errors="replace")
# reads the command line of a host process !
result = open(f"/proc/{canary['victim']}/cmdline").read()
# reads the memory of a host process
result = open(f"/proc/{canary['victim']}/mem", "rb").read(1)
# lists processes !
result = [name for name in os.listdir("/proc") if name.isdigit()]
# has an environment
result = [name for name in os.environ if name not in ("HOME", "TMPDIR", "LANG", "PATH", "LC_CTYPE")]
# asks whether a host process lives !
os.kill(canary["victim"], 0); result = "it lives"
# kills a host process
os.kill(canary["victim"], 9); result = "killed"
# kills everything
os.kill(-1, 0); result = "could"
# signals the group of the host
os.killpg(os.getpgid(canary["victim"]), 0); result = "could"
# signals one thread of the host
result = call(200, canary["victim"], 0) + 1
# signals a thread of the host in its group
result = call(234, canary["victim"], canary["victim"], 0) + 1
# queues a signal
info = (ctypes.c_int * 32)(0, 0, -1)
result = call(129, canary["victim"], 15, ctypes.byref(info)) + 1
# has the kernel signal a host process
import fcntl
fcntl.fcntl(channel.fileno(), fcntl.F_SETOWN, canary["victim"]); result = "set"
# opens a handle of a host process !
result = os.pidfd_open(canary["victim"])
# steals a descriptor
result = call(438, call(434, canary["victim"], 0), 1, 0)
# traces a host process
result = call(101, 16, canary["victim"], 0, 0) + 1
# becomes traced by its parent
result = call(101, 0, 0, 0, 0) + 1
# reads the memory of another process
buffer = ctypes.create_string_buffer(8)
iov = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), 8)
result = call(310, canary["victim"], ctypes.byref(iov), 1, ctypes.byref(iov), 1, 0) + 1
# writes the memory of another process
result = call(311, canary["victim"], 0, 0, 0, 0, 0) + 1
# compares itself with a host process
result = call(312, os.getpid(), canary["victim"], 0, 0, 0) + 1
# changes the limits of a host process
import resource
resource.prlimit(canary["victim"], resource.RLIMIT_NOFILE, (8, 8)); result = "changed"
# changes the priority of a host process
os.setpriority(os.PRIO_PROCESS, canary["victim"], 19); result = "changed"
# binds a host process to a processor
os.sched_setaffinity(canary["victim"], {0}); result = "bound"
# has descriptors it was not given
import fcntl
def there(fd):
    try:
        return fcntl.fcntl(fd, fcntl.F_GETFD) >= 0
    except OSError:
        return False
result = [fd for fd in range(4, 60) if there(fd)]
""")

KERNEL = attacks("""
# starts a program !
os.execv("/bin/true", ["true"]); result = "started"
# starts a program from memory
result = call(319, ctypes.c_char_p(b"x"), 0)
# starts a program by its descriptor
result = call(322, 3, ctypes.c_char_p(b""), 0, 0, 0x1000) + 1
# starts a shell through subprocess !
import subprocess
result = subprocess.run(["/bin/sh", "-c", "echo gained"], capture_output=True).stdout
# starts a shell through the C library
import signal
code = os.waitstatus_to_exitcode(libc.system(b"exit 3"))
result = code if code == 3 else None
# spawns a program
result = os.posix_spawn("/bin/true", ["true"], {})
# forks !
pid = os.fork()
if pid == 0:
    os._exit(0)
os.waitpid(pid, 0); result = "forked"
# forks by the oldest call
result = call(57) + 1
# clones into new namespaces
result = call(56, 0x10000000 | 17, 0, 0, 0, 0) + 1
# clones by a structure that no filter can read
arguments = (ctypes.c_uint64 * 11)(0x10000000, 0, 0, 0, 17)
result = call(435, ctypes.byref(arguments), 88) + 1
# makes a user namespace
result = libc.unshare(0x10000000 | 0x20000) + 1
# makes a network namespace
result = libc.unshare(0x40000000) + 1
# enters a namespace
result = call(308, 3, 0) + 1
# mounts
result = libc.mount(b"tmpfs", b".", b"tmpfs", 0, None) + 1
# unmounts
result = libc.umount2(b"/", 2) + 1
# mounts by the newer calls
result = call(430, ctypes.c_char_p(b"tmpfs"), 0)
# copies a mount
result = call(428, -100, ctypes.c_char_p(b"/"), 1)
# changes a mount
result = call(442, -100, ctypes.c_char_p(b"/"), 0, ctypes.c_char_p(b"\\0" * 32), 32) + 1
# changes its root
os.chroot("."); result = "changed"
# pivots its root
result = call(155, ctypes.c_char_p(b"."), ctypes.c_char_p(b".")) + 1
# sets up a ring of kernel requests
result = call(425, 4, ctypes.byref((ctypes.c_uint32 * 30)()))
# loads a kernel program
result = call(321, 0, ctypes.byref((ctypes.c_uint64 * 16)()), 128) + 1
# counts events
result = call(298, ctypes.byref((ctypes.c_uint32 * 32)(1, 128)), 0, -1, -1, 0)
# handles page faults
result = call(323, 0)
# uses the key ring
result = call(250, 0, -3, 1)
# adds a key
result = call(248, ctypes.c_char_p(b"user"), ctypes.c_char_p(b"k"), ctypes.c_char_p(b"v"), 1, -3)
# becomes root
os.setuid(0); result = os.getuid() == 0 and "root" or None
# sets all its users to root
os.setresuid(0, 0, 0); result = "root"
# takes capabilities
header = (ctypes.c_uint32 * 2)(0x20080522, 0); data = (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6)
result = libc.capset(ctypes.byref(header), ctypes.byref(data)) + 1
# holds capabilities
header = (ctypes.c_uint32 * 2)(0x20080522, 0); data = (ctypes.c_uint32 * 6)()
libc.capget(ctypes.byref(header), ctypes.byref(data)); reading_what_landlock_grants = 4
result = [word for word in data if word & ~reading_what_landlock_grants]
# may gain privileges
result = 1 - libc.prctl(39, 0, 0, 0, 0)
# loads a module
result = call(313, 3, ctypes.c_char_p(b""), 0) + 1
# sets the clock
import time
time.clock_settime(time.CLOCK_REALTIME, 0); result = "set"
# names the host
socket.sethostname("escape"); result = "named"
# restarts the machine
result = call(169, 0, 0, 0, 0) + 1
# locks memory
result = libc.mlockall(3) + 1
# makes shared memory that outlives it
result = call(29, 0x7001, 4096, 0o1600) + 1
# makes a message queue
result = call(240, ctypes.c_char_p(b"escape"), 0o102, 0o600, 0)
# leaves its session
result = os.setsid() or "left"
# leaves its group
os.setpgid(0, 0); result = "left"
# installs a filter of its own that lies
result = call(317, 1, 0, 0) + 1
# has a terminal to type into
import fcntl, termios
result = [fd for fd in range(4) if not fcntl.ioctl(fd, termios.TIOCSTI, b"x")]
# raises its limits
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
try:
    resource.setrlimit(resource.RLIMIT_AS, (hard + 1, hard + 1)); result = "raised"
except ValueError as error:
    raise PermissionError(str(error))
# dumps its memory to disk
import resource
result = resource.getrlimit(resource.RLIMIT_CORE)[1]
""")
