"""What `servers` and `doctor` say of stored sign-ins is so: of tokens that have ended, and where the key is gone."""

import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from pages import Pages, credential, pages
from sign_in_kit import write_config
from test_18_state_folder import toolfold

from toolfold.auth.vault import Credential, Vault

pytestmark = pytest.mark.usefixtures("no_proxy")


def ended(server: Pages) -> dict[str, tuple[Credential, str, str]]:
    """What is stored, what is said of it, and the mark that `doctor` puts before it."""
    # A renewal in vain may have ended it before its time.
    taken_back = credential(server, access_token="", refresh_token="", expires_at=time.time() + 3600)
    return {
        "not renewed": (credential(server), "with a token that ended 1970-01-01 ", "!"),
        "taken back": (taken_back, "signed in, which has ended", "✗"),
        "over": (credential(server, refresh_token=""), "signed in until 1970-01-01 00:00, which has ended", "✗"),
        "exchanged": (
            credential(server, refresh_token="", grant="exchange", expires_at=time.time() + 3600),
            ", exchanged anew when they come in",
            "✓",
        ),
    }


@pytest.mark.parametrize("case", ["not renewed", "taken back", "over", "exchanged"])
async def test_a_token_that_has_ended_is_not_said_to_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    async with pages() as server:
        stored, said, mark = ended(server)[case]
        await Vault(tmp_path / "home").put(replace(stored, server="box"))
        config = write_config(tmp_path, f"{server.origin}/mcp")
        _, shown = await toolfold(tmp_path, *config, "servers")
        assert said in shown
        _, shown = await toolfold(tmp_path, *config, "doctor")
        line = shown[: shown.index(said.removeprefix("signed in"))].rpartition("sign-in to box")[0]
        assert line.rstrip().endswith(mark), shown


async def test_where_the_key_is_gone_no_login_is_advised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with pages() as server:
        server.honest()
        config = write_config(tmp_path, f"{server.origin}/mcp")
        await Vault(tmp_path / "home").put(credential(server))
        monkeypatch.setenv("TOOLFOLD_VAULT_KEY", "")  # what it was sealed with
        monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
        for command in ("build", "servers", "doctor"):
            _, shown = await toolfold(tmp_path, *config, command)
            assert "next: toolfold login" not in shown, command
            assert "TOOLFOLD_VAULT_KEY" in shown, command
        code, shown = await toolfold(tmp_path, *config, "logout", "box")
        assert code == 0
        assert "a key until it is withdrawn" in shown


async def test_a_search_in_vain_names_who_waits_for_a_sign_in(tmp_path: Path) -> None:
    async with pages() as server:
        server.honest()
        config = write_config(tmp_path, f"{server.origin}/mcp")
        assert (await toolfold(tmp_path, *config, "build"))[0] == 3
        _, shown = await toolfold(tmp_path, *config, "search", "pay an invoice")
        assert "Sign-in needed: box. To sign in: the user runs `toolfold login NAME`." in shown
