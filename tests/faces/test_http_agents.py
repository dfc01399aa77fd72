"""Agent runs and live sessions over HTTP: a real server, and a real endpoint that plays the model, both on loopback."""

import json
import socket
from pathlib import Path
from typing import Any

import httpx2
import pytest
from four_faces import http_server, make_project, settings_of
from model_endpoint import model_endpoint
from msgspec.structs import replace

from toolfold import Settings
from toolfold.config.sections import Model

SAYS: list[dict[str, Any]] = [
    {"type": "search", "query": "rename a symbol across the codebase"},
    {"type": "finish", "report": "found it", "data": {"tool": "refactor.rename_symbol"}},
]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return settings_of(make_project(tmp_path_factory.mktemp("agents")))


def events_of(text: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n", 1)
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


@pytest.mark.requirement("A-05")
def test_a_run_tells_each_of_its_events_and_ends_with_the_report(settings: Settings) -> None:
    with model_endpoint(SAYS) as endpoint:
        named = replace(settings, model=Model(name="played", base_url=endpoint))
        with http_server(named) as address, httpx2.Client(base_url=address, timeout=60) as client:
            answer = client.post("/v1/agents/runs", json={"task": "find the tool"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = events_of(answer.text)
    names = [name for name, _ in events]
    turn = ["turn.asked", "turn.answered"]
    assert names == ["run.started", *turn, "command.started", "command.done", *turn, "run.ended", "report"]
    assert events[-1][1]["text"] == "found it"
    assert events[-1][1]["usage"]["input_tokens"] == 20


def test_what_is_wrong_with_a_run_is_told_before_it_begins(settings: Settings) -> None:
    with http_server(settings) as address, httpx2.Client(base_url=address, timeout=60) as client:
        assert client.post("/v1/agents/runs", json={"tusk": "x"}).json()["error"]["code"] == "INVALID_ARGUMENTS"
        assert client.post("/v1/agents/runs", json={"task": "x"}).json()["error"]["code"] == "CONFIG_INVALID"


def test_a_live_session_is_shared_by_the_requests_that_name_it(settings: Settings) -> None:
    with http_server(settings) as address, httpx2.Client(base_url=address, timeout=60) as client:

        def ask(name: str, session: str, **arguments: Any) -> dict[str, Any]:
            found: dict[str, Any] = client.post(
                f"/v1/live/{name}", json=arguments, headers={"toolfold-session": session}
            ).json()
            return found

        assert ask("eval_expr", "a", expr="(x := 41) + 1")["result"]["value_repr"] == "42"
        assert ask("inspect", "a", expr="x")["result"]["kind"] == "number"
        assert ask("list_globals", "b")["result"]["globals"] == []
        assert ask("exec", "a")["error"]["code"] == "unknown_function"


def test_a_client_that_goes_away_ends_the_run(settings: Settings, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        named = replace(settings, model=Model(name="silent", base_url=endpoint), home=settings.home)
        with http_server(named) as address:
            with (
                httpx2.Client(base_url=address, timeout=60) as client,
                client.stream("POST", "/v1/agents/runs", json={"task": "x"}) as answer,
            ):
                first = next(answer.iter_lines())
            connection, _ = silent.accept()
            with connection:
                connection.settimeout(30)
                while connection.recv(65536):
                    pass  # the model's connection ends: nobody waits for its answer any more
    assert first == "event: run.started"


def test_a_body_that_cannot_be_read_is_refused(settings: Settings) -> None:
    bodies = (b'{"expr": "\xff", "task": "\xff"}', b"[" * 100_000, b'"text"', b"{")
    with http_server(settings) as address, httpx2.Client(base_url=address, timeout=60) as client:
        for path in ("/v1/live/inspect", "/v1/agents/runs"):
            for body in bodies:
                answer = client.post(path, content=body, headers={"content-type": "application/json"})
                assert answer.status_code in {400, 422}, answer.text
                assert answer.json()["error"]["next_action"]
