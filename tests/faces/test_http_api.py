"""The HTTP face as a program meets it: a real server on loopback, proper statuses, bodies that do not fit."""

import asyncio
import json
import re
import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import pytest
from four_faces import GROUPS, http_server, make_project, settings_of

from toolfold import Settings
from toolfold.config import CallerKey, Policy
from toolfold.errors import CatalogueError, ServerClosed, ServerTimeout, ToolfoldError, UpstreamError
from toolfold.faces.http_api.app import STATUSES
from toolfold.faces.http_api.openapi import document
from toolfold.faces.http_api.request import MAX_BODY_BYTES
from toolfold.faces.surface.definitions import DISCOVERY
from toolfold.testing.memory_upstream import MemoryUpstream

KEY = "a-key-of-32-characters-for-a-test"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    settings = settings_of(make_project(tmp_path_factory.mktemp("http")))
    with http_server(settings) as address, httpx2.Client(base_url=address, timeout=30) as client:
        yield client


def error_of(answer: httpx2.Response) -> tuple[int, str]:
    """The status and the code, after a look at the form that every error has."""
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert list(error)[:4] == ["code", "message", "hints", "next_action"]
    assert error["message"]
    assert error["next_action"]
    return answer.status_code, error["code"]


@pytest.mark.requirement("G-02", "D-07")
@pytest.mark.parametrize(
    ("operation", "body", "status", "code"),
    [
        ("list", {"path": ["Nowhere"]}, 404, "UNKNOWN_PATH"),
        ("list", {"cursor": "none"}, 400, "BAD_CURSOR"),
        ("list", {"paths": []}, 422, "INVALID_ARGUMENTS"),
        ("list", [], 422, "INVALID_ARGUMENTS"),
        ("search_nodes", {"query": "  "}, 422, "INVALID_ARGUMENTS"),
        ("list", {"query": "rename a symbol", "path": ["Storage"]}, 404, "NO_MATCH_IN_CATEGORY"),
        ("expand_tool", {}, 422, "INVALID_ARGUMENTS"),
        ("expand_tool", {"tool_id": "no.such"}, 404, "TOOL_NOT_FOUND"),
        ("call_tool", {"tool_id": "no.such"}, 404, "TOOL_NOT_FOUND"),
        ("call_tool", {"tool_id": "data.query_table"}, 422, "INVALID_ARGUMENTS"),
        ("call_tool", {"tool_id": "data.query_table", "args": {"name": "x"}, "expect_version": 9}, 409, "TOOL_CHANGED"),
        ("inspect_tool_output", {"tool_id": "refactor.rename_symbol", "field_path": "nope"}, 404, "UNKNOWN_FIELD"),
    ],
)
def test_each_error_has_its_status(client: httpx2.Client, operation: str, body: Any, status: int, code: str) -> None:
    assert error_of(client.post(f"/v1/{operation}", json=body)) == (status, code)


def test_every_error_that_a_caller_can_do_something_about_has_a_status_that_the_document_knows() -> None:
    def codes(kind: type[ToolfoldError]) -> set[str]:
        below = kind.__subclasses__()
        return set().union(*({one.code} | codes(one) for one in below if one.__module__ == "toolfold.errors"))

    assert codes(CatalogueError) | codes(UpstreamError) | {"INVALID_ARGUMENTS"} <= set(STATUSES)
    assert set(STATUSES) <= codes(ToolfoldError), "no status without an error"
    assert {str(status) for status in STATUSES.values()} <= set(document()["components"]["responses"])


@pytest.mark.parametrize(
    ("error", "status"),
    [(ServerClosed("it went away"), 502), (ServerTimeout("it did not answer"), 504)],
)
def test_a_server_that_fails_is_told_as_a_bad_gateway(tmp_path: Path, error: Any, status: int) -> None:
    shop = MemoryUpstream("shop", [{"name": "buy"}])
    shop.call_error = error
    with http_server(Settings(home=tmp_path), [shop], build=True) as address:
        assert error_of(httpx2.post(f"{address}/v1/call_tool", json={"tool_id": "shop.buy"}))[0] == status


def test_without_a_catalogue_it_is_up_and_says_what_is_missing(tmp_path: Path) -> None:
    with http_server(Settings(home=tmp_path)) as address:
        assert httpx2.get(f"{address}/healthz").json()["status"] == "ok"
        ready = httpx2.get(f"{address}/readyz")
        assert (ready.status_code, ready.json()["missing"][0]["what"]) == (503, "catalogue")
        assert error_of(httpx2.post(f"{address}/v1/list", json={})) == (503, "NOT_BUILT")


def test_a_body_must_be_json_and_say_so(client: httpx2.Client) -> None:
    assert error_of(client.post("/v1/list", content=b"{")) == (415, "UNSUPPORTED_MEDIA_TYPE")
    as_json = {"content-type": "application/json"}
    assert error_of(client.post("/v1/list", content=b"{", headers=as_json)) == (400, "BAD_JSON")
    assert error_of(client.post("/v1/list", content=b"[" * 100_000, headers=as_json)) == (400, "BAD_JSON")
    assert client.post(
        "/v1/list", content=b"{}", headers={"content-type": "Application/JSON; charset=utf-8"}
    ).is_success
    assert client.post("/v1/list").is_success, "no body asks for the root"


def test_every_body_of_the_json_test_suite_gets_an_answer(client: httpx2.Client, shared_data: Path) -> None:
    bodies = sorted((shared_data / "suites" / "json-test-suite").rglob("*.json"))
    assert len(bodies) > 300
    for file in bodies:
        answer = client.post("/v1/list", content=file.read_bytes(), headers={"content-type": "application/json"})
        if file.read_bytes().strip() not in (b"{}", b"", b"null", b'""'):
            assert error_of(answer)[0] in (400, 422), file.name


def test_a_body_that_is_too_large_is_refused_before_it_is_read(client: httpx2.Client) -> None:
    as_json = {"content-type": "application/json"}
    whole = client.post("/v1/list", content=b" " * (MAX_BODY_BYTES + 1), headers=as_json)
    assert error_of(whole) == (413, "BODY_TOO_LARGE")
    pieces = (b" " * 65_536 for _ in range(MAX_BODY_BYTES // 65_536 + 1))
    assert error_of(client.post("/v1/list", content=pieces, headers=as_json)) == (413, "BODY_TOO_LARGE")


def test_wrong_methods_and_addresses_are_told_in_the_same_form(client: httpx2.Client) -> None:
    wrong = client.get("/v1/list")
    assert error_of(wrong) == (405, "METHOD_NOT_ALLOWED")
    assert wrong.headers["allow"] == "POST"
    assert error_of(client.post("/healthz")) == (405, "METHOD_NOT_ALLOWED")
    assert error_of(client.post("/v1/nothing", json={})) == (404, "NOT_FOUND")


def test_pages_from_elsewhere_may_not_ask(client: httpx2.Client) -> None:
    for origin in ("https://evil.example", "http://localhost.evil.example", "null", "http://[", "file://"):
        answer = client.post("/v1/list", json={}, headers={"origin": origin})
        assert error_of(answer) == (403, "ORIGIN_NOT_ALLOWED")
    for origin in ("http://localhost:3000", "http://127.0.0.1:1", "http://[::1]:80"):
        assert client.post("/v1/list", json={}, headers={"origin": origin}).is_success


def test_a_name_that_somebody_else_leads_to_this_machine_is_not_answered(client: httpx2.Client) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", "[::2]:80", ""):
        assert error_of(client.get("/v1/servers", headers={"host": host})) == (403, "HOST_NOT_ALLOWED")
    for host in ("localhost:8080", "[::1]:80"):
        assert client.get("/v1/servers", headers={"host": host}).is_success


def test_where_keys_are_configured_one_is_needed(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, callers=(CallerKey(name="ci", key=KEY),))
    with http_server(settings, [MemoryUpstream("shop", [{"name": "buy"}])], build=True) as address:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": KEY}):
            answer = httpx2.post(f"{address}/v1/list", json={}, headers=headers)
            assert error_of(answer) == (401, "NOT_AUTHENTICATED")
            assert answer.headers["www-authenticate"].startswith("Bearer")
        assert error_of(httpx2.get(f"{address}/v1/servers")) == (401, "NOT_AUTHENTICATED")
        assert httpx2.post(f"{address}/v1/list", json={}, headers={"authorization": f"Bearer {KEY}"}).is_success
        assert httpx2.get(f"{address}/healthz").is_success
        assert KEY not in httpx2.get(f"{address}/docs").text


def test_servers_and_instructions_can_be_read_and_no_command_is_shown(client: httpx2.Client) -> None:
    servers = client.get("/v1/servers").json()["servers"]
    assert {server["name"]: server["tools"] for server in servers}["storage"] == 4
    assert {server["name"] for server in servers} == set(GROUPS)
    assert "example_server" not in json.dumps(servers)
    assert "Never call a tool without expanding it" in client.get("/v1/instructions").json()["instructions"]


@pytest.mark.requirement("G-02")
def test_the_openapi_document_is_valid_and_has_every_operation(client: httpx2.Client) -> None:
    from openapi_spec_validator import validate

    served = client.get("/openapi.json").json()
    validate(served)
    assert served == json.loads(json.dumps(document()))
    assert served["openapi"].startswith("3.1")
    for one in DISCOVERY:
        operation = served["paths"][f"/v1/{one.name}"]["post"]
        content = operation["requestBody"]["content"]["application/json"]
        assert content["schema"] == one.input_schema
        assert set(one.required) <= set(content["example"]) <= set(one.properties)


@pytest.mark.requirement("G-02")
def test_the_page_shows_every_operation_and_needs_nothing_from_anywhere(client: httpx2.Client) -> None:
    answer = client.get("/docs")
    page = answer.text
    assert answer.headers["content-type"].startswith("text/html")
    for path in document()["paths"]:
        assert f'data-path="{path}"' in page
    assert not re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?(?:https?:)?//""", page)
    policy = answer.headers["content-security-policy"]
    for tag in ("style", "script"):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert b64encode(sha256(inside.encode()).digest()).decode() in policy
    assert "default-src 'none'" in policy


def test_a_call_ends_when_the_client_goes_away(tmp_path: Path) -> None:
    started, ended = threading.Event(), threading.Event()

    async def wait_forever() -> None:
        """Waits until it is cancelled."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with http_server(Settings(home=tmp_path), [MemoryUpstream("slow", [wait_forever])], build=True) as address:
        host, _, port = address.removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as client:
            body = b'{"tool_id": "slow.wait_forever"}'
            client.sendall(
                b"POST /v1/call_tool HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                + b"Content-Length: %d\r\n\r\n" % len(body)
                + body
            )
            assert started.wait(30)
            assert not ended.is_set()
        assert ended.wait(30)


def test_a_caller_sees_only_servers_with_tools_for_it(tmp_path: Path) -> None:
    settings = Settings(
        home=tmp_path,
        callers=(CallerKey(name="ci", key=KEY, policy="few"),),
        policies=(Policy(name="default", allow=("**",)), Policy(name="few", allow=("shop.buy",))),
    )
    servers = [MemoryUpstream("shop", [{"name": "buy"}, {"name": "sell"}]), MemoryUpstream("vault", [{"name": "open"}])]
    with http_server(settings, servers, build=True) as address:
        answer = httpx2.get(f"{address}/v1/servers", headers={"authorization": f"Bearer {KEY}"}).json()
        assert [(server["name"], server["tools"]) for server in answer["servers"]] == [("shop", 1)]


def test_many_at_once_are_each_answered_with_their_own(client: httpx2.Client) -> None:
    async def main() -> None:
        async with httpx2.AsyncClient(base_url=client.base_url, timeout=30) as many:

            async def ask(number: int) -> bool:
                body = {"tool_id": "data.query_table", "args": {"name": f"n{number}"}}
                answer = await many.post("/v1/call_tool", json=body)
                return bool(answer.json()["structuredContent"] == {"given": {"name": f"n{number}"}})

            assert all(await asyncio.gather(*(ask(number) for number in range(100))))

    asyncio.run(main())
