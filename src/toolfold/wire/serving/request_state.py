"""The state that a client carries from one round of a modern request to the next: signed, bound, short-lived.

A client may change, keep, share or invent it. So each state is bound to the caller, to the request as it was first
made and to a moment, under a key that lives in this process only. Covered: forgery, use by another caller, use with
other arguments, late use. Using one state twice is prevented where it names a held handler, which ends with its use.
"""

import base64
import hashlib
import hmac
import secrets
import time
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from toolfold.wire.jsonrpc import DECODE_ERRORS, INVALID_PARAMS
from toolfold.wire.serving.types import RpcError

_Kind = Literal["held", "passed"]

_MAX_STATE = 1 << 20
CHECK_EFFECT = "check whether the request had an effect before you make it anew"
"""What to do about a request whose end nobody heard of."""
_ROUND_MEMBERS = frozenset({"_meta", "inputResponses", "requestState"})


class _State(Struct, frozen=True):
    """What a state says once it is found to be true. `value` names a held handler, or is a state of a server below."""

    kind: _Kind
    value: str
    caller: str
    request: str
    until: float


class StateSigner:
    """Makes states and reads them back. One to a process."""

    def __init__(self, lifetime_s: float) -> None:
        self._key = secrets.token_bytes(32)
        self._lifetime_s = lifetime_s

    def seal(self, kind: _Kind, value: str, caller: str, request: str) -> str:
        payload = msgspec.json.encode(_State(kind, value, caller, request, time.time() + self._lifetime_s))
        return f"{_encode(payload)}.{_encode(self._sign(payload))}"

    def open(self, state: Raw, caller: str, request: str) -> _State:
        """Raises the one `Fault` there is for a bad state; which check failed is nobody's business."""
        try:
            text = msgspec.json.decode(state, type=str)
            payload, signature = (_decode(part) for part in text[:_MAX_STATE].split(".", 1))
            if not hmac.compare_digest(signature, self._sign(payload)):
                raise invalid_state()
            found = msgspec.json.decode(payload, type=_State)
        except (*DECODE_ERRORS, ValueError) as error:
            raise invalid_state() from error
        if found.caller != caller or found.request != request or found.until < time.time():
            raise invalid_state()
        return found

    def _sign(self, payload: bytes) -> bytes:
        return hmac.digest(self._key, payload, "sha256")


def request_digest(method: str, params: Raw) -> str:
    """What a state is bound to: the request without what differs between its rounds, whatever its order or spacing."""
    try:
        value = msgspec.json.decode(params)
    except DECODE_ERRORS as error:
        raise RpcError(INVALID_PARAMS, f"the parameters cannot be read: {error}", refused=True) from error
    rest = {key: part for key, part in value.items() if key not in _ROUND_MEMBERS} if isinstance(value, dict) else value
    text = msgspec.json.encode([method, rest], order="deterministic")
    return hashlib.sha256(text).hexdigest()


def invalid_state() -> RpcError:
    return RpcError(INVALID_PARAMS, f"the requestState is not valid here, or no longer: {CHECK_EFFECT}")


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
