"""`doctor` tells the truth, commands say when the catalogue is old, and `--as` shows what a caller sees."""

import json
import sys
from pathlib import Path
from typing import Any

import filed_stdio
import pytest

from toolfold.__main__ import main

TOOLS = [
    {"name": name, "description": f"{name} an order of the shop.", "inputSchema": {"type": "object"}}
    for name in ("find", "cancel")
]


class Place:
    """A folder with a configuration, and the command line on it."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self.config = home / "toolfold.toml"
        self._capsys = capsys
        (home / "tools.json").write_text(json.dumps(TOOLS))

    def table(self, name: str, more: str = "") -> str:
        args = json.dumps([filed_stdio.__file__, str(self.home / "tools.json")])
        return f"[servers.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {args}\n{more}\n"

    def run(self, *arguments: str) -> tuple[int, str, str]:
        code = main(["--config", str(self.config), "--home", str(self.home / "state"), *arguments])
        return code, *self._capsys.readouterr()

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run("--json", *arguments)[1])

    def findings(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for finding in self.json("doctor")["findings"]:
            found.setdefault(f"{finding['verdict']} {finding['subject']}", []).append(finding["text"] + finding["fix"])
        return found


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    return Place(tmp_path, capsys)


def test_17_doctor_tells_what_failed_what_is_old_and_what_fits_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOMETHING_ODD", "1")
    secret = "sk-abcdefabcdefabcdefabcdef123456"
    policy = '[policy.default]\ndeny = ["shpo.*", "shop.cancel", "toolbox.run_script"]\nconfirm = ["tag:nothing"]\n'
    rules = "[tools.'shop.*']\ncost = 1\n[tools.'other.*']\ncost = 1\n"
    failing = '[servers.failing]\ncommand = "true"\n[callers.desk]\nclient = "claude-ai"\n'
    place.config.write_text(place.table("shop", f'env = {{ TOKEN = "{secret}" }}') + failing + policy + rules)
    place.config.chmod(0o644)
    assert place.run("build", "--no-search")[0] == 3
    place.config.write_text(place.config.read_text().replace("TOKEN", "OTHER_TOKEN") + place.table("new"))
    found = place.findings()
    assert "new is new, shop is changed" in found["mind catalogue"][0]
    (failed,) = found["wrong server failing"]
    assert "failed when it was last read" in failed
    assert "toolfold logs failing" in failed
    assert [text.partition(" fits")[0] for text in found["mind pattern"]] == [
        '[policy.default] deny: "shpo.*"',
        '[policy.default] confirm: "tag:nothing"',
        '[tools]: "other.*"',
    ]
    assert "unproved" in found["well callers"][0]
    plain, readable = found["mind secrets"]
    assert "[servers.shop]" in plain
    assert "chmod 600" in readable
    assert "SOMETHING_ODD" in "".join(found["well environment"]) or "more" in "".join(found["well environment"])
    assert secret not in json.dumps(found)


def test_17_a_plain_key_of_a_caller_is_told_once(place: Place) -> None:
    place.config.write_text(place.table("shop") + '[callers.ann]\nkey = "a-plain-key-0123456789"\n')
    found = place.findings()
    assert "[callers.ann]" in found["mind secrets"][0]
    assert "mind configuration" not in found


def test_17_commands_say_when_the_catalogue_is_older_than_the_file_and_only_then(place: Place) -> None:
    place.config.write_text(place.table("shop"))
    place.run("build", "--no-search")
    assert place.run("tree")[2] == ""
    # Neither who may see it nor how long it may take changes what a server lists.
    place.config.write_text(
        place.table("shop", "call_timeout_s = 5\nkeep_alive = true") + "[policy.narrow]\ndeny = ['x']\n"
    )
    assert place.run("tree")[2] == ""
    place.config.write_text(place.table("shop", "env = { A = '1' }") + place.table("more"))
    _, out, err = place.run("tree")
    assert "the catalogue is older than toolfold.toml (more is new, shop is changed): toolfold build" in err
    assert "all tools (2)" in out
    place.run("build", "--no-search")
    assert place.run("list")[2] == ""


def test_17_as_a_caller_every_command_shows_what_it_sees_and_records_nothing(place: Place) -> None:
    callers = '[callers.ann]\nkey = "${ANN}"\npolicy = "narrow"\n[callers.local]\npolicy = "wide"\n[policy.wide]\n'
    policy = '[policy.narrow]\nallow = ["shop.find"]\n'
    place.config.write_text(place.table("shop") + place.table("other") + callers + policy)
    place.run("build")
    place.run("search", "cancel an order")
    before = place.json("audit")
    ann = ("--as", "ann")
    assert place.json("tree", *ann)["tools"] == 1
    assert place.json("tree")["tools"] == 4
    assert [tool["tool_id"] for tool in place.json("list", "--query", "order", *ann)["tools"]] == ["shop.find"]
    assert [(state["name"], state["tools"]) for state in place.json("servers", *ann)] == [("shop", 1)]
    assert {hit["tool_id"] for hit in place.json("search", *ann, "find an order")["results"]} == {"shop.find"}
    assert place.json("expand", "shop.find", *ann)["tool_id"] == "shop.find"
    assert place.json("expand", "shop.cancel", *ann)["error"]["code"] == "TOOL_NOT_FOUND"
    assert place.json("inspect-output", "shop.cancel", *ann)["error"]["code"] == "TOOL_NOT_FOUND"
    stats = place.json("stats", *ann)
    assert (stats["tools"], stats["sessions"]) == (1, [])
    assert place.json("stats")["sessions"]
    assert place.json("audit") == before
    code, _, err = place.run("tree", "--as", "bob")
    assert (code, "name one of: ann, local" in err) == (2, True)


def test_19_each_problem_is_told_once_with_connect(place: Place) -> None:
    place.config.write_text(place.table("shop") + '[servers.dead]\ncommand = "false"\n')
    place.run("build")
    findings = place.json("doctor", "--connect")["findings"]
    told = [(one["verdict"], one["subject"]) for one in findings if one["subject"].startswith("server ")]
    assert told == [("well", "server shop"), ("well", "server shop, started"), ("wrong", "server dead, started")]
    (second,) = [one["text"] for one in findings if one["subject"] == "sandbox without namespaces"] or ["since"]
    assert "since" in second


def test_19_every_mistake_of_a_configuration_is_told(place: Place) -> None:
    place.config.write_text(place.table("shop") + "[limits]\nidle_s = -1\nno_such_key = 1\n")
    one, other = place.findings()["wrong configuration"]
    assert "idle_s" in one
    assert "no_such_key" in other


def test_19_a_state_folder_that_is_none_is_told(place: Place) -> None:
    place.config.write_text(place.table("shop"))
    assert main(["--config", str(place.config), "--home", "/dev/null", "tree"]) == 2
    assert "/dev/null is no folder" in place._capsys.readouterr().err
