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

from toolfold.wire.jsonrpc import INVALID_PARAMS, UNREADABLE
from toolfold.wire.serving.values import Fault

Kind = Literal["held", "passed"]

LONGEST = 1 << 20
CHECK_FIRST = "check whether the request had an effect before you make it anew"
"""What to do about a request whose end nobody heard of."""
_ROUND_MEMBERS = frozenset({"_meta", "inputResponses", "requestState"})


class Sealed(Struct, frozen=True):
    """What a state says once it is found to be true. `value` names a held handler, or is a state of a server below."""

    kind: Kind
    value: str
    caller: str
    request: str
    until: float


class Sealer:
    """Makes states and reads them back. One to a process."""

    def __init__(self, lifetime_s: float) -> None:
        self._key = secrets.token_bytes(32)
        self._lifetime_s = lifetime_s

    def seal(self, kind: Kind, value: str, caller: str, request: str) -> str:
        payload = msgspec.json.encode(Sealed(kind, value, caller, request, time.time() + self._lifetime_s))
        return f"{_text(payload)}.{_text(self._sign(payload))}"

    def open(self, state: Raw, caller: str, request: str) -> Sealed:
        """Raises the one `Fault` there is for a bad state; which check failed is nobody's business."""
        try:
            text = msgspec.json.decode(state, type=str)
            payload, signature = (_bytes(part) for part in text[:LONGEST].split(".", 1))
            if not hmac.compare_digest(signature, self._sign(payload)):
                raise refused()
            found = msgspec.json.decode(payload, type=Sealed)
        except (*UNREADABLE, ValueError) as error:
            raise refused() from error
        if found.caller != caller or found.request != request or found.until < time.time():
            raise refused()
        return found

    def _sign(self, payload: bytes) -> bytes:
        return hmac.digest(self._key, payload, "sha256")


def request_digest(method: str, params: Raw) -> str:
    """What a state is bound to: the request without what differs between its rounds, whatever its order or spacing."""
    try:
        value = msgspec.json.decode(params)
    except UNREADABLE as error:
        raise Fault(INVALID_PARAMS, f"the parameters cannot be read: {error}", refused=True) from error
    rest = {key: part for key, part in value.items() if key not in _ROUND_MEMBERS} if isinstance(value, dict) else value
    text = msgspec.json.encode([method, rest], order="deterministic")
    return hashlib.sha256(text).hexdigest()


def refused() -> Fault:
    return Fault(INVALID_PARAMS, f"the requestState is not valid here, or no longer: {CHECK_FIRST}")


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
