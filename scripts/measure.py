"""Measures the source against the aims of docs/architecture.md and prints them as a Markdown table.

    python scripts/measure.py             the table
    python scripts/measure.py --write     the table, written into docs/architecture.md
    python scripts/measure.py --check     exit code 1 and the list of what is missed
    python scripts/measure.py --offenders which functions and modules stand behind the figures

Everything is read from the source of the package, but for two figures: the way of one `tools/call` is traced in a real
`toolfold serve` with a real server behind it, and the coverage is read from `coverage.json` where `coverage json` wrote
one. Standard library only.
"""

import argparse
import ast
import io
import json
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "toolfold"
PAGE = ROOT / "docs" / "architecture.md"
COVERAGE = ROOT / "coverage.json"
BEGIN, END = "<!-- measures: python scripts/measure.py --write -->", "<!-- end of measures -->"

SMALL_LINES = 50
MAX_COMPLEXITY = 10
MARKER = "marker-of-the-traced-call"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Measure:
    """One row: today's figure, what it should be, and the things behind the figure."""

    name: str
    title: str
    value: float | None
    aim: str
    met: bool | None
    behind: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        if self.value is None:
            return "not measured"
        return f"{self.value:,}"


@dataclass(frozen=True)
class Module:
    """One source file, parsed once."""

    name: str
    path: Path
    text: str = field(repr=False)

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @cached_property
    def code(self) -> int:
        return code_lines(self.text, self.tree)

    @cached_property
    def comments(self) -> int:
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return sum(
            token.type == tokenize.COMMENT and not token.string.startswith(("# noqa", "# type:")) for token in tokens
        )

    @cached_property
    def public_names(self) -> list[str]:
        definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        return [node.name for node in self.tree.body if isinstance(node, definitions) and not node.name.startswith("_")]


def code_lines(text: str, tree: ast.AST) -> int:
    """The lines of `tree` that are neither blank, nor a comment alone, nor part of a docstring."""
    documented: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str())):
                    documented.update(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    first = getattr(tree, "lineno", 1)
    last = getattr(tree, "end_lineno", None) or len(text.splitlines())
    shown = enumerate(text.splitlines()[first - 1 : last], first)
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") and at not in documented for at, line in shown)


def complexity(function: Function) -> int:
    """McCabe's number, with each boolean operator counted as the branch it is. Inner functions count for themselves."""
    total = 1
    stack = list(ast.iter_child_nodes(function))
    branches = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.comprehension)
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        total += isinstance(node, (*branches, ast.Assert, ast.match_case))
        if isinstance(node, ast.comprehension):
            total += len(node.ifs)
        if isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        stack.extend(ast.iter_child_nodes(node))
    return total


def modules(source: Path = SOURCE) -> dict[str, Module]:
    """Dotted name to module, for every file of the package."""
    result = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        result[name] = Module(name, path, path.read_text(encoding="utf-8"))
    return result


def imports(module: Module, known: Iterable[str]) -> set[str]:
    """The modules of the package that a module imports, at its top or inside a function."""
    names = set(known)
    result: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            result |= {alias.name for alias in node.names if alias.name in names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                result |= {full} & names or {node.module} & names
    return result


def functions(known: dict[str, Module]) -> Iterator[tuple[int, str]]:
    """Complexity and place of every function."""
    for module in known.values():
        for node in ast.walk(module.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield complexity(node), f"{module.path.relative_to(ROOT)}:{node.lineno} {node.name}"


def small_with_one_importer(known: dict[str, Module]) -> list[str]:
    """Modules too short to be an idea of their own, as far as a count can tell: packages' own files aside."""
    importers: dict[str, set[str]] = {}
    for module in known.values():
        for target in imports(module, known):
            importers.setdefault(target, set()).add(module.name)
    return [
        module.name
        for module in known.values()
        if module.lines < SMALL_LINES
        and module.path.name not in {"__init__.py", "__main__.py"}
        and len(importers.get(module.name, set()) - {module.name}) == 1
    ]


@dataclass(frozen=True)
class CallPath:
    """One traced `tools/call`: the packages from the face to the wire, in order, and the types that carried it."""

    packages: tuple[str, ...]
    shapes: tuple[str, ...]

    @property
    def crossings(self) -> int:
        return max(0, len(self.packages) - 1)


SERVER = """\
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "initialize":
        info = {"name": "echo", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/list":
        result = {"tools": [{"name": "echo", "description": "Echoes.", "inputSchema": {"type": "object"}}]}
    elif message["method"] == "tools/call":
        result = {"content": [{"type": "text", "text": json.dumps(message["params"]["arguments"])}]}
    else:
        error = {"code": -32601, "message": "Method not found"}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def call_path() -> CallPath:
    """Traces one `tools/call` through `toolfold serve` on stdio, in the default profile, to a server over stdio.

    The process traces itself: whenever a function of the package is entered with something that holds the call's
    arguments, the stack is kept; the deepest one is the way. Frames of one task stand on one stack while they run, so
    the list is complete as long as the request is written by the task that answers the client.
    """
    with tempfile.TemporaryDirectory(prefix="toolfold-measure-") as name:
        folder = Path(name)
        (folder / "server.py").write_text(SERVER, encoding="utf-8")
        config = folder / "toolfold.toml"
        values = [json.dumps(value) for value in (sys.executable, str(folder / "server.py"))]
        config.write_text(f"[servers.echo]\ncommand = {values[0]}\nargs = [{values[1]}]\n", encoding="utf-8")
        options = ["--config", str(config), "--home", str(folder / "home")]
        base = [sys.executable, "-m", "toolfold"]
        subprocess.run([*base, "build", "--no-search", *options], check=True, capture_output=True, timeout=60)
        report = folder / "path.json"
        command = [sys.executable, str(Path(__file__).resolve()), "--trace", str(report), "serve", *options]
        answer = _converse(command)
        if MARKER not in answer:
            raise RuntimeError(f"the traced call was not answered: {answer}")
        traced = json.loads(report.read_text(encoding="utf-8"))
    return CallPath(tuple(traced["packages"]), tuple(traced["shapes"]))


def _converse(command: list[str]) -> str:
    """Starts a server on stdio, shakes hands, calls the traced tool, and returns the answer."""
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "measure", "version": "1"}}
    call = {"name": "call_tool", "arguments": {"tool_id": "echo.echo", "args": {"text": MARKER}}}
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": client},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": call},
    ]
    answer = ""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the process has no pipes")
        for message in messages:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            process.stdin.flush()
            if "id" in message:
                answer = process.stdout.readline()
        process.stdin.close()
        process.wait(30)
    return answer


def trace(report: str, arguments: list[str]) -> None:
    """The traced process: runs the command line under a profiler and writes the way of the call to `report`."""
    deepest: list[Any] = []

    def profile(frame: Any, event: str, argument: object) -> None:
        if event != "call" or not frame.f_globals.get("__name__", "").startswith("toolfold."):
            return
        if not any(_carries(value) for value in _values(frame)):
            return
        stack = []
        current = frame
        while current is not None:
            if current.f_globals.get("__name__", "").startswith("toolfold."):
                stack.append(current)
            current = current.f_back
        stack.reverse()
        names = [one.f_globals["__name__"].split(".")[1] for one in stack]
        if "faces" not in names or "upstream" not in names or len(stack) <= (deepest[0] if deepest else 0):
            return
        # The command line that started everything and the server's side of the wire stand below the face that answers.
        read = max((at for at, name in enumerate(names[: names.index("upstream")]) if name == "wire"), default=-1)
        deepest[:] = [len(stack), names[read + 1 :], _shapes(stack[read + 1 :])]

    from toolfold.__main__ import main

    sys.setprofile(profile)
    try:
        main(arguments)
    except SystemExit:
        pass
    finally:
        sys.setprofile(None)
        _, names, shapes = deepest or (0, [], [])
        packages = [name for at, name in enumerate(names) if at == 0 or names[at - 1] != name]
        Path(report).write_text(json.dumps({"packages": packages, "shapes": shapes}), encoding="utf-8")


def _values(frame: Any) -> list[Any]:
    """The parameters and locals of a frame, but for the object whose method it is."""
    return [value for name, value in frame.f_locals.items() if name not in {"self", "cls"}]


def _carries(value: Any, depth: int = 3) -> bool:
    """Whether the arguments of the traced call stand in a value."""
    if isinstance(value, str):
        return MARKER in value
    if isinstance(value, (bytes, bytearray, memoryview)) or type(value).__name__ == "Raw":
        return MARKER.encode() in bytes(value)
    if isinstance(value, (dict, list, tuple)):
        inner = value.values() if isinstance(value, dict) else value
        return depth > 0 and any(_carries(one, depth - 1) for one in inner)
    if not depth or not type(value).__module__.startswith("toolfold."):
        return False
    fields = getattr(type(value), "__struct_fields__", None)
    if fields is None:  # a plain object: what it holds itself, and not what those hold
        fields, depth = (*getattr(value, "__dict__", ()), *getattr(type(value), "__slots__", ())), 1
    return any(_carries(getattr(value, name, None), depth - 1) for name in fields)


def _shapes(stack: list[Any]) -> list[str]:
    """The types of the package that the call took on its way, each once, in order of appearance."""
    result: dict[str, None] = {}
    for frame in stack:
        for value in _values(frame):
            if type(value).__module__.startswith("toolfold.") and _carries(value):
                result[f"{type(value).__module__}.{type(value).__qualname__}"] = None
    return list(result)


def coverage() -> float | None:
    """Lines and branches together, as `coverage report` counts them."""
    try:
        report = json.loads(COVERAGE.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # there was no run, or it was broken off
        return None
    return round(float(report["totals"]["percent_covered"]), 1)


def at_most(name: str, title: str, value: float | None, limit: float, behind: Iterable[str] = ()) -> Measure:
    return Measure(name, title, value, f"≤ {limit:,}", None if value is None else value <= limit, tuple(behind))


def source_measures(known: dict[str, Module]) -> list[Measure]:
    """Everything that can be read from the source."""
    lines = sum(module.lines for module in known.values())
    comments = round(100 * sum(module.comments for module in known.values()) / max(lines, 1), 1)
    small = small_with_one_importer(known)
    gerunds = [module.name for module in known.values() if module.path.stem.endswith("ing")]
    gateway = known.get("toolfold.gateway")
    whole = [module for name, module in known.items() if name.startswith("toolfold.gateway")]
    gateway_code = sum(module.code for module in whole) if gateway else 0
    complex_ones = sorted(((n, place) for n, place in functions(known) if n > MAX_COMPLEXITY), reverse=True)
    places = tuple(f"{n} {place}" for n, place in complex_ones)
    worst = complex_ones[0][0] if complex_ones else 0
    return [
        at_most("lines", "lines in the wheel", lines, 50_000),
        at_most("code", "code lines in the wheel", sum(module.code for module in known.values()), 37_000),
        at_most("names", "public classes and functions", sum(len(m.public_names) for m in known.values()), 900),
        Measure("comments", "comments per 100 lines", comments, "2 to 4", 2 <= comments <= 4),
        at_most("small", "modules under 50 lines with one importer", len(small), 10, small),
        at_most("gerunds", "modules named `*ing.py`", len(gerunds), 0, gerunds),
        at_most("gateway", "code lines of `gateway.py`", gateway_code, 400),
        at_most("complex", "functions above complexity 10, boolean operators counted", len(places), 40, places),
        at_most("worst", "the most complex function", worst, 20, places[:1]),
    ]


def call_measures(path: CallPath) -> list[Measure]:
    shapes = [shape.removeprefix("toolfold.") for shape in path.shapes]
    return [
        at_most("crossings", "package crossings of one `tools/call`", path.crossings, 3, [" → ".join(path.packages)]),
        at_most("shapes", "shapes of one `tools/call`", len(shapes), 4, shapes),
    ]


def coverage_measure() -> Measure:
    share = coverage()
    return Measure("coverage", "branch coverage, %", share, "≥ 95", None if share is None else share >= 95)


def collect(skip: Iterable[str] = ()) -> list[Measure]:
    """All rows but those whose names are in `skip`."""
    without = set(skip)
    rows = source_measures(modules())
    if not {"crossings", "shapes"} <= without:
        rows += call_measures(call_path())
    if "coverage" not in without:
        rows.append(coverage_measure())
    return [row for row in rows if row.name not in without]


def table(rows: Iterable[Measure]) -> str:
    lines = ["| measure | today | aim |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {row.title} | {row.shown} | {row.aim} |" for row in rows)]) + "\n"


def write(text: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{PAGE.name} lacks the lines {BEGIN!r} and {END!r}")
    PAGE.write_text(f"{before}{BEGIN}\n{text}{END}{after}", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["--trace"]:
        trace(given[1], given[2:])
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 where an aim is missed")
    parser.add_argument("--write", action="store_true", help="write the table into docs/architecture.md")
    parser.add_argument("--offenders", action="store_true", help="also print what stands behind the figures")
    parser.add_argument("--skip", default="", metavar="NAMES", help="rows to leave out, separated by commas")
    options = parser.parse_args(given)
    rows = collect(filter(None, options.skip.split(",")))
    sys.stdout.write(table(rows))
    if options.offenders:
        sys.stdout.writelines(f"\n{row.title}\n  " + "\n  ".join(row.behind) + "\n" for row in rows if row.behind)
    if options.write:
        write(table(rows))
    missed = [row for row in rows if row.met is False]
    if options.check and missed:
        sys.stderr.writelines(f"missed: {row.title} is {row.shown}, the aim is {row.aim}\n" for row in missed)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
