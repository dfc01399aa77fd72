"""`toolfold call`: a call for real, after a person's confirmation where the policy wants one."""

import argparse
import base64
import shlex
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Raw

from toolfold.errors import ConfirmationNeeded, Declined
from toolfold.faces.cli.arguments import parse_arguments
from toolfold.faces.cli.build import run_with_catalogue
from toolfold.faces.cli.runner import load_settings, run_with_gateway
from toolfold.faces.cli.terminal import Output
from toolfold.gateway import Gateway
from toolfold.scripts.kept import SERVER
from toolfold.text import NOTE_KEY, printable, text_of
from toolfold.types import Outcome

TOOL_FAILED = 1
# Of the arguments in the question whether to call.
SHOWN_CHARS = 4_000
# Of what stands for a block that is no text.
SHOWN_LABEL = 500


def call(arguments: argparse.Namespace, output: Output) -> int:
    """Prints the text of the result, or with `--json` the whole of it. The exit code says whether the tool failed."""
    if arguments.save:  # before anything is called
        output.save(arguments.save, BytesIO())
        Path(arguments.save).unlink()
    # Read once: a call that must be confirmed is made anew.
    arguments.piped = output.read_piped() if arguments.args == ["-"] else ""
    try:
        outcome = _call(arguments, output, confirmed=arguments.yes)
    except ConfirmationNeeded as needed:
        _confirm(arguments, output, needed)
        outcome = _call(arguments, output, confirmed=True)
    if arguments.save and not outcome.is_error:
        _save(arguments, outcome, output)
    elif output.as_json:
        output.data(_with_handles(outcome))
    else:
        _print_result(outcome, output)
    return TOOL_FAILED if outcome.is_error else 0


def _save(arguments: argparse.Namespace, outcome: Outcome, output: Output) -> None:
    """Writes each part that is no text or was stored to a file of its own, or where there is none the text."""
    parts = _parts(arguments, outcome)
    path = Path(arguments.save)
    names = [path, *(path.with_stem(f"{path.stem}-{number}") for number in range(2, len(parts) + 1))]
    sizes = {str(name): output.save(str(name), source) for name, source in zip(names, parts, strict=True)}
    if output.as_json:
        output.data({"saved": [{"file": name, "bytes": size} for name, size in sizes.items()]})
    else:
        output.line("\n".join(f"{size} bytes are in {name}" for name, size in sizes.items()))


def _parts(arguments: argparse.Namespace, outcome: Outcome) -> list[BinaryIO]:
    result = msgspec.json.decode(outcome.raw)
    blocks = [block for block in result.get("content") or () if isinstance(block, dict)]
    parts = _stored_files(arguments, outcome) + [part for block in blocks for part in _binary(block)]
    structured = result.get("structuredContent")
    text = text_of(blocks).encode()
    return parts or [BytesIO(text if text or structured is None else msgspec.json.encode(outcome.data))]


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


def _call(arguments: argparse.Namespace, output: Output, *, confirmed: bool) -> Outcome:
    # What a script that is kept calls may need a yes of its own.
    asking = output.answering() if arguments.tool_id.startswith(f"{SERVER}.") and arguments.args != ["-"] else {}

    async def work(gateway: Gateway) -> Outcome:
        return await gateway.call_tool(
            arguments.tool_id,
            await _arguments(arguments, gateway),
            timeout_s=arguments.timeout,
            expect_version=arguments.expect_version,
            confirmed=confirmed,
            whole=arguments.whole,
            **asking,
        )

    return run_with_catalogue(arguments, work, require_servers=True, fast=True, keep_outputs=True)


async def _arguments(arguments: argparse.Namespace, gateway: Gateway) -> Raw | dict[str, Any]:
    """One JSON object as it was given, or `key=value` words, typed by the tool's schema."""
    words: list[str] = arguments.args or ["{}"]
    if len(words) == 1 and (words[0] == "-" or words[0].lstrip()[:1] in {"{", "["}):
        return Raw((arguments.piped if words[0] == "-" else words[0]).encode())
    tool = await gateway.tool(arguments.tool_id)
    return parse_arguments(words, bytes(tool.definition.input_schema))


def _confirm(arguments: argparse.Namespace, output: Output, needed: ConfirmationNeeded) -> None:
    """Asks the person at the terminal. Where there is none, or they do not say yes, the call is not made."""
    # Standard input that brought the arguments is used up: nobody can answer there.
    if arguments.args == ["-"] or not output.interactive:
        raise ConfirmationNeeded(
            f"{arguments.tool_id} needs a confirmation before it is called",
            hints=needed.hints,
            next_action=f"if you mean it: toolfold call {shlex.quote(arguments.tool_id)} … --yes",
        )
    if not output.confirm(f"Call {arguments.tool_id} with {printable(' '.join(arguments.args) or '{}', SHOWN_CHARS)}?"):
        raise Declined(f"{arguments.tool_id} was not called", next_action="call it again and say yes, if you mean it")


def _print_result(outcome: Outcome, output: Output) -> None:
    """Text as it is; other content by its kind. Structured content only where there is no text that says it."""
    result = msgspec.json.decode(outcome.result)
    structured = result.get("structuredContent")
    # Functions and services are not checked for it.
    blocks = [block for block in result.get("content") or () if isinstance(block, dict)]
    has_text = sum(_print_block(block, outcome, output) for block in blocks) > 0
    _print_note(result.get("_meta"), output)
    if not has_text and structured is not None:
        output.data(outcome.data)
    elif outcome.is_error and not blocks:
        output.warn("the tool failed, and did not say why")
    if outcome.stored is not None:
        handle = outcome.stored.handle
        output.note(f"ask for a part of it: toolfold output {handle} 'what to extract'; all of it: --save FILE")


def _print_block(block: dict[str, Any], outcome: Outcome, output: Output) -> bool:
    """Whether it is a text."""
    text, kind = text_of([block]), block.get("type")
    if text or kind == "text":
        output.answer(text, stored=outcome.stored is not None)
        return kind != "resource_link"
    output.note(printable(text_of([block], labelled=True), SHOWN_LABEL))
    return False


def _print_note(meta: Any, output: Output) -> None:
    if isinstance(meta, dict) and NOTE_KEY in meta:
        output.note(str(meta[NOTE_KEY]))
