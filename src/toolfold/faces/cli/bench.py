"""`toolfold bench NAME`: runs one measurement and prints its JSON. The benches themselves stand in `toolfold.bench`."""

import argparse
from collections.abc import Collection
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

from toolfold.errors import ConfigError
from toolfold.faces.cli.runner import load_settings
from toolfold.faces.cli.terminal import Output

BENCHES = {
    "start": "many servers at once, and what the command line costs",
    "build": "a catalogue of 10,000 recorded tools",
    "ontology": "tokens and calls from the root to a tool, agreement, stability",
    "retrieval": "search quality on sets of requests with known answers",
    "abstain": "whether search knows when nothing fits",
    "search": "search time, memory and size at 1,000 to 100,000 tools",
    "calls": "a call through the gateway beside a direct one and FastMCP's proxy",
    "load": "a thousand HTTP clients at once, beside a bare service",
    "fuzz": "odd and far too long arguments to every operation, each answer timed, beside a bare echo",
    "scripts": "starting scripts, calls inside them, wrappers, beside peers",
    "live": "looking into a live session, and starting one, beside an IPython kernel",
    "schemas": "folded output schemas beside whole ones",
    "agent": "tasks with every tool in the prompt, with toolfold's surface, and with scripts",
    "outputs": "large results: storing, questions with known answers, counting tokens",
}


def bench(arguments: argparse.Namespace, output: Output) -> int:
    if arguments.name == "list":
        if output.as_json:
            output.data(BENCHES)
        else:
            output.table(("name", "what it measures"), list(BENCHES.items()))
        return 0
    if arguments.name not in BENCHES:
        raise ConfigError(
            f"there is no bench {arguments.name!r}", hints=list(BENCHES), next_action="run `toolfold bench list`"
        )
    data = Path(arguments.data) if arguments.data else None
    if data is not None and not data.is_dir():
        raise ConfigError(f"{arguments.data} is no folder", next_action="give --data a folder of recorded material")
    options = options_for(arguments.name, data)
    if arguments.ranked:
        options["ranked"] = Path(arguments.ranked)
    if arguments.peers and "peers" in _parameters(arguments.name):
        options["peers"] = Path(arguments.peers)
    options |= _agent_options(arguments) if arguments.name == "agent" else {}
    module = import_module(f"toolfold.bench.{arguments.name}")
    output.data(module.run(**options))
    return 0


def _agent_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Which model plays; none: scripted policies. The endpoint and key of `[model]` count, its name may be another."""
    options: dict[str, Any] = {"only": arguments.only} if arguments.only else {}
    if arguments.model:
        from msgspec.structs import replace

        options["model"] = replace(load_settings(arguments, require_servers=False).model, name=arguments.model)
    return options


def _parameters(name: str) -> Collection[str]:
    return signature(import_module(f"toolfold.bench.{name}").run).parameters


def options_for(name: str, data: Path | None) -> dict[str, Any]:
    """Which part of the data folder a bench reads: `servers/NAME.json`, `retrieval/SET/…`, or the folder itself."""
    if name not in {"retrieval", "abstain", "search"}:
        return {"data": data}
    if data is None:
        raise ConfigError(
            f"bench {name} measures on recorded material",
            next_action="give --data a folder with servers/NAME.json and retrieval/SET/tools.jsonl, queries.jsonl",
        )
    servers, sets = (data / part if (data / part).is_dir() else data for part in ("servers", "retrieval"))
    if name == "abstain":
        return {"data": sets, "servers": servers}
    return {"data": servers if name == "search" else sets}
