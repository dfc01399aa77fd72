"""Large results: `outputs` and `output` for what `toolfold call` stored, `extract` for a local file.

What was stored outlives the command that stored it, until its time is over, so that the next command can ask.
"""

import argparse
import sys
import time
from pathlib import Path

import msgspec

from toolfold.errors import ConfigError, UnknownHandle
from toolfold.faces.cli.build import plural
from toolfold.faces.cli.runner import load_settings, run_with_gateway
from toolfold.faces.cli.terminal import Output
from toolfold.gateway import Gateway
from toolfold.outputs.tool_output_definition import FAILED

SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def outputs(arguments: argparse.Namespace, output: Output) -> None:
    settings = load_settings(arguments, require_servers=False)
    stored = run_with_gateway(settings, lambda gateway: gateway.outputs(), create=False, keep_outputs=True)
    if output.as_json:
        output.data({"outputs": [msgspec.to_builtins(entry) for entry in stored]})
        return
    if not stored:
        output.note("nothing is stored")
    now = time.time()
    rows = [
        [
            entry.handle,
            entry.tool_id,
            f"{_in_units(entry.bytes, SIZES, 'B')}, {plural(entry.lines, 'line')}, {plural(entry.tokens, 'token')}, "
            f"{_in_units(now - entry.at, SPANS, 's')} old"
            + ("" if entry.expires_at is None else f", {_in_units(entry.expires_at - now, SPANS, 's')} left"),
        ]
        for entry in stored
    ]
    output.table(("handle", "tool", "what is stored"), rows)


def _in_units(amount: float, units: tuple[tuple[int, str], ...], smallest: str) -> str:
    """`1.5 MiB`, `20 s`."""
    for unit, name in units:
        if amount >= unit:
            return f"{amount / unit:.1f} {name}"
    return f"{max(amount, 0):.0f} {smallest}"


def extract_output(arguments: argparse.Namespace, output: Output) -> int:
    """Prints the answer as it is; with `--json`, as one text. The exit code says whether the extraction failed."""
    if arguments.save:
        return _save_output(arguments, output)
    if not arguments.extract:
        raise ConfigError("nothing is asked of the output", next_action="say what to extract, or use --save FILE")

    async def work(gateway: Gateway) -> str:
        handle = await _handle(arguments.handle, gateway)
        return await gateway.tool_output(handle, " ".join(arguments.extract), mode=arguments.mode)

    settings = load_settings(arguments, require_servers=False)
    text = run_with_gateway(settings, work, create=False, keep_outputs=True)
    if output.as_json:
        output.data({"text": text})
    else:
        _print_answer(text, output)
    return 1 if text.startswith(FAILED) else 0


def _print_answer(text: str, output: Output) -> None:
    """As it is; on a terminal without the heading that models read, whoever asked knows what of."""
    if not output.out.isatty():
        output.line(text)
        return
    how, _, rest = (text if text.startswith(FAILED) else text.partition("\n\n")[2]).partition("\n")
    output.prose(how, 0)
    output.line(rest.replace("\r\n", "\n"))  # a terminal has line endings of its own


async def _handle(named: str, gateway: Gateway) -> str:
    """The handle that is meant: `last` is the newest."""
    if named != "last":
        return named
    stored = await gateway.outputs()
    if not stored:
        raise UnknownHandle(
            "nothing is stored: no call of yours returned more than fits, or it expired",
            next_action="call a tool with a large result, then ask again; `toolfold outputs` lists what there is",
        )
    return max(stored, key=lambda entry: entry.at).handle


def _save_output(arguments: argparse.Namespace, output: Output) -> int:
    """Copies the whole output to a file that is not there yet."""

    async def work(gateway: Gateway) -> Path:
        return await gateway.outputs.file(await _handle(arguments.handle, gateway))

    settings = load_settings(arguments, require_servers=False)
    path = run_with_gateway(settings, work, create=False, keep_outputs=True)
    size = output.save(arguments.save, path.open("rb"))
    if output.as_json:
        output.data({"file": arguments.save, "bytes": size})
    else:
        output.line(f"{size} bytes are in {arguments.save}")
    return 0


def extract_local(arguments: argparse.Namespace, output: Output) -> int:
    """Answers a request on a file or on what is piped in. The exit code says whether the extraction failed."""
    # Needs no gateway, and `toolfold outputs` needs nothing of it.
    from toolfold.outputs.extraction import extract_file

    document = sys.stdin.buffer.read() if arguments.file == "-" else Path(arguments.file)
    settings = load_settings(arguments, require_servers=False)
    answer = extract_file(settings, document, " ".join(arguments.request), arguments.mode)
    if output.as_json:
        output.data(answer)
    else:
        _print_answer(answer["text"], output)
    return 1 if answer["failed"] else 0
