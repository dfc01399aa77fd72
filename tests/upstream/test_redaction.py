"""Errors of a server as they reach whoever asked: all that it said, and none of its secrets."""

import asyncio
import json

import msgspec
import pytest
from misbehaving_stdio import misbehaving_spec
from tool_calls import CONTEXT, tool_call

from toolfold.errors import RemoteError
from toolfold.upstream.pool import Pool
from toolfold.upstream.redaction import _redact_json

SECRET = "secret-token-17"  # a value that must never be seen in an error


def test_the_data_of_a_servers_error_comes_without_its_secrets() -> None:
    data = {"url": f"https://x/?key={SECRET}", "tried": [{"header": f"Bearer {SECRET}", SECRET: 1}], "code": 7}
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32050, "message": f"no {SECRET}", "data": data}}
    spec = msgspec.structs.replace(misbehaving_spec("odd", "--era", "legacy"), secrets=(SECRET,))

    async def main() -> RemoteError:
        async with Pool([spec]) as pool:
            with pytest.raises(RemoteError) as caught:
                await pool.call(tool_call("raw_answer", "odd", text=json.dumps(error) + "\n"), CONTEXT)
            return caught.value

    found = asyncio.run(main())
    assert (found.rpc_code, found.message) == (-32050, "no ***")
    assert found.data == {"url": "https://x/?key=***", "tried": [{"header": "Bearer ***", "***": 1}], "code": 7}


def test_data_that_is_nested_too_deeply_to_be_looked_through_is_not_shown() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert _redact_json(deep, (SECRET,)) == "***"
