"""Type stubs of what a script gets, for an editor, a type checker, or a model to read."""

import json
from collections.abc import Iterable, Iterator

from msgspec import UNSET

from toolfold.scripts.values import FieldSpec, ModelSpec, ToolSpec, TypeSpec

_PLAIN = {"str": "str", "int": "int", "num": "float", "bool": "bool", "null": "None", "any": "Any"}
_SHADOWED = frozenset({"str", "int", "float", "bool", "list", "dict"})

_HEADER = """from typing import Any, Literal, overload

import builtins as _b
from pydantic import BaseModel
"""

_DISCOVERY = "from toolfold import use_tools as use_tools\n"
_EXCEPTIONS = "from toolfold.errors import *\n"


def _type_text(kind: TypeSpec, shadowed: frozenset[str] = frozenset()) -> str:
    """A type as Python writes it. `shadowed`: names that mean a field in this class, and so no type."""
    if isinstance(kind, str):
        return _builtin(_PLAIN[kind], shadowed)
    name, inner = kind
    if name == "list":
        return f"{_builtin('list', shadowed)}[{_type_text(inner, shadowed)}]"
    if name == "map":
        return f"{_builtin('dict', shadowed)}[{_builtin('str', shadowed)}, {_type_text(inner, shadowed)}]"
    if name == "lit":
        return f"Literal[{', '.join(_literal(value) for value in inner)}]"
    if name == "or":
        return " | ".join(dict.fromkeys(_type_text(part, shadowed) for part in inner))
    return str(inner)


def _builtin(name: str, shadowed: frozenset[str]) -> str:
    return f"_b.{name}" if name in shadowed else name


def _literal(value: object) -> str:
    return repr(value) if not isinstance(value, str) else json.dumps(value)


def signature(spec: ToolSpec) -> str:
    """The function on one line, as a model reads it: `git_log(*, max_count: int = 10) -> GitLogResult`."""
    params = next(model for model in spec.models if model.name == spec.params)
    shown = [_parameter(field) for field in sorted(params.fields, key=lambda field: not field.required)]
    return f"{spec.function}({', '.join(['*', *shown]) if shown else ''}) -> {_result_text(spec)}"


def _result_text(spec: ToolSpec) -> str:
    return "Any" if spec.result is None else _type_text(spec.result)


def _parameter(field: FieldSpec, shadowed: frozenset[str] = frozenset(), *, default: str = "") -> str:
    text = f"{field.name}: {_type_text(field.type, shadowed)}"
    if field.required:
        return text
    if not default and field.default is not UNSET:
        return f"{text} = {_default(field.default)}"
    return f"{_optional(text, field)} = {default or 'None'}"


def _optional(text: str, field: FieldSpec) -> str:
    return text if field.nullable else f"{text} | None"


def _default(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else "..."


def _module_stub(tools: Iterable[ToolSpec]) -> str:
    """The `.pyi` of one `servers.<name>`."""
    parts = [_HEADER]
    for spec in tools:
        root = spec.result[1] if isinstance(spec.result, list) and spec.result[0] == "obj" else ""
        parts += ["\n".join(_class(model, is_result=model.name == root)) for model in spec.models]
        parts.append("\n".join(_function(spec)))
    return "\n\n".join(parts) + "\n"


def _class(model: ModelSpec, *, is_result: bool) -> Iterator[str]:
    yield f"class {model.name}(BaseModel):"
    names = {field.name for field in model.fields}
    shadowed = frozenset(names & _SHADOWED)
    if model.doc:
        yield f"    {_quoted(model.doc)}"
    for field in sorted(model.fields, key=lambda field: not field.required):
        text = f"{field.name}: {_type_text(field.type, shadowed)}"
        said = f"  # {_one_line(field.doc)}" if field.doc else ""
        yield f"    {text if field.required else f'{_optional(text, field)} = ...'}{said}"
    if is_result:
        extra = {"raw": "Any", "text": _builtin("str", shadowed)}
        for name, kind in extra.items():
            if name not in names:
                yield f"    @property\n    def {name}(self) -> {kind}: ..."
    yield "    ..." if not model.fields and not is_result else ""


def _function(spec: ToolSpec) -> Iterator[str]:
    params = next(model for model in spec.models if model.name == spec.params)
    shown = [_parameter(field, default="...") for field in sorted(params.fields, key=lambda field: not field.required)]
    keywords = ", ".join((["*", *shown] if shown else []) + (["**extra: Any"] if params.extra is not None else []))
    result = _result_text(spec)
    yield "@overload"
    yield f"async def {spec.function}(params: {spec.params}, /) -> {result}: ..."
    yield "@overload"
    yield f"async def {spec.function}({keywords}) -> {result}:"
    yield f"    {_quoted(f'{spec.tool_id}: {spec.doc}')}"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:120]


def _quoted(text: str) -> str:
    """A docstring on one line that nothing in the text can end."""
    return json.dumps(_one_line(text), ensure_ascii=False)


def stub_files(tools: Iterable[ToolSpec]) -> dict[str, str]:
    """File name → text, for everything that a script with these tools can import."""
    by_module: dict[str, list[ToolSpec]] = {}
    for spec in tools:
        by_module.setdefault(spec.module, []).append(spec)
    files = {f"servers/{name}.pyi": _module_stub(specs) for name, specs in by_module.items()}
    return {
        **files,
        "servers/__init__.pyi": "",
        "runtime/__init__.pyi": "",
        "runtime/discovery.pyi": _DISCOVERY,
        "runtime/exceptions.pyi": _EXCEPTIONS,
    }
