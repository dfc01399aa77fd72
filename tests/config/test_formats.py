"""The small parsers and the writer: what is written is read back, and every place is true."""

import json
import tomllib
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toolfold.config import servers as names
from toolfold.config import toml as tomlwrite
from toolfold.config.clients.import_plan import _unique_name
from toolfold.config.jsonc import _JsonDocument, _JsonError
from toolfold.config.toml import TomlPositions
from toolfold.config.validation import KeyPath

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCALAR = TEXT | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
VALUE: st.SearchStrategy[Any] = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=12
)
TABLE = st.dictionaries(TEXT, VALUE, max_size=5)


@pytest.mark.requirement("G-03")
@given(content=TABLE, name=TEXT)
def test_whatever_is_written_as_toml_is_read_back_the_same(content: dict[str, Any], name: str) -> None:
    assert tomllib.loads(tomlwrite.format_table(("servers", name), content)) == {"servers": {name: content}}


@pytest.mark.parametrize("wrong", [None, object(), {"a": None}, "\ud800"])
def test_what_toml_has_no_form_for_is_refused(wrong: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        tomlwrite._value(wrong)


def all_paths(value: Any, path: KeyPath = ()) -> list[KeyPath]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found: list[KeyPath] = [path] if path else []
    for key, inner in items:
        found += all_paths(inner, (*path, key))
    return found


@pytest.mark.requirement("G-06")
@given(content=TABLE)
@settings(deadline=None)
def test_every_key_of_a_toml_text_has_its_true_place(content: dict[str, Any]) -> None:
    text = tomlwrite.format_table(("root",), content)
    places = TomlPositions(text)
    for path in all_paths({"root": content}):
        offset = places.scan.offsets[path]
        last = path[-1]
        if isinstance(last, str):
            rest = text[offset:]
            assert rest.startswith((tomlwrite._key(last), "root"))
    assert set(places.scan.offsets) == set(all_paths({"root": content}))


def test_places_are_found_in_toml_as_people_write_it() -> None:
    text = '''# comment with [brackets] = "x"
top . "dotted key".'lit' = 1
text = """
[not.a.table]
key = 'no'
"""""
raw = \'\'\'
# no \'\' comment\'\'\' # yes
list = [ # why
  [1, 2], { a = "]", b.c = [3] }, "}",
]
  [ a . b ]
x = 2020-01-01T00:00:00Z
[[a.items]]
n = 1
[[a.items]]
n = 2
[a.items.sub]
k = "\\"[x]\\""
'''.replace("\n", "\r\n")
    data = tomllib.loads(text)
    places = TomlPositions(text)
    for path, place in {
        ("top",): (2, 1),
        ("top", "dotted key", "lit"): (2, 20),
        ("text",): (3, 1),
        ("raw",): (7, 1),
        ("list",): (9, 1),
        ("list", 0, 1): (10, 7),
        ("list", 1, "b", "c"): (10, 24),
        ("list", 2): (10, 35),
        ("a", "b"): (12, 5),
        ("a", "b", "x"): (13, 1),
        ("a", "items", 0, "n"): (15, 1),
        ("a", "items", 1, "n"): (17, 1),
        ("a", "items", 1, "sub", "k"): (19, 1),
    }.items():
        assert places.locate(path) == place, path
    assert set(all_paths(data)) == set(places.scan.offsets)
    assert [header.path for header in places.scan.headers] == [
        ("a", "b"),
        ("a", "items", 0),
        ("a", "items", 1),
        ("a", "items", 1, "sub"),
    ]


@given(text=st.text(alphabet="[]{}\"'=.,#a1 \n\\", max_size=60))
@example("a=[}")
@example("a={b=[}]")
@example('"\\1"=1')
def test_any_text_can_be_scanned_for_places(text: str) -> None:
    TomlPositions(text)


def commented(value: Any, draw: Any) -> str:
    """JSON with blanks, comments and trailing commas wherever they may stand."""
    gap = draw(st.sampled_from(["", " ", "\n", '// c "}\n', "/* , ] */", "\t\r\n"]))
    if isinstance(value, dict):
        body = ",".join(f"{gap}{json.dumps(k)}{gap}:{gap}{commented(v, draw)}{gap}" for k, v in value.items())
        return f"{{{body}{',' if value and draw(st.booleans()) else ''}{gap}}}"
    if isinstance(value, list):
        body = ",".join(f"{gap}{commented(item, draw)}" for item in value)
        return f"[{body}{',' if value and draw(st.booleans()) else ''}{gap}]"
    return f"{json.dumps(value)}{gap}"


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.requirement("G-06")
@given(value=JSON, data=st.data())
@settings(deadline=None)
def test_json_with_comments_is_read_and_every_place_in_it_is_true(value: Any, data: st.DataObject) -> None:
    text = commented(value, data.draw)
    document = _JsonDocument(text)
    assert document.value == value
    for path in all_paths(value):
        span = document.span(path)
        assert span is not None
        inner = value
        for part in path:
            inner = inner[part]
        assert _JsonDocument(text[span[0] : span[1]]).value == inner
        line, column = document.locate(path) or (0, 0)
        rest = "\n".join(text.split("\n")[line - 1 :])[column - 1 :]
        assert isinstance(path[-1], int) or rest.startswith(json.dumps(path[-1]))


@given(text=st.text(alphabet='{}[]",:/*\\ntrue1-. \n', max_size=40))
def test_any_text_is_json_or_a_json_error_and_plain_json_is_never_refused(text: str) -> None:
    try:
        expected = json.loads(text)
    except (ValueError, RecursionError):
        expected = None
    offset, found = 0, None
    try:
        found = _JsonDocument(text).value
    except _JsonError as error:
        offset = error.offset
    assert 0 <= offset <= len(text)
    assert expected is None or found == expected


@given(name=st.text(), suffix=st.sampled_from(["", "cursor", "mcp-json"]))
def test_a_cleaned_name_is_valid_and_stays_as_it_is(name: str, suffix: str) -> None:
    clean = names.clean_name(name)
    assert names.is_valid_name(clean)
    assert names.clean_name(clean) == clean
    taken: set[str] = set()
    for _ in range(4):
        unique = _unique_name(clean, taken, suffix)
        assert names.is_valid_name(unique)
        assert unique.casefold() not in taken
        taken.add(unique.casefold())


def test_names_are_cleaned_in_a_readable_way() -> None:
    assert names.clean_name("Café Münster") == "Cafe-Munster"
    assert names.clean_name("io.github.user/server") == "io-github-user-server"
    assert len(names.clean_name("x" * 100)) == names.MAX_NAME_LENGTH
