"""Who is signed in to the servers of one gateway, and how somebody signs in or out. Imports nothing heavy.

A server has one credential for everybody, or one for each caller (`credentials = "caller"`). Here stands which one is
meant; tokens are looked at by nobody above the vault and the session. Above: the manager of the servers, the command
line. Below: `auth`.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from toolfold.config import Settings, resolve
from toolfold.errors import ConfigError, ServerUnavailable, SignInRequired, ToolfoldError, UpstreamError
from toolfold.storage.base import Store
from toolfold.types import LOCAL, ServerSpec, ServerState
from toolfold.upstream.threads import run_in_thread

if TYPE_CHECKING:
    from toolfold.auth.grants import Prospect
    from toolfold.auth.sign_ins import SignIns
    from toolfold.auth.vault import Credential, Vault

__all__ = ["Credentials", "SignedIn"]

log = logging.getLogger("toolfold.auth")

_WRITTEN_LATER = "make room, or let toolfold write to that folder: it is written by itself then"
_NEWER_LIVES_ON = (
    "another toolfold had renewed it and could not write that: its newer tokens may live on until they end"
)


class SignedIn(Struct, frozen=True, kw_only=True):
    """One sign-in, as anybody may read it."""

    server: str
    caller: str = ""
    """Whose it is; empty: everybody's."""
    subject: str = ""
    issuer: str = ""
    expires_at: float = 0.0
    """When its token ends; 0: nobody said."""
    renews: bool = False
    """Whether it is renewed by itself."""
    exchanged: bool = False
    """Whether it is had anew, when its caller comes in again, for the token that the caller brings."""
    ended: bool = False
    """Whether only a new sign-in helps."""
    missing: tuple[str, ...] = ()
    """Rights that the server wants for some tool, and that were not asked for yet."""
    header: str = ""
    """Of a key: the header that carries it."""
    unwritten: str = ""
    """Why what it was renewed to is in the memory of a running toolfold alone."""
    problem: str = ""
    """Why it cannot be read. Its caller may then be a mark in the place of a name."""
    next_action: str = ""

    def describe(self) -> str:
        """` as alice@example.com until 2026-11-16 17:03, renewed by itself`, whatever is known."""
        who = f" as {self.subject}" if self.subject else ""
        missing = f", without rights that a tool wants: {' '.join(self.missing)[:300]}" if self.missing else ""
        held = f", renewed in memory alone: {self.unwritten}" if self.unwritten else ""
        return who + self._time() + ("" if self.ended else missing + held)

    def _time(self) -> str:
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.expires_at))
        past, until = 0 < self.expires_at <= time.time(), f" until {at}" if self.expires_at else ""
        if self.ended:  # before its time where the issuer took it back
            return f"{until if past else ''}, which has ended"
        if self.renews and past:
            return f", with a token that ended {at}: the next call renews it, if its issuer lets it"
        return until + (", renewed by itself" if self.renews else ", exchanged anew when they come in" * self.exchanged)

    @property
    def overdue(self) -> bool:
        """Whether its token has ended, and nobody knows whether it can be renewed."""
        return self.renews and not self.ended and 0 < self.expires_at <= time.time()

    @property
    def command(self) -> str:
        """What to type, where a new sign-in helps; else nothing."""
        again = SignInRequired.command(self.server, self.caller, header=self.header)
        return again if self.ended or self.missing else ""


class Credentials:
    """The sign-ins of one gateway. `specs` are its servers; `on_changed` gets server and owner of each that is done.
    `settings` say whether they are kept in the store, for all gateways; `store` is that of an open gateway."""

    def __init__(
        self,
        specs: Callable[[], Iterable[ServerSpec]],
        home: Path,
        on_changed: Callable[[str, str], object] | None = None,
        settings: Settings | None = None,
        store: Store | None = None,
    ) -> None:
        self._specs = specs
        self._home = home
        self._settings = settings
        self._store = store
        self._on_changed = on_changed
        # The servers of which it was said that some callers' sign-ins cannot be read.
        self._told: set[str] = set()
        self._known: set[tuple[str, str]] | None = None
        self._looked_at = 0

    @cached_property
    def vault(self) -> "Vault":
        if (settings := self._settings) is not None and settings.sign_ins_shared:
            from toolfold.auth.shared_vault import _SharedVault
            from toolfold.storage.factory import open_store

            # A gateway's store is open; a command opens the configured one for each look.
            store = self._store
            return _SharedVault(
                self._home,
                lambda: open_store(settings, create=True) if store is None else nullcontext(store),
                settings.sign_in.key,
            )
        from toolfold.auth.vault import Vault

        return Vault(self._home)

    async def followed_vault(self) -> "Vault":
        """The vault, which knows from now on what other gateways write."""
        await self.vault.follow()
        self._looked_at = self.changed_at()
        if any(spec.credentials == "caller" for spec in self._specs()):
            await self._changes()
        return self.vault

    @cached_property
    def sign_ins(self) -> "SignIns":
        """Those that wait for a person with a browser."""
        from toolfold.auth.sign_ins import SignIns

        made = SignIns(self.prepare, self.keep)
        if (tell := self._on_changed) is not None:
            made.finished.add(lambda done: tell(done.server, done.caller))
        return made

    async def aclose(self) -> None:
        if "sign_ins" in self.__dict__:
            await self.sign_ins.aclose()
        if "vault" in self.__dict__:
            await self.vault.aclose()

    def owner(self, server: str, caller: str = LOCAL.name) -> str:
        """Under which name the credential of a caller at a server is kept; empty: it is everybody's."""
        return caller if self._spec(server).credentials == "caller" else ""

    def _spec(self, server: str) -> ServerSpec:
        specs = {spec.name: spec for spec in self._specs()}
        if server not in specs:
            raise ConfigError(
                f"there is no server {server!r}",
                hints=sorted(specs),
                next_action="name one of the servers in the configuration",
            )
        return specs[server]

    async def prepare(self, server: str, owner: str) -> "Prospect":
        """Finds out how to sign in to a server."""
        from toolfold.auth import grants

        return await grants.prepare(await self.filled(server), self.vault, caller=owner)

    async def is_wanted(self, server: str) -> bool:
        """Whether a server wants a sign-in: it is asked without a token."""
        from toolfold.auth.discovery import _probe
        from toolfold.auth.grants import fetcher_for

        spec = await self.filled(server)
        off = spec.oauth is not None and not spec.oauth.enabled
        if off or any(name.casefold() == "authorization" for name in spec.headers):
            return False
        return await _probe(fetcher_for(spec), spec) is not None

    async def keep(self, credential: "Credential") -> None:
        """Stores a sign-in that somebody has just made. Where that fails its tokens are revoked, and it is said what
        lives on."""
        try:
            await self.vault.put(credential)
        except UpstreamError as error:
            _, left = await self._revoke(credential)
            raise ServerUnavailable(
                f"{error.message}; {left}", server=credential.server, next_action=error.next_action
            ) from error

    async def filled(self, server: str) -> ServerSpec:
        """A server with its references filled in."""
        return await run_in_thread(partial(resolve, self._spec(server)))

    async def try_key(self, server: str, header: str, value: str) -> str:
        """Lists a server's tools with a key. Raises `ServerUnavailable` where it does not take it, and gives why nobody
        knows where it cannot be asked."""
        from toolfold.upstream.base import Hooks
        from toolfold.upstream.factory import make_upstream
        from toolfold.wire.http_client import AccessRefused

        spec = await self.filled(server)
        if spec.transport == "openapi":
            return "the first call will show whether it takes this key"
        upstream = make_upstream(replace(spec, headers={**spec.headers, header: value}, oauth=None), Hooks())
        try:
            await upstream.open()
            await upstream.listing()
        except AccessRefused as error:
            raise ServerUnavailable(
                f"{server} does not take this key: {error.message}",
                server=server,
                next_action=f"Check the key, and whether {header} is the header for it; nothing was stored.",
            ) from error
        except UpstreamError as error:
            return error.message
        finally:
            await upstream.aclose()
        return ""

    async def address(self, server: str) -> str:
        """Where a key goes: an OpenAPI document may say it, and not the configuration."""
        spec = await self.filled(server)
        if spec.transport != "openapi":
            return spec.url
        from toolfold.upstream.openapi.upstream import OpenApiUpstream

        upstream = OpenApiUpstream(spec)
        try:
            await upstream.open()
            return upstream.address
        finally:
            await upstream.aclose()

    def changed_at(self) -> int:
        """Differs once somebody signed in or out, in whatever process."""
        return self.vault.changed_at()

    def stamp(self, server: str, caller: str) -> tuple[object, ...]:
        """Differs once a caller signed in, or came in with another token to exchange; empty: it did neither."""
        subject = self.vault.subject(caller) if self.exchanges(server) else ""
        return (*self.vault.stamp(server, caller), *((hash(subject),) if subject else ()))

    def exchanges(self, server: str) -> bool:
        """Whether callers' tokens are exchanged for some of a server."""
        oauth = self._spec(server).oauth
        return oauth is not None and oauth.exchange

    def has(self, server: str, owner: str) -> bool:
        """Whether there is anything for them, be it of use or not."""
        return bool(self.vault.stamp(server, owner))

    async def explain(
        self, error: ToolfoldError, tool_id: str, caller: str, hides: Callable[[str], bool]
    ) -> ToolfoldError:
        """What to say instead of an error about an unknown tool, where a sign-in would show it."""
        server = tool_id.partition(":")[2].partition(".")[0] or tool_id.partition(".")[0]
        own = any(spec.name == server and spec.enabled and spec.credentials == "caller" for spec in self._specs())
        if not own or hides(server) or isinstance(error, SignInRequired) or not await self.has_ended(server, caller):
            return error
        reason = "its tools are shown to who has signed in with an account of their own"
        return SignInRequired.of(server, caller, "the sign-in has ended" if self.has(server, caller) else reason)

    async def has_ended(self, server: str, caller: str) -> bool:
        """Whether nothing that is stored for a caller will do: there is nothing, or it has ended."""
        credential = await self.vault.find(server, caller)
        return credential is None or _summary(credential).ended

    async def look(self) -> Iterable[tuple[str, str]] | None:
        """Writes what could not be written before. Gives the servers and callers of sign-ins that came or went since
        the last look, in whatever process; `None` where nothing at all was written."""
        await self.vault.write_unwritten()
        before, self._looked_at = self._looked_at, self.changed_at()
        return None if before == self._looked_at else await self._changes()

    async def _changes(self) -> Iterable[tuple[str, str]]:
        entries = (await self.vault.entries()).values()
        now = {(one.server, one.caller) for one in entries if not isinstance(one, UpstreamError) and one.access_token}
        before, self._known = self._known, now
        return now ^ (now if before is None else before)

    async def callers(self, server: str) -> Sequence[str]:
        """Who has an account of its own at a server, or came in with a token that can be exchanged for one."""
        name = server.casefold()
        entries = await self.vault.entries()
        found = {caller: one for (at, caller), one in entries.items() if at == name and caller}
        unread = [one for one in found.values() if isinstance(one, UpstreamError)]
        if unread and server not in self._told:
            self._told.add(server)
            text, action = unread[0].message, unread[0].next_action
            log.warning("%s: %d stored sign-ins cannot be read: %s; next: %s", server, len(unread), text, action)
        stored = [name for name, one in found.items() if not isinstance(one, UpstreamError) and one.access_token]
        oauth = next((spec.oauth for spec in self._specs() if spec.name == server), None)
        held = self.vault.holders() if oauth is not None and oauth.exchange else ()
        return list(dict.fromkeys((*held, *stored)))

    async def summaries(self, callers: Iterable[str] = ()) -> list[SignedIn]:
        """All sign-ins. Of those that cannot be read, callers are known that are among these."""
        servers = {spec.name.casefold(): spec.name for spec in self._specs()}
        names = {self.vault.mark_of(caller): caller for caller in callers}
        return [
            _unread(servers.get(server, server), names.get(caller, caller), found)
            if isinstance(found, UpstreamError)
            else _summary(found, self.vault.unwritten(found.server, found.caller))
            for (server, caller), found in (await self.vault.entries()).items()
        ]

    async def with_remedies(self, states: Sequence[ServerState]) -> Sequence[ServerState]:
        """The states of servers as they were read last. Where a sign-in is there and cannot be read, what helps is said
        in the place of a login, which may be in vain."""
        if all(state.status != "needs sign-in" for state in states):
            return states
        found: dict[str, list[SignedIn]] = {}
        for one in await self.summaries():
            found.setdefault(one.server, []).append(one)
        return [_with_remedy(state, found.get(state.name, ())) for state in states]

    async def sign_out(self, server: str, owner: str) -> tuple[bool, str]:
        """Ends a sign-in here, and at its issuer. Gives whether the issuer revoked it, and in words what lives on.
        Raises `ConfigError` where there is none."""
        newer = _NEWER_LIVES_ON if self.vault.held_elsewhere(server, owner) else ""
        try:
            credential, unread = await self.vault.get(server, owner), ""
        except ServerUnavailable as error:
            credential, unread = None, error.message.removeprefix(f"{SignInRequired.phrase}: ")
        if not await self.vault.delete(server, owner):
            whose = f" as {owner}" if owner else ""
            raise ConfigError(f"nobody is signed in to {server}{whose}", next_action="see who is: toolfold servers")
        if credential is None:
            left = "its tokens live on until they end, or their issuer ends them; a key until it is withdrawn"
            return False, f"nothing could be revoked: {unread}; {left}"
        revoked, left = await self._revoke(credential)
        return revoked and not newer, "; ".join(filter(None, (left, newer)))

    async def _revoke(self, credential: "Credential") -> tuple[bool, str]:
        from toolfold.auth.revocation import revoke

        server = credential.server
        known = [spec for spec in self._specs() if spec.name == server]
        spec = known[0] if known else ServerSpec(name=server, transport="http", url=credential.resource)
        try:
            return await revoke(await run_in_thread(partial(resolve, spec)), credential)
        except ConfigError as error:
            return False, f"nothing was revoked: {error.message}; its tokens live on until they end"


def _with_remedy(state: ServerState, own: Sequence[SignedIn]) -> ServerState:
    unread = [one.next_action for one in own if one.problem]
    if state.status != "needs sign-in" or not unread or len(unread) < len(own):
        return state
    return replace(state, next_action=unread[0])


def _unread(server: str, caller: str, error: UpstreamError) -> SignedIn:
    problem = error.message.removeprefix(f"{SignInRequired.phrase}: ")
    # The vault knows neither how the server is spelt nor, of a caller, more than a mark.
    whose = SignInRequired.command(server, "CALLER" if caller.startswith("#") else caller)
    action = error.next_action.replace(SignInRequired.command(server.casefold()), whose)
    return SignedIn(server=server, caller=caller, ended=True, problem=problem, next_action=action)


def _summary(credential: "Credential", unwritten: str = "") -> SignedIn:
    exchanged = credential.grant == "exchange"
    return SignedIn(
        server=credential.server,
        caller=credential.caller,
        subject=credential.subject,
        issuer=credential.issuer,
        expires_at=credential.expires_at,
        renews=credential.renewable and not exchanged,
        exchanged=exchanged,
        ended=not credential.access_token or (credential.expired and not (credential.renewable or exchanged)),
        missing=tuple(scope for scope in credential.needs if scope not in credential.asked),
        header=credential.header,
        unwritten=unwritten,
        next_action=_WRITTEN_LATER if unwritten else "",
    )
