"""Which profile is which: the application that is served for a name."""

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec import Raw

from toolfold.errors import ConfigError
from toolfold.gateway import Gateway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from toolfold.faces.surface.base import Surface
    from toolfold.wire.serving import App

PROFILES = ("discovery", "transparent", "direct", "auto", "live")

BRIDGED = Raw(b'{"elicitation":{"form":{},"url":{}},"sampling":{}}')
"""What servers of the legacy era may ask for. Whoever calls answers, if its client declared that it can."""
BRIDGED_WHOLE = Raw(b'{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{"listChanged":true}}')
"""The same for a server that is passed through: it has one kind of client, whose folders it may ask for."""


@asynccontextmanager
async def open_app(gateway: Gateway, profile: str, server: str | None = None) -> "AsyncIterator[App]":
    """The application of a profile, while it is open. Nothing is connected to by this."""
    if profile == "transparent":
        from toolfold.faces.mcp_server.transparent import TransparentApp

        gateway.upstreams.handshake = BRIDGED_WHOLE
        transparent = TransparentApp(gateway, _transparent_server(gateway, server))
        await transparent.open()
        try:
            yield transparent
        finally:
            await transparent.aclose()
        return
    from toolfold.faces.mcp_server.surface_app import SurfaceApp

    gateway.upstreams.handshake = BRIDGED
    app = SurfaceApp(_make_surface(gateway, profile), left=gateway.end_session)
    try:
        yield app
    finally:
        app.aclose()


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
    if profile == "discovery":
        from toolfold.faces.surface.discovery import DiscoverySurface

        return DiscoverySurface(gateway)
    if profile == "direct":
        from toolfold.faces.surface.direct import DirectSurface

        return DirectSurface(gateway)
    if profile == "auto":
        from toolfold.faces.surface.auto import AutoSurface

        return AutoSurface(gateway)
    from toolfold.faces.surface.live import LiveSurface

    return LiveSurface(gateway)
