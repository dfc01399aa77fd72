"""`toolfold bench NAME`: runs one measurement and prints its JSON.

The benches are not part of the package. They are found in a checkout of the repository, as `benchmarks/` beside `src/`:
in the one that this package was installed from in editable mode, or in the one that contains the current folder.
"""

import argparse
import sys
import tomllib
from collections.abc import Container, Iterator
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

from toolfold.errors import ConfigError
from toolfold.faces.cli.runner import load_settings
from toolfold.faces.cli.terminal import Output


def bench(arguments: argparse.Namespace, output: Output) -> int:
    benches: dict[str, str] = _benchmarks().BENCHES
    if arguments.name == "list":
        if output.as_json:
            output.data(benches)
        else:
            output.table(("name", "what it measures"), list(benches.items()))
        return 0
    if arguments.name not in benches:
        raise ConfigError(
            f"there is no bench {arguments.name!r}", hints=list(benches), next_action="run `toolfold bench list`"
        )
    run = import_module(f"benchmarks.{arguments.name}").run
    report = run(**_options(arguments, signature(run).parameters))
    if "table" in report and not output.as_json:
        output.table(report["table"]["columns"], [[str(cell) for cell in row] for row in report["table"]["rows"]])
        output.line()
    output.data(report)
    return 0


def _options(arguments: argparse.Namespace, parameters: Container[str]) -> dict[str, Any]:
    """What a bench is called with, from the command line."""
    options = _data_options(arguments.name, _data_folder(arguments.data))
    given = {name: getattr(arguments, name) for name in ("ranked", "peers", "quick") if name in parameters}
    options |= {name: value if value is True else Path(value) for name, value in given.items() if value}
    if arguments.name == "agent":
        return options | _agent_options(arguments)
    return options | (_bfcl_options(arguments, parameters) if "wheel" in parameters else {})


def _data_folder(given: str | None) -> Path | None:
    if given and not Path(given).is_dir():
        raise ConfigError(f"{given} is no folder", next_action="give --data a folder of recorded material")
    return Path(given) if given else None


def _benchmarks() -> ModuleType:
    """The package `benchmarks` of the checkout, importable from here on."""
    checkout = next((folder for folder in _candidates() if _is_checkout(folder)), None)
    if checkout is None:
        raise ConfigError(
            "the benches are not part of the installed package",
            next_action="clone the repository, run `pip install -e '.[bench]'` in it, and try again there",
        )
    # In front: other projects have folders of this name, too, and theirs may lie in the current folder.
    sys.path.insert(0, str(checkout))
    return import_module("benchmarks")


def _candidates() -> Iterator[Path]:
    yield from Path(__file__).resolve().parents
    yield from (Path.cwd(), *Path.cwd().parents)


def _is_checkout(folder: Path) -> bool:
    project = folder / "pyproject.toml"
    if not (folder / "benchmarks" / "__init__.py").is_file() or not project.is_file():
        return False
    try:
        name = tomllib.loads(project.read_text(encoding="utf-8")).get("project", {}).get("name")
    except (OSError, ValueError):
        return False
    return bool(name == "toolfold")


def _agent_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Which model plays; none: scripted policies. The endpoint and key of `[model]` count, its name may be another."""
    given = {"only": arguments.only, "settings": arguments.settings, "tools": arguments.tools}
    options: dict[str, Any] = {name: value for name, value in given.items() if value}
    if arguments.model:
        from msgspec.structs import replace

        options["model"] = replace(load_settings(arguments, require_servers=False).model, name=arguments.model)
    return options


def _bfcl_options(arguments: argparse.Namespace, parameters: Container[str]) -> dict[str, Any]:
    """Which tasks and settings, and the endpoint of a model: `URL` or `URL,NAME`."""
    if (arguments.policy == "model") > bool(arguments.model):
        raise ConfigError("which model plays is not said", next_action="give --model URL, or URL,NAME")
    names = ("settings", "tools", "sample", "seed", "seeds", "wheel")
    options = {name: value for name in names if name in parameters and (value := getattr(arguments, name))}
    if arguments.model:
        from msgspec.structs import replace

        url, _, name = arguments.model.partition(",")
        configured = load_settings(arguments, require_servers=False).model
        options["model"] = replace(configured, base_url=url, name=f"openai-compatible:{name}")
    return options


def _data_options(name: str, data: Path | None) -> dict[str, Any]:
    """Which part of the data folder a bench reads: `servers/NAME.json`, `retrieval/SET/…`, or the folder itself."""
    if name not in {"retrieval", "abstain", "search", "scale"}:
        return {"data": data}
    if data is None:
        raise ConfigError(
            f"bench {name} measures on recorded material",
            next_action="give --data a folder with servers/NAME.json and retrieval/SET/tools.jsonl, queries.jsonl",
        )
    servers, sets = (data / part if (data / part).is_dir() else data for part in ("servers", "retrieval"))
    if name == "abstain":
        return {"data": sets, "servers": servers}
    return {"data": servers if name in {"search", "scale"} else sets}
