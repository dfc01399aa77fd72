"""What the commands share: settings from the global options, and one event loop around an open gateway."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from toolfold.config import Settings
from toolfold.gateway import Gateway

T = TypeVar("T")


def load_settings(arguments: argparse.Namespace, *, require_servers: bool = True) -> Settings:
    """The settings that the global options lead to."""
    settings = Settings.load(arguments.config, home=arguments.home, require_servers=require_servers)
    if settings.telemetry.logs == "json":
        from toolfold.telemetry.logs import level_of, log_as_json

        log_as_json(level_of(arguments.verbose))
    return settings


def run_with_gateway(
    settings: Settings,
    work: Callable[[Gateway], Awaitable[T]],
    *,
    fast: bool = False,
    create: bool = True,
    keep_outputs: bool = False,
) -> T:
    """Runs `work` with an open gateway, in an event loop of its own.

    `fast` takes uvloop, where it is installed. `create`: the store is made if there is none. With `keep_outputs` what
    is stored outlives the command, so that the next one can ask for it.
    """

    async def main() -> T:
        async with Gateway(settings, create=create, keep_outputs=keep_outputs) as gateway:
            return await work(gateway)

    # uvloop costs a third more to import than asyncio alone: worth it where servers talk.
    with asyncio.Runner(loop_factory=_loop_factory() if fast else None) as runner:
        return runner.run(main())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed; `None` stands for asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
