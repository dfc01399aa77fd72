"""Every command counts the same, tools apart from prompts and resources; and a category is shown with all it holds."""

import json
import shlex
import sys
from pathlib import Path

import pytest
from leaf_servers import DOCS, SERVER
from project_kit import Person


@pytest.fixture
def person(tmp_path: Path) -> Person:
    """One server of six tools, and one of five leaves that are none."""
    person = Person(tmp_path)
    (tmp_path / "docs.json").write_text(json.dumps(DOCS))
    tables = {"files": ["-m", "toolfold.demo.files", "."], "docs": [str(SERVER), str(tmp_path / "docs.json")]}
    (person.home / ".toolfold" / "toolfold.toml").write_text(
        "".join(
            f"[servers.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps(args)}\n"
            for name, args in tables.items()
        )
    )
    return person


def test_tools_are_counted_alike_everywhere(person: Person) -> None:
    said = person.run("build", "--no-search", at=person.root)
    tools = json.loads(person.run("stats", "--json", at=person.root).stdout)["tools"]
    assert f"{tools} tools of 2 servers" in said.stdout
    assert person.run("tree", at=person.root).stdout.startswith(f"all tools, prompts and resources ({tools + 5})")
    found = f"{tools} tools and 5 prompts and resources"
    doctor = person.run("doctor", at=person.root).stdout
    assert f"{found}, build 1" in doctor
    assert f"0 of {tools} tools enriched" in doctor
    assert f"{found}: 0 to accept" in person.run("trust", at=person.root).stderr


def test_a_category_is_shown_with_the_tools_that_stand_right_in_it(person: Person) -> None:
    person.run("build", "--no-search", at=person.root)
    shown = person.run("tree", "Servers/files", at=person.root).stdout
    assert "files.read" in shown
    assert json.loads(person.run("tree", "Servers/files", "--json", at=person.root).stdout)["nodes"] == []


def test_what_is_left_out_of_a_tool_is_shown_by_the_command_that_is_printed(person: Person) -> None:
    fields = "".join(f"    field_{number}: str\n" for number in range(200))
    (person.clone / "tools.py").write_text(
        f"from typing import TypedDict\nclass Loan(TypedDict):\n{fields}"
        'def list_loans() -> list[Loan]:\n    """Lists the loans."""\n    return []\n'
    )
    (person.clone / "toolfold.toml").write_text('[servers.library]\nfunctions = "./tools.py"\n')
    named = ("--config", "toolfold.toml")
    person.run(*named, "build", "--no-search")
    shown = person.run(*named, "expand", "library.list_loans").stdout
    command = shown.partition("more fields; toolfold ")[2].splitlines()[0].removesuffix(")")
    assert "field_150" in person.run(*named, *shlex.split(command)).stdout
