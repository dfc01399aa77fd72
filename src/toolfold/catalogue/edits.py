"""Tools as the owner wants them shown: renamed, described anew, hidden, or with parameters that are fixed.

A listing passes through here on its way into the catalogue, and a call on its way out. What the server sent stays in
the definition: trust is about that. Rules name the tool by the id it would have without them.
"""

import re
from collections.abc import Iterator, Sequence
from fnmatch import translate
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolfold.catalogue.ids import natural_leaf_id
from toolfold.catalogue.kinds import bare_id
from toolfold.config import MetadataRule
from toolfold.text import truncate
from toolfold.types import Listing, ToolCall, ToolDefinition


class Edits:
    """The rules that change how tools are shown, made ready to be asked for many tools."""

    def __init__(self, rules: Sequence[MetadataRule] = ()) -> None:
        own = [rule for rule in rules if rule.name or rule.description or rule.hide or rule.fixed]
        self._rules = [(re.compile(translate(rule.match), re.IGNORECASE), rule) for rule in own]

    def listing(self, listing: Listing) -> Listing:
        """What the catalogue takes in of a listing."""
        if not self._rules:
            return listing
        pairs = [(tool, self._matching(listing.server, tool)) for tool in listing.tools]
        kept = [pair for pair in pairs if not _hides(pair[1])]
        hidden = _hidden(listing.server, pairs)
        names = {tool.key for tool, _ in kept}
        edited, warnings = [], list(listing.warnings)
        for tool, rules in kept:
            name = _name(rules) or tool.name
            if name != tool.name and name in names:
                warnings.append(f"{tool.name!r} is not renamed: there is another tool {name!r}")
                name = tool.name
            names.add(name)
            warnings += _misfits(tool, rules)
            edited.append(_edited(tool, name, rules))
        return replace(listing, tools=tuple(edited), warnings=tuple(warnings), hidden=hidden)

    def as_sent(self, call: ToolCall) -> ToolCall:
        """A call as the tool's server knows it: under its own name, with the parameters that are fixed."""
        definition = call.tool.definition
        if definition.original is None:
            return call
        name = definition.sent_name
        sent = replace(definition, name=name)
        fixed = _fixed(self._matching(call.tool.server, sent), msgspec.json.decode(definition.original))
        tool = replace(call.tool, definition=sent)
        arguments = Raw(msgspec.json.encode({**msgspec.json.decode(call.arguments, type=dict[str, Raw]), **fixed}))
        return replace(call, tool=tool, arguments=arguments)

    def _matching(self, server: str, tool: ToolDefinition) -> list[MetadataRule]:
        tool_id = natural_leaf_id(server, tool)
        ids = {tool_id, bare_id(tool_id)}  # a rule that hides `git.*` hides what is no tool, too
        # What is no tool is hidden or as it is.
        rules = (rule for pattern, rule in self._rules if any(map(pattern.match, ids)))
        return [rule for rule in rules if rule.hide or tool.kind == "tool"]


def _hidden(server: str, pairs: Sequence[tuple[ToolDefinition, Sequence[MetadataRule]]]) -> tuple[str, ...]:
    return tuple(natural_leaf_id(server, tool) for tool, rules in pairs if _hides(rules))


def _hides(rules: Sequence[MetadataRule]) -> bool:
    return any(rule.hide for rule in rules)


def _name(rules: Sequence[MetadataRule]) -> str:
    return next((rule.name for rule in rules if rule.name), "")


def _edited(tool: ToolDefinition, name: str, rules: Sequence[MetadataRule]) -> ToolDefinition:
    if not rules:
        return tool
    sent = msgspec.json.decode(tool.raw)
    description = next((rule.description for rule in rules if rule.description), tool.description)
    shown = {**sent, "name": name, "inputSchema": _without(sent.get("inputSchema"), _fixed(rules, sent))}
    if description:
        shown["description"] = description
    if shown == sent:
        return tool
    raw, schema = Raw(msgspec.json.encode(shown)), Raw(msgspec.json.encode(shown["inputSchema"]))
    return replace(tool, name=name, description=description, input_schema=schema, raw=raw, original=tool.raw)


def _fixed(rules: Sequence[MetadataRule], sent: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a tool that the rules give a value; what it does not take is not sent to it."""
    schema = sent.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    values = {name: value for rule in rules for name, value in rule.fixed.items()}
    return {name: values[name] for name in properties if name in values} if isinstance(properties, dict) else {}


def _misfits(tool: ToolDefinition, rules: Sequence[MetadataRule]) -> Iterator[str]:
    """What of the fixed values a tool would refuse: said now, and not by its server at every call."""
    fixed = [(rule, name, value) for rule in rules for name, value in rule.fixed.items()]
    if not fixed:
        return
    schema = msgspec.json.decode(tool.raw).get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for rule, name, value in fixed:
        if isinstance(properties, dict) and name in properties:
            if problem := _problem(schema, properties[name], value):
                yield f"{tool.name!r} refuses what [tools] fixes for {name!r}: {problem}"
        elif not set("*?[").intersection(rule.match):
            yield f"{tool.name!r} takes no {name!r}, which [tools] fixes"


def _problem(schema: dict[str, Any], part: Any, value: Any) -> str:
    from toolfold.schema_walk.compile_schema import compile_schema

    shared = {key: schema[key] for key in ("$defs", "definitions", "$schema") if key in schema}
    validator = compile_schema({**shared, **part} if isinstance(part, dict) else part)
    errors = () if validator is None else validator.iter_errors(msgspec.to_builtins(value))
    return next((truncate(error.message, 200) for error in errors), "")


def _without(schema: Any, fixed: dict[str, Any]) -> Any:
    """The schema without these parameters."""
    if not fixed:
        return schema
    shown = {**schema, "properties": {key: value for key, value in schema["properties"].items() if key not in fixed}}
    if isinstance(schema.get("required"), list):
        shown["required"] = [name for name in schema["required"] if name not in fixed]
    return shown
