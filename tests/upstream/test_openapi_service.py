"""OpenAPI documents as upstreams, against a real service on this machine."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it ships no types; only `validate` is used
import pytest
import yaml
from openapi_spec_validator import validate
from shop_service import DOCUMENT, TOKEN, Shop, running_shop
from tool_calls import CONTEXT, tool_call

from toolfold.errors import FrameTooLarge, ServerClosed, ServerTimeout, ServerUnavailable
from toolfold.types import Annotations, Listing, Outcome, ServerSpec
from toolfold.upstream.openapi import OpenApiUpstream
from toolfold.wire import WireOptions

Scene = Callable[[OpenApiUpstream, Shop], Awaitable[Any]]

_running: list[Shop] = []


@pytest.fixture(scope="module", autouse=True)
def service() -> Iterator[None]:
    """One service for all tests here: it keeps no state."""
    with running_shop() as shop:
        _running.append(shop)
        yield
        _running.clear()


def play(scene: Scene, *, wire: WireOptions | None = None, **changes: Any) -> Any:
    """Runs a scene with the service and an upstream of it."""
    shop = _running[0]
    settings: dict[str, Any] = {
        "document": f"{shop.address}/openapi.json",
        "headers": {"Authorization": f"Bearer {TOKEN}"},
        "secrets": (TOKEN,),
        "call_timeout_s": 20.0,
    }
    spec = ServerSpec(name="shop", transport="openapi", **(settings | changes))

    async def main() -> Any:
        upstream = OpenApiUpstream(spec, wire)
        try:
            await upstream.open()
            return await scene(upstream, shop)
        finally:
            await upstream.aclose()

    return asyncio.run(main())


def ask(tool: str, arguments: dict[str, Any] | None = None, **changes: Any) -> tuple[bool, Any]:
    """One call; whether it is an error, and the result as JSON."""

    async def scene(upstream: OpenApiUpstream, _: Shop) -> Outcome:
        return await upstream.call(tool_call(tool, **(arguments or {})), CONTEXT)

    outcome = play(scene, **changes)
    result = json.loads(bytes(outcome.result))
    assert result.get("isError", False) is outcome.is_error
    return outcome.is_error, result


def echo(arguments: dict[str, Any], tool: str = "echo") -> Any:
    is_error, result = ask(tool, arguments)
    assert not is_error, result
    return json.loads(result["content"][0]["text"])


def error_text(tool: str, arguments: dict[str, Any] | None = None, **changes: Any) -> str:
    is_error, result = ask(tool, arguments, **changes)
    assert is_error
    return str(result["content"][0]["text"])


async def _listed(upstream: OpenApiUpstream, _: Shop) -> Listing:
    return await upstream.listing()


def test_the_document_of_the_service_is_valid() -> None:
    validate(DOCUMENT)


@pytest.mark.requirement("G-01")
def test_each_operation_is_a_tool() -> None:
    listing = play(_listed)
    tools = {tool.name: tool for tool in listing.tools}
    assert list(tools)[:6] == ["listOrders", "create_order", "getOrder", "putOrder", "delete_orders_id", "echo"]
    assert tools["listOrders"].title == "List orders"
    assert tools["listOrders"].description == "List orders\n\nNewest first."
    assert "elsewhere" not in tools
    assert any("elsewhere" in warning for warning in listing.warnings)
    assert (listing.info.name, listing.info.version, listing.info.instructions) == (
        "Shop",
        "2.0",
        "Orders of a small shop.",
    )


def test_annotations_follow_the_method() -> None:
    tools = {tool.name: tool.annotations for tool in play(_listed).tools}
    assert tools["getOrder"] == Annotations(read_only=True, idempotent=True, open_world=True)
    assert tools["putOrder"] == Annotations(idempotent=True, open_world=True)
    assert tools["create_order"] == Annotations(idempotent=False, open_world=True)
    assert tools["delete_orders_id"] == Annotations(read_only=False, destructive=True, idempotent=True, open_world=True)


def test_schemas_carry_their_definitions_recursion_included() -> None:
    tools = {tool.name: tool for tool in play(_listed).tools}
    given = json.loads(bytes(tools["create_order"].input_schema))
    returned = json.loads(bytes(tools["getOrder"].output_schema))
    for schema in (given, returned):
        jsonschema.Draft202012Validator.check_schema(schema)
        assert set(schema["$defs"]) == {"Order", "Item"}
    order = {"customer": "Mara", "parent": {"customer": "Jonas"}, "items": [{"order": {"customer": "Lena"}}]}
    jsonschema.validate({"body": order}, given)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"body": {"customer": "Mara", "parent": {"customer": 3}}}, given)
    assert "id" not in given["$defs"]["Order"]["properties"]
    assert returned["$defs"]["Order"]["required"] == ["id", "customer"]


def test_a_json_object_comes_back_as_text_and_structure() -> None:
    is_error, result = ask("getOrder", {"id": 1})
    assert not is_error
    assert result["structuredContent"] == {"id": 1, "customer": "Mara", "parent": None}
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]


def test_a_json_array_stands_under_result_as_the_output_schema_says() -> None:
    _, result = ask("listOrders")
    assert [order["customer"] for order in result["structuredContent"]["result"]] == ["Mara", "Jonas"]
    schema = next(tool for tool in play(_listed).tools if tool.name == "listOrders").output_schema
    jsonschema.validate(result["structuredContent"], json.loads(bytes(schema)))


def test_a_json_body_is_sent_and_its_answer_of_201_is_a_success() -> None:
    _, result = ask("create_order", {"body": {"customer": "Lena"}})
    assert result["structuredContent"] == {"id": 7, "customer": "Lena"}


def test_an_empty_answer_tells_its_status() -> None:
    assert ask("delete_orders_id", {"id": 1}) == (False, {"content": [{"type": "text", "text": "204 No Content"}]})


@pytest.mark.parametrize(
    ("arguments", "query"),
    [
        ({"plain": "a b&c=ü"}, "plain=a%20b%26c%3D%C3%BC"),
        ({"many": ["a", "b,c"]}, "many=a&many=b%2Cc"),
        ({"joined": ["a", "b,c"]}, "joined=a,b%2Cc"),
        ({"piped": ["a", "b"]}, "piped=a%7Cb"),
        ({"spaced": ["a", "b"]}, "spaced=a%20b"),
        ({"deep": {"size": {"min": 3}, "tags": ["x", "y"]}}, "deep[size][min]=3&deep[tags]=x&deep[tags]=y"),
        ({"spread": {"a": 1, "b": True}}, "a=1&b=true"),
        ({"flat": {"a": 1, "b": None}}, "flat=a,1,b,"),
        ({"reserved": "a/b?c"}, "reserved=a/b?c"),
        ({"coded": {"a": [1]}}, "coded=%7B%22a%22%3A%5B1%5D%7D"),
        ({"query_path": "second"}, "path=second"),
        ({"plain": None}, ""),
    ],
)
def test_query_parameters_go_in_their_styles(arguments: dict[str, Any], query: str) -> None:
    seen = echo({"path": "x", **arguments})["query"]
    assert seen.replace("|", "%7C") == query


def test_paths_headers_and_cookies_go_in_their_styles() -> None:
    seen = echo({"path": "a/b ü", "X-Many": ["1", "2"], "session": "s 1"})
    assert seen["path"] == "/api/echo/a%2Fb%20%C3%BC"
    assert seen["headers"]["x-many"] == "1,2"
    assert seen["headers"]["cookie"] == "session=s%201"
    assert seen["headers"]["authorization"] == f"Bearer {TOKEN}"
    assert echo({"label": ["a", "b"], "matrix": {"x": 1, "y": 2}}, "echoPath")["path"] == "/api/echo/.a.b/;x=1;y=2"


def test_forms_texts_and_bytes_are_sent_as_such() -> None:
    form = echo({"body": {"a": "x y", "b": [1, 2], "c": None}}, "sendForm")
    assert (form["body"], form["headers"]["content-type"]) == ("a=x%20y&b=1&b=2", "application/x-www-form-urlencoded")
    text = echo({"body": "hello"}, "sendText")
    assert (text["body"], text["headers"]["content-type"]) == ("hello", "text/plain")
    data = echo({"body": base64.b64encode(b"\x00\xff").decode()}, "sendBytes")
    assert (data["body"], data["headers"]["content-type"]) == ("\x00\xff", "application/octet-stream")


def test_files_go_as_multipart() -> None:
    seen = echo({"body": {"note": "n", "file": base64.b64encode(b"\x00data").decode()}}, "upload")
    assert seen["headers"]["content-type"].startswith("multipart/form-data; boundary=")
    assert 'name="note"\r\n\r\nn\r\n' in seen["body"]
    assert 'name="file"; filename="file"' in seen["body"]
    assert "\x00data" in seen["body"]
    assert echo({"body": {"note": "n"}}, "upload")["headers"]["content-type"].startswith("multipart/form-data")


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("getOrder", {}, "`id` is missing"),
        ("getOrder", {"id": 1, "other": 2}, "`other` is no argument of it"),
        ("create_order", {}, "`body` is missing"),
        ("echo", {"path": ".."}, "cannot stand in a path"),
        ("echo", {"path": ""}, "cannot stand in a path"),
        ("echo", {"path": "x", "X-Many": ["a\r\nEvil: 1"]}, "printable ASCII"),
        ("sendBytes", {"body": "not base64!"}, "must be base64"),
        ("upload", {"body": {"file": 3}}, "`body.file` must be base64"),
        ("sendForm", {"body": [1]}, "object of form fields"),
        ("nothing", {}, "no operation 'nothing'"),
    ],
)
def test_what_cannot_be_sent_is_refused_by_name(tool: str, arguments: dict[str, Any], message: str) -> None:
    assert message in error_text(tool, arguments)


def test_a_failure_tells_status_and_body_and_no_secret() -> None:
    text = error_text("getOrder", {"id": 5})
    assert text.startswith("HTTP 404 Not Found")
    assert "no such order" in text
    assert TOKEN not in text
    assert error_text("fails") == "HTTP 500 Internal Server Error\ntoken *** is wrong"


def test_other_content_keeps_its_kind() -> None:
    assert ask("picture")[1]["content"] == [{"type": "image", "data": "iVBORw==", "mimeType": "image/png"}]
    assert ask("page")[1]["content"] == [{"type": "text", "text": "<p>grün</p>"}]
    archive = ask("archive")[1]["content"][0]
    assert archive["type"] == "resource"
    assert archive["resource"]["blob"] == base64.b64encode(b"PK\x03\x04").decode()
    assert archive["resource"]["mimeType"] == "application/zip"
    assert ask("broken")[1] == {"content": [{"type": "text", "text": '{"half":'}]}


def test_redirects_stay_in_the_origin_and_change_nothing() -> None:
    assert echo({}, "redirect")["path"] == "/api/echo/here"
    assert "which is not followed" in error_text("away")
    assert "which is not followed" in error_text("redirectPost")


def test_an_answer_over_the_cap_is_refused() -> None:
    with pytest.raises(FrameTooLarge, match="over 100000 bytes"):
        ask("huge", wire=WireOptions(max_frame_bytes=100_000))


def test_an_answer_that_breaks_off_is_a_closed_server() -> None:
    with pytest.raises(ServerClosed) as caught:
        ask("cut")
    assert caught.value.server == "shop"


def test_a_slow_answer_is_given_up_in_time() -> None:
    with pytest.raises(ServerTimeout, match="did not answer within"):
        ask("slow", call_timeout_s=0.1)


def test_cancelling_a_call_ends_it_at_the_service() -> None:
    async def scene(upstream: OpenApiUpstream, shop: Shop) -> None:
        shop.slow_started.clear()
        shop.slow_ended.clear()
        task = asyncio.create_task(upstream.call(tool_call("slow"), CONTEXT))
        async with asyncio.timeout(60):
            assert await asyncio.to_thread(shop.slow_started.wait, 30)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(shop.slow_ended.wait, 30)

    play(scene)


def test_a_service_that_is_not_there_is_said_without_secrets(tmp_path: Path) -> None:
    file = tmp_path / "shop.json"
    file.write_text(json.dumps(DOCUMENT))

    async def main() -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        spec = ServerSpec(
            name="shop", transport="openapi", document=str(file), url="http://127.0.0.1:9/api", headers=headers
        )
        upstream = OpenApiUpstream(spec)
        await upstream.open()
        with pytest.raises(ServerUnavailable, match="cannot be reached") as caught:
            await upstream.call(tool_call("listOrders"), CONTEXT)
        assert TOKEN not in caught.value.message
        await upstream.aclose()

    asyncio.run(main())


def test_a_file_in_yaml_gives_the_same_tools(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(yaml.safe_dump(DOCUMENT, sort_keys=False))

    async def scene(upstream: OpenApiUpstream, shop: Shop) -> tuple[Listing, Listing]:
        spec = ServerSpec(name="shop", transport="openapi", document="shop.yaml", cwd=str(tmp_path), url=shop.address)
        other = OpenApiUpstream(spec)
        await other.open()
        return await upstream.listing(), await other.listing()

    first, second = play(scene)
    assert [bytes(tool.raw) for tool in first.tools] == [bytes(tool.raw) for tool in second.tools]


def test_the_query_of_the_configured_address_goes_with_each_request(tmp_path: Path) -> None:
    file = tmp_path / "shop.json"
    file.write_text(json.dumps(DOCUMENT))

    async def scene(_: OpenApiUpstream, shop: Shop) -> Any:
        url = f"{shop.address}/api/?key={TOKEN}"
        spec = ServerSpec(name="shop", transport="openapi", document=str(file), url=url, secrets=(TOKEN,))
        upstream = OpenApiUpstream(spec)
        await upstream.open()
        outcome = await upstream.call(tool_call("echo", path="x", plain="p"), CONTEXT)
        await upstream.aclose()
        return json.loads(json.loads(bytes(outcome.result))["content"][0]["text"])

    assert play(scene)["query"] == f"plain=p&key={TOKEN}"


def test_listing_again_reads_the_document_again(tmp_path: Path) -> None:
    file = tmp_path / "shop.json"
    file.write_text(json.dumps(DOCUMENT))

    async def main() -> tuple[int, int]:
        spec = ServerSpec(name="shop", transport="openapi", document=str(file), url="http://127.0.0.1:9")
        upstream = OpenApiUpstream(spec)
        await upstream.open()
        first = await upstream.listing()
        file.write_text(json.dumps({**DOCUMENT, "paths": {"/orders": DOCUMENT["paths"]["/orders"]}}))
        second = await upstream.listing()
        return len(first.tools), len(second.tools)

    first, second = asyncio.run(main())
    assert first > second == 2
