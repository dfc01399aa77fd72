"""A renewed token that cannot be written: it is used from memory, told of, kept from other processes, and written as
soon as that works. The gateway is a process of its own, whose disk is full (a limit of the kernel's) or read-only."""

import asyncio
import json
import resource
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from misbehaving_http import Request, send
from pages import Pages, credential
from sign_in_kit import MarkedHttp, write_config

from toolfold.__main__ import main
from toolfold.auth import grants
from toolfold.auth.session import OAuthSession
from toolfold.auth.vault import Vault
from toolfold.config import Settings
from toolfold.errors import ServerUnavailable, SignInRequired
from toolfold.types import OAuthSpec, ServerSpec
from toolfold.upstream.credentials import Credentials

pytestmark = [pytest.mark.usefixtures("no_proxy"), pytest.mark.requirement("G-14")]

SERVING = """
import asyncio, logging, sys
from pathlib import Path
from toolfold import Gateway, Settings
from toolfold.auth import session
from toolfold.errors import ToolfoldError
from toolfold.types import ServerSpec

session._YOUNG_S = 0.0  # the test withdraws tokens that were issued just now

async def main():
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    spec = ServerSpec(name="box", transport="http", url=sys.argv[2])
    async with Gateway(Settings(servers=(spec,), home=Path(sys.argv[1]))) as gateway:
        await gateway.build()
        while True:
            print("ready", flush=True)
            if not await asyncio.to_thread(sys.stdin.readline):
                return
            try:
                print((await gateway.call_tool("box.whoami", {})).text, flush=True)
            except ToolfoldError as error:
                print(error.code, error.message, flush=True)

asyncio.run(main())
"""


class Rotating(Pages):
    """An issuer that takes each refresh token once, and ends the sign-in of whoever sends one again."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.reused: list[bytes] = []

    async def issue(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        service = b"client_credentials" in request.body
        if not service and b"refresh_token=renew-%d&" % self.count not in request.body + b"&":
            self.reused.append(request.body)
            return send(writer, 400, b'{"error": "invalid_grant"}')
        self.count += 1
        tokens: dict[str, Any] = {"access_token": f"token-{self.count}", "token_type": "bearer", "expires_in": 3600}
        if not service:
            tokens["refresh_token"] = f"renew-{self.count}"
        return send(writer, 200, json.dumps(tokens).encode())


class Box(MarkedHttp):
    """Takes the token that was issued last, until it is withdrawn."""

    rotating: Rotating
    withdrawn = 0

    def _claims(self, token: str) -> dict[str, Any] | None:
        newest = self.rotating.count
        return {"sub": f"call with {newest}:"} if token == f"token-{newest}" and newest > self.withdrawn else None

    def withdraw(self) -> None:
        self.withdrawn = self.rotating.count


class Serving:
    """A gateway in a process of its own that makes a call for each line it gets."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said = ""

    async def line(self) -> str:
        assert self.process.stdout is not None
        async with asyncio.timeout(60):
            return (await self.process.stdout.readline()).decode().strip()

    async def call(self) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(b"call\n")
        answer = await self.line()
        assert await self.line() == "ready"
        return answer

    async def until(self, words: str) -> None:
        assert self.process.stderr is not None
        async with asyncio.timeout(60):
            while words not in self.said:
                data = await self.process.stderr.read(65536)
                assert data, f"{words!r} was never said, but: {self.said}"
                self.said += data.decode()

    def fill_disk(self, full: bool) -> None:
        _, most = resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (0 if full else most, most))

    async def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        async with asyncio.timeout(60):
            _, rest = await self.process.communicate()
        self.said += rest.decode()


@asynccontextmanager
async def serving(vault: Vault, box: Box, *before: str) -> AsyncIterator[Serving]:
    process = await asyncio.create_subprocess_exec(
        *before,
        *(sys.executable, "-c", SERVING, str(vault.folder.parent), box.url),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    made = Serving(process)
    try:
        if await made.line() != "ready":
            await made.end()
            raise AssertionError(made.said)
        yield made
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def signed_in(vault: Vault) -> AsyncIterator[tuple[Rotating, Box, tuple[str, ...]]]:
    issuer = Rotating()
    await issuer.open()
    issuer.honest()
    issuer.pages["/token"] = issuer.issue
    async with Box() as box:
        box.rotating = issuer
        options = write_config(vault.folder.parent.parent, box.url)
        await vault.put(credential(issuer, resource=box.url))
        yield issuer, box, options
    await issuer.aclose()


async def told(options: tuple[str, ...], capsys: pytest.CaptureFixture[str], *command: str) -> str:
    await asyncio.to_thread(main, [*command, *options])
    shown = capsys.readouterr()
    return " ".join((shown.out + shown.err).split())


async def test_18_what_cannot_be_written_is_used_from_memory_and_written_later(
    vault: Vault, capsys: pytest.CaptureFixture[str]
) -> None:
    async with signed_in(vault) as (issuer, box, options), serving(vault, box) as gateway:
        assert await gateway.call() == "call with 1: 0"
        gateway.fill_disk(True)
        for number in (2, 3, 4):  # each time with the refresh token that is in memory alone
            box.withdraw()
            assert await gateway.call() == f"call with {number}: 0"
        await gateway.until("the sign-in to box was renewed and cannot be written, so it is in memory alone")
        assert gateway.said.count("in memory alone") == 1
        stored = await Vault(vault.folder.parent).get("box")
        assert stored is not None
        assert stored.refresh_token == "renew-1"

        # Another process does not spend the old refresh token, which would end the sign-in.
        box.withdraw()
        session = OAuthSession(ServerSpec(name="box", transport="http", url=box.url), Vault(vault.folder.parent))
        with pytest.raises(ServerUnavailable, match="another toolfold has renewed it") as refused:
            await session.challenged(401, "Bearer", {"Authorization": "Bearer token-1"})
        assert not isinstance(refused.value, SignInRequired)
        for command in ("servers", "doctor"):
            said = await told(options, capsys, command)
            assert "renewed in memory alone: another toolfold has renewed it, and cannot write that down" in said
            assert "make room" in said
        assert not issuer.reused

        gateway.fill_disk(False)
        await gateway.until("the renewed sign-in to box is written now")
        stored = await Vault(vault.folder.parent).get("box")
        assert stored is not None
        assert stored.refresh_token == f"renew-{issuer.count}"
        assert "in memory alone" not in await told(options, capsys, "servers")
        assert dict(await session.headers()) == {"Authorization": f"Bearer token-{issuer.count}"}
        assert await gateway.call() == f"call with {issuer.count}: 0"
        await gateway.end()
        assert not issuer.reused
        assert "is lost" not in gateway.said
        assert not any(f"{kind}-{number}" in gateway.said for kind in ("token", "renew") for number in range(9))


async def test_18_what_is_lost_with_the_process_is_said(vault: Vault) -> None:
    async with signed_in(vault) as (_, box, _), serving(vault, box) as gateway:
        gateway.fill_disk(True)
        box.withdraw()
        assert await gateway.call() == "call with 2: 0"
        await gateway.end()
        assert "the renewed sign-in to box was in memory alone, and is lost with this process" in gateway.said
        assert "toolfold login box" in gateway.said


async def test_18_a_sign_in_made_meanwhile_is_not_written_over(vault: Vault) -> None:
    async with signed_in(vault) as (issuer, box, _), serving(vault, box) as gateway:
        gateway.fill_disk(True)
        box.withdraw()
        assert await gateway.call() == "call with 2: 0"
        # Somebody signs in anew, in another process, all at once for the gateway: it may be reading a list.
        gateway.process.send_signal(signal.SIGSTOP)
        issuer.count = 9
        await Vault(vault.folder.parent).put(
            credential(issuer, resource=box.url, access_token="token-9", refresh_token="renew-9", expires_at=0.0)
        )
        gateway.process.send_signal(signal.SIGCONT)
        gateway.fill_disk(False)
        box.withdraw()
        assert await gateway.call() == "call with 10: 0"
        await gateway.end()
        stored = await Vault(vault.folder.parent).get("box")
        assert stored is not None
        assert stored.refresh_token == "renew-10"
        assert not issuer.reused


async def test_18_a_folder_that_became_read_only_is_read_and_served_from(vault: Vault) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("there is no bwrap here to make a folder read-only, also for root")
    async with signed_in(vault) as (issuer, box, _):
        folder = str(vault.folder)
        for lock in vault.folder.glob("*.lock"):  # as after a copy: nothing is there that could be locked
            lock.unlink()
        async with serving(
            vault, box, "bwrap", "--die-with-parent", "--dev-bind", "/", "/", "--ro-bind", folder, folder
        ) as gateway:
            for number in (1, 2):
                assert await gateway.call() == f"call with {number}: 0"
                box.withdraw()
            await gateway.until("Read-only file system")
        assert not issuer.reused


async def test_18_signing_out_says_that_newer_tokens_are_elsewhere(
    vault: Vault, capsys: pytest.CaptureFixture[str]
) -> None:
    async with signed_in(vault) as (_, box, options), serving(vault, box) as gateway:
        gateway.fill_disk(True)
        box.withdraw()
        assert await gateway.call() == "call with 2: 0"
        assert "its newer tokens may live on" in await told(options, capsys, "logout", "box")
        gateway.fill_disk(False)
        box.withdraw()
        assert (await gateway.call()).startswith("SIGN_IN_REQUIRED")
        await gateway.end()
        assert await Vault(vault.folder.parent).get("box") is None


async def test_18_a_service_goes_on_without_room(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    issuer = Rotating()
    await issuer.open()
    issuer.honest(token_endpoint_auth_methods_supported=["client_secret_basic"])
    issuer.pages["/token"] = issuer.issue
    oauth = OAuthSpec(client_id="me", client_secret="a-secret-of-a-service", grant="client_credentials")
    spec = ServerSpec(name="box", transport="http", url=f"{issuer.origin}/mcp", oauth=oauth)
    await vault.put(await grants.client_credentials(spec, vault))
    (vault.folder / "box.sealed").unlink()
    (vault.folder / "box.sealed").mkdir()  # nothing can be put in the place of a folder, by whomever
    monkeypatch.setattr(Vault, "_check_room", lambda _: pytest.fail("nobody signs in here"))
    session = OAuthSession(spec, vault)
    assert await session.challenged(401, "Bearer", {})
    assert dict(await session.headers()) == {"Authorization": "Bearer token-2"}
    credentials = Credentials(lambda: [spec], vault.folder.parent, settings=Settings(servers=(spec,)))
    credentials.vault = vault
    (summary,) = await credentials.summaries()
    assert "Is a directory" in summary.describe()
    (vault.folder / "box.sealed").rmdir()
    await vault.aclose()
    await issuer.aclose()


@pytest.mark.parametrize("life", ["nan", "-1", "inf", "soon"])
async def test_18_a_life_that_is_no_number_can_be_told(vault: Vault, life: str) -> None:
    issuer = Pages()
    await issuer.open()
    issuer.honest()
    issuer.pages["/token"] = {"access_token": "token-1", "token_type": "Bearer", "expires_in": life}
    login = await (await grants.prepare(issuer.spec, vault)).code_login("http://127.0.0.1:1/oauth/callback")
    await vault.put(await login.finish({"state": login.state, "code": "a code"}))
    (summary,) = await Credentials(lambda: [issuer.spec], vault.folder.parent).summaries()
    assert ("until" in summary.describe()) == (life == "inf")
    await issuer.aclose()


async def test_18_an_answer_of_no_use_is_not_said_to_be_kept_and_not(vault: Vault) -> None:
    issuer = Pages()
    await issuer.open()
    issuer.honest()
    issuer.pages["/token"] = {"access_token": "token-1", "token_type": "mac"}
    await vault.put(credential(issuer))
    with pytest.raises(ServerUnavailable, match="cannot be renewed now") as refused:
        await OAuthSession(issuer.spec, vault).headers()
    assert "It is kept." in refused.value.next_action
    assert "nothing was stored" not in refused.value.next_action
    await issuer.aclose()
