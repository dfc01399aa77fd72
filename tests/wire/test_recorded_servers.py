"""Recorded real servers, replayed through a real process: every tool arrives, none altered."""

import asyncio
import json
from pathlib import Path

import pytest
from misbehaving_stdio import misbehaving
from wire_helpers import QUICK, opened, value


@pytest.mark.requirement("G-01")
@pytest.mark.parametrize("switches", [(), ("--pages", "3", "--noise")], ids=["plain", "pages and noise"])
def test_every_tool_of_every_recorded_server_arrives_unaltered(shared_data: Path, switches: tuple[str, ...]) -> None:
    recordings = {file: json.loads(file.read_text()) for file in sorted((shared_data / "servers").glob("*.json"))}

    async def one(file: Path) -> int:
        recorded = recordings[file]
        async with opened(misbehaving("--era", "legacy", "--replay", str(file), *switches), QUICK) as connection:
            found = await connection.list_tools()
            assert [value(tool) for tool in found.tools] == recorded["tools"], file.name
            sent = [json.dumps(tool, ensure_ascii=False, separators=(",", ":")) for tool in recorded["tools"]]
            assert [bytes(tool).decode() for tool in found.tools] == sent, file.name
            assert value(connection.capabilities) == recorded["initialize"]["capabilities"]
            assert connection.info.protocol_version == recorded["initialize"]["protocolVersion"]
            return len(found.tools)

    async def main() -> list[int]:
        few = asyncio.Semaphore(4)

        async def bounded(file: Path) -> int:
            async with few:
                return await one(file)

        return await asyncio.gather(*(bounded(file) for file in recordings))

    counts = asyncio.run(main())
    assert len(counts) == 88
    assert sum(counts) == 2687
