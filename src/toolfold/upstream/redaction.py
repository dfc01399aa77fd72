"""Errors of an upstream made ready for whoever reads them: with the server's name, and without its secrets."""

from typing import Any

from toolfold.errors import RemoteError, UpstreamError
from toolfold.redaction import MASK, redact
from toolfold.types import ServerSpec

_MIN_HEADER_SECRET = 8
"""Shorter header values are words such as `gzip`: masking them would spoil other text."""


def secrets_of(spec: ServerSpec) -> tuple[str, ...]:
    """What must never be printed of a server: the known secrets, and header values, which often are some."""
    headers = (value for value in spec.headers.values() if len(value) >= _MIN_HEADER_SECRET)
    tokens = (value.rpartition(" ")[2] for value in spec.headers.values())
    return tuple({*spec.secrets, *headers, *(token for token in tokens if len(token) >= _MIN_HEADER_SECRET)} - {""})


def redact_json(value: Any, secrets: tuple[str, ...]) -> Any:
    """A JSON value without the secrets in its texts. What is nested too deeply to be looked through is not shown."""
    try:
        return _redact(value, secrets)
    except RecursionError:
        return MASK


def _redact(value: Any, secrets: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        return redact(value, secrets)
    if isinstance(value, list):
        return [_redact(one, secrets) for one in value]
    if isinstance(value, dict):
        return {_redact(key, secrets): _redact(one, secrets) for key, one in value.items()}
    return value


def redact_error(error: UpstreamError, spec: ServerSpec, *, hints: tuple[str, ...] = ()) -> UpstreamError:
    """The same error with the server's name and further hints, and without its secrets."""
    secrets = secrets_of(spec)
    own = redact_json(list(error.hints), secrets)
    known = "\n".join(hint for hint in own if isinstance(hint, str))
    more = [hint for hint in (redact(hint, secrets) for hint in hints) if hint not in known]
    changed: dict[str, Any] = {
        "server": error.server or spec.name,
        "hints": [*own, *more],
        "next_action": redact(error.next_action, secrets),
    }
    if isinstance(error, RemoteError):
        changed |= {"rpc_code": error.rpc_code, "data": redact_json(error.data, secrets)}
    return type(error)(redact(error.message, secrets), **changed)
