"""What the trail keeps of a call's arguments: by default names, kinds and sizes, and no value.

A name counts as told only where the tool's own schema names it; any other may itself be data. Secrets are masked in
whatever is kept: values that the configuration names, and what looks like one by its name or form.
"""

from collections.abc import Collection, Iterable
from typing import Any

import msgspec
from msgspec import Raw

from toolfold.config import Settings
from toolfold.config.secret_detection import is_secret_name, redact_secrets
from toolfold.config.secrets import PUBLIC_VARIABLES, plain_secrets, references
from toolfold.redaction import MASK, redact
from toolfold.types import Tool

MAX_ARGUMENT_BYTES = 65_536
"""Larger arguments are told by their size alone."""
MAX_NAMES = 40
MAX_TEXT = 200
MAX_ITEMS = 20
MAX_DEPTH = 8
_MAX_TOOLS = 1024


class Redactor:
    """Takes secrets out of text. Knows those that the configuration names in the environment or in plain text.
    `looked_up` grows by what a keyring or a file gave when a server was opened."""

    def __init__(self, settings: Settings, environ: Iterable[tuple[str, str]], looked_up: Collection[str] = ()) -> None:
        known = dict(environ)
        texts = [settings.model.key, *(caller.key for caller in settings.callers)]
        found = [key for key in texts if "${" not in key]
        for spec in settings.servers:
            found += [*spec.secrets, *plain_secrets(spec)]
            texts += [spec.url, *spec.args, *spec.env.values(), *spec.headers.values()]
        for text in texts:
            named = (one.variable for one in references(text) if one.kind in {"env", "input"})
            found += [known[name] for name in named if name in known and name not in PUBLIC_VARIABLES]
        self._secrets = tuple(dict.fromkeys(found))
        self._looked_up = looked_up
        self.names = _ParameterNames()

    def text(self, text: str) -> str:
        return redact_secrets(redact(text, (*self._secrets, *self._looked_up)))

    def value(self, value: Any, *, whole: bool, depth: int = 0) -> Any:
        """A JSON value without its secrets; cut unless it is wanted `whole`."""
        if isinstance(value, str):
            text = self.text(value)
            return text if whole or len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({len(text)} characters)"
        if isinstance(value, dict):
            return self._object(value, whole, depth)
        if isinstance(value, list):
            kept = value if whole else value[:MAX_ITEMS]
            items = [self.value(item, whole=whole, depth=depth + 1) for item in kept] if depth < MAX_DEPTH else []
            return items if len(items) == len(value) else [*items, f"… ({len(value)} items)"]
        return value

    def _object(self, value: dict[str, Any], whole: bool, depth: int) -> Any:
        if depth >= MAX_DEPTH:
            return _kind_and_size(value)
        return {
            name: MASK if is_secret_name(name) and item else self.value(item, whole=whole, depth=depth + 1)
            for name, item in value.items()
        }


def printable_arguments(masker: Redactor, arguments: Raw) -> str:
    """The arguments as a person reads them who is asked to confirm a call."""
    if len(memoryview(arguments)) > MAX_ARGUMENT_BYTES:
        return f"{len(memoryview(arguments)):,} bytes"
    given = msgspec.json.decode(arguments)
    return msgspec.json.encode(masker.value(given, whole=False)).decode()


class _ParameterNames:
    """The names of the parameters of tools called lately, by fingerprint: schemas may be large."""

    def __init__(self) -> None:
        self._known: dict[str, frozenset[str]] = {}

    def of(self, tool: Tool) -> frozenset[str]:
        found = self._known.get(tool.fingerprint)
        if found is None:
            while len(self._known) >= _MAX_TOOLS:
                self._known.pop(next(iter(self._known)))
            found = self._known[tool.fingerprint] = _names(tool.definition.input_schema)
        return found


def recorded_arguments(tool: Tool, arguments: Raw, values: str, masker: Redactor) -> Any:
    """What a record holds of the arguments: by `audit.values`."""
    if len(memoryview(arguments)) > MAX_ARGUMENT_BYTES:
        return None
    try:
        given = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if values == "shapes" or not isinstance(given, dict):
        return _shape(given, masker.names.of(tool))
    return masker.value(given, whole=values == "full")


def _shape(given: Any, known: frozenset[str]) -> Any:
    """`{"order_id": "integer", "note": "string of 40"}`; names that the schema does not know are only counted."""
    if not isinstance(given, dict):
        return _kind_and_size(given)
    told = {name: _kind_and_size(given[name]) for name in list(given)[:MAX_NAMES] if name in known}
    if len(told) < len(given):
        told["…"] = f"{len(given) - len(told)} more"
    return told


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


def _names(schema: Raw) -> frozenset[str]:
    try:
        properties = msgspec.json.decode(schema).get("properties")
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError, RecursionError):
        return frozenset()
    return frozenset(properties) if isinstance(properties, dict) else frozenset()
