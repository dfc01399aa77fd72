"""Which way children are confined on this machine: our own layers, bubblewrap, Seatbelt, or a refusal that says why.

Above: `zygote.py`, `probing.py`. Below: `confinement.py`, `bubblewrap.py`, `seatbelt.py`.
"""

import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec import Struct

from toolfold.errors import SandboxError
from toolfold.sandbox import bubblewrap, confinement, seatbelt, seccomp
from toolfold.sandbox.nursery import Wrap, bare
from toolfold.sandbox.reading import readable_paths

WayName = Literal["native", "bubblewrap", "seatbelt", "unsafe"]


class Way(Struct, frozen=True):
    """`wrap` gives the command before ours; a wrapped zygote serves one child only."""

    name: WayName
    wrap: Wrap = bare

    @property
    def single(self) -> bool:
        return self.name in ("bubblewrap", "seatbelt")


def choose(*, unsafe: bool = False, readable: list[str], prefer: WayName | None = None) -> Way:
    """The first way that works here. Raises `SandboxError` where none does: nothing ever runs bare unasked."""
    if unsafe:
        return Way("unsafe")
    why = confinement.lacking(apart=True) if prefer in (None, "native") else "another way was asked for"
    if why is None:
        return Way("native")
    program = shutil.which("bwrap")
    if sys.platform == "linux" and program is not None and seccomp.machine() is not None:
        return Way("bubblewrap", lambda folder: bubblewrap.arguments(program, folder, readable))
    if sys.platform == "darwin" and Path(seatbelt.PROGRAM).exists():
        return Way("seatbelt", partial(_seatbelt, readable))
    raise SandboxError(
        f"there is no sandbox here: {why}; and there is no bubblewrap, which would do instead",
        next_action=_remedy(),
    )


def _seatbelt(readable: list[str], folder: str) -> list[str]:
    return seatbelt.arguments(folder, readable_paths(readable))


def _remedy() -> str:
    install = "boot a kernel with Landlock (5.13 or later), or install bubblewrap (`apt install bubblewrap`)"
    first = {"linux": install}.get(sys.platform, "run toolfold on Linux or macOS, or in a Linux container")
    return f"{first}, or allow running without a sandbox explicitly (`--unsafe`) if you trust the code"
