"""`/v1/admin` through a real `toolfold serve`: who may, what it changes and refuses, and that all of it is recorded."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from served_config import Served, call, wait_for_call

from toolfold.__main__ import main

pytestmark = pytest.mark.requirement("G-18")

ADMIN, PLAIN = "a-key-of-the-administrator", "a-key-of-somebody-else"
CALLERS = f"""
# who may come in
[callers.root]
key = "{ADMIN}"
policy = "operators"
[callers.ann]
key = "{PLAIN}"
[policy.operators]
admin = true
"""


class Admin:
    """The address of a gateway, asked by its administrator."""

    def __init__(self, url: str, key: str = ADMIN) -> None:
        self.url = url
        self._site = url.removesuffix("/mcp")
        self._headers = {"Authorization": f"Bearer {key}"}

    def ask(self, method: str, path: str, body: Any = None) -> httpx2.Response:
        more = {} if body is None else {"json": body}
        return httpx2.request(method, f"{self._site}/v1/admin/{path}", headers=self._headers, timeout=20, **more)

    def wait_for_servers(self, *names: str) -> list[Any]:
        deadline = time.monotonic() + 20
        found: list[Any] = []
        while {one["name"] for one in found} != set(names):
            assert time.monotonic() < deadline, found
            found = self.ask("GET", "servers").json()["servers"]
            time.sleep(0.02)
        return found


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


@contextmanager
def admin_of(served: Served) -> Iterator[Admin]:
    served.write(served.table("shop", "buy"), CALLERS)
    with served.over_http() as url:
        yield Admin(url)


def audited(served: Served, capsys: pytest.CaptureFixture[str]) -> list[Any]:
    assert main(["--config", str(served.config), "--home", str(served.home), "audit", "--json"]) == 0
    return [step for step in json.loads(capsys.readouterr().out)["steps"] if step["step"] == "admin"]


def test_19_only_a_policy_that_says_so_makes_an_administrator(served: Served, capsys: Any) -> None:
    with admin_of(served) as admin:
        wait_for_call(admin.url, "shop.buy", ADMIN)  # until there is a catalogue to trust
        for path in ("servers", "policies", "callers", "trust"):
            refused = Admin(admin.url, PLAIN).ask("GET", path)
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "NOT_AUTHORIZED")
            assert "admin = true" in refused.json()["error"]["next_action"]
            assert Admin(admin.url, "wrong").ask("GET", path).status_code == 401
            assert admin.ask("GET", path).is_success
    refusals = audited(served, capsys)
    assert [(step["caller"], step["code"]) for step in refusals] == [("ann", "NOT_AUTHORIZED")] * 4


def test_19_a_gateway_without_keys_has_no_administrator(served: Served) -> None:
    served.write(served.table("shop", "buy"))
    with served.over_http() as url:
        assert Admin(url).ask("GET", "servers").status_code == 403


def test_19_servers_come_are_switched_and_go_and_each_change_is_recorded(served: Served, capsys: Any) -> None:
    with admin_of(served) as admin:
        wait_for_call(admin.url, "shop.buy", ADMIN)
        program = {"command": sys.executable, "args": [str(served.program), "mail", "send"]}
        added = admin.ask("POST", "servers", {"name": "mail", "server": program})
        assert (added.status_code, added.json()["changed"]) == (200, "servers.mail"), added.text
        admin.wait_for_servers("shop", "mail")
        assert wait_for_call(admin.url, "mail.send", ADMIN)["content"][0]["text"].startswith("send ")
        assert "# who may come in" in served.config.read_text(), "comments stay"
        again = admin.ask("POST", "servers", {"name": "mail", "server": program})
        assert (again.status_code, again.json()["error"]["code"]) == (422, "INVALID_ARGUMENTS")
        assert "already" in again.json()["error"]["message"]
        assert admin.ask("POST", "servers/mail/refresh", {}).json()["tools"] == 1
        assert admin.ask("POST", "servers/mail/disable", {}).json()["changed"] == "servers.mail"
        assert admin.ask("POST", "servers/mail/disable", {}).json()["changed"] == ""
        assert admin.ask("POST", "servers/mail/explode", {}).status_code == 404
        assert admin.ask("POST", "servers/nothing/refresh", {}).status_code == 422
        removed = admin.ask("DELETE", "servers/mail")
        assert "[servers.mail]" in Path(removed.json()["backup"]).read_text()
        admin.wait_for_servers("shop")
    steps = audited(served, capsys)
    assert ("root", "POST /v1/admin/servers") in [(step["caller"], step["query"]) for step in steps]
    assert "DELETE /v1/admin/servers/mail" in [step["query"] for step in steps]
    assert {step.get("code", "") for step in steps} == {"", "INVALID_ARGUMENTS", "NOT_FOUND"}


def test_19_policies_and_callers_are_written_checked_and_never_tell_a_key(served: Served) -> None:
    key = "a-new-key-for-the-pipeline"
    with admin_of(served) as admin:
        wait_for_call(admin.url, "shop.buy", ADMIN)
        assert admin.ask("PUT", "policies/narrow", {"deny": ["shop.*"], "quotas": {"calls_at_once": 3}}).is_success
        put = admin.ask("PUT", "callers/ci", {"key": key, "policy": "narrow"})
        assert put.is_success, put.text
        served.wait_for("the configuration was read again")
        deadline = time.monotonic() + 20
        while "NOT_FOUND" not in str(call(admin.url, "shop.buy", {}, key)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        told = admin.ask("GET", "callers")
        assert {one["name"]: one["key"] for one in told.json()["callers"]} == {"root": True, "ann": True, "ci": True}
        assert not any(secret in told.text for secret in (key, ADMIN, PLAIN))
        assert served.config.stat().st_mode & 0o077 == 0, "it holds a key now"
        before = served.config.read_bytes()
        for path, body, word in (
            ("policies/bad", {"alow": []}, "alow"),
            ("policies/bad", {"allow": ["colour:red"]}, "unknown kind"),
            ("callers/ci", {"key": "short"}, "too short"),
            ("callers/ci", {"key": key, "policy": "nowhere"}, "there is no such policy"),
            ("callers/ci", {"key": "${A_VARIABLE_THAT_IS_NOT_SET}"}, "A_VARIABLE_THAT_IS_NOT_SET"),
        ):
            wrong = admin.ask("PUT", path, body)
            assert wrong.status_code == 422, wrong.text
            assert word in wrong.text
            assert "draft" not in wrong.text
        assert admin.ask("DELETE", "policies/narrow").status_code == 422, "a caller still has it"
        assert served.config.read_bytes() == before
        assert admin.ask("DELETE", "callers/ci").is_success
        assert admin.ask("DELETE", "policies/narrow").is_success
        assert admin.ask("DELETE", "callers/ann").is_success
        last = admin.ask("DELETE", "callers/root")
        assert (last.status_code, "anybody would be let in" in last.text) == (422, True)
    assert not list(served.home.glob("*.draft.toml")) + list(served.home.glob(".*.draft.toml"))


def test_19_what_is_trusted_is_listed_and_accepted(served: Served) -> None:
    served.write(served.table("shop", "buy"), CALLERS, "[trust]\naccept_new = false\n")
    with served.over_http() as url:
        admin = Admin(url)
        deadline = time.monotonic() + 20
        while not (waiting := admin.ask("GET", "trust").json().get("standings")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert [one["tool_id"] for one in waiting] == ["shop.buy"]
        assert admin.ask("POST", "trust", {}).status_code == 422
        assert admin.ask("POST", "trust", {"tools": ["shop.buy"]}).json() == {"accepted": ["shop.buy"]}
        wait_for_call(url, "shop.buy", ADMIN)


def test_19_a_configuration_of_another_program_is_read_only(tmp_path: Path) -> None:
    """As one is that comes from an image or a mounted secret: the answer says so, and what to do."""
    from four_faces import http_server

    from toolfold import Settings
    from toolfold.config.sections import CallerKey, Policy

    settings = Settings(
        home=tmp_path,
        callers=(CallerKey(name="root", key=ADMIN, policy="operators"),),
        policies=(Policy(name="operators", admin=True),),
        sources=(tmp_path / ".mcp.json",),
    )
    with http_server(settings) as address:
        refused = Admin(f"{address}/mcp").ask("PUT", "policies/p", {})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "CONFIG_READ_ONLY")
        assert "where it comes from" in refused.json()["error"]["next_action"]


def test_19_what_an_administrator_sends_is_bounded(served: Served) -> None:
    with admin_of(served) as admin:
        large = admin.ask("POST", "servers", {"name": "x", "server": {"command": "x" * 300_000}})
        assert (large.status_code, large.json()["error"]["code"]) == (413, "BODY_TOO_LARGE")
        assert admin.ask("POST", "servers", {"name": "x"}).status_code == 422
        deep = admin.ask("PUT", "policies/p", json.loads("[" * 900 + "]" * 900))
        assert deep.status_code == 422
