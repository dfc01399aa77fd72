"""A key that will not do is told of before anybody signs in."""

import pytest
from pages import pages

from toolfold.auth.grants import prepare
from toolfold.auth.vault import KEY_VARIABLE, Vault
from toolfold.errors import ServerUnavailable

pytestmark = pytest.mark.usefixtures("no_proxy")


@pytest.mark.requirement("G-12")
async def test_a_short_key_is_refused_before_anybody_signs_in(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "short")
    async with pages() as server:
        server.honest()
        with pytest.raises(ServerUnavailable, match="fewer than 16 characters"):
            await prepare(server.spec, vault)
        assert not server.seen
