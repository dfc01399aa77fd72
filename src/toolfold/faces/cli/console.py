"""`toolfold console`: the console on a free port of this machine, for whoever runs it, beside what serves already.

It reads the state that gateways of the same configuration write, one on stdio among them. Whoever opens the printed
address is let in, once; the browser then has a session. That person runs toolfold, and may change here what the command
line changes, whatever policies say. Above: the command line. Below: `serve`, which serves it.
"""

import argparse
import os
import sys
import webbrowser
from functools import partial

from toolfold.faces.cli.runner import load_settings, run_with_gateway
from toolfold.faces.cli.serve import _serve_http, _set_up_logs
from toolfold.faces.cli.terminal import Output
from toolfold.faces.console import _OwnerEntry
from toolfold.gateway import Gateway


def console(arguments: argparse.Namespace, output: Output) -> None:
    settings = load_settings(arguments, require_servers=False)
    run_with_gateway(settings, lambda gateway: _serve_console(gateway, arguments, output), fast=True, keep_outputs=True)


async def _serve_console(gateway: Gateway, arguments: argparse.Namespace, output: Output) -> None:
    """Serves the console of a gateway until a signal; its configuration is followed."""
    for name, value in {"profile": "discovery", "server": None, "subset": None, "log": "text", "workers": 1}.items():
        setattr(arguments, name, value)
    arguments.http = f"127.0.0.1:{arguments.port}"
    _set_up_logs(gateway.settings, arguments, "")
    entry = _OwnerEntry(partial(_announce, arguments, output))
    await _serve_http(gateway, arguments, output, entry=entry)


def _announce(arguments: argparse.Namespace, output: Output, address: str) -> None:
    output.note("open this address in a browser: it lets in once, until this command ends (Ctrl-C)")
    if output.as_json:
        output.data({"url": address})
    else:
        output.line(address)
    output.out.flush()
    has_display = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if has_display and not arguments.no_browser and output.out.isatty():
        webbrowser.open(address)
