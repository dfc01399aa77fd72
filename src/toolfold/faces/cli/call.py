"""`toolfold expand` and `toolfold call`: one tool with its schemas, and a call of it for real."""

import argparse
import sys
from typing import Any

import msgspec
from msgspec import Raw

from toolfold.errors import ConfirmationNeeded, Declined
from toolfold.faces.cli.runner import load_settings, run_with_catalogue, run_with_gateway
from toolfold.faces.cli.terminal import Output
from toolfold.gateway import Gateway
from toolfold.types import Outcome

TOOL_FAILED = 1


def expand(arguments: argparse.Namespace, output: Output) -> int:
    async def work(gateway: Gateway) -> dict[str, Any]:
        return await gateway.expand_tool(arguments.tool_id)

    found = run_with_catalogue(arguments, work)
    if output.as_json:
        output.data(found)
        return 0
    output.line(f"{output.style(found['tool_id'], 'bold')}  version {found['version']}  {' / '.join(found['path'])}")
    output.line(found["description"] or found["summary"])
    for name in ("args_schema", "result_schema"):
        if found[name] is not None:
            text = msgspec.json.format(bytes(found[name]), indent=2).decode()
            output.line(f"{output.style(name, 'cyan')}: {text}")
    return 0


def call(arguments: argparse.Namespace, output: Output) -> int:
    """Prints the text of the result, or with `--json` the whole of it. The exit code says whether the tool failed."""
    given = Raw((sys.stdin.read() if arguments.args == "-" else arguments.args).encode())

    async def work(gateway: Gateway) -> Outcome:
        return await gateway.call_tool(
            arguments.tool_id,
            given,
            timeout_s=arguments.timeout,
            expect_version=arguments.expect_version,
            confirmed=arguments.yes,
            whole=arguments.whole,
        )

    try:
        outcome = run_with_gateway(load_settings(arguments), work, fast=True, create=False, keep_outputs=True)
    except ConfirmationNeeded as needed:
        _confirm(arguments, output, needed)
        arguments.yes = True
        outcome = run_with_gateway(load_settings(arguments), work, fast=True, create=False, keep_outputs=True)
    if output.as_json:
        output.data(outcome.result)
    else:
        _print_result(msgspec.json.decode(outcome.result), output)
    if outcome.stored is not None and not output.as_json:
        output.note(f"ask for a part of it: toolfold output {outcome.stored.handle} 'what to extract'")
    return TOOL_FAILED if outcome.is_error else 0


def _confirm(arguments: argparse.Namespace, output: Output, needed: ConfirmationNeeded) -> None:
    """Asks the person at the terminal. Where there is none, or they do not say yes, the call is not made."""
    if output.as_json or arguments.args == "-" or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfirmationNeeded(
            f"{arguments.tool_id} needs a confirmation before it is called",
            hints=needed.hints,
            next_action=f"if you mean it: toolfold call {arguments.tool_id} … --yes",
        )
    sys.stderr.write(f"Call {arguments.tool_id} with {arguments.args[:600]}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().casefold() not in {"y", "yes"}:
        raise Declined(f"{arguments.tool_id} was not called", next_action="call it again and say yes, if you mean it")


def _print_result(result: Any, output: Output) -> None:
    """Text as it is; other content by its kind. Structured content only where there is no text that says it."""
    blocks = result.get("content") or []
    texts = [block.get("text", "") for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
    for text in texts:
        output.line(text)
    for block in blocks:
        if isinstance(block, dict) and block.get("type") != "text":
            output.note(f"[{block.get('type')} {block.get('mimeType', '')}]")
    if not texts and result.get("structuredContent") is not None:
        output.data(result["structuredContent"])
