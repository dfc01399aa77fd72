"""A confirmation as a real client sees it: the official SDK over stdio, in both eras of the protocol."""

import asyncio
import json
import os
import sys
from typing import Any

import pytest
from mcp import Client, ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client

import fork_server
from toolfold.demo.data import make_demo_data

ASK = {"tool_id": "files.list", "args": {}}


class Person:
    """Somebody in front of a client, who answers every form the same way."""

    def __init__(self, action: Any) -> None:
        self.action = action
        self.asked: list[str] = []

    async def answer(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params.message)
        content = {"confirm": True} if self.action == "accept" else None
        return types.ElicitResult(action=self.action, content=content)  # type: ignore[arg-type]  # invariant dict


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> StdioServerParameters:
    folder = tmp_path_factory.mktemp("project")
    data = make_demo_data(folder / "data")
    arguments = json.dumps(["-P", "-m", "toolfold.demo.files", str(data.files)])
    (folder / "toolfold.toml").write_text(
        f"[servers.files]\ncommand = {json.dumps(sys.executable)}\nargs = {arguments}\n"
        '[policy.default]\nconfirm = ["files.list"]\n',
        encoding="utf-8",
    )
    env = {
        "PATH": os.environ["PATH"],
        "TOOLFOLD_TRUST_PROJECT": "1",
        "HOME": str(folder),
        "TOOLFOLD_HOME": str(folder / "state"),
    }
    fork_server.run([sys.executable, "-m", "toolfold", "build"], cwd=folder, env=env, check=True, capture_output=True)
    return StdioServerParameters(command=sys.executable, args=["-m", "toolfold", "serve"], cwd=str(folder), env=env)


async def legacy(server: StdioServerParameters, person: Person | None) -> str:
    async with (
        stdio_client(server) as (read, write),
        ClientSession(read, write, elicitation_callback=person.answer if person else None) as session,
    ):
        await session.initialize()
        return text_of(await session.call_tool("call_tool", ASK))


async def modern(server: StdioServerParameters, person: Person | None) -> str:
    async with Client(stdio_client(server), elicitation_callback=person.answer if person else None) as client:
        return text_of(await client.call_tool("call_tool", ASK))


def text_of(result: Any) -> str:
    return str(result.content[0].text)


@pytest.mark.requirement("G-05")
@pytest.mark.parametrize("connect", [legacy, modern])
def test_a_person_is_asked_through_the_client_and_their_word_holds(server: StdioServerParameters, connect: Any) -> None:
    yes, no = Person("accept"), Person("decline")
    assert "README.md" in asyncio.run(asyncio.wait_for(connect(server, yes), 60))
    assert "CONFIRMATION_DECLINED" in asyncio.run(asyncio.wait_for(connect(server, no), 60))
    assert "CONFIRMATION_NEEDED" in asyncio.run(asyncio.wait_for(connect(server, None), 60))
    assert ["files.list (only reads)?" in asked[0] for asked in (yes.asked, no.asked)] == [True, True]
