"""Reads one configuration file, `toolfold.toml` or an `mcp.json`, into checked parts.

All problems of a file are collected and raised together. Above: `Settings.load`. Below: the checks and the parsers.
"""

import re
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from toolfold.config import check, names
from toolfold.config.callers import read_callers, read_policies
from toolfold.config.foreign import Dialect, input_defaults, normalise
from toolfold.config.jsonc import Document, JsonError
from toolfold.config.locate import TomlPlaces
from toolfold.config.problems import KeyPath, Locator, Problem, Report, kind_of, syntax_error
from toolfold.config.servers import Surroundings, build_server
from toolfold.config.text import position, present, read_text
from toolfold.config.values import COST, SECTIONS, TOOL_LIMITS, CallerKey, Limits, MetadataRule, Policy
from toolfold.types import ServerSpec

TOP_LEVEL = ("servers", "policy", "callers", "tools", *SECTIONS)
RENAMED = {
    "mcpServers": "servers",
    "mcp_servers": "servers",
    "policies": "policy",
    "caller": "callers",
    "output": "outputs",
}
ADD_SERVER = (
    'Add a server, such as [servers.git] with command = "mcp-server-git", or run `toolfold import` to take over '
    "those of an MCP client."
)

_TOML_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


class Parsed(Struct, kw_only=True):
    """What a file says, checked. `sections` holds plain settings by section and key."""

    servers: tuple[ServerSpec, ...] = ()
    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    policies: tuple[Policy, ...] = ()
    callers: tuple[CallerKey, ...] = ()
    rules: tuple[MetadataRule, ...] = ()
    warnings: tuple[Problem, ...] = ()


def read_config(path: Path, around: Surroundings, overrides: dict[str, dict[str, Any]]) -> Parsed:
    """Reads the file in the form its name or its first character says."""
    text = read_text(path)
    if is_json(path, text):
        return _read_json(path, text, around, overrides)
    return _read_toml(path, text, around, overrides)


def is_json(path: Path, text: str) -> bool:
    if path.suffix.casefold() in {".json", ".jsonc", ".json5"}:
        return True
    return path.suffix.casefold() != ".toml" and text.lstrip().startswith("{")


def parse_toml(path: Path, text: str) -> dict[str, Any]:
    """The text's values. What `tomllib` refuses becomes a `ConfigError` with its place."""
    import tomllib

    try:
        return tomllib.loads(text)
    except RecursionError:
        raise syntax_error(str(path), "the nesting is too deep") from None
    except ValueError as error:
        message = str(error)
        match = _TOML_PLACE.search(message)
        line, column = position(text, len(text))
        if match and match.group(1):
            line, column = int(match.group(1)), int(match.group(2))
        if not isinstance(error, tomllib.TOMLDecodeError):
            raise syntax_error(str(path), "a number has too many digits") from None
        what = _TOML_PLACE.sub("", message)
        raise syntax_error(str(path), f"not valid TOML: {what}", line=line, column=column) from None


def parse_json(path: Path, text: str) -> Document:
    """The text's values and places. What is not JSON becomes a `ConfigError` with its place."""
    try:
        return Document(text)
    except JsonError as error:
        line, column = position(text, error.offset)
        raise syntax_error(str(path), f"not valid JSON: {error}", line=line, column=column) from None


def toml_locator(text: str) -> Locator:
    """Finds places in the text; scans it when first asked."""
    places: list[TomlPlaces] = []

    def locate(path: KeyPath) -> tuple[int, int] | None:
        if not places:
            places.append(TomlPlaces(text))
        return places[0].locate(path)

    return locate


def _read_toml(path: Path, text: str, around: Surroundings, overrides: dict[str, dict[str, Any]]) -> Parsed:
    data = parse_toml(path, text)
    report = Report(str(path), toml_locator(text))
    check.known_keys(data, TOP_LEVEL, report, (), renamed=RENAMED)
    sections = {name: _section(name, data[name], report) for name in SECTIONS if name in data}
    _ontology_is_there(sections, path, report)
    around = _with_limits(around, sections, overrides)
    servers = _servers(data.get("servers", {}), report, around)
    policies = read_policies(data.get("policy", {}), report)
    parsed = Parsed(
        servers=servers,
        sections=sections,
        policies=policies,
        callers=read_callers(data.get("callers", {}), report, [policy.name for policy in policies]),
        rules=_rules(data.get("tools", {}), report),
    )
    report.raise_errors()
    parsed.warnings = report.warnings
    return parsed


def _section(name: str, value: Any, report: Report) -> dict[str, Any]:
    table = check.table_of(value, report, (name,))
    if table is None:
        return {}
    check.known_keys(table, SECTIONS[name], report, (name,))
    found = {
        key: check.bounded(table[key], bounds, report, (name, key))
        for key, bounds in SECTIONS[name].items()
        if key in table
    }
    return {key: value for key, value in found.items() if value is not None}


def _ontology_is_there(sections: dict[str, dict[str, Any]], path: Path, report: Report) -> None:
    named = sections.get("ontology", {}).get("file")
    if named and not named.startswith("~") and not present(path.parent / named):
        fix = "Write the file, or remove the key: the tree is then built from the tools alone."
        report.error(("ontology", "file"), f"there is no file {path.parent / named}", fix)


def _with_limits(
    around: Surroundings, sections: dict[str, dict[str, Any]], overrides: dict[str, dict[str, Any]]
) -> Surroundings:
    from msgspec.structs import replace

    return replace(around, limits=Limits(**{**sections.get("limits", {}), **overrides.get("limits", {})}))


def _servers(value: Any, report: Report, around: Surroundings) -> tuple[ServerSpec, ...]:
    table = check.table_of(value, report, ("servers",))
    specs: list[ServerSpec] = []
    seen: dict[str, str] = {}
    for name, entry in (table or {}).items():
        path = ("servers", name)
        if not names.is_valid(name):
            report.error(path, "not a valid server name", f"{names.RULE}. Use `{names.clean(name)}`.")
        _refuse_twin(name, name, seen, report, path)
        spec = build_server(name, entry, report, path, around)
        if spec is not None:
            specs.append(spec)
    return tuple(specs)


def _refuse_twin(name: str, written: str, seen: dict[str, str], report: Report, path: KeyPath) -> None:
    twin = seen.setdefault(name.casefold(), written)
    if twin != written:
        shown = "".join(char if char.isprintable() else "?" for char in twin)
        report.error(path, f"the same server name as `{shown}`, since case does not count", "Rename one of them.")


def _rules(value: Any, report: Report) -> tuple[MetadataRule, ...]:
    table = check.table_of(value, report, ("tools",)) or {}
    rules: list[MetadataRule] = []
    for match, entry in table.items():
        path = ("tools", match)
        fields = check.table_of(entry, report, path) or {}
        check.known_keys(fields, ("cost", "risk", "access", "tags", *TOOL_LIMITS), report, path)
        lists: dict[str, Any] = {
            key: check.texts(fields[key], report, (*path, key), single=True) or ()
            for key in ("risk", "access", "tags")
            if key in fields
        }
        cost = check.bounded(fields["cost"], COST, report, (*path, "cost")) if "cost" in fields else None
        limits: dict[str, Any] = {
            key: check.bounded(fields[key], bounds, report, (*path, key))
            for key, bounds in TOOL_LIMITS.items()
            if key in fields
        }
        rules.append(MetadataRule(match, cost, **lists, **limits))
    return tuple(rules)


def _read_json(path: Path, text: str, around: Surroundings, overrides: dict[str, dict[str, Any]]) -> Parsed:
    if not text.strip():
        raise syntax_error(str(path), 'the file is empty; it needs {"mcpServers": {…}}')
    document = parse_json(path, text)
    report = Report(str(path), document.locate, lenient=True)
    around = _with_limits(around, {}, overrides)
    at = servers_key(document.value)
    if at is None:
        fix = 'Write {"mcpServers": {"name": {"command": "…"}}}, or run `toolfold import`.'
        report.error((), f"there is no `mcpServers` in it (found {kind_of(document.value)})", fix)
        report.raise_errors()
    specs = foreign_servers(document, at or (), "mcp", report, around)
    report.raise_errors()
    return Parsed(servers=specs, warnings=report.warnings)


def servers_key(value: Any) -> KeyPath | None:
    """Where the servers stand in a client's JSON: `mcpServers`, VS Code's `servers`, its old `mcp.servers`, or bare."""
    if not isinstance(value, dict):
        return None
    for key in ("mcpServers", "servers", "mcp.servers"):
        if key in value:
            return (key,)
    nested = value.get("mcp")
    if isinstance(nested, dict) and "servers" in nested:
        return ("mcp", "servers")
    bare = [isinstance(entry, dict) and bool({"command", "url"} & entry.keys()) for entry in value.values()]
    return () if bare and all(bare) else None


def foreign_servers(
    document: Document, at: KeyPath, dialect: Dialect, report: Report, around: Surroundings
) -> tuple[ServerSpec, ...]:
    """The servers of another client's file. Names are cleaned, and each change is a warning."""
    inputs = input_defaults(document.value.get("inputs") if isinstance(document.value, dict) else None)
    for duplicate in document.duplicates:
        if duplicate[:-1] == at:
            report.error(duplicate, "the server stands twice", "Rename one of them; only one would be used.")
    specs: list[ServerSpec] = []
    seen: dict[str, str] = {}
    for written, entry in entries_at(document.value, at, report).items():
        path = (*at, written)
        name = names.clean(written)
        if name != written:
            report.warning(path, f"the server is called `{name}` here", names.RULE + ".")
        _refuse_twin(name, written, seen, report, path)
        table = foreign_table(entry, dialect, inputs, report, path)
        spec = None if table is None else build_server(name, table, report, path, around)
        if spec is not None:
            specs.append(spec)
    return tuple(specs)


def foreign_table(
    entry: Any, dialect: Dialect, inputs: dict[str, str], report: Report, path: KeyPath
) -> dict[str, Any] | None:
    """Another client's table in toolfold's keys; what is odd about it is a warning."""
    table = check.table_of(entry, report, path)
    if table is None:
        return None
    normal = normalise(table, dialect, inputs)
    for key, meant in normal.unknown.items():
        report.warning((*path, key), "unknown key", f"Did you mean `{meant}`?" if meant else "It is not used.")
    for note in normal.notes:
        report.warning(path, note)
    return normal.table


def entries_at(value: Any, at: KeyPath, report: Report) -> dict[str, Any]:
    for key in at:
        value = value[key]
    return check.table_of(value, report, at) or {}
