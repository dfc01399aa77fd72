"""The world of an agent's task: fresh data, the servers on it, and readers that see the data without any server.

Three servers are always there (`toolfold.demo`), three others where `--peers` has them (`agent_peers.py`). The same
folder is made anew for every task and setting, so that a catalogue of it can be kept.
"""

import json
import random
import shutil
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec import Struct

from benchmarks.agent.workbook import cells, sheet_names
from toolfold.demo.data import _DemoData, demo_servers, make_demo_data
from toolfold.errors import ConfigError
from toolfold.types import ServerSpec

DELIVERIES = 1_500
SEEDED = (
    {
        "type": "entity",
        "name": "Kartograf",
        "entityType": "supplier",
        "observations": ["delivers maps", "needs 7 days"],
    },
    {"type": "entity", "name": "Nordlicht", "entityType": "supplier", "observations": ["delivers fiction"]},
    {"type": "entity", "name": "Harbour Books", "entityType": "shop", "observations": ["stands at the harbour"]},
    {"type": "relation", "from": "Kartograf", "to": "Harbour Books", "relationType": "supplies"},
)


class World(Struct, frozen=True):
    """Where everything lies."""

    root: Path
    programs: dict[str, str] = {}
    """What starts the servers beside the demo's: some of excel, memory, repo."""
    others: tuple[ServerSpec, ...] = ()
    """Servers that no task needs, so that there are more tools."""

    @property
    def data(self) -> Path:
        return self.root / "data"

    def fresh(self) -> "World":
        """Makes all data anew; what an earlier task did is gone."""
        shutil.rmtree(self.root / "data", ignore_errors=True)
        made = make_demo_data(self.data)
        if made.repository is None:
            raise ConfigError(made.notes[0], next_action="install git: a third of the tasks is about a repository")
        chance = random.Random(11)
        lines = [
            f"parcel {number:04d} to {chance.choice(('Husum', 'Leer', 'Emden', 'Stade', 'Kiel'))} "
            f"{chance.choice(('on time', 'on time', 'late', 'lost'))}"
            for number in range(1, DELIVERIES + 1)
        ]
        (self.data / "files/logs/deliveries.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (self.data / "repository/NOTES.md").write_text("Ask the harbour office about Leer.\n", encoding="utf-8")
        shutil.copy(self.data / "shop.db", self.root / "before.db")
        (self.data / "memory.jsonl").write_text("\n".join(json.dumps(one) for one in SEEDED) + "\n", encoding="utf-8")
        return self

    def servers(self) -> tuple[ServerSpec, ...]:
        found = demo_servers(_DemoData(self.data / "repository", self.data / "files", self.data / "shop.db"))
        return (*found, *(self._extra(name) for name in sorted(self.programs)), *self.others)

    def _extra(self, name: str) -> ServerSpec:
        args = {"excel": ("stdio",), "repo": ("--repository", str(self.data / "repository"))}
        return ServerSpec(
            name=name,
            transport="stdio",
            command=self.programs[name],
            args=args.get(name, ()),
            env={"MEMORY_FILE_PATH": str(self.data / "memory.jsonl")} if name == "memory" else {},
            cwd=str(self.root),
        )

    # --- what is so, read without any server

    def file(self, path: str) -> str:
        """The text of a file; empty where there is none."""
        found = self.data / "files" / path
        return found.read_text(encoding="utf-8") if found.is_file() else ""

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """What a query finds; nothing where a table is missing. The data as it was before the task is `before`."""
        with closing(sqlite3.connect(self.data / "shop.db")) as database:
            database.execute("ATTACH ? AS before", (str(self.root / "before.db"),))
            try:
                return database.execute(sql, parameters).fetchall()
            except sqlite3.OperationalError:
                return []

    def value(self, sql: str, *parameters: Any) -> Any:
        found = self.rows(sql, *parameters)
        return found[0][0] if found else None

    def git(self, *args: str) -> str:
        done = subprocess.run(["git", *args], cwd=self.data / "repository", capture_output=True, check=True, timeout=30)
        return done.stdout.decode().strip()

    def branches(self) -> dict[str, str]:
        """Name → hash."""
        lines = self.git("for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads").splitlines()
        return {line.split()[0]: line.split()[1] for line in lines}

    def cell(self, workbook: str, sheet: str, name: str) -> Any:
        """The value of a cell; `None` where workbook, sheet or cell is missing."""
        return cells(self.data / workbook, sheet).get(name)

    def sheets(self, workbook: str) -> list[str]:
        return sheet_names(self.data / workbook)

    def memory(self) -> list[dict[str, Any]]:
        lines = (self.data / "memory.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.strip()]

    def observations(self, entity: str) -> Sequence[str]:
        found = [one["observations"] for one in self.memory() if one["type"] == "entity" and one["name"] == entity]
        return found[0] if found else ()
