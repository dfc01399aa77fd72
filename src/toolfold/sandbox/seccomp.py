"""The system-call filter: a small program in the kernel's own language, written as bytes.

It is a list of what is allowed; all else is refused. It knows x86_64 and aarch64; any other architecture, and the x32
way into the first, kills the process. Standard library only. Above: `confinement.py`. Below: one prctl.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Sequence

from toolfold.sandbox.libc import PR_SET_SECCOMP, prctl

X86_64 = 0xC000003E
AARCH64 = 0xC00000B7

_FILTER_MODE = 2
_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_ANY_BIT = 0x15, 0x35, 0x45
ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
# Offsets in what the filter is given.
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16

# Set in the number of every x32 call: its tables differ from those of x86_64.
X32 = 0x40000000
# Calls from here on are young: a C library tries them and falls back when they are said not to exist.
_NEWEST_GROUP = 424
_NAMESPACE_FLAGS = 0x7E020080
_THREAD, _SAME_FILES = 0x00010000, 0x00000400
# Of `close_range`: descriptors of a thread's own, where nobody would look for them.
_UNSHARE = 0x2
# Of sends and receives: a part of Unix sockets that nothing needs, and that was a way into the kernel before.
_OUT_OF_BAND = 0x1
_UNIX, _STREAM, _TYPE_MASK = 1, 1, 0xF
# Is it a terminal, its size, bytes available, non-blocking mode, close on exec or not.
_IOCTL_ALLOWED = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# The parent-death signal, whether it may dump, its name, its filter, its bounding set, no_new_privs, memory names.
_PRCTL_ALLOWED = (1, 2, 3, 15, 16, 21, 23, 38, 39, 0x53564D41)
# PR_SET_CHILD_SUBREAPER, for those who may have children: they adopt orphans among their own descendants.
_PRCTL_OF_PARENTS = (36,)
# Who is signalled, by which signal, leases, notices of a folder: each reaches other processes or files.
_FCNTL_DENIED = (8, 10, 15, 1024, 1026)

_Instruction = tuple[int, int, int, int]


def audit_arch() -> int | None:
    """The kernel's number of this machine's architecture; `None` where there is no filter for it."""
    return {"x86_64": X86_64, "aarch64": AARCH64}.get(os.uname().machine)


def _return(action: int) -> _Instruction:
    return (_RETURN, 0, 0, action)


def _refuse(number: int = errno.EPERM) -> _Instruction:
    return _return(REFUSE | number)


def _load_argument(index: int, *, high: bool = False) -> _Instruction:
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * index + (4 if high else 0))


def _switch(index: int, values: Sequence[int], match: _Instruction, otherwise: _Instruction) -> list[_Instruction]:
    """Decides by whether the argument is one of a few values."""
    body = [_load_argument(index)]
    for value in values:
        body += [(_JUMP_EQUAL, 0, 1, value), match]
    return [*body, otherwise]


def _allow_only(index: int, values: Sequence[int], number: int = errno.EPERM) -> list[_Instruction]:
    return _switch(index, values, _return(ALLOW), _refuse(number))


def _without_bits(index: int, bits: int, then: Sequence[_Instruction] = ()) -> list[_Instruction]:
    """Refuses when the argument has any of the bits; else allows, or goes on with `then`."""
    return [_load_argument(index), (_JUMP_ANY_BIT, 0, 1, bits), _refuse(), *(then or [_return(ALLOW)])]


def _clone_guard(*, may_fork: bool) -> list[_Instruction]:
    """Allows threads that share their descriptors, processes where `may_fork`, namespaces never."""
    kind: _Instruction = (_AND, 0, 0, _THREAD | _SAME_FILES)
    if may_fork:
        return _without_bits(0, _NAMESPACE_FLAGS, [kind, (_JUMP_EQUAL, 0, 1, _THREAD), _refuse(), _return(ALLOW)])
    thread: _Instruction = (_JUMP_EQUAL, 0, 1, _THREAD | _SAME_FILES)
    return _without_bits(0, _NAMESPACE_FLAGS, [kind, thread, _return(ALLOW), _refuse()])


def _socketpair_guard() -> list[_Instruction]:
    """Allows what asyncio wakes itself with. A pair of datagram sockets could send to any path, so streams only."""
    return [
        _load_argument(0),
        (_JUMP_EQUAL, 0, 4, _UNIX),
        _load_argument(1),
        (_AND, 0, 0, _TYPE_MASK),
        (_JUMP_EQUAL, 0, 1, _STREAM),
        _return(ALLOW),
        _refuse(),
    ]


def _sendto_guard() -> list[_Instruction]:
    """Allows sending to the peer alone, not to an address: both halves of the pointer are zero."""
    no_address = [_load_argument(4), (_JUMP_EQUAL, 0, 3, 0), _load_argument(4, high=True), (_JUMP_EQUAL, 0, 1, 0)]
    return _without_bits(3, _OUT_OF_BAND, [*no_address, _return(ALLOW), _refuse()])


def _guards(*, pid: int, may_fork: bool, may_signal: bool, may_change_modes: bool) -> dict[str, list[_Instruction]]:
    """What to do about each guarded call. `may_signal`: other layers keep signals within the child's own family."""
    allow, refuse = [_return(ALLOW)], [_refuse()]
    to_itself = allow if may_signal else _allow_only(0, [pid])
    forks = allow if may_fork else refuse
    modes = ("chmod", "fchmod", "fchmodat", "fchmodat2", "utime", "utimes", "utimensat", "futimesat")
    return {
        "clone": _clone_guard(may_fork=may_fork),
        # Its flags lie in memory, where a filter cannot look; the C library falls back to clone.
        "clone3": [_refuse(errno.ENOSYS)],
        "fork": forks,
        "vfork": forks,
        "socketpair": _socketpair_guard(),
        "kill": to_itself,
        "tgkill": to_itself,
        "tkill": refuse,
        "prctl": _allow_only(0, (*_PRCTL_ALLOWED, *(_PRCTL_OF_PARENTS if may_fork else ()))),
        "ioctl": _allow_only(1, _IOCTL_ALLOWED, errno.ENOTTY),
        "prlimit64": _allow_only(0, [0, pid]),
        "sendto": _sendto_guard(),
        "recvfrom": _without_bits(3, _OUT_OF_BAND),
        "recvmsg": _without_bits(2, _OUT_OF_BAND),
        "close_range": _without_bits(2, _UNSHARE),
        "fcntl": _switch(1, _FCNTL_DENIED, _refuse(), _return(ALLOW)),
        **dict.fromkeys(modes, allow if may_change_modes else refuse),
    }


def build_program(
    arch: int | None, *, pid: int, may_fork: bool = False, may_signal: bool = False, may_change_modes: bool = False
) -> bytes:
    """Builds the whole filter for one architecture."""
    if arch is None:
        raise OSError(f"there is no system-call filter for {os.uname().machine}")
    code: list[_Instruction] = [(_LOAD, 0, 0, _ARCH), (_JUMP_EQUAL, 1, 0, arch), _return(KILL), (_LOAD, 0, 0, _NUMBER)]
    if arch == X86_64:
        code += [(_JUMP_GREATER_EQUAL, 0, 1, X32), _return(KILL)]
    for number in ALLOWED[arch].values():
        code += [(_JUMP_EQUAL, 0, 1, number), _return(ALLOW)]
    guards = _guards(pid=pid, may_fork=may_fork, may_signal=may_signal, may_change_modes=may_change_modes)
    for name, number in GUARDED[arch].items():
        code += [(_JUMP_EQUAL, 0, len(guards[name]), number), *guards[name]]
    code += [(_JUMP_GREATER_EQUAL, 0, 1, _NEWEST_GROUP), _refuse(errno.ENOSYS), _refuse()]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install(program: bytes) -> None:
    """Puts the filter on this process, for good. The caller has set no_new_privs."""
    prctl(PR_SET_SECCOMP, _FILTER_MODE, ctypes.byref(_Program(len(program) // 8, program)))


def _table(text: str) -> dict[str, int]:
    return {name: int(number) for name, number in (pair.split("=") for pair in text.split())}


# Harmless with any arguments, given the other layers.
ALLOWED = {
    X86_64: _table("""
    access=21 alarm=37 arch_prctl=158 brk=12 capget=125 chdir=80 clock_getres=229 clock_gettime=228
    clock_nanosleep=230 close=3 copy_file_range=326 creat=85 dup=32 dup2=33 dup3=292 epoll_create=213
    epoll_create1=291 epoll_ctl=233 epoll_pwait=281 epoll_pwait2=441 epoll_wait=232 eventfd=284 eventfd2=290 exit=60
    exit_group=231 faccessat=269 faccessat2=439 fadvise64=221 fallocate=285 fchdir=81 fdatasync=75 fgetxattr=193
    flistxattr=196 flock=73 fstat=5 fstatfs=138 fsync=74 ftruncate=77 futex=202 futex_waitv=449 get_mempolicy=239
    getcpu=309 getcwd=79 getdents=78 getdents64=217 getegid=108 geteuid=107 getgid=104 getgroups=115 getitimer=36
    getpeername=52 getpgid=121 getpgrp=111 getpid=39 getppid=110 getpriority=140 getrandom=318 getresgid=120
    getresuid=118 getrlimit=97 getrusage=98 getsid=124 getsockname=51 getsockopt=55 gettid=186 gettimeofday=96
    getuid=102 getxattr=191 lgetxattr=192 link=86 linkat=265 listxattr=194 llistxattr=195 lseek=8 lstat=6 madvise=28
    membarrier=324 mincore=27 mkdir=83 mkdirat=258 mmap=9 mprotect=10 mremap=25 msync=26 munmap=11 nanosleep=35
    newfstatat=262 open=2 openat=257 openat2=437 pause=34 pipe=22 pipe2=293 poll=7 ppoll=271 pread64=17 preadv=295
    preadv2=327 pselect6=270 pwrite64=18 pwritev=296 pwritev2=328 read=0 readahead=187 readlink=89 readlinkat=267
    readv=19 rename=82 renameat=264 renameat2=316 restart_syscall=219 rmdir=84 rseq=334
    rt_sigaction=13 rt_sigpending=127 rt_sigprocmask=14 rt_sigreturn=15 rt_sigsuspend=130 rt_sigtimedwait=128
    sched_get_priority_max=146 sched_get_priority_min=147 sched_getaffinity=204 sched_getparam=143
    sched_getscheduler=145 sched_rr_get_interval=148 sched_yield=24 select=23 sendfile=40
    set_robust_list=273 set_tid_address=218 setitimer=38 setrlimit=160 setsockopt=54 shutdown=48 sigaltstack=131
    signalfd=282 signalfd4=289 stat=4 statfs=137 statx=332 symlink=88 symlinkat=266 sync_file_range=277 sysinfo=99
    time=201 timer_create=222 timer_delete=226 timer_getoverrun=225 timer_gettime=224 timer_settime=223
    timerfd_create=283 timerfd_gettime=287 timerfd_settime=286 times=100 truncate=76 umask=95 uname=63 unlink=87
    unlinkat=263 wait4=61 waitid=247 write=1 writev=20
    """),
    AARCH64: _table("""
    brk=214 capget=90 chdir=49 clock_getres=114 clock_gettime=113 clock_nanosleep=115 close=57
    copy_file_range=285 dup=23 dup3=24 epoll_create1=20 epoll_ctl=21 epoll_pwait=22 epoll_pwait2=441 eventfd2=19
    exit=93 exit_group=94 faccessat=48 faccessat2=439 fadvise64=223 fallocate=47 fchdir=50 fdatasync=83 fgetxattr=10
    flistxattr=13 flock=32 fstat=80 fstatfs=44 fsync=82 ftruncate=46 futex=98 futex_waitv=449 get_mempolicy=236
    getcpu=168 getcwd=17 getdents64=61 getegid=177 geteuid=175 getgid=176 getgroups=158 getitimer=102 getpeername=205
    getpgid=155 getpid=172 getppid=173 getpriority=141 getrandom=278 getresgid=150 getresuid=148 getrlimit=163
    getrusage=165 getsid=156 getsockname=204 getsockopt=209 gettid=178 gettimeofday=169 getuid=174 getxattr=8
    lgetxattr=9 linkat=37 listxattr=11 llistxattr=12 lseek=62 madvise=233 membarrier=283 mincore=232 mkdirat=34
    mmap=222 mprotect=226 mremap=216 msync=227 munmap=215 nanosleep=101 newfstatat=79 openat=56 openat2=437 pipe2=59
    ppoll=73 pread64=67 preadv=69 preadv2=286 pselect6=72 pwrite64=68 pwritev=70 pwritev2=287 read=63 readahead=213
    readlinkat=78 readv=65 renameat=38 renameat2=276 restart_syscall=128 rseq=293
    rt_sigaction=134 rt_sigpending=136 rt_sigprocmask=135 rt_sigreturn=139 rt_sigsuspend=133 rt_sigtimedwait=137
    sched_get_priority_max=125 sched_get_priority_min=126 sched_getaffinity=123 sched_getparam=121
    sched_getscheduler=120 sched_rr_get_interval=127 sched_yield=124 sendfile=71 set_robust_list=99
    set_tid_address=96 setitimer=103 setrlimit=164 setsockopt=208 shutdown=210 sigaltstack=132 signalfd4=74 statfs=43
    statx=291 symlinkat=36 sync_file_range=84 sysinfo=179 timer_create=107 timer_delete=111 timer_getoverrun=109
    timer_gettime=108 timer_settime=110 timerfd_create=85 timerfd_gettime=87 timerfd_settime=86 times=153 truncate=45
    umask=166 uname=160 unlinkat=35 wait4=260 waitid=95 write=64 writev=66
    """),
}

# Judged by their arguments. What stands in neither table is refused.
GUARDED = {
    X86_64: _table("""
    clone=56 clone3=435 fork=57 vfork=58 socketpair=53 kill=62 tkill=200 tgkill=234 prctl=157 ioctl=16 prlimit64=302
    sendto=44 recvfrom=45 recvmsg=47 close_range=436 fcntl=72 chmod=90 fchmod=91 fchmodat=268 utime=132 utimes=235
    utimensat=280 futimesat=261 fchmodat2=452
    """),
    AARCH64: _table("""
    clone=220 clone3=435 socketpair=199 kill=129 tkill=130 tgkill=131 prctl=167 ioctl=29 prlimit64=261 sendto=206
    recvfrom=207 recvmsg=212 close_range=436 fcntl=25 fchmod=52 fchmodat=53 utimensat=88 fchmodat2=452
    """),
}
