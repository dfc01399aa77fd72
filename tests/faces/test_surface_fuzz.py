"""Whatever is sent, a caller gets an answer that it can read: no exception comes through, nothing hangs."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import schemathesis
from four_faces import http_server, make_project, settings_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from toolfold import BlockingGateway
from toolfold.errors import InvalidArguments
from toolfold.faces.http_api.openapi import document
from toolfold.faces.surface import operations
from toolfold.faces.surface.definitions import BY_NAME
from toolfold.faces.surface.discovery import DiscoverySurface

READING = [name for name in BY_NAME if name != "run_script"]
"""Scripts are run for real: what they may do is tested where the sandbox is."""

described = schemathesis.openapi.from_dict(document()).exclude(path="/v1/run_script")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("fuzz"))


@pytest.fixture(scope="module")
def address(project: Path) -> Iterator[str]:
    with http_server(settings_of(project)) as address:
        yield address


@pytest.fixture(scope="module")
def gateway(project: Path) -> Iterator[BlockingGateway]:
    with BlockingGateway(settings_of(project)) as gateway:
        yield gateway


def answered(gateway: BlockingGateway, name: str, sent: bytes) -> Any:
    """A result that is in order, with an error that is one of ours."""
    result = msgspec.json.decode(gateway.run(DiscoverySurface(gateway.gateway).call(name, Raw(sent))))
    assert result["content"][0]["type"] == "text"
    if not result.get("isError"):
        return result
    text = result["content"][0]["text"]
    if name == "tool_output":  # it answers in plain text, whatever goes wrong
        assert text.startswith("TOOL_OUTPUT FAILED FOR ")
        assert "INTERNAL_ERROR" not in text.split("\n")[2]
        error = None
    else:
        error = json.loads(text).get("error")
    assert error is None or (error["code"] != "INTERNAL_ERROR" and error["message"] and error["next_action"]), error
    assert len(text) < 20_000, "an error does not repeat all that was sent"
    return result


@pytest.mark.requirement("G-02")
@described.parametrize()
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_http_face_keeps_to_its_own_document(case: schemathesis.Case[Any], address: str) -> None:
    # What can be understood is taken, although the document says how it should be sent; and an id that fits the
    # document need not exist. No model is configured here, so an agent cannot run, which is a 503.
    excluded: list[Any] = [negative_data_rejection, positive_data_acceptance]
    if case.path == "/v1/agents/runs":
        excluded.append(not_a_server_error)
    case.call_and_validate(base_url=address, excluded_checks=excluded)


@pytest.mark.requirement("D-07")
def test_naughty_strings_in_every_place_are_answered(gateway: BlockingGateway, shared_data: Path) -> None:
    file = next((shared_data / "suites" / "naughty-strings").rglob("*.json"))
    strings = json.loads(file.read_text(encoding="utf-8"))
    assert len(strings) > 400
    for number, text in enumerate(strings):
        name = READING[number % len(READING)]
        keys = BY_NAME[name].properties
        for value in (text, [text], {text: text}):
            answered(gateway, name, json.dumps(dict.fromkeys(keys, value)).encode())
        answered(gateway, name, text.encode("utf-8", "surrogatepass"))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.requirement("D-07")
@given(name=st.sampled_from(READING), data=st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_json_in_any_argument_is_answered(gateway: BlockingGateway, name: str, data: st.DataObject) -> None:
    keys = st.sampled_from(sorted(BY_NAME[name].properties)) | st.text(max_size=8)
    sent = data.draw(st.dictionaries(keys, json_values, max_size=6))
    answered(gateway, name, json.dumps(sent).encode())


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(sent: bytes) -> None:
    for kind in (operations._List, operations._CallTool, operations._SearchTools):
        with contextlib.suppress(InvalidArguments):
            operations._parse(kind, Raw(sent))


@pytest.mark.parametrize("size", [1_000_000])
def test_what_is_far_too_long_is_answered_all_the_same(gateway: BlockingGateway, size: int) -> None:
    long = "rename a symbol " * (size // 16)
    for name, sent in (
        ("list", {"path": [long]}),
        ("list", {"path": ["a"] * 10_000}),
        ("list", {"query": long}),
        ("list", {"tags": [long], "query": "x"}),
        ("list", {"cursor": long}),
        ("search_nodes", {"query": long}),
        ("search_tool_by_category", {"query": long, "category_path": [long]}),
        ("expand_tool", {"tool_id": long}),
        ("call_tool", {"tool_id": "data.query_table", "args": {"name": long, "more": {"deep": [long]}}}),
        ("inspect_tool_output", {"tool_id": "refactor.rename_symbol", "field_path": long}),
        ("tool_output", {"handle": long, "extract": long}),
    ):
        answered(gateway, name, json.dumps(sent).encode())


def test_a_caller_that_gives_up_leaves_nothing_behind(gateway: BlockingGateway) -> None:
    async def give_up() -> None:
        surface = DiscoverySurface(gateway.gateway)
        work = asyncio.ensure_future(surface.call("search_nodes", Raw(b'{"query":"oauth"}')))
        await asyncio.sleep(0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    gateway.run(give_up())
    assert not answered(gateway, "list", b"{}").get("isError")
