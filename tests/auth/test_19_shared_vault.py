"""Sign-ins that all gateways of one store have: sealed there, renewed by one at a time, over for all at once."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from provider import REDIRECT, ProtectedHttp, Provider, provider
from test_18_out_vault import TOKEN, credential

from toolfold import Settings
from toolfold.auth import shared_vault
from toolfold.auth.grants import prepare
from toolfold.auth.session import OAuthSession
from toolfold.auth.shared_vault import _SharedVault
from toolfold.auth.vault import KEY_VARIABLE
from toolfold.config.sections import SignIn
from toolfold.errors import ServerTimeout, ServerUnavailable, SignInRequired, StoreError
from toolfold.storage.base import Store
from toolfold.storage.postgres import PostgresStore
from toolfold.storage.sqlite import SqliteStore
from toolfold.types import ServerSpec
from toolfold.upstream.credentials import Credentials

pytestmark = pytest.mark.requirement("G-12")

# A gateway of its own: waits for a line, then does what the last argument says with its vault, and tells it.
PROCESS = """
import asyncio, sys
from contextlib import nullcontext
from pathlib import Path
import msgspec
from toolfold.auth.session import OAuthSession
from toolfold.auth.shared_vault import _SharedVault
from toolfold.storage.postgres import PostgresStore
from toolfold.storage.sqlite import SqliteStore
from toolfold.types import ServerSpec

async def main(address, folder, spec, do):
    store = PostgresStore(address) if address.startswith("postgresql://") else SqliteStore(address)
    async with store:
        vault = _SharedVault(Path(folder), lambda: nullcontext(store))
        await vault.follow()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        if do == "headers":
            session = OAuthSession(msgspec.json.decode(spec, type=ServerSpec), vault)
            sent = await asyncio.gather(*(session.headers() for _ in range(5)))
            print(*{one["Authorization"] for one in sent}, flush=True)
        else:
            async with vault.lock("box"):
                print("locked", flush=True)
                await asyncio.to_thread(sys.stdin.readline)
        await vault.aclose()

asyncio.run(main(*sys.argv[1:]))
"""


def store_at(address: str) -> Store:
    return PostgresStore(address) if address.startswith("postgresql://") else SqliteStore(address)


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "shared.sqlite" if request.param == "sqlite" else request.getfixturevalue("database"))


@pytest.fixture(scope="module")
def short_lived() -> Iterator[Provider]:
    with provider(ttl=5) as running:
        yield running


@asynccontextmanager
async def vaults(address: str, folder: Path, count: int = 2) -> AsyncIterator[list[_SharedVault]]:
    """Each as another gateway has it, with a store and a home of its own."""
    if count == 0:
        yield []
        return
    async with store_at(address) as store, vaults(address, folder, count - 1) as others:
        vault = _SharedVault(folder / f"home{count}", lambda: nullcontext(store))
        await vault.follow()
        try:
            yield [*others, vault]
        finally:
            await vault.aclose()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110 - what a vault notices it tells nobody
            await asyncio.sleep(0.05)


class Process:
    def __init__(self, address: str, folder: Path, do: str, spec: ServerSpec | None = None) -> None:
        self._arguments = (address, str(folder), "null" if spec is None else msgspec.json.encode(spec).decode(), do)

    async def __aenter__(self) -> "Process":
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROCESS, *self._arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert await self.line() == "ready"
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")

    async def line(self) -> str:
        assert self.process.stdout is not None
        return (await asyncio.wait_for(self.process.stdout.readline(), 60)).decode().strip()


async def test_what_one_gateway_signed_in_to_all_have_and_nobody_reads_in_the_store(
    address: str, tmp_path: Path
) -> None:
    async with vaults(address, tmp_path) as (one, two), store_at(address) as store:
        before = two.changed_at()
        for server, caller in (("Box", ""), ("box", "alice"), ("box", "../alice"), ("crate", "")):
            await one.put(credential(server, caller, f"{TOKEN}-{server}-{caller}"))
            assert await two.get(server, caller) == credential(server, caller, f"{TOKEN}-{server}-{caller}")
        assert await two.get("box", "bob") is None
        assert await two.list() == await one.list()
        assert len(await two.list()) == 4
        await until(lambda: two.stamp("box", "alice") != ())
        assert two.stamp("box", "alice") == one.stamp("box", "alice") != one.stamp("box")
        assert two.changed_at() != before
        kept = {**await store.items("sign-ins"), **await store.items("sign-in stamps")}
        assert not any(TOKEN.encode() in value or b"renewal" in value for value in kept.values())
        assert not one.folder.exists()
        assert not two.folder.exists()
        assert await two.delete("box", "alice")
        assert not await one.delete("box", "alice")
        assert await one.get("box", "alice") is None
        await until(lambda: one.stamp("box", "alice") == ())
        assert await one.get("box") is not None


async def test_18_what_the_store_cannot_take_is_held_and_written_later(address: str, tmp_path: Path) -> None:
    away = False
    async with vaults(address, tmp_path, 1) as (other,), store_at(address) as store:

        def opened() -> nullcontext[Store]:
            if away:
                raise StoreError("the store is away")
            return nullcontext(store)

        async def token_at(vault: _SharedVault) -> str:
            kept = await vault.get("box")
            assert kept is not None
            return kept.access_token

        one = _SharedVault(tmp_path / "home", opened)
        await one.follow()
        await one.put(credential(token="token-old"))
        away = True
        await one.keep(credential(token="token-renewed"))
        await one.write_unwritten()
        assert await token_at(one) == "token-renewed"
        assert "the store is away" in one.unwritten("box")
        away = False
        await one.write_unwritten()
        assert await token_at(other) == "token-renewed"
        assert not one.unwritten("box")
        # Somebody signs in at another gateway meanwhile.
        away = True
        await one.keep(credential(token="token-in-vain"))
        await other.put(credential(token="token-of-a-person"))
        away = False
        await one.write_unwritten()
        assert await token_at(one) == await token_at(other) == "token-of-a-person"
        await one.aclose()


async def test_one_that_was_sealed_with_another_key_or_moved_opens_as_nobodys(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with vaults(address, tmp_path) as (one, two), store_at(address) as store:
        await one.put(credential("box"))
        await one.put(credential("box", "alice"))
        sealed = await store.items("sign-ins")
        await store.put("sign-ins", "box.sealed", next(value for name, value in sealed.items() if name != "box.sealed"))
        with pytest.raises(SignInRequired, match="damaged"):
            await one.get("box")
        assert [one.caller for one in await two.list()] == ["alice"]
        monkeypatch.setenv(KEY_VARIABLE, "another key than before")
        with pytest.raises(SignInRequired, match="sealed with another key than that of the environment"):
            await _SharedVault(tmp_path / "third", lambda: nullcontext(store)).get("box", "alice")


async def test_without_a_key_for_all_nothing_is_kept_and_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SqliteStore(tmp_path / "shared.sqlite") as store:
        for key, wanted in (("", "there is no key for them"), ("short", "has fewer than")):
            monkeypatch.setenv(KEY_VARIABLE, key)
            with pytest.raises(ServerUnavailable, match=wanted) as refused:
                await _SharedVault(tmp_path, lambda: nullcontext(store)).put(credential())
            assert KEY_VARIABLE in refused.value.next_action
            assert "sign_in.key" in refused.value.next_action
            assert await store.items("sign-ins") == {}
        monkeypatch.setenv(KEY_VARIABLE, "")
        monkeypatch.setenv("OUR_KEY", "a key that all gateways have")
        vault = _SharedVault(tmp_path, lambda: nullcontext(store), "${env:OUR_KEY}")
        await vault.put(credential())
        assert vault.key_source == "configuration"
        monkeypatch.setenv(KEY_VARIABLE, "a key that all gateways have")
        assert await _SharedVault(tmp_path, lambda: nullcontext(store)).get("box") == credential()
    with pytest.raises(ServerUnavailable, match="the sign-ins in the store cannot be reached"):
        await vault.get("box")


async def test_gateways_in_three_processes_renew_one_token_once(
    address: str, short_lived: Provider, tmp_path: Path
) -> None:
    async with (
        ProtectedHttp(issuer=short_lived.issuer, keys=await short_lived.keys()) as server,
        vaults(address, tmp_path, 1) as (vault,),
    ):
        spec = ServerSpec(name="box", transport="http", url=server.url)
        login = await (await prepare(spec, vault)).code_login(REDIRECT)
        signed_in = await login.finish(await short_lived.visit(login.url, "alice"))
        await vault.put(replace(signed_in, expires_at=1.0))
        before = (await short_lived.counts()).get("refresh_token", 0)
        async with (
            Process(address, tmp_path / "second", "headers", spec) as second,
            Process(address, tmp_path / "third", "headers", spec) as third,
        ):
            second.go()
            third.go()
            sessions = [OAuthSession(spec, vault) for _ in range(4)]
            sent = await asyncio.gather(*(session.headers() for session in sessions for _ in range(5)))
            tokens = {one["Authorization"] for one in sent} | {await second.line(), await third.line()}
        assert len(tokens) == 1
        assert (await short_lived.counts())["refresh_token"] - before == 1


async def test_a_renewal_waits_for_the_gateway_that_has_it_and_not_for_one_that_was_killed(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with vaults(address, tmp_path) as (one, two), Process(address, tmp_path / "other", "lock") as other:
        other.go()
        assert await other.line() == "locked"
        monkeypatch.setattr(shared_vault, "_WAIT_S", 0.3)
        with pytest.raises(ServerTimeout, match="another gateway has been renewing the sign-in to box"):
            async with one.lock("box"):
                pytest.fail("two have it")
        async with one.lock("crate"), one.lock("box", "alice"):
            pass  # each has its own
        other.process.kill()
        await other.process.wait()
        monkeypatch.setattr(shared_vault, "_WAIT_S", 60.0)
        running, most = 0, 0

        async def renew(vault: _SharedVault) -> None:
            nonlocal running, most
            async with vault.lock("box"):
                running += 1
                most = max(most, running)
                await vault.get("box")
                running -= 1

        await asyncio.gather(*(renew(vault) for vault in (one, two) * 3))
        assert most == 1


async def test_whoever_got_a_clients_secret_first_is_the_one_for_all_gateways(address: str, tmp_path: Path) -> None:
    async with vaults(address, tmp_path) as (one, two):
        found = await asyncio.gather(
            *(vault.issuer_of("box", "me", f"https://{number}.example", chosen=False)
              for number, vault in enumerate((one, two) * 3))
        )  # fmt: skip
        assert len(set(found)) == 1
        assert await two.issuer_of("box", "me", "https://chosen.example", chosen=True) == "https://chosen.example"
        assert await one.issuer_of("box", "me", "https://0.example", chosen=False) == "https://chosen.example"


def test_a_command_without_a_gateway_has_the_same_sign_ins(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", sign_in=SignIn(shared="store"))
    spec = ServerSpec(name="box", transport="http", url="https://box.example/mcp")

    def credentials() -> Credentials:
        return Credentials(lambda: [spec], settings.home, settings=settings)

    assert not credentials().has("box", "")
    asyncio.run(credentials().vault.put(credential()))
    assert credentials().has("box", "")
    assert [one.server for one in asyncio.run(credentials().summaries())] == ["box"]
    assert not Credentials(lambda: [spec], settings.home).has("box", ""), "files are another vault"
    assert "key" not in repr(SignIn(key="a secret in plain text"))
