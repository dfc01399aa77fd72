"""Agents are files: front matter above, a prompt below, and errors that name the file and the key."""

from pathlib import Path

import pytest

from toolfold.agent.budgets import Budgets
from toolfold.agent.definition import _load_agent, load_agents
from toolfold.errors import ConfigError

WHOLE = """---
name: reader
description: Reads files.
model: test:model
tools: files.*, git.git_log
agents: [helper]
limits: {steps: 3, seconds: 1.5}
thresholds:
  tool_response_max_bytes: 5000
---
You read files.

Quote exactly.
"""


@pytest.mark.requirement("A-04")
def test_an_agent_file_says_who_the_agent_is_and_what_it_may_use(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_text(WHOLE)
    found = _load_agent(file)
    assert (found.name, found.description, found.model) == ("reader", "Reads files.", "test:model")
    assert found.tools == ("files.*", "git.git_log")
    assert found.agents == ("helper",)
    assert found.budgets == Budgets(steps=3, seconds=1.5)
    assert found.thresholds == {"tool_response_max_bytes": 5000}
    assert found.prompt == "You read files.\n\nQuote exactly."


def test_a_file_without_front_matter_is_a_prompt_under_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "plain.md").write_text("Be brief.")
    assert load_agents([tmp_path / "none", tmp_path])["plain"].prompt == "Be brief."


@pytest.mark.parametrize(
    ("front", "says"),
    [
        ("limits: {stepz: 3}", "stepz"),
        ("limits: {steps: 0}", "steps"),
        ("thresholds: {max_bites: 3}", "max_bites"),
        ("thresholds: {tool_response_max_bytes: -1}", "must not be negative"),
        ("tool: x", "tool"),
        ("tools: [1]", "str"),
        ("a: [", "flow"),
        ("- list", "object"),
    ],
)
def test_what_is_wrong_names_the_file_and_the_key(tmp_path: Path, front: str, says: str) -> None:
    file = tmp_path / "bad.md"
    file.write_text(f"---\n{front}\n---\n")
    with pytest.raises(ConfigError) as told:
        _load_agent(file)
    assert says in told.value.message
    assert "bad.md" in told.value.message


def test_front_matter_without_an_end_is_told(tmp_path: Path) -> None:
    file = tmp_path / "open.md"
    file.write_text("---\nname: x\n")
    with pytest.raises(ConfigError, match="no end"):
        _load_agent(file)


@pytest.mark.parametrize(("data", "says"), [(b"x" * (1024 * 1024 + 1), "larger than 1 MiB"), (b"\xff", "utf-8")])
def test_a_file_that_is_too_large_or_no_text_is_refused(tmp_path: Path, data: bytes, says: str) -> None:
    file = tmp_path / "odd.md"
    file.write_bytes(data)
    with pytest.raises(ConfigError, match=says):
        load_agents([tmp_path])
