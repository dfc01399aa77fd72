"""BFCL v4 multi-turn as its makers publish it: tasks, answers, functions and the checker, read from their package.

    pip install --no-deps bfcl-eval==2026.3.23 mpmath

or `--wheel FILE`. Nothing of it is copied here, and of its data only the multi-turn sets are opened. Two of its own
modules are used as they are: `multi_turn_utils.execute_multi_turn_func_call` runs every call, and
`multi_turn_checker.multi_turn_checker` judges a task: after each turn its `state_checker` compares the state of all
involved classes with that after the official answer, and its `response_checker` looks for each official result. Above:
`servers.py`, which serves the functions.
"""

import ast
import importlib
import importlib.util
import json
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from msgspec import Struct

from toolfold.errors import ConfigError

PACKAGE = "bfcl_eval"
INSTALL = "pip install --no-deps bfcl-eval==2026.3.23 mpmath"
SETS = ("base", "miss_func", "miss_param", "long_context")
SERVERS = {
    "gorilla_file_system": "GorillaFileSystem",
    "math_api": "MathAPI",
    "message_api": "MessageAPI",
    "posting_api": "TwitterAPI",
    "ticket_api": "TicketAPI",
    "trading_bot": "TradingBot",
    "travel_booking": "TravelAPI",
    "vehicle_control": "VehicleControlAPI",
}
"""The name of a server, which is that of the file that documents its functions, and their class."""

_MULTI_TURN = f"{PACKAGE}.eval_checker.multi_turn_eval"
_JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array"}
_UNTRUE_RESPONSES = frozenset(
    {
        *("touch", "echo", "mkdir"),  # nothing, where an object is documented
        *("list_all_airports", "get_watchlist"),  # a list
        "logarithm",  # a number that is not JSON's
        *("send_message", "get_stock_info"),  # fields of other types
    }
)
"""Functions that answer something else than is documented. A server may not declare a schema that its results break."""
_WIDENED = {("close_ticket", "ticket_id"): ["integer", "string"]}
"""Documented as an integer; the id of the only ticket in `multi_turn_*_173` is a text."""
_EARLY = "I have updated some more functions you can choose from. What about now?"
"""What a person says in the turn in which functions are added: the official words."""

Call = tuple[str, dict[str, Any]]


class BfclTask(Struct, frozen=True, kw_only=True):
    """One task: what a person says turn by turn, and the official calls of each turn."""

    name: str
    entry: dict[str, Any]
    answers: list[list[str]]
    requests: tuple[str, ...]
    hidden: frozenset[str]
    """Functions that this task never offers."""
    added: dict[int, frozenset[str]]
    """Turn → functions that are offered from there on."""

    @property
    def long_context(self) -> bool:
        return "long_context" in self.name

    def hidden_at(self, turn: int) -> frozenset[str]:
        return self.hidden.union(*(names for at, names in self.added.items() if at > turn))


class Official:
    """The package, once it is found."""

    def __init__(self, wheel: Path | None = None) -> None:
        if wheel is not None and str(wheel) not in sys.path:
            if not wheel.is_file():
                raise ConfigError(f"{wheel} is no file", next_action=f"give --wheel a wheel of bfcl-eval, or {INSTALL}")
            sys.path.insert(0, str(wheel))
        missing = [name for name in (PACKAGE, "mpmath") if importlib.util.find_spec(name) is None]
        if missing:
            raise ConfigError(f"bench bfcl needs {' and '.join(missing)}", next_action=INSTALL)
        self._data = files(PACKAGE) / "data"
        self._utils = importlib.import_module(f"{_MULTI_TURN}.multi_turn_utils")
        self._check = importlib.import_module(f"{_MULTI_TURN}.multi_turn_checker").multi_turn_checker
        self.definitions = {server: self._definitions(server) for server in SERVERS}
        self.server_of = {tool["name"]: server for server, tools in self.definitions.items() for tool in tools}

    def tasks(self) -> list[BfclTask]:
        """All 800, set by set."""
        return [task for name in SETS for task in self._set(name)]

    def calls(self, task: BfclTask, turn: int) -> list[Call]:
        """The official calls of a turn, with named arguments as they go through JSON."""
        return [self._call(text) for text in task.answers[turn]]

    def execute(self, task: BfclTask, server: str, name: str, arguments: dict[str, Any]) -> tuple[str, str]:
        """Runs a call on the task's state. Gives the call as the checker reads it, and the official result."""
        written = f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
        involved = task.entry["involved_classes"]
        results, _ = self._utils.execute_multi_turn_func_call(
            [written],
            task.entry["initial_config"],
            involved if SERVERS[server] in involved else [SERVERS[server]],
            "served",
            task.name,
            long_context=task.long_context,
        )
        return written, results[0]

    def judge(self, task: BfclTask, turns: Sequence[Sequence[str]]) -> str:
        """What the official checker says against the calls of each turn; empty where the task is solved."""
        self.forget()
        verdict = self._check([[list(calls)] for calls in turns], task.answers, task.entry, "", "judged")
        self.forget()
        return "" if verdict["valid"] else f"{verdict['error_type']}: {verdict['error_message']}"

    def forget(self) -> None:
        """Drops the state of earlier tasks, which the official code keeps in its module."""
        kept = vars(self._utils)
        for name in [name for name in kept if name.endswith("_instance")]:
            del kept[name]

    def _call(self, text: str) -> Call:
        parsed = ast.parse(text, mode="eval").body
        assert isinstance(parsed, ast.Call)
        assert isinstance(parsed.func, ast.Name)
        name = parsed.func.id
        tool = next(tool for tool in self.definitions[self.server_of[name]] if tool["name"] == name)
        given = dict(zip(tool["inputSchema"]["properties"], map(ast.literal_eval, parsed.args), strict=False))
        given |= {str(one.arg): ast.literal_eval(one.value) for one in parsed.keywords}
        return name, json.loads(json.dumps(given))

    def _set(self, name: str) -> list[BfclTask]:
        entries = self._lines(f"BFCL_v4_multi_turn_{name}.json")
        answers = self._lines(f"possible_answer/BFCL_v4_multi_turn_{name}.json")
        return [self._task(entry, answer["ground_truth"]) for entry, answer in zip(entries, answers, strict=True)]

    def _task(self, entry: dict[str, Any], answers: list[list[str]]) -> BfclTask:
        added = {int(turn): frozenset(names) for turn, names in entry.get("missed_function", {}).items()}
        # One official answer calls what is only added two turns later: that is offered from the start.
        early = {
            turn: {self._call(text)[0] for calls in answers[:turn] for text in calls} & names
            for turn, names in added.items()
        }
        return BfclTask(
            name=entry["id"],
            entry=entry,
            answers=answers,
            requests=tuple(" ".join(said["content"] for said in turn) or _EARLY for turn in entry["question"]),
            hidden=frozenset(entry.get("excluded_function", ())),
            added={turn: names - early[turn] for turn, names in added.items()},
        )

    def _definitions(self, server: str) -> list[dict[str, Any]]:
        return [_definition(line) for line in self._lines(f"multi_turn_func_doc/{server}.json")]

    def _lines(self, name: str) -> list[dict[str, Any]]:
        lines = self._data.joinpath(*name.split("/")).read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.strip()]


def _definition(documented: dict[str, Any]) -> dict[str, Any]:
    """A function as MCP describes a tool, with what it returns where that is true."""
    name = documented["name"]
    schema = _schema(documented["parameters"])
    for argument in schema["properties"]:
        if (name, argument) in _WIDENED:
            schema["properties"][argument]["type"] = _WIDENED[name, argument]
    tool = {"name": name, "description": documented["description"], "inputSchema": schema}
    return tool if name in _UNTRUE_RESPONSES else tool | {"outputSchema": _schema(documented["response"])}


def _schema(value: Any) -> Any:
    """The documented types as JSON Schema names them."""
    if isinstance(value, list):
        return [_schema(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _JSON_TYPES.get(one, one) if key == "type" and isinstance(one, str) else _schema(one)
        for key, one in value.items()
    }
