"""What becomes of tokens at sign-out: the issuer is asked to revoke each (RFC 7009), and a person hears what it did.

Nothing is deleted here. Above: credentials. Below: grants.
"""

import time

from toolfold.auth.fetch import origin_of
from toolfold.auth.grants import _as_client
from toolfold.auth.registration import error_of
from toolfold.auth.vault import Credential
from toolfold.errors import UpstreamError
from toolfold.types import ServerSpec

_NAMES = {"refresh_token": "refresh token", "access_token": "access token"}


async def revoke(spec: ServerSpec, credential: Credential) -> tuple[bool, str]:
    """Has the issuer revoke the tokens. Gives whether none can be had any more, and in words what lives on."""
    if credential.header:
        return False, f"the key was deleted here alone: {credential.server} takes it until it is withdrawn there"
    tokens = {kind: token for kind in _NAMES if (token := getattr(credential, kind))}
    if not tokens:
        return False, "it had ended already: no token of it was stored any more, and none was revoked"
    left = await _ask(spec, credential, tokens)
    said = [_lives_on(credential, left)]
    if done := [name for kind, name in _NAMES.items() if kind in tokens and kind not in left]:
        said.insert(0, f"{origin_of(credential.issuer)} revoked the {' and the '.join(done)}")
    # One that carries its own proof can often not be revoked: the one that renews it counts.
    return next(iter(tokens)) not in left, "; ".join(filter(None, said))


async def _ask(spec: ServerSpec, credential: Credential, tokens: dict[str, str]) -> dict[str, str]:
    """Why tokens were not revoked, by their kind: the one that renews the other first."""
    issuer = origin_of(credential.issuer)
    left: dict[str, str] = {}
    if not credential.revocation_endpoint:
        return dict.fromkeys(tokens, f"{issuer} has no place for that")
    for kind, token in tokens.items():
        form = {"token": token, "token_type_hint": kind}
        try:
            answer = await _as_client(spec, credential, credential.revocation_endpoint, form)
        except UpstreamError as error:  # one that hangs is not waited for twice
            return {**left, **dict.fromkeys(list(tokens)[list(tokens).index(kind) :], error.message)}
        if not answer.ok:
            left[kind] = f"{issuer} says {error_of(answer)}"
    return left


def _lives_on(credential: Credential, left: dict[str, str]) -> str:
    at = credential.expires_at
    until = time.strftime("until %Y-%m-%d %H:%M", time.localtime(at)) if at else "until it ends: nobody said when"
    if not left:
        may = f"a server that does not ask the issuer may take the last access token {until}"
        return "" if credential.expired else may
    ends = {"refresh_token": "the refresh token until its issuer ends it", "access_token": f"the access token {until}"}
    alive = [ends[kind] for kind in left if kind == "refresh_token" or not credential.expired]
    reasons = "; ".join(dict.fromkeys(left.values()))
    return f"not revoked: {reasons}; what lives on: {', '.join(alive) or 'nothing, since it has ended'}"
