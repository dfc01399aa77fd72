"""Which era a server speaks is found out, remembered wrongly, and found out again."""

import asyncio
from typing import cast

import pytest
from misbehaving_stdio import misbehaving
from wire_helpers import QUICK, names, opened

from toolfold.errors import ServerUnavailable
from toolfold.types import Era
from toolfold.wire import LEGACY_VERSIONS, MODERN_VERSION, WireOptions, connect


async def era_of(*switches: str, era: Era | None = None) -> tuple[str | None, str]:
    async with opened(misbehaving(*switches), era=era) as connection:
        assert "echo" in await names(connection)
        assert connection.info.name == "misbehaving"
        return connection.info.era, connection.info.protocol_version


@pytest.mark.requirement("G-01")
@pytest.mark.parametrize(("spoken", "found"), [("legacy", "legacy"), ("modern", "modern"), ("dual", "modern")])
@pytest.mark.parametrize("remembered", [None, "legacy", "modern"])
def test_the_era_is_found_out_and_a_wrong_memory_heals(spoken: str, found: str, remembered: str | None) -> None:
    expected = "legacy" if (spoken, remembered) == ("dual", "legacy") else found
    assert asyncio.run(era_of("--era", spoken, era=cast("Era | None", remembered)))[0] == expected


@pytest.mark.parametrize("version", LEGACY_VERSIONS)
def test_every_handshake_version_is_spoken(version: str) -> None:
    assert asyncio.run(era_of("--era", "legacy", "--version", version)) == ("legacy", version)


def test_the_modern_version_is_spoken() -> None:
    assert asyncio.run(era_of("--era", "modern")) == ("modern", MODERN_VERSION)


def test_an_unknown_version_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ServerUnavailable, match="1999-01-01") as caught:
        asyncio.run(connect(misbehaving("--era", "legacy", "--version", "1999-01-01"), options=QUICK))
    assert "2024-11-05" in caught.value.hints


def test_a_server_that_dies_of_the_probe_is_started_once_more_without_it() -> None:
    assert asyncio.run(era_of("--era", "legacy", "--die-on-probe")) == ("legacy", "2025-11-25")


@pytest.mark.parametrize("switches", [("--ignore-unknown",), ("--hang", "server/discover")], ids=["ignores", "hangs"])
def test_a_legacy_server_that_never_answers_the_probe_is_not_waited_for(switches: tuple[str, ...]) -> None:
    assert asyncio.run(era_of("--era", "legacy", *switches))[0] == "legacy"


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_slow_starter_is_not_mistaken(era: str) -> None:
    """It takes longer than the probe is waited for."""

    async def main() -> str | None:
        options = WireOptions(probe_timeout_s=0.05, start_timeout_s=20)
        async with opened(misbehaving("--era", era, "--start-delay", "1.5"), options) as connection:
            return connection.info.era

    assert asyncio.run(main()) == era
