"""What the commands print for a person: the text form of each, in this process."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from toolfold import Settings
from toolfold.__main__ import main
from toolfold.demo.data import make_demo_data
from toolfold.errors import ConfirmationNeeded, Declined
from toolfold.faces.cli.parser import parse
from toolfold.faces.cli.terminal import Output
from toolfold.sandbox.probe import Confinement, _AttackResult
from toolfold.types import Change, ServerSpec


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with one server that works and one that does not, and a tool that must be confirmed."""
    folder = tmp_path_factory.mktemp("text")
    data = make_demo_data(folder / "data")
    arguments = json.dumps(["-P", "-m", "toolfold.demo.files", str(data.files)])
    (folder / "toolfold.toml").write_text(
        f"[servers.files]\ncommand = {json.dumps(sys.executable)}\nargs = {arguments}\n"
        '[servers.gone]\ncommand = "no-such-program-anywhere"\n'
        '[policy.default]\nconfirm = ["files.write"]\n[limits]\ntool_response_max_bytes = 2000\n',
        encoding="utf-8",
    )
    return folder


@pytest.fixture
def run(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> "Run":
    monkeypatch.chdir(project)
    monkeypatch.setenv("HOME", str(project))
    monkeypatch.setenv("TOOLFOLD_HOME", str(project / "state"))
    return Run(capsys)


class Run:
    """Runs a command line and gives its exit code, its output and its notes."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err


def test_build_says_what_failed_and_what_to_do_and_then_that_nothing_changed(run: Run) -> None:
    code, out, err = run("build")
    assert code == 3
    assert "failed: gone: " in err
    assert "next: " in err
    assert "6 tools of 2 servers (1 working)" in out
    assert "registry: " in out
    assert "nothing changed since the last build" in run("build", "--server", "files", "--no-search")[1]


def test_servers_shows_a_table_and_the_error_of_each_that_failed(run: Run) -> None:
    code, out, err = run("servers", "--connect")
    assert code == 3
    assert out.splitlines()[0].split() == ["server", "state", "tools", "by", "what", "it", "says", "of", "itself"]
    assert "failed: gone: " in err


def test_tree_list_nodes_search_and_expand_print_what_a_person_reads(run: Run) -> None:
    run("build")
    assert "└─ " in run("tree", "--tools", "--depth", "3")[1]
    category = json.loads(run("search", "read a file", "--json")[1])["results"][0]["path"]
    code, out, err = run("list", *category, "--limit", "1")
    assert (code, out.split()[:2]) == (0, ["name", "risk"])
    assert "there is more: --cursor " in err
    assert run("list", "--tag", "no-such-tag")[1:] == ("", "nothing stands here\n")
    assert "fits" in run("nodes", "read", "a", "file")[1]
    assert "files.read" in run("search", "read", "a", "file", "--limit", "1")[1]
    assert "args_schema: {" in run("expand", "files.read")[1]


def test_a_call_prints_text_and_a_stored_result_says_how_to_ask_for_a_part(run: Run, project: Path) -> None:
    run("build")
    (project / "data" / "files" / "large.txt").write_text("a line of text\n" * 400, encoding="utf-8")
    code, _, err = run("call", "files.read", '{"path": "large.txt"}')
    assert code == 0
    assert "ask for a part of it: toolfold output " in err
    handle = err.rpartition("toolfold output ")[2].split()[0]
    assert "KiB" in run("outputs")[1]
    assert "a line of text" in run("output", handle, "lines 1-2")[1]
    assert "text" in json.loads(run("output", handle, "lines 1-2", "--json")[1])


def test_what_must_be_confirmed_is_asked_at_a_terminal_and_refused_without_one(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from toolfold.faces.cli.call import _confirm

    run("build")
    code, _, err = run("call", "files.write", '{"path": "a", "text": "b"}')
    assert code != 0
    assert "--yes" in err
    arguments = parse(["call", "files.write", "{}"])
    output = Output(out=io.StringIO(), err=Terminal())
    for answer, wanted in (("y\n", None), ("no\n", Declined)):
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        if wanted is None:
            _confirm(arguments, output, ConfirmationNeeded("sure?"))
        else:
            with pytest.raises(wanted):
                _confirm(arguments, output, ConfirmationNeeded("sure?"))


def test_doctor_prints_a_line_for_each_finding_and_counts_them(run: Run) -> None:
    code, out, _ = run("doctor")
    assert code == 1
    assert "✗ server gone: " in out
    assert "    next: " in out
    assert out.splitlines()[-1].startswith("1 wrong, ")


def test_a_progress_bar_is_drawn_on_a_terminal_alone() -> None:
    err = Terminal()
    with Output(out=io.StringIO(), err=err).progress("connecting", 2) as step:
        step("files, 6 tools")
    assert "connecting" in err.getvalue()


def test_json_is_indented_on_a_terminal_and_one_line_in_a_pipe() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    Output(out=terminal, err=pipe).data({"a": 1})
    Output(out=pipe, err=pipe).data({"a": 1})
    assert terminal.getvalue() == '{\n  "a": 1\n}\n'
    assert pipe.getvalue() == '{"a":1}\n'


def test_changes_are_listed_up_to_a_number_and_then_counted() -> None:
    from toolfold.faces.cli.build import _print_changes

    out = io.StringIO()
    changes = [Change(tool_id=f"a.tool_{number}", kind="removed") for number in range(30)]
    _print_changes([Change(tool_id="a.b", kind="changed", fields=("description",)), *changes], 5, Output(out=out))
    assert out.getvalue().startswith("  ~ a.b (description)\n  - a.tool_0\n")
    assert "… and 11 more changes" in out.getvalue()


def test_doctor_knows_what_is_wrong_with_a_server_before_it_starts(tmp_path: Path) -> None:
    from toolfold.faces.cli.doctor import _check_server

    def check(**settings: Any) -> tuple[str, str]:
        finding = _check_server(ServerSpec(name="a", transport="stdio", **settings))
        return finding.verdict, finding.text

    assert check(command="x", enabled=False) == ("mind", "disabled in the configuration")
    assert check(command="x", cwd=str(tmp_path / "none"))[0] == "wrong"
    assert check(command="x", env={"A": "${NO_SUCH_VARIABLE}"}) == ("wrong", "NO_SUCH_VARIABLE not set")
    assert check(command=sys.executable)[0] == "well"


def test_doctor_names_every_attack_that_a_sandbox_did_not_stop() -> None:
    from toolfold.faces.cli.doctor import _check_attacks

    attacks = (_AttackResult("read a secret", True, "EACCES"), _AttackResult("open a socket", False, ""))
    findings = list(_check_attacks(Confinement(layers=("landlock",), attacks=attacks), verbose=True))
    assert [(finding.verdict, finding.text) for finding in findings] == [
        ("wrong", "1 of 2 attacks stopped by landlock"),
        ("well", "no script can read a secret: EACCES"),
        ("wrong", "a script could open a socket"),
    ]


def test_doctor_looks_at_the_state_folder_and_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from toolfold.faces.cli import doctor

    settings = Settings(home=tmp_path / "state")
    assert [finding.text for finding in doctor._check_configuration(settings)] == ["none found"]
    monkeypatch.setattr(doctor, "LOW_DISK_BYTES", 1 << 60)
    assert [finding.verdict for finding in doctor._check_folders(settings)] == ["mind", "mind"]
    (tmp_path / "state").touch()
    assert [finding.verdict for finding in doctor._check_folders(settings)] == ["wrong", "mind"]


def test_what_nobody_accepted_is_listed_and_shown_beside_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TOOLFOLD_TRUST__ACCEPT_NEW", "false")
    monkeypatch.setenv("TOOLFOLD_HOME", str(tmp_path / "state"))
    run("build", "--no-search")
    _, out, err = run("trust")
    assert "files.read  new, held back" in out
    assert "accept it with `toolfold trust ID`" in err
    assert '+  "name": "read"' in run("trust", "--list", "files.read")[1]
    assert json.loads(run("trust", "--list", "files.read", "--json")[1])[0]["accepted"] is None
    assert run("trust", "files.read")[1] == "accepted files.read\n"
    assert "accepted already" in run("trust", "files.read")[2]


def test_the_demo_tells_where_it_left_its_data(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("demo", "--keep", str(tmp_path / "kept"))
    assert code == 0
    assert f"kept: {tmp_path / 'kept'}" in out
    code, out, _ = run("demo", "--json")
    report = json.loads(out)
    assert (code, report["failed"], report["tools"]) == (0, {}, 17)
    assert ["note" in search for search in report["searches"]] == [False, False, True]
