"""Finds a configuration and reads it: `toolfold.toml` or an `mcp.json`, with the environment's overrides, checked.

All problems of a file are collected and raised together. State never lands beside a project's files, and two
configurations never share state. Above: `Settings.load`. Below: the checks and the parsers.
"""

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import cache, reduce
from hashlib import sha256
from operator import getitem
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from toolfold.config.acceptance import ProjectFile, _Acceptances
from toolfold.config.dialects import input_defaults, normalise_table, servers_key
from toolfold.config.files import path_exists, read_text
from toolfold.config.folders import CLIENT_FOLDERS, OWNER_FILE, expand_home, home_folder, toolfold_home, working_folder
from toolfold.config.jsonc import is_json, parse_json
from toolfold.config.secrets import PLAIN_KEY
from toolfold.config.sections import (
    LOCAL_NAME,
    MIN_KEY_LENGTH,
    PATTERN_KINDS,
    RISKS,
    SECTIONS,
    CallerKey,
    Defaults,
    Limits,
    MetadataRule,
    Policy,
    Subset,
    _Quotas,
)
from toolfold.config.self_reference import is_toolfold
from toolfold.config.servers import NAME_RULE, ServerContext, build_server, clean_name, is_valid_name
from toolfold.config.toml import TomlPositions, parse_toml
from toolfold.config.validation import Checker, KeyPath, closest_match, describe_type, settings_of, syntax_error
from toolfold.errors import ConfigError
from toolfold.types import ServerSpec

__all__ = ["_project_file", "read_settings"]

_PROJECT_FILES = ("toolfold.toml", ".mcp.json", "mcp.json")
_TOP_LEVEL = ("servers", "policy", "subsets", "callers", "tools", *SECTIONS)
_RENAMED = {
    "mcpServers": "servers",
    "mcp_servers": "servers",
    "policies": "policy",
    "caller": "callers",
    "subset": "subsets",
    "output": "outputs",
}
_PREFIX = "TOOLFOLD_"
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NO_ONTOLOGY = "Write the file, or remove the key: the tree is then built from the tools alone."

# Plain settings by section and key; and with them the other fields of `Settings` that a file gives.
_Sections = dict[str, dict[str, Any]]
_Parsed = tuple[_Sections, dict[str, Any]]
_Read = Callable[[Path], str]
_Patterned = TypeVar("_Patterned", Policy, Subset)


def read_settings(
    path: str | os.PathLike[str] | None,
    *,
    home: str | os.PathLike[str] | None,
    environ: Mapping[str, str],
    cwd: Path,
    require_servers: bool,
    ask: bool,
) -> dict[str, Any]:
    """The fields of `Settings`, as `Settings.load` says. `home` is the folder for state, where a person names one."""
    user_home = cwd / toolfold_home(environ)
    own = user_home / "toolfold.toml"
    read = cache(read_text)  # what was accepted is what is used, whoever writes the file meanwhile
    withheld: tuple[ProjectFile, ...] = ()
    unaccepted: tuple[ProjectFile, ...] = ()
    if path is not None:
        file: Path | None = cwd / expand_home(os.fspath(path), home_folder(environ))
    else:
        file, withheld, unaccepted = _found(cwd, own, environ, read, is_needed=require_servers, ask=ask)
    adding = _adding(file, own) if path is None else None
    fields = _read_fields(own if adding else file, adding, user_home, cwd, environ, read=read)
    if adding and len(fields["sources"]) == 1:  # it had nothing but toolfold itself
        file = own
    warnings = fields.get("warnings", ())
    project = None if file is None else _project_of(file, user_home)
    state, told = _state_folder(file, project, home, cwd, environ), ""
    if file is not None and (apart := _apart(state, file, project or file.parent)):
        told = f"{state} is another file's: the state of {file} is in {apart}"
        warnings, state = (*warnings, told), apart
    if require_servers and not fields["servers"]:
        raise ConfigError(
            f"{file} names no servers",
            hints=(*(f"{left.text}; accept it: {left.command}" for left in withheld), *warnings),
            next_action="Add one with `toolfold add NAME -- COMMAND`, or run `toolfold import` to take over those of "
            "an MCP client.",
        )
    files = {"home": state, "user_home": user_home, "project": project}
    accepted = {"withheld": withheld, "unaccepted": unaccepted, "found": _as_found(path, file, project, unaccepted)}
    return fields | files | accepted | {"warnings": warnings, "apart": told}


def _project_file(folder: Path, environ: Mapping[str, str]) -> ProjectFile:
    """The configuration that is found in a folder, whether it counts or not. Raises `ConfigError` where none is."""
    user_home = working_folder() / toolfold_home(environ)
    file = next((folder / name for name in _PROJECT_FILES if path_exists(folder / name)), None)
    if file is None or _project_of(file, user_home) is None:
        raise ConfigError(
            f"there is no project's configuration in {folder}",
            hints=[f"looked for {name}" for name in _PROJECT_FILES],
            next_action="name the folder that has one; your own file and one named with --config need no acceptance",
        )
    return _examined(file, _Acceptances(user_home, environ), folder, environ, cache(read_text))


def _found(
    cwd: Path, own: Path, environ: Mapping[str, str], read: _Read, *, is_needed: bool, ask: bool
) -> tuple[Path | None, tuple[ProjectFile, ...], tuple[ProjectFile, ...]]:
    """The configuration that counts here, those of clients that would if the person had accepted them, and the first
    again where it counts although nobody accepted it."""
    record = _Acceptances(own.parent, environ)
    withheld: list[ProjectFile] = []
    candidates = [*(cwd / name for name in _PROJECT_FILES), own]
    for file in filter(path_exists, candidates):
        if _project_of(file, own.parent) is None or _is_accepted(file, record, read):
            return file, tuple(withheld), ()
        found = _examined(file, record, cwd, environ, read)
        if file.suffix == ".toml":
            _check_unattended(found, record, ask=ask)
            return file, tuple(withheld), (found,)
        if found.starts_nothing:
            return file, tuple(withheld), ()
        withheld.append(found)
    if is_needed:
        raise withheld[0].error() if withheld else _none_found(candidates)
    return None, tuple(withheld), ()


def _check_unattended(found: ProjectFile, record: _Acceptances, *, ask: bool) -> None:
    if ask or not record.allow_unattended(found.path):
        raise found.error()


def _none_found(candidates: list[Path]) -> ConfigError:
    return ConfigError(
        "there is no configuration",
        hints=[f"looked for {path}" for path in candidates],
        next_action="Run `toolfold import` to take over an MCP client's servers, `toolfold add` to name one, "
        "or `toolfold demo` to look around.",
    )


def _is_accepted(file: Path, record: _Acceptances, read: _Read) -> bool:
    try:
        return record.allow(file, read(file))
    except ConfigError:
        if file.suffix == ".toml":
            raise
        return False


def _examined(file: Path, record: _Acceptances, cwd: Path, environ: Mapping[str, str], read: _Read) -> ProjectFile:
    """What a file would start. Reading it looks up no secret. A client's that cannot be read is told as it is."""
    try:
        servers = _read_fields(file, None, record.path.parent, cwd, environ, read=read)["servers"]
        return record.examine(file, read(file), servers)
    except ConfigError as error:
        if file.suffix == ".toml":
            raise
        return ProjectFile(path=file, problem=error.message)


def _adding(file: Path | None, own: Path) -> Path | None:
    """A project's file that is a client's: it has servers alone, and they come to what the person has."""
    return file if file is not None and file.suffix == ".json" and path_exists(own) else None


def _as_found(
    named: str | os.PathLike[str] | None, file: Path | None, project: Path | None, unaccepted: tuple[ProjectFile, ...]
) -> ProjectFile | None:
    """The project's `toolfold.toml` where it counts because it lies there, and nobody named it."""
    if named is not None or project is None or file is None or file.suffix != ".toml":
        return None
    return unaccepted[0] if unaccepted else ProjectFile(path=file)


def _project_of(path: Path, user_home: Path) -> Path | None:
    folder = _real(path.parent)
    # The user's own file belongs to no project, wherever toolfold is started.
    if folder == _real(user_home):
        return None
    return folder.parent if folder.name in CLIENT_FOLDERS else folder


def _state_folder(
    file: Path | None,
    project: Path | None,
    explicit: str | os.PathLike[str] | None,
    cwd: Path,
    environ: Mapping[str, str],
) -> Path:
    """Where catalogue, outputs and logs live for this configuration."""
    if explicit is not None:
        return cwd / expand_home(os.fspath(explicit), home_folder(environ))
    home = toolfold_home(environ)
    if environ.get("TOOLFOLD_HOME", "").strip() or file is None or project is None:
        return cwd / home
    return _of_file(home, file, project)


def _of_file(home: Path, file: Path, project: Path) -> Path:
    """A state folder that is this file's alone."""
    # Two projects of one folder name differ by the hash of their whole path.
    digest = sha256(os.fsencode(_real(file.parent) / file.name)).hexdigest()[:8]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", project.name).strip("-.")[:40] or "project"
    return home / "projects" / f"{name}-{digest}"


def _apart(state: Path, file: Path, project: Path) -> Path | None:
    """The folder for this file's state where another configuration that still exists has its own in `state`, or had:
    the two would replace each other's catalogue."""
    apart = _of_file(state, file, project)
    if apart.exists():
        return apart
    try:
        owner = Path(os.fsdecode((state / OWNER_FILE).read_bytes()))
    except OSError:
        return None
    return apart if owner != _real(file.parent) / file.name and path_exists(owner) else None


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _read_fields(
    file: Path | None, adding: Path | None, user_home: Path, cwd: Path, environ: Mapping[str, str], *, read: _Read
) -> dict[str, Any]:
    """The fields that the file gives; `adding` is a client's file whose servers come to them."""
    overrides = _read_overrides(environ)
    person = home_folder(environ)
    sections: _Sections = {}
    parts: dict[str, Any] = {"servers": ()}
    folder = cwd
    if file is not None:
        text = read(file)
        context = _context(file, user_home, cwd, person)
        sections, parts = (_read_json if is_json(file, text) else _read_toml)(file, text, context, overrides)
        parts["sources"] = (file,)
        folder = file.parent
    merged = {name: {**sections.get(name, {}), **overrides.get(name, {})} for name in SECTIONS}
    if adding is not None:
        _, more = _read_json(adding, read(adding), _context(adding, user_home, cwd, person), merged)
        parts |= _joined(parts, more, adding)
    if "directory" in merged["outputs"]:
        merged["outputs"]["directory"] = str(folder / expand_home(merged["outputs"]["directory"], person))
    elif environ.get("TMPDIR"):
        merged["outputs"]["directory"] = environ["TMPDIR"]
    if ontology := merged.pop("ontology").get("file"):
        parts["ontology_file"] = _existing(folder / expand_home(ontology, person))
    return parts | {name: SECTIONS[name](**values) for name, values in merged.items()}


def _context(file: Path, user_home: Path, cwd: Path, person: Path) -> ServerContext:
    # A project's servers run in the project; the user's own run where toolfold was started.
    project = _project_of(file, user_home)
    return ServerContext(
        folder=project or cwd, user=person, default_cwd=str(project) if project else None, beside=file.parent
    )


def _joined(own: dict[str, Any], more: dict[str, Any], path: Path) -> dict[str, Any]:
    """The person's servers and the project's. Of two of one name the project's counts, and that is said."""
    project = {spec.name.casefold(): spec for spec in more["servers"]}
    kept = [spec for spec in own["servers"] if spec.name.casefold() not in project]
    warnings = [
        f"{path}: `{spec.name}` counts here, and not the server of that name in {own['sources'][0]}"
        for spec in own["servers"]
        if spec.name.casefold() in project and replace(project[spec.name.casefold()], cwd=spec.cwd) != spec
    ]
    return {
        "servers": (*kept, *more["servers"]),
        "warnings": (*own["warnings"], *more["warnings"], *warnings),
        "sources": (*own["sources"], path) if project else own["sources"],
    }


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise ConfigError(f"ontology.file: there is no file {path}", next_action=_NO_ONTOLOGY)
    return path


def _read_overrides(environ: Mapping[str, str]) -> _Sections:
    """Settings from the environment, `TOOLFOLD_SECTION__KEY`, by section and key. Raises `ConfigError`.

    They win over the file and have the same bounds. Servers and policies are not set this way.
    """
    checker = Checker("environment")
    result: _Sections = {}
    for variable in sorted(filter(_is_override, environ)):
        section, _, key = variable.removeprefix(_PREFIX).casefold().partition("__")
        setting = settings_of(SECTIONS[section]).get(key) if section in SECTIONS else None
        if setting is None:
            known = [f"{_PREFIX}{name}__{key}".upper() for name in SECTIONS for key in settings_of(SECTIONS[name])]
            meant = closest_match(variable, known)
            checker.error((variable,), "names no setting", f"Did you mean {meant}?" if meant else "Unset it.")
            continue
        checked = checker.setting(_parse_variable(environ[variable], setting.kind), setting, (variable,))
        if checked is not None:
            result.setdefault(section, {})[key] = checked
    checker.raise_errors()
    return result


def _is_override(variable: str) -> bool:
    # `TOOLFOLD_INPUT_…` answers VS Code's inputs, and may hold two underscores itself.
    return "__" in variable and variable.startswith(_PREFIX) and not variable.startswith("TOOLFOLD_INPUT_")


def _parse_variable(text: str, kind: type) -> Any:
    """The number or flag a variable's text stands for; other text stays text, and the check refuses it."""
    if kind in {int, float}:
        with contextlib.suppress(ValueError):
            return kind(text)
    if kind is bool and text.casefold() in {"true", "false", "1", "0"}:
        return text.casefold() in {"true", "1"}
    return text


def _read_toml(path: Path, text: str, context: ServerContext, overrides: _Sections) -> _Parsed:
    data = parse_toml(path, text)
    checker = Checker(str(path), TomlPositions(text).locate)
    checker.keys(data, _TOP_LEVEL, (), renamed=_RENAMED)
    sections = {name: checker.section(SECTIONS[name], data[name], (name,)) for name in SECTIONS if name in data}
    _check_ontology_exists(sections, path, checker)
    servers = _servers(data.get("servers", {}), ("servers",), checker, _with_limits(context, sections, overrides))
    rules, risks = _read_rules(data.get("tools", {}), checker)
    policies = _read_patterns(Policy, "policy", data.get("policy", {}), checker, risks)
    subsets = _read_patterns(Subset, "subsets", data.get("subsets", {}), checker, risks)
    for name in (subset.name for subset in subsets if not is_valid_name(subset.name)):
        checker.error(("subsets", name), "not a valid name of a subset", f"{NAME_RULE}. Use `{clean_name(name)}`.")
    names = [policy.name for policy in policies]
    callers = _read_callers(data.get("callers", {}), checker, names)
    if "auth" in data:
        _check_auth({**sections["auth"], **overrides.get("auth", {})}, names, checker)
    checker.raise_errors()
    parts = {"servers": servers, "policies": policies, "subsets": subsets, "callers": callers, "rules": rules}
    return sections, {**parts, "warnings": checker.warnings}


def _read_rules(value: Any, checker: Checker) -> tuple[tuple[MetadataRule, ...], tuple[str, ...]]:
    """The owner's rules, and every risk that a tool can have with them."""
    table = checker.table(value, ("tools",)) or {}
    rules = tuple(_read_rule(match, entry, checker) for match, entry in table.items())
    return rules, (*RISKS, *(risk for rule in rules for risk in rule.risk))


def _read_rule(match: str, entry: Any, checker: Checker) -> MetadataRule:
    path = ("tools", match)
    rule = MetadataRule(match, **checker.section(MetadataRule, entry, path, without="match"))
    if rule.name and any(mark in match for mark in "*?["):
        checker.error((*path, "name"), "many tools cannot have one name", 'Name one tool, such as [tools."git.log"].')
    elif rule.name and not _TOOL_NAME.fullmatch(rule.name):
        checker.error((*path, "name"), "not a name for a tool", "Use 1 to 64 letters, digits, '_', '-' and '.'.")
    return rule


def _read_patterns(
    kind: type[_Patterned], at: str, value: Any, checker: Checker, risks: tuple[str, ...]
) -> tuple[_Patterned, ...]:
    """Policies or subsets: tables by name, each with lists of patterns."""
    made: list[_Patterned] = []
    for name, entry in (checker.table(value, (at,)) or {}).items():
        lists = checker.section(kind, entry, (at, name), without="name")
        _check_claims(lists.get("claims", {}), checker, (at, name, "claims"))
        _check_quotas(lists, checker, (at, name, "quotas"))
        for key in lists.keys() - {"claims", "scopes", "quotas", "admin"}:
            for index, pattern in enumerate(lists[key]):
                _check_pattern(pattern, checker, (at, name, key, index), risks)
        made.append(kind(name=name, **lists))
    return tuple(made)


def _check_quotas(fields: dict[str, Any], checker: Checker, path: KeyPath) -> None:
    """Puts checked quotas in the place of those that were written."""
    if "quotas" in fields:
        fields["quotas"] = checker.section(_Quotas, fields["quotas"], path)


def _check_claims(claims: dict[str, Any], checker: Checker, path: KeyPath) -> None:
    for claim, wanted in claims.items():
        several = wanted if isinstance(wanted, list) and wanted else [wanted]
        if not all(isinstance(one, (str, bool, int)) for one in several):
            found = describe_type(wanted) if wanted != [] else "an empty list"
            checker.error((*path, claim), f"expected what the claim must hold, found {found}", 'Write claim = "value".')


def _check_pattern(pattern: str, checker: Checker, path: tuple[str | int, ...], risks: tuple[str, ...]) -> None:
    kind, colon, rest = pattern.partition(":")
    if colon and kind not in PATTERN_KINDS:
        meant = closest_match(kind, PATTERN_KINDS)
        fix = f"Did you mean `{meant}:{rest[:40]}`?" if meant else f"Known kinds: {', '.join(PATTERN_KINDS)}."
        checker.error(path, "unknown kind of pattern", fix)
    elif not (rest if colon else kind).strip():
        checker.error(path, "the pattern is empty", 'Write an id such as "git.*", or "**" for everything.')
    elif kind == "risk" and not any(fnmatchcase(risk.casefold(), rest.strip().casefold()) for risk in risks):
        # It would fit nothing, and so confirm or deny nothing, without a word.
        meant = closest_match(rest, risks)
        fix = f"Did you mean `risk:{meant}`?" if meant else f"Known: {', '.join(dict.fromkeys(risks))}."
        checker.error(path, "there is no such risk", fix)


def _read_callers(value: Any, checker: Checker, policies: list[str]) -> tuple[CallerKey, ...]:
    table = checker.table(value, ("callers",)) or {}
    owners: dict[str, str] = {}
    return tuple(_caller(name, entry, checker, policies, owners) for name, entry in table.items())


def _caller(name: str, entry: Any, checker: Checker, policies: list[str], owners: dict[str, str]) -> CallerKey:
    path = ("callers", name)
    fields = checker.section(CallerKey, entry, path, without="name")
    _check_quotas(fields, checker, (*path, "quotas"))
    if not is_valid_name(name):
        checker.error(path, "not a valid name of a caller", f"{NAME_RULE}. Use `{clean_name(name)}`.")
    _check_policy(fields.get("policy"), policies, checker, (*path, "policy"))
    for key in ("key", "client"):
        # Two callers of one key could not be told apart: policies and stored outputs would mix.
        if (value := fields.get(key, "")) and owners.setdefault(f"{key}:{value}", name) != name:
            checker.error((*path, key), f"another caller has the same {key}", f"Give each caller a {key} of its own.")
    given = frozenset(key for key in ("key", "client") if isinstance(entry, dict) and key in entry)
    _check_key(name, fields.get("key", ""), given, checker)
    return CallerKey(name=name, **fields)


def _check_auth(auth: dict[str, Any], policies: list[str], checker: Checker) -> None:
    # Without an issuer nobody would be asked for a token, and where nobody is asked everybody is let in.
    if not auth.get("issuer"):
        checker.error(("auth",), "there is no issuer", 'Write issuer = "https://…", or remove the table.')
    _check_policy(auth.get("policy"), policies, checker, ("auth", "policy"))


def _check_policy(name: str | None, policies: list[str], checker: Checker, path: KeyPath) -> None:
    known = dict.fromkeys(("default", *policies))
    if name and name not in known:
        checker.error(path, "there is no such policy", f"Known: {', '.join(known)}. Add its [policy.NAME] table.")


def _check_key(name: str, key: str, given: frozenset[str], checker: Checker) -> None:
    path = ("callers", name, "key")
    if name == LOCAL_NAME:
        for which in given:
            fix = "Remove it, or rename the caller."
            checker.error((*path[:-1], which), f"whoever runs toolfold on this machine needs no {which}", fix)
        return
    if not given:
        checker.error(path[:-1], "a caller needs a key", 'Write key = "${NAME}" and set that variable.')
    if key and "${" not in key:
        checker.warning(path, PLAIN_KEY, 'Write it as "${NAME}" and set that variable.')
        if len(key) < MIN_KEY_LENGTH:
            fix = f"Give at least {MIN_KEY_LENGTH} random characters."
            checker.error(path, "the key is too short to be safe", fix)


def _check_ontology_exists(sections: _Sections, path: Path, checker: Checker) -> None:
    file = sections.get("ontology", {}).get("file")
    if file and not file.startswith("~") and not path_exists(path.parent / file):
        checker.error(("ontology", "file"), f"there is no file {path.parent / file}", _NO_ONTOLOGY)


def _with_limits(context: ServerContext, sections: _Sections, overrides: _Sections) -> ServerContext:
    merged = {name: {**sections.get(name, {}), **overrides.get(name, {})} for name in ("limits", "defaults")}
    return replace(context, limits=Limits(**merged["limits"]), defaults=Defaults(**merged["defaults"]))


def _servers(
    entries: Any, at: KeyPath, checker: Checker, context: ServerContext, inputs: Mapping[str, str] | None = None
) -> tuple[ServerSpec, ...]:
    """The servers of a table. With `inputs` it is another client's: names are cleaned, keys brought into ours."""
    specs: list[ServerSpec | None] = []
    names: dict[str, str] = {}
    for written, entry in (checker.table(entries, at) or {}).items():
        path = (*at, written)
        name = written if inputs is None else clean_name(written)
        if name != written:
            checker.warning(path, f"the server is called `{name}` here", NAME_RULE + ".")
        elif not is_valid_name(name):
            checker.error(path, "not a valid server name", f"{NAME_RULE}. Use `{clean_name(name)}`.")
        _refuse_duplicate(name, written, names, checker, path)
        table = entry if inputs is None else normalise_table(entry, "mcp", inputs, checker, path)
        specs.append(
            None if table is None else _unless_itself(build_server(name, table, checker, path, context), checker, path)
        )
    return tuple(spec for spec in specs if spec is not None)


def _unless_itself(spec: ServerSpec | None, checker: Checker, path: KeyPath) -> ServerSpec | None:
    if spec is None or not is_toolfold(str(path[-1]), spec):
        return spec
    # In a client's own file it may well be right.
    checker.warning(path, "left out, since it is toolfold itself", "" if checker.lenient else "Remove it here.")
    return None


def _refuse_duplicate(name: str, written: str, names: dict[str, str], checker: Checker, path: KeyPath) -> None:
    other = names.setdefault(name.casefold(), written)
    if other != written:
        printable = "".join(char if char.isprintable() else "?" for char in other)
        checker.error(path, f"the same server name as `{printable}`, since case does not count", "Rename one of them.")


def _read_json(path: Path, text: str, context: ServerContext, overrides: _Sections) -> _Parsed:
    """Another client's file. Names are cleaned, and each change is a warning."""
    if not text.strip():
        raise syntax_error(str(path), 'the file is empty; it needs {"mcpServers": {…}}')
    document = parse_json(path, text)
    checker = Checker(str(path), document.locate, lenient=True)
    at = servers_key(document.value)
    if at is None:
        fix = 'Write {"mcpServers": {"name": {"command": "…"}}}, or run `toolfold import`.'
        checker.error((), f"there is no `mcpServers` in it (found {describe_type(document.value)})", fix)
        checker.raise_errors()
    at = at or ()
    for duplicate in document.duplicates:
        if duplicate[:-1] == at:
            checker.error(duplicate, "the server stands twice", "Rename one of them; only one would be used.")
    entries = reduce(getitem, at, document.value)
    inputs = input_defaults(document.value.get("inputs"))
    servers = _servers(entries, at, checker, _with_limits(context, {}, overrides), inputs)
    checker.raise_errors()
    return {}, {"servers": servers, "warnings": checker.warnings}
