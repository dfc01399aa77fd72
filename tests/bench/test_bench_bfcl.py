"""`toolfold bench bfcl`: official tasks are solved in our settings by the official answers, and by nothing less."""

import importlib.util
import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from msgspec.structs import replace

from benchmarks.bfcl import BOUNDS, Ran, play_all, play_one
from benchmarks.bfcl.gold import GoldModel, altered
from benchmarks.bfcl.official import INSTALL, BfclTask, Official
from benchmarks.bfcl.servers import Playground
from benchmarks.bfcl.settings import opened
from toolfold.errors import ConfigError
from toolfold.faces.cli import run as main

pytestmark = [pytest.mark.load, pytest.mark.timeout(300)]
TASKS = (
    "multi_turn_base_173",  # an id that is a text where an integer is documented
    "multi_turn_miss_func_0",  # a function that is added in the fourth turn
    "multi_turn_miss_func_49",  # an answer that calls what is only added later
    "multi_turn_miss_param_100",  # a turn in which nothing is to be called
    "multi_turn_long_context_100",  # a result that is too large to show
)


@pytest.fixture(scope="module")
def official() -> Official:
    if importlib.util.find_spec("bfcl_eval") is None or importlib.util.find_spec("mpmath") is None:
        pytest.skip(f"BFCL is not here: {INSTALL}")
    return Official()


@pytest.fixture(scope="module")
def tasks(official: Official) -> dict[str, BfclTask]:
    return {task.name: task for task in official.tasks()}


def test_the_published_tasks_are_all_there(official: Official, tasks: dict[str, BfclTask]) -> None:
    assert len(tasks) == 800
    assert sum(len(calls) for task in tasks.values() for calls in task.answers) == 4625
    tools = [tool for listed in official.definitions.values() for tool in listed]
    schemas = {tool["name"]: jsonschema_rs.validator_for(tool["inputSchema"]) for tool in tools}
    assert len(tools) == len(schemas) == 128
    for task in tasks.values():
        assert len(task.requests) == len(task.answers)
        for turn in range(len(task.answers)):
            for name, arguments in official.calls(task, turn):
                assert name not in task.hidden_at(turn), f"{task.name} calls {name}, which is not offered"
                schemas[name].validate(arguments)


@pytest.mark.parametrize("setting", ["all_tools", "surface", "scripts"])
async def test_the_official_answers_solve_their_tasks(
    setting: str, official: Official, tasks: dict[str, BfclTask], tmp_path: Path
) -> None:
    chosen = [tasks[name] for name in TASKS]
    ran = await play_all(Playground(official), setting, chosen, tmp_path)
    assert {one.task: one.problem for one in ran} == dict.fromkeys(TASKS, "")
    assert [one.executed for one in ran] == [sum(map(len, task.answers)) for task in chosen]
    assert [one.altered for one in ran] == [0] * len(ran)
    assert not [one.missed for one in ran if one.missed]


async def test_a_task_whose_calls_are_wrong_is_not_solved(
    official: Official, tasks: dict[str, BfclTask], tmp_path: Path
) -> None:
    task = tasks["multi_turn_base_0"]
    playground = Playground(official)

    async def ran(answers: Sequence[Sequence[str]]) -> Ran:
        player = GoldModel("all_tools", official, replace(task, answers=[list(turn) for turn in answers]))
        return await play_one(playground, setting, task, player, BOUNDS)

    async with playground.served(), opened("all_tools", playground, tmp_path) as setting:
        unread = [*task.answers[:1], ["cd(folder='temp')"], *task.answers[2:]]
        assert (await ran(unread)).problem.startswith("multi_turn:execution_response_mismatch")
        undone = [task.answers[0][:2], *task.answers[1:]]
        assert (await ran(undone)).problem.startswith("multi_turn:instance_state_mismatch")
        idle: list[list[str]] = [[] for _ in task.answers]
        assert (await ran(idle)).problem.startswith("multi_turn:empty_turn_model_response")
        # What one run did is not there for the next.
        assert not (await ran(task.answers)).problem


def test_a_result_that_did_not_arrive_as_it_was_sent_is_counted() -> None:
    stored = 'Too large. Call tool_output(handle = "1", extract = "what").'
    answers = [['{"a": 1}', "None"], [], ['{"b": 2}']]
    arrived = [
        ("search_tool_by_category", "x"),
        ("call_tool", '{"a": 1}'),
        ("call_tool", "None"),
        ("call_tool", stored),
    ]
    assert altered("surface", arrived, answers) == 0
    assert altered("surface", [*arrived[:2], ("call_tool", "none"), arrived[3]], answers) == 1
    assert altered("surface", arrived[:2], answers) == 2
    scripts = [("run_script", 'summary: [{"a":1},"None"]\n'), ("run_script", 'summary: [{"b":2}]')]
    assert altered("scripts", scripts, answers) == 0
    assert altered("scripts", [scripts[1], scripts[0]], answers) == 2
    assert altered("scripts", [scripts[0], ("run_script", "[the script failed]")], answers) == 1


class Shrug(BaseHTTPRequestHandler):
    """An endpoint with chat completions whose model never calls anything."""

    def do_POST(self) -> None:
        server: Any = self.server
        server.seen.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        raw = json.dumps({"choices": [{"message": {"content": "I do not know."}}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        pass


@pytest.fixture
def endpoint() -> Iterator[Any]:
    server: Any = HTTPServer(("127.0.0.1", 0), Shrug)
    server.seen = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.usefixtures("official")
def test_a_model_behind_an_endpoint_plays_with_a_seed_and_no_chance(
    endpoint: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"http://127.0.0.1:{endpoint.server_port}/v1,small"
    options = ["--settings", "all_tools", "--sample", "1", "--seed", "7", "--model", address]
    assert main(["bench", "bfcl", *options, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["metrics"]["played_by"] == "openai-compatible:small"
    (row,) = (dict(zip(report["table"]["columns"], row, strict=True)) for row in report["table"]["rows"])
    assert (row["solved"], row["of"], row["calls"]) == (0, 1, 0)
    assert row["steps"] == len(endpoint.seen) > 1
    (failure,) = report["metrics"]["failures"]
    assert failure["problem"].startswith("multi_turn:empty_turn_model_response")
    for body in endpoint.seen:
        assert (body["model"], body["seed"], body["temperature"]) == ("small", 7, 0.0)
        assert len(body["tools"]) > 120
    # The requests of a task are said one after the other, in one conversation.
    assert [len(body["messages"]) for body in endpoint.seen] == [2 + 2 * turn for turn in range(len(endpoint.seen))]


@pytest.mark.usefixtures("official")
def test_20_a_real_model_plays_with_several_seeds(real_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The tiny model solves nothing: what is proved is the way from its endpoint to the table."""
    options = ["--settings", "surface", "--sample", "1", "--seed", "3", "--seeds", "2", "--policy", "model"]
    assert main(["bench", "bfcl", *options, "--model", real_model, "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)["metrics"]
    assert metrics["played_by"].startswith("openai-compatible:")
    row, spread = metrics["settings"]["surface"], metrics["spread"]["surface"]
    assert (row["of"], row["seed"]) == (1, 3)
    assert row["steps"] >= 1
    assert row["tokens_out"] > 0
    assert spread["steps"][0] <= row["steps"] <= spread["steps"][1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--wheel", "no-such.whl"], "no-such.whl is no file"),
        (["--settings", "surface,bare"], "'surface,bare' names a setting that is not there"),
        (["--tools", "1000"], "more tools come from recorded servers"),
        (["--policy", "model"], "which model plays is not said"),
    ],
)
@pytest.mark.usefixtures("official")
def test_what_cannot_be_played_is_a_configuration_error(
    options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "bfcl", *options, "--json"]) != 0
    assert json.loads(capsys.readouterr().out)["error"]["message"] == says


def test_more_tools_come_from_whole_recorded_servers(official: Official, tmp_path: Path) -> None:
    tool = {"name": "look", "description": "Looks.", "inputSchema": {"type": "object"}}
    for name in ("alpha", "beta"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"tools": [tool, tool | {"name": "listen"}]}))
    assert Playground(official, tmp_path, 129).tools == 130
    assert Playground(official, tmp_path, 1000).tools == 132
    with pytest.raises(ConfigError):
        Playground(official, None, 129)
