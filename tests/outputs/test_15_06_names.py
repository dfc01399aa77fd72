"""An output goes by the name that its client knows the tool by: the id, the safe name, or the server's own."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from output_scene import Scene, run, text_result

from toolfold.faces.surface.direct import DirectSurface
from toolfold.faces.surface.discovery import DiscoverySurface
from toolfold.types import CallContext, ToolCall


@pytest.mark.requirement("O-05")
@pytest.mark.parametrize(("profile", "name"), [(DiscoverySurface, "s.give"), (DirectSurface, "s_give")])
def test_15_06_the_header_names_the_tool_as_the_client_knows_it(tmp_path: Path, profile: Any, name: str) -> None:
    async def main() -> None:
        async with Scene(tmp_path) as scene:
            scene.upstream.answer("give", text_result("word\n" * 5000))
            surface = profile(scene.gateway)

            async def call(tool: str, arguments: dict[str, Any]) -> str:
                result = json.loads(bytes(await surface.call(tool, Raw(json.dumps(arguments).encode()))))
                return str(result["content"][0]["text"])

            if profile is DiscoverySurface:
                message = await call("call_tool", {"tool_id": "s.give", "args": {}})
            else:
                message = await call("s_give", {})
            (handle,) = re.findall(r'handle = "([^"]+)"', message)
            answer = await call("tool_output", {"handle": handle, "extract": "lines 1-1"})
            assert answer.startswith(f"ABSTRACT FROM TOOL OUTPUT {name} WITH HANDLE {handle}, STRATEGY:read-grep:\n\n")

    run(main())


def test_15_06_a_server_that_is_passed_through_keeps_its_own_names(tmp_path: Path) -> None:
    async def main() -> None:
        async with Scene(tmp_path) as scene:
            scene.upstream.answer("give", text_result("word\n" * 5000))
            call = ToolCall(tool=await scene.gateway.tool("s.give"))
            outcome = await scene.gateway.calls(call, CallContext(tool_name="give"))
            assert outcome.stored is not None
            assert (outcome.stored.tool_id, outcome.stored.tool_name) == ("s.give", "give")
            answer = await scene.gateway.tool_output(outcome.stored.handle, "lines 1-1")
            assert answer.startswith("ABSTRACT FROM TOOL OUTPUT give WITH HANDLE ")

    run(main())
