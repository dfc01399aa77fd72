"""`toolfold call`: a call for real, after a person's confirmation where the policy wants one."""

import argparse
import base64
import sys
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Raw

from toolfold.errors import ConfirmationNeeded, Declined
from toolfold.faces.cli.runner import load_settings, run_with_gateway
from toolfold.faces.cli.terminal import Output
from toolfold.gateway import Gateway
from toolfold.text import NOTE_KEY, printable
from toolfold.types import Outcome

TOOL_FAILED = 1
# Of the arguments in the question whether to call.
SHOWN_CHARS = 4_000


def call(arguments: argparse.Namespace, output: Output) -> int:
    """Prints the text of the result, or with `--json` the whole of it. The exit code says whether the tool failed."""
    if arguments.save:  # before anything is called
        output.save(arguments.save, BytesIO())
        Path(arguments.save).unlink()
    args = Raw((sys.stdin.read() if arguments.args == "-" else arguments.args).encode())
    try:
        outcome = _call(arguments, args, confirmed=arguments.yes)
    except ConfirmationNeeded as needed:
        _confirm(arguments, output, needed)
        outcome = _call(arguments, args, confirmed=True)
    if arguments.save and not outcome.is_error:
        _save(arguments, outcome, output)
    elif output.as_json:
        output.data(_with_handles(outcome))
    else:
        _print_result(msgspec.json.decode(outcome.raw), output)
        if outcome.stored is not None:
            handle = outcome.stored.handle
            whole = f"toolfold output {handle} --save FILE"
            output.note(f"ask for a part of it: toolfold output {handle} 'what to extract'; save it: {whole}")
    return TOOL_FAILED if outcome.is_error else 0


def _save(arguments: argparse.Namespace, outcome: Outcome, output: Output) -> None:
    """Writes each part that is no text or was stored to a file of its own, or where there is none the text."""
    result = msgspec.json.decode(outcome.raw)
    blocks = [block for block in result.get("content") or () if isinstance(block, dict)]
    parts = _stored_files(arguments, outcome) + [part for block in blocks for part in _binary(block)]
    texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
    whole = "\n".join(texts).encode() if texts else msgspec.json.encode(result.get("structuredContent"))
    path = Path(arguments.save)
    names = [path, *(path.with_stem(f"{path.stem}-{number}") for number in range(2, len(parts) + 1))]
    sizes = {
        str(name): output.save(str(name), source) for name, source in zip(names, parts or [BytesIO(whole)], strict=True)
    }
    if output.as_json:
        output.data({"saved": [{"file": name, "bytes": size} for name, size in sizes.items()]})
    else:
        output.line("\n".join(f"{size} bytes are in {name}" for name, size in sizes.items()))


def _stored_files(arguments: argparse.Namespace, outcome: Outcome) -> list[BinaryIO]:
    async def work(gateway: Gateway) -> list[Path]:
        return [await gateway.outputs.file(stored.handle) for stored in outcome.all_stored]

    paths = run_with_gateway(load_settings(arguments), work, keep_outputs=True) if outcome.all_stored else []
    return [path.open("rb") for path in paths]


def _binary(block: dict[str, Any]) -> Iterator[BinaryIO]:
    """A picture, a sound or an embedded file as its bytes."""
    resource = block.get("resource")
    data = resource.get("blob") if isinstance(resource, dict) else block.get("data")
    if isinstance(data, str):
        with suppress(ValueError):  # it only says that it is one
            yield BytesIO(base64.b64decode(data))


def _with_handles(outcome: Outcome) -> Raw | dict[str, Any]:
    """The result as it came; where parts of it are stored, with their handles and sizes as data."""
    if not outcome.all_stored:
        return outcome.raw
    keys = ("handle", "tool_id", "bytes", "lines", "tokens", "media_type", "expires_at")
    stored = [{key: getattr(record, key) for key in keys} for record in outcome.all_stored]
    return {**msgspec.json.decode(outcome.raw), "stored": stored}


def _call(arguments: argparse.Namespace, args: Raw, *, confirmed: bool) -> Outcome:
    return run_with_gateway(
        load_settings(arguments),
        lambda gateway: gateway.call_tool(
            arguments.tool_id,
            args,
            timeout_s=arguments.timeout,
            expect_version=arguments.expect_version,
            confirmed=confirmed,
            whole=arguments.whole,
        ),
        fast=True,
        create=False,
        keep_outputs=True,
    )


def _confirm(arguments: argparse.Namespace, output: Output, needed: ConfirmationNeeded) -> None:
    """Asks the person at the terminal. Where there is none, or they do not say yes, the call is not made."""
    # Standard input that brought the arguments is used up: nobody can answer there.
    if arguments.args == "-" or not output.interactive:
        raise ConfirmationNeeded(
            f"{arguments.tool_id} needs a confirmation before it is called",
            hints=needed.hints,
            next_action=f"if you mean it: toolfold call {arguments.tool_id} … --yes",
        )
    if not output.confirm(f"Call {arguments.tool_id} with {printable(arguments.args, SHOWN_CHARS)}?"):
        raise Declined(f"{arguments.tool_id} was not called", next_action="call it again and say yes, if you mean it")


def _print_result(result: dict[str, Any], output: Output) -> None:
    """Text as it is; other content by its kind. Structured content only where there is no text that says it."""
    has_text = False
    for block in result.get("content") or ():
        if not isinstance(block, dict):
            continue  # results are passed on unchecked, and servers send all kinds of things
        if block.get("type") == "text":
            has_text = True
            output.line(block.get("text", ""))
        else:
            output.note(f"[{block.get('type')} {block.get('mimeType', '')}]")
    meta = result.get("_meta")
    if isinstance(meta, dict) and NOTE_KEY in meta:
        output.note(str(meta[NOTE_KEY]))
    if not has_text and result.get("structuredContent") is not None:
        output.data(result["structuredContent"])
