"""Takes a server's secrets out of what it says beside its results, and its name into its errors.

Its secrets are those that the configuration gave it, and whatever has the form of one. Above: the kinds of upstream.
"""

from typing import Any

import msgspec
from msgspec import Raw

from toolfold.config.secrets import redact_secrets
from toolfold.errors import RemoteError, UpstreamError
from toolfold.redaction import MASK, redact
from toolfold.types import OnProgress, ServerSpec

# Shorter header values are words such as `gzip`: masking them would spoil other text.
_MIN_HEADER_SECRET = 8


def secrets_of(spec: ServerSpec) -> tuple[str, ...]:
    """What must never be printed of a server: the known secrets, and header values, which often are some."""
    # A header is a secret as a whole, and so is its last word: the token behind `Bearer`.
    values = [part for value in spec.headers.values() for part in (value, value.rpartition(" ")[2])]
    return tuple({*spec.secrets, *(value for value in values if len(value) >= _MIN_HEADER_SECRET)} - {""})


def mask(text: str, secrets: tuple[str, ...]) -> str:
    """The text without the secrets, and without what looks like one."""
    return redact_secrets(redact(text, secrets))


def mask_progress(on_progress: OnProgress | None, secrets: tuple[str, ...]) -> OnProgress | None:
    """The same receiver of progress, told without secrets."""
    if on_progress is None:
        return None

    def masked(params: Raw) -> None:
        value = msgspec.json.decode(params)
        clean = _redact_json(value, secrets)
        on_progress(params if clean == value else Raw(msgspec.json.encode(clean)))

    return masked


def _redact_json(value: Any, secrets: tuple[str, ...]) -> Any:
    """A JSON value without the secrets in its texts. What is nested too deeply to be searched is masked whole."""
    try:
        return _redact(value, secrets)
    except RecursionError:
        return MASK


def _redact(value: Any, secrets: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        return mask(value, secrets)
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
    more = [hint for hint in (mask(hint, secrets) for hint in hints) if hint not in known]
    changed: dict[str, Any] = {
        "server": error.server or spec.name,
        "hints": [*own, *more],
        "next_action": mask(error.next_action.replace("toolfold login SERVER", f"toolfold login {spec.name}"), secrets),
    }
    if isinstance(error, RemoteError):
        changed |= {"rpc_code": error.rpc_code, "data": _redact_json(error.data, secrets)}
    redacted = type(error)(mask(error.message, secrets), **changed)
    redacted.done, redacted.exit_code = error.done, error.exit_code
    return redacted
