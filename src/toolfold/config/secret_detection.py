"""Recognises secrets that stand in plain text in a server's configuration, by the name beside them or by their form.

It works on a server table in toolfold's own keys. A guess, made for two uses: what is printed masks these values, and
the import offers to replace them with references. It cannot find a secret that neither has a telling name nor form.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from toolfold.config.validation import KeyPath, format_key

_MIN_LENGTH = 6

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET_WORDS = {"apikey", "auth", "authorization", "bearer", "cookie", "credential", "credentials", "dsn", "jwt"}
_SECRET_WORDS |= {"key", "pass", "passphrase", "passwd", "password", "pat", "pwd", "secret", "sshpass", "token"}
_SECRET_ENDS = ("apikey", "passwd", "password", "secret", "token")
"""How a word may end that runs together with the one before it: `PGPASSWORD`, `authtoken`."""
_COUNTING = {
    "budget",
    "completion",
    "count",
    "input",
    "limit",
    "max",
    "min",
    "num",
    "output",
    "prompt",
    "total",
    "used",
}
"""Beside one of these, `tokens` are what a model reads, and no secrets."""
_HARMLESS_WORDS = frozenset({"public"})
_HARMLESS_ENDS = {"algorithm", "count", "dir", "directory", "endpoint", "expiry", "file", "format", "header", "host"}
_HARMLESS_ENDS |= {"id", "length", "limit", "max", "mode", "name", "path", "prefix", "region", "size", "ttl", "type"}
_HARMLESS_ENDS |= {"uri", "url"}
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
_SCHEME = re.compile(r"(?:Bearer|Basic|Token|ApiKey|Api-Key|Key|Digest)\s+", re.IGNORECASE)
_BEARER = re.compile(r"((?:Bearer|Basic|ApiKey|Api-Key)\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
_FLAG = re.compile(r"--?[A-Za-z][A-Za-z0-9_-]*")
_PATHLIKE = re.compile(r"(?:/|~|\.{1,2}[/\\]|[A-Za-z]:[\\/])")


class PlainSecret(Struct, frozen=True, kw_only=True):
    """A secret in plain text and where it stands. Its printed form hides the value."""

    place: KeyPath
    start: int
    end: int
    value: str
    label: str
    """What the secret is called there: the variable, header or flag."""

    def __repr__(self) -> str:
        return f"Plain(place={format_key(self.place)!r}, label={self.label!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("place", format_key(self.place)), ("label", self.label)]


def find_plain_secrets(table: Mapping[str, Any]) -> list[PlainSecret]:
    """All plain secrets of one server table. Values of a wrong kind are passed over."""
    found = [*_in_map(table, "env"), *_in_map(table, "headers"), *_in_args(table.get("args"))]
    for key in ("bearer_token", "auth"):
        value = table.get(key)
        if isinstance(value, str):
            found += _whole((key,), value, "TOKEN")
    for key in ("url", "base_url", "openapi", "command"):
        value = table.get(key)
        if isinstance(value, str):
            found += _inside((key,), value)
    return found


def is_secret_name(name: str) -> bool:
    """Whether a name says that its value is a secret: `GITHUB_TOKEN`, `X-API-Key`, not `MAX_TOKENS` or `KEY_FILE`."""
    words = [word.casefold() for word in _WORDS.findall(name)]
    if not words or words == ["pwd"] or words[-1] in _HARMLESS_ENDS or _HARMLESS_WORDS.intersection(words):
        return False
    counts = bool(_COUNTING.intersection(words))
    return "apikey" in "".join(words) or any(_is_secret_word(word, counts) for word in words)


def _is_secret_word(word: str, counts: bool) -> bool:
    if word.endswith("tokens") and (counts or word.removesuffix("tokens") in _COUNTING):
        return False
    return word in _SECRET_WORDS or word.removesuffix("s").endswith(_SECRET_ENDS)


def redact_secrets(text: str, replacement: str = "***") -> str:
    """A text without what looks like a secret by its form: tokens, passwords and keys in addresses, `Bearer …`."""
    found = [*_spans(text), *(_Span(match.end(1), match.end(), "") for match in _BEARER.finditer(text))]
    parts, end = [], 0
    for span in _joined(found):
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
        if match and is_secret_name(match.group(1)) and "://" not in match.group(1):
            found = list(_whole(place, arg, match.group(1), match.start(2)))
            if found:
                yield from found
                return
    yield from _inside(place, arg)


def _whole(place: KeyPath, text: str, label: str, start: int = 0) -> Iterator[PlainSecret]:
    """The rest of the text from `start`, less a scheme word such as `Bearer`, is the secret."""
    scheme = _SCHEME.match(text, start)
    start = scheme.end() if scheme else start
    value = text[start:]
    if could_be_secret(value):
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
        if is_secret_name(match.group(1)) and could_be_secret(match.group(2)):
            yield _Span(*match.span(2), match.group(1))
    for match in _TOKEN.finditer(text):
        yield _Span(*match.span(), label or "TOKEN")


def _joined(spans: Iterable[_Span]) -> list[_Span]:
    """In order, those that overlap as one."""
    joined: list[_Span] = []
    for span in sorted(spans, key=lambda one: one.start):
        if joined and span.start < joined[-1].end:
            joined[-1] = joined[-1]._replace(end=max(span.end, joined[-1].end))
        else:
            joined.append(span)
    return joined


def could_be_secret(value: str) -> bool:
    """Whether a value may be one at all: not a reference, a yes or no, a small number, a path."""
    text = value.strip()
    if len(text) < _MIN_LENGTH or "${" in text or text.casefold() in {"true", "false"}:
        return False
    if text.isdigit() and len(text) < 8:
        return False
    return not _PATHLIKE.match(text)
