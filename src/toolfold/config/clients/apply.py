"""Carries an import out: adds the planned servers to `toolfold.toml`, keeping every character that is there.

An existing file is backed up first and replaced in one step. Nothing is written that `tomllib` would not read back as
the old content plus the new servers.
"""

import os
from pathlib import Path
from typing import Any

from msgspec import Struct

from toolfold.config import toml_writer as tomlwrite
from toolfold.config.clients.import_plan import KEYRING_SERVICE, ImportPlan
from toolfold.config.files import PRIVATE_MODE, PUBLIC_MODE, create_backup, path_exists, read_text, write_atomically
from toolfold.config.reader import parse_toml
from toolfold.config.secret_detection import find_plain_secrets
from toolfold.config.secrets import store_in_keyring
from toolfold.errors import ConfigError

_HEADER = "# Servers of toolfold. What each key means: docs/configuration.md\n"


class Applied(Struct, frozen=True, kw_only=True):
    """What was done."""

    target: Path
    added: tuple[str, ...]
    backup: Path | None
    """The copy of the file as it was; `None` if there was none, or nothing was added."""
    private: bool
    """The file holds secrets and only its owner may read it."""
    variables: tuple[str, ...]
    """Environment variables that must be set now."""


def apply(plan: ImportPlan, target: str | os.PathLike[str], *, now: float | None = None) -> Applied:
    """Writes the additions of the plan to the target. Raises `ConfigError`, and then nothing has changed."""
    path = Path(target)
    if path.suffix.casefold() != ".toml":
        raise ConfigError(f"{path} is not a TOML file", next_action="Import into a file that ends in .toml.")
    exists = path_exists(path)
    if not plan.additions:
        return Applied(target=path, added=(), backup=None, private=False, variables=())
    old = read_text(path) if exists else _HEADER
    before = parse_toml(path, old)
    new = _with_servers(old, plan)
    after = _checked(path, before, new, plan)
    private = any(find_plain_secrets(server) for server in after["servers"].values())
    if private or (not exists and _has_literals(plan)):
        mode = PRIVATE_MODE
    else:
        mode = path.stat().st_mode & 0o777 if exists else PUBLIC_MODE
    if plan.secrets == "keyring":
        _store(plan)
    backup = create_backup(path, now=now) if exists else None
    write_atomically(path, new.encode(), mode)
    if backup is not None and private:
        backup.chmod(PRIVATE_MODE)
    return Applied(
        target=path,
        added=tuple(item.name for item in plan.additions),
        backup=backup,
        private=private,
        variables=plan.variables,
    )


def _with_servers(old: str, plan: ImportPlan) -> str:
    text = "".join(f"\n{tomlwrite.format_table(('servers', item.name), item.table)}" for item in plan.additions)
    if "\r\n" in old:
        text = text.replace("\n", "\r\n")
    end = "" if not old or old.endswith("\n") else "\n"
    return old + end + text


def _checked(path: Path, before: dict[str, Any], text: str, plan: ImportPlan) -> dict[str, Any]:
    """Reads the new text back: it must hold the old content and the new servers, and nothing else."""
    here = before.get("servers", {})
    added = {item.name: item.table for item in plan.additions}
    clash = (
        {name.casefold() for name in here} & {name.casefold() for name in added} if isinstance(here, dict) else set()
    )
    if clash:
        raise ConfigError(
            f"{path} has changed since the import was planned: it has {', '.join(sorted(clash))} now",
            next_action="Run the import again.",
        )
    try:
        after = parse_toml(path, text)
    except ConfigError:
        after = {}
    if not isinstance(here, dict) or after != {**before, "servers": {**here, **added}}:
        raise ConfigError(
            f"servers cannot be added to {path}: its `servers` is written as an inline table",
            next_action="Write each server there as its own table, [servers.NAME], and run the import again.",
        )
    return after


def _has_literals(plan: ImportPlan) -> bool:
    """Whether a value of `env` or `headers` stands there in plain text: it may be a secret that nothing tells."""
    tables = (item.table.get(key) or {} for item in plan.additions for key in ("env", "headers"))
    return any("${" not in str(value) for table in tables for value in table.values())


def _store(plan: ImportPlan) -> None:
    for item in plan.additions:
        for secret in item.secrets:
            store_in_keyring(KEYRING_SERVICE, f"{item.name}/{secret.variable}", secret.value)
