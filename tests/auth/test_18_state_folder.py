"""A sign-in before the first build has the folder that the build will have, and no other configuration takes it."""

import asyncio
import os
import shutil
import stat
import sys
from pathlib import Path

import pytest
from sign_in_kit import MarkedHttp

KEY = b"a-key-that-nobody-sees\n"


async def toolfold(folder: Path, *arguments: str, stdin: bytes = b"") -> tuple[int, str]:
    """A command without a terminal; its exit code, and all that it said."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "toolfold", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=folder,
        env={**os.environ, "TOOLFOLD_HOME": str(folder / "home"), "HOME": str(folder)},
    )
    async with asyncio.timeout(60):
        said, _ = await process.communicate(stdin)
    return process.returncode or 0, " ".join(said.decode().split())


@pytest.mark.usefixtures("no_proxy")
async def test_a_sign_in_before_the_build_is_found_by_it(tmp_path: Path) -> None:
    async with MarkedHttp(api_keys={KEY.decode().strip(): "ada"}) as server:
        for name in ("one", "two"):
            (tmp_path / f"{name}.toml").write_text(f'[servers.{name}]\nurl = "{server.url}"\n')
        for name in ("one", "two"):
            code, said = await toolfold(
                tmp_path, "--config", f"{name}.toml", "login", name, "--header", "X-Api-Key", stdin=KEY
            )
            assert code == 0, said
            assert ("is another file's: the state of" in said) == (name == "two")
        for name in ("one", "two"):
            code, said = await toolfold(tmp_path, "--config", f"{name}.toml", "build", "--no-search")
            assert code == 0, said
            assert "1 tool of 1 server" in said
        # A copy of both is another configuration: who misses a sign-in hears where it is looked for.
        other = tmp_path / "other"
        shutil.copytree(tmp_path / "home", other / "home")
        shutil.copy(tmp_path / "one.toml", other)
        for command in (("call", "one.whoami"), ("servers",)):
            _, said = await toolfold(other, "--config", "one.toml", *command)
            assert said.count("is another file's: the state of") == 1, said


async def test_a_folder_that_trust_made_is_for_its_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "toolfold.toml").write_text('[servers.box]\ncommand = "true"\n')
    code, said = await toolfold(tmp_path, "trust", "--project")
    assert code == 0, said
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700
