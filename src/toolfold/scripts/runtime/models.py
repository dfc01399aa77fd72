"""Builds Pydantic models from the specs of a tool, and turns them into JSON again. Each model is built once.

A field that is not set is not sent. `None` for a field that does not take null means "not set". Result models take
fields that the schema does not name.
"""

import base64
import dataclasses
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from functools import partial
from typing import Annotated, Any, ClassVar, ForwardRef, Literal, Union

from msgspec import UNSET
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WrapValidator, create_model

from toolfold.scripts.runtime.records import LazyResult, Record, StoredOutput, wrap
from toolfold.scripts.values import FieldSpec, ModelSpec, TypeSpec
from toolfold.text import text_of

_PLAIN: dict[str, Any] = {"str": str, "int": int, "num": int | float, "bool": bool, "null": None, "any": Any}
_WRAPPED = Annotated[Any, BeforeValidator(wrap)]


def _pass_reference(value: Any, validate: Callable[[Any], Any]) -> Any:
    """Lets `{"$output": handle}` through for any type: the host puts the stored value there and checks it."""
    if isinstance(value, StoredOutput):
        return value.reference
    if isinstance(value, dict) and "$output" in value and value.keys() <= {"$output", "path"}:
        return value
    return validate(value)


_REFERENCE = WrapValidator(_pass_reference)


class _Params(BaseModel):
    """What the parameters of every tool have in common. `nulls` are the fields that may be sent as null."""

    # Without protected namespaces: a tool may well have a parameter `model_name`, of which pydantic would warn.
    model_config = ConfigDict(extra="forbid", populate_by_name=True, protected_namespaces=())
    nulls: ClassVar[frozenset[str]] = frozenset()


class _OpenParams(_Params):
    """The same, where the schema lets further keys in."""

    model_config = ConfigDict(extra="allow")


class Result(BaseModel):
    """What every object in a result has in common: fields that the schema does not name are there, too."""

    model_config = ConfigDict(extra="allow", populate_by_name=True, protected_namespaces=())

    def __getattr__(self, name: str) -> Any:
        extra = self.__pydantic_extra__ or {}
        if name in extra:
            return wrap(extra[name])
        if name == "raw":
            return self.__dict__.get("__raw__") or dump(self)
        if name in {"text", "content"}:
            content = self.__dict__.get("__content__", [])
            return content if name == "content" else text_of(content)
        names = ", ".join([*type(self).model_fields, *extra])
        raise AttributeError(f"{type(self).__name__} has no {name!r}; it has: {names}")

    def __getitem__(self, key: str) -> Any:
        """Looks a field up by its key in the JSON."""
        for name, field in type(self).model_fields.items():
            if key in (field.alias, name):
                return getattr(self, name)
        return wrap((self.__pydantic_extra__ or {})[key])


class Models:
    """The models of one tool, built on first use."""

    def __init__(self, specs: Iterable[ModelSpec], module: str) -> None:
        self.specs = {spec.name: spec for spec in specs}
        self._models: dict[str, type[BaseModel]] = {}
        # Being built right now, and to be rebuilt since they name one of those.
        self._building: set[str] = set()
        self._incomplete: set[str] = set()
        self._module = module
        self._lock = threading.RLock()

    def get(self, name: str, *, result: bool = False) -> type[BaseModel]:
        """Returns the model of that name, with all that it refers to."""
        with self._lock:
            if name not in self._models:
                self._build(name, result)
                if not self._building and self._incomplete:
                    for other in self._incomplete:
                        self._models[other].model_rebuild(_types_namespace=self._models, force=True)
                    self._incomplete.clear()
            return self._models[name]

    def _build(self, name: str, result: bool) -> None:
        self._building.add(name)
        spec = self.specs[name]
        before = len(self._incomplete)
        fields: dict[str, Any] = {field.name: self._field(field, result) for field in spec.fields}
        base = Result if result else _Params if spec.extra is None else _OpenParams
        model = create_model(name, __base__=base, __module__=self._module, __doc__=spec.doc or None, **fields)
        if not result:
            model.nulls = frozenset(field.name for field in spec.fields if field.nullable)  # type: ignore[attr-defined]  # both bases have it
        self._building.discard(name)
        self._models[name] = model
        if len(self._incomplete) > before or self._building:
            self._incomplete.add(name)

    def _field(self, spec: FieldSpec, result: bool) -> tuple[Any, Any]:
        kind = self.type(spec.type, result)
        if spec.required:
            return kind, Field(alias=spec.key)
        default = None if spec.default is UNSET or result else spec.default
        return Union[kind, None], Field(default=default, alias=spec.key)  # noqa: UP007 - a name that is known later has no `|`

    def type(self, kind: TypeSpec, result: bool = False) -> Any:
        """Returns the Python type. A model that is being built is referred to by name."""
        plain = self._plain_type(kind, result)
        return plain if result or kind == "any" else Annotated[plain, _REFERENCE]

    def _plain_type(self, kind: TypeSpec, result: bool) -> Any:
        if isinstance(kind, str):
            return _WRAPPED if kind == "any" and result else _PLAIN[kind]
        name, inner = kind
        if name == "lit":
            return Literal[tuple(inner)]
        if name == "or":
            return Union[tuple(self._plain_type(part, result) for part in inner)]  # noqa: UP007 - as above
        if name == "obj":
            return self._reference(inner, result)
        item = self.type(inner, result)
        if name == "list":
            return list[item]  # type: ignore[valid-type]  # made at run time
        mapping = dict[str, item]  # type: ignore[valid-type]  # made at run time
        return Annotated[mapping, AfterValidator(Record)] if result else mapping

    def _reference(self, name: str, result: bool) -> Any:
        if name in self._building:
            self._incomplete.add(name)
            return ForwardRef(name)
        return self.get(name, result=result)


_Dump = Callable[[Any], Any]


def dump(value: Any, *, summary: bool = False) -> Any:
    """Returns a value as plain JSON, to be sent to a tool. Of a model: what was set, by the keys of the schema.

    In a summary, which is only read, bytes are text, base64 where they are none, and numbers have any size.
    """
    if not isinstance(value, bytes | bytearray | memoryview):
        plain = _dump(value, partial(dump, summary=summary))
        fits = not summary or type(plain) is not int or -(2**63) <= plain < 2**64
        return plain if fits else str(plain)
    if not summary:
        raise TypeError("bytes cannot be sent: decode them, or encode them as base64")
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _dump(value: Any, inner: _Dump) -> Any:
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Enum):
        return inner(value.value)
    if isinstance(value, str | int | float):  # a subclass, such as a number of numpy
        return _plain(value)
    if isinstance(value, BaseModel):
        return _dump_model(value, inner)
    return _dump_container(value, inner)


def _plain(value: str | float) -> str | int | float:
    return str.__str__(value) if isinstance(value, str) else int(value) if isinstance(value, int) else float(value)


def _dump_container(value: Any, inner: _Dump) -> Any:
    if isinstance(value, Mapping):
        return {str(key): inner(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [inner(item) for item in value]
    return _dump_other(value, inner)


def _dump_model(model: BaseModel, inner: _Dump) -> dict[str, Any]:
    nulls: frozenset[str] | None = getattr(type(model), "nulls", None)
    data: dict[str, Any] = {}
    fields_set = model.model_fields_set
    for name, field in type(model).model_fields.items():
        if name in fields_set:
            item = getattr(model, name)
            if item is not None or nulls is None or name in nulls:
                data[field.alias or name] = inner(item)
    for key, item in (model.__pydantic_extra__ or {}).items():
        data[key] = inner(item)
    return data


def _dump_other(value: Any, inner: _Dump) -> Any:
    """Values that JSON has no form for, as people write them: dates in ISO form, paths and UUIDs as text."""
    if isinstance(value, LazyResult):
        return inner(value.load())
    if isinstance(value, StoredOutput):
        return value.reference
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: inner(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "__fspath__"):
        return value.__fspath__()
    return _dump_array(value, inner)


def _dump_array(value: Any, inner: _Dump) -> Any:
    """Arrays, series, frames and other collections as lists, a frame's rows as objects; else the text of the value."""
    if hasattr(value, "tolist"):  # also the numbers of numpy
        return inner(value.tolist())
    if type(value).__module__.partition(".")[0] == "pandas" and hasattr(value, "to_dict"):
        return inner(value.to_dict("records"))
    return [inner(item) for item in value] if isinstance(value, Collection) else str(value)
