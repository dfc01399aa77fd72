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
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from toolfold.auth.callback import CALLBACK, DEFAULT_PORT, LoopbackListener, Page, has_browser
from toolfold.config import Settings
from toolfold.errors import ConfigError, NotBuilt, ServerUnavailable, SignInRequired, ToolfoldError
from toolfold.faces.cli.build import plural, read_servers
from toolfold.faces.cli.runner import event_loop, load_settings, run_with_gateway
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
_ASKED_AT_ONCE = 16
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
# Those that say how a request is sent, and not by whom.
_NO_KEYS = frozenset({"host", "connection", "content-length", "content-type", "transfer-encoding", "upgrade", "te"})


def login(arguments: argparse.Namespace, output: Output) -> int:
    settings = load_settings(arguments)
    if arguments.server:
        _sign_in(settings, settings.server(arguments.server), arguments, output)
        return 0
    specs, unknown = _waiting(settings, output)
    if not (specs or unknown):
        output.note("no server waits for a sign-in; to sign in again: toolfold login SERVER")
        if output.as_json:
            output.data([])
    code = ServerUnavailable.exit_code if unknown else 0
    for spec in specs:
        try:
            _sign_in(settings, spec, arguments, output)
        except ToolfoldError as error:  # the others can be signed in to all the same
            output.error(error)
            code = error.exit_code
    return code


def _sign_in(settings: Settings, spec: ServerSpec, arguments: argparse.Namespace, output: Output) -> None:
    owner = _owner(settings, spec, arguments.caller, output)
    settings.make_home()
    credentials = Credentials(lambda: settings.servers, settings.home, settings=settings)
    with asyncio.Runner(loop_factory=event_loop) as runner:
        untried = runner.run(_log_in(credentials, spec, owner, arguments, output))
        signed_in = next(
            one for one in runner.run(credentials.summaries()) if (one.server, one.caller) == (spec.name, owner)
        )
    try:
        tools, built = _read(settings, spec.name, owner, output), True
    except NotBuilt:
        tools, built = None, False
    if output.as_json:
        output.data({**msgspec.to_builtins(signed_in), "tools": tools, "next": "" if built else "toolfold build"})
    else:
        done = f"key stored for {spec.name}, not tried: {untried}"
        signed = f"{output.style('signed in', 'green')} to {spec.name}{signed_in.describe()}"
        output.line(done if untried else signed)
        if tools is not None:
            output.line(f"{plural(tools, 'tool')} of {spec.name} in the catalogue")
        output.out.flush()
        if not built:
            output.note("next: toolfold build")


def _waiting(settings: Settings, output: Output) -> tuple[list[ServerSpec], bool]:
    """The servers that need it: by the last build, and by what is stored; of what was never built, by asking them. And
    whether one of those could not be asked."""
    credentials = Credentials(lambda: settings.servers, settings.home, settings=settings)
    # Where callers' own tokens are exchanged nobody need sign in.
    enabled = [spec for spec in settings.servers if spec.enabled and not credentials.exchanges(spec.name)]
    missing = [spec for spec in enabled if not credentials.has(spec.name, credentials.owner(spec.name))]
    waiting, new = _by_last_build(settings, missing)
    wanted, all_asked = asyncio.run(_ask(credentials, new, output))
    return [spec for spec in enabled if spec.name in waiting | wanted], not all_asked


def _by_last_build(settings: Settings, missing: Sequence[ServerSpec]) -> tuple[set[str], list[str]]:
    """The servers that wait for a sign-in, by the last build and the configuration; and those that are `missing` a
    sign-in and were never asked whether they want one."""

    async def work(gateway: Gateway) -> tuple[set[str], set[str]]:
        waiting = {state.name for state in await gateway.servers() if state.status == "needs sign-in"}
        return waiting, {record.name for record in await gateway.catalogue.servers()}

    try:
        waiting, known = run_with_gateway(settings, work, create=False)
    except NotBuilt:
        waiting, known = set(), set()
    waiting |= {spec.name for spec in missing if spec.oauth is not None}
    return waiting, [spec.name for spec in missing if spec.transport == "http" and spec.name not in waiting | known]


async def _ask(credentials: Credentials, servers: Sequence[str], output: Output) -> tuple[set[str], bool]:
    """Which of these servers want a sign-in, and whether all could be asked."""
    turns = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def ask(server: str) -> bool | None:
        async with turns:
            try:
                return await credentials.is_wanted(server)
            except ToolfoldError as error:
                output.warn(f"{server} could not be asked whether it wants a sign-in: {error.message}")
                return None

    answers = dict(zip(servers, await asyncio.gather(*map(ask, servers)), strict=True))
    return {server for server, wanted in answers.items() if wanted}, None not in answers.values()


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
        await credentials.keep(await grants.client_credentials(filled, vault, caller=owner))
        return ""
    if not (arguments.no_browser or arguments.device or has_browser() or _has_terminal()):
        raise ConfigError(
            f"nobody can sign in to {spec.name} here: there is neither a browser nor a terminal",
            next_action="run it in a terminal, or with --device, where somebody reads the code that it prints; or "
            "store a key: --header NAME",
        )
    prospect = await credentials.prepare(spec.name, owner)
    limit = float(arguments.timeout or _WAIT_S)  # of the wait for a person: an issuer that hangs is waited for apart
    await credentials.keep(await _by_person(prospect, arguments, output, limit))
    return ""


def _has_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()  # of a service it may be closed


async def _by_person(prospect: "Prospect", arguments: argparse.Namespace, output: Output, limit: float) -> "Credential":
    spec = prospect.spec
    browser = has_browser() and not (arguments.no_browser or arguments.device)
    if arguments.device and not prospect.offers_device:
        raise ConfigError(
            f"{spec.name}: {prospect.issuer} offers no sign-in by a code (device flow)",
            next_action=f"{SignInRequired.command(spec.name, prospect.caller)} --no-browser",
        )
    if browser or not prospect.offers_device:
        return await _by_address(prospect, output, limit, browser=browser)
    if not prospect.server.registration_endpoint:
        # Whoever has to register a client is told the address that a browser will be sent to.
        port = spec.oauth.redirect_port if spec.oauth is not None else 0
        await prospect.client(f"http://127.0.0.1:{port or DEFAULT_PORT}{CALLBACK}")
    return await _by_device(prospect, output, limit)


def _target(prospect: "Prospect") -> str:
    """Where somebody signs in, and for whom."""
    return prospect.spec.name + (f", for the caller {prospect.caller}" if prospect.caller else "")


async def _by_device(prospect: "Prospect", output: Output, limit: float) -> "Credential":
    login, target = await prospect.device_login(), _target(prospect)
    output.note(f"To sign in to {target}, open this address on any device:\n\n    {login.verification_uri}\n")
    output.note(f"and enter the code  {output.style(login.user_code, 'bold', stream=output.err)}\n")
    output.note(f"waiting, for {_duration(min(limit, login.expires_in))} at most; Ctrl-C to give up")
    return await login.wait(limit, lambda trouble: output.warn(f"{trouble}; it is asked again"))


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:g} s"


class _Callback:
    """What a browser brings back."""

    login: "CodeLogin"

    def __init__(self, server: str) -> None:
        self._server = server
        self.came = asyncio.Event()
        self.result: asyncio.Future[Credential] = asyncio.get_running_loop().create_future()

    async def page(self, method: str, target: str, headers: Mapping[str, str]) -> Page:
        parts = urlsplit(target)
        # A browser that comes again, such as by a reload, must not undo what it began.
        if self.came.is_set() or parts.path != CALLBACK or parse_qs(parts.query).get("state") != [self.login.state]:
            return Page.of("Nothing waits here", "This sign-in is over, or another one.", status=404)
        self.came.set()
        try:
            credential = await self.login.finish(f"http://127.0.0.1{target}")
        except ToolfoldError as error:
            if not self.result.done():
                self.result.set_exception(error)
            return Page.of("That did not work", error.message, "You can close this.", status=400)
        if not self.result.done():
            self.result.set_result(credential)
        return Page.of("Signed in", f"You are signed in to {self._server}. You can close this.")


async def _by_address(prospect: "Prospect", output: Output, limit: float, *, browser: bool) -> "Credential":
    """A browser comes back by itself where it is on this machine; from elsewhere a person pastes where it was sent."""
    spec = prospect.spec
    port = spec.oauth.redirect_port if spec.oauth is not None else 0
    callback = _Callback(spec.name)
    async with _listening(callback, port, output, needed=browser) as address:
        login = callback.login = await prospect.code_login(address + CALLBACK)
        _tell(login.url, _target(prospect), output, limit, browser=browser)
        # In a browser's case somebody else may read standard input, unless it is a person's.
        reads = not browser or output.interactive
        pasting = _pasted(login, output) if reads else _never()
        pasted = await _first_answer(callback.came, pasting, limit, login.url if browser else "")
        if pasted:
            return await login.finish(pasted)
        if not browser and _has_terminal():
            output.note("")  # ends the line of the prompt
        if not callback.came.is_set():
            raise prospect.unanswered(limit)
        return await callback.result


@asynccontextmanager
async def _listening(callback: _Callback, port: int, output: Output, *, needed: bool) -> AsyncIterator[str]:
    """The address on this machine that a browser is sent back to. Unless it is `needed`, another may listen there."""
    async with AsyncExitStack() as stack:
        address = f"http://127.0.0.1:{port}"
        try:
            address = (await stack.enter_async_context(LoopbackListener(callback.page, port))).address
        except ConfigError as error:
            if needed:
                raise
            output.warn(f"{error.message}: nothing arrives by itself, so the address has to be pasted")
        yield address


async def _first_answer(came: asyncio.Event, pasting: Coroutine[Any, Any, str], limit: float, opened: str) -> str:
    """What somebody pasted, unless the browser came first, or the time was over. A browser is `opened` there."""
    coming, pasted = asyncio.ensure_future(came.wait()), asyncio.ensure_future(pasting)
    tasks: set[asyncio.Future[Any]] = {coming, pasted}
    if opened:
        import webbrowser

        tasks.add(asyncio.ensure_future(asyncio.to_thread(webbrowser.open, opened)))
    try:
        await asyncio.wait({coming, pasted}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        return pasted.result() if pasted.done() and not came.is_set() else ""
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pasted(login: "CodeLogin", output: Output) -> str:
    """The address that somebody pastes. A slip costs nothing: it is asked for again, a few times. The end of input is
    no answer: the browser may still come back by itself."""
    slips = 0
    async for text in _lines():
        if not (reason := _slip(login, text)):
            return text
        slips += 1
        if slips == _MAX_PASTES:
            raise ConfigError(reason, next_action="run it again, and paste the address; nothing was stored")
        output.note(f"{reason}.")
        _prompt(output, ", whole: ")
    return await _never()


async def _never() -> str:
    forever: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    return await forever


def _slip(login: "CodeLogin", text: str) -> str:
    """What is wrong with an address that somebody pasted."""
    given = parse_qs(urlsplit(text).query)
    if not text:
        return "no address was given"
    if not given.keys() & {"code", "error"}:
        return "that is no address with a code in it"
    state = given.get("state", [""])
    if state == [login.state]:
        return ""
    cut = login.state.startswith(state[0])
    return "that address was cut off before its end" if cut else "that address belongs to another sign-in"


def _tell(url: str, target: str, output: Output, limit: float, *, browser: bool) -> None:
    if browser:
        output.note(f"Your browser opens, to sign in to {target}. If it does not, open this address:\n\n    {url}\n")
        output.note(f"waiting for it, for {_duration(limit)} at most; Ctrl-C to give up")
        return
    output.note(f"To sign in to {target}, open this address in a browser, on any machine:\n\n    {url}\n")
    output.note("When you are done, it is sent to an address at 127.0.0.1 that it cannot open from another machine.")
    if not _has_terminal():
        output.note(f"waiting for it, or for the address on standard input, for {_duration(limit)} at most")
    _prompt(output, ": ")


def _prompt(output: Output, end: str) -> None:
    if _has_terminal():
        output.err.write(f"Paste the address you were sent to{end}")
        output.err.flush()


async def _lines() -> AsyncIterator[str]:
    """The lines of standard input, until its end, while other things go on."""
    loop, rest, data = asyncio.get_running_loop(), b"", b"\n"
    while sys.stdin is not None and data:
        readable = asyncio.Event()
        try:
            loop.add_reader(sys.stdin.fileno(), readable.set)
        except PermissionError:  # a file: it never blocks
            readable.set()
        try:
            await readable.wait()
            data = os.read(sys.stdin.fileno(), _MAX_LINE)
        finally:
            loop.remove_reader(sys.stdin.fileno())
        *whole, rest = (rest + data).split(b"\n")
        if rest and (not data or len(rest) > _MAX_LINE):
            whole, rest = [*whole, rest], b""
        for line in whole:
            yield line.decode(errors="replace").strip()


def _only_line() -> str:
    """What stands on standard input. Where that is more than a line, nobody knows which of it is the key."""
    data = b""
    while b"\n" not in data and len(data) < _MAX_LINE and (more := os.read(sys.stdin.fileno(), _MAX_LINE)):
        data += more
    first, _, rest = data.partition(b"\n")
    if rest.strip():
        raise ConfigError("standard input holds more than one line", next_action="give the key alone, on one line")
    return first.decode(errors="replace").strip()


async def _from_header(credentials: Credentials, spec: ServerSpec, owner: str, name: str) -> "Credential":
    from toolfold.auth.vault import Credential

    if not _HEADER_NAME.fullmatch(name) or name.lower() in _NO_KEYS:
        raise ConfigError(
            f"{name!r} is no header that can carry a key", next_action="name the one that the server wants"
        )
    if _has_terminal():
        import getpass

        value = getpass.getpass(f"{name}: ")
    else:
        value = _only_line() if sys.stdin is not None else ""
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
    """Takes the server's tools into a catalogue that is there, and gives how many they are. Raises `NotBuilt`."""

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

    return run_with_gateway(settings, work, create=False)


def logout(arguments: argparse.Namespace, output: Output) -> int:
    settings = load_settings(arguments, require_servers=False)
    credentials = Credentials(lambda: settings.servers, settings.home, settings=settings)
    with asyncio.Runner(loop_factory=event_loop) as runner:
        found = runner.run(credentials.summaries([arguments.caller or ""]))
        if arguments.all and not found and not output.as_json:
            output.note("nobody is signed in")
        chosen = _chosen(found, arguments.server, arguments.caller, every=arguments.all)
        for one in chosen:
            _tell_signed_out(output, one, *runner.run(credentials.sign_out(one.server, one.caller)))
        left = {one.server for one in runner.run(credentials.summaries())}
    _mark(settings, {one.server: one.header for one in chosen}.items(), left)
    return 0


def _tell_signed_out(output: Output, one: SignedIn, revoked: bool, left: str) -> None:
    if output.as_json:
        output.data({"server": one.server, "caller": one.caller, "revoked": revoked, "left": left})
        return
    output.line(f"signed out of {one.server}{f' as {one.caller}' if one.caller else ''}")
    output.note(left)


def _mark(settings: Settings, signed_out: Iterable[tuple[str, str]], left: Collection[str]) -> None:
    """Has the catalogue know that nobody is signed in to these servers any more, each with the header of its key, but
    for those that are `left`."""

    async def work(gateway: Gateway) -> None:
        known = {record.name for record in await gateway.catalogue.servers()}
        for name, header in signed_out:
            if name not in known or name in left:
                continue
            reason = f"its key in {header} was removed" if header else "nobody is signed in to it"
            await gateway.catalogue.mark_failed(name, f"{name} {SignInRequired.phrase}: {reason}")

    with suppress(NotBuilt):
        run_with_gateway(settings, work, create=False)


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
