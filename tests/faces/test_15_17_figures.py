"""What one face counts, another lists: the figures of a caller are those of the servers it may see."""

import sys
from pathlib import Path

import httpx2
from four_faces import http_server

from toolfold import Settings
from toolfold.config import CallerKey, Policy
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import ServerSpec

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
    with http_server(settings, upstreams, build=True) as address:
        for key, seen in ((ALICE, {"broken", *names}), (BOB, {"shop", "mail"})):
            headers = {"authorization": f"Bearer {key}"}
            listed = httpx2.get(f"{address}/v1/servers", headers=headers).json()["servers"]
            assert {server["name"] for server in listed} == seen
            assert f"toolfold_servers {len(seen)}.0" in httpx2.get(f"{address}/metrics", headers=headers).text
