"""Needs are found before anything runs, and only as literal strings."""

import textwrap

import pytest

from toolfold.errors import ScriptError
from toolfold.scripts.declarations import _decode_source, _parse, parse_script


def needs(code: str) -> list[tuple[str, str | None, int]]:
    _, declared = parse_script(textwrap.dedent(code).strip("\n"))
    return [(need.query, need.server, need.line) for need in declared]


@pytest.mark.requirement("U-03")
@pytest.mark.parametrize(
    "opening",
    [
        "from runtime.discovery import use_tools",
        "from toolfold import use_tools",
        "import asyncio  # and nothing else: the name is there by itself",
    ],
)
def test_a_need_is_found_in_a_plain_call(opening: str) -> None:
    assert needs(f'{opening}\nuse_tools("read a file", "list a folder")') == [
        ("read a file", None, 2),
        ("list a folder", None, 2),
    ]


@pytest.mark.requirement("U-03")
@pytest.mark.parametrize(
    ("opening", "call"),
    [
        ("from runtime.discovery import use_tools as need", "need"),
        ("import runtime.discovery", "runtime.discovery.use_tools"),
        ("import runtime.discovery as d", "d.use_tools"),
        ("from runtime import discovery", "discovery.use_tools"),
        ("import toolfold as t", "t.use_tools"),
    ],
)
def test_a_need_is_found_under_any_name_of_the_import(opening: str, call: str) -> None:
    assert needs(f'{opening}\n{call}("read a file", server="files")') == [("read a file", "files", 2)]


@pytest.mark.requirement("U-03")
def test_needs_are_found_in_branches_that_may_never_run_and_each_counts_once() -> None:
    code = """
    try:
        use_tools("get the log")
    except Exception:
        if False:
            use_tools("get the history")
        use_tools("get the log")
    """
    assert [need for need, _, _ in needs(code)] == ["get the log", "get the history"]


@pytest.mark.requirement("U-03")
@pytest.mark.parametrize(
    ("code", "line", "says"),
    [
        ('x = "log"\nuse_tools(x)', 2, "literal strings only, not x"),
        ('use_tools(f"get {1}")', 1, 'not f"get {1}"'),
        ("use_tools(" + "+".join("x" * 600) + ")", 1, "not x+x+x"),
        ('use_tools("a" + "b")', 1, "literal strings only"),
        ('use_tools(*["a"])', 1, "literal strings only"),
        ("use_tools(7)", 1, "literal strings only"),
        ("use_tools()", 1, "declares nothing"),
        ('use_tools("a", server=name)', 1, "server must be a literal"),
        ('use_tools("a", **{})', 1, "takes no ** arguments"),
        ('use_tools("a", limit=3)', 1, "takes no 'limit'"),
        ('use_tools("   ")', 1, "1 to 500 characters"),
        ('need = use_tools\nneed("a")', 1, "passed on instead of called"),
        ("print(use_tools)", 1, "passed on instead of called"),
    ],
)
def test_anything_but_a_literal_is_refused_with_its_line(code: str, line: int, says: str) -> None:
    with pytest.raises(ScriptError, match=f"line {line}: ") as caught:
        needs(code)
    assert says in caught.value.message
    assert caught.value.next_action


def test_strings_that_python_joins_by_itself_are_literals() -> None:
    assert needs('use_tools("get the " "log")') == [("get the log", None, 1)]


def test_what_is_no_python_is_told_with_its_line() -> None:
    with pytest.raises(ScriptError, match="line 2: "):
        needs("x = 1\nif x print(x)")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("x = 1\n\0", "line 2: it holds a NUL"),
        ("x = '\ud800'", "half of a surrogate pair"),
        ("x = '" + "a" * 200_000 + "'", "characters"),
        ("# " + "x\n# " * 200_000, "bytes"),
        ("(" * 100_000 + ")" * 100_000, "nested too deep|characters"),
        ("x = (\n" * 50_000, "nested too deep|bytes"),
        ("-" * 29_000 + "1", "nested too deep"),
        ("a\n" * 31_000, "31,000 words and signs; 30,000 is the most"),
        (b"x = '\xff'", "not UTF-8"),
    ],
    ids=["nul", "surrogate", "long line", "large", "parentheses", "open lines", "operators", "words", "latin-1"],
)
def test_sources_that_could_hurt_a_parser_are_refused_before_it(source: str | bytes, says: str) -> None:
    with pytest.raises(ScriptError, match=says):
        _decode_source(source)


@pytest.mark.parametrize("depth", [150, 250, 1900])
def test_nesting_that_passes_the_first_look_is_a_clear_error_or_fine(depth: int) -> None:
    source = "x = " + "(" * depth + "1" + ")" * depth
    try:
        _parse(_decode_source(source))
    except ScriptError as error:
        assert error.next_action  # noqa: PT017 - either way is right, as long as nothing crashes


def test_a_coding_line_means_nothing() -> None:
    smuggled = b"# coding: utf-7\n'+AAo-use_tools(secret)+AAo-'\n"
    assert parse_script(smuggled)[1] == ()
    assert _decode_source(b"\xef\xbb\xbfx = 1") == "x = 1"
