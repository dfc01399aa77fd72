"""What an opening gateway makes for itself: its store, and the way its tools are placed in the tree.

Above: `Gateway`. Below: the SQLite store and the catalogue.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolfold.config import Settings
from toolfold.errors import StoreError
from toolfold.types import ServerInfo, Tool

if TYPE_CHECKING:
    from toolfold.catalogue.build import Placed, PlaceTools
    from toolfold.storage.base import Store


def store_path(settings: Settings) -> Path:
    """The catalogue's file."""
    return settings.home / "toolfold.sqlite"


def create_store(settings: Settings, create: bool) -> "Store":
    """The store of the configuration. With `create`, its folder is made."""
    from toolfold.storage.sqlite import SqliteStore

    path = store_path(settings)
    if not create:
        return SqliteStore(path, create=False)
    try:
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreError(
            f"the state folder {settings.home} cannot be made: {os.strerror(error.errno or 0)}",
            next_action="choose another with --home DIR or TOOLFOLD_HOME",
        ) from error
    return SqliteStore(path)


def placement_with_overrides(file: Path | None) -> "PlaceTools | None":
    """Places by capability, corrected by the person's own file where there is one, read at each build."""
    if file is None:
        return None

    def place(tools: Sequence[Tool], infos: Mapping[str, ServerInfo]) -> "Placed":
        from toolfold.catalogue.build import place_by_capability
        from toolfold.catalogue.ontology import Overrides

        return place_by_capability(tools, infos, overrides=Overrides.load(file))

    return place
