"""A picture over the limit can be had as it is: as a resource, by its own caller, and is never quoted as text."""

import base64
import gzip
import hashlib
import json
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec import Raw
from output_scene import Scene, run, text_result, texts

from toolfold.__main__ import main
from toolfold.faces.mcp_server.leaf_requests import LeafRequests
from toolfold.faces.mcp_server.resource_subscriptions import ResourceSubscriptions
from toolfold.faces.mcp_server.surface_app import SurfaceApp
from toolfold.faces.surface.discovery import DiscoverySurface
from toolfold.faces.surface.output_resources import OutputResources
from toolfold.outputs.tool_output_definition import Mode
from toolfold.types import LOCAL, Caller
from toolfold.wire.serving import NotificationHub, RpcError

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 100
BLOCK = {"type": "image", "mimeType": "image/png", "data": base64.b64encode(PICTURE).decode()}


async def asked(scene: Scene, method: str, uri: str = "", caller: Caller = LOCAL) -> dict[str, Any]:
    outputs = OutputResources(scene.gateway)
    if method == "resources/list":
        return {"resources": await outputs.listed(caller)}
    if method == "resources/templates/list":
        return {"resourceTemplates": [outputs.template]}
    if method == "resources/subscribe":
        await ResourceSubscriptions(scene.gateway, NotificationHub()).watch(uri, caller)
    result = json.loads(bytes(await outputs.read(Raw(json.dumps({"uri": uri}).encode()), caller)))
    assert isinstance(result, dict)
    return result


@pytest.mark.requirement("O-02")
def test_15_06_a_picture_over_the_limit_is_read_as_a_resource(tmp_path: Path) -> None:
    async def main() -> None:
        async with Scene(tmp_path, tool_media_max_bytes=1000) as scene:
            outcome = await scene.give({"content": [BLOCK]})
            assert outcome.stored is not None
            uri = f"toolfold://outputs/{outcome.stored.handle}"
            assert uri in texts(outcome)[1]
            assert OutputResources(scene.gateway).owns(Raw(json.dumps({"uri": uri}).encode()))
            (content,) = (await asked(scene, "resources/read", uri))["contents"]
            assert base64.b64decode(content["blob"]) == PICTURE
            assert (content["uri"], content["mimeType"]) == (uri, "image/png")
            (listed,) = (await asked(scene, "resources/list"))["resources"]
            assert listed == {"uri": uri, "name": "s.give", "mimeType": "image/png", "size": len(PICTURE)}
            (template,) = (await asked(scene, "resources/templates/list"))["resourceTemplates"]
            assert template["uriTemplate"] == "toolfold://outputs/{handle}"
            anna = Caller(name="anna", session="one")
            assert (await asked(scene, "resources/list", caller=anna))["resources"] == []
            for method, odd, caller in (
                ("resources/read", uri, anna),
                ("resources/read", "toolfold://outputs/../etc", LOCAL),
                ("resources/subscribe", uri, LOCAL),
            ):
                with pytest.raises(RpcError):
                    await asked(scene, method, odd, caller)

    run(main())


def test_15_06_a_text_is_a_resource_too_up_to_what_a_message_may_hold(tmp_path: Path) -> None:
    async def main() -> None:
        async with Scene(tmp_path, max_frame_bytes=65_536) as scene:
            for text, fits in (("été\n" * 7000, True), ("word\n" * 12_000, False)):
                outcome = await scene.give(text_result(text))
                assert outcome.stored is not None
                uri = f"toolfold://outputs/{outcome.stored.handle}"
                if fits:
                    assert (await asked(scene, "resources/read", uri))["contents"][0]["text"] == text
                else:
                    with pytest.raises(RpcError, match="over the"):
                        await asked(scene, "resources/read", uri)

    run(main())


def test_15_06_an_app_offers_resources_only_where_it_has_them(tmp_path: Path) -> None:
    async def main() -> None:
        async with Scene(tmp_path) as scene:
            with_them = SurfaceApp(DiscoverySurface(scene.gateway), leaves=LeafRequests(scene.gateway))
            without = SurfaceApp(DiscoverySurface(scene.gateway))
            assert (await with_them.about(LOCAL)).capabilities.keys() == {
                "tools",
                "resources",
                "prompts",
                "completions",
                "extensions",
            }
            assert (await without.about(LOCAL)).capabilities.keys() == {"tools"}
            with_them.aclose()
            without.aclose()

    run(main())


@pytest.mark.parametrize("mode", get_args(Mode))
def test_15_06_binary_content_is_described_and_never_quoted(tmp_path: Path, mode: str) -> None:
    async def main() -> None:
        async with Scene(tmp_path, tool_media_max_bytes=1000) as scene:
            handle = (await scene.give({"content": [BLOCK]})).stored.handle  # type: ignore[union-attr]  # it is large
            for request in ("what does it show", "bytes 0-9", "lines 1-1", "/PNG/"):
                answer = await scene.gateway.tool_output(handle, request, mode=mode)
                assert "\ufffd" not in answer
                assert "no text but binary data (image/png) of 25608 bytes" in answer
                assert f"toolfold://outputs/{handle}" in answer

    run(main())


ARCHIVE = b"".join(hashlib.sha256(bytes([number, more])).digest() for number in range(200) for more in range(10))


@pytest.mark.parametrize(
    ("content", "told"),
    {
        "gzip": (gzip.compress(ARCHIVE, mtime=0), "binary data (application/gzip)"),
        "short": (gzip.compress(b"a few words", mtime=0), "binary data (application/gzip)"),
        "noise": (ARCHIVE, "binary data (application/octet-stream)"),
        "latin-1": ("Gr\xfc\xdfe aus M\xfcnchen\n".encode("latin-1") * 40, "text in LATIN-1"),
        "colours": ("\x1b[31mr\xf4t\x1b[0m\n".encode("latin-1") * 40, "text in LATIN-1"),
        "controls": (("pipe \x01\x02 été\n" * 40).encode(), "The document is text of"),
    }.values(),
)
def test_17_an_archive_is_no_text_in_another_encoding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, told: str
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    assert main(["--home", str(tmp_path / "home"), "extract", str(file), "what is in it"]) == 0
    said = capsys.readouterr().out
    assert told in said
    assert ("no text but" in said) == ("binary" in told)
