"""`tool_registry.json`: exact, the same every time, replaced in one step."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from catalogue_kit import catalogue_in, listing
from msgspec import Raw
from msgspec.json import decode

from toolfold.errors import CatalogueError
from toolfold.fingerprint import fingerprint
from toolfold.storage.records import _parse_definition
from toolfold.upstream.definitions import read_definitions

LOG = (
    b'{ "name":"log" , "description": "Shows \\u2018commits\\u2019, one a line.\\n\\tNewest first \\/ last.",'
    b' "inputSchema": { "type" : "object", "properties":{"b":{"default":1.10}, "a":{"maximum":12345678901234567890}} },'
    b'"outputSchema":{"type":"object"}, "annotations" : {"readOnlyHint":true}, "_meta":{"k": [1.0]}, "new field": 7 }'
)
BARE = b'{"name":"bare"}'
ODD = b'{"name":"odd","description":null,"inputSchema":{},"outputSchema":null,"title":"Odd one"}'

WRONG = b'{"name":"w","description":["no"],"inputSchema":[],"outputSchema":7,"annotations":{"readOnlyHint":true}}'


def written(folder: Path, *raws: bytes, server: str = "git") -> Path:
    async def main() -> None:
        async with catalogue_in(folder, listing(server, *read_definitions(map(Raw, raws))[0])) as catalogue:
            assert await catalogue.write_registry(folder / "tool_registry.json") == len(raws)

    asyncio.run(main())
    return folder / "tool_registry.json"


def sent_again(entry: dict[str, Any]) -> bytes:
    """The tool object as its server sent it, made from what the file says."""
    shown = {
        "name": "name",
        "description": "description",
        "inputSchema": "input_schema",
        "outputSchema": "output_schema",
    }
    known = {key: entry[field] for key, field in shown.items() if key not in entry["absent"]}
    if known["outputSchema"] is None:
        del known["outputSchema"]
    return json.dumps(known | entry["more"]).encode()


@pytest.mark.requirement("U-01")
def test_the_registry_names_every_tool_with_server_schemas_description_and_place(tmp_path: Path) -> None:
    file = json.loads(written(tmp_path, LOG, BARE).read_bytes())
    assert file["version"] == 1
    bare, log = file["tools"]
    assert log == {
        "tool_id": "git.log",
        "server": "git",
        "name": "log",
        "description": "Shows \u2018commits\u2019, one a line.\n\tNewest first / last.",
        "input_schema": json.loads(LOG)["inputSchema"],
        "output_schema": {"type": "object"},
        "fingerprint": fingerprint(LOG),
        "paths": [["By verb", "Log"], ["By server", "git"]],
        "version": 1,
        "summary": "Shows \u2018commits\u2019, one a line.",
        "tags": ["risk:read-only"],
        "risks": ["read-only"],
        "cost": None,
        "access": [],
        "more": {"annotations": {"readOnlyHint": True}, "_meta": {"k": [1.0]}, "new field": 7},
        "absent": [],
    }
    assert (bare["description"], bare["input_schema"], bare["output_schema"]) == ("", {}, None)


@pytest.mark.requirement("U-01")
def test_schemas_and_descriptions_stand_in_it_byte_for_byte(tmp_path: Path) -> None:
    content = written(tmp_path, LOG).read_bytes()
    sent = decode(LOG, type=dict[str, Raw])
    for field in ("description", "inputSchema", "outputSchema"):
        assert bytes(sent[field]) in content


def test_the_same_catalogue_always_gives_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert written(tmp_path / "a", LOG, BARE, ODD).read_bytes() == written(tmp_path / "b", ODD, LOG, BARE).read_bytes()


def test_an_empty_catalogue_gives_a_registry_without_tools(tmp_path: Path) -> None:
    assert json.loads(written(tmp_path).read_bytes()) == {"version": 1, "tools": []}


@pytest.mark.requirement("U-01")
@pytest.mark.parametrize("raw", [LOG, BARE, ODD, WRONG])
def test_nothing_that_a_server_sent_is_lost(raw: bytes, tmp_path: Path) -> None:
    (entry,) = json.loads(written(tmp_path, raw).read_bytes())["tools"]
    assert fingerprint(sent_again(entry)) == entry["fingerprint"] == fingerprint(raw)


def test_a_registry_that_cannot_be_written_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    async def main() -> None:
        async with catalogue_in(tmp_path, listing("git", "log")) as catalogue:
            with pytest.raises(CatalogueError, match="cannot be written") as caught:
                await catalogue.write_registry(tmp_path / "no folder" / "tool_registry.json")
            assert caught.value.next_action
            (tmp_path / "taken.json").mkdir()
            with pytest.raises(CatalogueError, match="cannot be written"):
                await catalogue.write_registry(tmp_path / "taken.json")

    asyncio.run(main())
    assert sorted(one.name for one in tmp_path.iterdir()) == ["taken.json", "toolfold.sqlite"]


@pytest.mark.requirement("U-01")
def test_every_recorded_tool_survives_the_registry(shared_data: Path, tmp_path: Path) -> None:
    servers = {
        file.stem: [json.dumps(tool, indent=1).encode() for tool in json.loads(file.read_text())["tools"]]
        for file in sorted((shared_data / "servers").glob("*.json"))
    }

    async def main() -> None:
        listings = [listing(name, *map(_parse_definition, raws)) for name, raws in servers.items()]
        async with catalogue_in(tmp_path, *listings) as catalogue:
            await catalogue.write_registry(tmp_path / "tool_registry.json")

    asyncio.run(main())
    content = (tmp_path / "tool_registry.json").read_bytes()
    entries = {(one["server"], one["name"]): one for one in json.loads(content)["tools"]}
    for server, raws in servers.items():
        for raw in raws:
            sent = json.loads(raw)
            entry = entries[server, sent["name"]]
            assert entry["description"] == sent["description"]
            assert entry["input_schema"] == sent["inputSchema"]
            assert entry["output_schema"] == sent.get("outputSchema")
            assert bytes(decode(raw, type=dict[str, Raw])["inputSchema"]) in content
            assert fingerprint(sent_again(entry)) == entry["fingerprint"]
