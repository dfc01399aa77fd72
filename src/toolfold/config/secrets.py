"""References to secrets, and filling them in for one server at the moment it is needed.

Forms: `${VAR}`, `${VAR:-default}`, `${env:VAR}`, `${keyring:service/name}`, `${input:ID}`; `$${` is a plain `${`.
Nothing is looked up when a configuration is read, so a missing secret fails the one server that needs it. The keyring
may ask a person and wait: call `resolve` in a thread where that must not block. Above: upstreams. Below: masking.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from toolfold.config.secret_detection import could_be_secret, find_plain_secrets
from toolfold.errors import SecretNotFound
from toolfold.redaction import redact
from toolfold.types import ServerSpec

__all__ = ["_Reference", "_input_variable", "fill", "missing", "redact", "references", "resolve"]

_KeyringLookup = Callable[[str, str], str | None]
"""`(service, name) -> secret`, or nothing where there is none."""

PUBLIC_VARIABLES = frozenset(
    {"APPDATA", "HOME", "LANG", "LOCALAPPDATA", "LOGNAME", "PATH", "PWD", "SHELL", "TEMP", "TMP", "TMPDIR", "USER"}
    | {"USERNAME", "USERPROFILE", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"}
)
"""Variables that are no secrets: their values stay readable in what is printed."""

_REFERENCE = re.compile(r"(\$?)\$\{([^{}]*)\}")
_BODY = re.compile(r"(?:(?P<kind>env|input|keyring|command|config):)?(?P<name>.*?)(?::-(?P<default>.*))?", re.DOTALL)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class _Reference(Struct, frozen=True):
    """One `${…}` in a text."""

    kind: Literal["env", "input", "keyring", "unsupported"]
    name: str
    default: str | None = None

    @property
    def variable(self) -> str:
        """The environment variable that is read, where it is one."""
        return _input_variable(self.name) if self.kind == "input" else self.name


def _input_variable(identifier: str) -> str:
    """The variable that stands for VS Code's `${input:ID}`: `api-key` is read from `TOOLFOLD_INPUT_API_KEY`."""
    return "TOOLFOLD_INPUT_" + re.sub(r"[^A-Za-z0-9]+", "_", identifier).strip("_").upper()


def references(text: str) -> list[_Reference]:
    return [found for escaped, body in _REFERENCE.findall(text) if not escaped and (found := _reference(body))]


def missing(spec: ServerSpec, *, environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The environment variables that the server needs and that are not set. Asks no keyring."""
    environ = os.environ if environ is None else environ
    texts = _texts(spec)
    wanted = (ref for text in texts for ref in references(text) if ref.kind in {"env", "input"})
    return tuple(dict.fromkeys(r.variable for r in wanted if r.default is None and r.variable not in environ))


def resolve(
    spec: ServerSpec, *, environ: Mapping[str, str] | None = None, keyring: _KeyringLookup | None = None
) -> ServerSpec:
    """The server with every reference filled in, and the values listed in `secrets`. Raises `SecretNotFound`."""
    filler = _Filler(os.environ if environ is None else environ, keyring or _system_keyring)
    env = {**filler.env_file(spec), **{name: filler.fill(value) for name, value in spec.env.items()}}
    filled = replace(
        spec,
        command=filler.fill(spec.command),
        args=tuple(filler.fill(arg) for arg in spec.args),
        env=env,
        env_file="",
        cwd=None if spec.cwd is None else filler.fill(spec.cwd),
        url=filler.fill(spec.url),
        headers={name: filler.fill(value) for name, value in spec.headers.items()},
        document=filler.fill(spec.document),
    )
    filler.raise_missing(f"server '{spec.name}'")
    return replace(filled, secrets=tuple(dict.fromkeys([*spec.secrets, *filler.secrets, *plain_secrets(filled)])))


def fill(
    text: str, owner: str, *, environ: Mapping[str, str] | None = None, keyring: _KeyringLookup | None = None
) -> str:
    """One text with its references filled in. `owner` says in an error who needs it. Raises `SecretNotFound`."""
    filler = _Filler(os.environ if environ is None else environ, keyring or _system_keyring)
    filled = filler.fill(text)
    filler.raise_missing(owner)
    return filled


def plain_secrets(spec: ServerSpec) -> list[str]:
    """What looks like a secret in plain text anywhere in a server."""
    table = {"env": spec.env, "headers": spec.headers, "args": list(spec.args), "url": spec.url}
    table |= {"openapi": spec.document, "command": spec.command}
    return [plain.value for plain in find_plain_secrets(table)]


def _texts(spec: ServerSpec) -> tuple[str, ...]:
    mapped = (*spec.env.values(), *spec.headers.values())
    return (spec.command, *spec.args, *mapped, spec.cwd or "", spec.url, spec.document, spec.env_file)


def _reference(body: str) -> _Reference | None:
    match = _BODY.fullmatch(body)
    if not match:
        return None
    kind, name, default = match.group("kind"), match.group("name"), match.group("default")
    if kind in {"command", "config"}:
        return _Reference("unsupported", body)
    if kind == "input":
        return _Reference("input", name, default) if _input_variable(name) != "TOOLFOLD_INPUT_" else None
    if kind == "keyring":
        return _Reference("keyring", name, default) if name else None
    return _Reference("env", name, default) if _VARIABLE.fullmatch(name) else None


class _Missing(Struct, frozen=True):
    what: str
    fix: str


class _Filler:
    """Fills references in, and remembers the values and what was missing."""

    def __init__(self, environ: Mapping[str, str], keyring: _KeyringLookup) -> None:
        self._environ = environ
        self._keyring = keyring
        self.secrets: list[str] = []
        self._missing: list[_Missing] = []

    def fill(self, text: str) -> str:
        return _REFERENCE.sub(self._one, text) if "${" in text else text

    def env_file(self, spec: ServerSpec) -> dict[str, str]:
        if not spec.env_file:
            return {}
        path = Path(self.fill(spec.env_file)).expanduser()
        try:
            values = _parse_env_file(path.read_text("utf-8-sig"))
        except (OSError, ValueError):
            fix = f"Write the file {path} with NAME=value lines, or remove env_file."
            self._missing.append(_Missing(f"the file {path}, which cannot be read", fix))
            return {}
        self.secrets += [
            value for name, value in values.items() if name not in PUBLIC_VARIABLES and could_be_secret(value)
        ]
        return values

    def raise_missing(self, owner: str) -> None:
        if not self._missing:
            return
        unique = list(dict.fromkeys(self._missing))
        raise SecretNotFound(
            f"{owner} needs {' and '.join(item.what for item in unique)}",
            hints=[item.fix for item in unique],
            next_action=unique[0].fix,
        )

    def _one(self, match: re.Match[str]) -> str:
        escaped, body = match.groups()
        if escaped:
            return match.group()[1:]
        reference = _reference(body)
        return match.group() if reference is None else self._value(reference)

    def _value(self, reference: _Reference) -> str:
        if reference.kind == "keyring":
            return self._from_keyring(reference)
        if reference.kind == "unsupported":
            fix = f"Replace ${{{reference.name}}} with ${{NAME}} and set the environment variable NAME."
            self._missing.append(_Missing(f"${{{reference.name}}}, which only an editor can fill in", fix))
            return ""
        value = self._environ.get(reference.variable, reference.default)
        if value is None:
            self._missing.append(_missing_variable(reference))
            return ""
        if reference.variable in self._environ and reference.variable not in PUBLIC_VARIABLES:
            self.secrets.append(value)
        return value

    def _from_keyring(self, reference: _Reference) -> str:
        service, _, name = reference.name.partition("/")
        try:
            value = self._keyring(service, name)
        except _KeyringUnusable as error:
            self._missing.append(_Missing(f"the secret '{reference.name}' of the keyring: {error}", error.fix))
            return ""
        if value is None and reference.default is None:
            fix = f"Store it with `keyring set {service} {name}`."
            self._missing.append(_Missing(f"the secret '{reference.name}', which the keyring does not hold", fix))
        if value is not None:
            self.secrets.append(value)
        return value if value is not None else reference.default or ""


def _missing_variable(reference: _Reference) -> _Missing:
    name = reference.variable
    if reference.kind == "input":
        what = f"the input '{reference.name}', which toolfold reads from the environment variable {name}; it is not set"
    else:
        what = f"the environment variable {name}, which is not set"
    return _Missing(what, f"Set it: export {name}=…, or write ${{keyring:service/name}} and store it in the keyring.")


class _KeyringUnusable(Exception):
    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


def _system_keyring(service: str, name: str) -> str | None:
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        raise _KeyringUnusable(
            "the package keyring is not installed", "Install it: pip install 'toolfold[keyring]'"
        ) from None
    try:
        return keyring.get_password(service, name)
    except (KeyringError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        fix = "Set up a back-end (see `keyring diagnose`), or use an environment variable: ${NAME}."
        raise _KeyringUnusable(f"no back-end works here ({reason})", fix) from None


def store_in_keyring(service: str, name: str, value: str) -> None:
    """Keeps a secret in the system's keyring. Raises `SecretNotFound` where there is no keyring to use."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        raise SecretNotFound(
            "the package keyring is not installed", next_action="Install it: pip install 'toolfold[keyring]'"
        ) from None
    try:
        keyring.set_password(service, name, value)
    except (KeyringError, RuntimeError) as error:
        raise SecretNotFound(
            f"the keyring cannot store a secret: {type(error).__name__}",
            next_action="Set up a back-end (see `keyring diagnose`), or keep the secrets in environment variables.",
        ) from None


def _parse_env_file(text: str) -> dict[str, str]:
    """`NAME=value` lines; `export`, comments and quotes as usual. Other lines are passed over."""
    values: dict[str, str] = {}
    for raw in text.splitlines():
        line = raw.strip().removeprefix("export ").strip()
        name, equals, value = line.partition("=")
        if line.startswith("#") or not equals or not _VARIABLE.fullmatch(name.strip()):
            continue
        value = value.strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        else:
            value = re.split(r"\s#", value, maxsplit=1)[0].rstrip()
        values[name.strip()] = value
    return values
