"""Agents, and the files that define them: Markdown with front matter, in `.toolfold/agents/`.

    ---
    name: reader
    description: Reads files and tells what is in them.
    model: anthropic:claude-haiku-4-5
    tools: ["files.*", "git.git_log"]
    limits: {steps: 10, calls: 20}
    thresholds: {tool_response_max_bytes: 20000}
    ---
    You read files. Quote exactly.

Every key is optional; the name is otherwise the file's. The text below the front matter is the agent's prompt. Errors
name the file and the key.
"""

import fnmatch
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from toolfold.agent.budgets import Budgets
from toolfold.config.sections import Extraction
from toolfold.errors import ConfigError
from toolfold.yaml_reader import load_yaml

AGENTS_FOLDER = Path(".toolfold") / "agents"
_FILE_MAX_BYTES = 1024 * 1024
_STORE_THRESHOLDS = ("tool_response_max_bytes", "tool_response_max_tokens")


class AgentDefinition(Struct, frozen=True, kw_only=True):
    """An agent: who it is, what it may use, and how much of it."""

    name: str = "planner"
    description: str = ""
    prompt: str = ""
    model: str = ""
    tools: tuple[str, ...] = ("*",)
    agents: tuple[str, ...] = ()
    budgets: Budgets = Budgets()
    sandbox: bool = True
    thresholds: Mapping[str, int] = {}  # when its results are stored and how they are extracted from, if it differs

    def allows(self, tool_id: str) -> bool:
        """Whether its patterns let it use this tool."""
        return any(fnmatch.fnmatchcase(tool_id.casefold(), pattern.casefold()) for pattern in self.tools)


class _FrontMatter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str = ""
    description: str = ""
    model: str = ""
    tools: tuple[str, ...] = ("*",)
    agents: tuple[str, ...] = ()
    limits: dict[str, float] = field(default_factory=dict)
    thresholds: dict[str, int] = field(default_factory=dict)
    sandbox: bool = True


def load_agents(folders: Iterable[Path]) -> dict[str, AgentDefinition]:
    """The agents of all folders; of two with the same name the first counts."""
    agents: dict[str, AgentDefinition] = {}
    for folder in folders:
        for file in sorted(folder.glob("*.md")) if folder.is_dir() else ():
            definition = _load_agent(file)
            agents.setdefault(definition.name, definition)
    return agents


def _load_agent(file: Path) -> AgentDefinition:
    try:
        text = file.read_text(encoding="utf-8") if file.stat().st_size <= _FILE_MAX_BYTES else None
    except (OSError, UnicodeDecodeError) as error:
        raise _file_error(file, str(error)) from error
    if text is None:
        raise _file_error(file, "it is larger than 1 MiB")
    front, prompt = _split_front_matter(file, text)
    return AgentDefinition(
        name=front.name or file.stem,
        description=front.description,
        prompt=prompt.strip(),
        model=front.model,
        tools=front.tools,
        agents=front.agents,
        sandbox=front.sandbox,
        budgets=_parse_budgets(file, front.limits),
        thresholds=_check_thresholds(file, front.thresholds),
    )


def _split_front_matter(file: Path, text: str) -> tuple[_FrontMatter, str]:
    lines = text.lstrip("\ufeff").splitlines()
    if not lines or lines[0].strip() != "---":
        return _FrontMatter(), text
    end = next((number for number, line in enumerate(lines[1:], 1) if line.strip() == "---"), None)
    if end is None:
        raise _file_error(file, "its front matter has no end: a second line of ---")
    try:
        value: Any = load_yaml("\n".join(lines[1:end])) or {}
        if isinstance(value, dict):
            value = {key: _as_list(key, item) for key, item in value.items()}
        front = msgspec.convert(value, _FrontMatter)
    except ValueError as error:
        raise _file_error(file, str(error)) from error
    return front, "\n".join(lines[end + 1 :])


def _as_list(key: Any, value: Any) -> Any:
    """`tools: git.*, files.*` is the same as a list."""
    if key in ("tools", "agents") and isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _parse_budgets(file: Path, limits: dict[str, float]) -> Budgets:
    known = Budgets.__struct_fields__
    for key, value in limits.items():
        if key not in known:
            raise _file_error(file, f"limits.{key} is unknown; known are {', '.join(known)}")
        if value <= 0:
            raise _file_error(file, f"limits.{key} must be more than nothing")
    whole = {key: value if key in ("seconds", "cost") else int(value) for key, value in limits.items()}
    return Budgets(**whole)  # type: ignore[arg-type]  # checked above, key by key


def _check_thresholds(file: Path, thresholds: dict[str, int]) -> dict[str, int]:
    known = (*_STORE_THRESHOLDS, *Extraction.__struct_fields__)
    for key, value in thresholds.items():
        if key not in known:
            raise _file_error(file, f"thresholds.{key} is unknown; known are {', '.join(known)}")
        if value < 0:
            raise _file_error(file, f"thresholds.{key} must not be negative")
    return thresholds


def _file_error(file: Path, problem: str) -> ConfigError:
    return ConfigError(f"the agent file {file} cannot be used: {problem}", next_action="mend the file, or remove it")
