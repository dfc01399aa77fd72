"""Which version of which tool each caller has expanded lately.

Faces for models ask it when a call fails, or before each call where the configuration is strict. It belongs to the
caller's identity, lives in memory, and forgets the oldest: whoever is forgotten is only asked to expand once more.
"""

from collections import OrderedDict

from toolfold.types import Caller

MAX_EXPANSIONS = 50_000

Key = tuple[str, str, str]


class Expansions:
    """The last expansions of all callers of one gateway."""

    def __init__(self) -> None:
        self._seen: OrderedDict[Key, int] = OrderedDict()

    def note(self, caller: Caller, tool_id: str, version: int) -> None:
        key = _key(caller, tool_id)
        self._seen[key] = version
        self._seen.move_to_end(key)
        while len(self._seen) > MAX_EXPANSIONS:
            self._seen.popitem(last=False)

    def knows(self, caller: Caller, tool_id: str, version: int) -> bool:
        """Whether the caller has seen this very version."""
        return self._seen.get(_key(caller, tool_id)) == version


def _key(caller: Caller, tool_id: str) -> Key:
    return caller.name, caller.session, tool_id.casefold()
