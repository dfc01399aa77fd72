"""`toolfold doctor`: checks everything that a newcomer may trip over, and says what to do about it.

Each check yields findings. It changes nothing. Servers are started only with `--connect`.
"""

import argparse
import asyncio
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from toolfold import __version__
from toolfold.config import Settings, missing
from toolfold.config.install_hints import install_hint
from toolfold.errors import NotBuilt, ToolfoldError
from toolfold.faces.cli.runner import load_settings, outdated_text, run_with_gateway
from toolfold.faces.cli.terminal import Output
from toolfold.gateway import Gateway
from toolfold.sandbox.probe import Confinement, probe
from toolfold.types import ServerSpec, ServerState
from toolfold.wire.process import withheld_variables

_MAX_PATTERNS = 5
LOW_DISK_BYTES = 500 * 1024 * 1024
COLOURS = {"well": "green", "mind": "yellow", "wrong": "red"}
MARKS = {"well": "✓", "mind": "!", "wrong": "✗"}


class _Finding(Struct, frozen=True):
    """The result of one check. `fix` is what to do where it is not well."""

    subject: str
    verdict: Literal["well", "mind", "wrong"]
    text: str
    fix: str = ""


def _well(subject: str, text: str, fix: str = "") -> _Finding:
    return _Finding(subject, "well", text, fix)


def _mind(subject: str, text: str, fix: str = "") -> _Finding:
    return _Finding(subject, "mind", text, fix)


def _wrong(subject: str, text: str, fix: str = "") -> _Finding:
    return _Finding(subject, "wrong", text, fix)


def doctor(arguments: argparse.Namespace, output: Output) -> int:
    findings = list(_examine(arguments))
    wrong = [finding for finding in findings if finding.verdict == "wrong"]
    if output.as_json:
        output.data({"well": not wrong, "findings": findings})
        return 1 if wrong else 0
    for finding in findings:
        mark = output.style(MARKS[finding.verdict], COLOURS[finding.verdict])
        output.line(f"{mark} {output.style(finding.subject, 'bold')}: {output.short_path(finding.text)}")
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
        yield _wrong("configuration", error.message + more, error.next_action)
        return
    yield from _check_configuration(settings)
    yield from _check_state_folder(settings)
    wrong = set()
    for finding in map(_check_server, settings.servers):
        wrong |= {finding.subject} if finding.verdict == "wrong" else set()
        yield finding
    for entry in settings.callers:
        if entry.client:
            yield _well("callers", f'{entry.name} is any client on stdio that calls itself "{entry.client}": unproved')
    yield from _check_secrets(settings)
    yield from _check_environment(settings)
    yield _check_catalogue(settings)
    # What a person reads above need not be said again.
    yield from (finding for finding in _check_last_build(settings) if finding.subject not in wrong)
    yield from _check_patterns(settings)
    yield from _check_search(settings)
    yield from _check_trust(settings)
    yield from _check_declared_results(settings)
    if arguments.connect:
        yield from _check_running_servers(settings)


def _check_installation() -> Iterator[_Finding]:
    yield _well("toolfold", f"{__version__} on Python {sys.version.split()[0]}")
    if importlib.util.find_spec("uvloop") is None:
        yield _mind("event loop", "uvloop is not installed; calls are slower without it", "pip install uvloop")
    if importlib.util.find_spec("rs_bpe") is None:
        yield _mind("token tables", "not installed; sizes are then told in bytes alone", "pip install rs-bpe")


def _check_sandbox(*, verbose: bool) -> Iterator[_Finding]:
    """Runs real attacks on a real child, with all layers and without namespaces."""
    report = asyncio.run(probe())
    if report.refusal:
        yield _mind("sandbox", f"scripts will not run: {report.refusal}", report.next_action)
        return
    yield from _check_attacks(report, verbose=verbose)
    # Most containers allow no namespaces: the other layers must hold by themselves.
    if "namespaces" in report.layers:
        yield from _check_attacks(asyncio.run(probe(namespaces=False)), verbose=False)
    for absent in report.missing:
        yield _mind("sandbox", f"{absent}; the other layers hold without", "allow user namespaces if you can")


def _check_attacks(report: Confinement, *, verbose: bool) -> Iterator[_Finding]:
    broken = [attack for attack in report.attacks if not attack.held]
    text = f"{len(report.attacks) - len(broken)} of {len(report.attacks)} attacks stopped by {', '.join(report.layers)}"
    yield _Finding("sandbox", "wrong" if broken else "well", text)
    for attack in report.attacks:
        if not attack.held:
            yield _wrong("sandbox", f"a script could {attack.name}", "run no code here that you do not trust")
        elif verbose:
            yield _well("sandbox", f"no script can {attack.name}: {attack.outcome}")


def _check_configuration(settings: Settings) -> Iterator[_Finding]:
    if not settings.sources:
        yield _mind("configuration", "none found", "run `toolfold import`, or write a toolfold.toml")
        return
    enabled = sum(spec.enabled for spec in settings.servers)
    files = " and ".join(map(str, settings.sources))
    text = f"{files}, {enabled} of {len(settings.servers)} servers enabled"
    yield _well("configuration", text) if enabled else _mind("configuration", text, "add a [servers.NAME] table")
    for warning in settings.warnings:
        yield _mind("configuration", warning)
    own = settings.user_home / "toolfold.toml"
    if own.exists() and own not in settings.sources:
        yield _well("configuration", f"{own} is not read here: the file above counts alone")


def _check_state_folder(settings: Settings) -> Iterator[_Finding]:
    folder = settings.home
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not os.access(existing, os.W_OK):
        yield _wrong("state folder", f"{existing} cannot be written", "choose another with --home DIR")
        return
    free = shutil.disk_usage(existing).free
    if free < LOW_DISK_BYTES:
        yield _mind("state folder", f"{folder}: only {free // 1024**2} MB free", "make room on that disk")
    else:
        yield _well("state folder", f"{folder}, {free / 1024**3:.1f} GB free")


def _check_server(spec: ServerSpec) -> _Finding:
    """Checks what can be known without starting the server."""
    subject = f"server {spec.name}"
    if not spec.enabled:
        return _mind(subject, "disabled in the configuration")
    absent = missing(spec)
    if absent:
        return _wrong(subject, f"{' and '.join(absent)} not set", f"export {absent[0]}=…, then try again")
    if spec.cwd and not Path(spec.cwd).is_dir():
        return _wrong(subject, f"its folder {spec.cwd} does not exist", "correct `cwd`")
    if spec.transport == "stdio":
        program = shutil.which(spec.command, path=spec.env.get("PATH"))
        if program is None and "${" not in spec.command:
            return _wrong(subject, f"the program {spec.command!r} is not on PATH", install_hint(spec.command))
    return _well(subject, f"{spec.transport}: {spec.shown()}")


def _check_catalogue(settings: Settings) -> _Finding:
    try:
        tree = run_with_gateway(settings, lambda gateway: gateway.tree(depth=1), create=False)
    except NotBuilt as error:
        return _mind("catalogue", error.message, error.next_action)
    except ToolfoldError as error:
        return _wrong("catalogue", error.message, error.next_action)
    return _well("catalogue", f"{tree.tools:,} tools, build {tree.generation}")


def _check_secrets(settings: Settings) -> Iterator[_Finding]:
    """Reports secrets in plain text, never which."""
    keys = {f"[callers.{entry.name}]": entry.key for entry in settings.callers} | {"[model]": settings.model.key}
    named = [f"[servers.{spec.name}]" for spec in settings.servers if spec.secrets]
    named += [where for where, key in keys.items() if key and "${" not in key]
    if not named:
        return
    fix = 'write "${NAME}" and set that variable, or "${keyring:SERVICE/NAME}"'
    yield _mind("secrets", f"plain text in {_few(named)}", fix)
    for file in filter(Path.exists, settings.sources):
        if file.stat().st_mode & 0o077:
            yield _mind("secrets", f"others on this machine can read them in {file}", f"chmod 600 {file}")


def _check_environment(settings: Settings) -> Iterator[_Finding]:
    """Tells which variables servers do not get."""
    if not any(spec.enabled and spec.transport == "stdio" for spec in settings.servers):
        return
    withheld = withheld_variables(settings.defaults.inherit_env)
    text = f"{len(withheld)} of {len(os.environ)} variables are kept from servers"
    text += f": {_few(withheld)}" if withheld else ""
    yield _well("environment", text, 'for a server that needs one: inherit_env = ["NAME"]' if withheld else "")


def _few(names: Sequence[str], limit: int = 5) -> str:
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def _check_last_build(settings: Settings) -> Iterator[_Finding]:
    """Reports servers that failed when they were last read, and a catalogue that is older than the configuration."""

    async def work(gateway: Gateway) -> tuple[Sequence[ServerState], Mapping[str, str]]:
        return await gateway.servers(), await gateway.upstreams.outdated()

    try:
        states, outdated = run_with_gateway(settings, work, create=False)
    except ToolfoldError:
        return  # `_check_catalogue` has reported it
    if outdated:
        yield _mind("catalogue", outdated_text(settings, outdated), "run `toolfold build`")
    for state in states:
        if state.error:
            kept = f"; its {state.tools} tools of before are still offered" if state.tools else ""
            fix = f"look: toolfold logs {state.name}; then: toolfold build --server {state.name}"
            yield _wrong(f"server {state.name}", f"failed when it was last read: {state.error}{kept}", fix)


def _check_patterns(settings: Settings) -> Iterator[_Finding]:
    """Reports patterns that fit no tool: they protect or offer nothing."""
    try:
        unused = run_with_gateway(settings, lambda gateway: gateway.access.unused_patterns(), create=False)
    except ToolfoldError:
        return  # `_check_catalogue` has reported it
    for where, pattern in unused[:_MAX_PATTERNS]:
        yield _mind("pattern", f'{where}: "{pattern}" fits no tool', "compare: toolfold tree --tools")
    if len(unused) > _MAX_PATTERNS:
        yield _mind("pattern", f"{len(unused) - _MAX_PATTERNS} more fit no tool")


def _check_search(settings: Settings) -> Iterator[_Finding]:
    """Tells which encoder reads requests, and how many tools a model wrote requests for."""
    from toolfold.search.encoder import shared_encoder

    name = settings.search.encoder
    try:
        record = shared_encoder(name).record
        yield _well("search", f"the {name} encoder reads requests: {record.name} {record.version}")
    except ToolfoldError as error:
        yield _wrong("search", error.message, error.next_action)
    try:
        tree = run_with_gateway(settings, lambda gateway: gateway.tree(depth=1), create=False)
        enriched = run_with_gateway(settings, lambda gateway: gateway.search.count_enriched(), create=False)
    except ToolfoldError:
        return  # `_check_catalogue` has reported it
    advice = "" if enriched or not settings.model.name else "to find more by everyday words: toolfold enrich"
    yield _well("search", f"{enriched:,} of {tree.tools:,} tools enriched with requests that a model wrote", advice)


def _check_trust(settings: Settings) -> Iterator[_Finding]:
    """Reports tools that changed since they were accepted, or that say something odd."""
    try:
        review = run_with_gateway(settings, lambda gateway: gateway.trust.review(), create=False)
    except ToolfoldError:
        return  # `_check_catalogue` has reported it
    waiting = [standing.tool_id for standing in review.standings if standing.state != "accepted"]
    flagged = [standing.tool_id for standing in review.standings if standing.flags]
    for tools, text in ((waiting, "changed or are new and not accepted"), (flagged, "have odd texts")):
        if tools:
            named = ", ".join(tools[:3]) + (", …" if len(tools) > 3 else "")
            yield _mind("trust", f"{len(tools)} tools {text}: {named}", "look: toolfold trust --list")


def _check_declared_results(settings: Settings) -> Iterator[_Finding]:
    """Reports tools whose results are not what they declare."""
    try:
        contradicted = run_with_gateway(
            settings, lambda gateway: gateway.describer.all_contradictions(gateway.view()), create=False
        )
    except ToolfoldError:
        return  # `_check_catalogue` has reported it
    for tool_id, texts in list(contradicted.items())[:5]:
        yield _mind("results", f"{tool_id} returns what it does not declare: {texts[0]}", "tell whoever maintains it")
    if len(contradicted) > 5:
        yield _mind("results", f"and {len(contradicted) - 5} more tools", "see: toolfold stats --json")


def _check_running_servers(settings: Settings) -> Iterator[_Finding]:
    for state in run_with_gateway(settings, lambda gateway: gateway.servers(connect=True), fast=True):
        subject = f"server {state.name}, started"
        if state.status == "disabled":
            continue
        if state.error:
            yield _wrong(subject, state.error, state.next_action)
        elif state.warnings:
            yield _mind(subject, "; ".join(state.warnings[:3]))
        else:
            seconds = state.open_seconds or 0.0
            protocol = state.info.protocol_version or "none"
            yield _well(subject, f"{state.tools} tools in {seconds:.1f} s, MCP {protocol}")
