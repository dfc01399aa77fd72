"""Type stubs of what a script gets, for an editor, a type checker, or a model to read."""

import json
from collections.abc import Iterable, Iterator

from msgspec import UNSET

from toolfold.scripts.values import FieldSpec, ModelSpec, ToolSpec, TypeSpec

_PLAIN = {"str": "str", "int": "int", "num": "float", "bool": "bool", "null": "None", "any": "Any"}
# A field of one of these names hides the type in its own class, so that `_b.` stands before it there.
_SHADOWED = frozenset({"str", "int", "float", "bool", "list", "dict"})

_HEADER = """from typing import Any, Literal, overload

import builtins as _b
from pydantic import BaseModel
"""
_FIXED_FILES = {
    "servers/__init__.pyi": "",
    "runtime/__init__.pyi": "",
    "runtime/discovery.pyi": "from toolfold import use_tools as use_tools\n",
    "runtime/exceptions.pyi": "from toolfold.errors import *\n",
}


def stub_files(tools: Iterable[ToolSpec]) -> dict[str, str]:
    """File name → text, for everything that a script with these tools can import."""
    by_module: dict[str, list[ToolSpec]] = {}
    for spec in tools:
        by_module.setdefault(spec.module, []).append(spec)
    return {**{f"servers/{name}.pyi": _module_stub(specs) for name, specs in by_module.items()}, **_FIXED_FILES}


def signature(spec: ToolSpec) -> str:
    """The function on one line, as a model reads it: `git_log(*, max_count: int = 10) -> GitLogResult`."""
    return f"{spec.function}({', '.join(_keywords(_params_of(spec)))}) -> {_result_text(spec)}"


def _module_stub(tools: Iterable[ToolSpec]) -> str:
    """The `.pyi` of one `servers.<name>`."""
    parts = [_HEADER]
    for spec in tools:
        root = spec.result[1] if isinstance(spec.result, list) and spec.result[0] == "obj" else ""
        if spec.seen:
            # No name of the module at run time: there the keys of such a result are attributes, whatever was seen.
            parts.append(f"# {spec.tool_id}: what it returns was seen in {spec.seen} calls, not declared")
        parts += ["\n".join(_class(model, is_result=model.name == root)) for model in spec.models]
        parts.append("\n".join(_function(spec)))
    return "\n\n".join(parts) + "\n"


def _class(model: ModelSpec, *, is_result: bool) -> Iterator[str]:
    yield f"class {model.name}(BaseModel):"
    names = {field.name for field in model.fields}
    shadowed = frozenset(names & _SHADOWED)
    if model.doc:
        yield f"    {_quoted(model.doc)}"
    for field in _required_first(model):
        comment = f"  # {_one_line(field.doc)}" if field.doc else ""
        yield f"    {_parameter(field, shadowed, default='...')}{comment}"
    if is_result:
        extra = {"raw": "Any", "text": _builtin("str", shadowed)}
        yield from (f"    @property\n    def {name}(self) -> {extra[name]}: ..." for name in extra if name not in names)
    yield "    ..." if not model.fields and not is_result else ""


def _function(spec: ToolSpec) -> Iterator[str]:
    params = _params_of(spec)
    extra = ["**extra: Any"] if params.extra is not None else []
    keywords = ", ".join([*_keywords(params, default="..."), *extra])
    result = _result_text(spec)
    yield "@overload"
    yield f"async def {spec.function}(params: {spec.params}, /) -> {result}: ..."
    yield "@overload"
    yield f"async def {spec.function}({keywords}) -> {result}:"
    yield f"    {_quoted(f'{spec.tool_id}: {spec.doc}')}"


def _keywords(params: ModelSpec, *, default: str = "") -> list[str]:
    parameters = [_parameter(field, default=default) for field in _required_first(params)]
    return ["*", *parameters] if parameters else []


def _params_of(spec: ToolSpec) -> ModelSpec:
    return next(model for model in spec.models if model.name == spec.params)


def _required_first(model: ModelSpec) -> list[FieldSpec]:
    return sorted(model.fields, key=lambda field: not field.required)


def _parameter(field: FieldSpec, shadowed: frozenset[str] = frozenset(), *, default: str = "") -> str:
    """`default` stands for every default; without it, the schema's own is written out."""
    text = f"{field.name}: {_type_text(field.type, shadowed)}"
    if field.required:
        return text
    if not default and field.default is not UNSET:
        value = repr(field.default)
        return f"{text} = {value if len(value) <= 40 else '...'}"
    return f"{text if field.nullable else f'{text} | None'} = {default or 'None'}"


def _result_text(spec: ToolSpec) -> str:
    return "Any" if spec.result is None else _type_text(spec.result)


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
        literals = (json.dumps(value) if isinstance(value, str) else repr(value) for value in inner)
        return f"Literal[{', '.join(literals)}]"
    if name == "or":
        return " | ".join(dict.fromkeys(_type_text(part, shadowed) for part in inner))
    return str(inner)


def _builtin(name: str, shadowed: frozenset[str]) -> str:
    return f"_b.{name}" if name in shadowed else name


def _one_line(text: str) -> str:
    return " ".join(text.split())[:120]


def _quoted(text: str) -> str:
    """A docstring on one line that nothing in the text can end."""
    return json.dumps(_one_line(text), ensure_ascii=False)
