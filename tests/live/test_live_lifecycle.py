"""How a session goes: dying between two requests, and starts that fail."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from toolfold import Gateway, LiveSession, Settings
from toolfold.errors import ConfigError, SandboxError, ToolfoldError
from toolfold.live.session import WORKER_ENTRY, LiveLimits
from toolfold.sandbox.base import Child
from toolfold.sandbox.zygote import Zygote

# It holds one pipe open for as long as it lives, and leaves when somebody opens the other.
LEAVES = """
import os, threading
held = os.open({alive!r}, os.O_WRONLY)
def leave():
    os.open({go!r}, os.O_RDONLY)
    os._exit(3)
threading.Thread(target=leave, daemon=True).start()
name_of_mine = 1
"""


async def dies(session: LiveSession, folder: Path) -> None:
    """The session dies while nobody asks it anything."""
    alive, go = folder / "alive", folder / "go"
    os.mkfifo(alive)
    os.mkfifo(go)
    watching = asyncio.ensure_future(asyncio.to_thread(alive.read_bytes))
    assert (await session.execute(LEAVES.format(alive=str(alive), go=str(go))))["ok"]
    assert await session.complete("name_of_")
    await asyncio.to_thread(go.write_bytes, b"")
    await watching


@pytest.mark.requirement("L-12")
def test_a_session_that_dies_between_two_requests_is_told_with_the_next_answer(tmp_path: Path) -> None:
    async def main() -> tuple[Any, Any]:
        async with LiveSession(trusted=True) as session:
            await dies(session, tmp_path)
            return await session.execute("y = 2"), await session.list_globals()

    answer, after = asyncio.run(main())
    assert answer["error"]["code"] == "session_lost"
    assert "left with exit code 3" in answer["error"]["message"]
    assert after == {"ok": True, "result": {"globals": []}}


@pytest.mark.requirement("L-12")
def test_completing_words_does_not_swallow_that_the_session_was_lost(tmp_path: Path) -> None:
    async def main() -> Any:
        async with LiveSession(trusted=True) as session:
            await dies(session, tmp_path)
            assert await session.complete("name_of_") == []
            assert await session.complete("name_of_") == []
            return await session.eval_expr("1"), await session.eval_expr("1")

    lost, after = asyncio.run(main())
    assert lost["error"]["code"] == "session_lost"
    assert after["ok"]


class Broken:
    """Children of a zygote, dead on arrival as long as `broken`."""

    def __init__(self, zygote: Zygote) -> None:
        self._zygote = zygote
        self.taken: list[Child] = []
        self.broken = True

    async def take(self) -> Child:
        child = await self._zygote.take()
        self.taken.append(child)
        if self.broken:
            child.kill()
            await child.wait()
        return child


async def test_a_start_that_fails_leaves_nothing_behind_and_a_lost_session_begins_again() -> None:
    async with Zygote(WORKER_ENTRY, limits=LiveLimits().sandbox_limits(), ready=0) as zygote:
        children = Broken(zygote)
        session = LiveSession(children=children)  # type: ignore[arg-type]  # it has what is used
        with pytest.raises(ToolfoldError):
            await session.__aenter__()
        with pytest.raises(SandboxError, match="no scratch folder any more"):
            _ = children.taken[0].scratch
        children.broken = False
        async with session:
            children.taken[-1].kill()
            await children.taken[
                -1
            ].wait()  # one that dies during the request answers it, and begins anew with the next
            children.broken = True
            with pytest.raises(ToolfoldError):
                await session.eval_expr("1")
            children.broken = False
            assert (await session.eval_expr("1"))["error"]["code"] == "session_lost"
            assert (await session.eval_expr("6 * 7"))["result"]["value_repr"] == "42"


async def test_a_folder_that_does_not_exist_starts_no_session(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="no Python process could be started"):
        await LiveSession(trusted=True, cwd=tmp_path / "nowhere").__aenter__()


async def test_an_assistant_needs_a_model(tmp_path: Path) -> None:
    async with Gateway(Settings(home=tmp_path)) as gateway:
        with pytest.raises(ConfigError, match="no model is configured"):
            gateway.live_sessions.assistant(gateway.live(), None)  # type: ignore[arg-type]  # nobody listens
