"""`toolfold conformance`: whether a server conforms to the discovery extension, case by case.

It reads no configuration and no catalogue. The server may be hostile: what it sends, and how long it takes, is bounded.
Below: `conformance_cases.py`.
"""

import argparse
import asyncio
from typing import Any

import msgspec
from msgspec import Raw

from toolfold.config import fill
from toolfold.errors import ConfigError
from toolfold.faces.cli.conformance_cases import _Report, _run_cases
from toolfold.faces.cli.runner import event_loop
from toolfold.faces.cli.terminal import Output
from toolfold.wire import HttpTarget, StdioTarget, Target, WireOptions, connect

FAILED = 1
_OPTIONS = WireOptions(
    max_frame_bytes=8 << 20,
    start_timeout_s=30.0,
    max_pages=50,
    client_name="toolfold-conformance",
)
_COLOURS = {"pass": "green", "fail": "red", "skip": "dim"}


def _conformance(arguments: argparse.Namespace, output: Output) -> int:
    target, call = _target(arguments), _call(arguments)
    with asyncio.Runner(loop_factory=event_loop) as runner:
        reports = runner.run(_run(target, call, arguments.timeout))
    counts = {name: sum(report.outcome == name for report in reports) for name in _COLOURS}
    if output.as_json:
        output.data({"cases": [msgspec.structs.asdict(report) for report in reports], **counts})
    else:
        for report in reports:
            output.prose(f"{output.style(report.outcome, _COLOURS[report.outcome])}  {report.case}: {report.rule}")
            if report.reason:
                output.prose(f"      {report.reason}", hang=6)
        output.note(f"{counts['pass']} passed, {counts['fail']} failed, {counts['skip']} skipped")
    return FAILED if counts["fail"] else 0


async def _run(target: Target, call: tuple[str, Raw] | None, timeout_s: int) -> list[_Report]:
    start_s = min(_OPTIONS.start_timeout_s, float(timeout_s))
    connection = await connect(target, options=msgspec.structs.replace(_OPTIONS, start_timeout_s=start_s))
    try:
        return await _run_cases(connection, call, timeout_s=timeout_s)
    finally:
        await connection.aclose()


def _target(arguments: argparse.Namespace) -> Target:
    words: list[str] = arguments.target
    if not words:
        raise ConfigError(
            "no server is named", next_action="toolfold conformance https://…, or toolfold conformance -- COMMAND …"
        )
    if not words[0].casefold().startswith(("http://", "https://")):
        # Whoever types a command means it to run as it would from the prompt.
        return StdioTarget(words[0], tuple(words[1:]), inherit=("*",))
    if len(words) > 1:
        raise ConfigError("an address stands alone", next_action=f"toolfold conformance {words[0]}")
    return HttpTarget(words[0], dict(_header(text) for text in arguments.header))


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise ConfigError(f"{text!r} is no NAME:VALUE", next_action="write --header 'Authorization: Bearer ${TOKEN}'")
    return name.strip(), fill(value.strip(), f"the header {name.strip()}")


def _call(arguments: argparse.Namespace) -> tuple[str, Raw] | None:
    if not arguments.call:
        return None
    try:
        parsed: dict[str, Any] = msgspec.json.decode(arguments.args, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"--args is no JSON object: {error}", next_action='write --args \'{"name": "value"}\''
        ) from None
    return arguments.call, Raw(msgspec.json.encode(parsed))
