"""Checks that a wheel holds the package and nothing else: no benches, no tests, no servers that misbehave.

python scripts/check_wheel.py dist/toolfold-….whl
"""

import ast
import re
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOREIGN = re.compile(r"^(tests|benchmarks|training|scripts|misbehaving_\w+|large_\w+)(\.|$)")

MANUAL = "share/man/man1/toolfold.1"


def problems(wheel: Path) -> list[str]:
    """What is in the wheel and should not be, and what it imports that will not be there."""
    wrong = []
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        for name in names:
            if not re.match(rf"toolfold(/|-[^/]+\.dist-info/|-[^/]+\.data/data/{MANUAL}$)", name):
                wrong.append(f"{name} is not part of the package")
            if name.endswith(".py"):
                tree = ast.parse(archive.read(name))
                imported = {
                    alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
                }
                imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
                wrong += [f"{name} imports {module}" for module in sorted(imported) if FOREIGN.match(module)]
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "toolfold").rglob("*.py")}
    # Pages of the console, and what they load.
    console = ROOT / "src" / "toolfold" / "faces" / "console"
    sources |= {str(path.relative_to(ROOT / "src")) for path in console.rglob("*.*") if path.suffix != ".pyc"}
    missing = sorted(sources - set(names)) + [MANUAL] * (not any(name.endswith(MANUAL) for name in names))
    return wrong + [f"{name} is missing" for name in missing]


def main() -> int:
    (wheel,) = sys.argv[1:]
    wrong = problems(Path(wheel))
    sys.stdout.writelines(f"{line}\n" for line in wrong or [f"{Path(wheel).name}: the package and nothing else"])
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
