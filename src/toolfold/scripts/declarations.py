"""Finds what a script needs before anything of it runs: the `use_tools(...)` calls in its syntax tree.

Needs are literal strings, so that what a script may call is known, and can be shown, before it starts. A source that
could hurt the parser is refused by its size and its brackets first. This is no safety check of the code itself: that is
the sandbox's work.
"""

import ast
import re
import threading
from collections.abc import Iterator
from typing import Any

from toolfold.errors import ScriptError
from toolfold.scripts.values import DeclaredNeed

_MAX_SOURCE_BYTES = 256 * 1024
_MAX_LINE_CHARS = 100_000
_MAX_OPEN_BRACKETS = 2_000
"""Brackets open at once, those in strings and comments counted too. CPython's own parser stops at 200 real ones."""
_MAX_OPERATORS_IN_A_ROW = 2_000
_MAX_TOKENS = 30_000
"""Words and signs, those in strings and comments counted too. The parser is one call that nothing else runs beside, and
its time goes by these: so many take it a tenth of a second."""
_MAX_NEEDS = 100
_MAX_NEED_CHARS = 500

_USE_TOOLS = "use_tools"
_USE_TOOLS_MODULES = frozenset({"runtime.discovery", "runtime", "toolfold"})
"""Modules that `use_tools` may be imported from."""

_TOKENS = re.compile(r"\w+|[^\w\s]")
_warnings_lock = threading.Lock()
_LITERAL_NEEDED = 'write the need as a plain string: use_tools("a tool to get the git commit log")'


def parse_script(code: str | bytes, name: str = "script.py") -> tuple[str, tuple[DeclaredNeed, ...]]:
    """The text of a script, and what it needs. Raises `ScriptError`. It may run in any thread."""
    source = _decode_source(code)
    return source, _declared_needs(_parse(source, name), source)


def _decode_source(source: str | bytes) -> str:
    """The text of a script: UTF-8, whatever a coding line says. Raises `ScriptError` for what cannot be compiled."""
    if isinstance(source, bytes):
        try:
            source = source.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ScriptError(
                f"the script is not UTF-8: byte {error.start} cannot be read",
                next_action="save it as UTF-8; a coding line is ignored",
            ) from None
    source = source.removeprefix("\ufeff")
    _check_characters(source)
    _check_size(source)
    return source


def _check_characters(source: str) -> None:
    if "\0" in source:
        raise _error_at(source.count("\n", 0, source.index("\0")) + 1, "it holds a NUL character", "remove it")
    try:
        source.encode("utf-8")
    except UnicodeEncodeError as error:
        line = source.count("\n", 0, error.start) + 1
        raise _error_at(
            line, "it holds half of a surrogate pair", "write the character out, or as \\u escapes"
        ) from None


def _check_size(source: str) -> None:
    size = len(source.encode("utf-8"))
    if size > _MAX_SOURCE_BYTES:
        raise ScriptError(
            f"the script has {size:,} bytes; {_MAX_SOURCE_BYTES:,} is the most",
            next_action="keep data out of it: let the tools bring it",
        )
    for number, line in enumerate(source.split("\n"), 1):
        if len(line) > _MAX_LINE_CHARS:
            raise _error_at(number, f"the line has {len(line):,} characters", f"keep lines under {_MAX_LINE_CHARS:,}")
    words = sum(1 for _ in _TOKENS.finditer(source))
    if words > _MAX_TOKENS:
        raise ScriptError(
            f"the script has {words:,} words and signs; {_MAX_TOKENS:,} is the most",
            next_action="keep data out of it: let the tools bring it",
        )
    _check_nesting(source)


def _check_nesting(source: str) -> None:
    """Counts brackets and operators as they stand, strings and comments too: a rough bound that costs little."""
    depth, row, line = 0, 0, 1
    for char in source:
        if char == "\n":
            line += 1
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth = max(0, depth - 1)
        row = row + 1 if char in "-+~" else row if char.isspace() else 0
        if depth > _MAX_OPEN_BRACKETS or row > _MAX_OPERATORS_IN_A_ROW:
            raise _error_at(line, "it is nested too deep", "close brackets sooner, and put steps on lines of their own")


def _parse(source: str, name: str = "script.py") -> ast.Module:
    """The syntax tree. Raises `ScriptError` with the line for what is no Python."""
    import warnings

    try:
        with _warnings_lock, warnings.catch_warnings():  # the filters are one for all threads
            warnings.simplefilter("ignore")
            # The text goes in as a string: a coding line then means nothing.
            return ast.parse(source, name)
    except SyntaxError as error:
        text = (error.text or "").strip()
        raise ScriptError(
            f"line {error.lineno}: {error.msg}" + (f": {text}" if text else ""),
            hints=[{"line": error.lineno, "column": error.offset, "text": text}],
            next_action="correct the script and run it again",
        ) from None
    except (RecursionError, MemoryError, ValueError, OverflowError) as error:
        raise ScriptError(
            f"the script cannot be compiled: {str(error) or type(error).__name__}",
            next_action="nest less, write shorter",
        ) from None


def _declared_needs(tree: ast.Module, source: str) -> tuple[DeclaredNeed, ...]:
    """Every need of every `use_tools` call, each once, in the order of the text."""
    nodes = list(ast.walk(tree))
    names, modules = _aliases(nodes)
    calls: list[ast.Call] = []
    called: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Call) and _is_use_tools(node.func, names, modules):
            calls.append(node)
            called.add(id(node.func))
    for node in nodes:
        if id(node) not in called and _is_use_tools(node, names, modules) and _is_load(node):
            line = getattr(node, "lineno", 0)
            raise _error_at(
                line, "use_tools is passed on instead of called", "call it by its own name, where it is needed"
            )
    calls.sort(key=lambda call: (call.lineno, call.col_offset))
    found: dict[tuple[str, str | None], DeclaredNeed] = {}
    for call in calls:
        for need in _needs_of_call(call, source):
            found.setdefault((need.query, need.server), need)
    if len(found) > _MAX_NEEDS:
        raise ScriptError(f"{len(found)} needs are declared; {_MAX_NEEDS} is the most", next_action="split the script")
    return tuple(found.values())


def _aliases(nodes: list[ast.AST]) -> tuple[set[str], set[str]]:
    """The names that mean `use_tools`, and the dotted names of modules that hold it."""
    names, modules = {_USE_TOOLS}, set(_USE_TOOLS_MODULES)
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module in _USE_TOOLS_MODULES:
            for alias in node.names:
                if alias.name == _USE_TOOLS:
                    names.add(alias.asname or _USE_TOOLS)
                elif f"{node.module}.{alias.name}" in _USE_TOOLS_MODULES:
                    modules.add(alias.asname or alias.name)
        elif isinstance(node, ast.Import):
            modules |= {alias.asname for alias in node.names if alias.asname and alias.name in _USE_TOOLS_MODULES}
    return names, modules


def _is_use_tools(node: ast.AST, names: set[str], modules: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in names
    return isinstance(node, ast.Attribute) and node.attr == _USE_TOOLS and _dotted_name(node.value) in modules


def _is_load(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Load)


def _dotted_name(node: ast.AST) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _needs_of_call(call: ast.Call, source: str) -> Iterator[DeclaredNeed]:
    server: str | None = None
    for given in call.keywords:
        if given.arg != "server":
            what = f"use_tools takes no {given.arg!r}" if given.arg else "use_tools takes no ** arguments"
            raise _error_at(call.lineno, what, 'give needs as strings, and server="name" if one is meant')
        value = given.value.value if isinstance(given.value, ast.Constant) else ...
        if value is not None and not isinstance(value, str):
            raise _error_at(given.value.lineno, "server must be a literal string", 'write server="git"')
        server = value
    if not call.args:
        raise _error_at(call.lineno, "use_tools declares nothing", _LITERAL_NEEDED)
    for argument in call.args:
        if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
            shown = (ast.get_source_segment(source, argument) or "")[:80]
            raise _error_at(argument.lineno, f"use_tools takes literal strings only, not {shown}", _LITERAL_NEEDED)
        query = argument.value.strip()
        if not query or len(query) > _MAX_NEED_CHARS:
            raise _error_at(argument.lineno, f"a need has 1 to {_MAX_NEED_CHARS} characters", _LITERAL_NEEDED)
        yield DeclaredNeed(query, server, argument.lineno)


def _error_at(line: int, what: str, next_action: str) -> ScriptError:
    return ScriptError(f"line {line}: {what}", hints=[{"line": line}], next_action=next_action)


# --- `toolfold.use_tools` outside a script: it only says where it works. Inside, the harness puts the real one ther


def use_tools(*needs: str, server: str | None = None) -> list[Any]:
    """Declares which tools a script needs, in plain words, and gives what each became.

    It works in scripts that toolfold runs: there the needs are found before anything runs, and the functions can be
    imported from `servers.<name>` afterwards. Raises `ToolNotFound` where nothing fits.
    """
    raise ScriptError(
        "use_tools works only in scripts that toolfold runs",
        hints=[f"{need!r} was asked for" for need in needs[:3]],
        next_action="run it with `toolfold run script.py` or Gateway.run_script(code); elsewhere use Gateway.call_tool",
    )
