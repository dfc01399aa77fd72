"""Server tables as other clients write them, brought into toolfold's own keys.

What has no meaning here is dropped; what a person would miss is noted. Nothing is checked: `servers` does that next.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct, field

from toolfold.config.secret_detection import is_secret_name
from toolfold.config.servers import ALL_KEYS
from toolfold.config.validation import closest_match

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
_TOLERATED = {"$schema", "alwaysAllow", "always_allow", "approval", "authProviderType", "autoApprove", "autoStart"}
_TOLERATED |= {"defaultToolsApprovalMode", "default_tools_approval_mode", "description", "dev", "displayName"}
_TOLERATED |= {"experimental_environment", "extension", "gallery", "headersHelper", "icon", "iconUrl", "id"}
_TOLERATED |= {"instructions", "isActive", "location", "metadata", "name", "note", "notes", "oauth", "oauth_resource"}
_TOLERATED |= {"provider", "required", "sampling", "sandbox", "sandboxEnabled", "scope", "scopes", "source"}
_TOLERATED |= {"supports_parallel_tool_calls", "tags", "targetAudience", "targetServiceAccount", "timeout"}
_TOLERATED |= {"title", "trust", "version", "watch"}
_CODEX = {"bearer_token_env_var", "env_http_headers", "env_vars", "startup_timeout_sec", "startup_timeout_ms"}
_CODEX |= {"tool_timeout_sec"}
_SHELL_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_INPUT = re.compile(r"\$\{input:([^{}]+)\}")


class _Normalised(Struct, kw_only=True):
    """A table in toolfold's keys, and what is worth telling about the one it came from."""

    table: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)
    """Keys that mean nothing here, each with the known key it may be a typo of."""


def normalise(
    entry: Mapping[str, Any], dialect: Dialect = "mcp", inputs: Mapping[str, str] | None = None
) -> _Normalised:
    """`inputs` are the defaults of VS Code's input variables."""
    result = _Normalised(table={})
    for key, value in _flattened(entry).items():
        _add_key(result, key, value)
    if dialect == "codex":
        _codex(entry, result)
    if dialect == "gemini":
        _milliseconds(entry.get("timeout"), "call_timeout_s", result)
        result.table = map_strings(result.table, lambda text: _SHELL_VARIABLE.sub(r"${\1}", text))
    if inputs:
        result.table = map_strings(result.table, lambda text: _with_default(text, inputs))
    return result


def _flattened(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Some clients nest the connection under `transport`; some give it there by name."""
    transport = entry.get("transport")
    rest = {key: value for key, value in entry.items() if key != "transport"}
    if isinstance(transport, Mapping):
        return {**transport, **rest}
    return {"type": transport, **rest} if isinstance(transport, str) else dict(entry)


def _add_key(result: _Normalised, key: str, value: Any) -> None:
    name = _RENAMED.get(key, key)
    if value is None:
        return
    if name in ALL_KEYS:
        result.table.setdefault(name, value)
    elif key in _FILTERS and value:
        result.notes.append(f"`{key}` is not taken over: say with a policy which tools may be used")
    elif key not in _TOLERATED and key not in _FILTERS and key not in _CODEX and name:
        result.unknown[key] = closest_match(key, ALL_KEYS)


def _codex(entry: Mapping[str, Any], result: _Normalised) -> None:
    """Codex names variables where others hold values."""
    table = result.table
    variable = entry.get("bearer_token_env_var")
    if isinstance(variable, str) and variable:
        table["bearer_token"] = f"${{{variable}}}"
    from_env = entry.get("env_http_headers")
    if isinstance(from_env, Mapping) and isinstance(table.get("headers", {}), dict):
        table["headers"] = {**table.get("headers", {}), **{name: f"${{{source}}}" for name, source in from_env.items()}}
    passed_on = [name for name in map(_variable_name, entry.get("env_vars") or ()) if name]
    if passed_on and isinstance(table.get("env", {}), dict):
        # A variable that is no secret may be absent; a secret that is absent should be reported.
        kept = {name: f"${{{name}}}" if is_secret_name(name) else f"${{{name}:-}}" for name in passed_on}
        table["env"] = {**kept, **table.get("env", {})}
    _seconds(entry.get("startup_timeout_sec"), "start_timeout_s", result)
    _milliseconds(entry.get("startup_timeout_ms"), "start_timeout_s", result)
    _seconds(entry.get("tool_timeout_sec"), "call_timeout_s", result)


def _variable_name(item: Any) -> str:
    name = item.get("name") if isinstance(item, Mapping) else item
    return name if isinstance(name, str) else ""


def _milliseconds(value: Any, key: str, result: _Normalised) -> None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        _seconds(value / 1000, key, result)


def _seconds(value: Any, key: str, result: _Normalised) -> None:
    """Takes a time-out over where it is one that toolfold allows."""
    longest = 3600 if key == "start_timeout_s" else 86_400
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0.1 <= value <= longest:
        result.table.setdefault(key, value)


def _with_default(text: str, inputs: Mapping[str, str]) -> str:
    def fill(match: re.Match[str]) -> str:
        default = inputs.get(match.group(1))
        return match.group() if default is None else f"${{input:{match.group(1)}:-{default}}}"

    return _INPUT.sub(fill, text)


def map_strings(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [map_strings(item, change) for item in value]
    if isinstance(value, dict):
        return {key: map_strings(item, change) for key, item in value.items()}
    return value


def input_defaults(inputs: Any) -> dict[str, str]:
    """The defaults of VS Code's `inputs`, those that can stand in a reference."""
    found: dict[str, str] = {}
    for item in inputs if isinstance(inputs, list) else ():
        if isinstance(item, dict) and isinstance(item.get("id"), str) and isinstance(item.get("default"), str):
            default = item["default"]
            if not set("{}") & set(default):
                found[item["id"]] = default
    return found
