"""Reads one configuration file, `toolfold.toml` or an `mcp.json`, into checked parts.

All problems of a file are collected and raised together. Above: `Settings.load`. Below: the checks and the parsers.
"""

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from toolfold.config import server_names as names
from toolfold.config import validation as check
from toolfold.config.callers import read_callers, read_policies
from toolfold.config.dialects import Dialect, input_defaults, normalise
from toolfold.config.files import line_and_column, path_exists, read_text
from toolfold.config.jsonc import JsonDocument, JsonError
from toolfold.config.sections import COST, SECTIONS, TOOL_LIMITS, Bounds, CallerKey, Limits, MetadataRule, Policy
from toolfold.config.servers import ServerContext, build_server
from toolfold.config.toml_positions import TomlPositions
from toolfold.config.validation import Checker, KeyPath, Locator, Problem, closest_match, describe_type, syntax_error
from toolfold.types import ServerSpec

_TOP_LEVEL = ("servers", "policy", "callers", "tools", *SECTIONS)
_RENAMED = {
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


class ParsedConfig(Struct, kw_only=True):
    """What a file says, checked. `sections` holds plain settings by section and key."""

    servers: tuple[ServerSpec, ...] = ()
    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    policies: tuple[Policy, ...] = ()
    callers: tuple[CallerKey, ...] = ()
    rules: tuple[MetadataRule, ...] = ()
    warnings: tuple[Problem, ...] = ()


def read_config(path: Path, around: ServerContext, overrides: dict[str, dict[str, Any]]) -> ParsedConfig:
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
        line, column = line_and_column(text, len(text))
        if match and match.group(1):
            line, column = int(match.group(1)), int(match.group(2))
        if not isinstance(error, tomllib.TOMLDecodeError):
            raise syntax_error(str(path), "a number has too many digits") from None
        what = _TOML_PLACE.sub("", message)
        raise syntax_error(str(path), f"not valid TOML: {what}", line=line, column=column) from None


def parse_json(path: Path, text: str) -> JsonDocument:
    """The text's values and places. What is not JSON becomes a `ConfigError` with its place."""
    try:
        return JsonDocument(text)
    except JsonError as error:
        line, column = line_and_column(text, error.offset)
        raise syntax_error(str(path), f"not valid JSON: {error}", line=line, column=column) from None


def toml_locator(text: str) -> Locator:
    """Finds places in the text; scans it when first asked."""
    places: list[TomlPositions] = []

    def locate(path: KeyPath) -> tuple[int, int] | None:
        if not places:
            places.append(TomlPositions(text))
        return places[0].locate(path)

    return locate


def _read_toml(path: Path, text: str, around: ServerContext, overrides: dict[str, dict[str, Any]]) -> ParsedConfig:
    data = parse_toml(path, text)
    report = Checker(str(path), toml_locator(text))
    check.check_keys(data, _TOP_LEVEL, report, (), renamed=_RENAMED)
    sections = {name: _section(name, data[name], report) for name in SECTIONS if name in data}
    _ontology_is_there(sections, path, report)
    around = _with_limits(around, sections, overrides)
    servers = _servers(data.get("servers", {}), report, around)
    policies = read_policies(data.get("policy", {}), report)
    parsed = ParsedConfig(
        servers=servers,
        sections=sections,
        policies=policies,
        callers=read_callers(data.get("callers", {}), report, [policy.name for policy in policies]),
        rules=_rules(data.get("tools", {}), report),
    )
    report.raise_errors()
    parsed.warnings = report.warnings
    return parsed


def _section(name: str, value: Any, report: Checker) -> dict[str, Any]:
    table = check.check_table(value, report, (name,))
    if table is None:
        return {}
    check.check_keys(table, SECTIONS[name], report, (name,))
    found = {
        key: check.check_setting(table[key], bounds, report, (name, key))
        for key, bounds in SECTIONS[name].items()
        if key in table
    }
    return {key: value for key, value in found.items() if value is not None}


def _ontology_is_there(sections: dict[str, dict[str, Any]], path: Path, report: Checker) -> None:
    named = sections.get("ontology", {}).get("file")
    if named and not named.startswith("~") and not path_exists(path.parent / named):
        fix = "Write the file, or remove the key: the tree is then built from the tools alone."
        report.error(("ontology", "file"), f"there is no file {path.parent / named}", fix)


def _with_limits(
    around: ServerContext, sections: dict[str, dict[str, Any]], overrides: dict[str, dict[str, Any]]
) -> ServerContext:
    from msgspec.structs import replace

    return replace(around, limits=Limits(**{**sections.get("limits", {}), **overrides.get("limits", {})}))


def _servers(value: Any, report: Checker, around: ServerContext) -> tuple[ServerSpec, ...]:
    table = check.check_table(value, report, ("servers",))
    specs: list[ServerSpec] = []
    seen: dict[str, str] = {}
    for name, entry in (table or {}).items():
        path = ("servers", name)
        if not names.is_valid_name(name):
            report.error(path, "not a valid server name", f"{names.NAME_RULE}. Use `{names.clean_name(name)}`.")
        _refuse_twin(name, name, seen, report, path)
        spec = build_server(name, entry, report, path, around)
        if spec is not None:
            specs.append(spec)
    return tuple(specs)


def _refuse_twin(name: str, written: str, seen: dict[str, str], report: Checker, path: KeyPath) -> None:
    twin = seen.setdefault(name.casefold(), written)
    if twin != written:
        shown = "".join(char if char.isprintable() else "?" for char in twin)
        report.error(path, f"the same server name as `{shown}`, since case does not count", "Rename one of them.")


def _rules(value: Any, report: Checker) -> tuple[MetadataRule, ...]:
    table = check.check_table(value, report, ("tools",)) or {}
    rules: list[MetadataRule] = []
    for match, entry in table.items():
        path = ("tools", match)
        fields = check.check_table(entry, report, path) or {}
        check.check_keys(fields, ("cost", "risk", "access", "tags", *TOOL_LIMITS), report, path)
        lists: dict[str, Any] = {
            key: check.check_texts(fields[key], report, (*path, key), single=True) or ()
            for key in ("risk", "access", "tags")
            if key in fields
        }
        cost = check.check_setting(fields["cost"], COST, report, (*path, "cost")) if "cost" in fields else None
        limits: dict[str, Any] = {
            key: check.check_setting(fields[key], bounds, report, (*path, key))
            for key, bounds in TOOL_LIMITS.items()
            if key in fields
        }
        rules.append(MetadataRule(match, cost, **lists, **limits))
    return tuple(rules)


def _read_json(path: Path, text: str, around: ServerContext, overrides: dict[str, dict[str, Any]]) -> ParsedConfig:
    if not text.strip():
        raise syntax_error(str(path), 'the file is empty; it needs {"mcpServers": {…}}')
    document = parse_json(path, text)
    report = Checker(str(path), document.locate, lenient=True)
    around = _with_limits(around, {}, overrides)
    at = servers_key(document.value)
    if at is None:
        fix = 'Write {"mcpServers": {"name": {"command": "…"}}}, or run `toolfold import`.'
        report.error((), f"there is no `mcpServers` in it (found {describe_type(document.value)})", fix)
        report.raise_errors()
    specs = _foreign_servers(document, at or (), "mcp", report, around)
    report.raise_errors()
    return ParsedConfig(servers=specs, warnings=report.warnings)


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


def _foreign_servers(
    document: JsonDocument, at: KeyPath, dialect: Dialect, report: Checker, around: ServerContext
) -> tuple[ServerSpec, ...]:
    """The servers of another client's file. Names are cleaned, and each change is a warning."""
    inputs = input_defaults(document.value.get("inputs") if isinstance(document.value, dict) else None)
    for duplicate in document.duplicates:
        if duplicate[:-1] == at:
            report.error(duplicate, "the server stands twice", "Rename one of them; only one would be used.")
    specs: list[ServerSpec] = []
    seen: dict[str, str] = {}
    for written, entry in _entries_at(document.value, at, report).items():
        path = (*at, written)
        name = names.clean_name(written)
        if name != written:
            report.warning(path, f"the server is called `{name}` here", names.NAME_RULE + ".")
        _refuse_twin(name, written, seen, report, path)
        table = normalise_table(entry, dialect, inputs, report, path)
        spec = None if table is None else build_server(name, table, report, path, around)
        if spec is not None:
            specs.append(spec)
    return tuple(specs)


def normalise_table(
    entry: Any, dialect: Dialect, inputs: dict[str, str], report: Checker, path: KeyPath
) -> dict[str, Any] | None:
    """Another client's table in toolfold's keys; what is odd about it is a warning."""
    table = check.check_table(entry, report, path)
    if table is None:
        return None
    normal = normalise(table, dialect, inputs)
    for key, meant in normal.unknown.items():
        report.warning((*path, key), "unknown key", f"Did you mean `{meant}`?" if meant else "It is not used.")
    for note in normal.notes:
        report.warning(path, note)
    return normal.table


def _entries_at(value: Any, at: KeyPath, report: Checker) -> dict[str, Any]:
    for key in at:
        value = value[key]
    return check.check_table(value, report, at) or {}


# --- Settings from the environment: `TOOLFOLD_SECTION__KEY`, such as `TOOLFOLD_LIMITS__CALL_TIMEOUT_S=30`.

_PREFIX = "TOOLFOLD_"


def read_overrides(environ: Mapping[str, str], report: Checker) -> dict[str, dict[str, Any]]:
    """The checked values by section and key."""
    result: dict[str, dict[str, Any]] = {}
    for variable in sorted(environ):
        if "__" not in variable or not variable.startswith(_PREFIX) or variable.startswith("TOOLFOLD_INPUT_"):
            continue
        section, _, key = variable.removeprefix(_PREFIX).casefold().partition("__")
        bounds = SECTIONS.get(section, {}).get(key)
        if bounds is None:
            known = [_setting_variable(name, field) for name, fields in SECTIONS.items() for field in fields]
            meant = closest_match(variable, known)
            report.error((variable,), "names no setting", f"Did you mean {meant}?" if meant else "Unset it.")
            continue
        value = check.check_setting(_parse_variable(environ[variable], bounds), bounds, report, (variable,))
        if value is not None:
            result.setdefault(section, {})[key] = value
    return result


def _setting_variable(section: str, key: str) -> str:
    return f"{_PREFIX}{section}__{key}".upper()


def _parse_variable(text: str, bounds: Bounds) -> Any:
    """The number a variable's text stands for; what is none stays text and is refused by the check."""
    if bounds.kind in {int, float}:
        with contextlib.suppress(ValueError):
            return int(text) if bounds.kind is int else float(text)
    if bounds.kind is bool and text.casefold() in {"true", "false", "1", "0"}:
        return text.casefold() in {"true", "1"}
    return text
