"""The settings as frozen values, and the bounds of each. Nothing here reads a file.

Above: every layer that is configured. Below: the types. A new setting is one field here and one line in `BOUNDS`.
"""

from msgspec import Struct

KIB, MIB, GIB = 1024, 1024**2, 1024**3


class Limits(Struct, frozen=True, kw_only=True):
    """How long and how large things may get."""

    tool_response_max_bytes: int = 12288
    """A larger tool result is stored, and the model gets a handle instead."""
    call_timeout_s: float = 60.0
    start_timeout_s: float = 30.0
    """From starting a server to the end of its list of tools."""
    max_frame_bytes: int = 64 * MIB
    """The largest single message that a server may send."""
    parallel_starts: int = 32


class Outputs(Struct, frozen=True, kw_only=True):
    """Where large results are kept, and how they are cut for extraction."""

    directory: str = "/tmp"  # noqa: S108 - the documented default; each session makes a private folder inside
    max_chunks_for_full_mode: int = 1
    average_line_bytes: int = 1000
    chunk_overlap_percent: int = 10


class Model(Struct, frozen=True, kw_only=True):
    """The model that extracts and plans. Without a name everything works that needs no model."""

    name: str | None = None


class Policy(Struct, frozen=True, kw_only=True):
    """What a caller may see and call, as patterns over tool ids and tags."""

    name: str
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    confirm: tuple[str, ...] = ()


class MetadataRule(Struct, frozen=True):
    """What the owner says of tools whose id fits `match`, a glob. Rules add up; of several costs the last counts."""

    match: str
    cost: float | None = None
    risk: tuple[str, ...] = ()
    access: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


class Bounds(Struct, frozen=True):
    """The kind of a setting and the range it may take."""

    kind: type[int] | type[float] | type[str] | type[bool]
    low: float = 0
    high: float = 0
    unit: str = ""


SECTIONS: dict[str, dict[str, Bounds]] = {
    "limits": {
        "tool_response_max_bytes": Bounds(int, 256, GIB, "bytes"),
        "call_timeout_s": Bounds(float, 0.1, 86_400, "seconds"),
        "start_timeout_s": Bounds(float, 0.1, 3_600, "seconds"),
        "max_frame_bytes": Bounds(int, 64 * KIB, 4 * GIB, "bytes"),
        "parallel_starts": Bounds(int, 1, 1024, "servers"),
    },
    "outputs": {
        "directory": Bounds(str),
        "max_chunks_for_full_mode": Bounds(int, 1, 1000, "chunks"),
        "average_line_bytes": Bounds(int, 1, 100 * MIB, "bytes"),
        "chunk_overlap_percent": Bounds(int, 0, 90, "percent"),
    },
    "model": {"name": Bounds(str)},
    "ontology": {"file": Bounds(str)},
}
"""Every plain section of `toolfold.toml`. The environment may override each of these."""

COST = Bounds(float, 0, 1_000_000_000)
