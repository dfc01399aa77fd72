"""What the audit log records of a call's arguments: by default names, kinds and sizes, and no value.

A name is recorded only where the tool's own schema has it; any other may itself be data. Secrets are redacted in
whatever is recorded: values that the configuration names, and what looks like a secret by its name or form.
"""

import os
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Raw

from toolfold.audit.result_redaction import _redact_json, redact_results
from toolfold.calls import ResultHook
from toolfold.calls.confirm import MAX_SHOWN_CHARS
from toolfold.config import Settings
from toolfold.config.secrets import (
    PUBLIC_VARIABLES,
    find_plain_secrets,
    is_secret_name,
    plain_secrets,
    redact_secrets,
    references,
)
from toolfold.containers import BoundedDict
from toolfold.redaction import MASK, redact
from toolfold.types import Tool

# Of larger arguments only the size is recorded.
MAX_ARGUMENT_BYTES = 65_536
_MAX_NAMES = 40
_MAX_TEXT = 200
_MAX_ITEMS = 20
_MAX_DEPTH = 8
_MAX_TOOLS = 1024


class Redactor:
    """Removes secrets from text: those that the configuration names in the environment or holds in plain text, and
    `looked_up`, which grows by what a keyring or a file gave when a server was opened."""

    def __init__(
        self, settings: Settings, environ: Iterable[tuple[str, str]] | None = None, looked_up: Collection[str] = ()
    ) -> None:
        self._secrets: tuple[str, ...] = ()
        self._looked_up = looked_up
        self.learn(settings, environ)
        self._redacts_results = settings.outputs.redact_secrets
        # The names of the parameters of tools called lately, by fingerprint: their schemas may be large.
        self._parameters: BoundedDict[str, frozenset[str]] = BoundedDict(_MAX_TOOLS)

    def learn(self, settings: Settings, environ: Iterable[tuple[str, str]] | None = None) -> None:
        """Adds the secrets of other settings, by the environment; earlier ones stay secret."""
        variables = dict(os.environ.items() if environ is None else environ)
        self._secrets = tuple(dict.fromkeys((*self._secrets, *_configured_secrets(settings, variables))))

    def _parameter_names(self, tool: Tool) -> frozenset[str]:
        """The names of the tool's parameters, as its schema has them."""
        names = self._parameters.get(tool.fingerprint)
        if names is None:
            names = self._parameters[tool.fingerprint] = _parameter_names(tool.definition.input_schema)
        return names

    def text(self, text: str, replacement: str = MASK) -> str:
        return redact_secrets(redact(text, (*self._secrets, *self._looked_up), replacement), replacement)

    @property
    def result_hooks(self) -> tuple[ResultHook, ...]:
        """Takes secrets out of results, where the configuration wants that."""
        return (redact_results(self.text),) if self._redacts_results else ()

    def passed_on(self, raw: Raw) -> Raw:
        """What a server sent that is no result of a tool: without secrets, where the configuration wants that."""
        return _redact_json(raw, self.text) if self._redacts_results else raw

    def value(self, value: Any, *, whole: bool, depth: int = 0) -> Any:
        """A JSON value without its secrets; cut unless it is wanted `whole`."""
        if isinstance(value, str):
            text = self.text(value)
            return text if whole or len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}… ({len(text)} characters)"
        if isinstance(value, dict):
            return self._object(value, whole, depth)
        if isinstance(value, list):
            shown = value if whole else value[:_MAX_ITEMS]
            items = [self.value(item, whole=whole, depth=depth + 1) for item in shown] if depth < _MAX_DEPTH else []
            return items if len(items) == len(value) else [*items, f"… ({len(value)} items)"]
        return value

    def _object(self, value: dict[str, Any], whole: bool, depth: int) -> Any:
        if depth >= _MAX_DEPTH:
            return _kind_and_size(value)
        return {
            name: MASK if is_secret_name(name) and item else self.value(item, whole=whole, depth=depth + 1)
            for name, item in value.items()
        }

    def printable_arguments(self, arguments: Raw) -> str:
        """The arguments as a person reads them who is asked to confirm a call: whole, or each value cut, with what is
        hidden of it."""
        size = len(memoryview(arguments))
        if size > MAX_ARGUMENT_BYTES:
            return f"{size:,} bytes, too many to show"
        value = msgspec.json.decode(arguments)
        text = msgspec.json.encode(self.value(value, whole=True)).decode()
        if len(text) <= MAX_SHOWN_CHARS:
            return text
        return msgspec.json.encode(self.value(value, whole=False)).decode()

    def recorded_arguments(self, tool: Tool, arguments: Raw, values: str) -> Any:
        """What a record holds of the arguments: by `audit.values`."""
        if len(memoryview(arguments)) > MAX_ARGUMENT_BYTES:
            return None
        try:
            decoded = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if values == "shapes" or not isinstance(decoded, dict):
            return _shape(decoded, self._parameter_names(tool))
        return self.value(decoded, whole=values == "full")


def _configured_secrets(settings: Settings, variables: dict[str, str]) -> Iterator[str]:
    texts = [settings.model.key, *(caller.key for caller in settings.callers)]
    yield from (key for key in texts if "${" not in key)
    urls = {"url": settings.storage.url, "listen_url": settings.storage.listen_url}
    yield from (secret.value for secret in find_plain_secrets(urls))
    texts += urls.values()
    for spec in settings.servers:
        yield from (*spec.secrets, *plain_secrets(spec))
        texts += [spec.url, *spec.args, *spec.env.values(), *spec.headers.values()]
        texts += [getattr(spec.oauth, "client_secret", ""), getattr(spec.oauth, "private_key", "")]
    # PATH and its like are named in configurations, too, and hold nothing worth hiding.
    hidden = variables.keys() - PUBLIC_VARIABLES
    named = {one.variable for text in texts for one in references(text) if one.kind in {"env", "input"}}
    yield from (variables[name] for name in sorted(hidden & named))


def _shape(arguments: Any, parameters: frozenset[str]) -> Any:
    """`{"order_id": "integer", "note": "string of 40"}`; names that the schema does not have are only counted."""
    if not isinstance(arguments, dict):
        return _kind_and_size(arguments)
    shape = {name: _kind_and_size(arguments[name]) for name in list(arguments)[:_MAX_NAMES] if name in parameters}
    if len(shape) < len(arguments):
        shape["…"] = f"{len(arguments) - len(shape)} more"
    return shape


def _kind_and_size(value: Any) -> str:
    if isinstance(value, str):
        return f"string of {len(value)}"
    if isinstance(value, list):
        return f"array of {len(value)}"
    if isinstance(value, dict):
        return f"object of {len(value)}"
    if value is None:
        return "null"
    return "boolean" if isinstance(value, bool) else "integer" if isinstance(value, int) else "number"


def _parameter_names(schema: Raw) -> frozenset[str]:
    try:
        properties = msgspec.json.decode(schema).get("properties")
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError, RecursionError):
        return frozenset()
    return frozenset(properties) if isinstance(properties, dict) else frozenset()
