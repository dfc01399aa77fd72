"""What a killed process left in the temporary folder goes; what is in use stays."""

import asyncio
import os
import tempfile
from pathlib import Path

import pytest

from toolfold.sandbox.zygote import Zygote
from toolfold.sandbox.zygote_handle import _PREFIX, _lock, _sweep_leftovers

OLD = (1_000_000_000, 1_000_000_000)


def folder(base: Path, name: str, *, old: bool = True) -> Path:
    made = base / f"{_PREFIX}{name}"
    (made / "1" / "deep").mkdir(parents=True)
    (made / "1" / "file").write_text("left")
    if old:
        os.utime(made, OLD)
    return made


def test_15_18_only_what_nobody_uses_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, used, fresh = folder(tmp_path, "left"), folder(tmp_path, "used"), folder(tmp_path, "fresh", old=False)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"{_PREFIX}link").symlink_to(elsewhere)
    os.utime(tmp_path / f"{_PREFIX}link", OLD, follow_symlinks=False)
    descriptor = _lock(used)
    try:
        _sweep_leftovers()
    finally:
        os.close(descriptor)
    assert not left.exists()
    assert used.exists()
    assert fresh.exists()
    assert elsewhere.exists()


def test_15_18_the_next_start_removes_them_and_keeps_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tmp_path.chmod(0o755)
    left = folder(tmp_path, "left")

    def age_and_sweep() -> bool:
        (own,) = tmp_path.iterdir()
        os.utime(own, OLD)
        _sweep_leftovers()
        return own.exists()

    async def scene() -> bool:
        async with (
            asyncio.timeout(30),
            Zygote("toolfold.live.worker.supervisor:main", ready=0) as zygote,
            await zygote.take(),
        ):
            while await asyncio.to_thread(left.exists):  # noqa: ASYNC110 - a removed folder has no event
                await asyncio.sleep(0.01)
            return await asyncio.to_thread(age_and_sweep)

    assert asyncio.run(scene())
    assert not list(tmp_path.iterdir())
