"""Decides what an import would do, and does nothing: what is added, renamed or left out, and which secrets are in it.

Printing a plan shows no secret. Above: the command line, which shows the plan. Below: `apply` carries it out.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from toolfold.config import server_names as names
from toolfold.config import toml_writer as tomlwrite
from toolfold.config.clients.discover import ClientConfig, ClientServer
from toolfold.config.clients.self_reference import is_toolfold
from toolfold.config.secret_detection import PlainSecret, find_plain_secrets
from toolfold.config.settings import Settings
from toolfold.config.validation import format_key
from toolfold.redaction import MASK
from toolfold.types import ServerSpec

Action = Literal["add", "rename", "identical", "itself", "broken"]
"""`add` and `rename` write a server; the others leave it out, and `reason` says why."""

SecretsMode = Literal["keep", "env", "keyring"]
"""What becomes of plain secrets: they stay as they are, or a reference to a variable or the keyring stands for them."""

KEYRING_SERVICE = "toolfold"


class PlannedSecret(Struct, frozen=True, kw_only=True):
    """A secret found in plain text. Its printed form hides the value."""

    place: str
    variable: str
    reference: str
    """What is written in its place if it is moved: `${VAR}` or `${keyring:…}`."""
    value: str

    def __repr__(self) -> str:
        return f"PlannedSecret(place={self.place!r}, variable={self.variable!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("place", self.place), ("variable", self.variable)]


class PlanItem(Struct, frozen=True, kw_only=True):
    """One server of one client, and what becomes of it."""

    action: Action
    name: str
    """The name in `toolfold.toml`."""
    written: str
    client: str
    title: str
    scope: str
    path: Path
    line: int | None
    shown: str = ""
    """Command or address without secrets."""
    reason: str = ""
    secrets: tuple[PlannedSecret, ...] = ()
    notes: tuple[str, ...] = ()
    table: dict[str, Any] = {}
    """What is written. May hold secrets."""

    @property
    def writes(self) -> bool:
        return self.action in {"add", "rename"}

    def __repr__(self) -> str:
        return f"PlanItem({self.action!r}, name={self.name!r}, client={self.client!r}, shown={self.shown!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("action", self.action), ("name", self.name), ("client", self.client), ("shown", self.shown)]

    def as_dict(self) -> dict[str, Any]:
        """For `--json`: all but the table and the secrets' values."""
        return {
            "action": self.action,
            "name": self.name,
            "written": self.written,
            "client": self.client,
            "scope": self.scope,
            "path": str(self.path),
            "line": self.line,
            "shown": self.shown,
            "reason": self.reason,
            "secrets": [{"place": secret.place, "variable": secret.variable} for secret in self.secrets],
            "notes": list(self.notes),
        }


class ImportPlan(Struct, frozen=True, kw_only=True):
    """All items, in the order they were found."""

    items: tuple[PlanItem, ...]
    secrets: SecretsMode = "keep"
    problems: tuple[str, ...] = ()
    """Files that could not be read, and why."""

    @property
    def additions(self) -> tuple[PlanItem, ...]:
        return tuple(item for item in self.items if item.writes)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know before it is applied."""
        found = [f"{item.name}: {note}" for item in self.additions for note in item.notes]
        if self.secrets == "keep":
            found += [
                f"{item.name}: {secret.place} holds a secret in plain text; it would be written as it is"
                for item in self.additions
                for secret in item.secrets
            ]
        return tuple(found)

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that must be set after the import, where secrets are moved to them."""
        if self.secrets != "env":
            return ()
        return tuple(dict.fromkeys(secret.variable for item in self.additions for secret in item.secrets))

    def preview(self) -> str:
        """The text that would be added, without the values of `env` and `headers` and without secrets."""
        return "\n".join(tomlwrite.format_table(("servers", item.name), _masked(item.table)) for item in self.additions)


def plan_import(
    found: Iterable[ClientConfig], existing: Settings | None = None, *, secrets: SecretsMode = "keep"
) -> ImportPlan:
    """What would come into the file that `existing` was read from (`None`: a new file)."""
    planner = _Planner(existing, secrets)
    problems: list[str] = []
    items: list[PlanItem] = []
    for config in found:
        problems += config.problems
        items += [planner.item(config, server) for server in config.servers]
    return ImportPlan(items=tuple(items), secrets=secrets, problems=tuple(problems))


class _Planner:
    def __init__(self, existing: Settings | None, secrets: SecretsMode) -> None:
        self._project = existing.project if existing else None
        self._mode = secrets
        self._specs: list[ServerSpec] = list(existing.servers) if existing else []
        self._taken = {spec.name.casefold() for spec in self._specs}
        self._variables: dict[str, str] = {}

    def item(self, config: ClientConfig, server: ClientServer) -> PlanItem:
        if server.spec is None:
            return _item("broken", config, server, reason="; ".join(server.problems))
        if is_toolfold(server.written, server.spec):
            return _item("itself", config, server, reason="it is toolfold itself")
        here = str(self._project) if self._project else None
        twin = next((spec.name for spec in self._specs if _same(spec, server.spec, here)), None)
        if twin is not None:
            return _item("identical", config, server, reason=f"the same as `{twin}`")
        return self._addition(config, server, server.spec)

    def _addition(self, config: ClientConfig, server: ClientServer, spec: ServerSpec) -> PlanItem:
        name = names.unique_name(server.name, self._taken, config.client.replace(".", "-"))
        self._taken.add(name.casefold())
        from msgspec.structs import replace

        self._specs.append(replace(spec, name=name))
        table = dict(server.table)
        if spec.transport == "stdio" and "cwd" not in table and config.project not in {None, self._project}:
            table["cwd"] = str(config.project)
        plains = find_plain_secrets(table)
        planned = tuple(self._secret(plain, name) for plain in plains)
        if self._mode != "keep":
            references = {(one.place, one.start): secret.reference for one, secret in zip(plains, planned, strict=True)}
            table = _substitute(table, plains, lambda plain: references[plain.place, plain.start])
        action: Action = "add" if name == server.name else "rename"
        reason = "" if action == "add" else f"`{server.name}` is taken by a different server"
        return _item(action, config, server, name=name, reason=reason, secrets=planned, table=table)

    def _secret(self, plain: PlainSecret, server: str) -> PlannedSecret:
        variable = self._variable(plain, server)
        path = f"{server}/{variable}"
        reference = f"${{keyring:{KEYRING_SERVICE}/{path}}}" if self._mode == "keyring" else f"${{{variable}}}"
        return PlannedSecret(place=format_key(plain.place), variable=variable, reference=reference, value=plain.value)

    def _variable(self, plain: PlainSecret, server: str) -> str:
        """One variable for one value: the name that stands there, with the server's before it where it is taken."""
        label = "TOKEN" if plain.label.casefold() == "authorization" else plain.label
        candidates = [_as_variable(label)] if plain.place[0] == "env" else []
        candidates.append(_as_variable(f"{server}_{label}"))
        candidates += [f"{candidates[-1]}_{number}" for number in range(2, 1000)]
        for candidate in candidates:
            if self._variables.setdefault(candidate, plain.value) == plain.value:
                return candidate
        return candidates[-1]


def _item(
    action: Action,
    config: ClientConfig,
    server: ClientServer,
    *,
    name: str = "",
    reason: str = "",
    secrets: tuple[PlannedSecret, ...] = (),
    table: dict[str, Any] | None = None,
) -> PlanItem:
    return PlanItem(
        action=action,
        name=name or server.name,
        written=server.written,
        client=config.client,
        title=config.title,
        scope=config.scope,
        path=config.path,
        line=server.line,
        shown=server.spec.shown() if server.spec else "",
        reason=reason,
        secrets=secrets,
        notes=server.notes,
        table=table or {},
    )


def _substitute(
    table: dict[str, Any], plains: Iterable[PlainSecret], text: Callable[[PlainSecret], str]
) -> dict[str, Any]:
    """The table with each plain secret replaced by the text."""
    result = {key: _copied(value) for key, value in table.items()}
    for plain in sorted(plains, key=lambda one: one.start, reverse=True):  # so that earlier places stay true
        holder: Any = result
        for part in plain.place[:-1]:
            holder = holder[part]
        old = holder[plain.place[-1]]
        holder[plain.place[-1]] = old[: plain.start] + text(plain) + old[plain.end :]
    return result


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return dict(value)
    return list(value) if isinstance(value, list) else value


def _masked(table: dict[str, Any]) -> dict[str, Any]:
    result = _substitute(table, find_plain_secrets(table), lambda plain: MASK)
    for key in ("env", "headers"):
        if isinstance(result.get(key), dict):
            result[key] = {name: value if "${" in str(value) else MASK for name, value in result[key].items()}
    return result


def _as_variable(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").upper() or "SECRET"
    return f"_{name}" if name[0].isdigit() else name


def _same(one: ServerSpec, other: ServerSpec, here: str | None) -> bool:
    """Whether both connect to the same thing. A reference counts as the secret that stands in its place.

    `here` is the folder in which the file's servers run unless they say otherwise.
    """
    if (one.cwd or here) != (other.cwd or here):
        return False
    fixed = (one.transport, one.command, one.document, len(one.args), one.env.keys(), one.headers.keys())
    if fixed != (
        other.transport,
        other.command,
        other.document,
        len(other.args),
        other.env.keys(),
        other.headers.keys(),
    ):
        return False
    pairs = [(one.url, other.url), *zip(one.args, other.args, strict=True)]
    pairs += [(one.env[key], other.env[key]) for key in one.env]
    pairs += [(one.headers[key], other.headers[key]) for key in one.headers]
    return all(
        left == right or _stands_for(left, other, right) or _stands_for(right, one, left) for left, right in pairs
    )


def _stands_for(reference: str, spec: ServerSpec, text: str) -> bool:
    return "${" in reference and "${" not in text and any(secret in text for secret in spec.secrets)
