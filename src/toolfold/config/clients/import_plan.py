"""The import of clients' servers into `toolfold.toml`: `plan_import` only decides, `apply` carries it out.

A plan says what is added, renamed or left out, and which secrets are in it; printing it shows none. `apply` keeps every
character of an existing file, backs it up first and replaces it in one step. It writes nothing that `tomllib` would not
read back as the old content plus the new servers. Above: the command line.
"""

import copy
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from toolfold.config.acceptance import _changing
from toolfold.config.clients.discovery import ClientConfig, ClientServer
from toolfold.config.clients.replacement import plan_replacement
from toolfold.config.dialects import map_strings
from toolfold.config.files import PRIVATE_MODE
from toolfold.config.secrets import PlainSecret, _inputs_of, find_plain_secrets, store_in_keyring
from toolfold.config.sections import PartialRepr
from toolfold.config.self_reference import is_toolfold
from toolfold.config.servers import MAX_NAME_LENGTH, clean_name
from toolfold.config.settings import Settings
from toolfold.config.toml import format_table, parse_toml
from toolfold.config.toml_file import TomlFile
from toolfold.config.transaction import FileChange, WrittenFile, write_all
from toolfold.config.validation import KeyPath, format_key
from toolfold.errors import ConfigError
from toolfold.redaction import MASK
from toolfold.types import ServerSpec

# `add` and `rename` write a server; the others leave it out, and `reason` says why. `stays`: only its client has it.
Action = Literal["add", "rename", "identical", "itself", "broken", "stays"]

# What becomes of plain secrets: they stay as they are, or a reference to a variable or the keyring stands for them.
SecretsMode = Literal["keep", "env", "keyring"]

_KEYRING_NAME = "toolfold"


class _PlannedSecret(PartialRepr, frozen=True, kw_only=True):
    """A secret found in plain text. Its printed form hides the value."""

    printed = ("place", "variable")

    place: str
    variable: str
    reference: str
    """What is written in its place if it is moved: `${VAR}` or `${keyring:…}`."""
    value: str


class _PlanItem(PartialRepr, frozen=True, kw_only=True):
    """One server of one client, and what becomes of it."""

    printed = ("action", "name", "client", "shown")

    action: Action
    name: str
    """The name in `toolfold.toml`."""
    written: str
    client: str
    title: str
    scope: str
    path: Path
    key: KeyPath
    """Where in the file its client's servers stand."""
    line: int | None
    shown: str = ""
    """Command or address without secrets."""
    reason: str = ""
    secrets: tuple[_PlannedSecret, ...] = ()
    notes: tuple[str, ...] = ()
    table: dict[str, Any] = field(default_factory=dict)
    """What is written. May hold secrets."""
    spec: ServerSpec | None = None
    """The server as its client starts it, under the name it has here."""

    @property
    def writes(self) -> bool:
        return self.action in {"add", "rename"}

    def changes(self, is_shared: bool) -> Iterator[str]:
        """What is otherwise here than in its client. `is_shared`: the file that it goes to counts in every folder."""
        for variable, reference in _inputs_of(self.table).items():
            yield f"{self.name}: its client asks for {reference}; started elsewhere, toolfold reads it from {variable}"
        if self.scope == "local" and is_shared:
            yield f"{self.name}: its client has it for {self.key[1]} alone; here it is there in every folder"

    def as_dict(self) -> dict[str, Any]:
        """For `--json`: all but the table and the secrets' values."""
        fields = {
            name: getattr(self, name)
            for name in self.__struct_fields__
            if name not in {"title", "table", "spec", "key"}
        }
        secrets = [{"place": secret.place, "variable": secret.variable} for secret in self.secrets]
        return fields | {"path": str(self.path), "secrets": secrets, "notes": list(self.notes)}


class ImportPlan(Struct, frozen=True, kw_only=True):
    """All items, in the order they were found."""

    items: tuple[_PlanItem, ...]
    secrets: SecretsMode = "keep"
    problems: tuple[str, ...] = ()
    """Files that could not be read, and why."""
    elsewhere: tuple[str, ...] = ()
    """Variables that hold something else, and for which others stand."""
    is_shared: bool = True
    """Whether the file that it goes to is there in every folder, and not a project's own."""

    @property
    def additions(self) -> tuple[_PlanItem, ...]:
        return tuple(item for item in self.items if item.writes)

    @property
    def taken_over(self) -> tuple[ServerSpec, ...]:
        """The enabled servers of the clients, each once, as toolfold will start them: new ones as they are written, and
        those that were here."""
        return tuple({item.spec.name: item.spec for item in self.items if item.spec and item.spec.enabled}.values())

    def leave(self, names: Collection[str]) -> "ImportPlan":
        """The plan without the servers of these names, which do not start: they stay with their client alone."""
        items = [
            replace(item, action="stays", reason="it did not start, and stays in the client")
            if item.spec is not None and item.spec.name in names and item.action in {"add", "rename", "identical"}
            else item
            for item in self.items
        ]
        return replace(self, items=tuple(items))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know before it is applied."""
        warnings = [*self.elsewhere, *(f"{item.name}: {note}" for item in self.additions for note in item.notes)]
        for item in self.additions:
            warnings += item.changes(self.is_shared)
        if self.secrets == "keep":
            warnings += [
                f"{item.name}: {secret.place} holds a secret in plain text, which goes into the file as it is"
                for item in self.additions
                for secret in item.secrets
            ]
        return tuple(warnings)

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that must be set after the import, where secrets are moved to them."""
        if self.secrets != "env":
            return ()
        return tuple(dict.fromkeys(secret.variable for item in self.additions for secret in item.secrets))

    def preview(self) -> str:
        """The text that would be added, without the values of `env` and `headers` and without secrets."""
        return "\n".join(format_table(("servers", item.name), _masked(item.table)) for item in self.additions)


def plan_import(
    configs: Iterable[ClientConfig],
    existing: Settings | None = None,
    *,
    secrets: SecretsMode = "keep",
    environ: Mapping[str, str] | None = None,
) -> ImportPlan:
    """What would come into the file that `existing` was read from (`None`: a new file). A variable that has another
    value in `environ` stands for no secret."""
    planner = _Planner(existing, secrets, (environ or {}) if secrets == "env" else {})
    problems: list[str] = []
    items: list[_PlanItem] = []
    for config in configs:
        problems += config.problems
        items += [planner.item(config, server) for server in config.servers]
    is_shared = existing is None or existing.project is None
    elsewhere = tuple(
        f"{server}: {variable} has another value in this environment than in the client, so another variable is read"
        for variable, server in planner.passed_over.items()
    )
    return ImportPlan(
        items=tuple(items), secrets=secrets, problems=tuple(problems), is_shared=is_shared, elsewhere=elsewhere
    )


class _Planner:
    def __init__(self, existing: Settings | None, secrets: SecretsMode, environ: Mapping[str, str]) -> None:
        self._environ = environ
        # Variables that were passed over, with the server that would have read them.
        self.passed_over: dict[str, str] = {}
        self._project = existing.project if existing else None
        self._env = existing.defaults.env if existing else {}
        self._mode = secrets
        self._specs: list[ServerSpec] = list(existing.servers) if existing else []
        # As toolfold starts them: with a variable where a plain secret stood, if they move there.
        self._started = {spec.name: spec for spec in self._specs}
        self._taken = {spec.name.casefold() for spec in self._specs}
        self._variables: dict[str, str] = {}

    def item(self, config: ClientConfig, server: ClientServer) -> _PlanItem:
        if server.spec is None:
            return _item("broken", config, server, reason="; ".join(server.problems))
        if is_toolfold(server.written, server.spec):
            return _item("itself", config, server, reason="it is toolfold itself")
        here = str(self._project) if self._project else None
        # In its new place it would have the variables that every server there has.
        alike = replace(server.spec, env={**self._env, **server.spec.env})
        twin = next((spec.name for spec in self._specs if _same(spec, alike, here)), None)
        if twin is not None:
            return _item("identical", config, server, reason=f"the same as `{twin}`", spec=self._started[twin])
        return self._addition(config, server, server.spec)

    def _addition(self, config: ClientConfig, server: ClientServer, spec: ServerSpec) -> _PlanItem:
        name = _unique_name(server.name, self._taken, config.client.replace(".", "-"))
        self._taken.add(name.casefold())
        spec = replace(spec, name=name)
        self._specs.append(replace(spec, env={**self._env, **spec.env}))
        table = self._moved(server.table, config.project, spec)
        plain_secrets = find_plain_secrets(table)
        planned = tuple(self._secret(plain, name) for plain in plain_secrets)
        if self._mode != "keep":
            references = [secret.reference for secret in planned]
            table = _substitute(table, zip(plain_secrets, references, strict=True))
        if self._mode == "env":  # the keyring has them before anything is written
            spec = _referring(spec, planned)
        self._started[name] = spec
        action: Action = "add" if name == server.name else "rename"
        reason = "" if action == "add" else f"`{server.name}` is taken by a different server"
        return _item(action, config, server, name=name, reason=reason, secrets=planned, table=table, spec=spec)

    def _moved(self, table: dict[str, Any], project: Path | None, spec: ServerSpec) -> dict[str, Any]:
        """The table of a project's server so that it means the same in the new file."""
        if project is None:
            return dict(table)
        if project == self._project:
            # The file is the project's, which may be on another machine tomorrow.
            return map_strings(table, lambda text: text.replace(str(project), "${workspaceFolder}"))  # type: ignore[no-any-return]
        # It ran in its project; from a file elsewhere that has to be said.
        return {**table, "cwd": table.get("cwd", str(project))} if spec.transport == "stdio" else dict(table)

    def _secret(self, plain: PlainSecret, server: str) -> _PlannedSecret:
        variable = self._variable(plain, server)
        path = f"{server}/{variable}"
        reference = f"${{keyring:{_KEYRING_NAME}/{path}}}" if self._mode == "keyring" else f"${{{variable}}}"
        return _PlannedSecret(place=format_key(plain.place), variable=variable, reference=reference, value=plain.value)

    def _variable(self, plain: PlainSecret, server: str) -> str:
        """One variable for one value: the name that stands there, with the server's before it where it is taken."""
        label = "TOKEN" if plain.label.casefold() == "authorization" else plain.label
        candidates = [_as_variable(label)] if plain.place[0] == "env" else []
        candidates.append(_as_variable(f"{server}_{label}"))
        candidates += [f"{candidates[-1]}_{number}" for number in range(2, 1000)]
        for candidate in candidates:
            if self._environ.get(candidate, plain.value) != plain.value:
                self.passed_over[candidate] = server
            elif self._variables.setdefault(candidate, plain.value) == plain.value:
                return candidate
        return candidates[-1]


def _unique_name(name: str, taken: set[str], suffix: str = "") -> str:
    """A valid name that is not taken, whatever the case: with the suffix first, then with numbers."""
    base = clean_name(f"{name[: MAX_NAME_LENGTH - 1 - len(suffix)]}-{suffix}") if suffix else name
    numbered = (f"{base[: MAX_NAME_LENGTH - 1 - len(str(number))]}-{number}" for number in count(2))
    return next(candidate for candidate in chain((name, base), numbered) if candidate.casefold() not in taken)


def _item(action: Action, config: ClientConfig, server: ClientServer, *, name: str = "", **parts: Any) -> _PlanItem:
    return _PlanItem(
        action=action,
        name=name or server.name,
        written=server.written,
        client=config.client,
        title=config.title,
        scope=config.scope,
        path=config.path,
        key=config.key,
        line=server.line,
        shown=server.spec.shown() if server.spec else "",
        notes=server.notes,
        **parts,
    )


def _substitute(table: dict[str, Any], texts: Iterable[tuple[PlainSecret, str]]) -> dict[str, Any]:
    """The table with each plain secret replaced by its text."""
    result = copy.deepcopy(table)
    # From the end, so that the offsets of earlier secrets stay true.
    for plain, text in sorted(texts, key=lambda pair: pair[0].start, reverse=True):
        holder: Any = result
        for part in plain.place[:-1]:
            holder = holder[part]
        old = holder[plain.place[-1]]
        holder[plain.place[-1]] = old[: plain.start] + text + old[plain.end :]
    return result


def _referring(spec: ServerSpec, secrets: Sequence[_PlannedSecret]) -> ServerSpec:
    """The server with the references in the place of its secrets."""

    def refer(text: str) -> str:
        return reduce(lambda left, secret: left.replace(secret.value, secret.reference), secrets, text)

    held = {"url": spec.url, "args": list(spec.args), "env": spec.env, "headers": spec.headers}
    parts: dict[str, Any] = map_strings(held, refer)
    return replace(spec, **parts | {"args": tuple(parts["args"])})


def _masked(table: dict[str, Any]) -> dict[str, Any]:
    result = _substitute(table, [(plain, MASK) for plain in find_plain_secrets(table)])
    for key in ("env", "headers"):
        if isinstance(result.get(key), dict):
            result[key] = {name: value if "${" in str(value) else MASK for name, value in result[key].items()}
    return result


def _as_variable(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").upper() or "SECRET"
    return f"_{name}" if name[0].isdigit() else name


def _same(spec: ServerSpec, other: ServerSpec, here: str | None) -> bool:
    """Whether both connect to the same server. A reference counts as the secret that stands in its place.

    `here` is the folder in which the file's servers run unless they say otherwise.
    """
    if (spec.cwd or here) != (other.cwd or here):
        return False
    if _shape(spec) != _shape(other):
        return False
    pairs = [(spec.url, other.url), *zip(spec.args, other.args, strict=True)]
    pairs += [(spec.env[key], other.env[key]) for key in spec.env]
    pairs += [(spec.headers[key], other.headers[key]) for key in spec.headers]
    return all(
        left == right or _stands_for(left, other, right) or _stands_for(right, spec, left) for left, right in pairs
    )


def _shape(spec: ServerSpec) -> tuple[Any, ...]:
    return (spec.transport, spec.command, spec.document, len(spec.args), spec.env.keys(), spec.headers.keys())


def _stands_for(reference: str, spec: ServerSpec, text: str) -> bool:
    return "${" in reference and "${" not in text and any(secret in text for secret in spec.secrets)


class Applied(Struct, frozen=True, kw_only=True):
    """What an import wrote."""

    target: Path
    added: tuple[str, ...]
    backup: Path | None
    """The copy of the file as it was; `None` if there was none, or nothing was added."""
    private: bool
    """The file holds secrets and only its owner may read it."""
    variables: tuple[str, ...]
    """Environment variables that must be set now."""
    replaced: tuple[WrittenFile, ...] = ()
    """The clients' files that start toolfold alone now."""


class Rewrite(Struct, frozen=True, kw_only=True):
    """A client's file that is to start toolfold alone: the parts of it, and the entry that they get."""

    path: Path
    configs: tuple[ClientConfig, ...]
    entry: dict[str, Any]
    kept: frozenset[tuple[Path, KeyPath, str]] = frozenset()
    """Those of its servers that stay there."""
    drop_comments: bool = False

    @property
    def servers(self) -> frozenset[tuple[Path, KeyPath, str]]:
        """Its servers, each by file, place in it and name."""
        return frozenset(
            (config.path, config.key, server.written) for config in self.configs for server in config.servers
        )

    def plan(self) -> FileChange:
        return plan_replacement(
            self.path,
            self.configs,
            self.entry,
            kept={server[1:] for server in self.kept},
            drop_comments=self.drop_comments,
        )


def check_import(plan: ImportPlan, target: Path, rewrites: Sequence[Rewrite] = ()) -> list[FileChange]:
    """What `apply` would write. Raises one `ConfigError` for all that stands against it; nothing is written."""
    problems: list[ConfigError] = []
    changes: list[FileChange] = []
    computed: list[Callable[[], FileChange | None]] = [partial(_target_change, plan, target)]
    for compute in (*computed, *(rewrite.plan for rewrite in rewrites)):
        try:
            changes += filter(None, [compute()])
        except ConfigError as error:
            problems.append(error)
    if len(problems) > 1:
        hints = [error.message for error in problems]
        message = f"{problems[0].message} (and {len(problems) - 1} more problem{'s' * (len(problems) > 2)})"
        raise ConfigError(message, hints=hints, next_action=problems[0].next_action)
    if problems:
        raise problems[0]
    return changes


def apply(
    plan: ImportPlan,
    target: str | os.PathLike[str],
    rewrites: Sequence[Rewrite] = (),
    *,
    journal: Path | None = None,
    now: float | None = None,
) -> Applied:
    """Writes the additions to the target and points clients at toolfold: all of it, or none and a `ConfigError`.

    `journal` is where the record goes by which `undo` takes it back.
    """
    path = Path(target)
    with _changing(path, *filter(None, [journal])):
        changes = check_import(plan, path, rewrites)
        private = bool(plan.additions) and changes[0].mode == PRIVATE_MODE and _has_secrets(changes[0])
        if plan.secrets == "keyring":
            _store_secrets(plan)
        written = write_all(changes, journal, now=now)
    own = written[:1] if plan.additions else []
    return Applied(
        target=path,
        added=tuple(item.name for item in plan.additions),
        backup=own[0].backup if own else None,
        private=private,
        variables=plan.variables if own else (),
        replaced=tuple(written[len(own) :]),
    )


def _target_change(plan: ImportPlan, path: Path) -> FileChange | None:
    if path.suffix.casefold() != ".toml":
        raise ConfigError(f"{path} is not a TOML file", next_action="Import into a file that ends in .toml.")
    added = {item.name: item.table for item in plan.additions}
    if not added:
        return None
    change = TomlFile(path).plan(added)
    return replace(change, added=TomlFile.marks(parse_toml(path, (change.new or b"").decode()), added))


def _has_secrets(change: FileChange) -> bool:
    servers = parse_toml(change.path, (change.new or b"").decode())["servers"]
    return any(map(find_plain_secrets, servers.values()))


def _store_secrets(plan: ImportPlan) -> None:
    for item in plan.additions:
        for secret in item.secrets:
            store_in_keyring(_KEYRING_NAME, f"{item.name}/{secret.variable}", secret.value)
