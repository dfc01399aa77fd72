"""The servers that benches start from the checkout: those of `tests/servers`, by path."""

import sys
from pathlib import Path

from toolfold.types import ServerSpec

ROOT = Path(__file__).resolve().parents[1]
LARGE_STDIO = ROOT / "tests" / "servers" / "large_stdio.py"
MISBEHAVING = ROOT / "tests" / "servers" / "misbehaving_stdio.py"


def misbehaving(*switches: str) -> tuple[str, ...]:
    """The arguments for this interpreter that start the misbehaving server; without switches it is well-behaved."""
    # Without site-packages: the server needs the standard library alone, and starts faster.
    return ("-I", "-S", str(MISBEHAVING), *switches)


def misbehaving_spec(name: str, *switches: str) -> ServerSpec:
    """The same as a configured server."""
    return ServerSpec(name=name, transport="stdio", command=sys.executable, args=misbehaving(*switches))
