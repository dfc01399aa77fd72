"""The typed async function of a tool, and what `use_tools` gives back for a need."""

import inspect
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError

from toolfold import errors
from toolfold.scripts.runtime.host_link import Answer, HostLink
from toolfold.scripts.runtime.models import Models, dump
from toolfold.scripts.runtime.results import LazyResult, ResultReader, Warn
from toolfold.scripts.values import FieldSpec, Need, ToolSpec, TypeSpec

# --- Arguments that need no model: keywords that are plain values of just the kind that the schema asks for.

_PLAIN_TYPES: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "num": (int, float), "bool": (bool,)}


class _FastArguments:
    """What one tool takes, for those of its parameters that are plain."""

    def __init__(self, spec: ToolSpec) -> None:
        fields = next((model.fields for model in spec.models if model.name == spec.params), ())
        self._known = {field.name: (field.key, kinds) for field in fields if (kinds := _plain_types(field))}
        self._required = frozenset(field.name for field in fields if field.required)

    def arguments(self, given: dict[str, Any]) -> dict[str, Any] | None:
        """The JSON object to send; `None`: this is not for here."""
        made: dict[str, Any] = {}
        for name, value in given.items():
            key, kinds = self._known.get(name, ("", ()))
            if type(value) not in kinds:
                return None
            made[key] = value
        return made if self._required <= given.keys() else None


def _plain_types(field: FieldSpec) -> tuple[type, ...]:
    kind: TypeSpec = field.type
    return _PLAIN_TYPES.get(kind, ()) if isinstance(kind, str) else ()


_ToolFunction = Callable[..., Awaitable[Any]]


class BoundTool:
    """One tool in the child: its models and its function, each made when it is first asked for."""

    def __init__(self, spec: ToolSpec, link: HostLink, warn: Warn) -> None:
        self.spec = spec
        self._link = link
        self._models = Models(spec.models, f"servers.{spec.module}")
        self._reader = ResultReader(spec, self._models, warn)
        self._function: _ToolFunction | None = None
        self._quick = _FastArguments(spec)
        self._results = _result_names(spec)

    @property
    def names(self) -> list[str]:
        return [self.spec.function, *self._models.specs]

    def get(self, name: str) -> Any:
        return self.function if name == self.spec.function else self._models.get(name, result=name in self._results)

    @property
    def function(self) -> _ToolFunction:
        if self._function is None:
            self._function = self._made()
        return self._function

    async def call(self, given: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        quick = None if given else self._quick.arguments(keywords)
        answer = await self._link.call(self.spec.tool_id, self.arguments(given, keywords) if quick is None else quick)
        if answer.error is not None:
            raise _exception_from(answer.error)
        if answer.ref is not None:
            return self._lazy(answer)
        return self._reader.read(answer.result)

    def arguments(self, given: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
        """The JSON object to send: from a model, a dictionary, keywords, or the first with the last on top."""
        model = self._models.get(self.spec.params)
        if len(given) > 1:
            raise TypeError(f"{self.spec.function} takes one {self.spec.params} or keywords: {self.spec.signature}")
        base: dict[str, Any] = {}
        if given and isinstance(given[0], BaseModel):
            base = dump(given[0])
            if not keywords and isinstance(given[0], model):
                return base
        elif given and isinstance(given[0], dict):
            base = given[0]
        elif given and given[0] is not None:
            raise TypeError(f"{self.spec.function} takes a {self.spec.params} or keywords: {self.spec.signature}")
        try:
            made: dict[str, Any] = dump(model(**{**base, **keywords}))
        except ValidationError as error:
            raise _invalid_arguments(self.spec, error) from None
        return made

    def _lazy(self, answer: Answer) -> LazyResult:
        def fetch(offset: int) -> tuple[str, int]:
            found = self._link.ask({"op": "load", "ref": answer.ref, "offset": offset})
            if found.error is not None:
                raise _exception_from(found.error)
            return found.piece or "", found.after

        return LazyResult(answer.size, fetch, self._reader.read)

    def _made(self) -> _ToolFunction:
        async def function(*given: Any, **keywords: Any) -> Any:
            return await self.call(given, keywords)

        function.__name__ = function.__qualname__ = self.spec.function
        function.__module__ = f"servers.{self.spec.module}"
        function.__doc__ = f"{self.spec.signature}\n\n{self.spec.doc}".strip()
        params = next(spec for spec in self.spec.models if spec.name == self.spec.params)
        only = inspect.Parameter.KEYWORD_ONLY
        named = [inspect.Parameter(field.name, only, default=...) for field in params.fields]
        model = "params" if all(one.name != "params" for one in named) else "params_"
        parameters = [inspect.Parameter(model, inspect.Parameter.POSITIONAL_ONLY, default=None), *named]
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # any function may have one
        return function


class Binding:
    """A need and what it became. It may be called as the function itself."""

    def __init__(self, need: Need, bound: BoundTool) -> None:
        self._bound = bound
        self.need = need.query
        self.confidence = need.confidence
        self.tool_id = need.tool_id
        self.module = f"servers.{bound.spec.module}"
        self.name = bound.spec.function
        self.import_path = f"from {self.module} import {self.name}, {bound.spec.params}"
        self.signature = bound.spec.signature

    @property
    def function(self) -> _ToolFunction:
        return self._bound.function

    def __call__(self, /, *given: Any, **keywords: Any) -> Awaitable[Any]:
        return self._bound.call(given, keywords)

    def __repr__(self) -> str:
        return f"{self.need!r} -> {self.tool_id} ({self.confidence:.2f}): {self.import_path}; {self.signature}"


def _result_names(spec: ToolSpec) -> frozenset[str]:
    """The models that a result is made of. Parameters come first in the description, and share none with results."""
    known = {model.name: model for model in spec.models}
    found: set[str] = set()
    stack: list[Any] = [spec.result]
    while stack:
        kind = stack.pop()
        if not isinstance(kind, list):
            continue
        if kind[0] == "obj" and kind[1] not in found:
            found.add(kind[1])
            stack.extend(field.type for field in known[kind[1]].fields)
        elif kind[0] in {"list", "map"}:
            stack.append(kind[1])
        elif kind[0] == "or":
            stack.extend(kind[1])
    return frozenset(found)


def _invalid_arguments(spec: ToolSpec, error: ValidationError) -> errors.InvalidArguments:
    problems = [
        {"field": ".".join(map(str, one["loc"])), "problem": one["msg"]}
        for one in error.errors(include_url=False, include_input=False)[:8]
    ]
    first = problems[0]
    return errors.InvalidArguments(
        f"the arguments do not fit {spec.function}: {first['field']}: {first['problem']}",
        hints=problems,
        next_action=f"call it as {spec.signature}",
    )


def _exception_from(told: dict[str, Any]) -> errors.ToolfoldError:
    """The host's error as the exception of its own kind."""
    kind = errors_by_code().get(str(told.get("code")), errors.ToolfoldError)
    made = kind.__new__(kind)
    errors.ToolfoldError.__init__(
        made,
        str(told.get("message", "the host refused")),
        hints=told.get("hints") or (),
        next_action=str(told.get("next_action", "")),
    )
    return made


@cache
def errors_by_code() -> dict[str, type[errors.ToolfoldError]]:
    """Every error that there is, by its code."""
    found = {errors.ToolfoldError.code: errors.ToolfoldError}
    stack = [errors.ToolfoldError]
    while stack:
        for kind in stack.pop().__subclasses__():
            found.setdefault(kind.code, kind)
            stack.append(kind)
    return found
