"""What the host counts of a child where no file system bounds it: files without a name, and groups of processes."""

import ctypes
import mmap
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from toolfold.sandbox import cgroups
from toolfold.sandbox.scratch import _within_limits

MIB = 1 << 20


def unlinked_file(folder: Path) -> int:
    """A descriptor of a file of one mebibyte that has no name any more."""
    path = folder / "file"
    path.write_bytes(bytes(MIB))
    descriptor = os.open(path, os.O_RDWR)
    path.unlink()
    return descriptor


def in_a_process_of_its_own(check: Callable[[Path], None], folder: Path) -> None:
    """Everything that a process holds open counts, and this one holds whatever other tests left open."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import {Path(__file__).stem} as tests; "
    code += f"from pathlib import Path; tests.{check.__name__}(Path({str(folder)!r}))"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_file_that_is_only_open_counts_and_one_that_python_maps_counts_once(tmp_path: Path) -> None:
    in_a_process_of_its_own(check_open_and_mapped, tmp_path)


def check_open_and_mapped(tmp_path: Path) -> None:
    descriptor = unlinked_file(tmp_path)
    with mmap.mmap(descriptor, 4096) as mapped:
        os.close(descriptor)  # the mapping has a copy of it
        assert mapped[0] == 0
        assert _within_limits(tmp_path, os.getpid(), MIB + 64 * 1024, 10)
        assert not _within_limits(tmp_path, os.getpid(), MIB - 1, 10)
    assert _within_limits(tmp_path, os.getpid(), 64 * 1024, 10)


def test_a_file_that_is_only_mapped_counts_whole(tmp_path: Path) -> None:
    in_a_process_of_its_own(check_only_mapped, tmp_path)


def check_only_mapped(tmp_path: Path) -> None:
    descriptor = unlinked_file(tmp_path)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_size_t
    libc.mmap.argtypes = [ctypes.c_size_t] * 6
    libc.munmap.argtypes = [ctypes.c_size_t] * 2
    address = libc.mmap(0, 4096, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    os.close(descriptor)
    try:
        assert not _within_limits(tmp_path, os.getpid(), MIB - 1, 10)
    finally:
        libc.munmap(address, 4096)
    assert _within_limits(tmp_path, os.getpid(), MIB - 1, 10)


def test_a_file_with_two_names_counts_once(tmp_path: Path) -> None:
    in_a_process_of_its_own(check_two_names, tmp_path)


def check_two_names(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(bytes(MIB))
    (tmp_path / "two").hardlink_to(tmp_path / "one")
    assert _within_limits(tmp_path, os.getpid(), MIB + 64 * 1024, 10)


def grouped(root: Path, own: str) -> list[str]:
    """Where groups would be made, for a process in the group `own`, by the second version of the interface."""
    (root / "cgroup.controllers").write_text("memory pids")
    listed = root / "listed"
    listed.write_text(f"0::{own}\n")
    return [Path(path).relative_to(root).as_posix() for _, path in cgroups._parent_groups(str(root), str(listed))]


def test_groups_are_made_within_the_own_group_only(tmp_path: Path) -> None:
    (tmp_path / "system.slice/toolfold.service").mkdir(parents=True)
    assert grouped(tmp_path, "/system.slice/toolfold.service") == ["system.slice/toolfold.service"]
    assert grouped(tmp_path, "/") == ["."]


def test_the_group_around_counts_as_own_where_it_was_handed_over(tmp_path: Path) -> None:
    service = tmp_path / "system.slice/toolfold.service"
    (service / "main").mkdir(parents=True)
    try:
        os.setxattr(service, "user.delegate", b"1")
    except OSError:
        pytest.skip("the file system of the temporary folder keeps no attributes")
    assert grouped(tmp_path, "/system.slice/toolfold.service/main") == [
        "system.slice/toolfold.service/main",
        "system.slice/toolfold.service",
    ]
