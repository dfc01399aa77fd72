"""Checks arguments against the tool's own schema before anything is sent, and says how to put them right.

Nothing is ever fetched for a schema: a reference that leads out of it, or a schema that is none, cannot be checked
against, and then the server is left to judge. Validators are kept by the tool's fingerprint.

A check that is known to be short is done at once. What may take long, by an estimate from the schema, is done in a
process that ends at a deadline. Without a verdict by then the call goes on, since its server checks the arguments, too,
and the log says that they went unchecked: refusing would make a tool with an odd schema useless.
"""

import asyncio
import logging
import math
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolfold.calls.argument_check import MAX_TEXT, Verdict
from toolfold.containers import BoundedDict, nesting
from toolfold.errors import InvalidArguments, ToolChanged
from toolfold.schema_walk.compile_schema import compile_schema
from toolfold.schema_walk.keywords import Part, Resolver
from toolfold.text import truncate
from toolfold.types import CallContext, Tool, ToolCall

# How much work a schema can make of one check, at most, worked out from the schema alone.

# Deeper chains of references and schemas inside schemas count as endless: a validator would recurse as deep.
_MAX_LEVELS = 100
# Look-around and back-references are matched by trying, up to the limit that the validator is given.
_TRYING = re.compile(r"\(\?[=!<]|\\[1-9k]")
_TRYING_STEPS = 2_000.0

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_HERE = ("not", "if", "then", "else")
_HERE_LISTS = ("allOf", "anyOf", "oneOf")
_HERE_MAPS = ("dependentSchemas", "dependencies")
# Of these at most one holds for a value below; of the others all do.
_ONE_BELOW = ("additionalProperties", "items", "additionalItems", "unevaluatedProperties", "unevaluatedItems")
_EACH_BELOW = ("contains", "propertyNames")


class _SchemaCost:
    """The cost of one schema. Answers are kept for each depth of arguments that was asked for."""

    def __init__(self, schema: Any) -> None:
        self._resolver = Resolver(schema)
        self._root: Part = (schema, self._resolver.home)
        self._known: dict[tuple[int, int], float] = {}
        self._steps: dict[int, float] = {}

    def steps(self, depth: int) -> float:
        """The steps for each value of arguments that are nested `depth` deep; infinite where there is no bound."""
        if depth not in self._steps:
            self._known = {}  # what ended at the level limit of one depth may not end there in another
            self._steps[depth] = self._cost(self._root, depth, 0)
        return self._steps[depth]

    def patterns(self) -> int:
        """How many regular expressions the schema holds, anywhere: compiling one takes up to two milliseconds."""
        count, stack = 0, [self._root[0]]
        while stack:
            value = stack.pop()
            stack.extend(value if isinstance(value, list) else value.values() if isinstance(value, dict) else ())
            count += sum(1 for _ in _patterns(value)) if isinstance(value, dict) else 0
        return count

    def _cost(self, part: Part, depth: int, level: int) -> float:
        schema = part[0]
        if not isinstance(schema, dict):
            return 1.0
        key = (id(schema), depth)
        if key not in self._known:
            # A schema that includes itself finds this and has no end.
            self._known[key] = math.inf
            self._known[key] = self._sum(schema, part, depth, level + 1) if level < _MAX_LEVELS else math.inf
        return self._known[key]

    def _sum(self, schema: dict[str, Any], part: Part, depth: int, level: int) -> float:
        def cost(inner: Any, depth: int) -> float:
            return self._cost((inner, part[1]), depth, level)

        here = sum(cost(inner, depth) for inner in _applied_here(schema)) + self._referred(schema, part, depth, level)
        # What is not evaluated is found by evaluating all the rest once more.
        here *= 2 if "unevaluatedProperties" in schema or "unevaluatedItems" in schema else 1
        below = 0.0
        if depth:
            below = max((cost(inner, depth - 1) for inner in _one_of_below(schema)), default=0.0)
            below += sum(cost(inner, depth - 1) for inner in _each_below(schema))
        return _own_cost(schema) + here + below

    def _referred(self, schema: dict[str, Any], part: Part, depth: int, level: int) -> float:
        total = 0.0
        for keyword in _REFERENCES:
            reference = schema.get(keyword)
            if isinstance(reference, str):
                target = self._resolver.find(reference, part[1], dynamic=keyword == "$dynamicRef")
                total += math.inf if target is None else self._cost(target, depth, level)
        return total


def _patterns(schema: dict[str, Any]) -> Iterator[str]:
    named = schema.get("patternProperties")
    for pattern in (schema.get("pattern"), *(named if isinstance(named, dict) else ())):
        if isinstance(pattern, str):
            yield pattern


def _own_cost(schema: dict[str, Any]) -> float:
    values = schema.get("enum")
    cost = 1.0 + (len(values) / 16 if isinstance(values, list) else 0.0)
    return cost + sum(_TRYING_STEPS if _TRYING.search(pattern) else 1.0 for pattern in _patterns(schema))


def _applied_here(schema: dict[str, Any]) -> Iterator[Any]:
    """The schemas that hold for the same value."""
    for keyword in _HERE:
        if keyword in schema:
            yield schema[keyword]
    for keyword in _HERE_LISTS:
        if isinstance(schema.get(keyword), list):
            yield from schema[keyword]
    for keyword in _HERE_MAPS:
        if isinstance(schema.get(keyword), dict):
            yield from schema[keyword].values()


def _one_of_below(schema: dict[str, Any]) -> Iterator[Any]:
    if isinstance(schema.get("properties"), dict):
        yield from schema["properties"].values()
    for keyword in (*_ONE_BELOW, "prefixItems"):
        inner = schema.get(keyword)
        if isinstance(inner, list):
            yield from inner
        elif inner is not None:
            yield inner


def _each_below(schema: dict[str, Any]) -> Iterator[Any]:
    if isinstance(schema.get("patternProperties"), dict):
        yield from schema["patternProperties"].values()
    for keyword in _EACH_BELOW:
        if keyword in schema:
            yield schema[keyword]


_MAX_VALIDATORS = 256
# A larger schema, or one with more patterns, is compiled in the process only.
_MAX_SCHEMA_BYTES = 128 << 10
_MAX_PATTERNS = 64
# What may be done at once: some 20 ms in each case. Explaining a wrong value costs far more than finding it wrong.
_MAX_STEPS = 500_000
_MAX_EXPLAINED = 5_000
# Nearly all arguments are this deep at most; how deep others are is looked up.
_USUAL_DEPTH = 12
_MAX_DEPTH = 200
# Processes at once, and calls that wait for one; more of them are not checked.
_MAX_PROCESSES = 2
_MAX_WAITING = 16

log = logging.getLogger("toolfold.calls")

# Gives a call whose arguments do not fit the tool that its server lists now: `Authorizer.renew`.
Renew = Callable[[ToolCall, CallContext], Awaitable[ToolCall | None]]


class _Compiled(Struct, frozen=True):
    """A schema ready to be checked against. Without a `cost` it is too large to be looked at here."""

    validator: Any = None
    cost: _SchemaCost | None = None


class ArgumentValidator:
    """Validators of the tools called lately."""

    def __init__(self, renew: Renew | None = None) -> None:
        self._renew = renew
        # A compiled validator may be large, and a catalogue may hold 100,000 tools.
        self._compiled: BoundedDict[str, _Compiled] = BoundedDict(_MAX_VALIDATORS)
        self._processes = asyncio.Semaphore(_MAX_PROCESSES)
        self._waiting = 0

    def __call__(self, call: ToolCall, context: CallContext) -> Awaitable[ToolCall] | None:
        check_seconds(context.timeout_s)
        if call.expect_version is not None and call.expect_version != call.tool.version:
            raise _changed(call.tool, call.expect_version)
        if call.method:  # parameters of the protocol, of which no schema of a leaf says anything
            return None
        try:
            return None if self.check(call.tool, call.arguments) else self._check_slowly(call, context)
        except InvalidArguments as error:
            if self._renew is None:
                raise
            return self._check_renewed(call, context, error, self._renew)

    async def _check_renewed(
        self, call: ToolCall, context: CallContext, error: InvalidArguments, renew: Renew
    ) -> ToolCall:
        """Whether the arguments fit the tool as it is now: they may be right, and the schema old."""
        renewed = await renew(call, context)
        if renewed is None:
            raise error
        waiting = ArgumentValidator()(renewed, context)
        return renewed if waiting is None else await waiting

    def check(self, tool: Tool, arguments: Raw) -> bool:
        """Raises `InvalidArguments` that names each field, what was expected, and arguments that would do. `False`
        where that may take long: nothing is known then."""
        value = _decode(tool, arguments)
        compiled = self._compile(tool)
        if compiled.cost is None:
            return False
        if compiled.validator is None:
            return True
        steps = _steps(compiled.cost, arguments, value)
        if steps > _MAX_STEPS:
            return False
        try:
            if compiled.validator.is_valid(value):
                return True
            if steps > _MAX_EXPLAINED:
                return False
            schema = msgspec.json.decode(tool.definition.input_schema)
            _refuse(tool, Verdict.explain(compiled.validator, schema, value))
        except (ValueError, RecursionError) as error:  # what the validator cannot take in, such as very deep values
            raise _unreadable(tool, error) from None
        return True

    async def _check_slowly(self, call: ToolCall, context: CallContext) -> ToolCall:
        verdict: Verdict | None = None
        if self._waiting < _MAX_WAITING:
            self._waiting += 1
            try:
                async with self._processes:
                    schema = call.tool.definition.input_schema
                    verdict = await asyncio.to_thread(Verdict.in_process, schema, call.arguments)
            finally:
                self._waiting -= 1
        if verdict is None:
            log.warning(
                "the arguments of %s went to its server unchecked: its schema takes too long", call.tool.tool_id
            )
            return call
        try:
            _refuse(call.tool, verdict)
        except InvalidArguments as error:
            if self._renew is None:
                raise
            return await self._check_renewed(call, context, error, self._renew)
        return call

    def _compile(self, tool: Tool) -> _Compiled:
        compiled = self._compiled.get(tool.fingerprint)
        if compiled is None:
            compiled = self._compiled[tool.fingerprint] = _compile(bytes(tool.definition.input_schema))
        return compiled


def _compile(raw: bytes) -> _Compiled:
    if len(raw) > _MAX_SCHEMA_BYTES:
        return _Compiled()
    try:
        schema = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Compiled(cost=_SchemaCost(True))
    cost = _SchemaCost(schema)
    if b'"pattern' in raw and cost.patterns() > _MAX_PATTERNS:
        return _Compiled()
    return _Compiled(compile_schema(schema), cost)


def _steps(cost: _SchemaCost, arguments: Raw, value: Any) -> float:
    """How many steps the check can take: those for each value, times the values."""
    text = bytes(arguments)
    opened = text.count(b"{") + text.count(b"[")
    depth = _USUAL_DEPTH if opened <= _USUAL_DEPTH else max(_USUAL_DEPTH, nesting(value, _MAX_DEPTH))
    return cost.steps(depth) * (opened + text.count(b",") + 1)


def _refuse(tool: Tool, verdict: Verdict) -> None:
    if verdict.problems:
        first = verdict.problems[0]
        raise InvalidArguments(
            f"the arguments do not fit {tool.tool_id}: {first['field']}: {first['problem']}",
            hints=verdict.problems,
            next_action=verdict.advice,
        )


def check_seconds(timeout_s: float | None) -> None:
    """Raises `InvalidArguments` for a time that is none: zero, negative, or no number."""
    if timeout_s is not None and not timeout_s > 0:
        raise InvalidArguments(
            f"timeout_s: {timeout_s:g} is no number of seconds above 0", next_action="give one, or leave timeout_s out"
        )


def _changed(tool: Tool, expected: int) -> ToolChanged:
    return ToolChanged(
        f"{tool.tool_id} changed since it was expanded: version {expected} is now {tool.version}",
        next_action=f"call expand_tool for {tool.tool_id} again, and use the schema it shows now",
    )


def _decode(tool: Tool, arguments: Raw) -> Any:
    """The arguments as a value. Raises `InvalidArguments` for what is no JSON object."""
    try:
        value = msgspec.json.decode(arguments)
    except RecursionError as error:
        raise _unreadable(tool, error) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidArguments(
            f"the arguments of {tool.tool_id} are no JSON: {error}", next_action="give one JSON object"
        ) from error
    if not isinstance(value, dict):
        raise InvalidArguments(
            f"the arguments of {tool.tool_id} must be one JSON object", next_action='give an object, such as {"key": 1}'
        )
    return value


def _unreadable(tool: Tool, error: Exception) -> InvalidArguments:
    reason = truncate(str(error) or "they are nested too deep", MAX_TEXT)
    return InvalidArguments(
        f"the arguments of {tool.tool_id} cannot be checked: {reason}",
        next_action="give plain JSON: less deep, and numbers that fit",
    )


def encode_arguments(tool: Tool, arguments: Mapping[str, Any] | Raw) -> Raw:
    """The arguments as the JSON that is validated and sent."""
    if isinstance(arguments, Raw):
        return arguments
    try:
        return Raw(msgspec.json.encode(dict(arguments)))
    except (TypeError, ValueError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidArguments(
            f"the arguments of {tool.tool_id} cannot be written as JSON: {error}",
            next_action="give plain JSON values: strings, numbers, booleans, null, lists and objects",
        ) from error
