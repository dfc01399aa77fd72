"""What a script declares with `use_tools(...)`, read from its syntax tree before anything of it runs.

Needs are literal strings, so that what a script may call is known, and can be shown, before it starts. A source that
could hurt the parser is refused by its size and its brackets first. This is no safety check of the code itself: that is
the sandbox's work. Above: `runner.py`.
"""

import ast
import re
import threading
from collections.abc import Iterator
from typing import Any

from toolfold.errors import ScriptError
from toolfold.scripts.values import Need

_MAX_SOURCE_BYTES = 256 * 1024
_MAX_LINE_CHARS = 100_000
# Brackets open at once, those in strings and comments counted too. CPython's own parser stops at 200 real ones.
_MAX_OPEN_BRACKETS = 2_000
_MAX_OPERATORS_IN_A_ROW = 2_000
# Words and signs, those in strings and comments counted too. The parser holds the interpreter lock throughout, and
# its time goes by these: so many take it a tenth of a second.
_MAX_TOKENS = 30_000
_MAX_NEEDS = 100
_MAX_NEED_CHARS = 500

_USE_TOOLS = "use_tools"
# Modules that `use_tools` may be imported from.
_USE_TOOLS_MODULES = frozenset({"runtime.discovery", "runtime", "toolfold"})

_TOKENS = re.compile(r"\w+|[^\w\s]")
_warnings_lock = threading.Lock()
_LITERAL_NEEDED = 'write the need as a plain string: use_tools("a tool to get the git commit log")'


def use_tools(*needs: str, server: str | None = None) -> Any:
    """Declares which tools a script needs, by what they must do or by id: one need gives its function, several a list.

    It works in scripts that toolfold runs: there the needs are known before anything runs, and the functions can be
    imported from `servers.<name>`, too. Raises `ToolNotFound` where nothing fits.
    """
    # What `import toolfold` gives elsewhere. In a script's process `runtime.modules` replaces it.
    raise ScriptError(
        "use_tools works only in scripts that toolfold runs",
        hints=[f"{need!r} was asked for" for need in needs[:3]],
        next_action="run it with `toolfold run script.py` or Gateway.run_script(code); elsewhere use Gateway.call_tool",
    )


def parse_script(code: str | bytes, name: str = "script.py") -> tuple[str, tuple[Need, ...]]:
    """Returns the text of a script and its needs. Raises `ScriptError`. May run in any thread."""
    source = _decode_source(code)
    return source, _declared_needs(_parse(source, name), source)


def _decode_source(source: str | bytes) -> str:
    """Decodes UTF-8, whatever a coding line says. Raises `ScriptError` for what cannot be compiled."""
    if isinstance(source, bytes):
        try:
            source = source.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ScriptError(
                f"the script is not UTF-8: byte {error.start} cannot be read",
                next_action="save it as UTF-8; a coding line is ignored",
            ) from None
    source = source.removeprefix("\ufeff")
    if "\0" in source:
        raise _error_at(source.count("\n", 0, source.index("\0")) + 1, "it holds a NUL character", "remove it")
    try:
        size = len(source.encode("utf-8"))
    except UnicodeEncodeError as error:
        line = source.count("\n", 0, error.start) + 1
        raise _error_at(
            line, "it holds half of a surrogate pair", "write the character out, or as \\u escapes"
        ) from None
    _check_size(source, size)
    _check_nesting(source)
    return source


def _check_size(source: str, size: int) -> None:
    if size > _MAX_SOURCE_BYTES:
        raise _too_long(f"{size:,} bytes", _MAX_SOURCE_BYTES)
    for number, line in enumerate(source.split("\n"), 1):
        if len(line) > _MAX_LINE_CHARS:
            raise _error_at(number, f"the line has {len(line):,} characters", f"keep lines under {_MAX_LINE_CHARS:,}")
    tokens = sum(1 for _ in _TOKENS.finditer(source))
    if tokens > _MAX_TOKENS:
        raise _too_long(f"{tokens:,} words and signs", _MAX_TOKENS)


def _too_long(size: str, limit: int) -> ScriptError:
    return ScriptError(
        f"the script has {size}; {limit:,} is the most", next_action="keep data out of it: let the tools bring it"
    )


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
    """Returns the syntax tree. Raises `ScriptError` with the line for what is no Python."""
    import warnings

    try:
        with _warnings_lock, warnings.catch_warnings():  # the filters are one for all threads
            warnings.simplefilter("ignore")
            # The text goes in as a string: a coding line then means nothing.
            return ast.parse(source, name)
    except SyntaxError as error:
        # Not the error's own text: Python may take that from a file of this name in the working folder.
        line = source.splitlines()[(error.lineno or 1) - 1 :][:1]
        text = "".join(line).strip()
        raise ScriptError(
            f"{name}, line {error.lineno}: {error.msg}" + (f": {text}" if text else ""),
            hints=[{"line": error.lineno, "column": error.offset, "text": text}],
            next_action="correct the script and run it again",
        ) from None
    except (RecursionError, MemoryError, ValueError, OverflowError) as error:
        raise ScriptError(
            f"the script cannot be compiled: {str(error) or type(error).__name__}",
            next_action="nest less, write shorter",
        ) from None


def _declared_needs(tree: ast.Module, source: str) -> tuple[Need, ...]:
    """Returns every need of every `use_tools` call, each once, in the order of the text."""
    needs: dict[tuple[str, str | None], Need] = {}
    for call in sorted(_declaring_calls(tree), key=lambda call: (call.lineno, call.col_offset)):
        for need in _needs_of_call(call, source):
            needs.setdefault((need.query, need.server), need)
    if len(needs) > _MAX_NEEDS:
        raise ScriptError(f"{len(needs)} needs are declared; {_MAX_NEEDS} is the most", next_action="split the script")
    return tuple(needs.values())


def _declaring_calls(tree: ast.Module) -> Iterator[ast.Call]:
    nodes = list(ast.walk(tree))
    names, modules = _aliases(nodes)
    calls = {id(node.func): node for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if not _is_use_tools(node, names, modules):
            continue
        if id(node) in calls:
            yield calls[id(node)]
        elif isinstance(getattr(node, "ctx", None), ast.Load):
            what, advice = "use_tools is passed on instead of called", "call it by its own name, where it is needed"
            raise _error_at(getattr(node, "lineno", 0), what, advice)


def _aliases(nodes: list[ast.AST]) -> tuple[set[str], set[str]]:
    """Returns the names that mean `use_tools`, and the dotted names of modules that hold it."""
    names, modules = {_USE_TOOLS}, set(_USE_TOOLS_MODULES)
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            prefix = f"{node.module}."
        elif isinstance(node, ast.Import):
            prefix = ""
        else:
            continue
        for alias in node.names:
            if alias.name == _USE_TOOLS and prefix[:-1] in _USE_TOOLS_MODULES:
                names.add(alias.asname or alias.name)
            elif prefix + alias.name in _USE_TOOLS_MODULES:
                modules.add(alias.asname or alias.name)
    return names, modules


def _is_use_tools(node: ast.AST, names: set[str], modules: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in names
    return isinstance(node, ast.Attribute) and node.attr == _USE_TOOLS and _dotted_name(node.value) in modules


def _dotted_name(node: ast.AST) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _needs_of_call(call: ast.Call, source: str) -> Iterator[Need]:
    server = _server_of_call(call)
    if not call.args:
        raise _error_at(call.lineno, "use_tools declares nothing", _LITERAL_NEEDED)
    for argument in call.args:
        if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
            text = (ast.get_source_segment(source, argument) or "")[:80]
            raise _error_at(argument.lineno, f"use_tools takes literal strings only, not {text}", _LITERAL_NEEDED)
        query = argument.value.strip()
        if not query or len(query) > _MAX_NEED_CHARS:
            raise _error_at(argument.lineno, f"a need has 1 to {_MAX_NEED_CHARS} characters", _LITERAL_NEEDED)
        yield Need(query=query, server=server, line=argument.lineno)


def _server_of_call(call: ast.Call) -> str | None:
    server: str | None = None
    for keyword in call.keywords:
        if keyword.arg != "server":
            what = f"use_tools takes no {keyword.arg!r}" if keyword.arg else "use_tools takes no ** arguments"
            raise _error_at(call.lineno, what, 'give needs as strings, and server="name" if one is meant')
        value = keyword.value.value if isinstance(keyword.value, ast.Constant) else ...
        if value is not None and not isinstance(value, str):
            raise _error_at(keyword.value.lineno, "server must be a literal string", 'write server="git"')
        server = value
    return server


def _error_at(line: int, what: str, next_action: str) -> ScriptError:
    return ScriptError(f"line {line}: {what}", hints=[{"line": line}], next_action=next_action)
