"""`toolfold login` in a real terminal: by paste, by device flow, in a browser; what it leaves, and Ctrl-C."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from provider import ProtectedHttp, Provider, provider
from sign_in_kit import Chromium, MarkedHttp, Terminal, write_config

from toolfold.auth.vault import Vault

pytestmark = pytest.mark.requirement("G-12")


def address(shown: str) -> str:
    found = re.search(r"https?://\S+", shown)
    assert found is not None
    return found[0]


@pytest.fixture(scope="module")
def issuer() -> Iterator[Provider]:
    with provider() as running:
        yield running


@pytest.fixture(scope="module")
def without_device() -> Iterator[Provider]:
    with provider(device=False) as running:
        yield running


@asynccontextmanager
async def marked(issuer: Provider, folder: Path, more: str = "", **switches: Any) -> AsyncIterator[tuple[str, ...]]:
    async with MarkedHttp(issuer=issuer.issuer, keys=await issuer.keys(), **switches) as server:
        yield write_config(folder, server.url, more)


def stored(folder: Path) -> list[Path]:
    return list((folder / "home/sign-ins").glob("*.sealed"))


async def test_without_a_browser_the_address_is_pasted(without_device: Provider, tmp_path: Path) -> None:
    oauth = '[servers.box.oauth]\nscopes = ["openid"]'
    async with marked(without_device, tmp_path, oauth) as options:
        async with Terminal(*options, "login", "box") as terminal:
            shown = await terminal.until("Paste the address you were sent to: ")
            terminal.type("a slip\n")
            await terminal.until("that is no address with a code in it")
            terminal.type(await without_device.visit(address(shown), "ada") + "\n")
            await terminal.until("signed in to box as ada")
            assert await terminal.ended() == 0
        credential = await Vault(tmp_path / "home").get("box")
        assert credential is not None
        assert credential.access_token not in terminal.shown
        async with Terminal(*options, "servers") as terminal:
            await terminal.until("box: signed in as ada")
            await terminal.ended()
            assert ", renewed by itself" in terminal.shown or " until 20" in terminal.shown
        async with Terminal(*options, "doctor") as terminal:
            await terminal.until("sealed with a key from the environment")
            await terminal.until("sign-in to box")
        async with Terminal(*options, "logout") as terminal:
            await terminal.until("signed out of box")
            assert await terminal.ended() == 0
        assert not stored(tmp_path)


async def test_without_a_browser_a_code_is_confirmed_elsewhere(issuer: Provider, tmp_path: Path) -> None:
    async with marked(issuer, tmp_path) as options, Terminal(*options, "login", "--device", "box") as terminal:
        shown = await terminal.until("waiting, for")
        code = re.search(r"and enter the code  (\S+)", shown)
        assert code is not None
        await issuer.visit(f"{address(shown)}?user_code={code[1]}", "bob")
        await terminal.until("signed in to box")
        assert await terminal.ended() == 0
    assert stored(tmp_path)


async def test_a_server_that_waits_is_found_without_its_name(issuer: Provider, tmp_path: Path) -> None:
    async with marked(issuer, tmp_path) as options:
        async with Terminal(*options, "build") as terminal:
            await terminal.until("needs sign-in: box: nobody is signed in to it")
            await terminal.until("next: toolfold login box")
            assert await terminal.ended() == 3
        async with Terminal(*options, "servers") as terminal:
            await terminal.until("next: toolfold login box")
            assert await terminal.ended() == 0
        async with Terminal(*options, "login", "--no-browser") as terminal:
            shown = await terminal.until("waiting, for")
            code = re.search(r"and enter the code  (\S+)", shown)
            assert code is not None
            await issuer.visit(f"{address(shown)}?user_code={code[1]}", "bob")
            await terminal.until("1 tool of box in the catalogue")
            assert await terminal.ended() == 0
        async with Terminal(*options, "login") as terminal:
            await terminal.until("no server waits for a sign-in")


@pytest.mark.parametrize("way", ["device", "paste", "browser"])
async def test_ctrl_c_ends_every_wait(issuer: Provider, without_device: Provider, tmp_path: Path, way: str) -> None:
    env = {"BROWSER": "true", "DISPLAY": ":99"} if way == "browser" else {}
    provider = issuer if way == "device" else without_device
    waits = {"device": "Ctrl-C to give up", "paste": "Paste the address", "browser": "Ctrl-C to give up"}[way]
    async with marked(provider, tmp_path) as options, Terminal(*options, "login", "box", env=env) as terminal:
        await terminal.until(waits)
        terminal.process.send_signal(signal.SIGINT)
        await terminal.until("interrupted")
        assert await terminal.ended() == 130
    assert "Traceback" not in terminal.shown
    assert not stored(tmp_path)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("http://127.0.0.1:45103/oauth/callback?code=x&state=other", "belongs to another sign-in"),
        ("nonsense", "that is no address with a code in it"),
        ("", "no address was given"),
    ],
)
async def test_a_wrong_answer_stores_nothing(
    without_device: Provider, tmp_path: Path, answer: str, reason: str
) -> None:
    async with marked(without_device, tmp_path) as options, Terminal(*options, "login", "box") as terminal:
        await terminal.until("Paste the address you")
        for _ in range(2):
            terminal.type(answer + "\n")
            await terminal.until(f"{reason}. Paste the address")
        terminal.type(answer + "\n")
        await terminal.until("nothing was stored")
        assert await terminal.ended() in (2, 3)
    assert not stored(tmp_path)


async def test_somebody_who_says_no_is_told_so(without_device: Provider, tmp_path: Path) -> None:
    async with marked(without_device, tmp_path) as options, Terminal(*options, "login", "box") as terminal:
        state = re.search(r"state=([^&\s]+)", await terminal.until("Paste the address"))
        assert state is not None
        issuer = without_device.issuer
        terminal.type(f"http://127.0.0.1/?error=access_denied&state={state[1]}&iss={issuer}\n")
        await terminal.until("access_denied")
        assert await terminal.ended() == 3
    assert not stored(tmp_path)


async def test_a_server_without_sign_in_says_so(issuer: Provider, tmp_path: Path) -> None:
    config = tmp_path / "toolfold.toml"
    config.write_text('[servers.box]\ncommand = "true"\n')
    async with Terminal("--config", str(config), "--home", str(tmp_path), "login", "box") as terminal:
        await terminal.until("is not reached over HTTP")
        assert await terminal.ended() == 2


async def test_in_chromium_the_callback_ends_it(issuer: Provider, tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    os.mkfifo(opened)
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}\n')
    browser.chmod(0o755)
    env = {"BROWSER": str(browser), "DISPLAY": ":99"}
    async with marked(issuer, tmp_path) as options, Chromium(tmp_path / "chromium-profile") as chromium:
        async with Terminal(*options, "login", "box", "--json", env=env) as terminal:
            shown = await terminal.until("Ctrl-C to give up")
            assert await asyncio.to_thread(opened.read_text) == address(shown)
            await chromium.open(address(shown))
            await chromium.fill_in({"login": "eve", "password": "x"})
            await chromium.press("form:not(:has(input[name=login])) button")
            assert "You can close this." in await chromium.text("You are signed in to box")
            await terminal.until('"server"')
            assert await terminal.ended() == 0
        said = json.loads(terminal.shown[terminal.shown.index("{\n") :])
        assert said["server"] == "box"
        assert not said["ended"]
    assert stored(tmp_path)


async def test_a_header_is_stored_for_one_caller(tmp_path: Path) -> None:
    async with MarkedHttp(api_keys={"a-key-that-nobody-sees": "ada"}) as server:
        options = write_config(tmp_path, server.url, 'credentials = "caller"')
        async with Terminal(*options, "build", "--no-search") as terminal:
            await terminal.until("next: run `toolfold login box --as CALLER`")
            assert await terminal.ended() == 3
        async with Terminal(*options, "login", "box", "--header", "X-Api-Key", "--as", "ann") as terminal:
            await terminal.until("X-Api-Key: ")
            terminal.type("a-key-that-nobody-sees\n")
            await terminal.until("1 tool of box in the catalogue")
            assert await terminal.ended() == 0
            assert "a-key-that" not in terminal.shown
        async with Terminal(*options, "servers") as terminal:
            await terminal.until("box: ann is signed in")
            await terminal.ended()
        async with Terminal(*options, "logout", "box", "--as", "somebody") as terminal:
            await terminal.until("nobody is signed in there")
            assert await terminal.ended() == 2
        async with Terminal(*options, "logout", "box", "--as", "ann") as terminal:
            await terminal.until("signed out of box as ann")
            await terminal.until("the key was deleted here alone: box takes it until it is withdrawn there")
            assert await terminal.ended() == 0
            assert "issuer" not in terminal.shown
        async with Terminal(*options, "servers") as terminal:
            await terminal.until("needs sign-in: box: its key in X-Api-Key was removed")
            await terminal.until("next: toolfold login box --header X-Api-Key")
    assert not stored(tmp_path)


async def give_key(options: tuple[str, ...], key: str, *answers: str, code: int) -> str:
    async with Terminal(*options, "login", "box", "--header", "X-Api-Key") as terminal:
        await terminal.until("X-Api-Key: ")
        terminal.type(f"{key}\n")
        for answer in answers:
            await terminal.until(answer)
        assert await terminal.ended() == code
        assert "signed in" not in terminal.shown
        return terminal.shown


@pytest.mark.parametrize("built", [False, True])
async def test_a_key_that_the_server_refuses_is_not_stored(tmp_path: Path, built: bool) -> None:
    async with MarkedHttp(api_keys={"a-key-that-nobody-sees": "ada"}) as server:
        options = write_config(tmp_path, server.url)
        if built:
            async with Terminal(*options, "build", "--no-search") as terminal:
                assert await terminal.ended() == 3
        shown = await give_key(options, "another-key", "box does not take this key", "nothing was stored", code=3)
        assert "another-key" not in shown
    assert not stored(tmp_path)
    await give_key(options, "a-key-that-nobody-sees", "key stored for box, not tried: ", "cannot be reached", code=0)
    assert stored(tmp_path)


async def test_a_fresh_token_that_the_server_refuses_is_no_sign_in(without_device: Provider, tmp_path: Path) -> None:
    async with ProtectedHttp(issuer=without_device.issuer, refuse_all=True) as server:
        options = write_config(tmp_path, server.url)
        async with Terminal(*options, "build", "--no-search") as terminal:
            assert await terminal.ended() == 3
        async with Terminal(*options, "login", "box") as terminal:
            shown = await terminal.until("Paste the address you were sent to: ")
            terminal.type(await without_device.visit(address(shown), "ada") + "\n")
            await terminal.until("the sign-in is stored, and box refused it")
            assert await terminal.ended() == 3
            assert "signed in to" not in terminal.shown


async def test_one_account_for_all_is_nobodys_own(issuer: Provider, tmp_path: Path) -> None:
    async with marked(issuer, tmp_path) as options, Terminal(*options, "login", "box", "--as", "ann") as terminal:
        await terminal.until("all callers share one account at box")
        assert await terminal.ended() == 2


async def test_who_must_register_a_client_is_told_the_true_redirect_address(tmp_path: Path) -> None:
    with provider(registration=False) as issuer:
        async with marked(issuer, tmp_path) as options, Terminal(*options, "login", "box") as terminal:
            await terminal.until("with the redirect address http://127.0.0.1:45103/oauth/callback")
            assert await terminal.ended() == 3


async def test_a_caller_is_named_and_known(issuer: Provider, tmp_path: Path) -> None:
    more = 'credentials = "caller"\n[callers.ann]\nkey = "key-of-ann-0123456789"'
    async with marked(issuer, tmp_path, more) as options:
        async with Terminal(*options, "login", "box", "--as", "nobody") as terminal:
            await terminal.until("no caller is called 'nobody'")
            assert await terminal.ended() == 2
        async with Terminal(*options, "login", "box", "--as", "ann", "--timeout", "1") as terminal:
            await terminal.until("To sign in to box, for the caller ann, open")
            await terminal.until("nobody signed in to box within 1 s")
            assert await terminal.ended() == 3
        async with Terminal(*options, "login", "box", "--timeout", "1") as terminal:
            await terminal.until("the account of whoever is at this machine (local)")
            assert await terminal.ended() == 3


async def test_without_terminal_and_browser_it_fails_at_once(issuer: Provider, tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")}
    async with marked(issuer, tmp_path) as options:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "toolfold", *options, "login", "box"),
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=env,
        )
        async with asyncio.timeout(30):
            _, said = await process.communicate()
        assert b"neither a browser nor a terminal" in said
        assert process.returncode == 2


async def test_a_sign_in_whose_key_is_gone_can_be_removed(tmp_path: Path) -> None:
    async with MarkedHttp(api_keys={"a-key-that-nobody-sees": "ada"}) as server:
        options = write_config(tmp_path, server.url)
        async with Terminal(*options, "login", "box", "--header", "X-Api-Key") as terminal:
            await terminal.until("X-Api-Key: ")
            terminal.type("a-key-that-nobody-sees\n")
            assert await terminal.ended() == 0
        other = {"TOOLFOLD_VAULT_KEY": "another key than before"}
        async with Terminal(*options, "doctor", env=other) as terminal:
            await terminal.until("1 stored cannot be opened: the stored sign-in to box cannot be read: it was sealed")
            await terminal.ended()
            assert "sealed with a key from" not in terminal.shown
        async with Terminal(*options, "logout", "box", env=other) as terminal:
            await terminal.until("signed out of box")
            assert await terminal.ended() == 0
    assert not stored(tmp_path)


async def test_a_lost_key_is_told_everywhere_and_nothing_new_is_made_of_it(tmp_path: Path) -> None:
    """The variable is missing in this shell: nothing is hidden, and with it everything is as before."""
    no_key = {"TOOLFOLD_VAULT_KEY": "", "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
    async with MarkedHttp(api_keys={"a-key-that-nobody-sees": "ada"}) as server:
        options = write_config(tmp_path, server.url)
        async with Terminal(*options, "login", "box", "--header", "X-Api-Key") as terminal:
            await terminal.until("X-Api-Key: ")
            terminal.type("a-key-that-nobody-sees\n")
            assert await terminal.ended() == 0
        for command in ("servers", "doctor", "build"):
            async with Terminal(*options, command, env=no_key) as terminal:
                await terminal.until("the key of the stored sign-ins is gone: TOOLFOLD_VAULT_KEY is not set")
                await terminal.until("To give them up: toolfold logout --all")
                await terminal.ended()
        async with Terminal(*options, "login", "box", "--header", "X-Api-Key", env=no_key) as terminal:
            await terminal.until("the key of the stored sign-ins is gone")
            assert await terminal.ended() == 3
            assert "X-Api-Key: " not in terminal.shown, "nobody is asked for what could not be kept"
        assert not (tmp_path / "home/sign-ins/vault.key").exists()
        async with Terminal(*options, "build") as terminal:
            await terminal.until("1 tool of 1 server")
            assert await terminal.ended() == 0
        async with Terminal(*options, "logout", "--all", env=no_key) as terminal:
            await terminal.until("signed out of box")
            assert await terminal.ended() == 0
    assert not stored(tmp_path)
