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
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import msgspec

from toolfold.auth.login import CALLBACK, LoopbackListener, Page, has_browser
from toolfold.config import Settings
from toolfold.errors import ConfigError, NotBuilt, ServerTimeout, SignInRequired, ToolfoldError
from toolfold.faces.cli.build import plural, read_servers
from toolfold.faces.cli.runner import load_settings, run_with_gateway
from toolfold.faces.cli.terminal import Output
from toolfold.gateway import Gateway
from toolfold.types import LOCAL, ServerSpec
from toolfold.upstream.credentials import Credentials, SignedIn

if TYPE_CHECKING:
    from toolfold.auth.grants import CodeLogin, DeviceLogin, Prospect
    from toolfold.auth.vault import Credential

_WAIT_S = 600.0
_MAX_LINE = 64 * 1024
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
# Those that say how a request is sent, and not by whom.
_NO_KEYS = frozenset({"host", "connection", "content-length", "content-type", "transfer-encoding", "upgrade", "te"})


def login(arguments: argparse.Namespace, output: Output) -> int:
    settings = load_settings(arguments)
    specs = [settings.server(arguments.server)] if arguments.server else _waiting(settings)
    if not specs:
        output.note("no server waits for a sign-in; to sign in again: toolfold login SERVER")
    for spec in specs:
        owner = _owner(settings, spec, arguments.caller)
        credentials = Credentials(lambda: settings.servers, settings.home)
        with asyncio.Runner() as runner:
            runner.run(_log_in(credentials, spec, owner, arguments, output))
            signed_in = next(
                one for one in runner.run(credentials.summaries()) if (one.server, one.caller) == (spec.name, owner)
            )
        tools = _read(settings, spec.name, output)
        if output.as_json:
            output.data({**msgspec.to_builtins(signed_in), "tools": tools})
        else:
            output.line(f"{output.style('signed in', 'green')} to {spec.name}{signed_in.describe()}")
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
    credentials = Credentials(lambda: settings.servers, settings.home)
    enabled = [spec for spec in settings.servers if spec.enabled]
    return [
        spec
        for spec in enabled
        if spec.name in waiting
        or (spec.oauth is not None and not credentials.has(spec.name, credentials.owner(spec.name)))
    ]


def _owner(settings: Settings, spec: ServerSpec, caller: str | None) -> str:
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
    return caller or LOCAL.name


async def _log_in(
    credentials: Credentials, spec: ServerSpec, owner: str, arguments: argparse.Namespace, output: Output
) -> None:
    from toolfold.auth import grants

    if arguments.header:
        await credentials.vault.put(await _from_header(credentials, spec, owner, arguments.header))
        return
    if spec.oauth is not None and spec.oauth.grant == "client_credentials":
        filled, vault = await credentials.filled(spec.name), credentials.vault
        await vault.put(await grants.client_credentials(filled, vault, caller=owner))
        return
    prospect = await credentials.prepare(spec.name, owner)
    browser = has_browser() and not (arguments.no_browser or arguments.device)
    if arguments.device and not prospect.offers_device:
        raise ConfigError(
            f"{spec.name}: {prospect.issuer} offers no sign-in by a code (device flow)",
            next_action=f"{SignInRequired.command(spec.name, owner)} --no-browser",
        )
    if not browser and prospect.offers_device:
        credential = await _by_device(await prospect.device_login(), spec.name, output)
    else:
        credential = await _by_address(prospect, spec, output, browser=browser)
    await credentials.vault.put(credential)


async def _by_device(login: "DeviceLogin", server: str, output: Output) -> "Credential":
    output.note(f"To sign in to {server}, open this address on any device:\n\n    {login.verification_uri}\n")
    output.note(f"and enter the code  {output.style(login.user_code, 'bold', stream=output.err)}\n")
    output.note(f"waiting, for {login.expires_in / 60:.0f} min at most; Ctrl-C to give up")
    return await login.wait()


class _Callback:
    """What a browser brings back."""

    def __init__(self, login: "CodeLogin", server: str) -> None:
        self._login = login
        self._server = server
        self.result: asyncio.Future[Credential] = asyncio.get_running_loop().create_future()

    async def page(self, method: str, target: str, headers: Mapping[str, str]) -> Page:
        parts = urlsplit(target)
        if parts.path != CALLBACK or parse_qs(parts.query).get("state") != [self._login.state]:
            return Page.of("Nothing waits here", "This sign-in is over, or another one.", status=404)
        try:
            credential = await self._login.finish(f"http://127.0.0.1{target}")
        except ToolfoldError as error:
            if not self.result.done():
                self.result.set_exception(error)
            return Page.of("That did not work", error.message, "You can close this.", status=400)
        self.result.set_result(credential)
        return Page.of("Signed in", f"You are signed in to {self._server}. You can close this.")


async def _by_address(prospect: "Prospect", spec: ServerSpec, output: Output, *, browser: bool) -> "Credential":
    """A browser comes back by itself where it is on this machine; from elsewhere a person pastes where it was sent."""
    port = spec.oauth.redirect_port if spec.oauth is not None else 0
    callbacks: list[_Callback] = []

    async def page(method: str, target: str, headers: Mapping[str, str]) -> Page:
        return await callbacks[0].page(method, target, headers)

    async with LoopbackListener(page, port) as listener:
        login = await prospect.code_login(listener.address + CALLBACK)
        callbacks.append(callback := _Callback(login, spec.name))
        pasted = None if browser and not output.interactive else asyncio.ensure_future(_read_line())
        _tell(login.url, spec.name, output, browser=browser)
        if browser:
            import webbrowser

            await asyncio.to_thread(webbrowser.open, login.url)
        try:
            done, _ = await asyncio.wait(
                {callback.result, *((pasted,) if pasted is not None else ())},
                timeout=_WAIT_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if callback.result in done:
                return callback.result.result()
            if pasted is not None and pasted in done:
                return await login.finish(pasted.result())
        finally:
            if pasted is not None:
                pasted.cancel()
    raise ServerTimeout(
        f"nobody signed in to {spec.name} within {_WAIT_S / 60:.0f} min",
        server=spec.name,
        next_action=f"begin again: {SignInRequired.command(spec.name, prospect.caller)}; nothing was stored",
    )


def _tell(url: str, server: str, output: Output, *, browser: bool) -> None:
    if browser:
        output.note(f"Your browser opens, to sign in to {server}. If it does not, open this address:\n\n    {url}\n")
        output.note("waiting for it; Ctrl-C to give up")
        return
    output.note(f"To sign in to {server}, open this address in a browser, on any machine:\n\n    {url}\n")
    output.note("When you are done, it is sent to an address at 127.0.0.1 that it cannot open from another machine.")
    output.err.write("Paste the address you were sent to: ")
    output.err.flush()


async def _read_line() -> str:
    """A line of standard input, while other things go on."""
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
    if not text:
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


def _read(settings: Settings, server: str, output: Output) -> int | None:
    """Takes the server's tools into a catalogue that is there, and gives how many they are."""

    async def work(gateway: Gateway) -> int | None:
        result, failed = await read_servers(gateway, [server], output)
        for error in failed.values():
            output.warn(f"signed in, and its tools could not be read: {error.message}")
        return next((one.tools for one in result.report.servers if one.name == server and not failed), None)

    try:
        return run_with_gateway(settings, work, create=False)
    except NotBuilt:
        output.note("next: toolfold build")
        return None


def logout(arguments: argparse.Namespace, output: Output) -> int:
    settings = load_settings(arguments, require_servers=False)
    credentials = Credentials(lambda: settings.servers, settings.home)
    with asyncio.Runner() as runner:
        found = runner.run(credentials.summaries())
        for one in _chosen(found, arguments.server, arguments.caller, every=arguments.all):
            told = runner.run(credentials.sign_out(one.server, one.caller))
            if output.as_json:
                output.data({"server": one.server, "caller": one.caller, "revoked": told})
                continue
            output.line(f"signed out of {one.server}{f' as {one.caller}' if one.caller else ''}")
            if not told:
                output.note("its issuer was not told: a token that is out may work until it ends")
    return 0


def _chosen(found: Sequence[SignedIn], server: str | None, caller: str | None, *, every: bool) -> list[SignedIn]:
    own = [one for one in found if server in (None, one.server) and caller in (None, one.caller)]
    if every or len(own) == 1:
        return own
    names = [one.server + f" --as {shlex.quote(one.caller)}" * bool(one.caller) for one in own]
    raise ConfigError(
        f"{len(own)} sign-ins are stored" if own else "nobody is signed in there",
        hints=names[:20],
        next_action="name one of those in hints, or give --all" if own else "see who is: toolfold servers",
    )
