"""The `_meta` of a request, spliced into its `params` without decoding the rest.

Above: `connection.py`. Below: `jsonrpc.py`.
"""

from functools import lru_cache

import msgspec
from msgspec import Raw

from toolfold.wire.jsonrpc import REMEMBERED, UNREADABLE, encode, one_line
from toolfold.wire.values import MODERN_VERSION, WireOptions

PREFIX = "io.modelcontextprotocol/"
VERSION_KEY = PREFIX + "protocolVersion"
INFO_KEY = PREFIX + "clientInfo"
SERVER_KEY = PREFIX + "serverInfo"
CAPABILITIES_KEY = PREFIX + "clientCapabilities"
OURS = frozenset({VERSION_KEY, INFO_KEY, CAPABILITIES_KEY, "progressToken"})
"""What a caller's own `_meta` cannot set: it is true of this client only."""

_members = msgspec.json.Decoder(dict[str, Raw])


def members(raw: Raw | bytes) -> dict[str, Raw]:
    """The members of a JSON object, each undecoded. Anything else is the caller's mistake."""
    try:
        return _members.decode(raw)
    except UNREADABLE as error:
        raise ValueError("a JSON object is needed here") from error


class MetaWriter:
    """Writes `_meta` for one connection. Legacy requests need none, modern ones name version, client, capabilities."""

    def __init__(self, options: WireOptions) -> None:
        info = encode({"name": options.client_name, "version": options.client_version})
        self._base = b'"%b":"%b","%b":%b,"%b":' % (
            VERSION_KEY.encode(),
            MODERN_VERSION.encode(),
            INFO_KEY.encode(),
            info,
            CAPABILITIES_KEY.encode(),
        )
        self._capabilities = one_line(options.capabilities)
        self._constant = b"{" + self._base + self._capabilities + b"}"
        self._remembered = lru_cache(maxsize=64)(self._written)

    def write(self, modern: bool, token: int | None, extra: Raw | None, capabilities: Raw | None) -> bytes:
        """The object, or nothing where none is needed."""
        if token is None:
            if extra is None and capabilities is None:
                return self._constant if modern else b""
            own = b"" if extra is None else bytes(extra)
            able = b"" if capabilities is None else bytes(capabilities)
            if len(own) + len(able) <= REMEMBERED:
                return self._remembered(modern, own or None, able or None)
        return self._written(modern, extra, capabilities, token)

    def _written(
        self, modern: bool, extra: Raw | bytes | None, capabilities: Raw | bytes | None, token: int | None = None
    ) -> bytes:
        parts = []
        if modern:
            parts.append(self._base + (self._capabilities if capabilities is None else one_line(capabilities)))
        if token is not None:
            parts.append(b'"progressToken":%d' % token)
        if extra is not None:
            parts += [encode(key) + b":" + one_line(value) for key, value in members(extra).items() if key not in OURS]
        return b"{" + b",".join(parts) + b"}" if parts else b""


def with_meta(params: Raw | None, meta: bytes) -> bytes:
    """`params` with this `_meta`."""
    text = one_line(params).strip() if params is not None else b"{}"
    if not meta:
        return text
    if text[:1] != b"{":
        raise ValueError("the parameters of a request must be a JSON object")
    rest = text[1:].lstrip()
    return b'{"_meta":%b%b%b' % (meta, b"" if rest.startswith(b"}") else b",", rest)


def split_meta(params: Raw | None) -> tuple[Raw | None, Raw | None]:
    """`params` without its `_meta`, and that `_meta`. Decodes nothing where there can be none."""
    if params is None:
        return None, None
    text = bytes(params)
    if b"meta" not in text and b"\\u" not in text:
        return params, None
    found = members(params)
    extra = found.pop("_meta", None)
    return (Raw(encode(found)), extra) if extra is not None else (params, None)
