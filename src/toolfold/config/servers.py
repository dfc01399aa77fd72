"""One server's table becomes a `ServerSpec`: exactly one kind, each value checked, references left as they are.

The table has toolfold's own keys; `foreign` brings other clients' tables into this form first. Nothing is looked up,
started or reached here.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from toolfold.config import validation as check
from toolfold.config.secret_detection import find_plain_secrets
from toolfold.config.sections import SECTIONS, Limits
from toolfold.config.validation import Checker, KeyPath, closest_match
from toolfold.types import ServerSpec, Transport

_KINDS: dict[str, Transport] = {"command": "stdio", "url": "http", "openapi": "openapi", "functions": "functions"}
"""The key that says what a server is. A table has exactly one of them."""

_TYPES: dict[str, Transport] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "sse": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamablehttp": "http",
}

_COMMON = ("type", "enabled", "disabled", "start_timeout_s", "call_timeout_s")
_HTTP = ("headers", "bearer_token", "auth")
KEYS_BY_TRANSPORT: dict[str, tuple[str, ...]] = {
    "stdio": ("command", "args", "env", "env_file", "cwd", *_COMMON),
    "http": ("url", *_HTTP, *_COMMON),
    "openapi": ("openapi", "base_url", *_HTTP, *_COMMON),
    "functions": ("functions", *_COMMON),
}
ALL_KEYS = tuple(dict.fromkeys(key for keys in KEYS_BY_TRANSPORT.values() for key in keys))
_RENAMED = {
    "environment": "env",
    "envFile": "env_file",
    "httpUrl": "url",
    "serverUrl": "url",
    "timeout": "call_timeout_s",
    "http_headers": "headers",
    "token": "bearer_token",
    "arguments": "args",
    "transport": "type",
}

_URL = re.compile(r"https?://[^\s/?#]+[^\s]*", re.IGNORECASE)
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_]\w*)?")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_EXAMPLE = 'Give one of command = "…", url = "https://…", openapi = "file or URL", functions = "package.module".'


class ServerContext(Struct, frozen=True, kw_only=True):
    """What a table means depends on where its file lies."""

    folder: Path
    """Relative paths start here."""
    user: Path
    """The person's home folder."""
    limits: Limits = Limits()
    default_cwd: str | None = None

    def expand(self, text: str) -> str:
        """Fills in the variables that editors define and that are no secrets."""
        if "${" not in text:
            return text
        folder = str(self.folder)
        known: Mapping[str, str] = {
            "${workspaceFolder}": folder,
            "${workspaceRoot}": folder,
            "${workspaceFolderBasename}": self.folder.name,
            "${cwd}": folder,
            "${userHome}": str(self.user),
            "${pathSeparator}": "/" if "/" in folder else "\\",
            "${/}": "/" if "/" in folder else "\\",
        }
        for variable, value in known.items():
            text = text.replace(variable, value)
        return text

    def absolute(self, text: str) -> str:
        """A path from the file's folder; what starts with a reference stays as it is."""
        text = self.expand(text)
        if text.startswith("${"):
            return text
        if text == "~" or text.startswith(("~/", "~\\")):
            return str(self.user / text[2:])
        return str(self.folder / text)


def build_server(name: str, table: Any, report: Checker, path: KeyPath, around: ServerContext) -> ServerSpec | None:
    """The spec, or nothing after the report of all that is wrong."""
    checked = check.check_table(table, report, path)
    if checked is None:
        return None
    before = len(report.errors)
    transport = _transport(checked, report, path)
    if transport is None:
        return None
    _keys_fit(checked, transport, report, path)
    checked = {key: value for key, value in checked.items() if key in KEYS_BY_TRANSPORT[transport]}
    reader = _Fields(checked, report, path, around)
    spec = ServerSpec(
        name=name,
        transport=transport,
        command=around.expand(reader.text("command")) if transport == "stdio" else "",
        args=tuple(around.expand(arg) for arg in reader.texts("args")),
        env=reader.env(),
        env_file=reader.path("env_file"),
        cwd=reader.path("cwd") or (around.default_cwd if transport in {"stdio", "functions"} else None),
        url=reader.url("base_url" if transport == "openapi" else "url"),
        headers=reader.headers(),
        document=reader.document(transport),
        enabled=reader.enabled(),
        start_timeout_s=reader.seconds("start_timeout_s"),
        call_timeout_s=reader.seconds("call_timeout_s"),
        secrets=tuple(dict.fromkeys(plain.value for plain in find_plain_secrets(checked))),
    )
    return spec if len(report.errors) == before else None


def _transport(table: dict[str, Any], report: Checker, path: KeyPath) -> Transport | None:
    found = [key for key in _KINDS if key in table]
    if len(found) > 1:
        report.error(path, f"has {' and '.join(f'`{key}`' for key in found)}", "Keep the one that is meant.")
        return None
    if not found:
        near = next((key for key in table if key not in ALL_KEYS and closest_match(key, _KINDS)), None)
        if near is None:
            report.error(path, "does not say what to connect to", _EXAMPLE)
        else:
            report.error((*path, near), "unknown key", f"Did you mean `{closest_match(near, _KINDS)}`?")
        return None
    transport = _KINDS[found[0]]
    kind = table.get("type")
    if kind is None:
        return transport
    named = _TYPES.get(kind.casefold()) if isinstance(kind, str) else None
    if named is None:
        report.error(
            (*path, "type"), "not a type that toolfold connects to", "Use stdio, http, sse or streamable-http."
        )
    elif named != transport and not (named == "http" and transport == "openapi"):
        right = "stdio" if transport == "stdio" else "http"
        report.error((*path, "type"), f"does not fit `{found[0]}`", f"Use {right}, or remove the key.")
    return transport


def _keys_fit(table: dict[str, Any], transport: Transport, report: Checker, path: KeyPath) -> None:
    known = KEYS_BY_TRANSPORT[transport]
    misplaced = {key: value for key, value in table.items() if key in ALL_KEYS and key not in known}
    for key in misplaced:
        kind = next(kind for kind, value in _KINDS.items() if value == transport)
        report.odd((*path, key), f"has no meaning for a server with `{kind}`", "Remove the key.")
    rest = {key: value for key, value in table.items() if key not in misplaced}
    check.check_keys(rest, known, report, path, renamed=_RENAMED)


class _Fields:
    """Reads the fields of one table, each with its default."""

    def __init__(self, table: dict[str, Any], report: Checker, path: KeyPath, around: ServerContext) -> None:
        self.table = table
        self.report = report
        self.at = path
        self.around = around

    def text(self, key: str) -> str:
        if key not in self.table:
            return ""
        value = self.table[key]
        if key == "command" and isinstance(value, list):
            self.report.error((*self.at, key), "expected a string, found a list", "Put all but the first into `args`.")
            return ""
        found = check.check_text(value, self.report, (*self.at, key)) or ""
        if key == "command" and " " in found.strip() and "args" not in self.table and not Path(found).exists():
            fix = 'Write command = "program" and args = ["first", "second"].'
            self.report.warning((*self.at, key), "the command has blanks and is taken as one program's name", fix)
        return found

    def texts(self, key: str) -> tuple[str, ...]:
        if key not in self.table:
            return ()
        return check.check_texts(self.table[key], self.report, (*self.at, key)) or ()

    def path(self, key: str) -> str:
        text = self.text(key)
        return self.around.absolute(text) if text else ""

    def env(self) -> dict[str, str]:
        if "env" not in self.table:
            return {}
        at = (*self.at, "env")
        found = check.check_text_map(self.table["env"], self.report, at, lenient=self.report.lenient) or {}
        for name in found:
            if "=" in name:
                self.report.error((*at, name), "a variable's name cannot hold '='", "Write NAME and value apart.")
        return {name: self.around.expand(value) for name, value in found.items()}

    def url(self, key: str) -> str:
        text = self.around.expand(self.text(key)).strip()
        if text and "${" not in text and not _URL.fullmatch(text):
            self.report.error((*self.at, key), "not an http or https address", "Write it as https://host/path.")
            return ""
        return text

    def headers(self) -> dict[str, str]:
        at = (*self.at, "headers")
        found = check.check_text_map(self.table["headers"], self.report, at) or {} if "headers" in self.table else {}
        for name, value in found.items():
            if not _HEADER_NAME.fullmatch(name):
                self.report.error((*at, name), "not a name for a header", "Use letters, digits and '-'.")
            if "\n" in value or "\r" in value:
                self.report.error((*at, name), "the value has a line break", "Write it in one line.")
        token = self._token()
        if token and any(name.casefold() == "authorization" for name in found):
            self.report.error(at, "has an Authorization besides the token", "Keep one of the two.")
        result = {name: self.around.expand(value) for name, value in found.items()}
        return {**result, "Authorization": f"Bearer {token}"} if token else result

    def _token(self) -> str:
        auth = self.table.get("auth")
        if isinstance(auth, str) and auth.casefold() == "oauth":
            fix = 'Give bearer_token = "${TOKEN}" instead.'
            self.report.odd((*self.at, "auth"), "signing in with OAuth is not supported yet", fix)
            return ""
        return self.text("bearer_token") or self.text("auth")

    def document(self, transport: Transport) -> str:
        if transport == "functions":
            text = self.text("functions")
            if text and not _MODULE.fullmatch(text):
                fix = 'Write "package.module" or "package.module:name".'
                self.report.error((*self.at, "functions"), "not the name of a Python module", fix)
            return text
        if transport != "openapi":
            return ""
        text = self.text("openapi")
        if not text or re.match(r"https?://", text, re.IGNORECASE):
            return self.around.expand(text)
        return self.around.absolute(text)

    def enabled(self) -> bool:
        enabled, disabled = self.table.get("enabled", True), self.table.get("disabled", False)
        on = check.check_flag(enabled, self.report, (*self.at, "enabled"))
        off = check.check_flag(disabled, self.report, (*self.at, "disabled"))
        return bool(on) and not off

    def seconds(self, key: str) -> float:
        default: float = getattr(self.around.limits, key)
        if key not in self.table:
            return default
        found = check.check_setting(self.table[key], SECTIONS["limits"][key], self.report, (*self.at, key))
        return default if found is None else float(found)
