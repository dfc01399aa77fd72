"""Each JSON body of a public test suite, sent by a hostile server, is answered or refused, and nothing breaks."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
from misbehaving_http import MisbehavingHttp
from misbehaving_stdio import misbehaving
from msgspec import Raw
from wire_helpers import QUICK, opened, raw, text_of

from toolfold.errors import UpstreamError
from toolfold.wire import Connection

AT_MOST_S = 0.9


@pytest.fixture(scope="module")
def bodies(shared_data: Path) -> list[Path]:
    files = sorted((shared_data / "suites" / "json-test-suite").rglob("*.json"))
    assert len(files) >= 318
    return files


async def ask(connection: Connection, tool: str, body: bytes, timeout_s: float) -> Raw | None:
    """The answer, or nothing where it was refused. Anything but an `UpstreamError` is a crash."""
    arguments = raw({"text": body.decode("latin-1")})
    try:
        async with asyncio.timeout(1):
            return await connection.call_tool(tool, arguments, timeout_s=timeout_s)
    except UpstreamError:
        return None


def test_bodies_as_results_are_passed_on_or_refused_at_once(bodies: list[Path]) -> None:
    """A result that is valid JSON comes through to the letter, one that is not is refused without waiting."""

    async def main() -> None:
        async with opened(misbehaving(), QUICK) as connection:
            for file in bodies:
                body = file.read_bytes()
                answer = await ask(connection, "raw_result", body, AT_MOST_S)
                if file.name.startswith("y_") and b"\n" not in body:
                    assert answer is not None, file.name
                    assert json.loads(bytes(answer)) == json.loads(body), file.name
            assert text_of(await connection.call_tool("big", raw({"bytes": 3}))) == "xxx"

    asyncio.run(main())


def test_bodies_in_place_of_answers_break_nothing(bodies: list[Path]) -> None:
    """They are no answers, so each request runs into its deadline, many at a time."""

    async def main() -> None:
        async with opened(misbehaving(), QUICK) as connection:
            for start in range(0, len(bodies), 32):
                some = [file.read_bytes() for file in bodies[start : start + 32]]
                answers = await asyncio.gather(*(ask(connection, "raw_answer", body, 0.3) for body in some))
                assert answers == [None] * len(some)
                assert text_of(await connection.call_tool("big", raw({"bytes": 3}))) == "xxx"

    asyncio.run(main())


def test_bodies_as_http_answers_are_refused_at_once(bodies: list[Path]) -> None:
    async def main() -> None:
        async with MisbehavingHttp() as server, opened(server.target, QUICK) as connection:
            for file in bodies:
                server.garbage["tools/call"] = file.read_bytes()
                assert await ask(connection, "echo", b"", AT_MOST_S) is None, file.name
            server.garbage.clear()
            assert text_of(await connection.call_tool("big", raw({"bytes": 3}))) == "xxx"

    asyncio.run(main())


def test_a_list_of_tools_may_hold_anything(bodies: list[Path]) -> None:
    """Valid bodies as entries of the list: none is a tool, none hurts."""

    async def main() -> None:
        async with MisbehavingHttp() as server, opened(server.target, QUICK) as connection:
            for file in bodies:
                body = file.read_bytes()
                try:
                    msgspec.json.decode(body)
                except (msgspec.MsgspecError, UnicodeError, RecursionError):
                    continue
                number = connection.next_number() + 1
                server.garbage["tools/list"] = b'{"id":%d,"result":{"tools":[%b]}}' % (number, body)
                found = await connection.list_tools()
                assert (found.tools, len(found.warnings)) == ((), 1), file.name

    asyncio.run(main())
