"""What `doctor` and `stats` tell a person of tools whose results are not what they declare."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from toolfold import Gateway, Settings
from toolfold.__main__ import main
from toolfold.faces.cli import doctor
from toolfold.testing.memory_upstream import MemoryUpstream

DECLARED = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["id"]}
WRONG = {"content": [{"type": "text", "text": "{}"}], "structuredContent": {"total": "many"}}
RIGHT = {"content": [{"type": "text", "text": "{}"}], "structuredContent": {"total": 1, "id": "a"}}


def home_of(folder: Path, *, wrong: int, right: int = 1) -> Path:
    """A state folder of so many tools that were called, some with results that are not what they declare."""
    names = {f"wrong_{number}": WRONG for number in range(wrong)} | {
        f"right_{number}": RIGHT for number in range(right)
    }
    schema = {"type": "object"}
    server = MemoryUpstream("s", [{"name": name, "inputSchema": schema, "outputSchema": DECLARED} for name in names])

    async def main() -> None:
        async with Gateway(Settings(home=folder / "state"), upstreams=[server]) as gateway:
            await gateway.build()
            for name, result in names.items():
                server.answer(name, result)
                await gateway.call_tool(f"s.{name}", {})

    asyncio.run(main())
    (folder / "toolfold.toml").touch()
    return folder / "state"


def findings(home: Path) -> list[Any]:
    found = doctor._check_catalogue(Settings(home=home))
    return [finding for finding in found if finding.subject == "results"]


@pytest.fixture
def stats(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(home: Path, *options: str) -> tuple[str, str]:
        config = home.parent / "toolfold.toml"
        assert main(["--config", str(config), "--home", str(home), "stats", *options]) == 0
        captured = capsys.readouterr()
        return captured.out, captured.err

    return run


def test_15_09_doctor_names_the_tool_and_what_does_not_fit(tmp_path: Path) -> None:
    (found,) = findings(home_of(tmp_path, wrong=1))
    assert (found.subject, found.verdict, found.fix) == ("results", "mind", "tell whoever maintains it")
    assert found.text == "s.wrong_0 returns what it does not declare: id: declared required, seen missing"


def test_15_09_doctor_names_five_and_counts_the_rest(tmp_path: Path) -> None:
    *named, rest = findings(home_of(tmp_path, wrong=7))
    assert len(named) == 5
    assert len({finding.text.partition(" ")[0] for finding in named}) == 5
    assert (rest.text, rest.fix) == ("and 2 more tools", "see: toolfold stats --json")


def test_15_09_doctor_says_nothing_where_results_fit_or_nothing_was_built(tmp_path: Path) -> None:
    assert findings(home_of(tmp_path, wrong=0)) == []
    assert findings(tmp_path / "never") == []


def test_15_09_stats_tells_all_that_does_not_fit(tmp_path: Path, stats: Any) -> None:
    home = home_of(tmp_path, wrong=7)
    out, notes = stats(home)
    told = [line for line in (out + notes).splitlines() if "returns what it does not declare" in line]
    assert [line.partition(" returns")[0].split()[-1] for line in told] == [f"s.wrong_{number}" for number in range(7)]
    assert all("total: declared number, seen string" in line for line in told)
    contradicted = json.loads(stats(home, "--json")[0])["contradicted"]
    assert contradicted.keys() == {f"s.wrong_{number}" for number in range(7)}
    assert "total: declared number, seen string" in contradicted["s.wrong_0"]


def test_15_09_stats_says_nothing_of_results_that_fit(tmp_path: Path, stats: Any) -> None:
    home = home_of(tmp_path, wrong=0)
    assert "declare" not in "".join(stats(home))
    assert json.loads(stats(home, "--json")[0])["contradicted"] == {}
