"""Errors of an upstream made ready for whoever reads them: with the server's name, and without its secrets."""

from typing import Any

from toolfold.errors import RemoteError, UpstreamError
from toolfold.masking import MASK, mask
from toolfold.types import ServerSpec

MIN_HEADER_SECRET = 8
"""Shorter header values are words such as `gzip`: masking them would spoil other text."""


def secrets_of(spec: ServerSpec) -> tuple[str, ...]:
    """What must never be printed of a server: the known secrets, and header values, which often are some."""
    headers = (value for value in spec.headers.values() if len(value) >= MIN_HEADER_SECRET)
    tokens = (value.rpartition(" ")[2] for value in spec.headers.values())
    return tuple({*spec.secrets, *headers, *(token for token in tokens if len(token) >= MIN_HEADER_SECRET)} - {""})


def masked(value: Any, secrets: tuple[str, ...]) -> Any:
    """A JSON value without the secrets in its texts. What is nested too deeply to be looked through is not shown."""
    try:
        return _masked(value, secrets)
    except RecursionError:
        return MASK


def _masked(value: Any, secrets: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        return mask(value, secrets)
    if isinstance(value, list):
        return [_masked(one, secrets) for one in value]
    if isinstance(value, dict):
        return {_masked(key, secrets): _masked(one, secrets) for key, one in value.items()}
    return value


def named(error: UpstreamError, spec: ServerSpec, *, hints: tuple[str, ...] = ()) -> UpstreamError:
    """The same error with the server's name and further hints, and without its secrets."""
    secrets = secrets_of(spec)
    own = masked(list(error.hints), secrets)
    known = "\n".join(hint for hint in own if isinstance(hint, str))
    more = [hint for hint in (mask(hint, secrets) for hint in hints) if hint not in known]
    changed: dict[str, Any] = {
        "server": error.server or spec.name,
        "hints": [*own, *more],
        "next_action": mask(error.next_action, secrets),
    }
    if isinstance(error, RemoteError):
        changed |= {"rpc_code": error.rpc_code, "data": masked(error.data, secrets)}
    return type(error)(mask(error.message, secrets), **changed)
