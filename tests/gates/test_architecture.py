"""The drawing in docs/architecture.md is true: layers, declared names, cycles, lengths, inheritance.

The layers are read from the page itself. There is no list of exemptions: what is drawn is what holds.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from measure import Module, code_lines, imports, modules

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"

MODULE_CODE = CLASS_CODE = 450
FUNCTION_CODE = 80

known = cache(modules)


def stage(name: str) -> str:
    """`toolfold.search.index` → `search`."""
    return name.split(".")[1] if "." in name else ""


@cache
def drawing() -> tuple[list[str], list[frozenset[str]]]:
    """The stages in the order they are drawn in, and the groups whose members do not know each other."""
    page = PAGE.read_text(encoding="utf-8")
    block = page.partition("```\nsrc/toolfold/\n")[2].partition("```")[0]
    names = []
    for line in block.splitlines():
        match = re.match(r"\s+((?:\w+(?:\.py|/)\s+)*\w+(?:\.py|/))(?:\s|$)", line)
        assert match is not None, f"a line of the layout begins with no folder or file: {line!r}"
        names += [name.removesuffix("/").removesuffix(".py") for name in match[1].split()]
    rules = re.findall(r"^- (.+) do not import each other\.$", page, re.MULTILINE)
    return names, [frozenset(re.findall(r"`(\w+)`", rule)) for rule in rules]


def test_the_drawing_has_every_stage_and_nothing_else() -> None:
    order, _ = drawing()
    assert order
    assert len(order) == len(set(order))
    assert set(order) == {stage(name) for name in known()} - {""}


def test_later_stages_import_earlier_ones_and_never_the_reverse() -> None:
    order, apart = drawing()
    wrong = []
    for module in known().values():
        source = stage(module.name)
        for target in sorted(imports(module, known())):
            to = stage(target)
            if not source or not to or source == to:
                continue
            if order.index(to) > order.index(source):
                wrong.append(f"{module.name} imports {target}, which stands above it")
            wrong += [f"{module.name} imports {target}" for group in apart if {source, to} <= group]
    assert not wrong, "\n".join(wrong)


def imported_names(module: Module) -> Iterator[tuple[str, str]]:
    """Each `from X import name` of a module, as (X, name)."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module.name}: a relative import hides the layers"
            for alias in node.names:
                yield node.module or "", alias.name


def test_nothing_below_the_faces_imports_through_toolfold_itself() -> None:
    order, _ = drawing()
    below = set(order[: order.index("faces")])
    wrong = [
        f"{module.name} imports {name} through toolfold"
        for module in known().values()
        if stage(module.name) in below
        for source, name in imported_names(module)
        if source == "toolfold" and name != "__version__" and f"toolfold.{name}" not in known()
    ]
    assert not wrong, "\n".join(wrong)


def declared(module: Module) -> set[str]:
    """What a module lists in `__all__`."""
    for node in module.tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return set(ast.literal_eval(value))
    return set()


def test_faces_import_of_a_stage_only_what_it_declares() -> None:
    folders = {stage(name) for name, module in known().items() if module.path.parent.parent.name == "toolfold"}
    wrong = []
    for module in known().values():
        if stage(module.name) != "faces":
            continue
        for source, name in imported_names(module):
            if stage(source) == "faces" or stage(source) not in folders:
                continue
            if f"{source}.{name}" in known():
                # The module itself is imported: what it is used for must be declared there.
                if not declared(known()[f"{source}.{name}"]):
                    wrong.append(f"{module.name} imports the module {source}.{name}, which declares nothing")
            elif source in known() and name not in declared(known()[source]):
                wrong.append(f"{module.name} imports {name} of {source}, which does not declare it")
    assert not wrong, "\n".join(wrong)


def test_no_module_imports_itself_through_others() -> None:
    graph = {name: imports(module, known()) - {name} for name, module in known().items() if name != "toolfold"}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail[trail.index(name) :], name))
        if name in done or name not in graph:
            return
        for target in sorted(graph[name]):
            visit(target, (*trail, name))
        done.add(name)

    for name in graph:
        visit(name, ())


def class_code(classes: dict[str, tuple[Module, ast.ClassDef]], name: str) -> int:
    """The code lines of a class and of the bases it has in the package: a mixin makes nothing shorter."""
    module, node = classes[name]
    bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id in classes and base.id != name]
    return code_lines(module.text, node) + sum(class_code(classes, base) for base in bases)


def test_modules_classes_and_functions_stay_short() -> None:
    classes: dict[str, tuple[Module, ast.ClassDef]] = {}
    long = []
    for module in known().values():
        if module.code > MODULE_CODE:
            long.append(f"{module.name}: {module.code} code lines, at most {MODULE_CODE}")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name] = module, node
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = code_lines(module.text, node)
                if length > FUNCTION_CODE:
                    long.append(f"{module.name}.{node.name}: {length} code lines, at most {FUNCTION_CODE}")
    lengths = {name: class_code(classes, name) for name in classes}
    long += [f"class {name}: {length} code lines" for name, length in lengths.items() if length > CLASS_CODE]
    assert not long, "\n".join(long)


def test_test_modules_stay_short() -> None:
    long = {}
    for file in sorted((ROOT / "tests").rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        length = code_lines(text, ast.parse(text))
        if length > MODULE_CODE:
            long[str(file.relative_to(ROOT))] = length
    assert not long


def test_inheritance_goes_two_levels_deep_at_most() -> None:
    bases: dict[str, list[str]] = {}
    for name, module in known().items():
        if name == "toolfold.errors":
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]

    def depth(name: str) -> int:
        return 1 + max((depth(base) for base in bases[name] if base in bases), default=0)

    assert not [name for name in bases if depth(name) > 2]


def test_modules_are_named_by_nouns() -> None:
    """The source's own are counted by scripts/measure.py; these are the rest."""
    folders = [ROOT / name for name in ("benchmarks", "scripts", "tests/servers")]
    assert not [path for folder in folders for path in folder.rglob("*ing.py")]


def test_every_module_opens_by_saying_what_it_is() -> None:
    assert not [name for name, module in known().items() if module.text.strip() and not ast.get_docstring(module.tree)]


def test_nothing_swallows_every_exception() -> None:
    """`except Exception` stands only where its handler logs or raises again."""
    wrong = []
    for name, module in known().items():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ExceptHandler) and (
                node.type is None
                or (isinstance(node.type, ast.Name) and node.type.id in {"Exception", "BaseException"})
            ):
                inside = ast.dump(ast.Module(node.body, []))
                if "Raise(" not in inside and "attr='exception'" not in inside:
                    wrong.append(f"{name}:{node.lineno}")
    assert not wrong


@pytest.mark.parametrize("page", ["architecture.md", "glossary.md"])
def test_the_pages_of_the_drawing_name_modules_that_exist(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`toolfold(?:\.\w+)+`", text))
    assert not [name for name in named if not any(known_name == name.strip("`") for known_name in known())]
