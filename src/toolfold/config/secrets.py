"""References to secrets, filled in for one server at the moment it is needed; and recognising plain ones.

Forms: `${VAR}`, `${VAR:-default}`, `${env:VAR}`, `${keyring:service/name}`, `${input:ID}`; `$${` is a plain `${`.
Nothing is looked up when a configuration is read, so a missing secret fails the one server that needs it. The keyring
may ask a person and wait: call `resolve` in a thread where that must not block. Above: upstreams.

Secrets in plain text are recognised by the name beside them or by their form. That is a guess with two uses: what is
printed masks these values, and the import offers to replace them with references. A secret that has neither a telling
name nor a known form escapes it.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolfold.config.validation import KeyPath, format_key
from toolfold.errors import SecretNotFound
from toolfold.types import OAuthSpec, ServerSpec

# `(service, name) -> secret`, or `None` where the keyring has none.
_KeyringLookup = Callable[[str, str], str | None]

# Variables that are no secrets: their values stay readable in what is printed.
PUBLIC_VARIABLES = frozenset({
    "APPDATA", "HOME", "LANG", "LOCALAPPDATA", "LOGNAME", "PATH", "PWD", "SHELL", "TEMP", "TMP", "TMPDIR", "USER",
    "USERNAME", "USERPROFILE", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
})  # fmt: skip

_REFERENCE = re.compile(r"(\$?)\$\{([^{}]*)\}")
_BODY = re.compile(r"(?:(?P<kind>env|input|keyring|command|config):)?(?P<name>.*?)(?::-(?P<default>.*))?", re.DOTALL)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# What may hold a reference in a server's `oauth` table, the secret ones first.
_OAUTH_TEXTS = ("client_secret", "private_key", "client_id", "issuer", "client_metadata_url")

# Shorter values are words and flags far more often than secrets.
_MIN_LENGTH = 6
_MIN_DIGITS = 4

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET_WORDS = frozenset({
    "apikey", "auth", "authorization", "bearer", "cookie", "cred", "credential", "credentials", "creds", "dsn", "jwt",
    "key", "otp", "pass", "passphrase", "pat", "pin", "secret", "token", "totp",
})  # fmt: skip
# How a word may end that runs together with the one before it: `PGPASSWORD`, `authtoken`, `MYPW`.
_SECRET_ENDS = ("apikey", "passcode", "passwd", "password", "pw", "pwd", "secret", "token")
# `pass` ends other words, too: a short one may stand before it.
_PASS = re.compile(r"[a-z]{2,5}pass")
_NO_PASS = frozenset({"bypass", "compass", "surpass", "trespass"})
# A code is no secret by itself; one of these before it says that it is.
_CODE = re.compile(
    r"(?:access|confirmation|door|entry|invite|pairing|pass|pin|recovery|secret|security|unlock|verification)codes?"
)
# Of what bears one of these names even a few digits are secret.
_DIGITS = re.compile(r"(?:.*[^a-z])?(?:pin|otp|passcode|code)s?(?:[^a-z].*)?", re.IGNORECASE)
# Beside one of these, `tokens` are what a model reads, and no secrets.
_COUNTING = frozenset({
    "budget", "completion", "count", "input", "limit", "max", "min", "num", "output", "prompt", "total", "used",
})  # fmt: skip
# A name that ends so tells where a secret is, or of what kind, and is none: `KEY_FILE`, `TOKEN_TYPE`.
_HARMLESS_ENDS = frozenset({
    "algorithm", "count", "dir", "directory", "endpoint", "expiry", "file", "format", "header", "host", "id",
    "length", "limit", "max", "mode", "name", "path", "prefix", "region", "size", "ttl", "type", "uri", "url",
})  # fmt: skip
_TOKEN = re.compile(
    r"""(?:gh[opsur]_[A-Za-z0-9]{20,} | github_pat_\w{20,} | glpat-[\w-]{16,} | sk-[A-Za-z0-9_-]{16,}
    | [sr]k_(?:live|test)_\w{10,} | xox[abeoprs]-[\w-]{10,} | xapp-[\w-]{10,} | A[KS]IA[0-9A-Z]{16} | AIza[\w-]{30,}
    | ya29\.[\w-]{20,} | (?<![\w-])eyJ[\w-]{10,}\.[\w-]{4,}\.[\w-]* | hf_[A-Za-z0-9]{20,} | npm_[A-Za-z0-9]{20,}
    | pypi-[\w-]{20,} | lin_api_\w{20,} | ntn_\w{20,} | sntry[su]_[\w=+/-]{20,} | figd_[\w-]{20,} | tvly-[\w-]{10,}
    | SG\.[\w-]{16,}\.[\w-]{16,} | dop_v1_\w{20,})""",
    re.VERBOSE,
)
# Callers choose the texts: no pattern may start again inside what another start has read to the end.
_URL_PASSWORD = re.compile(r"://[^\s/:@]*:([^\s/@]+)@")
_URL_PARAMETER = re.compile(r"[?&]([A-Za-z0-9_.-]+)=([^&#\s]+)")
_ASSIGNMENT = re.compile(r"-{0,2}([A-Za-z][A-Za-z0-9_-]*)=(.+)", re.DOTALL)
_HEADER = re.compile(r"([A-Za-z][A-Za-z0-9-]*):\s*(.+)", re.DOTALL)
# The word before the secret in a header stays readable.
_SCHEME = re.compile(r"(?:Bearer|Basic|Token|ApiKey|Api-Key|Key|Digest)\s+", re.IGNORECASE)
_BEARER = re.compile(r"((?:Bearer|Basic|ApiKey|Api-Key)\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
# Its lines, up to the one that ends it or the end of the text; escaped ones, too.
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL
)
_FLAG = re.compile(r"--?[A-Za-z][A-Za-z0-9_-]*")
# A path beside a secret's name is where the secret lies.
_PATHLIKE = re.compile(r"(?:/|~|\.{1,2}[/\\]|[A-Za-z]:[\\/])")


__all__ = ["INPUT_PREFIX", "PLAIN_KEY", "find_plain_secrets"]

# What is said of a caller's key that is no reference.
PLAIN_KEY = "the key stands here in plain text"
# How the variables begin that stand for what VS Code asks a person for.
INPUT_PREFIX = "TOOLFOLD_INPUT_"


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
    return INPUT_PREFIX + re.sub(r"[^A-Za-z0-9]+", "_", identifier).strip("_").upper()


def references(text: str) -> list[_Reference]:
    """The references in a text, the escaped ones left out."""
    bodies = (body for escaped, body in _REFERENCE.findall(text) if not escaped)
    return [reference for body in bodies if (reference := _parse_reference(body))]


def _inputs_of(value: Any) -> dict[str, str]:
    """What VS Code asks a person for in a server's entry, `${input:ID}`, by the variable that stands for it."""
    found = references(msgspec.json.encode(value).decode())
    return {each.variable: f"${{input:{each.name}}}" for each in found if each.kind == "input"}


def missing(spec: ServerSpec, *, environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The environment variables that the server needs and that are not set. Asks no keyring."""
    environ = os.environ if environ is None else environ
    wanted = (ref for text in _texts(spec) for ref in references(text) if ref.kind in {"env", "input"})
    return tuple(dict.fromkeys(r.variable for r in wanted if r.default is None and r.variable not in environ))


def resolve(
    spec: ServerSpec, *, environ: Mapping[str, str] | None = None, keyring: _KeyringLookup | None = None
) -> ServerSpec:
    """The server with every reference filled in, and the values listed in `secrets`. Raises `SecretNotFound`."""
    filler = _Filler(os.environ if environ is None else environ, keyring or system_keyring)
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
        oauth=_fill_oauth(filler, spec.oauth),
    )
    # After everything was filled in, so that one error names all that is missing.
    filler.raise_missing(f"server '{spec.name}'")
    return replace(filled, secrets=tuple(dict.fromkeys([*spec.secrets, *filler.secrets, *plain_secrets(filled)])))


def _fill_oauth(filler: "_Filler", oauth: OAuthSpec | None) -> OAuthSpec | None:
    if oauth is None:
        return None
    return replace(oauth, **{name: filler.fill(getattr(oauth, name)) for name in _OAUTH_TEXTS})


def fill(
    text: str, owner: str, *, environ: Mapping[str, str] | None = None, keyring: _KeyringLookup | None = None
) -> str:
    """One text with its references filled in. `owner` says in an error who needs it. Raises `SecretNotFound`."""
    filler = _Filler(os.environ if environ is None else environ, keyring or system_keyring)
    filled = filler.fill(text)
    filler.raise_missing(owner)
    return filled


def plain_secrets(spec: ServerSpec) -> list[str]:
    """What looks like a secret in plain text anywhere in a server."""
    table = {"env": spec.env, "headers": spec.headers, "args": list(spec.args), "url": spec.url}
    table |= {"openapi": spec.document, "command": spec.command}
    if spec.oauth is not None:
        table["oauth"] = {name: getattr(spec.oauth, name) for name in _OAUTH_TEXTS[:2]}
    return [secret.value for secret in find_plain_secrets(table)]


def _texts(spec: ServerSpec) -> tuple[str, ...]:
    mapped = (*spec.env.values(), *spec.headers.values())
    if spec.oauth is not None:
        mapped += tuple(getattr(spec.oauth, name) for name in _OAUTH_TEXTS)
    return (spec.command, *spec.args, *mapped, spec.cwd or "", spec.url, spec.document, spec.env_file)


def _parse_reference(body: str) -> _Reference | None:
    match = _BODY.fullmatch(body)
    if not match:
        return None
    kind, name, default = match.group("kind"), match.group("name"), match.group("default")
    if kind in {"command", "config"}:
        return _Reference("unsupported", body)
    if kind == "input":
        return _Reference("input", name, default) if _input_variable(name) != INPUT_PREFIX else None
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
        return _REFERENCE.sub(self._replace, text) if "${" in text else text

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
            value for name, value in values.items() if name not in PUBLIC_VARIABLES and _could_be_secret(value)
        ]
        return values

    def raise_missing(self, owner: str) -> None:
        if not self._missing:
            return
        unique = list(dict.fromkeys(self._missing))
        raise SecretNotFound(
            f"{owner} needs {' and '.join(item.what for item in unique)}",
            hints=[item.fix for item in unique[1:]],  # the first is what to do next
            next_action=unique[0].fix,
        )

    def _replace(self, match: re.Match[str]) -> str:
        escaped, body = match.groups()
        if escaped:  # `$${` is a plain `${`
            return match.group()[1:]
        reference = _parse_reference(body)
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
        # A default stands in the file and is no secret; a variable's value may be one.
        if reference.variable in self._environ and reference.variable not in PUBLIC_VARIABLES:
            self.secrets.append(value)
        return value

    def _from_keyring(self, reference: _Reference) -> str:
        service, _, name = reference.name.partition("/")
        try:
            value = self._keyring(service, name)
        except SecretNotFound as error:
            what = f"the secret '{reference.name}' of the keyring: {error.message}"
            self._missing.append(_Missing(what, error.next_action))
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


def system_keyring(service: str, name: str) -> str | None:
    """A secret of the system's keyring. Raises `SecretNotFound` where there is no keyring to use."""
    keyring, unusable = _import_keyring()
    try:
        value: str | None = keyring.get_password(service, name)
    except unusable as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SecretNotFound(
            f"no back-end works here ({reason})",
            next_action="Set up a back-end (see `keyring diagnose`), or use an environment variable: ${NAME}.",
        ) from None
    return value


def store_in_keyring(service: str, name: str, value: str) -> None:
    """Stores a secret in the system's keyring. Raises `SecretNotFound` where there is no keyring to use."""
    keyring, unusable = _import_keyring()
    try:
        keyring.set_password(service, name, value)
    except unusable as error:
        # The error's own text may repeat the value.
        raise SecretNotFound(
            f"the keyring cannot store a secret: {type(error).__name__}",
            next_action="Set up a back-end (see `keyring diagnose`), or keep the secrets in environment variables.",
        ) from None


def _import_keyring() -> tuple[Any, tuple[type[Exception], ...]]:
    """The package, and what it raises where no back-end works."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        raise SecretNotFound(
            "the package keyring is not installed", next_action="Install it: pip install 'toolfold[keyring]'"
        ) from None
    return keyring, (KeyringError, RuntimeError)


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


class PlainSecret(Struct, frozen=True, kw_only=True):
    """A secret in plain text and where it stands. Its printed form hides the value."""

    place: KeyPath
    start: int
    end: int
    value: str
    label: str
    """What the secret is called there: the variable, header or flag."""

    def __repr__(self) -> str:
        return f"PlainSecret(place={format_key(self.place)!r}, label={self.label!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("place", format_key(self.place)), ("label", self.label)]


def find_plain_secrets(table: Mapping[str, Any]) -> list[PlainSecret]:
    """All plain secrets of one server table. Values of a wrong kind are passed over."""
    secrets = [*_in_map(table, "env"), *_in_map(table, "headers"), *_in_args(table.get("args"))]
    secrets += _in_map(table, "oauth")
    for key in ("bearer_token", "auth"):
        value = table.get(key)
        if isinstance(value, str):
            secrets += _whole((key,), value, "TOKEN")
    for key in ("url", "base_url", "openapi", "command"):
        value = table.get(key)
        if isinstance(value, str):
            secrets += _inside((key,), value)
    return secrets


def is_secret_name(name: str) -> bool:
    """Whether a name says that its value is a secret: `GITHUB_TOKEN`, `X-API-Key`, not `MAX_TOKENS` or `KEY_FILE`."""
    words = [word.casefold() for word in _WORDS.findall(name)]
    if not words or words == ["pwd"] or words[-1] in _HARMLESS_ENDS or "public" in words:
        return False
    counts, joined = bool(_COUNTING.intersection(words)), "".join(words)
    is_known = "apikey" in joined or "connectionstring" in joined or _CODE.search(joined) is not None
    return is_known or any(_is_secret_word(word, counts) for word in words)


def _is_secret_word(word: str, counts: bool) -> bool:
    if word.endswith("tokens") and (counts or word.removesuffix("tokens") in _COUNTING):
        return False
    if _PASS.fullmatch(word):
        return word not in _NO_PASS
    return word in _SECRET_WORDS or word.removesuffix("s").endswith(_SECRET_ENDS)


def redact_secrets(text: str, replacement: str = "***") -> str:
    """A text without what looks like a secret by its form: tokens, private keys, passwords and keys in addresses,
    `Bearer …`."""
    spans = [*_spans(text), *(_Span(match.end(1), match.end(), "") for match in _BEARER.finditer(text))]
    spans += [_Span(*match.span(), "") for match in _PRIVATE_KEY.finditer(text)]
    parts, end = [], 0
    for span in _joined(spans):
        parts += [text[end : span.start], replacement]
        end = span.end
    return "".join((*parts, text[end:]))


def _in_map(table: Mapping[str, Any], key: str) -> Iterator[PlainSecret]:
    entries = table.get(key)
    if not isinstance(entries, dict):
        return
    for name, value in entries.items():
        if not isinstance(value, str):
            continue
        named = list(_whole((key, name), value, name)) if is_secret_name(name) else []
        yield from named or _inside((key, name), value, name)


def _in_args(args: Any) -> Iterator[PlainSecret]:
    if not isinstance(args, list):
        return
    flag = ""
    for index, arg in enumerate(args):
        if isinstance(arg, str):
            named = list(_whole(("args", index), arg, flag.lstrip("-"))) if is_secret_name(flag) else []
            yield from named or _argument(("args", index), arg)
        flag = arg if isinstance(arg, str) and _FLAG.fullmatch(arg) else ""


def _argument(place: KeyPath, arg: str) -> Iterator[PlainSecret]:
    for pattern in (_ASSIGNMENT, _HEADER):
        match = pattern.fullmatch(arg)
        named = match is not None and is_secret_name(match.group(1))
        if match and named and (secrets := list(_whole(place, arg, match.group(1), match.start(2)))):
            yield from secrets
            return
    yield from _inside(place, arg)


def _whole(place: KeyPath, text: str, label: str, start: int = 0) -> Iterator[PlainSecret]:
    """The rest of the text from `start`, less a scheme word such as `Bearer`, is the secret."""
    scheme = _SCHEME.match(text, start)
    start = scheme.end() if scheme else start
    value = text[start:]
    if _could_be_secret(value) or (_DIGITS.fullmatch(label) and value.isdigit() and len(value) >= _MIN_DIGITS):
        yield PlainSecret(place=place, start=start, end=len(text), value=value, label=label)


def _inside(place: KeyPath, text: str, label: str = "") -> Iterator[PlainSecret]:
    """Every part of a text that looks like a secret by its form, in order."""
    for span in _joined(_spans(text, label)):
        value = text[span.start : span.end]
        if "${" not in value:
            yield PlainSecret(place=place, start=span.start, end=span.end, value=value, label=span.label)


class _Span(NamedTuple):
    start: int
    end: int
    label: str


def _spans(text: str, label: str = "") -> Iterator[_Span]:
    """Passwords in addresses, telling parameters of them, and tokens of a known form. They may overlap."""
    for match in _URL_PASSWORD.finditer(text):
        yield _Span(*match.span(1), label or "URL_PASSWORD")
    for match in _URL_PARAMETER.finditer(text):
        if is_secret_name(match.group(1)) and _could_be_secret(match.group(2)):
            yield _Span(*match.span(2), match.group(1))
    for match in _TOKEN.finditer(text):
        yield _Span(*match.span(), label or "TOKEN")


def _joined(spans: Iterable[_Span]) -> list[_Span]:
    """In order, those that overlap as one."""
    joined: list[_Span] = []
    for span in sorted(spans, key=lambda span: span.start):
        if joined and span.start < joined[-1].end:
            joined[-1] = joined[-1]._replace(end=max(span.end, joined[-1].end))
        else:
            joined.append(span)
    return joined


def _could_be_secret(value: str) -> bool:
    """Whether a value may be a secret at all: not a reference, a yes or no, a small number, a path."""
    text = value.strip()
    if len(text) < _MIN_LENGTH or "${" in text or text.casefold() in {"true", "false"}:
        return False
    # A port, a year or a number of tokens, beside a name such as `KEY`.
    if text.isdigit() and len(text) < 8:
        return False
    return not _PATHLIKE.match(text)
