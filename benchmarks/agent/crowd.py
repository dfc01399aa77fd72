"""Servers that no task needs: recordings of real ones, so that a model has some hundred tools to choose from.

Each is replayed by a process of its own over stdio and answers every call with a short text.
"""

import json
from pathlib import Path

from benchmarks.agent.twelve_servers import SERVERS
from benchmarks.servers import misbehaving_spec
from toolfold.errors import ConfigError
from toolfold.types import ServerSpec

SAME_AS_DEMO = frozenset({"filesystem", "git", "sqlite"})
"""They do what the demo's servers do, but on nothing: a model that took one would fail without a fault of its own."""
DEMO_TOOLS = 17


def crowd(data: Path | None, tools: int) -> tuple[ServerSpec, ...]:
    """As many recorded servers as it takes until there are so many tools in all, the usual dozen first."""
    if tools <= DEMO_TOOLS:
        return ()
    if data is None:
        raise ConfigError("more tools come from recorded servers", next_action="give --data DIR with servers/NAME.json")
    folder = data / "servers" if (data / "servers").is_dir() else data
    names = sorted(file.stem for file in folder.glob("*.json"))
    names = [*(name for name in SERVERS if name in names), *(name for name in names if name not in SERVERS)]
    specs: list[ServerSpec] = []
    total = DEMO_TOOLS
    for name in names:
        if total >= tools:
            break
        file = (folder / f"{name}.json").resolve()
        count = len(json.loads(file.read_text(encoding="utf-8"))["tools"]) if name not in SAME_AS_DEMO else 0
        total += count
        specs += [misbehaving_spec(name, "--replay", str(file))] if count else []
    return tuple(specs)
