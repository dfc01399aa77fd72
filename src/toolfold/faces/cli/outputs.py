"""`toolfold outputs` and `toolfold output`: results that were too large to print, and a question to one of them.

What `toolfold call` stored lives on after it, until its time is over, so that the next command can ask.
"""

import argparse
import time

import msgspec

from toolfold.faces.cli.output import Output
from toolfold.faces.cli.running import settings_of, with_gateway
from toolfold.gateway import Gateway
from toolfold.types import Stored

UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
FAILED = "TOOL_OUTPUT FAILED"


def outputs(arguments: argparse.Namespace, output: Output) -> int:
    async def work(gateway: Gateway) -> list[Stored]:
        return await gateway.outputs()

    found = with_gateway(settings_of(arguments, require_servers=False), work, create=False, keep_outputs=True)
    if output.as_json:
        output.data({"outputs": [msgspec.to_builtins(stored) for stored in found]})
    elif not found:
        output.note("nothing is stored")
    else:
        rows = [
            [stored.handle, stored.tool_id, size(stored.bytes), str(stored.lines), str(stored.tokens), *times(stored)]
            for stored in found
        ]
        output.table(["HANDLE", "TOOL", "SIZE", "LINES", "TOKENS", "AGE", "LEFT"], rows)
    return 0


def extract(arguments: argparse.Namespace, output: Output) -> int:
    """Prints the answer as it is; with `--json`, as one text. A failed extraction is told by the exit code, too."""

    async def work(gateway: Gateway) -> str:
        return await gateway.tool_output(arguments.handle, " ".join(arguments.extract), mode=arguments.mode)

    text = with_gateway(settings_of(arguments, require_servers=False), work, create=False, keep_outputs=True)
    if output.as_json:
        output.data({"text": text})
    else:
        output.line(text)
    return 1 if text.startswith(FAILED) else 0


def size(count: int) -> str:
    for unit, name in UNITS:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"


def times(stored: Stored) -> list[str]:
    """How old it is, and how long it stays."""
    now = time.time()
    left = "" if stored.expires_at is None else span(stored.expires_at - now)
    return [span(now - stored.at), left]


def span(seconds: float) -> str:
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{max(seconds, 0):.0f} s"
