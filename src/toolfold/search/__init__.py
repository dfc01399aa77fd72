"""Search: a request in, the tools that fit out, each with the probability that it does; or nothing, and that is said.

`open_index` gives the one object that the rest of toolfold uses. Numpy and the encoder's runtime are loaded by it, not
by this import. Below lies the catalogue; disclosure, beside it, is not known here.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolfold.search.index import SearchIndex


def open_index(folder: Path | None, *, learn: bool = False) -> "SearchIndex":
    """The index kept in a folder; `None` keeps one in memory. `learn` switches learning from use on."""
    from toolfold.search.index import SearchIndex

    return SearchIndex.open(folder, learn=learn)
