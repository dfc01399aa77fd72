"""What a server remembers of its clients holds on to none of their messages."""

import asyncio
import sys

import msgspec
from msgspec import Raw, Struct
from serving_helpers import EchoApp

from toolfold.types import LOCAL
from toolfold.wire.serving import Server
from toolfold.wire.serving.exchange import parse_params
from toolfold.wire.types import MODERN_VERSION


class Message(Struct):
    params: Raw


def message(more: str = "", filling: str = "x") -> bytes:
    prefix = "io.modelcontextprotocol/"
    meta = f'{{"{prefix}protocolVersion":"{MODERN_VERSION}","{prefix}clientCapabilities":{{"roots":{{}}}}{more}}}'
    return f'{{"params":{{"name":"x","arguments":{{"text":"{filling}"}},"_meta":{meta}}}}}'.encode()


def test_a_remembered_client_is_the_same_each_time_and_holds_no_message() -> None:
    async def main() -> None:
        server, large = Server(EchoApp()), message(filling="x" * 1_000_000)
        before = sys.getrefcount(large)
        first = server._client(LOCAL, parse_params(msgspec.json.decode(large, type=Message).params))
        assert sys.getrefcount(large) == before
        assert server._client(LOCAL, parse_params(msgspec.json.decode(message(), type=Message).params)) is first
        assert bytes(first.capabilities) == b'{"roots":{}}'

    asyncio.run(main())


def test_clients_that_give_a_token_with_each_request_are_not_remembered() -> None:
    async def main() -> None:
        server = Server(EchoApp())
        for number in range(50):
            text = message(more=f',"progressToken":{number}')
            server._client(LOCAL, parse_params(msgspec.json.decode(text, type=Message).params))
        assert not server._clients

    asyncio.run(main())
