"""The clock of the machine is set an hour forward and an hour back while a gateway serves: what is counted in seconds
goes on, what names a moment follows the clock, and nothing is lost or out of order. The clock is that of a real
process, as libfaketime shows it; the clock that nobody can set, which Linux keeps beside it, is left alone as it
would be."""

import asyncio
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from gateway_process import LONG, GatewayProcess, Home, figure, until
from hostile_issuer import RESOURCE, issuing, scene

from toolfold.auth import resource

HOUR = 3600


class Clock:
    """The clock of the processes that are started with `env`."""

    def __init__(self, folder: Path) -> None:
        libfaketime = pytest.importorskip("libfaketime", reason="pip install libfaketime: it steps a process's clock")
        library = Path(libfaketime.__file__).parent / "vendor" / "libfaketime" / "src" / "libfaketime.so.1"
        if sys.platform != "linux" or platform.machine() != "x86_64" or not library.exists():
            pytest.skip("libfaketime's wheel has a library for Linux on x86-64 only")
        self._file = folder / "clock"
        self.set(0)
        self.env = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            # Waits with a time limit hang with it, on a C library that needs no such fix.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
            "DONT_FAKE_MONOTONIC": "1",
            "TZ": "UTC",
        }

    def set(self, offset: int) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(f"{offset:+d}\n")
        os.replace(new, self._file)  # noqa: PTH105 - in one step


TABLES = """
[limits]
tool_response_max_bytes = 2048
idle_s = 1800

[outputs]
directory = "{outputs}"
lifetime_s = 7200

[audit]
values = "full"

[callers.alice]
key = "a key of alice, long enough"

[auth]
issuer = "{issuer}"
resource = "http://127.0.0.1/mcp"
policy = "default"
introspection_client = "gateway"
introspection_secret = "not very secret"
"""
KEY = "a key of alice, long enough"


def status(gateway: GatewayProcess, token: str) -> int:
    with gateway.client(token) as client:
        return client.post("/v1/list", json={}).status_code


def test_steps_of_an_hour_forward_and_back(tmp_path: Path) -> None:
    clock = Clock(tmp_path)
    home = Home(tmp_path)
    with issuing() as issuer:
        home.write(
            TABLES.format(outputs=home.outputs, issuer=issuer.url),
            Home.server("bad", "misbehaving_stdio.py"),
            Home.server("big", "large_stdio.py"),
        )
        with home.serve(env=clock.env) as gateway:
            now = int(time.time())
            good = issuer.sign(aud="http://127.0.0.1/mcp", exp=now + 300, iat=now)
            issuer.tokens["opaque"] = {
                "active": True,
                "sub": "ann",
                "aud": "http://127.0.0.1/mcp",
                "iss": issuer.url,
                "exp": now + 20 * HOUR,
                "scope": "tools:use",
            }
            seen = play(gateway, clock, good)
            issuer.tokens.clear()
            if LONG:  # half a minute: the test below asks the same
                until(lambda: status(gateway, "opaque") == 401, "a token that was revoked goes on", 60)
        order = [step["arguments"]["number"] for step in calls(home, clock)]
    assert order == list(range(len(order))), order
    assert len(order) == seen
    figure("steps of an hour", steps=4, calls=seen, out_of_order=0)


def play(gateway: GatewayProcess, clock: Clock, good: str) -> int:
    number = 0

    def call() -> None:
        nonlocal number
        answer = gateway.call("bad.echo", KEY, number=number)
        assert answer["structuredContent"] == {"number": number}
        number += 1

    gateway.wait_for("big.echo", KEY, text="x")
    pid = json.loads(gateway.wait_for("bad.environment", KEY)["content"][0]["text"])["pid"]
    stored = gateway.wait_for("big.large", KEY, megabytes=0.1)["content"][0]["text"]
    handle = stored.split('handle = "')[1].split('"')[0]
    page = gateway.post("search_tool_by_category", KEY, query="echo a text", limit=2)
    cursor = page["next_cursor"]
    assert status(gateway, good) == 200
    assert status(gateway, "opaque") == 200
    # Forward: what ends at a moment has ended; what counts seconds has not moved.
    for offset, expected in ((HOUR, 401), (0, 200), (-HOUR, None), (0, 200)):
        clock.set(offset)
        call()
        assert expected is None or status(gateway, good) == expected
        assert status(gateway, "opaque") == 200
        assert status(gateway, "no token of anybody") == 401
        again = gateway.post("search_tool_by_category", KEY, query="echo a text", limit=2, cursor=cursor)
        assert "results" in again, again
        text = gateway.post("tool_output", KEY, handle=handle, extract="lines 1-1")["text"]
        assert "INFO worker-7" in text, text
        assert json.loads(gateway.call("bad.environment", KEY)["content"][0]["text"])["pid"] == pid
        call()
    clock.set(-HOUR)
    call()
    return number


def calls(home: Home, clock: Clock) -> list[dict[str, Any]]:
    done = home.run("audit", "--json", "--caller", "alice")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    found = value if isinstance(value, list) else value["steps"]
    return [step for step in found if "number" in (step.get("arguments") or {})]


async def test_a_token_that_was_revoked_is_not_let_in_by_a_clock_that_went_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "_KNOWN_S", 0.1)
    real, offset = time.time, 0
    monkeypatch.setattr(time, "time", lambda: real() + offset)
    with issuing() as issuer:
        claims = {"active": True, "sub": "ann", "aud": RESOURCE, "iss": issuer.url, "exp": int(real()) + 20 * HOUR}
        issuer.tokens["opaque"] = claims
        async with scene(tmp_path, issuer, introspection_client="gateway", introspection_secret="secret") as asked:
            assert (await asked.ask("opaque")).status_code == 200
            issuer.tokens.clear()
            offset = -HOUR
            async with asyncio.timeout(20):
                while (await asked.ask("opaque")).status_code != 401:
                    pass  # each question is a round trip
