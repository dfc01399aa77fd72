"""`toolfold login` where nobody types: the end of input is no answer, a browser always gets one, whoever hangs is
named, and nothing but words comes out of it. And what is said of servers that want a key."""

import asyncio
import json
import os
import re
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from misbehaving_http import Request, send
from pages import METADATA, Pages, pages
from sign_in_kit import MarkedHttp, Terminal, write_config

pytestmark = [pytest.mark.usefixtures("no_proxy"), pytest.mark.requirement("G-12")]

TOKEN = {"access_token": "token-1", "token_type": "Bearer", "expires_in": 3600}


class Job:
    """A command without a terminal; what it said so far is in `said`."""

    said = ""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def until(self, pattern: str) -> re.Match[str]:
        assert self.process.stderr is not None
        async with asyncio.timeout(60):
            while (found := re.search(pattern, self.said)) is None:
                data = await self.process.stderr.read(65536)
                assert data, f"{pattern!r} was never said, but: {self.said}"
                self.said += data.decode()
        return found

    async def ended(self) -> int:
        async with asyncio.timeout(60):
            rest, said = await self.process.communicate()
        self.said += said.decode() + (rest or b"").decode()
        assert "Traceback" not in self.said
        return self.process.returncode or 0


@asynccontextmanager
async def job(
    *arguments: str,
    stdin: int = asyncio.subprocess.DEVNULL,
    before: Callable[[], Any] | None = None,
    more: Mapping[str, str] | None = None,
) -> AsyncIterator[Job]:
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "toolfold", *arguments),
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**{name: value for name, value in os.environ.items() if name not in hidden}, **(more or {})},
        preexec_fn=before,
    )
    try:
        yield Job(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def come_back(found: re.Match[str]) -> httpx2.Response:
    """What a browser gets that was sent back from the address in `found`."""
    query = httpx2.URL(found[0]).params
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        return await client.get(query["redirect_uri"], params={"state": query["state"], "code": "a code"})


def login(server: Pages, folder: Path, *more: str) -> tuple[str, ...]:
    return (*write_config(folder, f"{server.origin}/mcp"), "login", "box", "--no-browser", *more)


ADDRESS = r"http\S+authorize\S+(?=\s)"


@pytest.mark.parametrize("stdin", ["nothing", "closed", "an empty line"])
async def test_the_end_of_input_is_no_answer(tmp_path: Path, stdin: str) -> None:
    async with pages() as server:
        server.honest()
        empty = tmp_path / "empty"
        empty.write_text("\n")
        with empty.open("rb") as file:
            given = file.fileno() if stdin == "an empty line" else asyncio.subprocess.DEVNULL
            before = (lambda: os.close(0)) if stdin == "closed" else None
            async with job(*login(server, tmp_path, "--timeout", "50"), stdin=given, before=before) as running:
                found = await running.until(ADDRESS)
                await running.until("for 50 s at most\n")
                page = await come_back(found)
                assert "You are signed in to box" in page.text
                assert await running.ended() == 0, running.said
                assert "Paste" not in running.said, "nobody is there who could"
                assert "\nsigned in to box" in running.said


async def test_nobody_is_said_to_have_signed_in_where_nobody_did(tmp_path: Path) -> None:
    async with pages() as server:
        server.honest()
        async with job(*login(server, tmp_path, "--timeout", "1")) as running:
            await running.until(ADDRESS)
            assert await running.ended() == 3
        assert "nobody signed in to box within 1 s" in running.said


async def test_who_signed_in_in_time_is_not_lost_to_a_slow_issuer(tmp_path: Path) -> None:
    """The wait for the person is over; that for the issuer has its own bound, and its own words."""
    async with pages() as server:
        server.honest()
        answers = [json.dumps(TOKEN).encode(), b"no token"]

        async def slow(request: Request, writer: asyncio.StreamWriter) -> bool:
            if b"grant_type=refresh_token" in request.body:  # whether the client is still known
                return send(writer, 400, b'{"error":"invalid_grant"}')
            with suppress(TimeoutError):
                async with asyncio.timeout(3):
                    await asyncio.Event().wait()
            return send(writer, 200, answers.pop(0))

        server.pages["/token"] = slow
        for code, said in ((0, "signed in to box"), (3, f"the answer of {server.origin} cannot be read")):
            async with job(*login(server, tmp_path, "--timeout", "2")) as running:
                page = await come_back(await running.until(ADDRESS))
                assert page.status_code == (400 if code else 200)
                assert await running.ended() == code, running.said
            assert said in running.said
            assert "nobody signed in" not in running.said


async def test_a_browser_gets_an_answer_from_a_login_that_is_given_up(tmp_path: Path) -> None:
    async with pages() as server:
        server.honest()
        asked = asyncio.Event()

        async def hang(request: Request, writer: asyncio.StreamWriter) -> bool:
            asked.set()
            await asyncio.Event().wait()
            return False

        server.pages["/token"] = hang
        async with job(*login(server, tmp_path)) as running:
            coming = asyncio.ensure_future(come_back(await running.until(ADDRESS)))
            async with asyncio.timeout(30):
                await asked.wait()
            running.process.send_signal(signal.SIGINT)
            assert "This sign-in was given up" in (await coming).text
            assert await running.ended() == 130


async def test_18_a_browser_that_comes_twice_does_not_undo_the_sign_in(tmp_path: Path) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def token(_: Request, writer: asyncio.StreamWriter) -> bool:
        asked.set()
        await go.wait()
        return send(writer, 200, json.dumps(TOKEN).encode())

    async with pages() as server:
        server.honest()
        server.pages["/token"] = token
        async with job(*login(server, tmp_path, "--no-browser")) as running:
            found = await running.until(r"http://\S+/authorize\?\S+")
            first = asyncio.ensure_future(come_back(found))
            await asked.wait()
            assert (await come_back(found)).status_code == 404
            go.set()
            assert (await first).status_code == 200
            assert await running.ended() == 0, running.said


async def test_an_issuer_that_hangs_at_the_registration_is_named(tmp_path: Path) -> None:
    async def hang(request: Request, writer: asyncio.StreamWriter) -> bool:
        await asyncio.Event().wait()
        return False

    async with pages() as server:
        server.honest()
        server.pages["/register"] = hang
        async with job(*login(server, tmp_path, "--timeout", "1")) as running:
            assert await running.ended() == 3
        assert f"{server.origin} did not answer within 15 s" in running.said


async def test_without_room_nobody_signs_in_in_vain(tmp_path: Path) -> None:
    async with pages() as server:
        server.honest()
        small = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # noqa: E731
        async with job(*login(server, tmp_path), before=small) as running:
            assert await running.ended() == 3
        assert "sign-ins cannot be kept" in running.said
        assert "Make room there" in running.said
        assert not server.seen


async def test_a_code_is_waited_for_as_long_as_it_says(tmp_path: Path) -> None:
    async with pages() as server:
        server.honest(device_authorization_endpoint=f"{server.origin}/device")
        codes = {"device_code": "a device code", "user_code": "AB-CD", "verification_uri": f"{server.origin}/here"}
        server.pages["/device"] = codes
        server.pages["/token"] = (400, b'{"error":"authorization_pending"}')
        async with job(*login(server, tmp_path, "--timeout", "1")) as running:
            assert await running.ended() == 3
        assert "waiting, for 1 s at most" in running.said
        assert "nobody signed in to box within 1 s" in running.said


async def test_an_address_that_was_cut_off_is_no_other_sign_in(tmp_path: Path) -> None:
    async with pages() as server:
        server.honest()
        async with Terminal(*login(server, tmp_path)) as terminal:
            state = re.search(r"state=([^&\s]+)", await terminal.until("Paste the address you were sent to: "))
            assert state is not None
            terminal.type("\n")
            await terminal.until("no address was given. Paste the address you were sent to, whole:")
            terminal.type("http://127.0.0.1:1/oauth/callback?code=x\n")
            await terminal.until("that address was cut off before its end. Paste the address you were sent to, whole:")
            terminal.type(f"http://127.0.0.1:1/oauth/callback?code=x&state={state[1]}\n")
            await terminal.until("signed in to box")
            assert await terminal.ended() == 0


async def test_a_server_that_wants_a_key_is_given_the_same_command_everywhere(tmp_path: Path) -> None:
    async with MarkedHttp(api_keys={"a-key-that-nobody-sees": "ada"}) as server, pages() as plain:
        plain.pages["/mcp"] = (401, b"")
        options = write_config(tmp_path, f"{plain.origin}/mcp")
        for command in ("build", "servers", "doctor", "login"):
            more = ("--no-browser", "box") if command == "login" else ()
            async with job(*options, command, *more) as running:
                await running.ended()
            assert "toolfold login box --header HEADER" in " ".join(running.said.split()), (command, running.said)
        options = write_config(tmp_path, server.url)
        async with Terminal(*options, "login", "box", "--header", "X-Api-Key") as terminal:
            await terminal.until("X-Api-Key: ")
            terminal.type("a-key-that-nobody-sees\n")
            await terminal.until("1 tool of box in the catalogue")
            assert await terminal.ended() == 0
        server.api_keys = {}
        async with job(*options, "build") as running:
            assert await running.ended() == 3
        assert "next: toolfold login box --header X-Api-Key" in running.said
        async with job(*options, "logout", "box") as running:
            assert await running.ended() == 0
        for command in ("servers", "doctor"):
            async with job(*options, command) as running:
                await running.ended()
            assert "next: toolfold login box --header X-Api-Key" in running.said


async def test_a_service_whose_secret_is_wrong_hides_no_tool_behind_another_story(tmp_path: Path) -> None:
    async with pages() as server:
        server.honest(token_endpoint_auth_methods_supported=["client_secret_post"])
        server.pages["/token"] = (401, b'{"error":"invalid_client"}')
        assert METADATA in server.pages
        oauth = '[servers.box.oauth]\nclient_id = "me"\nclient_secret = "a wrong one"\ngrant = "client_credentials"'
        options = write_config(tmp_path, f"{server.origin}/mcp", oauth)
        for command in (("login", "box"), ("call", "box.whoami"), ("build",), ("call", "box.whoami")):
            async with job(*options, *command) as running:
                assert await running.ended() == 3, (command, running.said)
            assert "says invalid_client" in running.said
            assert "Check client_id and client_secret in [servers.box.oauth]" in " ".join(running.said.split())


async def test_what_waits_for_a_sign_in_is_said_once_and_with_the_right_step_first(tmp_path: Path) -> None:
    async with pages() as server:
        server.honest()
        options = write_config(tmp_path, f"{server.origin}/mcp")
        async with job(*options, "call", "box.whoami") as running:
            assert await running.ended() == 3
        assert "next: Run: toolfold login box\n" in running.said.replace("next: toolfold", "next: Run: toolfold")
        async with job(*login(server, tmp_path)) as running:
            server.pages["/token"] = {**TOKEN, "expires_in": 1, "refresh_token": "renew-1"}
            await come_back(await running.until(ADDRESS))
            await running.ended()
        server.pages["/token"] = (400, b'{"error":"invalid_grant"}')
        async with job(*options, "build") as running:
            assert await running.ended() == 3
        assert "needs sign-in: box: the sign-in to box has ended" in running.said
        async with job(*options, "servers") as running:
            await running.ended()
        assert running.said.count("needs sign-in: ") == 1
        assert running.said.count("toolfold login box") == 1
        async with job(*options, "doctor") as running:
            await running.ended()
        text = " ".join(running.said.split())
        assert f"sign-in to box: signed in, by {server.origin} until" in text
        assert text.count("toolfold login box") == 1, "one trouble is counted once"
