"""Every promise has a test, and every test's promise exists."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def open_ids() -> set[str]:
    lines = (Path(__file__).parent / "open_ids.txt").read_text(encoding="utf-8").splitlines()
    return {identifier for line in lines if not line.startswith("#") for identifier in line.split()}


def promised() -> set[str]:
    text = (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8")
    return set(re.findall(r"^\| ([A-Z]-\d\d)(?: \+)? \|", text, flags=re.MULTILINE))


def named_by_tests() -> dict[str, set[str]]:
    """id -> the test files that name it in a `requirement` mark."""
    named: dict[str, set[str]] = {}
    for file in sorted((ROOT / "tests").rglob("*.py")):
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "requirement":
                for argument in call.args:
                    assert isinstance(argument, ast.Constant), f"{file.name}: a requirement mark takes plain strings"
                    named.setdefault(str(argument.value), set()).add(file.name)
    return named


def test_every_promise_is_proved_or_stands_in_the_list_of_open_ones() -> None:
    missing = promised() - set(named_by_tests()) - open_ids()
    assert not missing, f"no test names {sorted(missing)}"


def test_no_test_names_a_promise_that_does_not_exist() -> None:
    unknown = {identifier: files for identifier, files in named_by_tests().items() if identifier not in promised()}
    assert not unknown


def test_the_list_of_open_promises_holds_nothing_that_is_proved_or_unknown() -> None:
    assert not open_ids() & set(named_by_tests()), "take these out of open_ids.txt: a test names them now"
    assert promised() >= open_ids()
