"""The folder list is the architecture: layers, cycles, sizes and inheritance, checked on the source itself."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "toolfold"

# A stage may import those on earlier lines and itself; stages on one line do not know each other.
LAYERS: tuple[frozenset[str], ...] = tuple(
    frozenset(line.split())
    for line in """
    masking containers
    types errors
    events tokens schema schema_walk model
    config
    storage
    wire
    upstream
    catalogue
    policy
    search disclosure
    calls
    telemetry
    outputs
    sandbox
    scripts live agent
    gateway
    blocking
    testing demo
    bench
    faces
    adapters
    __main__
    """.strip().splitlines()
)

MAX_LINES = 400
# May only shrink: a file that is under the limit again must leave the list.
LONG_FILES: frozenset[str] = frozenset()


def modules() -> dict[str, Path]:
    found = {}
    for file in sorted(SOURCE.rglob("*.py")):
        parts = file.relative_to(SOURCE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports_of(file: Path, known: dict[str, Path]) -> set[str]:
    """The toolfold modules a file imports, at its top or inside a function."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in known}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{file}: relative imports hide the layers"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in known or node.module in known:
                    found.add(full if full in known else node.module)
    return found


def layer_of(module: str) -> int:
    stage = module.split(".")[1]
    for number, stages in enumerate(LAYERS):
        if stage in stages:
            return number
    pytest.fail(f"{module} belongs to no layer: give its stage a place in LAYERS")


def test_later_stages_import_earlier_ones_and_never_the_reverse() -> None:
    known = modules()
    wrong = []
    for module, file in known.items():
        if module == "toolfold":
            continue
        for target in imports_of(file, known):
            if target == "toolfold":
                continue
            same_stage = module.split(".")[1] == target.split(".")[1]
            if not same_stage and layer_of(target) >= layer_of(module):
                wrong.append(f"{module} imports {target}")
    assert not wrong


def test_faces_know_the_gateway_and_no_stage() -> None:
    known = modules()
    allowed = {
        "types",
        "errors",
        "events",
        "config",
        "tokens",
        "gateway",
        "blocking",
        "demo",
        "bench",
        "masking",
        "telemetry",  # logs are set up before there is a gateway
        "wire",  # a face that speaks MCP needs the protocol; it is no stage of the flow
        "faces",
    }
    wrong = [
        f"{module} imports {target}"
        for module, file in known.items()
        if module.startswith("toolfold.faces.")
        for target in imports_of(file, known)
        if target != "toolfold" and target.split(".")[1] not in allowed
    ]
    assert not wrong


def test_no_module_imports_itself_through_others() -> None:
    known = modules()
    graph = {module: imports_of(file, known) - {module} for module, file in known.items() if module != "toolfold"}
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail[trail.index(module) :], module))
        if module in done or module not in graph:
            return
        for target in sorted(graph[module]):
            visit(target, (*trail, module))
        done.add(module)

    for module in graph:
        visit(module, ())


def test_files_stay_short() -> None:
    files = [*SOURCE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    lengths = {str(file.relative_to(ROOT)): len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    long = {name for name, length in lengths.items() if length > MAX_LINES}
    assert long == LONG_FILES, f"over {MAX_LINES} lines: {sorted(long - LONG_FILES)}; short again: {LONG_FILES - long}"


def test_inheritance_goes_two_levels_deep_at_most() -> None:
    bases: dict[str, list[str]] = {}
    for module, file in modules().items():
        if module == "toolfold.errors":
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]

    def depth(name: str) -> int:
        return 1 + max((depth(base) for base in bases[name] if base in bases), default=0)

    assert not [name for name in bases if depth(name) > 2]


def test_every_module_opens_by_saying_what_it_is() -> None:
    silent = [
        name
        for name, file in modules().items()
        if file.read_text(encoding="utf-8").strip()
        and not ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    ]
    assert not silent


def test_nothing_swallows_every_exception() -> None:
    """`except Exception` stands only where its handler logs or raises again."""
    wrong = []
    for name, file in modules().items():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ExceptHandler) and (
                node.type is None
                or (isinstance(node.type, ast.Name) and node.type.id in {"Exception", "BaseException"})
            ):
                inside = ast.dump(ast.Module(node.body, []))
                if "Raise(" not in inside and "attr='exception'" not in inside:
                    wrong.append(f"{name}:{node.lineno}")
    assert not wrong
