"""The transparent profile in all four combinations of eras: an official client, the gateway, an official server."""

import asyncio
import contextlib
import json
import warnings
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_client_helpers import RecordingClient, served_over_http, text_of
from mcp_types import PromptReference

from toolfold.storage.sqlite import SqliteStore
from toolfold.upstream.refresh import ERAS_NAMESPACE

COMBINATIONS = [(client, server) for client in ("legacy", "modern") for server in ("legacy", "modern")]
Urls = dict[str, str]
each_combination = pytest.mark.parametrize(("client", "server"), COMBINATIONS)


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Two gateways that pass the fixture server through, one of which knows it as a server of the legacy era."""
    with contextlib.ExitStack() as stack:
        found = {}
        for era in ("legacy", "modern"):
            home = tmp_path_factory.mktemp(era)
            asyncio.run(remembered(home, era))
            found[era] = stack.enter_context(served_over_http(home, "--profile", "transparent"))
        yield found


async def remembered(home: Path, era: str) -> None:
    async with SqliteStore(home / "toolfold.sqlite") as store:
        await store.put(ERAS_NAMESPACE, "fixture", era.encode())


def play(url: str, era: str, scene: Callable[[Client, RecordingClient], Awaitable[Any]], **more: Any) -> None:
    async def main() -> None:
        recorder = RecordingClient()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the official client warns of what the modern era has not
            async with asyncio.timeout(60), recorder.client(url, era, **more) as client:
                await scene(client, recorder)

    asyncio.run(main())


@pytest.mark.requirement("G-02", "G-04")
@each_combination
def test_tools_prompts_resources_and_completions_come_through_as_they_are(urls: Urls, client: str, server: str) -> None:
    async def scene(client: Client, recorder: RecordingClient) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        schema = tools["json_schema_2020_12_tool"].input_schema
        assert schema["$defs"]["address"]["$anchor"] == "addressDef"
        assert schema["if"]["required"] == ["contactMethod"]
        assert text_of(await client.call_tool("test_simple_text")) == "This is a simple text response for testing."
        mixed = await client.call_tool("test_multiple_content_types")
        assert [block.type for block in mixed.content] == ["text", "image", "resource"]
        assert (await client.call_tool("test_audio_content")).content[0].type == "audio"
        failed = await client.call_tool("test_error_handling")
        assert failed.is_error
        assert {prompt.name for prompt in (await client.list_prompts()).prompts} >= {"test_prompt_with_arguments"}
        prompt = await client.get_prompt("test_prompt_with_arguments", {"arg1": "x", "arg2": "y"})
        assert "arg1='x'" in prompt.messages[0].content.text  # type: ignore[union-attr]  # the fixture answers with text
        assert len((await client.list_resources()).resources) == 3
        assert (await client.list_resource_templates()).resource_templates[
            0
        ].uri_template == "test://template/{id}/data"
        read = (await client.read_resource("test://template/42/data")).contents[0]
        assert json.loads(read.text)["id"] == "42"  # type: ignore[union-attr]  # the fixture answers with text
        reference = PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
        completed = await client.complete(reference, {"name": "arg1", "value": "par"})
        assert completed.completion.values == ["par1"]

    play(urls[server], client, scene)


@pytest.mark.requirement("G-04")
@each_combination
def test_the_servers_errors_come_through_with_their_codes_and_data(urls: Urls, client: str, server: str) -> None:
    async def scene(client: Client, recorder: RecordingClient) -> None:
        with pytest.raises(MCPError) as missing:
            await client.read_resource("test://nothing")
        assert missing.value.error.data == {"uri": "test://nothing"}
        with pytest.raises(MCPError, match="unknown tool"):
            await client.call_tool("no_such_tool")
        if server == "modern":  # the client's capabilities go with each call
            with pytest.raises(MCPError) as unable:
                await client.call_tool("test_missing_capability")
            assert unable.value.error.code == -32021

    play(urls[server], client, scene, able=False)


@pytest.mark.requirement("G-04")
@each_combination
def test_progress_log_messages_and_metadata_come_through(urls: Urls, client: str, server: str) -> None:
    async def scene(client_: Client, recorder: RecordingClient) -> None:
        steps: list[float] = []

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            steps.append(progress)

        await client_.call_tool("test_tool_with_progress", progress_callback=progress)
        assert steps == [0, 50, 100]
        if client == "legacy":
            await client_.set_logging_level("info")
        await client_.call_tool("test_tool_with_logging")
        assert recorder.logs == ["Tool execution started", "Tool processing data", "Tool execution completed"]
        given: Any = {"com.example/trace": {"a": 1}}
        answer = await client_.call_tool("extra_meta", meta=given)
        echoed = json.loads(text_of(answer))
        assert echoed["com.example/trace"] == {"a": 1}
        assert (echoed["version"] == "2026-07-28") == (server == "modern")
        assert answer.meta is not None
        assert answer.meta["com.example/back"] == [1, 2]

    more = {"log_level": "info"} if client == "modern" else {}
    play(urls[server], client, scene, **more)


@pytest.mark.requirement("G-04")
@each_combination
def test_what_the_server_asks_reaches_the_client_in_its_own_eras_way(urls: Urls, client: str, server: str) -> None:
    async def scene(client: Client, recorder: RecordingClient) -> None:
        answer = await client.call_tool("test_elicitation", {"message": "Who are you?"})
        assert '"username": "ann"' in text_of(answer)
        assert "Paris" in text_of(await client.call_tool("test_sampling", {"prompt": "Capital of France?"}))
        assert "file:///here" in text_of(await client.call_tool("test_input_required_result_list_roots"))
        assert "all steps done" in text_of(await client.call_tool("test_input_required_result_multi_round"))
        several = json.loads(text_of(await client.call_tool("test_input_required_result_multiple_inputs")))
        assert set(several) == {"user_name", "greeting", "client_roots"}
        assert text_of(await client.call_tool("test_input_required_result_request_state")) == "state-ok"
        assert (await client.get_prompt("test_input_required_result_prompt")).messages
        assert recorder.asked[:3] == ["Who are you?", "sampling", "roots"]

    play(urls[server], client, scene)


@pytest.mark.requirement("G-04")
@each_combination
def test_a_server_gets_no_answer_from_a_client_that_declared_none(urls: Urls, client: str, server: str) -> None:
    async def scene(client: Client, recorder: RecordingClient) -> None:
        for name in ("elicitation", "sampling", "list_roots", "multiple_inputs"):
            with contextlib.suppress(MCPError):
                assert (await client.call_tool(f"test_input_required_result_{name}")).is_error
        assert recorder.asked == []
        if server == "modern":  # the client's capabilities went with the call, so the server does not even ask
            assert text_of(await client.call_tool("test_input_required_result_capabilities")) == "{}"

    play(urls[server], client, scene, able=False)


@pytest.mark.requirement("G-04")
@each_combination
def test_changes_of_lists_and_resources_reach_those_who_listen(urls: Urls, client: str, server: str) -> None:
    async def scene(client_: Client, recorder: RecordingClient) -> None:
        if client == "legacy":
            await client_.subscribe_resource("test://watched-resource")
            await client_.call_tool("test_trigger_tool_change")
            await recorder.wait_for("notifications/tools/list_changed")
            await client_.call_tool("test_trigger_prompt_change")
            await recorder.wait_for("notifications/prompts/list_changed")
            await client_.call_tool("extra_update_resource")
            await recorder.wait_for("notifications/resources/updated")
            await client_.unsubscribe_resource("test://watched-resource")
            return
        uris = ["test://watched-resource"]
        async with client_.listen(
            tools_list_changed=True, prompts_list_changed=True, resource_subscriptions=uris
        ) as subscription:
            seen = []
            for tool in ("test_trigger_tool_change", "test_trigger_prompt_change", "extra_update_resource"):
                await client_.call_tool(tool)
                seen.append(type(await anext(subscription)).__name__)
            assert seen == ["ToolsListChanged", "PromptsListChanged", "ResourceUpdated"]

    play(urls[server], client, scene)


@pytest.mark.requirement("G-04")
@each_combination
def test_a_call_that_the_client_gives_up_is_cancelled_at_the_server(urls: Urls, client: str, server: str) -> None:
    async def scene(client: Client, recorder: RecordingClient) -> None:
        begun = asyncio.Event()
        before = json.loads(text_of(await client.call_tool("extra_slow")))

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            begun.set()

        call = asyncio.create_task(client.call_tool("extra_slow", progress_callback=progress))
        await begun.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        async with asyncio.timeout(10):
            while json.loads(text_of(await client.call_tool("extra_slow"))) == before:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)

    play(urls[server], client, scene)


def test_arguments_that_do_not_fit_are_answered_without_asking_the_server(urls: Urls) -> None:
    async def scene(client: Client, recorder: RecordingClient) -> None:
        answer = await client.call_tool("test_sampling", {"prompt": 5})
        assert answer.is_error
        assert json.loads(text_of(answer))["error"]["code"] == "INVALID_ARGUMENTS"

    play(urls["modern"], "modern", scene)
