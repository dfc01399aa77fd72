"""What one face counts, another lists: the figures of a caller are those of the servers it may see."""

import asyncio
import sys
from pathlib import Path

import httpx2

from toolfold import Gateway, Settings
from toolfold.config import CallerKey, Policy
from toolfold.faces.http_api.app import make_app
from toolfold.faces.identity import Identities
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import Caller, ServerSpec

ALICE, BOB = "alice-key-0123456789", "bob-key-0123456789ab"


def test_15_17_figures_and_servers_agree(tmp_path: Path) -> None:
    schema = {"type": "object"}
    names = {"shop": ("find", "drop"), "bank": ("pay",), "mail": ("send",)}
    upstreams = [
        MemoryUpstream(server, [{"name": name, "inputSchema": schema} for name in tools])
        for server, tools in names.items()
    ]
    settings = Settings(
        home=tmp_path,
        servers=(ServerSpec(name="broken", transport="stdio", command=sys.executable, args=("-c", "exit(1)")),),
        policies=(Policy(name="readers", deny=("shop.drop", "bank.*")),),
        callers=(CallerKey(name="alice", key=ALICE), CallerKey(name="bob", key=BOB, policy="readers")),
    )

    async def main() -> None:
        async with Gateway(settings, upstreams=upstreams) as gateway:
            await gateway.build()
            app = make_app(gateway, Identities(settings).guard)
            transport = httpx2.ASGITransport(app=app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                for caller, key, seen in (
                    (Caller(name="alice"), ALICE, {"broken", *names}),
                    (Caller(name="bob", policy="readers"), BOB, {"shop", "mail"}),
                ):
                    answer = await client.get("/v1/servers", headers={"authorization": f"Bearer {key}"})
                    assert {server["name"] for server in answer.json()["servers"]} == seen
                    _, figures = await gateway.render_metrics(caller)
                    assert f"toolfold_servers {len(seen)}.0" in figures.decode()

    asyncio.run(asyncio.wait_for(main(), 60))
