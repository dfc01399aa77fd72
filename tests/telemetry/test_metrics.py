"""Prometheus text: counted while calls are made, and readable by the field's own parser."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from prometheus_client.parser import text_string_to_metric_families

from toolfold import Gateway, Settings
from toolfold.config.sections import Policy
from toolfold.errors import InvalidArguments, ToolNotFound
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import Caller

T = TypeVar("T")
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


@pytest.mark.requirement("G-09")
def test_calls_errors_latency_tools_and_sessions_are_counted(tmp_path: Path) -> None:
    async def main() -> None:
        shop = MemoryUpstream(
            "shop", [{"name": "find", "inputSchema": SCHEMA}, {"name": "fail", "inputSchema": SCHEMA}]
        )
        shop.answer("fail", {"content": [], "isError": True})
        async with Gateway(Settings(home=tmp_path), upstreams=[shop]) as gateway:
            await gateway.build()
            await gateway.list()
            for _ in range(3):
                await gateway.call_tool("shop.find", {"id": 1})
            await gateway.call_tool("shop.fail", {})
            with pytest.raises(InvalidArguments):
                await gateway.call_tool("shop.find", {"id": "x"})
            with pytest.raises(ToolNotFound):
                await gateway.call_tool("shop.no", {})
            content_type, text = await gateway.render_metrics()
        assert content_type.startswith("text/plain")
        found = samples(text)
        server = (("server", "shop"),)
        assert found["toolfold_calls_total", server] == 5
        assert found["toolfold_call_errors_total", (("code", "TOOL_ERROR"), *server)] == 1
        assert found["toolfold_call_errors_total", (("code", "INVALID_ARGUMENTS"), *server)] == 1
        assert found["toolfold_discovery_total", (("code", "TOOL_NOT_FOUND"), ("step", "call"))] == 1
        assert found["toolfold_discovery_total", (("code", ""), ("step", "list"))] == 1
        assert found["toolfold_call_duration_seconds_count", server] == 5
        assert found["toolfold_call_duration_seconds_bucket", (("le", "+Inf"), *server)] == 5
        buckets = [value for (name, _), value in found.items() if name.endswith("_bucket")]
        assert buckets == sorted(buckets)
        assert (found["toolfold_tools", ()], found["toolfold_servers", ()], found["toolfold_sessions", ()]) == (2, 1, 1)

    run(main())


def test_15_17_figures_tell_a_caller_nothing_that_its_policy_hides(tmp_path: Path) -> None:
    async def main() -> None:
        names = {"shop": ["find", "list"], "bank": ["pay"], "mail": ["read", "send"]}
        servers = [
            MemoryUpstream(server, [{"name": name, "inputSchema": SCHEMA} for name in tools])
            for server, tools in names.items()
        ]
        settings = Settings(home=tmp_path, policies=(Policy(name="narrow", allow=("shop.*", "mail.read")),))
        async with Gateway(settings, upstreams=servers) as gateway:
            ann = Caller(name="ann", policy="narrow")
            assert samples((await gateway.render_metrics(ann))[1])["toolfold_tools", ()] == 0
            await gateway.build()
            for server, tools in names.items():
                for name in tools:
                    await gateway.call_tool(f"{server}.{name}", {})
            _, text = await gateway.render_metrics(ann)
            whole = samples((await gateway.render_metrics())[1])
        shown = samples(text)
        assert b"bank" not in text
        assert b"mail" not in text  # the figures of a server would count calls of its hidden tools, too
        assert {name for name, labels in shown if not labels} == {"toolfold_tools", "toolfold_servers"}
        assert shown["toolfold_calls_total", (("server", "shop"),)] == 2
        assert (shown["toolfold_tools", ()], shown["toolfold_servers", ()]) == (3, 2)  # as many as `/v1/servers` lists
        assert (whole["toolfold_tools", ()], whole["toolfold_servers", ()]) == (5, 3)
        assert whole["toolfold_calls_total", (("server", "bank"),)] == 1

    run(main())
