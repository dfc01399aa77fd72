"""The client that the official conformance suite runs: `client.py SERVER_URL`, one scenario named in the environment.

It uses the wire layer as any user of it would, and is not told which era to speak: that it finds out.
What a scenario wants done stands in one function per scenario. Scenarios about authorization use the sign-in of an
upstream, with a person who says yes to everything: the authorization page is fetched, and answers with a redirect.
Those about skills use a whole gateway.
"""

import asyncio
import json
import os
import secrets
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
from msgspec import Raw

from toolfold import Gateway, Settings
from toolfold.auth.grants import prepare
from toolfold.auth.session import OAuthSession
from toolfold.auth.vault import KEY_VARIABLE, Vault
from toolfold.errors import ProtocolViolation, SignInRequired
from toolfold.types import OAuthSpec, ServerSpec
from toolfold.wire import Connection, HttpTarget, WireOptions, connect

Scenario = Callable[[Connection], Awaitable[None]]

EVERYTHING = Raw(b'{"elicitation":{"form":{"applyDefaults":true},"url":{}},"sampling":{},"roots":{}}')
FORMS = Raw(b'{"elicitation":{"form":{"applyDefaults":true}}}')


def raw(value: object) -> Raw:
    return Raw(json.dumps(value).encode())


async def fill_in(method: str, params: Raw) -> Raw:
    """Accepts every form: each field gets its default, or the plainest value of its type."""
    if method != "elicitation/create":
        raise AssertionError(f"asked for {method}")
    fields = json.loads(bytes(params)).get("requestedSchema", {}).get("properties", {})
    plain = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "array": []}
    content = {name: field.get("default", plain.get(field.get("type"), "text")) for name, field in fields.items()}
    return raw({"action": "accept", "content": content})


async def call(connection: Connection, name: str, arguments: object = None) -> dict[str, Any]:
    result = await connection.call_tool(name, raw(arguments or {}), on_input=fill_in)
    return dict(json.loads(bytes(result)))


async def tools_of(connection: Connection) -> dict[str, Any]:
    listed = await connection.list_tools()
    return {tool["name"]: tool for tool in (json.loads(bytes(entry)) for entry in listed.tools)}


async def only_list(connection: Connection) -> None:
    await connection.list_tools()


async def add_numbers(connection: Connection) -> None:
    tools = await tools_of(connection)
    await call(connection, next(iter(tools)), {"a": 5, "b": 3})


async def call_every_tool(connection: Connection) -> None:
    for name in await tools_of(connection):
        await call(connection, name)


async def metadata(connection: Connection) -> None:
    await connection.list_tools()
    await call(connection, "anything")


async def standard_headers(connection: Connection) -> None:
    await call_every_tool(connection)
    await connection.request("resources/list")
    await connection.request("resources/read", raw({"uri": "file:///path/to/file%20name.txt"}))
    await connection.request("prompts/list")
    await connection.request("prompts/get", raw({"name": "test_prompt"}))


async def custom_headers(connection: Connection) -> None:
    await connection.list_tools()
    for wanted in json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])["toolCalls"]:
        await call(connection, wanted["name"], wanted["arguments"])


async def invalid_tool_headers(connection: Connection) -> None:
    for name, tool in (await tools_of(connection)).items():
        await call(connection, name, dict.fromkeys(tool["inputSchema"].get("properties", {}), "value"))


async def request_state(connection: Connection) -> None:
    """Several conversations at once, none of which may leak into another."""
    names = list(await tools_of(connection))
    await asyncio.gather(*(call(connection, name) for name in names))


async def echo_schema(connection: Connection) -> None:
    tools = await tools_of(connection)
    await call(connection, "json_schema_echo", {"schema": tools["json_schema_2020_12_tool"]["inputSchema"]})


SCENARIOS: dict[str, Scenario] = {
    "initialize": only_list,
    "tools_call": add_numbers,
    "elicitation-sep1034-client-defaults": call_every_tool,
    "sse-retry": call_every_tool,
    "request-metadata": metadata,
    "sep-2322-client-request-state": request_state,
    "http-standard-headers": standard_headers,
    "http-custom-headers": custom_headers,
    "http-invalid-tool-headers": invalid_tool_headers,
    "json-schema-ref-no-deref": only_list,
    "json-schema-2020-12-preservation": echo_schema,
}


REDIRECT = "http://127.0.0.1:33418/callback"
# The address that the suite expects as the client's id where it takes metadata documents.
METADATA_DOCUMENT = "https://conformance-test.local/client-metadata.json"
MOST_LOGINS = 3


async def log_in(spec: ServerSpec, vault: Vault) -> None:
    login = await (await prepare(spec, vault)).code_login(REDIRECT)
    async with httpx2.AsyncClient(trust_env=False) as browser:
        page = await browser.get(login.url)
    await vault.put(await login.finish(page.headers["location"]))


async def signed_in(url: str, scenario: str) -> None:
    """Lists and calls the tools, twice, and signs in as often as that is asked for."""
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    oauth = OAuthSpec(
        client_id=context.get("client_id", ""),
        client_secret=context.get("client_secret", ""),
        private_key=context.get("private_key_pem", ""),
        issuer=context.get("issuer", ""),
        grant="client_credentials" if scenario.startswith("auth/client-credentials") else "person",
        client_metadata_url=METADATA_DOCUMENT if scenario == "auth/basic-cimd" else "",
    )
    spec = ServerSpec(name="server", transport="http", url=url, oauth=oauth)
    os.environ[KEY_VARIABLE] = secrets.token_hex()  # and not this machine's keyring
    with tempfile.TemporaryDirectory() as home:
        vault = Vault(Path(home))
        for _ in range(MOST_LOGINS):
            target = HttpTarget(url, authorization=OAuthSession(spec, vault))
            try:
                connection = await connect(target, options=WireOptions(request_timeout_s=20))
                try:
                    for _ in range(2):
                        await call_every_tool(connection)
                    return
                finally:
                    await connection.aclose()
            except SignInRequired:
                await log_in(spec, vault)
        raise AssertionError("signed in too often")


async def skills(url: str, scenario: str) -> None:
    """Reads every file of every skill, as far as the gateway shows them; or looks around and reads none."""
    spec = ServerSpec(name="server", transport="http", url=url)
    with tempfile.TemporaryDirectory() as home:
        async with Gateway(Settings(home=Path(home), servers=(spec,))) as gateway:
            await gateway.build(index=False)
            (listed,) = (await gateway.leaves.page("skill")).leaves
            await gateway.expand_tool(listed.tool_id)
            if scenario != "sep-2640-client-no-prefetch":
                with suppress(ProtocolViolation):
                    for file in ("SKILL.md", "references/FORMS.md"):
                        await gateway.call_tool(listed.tool_id, {"file": file})


async def main() -> None:
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    for begins, play in {"auth/": signed_in, "sep-2640-": skills}.items():
        if scenario.startswith(begins):
            await play(sys.argv[-1], scenario)
            return
    capabilities = EVERYTHING if scenario == "request-metadata" else FORMS
    connection = await connect(
        HttpTarget(sys.argv[-1]), options=WireOptions(capabilities=capabilities, request_timeout_s=20)
    )
    try:
        await SCENARIOS[scenario](connection)
    finally:
        await connection.aclose()


if __name__ == "__main__":
    asyncio.run(main())
