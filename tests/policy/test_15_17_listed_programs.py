"""A caller whose policy refuses scripts or live Python is not offered them."""

from pathlib import Path

import msgspec
import pytest
from policy_scene import gateway_of
from test_15_17_programs import POLICIES, caller

from toolfold import Settings
from toolfold.adapters.toolkit import Toolkit
from toolfold.faces.surface.auto import AutoSurface
from toolfold.faces.surface.base import Surface
from toolfold.faces.surface.discovery import DiscoverySurface
from toolfold.faces.surface.live import _LiveSurface

LIVE = {"list_globals", "inspect", "eval_expr"}


async def names(surface: Surface, policy: str) -> set[str]:
    return {msgspec.json.decode(tool)["name"] for tool in await surface.tools(caller(policy))}


@pytest.mark.parametrize(
    ("policy", "scripts", "live"),
    [
        ("default", True, True),
        ("asked", True, True),
        ("nothing", False, False),
        ("narrow", False, False),
        ("scripts", True, False),
        ("live", False, True),
    ],
)
async def test_15_17_programs_that_a_policy_refuses_are_not_listed(
    tmp_path: Path, policy: str, scripts: bool, live: bool
) -> None:
    async with gateway_of(Settings(home=tmp_path, policies=POLICIES)) as gateway:
        await gateway.build()
        listed = await names(DiscoverySurface(gateway), policy)
        assert ("run_script" in listed) == scripts
        assert {"list", "search_nodes", "expand_tool", "call_tool", "tool_output"} <= listed
        assert await names(_LiveSurface(gateway), policy) == (LIVE if live else set())
        definitions = await Toolkit(gateway, caller=caller(policy)).definitions()
        assert ("run_script" in {definition["name"] for definition in definitions}) == scripts
        assert ("run_script" in await names(AutoSurface(gateway), policy)) <= scripts
