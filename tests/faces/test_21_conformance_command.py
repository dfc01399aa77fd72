"""`toolfold conformance`: toolfold itself conforms, over both transports; servers that do not fail by name."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mcp_client_helpers import command, on_port, served_over_http
from msgspec import Raw

import fork_server
from toolfold import Gateway, Settings
from toolfold.__main__ import main
from toolfold.adapters import DiscoverySurface
from toolfold.faces.mcp_server.surface_app import SurfaceApp
from toolfold.faces.surface.base import LOCAL_CONTEXT
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import EMPTY_OBJECT, CallContext, Caller

SPEAKS = {"dev.toolfold/discovery": {"version": 1}}


def run(*words: str) -> tuple[int, dict[str, Any]]:
    program = [sys.executable, "-m", "toolfold", "conformance", "--json", *words]
    done = fork_server.run(program, capture_output=True, text=True, timeout=110, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def outcomes(answer: dict[str, Any], outcome: str) -> dict[str, str]:
    return {case["case"]: case["reason"] for case in answer["cases"] if case["outcome"] == outcome}


def built(home: Path) -> None:
    fork_server.run([*command(home)[:-1], "build"], capture_output=True, text=True, timeout=90, check=True)


@pytest.mark.parametrize("profile", ["discovery", "auto"])
def test_21_toolfold_conforms_over_stdio_and_http_and_calls_only_what_was_named(tmp_path: Path, profile: str) -> None:
    built(tmp_path)
    code, answer = run("--", *command(tmp_path, "--profile", profile))
    assert (code, outcomes(answer, "fail")) == (0, {})
    assert "call" in outcomes(answer, "skip")
    with served_over_http(tmp_path, "--profile", profile) as url:
        code, answer = run(url, "--call", "fixture.test_simple_text")
    assert (code, outcomes(answer, "fail")) == (0, {})
    assert "call" in outcomes(answer, "pass")
    assert answer["pass"] >= 20


def test_21_a_server_that_does_not_speak_it_fails_and_one_that_is_not_there_is_told_apart(tmp_path: Path) -> None:
    built(tmp_path)
    code, answer = run("--", *command(tmp_path, "--profile", "direct"))
    assert code == 1
    assert "dev.toolfold/discovery" in outcomes(answer, "fail")["capability"]
    code, answer = run("--", sys.executable, "-c", "raise SystemExit(0)")
    assert (code, answer["error"]["code"]) == (3, "SERVER_UNAVAILABLE")
    code, answer = run()
    assert (code, answer["error"]["code"]) == (2, "CONFIG_INVALID")


def grow(arguments: dict[str, Any]) -> int:
    """Grows a thing."""
    return len(arguments)


def shrink(name: str) -> str:
    """Shrinks a thing by its name."""
    return name


class Broken(DiscoverySurface):
    """A conforming surface, but for what is changed of its tools, of what comes in or of what goes out."""

    def __init__(self, gateway: Gateway, how: "How") -> None:
        super().__init__(gateway)
        self._how = how
        self.times = 0

    async def tools(self, caller: Caller, *, listens: bool = False, apps: bool = False) -> tuple[Raw, ...]:
        self.times += 1
        shown = [msgspec.json.decode(raw) for raw in await super().tools(caller, listens=listens, apps=apps)]
        return tuple(Raw(msgspec.json.encode(tool)) for tool in self._how.tools(shown, self.times))

    async def call(self, name: str, arguments: Raw = EMPTY_OBJECT, context: CallContext = LOCAL_CONTEXT) -> Raw:
        if name == self._how.hangs:
            await asyncio.Event().wait()
        asked = self._how.asked(name, msgspec.json.decode(arguments))
        result = msgspec.json.decode(await super().call(name, Raw(msgspec.json.encode(asked)), context))
        return Raw(msgspec.json.encode(self._how.answered(name, result)))


Tools = list[dict[str, Any]]


class How:
    """In what a server does not conform."""

    def __init__(
        self,
        tools: Callable[[Tools, int], Tools] = lambda shown, times: shown,
        asked: Callable[[str, dict[str, Any]], dict[str, Any]] = lambda name, arguments: arguments,
        answered: Callable[[str, dict[str, Any]], dict[str, Any]] = lambda name, result: result,
        speaks: dict[str, Any] | None = None,
        hangs: str = "",
    ) -> None:
        self.tools, self.asked, self.answered, self.hangs = tools, asked, answered, hangs
        self.speaks = SPEAKS if speaks is None else speaks


def without(*keys: str) -> Callable[[str, dict[str, Any]], dict[str, Any]]:
    return lambda name, arguments: {key: value for key, value in arguments.items() if key not in keys}


def requiring(shown: Tools, times: int) -> Tools:
    return [{**tool, "inputSchema": {**tool["inputSchema"], "required": ["mood"]}} for tool in shown]


def in_percent(name: str, result: dict[str, Any]) -> dict[str, Any]:
    text = json.loads(result["content"][0]["text"])
    for hit in text.get("results", []):
        hit["confidence"] = 100 * (hit["confidence"] + 1)
    return {**result, "content": [{"type": "text", "text": json.dumps(text)}]}


def in_plain_words(name: str, result: dict[str, Any]) -> dict[str, Any]:
    return {**result, "content": [{"type": "text", "text": "no"}]} if result.get("isError") else result


def huge(name: str, result: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": "x" * (9 << 20)}]} if name == "inspect_tool_output" else result


def deep(name: str, result: dict[str, Any]) -> dict[str, Any]:
    text = "[" * 100_000 + "]" * 100_000
    return {"content": [{"type": "text", "text": text}]} if name == "inspect_tool_output" else result


BROKEN: dict[str, tuple[How, set[str]]] = {
    "conforms": (How(), set()),
    "says nothing": (How(speaks={}), {"capability"}),
    "another version": (How(speaks={"dev.toolfold/discovery": {"version": 2}}), {"capability"}),
    "not an object": (How(speaks={"dev.toolfold/discovery": {"version": "1"}}), {"capability"}),
    "lists four": (How(lambda shown, _: [one for one in shown if one["name"] != "expand_tool"]), {"operations"}),
    "wants more": (How(requiring), {"schemas"}),
    "never the same": (How(lambda shown, times: [{**one, "title": str(times)} for one in shown]), {"stable-list"}),
    "drops keys": (How(asked=without("no-such-thing-7f3a91")), {"unknown-key", "call-unknown-key"}),
    "ignores versions": (How(asked=without("expect_version")), {"call-changed"}),
    "ignores cursors": (How(asked=without("cursor")), {"list-pages", "bad-cursor"}),
    "ignores paths": (How(asked=without("path")), {"list-node", "unknown-path"}),
    "in percent": (How(answered=in_percent), {"search"}),
    "in plain words": (
        How(answered=in_plain_words),
        {"unknown-path", "bad-cursor", "unknown-key", "expand-unknown", "call-unknown", "call-changed"},
    ),
    "huge": (How(answered=huge), {"inspect"}),
    "deep": (How(answered=deep), {"inspect"}),
    "hangs": (How(hangs="inspect_tool_output"), {"inspect"}),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_21_what_does_not_conform_fails_by_name(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    how, wrong = BROKEN[name]
    upstream = MemoryUpstream("shop", [grow, shrink])
    async with Gateway(Settings(home=tmp_path), upstreams=[upstream]) as gateway:
        await gateway.build()
        app = SurfaceApp(Broken(gateway, how), experimental=how.speaks)
        async with on_port(app) as url:
            words = ["conformance", url, "--json", "--timeout", "5" if how.hangs else "60"]
            code = await asyncio.to_thread(main, words)
        app.aclose()
    answer = json.loads(capsys.readouterr().out)
    failed = outcomes(answer, "fail")
    assert wrong <= failed.keys(), failed
    assert code == (1 if wrong else 0), failed
    assert len(failed) < 16, failed
    assert all(0 < len(reason) < 700 for reason in failed.values())
    assert all(case["case"] for case in answer["cases"])
