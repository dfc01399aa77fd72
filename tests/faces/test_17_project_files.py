"""A folder's own configuration starts nothing, and looks up no secret, before the person has accepted it as it is."""

import json
import os
import sys
from pathlib import Path

import pytest
from project_kit import Person, serving

pytestmark = pytest.mark.requirement("G-03")


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def test_a_search_in_a_clone_starts_nothing_of_it_and_says_what_it_would_have_started(person: Person) -> None:
    file = person.hostile()
    done = person.run("search", "looks")
    assert not person.stole()
    assert (person.root / "own").exists()  # what the person has goes on
    assert "mine.look" in done.stdout
    (line,) = [line for line in done.stderr.splitlines() if str(file) in line.replace("~", str(person.home))]
    assert f"theirs ({sys.executable} {person.program}" in line
    assert line.endswith(f"toolfold trust --project {person.clone}")


@pytest.mark.parametrize("file", [".mcp.json", "mcp.json"])
@pytest.mark.parametrize("command", ["servers --connect", "build --no-search", "doctor --connect", "tree", "stats"])
def test_no_command_starts_it(person: Person, command: str, file: str) -> None:
    person.hostile(file=file)
    person.run("build", "--no-search", at=person.root)
    done = person.run(*command.split())
    assert not person.stole()
    assert "toolfold trust --project" in done.stdout + done.stderr


def test_it_is_said_as_json_and_no_exit_code_changes(person: Person) -> None:
    person.hostile()
    (left,) = json.loads(person.run("build", "--no-search", "--json").stdout)["withheld"]
    assert (left["name"], left["status"]) == ("theirs", "not accepted")
    states = json.loads(person.run("servers", "--json").stdout)
    assert {state["name"]: state["status"] for state in states} == {"mine": "idle", "theirs": "not accepted"}
    assert states[1]["next_action"] == f"toolfold trust --project {person.clone}"
    findings = json.loads(person.run("doctor", "--json").stdout)["findings"]
    assert [one["verdict"] for one in findings if "theirs" in one["text"]] == ["mind"]


def test_once_accepted_it_counts_until_it_changes_and_then_what_changed_is_said(person: Person) -> None:
    file = person.hostile("theirs", "other")
    said = person.run("trust", "--project")
    assert f"accepted {file}" in said.stdout
    assert "theirs (" in said.stdout
    assert "theirs.look" in person.run("tree", "--tools").stdout
    assert person.canary.read_text().splitlines() == ["a-secret-of-mine"] * 2
    person.canary.unlink()
    servers = {"theirs": {**person.entry(), "cwd": "."}, "more": person.entry()}
    file.write_text(json.dumps({"mcpServers": servers}))
    done = person.run("build", "--no-search")
    assert "(more is new, theirs is changed, other is gone)" in done.stderr
    assert not person.stole()
    listed = person.run("trust", "--project", "--list").stdout
    assert "not accepted" in listed
    assert "more is new" in listed
    person.run("trust", "--project", str(person.clone), at=person.root)
    person.run("build", "--no-search")
    assert person.stole()
    person.canary.unlink()
    person.run("trust", "--project", "--forget")
    person.run("build", "--no-search")
    assert not person.stole()


def test_each_checkout_and_each_folder_below_is_accepted_for_itself(person: Person) -> None:
    person.hostile()
    person.run("trust", "--project")
    other, below = person.root / "other", person.clone / "below"
    for folder in (other, below):
        folder.mkdir()
        person.hostile(folder=folder)
        assert "was never accepted" in person.run("build", "--no-search", at=folder).stderr
        assert not person.stole()


def test_a_link_is_its_folders_and_what_it_leads_to_is_what_is_accepted(person: Person) -> None:
    person.hostile()
    person.run("trust", "--project")
    other = person.root / "other"
    other.mkdir()
    (other / ".mcp.json").symlink_to(person.clone / ".mcp.json")
    person.run("build", "--no-search", at=other)
    assert not person.stole()
    (person.root / "door").symlink_to(person.clone)  # the same folder by another way
    person.run("build", "--no-search", at=person.root / "door")
    assert person.stole()
    person.canary.unlink()
    person.run("trust", "--project", at=other)
    person.hostile("theirs", "more")
    person.run("build", "--no-search", at=other)
    assert not person.stole()


@pytest.mark.parametrize("damage", ["{", "[]", '{"x": 3}', "\0", "[" * 100_000])
def test_a_record_that_is_damaged_accepts_nothing_and_can_be_written_again(person: Person, damage: str) -> None:
    person.hostile()
    person.run("trust", "--project")
    (person.home / ".toolfold" / "accepted.json").write_text(damage)
    assert "was never accepted" in person.run("build", "--no-search").stderr
    assert not person.stole()
    person.run("trust", "--project")
    person.run("build", "--no-search")
    assert person.stole()


def test_a_record_in_the_clone_accepts_nothing(person: Person) -> None:
    person.hostile()
    person.run("trust", "--project")
    record = (person.home / ".toolfold" / "accepted.json").read_bytes()
    person.run("trust", "--project", "--forget")
    (person.clone / "state").mkdir()
    for folder in (person.clone, person.clone / "state"):
        (folder / "accepted.json").write_bytes(record)
    person.run("--home", "state", "build", "--no-search")
    assert not person.stole()


def test_a_client_file_that_cannot_be_read_stops_nobody(person: Person) -> None:
    (person.clone / ".mcp.json").write_text('{"mcpServers": {"a": \x1b[31m')
    done = person.run("build", "--no-search")
    assert "cannot be read" in done.stderr
    assert "\x1b" not in done.stderr


def test_where_there_is_nothing_else_the_error_says_what_to_do(person: Person) -> None:
    (person.home / ".toolfold" / "toolfold.toml").unlink()
    person.hostile()
    for words in (["build"], ["servers"], ["search", "looks"]):
        done = person.run("--json", *words, code=4 if words[0] == "search" else 2)
        error = json.loads(done.stdout)["error"]
        assert error["code"] == ("NOT_BUILT" if words[0] == "search" else "CONFIG_NOT_ACCEPTED")
        assert "toolfold trust --project" in error["next_action"] + done.stderr
    assert not person.stole()


# --- toolfold.toml


def test_a_toolfold_toml_that_came_with_a_folder_is_refused(person: Person) -> None:
    file = person.hostile("theirs", "more", file="toolfold.toml")
    for words in ("search looks", "build", "servers --connect", "tree", "serve", "add x -- y"):
        error = json.loads(person.run("--json", *words.split(), code=2).stdout)["error"]
        assert error["code"] == "CONFIG_NOT_ACCEPTED"
        assert error["message"].startswith(f"{file} was never accepted")
        assert len([hint for hint in error["hints"] if hint.startswith("it would start ")]) == 2
        assert error["next_action"].endswith(f"toolfold trust --project {person.clone}")
    assert "was never accepted" in person.run("doctor", code=1).stdout
    person.run("init")  # the person's own is none of its business
    person.run("completion", "bash", "toolfold", "call", "")
    assert not person.stole()
    person.run("trust", "--project")
    person.run("build", "--no-search")
    assert person.stole()


@pytest.mark.parametrize(
    "table",
    [
        '[servers.a]\nfunctions = "./tools.py"\n',
        '[servers.a]\nopenapi = "./api.json"\nbase_url = "http://127.0.0.1:9"\nheaders = { A = "${SECRET}" }\n',
        '[servers.a]\nurl = "http://127.0.0.1:9/mcp"\nbearer_token = "${keyring:shop/key}"\n',
    ],
)
def test_code_and_secrets_are_as_much_as_programs(person: Person, table: str) -> None:
    (person.clone / "toolfold.toml").write_text(table)
    person.git("add", "toolfold.toml")
    (person.clone / "tools.py").write_text(f"open({str(person.canary)!r}, 'w')\ndef look() -> str:\n    return ''\n")
    (person.clone / "api.json").write_text("{}")
    assert "was never accepted" in person.run("build", "--no-search", code=2).stderr
    assert not person.stole()


def test_a_file_that_is_named_counts(person: Person) -> None:
    for file in ("toolfold.toml", ".mcp.json"):
        person.run("--config", str(person.hostile(file=file)), "build", "--no-search")
        assert person.stole()
        person.canary.unlink()


def test_what_toolfold_writes_is_accepted_as_it_is_written(person: Person) -> None:
    server = person.entry()
    person.run("init", "--project")
    person.run("add", "one", "--env", "STOLEN=x", "--", server["command"], *server["args"])
    person.run("disable", "one")
    person.run("enable", "one")
    person.run("add", "two", "--", server["command"], *server["args"])
    person.run("remove", "two")
    person.run("build", "--no-search")
    assert person.stole()
    person.git("add", "toolfold.toml")
    with (person.clone / "toolfold.toml").open("a") as file:
        file.write(person.table("by-hand"))
    assert "(by-hand is new)" in person.run("build", code=2).stderr
    # Named, it may be changed; what is in it besides is not accepted by that.
    person.run("--config", "toolfold.toml", "add", "three", "--", "x")
    assert "by-hand is new" in person.run("build", code=2).stderr


def test_an_import_and_its_undo_leave_a_file_that_counts(person: Person) -> None:
    person.run("init", "--project")
    (person.home / ".cursor").mkdir()
    (person.home / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": {"theirs": person.entry()}}))
    person.run("import", "cursor", "--yes")
    person.run("build", "--no-search")
    assert person.stole()
    person.run("import", "--undo")
    person.run("servers", code=2)  # it names none, and is not refused
    assert "names no servers" in person.run("servers", code=2).stderr


CLIENT_FILES = {
    ".mcp.json": "mcpServers",
    ".cursor/mcp.json": "mcpServers",
    ".vscode/mcp.json": "servers",
    ".gemini/settings.json": "mcpServers",
}


def clients_files(person: Person) -> None:
    """A file for each client, tracked."""
    for file, key in CLIENT_FILES.items():
        (person.clone / file).parent.mkdir(exist_ok=True)
        name = file.strip(".").replace("/", "-").removesuffix(".json")
        (person.clone / file).write_text(json.dumps({key: {name: {**person.entry(), "env": {"NAME": name}}}}))
        person.git("add", file)


@pytest.mark.parametrize("words", ["", "cursor", "--even-failed", "--to mine.toml", "--json"])
def test_no_import_takes_over_what_came_with_a_folder_and_was_not_accepted(person: Person, words: str) -> None:
    clients_files(person)
    own = person.home / ".toolfold" / "toolfold.toml"
    before = own.read_text()
    done = person.run("import", *words.split(), "--yes")
    assert own.read_text() == before
    assert not (person.clone / "mine.toml").exists()
    wanted = [file for file in CLIENT_FILES if words != "cursor" or "cursor" in file]
    for file in wanted:
        assert f"if you trust it: toolfold import {file}" in done.stderr
    if words == "--json":
        assert json.loads(done.stdout)["withheld"] == [str(person.clone / file) for file in wanted]
    person.run("build", "--no-search", at=person.root)
    assert not person.stole()


def test_a_clients_file_of_a_folder_is_imported_once_it_is_named_or_accepted(person: Person) -> None:
    clients_files(person)
    person.run("trust", "--project")
    person.run("import", "claude-code", "--yes")
    person.run("import", ".cursor/mcp.json", "--yes")
    text = (person.home / ".toolfold" / "toolfold.toml").read_text()
    assert "[servers.mcp]" in text
    assert "[servers.cursor-mcp]" in text
    (person.clone / ".vscode" / "mcp.json").write_text('{"servers": {"theirs": {"command": "new"}}}')
    assert "[servers.theirs]" not in text
    code, shown = person.at_terminal("y", "import", "vscode", "--yes")
    assert code == 0, shown
    assert 'servers.theirs.command = "new"' in shown
    assert "[servers.theirs]" in (person.home / ".toolfold" / "toolfold.toml").read_text()
    code, shown = person.at_terminal("y", "import", "vscode", "--yes")
    assert "[y/N]" not in shown
    assert code == 0


def test_what_the_demo_keeps_counts(person: Person) -> None:
    person.run("demo", "--keep", str(person.clone), "--json")
    assert "git.log" in person.run("tree", "--tools").stdout


def test_a_toolfold_toml_that_git_does_not_track_counts_where_nobody_can_be_asked(person: Person) -> None:
    file = person.hostile(file="toolfold.toml")
    person.run("build", "--no-search", code=2)
    person.git("rm", "-q", "--cached", "toolfold.toml")
    (person.clone / "other").mkdir()
    (person.clone / "other" / "toolfold.toml").write_text("")  # one of the same name elsewhere says nothing
    person.git("add", "other")
    said = person.run("build", "--no-search").stderr.partition(f"{file} was never accepted by you, and counts all")[2]
    assert f"accept it: toolfold trust --project {person.clone}" in said
    assert person.stole()
    code, shown = person.at_terminal("n", "build", "--no-search")
    assert code == 2
    assert "[y/N]" in shown
    person.run("build", "--no-search", code=2, TOOLFOLD_TRUST_PROJECT="0")
    file.chmod(0o666)
    assert "others can write it" in person.run("build", "--no-search", code=2).stderr


@pytest.mark.parametrize("version", ["2", "4", "split", "worktree", "damaged"])
def test_what_git_tracks_is_refused_however_its_index_is_written(person: Person, version: str) -> None:
    file = person.hostile(file="toolfold.toml")
    at = person.clone
    if version == "split":
        person.git("update-index", "--split-index")
    elif version == "worktree":
        person.git("-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-q", "-m", "x")
        person.git("worktree", "add", "-q", "../tree")
        at = person.root / "tree"
    elif version == "damaged":
        (person.clone / ".git" / "index").write_bytes(b"DIRC")
    else:
        person.git("update-index", "--index-version", version)
    assert "was never accepted" in person.run("build", "--no-search", code=2, at=at).stderr
    assert file.exists()
    assert not person.stole()


def test_at_a_terminal_it_is_asked_about_once(person: Person) -> None:
    person.hostile(file="toolfold.toml")
    code, shown = person.at_terminal("n", "build", "--no-search")
    assert (code, person.stole()) == (2, False)
    assert "theirs (" in shown
    code, shown = person.at_terminal("y", "build", "--no-search")
    assert (code, person.stole()) == (0, True)
    code, shown = person.at_terminal("y", "build", "--no-search")
    assert code == 0
    assert "[y/N]" not in shown


def test_what_serves_never_asks(person: Person) -> None:
    person.hostile(file="toolfold.toml")
    code, shown = person.at_terminal("y", "serve")
    assert (code, person.stole()) == (2, False)
    assert "[y/N]" not in shown


# What starts, imports, sends or weakens besides a command, and how a person has to see it.
TELLING = {
    '[servers.theirs.env]\nBASH_ENV = "./run.sh"\nKEY = "${SECRET}"': (
        'servers.theirs.env.BASH_ENV = "./run.sh"',
        'servers.theirs.env.KEY = "${SECRET}"',
    ),
    '[servers.a]\ncommand = "x"\ncwd = "/in"\nenv_file = "/e"\ninherit_env = ["*"]\nenabled = false': (
        "it would start a (x), disabled",
        'servers.a.cwd = "/in"',
        'servers.a.env_file = "/e"',
        'servers.a.inherit_env = ["*"]',
    ),
    '[servers.a]\nurl = "https://a.example"\nheaders = { "X&A" = "${SECRET}" }': (
        'servers.a.headers."X&A" = "${SECRET}"',
    ),
    '[servers.a]\nurl = "https://a.example"\nbearer_token = "${SECRET}"': ('servers.a.bearer_token = "${SECRET}"',),
    '[servers.a]\nopenapi = "https://a.example/x"\nbase_url = "https://b.example"': (
        'servers.a.openapi = "https://a.example/x"',
        'servers.a.base_url = "https://b.example"',
    ),
    '[defaults]\ninherit_env = ["AWS_*"]\nenv = { PYTHONPATH = "." }': (
        'defaults.inherit_env = ["AWS_*"]',
        'defaults.env.PYTHONPATH = "."',
    ),
    "[scripts]\nunsafe = true": ("scripts.unsafe = true",),
    '[telemetry]\nendpoint = "https://t.example"': ('telemetry.endpoint = "https://t.example"',),
    '[storage]\nurl = "postgresql://s.example/x"': ('storage.url = "postgresql://s.example/x"',),
    '[model]\nbase_url = "https://m.example"\nkey = "${SECRET}"': (
        'model.base_url = "https://m.example"',
        'model.key = "${SECRET}"',
    ),
    '[outputs]\ndirectory = "/out"': ('outputs.directory = "/out"',),
    # What looks like a secret would otherwise mask itself elsewhere.
    '[servers.a]\ncommand = "sh"\nargs = ["-c", "curl evil"]\nenv = { API_TOKEN = "curl evil" }': (
        'servers.a.args = ["-c", "curl evil"]',
    ),
}


@pytest.mark.parametrize("table", TELLING)
def test_all_that_is_accepted_is_shown_before(person: Person, table: str) -> None:
    file = person.hostile(file="toolfold.toml")
    text = file.read_text().replace('env = { STOLEN = "${SECRET}" }', "") + table
    file.write_text(text)
    person.git("add", "toolfold.toml")
    listed = person.run("trust", "--project", "--list").stdout
    refused = json.loads(person.run("--json", "build", code=2).stdout)["error"]["hints"]
    _, asked = person.at_terminal("n", "build", "--no-search")
    for line in TELLING[table]:
        assert f"  {line}\n" in listed
        assert line in refused
        assert f"  - {line}\n" in asked


def test_no_letter_of_it_is_cut_or_hidden(person: Person) -> None:
    words = ["x " * 4000 + "end", "\n  accepted ~/other\r\u202e\x1b[8m"]
    entry = {"command": "sh", "args": words, "env": {"A\n  forged": "\ty"}}
    (person.clone / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": entry}}))
    (person.home / ".toolfold" / "toolfold.toml").unlink()
    for shown in (
        person.run("trust", "--project", "--list").stdout,
        person.run("build", code=2).stderr,
        person.at_terminal("n", "build", "--no-search")[1],
    ):
        assert "x " * 4000 + "end" in shown
        assert r"\n  accepted ~/other\r\u202e\u001b[8m" in shown
        assert r'env."A\n  forged" = "\ty"' in shown
        assert {"\x1b", "\u202e"}.isdisjoint(shown)


def test_after_a_change_settings_are_named_too_and_all_of_it_is_shown_anew(person: Person) -> None:
    file = person.hostile(file="toolfold.toml")
    person.run("trust", "--project")
    file.write_text(file.read_text() + 'cwd = "."\n[scripts]\nunsafe = true\n')
    listed = person.run("trust", "--project", "--list").stdout
    assert "theirs is changed, settings beside the servers" in listed
    assert "what you accepted before is not kept" in listed
    assert 'servers.theirs.env.STOLEN = "${SECRET}"' in listed


# --- for machines


def test_a_variable_trusts_every_project_but_no_file_that_others_write(person: Person) -> None:
    file = person.hostile()
    person.run("build", "--no-search", TOOLFOLD_TRUST_PROJECT="0")
    assert not person.stole()
    file.chmod(0o666)
    assert "others can write it" in person.run("build", "--no-search", TOOLFOLD_TRUST_PROJECT="1").stderr
    assert not person.stole()
    file.chmod(0o644)
    person.run("build", "--no-search", TOOLFOLD_TRUST_PROJECT="1")
    assert person.stole()
    assert not (person.home / ".toolfold" / "accepted.json").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_or_a_record_of_another_user_is_never_trusted_unseen(person: Person) -> None:
    file = person.hostile()
    os.chown(file, 12345, 12345)
    assert "belongs to user 12345" in person.run("build", "--no-search", TOOLFOLD_TRUST_PROJECT="1").stderr
    assert not person.stole()
    person.run("trust", "--project")
    record = person.home / ".toolfold" / "accepted.json"
    os.chown(record, 12345, 12345)
    person.run("build", "--no-search")
    assert not person.stole()
    os.chown(record, 0, 0)
    person.run("build", "--no-search")
    assert person.stole()


# --- while serving


def test_what_changes_while_it_serves_counts_once_it_is_accepted(person: Person) -> None:
    file = person.hostile()
    person.run("trust", "--project")
    with serving(person) as served:
        served.wait_for("theirs: started")
        person.canary.unlink()
        new = file.with_suffix(".new")
        new.write_text(json.dumps({"mcpServers": {"theirs": person.entry(), "more": person.entry()}}))
        new.replace(file)
        assert f"trust --project {person.clone}" in served.wait_for("the earlier one stays")
        served.wait_for("(more is new)")
        assert not person.stole()
        person.run("trust", "--project")
        served.wait_for("more: started")
        assert person.stole()


def test_a_file_that_git_does_not_track_waits_for_acceptance_too_when_it_changes(person: Person) -> None:
    file = person.clone / "toolfold.toml"
    file.write_text(person.table("theirs"))
    with serving(person) as served:  # taken for the person's own, never accepted
        served.wait_for("theirs: started")
        for change, reason in (("more", "was never accepted"), ("again", "has changed since you accepted it")):
            person.canary.unlink()
            file.write_text(file.read_text() + person.table(change))
            assert f"trust --project {person.clone}" in served.wait_for(f"the earlier one stays: {file} {reason}")
            assert not person.stole()
            person.run("trust", "--project")
            served.wait_for(f"{change}: started")


@pytest.mark.parametrize("name", [".mcp.json", "toolfold.toml"])
@pytest.mark.parametrize("has_own", [True, False])
def test_a_file_that_is_gone_for_a_while_is_followed_again(person: Person, name: str, has_own: bool) -> None:
    if not has_own:
        (person.home / ".toolfold" / "toolfold.toml").unlink()
    file = person.hostile(file=name)
    person.run("trust", "--project")
    with serving(person) as served:
        served.wait_for("theirs: started")
        file.unlink()
        assert "put it back" in served.wait_for(f"the earlier one stays: {file} is no longer there")
        person.hostile("theirs", "more", file=name)
        served.wait_for("(more is new)")
        person.run("trust", "--project")
        served.wait_for("more: started")
        assert not any("Traceback" in line for line in served.said)


def test_a_served_folder_says_in_its_log_what_it_leaves_out(person: Person) -> None:
    person.hostile()
    with serving(person) as served:
        served.wait_for("mine: started")
        assert len([line for line in served.said if "theirs (" in line]) == 1
        person.run("trust", "--project")
        assert "state folder of its own" in served.wait_for("the earlier one stays")
        assert not person.stole()
