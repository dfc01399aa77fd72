"""The catalogue, search and descriptions as one kind of caller sees them: the same objects, limited to what is allowed.

Worked out once for a policy, a set of groups and a generation. Callers who may see everything never come here: their
scene is the gateway itself.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from toolfold.catalogue.catalogue import Catalogue
from toolfold.catalogue.visible import Shown, VisibleView
from toolfold.storage.base import View

if TYPE_CHECKING:
    from toolfold.gateway.describing import Describer
    from toolfold.gateway.finding import Finder

Compile = Callable[[View], Awaitable[Shown]]
Fresh = Callable[[], Awaitable[object]]
"""Something that changes when what may be seen changes without the catalogue changing."""


class Scene(Protocol):
    """What a step works with."""

    @property
    def catalogue(self) -> Catalogue: ...

    @property
    def finder(self) -> "Finder": ...

    @property
    def describer(self) -> "Describer": ...


class Sight:
    """A scene for those who may not see everything."""

    def __init__(self, whole: Scene, compiled: Compile, fresh: Fresh) -> None:
        self._whole = whole
        self._compiled = compiled
        self._fresh = fresh
        self._shown: tuple[object, Shown] | None = None
        self._working = asyncio.Lock()
        self._finder: Finder | None = None
        self._describer: Describer | None = None
        self.catalogue = whole.catalogue.limited(self._through)

    @property
    def finder(self) -> "Finder":
        if self._finder is None:
            self._finder = self._whole.finder.limited(self.catalogue, self._allowed)
        return self._finder

    @property
    def describer(self) -> "Describer":
        if self._describer is None:
            self._describer = self._whole.describer.limited(self.catalogue, self.finder.ids_like)
        return self._describer

    async def _through(self, view: View) -> View:
        return VisibleView(view, await self.shown(view))

    async def shown(self, view: View) -> Shown:
        """What may be seen of this generation."""
        key = (view.generation, await self._fresh())
        if self._shown is not None and self._shown[0] == key:
            return self._shown[1]
        async with self._working:
            if self._shown is None or self._shown[0] != key:
                self._shown = (key, await self._compiled(view))
            return self._shown[1]

    async def _allowed(self) -> Callable[[str], bool]:
        async with self._whole.catalogue.snapshot() as view:
            return (await self.shown(view)).sees
