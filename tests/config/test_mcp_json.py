"""An `mcp.json` of any client is read as it is."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from toolfold.config import Settings
from toolfold.config import toml as tomlwrite
from toolfold.errors import ConfigError


def load(folder: Path, text: str, name: str = "mcp.json") -> Settings:
    (folder / name).write_text(text, "utf-8")
    return Settings.load(folder / name, environ={"HOME": str(folder)}, cwd=folder)


@pytest.mark.requirement("G-06")
def test_comments_trailing_commas_and_every_clients_extra_keys_are_taken(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        """{
          // the servers
          "mcpServers": {
            "files": {"type": "stdio", "command": "npx", "args": ["-y", "server", "${workspaceFolder}/src"],
                      "env": {"PORT": 8080, "DEBUG": true}, "autoApprove": ["read"], "disabled": false},
            "web": {"type": "streamable-http", "url": "https://x.example/mcp", /* secret */
                    "headers": {"Authorization": "Bearer ${env:TOKEN}"}, "timeout": 60,},
            "old": {"type": "sse", "serverUrl": "https://x.example/sse", "disabled": true},
          },
        }""",
    )
    files, web, old = loaded.servers
    assert files.args == ("-y", "server", f"{tmp_path}/src")
    assert files.env == {"PORT": "8080", "DEBUG": "true"}
    assert files.cwd == str(tmp_path)
    assert (web.transport, web.headers) == ("http", {"Authorization": "Bearer ${env:TOKEN}"})
    assert (old.url, old.enabled) == ("https://x.example/sse", False)
    assert loaded.warnings == ()


def test_vs_codes_servers_and_the_defaults_of_its_inputs_are_read(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        """{"inputs": [{"id": "key", "type": "promptString", "password": true}, {"id": "lang", "default": "en"}],
            "servers": {"a": {"command": "x", "env": {"K": "${input:key}", "L": "${input:lang}"},
                              "envFile": "${workspaceFolder}/.env"}}}""",
    )
    assert loaded.servers[0].env == {"K": "${input:key}", "L": "${input:lang:-en}"}
    assert loaded.servers[0].env_file == f"{tmp_path}/.env"


def test_a_file_in_an_editors_folder_belongs_to_the_project_around_it(tmp_path: Path) -> None:
    (tmp_path / ".vscode").mkdir()
    loaded = load(tmp_path, '{"servers": {"a": {"command": "x"}}}', ".vscode/mcp.json")
    assert (loaded.project, loaded.servers[0].cwd) == (tmp_path, str(tmp_path))


@pytest.mark.requirement("G-06")
def test_an_unknown_key_is_a_warning_and_a_strange_name_is_cleaned(tmp_path: Path) -> None:
    loaded = load(tmp_path, '{"mcpServers": {"my server": {"command": "x",\n"arg": [1]}}}')
    assert loaded.servers[0].name == "my-server"
    clean, unknown = loaded.warnings
    assert "the server is called `my-server` here" in clean
    assert ':2:1: mcpServers."my server".arg: unknown key. Did you mean `args`?' in unknown


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty"),
        ("{", ":1:2: not valid JSON: expected a key"),
        ('{\n  "mcpServers": {"a": }\n}', ":2:23: not valid JSON: expected a value, found '}'"),
        ("{} x", "something after the end"),
        ("{/*", "a comment is not closed"),
        ("[1]", "there is no `mcpServers`"),
        ("{}", "there is no `mcpServers`"),
        ('{"mcpServers": {}}', "names no servers"),
        ('{"mcpServers": []}', "expected a table, found a list"),
        ('{"mcpServers": {"a": 3}}', "mcpServers.a: expected a table, found a number"),
        ('{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', "the server stands twice"),
        ('{"mcpServers": {"A b": {"command": "x"}, "a-b": {"command": "y"}}}', "the same server name as `A b`"),
        ('{"mcpServers": {"a": {"command": "\\ud800"}}}', "cannot be passed on"),
        ('{"mcpServers": {"a": {"command": NaN}}}', "expected a value, found 'N'"),
        ("[" * 100_000, "nesting is deeper"),
        ('{"a":' * 5_000, "nesting is deeper"),
    ],
)
def test_a_wrong_file_says_where_and_what_would_be_right(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert says in caught.value.message
    assert caught.value.next_action


def test_a_large_file_is_read_the_same_way(tmp_path: Path) -> None:
    filler = json.dumps({"history": ["x" * 100] * 5000, "mcpServers": {"a": {"command": "x"}}})
    assert load(tmp_path, filler).servers[0].command == "x"
    assert load(tmp_path, "// a comment\n" + filler).servers[0].command == "x"
    with pytest.raises(ConfigError, match="nesting is deeper"):
        load(tmp_path, "[" * 400_000)
    broken = filler.replace('{"a": {"command": "x"}}', '{"a": {"command": 1}}')
    with pytest.raises(ConfigError, match=r":1:\d+: mcpServers\.a\.command: expected a string"):
        load(tmp_path, broken)


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = ["command", "args", "env", "url", "type", "headers", "cwd", "disabled", "timeout", "auth", "envFile", "x"]
SERVERS = st.dictionaries(
    st.text(max_size=6), JSON | st.dictionaries(st.sampled_from(KEYS), JSON | st.text()), max_size=3
)
TEXTS = (
    st.text()
    | JSON.map(json.dumps)
    | SERVERS.map(lambda servers: json.dumps({"mcpServers": servers}))
    | SERVERS.map(lambda servers: json.dumps({"servers": servers, "inputs": list(servers.values())}))
)


@pytest.mark.requirement("G-06")
@given(text=TEXTS)
@example('{"mcpServers": {"a": {"transport": {"type": 3}, "command": "x"}}}')
@example('{"mcpServers": {"a": {"url": "http://[", "type": "http"}}}')
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_gives_settings_or_a_config_error_and_nothing_else(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mcp.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    assert printable_outcome(path)


def printable_outcome(path: Path) -> str:
    """What loading says: the settings or the error, as text that any terminal can take."""
    try:
        said = repr(Settings.load(path, environ={"HOME": str(path.parent)}, cwd=path.parent))
    except ConfigError as error:
        said = f"{error.message} {error.hints} {error.next_action}"
        json.dumps(error.as_dict())
    said.encode()
    return said


TOML_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
TOML_VALUE: st.SearchStrategy[Any] = st.recursive(
    TOML_TEXT | st.booleans() | st.integers() | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TOML_TEXT, inner, max_size=3),
    max_leaves=6,
)
TOML_KEYS = st.sampled_from([*KEYS, "openapi", "functions", "allow", "cost", "risk", "call_timeout_s", "file", "name"])
TOML_TABLE = st.dictionaries(TOML_KEYS | TOML_TEXT, TOML_VALUE, max_size=4)
TOML_FILE = st.fixed_dictionaries(
    {"servers": st.dictionaries(TOML_TEXT, TOML_TABLE, max_size=3)},
    optional={
        "limits": TOML_TABLE,
        "outputs": TOML_TABLE,
        "model": TOML_TABLE,
        "ontology": TOML_TABLE,
        "policy": st.dictionaries(TOML_TEXT, TOML_TABLE, max_size=2),
        "tools": st.dictionaries(TOML_TEXT, TOML_TABLE, max_size=2),
        "limts": TOML_TABLE,
    },
)


@pytest.mark.requirement("G-06")
@given(content=TOML_FILE)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_toml_gives_settings_or_a_config_error_and_nothing_else(tmp_path: Path, content: dict[str, Any]) -> None:
    path = tmp_path / "toolfold.toml"
    path.write_text("\n".join(tomlwrite.format_table((name,), table) for name, table in content.items()), "utf-8")
    assert printable_outcome(path)


@given(data=st.binary(max_size=200))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_give_settings_or_a_config_error(tmp_path: Path, data: bytes) -> None:
    for name in ("toolfold.toml", "mcp.json", "settings"):
        (tmp_path / name).write_bytes(data)
        assert printable_outcome(tmp_path / name)


def test_the_bodies_of_a_json_test_suite_never_break_the_reader(shared_data: Path, tmp_path: Path) -> None:
    bodies = sorted((shared_data / "suites" / "json-test-suite").rglob("*.json"))
    assert len(bodies) > 200
    for body in bodies:
        with pytest.raises(ConfigError):
            Settings.load(body, environ={"HOME": str(tmp_path)}, cwd=tmp_path)
