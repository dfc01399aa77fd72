"""Several processes on one state folder see one catalogue: none takes away, or puts back, what another wrote."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import filed_stdio
import pytest
from served_config import Served, call, wait_for_call

import fork_server
from toolfold import Gateway, Settings

TOOLS = [
    {"name": "plain", "description": "Finds an order.", "inputSchema": {"type": "object"}},
    {"name": "asks", "description": "Asks a person.", "inputSchema": {"type": "object"}, "needs": "elicitation"},
    {"name": "folders", "description": "Reads folders.", "inputSchema": {"type": "object"}, "needs": "roots"},
]


@pytest.fixture
def served(tmp_path: Path) -> Served:
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    return Served(tmp_path)


def table(served: Served, name: str = "shop") -> str:
    args = json.dumps([filed_stdio.__file__, str(served.home / "tools.json"), "by-capability"])
    return f"[servers.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {args}\n"


def run(served: Served, *words: str, config: Path | None = None, code: int = 0) -> Any:
    command = [sys.executable, "-m", "toolfold", "--config", str(config or served.config), "--home", str(served.home)]
    done = fork_server.run([*command, "--json", *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def generation(served: Served) -> int:
    settings = Settings.load(served.config, home=served.home)
    with Gateway(settings, create=False).blocking() as gateway:
        return gateway.tree().generation


def test_17_catalogue_build_beside_serve_takes_no_tool_away_and_writes_nothing(served: Served) -> None:
    served.write(table(served))
    with served.over_http() as url:
        wait_for_call(url, "shop.asks")
        before = generation(served)
        built = run(served, "build", "--no-search")
        assert (built["changes"], built["generation"]) == ([], before)
        assert "content" in call(url, "shop.asks", {})


def test_17_catalogue_a_server_passed_through_alone_changes_it_for_nobody(served: Served) -> None:
    served.write(table(served))
    before = run(served, "build", "--no-search")["generation"]
    # What it has declared to the server is more than what others do, and so the server lists more.
    with served.over_http("--profile", "transparent") as url:
        served.wait_for("shop: started")
        assert "content" in call(url, "shop.plain", {})
        assert generation(served) == before


async def test_17_catalogue_the_newer_rules_hold_and_the_older_process_does_not_write_back(
    served: Served, tmp_path: Path
) -> None:
    def settings(rules: str) -> Settings:
        served.write(table(served), rules)
        return Settings.load(served.config, home=served.home)

    older = settings("[tools.'shop.plain']\nname = 'old'\n")
    newer = settings("[tools.'shop.plain']\nname = 'new'\nfixed = { a = 1 }\n")
    async with Gateway(older) as first:
        await first.build(index=False)
        assert set((await first.inventory())["shop"]) == {"old", "asks"}
        async with Gateway(newer) as second:
            await second.build(index=False)
            written = (await second.tree()).generation
            for _ in range(3):
                await first.reread("shop")
                await second.reread("shop")
                await first.catalogue.mark_failed("shop", "a moment")
                await first.reread("shop")
            assert set((await first.inventory())["shop"]) == {"new", "asks"}
            assert (await second.tree()).generation == written
            assert (await first.call_tool("shop.new", {})).is_error is False
    # Whoever comes later has the newest ones, be they the old again.
    async with Gateway(older) as third:
        await third.build(index=False)
        assert set((await third.inventory())["shop"]) == {"old", "asks"}


def test_17_catalogue_a_command_without_servers_empties_it_for_nobody(served: Served, tmp_path: Path) -> None:
    served.write(table(served))
    run(served, "build", "--no-search")
    empty = tmp_path / "empty.toml"
    empty.write_text("")
    command = [sys.executable, "-m", "toolfold", "--config", str(empty), "--home", str(served.home)]
    fork_server.run(
        [*command, "serve", "--profile", "live"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True
    )
    assert run(served, "tree")["tools"] == 2


def test_17_catalogue_the_last_server_leaves_while_it_serves_and_the_log_says_so(served: Served) -> None:
    served.write(table(served))
    with served.over_http() as url:
        wait_for_call(url, "shop.plain")
        served.write("[servers]\n")
        served.wait_for("shop: taken out of the configuration")
        assert call(url, "shop.plain", {})["error"]["code"] == "TOOL_NOT_FOUND"
        served.write(table(served))
        wait_for_call(url, "shop.plain")
        served.write(table(served) + "enabled = false\n")
        served.wait_for("shop: switched off in the configuration")


def test_17_servers_tells_what_another_process_runs_and_what_rests_there(served: Served) -> None:
    served.write(table(served), table(served, "other") + "keep_alive = true\n", "[limits]\nidle_s = 1\n")
    with served.over_http():
        process = int(served.wait_for("other: started").rpartition(" ")[2])
        served.wait_for("shop: stopped after 1 s")
        deadline = time.monotonic() + 20
        while (states := {state["name"]: state for state in run(served, "servers")})["shop"]["note"] == "":
            assert time.monotonic() < deadline, states
        assert states["shop"]["status"] == "idle"
        assert "in another toolfold: stopped after 1 s without a call" in states["shop"]["note"]
        assert (states["other"]["status"], states["other"]["pid"]) == ("ready", process)
    states = {state["name"]: state for state in run(served, "servers")}
    assert (states["other"]["status"], states["other"]["pid"]) == ("idle", None)
