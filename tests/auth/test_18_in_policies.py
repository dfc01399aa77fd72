"""What a token's claims lead to: the policy, the groups, the name; scopes; opaque tokens; keys beside tokens."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_issuer import RESOURCE, Issuer, Scene, issuing, message_of, scene
from msgspec.structs import replace

from toolfold.auth.resource import ProtectedResource
from toolfold.config import Auth, CallerKey, Policy, Settings
from toolfold.errors import ConfigError, SecretNotFound
from toolfold.faces.identity import Identities
from toolfold.types import Caller

KEY = "key-of-bob-0123456789"
POLICIES = (
    Policy(name="nested", claims={"realm_access.roles": "admin"}),
    Policy(name="both", claims={"groups": ["platform", "on-call"], "email_verified": True}),
    Policy(name="platform", claims={"groups": "platform"}),
    Policy(name="named", claims={"https://example.com/team": "data"}),
    Policy(name="writers", claims={"scope": "tools:write"}),
    Policy(name="stepped", claims={"groups": "stepped"}, scopes=("tools:use", "tools:write")),
    Policy(name="unclaimed"),
)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as made:
        yield made


def identities_of(issuer: Issuer, *policies: Policy, callers: tuple[CallerKey, ...] = (), **auth: Any) -> Identities:
    settings = Settings(auth=Auth(issuer=issuer.url, **auth), policies=policies, callers=callers)
    return Identities(settings, address=RESOURCE)


async def caller_of(identities: Identities, token: str) -> Caller:
    scope = {"headers": [(b"host", b"127.0.0.1"), (b"authorization", b"Bearer " + token.encode())]}
    return (await identities.guard.check(scope))[1]


@pytest.mark.parametrize(
    ("claims", "policy", "groups"),
    [
        ({"realm_access": {"roles": ["user", "admin"]}}, "nested", ()),
        ({"realm_access": {"roles": "admin"}}, "nested", ()),
        ({"realm_access.roles": ["admin"]}, "nested", ()),
        ({"groups": ["on-call", "platform"], "email_verified": True}, "both", ("on-call", "platform")),
        ({"groups": ["on-call", "platform"], "email_verified": "true"}, "platform", ("on-call", "platform")),
        ({"groups": ["on-call", "platform"], "email_verified": 1}, "platform", ("on-call", "platform")),
        ({"groups": "platform"}, "platform", ("platform",)),
        ({"groups": ["platform", 7, None, {"a": "b"}]}, "platform", ("platform",)),
        ({"https://example.com/team": "data"}, "named", ()),
        ({"scope": "tools:use tools:write"}, "writers", ()),
        ({"scope": None, "scp": ["tools:use", "tools:write"], "groups": ["stepped"]}, "stepped", ("stepped",)),
    ],
)
async def test_18_claims_choose_the_first_policy_that_fits(
    claims: dict[str, Any], policy: str, groups: tuple[str, ...], issuer: Issuer
) -> None:
    caller = await caller_of(identities_of(issuer, *POLICIES), issuer.sign(**claims))
    assert caller == Caller(name=f"{issuer.url}#ann", policy=policy, groups=groups)


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"groups": []},
        {"groups": {"platform": True}},
        {"groups": [["platform"]]},
        {"groups": "platform on-call"},
        {"groups": "Platform"},
        {"realm_access": ["roles"]},
        {"realm_access": {"roles": {"admin": 1}}},
        {"realm_access": "roles"},
        {"scope": ["tools:write "]},
    ],
)
async def test_18_claims_that_fit_no_policy_are_refused(claims: dict[str, Any], tmp_path: Path, issuer: Issuer) -> None:
    async with scene(tmp_path, issuer, *POLICIES) as asked:
        for answer in await asked.everywhere(issuer.sign(**claims)):
            assert (answer.status_code, message_of(answer)) == (403, "no policy here is for what the token claims")
    caller = await caller_of(identities_of(issuer, *POLICIES, policy="unclaimed"), issuer.sign(**claims))
    assert caller.policy == "unclaimed"


@pytest.mark.parametrize("overage", [{"_claim_names": {"groups": "src1"}, "_claim_sources": {}}, {"hasgroups": True}])
async def test_18_a_token_without_its_many_groups_is_refused(
    overage: dict[str, Any], tmp_path: Path, issuer: Issuer
) -> None:
    async with scene(tmp_path, issuer, policy="default") as asked:
        for answer in await asked.everywhere(issuer.sign(**overage)):
            assert (answer.status_code, "too many" in message_of(answer)) == (403, True)
        beside = await asked.ask(issuer.sign(groups=["a"], **overage))
        assert beside.status_code == 403, "what it does name may be a part of them"


async def test_18_missing_scopes_are_all_named_at_once(tmp_path: Path, issuer: Issuer) -> None:
    async with scene(tmp_path, issuer, *POLICIES, required_scopes=("profile", "tools:use")) as asked:
        for answer in await asked.everywhere(issuer.sign(groups=["stepped"])):
            assert answer.status_code == 403
            said = answer.headers["www-authenticate"]
            assert 'error="insufficient_scope"' in said
            assert 'scope="profile tools:use tools:write"' in said
        assert (await asked.ask(issuer.sign(groups=["platform"]))).status_code == 403
        short = issuer.sign(groups=["stepped"], scope="tools:use profile openid")
        assert (await asked.ask(short)).status_code == 403
        assert (await asked.ask(issuer.sign(groups=["platform"], scope="tools:use profile"))).status_code == 200


async def test_18_a_name_can_be_no_keys_name(issuer: Issuer) -> None:
    callers = (CallerKey(name="bob", key=KEY, policy="unclaimed"), CallerKey(name="local", policy="unclaimed"))
    identities = identities_of(issuer, *POLICIES, callers=callers, policy="default", name_claim="user.name")
    for name in ("bob", "local", "anonymous"):
        caller = await caller_of(identities, issuer.sign(user={"name": name}))
        assert (caller.name, caller.policy) == (f"{issuer.url}#{name}", "default")
    asked = len(issuer.asked)
    assert (await caller_of(identities, KEY)).name == "bob"
    assert len(issuer.asked) == asked


async def test_18_keys_keep_working_while_the_issuer_is_down(tmp_path: Path, issuer: Issuer) -> None:
    issuer.down = True
    identities = identities_of(issuer, callers=(CallerKey(name="bob", key=KEY),), policy="default")
    assert (await caller_of(identities, KEY)).name == "bob"


OPAQUE = "opaque-token-of-ann-0123456789"


async def test_18_opaque_tokens_are_asked_for_once_in_a_while(tmp_path: Path, issuer: Issuer) -> None:
    issuer.tokens[OPAQUE] = {"active": True, **issuer.claims(groups=["platform"])}
    client = {"introspection_client": "gate way", "introspection_secret": "s3cret:ü"}
    async with scene(tmp_path, issuer, *POLICIES, **client) as asked:
        assert [answer.status_code for answer in await asked.everywhere(OPAQUE)] == [200] * 5
        for answer in await asked.everywhere("unknown-token"):
            assert (answer.status_code, "not valid" in message_of(answer)) == (401, True)
        assert issuer.asked.count("/introspect") == 2
    assert set(issuer.clients) == {"Basic Z2F0ZSt3YXk6czNjcmV0JTNBJUMzJUJD"}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"active": "true"}, "not valid"),
        ({"active": True}, "another audience"),
        ({"active": True, "aud": "other", "sub": "ann"}, "another audience"),
        ({"active": True, "aud": RESOURCE, "sub": "ann", "iss": "https://other.example"}, "another issuer"),
        ({"active": True, "aud": RESOURCE, "sub": "ann", "exp": 1}, "expired"),
        ({"active": True, "aud": RESOURCE, "sub": "ann", "token_type": "DPoP"}, "another kind"),
        ({"active": True, "aud": RESOURCE, "sub": "ann", "cnf": {"jkt": "x"}}, "bound to a key"),
        ({"active": True, "aud": RESOURCE}, "names nobody"),
    ],
)
async def test_18_what_the_issuer_says_of_an_opaque_token_is_checked(
    said: dict[str, Any], reason: str, tmp_path: Path, issuer: Issuer
) -> None:
    issuer.tokens[OPAQUE] = said
    async with scene(tmp_path, issuer, introspection_client="gateway") as asked:
        for answer in await asked.everywhere(OPAQUE):
            assert (answer.status_code, reason in message_of(answer)) == (401, True)


async def test_18_an_opaque_token_is_not_let_in_while_the_issuer_is_down(tmp_path: Path, issuer: Issuer) -> None:
    issuer.tokens[OPAQUE] = {"active": True, **issuer.claims()}
    issuer.down = True
    async with scene(tmp_path, issuer, introspection_client="gateway") as asked:
        assert {answer.status_code for answer in await asked.everywhere(OPAQUE)} == {503}
        issuer.down = False
        assert (await asked.ask(OPAQUE)).status_code == 200


async def test_18_a_flood_of_opaque_tokens_is_bounded(tmp_path: Path, issuer: Issuer) -> None:
    async with scene(tmp_path, issuer, introspection_client="gateway") as asked:
        begun = time.monotonic()
        answers = await asyncio.gather(*[asked.ask(f"garbage-{number}") for number in range(200)])
        statuses = [answer.status_code for answer in answers]
        assert set(statuses) <= {401, 503}
        assert issuer.asked.count("/introspect") <= 64
        assert {answer.headers.get("retry-after") for answer in answers if answer.status_code == 503} == {"30"}
        for number in range(200):
            assert (await asked.ask(f"junk-{number}")).status_code in {401, 503}
        most = 40 + 20 * (time.monotonic() - begun) + 1
        assert issuer.asked.count("/introspect") <= most, "one after the other, too"


async def legacy_session(asked: Scene, token: str) -> str:
    return str((await asked.ask(token, "legacy")).headers["mcp-session-id"])


async def in_session(asked: Scene, session: str, token: str) -> Any:
    headers = {"Authorization": f"Bearer {token}", "Mcp-Session-Id": session, "Accept": "application/json"}
    call = {"name": "run_script", "arguments": {"code": "1 + 1"}}
    body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
    return await asked.client.post("/mcp", json=body, headers=headers)


async def test_18_a_session_follows_the_token_of_each_request(tmp_path: Path, issuer: Issuer) -> None:
    policies = (Policy(name="some", claims={"groups": "some"}, deny=("toolbox.run_script",)), *POLICIES)
    async with scene(tmp_path, issuer, *policies) as asked:
        session = await legacy_session(asked, issuer.sign(groups=["platform"]))
        for group, refused in (("platform", False), ("some", True), ("platform", False)):
            answer = await in_session(asked, session, issuer.sign(groups=[group]))
            assert ("your policy does not allow" in answer.text) == refused
        other = await in_session(asked, session, issuer.sign(sub="bob", groups=["platform"]))
        assert (other.status_code, "no such session" in message_of(other)) == (404, True)


async def test_18_new_settings_count_for_the_next_request(issuer: Issuer) -> None:
    first = Settings(auth=Auth(issuer=issuer.url, policy="default"))
    identities, token = Identities(first, address=RESOURCE), issuer.sign(groups=["platform"])
    assert (await caller_of(identities, token)).policy == "default"
    identities.reconfigure(replace(first, policies=POLICIES))
    assert (await caller_of(identities, token)).policy == "platform"
    assert issuer.asked.count("/jwks") == 1  # the keys are still known
    with pytest.raises(ConfigError, match="no caller has a key any more"):
        identities.reconfigure(Settings())
    for bad in (replace(first.auth, issuer="http://issuer.example"), replace(first.auth, introspection_secret="${NO}")):
        with pytest.raises((ConfigError, SecretNotFound)):
            identities.reconfigure(replace(first, auth=bad))
    assert (await caller_of(identities, token)).policy == "platform"
    identities.reconfigure(Settings(callers=(CallerKey(name="bob", key=KEY),)))
    assert (await caller_of(identities, KEY)).name == "bob"


@pytest.mark.parametrize(
    "auth",
    [
        {"issuer": "http://192.0.2.1"},
        {"issuer": "https://issuer.example?x=1"},
        {"issuer": "https://issuer.example#x"},
        {"issuer": "issuer.example"},
        {"issuer": "https://issuer.example", "jwks_uri": "http://issuer.example/keys"},
        {"issuer": "https://issuer.example", "introspection_uri": "ftp://issuer.example"},
        {"issuer": "https://issuer.example", "resource": "tools.example.com/mcp"},
    ],
)
def test_18_settings_that_would_let_tokens_be_forged_are_refused(auth: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"^\[auth\] "):
        Identities(Settings(auth=Auth(**auth)), address=RESOURCE)


def test_18_the_public_address_must_be_named_where_others_reach_it() -> None:
    settings = Settings(auth=Auth(issuer="https://issuer.example"))
    with pytest.raises(ConfigError, match="names no resource"):
        Identities(settings, address="http://0.0.0.0:8080/mcp")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[auth]\n", "there is no issuer"),
        ('[auth]\naudience = "x"\n', "there is no issuer"),
        ('[auth]\nissuer = "https://a.example"\npolicy = "nobody"\n', "there is no such policy"),
        ('[auth]\nissuer = "https://a.example"\nclock_skew_s = 301\n', "is out of bounds"),
        ('[auth]\nissuer = "https://a.example"\nscope = "x"\n', "unknown key"),
        ("[policy.a]\nclaims = { groups = {} }\n", "expected what the claim must hold"),
        ("[policy.a]\nclaims = { groups = [] }\n", "expected what the claim must hold"),
        ("[policy.a]\nclaims = { groups = [[]] }\n", "expected what the claim must hold"),
        ('[policy.a]\nclaims = "groups"\n', "expected a table"),
    ],
)
def test_18_what_is_wrong_in_the_file_is_said_with_its_line(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "toolfold.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=rf"toolfold.toml:\d+:\d+.*{problem}"):
        Settings.load(file, require_servers=False)


def test_18_the_issuer_may_come_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "toolfold.toml"
    file.write_text('[auth]\nintrospection_secret = "${SECRET}"\n')
    settings = Settings.load(file, require_servers=False, environ={"TOOLFOLD_AUTH__ISSUER": "https://a.example"})
    assert settings.auth.issuer == "https://a.example"
    assert "SECRET" not in repr(settings)


def test_a_secret_that_changed_is_taken_up_with_the_next_configuration() -> None:
    auth = Auth(issuer="https://login.example", introspection_client="us", introspection_secret="${SECRET}")
    settings = Settings(auth=auth)
    first = ProtectedResource(settings, RESOURCE, environ={"SECRET": "one"})
    assert ProtectedResource(settings, RESOURCE, environ={"SECRET": "one"}, earlier=first).check is first.check
    assert ProtectedResource(settings, RESOURCE, environ={"SECRET": "two"}, earlier=first).check is not first.check


async def test_18_each_refusal_is_recorded_with_its_own_reason_and_caller(tmp_path: Path, issuer: Issuer) -> None:
    async with scene(tmp_path, issuer, required_scopes=("admin",)) as asked:
        for token in (issuer.sign(aud="https://other.example"), issuer.sign(), issuer.sign(), None):
            await asked.ask(token)
        issuer.down = True
        await asked.ask(issuer.sign(kid="two"))
        steps = await asked.gateway.audit_log.steps()
    ann = f"{issuer.url}#ann"
    assert [(step.step, step.code, step.caller, step.message.partition(":")[0]) for step in steps] == [
        ("refused", "NOT_AUTHENTICATED", "", "the token was issued for another audience"),
        ("refused", "INSUFFICIENT_SCOPE", ann, "the token is not granted all scopes that are needed"),
        ("refused", "NOT_AUTHENTICATED", "", "this gateway asks for a token of its issuer, or a key"),
        ("refused", "ISSUER_UNAVAILABLE", "", "tokens cannot be checked now, since the issuer is of no help"),
    ]
