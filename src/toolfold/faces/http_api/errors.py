"""The HTTP status of each error code. A code that is not here is a fault of the server: 500."""

from typing import Any

from toolfold.errors import ToolfoldError

STATUSES = {
    "BAD_CURSOR": 400,
    "NOT_AUTHORIZED": 403,
    "UNKNOWN_PATH": 404,
    "UNKNOWN_FIELD": 404,
    "TOOL_NOT_FOUND": 404,
    "NO_MATCH_IN_CATEGORY": 404,
    "UNKNOWN_HANDLE": 404,
    "TOOL_CHANGED": 409,
    "NOT_EXPANDED": 409,
    "CONFIRMATION_NEEDED": 409,
    "CONFIRMATION_DECLINED": 409,
    "INPUT_UNAVAILABLE": 409,
    "LIVE_ERROR": 409,
    "INVALID_ARGUMENTS": 422,
    "SCRIPT_INVALID": 422,
    "LOCK_MISMATCH": 409,
    "NOT_DECLARED": 422,
    "INPUT_REFUSED": 409,
    "UPSTREAM_ERROR": 502,
    "SERVER_UNAVAILABLE": 502,
    "SERVER_CLOSED": 502,
    "PROTOCOL_VIOLATION": 502,
    "FRAME_TOO_LARGE": 502,
    "REMOTE_ERROR": 502,
    "MODEL_ERROR": 502,
    "CONFIG_INVALID": 503,
    "NOT_BUILT": 503,
    "SANDBOX_ERROR": 503,
    "STORE_BUSY": 503,
    "STORE_CHANGED": 503,
    "STORE_ERROR": 503,
    "SERVER_TIMEOUT": 504,
    "OUTPUT_FULL": 507,
    "STORE_FULL": 507,
}


def status_of(error: ToolfoldError) -> int:
    """A refused request brings its own status; all others have that of their code."""
    return error.status if isinstance(error, RequestError) else STATUSES.get(error.code, 500)


class RequestError(ToolfoldError):
    """A request that never reached an operation."""

    def __init__(self, status: int, code: str, message: str, *, next_action: str, hints: tuple[Any, ...] = ()) -> None:
        super().__init__(message, hints=hints, next_action=next_action)
        self.status = status
        self._code = code

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "code": self._code}
