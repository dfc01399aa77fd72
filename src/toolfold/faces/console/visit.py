"""One request for a page: who asks, what was sent, and what pages answer with."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from toolfold.errors import NotAuthorized, NotBuilt
from toolfold.faces.console.browser import _BrowserSession, _Undo
from toolfold.faces.surface.instructions import _visible_states
from toolfold.gateway import Gateway
from toolfold.policy.approvals import Waiting
from toolfold.policy.view import CatalogueView
from toolfold.types import Caller, ServerState

if TYPE_CHECKING:
    from starlette.requests import Request

# The session that a person's own look at tools is recorded under.
_SESSION = "console"


class _Page(Struct, frozen=True):
    """A template and what it shows."""

    template: str
    values: Mapping[str, Any]
    status: int = 200
    file: str = ""
    """The name it is kept under, where it is a file to be kept and no page of the console."""


class _Redirect(Struct, frozen=True):
    """Where a change leads to, what is said there once, and what takes it back."""

    address: str
    notice: str = ""
    undo: _Undo | None = None


class _Visit:
    """Who asks for what. `memory` is what the console keeps between requests."""

    def __init__(
        self,
        gateway: Gateway,
        caller: Caller,
        request: "Request",
        session: _BrowserSession,
        form: Mapping[str, str],
        *,
        admin: bool,
        memory: dict[Any, Any],
    ) -> None:
        self.gateway = gateway
        self.caller = replace(caller, session=_SESSION)
        self.request = request
        self.session = session
        self.form = form
        self.admin = admin
        self.memory = memory
        # Whether the browser needs its cookie anew.
        self.changed = False

    @property
    def whose(self) -> str | None:
        """Whose records are shown: one's own, or everybody's to administrators."""
        return None if self.admin else self.caller.name

    @property
    def waiting(self) -> Sequence[Waiting]:
        """The calls that an administrator may answer."""
        return self.gateway.access.approvals.waiting if self.admin else ()

    @property
    def view(self) -> CatalogueView:
        return self.gateway.view(self.caller)

    def query(self, name: str, default: str = "", most: int = 500) -> str:
        return self.request.query_params.get(name, default)[:most]

    def number(self, name: str, default: int = 1, *, most: int = 10**9) -> int:
        text = self.query(name)
        return min(int(text), most) if text.isascii() and text.isdigit() and len(text) < 20 else default

    def chosen(self, name: str, choices: Sequence[str]) -> str:
        text = self.query(name)
        return text if text in choices else choices[0]

    def require_admin(self) -> None:
        if not self.admin:
            raise NotAuthorized(
                "this is for administrators, and your policy makes you none",
                next_action="ask whoever runs the gateway; it is `admin = true` in a [policy.NAME] of its own",
            )

    async def servers(self) -> Sequence[ServerState]:
        """The servers that this caller may know of; all to administrators, with why their tools may be old."""
        if not self.admin:
            try:
                return await _visible_states(self.gateway, self.caller)
            except NotBuilt:
                return ()
        stale = {one.name: one.error for one in await self.gateway.catalogue.servers() if one.stale}
        states = await self.gateway.servers()
        return [replace(one, error=one.error or stale.get(one.name, "")) for one in states]


def _paged(entries: Sequence[Any], page: int, size: int) -> dict[str, Any]:
    """A part of many entries, and where the others are."""
    pages = max(1, -(-len(entries) // size))
    page = max(1, min(page, pages))
    start = (page - 1) * size
    return {"entries": entries[start : start + size], "page": page, "pages": pages, "total": len(entries)}


Work = Callable[[_Visit], Awaitable[_Page | _Redirect]]
