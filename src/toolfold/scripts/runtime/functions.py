"""The typed async function of a tool, and what `use_tools` returns for a need."""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from difflib import get_close_matches
from functools import partial
from typing import Any, cast

from msgspec import DecodeError
from msgspec.json import decode
from pydantic import BaseModel, TypeAdapter, ValidationError

from toolfold import errors
from toolfold.errors import ToolFailed
from toolfold.scripts.runtime.host_link import HostLink
from toolfold.scripts.runtime.models import Models, Result, dump
from toolfold.scripts.runtime.records import LazyResult, Record, Records, TextResult, wrap
from toolfold.scripts.values import FieldSpec, ModelSpec, Need, ToolSpec, TypeSpec
from toolfold.text import text_of

# What a tool returned, as a script uses it: a model, a record or a text.

Warn = Callable[[str], None]


class _ResultReader:
    """Reads the results of one tool."""

    def __init__(self, spec: ToolSpec, models: Models, warn: Warn) -> None:
        self._spec = spec
        self._models = models
        self._warn = warn
        self._adapter: TypeAdapter[Any] | None = None

    def read(self, result: dict[str, Any]) -> Any:
        content = result.get("content") or []
        if result.get("isError"):
            message = text_of(content) or f"{self._spec.tool_id} failed"
            raise ToolFailed(message, next_action="read the message, and call it again")
        data = result.get("structuredContent")
        if data is None:
            text = text_of(content)
            data = _parse_json(text) if self._spec.result is not None else None
            if data is None:
                value = TextResult(text)
                value.content, value.raw = content, result
                return value
        data = self._unwrapped(data)
        return _attach_raw(wrap(data) if self._spec.result is None else self._validate(data), data, content)

    def _unwrapped(self, data: Any) -> Any:
        """A list without the wrapper that makes it an object, which structured content must be."""
        gives_list = self._spec.result is None or self._spec.result[0] == "list"
        wrapped = gives_list and isinstance(data, dict) and data.keys() == {"result"}
        return data["result"] if wrapped and isinstance(data["result"], list) else data

    def _validate(self, data: Any) -> Any:
        kind = self._spec.result
        try:
            if isinstance(kind, list) and kind[0] == "obj":
                return self._models.get(kind[1], result=True).model_validate(data)
            if self._adapter is None:
                self._adapter = TypeAdapter(self._models.type(kind, result=True))
            return self._adapter.validate_python(data)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"])) or "the result"
            kind_of = "locked" if self._spec.seen else "declared"
            self._warn(f"{self._spec.tool_id}: {where} is not as its {kind_of} schema says: {first['msg']}")
            return self._convert_loosely(kind, data)

    def _convert_loosely(self, kind: TypeSpec, data: Any) -> Any:
        """Applies as much of the models as the data allows; the rest stays as it came."""
        parts = kind[1] if isinstance(kind, list) and kind[0] == "or" else [kind]
        part = next((part for part in parts if _resembles(part, data)), None)
        if part is None:
            return wrap(data)
        name, inner = part
        if name == "obj":
            return self._construct(inner, data)
        if name == "list":
            return [self._convert_loosely(inner, item) for item in data]
        return Record((key, self._convert_loosely(inner, item)) for key, item in data.items())

    def _construct(self, name: str, data: dict[str, Any]) -> BaseModel:
        """Builds a model without validation."""
        extra = dict(data)
        values: dict[str, Any] = {}
        for field in self._models.specs[name].fields:
            values[field.name] = self._convert_loosely(field.type, extra.pop(field.key)) if field.key in extra else None
        model = self._models.get(name, result=True).model_construct(set(values))
        # Past the model's own setters, which know fields by their aliases.
        model.__dict__.update(values)
        object.__setattr__(model, "__pydantic_extra__", extra)
        return model


def _resembles(kind: TypeSpec, data: Any) -> bool:
    shape = kind if isinstance(kind, str) else kind[0]
    return (isinstance(data, dict) and shape in {"obj", "map"}) or (isinstance(data, list) and shape == "list")


def _parse_json(text: str) -> Any:
    if text.lstrip()[:1] not in {"{", "["}:
        return None
    try:
        return decode(text)
    except (DecodeError, RecursionError):
        return None


def _attach_raw(value: Any, data: Any, content: list[Any]) -> Any:
    if isinstance(value, Result):
        value.__dict__.update({"__raw__": data, "__content__": content})
    elif type(value) is list:
        return Records(value)
    return value


_PLAIN_TYPES: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "num": (int, float), "bool": (bool,)}

_ToolFunction = Callable[..., Awaitable[Any]]


class BoundTool:
    """One tool in the child: its models and its function, each made on first use."""

    def __init__(self, spec: ToolSpec, link: HostLink, warn: Warn) -> None:
        self.spec = spec
        self._link = link
        self._models = Models(spec.models, f"servers.{spec.module}")
        self._reader = _ResultReader(spec, self._models, warn)
        self._function: _ToolFunction | None = None
        self._params: ModelSpec = self._models.specs[spec.params]
        self._fast_arguments = _FastArguments(self._params)
        self._result_models = _result_models(spec)

    @property
    def names(self) -> list[str]:
        return [self.spec.function, *self._models.specs]

    def get(self, name: str) -> Any:
        """The function or the model of that name."""
        if name == self.spec.function:
            return self.function
        return self._models.get(name, result=name in self._result_models)

    @property
    def function(self) -> _ToolFunction:
        if self._function is None:
            self._function = self._create_function()
        return self._function

    async def call(self, positional: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        arguments = None if positional else self._fast_arguments.convert(keywords)
        if arguments is None:
            arguments = self.arguments(positional, keywords)
        answer = await self._link.call(self.spec.tool_id, arguments)
        if answer.ref is not None:
            return LazyResult(answer.size, partial(self._link.load, answer.ref), self._reader.read)
        return self._reader.read(answer.result)

    def arguments(self, positional: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
        """The JSON object to send: from a model, a dictionary, keywords, or the first with the last on top."""
        model = self._models.get(self.spec.params)
        if len(positional) > 1:
            raise TypeError(f"{self.spec.function} takes one {self.spec.params} or keywords: {self.spec.signature}")
        params = positional[0] if positional else None
        base: dict[str, Any] = {}
        if isinstance(params, BaseModel):
            base = dump(params)
            if not keywords and isinstance(params, model):
                return base
        elif isinstance(params, dict):
            base = params
        elif params is not None:
            raise TypeError(f"{self.spec.function} takes a {self.spec.params} or keywords: {self.spec.signature}")
        try:
            arguments: dict[str, Any] = dump(model(**{**base, **keywords}))
        except ValidationError as error:
            raise _invalid_arguments(self.spec, self._params, {**base, **keywords}, error) from None
        return arguments

    def _create_function(self) -> _ToolFunction:
        async def function(*positional: Any, **keywords: Any) -> Any:
            return await self.call(positional, keywords)

        function.__name__ = function.__qualname__ = self.spec.function
        function.__module__ = f"servers.{self.spec.module}"
        function.__doc__ = f"{self.spec.signature}\n\n{self.spec.doc}".strip()
        names = [field.name for field in self._params.fields]
        model = "params" if "params" not in names else "params_"
        parameters = [
            inspect.Parameter(model, inspect.Parameter.POSITIONAL_ONLY, default=None),
            *(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=...) for name in names),
        ]
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # any function may have one
        return function


class Binding:
    """A need and what it became. It may be called as the function itself, and unpacked as the only one of a list."""

    def __init__(self, need: Need, bound: BoundTool) -> None:
        self._bound = bound
        self.need = need.query
        self.confidence = need.confidence
        self.tool_id = need.tool_id
        self.module = f"servers.{bound.spec.module}"
        self.name = bound.spec.function
        self.import_path = f"from {self.module} import {self.name}, {bound.spec.params}"
        self.signature = bound.spec.signature
        self.__name__ = self.name
        self.__doc__ = f"{self.signature}\n\n{bound.spec.doc}".strip()

    @property
    def function(self) -> _ToolFunction:
        return self._bound.function

    def __call__(self, /, *positional: Any, **keywords: Any) -> Awaitable[Any]:
        coroutine: Any = self._bound.call(positional, keywords)
        coroutine.__name__ = self.name  # what a script reads where it forgets to await it
        return cast("Awaitable[Any]", coroutine)

    def __iter__(self) -> Iterator["Binding"]:
        yield self

    def __getitem__(self, index: int) -> "Binding":
        return (self,)[index]

    def __len__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return f"{self.need!r} -> {self.tool_id} ({self.confidence:.2f}): {self.import_path}; {self.signature}"


class _FastArguments:
    """Converts keywords that are plain values of just the type that the schema asks for, without a model.

    Most calls of a script are of this sort, and their models would give the same back. Anything else is left to the
    models, which also say what is wrong.
    """

    def __init__(self, params: ModelSpec) -> None:
        self._plain = {field.name: (field.key, types) for field in params.fields if (types := _plain_types(field))}
        self._required = frozenset(field.name for field in params.fields if field.required)

    def convert(self, keywords: dict[str, Any]) -> dict[str, Any] | None:
        """The JSON object to send; `None` where it takes a model."""
        arguments: dict[str, Any] = {}
        for name, value in keywords.items():
            key, types = self._plain.get(name, ("", ()))
            # `isinstance` would take a bool for an int.
            if type(value) not in types:
                return None
            arguments[key] = value
        return arguments if self._required <= keywords.keys() else None


def _plain_types(field: FieldSpec) -> tuple[type, ...]:
    return _PLAIN_TYPES.get(field.type, ()) if isinstance(field.type, str) else ()


def _result_models(spec: ToolSpec) -> frozenset[str]:
    """The models that a result is made of. Parameters come first in the spec, and share none with results."""
    specs = {model.name: model for model in spec.models}
    names: set[str] = set()
    stack: list[Any] = [spec.result]
    while stack:
        kind = stack.pop()
        if not isinstance(kind, list):
            continue
        if kind[0] == "obj" and kind[1] not in names:
            names.add(kind[1])
            stack.extend(field.type for field in specs[kind[1]].fields)
        elif kind[0] in {"list", "map"}:
            stack.append(kind[1])
        elif kind[0] == "or":
            stack.extend(kind[1])
    return frozenset(names)


def _invalid_arguments(
    spec: ToolSpec, params: ModelSpec, given: dict[str, Any], error: ValidationError
) -> errors.InvalidArguments:
    """What is wrong, misspelt names first: what is missing besides is most often what they were meant for."""
    names = {name: field.name for field in params.fields for name in (field.name, field.key)}
    problems = _misspelt(names, [name for name in given if name not in names][:8])
    for problem in error.errors(include_url=False, include_input=False)[:8]:
        field = ".".join(map(str, problem["loc"]))
        if problem["type"] != "extra_forbidden" or field in names:
            problems.append({"field": field, "problem": problem["msg"]})
    told = "; ".join(f"{problem['field']}: {problem['problem']}" for problem in problems[:2])
    return errors.InvalidArguments(
        f"the arguments do not fit {spec.function}: {told}",
        hints=problems[:8],
        next_action=f"call it as {spec.signature}",
    )


def _misspelt(names: dict[str, str], unknown: list[str]) -> list[dict[str, str]]:
    problems = []
    for name in unknown:
        near = get_close_matches(name, names, n=1)
        guess = f"; did you mean {names[near[0]]}?" if near else ""
        problems.append({"field": name, "problem": f"there is no such argument{guess}"})
    return problems
