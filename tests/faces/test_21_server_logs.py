"""Log messages that a server sends over the protocol are kept, whether or not a client may have them."""

import asyncio
import time
from pathlib import Path

import pytest
from leaf_servers import Leaves, met

from toolfold.__main__ import main

SECRET = "sk-abcdefabcdefabcdefabcdef123456"
MESSAGES = [
    ({"level": "warning", "logger": "db", "data": f"slow with {SECRET}"}, "warning: db: slow with "),
    ({"level": "error", "data": {"code": 7}}, 'error: {"code": 7}'),
    ({"level": 3, "logger": ["x"], "data": "odd\x1b[31m"}, "info: odd\\x1b[31m"),
    ({"data": "x" * 100_000}, "info: xxx"),
]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_log_messages_of_a_server_are_kept(era: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leaves = Leaves(tmp_path)

    async def play() -> None:
        async with met(leaves, era) as (client, _):
            for params, _line in MESSAGES:
                args = {"method": "notifications/message", "params": params}
                await client.call_tool("call_tool", {"tool_id": "docs.tell", "args": args})

    asyncio.run(play())
    deadline, kept = time.monotonic() + 30, ""
    while not all(line in kept for _, line in MESSAGES):
        assert time.monotonic() < deadline, kept
        main(["--config", str(leaves.config), "--home", str(leaves.home), "logs", "docs"])
        kept = capsys.readouterr().out
    assert SECRET not in kept
    assert max(map(len, kept.splitlines())) < 700
