"""The surface that a model sees: small, constant, lenient where models err, strict where a guess could do harm."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from inspect import signature
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from example_server import RENAME_ARGS, RENAME_RESULT, RENAME_SUMMARY
from msgspec import Raw

from toolfold import Gateway, Settings, tokens
from toolfold.config.sections import Discovery
from toolfold.errors import ToolNotFound
from toolfold.faces.surface import operations
from toolfold.faces.surface.base import Surface
from toolfold.faces.surface.definitions import BY_NAME
from toolfold.faces.surface.discovery import DiscoverySurface
from toolfold.faces.surface.instructions import RULES, _fit_budget
from toolfold.faces.surface.operations import _CallTool, _List, _parse
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import LOCAL, CallContext, Caller

RENAME = {
    "name": "rename_symbol",
    "description": RENAME_SUMMARY,
    "inputSchema": RENAME_ARGS,
    "outputSchema": RENAME_RESULT,
    "_meta": {"vendor/key": 1},
}
ID = "refactor.rename_symbol"
GOOD = {"project_root": ".", "symbol": "a", "new_name": "b"}


@asynccontextmanager
async def refactoring(folder: Path, *, strict: bool = False, more: int = 0) -> AsyncIterator[Gateway]:
    further = [{"name": f"tool_{n}", "description": f"Does thing number {n}. " * 6} for n in range(more)]
    server = MemoryUpstream("refactor", [RENAME, *further])
    done = {"content": [{"type": "text", "text": "1 file"}], "structuredContent": {"changed_files": 1}}
    server.answer("rename_symbol", done)
    async with Gateway(Settings(home=folder, discovery=Discovery(strict=strict)), upstreams=[server]) as gateway:
        await gateway.build()
        yield gateway


async def ask(surface: Surface, name: str, arguments: Any = None, caller: Caller = LOCAL) -> tuple[Any, bool]:
    """What a model reads, decoded, and whether it is an error."""
    result = msgspec.json.decode(
        await surface.call(name, Raw(msgspec.json.encode(arguments or {})), CallContext(caller=caller))
    )
    assert set(result) <= {"content", "isError"}, "the same data never goes twice"
    assert [block["type"] for block in result["content"]] == ["text"]
    return json.loads(result["content"][0]["text"]), bool(result.get("isError"))


@pytest.mark.requirement("D-08")
async def test_the_tools_cost_at_most_1500_tokens_and_are_the_same_bytes_whatever_the_catalogue(tmp_path: Path) -> None:
    seen = []
    for number, more in enumerate((0, 300)):
        async with refactoring(tmp_path / str(number), more=more) as gateway:
            surface = DiscoverySurface(gateway)
            for caller in (LOCAL, Caller(name="somebody")):
                raws = await surface.tools(caller)
                seen.append(b"[" + b",".join(bytes(raw) for raw in raws) + b"]")
    assert len(set(seen)) == 1
    assert tokens.count(seen[0].decode()) <= 1500
    names = [tool["name"] for tool in json.loads(seen[0])]
    assert names == [
        "list", "search_nodes", "search_tool_by_category", "expand_tool", "call_tool", "inspect_tool_output",
        "tool_output", "run_script",
    ]  # fmt: skip


def test_the_arguments_that_are_read_are_the_ones_that_are_declared() -> None:
    kinds = {
        "list": operations._List,
        "search_nodes": operations._SearchNodes,
        "search_tool_by_category": operations._SearchTools,
        "expand_tool": operations._ExpandTool,
        "call_tool": operations._CallTool,
        "inspect_tool_output": operations._InspectToolOutput,
        "tool_output": operations._ToolOutput,
        "run_script": operations._RunScript,
    }
    assert list(kinds) == list(BY_NAME)
    for name, kind in kinds.items():
        fields = msgspec.structs.fields(cast("type[msgspec.Struct]", kind))
        assert [field.name for field in fields] == list(BY_NAME[name].properties)
        assert [field.name for field in fields if field.required] == list(BY_NAME[name].required)
        for field in fields:
            declared = BY_NAME[name].properties[field.name].get("default")
            assert declared is None or declared == field.default


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("list", operations._List),
        ("search_nodes", operations._SearchNodes),
        ("search_tool_by_category", operations._SearchTools),
        ("inspect_tool_output", operations._InspectToolOutput),
        ("tool_output", operations._ToolOutput),
    ],
)
def test_an_operation_that_is_forwarded_has_the_arguments_of_the_gateways_method(
    name: str, kind: type[msgspec.Struct]
) -> None:
    parameters = signature(getattr(Gateway, name)).parameters
    own = {"sure", "expand"} if name == "search_tool_by_category" else set()  # how a face searches, not what is asked
    assert {field.name for field in msgspec.structs.fields(kind)} | {"self", "caller"} | own == set(parameters)


@pytest.mark.requirement("D-08")
async def test_the_instructions_hold_the_five_rules_and_a_true_inventory_in_400_tokens(tmp_path: Path) -> None:
    async with refactoring(tmp_path, more=11) as gateway:
        text = await DiscoverySurface(gateway).instructions(LOCAL)
        assert text.startswith(RULES)
        for number, rule in enumerate(
            (
                "Do not assume tools exist.",
                "Prefer hierarchical navigation.",
                "Use the escape hatch when uncertain.",
                "Never call a tool without expanding it.",
                "Follow error hints.",
            ),
            start=1,
        ):
            assert f"{number}. {rule}" in text
        assert "12 tools of 1 server: refactor (12)" in text
        assert tokens.count(text) <= 400


@pytest.mark.requirement("D-08")
@pytest.mark.parametrize("name", ["srv", "a server with a rather long name of its own", "サーバー", "🛠️🛠️🛠️"])
def test_no_catalogue_makes_the_instructions_longer(name: str) -> None:
    many = [(f"{name}-{n}", 10_000 - n) for n in range(2_000)]
    text = _fit_budget(many, many)
    assert tokens.count(text) <= 400
    assert f"of {len(many):,} servers" in text
    assert "more" in text
    assert "10,000" in text


async def test_before_there_is_a_catalogue_the_surface_says_so(tmp_path: Path) -> None:
    async with Gateway(Settings(home=tmp_path)) as gateway:
        surface = DiscoverySurface(gateway)
        assert "no catalogue yet" in await surface.instructions(LOCAL)
        answer, is_error = await ask(surface, "list")
        assert is_error
        assert answer["error"]["code"] == "NOT_BUILT"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (b'{"path":"A/B"}', _List(path=("A", "B"))),
        (b'{"path":"A > B"}', _List(path=("A", "B"))),
        (b'{"path":"[\\"A\\",\\"B\\"]"}', _List(path=("A", "B"))),
        (b'{"path":"/"}', _List()),
        (b'{"path":null,"tags":null,"query":null,"limit":null,"cursor":null}', _List()),
        (b'{"tags":"x, y"}', _List(tags=("x", "y"))),
        (b'{"limit":"7"}', _List(limit=7)),
        (b'{"limit":7.0}', _List(limit=7)),
        (b'{"limit":5000}', _List(limit=50)),
        (b'{"limit":-3}', _List(limit=1)),
        (b'"{\\"limit\\": 3}"', _List(limit=3)),
        (b"null", _List()),
    ],
)
def test_arguments_are_read_as_they_were_meant(given: bytes, meant: _List) -> None:
    assert _parse(_List, Raw(given)) == meant


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (b'{"tool_id":"x","args":{"n":1.50}}', b'{"n":1.50}'),
        (b'{"tool_id":"x","args":"{\\"n\\":1}"}', b'{"n":1}'),
        (b'{"tool_id":"x","arguments":{"n":1}}', b'{"n":1}'),
        (b'{"tool_id":"x","args":null}', b"{}"),
        (b'{"tool_id":"x"}', b"{}"),
    ],
)
def test_the_arguments_of_a_call_go_on_as_they_came(given: bytes, sent: bytes) -> None:
    assert bytes(_parse(_CallTool, Raw(given)).args) == sent


@pytest.mark.requirement("D-07")
@pytest.mark.parametrize(
    ("name", "given", "field"),
    [
        ("list", {"paths": ["A"]}, "paths"),
        ("list", {"path": [1]}, "path"),
        ("list", {"limit": True}, "limit"),
        ("search_nodes", {}, "query"),
        ("expand_tool", {"tool_id": 5}, "tool_id"),
        ("call_tool", {"tool_id": ID, "symbol": "x"}, "symbol"),
    ],
)
async def test_what_cannot_be_meant_is_named(tmp_path: Path, name: str, given: Any, field: str) -> None:
    async with refactoring(tmp_path) as gateway:
        answer, is_error = await ask(DiscoverySurface(gateway), name, given)
        assert is_error
        error = answer["error"]
        assert error["code"] == "INVALID_ARGUMENTS"
        assert error["hints"][0]["field"] == field
        assert error["next_action"]


@pytest.mark.requirement("D-06")
async def test_a_call_passes_the_servers_result_through_untouched(tmp_path: Path) -> None:
    async with refactoring(tmp_path) as gateway:
        arguments = Raw(msgspec.json.encode({"tool_id": ID, "args": GOOD}))
        result = await DiscoverySurface(gateway).call("call_tool", arguments)
        assert result == (await gateway.call_tool(ID, GOOD)).raw
        assert msgspec.json.decode(result)["structuredContent"] == {"changed_files": 1}


@pytest.mark.requirement("D-08")
async def test_whoever_fails_without_expanding_is_shown_the_schema_and_told_to_expand(tmp_path: Path) -> None:
    async with refactoring(tmp_path) as gateway:
        surface = DiscoverySurface(gateway)
        wrong = {"tool_id": ID, "args": {"symbol": "a"}}
        answer, _ = await ask(surface, "call_tool", wrong)
        assert {"args_schema": RENAME_ARGS} in answer["error"]["hints"]
        assert f"call expand_tool for {ID}" in answer["error"]["next_action"]
        await ask(surface, "expand_tool", {"tool_id": ID})
        known, _ = await ask(surface, "call_tool", wrong)
        assert {"args_schema": RENAME_ARGS} not in known["error"]["hints"]
        assert "expand_tool" not in known["error"]["next_action"]
        other, _ = await ask(surface, "call_tool", wrong, Caller(name="somebody else"))
        assert {"args_schema": RENAME_ARGS} in other["error"]["hints"], "it counts for each caller alone"


@pytest.mark.requirement("D-08")
async def test_strict_refuses_a_call_until_that_version_was_expanded(tmp_path: Path) -> None:
    async with refactoring(tmp_path, strict=True) as gateway:
        surface = DiscoverySurface(gateway)
        call = {"tool_id": ID, "args": GOOD}
        answer, is_error = await ask(surface, "call_tool", call)
        assert is_error
        assert answer["error"]["code"] == "NOT_EXPANDED"
        assert f"expand_tool for {ID}" in answer["error"]["next_action"]
        await ask(surface, "expand_tool", {"tool_id": ID.upper()})
        result = await surface.call("call_tool", Raw(msgspec.json.encode(call)))
        assert b"isError" not in bytes(result)


@pytest.mark.requirement("D-01")
async def test_a_cursor_of_a_ranking_fails_clearly_once_the_catalogue_changed(tmp_path: Path) -> None:
    server = MemoryUpstream("shop", [{"name": f"order_{n}", "description": "Finds an order"} for n in range(4)])
    async with Gateway(Settings(home=tmp_path), upstreams=[server]) as gateway:
        await gateway.build()
        surface = DiscoverySurface(gateway)
        question = {"query": "find an order", "limit": 1}
        first, _ = await ask(surface, "list", question)
        after = {**question, "cursor": first["next_cursor"]}
        second, is_error = await ask(surface, "list", after)
        assert not is_error
        assert second["tools"][0]["tool_id"] != first["tools"][0]["tool_id"]
        server.set_tools([{"name": "order_0", "description": "Finds an order by name"}])
        await gateway.build()
        refused, is_error = await ask(surface, "list", after)
        assert is_error
        assert refused["error"]["code"] == "BAD_CURSOR"
        assert "without a cursor" in refused["error"]["next_action"]


@pytest.mark.requirement("D-08")
def test_strict_is_a_setting_of_the_file_and_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "toolfold.toml").write_text("[discovery]\nstrict = true\n", encoding="utf-8")
    around: dict[str, Any] = {"cwd": tmp_path, "require_servers": False}
    environ = {"HOME": str(tmp_path), "TOOLFOLD_TRUST_PROJECT": "1"}
    assert Settings.load(**around, environ=environ).discovery.strict is True
    environ |= {"TOOLFOLD_DISCOVERY__STRICT": "false"}
    assert Settings.load(**around, environ=environ).discovery.strict is False


async def test_a_name_that_is_no_operation_is_refused_with_those_that_are(tmp_path: Path) -> None:
    async with refactoring(tmp_path) as gateway:
        with pytest.raises(ToolNotFound) as caught:
            await DiscoverySurface(gateway).call(ID)
        assert "call_tool" in caught.value.hints
        assert "call_tool" in caught.value.next_action


async def test_a_bug_below_reaches_the_log_and_not_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError("a secret detail")

    async with refactoring(tmp_path) as gateway:
        monkeypatch.setattr(gateway, "list", broken)
        answer, is_error = await ask(DiscoverySurface(gateway), "list")
        assert is_error
        assert answer["error"]["code"] == "INTERNAL_ERROR"
        assert "secret detail" not in json.dumps(answer)
    assert "a secret detail" in caplog.text
