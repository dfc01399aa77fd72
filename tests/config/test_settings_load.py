"""Settings: what is read, from where, and how wrong files are answered."""

import os
from pathlib import Path

import pytest

from toolfold.config import Limits, MetadataRule, Policy, Settings
from toolfold.errors import ConfigError

SERVER = '[servers.git]\ncommand = "mcp-server-git"\nargs = ["--repository", "."]\n'


def load(folder: Path, text: str | bytes, name: str = "toolfold.toml", **environ: str) -> Settings:
    data = text.encode() if isinstance(text, str) else text
    (folder / name).write_bytes(data)
    return Settings.load(folder / name, environ={"HOME": str(folder / "home"), **environ}, cwd=folder)


def refused(folder: Path, text: str | bytes, name: str = "toolfold.toml", **environ: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(folder, text, name, **environ)
    return caught.value


@pytest.mark.requirement("G-06")
def test_every_key_of_the_documented_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "ontology.toml").write_text("")
    settings = load(
        tmp_path,
        """
        [servers.git]
        command = "mcp-server-git"
        args = ["--repository", "."]
        env = { LEVEL = "debug" }
        call_timeout_s = 5
        [servers.shop]
        url = "https://shop.example/mcp"
        headers = { "X-Team" = "a" }
        bearer_token = "${SHOP_TOKEN}"
        [servers.pets]
        openapi = "pets.yaml"
        base_url = "http://127.0.0.1:9000"
        [servers.local]
        functions = "my_tools.math"
        enabled = false
        [limits]
        tool_response_max_bytes = 4096
        call_timeout_s = 7.5
        [outputs]
        directory = "out"
        max_chunks_for_full_mode = 2
        average_line_bytes = 500
        chunk_overlap_percent = 0
        [model]
        name = "openai:some-model"
        [policy.default]
        allow = ["**"]
        confirm = ["risk:destructive"]
        [tools."git.*"]
        cost = 2
        risk = "destructive"
        access = ["admins"]
        tags = ["vcs", "code"]
        [ontology]
        file = "ontology.toml"
        """,
    )
    git, shop, pets, local = settings.servers
    assert (git.transport, git.command, git.args, git.env) == (
        "stdio",
        "mcp-server-git",
        ("--repository", "."),
        {"LEVEL": "debug"},
    )
    assert (git.call_timeout_s, git.start_timeout_s, git.cwd) == (5.0, 30.0, str(tmp_path))
    assert (shop.transport, shop.url, shop.call_timeout_s) == ("http", "https://shop.example/mcp", None)
    assert shop.headers == {"X-Team": "a", "Authorization": "Bearer ${SHOP_TOKEN}"}
    assert (pets.transport, pets.document, pets.url) == (
        "openapi",
        str(tmp_path / "pets.yaml"),
        "http://127.0.0.1:9000",
    )
    assert (local.transport, local.document, local.enabled) == ("functions", "my_tools.math", False)
    assert settings.limits == Limits(tool_response_max_bytes=4096, call_timeout_s=7.5)
    assert settings.outputs.directory == str(tmp_path / "out")
    assert settings.model.name == "openai:some-model"
    assert settings.policies == (Policy(name="default", allow=("**",), confirm=("risk:destructive",)),)
    assert settings.rules == (MetadataRule("git.*", 2.0, ("destructive",), ("admins",), ("vcs", "code")),)
    assert settings.ontology_file == tmp_path / "ontology.toml"
    assert settings.sources == (tmp_path / "toolfold.toml",)


@pytest.mark.requirement("G-06")
def test_all_errors_of_a_file_come_together_with_line_key_and_fix(tmp_path: Path) -> None:
    error = refused(
        tmp_path,
        '[servers.git]\ncomand = "x"\n[limits]\ncall_timeout_s = -1\nparallel_starts = "many"\n\n[limts]\n',
    )
    file = tmp_path / "toolfold.toml"
    assert error.hints == (
        f"{file}:2:1: servers.git.comand: unknown key. Did you mean `command`?",
        f"{file}:4:1: limits.call_timeout_s: -1 is out of bounds. Give a number from 0.1 to 86_400 seconds.",
        f'{file}:5:1: limits.parallel_starts: expected a whole number, found the string "many". '
        "Give a whole number from 1 to 1_024 servers, without quotes.",
        f"{file}:7:2: limts: unknown key. Did you mean `limits`?",
    )
    assert error.message.startswith(error.hints[0])
    assert "3 more problems" in error.message
    assert error.next_action == "Did you mean `command`?"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("call_timeout_s = 0", "out of bounds"),
        ("call_timeout_s = nan", "found nan"),
        ("call_timeout_s = inf", "found inf"),
        ("call_timeout_s = 1e300", "out of bounds"),
        ("call_timeout_s = true", "found true"),
        ("call_timeout_s = 2020-01-01", "a date or time"),
        ("max_frame_bytes = 1" + "0" * 400, "a huge number"),
        ("max_frame_bytes = 70000.5", "expected a whole number"),
        ("tool_response_max_bytes = []", "found a list"),
    ],
)
@pytest.mark.requirement("G-06")
def test_a_nonsense_value_is_refused_with_its_bounds(tmp_path: Path, line: str, says: str) -> None:
    error = refused(tmp_path, f"{SERVER}[limits]\n{line}\n")
    assert says in error.message
    assert " from " in error.message
    assert ":5:1: limits." in error.message


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('command = "a"\nurl = "http://x/"', "has `command` and `url`"),
        ("", "does not say what to connect to"),
        ('command = ["a", "b"]', "Put all but the first into `args`"),
        ('command = ""', "the string is empty"),
        ('command = "a\\u0000"', "cannot be passed on"),
        ('command = "a"\nargs = "b"', "expected a list of strings"),
        ('command = "a"\nargs = [1]', "args[0]: expected a string, found a number"),
        ('command = "a"\nenv = { A = 1 }', "env.A: expected a string"),
        ('command = "a"\nenv = { "A=B" = "1" }', "cannot hold '='"),
        ('command = "a"\nheaders = { A = "b" }', "has no meaning for a server with `command`"),
        ('command = "a"\ntype = "http"', "does not fit `command`"),
        ('command = "a"\ntype = "carrier-pigeon"', "Use stdio, http, sse or streamable-http"),
        ('command = "a"\ntimeout = 3', "Did you mean `call_timeout_s`?"),
        ('url = "shop.example"', "not an http or https address"),
        ('url = "http://x/"\nheaders = { "A B" = "c" }', "not a name for a header"),
        ('url = "http://x/"\nheaders = { A = "b\\nc" }', "has a line break"),
        ('url = "http://x/"\nbearer_token = "t"\nheaders = { authorization = "b" }', "Keep one of the two"),
        ('url = "http://x/"\nauth = "t"\noauth = {}', "Keep the token or `oauth`"),
        ('functions = "not a module"', "not the name of a Python file or module"),
        ('enabled = "yes"\ncommand = "a"', "expected true or false"),
    ],
)
def test_a_wrong_server_table_is_refused_with_the_fix(tmp_path: Path, table: str, says: str) -> None:
    error = refused(tmp_path, f"[servers.a]\n{table}\n")
    assert says in " ".join(error.hints)
    assert error.next_action


def test_an_error_never_repeats_what_may_be_a_secret(tmp_path: Path) -> None:
    error = refused(
        tmp_path,
        '[servers.a]\nurl = "hunter2secret"\n[servers.b]\ncommand = "x"\nenv = "hunter2secret"\n'
        '[servers.c]\nurl = "http://x/"\nheaders = { A = "hunter2secret\\n" }\nbearer_token = ["hunter2secret"]\n',
    )
    assert len(error.hints) == 4
    assert "hunter2" not in str(error.as_dict())


@pytest.mark.parametrize(
    ("name", "clean"), [("my server", "my-server"), ("a.b", "a-b"), ("", "server-"), ("toolbox", "toolbox-server")]
)
def test_a_server_name_that_cannot_start_a_tool_id_is_refused_with_one_that_can(
    tmp_path: Path, name: str, clean: str
) -> None:
    error = refused(tmp_path, f'[servers."{name}"]\ncommand = "x"\n')
    assert f"Use `{clean}" in error.message


def test_two_names_that_differ_in_case_are_refused(tmp_path: Path) -> None:
    error = refused(tmp_path, '[servers.git]\ncommand = "x"\n[servers.Git]\ncommand = "y"\n')
    assert ":3:" in error.message
    assert "the same server name as `git`" in error.message


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"[servers.git\n", ":1:"),
        (b'a = "\xff"', "not UTF-8"),
        ("a = 1".encode("utf-16"), "UTF-16"),
        (b"x = " + b"[" * 20_000, "not"),
        (b"x = 1" + b"0" * 5000, "too many digits"),
        (b"", "names no servers"),
        (b"[servers]", "names no servers"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, data: bytes, says: str) -> None:
    error = refused(tmp_path, data)
    assert says in error.message or "deep" in error.message
    assert error.next_action


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    settings = load(tmp_path, b"\xef\xbb\xbf" + SERVER.replace("\n", "\r\n").encode())
    assert settings.servers[0].name == "git"
    error = refused(tmp_path, b"\xef\xbb\xbf" + (SERVER + "[limits]\nx = 1\n").replace("\n", "\r\n").encode())
    assert ":5:1: limits.x" in error.message


def test_a_folder_a_missing_file_and_a_pipe_are_refused(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    with pytest.raises(ConfigError, match="is a directory"):
        Settings.load(tmp_path, environ=environ)
    with pytest.raises(ConfigError, match="there is no file"):
        Settings.load(tmp_path / "none.toml", environ=environ)
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(ConfigError, match="not a regular file"):
        Settings.load(tmp_path / "pipe.toml", environ=environ)
    with pytest.raises(ConfigError, match="cannot be read"):
        Settings.load("a\0b.toml", environ=environ, cwd=tmp_path)


@pytest.mark.requirement("G-06")
def test_the_first_file_of_the_search_order_is_read(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "work" / "shop"
    (home / ".toolfold").mkdir(parents=True)
    project.mkdir(parents=True)
    environ = {"HOME": str(home), "TOOLFOLD_TRUST_PROJECT": "1"}
    with pytest.raises(ConfigError, match="no configuration") as caught:
        Settings.load(environ=environ, cwd=project)
    assert len(caught.value.hints) == 4
    assert "toolfold import" in caught.value.next_action
    assert Settings.load(environ=environ, cwd=project, require_servers=False).servers == ()

    seen = []
    for place in (home / ".toolfold" / "toolfold.toml", project / "mcp.json", project / ".mcp.json"):
        place.write_text('{"mcpServers": {"a": {"command": "x"}}}' if place.suffix == ".json" else SERVER)
        seen.append(Settings.load(environ=environ, cwd=project).sources)
    (project / "toolfold.toml").write_text(SERVER)
    seen.append(Settings.load(environ=environ, cwd=project).sources)
    own = home / ".toolfold" / "toolfold.toml"
    here = [project / name for name in ("mcp.json", ".mcp.json", "toolfold.toml")]
    assert seen == [(own,), (own, here[0]), (own, here[1]), (here[2],)]
    assert Settings.load(project / "mcp.json", environ=environ, cwd=tmp_path).sources == (project / "mcp.json",)


def test_state_lives_in_the_users_home_and_apart_for_each_project(tmp_path: Path) -> None:
    home = tmp_path / "home"
    homes = []
    for folder in (tmp_path / "a" / "shop", tmp_path / "b" / "shop"):
        folder.mkdir(parents=True)
        (folder / "toolfold.toml").write_text(SERVER)
        (folder / "other.toml").write_text(SERVER)
        homes += [
            Settings.load(folder / name, environ={"HOME": str(home)}, cwd=tmp_path)
            for name in ("toolfold.toml", "other.toml")
        ]
    paths = [settings.home for settings in homes]
    assert len(set(paths)) == 4
    assert all(path.parent == home / ".toolfold" / "projects" and path.name.startswith("shop-") for path in paths)
    assert homes[0].project == tmp_path / "a" / "shop"
    assert not home.exists()

    named = Settings.load(
        tmp_path / "a" / "shop" / "toolfold.toml", environ={"TOOLFOLD_HOME": "~/tf", "HOME": str(home)}
    )
    assert named.home == home / "tf"
    explicit = Settings.load(tmp_path / "a" / "shop" / "toolfold.toml", home="here", environ={}, cwd=tmp_path)
    assert explicit.home == tmp_path / "here"


def test_the_users_own_file_keeps_its_state_beside_it_and_runs_servers_where_one_stands(tmp_path: Path) -> None:
    (tmp_path / ".toolfold").mkdir()
    (tmp_path / ".toolfold" / "toolfold.toml").write_text(SERVER)
    settings = Settings.load(environ={"HOME": str(tmp_path)}, cwd=tmp_path / ".toolfold")
    assert (settings.home, settings.project, settings.servers[0].cwd) == (tmp_path / ".toolfold", None, None)


def test_relative_paths_in_the_users_own_file_start_at_its_folder_wherever_one_stands(tmp_path: Path) -> None:
    own = tmp_path / ".toolfold"
    own.mkdir()
    (own / "toolfold.toml").write_text(
        '[servers.a]\nopenapi = "pets.yaml"\n[servers.b]\ncommand = "x"\nenv_file = "b.env"\ncwd = "work"\n'
    )
    (tmp_path / "elsewhere").mkdir()
    first, second = Settings.load(environ={"HOME": str(tmp_path)}, cwd=tmp_path / "elsewhere").servers
    assert first.document == str(own / "pets.yaml")
    assert (second.env_file, second.cwd) == (str(own / "b.env"), str(own / "work"))


@pytest.mark.requirement("G-06")
def test_the_environment_overrides_settings_and_is_checked(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        SERVER + "[limits]\ncall_timeout_s = 5\n",
        TOOLFOLD_LIMITS__CALL_TIMEOUT_S="30",
        TOOLFOLD_LIMITS__START_TIMEOUT_S="9",
        TOOLFOLD_MODEL__NAME="a:b",
        TOOLFOLD_INPUT_SOME__THING="x",
    )
    assert (settings.limits.call_timeout_s, settings.limits.start_timeout_s, settings.model.name) == (30, 9, "a:b")
    assert (settings.servers[0].call_timeout_s, settings.servers[0].start_timeout_s) == (None, 9)
    wrong = refused(tmp_path, SERVER, TOOLFOLD_LIMITS__CALL_TIMEOUT_S="soon")
    assert "environment: TOOLFOLD_LIMITS__CALL_TIMEOUT_S: expected a number" in wrong.message
    typo = refused(tmp_path, SERVER, TOOLFOLD_LIMITS__CAL_TIMEOUT="3")
    assert "Did you mean TOOLFOLD_LIMITS__CALL_TIMEOUT_S?" in typo.message


def test_a_missing_ontology_file_is_told(tmp_path: Path) -> None:
    error = refused(tmp_path, SERVER + '[ontology]\nfile = "none.toml"\n')
    assert ":5:1: ontology.file: there is no file" in error.message
    assert "there is no file" in refused(tmp_path, SERVER, TOOLFOLD_ONTOLOGY__FILE="none.toml").message


def test_a_server_is_found_by_name_and_a_wrong_name_is_answered_with_the_nearest(tmp_path: Path) -> None:
    settings = load(tmp_path, SERVER)
    assert settings.server("GIT") is settings.servers[0]
    with pytest.raises(ConfigError) as caught:
        settings.server("gut")
    assert "'git'" in caught.value.next_action
