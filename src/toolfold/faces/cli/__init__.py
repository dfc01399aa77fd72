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
from toolfold.faces.cli.output import Output
from toolfold.faces.cli.parser import build_parser, parse

Command = Callable[[argparse.Namespace, Output], int]

COMMANDS = {
    "demo": "toolfold.faces.cli.demo:demo",
    "serve": "toolfold.faces.cli.serving:serve",
    "import": "toolfold.faces.cli.importing:take_over",
    "build": "toolfold.faces.cli.building:build",
    "servers": "toolfold.faces.cli.building:servers",
    "tree": "toolfold.faces.cli.browsing:tree",
    "list": "toolfold.faces.cli.browsing:list_level",
    "nodes": "toolfold.faces.cli.searching:nodes",
    "search": "toolfold.faces.cli.searching:search",
    "expand": "toolfold.faces.cli.calling:expand",
    "call": "toolfold.faces.cli.calling:call",
    "outputs": "toolfold.faces.cli.outputs:outputs",
    "output": "toolfold.faces.cli.outputs:extract",
    "inspect-output": "toolfold.faces.cli.inspecting:inspect_output",
    "run": "toolfold.faces.cli.scripting:run",
    "stubs": "toolfold.faces.cli.scripting:stubs",
    "repl": "toolfold.faces.cli.repl:repl",
    "agent": "toolfold.faces.cli.agent:agent",
    "audit": "toolfold.faces.cli.auditing:audit",
    "trust": "toolfold.faces.cli.trusting:trust",
    "stats": "toolfold.faces.cli.stats:stats",
    "extract": "toolfold.faces.cli.extracting:extract",
    "doctor": "toolfold.faces.cli.doctor:doctor",
    "bench": "toolfold.faces.cli.benching:bench",
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
        set_up_logging(arguments.verbose)
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


def set_up_logging(verbose: int) -> None:
    """Quiet unless asked: warnings are part of each command's own output."""
    if not verbose:
        return
    import logging

    level = logging.DEBUG if verbose > 1 else logging.INFO
    logging.basicConfig(level=level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
