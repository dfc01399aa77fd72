"""The session: one server's token as it goes with each request, renewed before it ends.

It answers the wire's two questions: which headers go with the next request, and what to do where a server refuses them.
One renewal runs at a time, however many calls wait, also across processes. What cannot be had without a person raises
`SignInRequired`. Above: upstreams. Below: grants and the vault.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress

from msgspec.structs import replace

from toolfold.auth.discovery import Challenge, fits, parse_challenge, valid_scopes
from toolfold.auth.fetch import _address_of
from toolfold.auth.vault import Credential, Vault
from toolfold.errors import ServerUnavailable, SignInRequired, UpstreamError
from toolfold.types import ServerSpec

log = logging.getLogger("toolfold.auth")

# How often the vault is looked at for what another process put there.
_LOOK_S = 1.0
# After a renewal failed, the next one is tried so much later.
_RETRY_S = 5.0
_CLOSE_S = 15.0
_YOUNG_S = 30.0


def session_for(spec: ServerSpec, vault: Vault | None, caller: str = "") -> "OAuthSession | None":
    """The session of a server; `None` where the configuration holds its token, or wants no sign-in."""
    has_token = any(name.casefold() == "authorization" for name in spec.headers)
    off = spec.oauth is not None and not spec.oauth.enabled
    return None if vault is None or has_token or off or not spec.url else OAuthSession(spec, vault, caller)


class OAuthSession:
    """The authorization of one caller at one server. `lost`: its token was refused, and there is no other."""

    def __init__(self, spec: ServerSpec, vault: Vault, caller: str = "") -> None:
        self.spec = spec
        self.caller = caller
        self.lost = False
        self._vault = vault
        self._headers: dict[str, str] = {}
        self._credential: Credential | None = None
        self._stamp: tuple[int, ...] = ()
        self._looking = asyncio.Lock()
        self._look_at = 0.0
        self._retry_at = 0.0
        self._renewal: asyncio.Task[None] | None = None
        self._problem: UpstreamError | None = None
        # The last token that was fetched since the one before it was refused.
        self._suspect = ""

    async def headers(self) -> Mapping[str, str]:
        now = time.monotonic()  # a clock that is set back must not keep what changed unseen
        if now >= self._look_at:
            await self._look(now)
        credential = self._credential
        if credential is not None and credential.stale and self._can_renew(credential):
            await self._keep_fresh(credential, now)
        return self._headers

    async def _keep_fresh(self, credential: Credential, now: float) -> None:
        if credential.expired:
            await self._renew(credential.access_token)
        elif now >= self._retry_at:
            self._start(credential.access_token, None)  # this call still has a token that works

    async def challenged(self, status: int, challenge: str, sent: Mapping[str, str]) -> bool:
        found = parse_challenge(challenge)
        token = sent.get("Authorization", "").removeprefix("Bearer ")
        await self._look(time.monotonic())
        credential = self._credential
        if self._headers and self._headers != dict(sent):
            return True  # it was renewed meanwhile, or somebody signed in
        if status == 403:
            return await self._step_up(found, credential)
        if self._service or self._can_renew(credential):
            await self._renew_refused(token, found)
            return True
        if credential is None and not await self._offers_sign_in(found):
            return False
        self.lost = True
        raise self._required("it does not accept the stored token or key" if sent else self._absent)

    async def aclose(self) -> None:
        """Waits for a renewal that runs: a rotated token that is not stored would be lost."""
        if self._renewal is not None:
            await asyncio.wait({self._renewal}, timeout=_CLOSE_S)

    @property
    def _service(self) -> bool:
        return self.spec.oauth is not None and self.spec.oauth.grant == "client_credentials"

    def _can_renew(self, credential: Credential | None) -> bool:
        return bool(self._subject(credential)) or (credential is not None and credential.renewable)

    def _subject(self, credential: Credential | None) -> str:
        """The token that the caller came in with, where it may be exchanged: not in the place of another sign-in."""
        other = credential is not None and credential.access_token and credential.grant != "exchange"
        allowed = self.spec.oauth is not None and self.spec.oauth.exchange and not other
        return self._vault.subject(self.caller) if allowed else ""

    async def _look(self, now: float) -> None:
        """Takes up what is in the vault, where that changed."""
        stamp = self._vault.stamp(self.spec.name, self.caller)
        if stamp != self._stamp:
            async with self._looking:  # nobody goes on without what the first is reading
                if stamp != self._stamp:
                    self._use(await self._stored())
                    self._stamp = stamp
        self._look_at = now + _LOOK_S

    def _use(self, credential: Credential | None) -> None:
        self._credential = credential
        token = credential.access_token if credential is not None else ""
        header = credential.header if credential is not None else ""
        self._headers = {header: token} if header else {"Authorization": f"Bearer {token}"} if token else {}
        self.lost = self.lost and not token
        self._problem = None if token else self._problem

    def _start(self, token: str, challenge: Challenge | None) -> "asyncio.Task[None]":
        if self._renewal is None:
            self._renewal = asyncio.get_running_loop().create_task(self._renew_now(token, challenge))
            self._renewal.add_done_callback(self._renewed)
        return self._renewal

    def _renewed(self, task: "asyncio.Task[None]") -> None:
        self._renewal = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._retry_at = time.monotonic() + _RETRY_S
            works = self._credential is not None and not self._credential.expired  # else a call says it
            log.log(logging.WARNING if works and self._problem is None else logging.DEBUG, "%s", error)
            self._problem = error if isinstance(error, UpstreamError) else None

    async def _renew(self, token: str, challenge: Challenge | None = None) -> None:
        if self._problem is not None and time.monotonic() < self._retry_at:
            raise self._problem.with_traceback(None)  # it would grow with each call
        # Shielded: one caller that is cancelled must not cancel what the others wait for.
        await asyncio.shield(self._start(token, challenge))

    async def _renew_refused(self, token: str, challenge: Challenge | None) -> None:
        """Renews a token that the server refused; not for ever, where it refuses each new one as well."""
        credential = self._credential
        if credential is not None and token and token == self._suspect:
            life = credential.expires_at - credential.obtained_at if credential.expires_at else 2 * _YOUNG_S
            if time.time() - credential.obtained_at < min(_YOUNG_S, life / 2):
                self.lost = True
                raise self._required("it refuses tokens that were issued for it just now")
        await self._renew(token, challenge)
        self._suspect = self._headers.get("Authorization", "").removeprefix("Bearer ")

    async def _renew_now(self, token: str, challenge: Challenge | None) -> None:
        name, caller = self.spec.name, self.caller
        async with self._vault.lock(name, caller):
            stored = await self._stored()
            if stored is not None and stored.access_token != token and not stored.stale:
                self._use(stored)  # another process was faster
                return
            try:
                renewed = await self._fetch(stored, challenge)
            except SignInRequired:
                if stored is not None:  # a new sign-in asks for the same rights; nothing else of it is of use
                    ended = replace(stored, access_token="", refresh_token="", client_secret="", registered=False)
                    await self._vault.keep(ended)
                self._use(None)
                self.lost = True
                raise
            except UpstreamError as error:
                if stored is None:
                    raise
                advice = "" if error.next_action.startswith("Try again") else f" {error.next_action}"
                raise ServerUnavailable(
                    f"the sign-in to {name} cannot be renewed now: {error.message}",
                    server=name,
                    next_action=f"It is kept. Call again in {_RETRY_S:g} s: it is then tried again.{advice}",
                ) from None
            await self._vault.keep(renewed)
            self._use(renewed)
            self._stamp = self._vault.stamp(name, caller)

    async def _stored(self) -> Credential | None:
        """What is in the vault for this server as it is configured now: what was issued for another address, or by
        another issuer than it names, is not for it."""
        try:
            stored = await self._vault.get(self.spec.name, self.caller)
        except SignInRequired:
            if self._service or self._subject(None):
                return None
            raise
        if stored is None or not (reason := self._foreign(stored)):
            return stored
        self._problem = self._required(reason)
        return None

    def _foreign(self, stored: Credential) -> str:
        if not fits(stored.resource, self.spec.url):
            return f"the stored sign-in is for another address, {_address_of(stored.resource)}"
        other = self.spec.other_issuer(stored.issuer) if stored.issuer else ""
        return (
            other and f"the stored sign-in is by {_address_of(stored.issuer)}, and `issuer` is {_address_of(other)} now"
        )

    async def _fetch(self, stored: Credential | None, challenge: Challenge | None) -> Credential:
        from toolfold.auth import grants

        if self._service:
            return await grants.client_credentials(self.spec, self._vault, challenge=challenge, caller=self.caller)
        if subject := self._subject(stored):
            return await grants.exchange(self.spec, subject, self._vault, challenge=challenge, caller=self.caller)
        if stored is None or not stored.refresh_token:
            raise self._required(self._absent)
        self._vault.check_newest(self.spec.name, self.caller)
        return await grants.refresh(self.spec, stored)

    async def _step_up(self, challenge: Challenge | None, credential: Credential | None) -> bool:
        """More rights are wanted. Asks for them once: a server that was not content with them stays refused."""
        if challenge is None or challenge.error != "insufficient_scope" or credential is None:
            return False
        if not set(challenge.scope) - set(credential.asked):
            return False
        needs = valid_scopes([*credential.needs, *challenge.scope])
        async with self._vault.lock(self.spec.name, self.caller):
            stored = await self._vault.get(self.spec.name, self.caller) or credential
            await self._vault.keep(replace(stored, needs=needs))
        if self._service or self._subject(credential):
            await self._renew(credential.access_token, challenge)
            return True
        raise self._required(f"it wants more rights for this: {' '.join(challenge.scope)[:300]}")

    async def _offers_sign_in(self, challenge: Challenge | None) -> bool:
        """Whether a server whose configuration says nothing of OAuth speaks it, and does not only want a key."""
        if self.caller or self.spec.oauth is not None or (challenge is not None and challenge.resource_metadata):
            return True
        from toolfold.auth import grants

        with suppress(UpstreamError):
            await grants.prepare(self.spec, challenge=challenge or Challenge())
            return True
        return False

    @property
    def _absent(self) -> str:
        """Why there is no token: nobody has signed in, or that has ended."""
        if self._vault.stamp(self.spec.name, self.caller):
            return "the sign-in has ended"
        return f"{self.caller or 'nobody'} is{' not' if self.caller else ''} signed in to it"

    def _required(self, reason: str) -> SignInRequired:
        if isinstance(self._problem, SignInRequired):  # what the issuer said when the sign-in ended
            return self._problem.with_traceback(None)
        header = self._credential.header if self._credential is not None else ""
        return SignInRequired.of(self.spec.name, self.caller, reason, header=header)
