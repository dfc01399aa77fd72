"""The system-call filter, read as the kernel reads it, for both machines: what is allowed, refused and deadly."""

import errno
import os
import struct

import pytest
from sandbox_lab import CONFINED, Lab

from toolfold.sandbox.seccomp import AARCH64, ALLOW, ALLOWED, GUARDED, KILL, REFUSE, X32, X86_64, build_program

MACHINES = pytest.mark.parametrize("arch", [X86_64, AARCH64], ids=["x86_64", "aarch64"])
EPERM, ENOSYS = REFUSE | errno.EPERM, REFUSE | errno.ENOSYS


def judge(code: bytes, arch: int, number: int, *arguments: int) -> int:
    """Runs the filter on one call."""
    words = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=IIQ6Q", number, arch, 0, *(word & (2**64 - 1) for word in words))
    instructions = list(struct.iter_unpack("=HBBI", code))
    held = place = 0
    while True:
        operation, yes, no, value = instructions[place]
        place += 1
        if operation == 0x06:
            return int(value)
        if operation == 0x20:
            held = struct.unpack_from("=I", data, value)[0]
        elif operation == 0x54:
            held &= value
        else:
            true = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[operation]
            place += yes if true else no


@MACHINES
def test_what_a_program_needs_is_allowed_and_the_rest_refused(arch: int) -> None:
    code = build_program(arch, pid=7)
    known = set(ALLOWED[arch].values()) | set(GUARDED[arch].values())
    assert {judge(code, arch, number) for number in ALLOWED[arch].values()} == {ALLOW}
    assert {judge(code, arch, number) for number in range(424) if number not in known} == {EPERM}
    assert {judge(code, arch, number) for number in range(424, 600) if number not in known} == {ENOSYS}
    assert not set(ALLOWED[arch]) & set(GUARDED[arch])


@MACHINES
def test_another_machine_word_is_deadly(arch: int) -> None:
    code = build_program(arch, pid=7)
    for other in (0x40000003, X86_64 if arch == AARCH64 else AARCH64):
        assert judge(code, other, ALLOWED[arch]["read"]) == KILL
    assert judge(code, arch, X32 | ALLOWED[arch]["read"]) == (KILL if arch == X86_64 else ENOSYS)


@MACHINES
def test_guarded_calls_are_judged_by_their_arguments(arch: int) -> None:
    calls = GUARDED[arch]
    code = build_program(arch, pid=7)
    thread = 0x3D0F00
    assert judge(code, arch, calls["clone"], thread) == ALLOW
    assert judge(code, arch, calls["clone"], 17) == EPERM
    apart = thread & ~0x400
    assert judge(code, arch, calls["clone"], apart) == EPERM
    assert judge(build_program(arch, pid=7, may_fork=True), arch, calls["clone"], apart) == EPERM
    assert judge(code, arch, calls["clone3"]) == ENOSYS
    assert judge(code, arch, calls["socketpair"], 1, 1 | 0o2000000) == ALLOW
    assert [judge(code, arch, calls["socketpair"], *pair) for pair in ((1, 2), (1, 5), (2, 1))] == [EPERM] * 3
    assert judge(code, arch, calls["sendto"], 3, 1, 1, 0, 0, 0) == ALLOW
    assert [judge(code, arch, calls["sendto"], 3, 1, 1, 0, at, 9) for at in (1, 2**32)] == [EPERM] * 2
    more, out_of_band, on_exec, unshared = 0x8000, 0x1, 0x4, 0x2
    assert judge(code, arch, calls["sendto"], 3, 1, 1, more) == ALLOW
    assert judge(code, arch, calls["sendto"], 3, 1, 1, more | out_of_band) == EPERM
    assert [judge(code, arch, calls["recvfrom"], 3, 1, 1, flags) for flags in (more, out_of_band)] == [ALLOW, EPERM]
    assert [judge(code, arch, calls["recvmsg"], 3, 1, flags) for flags in (more, out_of_band)] == [ALLOW, EPERM]
    assert [judge(code, arch, calls["close_range"], 9, 9, flags) for flags in (on_exec, unshared)] == [ALLOW, EPERM]
    assert {"sendmsg", "sendmmsg", "recvmmsg"}.isdisjoint({*calls, *ALLOWED[arch]})
    assert judge(code, arch, calls["kill"], 7, 9) == ALLOW
    assert [judge(code, arch, calls["kill"], pid, 0) for pid in (1, 0, -1, -7, 8)] == [EPERM] * 5
    assert judge(code, arch, calls["prlimit64"], 0) == ALLOW
    assert judge(code, arch, calls["prlimit64"], 1) == EPERM
    assert judge(code, arch, calls["prctl"], 15) == ALLOW
    assert [judge(code, arch, calls["prctl"], option) for option in (4, 22, 24, 35, 36, 47)] == [EPERM] * 6
    assert judge(build_program(arch, pid=7, may_fork=True), arch, calls["prctl"], 36) == ALLOW
    assert judge(code, arch, calls["ioctl"], 1, 0x5401) == ALLOW
    assert judge(code, arch, calls["ioctl"], 1, 0x5412) == REFUSE | errno.ENOTTY
    assert judge(code, arch, calls["fcntl"], 3, 2) == ALLOW
    assert judge(code, arch, calls["fcntl"], 3, 8) == EPERM
    assert judge(code, arch, calls["fchmodat"]) == EPERM


@MACHINES
@pytest.mark.parametrize("flag", [0x80, 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000])
@pytest.mark.parametrize("may_fork", [False, True])
def test_no_clone_makes_a_namespace(arch: int, flag: int, may_fork: bool) -> None:
    code = build_program(arch, pid=7, may_fork=may_fork)
    for flags in (flag, flag | 17, flag | 0x3D0F00):
        assert judge(code, arch, GUARDED[arch]["clone"], flags) == EPERM


@MACHINES
def test_a_session_that_may_fork_may_fork(arch: int) -> None:
    code = build_program(arch, pid=7, may_fork=True, may_signal=True)
    assert judge(code, arch, GUARDED[arch]["clone"], 0x1200011) == ALLOW
    assert judge(code, arch, GUARDED[arch]["kill"], 8, 9) == ALLOW


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="only there is a second way into the kernel")
@pytest.mark.parametrize("way", CONFINED)
def test_the_x32_way_into_the_kernel_is_deadly(lab: Lab, way: str) -> None:
    end = lab.attack(way, f"call({X32 + 39})").exit
    assert (end.ending, end.signal) == ("crashed", 31)
