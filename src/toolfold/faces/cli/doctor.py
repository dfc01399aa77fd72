"""`toolfold doctor`: looks at everything that a newcomer may trip over, and says what to do about it.

It changes nothing. Servers are started only with `--connect`.
"""

import argparse
import asyncio
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from toolfold import __version__
from toolfold.config import Settings, missing
from toolfold.config.install_hints import install_hint
from toolfold.errors import NotBuilt, ToolfoldError
from toolfold.faces.cli.runner import load_settings, run_with_gateway
from toolfold.faces.cli.terminal import Output
from toolfold.gateway import Gateway, Tree
from toolfold.sandbox.probe import Confinement, probe
from toolfold.types import ServerSpec, ServerState

if TYPE_CHECKING:
    from toolfold.policy.access import TrustReview

LOW_DISK_BYTES = 500 * 1024 * 1024


class _Finding(Struct, frozen=True):
    """One thing looked at. `fix` is what to do where it is not well."""

    subject: str
    verdict: Literal["well", "mind", "wrong"]
    text: str
    fix: str = ""


COLOURS = {"well": "green", "mind": "yellow", "wrong": "red"}
MARKS = {"well": "✓", "mind": "!", "wrong": "✗"}


def doctor(arguments: argparse.Namespace, output: Output) -> int:
    findings = list(_examine(arguments))
    wrong = [finding for finding in findings if finding.verdict == "wrong"]
    if output.as_json:
        output.data({"well": not wrong, "findings": findings})
        return 1 if wrong else 0
    for finding in findings:
        mark = output.style(MARKS[finding.verdict], COLOURS[finding.verdict])
        output.line(f"{mark} {output.style(finding.subject, 'bold')}: {finding.text}")
        if finding.fix:
            output.line(f"    {output.style('next:', 'cyan')} {finding.fix}")
    minded = sum(finding.verdict == "mind" for finding in findings)
    output.line()
    output.line(f"{len(wrong)} wrong, {minded} to mind, {len(findings) - len(wrong) - minded} well")
    return 1 if wrong else 0


def _examine(arguments: argparse.Namespace) -> Iterator[_Finding]:
    yield from _check_installation()
    yield from _check_sandbox(verbose=bool(arguments.verbose))
    try:
        settings = load_settings(arguments, require_servers=False)
    except ToolfoldError as error:
        more = f" (and {len(error.hints) - 1} more)" if len(error.hints) > 1 else ""
        yield _Finding("configuration", "wrong", error.message + more, error.next_action)
        return
    yield from _check_configuration(settings)
    yield from _check_state_folder(settings)
    for spec in settings.servers:
        yield _check_server(spec)
    yield _check_catalogue(settings)
    yield from _check_trust(settings)
    if arguments.connect:
        yield from _check_running_servers(settings)


def _check_installation() -> Iterator[_Finding]:
    yield _Finding("toolfold", "well", f"{__version__} on Python {sys.version.split()[0]}")
    if importlib.util.find_spec("uvloop") is None:
        yield _Finding(
            "event loop", "mind", "uvloop is not installed; calls are slower without it", "pip install uvloop"
        )
    if importlib.util.find_spec("rs_bpe") is None:
        yield _Finding(
            "token tables", "mind", "not installed; sizes are then told in bytes alone", "pip install rs-bpe"
        )


def _check_sandbox(*, verbose: bool) -> Iterator[_Finding]:
    """Real attacks on a real child: what must not be possible is tried, with all layers and without namespaces."""
    report = asyncio.run(probe())
    if report.refusal:
        yield _Finding("sandbox", "mind", f"scripts will not run: {report.refusal}", report.next_action)
        return
    yield from _check_attacks(report, verbose=verbose)
    if "namespaces" in report.layers:
        yield from _check_attacks(asyncio.run(probe(namespaces=False)), verbose=False)
    for absent in report.missing:
        yield _Finding(
            "sandbox", "mind", f"{absent}; the other layers hold without", "allow user namespaces if you can"
        )


def _check_attacks(report: Confinement, *, verbose: bool) -> Iterator[_Finding]:
    broken = [attack for attack in report.attacks if not attack.held]
    text = f"{len(report.attacks) - len(broken)} of {len(report.attacks)} attacks stopped by {', '.join(report.layers)}"
    yield _Finding("sandbox", "wrong" if broken else "well", text)
    for attack in report.attacks:
        if not attack.held:
            yield _Finding(
                "sandbox", "wrong", f"a script could {attack.name}", "run no code here that you do not trust"
            )
        elif verbose:
            yield _Finding("sandbox", "well", f"no script can {attack.name}: {attack.outcome}")


def _check_configuration(settings: Settings) -> Iterator[_Finding]:
    if not settings.sources:
        yield _Finding("configuration", "mind", "none found", "run `toolfold import`, or write a toolfold.toml")
        return
    enabled = sum(spec.enabled for spec in settings.servers)
    text = f"{settings.sources[0]}, {enabled} of {len(settings.servers)} servers enabled"
    yield _Finding(
        "configuration", "well" if enabled else "mind", text, "" if enabled else "add a [servers.NAME] table"
    )
    for warning in settings.warnings:
        yield _Finding("configuration", "mind", warning)


def _check_state_folder(settings: Settings) -> Iterator[_Finding]:
    folder = settings.home
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not os.access(existing, os.W_OK):
        yield _Finding("state folder", "wrong", f"{existing} cannot be written", "choose another with --home DIR")
        return
    free = shutil.disk_usage(existing).free
    if free < LOW_DISK_BYTES:
        yield _Finding("state folder", "mind", f"{folder}: only {free // 1024**2} MB free", "make room on that disk")
    else:
        yield _Finding("state folder", "well", f"{folder}, {free / 1024**3:.1f} GB free")


def _check_server(spec: ServerSpec) -> _Finding:
    """What can be told without starting it."""
    subject = f"server {spec.name}"
    if not spec.enabled:
        return _Finding(subject, "mind", "disabled in the configuration")
    absent = missing(spec)
    if absent:
        return _Finding(subject, "wrong", f"{' and '.join(absent)} not set", f"export {absent[0]}=…, then try again")
    if spec.cwd and not Path(spec.cwd).is_dir():
        return _Finding(subject, "wrong", f"its folder {spec.cwd} does not exist", "correct `cwd`")
    if spec.transport == "stdio":
        found = shutil.which(spec.command, path=spec.env.get("PATH"))
        if found is None and "${" not in spec.command:
            return _Finding(
                subject, "wrong", f"the program {spec.command!r} is not on PATH", install_hint(spec.command)
            )
    return _Finding(subject, "well", f"{spec.transport}: {spec.shown()}")


def _check_catalogue(settings: Settings) -> _Finding:
    async def work(gateway: Gateway) -> Tree:
        return await gateway.tree(depth=1)

    try:
        tree = run_with_gateway(settings, work, create=False)
    except NotBuilt as error:
        return _Finding("catalogue", "mind", error.message, error.next_action)
    except ToolfoldError as error:
        return _Finding("catalogue", "wrong", error.message, error.next_action)
    return _Finding("catalogue", "well", f"{tree.tools:,} tools, build {tree.generation}")


def _check_trust(settings: Settings) -> Iterator[_Finding]:
    """Tools that changed since they were accepted, or that say something odd."""

    async def work(gateway: Gateway) -> "TrustReview":
        return await gateway.governor.review()

    try:
        found = run_with_gateway(settings, work, create=False)
    except ToolfoldError:
        return  # what is wrong with the catalogue was told already
    waiting = [one.tool_id for one in found.standings if one.state != "accepted"]
    flagged = [one.tool_id for one in found.standings if one.flags]
    for tools, text in ((waiting, "changed or are new and not accepted"), (flagged, "have odd texts")):
        if tools:
            named = ", ".join(tools[:3]) + (", …" if len(tools) > 3 else "")
            yield _Finding("trust", "mind", f"{len(tools)} tools {text}: {named}", "look: toolfold trust --list")


def _check_running_servers(settings: Settings) -> Iterator[_Finding]:
    async def work(gateway: Gateway) -> list[ServerState]:
        return list(await gateway.servers(connect=True))

    for state in run_with_gateway(settings, work, fast=True):
        subject = f"server {state.name}, started"
        if state.status == "disabled":
            continue
        if state.error:
            yield _Finding(subject, "wrong", state.error, state.next_action)
        elif state.warnings:
            yield _Finding(subject, "mind", "; ".join(state.warnings[:3]))
        else:
            seconds = state.open_seconds or 0.0
            yield _Finding(
                subject, "well", f"{state.tools} tools in {seconds:.1f} s, MCP {state.info.protocol_version or 'none'}"
            )
