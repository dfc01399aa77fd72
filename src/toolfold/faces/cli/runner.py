"""What the commands share: settings from the global options, and one event loop around an open gateway."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from toolfold.config import LOCAL_NAME, CallerKey, Settings
from toolfold.config.acceptance import _Acceptances
from toolfold.errors import ConfigError, NotAccepted
from toolfold.faces.cli.terminal import Output
from toolfold.gateway import Gateway
from toolfold.telemetry.server_logs import ServerLogs

T = TypeVar("T")

# Commands that have nobody to ask, or whose output is for a program.
_UNATTENDED = ("serve", "completion")
_ABOUT_STATE = ("servers", "login", "logout")


def load_settings(arguments: argparse.Namespace, *, require_servers: bool = True) -> Settings:
    """The settings that the global options lead to."""
    if arguments.home and (home := Path(arguments.home).expanduser()).exists() and not home.is_dir():
        raise ConfigError(f"--home {home} is no folder", next_action="name one; it is made where there is none")
    load = partial(Settings.load, arguments.config, home=arguments.home, require_servers=require_servers)
    # On stdio and while a shell completes there is nobody to ask.
    output = Output(as_json=arguments.json)
    ask = output.interactive and arguments.command not in _UNATTENDED
    try:
        settings = load(ask=ask)
    except NotAccepted as refused:
        if not ask or not _is_accepted_now(refused, output):
            raise
        settings = load()
    _tell_withheld(settings, arguments)
    # An empty one is nobody's, and not the owner: a variable that was not set must not show more.
    if getattr(arguments, "view_as", None) is not None:
        settings = _seen_as(settings, arguments.view_as)
    if settings.telemetry.logs == "json":
        from toolfold.telemetry.logs import level_of, log_as_json

        log_as_json(level_of(arguments.verbose))
    return settings


def _is_accepted_now(refused: NotAccepted, output: Output) -> bool:
    """Asks whoever sits at the terminal, and records a yes."""
    output.labelled("new here:", "yellow", output.short_path(refused.message))
    for hint in refused.hints:
        output.note(f"  - {hint}", as_it_is=True)  # broken between words it would lose blanks
    if not output.confirm("Do you trust it?"):
        return False
    _Acceptances.of_person().accept(refused.file.path, refused.file.entry)
    return True


def _tell_withheld(settings: Settings, arguments: argparse.Namespace) -> None:
    """Names the files that were not accepted, once a command, and where state is in another folder than was named: what
    was expected there seems to be gone. `serve` logs it, `doctor` finds it, `build` tells of all."""
    told: set[str] = vars(arguments).setdefault("told_withheld", set())
    new = arguments.command != "build" and (arguments.command in _ABOUT_STATE or not settings.home.exists())
    texts = (*settings.file_warnings, *((settings.apart,) if settings.apart and new else ()))
    for text in texts if arguments.command not in {*_UNATTENDED, "doctor"} else ():
        if text not in told:
            output = Output(as_json=arguments.json)
            output.warn(output.short_path(text))
            told.add(text)


def _user_home(arguments: argparse.Namespace, settings: Settings) -> Path:
    """Where the person's own configuration is, and what imports wrote down."""
    return Path(arguments.home).expanduser().absolute() if arguments.home else settings.user_home


def _seen_as(settings: Settings, name: str) -> Settings:
    """The settings under which whoever runs this sees what a caller sees. Nothing of it is recorded."""
    if name.startswith("{"):
        entry: CallerKey | None = _with_claims(settings, name)
    else:
        entry = next((entry for entry in settings.callers if entry.name == name), None)
    if entry is None and name == LOCAL_NAME:
        entry = CallerKey(name=LOCAL_NAME)  # whoever runs this has the default policy, where no table says another
    if entry is None:
        names = [entry.name for entry in settings.callers]
        raise ConfigError(
            f"no caller is called {name!r}",
            hints=names,
            next_action=f"name one of: {', '.join(names)}" if names else "add a [callers.NAME] table",
        )
    audit = replace(settings.audit, enabled=False)
    return replace(settings, callers=(replace(entry, name=LOCAL_NAME),), audit=audit)


def _with_claims(settings: Settings, text: str) -> CallerKey:
    """Whoever comes in with a token that claims this."""
    from toolfold.auth.resource import SCOPES_LACKING, lacking_scopes, read_claims

    try:
        claims = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"the claims after --as are no JSON object: {error}",
            next_action="""write --as '{"groups": ["platform"]}'""",
        ) from None
    policy, groups = read_claims(settings, claims)
    if needed := lacking_scopes(settings, policy, claims):
        raise ConfigError(
            f"a token with these claims is refused: {SCOPES_LACKING}",
            hints=needed,
            next_action=f"""add what the token is granted to the braces: "scope": "{" ".join(needed)}\"""",
        )
    if policy is None:
        raise ConfigError(
            "a token with these claims is refused: no policy is for them",
            hints=[policy.name for policy in settings.policies if policy.claims],
            next_action="add `claims` to a [policy.NAME], or name one for all other tokens as `policy` of [auth]",
        )
    return CallerKey(name=LOCAL_NAME, policy=policy.name, groups=groups)


def run_with_gateway(
    settings: Settings,
    work: Callable[[Gateway], Awaitable[T]],
    *,
    fast: bool = False,
    create: bool = True,
    keep_outputs: bool = False,
    prints: bool = False,
) -> T:
    """Runs `work` with an open gateway, in an event loop of its own.

    `fast` takes uvloop, where it is installed. `create`: the store is made if there is none. With `keep_outputs` what
    is stored outlives the command, so that the next one can ask for it. What Python functions print goes to stderr,
    unless `prints`: stdout is for the command's own answer.
    """

    async def main() -> T:
        logs = ServerLogs(settings.home / "logs")
        try:
            async with Gateway(settings, create=create, keep_outputs=keep_outputs) as gateway:
                gateway.upstreams.on_log = logs.write
                return await work(gateway)
        finally:
            logs.flush()  # last words, too

    # uvloop costs a third more to import than asyncio alone: worth it where servers talk.
    aside = nullcontext() if prints else redirect_stdout(sys.stderr)
    with aside, asyncio.Runner(loop_factory=fast_loop if fast else event_loop) as runner:
        return runner.run(main())


def outdated_text(settings: Settings, outdated: Mapping[str, str]) -> str:
    """How the catalogue is older than the configuration."""
    named = [f"{name} is {became}" for name, became in sorted(outdated.items())]
    where = settings.sources[0].name if settings.sources else "the configuration"
    return f"the catalogue is older than {where} ({_few(named)})"


def _few(names: Sequence[str], most: int = 5) -> str:
    """The first of the names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def event_loop() -> asyncio.AbstractEventLoop:
    """asyncio's own. Ctrl-C wakes it: one that comes just before it begins to wait would else be seen with the next
    event, be that in a quarter of a minute. asyncio listens for signals only once it has a handler for one."""
    loop = asyncio.new_event_loop()
    with suppress(NotImplementedError, RuntimeError, ValueError):  # on Windows, and outside the main thread
        loop.add_signal_handler(signal.SIGURG, _nothing)
    return loop


def _nothing() -> None:
    """What a signal that nobody sends leads to."""


def fast_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
