"""The command line: parses, runs one command over the gateway, and turns its result into text, JSON and an exit code.

Each command is a function `(arguments, output) -> exit code` in a module of its own, imported only when it is asked
for, so that `toolfold tree` does not pay for `toolfold import`.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from toolfold.errors import ToolfoldError
from toolfold.faces.cli.parser import build_parser, parse
from toolfold.faces.cli.terminal import Output

Command = Callable[[argparse.Namespace, Output], int]

COMMANDS = {
    "demo": "toolfold.faces.cli.demo:demo",
    "serve": "toolfold.faces.cli.serve:serve",
    "import": "toolfold.faces.cli.import_clients:import_servers",
    "build": "toolfold.faces.cli.build:build",
    "servers": "toolfold.faces.cli.build:servers",
    "tree": "toolfold.faces.cli.catalogue:tree",
    "list": "toolfold.faces.cli.catalogue:list_level",
    "nodes": "toolfold.faces.cli.catalogue:nodes",
    "search": "toolfold.faces.cli.catalogue:search",
    "expand": "toolfold.faces.cli.call:expand",
    "call": "toolfold.faces.cli.call:call",
    "outputs": "toolfold.faces.cli.outputs:outputs",
    "output": "toolfold.faces.cli.outputs:extract_output",
    "inspect-output": "toolfold.faces.cli.catalogue:inspect_output",
    "run": "toolfold.faces.cli.scripts:run_script",
    "stubs": "toolfold.faces.cli.scripts:stubs",
    "repl": "toolfold.faces.cli.repl:repl",
    "agent": "toolfold.faces.cli.agent:agent",
    "audit": "toolfold.faces.cli.audit:audit",
    "trust": "toolfold.faces.cli.trust:trust",
    "stats": "toolfold.faces.cli.audit:stats",
    "extract": "toolfold.faces.cli.outputs:extract_local",
    "doctor": "toolfold.faces.cli.doctor:doctor",
    "bench": "toolfold.faces.cli.bench:bench",
}

INTERRUPTED = 130


def run(argv: Sequence[str]) -> int:
    """Runs one command line. Never raises for anything that a person did; bugs come through with their traceback."""
    output = Output(as_json="--json" in argv)
    try:
        arguments = parse(argv)
        if arguments.command is None:
            output.out.write(build_parser().format_help())
            return 0
        _set_up_logging(arguments.verbose)
        module, _, name = COMMANDS[arguments.command].partition(":")
        command: Command = getattr(import_module(module), name)
        code = command(arguments, output)
        output.out.flush()
    except ToolfoldError as error:
        output.error(error)
        return error.exit_code
    except KeyboardInterrupt:
        output.note("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`toolfold tree | head`). Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit as leaving:  # argparse leaves this way after --help and --version
        return leaving.code if isinstance(leaving.code, int) else 0
    return code


def _set_up_logging(verbose: int) -> None:
    """Quiet unless asked: warnings are part of each command's own output."""
    if not verbose:
        return
    import logging

    level = logging.DEBUG if verbose > 1 else logging.INFO
    logging.basicConfig(level=level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
