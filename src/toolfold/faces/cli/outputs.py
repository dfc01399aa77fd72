"""`toolfold outputs` and `toolfold output`: results that were too large to print, and a question to one of them.

What `toolfold call` stored lives on after it, until its time is over, so that the next command can ask.
"""

import argparse
import sys
import time
from pathlib import Path

import msgspec

from toolfold.faces.cli.runner import load_settings, run_with_gateway
from toolfold.faces.cli.terminal import Output
from toolfold.gateway import Gateway
from toolfold.outputs.extraction import extract_file
from toolfold.types import Stored

UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
FAILED_PREFIX = "TOOL_OUTPUT FAILED"


def outputs(arguments: argparse.Namespace, output: Output) -> int:
    async def work(gateway: Gateway) -> list[Stored]:
        return await gateway.outputs()

    found = run_with_gateway(load_settings(arguments, require_servers=False), work, create=False, keep_outputs=True)
    if output.as_json:
        output.data({"outputs": [msgspec.to_builtins(stored) for stored in found]})
    elif not found:
        output.note("nothing is stored")
    else:
        rows = [
            [stored.handle, stored.tool_id, _size(stored.bytes), str(stored.lines), str(stored.tokens), *_times(stored)]
            for stored in found
        ]
        output.table(["HANDLE", "TOOL", "SIZE", "LINES", "TOKENS", "AGE", "LEFT"], rows)
    return 0


def extract_output(arguments: argparse.Namespace, output: Output) -> int:
    """Prints the answer as it is; with `--json`, as one text. A failed extraction is told by the exit code, too."""

    async def work(gateway: Gateway) -> str:
        return await gateway.tool_output(arguments.handle, " ".join(arguments.extract), mode=arguments.mode)

    text = run_with_gateway(load_settings(arguments, require_servers=False), work, create=False, keep_outputs=True)
    if output.as_json:
        output.data({"text": text})
    else:
        output.line(text)
    return 1 if text.startswith(FAILED_PREFIX) else 0


def _size(count: int) -> str:
    for unit, name in UNITS:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"


def _times(stored: Stored) -> list[str]:
    """How old it is, and how long it stays."""
    now = time.time()
    left = "" if stored.expires_at is None else _span(stored.expires_at - now)
    return [_span(now - stored.at), left]


def _span(seconds: float) -> str:
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{max(seconds, 0):.0f} s"


# --- `toolfold extract FILE REQUEST`: what `tool_output` does, on a local file or on what is piped in.

EXTRACTION_FAILED = 1


def extract_local(arguments: argparse.Namespace, output: Output) -> int:
    """Prints the answer. The exit code says whether the extraction failed."""
    document = sys.stdin.buffer.read() if arguments.file == "-" else Path(arguments.file)
    found = extract_file(
        load_settings(arguments, require_servers=False), document, " ".join(arguments.request), arguments.mode
    )
    if output.as_json:
        output.data(found)
    else:
        output.line(found["text"])
    return EXTRACTION_FAILED if found["failed"] else 0
