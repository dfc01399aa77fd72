"""How a configuration says that a server is signed in to, and how other clients do."""

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from msgspec.structs import replace

from toolfold.config import Settings, resolve
from toolfold.config.schema import schema_text
from toolfold.errors import ConfigError, SecretNotFound
from toolfold.types import OAuthSpec, ServerSpec


def load(tmp_path: Path, text: str, name: str = "toolfold.toml") -> ServerSpec:
    file = tmp_path / name
    file.write_text(text)
    return Settings.load(file).servers[0]


WHOLE = """
[servers.box]
url = "https://box.example/mcp"
[servers.box.oauth]
client_id = "me"
client_secret = "${BOX_SECRET}"
scopes = ["read", "write"]
issuer = "https://login.example"
grant = "client_credentials"
redirect_port = 8123
client_metadata_url = "https://me.example/client.json"
"""


def test_the_whole_table_is_read_and_its_secret_filled_in(tmp_path: Path) -> None:
    spec = load(tmp_path, WHOLE)
    assert spec.oauth == OAuthSpec(
        client_id="me",
        client_secret="${BOX_SECRET}",
        scopes=("read", "write"),
        issuer="https://login.example",
        grant="client_credentials",
        redirect_port=8123,
        client_metadata_url="https://me.example/client.json",
    )
    filled = resolve(spec, environ={"BOX_SECRET": "very secret"})
    assert filled.oauth is not None
    assert filled.oauth.client_secret == "very secret"
    assert "very secret" in filled.secrets
    assert "very secret" not in repr(filled)
    with pytest.raises(SecretNotFound, match="BOX_SECRET"):
        resolve(spec, environ={})
    jsonschema_rs.validate(json.loads(schema_text()), tomllib.loads(WHOLE))


EXCHANGE = 'oauth = {exchange = true, issuer = "https://login.example", client_id = "me", client_secret = "${S}"}'


def test_a_callers_own_token_may_be_exchanged(tmp_path: Path) -> None:
    text = f'[servers.box]\nurl = "https://box.example/mcp"\ncredentials = "caller"\n{EXCHANGE}'
    assert load(tmp_path, text).oauth == OAuthSpec(
        exchange=True, issuer="https://login.example", client_id="me", client_secret="${S}"
    )
    jsonschema_rs.validate(json.loads(schema_text()), tomllib.loads(text))


def test_a_plain_secret_is_known_for_one(tmp_path: Path) -> None:
    spec = load(tmp_path, WHOLE.replace("${BOX_SECRET}", "plain-secret-value"))
    assert "plain-secret-value" in spec.secrets


def test_auth_oauth_as_other_clients_write_it(tmp_path: Path) -> None:
    assert load(tmp_path, '[servers.box]\nurl = "https://box.example/mcp"\nauth = "oauth"').oauth == OAuthSpec()
    assert load(tmp_path, '[servers.box]\nurl = "https://box.example/mcp"').oauth is None


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ('bearer_token = "x"\noauth = {}', "has a token of its own besides"),
        ('headers = {authorization = "x"}\noauth = {}', "has a token of its own besides"),
        ('oauth = {grant = "client_credentials"}', "needs an id and a secret"),
        ('oauth = {grant = "password"}', "grant"),
        (f"{EXCHANGE}", 'Give credentials = "caller" to the server'),
        (f'credentials = "caller"\n{EXCHANGE.replace("issuer", "client_metadata_url")}', "issuer, client_id"),
        (f'credentials = "caller"\n{EXCHANGE.replace("client_secret", "client_metadata_url")}', "client_secret"),
        (f'credentials = "caller"\n{EXCHANGE[:-1]}, grant = "client_credentials"}}', "whose token where"),
        ("oauth = {redirect_port = 70000}", "65_535"),
        ('oauth = {clientid = "x"}', "Did you mean `client_id`"),
        ('oauth = "yes"', "expected a table"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, lines: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, f'[servers.box]\nurl = "https://box.example/mcp"\n{lines}')
    assert reason in f"{refused.value.message} {refused.value.hints} {refused.value.next_action}"


def test_a_token_may_stand_beside_a_sign_in_that_is_off(tmp_path: Path) -> None:
    spec = load(tmp_path, '[servers.box]\nurl = "https://b.example"\nbearer_token = "x"\noauth = {enabled = false}')
    assert spec.oauth == OAuthSpec(enabled=False)


OWN = OAuthSpec(client_id="me", client_secret="${S}")


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"oauth": {"clientId": "me", "callbackPort": 8080}}, OAuthSpec(client_id="me", redirect_port=8080)),
        ({"oauth": {"clientId": "me", "clientSecret": "${S}", "scope": "a b"}}, replace(OWN, scopes=("a", "b"))),
        ({"oauth": {"enabled": True, "scopes": ["a"], "tokenUrl": "x"}}, OAuthSpec(scopes=("a",))),
        ({"oauth": False}, OAuthSpec(enabled=False)),
        ({"auth": {"CLIENT_ID": "me", "CLIENT_SECRET": "${S}", "scopes": ["a"]}}, replace(OWN, scopes=("a",))),
        ({"auth": "oauth"}, OAuthSpec()),
        ({}, None),
    ],
)  # fmt: skip
def test_other_clients_spellings_are_understood(
    tmp_path: Path, entry: dict[str, Any], expected: OAuthSpec | None
) -> None:
    text = json.dumps({"mcpServers": {"box": {"url": "https://box.example/mcp", **entry}}})
    assert load(tmp_path, text, "mcp.json").oauth == expected
