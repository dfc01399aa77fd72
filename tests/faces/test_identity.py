"""Who asks, by the key in a request's headers."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolfold.config import CallerKey, Settings
from toolfold.errors import ConfigError, NotAuthorized, SecretNotFound
from toolfold.faces.identity import Identities
from toolfold.types import LOCAL, Caller

ALICE, BOB = "alice-key-0123456789", "bob-key-0123456789-ü"
SETTINGS = Settings(
    home=Path("/nowhere"),
    callers=(
        CallerKey(name="alice", key="${ALICE_KEY}", policy="readers", groups=("finance",)),
        CallerKey(name="bob", key=BOB),
        CallerKey(name="local", groups=("admins",)),
    ),
)


def identities() -> Identities:
    return Identities(SETTINGS, environ={"ALICE_KEY": ALICE})


@pytest.mark.requirement("G-05")
def test_a_key_names_its_caller_with_policy_and_groups() -> None:
    known = identities()
    assert known.identify({"authorization": f"Bearer {ALICE}"}) == Caller(
        name="alice", policy="readers", groups=("finance",)
    )
    found = known.identify({"Authorization": f"bearer  {BOB} "}, session="s1")
    assert (found.name, found.session, found.policy) == ("bob", "s1", "default")
    assert not known.open


def test_without_configured_keys_everybody_is_local() -> None:
    assert Identities(Settings(home=Path("/nowhere"))).identify({"authorization": "Bearer x"}) is LOCAL
    only_local = Settings(home=Path("/nowhere"), callers=(CallerKey(name="local"),))
    assert Identities(only_local).open


@pytest.mark.requirement("G-05")
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": ALICE},
        {"authorization": f"Basic {ALICE}"},
        {"authorization": f"Bearer {ALICE}x"},
        {"authorization": f"Bearer {ALICE[:-1]}"},
        {"authorization": f"Bearer {'x' * 10_000}"},
        {"authorization": f"Bearer {ALICE}", "Authorization": f"Bearer {BOB}"},
        {"x-api-key": ALICE},
    ],
)
def test_anything_else_is_refused_without_a_word_about_the_key(headers: dict[str, str]) -> None:
    with pytest.raises(NotAuthorized) as caught:
        identities().identify(headers)
    assert ALICE[:6] not in str(caught.value.as_dict())


@given(st.text(max_size=60))
def test_no_other_text_is_a_key(token: str) -> None:
    with pytest.raises(NotAuthorized):
        identities().identify({"authorization": f"Bearer {token}"})


def test_keys_are_not_kept_and_not_shown() -> None:
    known = identities()
    assert ALICE not in repr(vars(known))
    assert BOB not in repr(SETTINGS)


def test_a_key_that_is_not_set_keeps_the_face_from_starting() -> None:
    with pytest.raises(SecretNotFound, match="caller 'alice' needs the environment variable ALICE_KEY"):
        Identities(SETTINGS, environ={})
    with pytest.raises(ConfigError, match="too short"):
        Identities(SETTINGS, environ={"ALICE_KEY": "short"})


@pytest.mark.requirement("G-05", "G-06")
def test_callers_and_policies_are_read_and_checked(tmp_path: Path) -> None:
    file = tmp_path / "toolfold.toml"
    file.write_text(
        """
        [servers.git]
        command = "mcp-server-git"
        [callers.alice]
        key = "${ALICE_KEY}"
        policy = "readers"
        groups = ["finance"]
        [callers.local]
        groups = "admins"
        [policy.readers]
        allow = ["git.*", "path:Storage/**"]
        reveal = ["**"]
        [trust]
        hold_changed = true
        [audit]
        values = "masked"
        """
    )
    settings = Settings.load(file, environ={"HOME": str(tmp_path)})
    assert settings.callers == (
        CallerKey(name="alice", key="${ALICE_KEY}", policy="readers", groups=("finance",)),
        CallerKey(name="local", groups=("admins",)),
    )
    assert settings.policies[0].reveal == ("**",)
    assert (settings.trust.hold_changed, settings.audit.values) == (True, "masked")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[callers.alice]\npolicy = 'default'", "a caller needs a key"),
        ("[callers.alice]\nkey = 'abc'", "too short"),
        ("[callers.alice]\nkey = '${A}'\npolicy = 'reader'", "there is no such policy"),
        ("[callers.alice]\nkey = '${A}'\n[callers.bob]\nkey = '${A}'", "another caller has the same key"),
        ("[callers.local]\nkey = '${A}'", "needs no key"),
        ("[policy.p]\nallow = ['tags:x']", "unknown kind of pattern"),
        ("[policy.p]\ndeny = ['path:']", "the pattern is empty"),
        ("[audit]\nvalues = 'some'", "unknown value"),
        ("[trust]\nhold_changed = 'yes'", "expected true or false"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "toolfold.toml"
    file.write_text(f"[servers.git]\ncommand = 'git'\n{text}\n")
    with pytest.raises(ConfigError, match=said) as caught:
        Settings.load(file, environ={"HOME": str(tmp_path)})
    assert "toolfold.toml" in caught.value.message
    assert caught.value.next_action
