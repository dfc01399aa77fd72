"""The source of code that was typed at the prompt: stored, and added to `linecache` for previews and tracebacks.

Each piece of code has a file name of its own, `<live-3>`. The oldest pieces are dropped.
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
        """Stores a piece of code and returns its file name."""
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

    def preview(self, value: Any) -> tuple[str | None, bool]:
        """The head of the source and whether it was cut; `None` where there is none, as for built-in functions."""
        text = self._source_of(value)
        if text is None or not is_derived(type(text), str):
            return None, False
        text = text.rstrip()
        return text[:SOURCE_MAX], len(text) > SOURCE_MAX

    def _source_of(self, value: Any) -> str | None:
        if is_class(value) and type_module(value) == "__main__":
            return self._class_source(value)
        target = value.__func__ if type(value) is types.MethodType else value
        if not is_class(target) and type(target) is not types.FunctionType:
            return None
        # `inspect.getsource` would follow attributes of the function; its code object has none.
        if type(target) is types.FunctionType and "__wrapped__" not in target.__dict__:
            target = target.__code__
        try:
            return inspect.getsource(target)
        except (OSError, TypeError, SyntaxError, IndexError):
            return None

    def _class_source(self, cls: type) -> str | None:
        # A class has no line number before Python 3.13: the newest text that defines its name is taken.
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
    """Follows `Outer.<locals>.Inner` down through the statements."""
    node: Any = tree
    for name in names:
        if name != "<locals>":
            node = next((child for child in ast.walk(node) if _defines(child, name)), None)
        if node is None:
            return None
    return node if type(node) is ast.ClassDef else None


def _defines(node: Any, name: str) -> bool:
    return type(node) in {ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef} and node.name == name
