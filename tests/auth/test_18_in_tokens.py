"""Tokens of an issuer over every face: good ones are let in, each bad one is refused with its reason."""

import asyncio
import hmac
import json
import threading
import time
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hostile_issuer import EC, RESOURCE, Issuer, encoded, issuing, message_of, scene
from joserfc.jwk import ECKey, OctKey, RSAKey

from toolfold.auth import token_check

pytestmark = pytest.mark.requirement("G-13")


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as made:
        yield made


def unsigned(issuer: Issuer) -> str:
    return f"{encoded(json.dumps({'alg': 'none', 'typ': 'at+jwt'}))}.{encoded(json.dumps(issuer.claims()))}."


def signed_with_the_public_key(issuer: Issuer) -> str:
    head = json.dumps({"alg": "HS256", "kid": "one", "typ": "at+jwt"})
    signed = f"{encoded(head)}.{encoded(json.dumps(issuer.claims()))}"
    key = issuer.keys["one"]
    assert isinstance(key, RSAKey)
    mark = hmac.digest(key.as_pem(private=False), signed.encode(), "sha256")
    return f"{signed}.{encoded(mark)}"


def other_last_bits(token: str) -> str:
    """The same bytes in another spelling: the last letter of 256 bytes has four bits that nothing reads."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    other = token[:-1] + letters[letters.index(token[-1]) ^ 1]
    assert urlsafe_b64decode(other.rpartition(".")[2] + "==") == urlsafe_b64decode(token.rpartition(".")[2] + "==")
    return other


def deep(levels: int) -> str:
    return encoded('{"alg":"RS256"}') + f".{encoded('[' * levels)}.c2ln"


async def test_18_a_good_token_is_let_in_everywhere(tmp_path: Path, issuer: Issuer) -> None:
    async with scene(tmp_path, issuer) as asked:
        for kid, alg in (("one", "RS256"), ("one", "PS512"), ("ec", "ES256"), ("ed", "EdDSA"), ("ed", "Ed25519")):
            assert [answer.status_code for answer in await asked.everywhere(issuer.sign(kid=kid, alg=alg))] == [200] * 5
        assert issuer.asked.count("/jwks") == 1
        for good in ({"aud": ["other", RESOURCE]}, {"aud": RESOURCE + "/"}, {"header": {"typ": "JWT"}}, {"nonce": "n"}):
            assert (await asked.ask(issuer.sign(**good))).status_code == 200


NOW = int(time.time())
BAD: dict[str, tuple[str, Any]] = {
    "audience": ("another audience", {"aud": "https://other.example/mcp"}),
    "audience prefix": ("another audience", {"aud": RESOURCE + "/x"}),
    "no audience": ("another audience", {"aud": None}),
    "odd audience": ("another audience", {"aud": {"0": RESOURCE}}),
    "audience of odd things": ("another audience", {"aud": [None, 1, [RESOURCE]]}),
    "issuer": ("another issuer", {"iss": "https://other.example"}),
    "issuer with slash": ("another issuer", {"iss": "http://127.0.0.1/"}),
    "odd issuer": ("another issuer", {"iss": ["x"]}),
    "expired": ("has expired", {"exp": NOW - 3600}),
    "no expiry": ("never expires", {"exp": None}),
    "odd expiry": ("no readable way", {"exp": str(NOW + 3600)}),
    "true expiry": ("no readable way", {"exp": True}),
    "not yet": ("not valid yet", {"nbf": NOW + 3600}),
    "odd begin": ("no readable way", {"nbf": "now"}),
    "no subject": ("names nobody: it is no text, or not there", {"sub": None}),
    "odd subject": ("names nobody", {"sub": 7}),
    "empty subject": ("names nobody", {"sub": ""}),
    "subject with lines": ("names nobody: it holds characters that cannot be seen", {"sub": "ann\nbob"}),
    "subject that turns around": ("names nobody: it holds characters that cannot be seen", {"sub": "ann\u202e"}),
    "long subject": ("names nobody: it has more than 256 characters", {"sub": "a" * 257}),
    "id token": ("another kind", {"nonce": "n", "scope": None, "header": {"typ": "JWT"}}),
    "id token with an empty scope": ("another kind", {"nonce": "n", "scope": "", "header": {"typ": "JWT"}}),
    "id token with blanks": ("another kind", {"nonce": "n", "scope": None, "scp": " ", "header": {"typ": ""}}),
    "id token with no scopes": ("another kind", {"nonce": "n", "scope": None, "scp": [], "header": {"typ": "JWT"}}),
    "id token with an empty word": (
        "another kind",
        {"nonce": "n", "scope": None, "scp": [""], "header": {"typ": "JWT"}},
    ),
    "id token with hash": ("another kind", {"at_hash": "x"}),
    "id token of Keycloak": ("another kind", {"typ": "ID"}),
    "logout token": ("another kind", {"header": {"typ": "logout+jwt"}}),
    "critical header": ("another kind", {"header": {"crit": ["b64"], "b64": True}}),
    "bound to a key": ("bound to a key", {"cnf": {"jkt": "x"}}),
    "unknown key": ("does not publish", {"kid": "nobody", "key": RSAKey.generate_key(2048)}),
    "another's key": ("signature", {"key": RSAKey.generate_key(2048)}),
    "key in the token": ("signature", {"header": {"jwk": EC.as_dict(private=False)}, "key": RSAKey.generate_key(2048)}),
    "kind swapped": ("does not publish", {"kid": "one", "alg": "ES256", "key": EC}),
    "kind swapped again": ("does not publish", {"kid": "ec", "alg": "RS256", "key": RSAKey.generate_key(2048)}),
    "curve swapped": ("does not publish", {"kid": "ec", "alg": "ES384", "key": ECKey.generate_key("P-384")}),
    "huge": ("longer than", {"more": "x" * 20_000}),
}


@pytest.mark.parametrize("case", BAD)
async def test_18_a_bad_token_is_refused_everywhere_with_its_reason(case: str, tmp_path: Path, issuer: Issuer) -> None:
    reason, changed = BAD[case]
    token = issuer.sign(**changed)
    await refused_everywhere(tmp_path, issuer, token, reason)


@pytest.mark.parametrize(
    ("reason", "make"),
    [
        ("algorithm", unsigned),
        ("algorithm", signed_with_the_public_key),
        ("cannot be read", lambda issuer: deep(5000)),
        ("cannot be read", lambda issuer: "a.b.c"),
        ("cannot be read", lambda issuer: issuer.sign() + "=="),
        ("cannot be read", lambda issuer: issuer.sign().replace(".", "=.", 1)),
        ("cannot be read", lambda issuer: other_last_bits(issuer.sign())),
        ("cannot be read", lambda issuer: "\u00e4.\u00f6.\u00fc"),
        ("cannot be read", lambda issuer: issuer.sign(header={"kid": 1})),
        ("neither a key", lambda issuer: "opaque-token-without-introspection"),
        ("neither a key", lambda issuer: issuer.sign() + ".a.b"),
    ],
)
async def test_18_what_is_no_signed_token_is_refused(reason: str, make: Any, tmp_path: Path, issuer: Issuer) -> None:
    await refused_everywhere(tmp_path, issuer, make(issuer), reason)


async def refused_everywhere(home: Path, issuer: Issuer, token: str, reason: str) -> None:
    async with scene(home, issuer, required_scopes=("tools:use",)) as asked:
        for answer in await asked.everywhere(token):
            assert answer.status_code == 401
            assert reason in message_of(answer)
            said = answer.headers["www-authenticate"]
            assert said.startswith('Bearer resource_metadata="http://127.0.0.1:8080/.well-known/oauth-protected-res')
            assert 'scope="tools:use"' in said
            assert 'error="invalid_token"' in said
            assert token not in answer.text + said
        steps = [step for step in await asked.gateway.audit_log.steps() if step.step == "refused"]
    assert reason in steps[0].message
    assert token not in repr(steps)


@pytest.mark.parametrize("skew", [0, 30, 300])
async def test_18_clock_skew_holds_at_both_ends(skew: float, tmp_path: Path, issuer: Issuer) -> None:
    async with scene(tmp_path, issuer, clock_skew_s=skew) as asked:
        now = time.time()
        for changed, status in (
            ({"exp": now - skew + 20}, 200),
            ({"exp": now - skew - 1}, 401),
            ({"nbf": now + skew - 1}, 200),
            ({"nbf": now + skew + 20}, 401),
        ):
            assert (await asked.ask(issuer.sign(**changed))).status_code == status  # type: ignore[arg-type]


async def test_18_a_token_that_was_let_in_ends_with_its_expiry(tmp_path: Path, issuer: Issuer) -> None:
    async with scene(tmp_path, issuer, clock_skew_s=0) as asked:
        end = time.time() + 1.5
        token = issuer.sign(exp=end)
        seen = set()
        while time.time() < end + 0.1:
            before = time.time()
            answer = await asked.ask(token)
            seen.add(answer.status_code)
            assert answer.status_code == 200 or time.time() >= end
            assert answer.status_code == 401 or before <= end
        assert seen == {200, 401}


async def test_18_keys_rotate_while_serving(tmp_path: Path, issuer: Issuer) -> None:
    async with scene(tmp_path, issuer) as asked:
        known, old = issuer.sign(), issuer.sign(sub="bob")
        assert (await asked.ask(known)).status_code == 200
        issuer.rotate()
        assert (await asked.ask(issuer.sign(kid="two"))).status_code == 200
        for token in (known, old):
            answer = await asked.ask(token)
            assert (answer.status_code, "does not publish" in message_of(answer)) == (401, True)


async def test_18_a_storm_of_unknown_keys_fetches_few_times(tmp_path: Path, issuer: Issuer) -> None:
    async with scene(tmp_path, issuer) as asked:
        good = issuer.sign()
        storm = [issuer.sign(kid=f"unknown-{number}") for number in range(300)]
        answers = await asyncio.gather(*map(asked.ask, storm))
        assert {answer.status_code for answer in answers} == {401}
        later = [await asked.ask(token) for token in storm[:20]]
        assert [answer.status_code for answer in later][-10:] == [503] * 10, "nobody looked: nobody can say no"
        assert later[-1].headers["retry-after"]
        assert (await asked.ask(good)).status_code == 200
        assert issuer.asked.count("/jwks") <= 5


def odd(issuer: Issuer) -> None:
    """Keys that are too weak, symmetric, or broken."""
    numbers = rsa.generate_private_key(65537, 1024).public_key().public_numbers()
    weak = {"kty": "RSA", "kid": "one", "n": encoded(numbers.n.to_bytes(128, "big")), "e": "AQAB"}
    keys = [weak, OctKey.generate_key(256).as_dict(), {"kty": "RSA", "n": 1}, {"kty": "EC", "crv": "P-256"}, {}]
    issuer.pages["/jwks"] = json.dumps({"keys": keys}).encode()


def metadata(made: Issuer, /, **changed: Any) -> None:
    said = {"issuer": made.url, "jwks_uri": f"{made.url}/jwks", **changed}
    made.pages["/.well-known/openid-configuration"] = json.dumps(said).encode()


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (lambda issuer: setattr(issuer, "flood", 100), "larger than"),
        (lambda issuer: setattr(issuer, "down", True), "503"),
        (lambda issuer: issuer.pages.update({"/jwks": b"[" * 100_000}), "cannot be read"),
        (lambda issuer: issuer.pages.update({"/jwks": b'{"keys": [7]}'}), "cannot be read"),
        (lambda issuer: issuer.pages.update({"/jwks": b'{"keys": []}'}), "no key that can be used"),
        (odd, "no key that can be"),
        (lambda issuer: metadata(issuer, issuer="https://other.example"), "another issuer"),
        (lambda issuer: metadata(issuer, jwks_uri="http://192.0.2.1/jwks"), "https"),
        (lambda issuer: metadata(issuer, jwks_uri="file:///etc/passwd"), "was not asked"),
        (lambda issuer: metadata(issuer, jwks_uri=7), "cannot be read"),
    ],
)
async def test_18_an_issuer_that_is_of_no_help_opens_nothing(
    prepare: Any, reason: str, tmp_path: Path, issuer: Issuer
) -> None:
    token = issuer.sign()
    prepare(issuer)
    async with scene(tmp_path, issuer) as asked:
        for answer in await asked.everywhere(token):
            assert answer.status_code == 503
            assert reason in message_of(answer)
            assert answer.headers["retry-after"]


async def test_18_a_slow_issuer_does_not_hold_requests_up(
    tmp_path: Path, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_check, "_FETCH_S", 0.2)
    issuer.stall = threading.Event()
    async with scene(tmp_path, issuer) as asked:
        answers = await asyncio.gather(*[asked.ask(issuer.sign(sub=str(number))) for number in range(50)])
        assert {answer.status_code for answer in answers} == {503}
        assert "did not answer within" in message_of(answers[0])
        issuer.stall.set()
        assert (await asked.ask(issuer.sign())).status_code == 200


async def test_18_known_keys_go_on_until_their_age_limit(tmp_path: Path, issuer: Issuer) -> None:
    async with scene(tmp_path, issuer, keys_max_age_s=1.0) as asked:
        assert (await asked.ask(issuer.sign())).status_code == 200
        begun = time.monotonic()
        issuer.down = True
        statuses: list[int] = []
        while 503 not in statuses:
            statuses.append((await asked.ask(issuer.sign(jti=str(len(statuses))))).status_code)
            assert time.monotonic() - begun < 10
        assert time.monotonic() - begun > 0.8
        assert statuses[:-1] == [200] * (len(statuses) - 1)
        issuer.down = False


async def test_18_an_unknown_key_is_not_refused_while_the_issuer_is_down(tmp_path: Path, issuer: Issuer) -> None:
    async with scene(tmp_path, issuer) as asked:
        assert (await asked.ask(issuer.sign())).status_code == 200
        issuer.down = True
        answer = await asked.ask(issuer.sign(kid="unknown"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "ISSUER_UNAVAILABLE")
        issuer.down = False
        assert (await asked.ask(issuer.sign(kid="unknown"))).status_code == 401


@pytest.mark.parametrize(
    "claims",
    [
        {"scope": {"a": 1}},
        {"scp": {"tools:use": True}},
        {"scope": ["tools:use", {}]},
        {"scope": 7},
        {"exp": 10**400},
        {"nbf": -(10**400)},
        {"exp": [1]},
        {"token_use": "id"},
        {"token_use": {}},
        {"sub": {}},
        {"aud": {RESOURCE: 1}},
    ],
)
async def test_18_claims_of_odd_kinds_are_refused(claims: dict[str, Any], tmp_path: Path, issuer: Issuer) -> None:
    opaque = "an-opaque-token"
    issuer.tokens[opaque] = {"active": True, **issuer.claims(**claims)}
    async with scene(tmp_path, issuer, introspection_client="gateway") as asked:
        for token in (issuer.sign(**claims), opaque):
            for answer in await asked.everywhere(token):
                assert answer.status_code == 401


async def test_18_an_opaque_token_need_not_say_when_it_ends(tmp_path: Path, issuer: Issuer) -> None:
    issuer.tokens["opaque"] = {"active": True, **issuer.claims(), "exp": None}
    async with scene(tmp_path, issuer, introspection_client="gateway") as asked:
        assert (await asked.ask("opaque")).status_code == 200


async def test_18_a_token_in_the_address_or_twice_is_refused(tmp_path: Path, issuer: Issuer) -> None:
    async with scene(tmp_path, issuer) as asked:
        token = issuer.sign()
        for way, path in (("v1", "/v1/servers"), ("modern", "/mcp"), ("metrics", "/metrics")):
            for sent in (None, token):
                for name in ("access_token", "%61ccess_token", "access%5Ftoken"):
                    answer = await asked.ask(sent, way, f"{path}?{name}={token}")
                    assert (answer.status_code, "in the address" in message_of(answer)) == (400, True)
        twice = [("Authorization", f"Bearer {token}"), ("Authorization", f"Bearer {token}")]
        assert (await asked.client.get("/v1/servers", headers=twice)).status_code == 400


async def test_18_without_a_token_the_way_to_one_is_told(tmp_path: Path, issuer: Issuer) -> None:
    async with scene(tmp_path, issuer, required_scopes=("tools:use", "profile")) as asked:
        for answer in await asked.everywhere(None):
            assert answer.status_code == 401
            said = answer.headers["www-authenticate"]
            assert said.endswith('oauth-protected-resource/mcp", scope="tools:use profile"')
        place = said.split('"')[1]
        for path in (
            place,
            "/.well-known/oauth-protected-resource",
            "/.well-known/oauth-protected-resource/mcp/p/some",
        ):
            found = await asked.client.get(path)
            assert found.json() == {
                "resource": RESOURCE,
                "authorization_servers": [issuer.url],
                "scopes_supported": ["tools:use", "profile"],
                "bearer_methods_supported": ["header"],
                "resource_name": "toolfold",
            }
        assert (await asked.client.get("/.well-known/oauth-protected-resources")).status_code == 404
        assert (await asked.client.get("/docs")).status_code == 200
        assert issuer.asked == []


async def test_18_a_stranger_learns_no_name_of_a_subset(tmp_path: Path, issuer: Issuer) -> None:
    async with scene(tmp_path, issuer) as asked:
        for token in (None, "opaque", issuer.sign(aud="other")):
            there, nowhere = [await asked.ask(token, "subset", f"/mcp/p/{name}") for name in ("some", "nope")]
            assert (there.status_code, there.headers, there.text) == (401, nowhere.headers, nowhere.text)
        assert (await asked.ask(issuer.sign(), "subset", "/mcp/p/nope")).status_code == 404
