"""`toolfold logs`: what the servers wrote beside the protocol, and what became of them, from the files of the state
folder. It starts nothing, and reads no catalogue."""

import argparse
from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec

from toolfold.config import Settings
from toolfold.errors import ConfigError
from toolfold.faces.cli.runner import load_settings
from toolfold.faces.cli.terminal import Output
from toolfold.telemetry.server_logs import LogLine, ServerLogs


def logs(arguments: argparse.Namespace, output: Output) -> None:
    settings = load_settings(arguments, require_servers=False)
    folder = settings.home / "logs"
    server = _server(settings, arguments.server)
    # Opened before the past is read, so that nothing falls between the two.
    files = ServerLogs(folder)
    rest, past = files.follow(server), files.read(server, arguments.last)
    if output.as_json and not arguments.follow:
        output.data({"lines": past})
        return
    if not past and not arguments.follow:
        whose = f" by {server}" if server else ""
        output.note(f"nothing was written yet{whose}; it would stand in {output.short_path(folder)}")
    _print([*past], output)
    if arguments.follow:
        _print(rest, output)


def _server(settings: Settings, name: str | None) -> str:
    """The name as it is configured. One that is no longer configured may still have its file."""
    if name is None:
        return ""
    try:
        return settings.server(name).name
    except ConfigError:
        if "/" in name or not (settings.home / "logs" / f"{name}.log").exists():
            raise
        return name


def _print(lines: Iterable[LogLine], output: Output) -> None:
    show = output.line if output.as_json else output.prose
    for text in _texts(lines, output):
        show(text)
        output.out.flush()


def _texts(lines: Iterable[LogLine], output: Output) -> Iterator[str]:
    for line in lines:
        if output.as_json:
            yield msgspec.json.encode(line).decode()
            continue
        text = output.style(line.text, "bold") if line.writer == "toolfold" else line.text
        when = output.style(f"{datetime.fromisoformat(line.time).astimezone():%Y-%m-%d %H:%M:%S}", "dim")
        yield f"{when} {output.style(line.server, 'cyan')} {text}"
