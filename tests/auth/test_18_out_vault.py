"""The vault: what is kept, by whom it can be read, and what a damaged file costs."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends.fail import Keyring as NoKeyring
from rich.pretty import pretty_repr

from toolfold.auth.vault import KEY_VARIABLE, Credential, Vault
from toolfold.errors import ServerUnavailable, SignInRequired
from toolfold.redaction import learn, redact
from toolfold.upstream.credentials import Credentials

TOKEN = "token-that-nobody-sees"


def credential(server: str = "box", caller: str = "", token: str = TOKEN) -> Credential:
    return Credential(
        server=server,
        caller=caller,
        resource="https://box.example/mcp",
        issuer="https://login.example",
        token_endpoint="https://login.example/token",
        client_id="me",
        access_token=token,
        refresh_token="renewal-that-nobody-sees",
    )


async def test_each_sign_in_has_a_sealed_file_of_its_own(vault: Vault) -> None:
    names = [("box", ""), ("box", "alice"), ("box", "../../alice"), ("crate", "")]
    for server, caller in names:
        await vault.put(credential(server, caller, f"{TOKEN}-{server}-{caller}"))
    for server, caller in names:
        stored = await Vault(vault.folder.parent).get(server, caller)
        assert stored == credential(server, caller, f"{TOKEN}-{server}-{caller}")
    assert len(await vault.list()) == 4
    assert TOKEN not in repr(await vault.list())
    assert TOKEN not in pretty_repr(await vault.list())
    files = [file for file in vault.folder.iterdir() if file.suffix == ".sealed"]
    assert len(files) == 4
    assert {file.stat().st_mode & 0o777 for file in vault.folder.iterdir()} == {0o600}
    assert vault.folder.stat().st_mode & 0o777 == 0o700
    assert not any(TOKEN.encode() in file.read_bytes() for file in files)
    assert await vault.delete("box", "alice")
    assert not await vault.delete("box", "alice")
    assert await vault.get("box", "alice") is None
    assert await vault.get("box") is not None


@pytest.mark.parametrize("fault", ["cut", "flipped", "empty", "foreign", "swapped", "folder"])
async def test_a_damaged_file_costs_one_sign_in_and_says_so(
    vault: Vault, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await vault.put(credential("box"))
    await vault.put(credential("crate"))
    file = vault.folder / "box.sealed"
    sealed = file.read_bytes()
    match fault:
        case "cut":
            file.write_bytes(sealed[:-7])
        case "flipped":
            file.write_bytes(sealed[:-1] + bytes([sealed[-1] ^ 1]))
        case "empty":
            file.write_bytes(b"")
        case "swapped":
            file.write_bytes((vault.folder / "crate.sealed").read_bytes())
        case "folder":
            file.unlink()
            file.mkdir()
        case "foreign":
            monkeypatch.setenv(KEY_VARIABLE, "another key than before")
            await Vault(vault.folder.parent).put(credential("box"))
    with pytest.raises(SignInRequired) as refused:
        await vault.get("box")
    assert "toolfold login box" in refused.value.next_action
    if fault == "foreign":
        assert "another key than that of the environment" in refused.value.message
    assert [kept.server for kept in await vault.list()] == ["crate"]
    if fault != "folder":
        await vault.put(credential("box"))
        assert await vault.get("box") == credential("box")


@pytest.mark.parametrize(
    ("backend", "source"),
    [("keyring.backends.fail.Keyring", "key file"), ("keyring.backends.null.Keyring", "key file")],
)
async def test_without_a_keyring_the_key_lies_in_a_file_of_its_owner(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, backend: str, source: str
) -> None:
    monkeypatch.delenv(KEY_VARIABLE)
    script = (
        "import asyncio, sys; from pathlib import Path; from toolfold.auth.vault import Credential, Vault\n"
        "vault = Vault(Path(sys.argv[1]))\n"
        "made = Credential(server=sys.argv[2], resource='r', issuer='i', token_endpoint='t', client_id='c')\n"
        "asyncio.run(vault.put(made)); print(vault.key_source)"
    )
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", backend)
    home = str(vault.folder.parent)
    started = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", script, home, f"box{number}", stdout=subprocess.PIPE)
        for number in range(4)
    ]
    written = [(await process.communicate())[0].decode().strip() for process in started]
    assert written == [source] * 4
    assert len(await vault.list()) == 4, "four processes that began at once made one key"
    assert (vault.folder / "vault.key").stat().st_mode & 0o777 == 0o600


class MemoryKeyring(KeyringBackend):
    """A keyring that works, for as long as the test runs."""

    priority = 1
    kept: ClassVar[dict[tuple[str, str], str]] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password


async def test_with_a_keyring_the_key_lies_there_and_in_no_file(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE)
    usual = keyring.get_keyring()
    keyring.set_keyring(MemoryKeyring())  # type: ignore[no-untyped-call]
    try:
        await vault.put(credential())
        again = Vault(vault.folder.parent)
        assert await again.get("box") == credential()
        assert again.key_source == "keyring"
        assert not (vault.folder / "vault.key").exists()
    finally:
        keyring.set_keyring(usual)


async def test_one_process_at_a_time_renews(vault: Vault) -> None:
    running: list[str] = []
    most = 0

    async def renew(name: str, other: Vault) -> None:
        nonlocal most
        async with other.lock("box"):
            running.append(name)
            most = max(most, len(running))
            for _ in range(5):
                await asyncio.to_thread(bool)
            running.remove(name)

    await asyncio.gather(*(renew(str(number), Vault(vault.folder.parent)) for number in range(10)))
    assert most == 1


async def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(ServerUnavailable, match="sign-ins cannot be kept"):
        await Vault(tmp_path / "home").put(credential())


async def test_what_is_read_or_written_is_redacted_from_then_on(vault: Vault) -> None:
    await vault.put(credential(token="a token/with=odd+signs"))
    assert redact("got a%20token%2Fwith%3Dodd%2Bsigns and a token/with=odd+signs", ()) == "got *** and ***"
    learn(*(f"number-{number}" for number in range(3000)))
    assert redact("number-2999", ()) == "***"


async def test_no_new_key_is_made_beside_files_that_it_cannot_open(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable was forgotten, or the folder came from a machine whose keyring has the key."""
    names = [("box", ""), ("box", "alice"), ("crate", "")]
    for server, caller in names:
        await vault.put(credential(server, caller))
    monkeypatch.delenv(KEY_VARIABLE)
    usual = keyring.get_keyring()
    monkeypatch.setattr(MemoryKeyring, "kept", {})
    before = sorted(vault.folder.glob("*.sealed"))
    try:
        for there in (NoKeyring(), MemoryKeyring()):  # type: ignore[no-untyped-call]
            keyring.set_keyring(there)
            moved = Vault(vault.folder.parent)
            for step in (moved.get("box"), moved.put(credential("third")), moved.unlock()):
                with pytest.raises(SignInRequired, match="the key of the stored sign-ins is gone") as gone:
                    await step
                assert KEY_VARIABLE in gone.value.next_action
                assert "toolfold logout --all" in gone.value.next_action
            assert await moved.list() == ()
            told = await Credentials(list, vault.folder.parent).summaries(["alice"])
            assert {(one.server, one.caller) for one in told} == set(names)
            assert all("is gone" in one.problem for one in told)
        assert not (vault.folder / "vault.key").exists()
        assert not MemoryKeyring.kept
        assert sorted(vault.folder.glob("*.sealed")) == before
        for server, caller in names:
            assert await vault.delete(server, caller)
        await moved.put(credential("box"))  # nothing is there any more that a new key could hide
        assert moved.key_source == "keyring"
    finally:
        keyring.set_keyring(usual)


async def test_a_key_that_is_too_short_is_told_of_each_and_stops_no_list(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    await vault.put(credential("box"))
    monkeypatch.setenv(KEY_VARIABLE, "short")
    credentials = Credentials(list, vault.folder.parent)
    (told,) = await credentials.summaries()
    assert "has fewer than 16 characters" in told.problem
    await credentials.sign_out("box", "")
    assert await credentials.summaries() == []


async def test_a_sign_in_that_cannot_be_read_is_known_by_a_mark_and_can_be_removed_by_it(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    await vault.put(credential("box", "alice"))
    monkeypatch.setenv(KEY_VARIABLE, "another key than before")
    credentials = Credentials(list, vault.folder.parent)
    (told,) = await credentials.summaries()
    assert told.caller.startswith("#")
    assert "another key than that of the environment" in told.problem
    await credentials.sign_out(told.server, told.caller)
    assert await credentials.summaries() == []
