"""What a log holds at the most talkative: the wire's own log writes headers as they are, and a server may quote any."""

import asyncio
import json
import logging
import os
import sys
from pathlib import Path

import pytest
from misbehaving_http import Request, send
from pages import credential, pages
from sign_in_kit import write_config

from toolfold.auth.session import OAuthSession
from toolfold.auth.vault import Vault
from toolfold.redaction import learn
from toolfold.telemetry.logs import log_as_json, log_handler

pytestmark = pytest.mark.usefixtures("no_proxy")

SECRETS = ("token-that-is-quoted", "cookie-of-the-server", "renewal-to-be-hidden", "token-issued-anew")


async def quote(request: Request, writer: asyncio.StreamWriter) -> bool:
    said = f'Bearer error="invalid_token", error_description="bad {request.headers.get("authorization")}"'
    return send(writer, 401, b"", {"WWW-Authenticate": said, "Set-Cookie": f"id={SECRETS[1]}"})


@pytest.mark.requirement("G-12")
@pytest.mark.parametrize("form", [(), ('[telemetry]\nlogs = "json"',)], ids=["text", "json"])
async def test_no_log_line_holds_a_secret_at_any_verbosity(tmp_path: Path, form: tuple[str, ...]) -> None:
    async with pages() as server:
        server.honest()
        server.pages["/mcp"] = quote
        server.pages["/token"] = {"access_token": SECRETS[3], "token_type": "Bearer", "expires_in": 3600}
        await Vault(tmp_path / "home").put(
            credential(server, access_token=SECRETS[0], refresh_token=SECRETS[2], obtained_at=1.0, expires_at=0.0)
        )
        options = write_config(tmp_path, f"{server.origin}/mcp", *form)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "toolfold", *options, "build", "-vv"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=dict(os.environ),
        )
        said = (await process.communicate())[0].decode()
        assert any(SECRETS[0] in request.headers.get("authorization", "") for request in server.seen)
        assert any(SECRETS[2] in request.body.decode() for request in server.seen)
    assert [secret for secret in SECRETS if secret in said] == []


def test_a_known_secret_is_masked_in_the_lines_of_every_library(capsys: pytest.CaptureFixture[str]) -> None:
    learn("a-token-that-is-known")
    for handler in (log_handler(logging.Formatter("%(message)s")), _json_handler()):
        for name, level in (("other", logging.WARNING), ("toolfold.x", logging.DEBUG), ("asyncio", logging.DEBUG)):
            record = logging.makeLogRecord({"name": name, "levelno": level, "msg": "%s has %s"})
            record.args = (name, {"token": "a-token-that-is-known"})
            handler.handle(record)
    said = capsys.readouterr().err
    assert said.count("***") == 4
    assert "asyncio" not in said
    assert "a-token-that-is-known" not in said
    assert json.loads(said.splitlines()[-1])["message"].startswith("toolfold.x has")


def _json_handler() -> logging.Handler:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers[:] = []
    try:
        log_as_json(logging.DEBUG)
        return root.handlers[0]
    finally:
        root.handlers[:] = before
        root.setLevel(level)


async def test_in_a_program_that_logs_all_the_wire_stays_quiet(vault: Vault, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with pages() as server:
        server.honest()
        server.pages["/token"] = {"access_token": SECRETS[3], "token_type": "Bearer", "expires_in": 3600}
        await vault.put(credential(server, refresh_token=SECRETS[2]))
        assert SECRETS[3] in str(await OAuthSession(server.spec, vault).headers())
    assert not [record for record in caplog.records if record.name.startswith("httpcore2")]
