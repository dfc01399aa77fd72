"""The source of code that was typed at the prompt: kept, and told to `linecache`, so that previews and tracebacks work.

Each piece of code has a file name of its own, `<live-3>`. Old pieces are let go of.
"""

import ast
import inspect
import linecache
import types
from typing import Any

from toolfold.live.worker.introspection import is_class, is_derived, plain_name, type_module
from toolfold.live.worker.limits import SOURCE_MAX
from toolfold.live.worker.originals import BUILTINS

globals()["__builtins__"] = BUILTINS

SOURCE_PREFIX = "<live-"
_SOURCES_MAX = 500


class SourceCache:
    """The pieces of code of one session, newest last."""

    def __init__(self) -> None:
        self._count = 0
        self._texts: dict[str, str] = {}

    def add(self, text: str) -> str:
        """The file name under which this code is known from now on."""
        self._count += 1
        name = f"{SOURCE_PREFIX}{self._count}>"
        self._texts[name] = text
        lines = [line + "\n" for line in text.split("\n")]
        linecache.cache[name] = (len(text), None, lines, name)
        if len(self._texts) > _SOURCES_MAX:
            oldest = next(iter(self._texts))
            del self._texts[oldest]
            linecache.cache.pop(oldest, None)
        return name

    def class_source(self, cls: type) -> str | None:
        """The text of a class that was typed here. A class does not know its file before Python 3.13."""
        qualname = plain_name(type.__dict__["__qualname__"].__get__(cls))
        for text in reversed(self._texts.values()):
            if qualname.rpartition(".")[2] not in text:
                continue
            try:
                tree = ast.parse(text)
            except (SyntaxError, ValueError, MemoryError, RecursionError):
                continue
            node = _class_node(tree, qualname.split("."))
            if node is not None and node.end_lineno is not None:
                first = min((line.lineno for line in node.decorator_list), default=node.lineno)
                return "\n".join(text.split("\n")[first - 1 : node.end_lineno])
        return None


def _class_node(tree: ast.AST, names: list[str]) -> ast.ClassDef | None:
    """Walks `Outer.<locals>.Inner` down through the statements."""
    inside: list[Any] = [tree]
    node: Any = None
    for name in names:
        if name == "<locals>":
            continue
        node = next(
            (
                child
                for child in ast.walk(inside[-1])
                if type(child) in {ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef} and child.name == name  # type: ignore[attr-defined]  # each of the three has a name
            ),
            None,
        )
        if node is None:
            return None
        inside.append(node)
    return node if type(node) is ast.ClassDef else None


def _source_of(value: Any, sources: SourceCache) -> str | None:
    """The source text, or `None` where there is none, as for built-in functions. Raises nothing of its own."""
    if is_class(value) and type_module(value) == "__main__":
        return sources.class_source(value)
    target = value.__func__ if type(value) is types.MethodType else value
    if not is_class(target) and type(target) is not types.FunctionType:
        return None
    if type(target) is types.FunctionType and "__wrapped__" not in target.__dict__:
        target = target.__code__
    try:
        return inspect.getsource(target)
    except (OSError, TypeError, SyntaxError, IndexError):
        return None


def source_preview(value: Any, sources: SourceCache) -> tuple[str | None, bool]:
    text = _source_of(value, sources)
    if text is None or not is_derived(type(text), str):
        return None, False
    text = text.rstrip()
    return text[:SOURCE_MAX], len(text) > SOURCE_MAX
