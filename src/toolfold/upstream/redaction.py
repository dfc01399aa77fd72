"""Takes a server's secrets out of its errors, and puts the server's name in. Above: the kinds of upstream."""

from typing import Any

from toolfold.errors import RemoteError, UpstreamError
from toolfold.redaction import MASK, redact
from toolfold.types import ServerSpec

# Shorter header values are words such as `gzip`: masking them would spoil other text.
_MIN_HEADER_SECRET = 8


def secrets_of(spec: ServerSpec) -> tuple[str, ...]:
    """What must never be printed of a server: the known secrets, and header values, which often are some."""
    # A header is a secret as a whole, and so is its last word: the token behind `Bearer`.
    values = [part for value in spec.headers.values() for part in (value, value.rpartition(" ")[2])]
    return tuple({*spec.secrets, *(value for value in values if len(value) >= _MIN_HEADER_SECRET)} - {""})


def _redact_json(value: Any, secrets: tuple[str, ...]) -> Any:
    """A JSON value without the secrets in its texts. What is nested too deeply to be searched is masked whole."""
    try:
        return _redact(value, secrets)
    except RecursionError:
        return MASK


def _redact(value: Any, secrets: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        return redact(value, secrets)
    if isinstance(value, list):
        return [_redact(item, secrets) for item in value]
    if isinstance(value, dict):
        return {_redact(key, secrets): _redact(item, secrets) for key, item in value.items()}
    return value


def redact_error(error: UpstreamError, spec: ServerSpec, *, hints: tuple[str, ...] = ()) -> UpstreamError:
    """The same error with the server's name and further hints, and without its secrets."""
    secrets = secrets_of(spec)
    own = _redact_json(list(error.hints), secrets)
    known = "\n".join(hint for hint in own if isinstance(hint, str))
    more = [hint for hint in (redact(hint, secrets) for hint in hints) if hint not in known]
    changed: dict[str, Any] = {
        "server": error.server or spec.name,
        "hints": [*own, *more],
        "next_action": redact(error.next_action, secrets),
    }
    if isinstance(error, RemoteError):
        changed |= {"rpc_code": error.rpc_code, "data": _redact_json(error.data, secrets)}
    return type(error)(redact(error.message, secrets), **changed)
