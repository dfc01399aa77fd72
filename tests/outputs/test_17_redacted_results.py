"""Secrets are taken out of results where the owner wants that, and a result is sent once where clients read either."""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from toolfold import Gateway, Settings
from toolfold.audit.result_redaction import _redacted, redact_results
from toolfold.config.secrets import redact_secrets
from toolfold.config.sections import Limits, Outputs
from toolfold.faces.surface.direct import DirectSurface
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import CallContext, Outcome, Tool, ToolCall, ToolDefinition

TOKEN = "ghp_" + "a1B2" * 9
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc\n-----END RSA PRIVATE KEY-----"
MARK = "[secret removed]"


def show_settings() -> dict[str, str]:
    """Shows the settings."""
    return {"url": "postgres://app:hunter22@db/shop", "token": f"a {TOKEN}\nb", "key": f"<{KEY}>", "name": 'say "hi"'}


def fill(lines: int) -> str:
    """Gives many lines."""
    return "\n".join(f"line {number} token {TOKEN}" for number in range(lines))


async def call(outputs: Outputs, tmp_path: Path, tool: str, **arguments: Any) -> Any:
    settings = Settings(home=tmp_path / "home", outputs=outputs, limits=Limits(tool_response_max_bytes=2000))
    async with Gateway(settings, upstreams=[MemoryUpstream("shop", [show_settings, fill])]) as gateway:
        await gateway.build(index=False)
        outcome = await gateway.call_tool(f"shop.{tool}", arguments)
        if outcome.stored is None:
            return outcome
        return (await gateway.outputs.file(outcome.stored.handle)).read_text()


def test_17_secrets_are_cut_and_marked_and_all_else_stays(tmp_path: Path) -> None:
    outcome = asyncio.run(call(Outputs(directory=str(tmp_path), redact_secrets=True), tmp_path, "show_settings"))
    assert outcome.data == {
        "url": f"postgres://app:{MARK}@db/shop",
        "token": f"a {MARK}\nb",
        "key": f"<{MARK}>",
        "name": 'say "hi"',
    }
    for secret in (TOKEN, "hunter22", "MIIEow"):
        assert secret.encode() not in bytes(outcome.raw)


def test_17_by_default_a_result_is_as_it_came(tmp_path: Path) -> None:
    outcome = asyncio.run(call(Outputs(directory=str(tmp_path)), tmp_path, "show_settings"))
    assert outcome.data == show_settings()


def test_17_what_is_stored_holds_no_secret_either(tmp_path: Path) -> None:
    text = asyncio.run(call(Outputs(directory=str(tmp_path), redact_secrets=True), tmp_path, "fill", lines=500))
    assert text.count(MARK) == 500
    assert TOKEN not in text


@pytest.mark.parametrize("size", [0, 65_500, 65_530, 200_000])
def test_17_no_place_in_a_long_text_hides_a_secret(size: int) -> None:
    value = {"a": "é" * (size // 2) + f" {TOKEN} end\\", "b": [12345678, None, "https://x:", "y@z"]}
    raw = json.dumps(value, ensure_ascii=False).encode()
    clean = b"".join(_redacted(raw, redact_secrets))
    assert json.loads(clean) == {**value, "a": value["a"].replace(TOKEN, MARK)}  # type: ignore[attr-defined]


def test_17_a_result_is_sent_once_where_its_text_is_its_data(tmp_path: Path) -> None:
    async def shown(send_once: bool) -> dict[str, Any]:
        settings = Settings(home=tmp_path, outputs=Outputs(directory=str(tmp_path), send_once=send_once))
        async with Gateway(settings, upstreams=[MemoryUpstream("shop", [show_settings])]) as gateway:
            await gateway.build(index=False)
            answer = await DirectSurface(gateway).call("shop_show_settings", Raw(b"{}"))
            result: dict[str, Any] = msgspec.json.decode(answer)
            return result

    twice, once = asyncio.run(shown(False)), asyncio.run(shown(True))
    assert twice["structuredContent"] == json.loads(twice["content"][0]["text"])
    assert once == {"content": twice["content"]}


def test_17_a_result_in_a_file_is_rewritten_without_its_secrets() -> None:
    async def scene() -> None:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - the hook closes it
        file.write(json.dumps({"result": {"content": [{"type": "text", "text": fill(5000)}]}}).encode())
        file.flush()
        tool = Tool(tool_id="a.b", server="a", definition=ToolDefinition(name="b", raw=Raw(b"{}")), fingerprint="")
        outcome = Outcome(raw=Raw(b"{}"), spilled=file)
        clean = await redact_results(redact_secrets)(ToolCall(tool=tool), CallContext(), outcome)
        assert file.closed
        assert clean.spilled is not None
        with clean.spilled as written:
            text = json.load(written)["result"]["content"][0]["text"]
        assert text == fill(5000).replace(TOKEN, MARK)

    asyncio.run(scene())
