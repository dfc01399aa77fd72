"""docs/specification.md says what the server really lists, fails with and checks."""

import json
import re
from pathlib import Path
from typing import Any

from toolfold import Gateway, Settings, errors
from toolfold.adapters import DiscoverySurface
from toolfold.faces.cli.conformance_cases import _CASES
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import LOCAL

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "specification.md").read_text("utf-8")


def section(title: str) -> str:
    return re.split(r"^## ", PAGE.partition(f"\n## {title}\n")[2], flags=re.MULTILINE)[0]


def codes(kind: type[errors.ToolfoldError]) -> set[str]:
    return {kind.code, *(code for below in kind.__subclasses__() for code in codes(below))}


async def test_21_the_schemas_are_those_that_a_client_lists(tmp_path: Path) -> None:
    written = dict(re.findall(r"^### `(\w+)`\n.*?```json\n(.*?)```", section("Operations"), re.MULTILINE | re.DOTALL))
    async with Gateway(Settings(home=tmp_path), upstreams=[MemoryUpstream("shop", [])]) as gateway:
        await gateway.build()
        listed: list[dict[str, Any]] = [json.loads(bytes(raw)) for raw in await DiscoverySurface(gateway).tools(LOCAL)]
    assert {name: json.loads(text) for name, text in written.items()} == {
        tool["name"]: tool["inputSchema"] for tool in listed
    }
    only_read = {tool["name"] for tool in listed if tool["annotations"]["readOnlyHint"]}
    assert {tool["name"] for tool in listed} - only_read == {"call_tool", "run_script"}


def test_21_every_code_is_one_of_the_error_tree() -> None:
    rows = re.findall(r"^\| (`[A-Z].*?) \|", section("Errors"), re.MULTILINE)
    named = {code for row in rows for code in re.findall(r"`([A-Z_]+)`", row)}
    assert named <= codes(errors.ToolfoldError) | {errors.INTERNAL_ERROR}
    # Whatever an operation about the catalogue or a call fails with is written down.
    assert codes(errors.CatalogueError) - {"CATALOGUE_ERROR", "UNKNOWN_FIELD"} <= named
    assert codes(errors.ConfirmationNeeded) <= named


def test_21_every_case_is_on_the_page() -> None:
    rows = dict(re.findall(r"^\| `([\w-]+)` \| (.*?) \|$", section("Conformance"), re.MULTILINE))
    assert rows == {name: rule for name, (rule, _) in _CASES.items()}
