"""What a live session may take, as values, and the names of its three tools."""

from msgspec import Struct

TOOLS = ("list_globals", "inspect", "eval_expr")


class LiveLimits(Struct, frozen=True, kw_only=True):
    """Deadlines and bounds of one session."""

    inspect_s: float = 2.0
    eval_s: float = 10.0
    execute_s: float = 60.0
    commit_max_bytes: int = 512 * 1024**2
    """A larger session evaluates in place: a copy of it would cost too much."""
    memory_bytes: int = 2 * 1024**3
    wall_s: float = 8 * 3600.0
    """A sandboxed session ends after this time, whatever it does."""
