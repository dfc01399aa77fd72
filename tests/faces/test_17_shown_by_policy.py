"""What is shown and called follows policy and configuration: twins, what is disabled, what a tree leaves out."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from toolfold.__main__ import main
from toolfold.demo.data import make_demo_data

Run = Callable[..., tuple[int, str, str]]
ASKED = ("search", "list the latest commits", "--json")


def table(name: str, repository: Path, more: str = "") -> str:
    arguments = json.dumps(["-P", "-m", "toolfold.demo.git", str(repository)])
    return f"[servers.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {arguments}\n{more}"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = make_demo_data(tmp_path_factory.mktemp("data")).repository
    assert repository is not None
    return repository


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TOOLFOLD_HOME", str(tmp_path / "home"))

    def command(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def found(run: Run) -> list[str]:
    """The tools that a search shows, and the same of other servers."""
    code, out, _ = run(*ASKED)
    assert code in {0, 4}
    return [
        tool_id for hit in json.loads(out).get("results", []) for tool_id in (hit["tool_id"], *hit.get("same_as", ()))
    ]


def test_17_a_policy_holds_whatever_became_of_the_same_tool_elsewhere(
    run: Run, repository: Path, tmp_path: Path
) -> None:
    def write(*tables: str) -> None:
        (tmp_path / "toolfold.toml").write_text("".join(tables), encoding="utf-8")

    east, west = table("east", repository), table("west", repository)
    only = "[policy.default]\nallow = ['west.log', 'toolbox.run_script']\n"
    write(east, west)
    assert run("build")[0] == 0
    assert {"east.log", "west.log"} <= set(found(run))
    (tmp_path / "newest.py").write_text(
        "import asyncio\nlog = use_tools('list the latest commits')\nprint(asyncio.run(log(limit=1)))\n"
    )
    # Two alike: whoever wrote the script must say which.
    code, _, err = run("run", "newest.py")
    assert code != 0
    assert set(re.findall(r"^  - (\w+\.log): \d+%$", err, re.MULTILINE)) == {"east.log", "west.log"}
    for policy in (only, "[policy.default]\ndeny = ['east.*']\n", "[policy.default]\ndeny = ['east.log']\n"):
        write(east, west, policy)
        assert "west.log" in (shown := found(run))
        assert "east.log" not in shown
        assert run("expand", "east.log")[0] == 4
        assert run("call", "east.log", "limit=1")[0] == 4
        assert "commits" in run("call", "west.log", "limit=1")[1]
        assert "commits" in run("run", "newest.py")[1]
    # The one that is allowed is gone, and the other does not come in its place.
    write(east, only)
    assert run("build")[0] == 0
    assert found(run) == []
    assert run("call", "east.log", "limit=1")[0] == 4
    write(east, table("west", repository, "enabled = false\n"), only)
    code, _, err = run("call", "west.log", "limit=1")
    assert (code, "west is disabled in the configuration" in err) == (3, True)
    # Who might not see a tool of it hears what is said of any tool that does not exist.
    for policy in ("allow = ['risk:read-only']", "allow = ['path:Nowhere', 'east.*']", "deny = ['west.*']"):
        write(east, table("west", repository, "enabled = false\n"), f"[policy.default]\n{policy}\n")
        for command in ("call", "expand"):
            (code, _, err), (other, _, missing) = (run(command, tool) for tool in ("west.log", "nosuch.log"))
            assert code == other
            assert err.splitlines()[0].replace("west.", "nosuch.") == missing.splitlines()[0]


def test_17_a_disabled_server_is_called_disabled_with_what_enables_it(
    run: Run, repository: Path, tmp_path: Path
) -> None:
    (tmp_path / "toolfold.toml").write_text(table("git", repository) + table("other", repository), encoding="utf-8")
    assert run("build")[0] == 0
    assert run("disable", "git")[0] == 0
    assert "(git is disabled): toolfold build" in run("tree")[2]
    said = "error: git is disabled in the configuration\nnext: to use it again: toolfold enable git\n"
    for build in (False, True):  # while the catalogue has its tools, and when it no longer does
        if build:
            assert run("build")[0] == 0
        for words in (("call", "git.log"), ("expand", "git.log")):
            code, out, err = run(*words)
            if words[0] == "call" or build:
                assert (code, out) == (3, "")
                assert err.endswith(said)
    assert run("enable", "git")[0] == 0
    assert run("build")[0] == 0
    assert run("call", "git.log")[0] == 0


def test_17_what_a_policy_does_not_allow_is_named_by_its_id(run: Run, repository: Path, tmp_path: Path) -> None:
    text = f"{table('git', repository)}[policy.default]\nallow = ['git.*']\n"
    (tmp_path / "toolfold.toml").write_text(text, encoding="utf-8")
    (tmp_path / "a.py").write_text("print(1)\n", encoding="utf-8")
    assert "does not allow toolbox.run_script\n" in run("run", "a.py")[2]


def test_17_a_tree_says_what_it_leaves_out_and_how_to_see_it(run: Run, repository: Path, tmp_path: Path) -> None:
    (tmp_path / "toolfold.toml").write_text(table("git", repository) + table("other", repository), encoding="utf-8")
    run("build")
    _, out, err = run("tree", "--depth", "1")
    left = [line for line in out.splitlines() if ", +" in line]
    assert left
    total = sum(int(line.split(", +")[1].split(")")[0]) for line in left)
    assert f"{total} categories below these, marked +: --depth 2, or toolfold tree CATEGORY" in err
    _, out, err = run("tree", "--depth", "9")
    assert ", +" not in out + err


@pytest.mark.parametrize("named", ["option", "variable"])
def test_17_two_configurations_keep_a_catalogue_each_in_one_state_folder(
    run: Run, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    state = tmp_path / "state"
    home = ["--home", str(state)] if named == "option" else []
    monkeypatch.setenv("TOOLFOLD_HOME", str(tmp_path / "other" if home else state))
    for name in ("first", "second"):
        (tmp_path / f"{name}.toml").write_text(table(name, repository), encoding="utf-8")
    for round_ in range(2):
        for name in ("first", "second"):
            code, _, err = run(*home, "--config", f"{name}.toml", "build")
            assert code == 0
            assert ("is another file's: the state of" in err) == (name == "second")
        for name in ("first", "second"):
            _, out, err = run(*home, "--config", f"{name}.toml", *ASKED)
            assert {hit["tool_id"].partition(".")[0] for hit in json.loads(out)["results"]} == {name}, round_
            assert "older than" not in err
    # One that has a folder of its own keeps it, with whatever it has there.
    (tmp_path / "first.toml").rename(tmp_path / "moved.toml")
    assert "second" in run(*home, "--config", "second.toml", *ASKED)[1]
    # One that was moved is at home where it was.
    assert "there is no catalogue yet" not in run(*home, "--config", "moved.toml", *ASKED)[2]


@pytest.mark.parametrize("query", ["list the latest commits", "show one commit with its patch", "which branch is it?"])
def test_17_a_search_answers_as_if_what_is_hidden_did_not_exist(
    run: Run, repository: Path, tmp_path: Path, query: str
) -> None:
    answers = []
    for name, rule in (
        ("absent", "[tools.'git.log']\nhide = true\n[tools.'git.show']\nhide = true\n"),
        ("denied", "[policy.default]\ndeny = ['git.log', 'git.show']\n"),
        ("whole", ""),
    ):
        (tmp_path / f"{name}.toml").write_text(table("git", repository) + rule, encoding="utf-8")
        _, out, _ = run("--config", f"{name}.toml", "search", query, "--json")
        answers.append([(hit["tool_id"], hit["confidence"]) for hit in json.loads(out)["results"]])
    assert answers[0] == answers[1]
    assert answers[0] != answers[2]


def test_as_nobody_is_an_error_and_as_local_is_whoever_runs_it(run: Run, repository: Path, tmp_path: Path) -> None:
    (tmp_path / "toolfold.toml").write_text(table("git", repository))
    assert run("build", "--no-search")[0] == 0
    code, out, err = run("tree", "--as", "")
    assert (code, out) == (2, "")
    assert "no caller is called ''" in err
    assert run("tree", "--json", "--as", "local")[:2] == run("tree", "--json")[:2]
    with (tmp_path / "toolfold.toml").open("a") as file:
        file.write('[policy.none]\ndeny = ["**"]\n[callers.local]\npolicy = "none"\n')
    assert "git.log" not in run("tree", "--tools", "--as", "local")[1]
