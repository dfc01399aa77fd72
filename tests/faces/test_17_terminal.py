"""What a person sees of the command line: arguments by name, guesses, words beside figures, help, completion."""

import io
import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import fork_server
from toolfold import tokens
from toolfold.__main__ import main
from toolfold.errors import ConfigError, InvalidArguments
from toolfold.faces.cli.arguments import parse_arguments
from toolfold.faces.cli.catalogue import fit_text
from toolfold.faces.cli.completion import SCRIPTS
from toolfold.faces.cli.parser import EXAMPLES, build_parser, parse
from toolfold.faces.cli.terminal import Output

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `toolfold demo --keep` leaves, in a home of its own, and its catalogue."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.delenv("TOOLFOLD_HOME", raising=False)
        patch.chdir(home)
        assert main(["demo", "--keep", "kept", "--json"]) == 0
        patch.chdir(home / "kept")
        assert main(["build"]) == 0
    return home / "kept"


@pytest.fixture
def run(kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(kept)
    monkeypatch.setenv("HOME", str(kept.parent))
    monkeypatch.delenv("TOOLFOLD_HOME", raising=False)

    def command(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def on_terminal(*arguments: str, columns: int, env: dict[str, str] | None = None, until: str = "") -> str:
    """What the command writes to a real terminal of so many columns; it is ended when it wrote `until`."""
    parent, child = pty.openpty()
    termios.tcsetwinsize(child, (50, columns))
    environment = {**os.environ, "TERM": "xterm", **(env or {})}
    command = [sys.executable, "-m", "toolfold", *arguments]
    with fork_server.Popen(command, stdin=child, stdout=child, stderr=subprocess.DEVNULL, env=environment) as process:
        os.close(child)
        shown = b""
        while True:
            try:
                data = os.read(parent, 65536)
            except OSError:  # how a terminal says that nobody writes any more
                break
            if not data:
                break
            shown += data
            if until and until.encode() in shown:
                process.terminate()
        process.wait(60)
    os.close(parent)
    return shown.decode().replace("\r\n", "\n")


SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "limit": {"type": "integer"},
            "ratio": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "path": {"type": "string"},
            "all": {"$ref": "#/$defs/Flag"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "ids": {"type": "array", "items": {"type": "integer"}},
            "filter": {"type": "object", "properties": {"state": {"type": "string"}, "page": {"type": "integer"}}},
            "a.b": {"type": "string"},
            "free": {},
        },
        "additionalProperties": False,
        "$defs": {"Flag": {"type": "boolean"}},
    }
).encode()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("limit=3", {"limit": 3}),
        ("path=3", {"path": "3"}),
        ("path=", {"path": ""}),
        ("path=a=b", {"path": "a=b"}),
        ("all=true ratio=0.5", {"all": True, "ratio": 0.5}),
        ("ratio=null", {"ratio": None}),
        ("tags=a tags=b", {"tags": ["a", "b"]}),
        ("ids=1 ids=2", {"ids": [1, 2]}),
        ("ids=[1,2]", {"ids": [1, 2]}),
        ("filter.state=open filter.page=2", {"filter": {"state": "open", "page": 2}}),
        ('filter={"state":"open"}', {"filter": {"state": "open"}}),
        ('path:="x" free:=[1]', {"path": "x", "free": [1]}),
        ("a.b=c", {"a.b": "c"}),
        ("free=1", {"free": 1}),
        ("free=one", {"free": "one"}),
    ],
)
def test_17_arguments_by_name_are_typed_by_the_schema(words: str, wanted: dict[str, object]) -> None:
    assert parse_arguments(words.split(" "), SCHEMA) == wanted


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("limit=x", "limit=x: limit is a whole number"),
        ("limit=1.5", "limit is a whole number"),
        ("all=yes", "all is true or false"),
        ("limt=3", "there is no argument limt; did you mean limit?"),
        ("filter.stat=x", "there is no argument filter.stat; did you mean state?"),
        ("path:=x", "path:=x is no JSON"),
        ("limit=1 limit=2", "limit stands twice"),
        ("filter=1", "filter is a JSON object"),
        ("path=x path.y=1", "path has a value already"),
        ("3", "'3' is no argument"),
        (".".join("a" * 40) + "=1", "nested too deep"),
    ],
)
def test_17_what_is_wrong_with_an_argument_is_told_with_its_key(words: str, message: str) -> None:
    with pytest.raises(InvalidArguments) as raised:
        parse_arguments(words.split(" "), SCHEMA)
    assert message in raised.value.message
    assert raised.value.next_action


def test_19_a_key_of_the_body_is_told_with_its_path() -> None:
    body = b'{"type": "object", "properties": {"title": {"type": "string"}}}'
    schema = b'{"type": "object", "properties": {"body": %s}, "additionalProperties": false}' % body
    with pytest.raises(InvalidArguments) as raised:
        parse_arguments(["title=Neu"], schema)
    assert raised.value.next_action == "write body.title=…; it takes body"
    assert parse_arguments(["body.title=Neu"], schema) == {"body": {"title": "Neu"}}


def test_17_nesting_is_bounded_where_the_schema_allows_anything() -> None:
    with pytest.raises(InvalidArguments, match="nested too deep"):
        parse_arguments([".".join("a" * 40) + "=1"], b"{}")
    with pytest.raises(InvalidArguments, match="no JSON"):
        parse_arguments(["a:=" + "[" * 100_000], b"{}")


def test_17_a_call_takes_names_and_values_or_json(run: Run) -> None:
    by_name, by_json = run("call", "git.log", "limit=1"), run("call", "git.log", '{"limit": 1}')
    assert by_name[:2] == by_json[:2]
    assert by_name[0] == 0
    code, _, err = run("call", "git.log", "limit=x")
    assert code == 4
    assert err.startswith("error: limit=x: limit is a whole number\nnext: ")


def test_17_the_first_command_that_needs_a_catalogue_builds_it(run: Run, tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    code, out, err = run("search", "list the commits of a branch", "--home", state)
    assert (code, "git.log" in out) == (0, True)
    assert err.startswith("there is no catalogue yet: building it from git, files, sqlite\n")
    assert "building" not in run("search", "list the commits of a branch", "--home", state)[2]
    called = run("call", "git.log", "limit=1", "--home", str(tmp_path / "other"), "--json")
    assert json.loads(called[1])["content"]


def test_17_without_servers_there_is_nothing_to_build(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = run("tree", "--home", str(tmp_path / "state"))
    assert code == 4
    assert "toolfold import" in err
    assert not (tmp_path / "state").exists()


def test_17_build_demo_and_stats_say_what_it_means(run: Run, tmp_path: Path) -> None:
    sentence = re.compile(r"17 tools, ([\d,]+) tokens; your client now reads ([\d,]+)\n")
    out = run("build")[1]
    found = sentence.search(out)
    assert found is not None
    report = json.loads(run("build", "--json")[1])
    figures = [f"{report['definition_tokens']:,}", f"{report['client_tokens']:,}"]
    assert list(found.groups()) == figures
    shown = sentence.search(run("stats")[1])
    assert shown is not None
    assert list(shown.groups()) == figures
    demo = sentence.search(run("demo")[1])
    assert demo is not None
    assert demo[2] == figures[1]


def test_17_import_says_what_it_means(run: Run, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    (home / ".cursor").mkdir(parents=True)
    server = {"command": sys.executable, "args": ["-P", "-m", "toolfold.demo.files", str(kept / "data" / "files")]}
    (home / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": {"files": server}}), encoding="utf-8")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    out = run("import", "cursor", "--yes", "--replace")[1]
    assert re.search(r"^6 tools, [\d,]+ tokens; your client now reads [\d,]+$", out, re.MULTILINE)


def test_17_what_the_client_reads_is_what_it_is_sent(kept: Path, run: Run) -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
    requests: list[dict[str, object]] = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
    ]
    report = json.loads(run("build", "--json")[1])
    serve = [sys.executable, "-m", "toolfold", "serve"]
    process: Any = fork_server.Popen(serve, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=kept)
    with process as served:
        answers = []
        for request in requests:
            served.stdin.write(json.dumps({"jsonrpc": "2.0", **request}).encode() + b"\n")
            served.stdin.flush()
            if "id" in request:
                answers.append(json.loads(served.stdout.readline())["result"])
        served.stdin.close()
        served.wait(30)
    listed = msgspec.json.encode(answers[1]["tools"]).decode()
    # While the catalogue is looked at, the instructions are those that fit any surface: some words more.
    rest = report["client_tokens"] - tokens.count(listed)
    assert 0 < rest <= tokens.count(answers[0]["instructions"])


@pytest.mark.parametrize(
    ("confidence", "shown"),
    [
        (1.0, "by name"),
        (0.72, "strong 72%"),
        (0.6, "strong 60%"),
        (0.59, "fair 59%"),
        (0.3, "fair 30%"),
        (0.29, "possible 29%"),
        (0.1, "possible 10%"),
        (0.02, "unlikely 2%"),
    ],
)
def test_17_a_word_stands_beside_each_figure(confidence: float, shown: str) -> None:
    assert fit_text(confidence) == shown


@pytest.mark.parametrize("query", ["commits", "read a file", "git log", "which customers ordered most", "find text"])
def test_17_hits_stand_in_the_order_of_their_figures(run: Run, query: str) -> None:
    found = [hit["confidence"] for hit in json.loads(run("search", query, "--json")[1])["results"]]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["serach", "x"], "there is no command 'serach'; did you mean search?"),
        (["search", "x", "--limt", "3"], "unknown: --limt 3; did you mean --limit?"),
        (["search", "x", "--limt=3"], "did you mean --limit?"),
        (["--jsno", "tree"], "did you mean --json?"),
        (["serve", "--profile", "drect"], "there is no choice of --profile 'drect'; did you mean direct?"),
    ],
)
def test_17_a_mistyped_word_is_answered_with_the_nearest(typed: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(typed)
    assert message in raised.value.message
    assert "--help" in raised.value.next_action


MODEL_WORDS = re.compile(
    r"\b(expand_tool|call_tool|search_tool_by_category|search_nodes|inspect_tool_output|tool_output|run_script|next_action|hints)\b"
)


@pytest.mark.parametrize(
    "typed",
    [
        ["call", "git.lgo"],
        ["expand", "git.lgo"],
        ["call", "files.read"],
        ["search", "water the plants on the balcony of my aunt", "--in", "Coding"],
        ["list", "--cursor", "nonsense"],
        ["inspect-output", "git.log", "no.such"],
        ["output", "3e9f790e-0efa-4c01-923d-facc3889903a", "x"],
        ["call", "git.log", "--expect-version", "99"],
        ["list", "No/Such"],
        ["call", "sqlite.query", "sql=SELECT * FROM orders", "limit=1000"],
        ["run", "-"],
    ],
    ids=" ".join,
)
def test_17_a_person_reads_no_word_that_is_for_models(
    run: Run, typed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from servers.git import log")))
    _, out, err = run(*typed)
    assert not MODEL_WORDS.findall(out + err)
    assert out + err


def test_17_advice_about_what_stands_above_is_given_only_where_something_does() -> None:
    told = Output.for_person("use one of the ids in hints, or find the tool with list or a search")
    assert told == "use one of the ids above, or find it with: toolfold search 'what it must do'"
    err = io.StringIO()
    Output(out=io.StringIO(), err=err).error(ConfigError("x", next_action="use one of the ids in hints, or do that"))
    assert err.getvalue() == "error: x\nnext: do that\n"


def test_17_the_home_folder_is_written_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert Output.short_path("/home/ann/a.toml, read") == "~/a.toml, read"
    assert Output.short_path("/home/anna/a.toml") == "/home/anna/a.toml"
    assert Output.short_path("/home/ann") == "~"
    assert Output.short_path("/x/home/ann/a") == "/x/home/ann/a"


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(
    "typed",
    [["search", "list the commits of a branch"], ["list", "Coding"], ["tree", "--tools"], ["servers"]],
    ids=" ".join,
)
def test_17_lines_fit_the_terminal(kept: Path, run: Run, typed: list[str], columns: int) -> None:
    shown = on_terminal(*typed, columns=columns, env={"PWD": str(kept)})
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    assert lines
    assert max(map(len, lines)) <= columns
    assert "\x1b[" in shown
    assert "\x1b[" not in on_terminal(*typed, columns=columns, env={"NO_COLOR": "1"})


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


TEXT_COMMANDS = """build --no-search|search list the commits of a branch --explain|search water the plants|
nodes read files|tree --tools|list|list Coding --limit 2|servers|stats|audit|expand git.log|inspect-output git.log|
outputs|call sqlite.query sql=SELECT+*+FROM+orders limit=1000|scripts list|login|
logout --all|import|trust|logs|learn|agent --runs|help|call git.lgo|call files.read|list No/Such|list --cursor x|
inspect-output git.log no.such|output 3e9f790e-0efa-4c01-923d-facc3889903a x|tree --config nofile.toml|enrich|demo"""


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("typed", TEXT_COMMANDS.replace("\n", "").split("|"))
def test_17_no_line_is_left_to_the_terminal_to_break(
    run: Run, typed: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line may be too long only where it is one word, which somebody may copy."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    shown = Terminal()
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setattr(sys, "stderr", shown)
    main([word.replace("+", " ") for word in typed.split()])
    # A bar of progress is drawn to the width, and gone when it is done.
    lines = [line for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue()).splitlines() if "━" not in line]
    assert any(lines)
    assert not [line for line in lines if len(line) > columns and " " in line.strip()]
    # The demo shows what a model reads, and the audit log which operations were called.
    assert not MODEL_WORDS.findall("\n".join(lines)) or typed in {"demo", "audit"}


def test_17_words_stay_whole_and_what_follows_is_indented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out, err = Terminal(), Terminal()
    output = Output(out=out, err=err)
    output.prose(f"{output.style('one', 'bold')} two three four a-word-that-is-too-long-for-it five", 4)
    assert out.getvalue() == "\x1b[1mone\x1b[0m two three four\n    a-word-that-is-too-long-for-it\n    five\n"
    output.note("one two three four five")
    output.note("one two three four five", as_it_is=True)
    assert err.getvalue() == "one two three four\n  five\none two three four five\n"
    piped = io.StringIO()
    Output(out=piped).prose("word " * 3_000)
    assert piped.getvalue().count("\n") == 1


def test_17_a_first_script_is_kept_without_a_word_about_an_old_catalogue(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "newest.py"
    script.write_text(f'"""Lists commits."""\n{USES_LOG}', encoding="utf-8")
    try:
        code, _, err = run("scripts", "add", str(script))
        assert (code, "kept as scripts.newest" in err, "older" in err) == (0, True, False)
    finally:
        code, _, err = run("scripts", "remove", "newest")
    assert (code, err) == (0, "removed newest\n")


def test_17_nothing_recorded_steers_the_terminal(run: Run) -> None:
    assert run("search", "a \x9b8m hidden request", "--json")[0] in {0, 4}
    followed = on_terminal("audit", "--follow", "--json", columns=80, until="hidden request")
    assert ("\\u009b8m hidden" in followed, "\x9b" in followed) == (True, False)


USES_LOG = """from runtime.discovery import use_tools
use_tools("list the latest commits of the repository")
from servers.git import log
"""


@pytest.mark.parametrize("columns", ["80", "120"])
def test_17_man_sets_out_the_manual_page(run: Run, columns: str) -> None:
    page = run("help", "man")[1]
    assert page.startswith(".TH TOOLFOLD 1 ")
    if shutil.which("man") is None:
        pytest.skip("man is not installed")
    environment = {**os.environ, "MANWIDTH": columns, "LC_ALL": "C.UTF-8", "MANPAGER": "cat"}
    man = ["man", "--warnings", "-l", "-"]
    done = subprocess.run(man, input=page, text=True, capture_output=True, check=True, timeout=60, env=environment)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= int(columns)
    for name in build_parser().commands():
        assert f"   toolfold {name}" in lines
    assert "       --expect-version N" in lines


def test_17_a_description_without_room_stands_below_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    name, text = "a_server_with_a_name.and_a_tool_with_another_one", "Does one thing, and does it well. " * 5
    Output(out=out).table(
        ("fits", "tool", "what it does"), [("strong 72%", name, text), ("likely 31%", "b.c", "Short.")]
    )
    lines = out.getvalue().splitlines()
    assert lines[0].split() == ["fits", "tool"]
    assert lines[1] == f"strong 72%  {name}"
    assert lines[2].startswith("    Does one thing")
    assert lines[3].endswith(" …")
    assert lines[-2:] == ["likely 31%  b.c", "    Short."]
    assert max(map(len, lines)) <= 80


def test_17_expand_shows_a_person_the_arguments_and_a_program_the_schemas(run: Run) -> None:
    shown = on_terminal("expand", "files.read", columns=80, env={"NO_COLOR": "1"})
    assert re.search(r"^path +string +required +The file", shown, re.MULTILINE)
    assert "args_schema" not in shown
    assert "args_schema: {" in run("expand", "files.read")[1]


def test_17_every_command_has_examples_that_can_be_parsed() -> None:
    commands = build_parser().commands()
    assert EXAMPLES.keys() == commands.keys()
    for name, lines in EXAMPLES.items():
        assert lines
        for line in lines:
            assert parse(shlex.split(line)).command == name
            assert f"  toolfold {line}\n" in commands[name].format_help()


# What needs a model or a stored result, goes on until it is stopped, or is run elsewhere in this file.
ELSEWHERE = {"demo", "serve", "console", "enrich", "agent", "output", "repl", "import", "doctor", "bench", "run"} | {
    *("init", "add", "remove", "enable", "disable", "logs")
}


@pytest.mark.parametrize("line", [line for name in EXAMPLES if name not in ELSEWHERE for line in EXAMPLES[name]])
def test_17_the_examples_run_in_the_folder_of_the_demo(run: Run, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    code, out, err = run(*shlex.split(line))
    assert code == 0, out + err


def test_17_help_prints_commands_and_pages_and_guesses(run: Run) -> None:
    assert "pages: toolfold help agent | " in run("help")[1]
    assert "  toolfold call git.log limit=3" in run("help", "call")[1]
    assert run("help", "policy")[1].startswith("# ")
    command, page = run("help", "search")[1], run("help", "search.md")[1]
    assert "toolfold help search.md" in command
    assert len(command.splitlines()) < 60
    assert page.startswith("# ")
    code, _, err = run("help", "polciy")
    assert (code, "did you mean policy?" in err) == (2, True)


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        (["sea"], ["search"]),
        (["--ver"], ["--version", "--verbose"]),
        (["search", "--lim"], ["--limit"]),
        (["call", "git.l"], ["git.log"]),
        (["call", "git.log", "li"], ["limit="]),
        (["call", "git.log", "limit=1", "sk"], ["skip="]),
        (["trust", "git.log", "git.sh"], ["git.show"]),
        (["build", "--server", "fi"], ["files"]),
        (["help", "pol"], ["policy"]),
        (["tree", "Servers/g"], ["Servers/git"]),
        (["search", "--in", "Servers/g"], ["Servers/git"]),
        (["import", "cur"], ["cursor"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["--home", "/nowhere", "call", "git"], []),
        (["search", "x"], []),
    ],
    ids=" ".join,
)
def test_17_the_shell_completes_from_what_is_built(run: Run, typed: list[str], wanted: list[str]) -> None:
    code, out, _ = run("completion", "bash", "--", *typed)
    assert (code, sorted(out.split())) == (0, sorted(wanted))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_17_each_shell_takes_its_script(run: Run, shell: str) -> None:
    code, script, _ = run("completion", shell)
    assert (code, script) == (0, SCRIPTS[shell])
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True, timeout=30)


def test_17_bash_completes_with_the_script(run: Run, kept: Path) -> None:
    words = "COMP_LINE='toolfold call git.l'; COMP_POINT=19; _toolfold; echo ${COMPREPLY[@]}"
    code = f'toolfold() {{ {shlex.quote(sys.executable)} -m toolfold "$@"; }}; source /dev/stdin; {words}'
    done = subprocess.run(
        ["bash", "--norc", "-c", code], input=SCRIPTS["bash"], text=True, capture_output=True, check=True, timeout=60
    )
    assert done.stdout == "git.log\n"
