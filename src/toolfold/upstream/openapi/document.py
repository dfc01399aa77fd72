"""Gets an OpenAPI document, from a file or an address, as plain JSON values of version 3.

It reads JSON with what is always there, and YAML where PyYAML is installed. It judges the version and nothing else of
the content; a reference to another document is never followed.
"""

import asyncio
import datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import msgspec

from toolfold.errors import ServerUnavailable
from toolfold.upstream.openapi.swagger import from_swagger
from toolfold.upstream.threads import run_in_thread
from toolfold.wire.http_client import is_loopback

_MAX_DOCUMENT_BYTES = 64 * 1024 * 1024
_MAX_DOCUMENT_VALUES = 5_000_000
"""YAML can repeat a part by name, so a small file may unfold without end."""

Json = dict[str, Any]


def is_url(source: str) -> bool:
    return source.lower().startswith(("http://", "https://"))


async def load_document(source: str, *, cwd: str | None, headers: dict[str, str], timeout_s: float) -> Json:
    """Reads and checks the document. Raises `ServerUnavailable`. `headers` go to the address and nowhere else."""
    if not source:
        raise ServerUnavailable(
            "no OpenAPI document is named", next_action="Set `document` to the file or address of the document."
        )
    if is_url(source):
        body = await _fetch(source, headers, timeout_s)
    else:
        body = await run_in_thread(partial(_read, Path(cwd or "").joinpath(source).expanduser()))
    return await run_in_thread(partial(parse_document, body, source))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            body = file.read(_MAX_DOCUMENT_BYTES + 1)
    except OSError as error:
        raise ServerUnavailable(
            f"the OpenAPI document {path} cannot be read: {error.strerror or error}",
            next_action="Check the path in `document`.",
        ) from None
    return _capped(body, str(path))


def _capped(body: bytes, source: str) -> bytes:
    if len(body) > _MAX_DOCUMENT_BYTES:
        raise ServerUnavailable(f"the OpenAPI document {source} is over {_MAX_DOCUMENT_BYTES >> 20} MiB")
    return body


async def _fetch(address: str, headers: dict[str, str], timeout_s: float) -> bytes:
    import httpx2

    body = bytearray()
    try:
        async with (
            asyncio.timeout(timeout_s),
            httpx2.AsyncClient(trust_env=not is_loopback(urlsplit(address).hostname)) as client,
            client.stream("GET", address, headers=headers) as response,
        ):
            if response.status_code != 200:
                where = urljoin(address, response.headers.get("location", "")) if response.is_redirect else ""
                raise ServerUnavailable(
                    f"the OpenAPI document at {address} answers {response.status_code}"
                    + (f" and points to {where}" if where else ""),
                    next_action="Put the document's final address into `document`.",
                )
            async for part in response.aiter_bytes():
                body += part
                _capped(bytes(body) if len(body) > _MAX_DOCUMENT_BYTES else b"", address)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise ServerUnavailable(
            f"the OpenAPI document at {address} cannot be fetched: {type(error).__name__}: {error}",
            next_action="Check the address in `document`, and that its server runs.",
        ) from None
    except TimeoutError:
        raise ServerUnavailable(
            f"the OpenAPI document at {address} did not arrive within {timeout_s:g} s",
            next_action="Check the address, or raise `start_timeout_s`.",
        ) from None
    return bytes(body)


def parse_document(body: bytes, source: str) -> Json:
    """JSON or YAML bytes as a version 3 document. Raises `ServerUnavailable` that says what is wrong."""
    body = body.removeprefix(b"\xef\xbb\xbf")
    value = _json(body, source) if body.lstrip()[:1] == b"{" else _yaml(body, source)
    if not isinstance(value, dict):
        raise ServerUnavailable(f"{source} is no OpenAPI document: it holds no object")
    if str(value.get("swagger", "")) == "2.0":
        return from_swagger(value)
    version = str(value.get("openapi", ""))
    if not version.startswith("3."):
        found = f"says openapi: {version}" if version else "has no `openapi` field"
        raise ServerUnavailable(
            f"{source} is no OpenAPI document that can be read: it {found}",
            next_action="Versions 3.0, 3.1, 3.2 and Swagger 2.0 are read.",
        )
    return value


def _json(body: bytes, source: str) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ServerUnavailable(f"{source} is no valid JSON: {error}", next_action="Correct the document.") from None


def _yaml(body: bytes, source: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise ServerUnavailable(
            f"{source} is YAML, and the package that reads YAML is not installed",
            next_action="pip install pyyaml, or give the document as JSON.",
        ) from None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        value = yaml.load(body, Loader=loader)  # noqa: S506 - both are the safe loader
        return _YamlToJson().value(value)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ServerUnavailable(f"{source} is no valid YAML: {error}", next_action="Correct the document.") from None


class _YamlToJson:
    """Turns what YAML knows and JSON does not (dates, keys that are numbers) into JSON values, bounded."""

    def __init__(self) -> None:
        self.left = _MAX_DOCUMENT_VALUES

    def value(self, value: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise ValueError(f"it unfolds to more than {_MAX_DOCUMENT_VALUES} values")
        if isinstance(value, dict):
            return {self.key(key): self.value(item) for key, item in value.items()}
        if isinstance(value, list | set | tuple):
            return [self.value(item) for item in value]
        if isinstance(value, datetime.date):
            return value.isoformat()
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    @staticmethod
    def key(key: Any) -> str:
        return str(key).lower() if isinstance(key, bool) else str(key)
