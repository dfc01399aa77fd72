"""What `import toolfold` offers is declared, complete, and cheap."""

import subprocess
import sys

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
