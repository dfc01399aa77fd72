"""Server tables as other MCP clients write them, brought into toolfold's own keys.

What has no meaning here is dropped; what a person would miss is noted. Values are not checked: `servers` does that
next. Above: the reader of an `mcp.json` and the import.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from toolfold.config.secrets import is_secret_name
from toolfold.config.sections import Limits
from toolfold.config.servers import ALL_KEYS
from toolfold.config.validation import Checker, KeyPath, closest_match, settings_of
from toolfold.types import OAuthSpec

Dialect = Literal["mcp", "vscode", "codex", "gemini"]

_RENAMED = {
    "httpUrl": "url",
    "serverUrl": "url",
    "uri": "url",
    "envFile": "env_file",
    "http_headers": "headers",
    "transportType": "type",
}
_FILTERS = ("includeTools", "excludeTools", "enabled_tools", "disabled_tools", "disabledTools", "tools")
# Keys that clients are known to write and that say nothing about the connection, or that `_codex` reads: no warning.
_TOLERATED = frozenset({
    "$schema", "alwaysAllow", "always_allow", "approval", "authProviderType", "autoApprove", "autoStart",
    "defaultToolsApprovalMode", "default_tools_approval_mode", "description", "dev", "displayName",
    "experimental_environment", "extension", "gallery", "headersHelper", "icon", "iconUrl", "id", "instructions",
    "isActive", "location", "metadata", "name", "note", "notes", "oauth", "oauth_resource", "provider", "required",
    "sampling", "sandbox", "sandboxEnabled", "scope", "scopes", "source", "supports_parallel_tool_calls", "tags",
    "targetAudience", "targetServiceAccount", "timeout", "title", "trust", "version", "watch", "bearer_token_env_var",
    "env_http_headers", "env_vars", "startup_timeout_sec", "startup_timeout_ms", "tool_timeout_sec",
})  # fmt: skip
_OAUTH_NAMES = {name.replace("_", ""): name for name in settings_of(OAuthSpec)}
_OAUTH_NAMES |= {"scope": "scopes", "callbackport": "redirect_port"}
_SHELL_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_INPUT = re.compile(r"\$\{input:([^{}]+)\}")


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


def input_defaults(inputs: Any) -> dict[str, str]:
    """The defaults of VS Code's `inputs`, those that can stand in a reference."""
    pairs = [(item.get("id"), item.get("default")) for item in _list(inputs) if isinstance(item, dict)]
    return {
        name: default
        for name, default in pairs
        if isinstance(name, str) and isinstance(default, str) and not set("{}") & set(default)
    }


def normalise_table(
    entry: Any, dialect: Dialect, inputs: Mapping[str, str], checker: Checker, path: KeyPath
) -> dict[str, Any] | None:
    """Another client's table in toolfold's keys; each odd thing about it is a warning.

    `inputs` are the defaults of VS Code's input variables.
    """
    written = checker.table(entry, path)
    if written is None:
        return None
    table: dict[str, Any] = {}
    for key, value in _flatten(written).items():
        _add_key(table, key, value, checker, path)
    if "url" in table and (oauth := _oauth(written)) is not None:
        table["oauth"] = oauth
    if dialect == "codex":
        _codex(written, table)
    if dialect == "gemini":
        _add_seconds(table, "call_timeout_s", written.get("timeout"), per_second=1000)
        table = map_strings(table, lambda text: _SHELL_VARIABLE.sub(r"${\1}", text))
    if inputs:
        table = map_strings(table, lambda text: _with_defaults(text, inputs))
    return table


def map_strings(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [map_strings(item, change) for item in value]
    if isinstance(value, dict):
        return {key: map_strings(item, change) for key, item in value.items()}
    return value


def _flatten(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Some clients nest the connection under `transport`; some give its type there."""
    transport = entry.get("transport")
    rest = {key: value for key, value in entry.items() if key != "transport"}
    if isinstance(transport, Mapping):
        return {**transport, **rest}
    return {"type": transport, **rest} if isinstance(transport, str) else dict(entry)


def _add_key(table: dict[str, Any], key: str, value: Any, checker: Checker, path: KeyPath) -> None:
    name = _RENAMED.get(key, key)
    if value is None or not name or key in _TOLERATED or (key == "auth" and not isinstance(value, str)):
        return
    if name in ALL_KEYS:
        table.setdefault(name, value)
    elif key not in _FILTERS:
        meant = closest_match(key, ALL_KEYS)
        checker.warning((*path, key), "unknown key", f"Did you mean `{meant}`?" if meant else "It is not used.")
    elif value:
        checker.warning(path, f"`{key}` is not taken over: say with a policy which tools may be used")


def _oauth(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    """How clients say that a server is signed in to: each in its own spelling, Cursor as `auth`."""
    given = next((entry[key] for key in ("oauth", "auth") if isinstance(entry.get(key), Mapping | bool)), None)
    if not isinstance(given, Mapping):
        return None if given is None else {"enabled": given}
    found: dict[str, Any] = {}
    for key, value in given.items():
        name = _OAUTH_NAMES.get(str(key).replace("_", "").casefold())
        if name is not None and value is not None:
            found[name] = value.split() if name == "scopes" and isinstance(value, str) else value
    return found


def _codex(entry: Mapping[str, Any], table: dict[str, Any]) -> None:
    """Codex names variables where others hold values."""
    variable = entry.get("bearer_token_env_var")
    if isinstance(variable, str) and variable:
        table["bearer_token"] = f"${{{variable}}}"
    headers, from_env = table.get("headers", {}), entry.get("env_http_headers")
    if isinstance(from_env, Mapping) and isinstance(headers, dict):
        table["headers"] = {**headers, **{name: f"${{{source}}}" for name, source in from_env.items()}}
    env, passed_on = table.get("env", {}), list(filter(None, map(_variable_name, _list(entry.get("env_vars")))))
    if passed_on and isinstance(env, dict):
        table["env"] = {**{name: _variable_reference(name) for name in passed_on}, **env}
    _add_seconds(table, "start_timeout_s", entry.get("startup_timeout_sec"))
    _add_seconds(table, "start_timeout_s", entry.get("startup_timeout_ms"), per_second=1000)
    _add_seconds(table, "call_timeout_s", entry.get("tool_timeout_sec"))


def _variable_name(item: Any) -> str:
    name = item.get("name") if isinstance(item, Mapping) else item
    return name if isinstance(name, str) else ""


def _variable_reference(name: str) -> str:
    # A variable that is no secret may be absent; a secret that is absent should be reported.
    return f"${{{name}}}" if is_secret_name(name) else f"${{{name}:-}}"


def _add_seconds(table: dict[str, Any], key: str, value: Any, *, per_second: int = 1) -> None:
    """Takes a time-out over where it is one that toolfold allows."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        bounds = settings_of(Limits)[key]
        if bounds.low * per_second <= value <= bounds.high * per_second:
            table.setdefault(key, value if per_second == 1 else value / per_second)


def _with_defaults(text: str, inputs: Mapping[str, str]) -> str:
    def fill(match: re.Match[str]) -> str:
        default = inputs.get(match.group(1))
        return match.group() if default is None else f"${{input:{match.group(1)}:-{default}}}"

    return _INPUT.sub(fill, text)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
