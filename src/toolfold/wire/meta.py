"""The `_meta` of a request, spliced into its `params` without decoding the rest.

Above: `connection.py`. Below: `jsonrpc.py`.
"""

from functools import lru_cache

import msgspec
from msgspec import Raw

from toolfold.wire.jsonrpc import CACHEABLE_BYTES, DECODE_ERRORS, encode, single_line
from toolfold.wire.types import MODERN_VERSION, WireOptions

META_PREFIX = "io.modelcontextprotocol/"
PROTOCOL_VERSION_KEY = META_PREFIX + "protocolVersion"
CLIENT_INFO_KEY = META_PREFIX + "clientInfo"
SERVER_INFO_KEY = META_PREFIX + "serverInfo"
CLIENT_CAPABILITIES_KEY = META_PREFIX + "clientCapabilities"
# What a caller's own `_meta` cannot set: it is true of this client only.
_RESERVED = frozenset({PROTOCOL_VERSION_KEY, CLIENT_INFO_KEY, CLIENT_CAPABILITIES_KEY, "progressToken"})

_members = msgspec.json.Decoder(dict[str, Raw])


def parse_object(raw: Raw | bytes) -> dict[str, Raw]:
    """The members of a JSON object, each undecoded. Anything else is the caller's error."""
    try:
        return _members.decode(raw)
    except DECODE_ERRORS as error:
        raise ValueError("a JSON object is needed here") from error


class MetaWriter:
    """Writes `_meta` for one connection. Legacy requests need none, modern ones name version, client, capabilities."""

    def __init__(self, options: WireOptions) -> None:
        info = encode({"name": options.client_name, "version": options.client_version})
        self._base = b'"%b":"%b","%b":%b,"%b":' % (
            PROTOCOL_VERSION_KEY.encode(),
            MODERN_VERSION.encode(),
            CLIENT_INFO_KEY.encode(),
            info,
            CLIENT_CAPABILITIES_KEY.encode(),
        )
        self._capabilities = single_line(options.capabilities)
        self._default = b'"_meta":{' + self._base + self._capabilities + b"}"
        self._cached = lru_cache(maxsize=64)(self._build)

    def write(self, modern: bool, token: int | None, extra: Raw | None, capabilities: Raw | None) -> bytes:
        """`_meta` as a member of an object, or nothing where none is needed."""
        if token is None:
            if extra is None and capabilities is None:
                return self._default if modern else b""
            caller_meta = b"" if extra is None else bytes(extra)
            declared = b"" if capabilities is None else bytes(capabilities)
            # Longer ones are not cached, so that a caller cannot fill the memory.
            if len(caller_meta) + len(declared) <= CACHEABLE_BYTES:
                return self._cached(modern, caller_meta or None, declared or None)
        return self._build(modern, extra, capabilities, token)

    def _build(
        self, modern: bool, extra: Raw | bytes | None, capabilities: Raw | bytes | None, token: int | None = None
    ) -> bytes:
        parts = []
        if modern:
            parts.append(self._base + (self._capabilities if capabilities is None else single_line(capabilities)))
        if token is not None:
            parts.append(b'"progressToken":%d' % token)
        if extra is not None:
            parts += [
                encode(key) + b":" + single_line(value)
                for key, value in parse_object(extra).items()
                if key not in _RESERVED
            ]
        return b'"_meta":{' + b",".join(parts) + b"}" if parts else b""


def insert_members(params: Raw | None, *members: bytes) -> bytes:
    """`params` with these members before its own; empty ones count for nothing."""
    text = single_line(params).strip() if params is not None else b"{}"
    written = b",".join(filter(None, members))
    if not written:
        return text
    if text[:1] != b"{":
        raise ValueError("the parameters of a request must be a JSON object")
    rest = text[1:].lstrip()
    return b"{%b%b%b" % (written, b"" if rest.startswith(b"}") else b",", rest)


def split_meta(params: Raw | None) -> tuple[Raw | None, Raw | None]:
    """`params` without its `_meta`, and that `_meta`. Decodes nothing where there can be none."""
    if params is None:
        return None, None
    text = bytes(params)
    if b"meta" not in text and b"\\u" not in text:
        return params, None
    members = parse_object(params)
    extra = members.pop("_meta", None)
    return (Raw(encode(members)), extra) if extra is not None else (params, None)
