"""A thousand clients of all kinds at once on one gateway and the same servers: what one may do, or said that it can do,
is never another's. Each asks for what it may have, for what it may not, and for a question that only some can
answer."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import httpx2
import pytest
from gateway_process import GatewayProcess, Home, figure

CLIENTS = 1000
META = "io.modelcontextprotocol/"
POLICIES = {"reader": '["bad.echo", "bad.ask"]', "writer": '["**"]'}
CALLERS = [(f"{policy}{number}", policy) for number in range(10) for policy in POLICIES]
KEYS = {name: f"a key of {name}, long enough" for name, _ in CALLERS}
HEADERS = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28"}


def tables() -> str:
    callers = "".join(f'[callers.{name}]\nkey = "{KEYS[name]}"\npolicy = "{policy}"\n' for name, policy in CALLERS)
    return callers + "".join(f"[policy.{name}]\nallow = {allow}\n" for name, allow in POLICIES.items())


class One:
    """One client: its number decides who it is, how it speaks and what it can answer."""

    def __init__(self, number: int, client: httpx2.AsyncClient) -> None:
        self.mark = f"client-{number}"
        self.name, self.policy = CALLERS[number % len(CALLERS)]
        self.can_answer = number // len(CALLERS) % 2 == 0
        self.over_http = number // len(CALLERS) % 5 == 4
        self._client = client
        self._headers = {"Authorization": f"Bearer {KEYS[self.name]}"}

    async def call(self, tool: str, **args: Any) -> Any:
        if self.over_http:
            body = {"tool_id": f"bad.{tool}", "args": args}
            return (await self._client.post("/v1/call_tool", json=body, headers=self._headers)).json()
        name = f"bad_{tool}"
        abilities: dict[str, Any] = {"elicitation": {"form": {}}} if self.can_answer else {}
        meta = {META + "protocolVersion": "2026-07-28", META + "clientCapabilities": abilities}
        params = {"name": name, "arguments": args, "_meta": meta}
        message = {"jsonrpc": "2.0", "id": self.mark, "method": "tools/call", "params": params}
        headers = {**self._headers, **HEADERS, "Mcp-Method": "tools/call", "Mcp-Name": name}
        answer = (await self._client.post("/mcp", json=message, headers=headers)).json()
        assert answer["id"] == self.mark
        return answer.get("result", answer)

    async def play(self) -> list[str]:
        """What was wrong."""
        wrong = []
        own = await self.call("echo", mark=self.mark)
        if own.get("structuredContent") != {"mark": self.mark}:
            wrong.append(f"{self.mark}: not its own answer: {own}")
        inner = await self.call("environment")
        if ("content" in inner and "error" not in inner and not inner.get("isError")) != (self.policy == "writer"):
            wrong.append(f"{self.mark}, a {self.policy}: {str(inner)[:300]}")
        asked = await self.call("ask")
        was_asked = asked.get("resultType") == "input_required"
        if was_asked != (self.can_answer and not self.over_http):
            wrong.append(f"{self.mark}, which {'can' if self.can_answer else 'cannot'} answer: {str(asked)[:300]}")
        return wrong


async def crowd(gateway: GatewayProcess) -> list[str]:
    limits = httpx2.Limits(max_connections=100)
    plain = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    async with httpx2.AsyncClient(
        base_url=gateway.url, limits=limits, timeout=httpx2.Timeout(280), trust_env=False, verify=plain
    ) as client:
        found = await asyncio.gather(*(One(number, client).play() for number in range(CLIENTS)))
    return [line for lines in found for line in lines]


@pytest.mark.timeout(300)
def test_what_one_client_may_or_can_do_is_never_anothers(tmp_path: Path) -> None:
    home = Home(tmp_path).write(tables(), Home.server("bad", "misbehaving_stdio.py"))
    with home.serve("--profile", "direct") as gateway:
        gateway.wait_for("bad.echo", KEYS["reader0"])
        wrong = asyncio.run(crowd(gateway))
    figure("laundering", clients=CLIENTS, callers=len(CALLERS), requests=3 * CLIENTS, crossed=len(wrong))
    assert wrong == []
