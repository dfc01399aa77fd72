"""Turns one server's table into a `ServerSpec`: exactly one kind, each value checked, references left as they are.

The table has toolfold's own keys; `dialects` brings other clients' tables into this form first. Nothing is looked up,
started or reached here.
"""

import re
import unicodedata
from hashlib import sha256
from pathlib import Path, PureWindowsPath
from typing import Any, Literal

from msgspec import Struct

from toolfold.config.folders import expand_home
from toolfold.config.secrets import find_plain_secrets
from toolfold.config.sections import Defaults, Limits
from toolfold.config.validation import Checker, KeyPath, closest_match, settings_of
from toolfold.types import OAuthSpec, ServerSpec, Transport

# The key that says what a server is. A table has exactly one of them.
KINDS: dict[str, Transport] = {
    "command": "stdio",
    "url": "http",
    "openapi": "openapi",
    "functions": "functions",
    "skills": "skills",
}
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
_HTTP = ("headers", "bearer_token", "auth", "oauth", "credentials")
KEYS_BY_TRANSPORT: dict[str, tuple[str, ...]] = {
    "stdio": ("command", "args", "env", "env_file", "inherit_env", "cwd", "keep_alive", *_COMMON),
    "http": ("url", *_HTTP, *_COMMON),
    "openapi": ("openapi", "base_url", *_HTTP, *_COMMON),
    "functions": ("functions", *_COMMON),
    "skills": ("skills", *_COMMON),
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

# A reference whose brace was forgotten, in a text or in what Python prints of several.
_OPEN = re.compile(r"""(?<!\$)\$\{[^}"']*(?:["']|\Z)""")
_URL = re.compile(r"https?://[^\s/?#]+[^\s]*", re.IGNORECASE)
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_]\w*)?")
_PYTHON_FILE = re.compile(r"(.+\.py)(:[A-Za-z_]\w*)?")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# A name is the first part of each tool id `server.tool`, so it has no dot and no blank. Two names that differ only in
# case are one name, and `toolbox` belongs to toolfold itself.
MAX_NAME_LENGTH = 40
_RESERVED_NAMES = frozenset({"toolbox"})
NAME_RULE = (
    f"A server name has 1 to {MAX_NAME_LENGTH} letters, digits, '_' or '-', and starts with a letter or digit; "
    "'toolbox' is taken"
)
_VALID_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{MAX_NAME_LENGTH - 1}}}")
# Programs that may have to download a server before they start it, and how much more time than others they then have.
_INSTALLERS = frozenset(
    ("npx", "npm", "pnpm", "pnpx", "yarn", "bunx", "deno", "uvx", "uv", "pipx", "dnx", "docker", "podman", "nerdctl")
)
_INSTALL_FACTOR = 4
_EXAMPLE = 'Give one of command = "…", url = "https://…", openapi = "file or URL", functions = "./tools.py".'


class ServerContext(Struct, frozen=True, kw_only=True):
    """Where a table's file lies, which decides what relative paths and editors' variables in it mean."""

    folder: Path
    """Relative paths start here."""
    user: Path
    """The person's home folder."""
    limits: Limits = Limits()
    defaults: Defaults = Defaults()
    default_cwd: str | None = None
    beside: Path | None = None
    """The file's own folder, where that is another: functions come from there."""

    def expand(self, text: str) -> str:
        """Fills in the variables that editors define and that are no secrets."""
        if "${" not in text:
            return text
        folder = str(self.folder)
        separator = "/" if "/" in folder else "\\"
        variables = {
            "${workspaceFolder}": folder,
            "${workspaceRoot}": folder,
            "${workspaceFolderBasename}": self.folder.name,
            "${cwd}": folder,
            "${userHome}": str(self.user),
            "${pathSeparator}": separator,
            "${/}": separator,
        }
        for variable, value in variables.items():
            text = text.replace(variable, value)
        return text

    def absolute(self, text: str) -> str:
        """A path from the project's folder, else the file's; what starts with a reference stays as it is."""
        text = self.expand(text)
        if text.startswith("${"):
            return text
        base = self.folder if self.default_cwd or self.beside is None else self.beside
        return str(base / expand_home(text, self.user))


def build_server(name: str, table: Any, checker: Checker, path: KeyPath, context: ServerContext) -> ServerSpec | None:
    """The spec, or `None` once everything that is wrong has been reported."""
    before = len(checker.errors)
    checked = checker.table(table, path)
    transport = None if checked is None else _transport(checked, checker, path)
    if checked is None or transport is None:
        return None
    checked = _check_keys(checked, transport, checker, path)
    if transport == "stdio" and context.defaults.env and isinstance(checked.get("env", {}), dict):
        checked["env"] = {**context.defaults.env, **checked.get("env", {})}
    fields = _Fields(checked, checker, path, context)
    spec = ServerSpec(
        name=name,
        transport=transport,
        command=fields.command(),
        args=fields.args(),
        env=fields.env(),
        env_file=fields.path("env_file"),
        inherit_env=fields.inherit_env(transport),
        cwd=fields.cwd(transport),
        url=fields.url("url") or fields.url("base_url"),
        headers=fields.headers(),
        oauth=fields.oauth(),
        credentials=fields.credentials(),
        document=fields.functions() or fields.openapi() or fields.path("skills"),
        enabled=fields.enabled(),
        start_timeout_s=fields.start_timeout(transport),
        call_timeout_s=fields.seconds("call_timeout_s"),
        keep_alive=fields.keep_alive(),
        secrets=tuple(dict.fromkeys(secret.value for secret in find_plain_secrets(checked))),
    )
    _check_closed(checked, checker, path)
    return spec if len(checker.errors) == before else None


def _check_closed(table: dict[str, Any], checker: Checker, path: KeyPath) -> None:
    for key in ("command", "args", "env", "headers", "url"):
        if _OPEN.search(str(table.get(key))):
            checker.warning((*path, key), "has a `${` that is not closed, and is taken as it stands", "Write ${NAME}.")


def _installs(table: dict[str, Any]) -> bool:
    """Whether the program fetches the server before it runs it, also where a shell starts that program."""
    args = table.get("args")
    words = " ".join(map(str, [table["command"], *(args[:2] if isinstance(args, list) else ())])).split()
    return any(PureWindowsPath(word).stem.casefold() in _INSTALLERS for word in words)


def _transport(table: dict[str, Any], checker: Checker, path: KeyPath) -> Transport | None:
    kinds = [key for key in KINDS if key in table]
    if len(kinds) > 1:
        checker.error(path, f"has {' and '.join(f'`{key}`' for key in kinds)}", "Keep the one that is meant.")
        return None
    if not kinds:
        _name_unknown(table, checker, path)
        return None
    if table.get("type") is not None:
        _check_type(table["type"], kinds[0], checker, (*path, "type"))
    return KINDS[kinds[0]]


def _name_unknown(table: dict[str, Any], checker: Checker, path: KeyPath) -> None:
    """Of a table that does not say what to connect to: why, as far as its keys tell."""
    unknown = {key: closest_match(key, KINDS) for key in table if key not in ALL_KEYS}
    if not any(unknown.values()):
        checker.error(path, "does not say what to connect to", _EXAMPLE)
        return
    for key, meant in unknown.items():
        checker.error((*path, key), "unknown key", f"Did you mean `{meant}`?" if meant else "Remove it.")


def _check_type(declared: Any, kind: str, checker: Checker, path: KeyPath) -> None:
    # An OpenAPI service is reached over HTTP, so clients write that type for it.
    transport = "http" if kind == "openapi" else KINDS[kind]
    expected = _TYPES.get(declared.casefold()) if isinstance(declared, str) else None
    if expected is None:
        checker.error(path, "not a type that toolfold connects to", "Use stdio, http, sse or streamable-http.")
    elif expected != transport:
        right = "stdio" if transport == "stdio" else "http"
        checker.error(path, f"does not fit `{kind}`", f"Use {right}, or remove the key.")


def _check_keys(table: dict[str, Any], transport: Transport, checker: Checker, path: KeyPath) -> dict[str, Any]:
    """The keys that a server of that kind has; each other one is reported."""
    known = KEYS_BY_TRANSPORT[transport]
    misplaced = [key for key in table if key in ALL_KEYS and key not in known]
    for key in misplaced:
        checker.odd((*path, key), f"has no meaning for a server with `{known[0]}`", "Remove the key.")
    rest = {key: value for key, value in table.items() if key not in misplaced}
    checker.keys(rest, known, path, renamed=_RENAMED)
    return {key: value for key, value in rest.items() if key in known}


class _Fields:
    """Reads the fields of one table, each with its default."""

    def __init__(self, table: dict[str, Any], checker: Checker, path: KeyPath, context: ServerContext) -> None:
        self._table = table
        self._checker = checker
        self._path = path
        self._context = context

    def _text(self, key: str) -> str:
        return (self._checker.text(self._table[key], (*self._path, key)) or "") if key in self._table else ""

    def command(self) -> str:
        path = (*self._path, "command")
        if isinstance(self._table.get("command"), list):
            self._checker.error(path, "expected a string, found a list", "Put all but the first into `args`.")
            return ""
        command = self._text("command")
        if " " in command.strip() and "args" not in self._table and not Path(command).exists():
            fix = 'Write command = "program" and args = ["first", "second"].'
            self._checker.warning(path, "the command has blanks and is taken as one program's name", fix)
        command = self._context.expand(command)
        # A path that loses its `./` would be looked for on PATH.
        return str(expand_home(command, self._context.user)) if command.startswith("~/") else command

    def args(self) -> tuple[str, ...]:
        args = self._checker.texts(self._table.get("args", []), (*self._path, "args")) or ()
        return tuple(self._context.expand(arg) for arg in args)

    def cwd(self, transport: Transport) -> str | None:
        if transport == "functions":
            return str(self._context.beside or self._context.folder)
        return self.path("cwd") or (self._context.default_cwd if transport == "stdio" else None)

    def path(self, key: str) -> str:
        text = self._text(key)
        return self._context.absolute(text) if text else ""

    def env(self) -> dict[str, str]:
        path = (*self._path, "env")
        env = self._checker.text_map(self._table.get("env", {}), path, lenient=self._checker.lenient) or {}
        for name in env:
            if "=" in name:
                self._checker.error((*path, name), "a variable's name cannot hold '='", "Write NAME and value apart.")
        return {name: self._context.expand(value) for name, value in env.items()}

    def inherit_env(self, transport: Transport) -> tuple[str, ...]:
        if transport != "stdio":
            return ()
        path = (*self._path, "inherit_env")
        own = self._checker.texts(self._table.get("inherit_env", []), path, single=True) or ()
        return (*self._context.defaults.inherit_env, *own)

    def url(self, key: str) -> str:
        text = self._context.expand(self._text(key)).strip()
        # With a reference inside, the address is known only when the server is opened.
        if text and "${" not in text and not _URL.fullmatch(text):
            self._checker.error((*self._path, key), "not an http or https address", "Write it as https://host/path.")
            return ""
        return text

    def headers(self) -> dict[str, str]:
        path = (*self._path, "headers")
        headers = self._checker.text_map(self._table.get("headers", {}), path) or {}
        for name, value in headers.items():
            self._check_header(name, value, (*path, name))
        token = self._token()
        if token and any(name.casefold() == "authorization" for name in headers):
            self._checker.error(path, "has an Authorization besides the token", "Keep one of the two.")
        result = {name: self._context.expand(value) for name, value in headers.items()}
        return {**result, "Authorization": f"Bearer {token}"} if token else result

    def _check_header(self, name: str, value: str, path: KeyPath) -> None:
        if not _HEADER_NAME.fullmatch(name):
            self._checker.error(path, "not a name for a header", "Use letters, digits and '-'.")
        # A line break would let a value start further headers of its own.
        if "\n" in value or "\r" in value:
            self._checker.error(path, "the value has a line break", "Write it in one line.")

    def _token(self) -> str:
        return self._text("bearer_token") or ("" if self._says_oauth else self._text("auth"))

    @property
    def _says_oauth(self) -> bool:
        auth = self._table.get("auth")
        return isinstance(auth, str) and auth.casefold() == "oauth"

    def oauth(self) -> OAuthSpec | None:
        """How to sign in; `auth = "oauth"`, as other clients write it, says only that somebody has to."""
        path = (*self._path, "oauth")
        if "oauth" not in self._table:
            return OAuthSpec() if self._says_oauth else None
        oauth = OAuthSpec(**self._checker.section(OAuthSpec, self._table["oauth"], path))
        if oauth.grant == "client_credentials" and not (oauth.client_id and (oauth.client_secret or oauth.private_key)):
            fix = 'Give client_id = "…" and client_secret = "${NAME}" (or private_key).'
            self._checker.error(path, "a service that signs in as itself needs an id and a secret", fix)
        if oauth.enabled and any(name.casefold() == "authorization" for name in self.headers()):
            self._checker.error(path, "has a token of its own besides", "Keep the token or `oauth`.")
        self._check_exchange(oauth, path)
        return oauth

    def _check_exchange(self, oauth: OAuthSpec, path: KeyPath) -> None:
        """Who gets a caller's token stands in the file: no server that is discovered may ask for it."""
        own = self._table.get("credentials") == "caller" and oauth.grant == "person"
        if oauth.exchange and not all((own, oauth.issuer, oauth.client_id, oauth.client_secret or oauth.private_key)):
            fix = 'Give credentials = "caller" to the server, and issuer, client_id and client_secret to its `oauth`.'
            self._checker.error((*path, "exchange"), "it does not say who exchanges whose token where", fix)

    def credentials(self) -> Literal["shared", "caller"]:
        path, value = (*self._path, "credentials"), self._table.get("credentials", "shared")
        if value not in ("shared", "caller"):
            self._checker.error(
                path, f"is {value!r}", 'Write "shared" (one account for all) or "caller" (each its own).'
            )
        elif value == "caller" and any(name.casefold() == "authorization" for name in self.headers()):
            self._checker.error(path, "every caller signs in, and there is a token for all", "Keep one of the two.")
        return "caller" if value == "caller" else "shared"

    def functions(self) -> str:
        text, path = self._text("functions"), (*self._path, "functions")
        if file := _PYTHON_FILE.fullmatch(text):
            context = self._context
            absolute = (context.beside or context.folder) / expand_home(context.expand(file[1]), context.user)
            if not absolute.is_file():
                self._checker.error(path, f"there is no file {absolute}", "Correct the path, or write the file.")
            return f"{absolute}{file[2] or ''}"
        if text and not _MODULE.fullmatch(text):
            fix = 'Write "./tools.py", "package.module" or "package.module:name".'
            self._checker.error(path, "not the name of a Python file or module", fix)
        return text

    def openapi(self) -> str:
        text = self._text("openapi")
        if not text or re.match(r"https?://", text, re.IGNORECASE):
            return self._context.expand(text)
        return self._context.absolute(text)

    def enabled(self) -> bool:
        on = self._checker.flag(self._table.get("enabled", True), (*self._path, "enabled"))
        off = self._checker.flag(self._table.get("disabled", False), (*self._path, "disabled"))
        return bool(on) and not off

    def keep_alive(self) -> bool:
        return bool(self._checker.flag(self._table.get("keep_alive", False), (*self._path, "keep_alive")))

    def start_timeout(self, transport: Transport) -> float:
        patience = _INSTALL_FACTOR if transport == "stdio" and _installs(self._table) else 1
        return self.seconds("start_timeout_s") or self._context.limits.start_timeout_s * patience

    def seconds(self, key: str) -> float | None:
        """The server's own time limit, with the bounds of the global one; `None` where the table names none."""
        if key not in self._table:
            return None
        seconds: float | None = self._checker.setting(self._table[key], settings_of(Limits)[key], (*self._path, key))
        return seconds


def is_valid_name(name: str) -> bool:
    return bool(_VALID_NAME.fullmatch(name)) and name.casefold() not in _RESERVED_NAMES


def clean_name(name: str) -> str:
    """The nearest valid name: accents go, other characters become `-`, what is too long ends in a short hash."""
    if is_valid_name(name):
        return name
    plain = unicodedata.normalize("NFKD", name)
    plain = "".join(char for char in plain if not unicodedata.combining(char))
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", plain).strip("-_")
    # By the whole name, so that two long names that start alike stay apart.
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    if not plain:
        return f"server-{digest}"
    if len(plain) > MAX_NAME_LENGTH:
        return f"{plain[: MAX_NAME_LENGTH - 7].rstrip('-_')}-{digest}"
    return f"{plain}-server" if plain.casefold() in _RESERVED_NAMES else plain
