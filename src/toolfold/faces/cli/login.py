"""`toolfold login` and `toolfold logout`: somebody at a terminal signs in to a server, by whatever way there is here.

A browser that comes back to a port of this machine; where there is none (SSH, a container), a code that is confirmed on
another device, or an address to open anywhere and the one to paste that it led to. Nothing is stored before it worked.
"""

import argparse
import asyncio
import os
import re
import shlex
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import msgspec

from toolfold.auth.login import CALLBACK, DEFAULT_PORT, LoopbackListener, Page, has_browser
from toolfold.config import Settings
from toolfold.errors import ConfigError, NotBuilt, ServerTimeout, ServerUnavailable, SignInRequired, ToolfoldError
from toolfold.faces.cli.build import plural, read_servers
from toolfold.faces.cli.runner import load_settings, run_with_gateway
from toolfold.faces.cli.terminal import Output
from toolfold.gateway import Gateway
from toolfold.types import LOCAL, ServerSpec
from toolfold.upstream.credentials import Credentials, SignedIn
from toolfold.wire.http_client import AccessRefused

if TYPE_CHECKING:
    from toolfold.auth.grants import CodeLogin, Prospect
    from toolfold.auth.vault import Credential

_WAIT_S = 600.0
_MAX_LINE = 64 * 1024
_MAX_PASTES = 3
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
# Those that say how a request is sent, and not by whom.
_NO_KEYS = frozenset({"host", "connection", "content-length", "content-type", "transfer-encoding", "upgrade", "te"})


def login(arguments: argparse.Namespace, output: Output) -> int:
    settings = load_settings(arguments)
    specs = [settings.server(arguments.server)] if arguments.server else _waiting(settings)
    if not specs:
        output.note("no server waits for a sign-in; to sign in again: toolfold login SERVER")
    for spec in specs:
        owner = _owner(settings, spec, arguments.caller, output)
        credentials = Credentials(lambda: settings.servers, settings.home, settings=settings)
        with asyncio.Runner() as runner:
            untried = runner.run(_log_in(credentials, spec, owner, arguments, output))
            signed_in = next(
                one for one in runner.run(credentials.summaries()) if (one.server, one.caller) == (spec.name, owner)
            )
        tools = _read(settings, spec.name, owner, output)
        if output.as_json:
            output.data({**msgspec.to_builtins(signed_in), "tools": tools})
        else:
            done = f"key stored for {spec.name}, not tried: {untried}"
            signed = f"{output.style('signed in', 'green')} to {spec.name}{signed_in.describe()}"
            output.line(done if untried else signed)
            if tools is not None:
                output.line(f"{plural(tools, 'tool')} of {spec.name} in the catalogue")
    return 0


def _waiting(settings: Settings) -> list[ServerSpec]:
    """The servers that need it: by the last build, and by what is stored."""
    try:
        states = run_with_gateway(settings, lambda gateway: gateway.servers(), create=False)
    except NotBuilt:
        states = ()
    waiting = {state.name for state in states if state.status == "needs sign-in"}
    credentials = Credentials(lambda: settings.servers, settings.home, settings=settings)
    enabled = [spec for spec in settings.servers if spec.enabled]
    return [
        spec
        for spec in enabled
        if spec.name in waiting
        or (spec.oauth is not None and not credentials.has(spec.name, credentials.owner(spec.name)))
    ]


def _owner(settings: Settings, spec: ServerSpec, caller: str | None, output: Output) -> str:
    if spec.transport not in ("http", "openapi"):
        raise ConfigError(
            f"{spec.name} is not reached over HTTP: nobody signs in to it",
            next_action="give it what it needs in `env`",
        )
    if spec.credentials == "shared":
        if caller:
            raise ConfigError(
                f"all callers share one account at {spec.name}",
                next_action=f'run it without --as, or write credentials = "caller" in [servers.{spec.name}]',
            )
        return ""
    if not caller:
        output.note(f"this will be the account of whoever is at this machine ({LOCAL.name}); for another: --as CALLER")
        return LOCAL.name
    names = [entry.name for entry in settings.callers]
    if caller in (*names, LOCAL.name):
        return caller
    if issuer := settings.auth.issuer:
        if not caller.startswith(f"{issuer}#"):
            output.warn(f"callers by a token of [auth], of whom there is no list, are called {issuer}#NAME")
    elif names:
        raise ConfigError(
            f"no caller is called {caller!r}", hints=names, next_action=f"name one of: {', '.join(names[:20])}"
        )
    else:
        output.warn(f"no [callers.{caller}] is configured: until it is, nobody uses this account")
    return caller


async def _log_in(
    credentials: Credentials, spec: ServerSpec, owner: str, arguments: argparse.Namespace, output: Output
) -> str:
    """Signs in and stores it. Gives why a key could not be tried; mostly nothing."""
    from toolfold.auth import grants

    if arguments.header:
        await credentials.vault.unlock()
        credential = await _from_header(credentials, spec, owner, arguments.header)
        untried = await credentials.try_key(spec.name, credential.header, credential.access_token)
        await credentials.vault.put(credential)
        return untried
    if spec.oauth is not None and spec.oauth.grant == "client_credentials":
        filled, vault = await credentials.filled(spec.name), credentials.vault
        await vault.put(await grants.client_credentials(filled, vault, caller=owner))
        return ""
    if not (arguments.no_browser or arguments.device or has_browser() or sys.stdin.isatty()):
        raise ConfigError(
            f"nobody can sign in to {spec.name} here: there is neither a browser nor a terminal",
            next_action="run it in a terminal, or with --device, where somebody reads the code that it prints; or "
            "store a key: --header NAME",
        )
    prospect = await credentials.prepare(spec.name, owner)
    limit = arguments.timeout or _WAIT_S
    try:
        async with asyncio.timeout(limit):
            credential = await _by_person(prospect, arguments, output)
    except TimeoutError:
        raise ServerTimeout(
            f"nobody signed in to {spec.name} within {limit:g} s",
            server=spec.name,
            next_action=f"begin again: {SignInRequired.command(spec.name, owner)}; nothing was stored",
        ) from None
    await credentials.vault.put(credential)
    return ""


async def _by_person(prospect: "Prospect", arguments: argparse.Namespace, output: Output) -> "Credential":
    spec = prospect.spec
    browser = has_browser() and not (arguments.no_browser or arguments.device)
    if arguments.device and not prospect.offers_device:
        raise ConfigError(
            f"{spec.name}: {prospect.issuer} offers no sign-in by a code (device flow)",
            next_action=f"{SignInRequired.command(spec.name, prospect.caller)} --no-browser",
        )
    if browser or not prospect.offers_device:
        return await _by_address(prospect, output, browser=browser)
    if not prospect.server.registration_endpoint:
        # Whoever has to register a client is told the address that a browser will be sent to.
        port = spec.oauth.redirect_port if spec.oauth is not None else 0
        await prospect.client(f"http://127.0.0.1:{port or DEFAULT_PORT}{CALLBACK}")
    return await _by_device(prospect, output)


def _target(prospect: "Prospect") -> str:
    """Where somebody signs in, and for whom."""
    return prospect.spec.name + (f", for the caller {prospect.caller}" if prospect.caller else "")


async def _by_device(prospect: "Prospect", output: Output) -> "Credential":
    login, target = await prospect.device_login(), _target(prospect)
    output.note(f"To sign in to {target}, open this address on any device:\n\n    {login.verification_uri}\n")
    output.note(f"and enter the code  {output.style(login.user_code, 'bold', stream=output.err)}\n")
    output.note(f"waiting, for {login.expires_in / 60:.0f} min at most; Ctrl-C to give up")
    return await login.wait()


class _Callback:
    """What a browser brings back."""

    login: "CodeLogin"

    def __init__(self, server: str) -> None:
        self._server = server
        self.result: asyncio.Future[Credential] = asyncio.get_running_loop().create_future()

    async def page(self, method: str, target: str, headers: Mapping[str, str]) -> Page:
        parts = urlsplit(target)
        if parts.path != CALLBACK or parse_qs(parts.query).get("state") != [self.login.state]:
            return Page.of("Nothing waits here", "This sign-in is over, or another one.", status=404)
        try:
            credential = await self.login.finish(f"http://127.0.0.1{target}")
        except ToolfoldError as error:
            if not self.result.done():
                self.result.set_exception(error)
            return Page.of("That did not work", error.message, "You can close this.", status=400)
        self.result.set_result(credential)
        return Page.of("Signed in", f"You are signed in to {self._server}. You can close this.")


async def _by_address(prospect: "Prospect", output: Output, *, browser: bool) -> "Credential":
    """A browser comes back by itself where it is on this machine; from elsewhere a person pastes where it was sent."""
    spec = prospect.spec
    port = spec.oauth.redirect_port if spec.oauth is not None else 0
    callback = _Callback(spec.name)
    async with LoopbackListener(callback.page, port) as listener:
        login = callback.login = await prospect.code_login(listener.address + CALLBACK)
        pasted = None if browser and not output.interactive else asyncio.ensure_future(_pasted(login, output))
        _tell(login.url, _target(prospect), output, browser=browser)
        if browser:
            import webbrowser

            await asyncio.to_thread(webbrowser.open, login.url)
        try:
            done, _ = await asyncio.wait(
                {callback.result, *((pasted,) if pasted is not None else ())}, return_when=asyncio.FIRST_COMPLETED
            )
            if pasted is not None and callback.result not in done:
                return await login.finish(pasted.result())
            return callback.result.result()
        finally:
            if pasted is not None:
                pasted.cancel()


async def _pasted(login: "CodeLogin", output: Output) -> str:
    """The address that somebody pastes. A slip costs nothing: it is asked for again, a few times."""
    for left in reversed(range(_MAX_PASTES)):
        text = await _read_line()
        given = parse_qs(urlsplit(text).query)
        if not text:
            reason = "no address was given"
        elif not given.keys() & {"code", "error"}:
            reason = "that is no address with a code in it"
        elif given.get("state") != [login.state]:
            reason = "that address belongs to another sign-in"
        else:
            return text
        if left:
            output.err.write(f"{reason}. Paste the address that your browser was sent to, whole: ")
            output.err.flush()
    raise ConfigError(reason, next_action="run it again, and paste the address; nothing was stored")


def _tell(url: str, target: str, output: Output, *, browser: bool) -> None:
    if browser:
        output.note(f"Your browser opens, to sign in to {target}. If it does not, open this address:\n\n    {url}\n")
        output.note("waiting for it; Ctrl-C to give up")
        return
    output.note(f"To sign in to {target}, open this address in a browser, on any machine:\n\n    {url}\n")
    output.note("When you are done, it is sent to an address at 127.0.0.1 that it cannot open from another machine.")
    output.err.write("Paste the address you were sent to: ")
    output.err.flush()


async def _read_line() -> str:
    """A line of standard input, while other things go on. Raises `ConfigError` at its end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    descriptor, line = sys.stdin.fileno(), bytearray()

    def read() -> None:
        data = os.read(descriptor, _MAX_LINE)
        line.extend(data)
        if (not data or b"\n" in data or len(line) > _MAX_LINE) and not done.done():
            loop.remove_reader(descriptor)
            done.set_result(None)

    try:
        loop.add_reader(descriptor, read)
    except PermissionError:  # a file: it never blocks
        line.extend(os.read(descriptor, _MAX_LINE))
        done.set_result(None)
    try:
        await done
    finally:
        loop.remove_reader(descriptor)
    text = bytes(line).partition(b"\n")[0].decode(errors="replace").strip()
    if not line:
        raise ConfigError("no address was given", next_action="run it again, and paste the address; nothing was stored")
    return text


async def _from_header(credentials: Credentials, spec: ServerSpec, owner: str, name: str) -> "Credential":
    from toolfold.auth.vault import Credential

    if not _HEADER_NAME.fullmatch(name) or name.lower() in _NO_KEYS:
        raise ConfigError(
            f"{name!r} is no header that can carry a key", next_action="name the one that the server wants"
        )
    if sys.stdin.isatty():
        import getpass

        value = getpass.getpass(f"{name}: ")
    else:
        value = sys.stdin.readline(_MAX_LINE).strip()
    if not value or not (value.isascii() and value.isprintable()):
        raise ConfigError(
            f"no header can carry that value of {name}", next_action="give it on one line of standard input"
        )
    return Credential(
        server=spec.name,
        caller=owner,
        resource=await credentials.address(spec.name),
        issuer="",
        token_endpoint="",
        client_id="",
        header=name,
        access_token=value,
        obtained_at=time.time(),
    )


def _read(settings: Settings, server: str, owner: str, output: Output) -> int | None:
    """Takes the server's tools into a catalogue that is there, and gives how many they are."""

    async def work(gateway: Gateway) -> int | None:
        result, failed = await read_servers(gateway, [server], output)
        for error in failed.values():
            if not owner and isinstance(error, AccessRefused | SignInRequired):  # else it may be another caller's
                raise ServerUnavailable(
                    f"the sign-in is stored, and {server} refused it: {error.message}",
                    server=server,
                    next_action="Check what that account may do there, or sign in with another one.",
                )
            output.warn(f"its tools could not be read: {error.message}")
        return next((one.tools for one in result.report.servers if one.name == server and not failed), None)

    try:
        return run_with_gateway(settings, work, create=False)
    except NotBuilt:
        output.note("next: toolfold build")
        return None


def logout(arguments: argparse.Namespace, output: Output) -> int:
    settings = load_settings(arguments, require_servers=False)
    credentials = Credentials(lambda: settings.servers, settings.home, settings=settings)
    with asyncio.Runner() as runner:
        found = runner.run(credentials.summaries([arguments.caller or ""]))
        if arguments.all and not found and not output.as_json:
            output.note("nobody is signed in")
        chosen = _chosen(found, arguments.server, arguments.caller, every=arguments.all)
        for one in chosen:
            _tell_signed_out(output, one, runner.run(credentials.sign_out(one.server, one.caller)))
        left = {one.server for one in runner.run(credentials.summaries())}
    _mark(settings, {one.server for one in chosen} - left)
    return 0


def _tell_signed_out(output: Output, one: SignedIn, untold: str) -> None:
    if output.as_json:
        output.data({"server": one.server, "caller": one.caller, "revoked": not untold})
        return
    output.line(f"signed out of {one.server}{f' as {one.caller}' if one.caller else ''}")
    if one.issuer:
        output.note(_left_behind(one, untold))


def _mark(settings: Settings, servers: Collection[str]) -> None:
    """Has the catalogue know that nobody is signed in to these servers any more."""

    async def work(gateway: Gateway) -> None:
        known = {record.name for record in await gateway.catalogue.servers()}
        for name in sorted(known.intersection(servers)):
            await gateway.catalogue.mark_failed(name, f"{name} {SignInRequired.phrase}: nobody is signed in to it")

    with suppress(NotBuilt):
        run_with_gateway(settings, work, create=False)


def _left_behind(one: SignedIn, untold: str) -> str:
    """What may still work after a sign-out: a server need not ask the issuer about each token."""
    until = time.strftime("until %Y-%m-%d %H:%M", time.localtime(one.expires_at)) if one.expires_at else "until it ends"
    said = f"its issuer was not told: {untold}" if untold else "its issuer revoked it"
    return f"{said}; a server that does not ask the issuer may take the last access token {until}"


def _is_meant(one: SignedIn, server: str | None, caller: str | None) -> bool:
    return server in (None, one.server) and caller in (None, one.caller)


def _chosen(found: Sequence[SignedIn], server: str | None, caller: str | None, *, every: bool) -> list[SignedIn]:
    own = [one for one in found if _is_meant(one, server, caller)]
    if every or len(own) == 1:
        return own
    names = [one.server + f" --as {shlex.quote(one.caller)}" * bool(one.caller) for one in own]
    raise ConfigError(
        f"{len(own)} sign-ins are stored" if own else f"nobody is signed in{' there' if server or caller else ''}",
        hints=names[:20],
        next_action="name one of those in hints, or give --all" if own else "see who is: toolfold servers",
    )
