"""The JSON Schema of `toolfold.toml`, made from the types of the settings, for editors to complete and check by.

`toolfold init` writes it beside the file, whose first line points to it; `toolfold init --schema` prints it.
"""

import ast
import inspect
import json
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct

from toolfold.config.sections import SECTIONS, CallerKey, Limits, MetadataRule, Policy, Subset, _Quotas
from toolfold.config.servers import ALL_KEYS, KINDS
from toolfold.config.validation import settings_of
from toolfold.types import OAuthSpec

__all__ = ["SCHEMA_FILE", "schema_text"]

SCHEMA_FILE = "toolfold.schema.json"
# Tables whose own name is a value of the person's choice, which is then no key in them.
_NAMED: dict[str, tuple[type[Struct], str]] = {
    "policy": (Policy, "name"),
    "subsets": (Subset, "name"),
    "callers": (CallerKey, "name"),
    "tools": (MetadataRule, "match"),
}
_TEXTS = {"type": "array", "items": {"type": "string"}}
_ONE_OR_MORE = {"anyOf": [{"type": "string"}, _TEXTS]}
_TEXT_MAP = {"type": "object", "additionalProperties": {"type": "string"}}
# What a server's key holds, where it is no text.
_SERVER_KEYS: dict[str, dict[str, Any]] = {
    "args": _TEXTS,
    "env": _TEXT_MAP,
    "headers": _TEXT_MAP,
    "inherit_env": _ONE_OR_MORE,
    "enabled": {"type": "boolean"},
    "disabled": {"type": "boolean"},
    "keep_alive": {"type": "boolean"},
    "type": {"enum": ["stdio", "http", "sse", "streamable-http"]},
}
_ABOUT = {
    "command": "A program that speaks MCP over its standard input and output.",
    "url": "An MCP server over HTTP.",
    "openapi": "An OpenAPI document, by path or address: each operation is a tool.",
    "functions": "A Python file or module: each public function is a tool.",
    "skills": "A folder of skills: each folder in it with a SKILL.md.",
    "env": "Variables for the program; ${VAR} takes a value from the environment.",
    "keep_alive": "Never ended for want of calls.",
    "inherit_env": "Variables of your environment to pass on besides the usual ones; * stands for any text.",
}


def schema_text() -> str:
    """The schema as the file holds it."""
    return json.dumps(_config_schema(), indent=2, ensure_ascii=False) + "\n"


def _config_schema() -> dict[str, Any]:
    """The schema of the whole file."""
    tables = {name: _table(struct) for name, struct in SECTIONS.items()}
    named = {
        name: {"type": "object", "additionalProperties": _table(struct, without)}
        for name, (struct, without) in _NAMED.items()
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "toolfold.toml",
        "type": "object",
        "additionalProperties": False,
        "properties": {"servers": {"type": "object", "additionalProperties": _server()}, **named, **tables},
    }


def _server() -> dict[str, Any]:
    limits = _table(Limits)["properties"]
    tables = {"oauth": _table(OAuthSpec)}
    properties = {}
    for key in ALL_KEYS:
        value = _SERVER_KEYS.get(key) or limits.get(key) or tables.get(key) or {"type": "string"}
        about = {"description": _ABOUT[key]} if key in _ABOUT else {}
        properties[key] = {**{name: item for name, item in value.items() if name != "default"}, **about}
    kinds = [{"required": [key]} for key in KINDS]
    return {"type": "object", "additionalProperties": False, "properties": properties, "oneOf": kinds}


def _table(struct: type[Struct], without: str = "") -> dict[str, Any]:
    """A struct's table: msgspec writes its schema, and what stands below each field in the source describes it."""
    (made,), components = msgspec.json.schema_components([struct])
    table = components[made["$ref"].rpartition("/")[2]]
    fields = table["properties"]
    for name, field in fields.items():
        if about := _descriptions(struct).get(name):
            field["description"] = about
        if name == "quotas":
            fields[name] = {**_table(_Quotas), "description": about or ""}
        if settings_of(struct)[name].single:
            fields[name] = {**_ONE_OR_MORE, "description": field.get("description", "")}
    properties = {name: field for name, field in fields.items() if name != without}
    return {
        "type": "object",
        "description": " ".join(table.get("description", "").split()),
        "additionalProperties": False,
        "properties": properties,
    }


@cache
def _descriptions(struct: type[Struct]) -> dict[str, str]:
    """The texts below the fields, with those of the struct it is made from."""
    found: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        if base.__module__ == struct.__module__:
            body = ast.parse(inspect.getsource(base)).body[0]
            found |= _texts_below(body.body) if isinstance(body, ast.ClassDef) else {}
    return found


def _texts_below(body: list[ast.stmt]) -> dict[str, str]:
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
