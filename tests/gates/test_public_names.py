"""What `import toolfold` offers is declared, complete, and cheap."""

import os
import subprocess
import sys
from pathlib import Path

import toolfold
import toolfold.errors

HEAVY = ("asyncio", "httpx2", "mcp", "pydantic", "rich", "sqlite3", "starlette", "uvloop", "numpy", "onnxruntime")


def loaded_by(code: str) -> set[str]:
    """The top-level modules in a fresh interpreter after running `code`."""
    script = f"import sys\n{code}\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stderr.split())


def test_every_public_name_can_be_had() -> None:
    for name in toolfold.__all__:
        assert getattr(toolfold, name) is not None


def test_every_public_name_has_its_home() -> None:
    tree = {
        name
        for name, value in vars(toolfold.errors).items()
        if isinstance(value, type) and issubclass(value, toolfold.ToolfoldError)
    }
    assert set(toolfold._HOMES) | tree == set(toolfold.__all__) - {"__version__"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(toolfold, "no_such_name")


def test_importing_toolfold_loads_nothing_heavy() -> None:
    assert not loaded_by("import toolfold") & set(HEAVY)


def test_the_version_is_printed_without_loading_anything_heavy() -> None:
    code = "from toolfold.__main__ import main\ntry:\n    main(['--version'])\nexcept SystemExit:\n    pass"
    assert not loaded_by(code) & set(HEAVY)


def test_the_tree_is_printed_without_loading_the_wire(tmp_path: Path) -> None:
    """Commands that only read the catalogue start fast: they open no connection, so they load nothing for one."""
    (tmp_path / "tools.py").write_text("def add(a: int, b: int) -> int:\n    return a + b\n")
    (tmp_path / "toolfold.toml").write_text('[servers.sums]\nfunctions = "./tools.py"\n')
    environment = dict(os.environ, TOOLFOLD_HOME=str(tmp_path / "home"))
    # The first command builds, with all that takes; the second only reads.
    for command in ("build", "tree"):
        script = (
            "import sys\nfrom toolfold.__main__ import main\n"
            f"try:\n    main([{command!r}, '--config', {str(tmp_path / 'toolfold.toml')!r}])\n"
            "except SystemExit:\n    pass\nprint(*sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60, env=environment
        )
    assert "all tools (1)" in done.stdout, done.stderr
    loaded = done.stdout.splitlines()[-1].split()
    assert not [name for name in loaded if name.startswith(("toolfold.wire", "toolfold.auth"))]
