"""The server card that strangers read, and the `server.json` for the MCP registry: what stands in them and what not."""

import json
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import pytest
from mcp_client_helpers import served_over_http

from toolfold import Settings, __version__
from toolfold.__main__ import main

KEY = "a-key-of-enough-characters"
KEYS = f'[callers.ann]\nkey = "{KEY}"\n'
PUBLIC = '[sign_in]\npublic_url = "https://tools.example.com"\n'

# What both forms demand, in our own words.
TEXT = {"type": "string", "minLength": 1, "maxLength": 100}
INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        **{name: {"type": "string"} for name in ("name", "description", "value", "default", "placeholder")},
        **{name: {"type": "boolean"} for name in ("isRequired", "isSecret")},
        "variables": {"type": "object", "additionalProperties": {"type": "object"}},
    },
    "required": ["name"],
    "additionalProperties": False,
}
REMOTE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "type": {"enum": ["streamable-http", "sse"]},
        "url": {"type": "string", "pattern": r"^https?://[^\s]+$"},
        "headers": {"type": "array", "items": INPUT},
    },
    "required": ["type", "url"],
    "additionalProperties": False,
}
SERVER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "$schema": {"const": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"},
        "name": {"type": "string", "pattern": "^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$", "minLength": 3, "maxLength": 200},
        "title": TEXT,
        "description": TEXT,
        "version": {"type": "string", "maxLength": 255, "pattern": r"^\d+\.\d+"},
        "remotes": {"type": "array", "items": REMOTE, "minItems": 1},
    },
    "required": ["$schema", "name", "description", "version"],
    "additionalProperties": False,
}
VERSIONS = {"type": "array", "items": {"type": "string"}, "contains": {"const": "2026-07-28"}}
CARD = {
    **SERVER,
    "properties": {
        **SERVER["properties"],
        "$schema": {"const": "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"},
        "remotes": {
            "type": "array",
            "items": {**REMOTE, "properties": {**REMOTE["properties"], "supportedProtocolVersions": VERSIONS}},
        },
    },
}


def card_of(answer: httpx2.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/mcp-server-card+json"
    card: dict[str, Any] = answer.json()
    jsonschema_rs.validate(CARD, card)
    # Neither a server behind it, nor a tool, nor a caller, nor a key.
    assert not any(word in answer.text for word in ("fixture", "test_simple", "ann", KEY))
    return card


def test_21_a_gateway_for_this_machine_shows_its_card_to_this_machine(tmp_path: Path) -> None:
    with served_over_http(tmp_path, "--profile", "discovery") as url:
        first = httpx2.get(f"{url}/server-card")
        card = card_of(first)
        assert (card["name"], card["version"]) == ("localhost/toolfold", __version__)
        assert card["remotes"][0]["url"] == url
        assert "headers" not in card["remotes"][0]
        assert "access-control-allow-origin" not in first.headers
        assert first.headers["cache-control"] == "public, max-age=3600"
        again = httpx2.get(f"{url}/server-card", headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert httpx2.head(f"{url}/server-card").status_code == 200
        assert httpx2.post(f"{url}/server-card", json={}).status_code == 405
        assert httpx2.get(f"{url}/server-card", headers={"Host": "evil.example"}).status_code == 403
        assert httpx2.get(f"{url}/server-card", headers={"Origin": "https://evil.example"}).status_code == 403


def test_21_a_gateway_that_wants_keys_shows_what_is_public_and_no_address_that_is_not(tmp_path: Path) -> None:
    with served_over_http(tmp_path, extra=KEYS) as url:
        assert "remotes" not in card_of(httpx2.get(f"{url}/server-card")), "nobody said that it may be known"
        assert httpx2.post(url, json={}).status_code == 401
    with served_over_http(tmp_path, extra=KEYS + PUBLIC) as url:
        answer = httpx2.get(f"{url}/server-card", headers={"Origin": "https://page.example", "Host": "any.example"})
        card = card_of(answer)
        assert answer.headers["access-control-allow-origin"] == "*"
        assert card["name"] == "com.example.tools/toolfold"
        [remote] = card["remotes"]
        assert remote["url"] == "https://tools.example.com/mcp"
        [header] = remote["headers"]
        assert (header["name"], header["isSecret"], header["isRequired"]) == ("Authorization", True, True)
        missing = httpx2.get(f"{url}/p/some/server-card", headers={"Authorization": f"Bearer {KEY}"})
        assert missing.status_code == 404, "a subset has no card: it would say that there is one"


def test_21_server_json_is_of_the_registrys_form_and_toolfold_takes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "toolfold.toml"
    config.write_text(KEYS + PUBLIC)
    words = ["--config", str(config), "--home", str(tmp_path / "home")]
    assert main([*words, "serve", "--server-json", "com.example/tools"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema_rs.validate(SERVER, document)
    assert KEY not in json.dumps(document)
    (tmp_path / "server.json").write_text(json.dumps(document))
    other = tmp_path / "other.toml"
    other.write_text("")
    assert main(["--config", str(other), "--home", str(tmp_path), "add", str(tmp_path / "server.json")]) == 0
    spec = Settings.load(other, home=tmp_path).server("tools")
    assert spec.url == "https://tools.example.com/mcp"
    assert spec.headers == {"Authorization": "Bearer ${TOOLS_KEY}"}


@pytest.mark.parametrize(
    ("name", "table", "problem"),
    [
        ("tools", PUBLIC, "no name of the registry"),
        ("a/b/c", PUBLIC, "no name of the registry"),
        ("com.example/" + "t" * 200, PUBLIC, "no name of the registry"),
        ("com.example/tools", "", "no public address is configured"),
        ("com.example/tools", PUBLIC.replace("tools.example.com", "10.0.0.7"), "cannot be reached from everywhere"),
        ("com.example/tools", PUBLIC.replace("https", "http"), "cannot be reached from everywhere"),
    ],
)
def test_21_what_the_registry_would_refuse_is_said_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, table: str, problem: str
) -> None:
    config = tmp_path / "toolfold.toml"
    config.write_text(table)
    assert main(["--config", str(config), "--home", str(tmp_path), "serve", "--server-json", name]) == 2
    assert problem in " ".join(capsys.readouterr().err.split())
