"""`toolfold doctor`: checks everything that a newcomer may trip over, and says what to do about it.

Each check yields findings. It changes nothing. Servers are started only with `--connect`.
"""

import argparse
import asyncio
import importlib.util
import os
import shutil
import socket
import ssl
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from toolfold import __version__
from toolfold.catalogue.ontology import Overrides
from toolfold.config import Settings, clients, fill, find_plain_secrets, missing
from toolfold.config.clients import ClientConfig
from toolfold.config.install_hints import problem_of
from toolfold.config.secrets import PLAIN_KEY
from toolfold.config.self_reference import is_toolfold
from toolfold.errors import NotBuilt, SignInRequired, ToolfoldError
from toolfold.faces.cli.build import _count_leaves, _leaves_text, plural
from toolfold.faces.cli.runner import _few, _user_home, load_settings, outdated_text, run_with_gateway
from toolfold.faces.cli.sign_in_checks import (
    Finding,
    check_issuer,
    check_servers_issuers,
    check_sign_ins,
    mind,
    well,
    wrong,
)
from toolfold.faces.cli.terminal import Output, one_line
from toolfold.gateway import Gateway
from toolfold.sandbox.probe import Confinement, probe
from toolfold.search.encoder import shared_encoder
from toolfold.types import ServerSpec
from toolfold.upstream.openapi.document import load_document
from toolfold.wire.process import withheld_variables

_MAX_PATTERNS = 5
_STARTED = ", started"
# How long somebody at an address has to answer.
KNOCK_S = 3.0
LOW_DISK_BYTES = 500 * 1024 * 1024
COLOURS = {"well": "green", "mind": "yellow", "wrong": "red"}
MARKS = {"well": "✓", "mind": "!", "wrong": "✗"}


def doctor(arguments: argparse.Namespace, output: Output) -> int:
    findings = list(_examine(arguments))
    failed = [finding for finding in findings if finding.verdict == "wrong"]
    if output.as_json:
        output.data({"well": not failed, "findings": findings})
        return 1 if failed else 0
    for finding in findings:
        mark = output.style(MARKS[finding.verdict], COLOURS[finding.verdict])
        output.prose(f"{mark} {output.style(finding.subject, 'bold')}: {output.short_path(one_line(finding.text))}", 4)
        if finding.fix and finding.fix not in finding.text:
            output.prose(f"    {output.style('next:', 'cyan')} {output.short_path(one_line(finding.fix))}", 6)
    minded = sum(finding.verdict == "mind" for finding in findings)
    output.line()
    output.line(f"{len(failed)} wrong, {minded} to mind, {len(findings) - len(failed) - minded} well")
    return 1 if failed else 0


def _examine(arguments: argparse.Namespace) -> Iterator[Finding]:
    yield from _check_installation()
    yield from _check_sandbox(verbose=bool(arguments.verbose))
    try:
        settings = load_settings(arguments, require_servers=False)
    except ToolfoldError as error:
        yield from _mistakes(error)
        return
    yield from _check_configuration(settings)
    yield from _check_folders(settings)
    found = list(_check_servers(settings))
    started = list(_check_running_servers(settings)) if arguments.connect else []
    catalogued = _not_said(_check_catalogue(settings), found, started)
    yield from _joined(found, started, catalogued)
    yield from _check_callers(settings)
    yield from check_issuer(settings, connect=arguments.connect)
    yield from _check_secrets(settings)
    yield from _check_environment(settings)
    yield from _check_model(settings)
    yield from _check_ontology(settings)
    yield from _check_encoder(settings)
    yield from _check_clients(_user_home(arguments, settings))
    yield from _told_once(catalogued, list(check_sign_ins(settings)))
    if arguments.connect:
        yield from check_servers_issuers(settings)
        yield from _check_endpoint(settings)


def _told_once(last_build: Iterable[Finding], signed_in: Sequence[Finding]) -> Iterator[Finding]:
    """Both, without what the last build says of sign-ins that have ended."""
    ended = {f"server {one.subject.removeprefix('sign-in to ')}" for one in signed_in if one.verdict == "wrong"}
    for finding in last_build:
        if finding.subject not in ended or SignInRequired.phrase not in finding.text:
            yield finding
    yield from signed_in


def _mistakes(error: ToolfoldError) -> Iterator[Finding]:
    # Of several mistakes the message has the first, and the hints all.
    first = str(error.hints[0]) if error.hints else ""
    texts = error.hints if first and error.message.startswith(first) else [error.message]
    for at, text in enumerate(texts):
        yield wrong("configuration", str(text), "" if at else error.next_action)


def _not_said(catalogued: Iterable[Finding], found: Sequence[Finding], started: Sequence[Finding]) -> list[Finding]:
    """What the catalogue knows of servers of which a person does not read something already."""
    told = _troubled(found)
    told |= {finding.subject.removesuffix(_STARTED) for finding in started}
    return [finding for finding in catalogued if finding.subject not in told]


def _troubled(findings: Iterable[Finding]) -> set[str]:
    return {finding.subject.removesuffix(_STARTED) for finding in findings if finding.verdict == "wrong"}


def _joined(found: Sequence[Finding], started: Sequence[Finding], catalogued: Sequence[Finding]) -> Iterator[Finding]:
    """What is known of each server, and how it started: what failed is told once."""
    failed, broken = _troubled((*started, *catalogued)), _troubled(found)
    yield from (one for one in found if one.verdict != "well" or one.subject not in failed)
    yield from (one for one in started if one.subject.removesuffix(_STARTED) not in broken)


def _check_installation() -> Iterator[Finding]:
    yield well("toolfold", f"{__version__} on Python {sys.version.split()[0]}")
    if importlib.util.find_spec("uvloop") is None:
        yield mind("event loop", "uvloop is not installed; calls are slower without it", "pip install uvloop")
    if importlib.util.find_spec("rs_bpe") is None:
        yield mind("token tables", "not installed; sizes are then told in bytes alone", "pip install rs-bpe")


# By how what is missing begins.
_LAYER_REMEDIES = {
    "no user": "run toolfold as a user other than root, or give root these capabilities",
    "no limit": "toolfold counts them itself, and refuses live sessions; run it as a user other than root",
    "": "allow user namespaces if you can",
}


def _check_sandbox(*, verbose: bool) -> Iterator[Finding]:
    """Runs real attacks on a real child, with all layers and without namespaces."""
    report = asyncio.run(probe())
    if report.refusal:
        yield mind("sandbox", f"scripts will not run: {report.refusal}", report.next_action)
        yield from (mind("sandbox", absent) for absent in report.missing)
        return
    yield from _check_attacks(report, verbose=verbose)
    # Most containers allow no namespaces: the other layers must hold by themselves.
    if "namespaces" in report.layers:
        without = asyncio.run(probe(namespaces=False))
        why = "; tried as well, since most containers allow no namespaces"
        yield from _check_attacks(without, verbose=False, subject="sandbox without namespaces", why=why)
    for absent in report.missing:
        remedy = next(text for start, text in _LAYER_REMEDIES.items() if absent.startswith(start))
        yield mind("sandbox", f"{absent}; the other layers hold without", remedy)


def _check_attacks(report: Confinement, *, verbose: bool, subject: str = "sandbox", why: str = "") -> Iterator[Finding]:
    broken = [attack for attack in report.attacks if not attack.held]
    text = f"{len(report.attacks) - len(broken)} of {len(report.attacks)} attacks stopped by {', '.join(report.layers)}"
    yield Finding(subject, "wrong" if broken else "well", text + why)
    for attack in report.attacks:
        if not attack.held:
            yield wrong(subject, f"a script could {attack.name}", "run no code here that you do not trust")
        elif verbose:
            yield well("sandbox", f"no script can {attack.name}: {attack.outcome}")


def _check_configuration(settings: Settings) -> Iterator[Finding]:
    for left in settings.withheld:
        yield mind("configuration", left.text, f"read it, and if you trust it: {left.command}")
    if not settings.sources:
        yield mind("configuration", "none found", "run `toolfold import`, or write a toolfold.toml")
        return
    enabled = sum(spec.enabled for spec in settings.servers)
    files = " and ".join(map(str, settings.sources))
    text = f"{files}, {enabled} of {len(settings.servers)} servers enabled"
    yield well("configuration", text) if enabled else mind("configuration", text, "add a [servers.NAME] table")
    for warning in (*settings.warnings, *(file.warning for file in settings.unaccepted)):
        if PLAIN_KEY not in warning:  # told among the secrets
            yield mind("configuration", warning)
    own = settings.user_home / "toolfold.toml"
    if own.exists() and own not in settings.sources:
        yield well("configuration", f"{own} is not read here: the file above counts alone")


def _check_folders(settings: Settings) -> Iterator[Finding]:
    """Whether something can be written where it will have to be, by doing so."""
    folder = settings.home
    folders = [("state folder", folder, "choose another with --home DIR")]
    folders += [("outputs", Path(settings.outputs.directory), "correct outputs.directory")]
    for subject, path, fix in folders:
        existing = next((parent for parent in (path, *path.parents) if parent.exists()), path)
        try:
            with tempfile.TemporaryFile(dir=existing) as file:
                file.write(b"toolfold")
        except OSError as error:
            yield wrong(subject, f"nothing can be written in {existing}: {error.strerror or error}", fix)
            continue
        free = shutil.disk_usage(existing).free
        if free < LOW_DISK_BYTES:
            yield mind(subject, f"{path}: only {free // 1024**2} MB free", "make room on that disk")
        elif subject == "state folder":
            yield well(subject, f"{path}, {free / 1024**3:.1f} GB free")


def _check_servers(settings: Settings) -> Iterator[Finding]:
    """Checks what can be known of each server without starting it; at an address, somebody must answer."""
    with ThreadPoolExecutor(max_workers=16) as threads:
        yield from threads.map(_check_server, settings.servers)


def _check_server(spec: ServerSpec) -> Finding:
    subject = f"server {spec.name}"
    if not spec.enabled:
        return mind(subject, "disabled in the configuration")
    problem = problem_of(spec) or _document_problem(spec) or _address_problem(spec)
    return wrong(subject, *problem) if problem else well(subject, f"{spec.transport}: {spec.shown()}")


def _document_problem(spec: ServerSpec) -> tuple[str, str] | None:
    """A file of tools that cannot be read as what it should be. Nothing in it is run."""
    if spec.transport == "functions" and (file := spec.document.partition(".py")[0] + ".py") and Path(file).is_file():
        try:
            compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            return f"{file} is no Python: {error}", "correct it there"
    if spec.transport == "openapi" and "${" not in spec.document and "://" not in spec.document:
        try:
            asyncio.run(load_document(spec.document, cwd=None, headers={}, timeout_s=KNOCK_S))
        except ToolfoldError as error:
            return error.message, error.next_action
    return None


def _address_problem(spec: ServerSpec) -> tuple[str, str] | None:
    """Whether nobody answers at a server's address. Behind a proxy only the proxy could tell."""
    address = urlsplit(spec.url or (spec.document if "://" in spec.document else ""))
    if not address.hostname or "${" in address.netloc or getproxies().keys() & {address.scheme, "all"}:
        return None
    port = address.port or {"https": 443}.get(address.scheme, 80)
    try:
        _knock(address.hostname, port, tls=address.scheme == "https")
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", error.reason)
        return f"{address.hostname}:{port} has no TLS to trust: {reason}", "correct its certificate, or `url`"
    except OSError as error:
        return f"nobody answers at {address.hostname}:{port}: {error.strerror or error}", "start it, or correct `url`"
    return None


def _knock(host: str, port: int, *, tls: bool) -> None:
    with socket.create_connection((host, port), timeout=KNOCK_S) as connection:
        if tls:
            ssl.create_default_context().wrap_socket(connection, server_hostname=host).close()


def _check_callers(settings: Settings) -> Iterator[Finding]:
    groups = {group for entry in settings.callers for group in entry.groups}
    for entry in settings.callers:
        if absent := _unset(entry.key):
            yield wrong("callers", f"{entry.name} cannot come in: {absent} not set", f"export {absent}=…")
        if entry.client:
            yield well("callers", f'{entry.name} is any client on stdio that calls itself "{entry.client}": unproved')
    for rule in settings.rules:
        if rule.access and not groups.intersection(rule.access):
            text = f'[tools."{rule.match}"] access: no caller is in {_few(rule.access)}'
            yield mind("callers", text, "add groups to a [callers.NAME] table, or correct it")


def _unset(text: str) -> str:
    return " and ".join(missing(ServerSpec(name="x", transport="http", url=text)))


def _check_model(settings: Settings) -> Iterator[Finding]:
    """What the model and traces need and is not there; the endpoint itself is asked with `--connect`."""
    model = settings.model
    if model.name and (absent := _unset(model.key)):
        yield wrong("model", f"its key cannot be read: {absent} not set", f"export {absent}=…")
    if model.name and not model.base_url and importlib.util.find_spec("pydantic_ai") is None:
        yield wrong("model", f"{model.name} needs the extra `agent`", "pip install 'toolfold[agent]'")
    if settings.telemetry.traces and importlib.util.find_spec("opentelemetry") is None:
        yield wrong("telemetry", "traces need the extra `otel`", "pip install 'toolfold[otel]'")
    if settings.scripts.unsafe:
        yield mind("sandbox", "scripts.unsafe: scripts run without one", "remove it from the configuration")


def _check_ontology(settings: Settings) -> Iterator[Finding]:
    try:
        _ = settings.ontology_file and Overrides.load(settings.ontology_file)
    except ToolfoldError as error:
        yield wrong("ontology", error.message, error.next_action)


def _check_encoder(settings: Settings) -> Iterator[Finding]:
    """Tells which encoder reads requests."""
    name = settings.search.encoder
    try:
        record = shared_encoder(name).record
    except ToolfoldError as error:
        yield wrong("encoder", error.message, error.next_action)
    else:
        yield well("encoder", f"the {name} encoder reads requests: {record.name} {record.version}")


def _check_endpoint(settings: Settings) -> Iterator[Finding]:
    model = settings.model
    if not model.name or not model.base_url or _unset(model.key):
        return
    import httpx2

    headers = {"Authorization": f"Bearer {fill(model.key, 'the model')}"} if model.key else {}
    try:
        answer = httpx2.get(f"{model.base_url.rstrip('/')}/models", headers=headers, timeout=KNOCK_S)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        fix = "start it, or correct model.base_url"
        yield wrong("model", f"nobody answers at {model.base_url}: {str(error) or type(error).__name__}", fix)
        return
    if answer.status_code in {401, 403}:
        yield wrong("model", f"{model.base_url} refuses the key ({answer.status_code})", "correct model.key")
    else:
        yield well("model", f"{model.name} at {model.base_url} answers")


def _check_clients(home: Path) -> Iterator[Finding]:
    """Whether the clients that were pointed at toolfold still are, and start one that is there."""
    journal = clients.Journal(home / "imports.json", clients.put_back)
    try:
        if journal.is_broken_off():
            yield wrong("import", "an import was killed while it wrote", "toolfold import --undo")
        pointed = journal.replaced()
        found = {config.path: config for config in clients.discover()}
        found |= {path: clients.read_client_file(path) for path in pointed if path not in found and path.exists()}
    except ToolfoldError as error:
        yield wrong("import", error.message, error.next_action)
        return
    for path, config in found.items():
        yield from _check_client(config, was_pointed=path in pointed)


def _check_client(config: ClientConfig, *, was_pointed: bool) -> Iterator[Finding]:
    specs = [server.spec for server in config.servers if server.spec and is_toolfold(server.written, server.spec)]
    if was_pointed and not specs:
        fix = "toolfold import --replace, or go on without"
        yield mind("client", f"{config.path} no longer starts toolfold, as the import had it do", fix)
    for problem in filter(None, (problem_of(spec) or _config_problem(spec) for spec in specs)):
        yield wrong("client", f"{config.path} starts toolfold, but {problem[0]}", f"correct its entry: {problem[1]}")


def _config_problem(spec: ServerSpec) -> tuple[str, str] | None:
    named = dict(zip(spec.args, spec.args[1:], strict=False)).get("--config", "")
    if not named or Path(named).exists():
        return None
    return f"{named} is not there", "toolfold import CLIENT --replace"


def _check_secrets(settings: Settings) -> Iterator[Finding]:
    """Reports secrets in plain text, never which."""
    keys = {f"[callers.{entry.name}]": entry.key for entry in settings.callers}
    keys |= {"[model]": settings.model.key, "[auth]": settings.auth.introspection_secret}
    keys |= {"[storage]": "".join(secret.value for secret in find_plain_secrets({"url": settings.storage.url}))}
    named = [f"[servers.{spec.name}]" for spec in settings.servers if spec.secrets]
    named += [where for where, key in keys.items() if key and "${" not in key]
    if not named:
        return
    fix = 'write "${NAME}" and set that variable, or "${keyring:SERVICE/NAME}"'
    yield mind("secrets", f"plain text in {_few(named)}", fix)
    for file in filter(Path.exists, settings.sources):
        if file.stat().st_mode & 0o077:
            yield mind("secrets", f"others on this machine can read them in {file}", f"chmod 600 {file}")


def _check_environment(settings: Settings) -> Iterator[Finding]:
    """Tells which variables servers do not get."""
    if not any(spec.enabled and spec.transport == "stdio" for spec in settings.servers):
        return
    withheld = withheld_variables(settings.defaults.inherit_env)
    text = f"{len(withheld)} of {len(os.environ)} variables are kept from servers"
    text += f": {_few(withheld)}" if withheld else ""
    yield well("environment", text, 'for a server that needs one: inherit_env = ["NAME"]' if withheld else "")


def _check_catalogue(settings: Settings) -> Iterator[Finding]:
    try:
        yield from run_with_gateway(settings, partial(_look, settings), create=False)
    except NotBuilt as error:
        yield mind("catalogue", error.message, error.next_action)
    except ToolfoldError as error:
        yield wrong("catalogue", error.message, error.next_action)


async def _look(settings: Settings, gateway: Gateway) -> list[Finding]:
    """Everything that only the catalogue can tell."""
    tree = await gateway.tree(depth=1)
    text = _leaves_text(*await _count_leaves(gateway, tree.tools))
    found = [well("catalogue", f"{text}, build {tree.generation}")]
    checks = {
        "catalogue": _check_last_build,
        "trust": _check_trust,
        "pattern": _check_patterns,
        "search": _check_search,
        "results": _check_declared_results,
    }
    for subject, check in checks.items():
        try:
            found += await check(settings, gateway)
        except ToolfoldError as error:  # it is about one part of what is kept; the others can still be looked at
            if error.message not in {finding.text for finding in found}:
                found.append(wrong(subject, error.message, error.next_action))
    return found


async def _check_last_build(settings: Settings, gateway: Gateway) -> list[Finding]:
    """Servers that failed when they were last read, what was odd, and a catalogue older than the configuration."""
    found = []
    if outdated := await gateway.upstreams.outdated():
        found.append(mind("catalogue", outdated_text(settings, outdated), "run `toolfold build`"))
    for state in await gateway.servers():
        subject = f"server {state.name}"
        if state.error:
            kept = f"; {plural(state.tools, 'tool')} of before still offered" if state.tools else ""
            fix = f"look: toolfold logs {state.name}; then: toolfold build --server {state.name}"
            fix = state.next_action if state.next_action.startswith("toolfold login") else fix
            if state.status == "needs sign-in":
                found.append(mind(subject, f"{state.error}{kept}", state.next_action))
                continue
            found.append(wrong(subject, f"failed when it was last read: {state.error}{kept}", fix))
        found += [mind(subject, warning) for warning in state.warnings[:_MAX_PATTERNS]]
    registry = settings.registry_path
    if registry.exists() and not _is_whole(registry):
        found.append(mind("registry", f"{registry} is cut or was changed", "toolfold build writes it anew"))
    return found


def _is_whole(registry: Path) -> bool:
    """Whether the file of all tools begins and ends as it was written. It may be large."""
    try:
        with registry.open("rb") as file:
            head = file.read(16)
            file.seek(max(registry.stat().st_size - 4, 0))
            return head.startswith(b'{"version":') and file.read().endswith(b"]}\n")
    except OSError:
        return False


async def _check_patterns(_: Settings, gateway: Gateway) -> list[Finding]:
    """Patterns that fit no tool: they protect or offer nothing."""
    unused = await gateway.access.unused_patterns()
    found = [
        mind("pattern", f'{where}: "{pattern}" fits no tool', "compare: toolfold tree --tools")
        for where, pattern in unused[:_MAX_PATTERNS]
    ]
    more = len(unused) - _MAX_PATTERNS
    return [*found, mind("pattern", f"{more} more fit no tool")] if more > 0 else found


async def _check_search(settings: Settings, gateway: Gateway) -> list[Finding]:
    """How many tools a model wrote requests for."""
    tools, _ = await _count_leaves(gateway, (await gateway.tree(depth=1)).tools)
    enriched = await gateway.search.count_enriched()
    advice = "" if enriched or not settings.model.name else "to find more by everyday words: toolfold enrich"
    return [well("search", f"{enriched:,} of {tools:,} tools enriched with requests that a model wrote", advice)]


async def _check_trust(_: Settings, gateway: Gateway) -> list[Finding]:
    """Tools that changed since they were accepted, or that say something odd."""
    review = await gateway.trust.review()
    waiting = [standing.tool_id for standing in review.standings if standing.state != "accepted"]
    flagged = [standing.tool_id for standing in review.standings if standing.flags]
    pairs = (
        (waiting, f"changed or {'is' if len(waiting) == 1 else 'are'} new and not accepted"),
        (flagged, f"{'has' if len(flagged) == 1 else 'have'} odd texts"),
    )
    return [
        mind("trust", f"{plural(len(tools), 'tool')} {text}: {_few(tools, 3)}", "look: toolfold trust --list")
        for tools, text in pairs
        if tools
    ]


async def _check_declared_results(_: Settings, gateway: Gateway) -> list[Finding]:
    """Tools whose results are not what they declare."""
    contradicted = await gateway.describer.all_contradictions(gateway.view())
    found = [
        mind("results", f"{tool_id} returns what it does not declare: {texts[0]}", "tell whoever maintains it")
        for tool_id, texts in list(contradicted.items())[:5]
    ]
    more = len(contradicted) - 5
    return [*found, mind("results", f"and {more} more tools", "see: toolfold stats --json")] if more > 0 else found


def _check_running_servers(settings: Settings) -> Iterator[Finding]:
    for state in run_with_gateway(settings, lambda gateway: gateway.servers(connect=True), fast=True):
        subject = f"server {state.name}{_STARTED}"
        if state.status == "disabled":
            continue
        if state.error:
            # Where each caller signs in itself, nothing is wrong before the first has.
            own = state.status == "needs sign-in" and settings.server(state.name).credentials == "caller"
            yield (mind if own else wrong)(subject, state.error, state.next_action.removeprefix("run "))
        elif state.warnings:
            yield mind(subject, "; ".join(state.warnings[:3]))
        else:
            seconds = state.open_seconds or 0.0
            protocol = state.info.protocol_version or "none"
            yield well(subject, f"{plural(state.tools or 0, 'tool')} in {seconds:.1f} s, MCP {protocol}")
