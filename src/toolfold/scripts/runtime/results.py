"""What a tool returned, as a script uses it: a model, a record or a text."""

from collections.abc import Callable
from typing import Any

from msgspec import DecodeError
from msgspec.json import decode
from pydantic import BaseModel, TypeAdapter, ValidationError

from toolfold.errors import ToolFailed
from toolfold.scripts.runtime.models import Models, Result
from toolfold.scripts.runtime.records import Record, Records, TextResult, text_of, wrap
from toolfold.scripts.values import ToolSpec, TypeSpec

Warn = Callable[[str], None]


class ResultReader:
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
        return _attach_raw(wrap(data) if self._spec.result is None else self._validate(data), data, content)

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
