"""Resources, templates, prompts and completions of all servers through one endpoint, with the official client."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from leaf_servers import DOCS, WIKI, Leaves, fixture_table, met, operate, play
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_client_helpers import RecordingClient
from msgspec.structs import replace

from toolfold import Gateway, Settings
from toolfold.__main__ import main

pytestmark = pytest.mark.requirement("G-15")

each_era = pytest.mark.parametrize("era", ["legacy", "modern"])
each_way = pytest.mark.parametrize("transport", ["stdio", "http"])

GUIDE = "toolfold://resources/docs/file%3A%2F%2F%2Fdocs%2Finstall%20guide.md"
OAUTH = "toolfold://resources/docs/file%3A%2F%2F%2Fdocs%2Foauth.md"
LOGS = "toolfold://templates/docs/file%3A%2F%2F%2Flogs%2F%7B%2Bday%7D%7B%3Flevel%7D"


@pytest.mark.parametrize("profile", ["discovery", "direct", "auto"])
@each_era
@each_way
def test_everything_of_all_servers_is_listed_and_read(profile: str, era: str, transport: str, tmp_path: Path) -> None:
    async def scene(client: Client, recorder: RecordingClient) -> None:
        resources = {str(one.uri): one for one in (await client.list_resources()).resources}
        assert {GUIDE, OAUTH, "toolfold://resources/wiki/wiki%3Ahome"} <= resources.keys()
        assert (resources[GUIDE].name, resources[GUIDE].size) == ("Install guide", 7)
        assert resources[OAUTH].meta == {"a/b": 1}
        templates = (await client.list_resource_templates()).resource_templates
        assert LOGS + "{?day,level}" in [one.uri_template for one in templates]
        (prompt,) = (await client.list_prompts()).prompts
        assert prompt.name == "docs.review"
        assert [(one.name, one.required) for one in prompt.arguments or []] == [("branch", True), ("tone", None)]
        (content,) = (await client.read_resource(GUIDE)).contents
        assert (str(content.uri), content.text) == (GUIDE, "pip install")  # type: ignore[union-attr]
        both = await client.read_resource(OAUTH)
        assert [str(one.uri) for one in both.contents] == [OAUTH, OAUTH.replace("md", "png")]
        assert both.contents[1].blob == "AAAA"  # type: ignore[union-attr]
        got = await client.get_prompt("docs.review", {"branch": "a"})
        assert got.messages[0].content.text == 'review {"branch": "a"}'  # type: ignore[union-attr]

    play(Leaves(tmp_path, profile), era, scene, transport)


@each_era
def test_a_template_is_read_with_the_very_uri_that_its_server_means(era: str, tmp_path: Path) -> None:
    async def scene(client: Client, recorder: RecordingClient) -> None:
        asked = f"{LOGS}?day=2026%2Fa%20b&level=x%26y"
        (content,) = (await client.read_resource(asked)).contents
        assert (str(content.uri), content.text) == (asked, "one log")  # type: ignore[union-attr]
        (content,) = (await client.read_resource(f"{LOGS}?day=2026")).contents
        assert content.text == "a day"  # type: ignore[union-attr]

    play(Leaves(tmp_path), era, scene)


@each_era
def test_a_link_of_a_result_and_a_uri_as_its_server_wrote_it_are_readable(era: str, tmp_path: Path) -> None:
    async def scene(client: Client, recorder: RecordingClient) -> None:
        _, link, held = (await client.call_tool("call_tool", {"tool_id": "docs.point"})).content
        assert str(link.uri) == "toolfold://resources/docs/test%3Alinked"  # type: ignore[union-attr]
        assert str(held.resource.uri) == "toolfold://resources/docs/test%3Aheld"  # type: ignore[union-attr]
        read = await client.read_resource(str(link.uri))  # type: ignore[union-attr]
        assert read.contents[0].text == "linked text"  # type: ignore[union-attr]
        (content,) = (await client.read_resource("file:///docs/oauth.md")).contents[:1]
        assert str(content.uri) == "file:///docs/oauth.md"
        assert (await client.read_resource("file:///logs/2026")).contents
        with pytest.raises(MCPError, match=r"may be of docs, wiki"):
            await client.read_resource("test:same")

    play(Leaves(tmp_path), era, scene)


@pytest.mark.parametrize(
    "uri", ["nothing:here", "toolfold://resources/none/x%3Ay", f"{LOGS}x?day=1", "toolfold://resources/x"]
)
@each_era
def test_what_is_not_there_is_said_so(era: str, uri: str, tmp_path: Path) -> None:
    async def scene(client: Client, recorder: RecordingClient) -> None:
        with pytest.raises(MCPError, match="there is no resource") as missing:
            await client.read_resource(uri)
        assert missing.value.error.code == (-32002 if era == "legacy" else -32602)
        with pytest.raises(MCPError, match="there is no prompt") as unknown:
            await client.get_prompt("docs.nothing")
        assert unknown.value.error.code == -32602

    play(Leaves(tmp_path), era, scene)


def test_what_its_server_refuses_is_passed_on(tmp_path: Path) -> None:
    async def scene(client: Client, recorder: RecordingClient) -> None:
        with pytest.raises(MCPError, match="Resource not found: x:y") as refused:
            await client.read_resource("toolfold://resources/docs/x%3Ay")
        assert refused.value.error.code == -32002

    play(Leaves(tmp_path), "modern", scene)


def test_read_results_are_for_their_caller_alone(tmp_path: Path) -> None:
    async def scene(client: Client, recorder: RecordingClient) -> None:
        read: Any = await client.read_resource(OAUTH)
        assert (read.ttl_ms, read.cache_scope) == (5000, "private")
        listed: Any = await client.list_resources()
        assert listed.ttl_ms == 0

    play(Leaves(tmp_path), "modern", scene)


@each_era
def test_pages_are_bounded_and_lose_nothing_while_resources_come_and_go(era: str, tmp_path: Path) -> None:
    many = [{"uri": f"test:{n}", "name": f"n{n:03}"} for n in range(250)]
    leaves = Leaves(tmp_path, many={"resources": many, "page": 7})

    async def scene(client: Client, recorder: RecordingClient) -> None:
        page = await client.list_resources()
        seen = [one.name for one in page.resources]
        assert len(seen) == 100
        leaves.put("many", {"resources": [*many[:10], *many[20:], {"uri": "test:new", "name": "n000a"}], "page": 7})
        await client.call_tool(
            "call_tool", {"tool_id": "many.tell", "args": {"method": "notifications/resources/list_changed"}}
        )
        if era == "legacy":
            await recorder.wait_for("notifications/resources/list_changed")
        while page.next_cursor:
            page = await client.list_resources(cursor=page.next_cursor)
            seen += [one.name for one in page.resources]
        assert seen == sorted(seen)
        assert {one["name"] for one in (*many[:10], *many[20:])} <= set(seen)
        with pytest.raises(MCPError) as refused:
            await client.list_resources(cursor="x")
        assert refused.value.error.code == -32602

    play(leaves, era, scene)


@each_era
def test_a_changed_list_is_told(era: str, tmp_path: Path) -> None:
    leaves = Leaves(tmp_path)

    async def change(client: Client, kind: str, **made: Any) -> None:
        leaves.put("docs", {**DOCS, **made})
        told = {"tool_id": "docs.tell", "args": {"method": f"notifications/{kind}/list_changed"}}
        await client.call_tool("call_tool", told)

    async def scene(client: Client, recorder: RecordingClient) -> None:
        await client.list_resources()
        if era == "legacy":
            await change(client, "prompts", prompts=[])
            while (await client.list_prompts()).prompts:  # the first build may still be told, too
                await recorder.wait_for("notifications/prompts/list_changed")
            await change(client, "resources", resources=[])
            while GUIDE in [str(one.uri) for one in (await client.list_resources()).resources]:
                await recorder.wait_for("notifications/resources/list_changed")
        else:
            async with client.listen(resources_list_changed=True, prompts_list_changed=True) as heard:
                await change(client, "resources", resources=[])
                while GUIDE in [str(one.uri) for one in (await client.list_resources()).resources]:
                    assert type(await anext(heard)).__name__ in {"ResourcesListChanged", "PromptsListChanged"}

    play(leaves, era, scene)


@each_era
def test_arguments_are_completed_for_prompts_and_templates(era: str, tmp_path: Path) -> None:
    async def scene(client: Client, recorder: RecordingClient) -> None:
        prompt = types.PromptReference(type="ref/prompt", name="docs.review")
        template = types.ResourceTemplateReference(type="ref/resource", uri=LOGS + "{?day,level}")
        for ref, sent in (
            (prompt, {"type": "ref/prompt", "name": "review"}),
            (template, {"type": "ref/resource", "uri": "file:///logs/{+day}{?level}"}),
        ):
            (value,) = (await client.complete(ref, {"name": "branch", "value": "ma"})).completion.values
            assert json.loads(value) == [sent, {"name": "branch", "value": "ma"}]
            further = await client.complete(ref, {"name": "branch", "value": "m"}, context_arguments={"tone": "kind"})
            assert json.loads(further.completion.values[0])[1] == {"name": "branch", "value": "m"}
        with pytest.raises(MCPError, match="there is no prompt"):
            await client.complete(types.PromptReference(type="ref/prompt", name="x.y"), {"name": "a", "value": ""})

    play(Leaves(tmp_path), era, scene)


def test_a_tool_client_finds_and_reads_them_in_the_tree_and_in_search(tmp_path: Path) -> None:
    async def scene(client: Client, recorder: RecordingClient) -> None:
        root = await operate(client, "list")
        assert {"Resources", "Prompts"} <= {node["name"] for node in root["nodes"]}
        shelf = await operate(client, "list", path=["Resources", "docs"])
        ids = [tool["tool_id"] for tool in shelf["tools"]]
        assert ids == ["resource:docs.Install_guide", "resource:docs.OAuth", "resource:docs.Same", "template:docs.Logs"]
        assert shelf["tools"][0].keys() == {"tool_id", "path", "summary", "tags", "confidence"}
        found = await operate(client, "search_tool_by_category", query="how do I install it on Linux?")
        assert found["results"][0]["tool_id"] == "resource:docs.Install_guide"
        found = await operate(client, "search_tool_by_category", query="review a pull request")
        assert found["results"][0]["tool_id"] == "prompt:docs.review"
        nodes = await operate(client, "search_nodes", query="review a pull request")
        assert nodes["results"][0]["path"] == ["Prompts", "docs"]

        shown = await operate(client, "expand_tool", tool_id="template:docs.Logs")
        assert shown["kind"] == "template"
        assert shown["address"] == LOGS + "{?day,level}"
        assert shown["args_schema"]["properties"].keys() == {"day", "level"}
        assert shown["args_schema"]["required"] == ["day"]
        assert "call_tool" in shown["how_to_read"]
        args = {"day": "2026/a b", "level": "x&y"}
        assert await operate(client, "call_tool", tool_id="template:docs.Logs", args=args) == "one log"
        assert await operate(client, "call_tool", tool_id="resource:docs.Install_guide") == "pip install"
        read = await client.call_tool("call_tool", {"tool_id": "resource:docs.OAuth"})
        assert [block.type for block in read.content] == ["resource", "image"]
        assert str(read.content[0].resource.uri) == OAUTH  # type: ignore[union-attr]
        said = await operate(client, "call_tool", tool_id="prompt:docs.review", args={"branch": "b", "tone": "mild"})
        assert said == 'review {"branch": "b", "tone": "mild"}'
        refused = await operate(client, "call_tool", tool_id="prompt:docs.review", args={"brnch": "b"})
        assert refused["error"]["code"] == "INVALID_ARGUMENTS"

    play(Leaves(tmp_path), "modern", scene)


def test_a_large_resource_is_a_handle_for_models_and_whole_for_clients(tmp_path: Path) -> None:
    async def scene(client: Client, recorder: RecordingClient) -> None:
        stored = await client.call_tool("call_tool", {"tool_id": "resource:wiki.Home"})
        assert "tool_output" in str(stored.content)
        assert len(str(stored.content)) < 5_000
        (content,) = (await client.read_resource("toolfold://resources/wiki/wiki%3Ahome")).contents
        assert len(content.text) == 200_000  # type: ignore[union-attr]
        listed = [str(one.uri) for one in (await client.list_resources()).resources]
        assert listed[-1].startswith("toolfold://outputs/")

    play(Leaves(tmp_path), "modern", scene)


def test_the_surface_is_the_same_bytes_with_them_and_without(tmp_path: Path) -> None:
    async def surface(folder: str, **made: Any) -> tuple[str, str]:
        (tmp_path / folder).mkdir()
        leaves = Leaves(tmp_path / folder, **made)
        async with met(leaves, "legacy") as (client, _):
            await client.call_tool("list", {})  # once there is a catalogue
        async with met(leaves, "legacy") as (client, _):
            listed = await client.list_tools()
            return listed.model_dump_json(), client.instructions or ""

    bare: dict[str, Any] = {"docs": {}, "wiki": {}}
    more = {"docs": {**DOCS, "resources": [{"uri": f"test:{n}", "name": f"n{n}"} for n in range(2_000)]}, "wiki": WIKI}
    without, with_them = asyncio.run(surface("a", **bare)), asyncio.run(surface("b", **more))
    assert without[0] == with_them[0]
    assert "There are 6 tools of 2 servers" in without[1]
    assert "There are 6 tools of 2 servers" in with_them[1]
    assert "Resources (2,003), Prompts (1)" in with_them[1]


ILL: dict[str, Any] = {
    "title": 5,
    "description": ["a"],
    "annotations": "x",
    "icons": [{"src": 5}],
    "_meta": "s",
    "execution": 5,
    "mimeType": None,
}


def test_what_one_server_lists_badly_costs_no_client_the_list(tmp_path: Path) -> None:
    odd: dict[str, Any] = {
        "tools": [{"name": "odd", "inputSchema": {"type": "object"}, **ILL}, {"name": "none", "inputSchema": 5}],
        "resources": [{"uri": "test:odd", "name": {"a": 1}, "size": "big", **ILL}],
        "templates": [{"uriTemplate": "test:{x}", **ILL, "annotations": {"audience": 5, "priority": 0.5}}],
        "prompts": [{"name": "p", "arguments": "x", **ILL}, {"name": "q", "arguments": [5, {"name": "a", "title": 1}]}],
    }

    async def scene(client: Client, recorder: RecordingClient) -> None:
        assert {"odd_odd", "odd_none"} <= {tool.name for tool in (await client.list_tools()).tools}
        assert "test:odd" in [one.name for one in (await client.list_resources()).resources]
        found = {one.name: one for one in (await client.list_resource_templates()).resource_templates}
        assert found["test:{x}"].annotations.priority == 0.5  # type: ignore[union-attr]
        prompts = {one.name: one for one in (await client.list_prompts()).prompts}
        assert not prompts["odd.p"].arguments
        assert [one.name for one in prompts["odd.q"].arguments or []] == ["a"]

    play(Leaves(tmp_path, "direct", docs=DOCS, odd=odd), "modern", scene)


def test_the_same_over_http_and_json(tmp_path: Path) -> None:
    leaves = Leaves(tmp_path)
    with leaves.over_http() as url, httpx2.Client(base_url=url.replace("/mcp", "/v1/"), timeout=30) as client:
        listed = client.get("resources").json()["resources"]
        assert GUIDE in [one["uri"] for one in listed]
        assert client.get("resource-templates").json()["resourceTemplates"][0]["uriTemplate"] == LOGS + "{?day,level}"
        assert [one["name"] for one in client.get("prompts").json()["prompts"]] == ["docs.review"]
        read = client.post("read_resource", json={"uri": GUIDE}).json()
        assert read["contents"] == [{"uri": GUIDE, "mimeType": "text/plain", "text": "pip install"}]
        got = client.post("get_prompt", json={"name": "docs.review", "arguments": {"branch": "a"}}).json()
        assert got["messages"][0]["content"]["text"] == 'review {"branch": "a"}'
        for path, body in (("read_resource", {"uri": "no:such"}), ("get_prompt", {"name": "no.such"})):
            missing = client.post(path, json=body)
            assert (missing.status_code, missing.json()["error"]["code"]) == (404, "NOT_FOUND")
        assert client.post("read_resource", json={"url": GUIDE}).status_code == 422
        assert client.get("resources", params={"cursor": "x"}).status_code == 400
        described = httpx2.get(url.replace("/mcp", "/openapi.json")).json()["paths"]
        assert {"/v1/resources", "/v1/resource-templates", "/v1/prompts", "/v1/read_resource"} <= described.keys()


def test_the_same_on_the_command_line_and_in_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leaves = Leaves(tmp_path)
    front = ["--config", str(leaves.config), "--home", str(tmp_path)]
    assert main([*front, "build", "--no-search"]) == 0
    capsys.readouterr()
    assert main([*front, "call", "template:docs.Logs", "day=2026/a b", "level=x&y"]) == 0
    assert capsys.readouterr().out.strip() == "one log"
    assert main([*front, "call", "resource:docs.OAuth", "--save", str(tmp_path / "saved.png")]) == 0
    assert (tmp_path / "saved.png").read_bytes() == b"\0\0\0"
    capsys.readouterr()
    assert main([*front, "expand", "resource:docs.Install_guide"]) == 0
    assert GUIDE in capsys.readouterr().out
    assert main([*front, "list", "Prompts/docs", "--json"]) == 0
    assert "prompt:docs.review" in capsys.readouterr().out

    settings = replace(Settings.load(leaves.config), home=tmp_path)
    with Gateway(settings).blocking() as gateway:
        assert gateway.call_tool("prompt:docs.review", {"branch": "b"}).text == 'review {"branch": "b"}'

    async def read() -> None:
        async with Gateway(settings) as gateway:
            assert (await gateway.leaves.read(GUIDE)).json()["contents"][0]["text"] == "pip install"

    asyncio.run(read())


@each_era
def test_questions_of_a_prompt_reach_its_client_and_nobody_who_cannot_answer(era: str, tmp_path: Path) -> None:
    leaves = Leaves(tmp_path).more(fixture_table())

    async def scene(able: bool) -> Any:
        async with met(leaves, era, able=able) as (client, recorder):
            got = await client.get_prompt("fixture.test_input_required_result_prompt")
            assert recorder.asked == ["What context should the prompt use?"]
            return got

    assert asyncio.run(scene(True)).messages[0].content.text == "with context"
    with pytest.raises((MCPError, BaseExceptionGroup)):
        asyncio.run(scene(False))


@each_era
def test_a_server_that_never_answers_costs_its_time_limit(era: str, tmp_path: Path) -> None:
    leaves = Leaves(tmp_path, docs={**DOCS, "silent": ["resources/read"]}, wiki=WIKI).more(
        "[limits]\ncall_timeout_s = 1\n"
    )

    async def scene(client: Client, recorder: RecordingClient) -> None:
        with pytest.raises(MCPError, match="did not answer within 1 s"):
            await client.read_resource(GUIDE)
        assert (await client.read_resource("wiki:home")).contents
        refused = await operate(client, "call_tool", tool_id="resource:docs.Install_guide")
        assert refused["error"]["code"] == "SERVER_TIMEOUT"

    play(leaves, era, scene)


def test_a_cancelled_read_is_cancelled_at_its_server(tmp_path: Path) -> None:
    leaves = Leaves(tmp_path, docs={**DOCS, "silent": ["resources/read"]})

    async def scene(client: Client, recorder: RecordingClient) -> None:
        reading = asyncio.ensure_future(client.read_resource(GUIDE))
        while "resources/read" not in await methods(client):
            assert not reading.done()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        while "notifications/cancelled" not in await methods(client):
            pass

    async def methods(client: Client) -> list[str]:
        return [method for method, _ in await operate(client, "call_tool", tool_id="docs.asked")]

    play(leaves, "legacy", scene)
