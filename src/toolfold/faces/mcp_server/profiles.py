"""The profiles of `toolfold serve`: the application that is served for each name."""

from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec import Raw
from msgspec.json import encode

from toolfold import tokens
from toolfold.errors import ConfigError
from toolfold.gateway import Gateway
from toolfold.types import LOCAL, Caller

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from toolfold.auth.sign_ins import SignIn
    from toolfold.faces.surface.base import Surface
    from toolfold.wire.serving import App, NotificationHub

# A server that is passed through has one kind of client, whose folders it may ask for.
BRIDGED_WHOLE = Raw(b'{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{"listChanged":true}}')

SURFACES = {"discovery": "DiscoverySurface", "direct": "DirectSurface", "auto": "AutoSurface", "live": "_LiveSurface"}


@asynccontextmanager
async def open_app(gateway: Gateway, profile: str, server: str | None = None) -> "AsyncIterator[App]":
    """The application of a profile, while it is open. It connects to no server."""
    if profile == "transparent":
        from toolfold.faces.mcp_server.transparent import TransparentApp

        gateway.upstreams.handshake = BRIDGED_WHOLE
        transparent = TransparentApp(gateway, _transparent_server(gateway, server))
        await transparent.open()
        try:
            with _telling_sign_ins(gateway, transparent.hub):
                yield transparent
        finally:
            await transparent.aclose()
        return
    from toolfold.faces.mcp_server.leaf_requests import LeafRequests
    from toolfold.faces.mcp_server.surface_app import SurfaceApp
    from toolfold.faces.mcp_server.task_requests import TaskRequests
    from toolfold.faces.surface.definitions import DISCOVERY_CAPABILITY, DISCOVERY_VERSION

    leaves, tasks = LeafRequests(gateway), TaskRequests(gateway)
    # `auto` takes the operations also while it lists the tools themselves.
    speaks = {DISCOVERY_CAPABILITY: {"version": DISCOVERY_VERSION}} if profile in ("discovery", "auto") else None
    surface = _make_surface(gateway, profile)
    app = SurfaceApp(surface, on_left=gateway.end_session, leaves=leaves, tasks=tasks, experimental=speaks)
    try:
        with _telling_sign_ins(gateway, app.hub):
            yield app
    finally:
        app.aclose()
        await tasks.aclose()
        await leaves.watched.aclose()


@contextmanager
def _telling_sign_ins(gateway: Gateway, hub: "NotificationHub") -> "Iterator[None]":
    """Inside, legacy clients hear when a sign-in that they were asked for is done."""
    # Imported here: commands that only read the catalogue load nothing of the wire.
    from toolfold.wire.types import ELICITATION_COMPLETE

    def tell(sign_in: "SignIn") -> None:
        params = encode({"elicitationId": sign_in.identifier})
        hub.publish(ELICITATION_COMPLETE, params, caller=sign_in.caller or LOCAL.name)

    stop = gateway.upstreams.credentials.sign_ins.finished.add(tell)
    try:
        yield
    finally:
        stop()


async def client_tokens(gateway: Gateway, profile: str, caller: Caller = LOCAL) -> int:
    """What a client reads of a profile before it asks for anything: all tools, and the instructions."""
    surface = _make_surface(gateway, profile)
    listed = b"[" + b",".join(bytes(tool) for tool in await surface.tools(caller)) + b"]"
    return tokens.count(listed.decode()) + tokens.count(await surface.instructions(caller))


def _transparent_server(gateway: Gateway, name: str | None) -> str:
    """The server to pass through: the one named, or the only one there is."""
    specs = [spec for spec in gateway.upstreams.specs() if spec.enabled]
    if name is not None:
        return gateway.settings.server(name).name
    if len(specs) == 1:
        return specs[0].name
    raise ConfigError(
        f"the profile `transparent` passes one server through, and {len(specs)} are configured",
        hints=[spec.name for spec in specs],
        next_action="name one with --server NAME",
    )


def _make_surface(gateway: Gateway, profile: str) -> "Surface":
    # Only the chosen one is imported: a client waits for the server to start.
    module = import_module(f"toolfold.faces.surface.{profile}")
    surface: Surface = getattr(module, SURFACES[profile])(gateway)
    return surface
