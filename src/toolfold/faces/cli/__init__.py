"""The command line: parses, runs one command over the gateway, and turns its result into text, JSON and an exit code.

Each command is a function `(arguments, output)`. Its module is imported only when it is asked for, so that
`toolfold tree` does not pay for `toolfold import`.

    parser.py, reference.py   the commands and their options, and the page in `docs/` that is written from them
    manual.py, completion.py  help and the pages of the documentation; what shells ask for to complete
    terminal.py               what is printed: JSON, colours, tables, progress
    runner.py                 settings and an open gateway around a command
    all else                  the commands, by what they are about

Above: `toolfold.__main__`. Below: the gateway.
"""

import argparse
from collections.abc import Callable, Sequence
from importlib import import_module

from toolfold.errors import ConfigError, OutputError, ToolfoldError
from toolfold.faces.cli.parser import build_parser, parse
from toolfold.faces.cli.terminal import Output, safe

# Returns the exit code; `None` stands for 0.
_Command = Callable[[argparse.Namespace, Output], int | None]

# The module and the function of each command.
COMMANDS = {
    "demo": "demo:demo",
    "serve": "serve:serve",
    "console": "console:console",
    "init": "configure:init",
    "import": "import_clients:import_servers",
    "add": "configure:add",
    "remove": "configure:remove",
    "enable": "configure:switch",
    "disable": "configure:switch",
    "build": "build:build",
    "servers": "build:servers",
    "login": "login:login",
    "logout": "login:logout",
    "enrich": "enrich:enrich",
    "learn": "enrich:learn",
    "tree": "catalogue:tree",
    "list": "catalogue:list_level",
    "nodes": "catalogue:nodes",
    "search": "catalogue:search",
    "expand": "catalogue:expand",
    "call": "call:call",
    "outputs": "outputs:outputs",
    "output": "outputs:extract_output",
    "inspect-output": "catalogue:inspect_output",
    "run": "scripts:run_script",
    "stubs": "scripts:stubs",
    "scripts": "scripts:scripts",
    "repl": "repl:repl",
    "agent": "agent:agent",
    "audit": "audit:audit",
    "logs": "logs:logs",
    "trust": "trust:trust",
    "stats": "audit:stats",
    "extract": "outputs:extract_local",
    "conformance": "conformance:_conformance",
    "doctor": "doctor:doctor",
    "bench": "bench:bench",
    "help": "manual:show_help",
    "completion": "completion:completion",
}

# 128 + SIGINT, as shells report it.
INTERRUPTED = 130


def run(argv: Sequence[str]) -> int:
    """Runs one command line. Never raises for anything that a person did; bugs come through with their traceback."""
    # Looked for before anything is parsed: what is wrong with the command line is told as JSON, too.
    output = Output(as_json="--json" in argv)
    try:
        arguments = parse(argv)
        if arguments.command is None:
            output.out.write(build_parser().format_help())
            return 0
        _set_up_logging(arguments.verbose)
        module, _, name = COMMANDS[arguments.command].partition(":")
        command: _Command = getattr(import_module(f"{__name__}.{module}"), name)
        code = command(arguments, output) or 0
        output.out.flush()
    except (ToolfoldError, OSError, UnicodeEncodeError) as raised:
        error = _explained(raised)
        if error is None:
            raise
        output.error(error)
        return error.exit_code
    except KeyboardInterrupt:
        output.note("interrupted")
        return INTERRUPTED
    except SystemExit as leaving:  # argparse, after --help and --version
        return leaving.code if isinstance(leaving.code, int) else 0
    return code


def _explained(error: Exception) -> ToolfoldError | None:
    """What a person can do something about; `None` for a bug, and for what cannot be printed."""
    if isinstance(error, OSError) and error.filename is not None:
        what = f"{error.filename}: {error.strerror}"
        return OutputError(what, next_action="check the path, and who may read and write it")
    # Python hides bytes that are no UTF-8 in the arguments: most commands take text, and only some a file's name.
    if isinstance(error, UnicodeEncodeError) and "surrogates" in error.reason:
        what = "something on the command line, or the name of this folder, is no UTF-8"
        return ConfigError(what, next_action="give it in UTF-8, or rename the folder")
    return error if isinstance(error, ToolfoldError) else None


def _set_up_logging(verbose: int) -> None:
    """Quiet unless asked: warnings are part of each command's own output."""
    if not verbose:
        return
    import logging

    from toolfold.telemetry.logs import log_handler

    level = logging.DEBUG if verbose > 1 else logging.INFO

    class Formatter(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return safe(super().format(record))

    handler = log_handler(Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
