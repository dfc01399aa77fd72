"""What is refused, and how that is said: the checks every request goes through, and errors as messages.

Above: `server.py` and the transports. Below: `values.py`, `exchange.py`.
"""

from typing import Any

from msgspec import UNSET

from toolfold.wire import jsonrpc
from toolfold.wire.jsonrpc import Envelope, text_of
from toolfold.wire.peer import CAPABILITY
from toolfold.wire.serving.exchange import Meta
from toolfold.wire.serving.values import Fault
from toolfold.wire.values import LEGACY_VERSIONS, MODERN_VERSION

VERSIONS = (MODERN_VERSION, *LEGACY_VERSIONS)


def check_meta(meta: Meta) -> None:
    """Raises the `Fault` for a request that does not say what every modern request says."""
    version = text_of(meta.version)
    if version is None:
        raise Fault(
            jsonrpc.INVALID_PARAMS,
            "the request lacks io.modelcontextprotocol/protocolVersion in params._meta; clients of an earlier version "
            "begin with initialize",
            refused=True,
        )
    if version != MODERN_VERSION:
        data = {"supported": list(VERSIONS), "requested": version}
        raise Fault(jsonrpc.UNSUPPORTED_VERSION, f"version {version[:40]} is not served", data, refused=True)
    if bytes(meta.capabilities).lstrip()[:1] != b"{":
        raise Fault(
            jsonrpc.INVALID_PARAMS,
            "the request lacks io.modelcontextprotocol/clientCapabilities in params._meta",
            refused=True,
        )


def check_identifier(message: Envelope) -> None:
    """Raises the `Fault` for a request that cannot be answered under its id."""
    if message.id is None or isinstance(message.id, float) or message.method is UNSET:
        raise Fault(
            jsonrpc.INVALID_REQUEST, "a request has a method, and a string or a whole number as its id", refused=True
        )


def missing_capability(method: str) -> Fault:
    needed: dict[str, Any] = {"requiredCapabilities": {CAPABILITY.get(method, method): {}}}
    return Fault(jsonrpc.MISSING_CAPABILITY, f"this needs a client that answers {method}", needed)


def cancelled() -> Fault:
    return Fault(jsonrpc.INTERNAL_ERROR, "the request was cancelled; check whether it had an effect")


def unknown(method: str) -> Fault:
    return Fault(jsonrpc.METHOD_NOT_FOUND, f"there is no method {method[:100]} here")


def fault_message(identifier: object, fault: Fault) -> bytes:
    error: dict[str, Any] = {"code": fault.code, "message": fault.message}
    if fault.data is not None:
        error["data"] = fault.data
    return jsonrpc.error_message_of(identifier, jsonrpc.encode(error))
