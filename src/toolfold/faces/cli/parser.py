"""The commands and their options. Nothing here imports what a command needs to run: parsing stays cheap."""

import argparse
from collections.abc import Callable, Sequence
from typing import NoReturn

from toolfold import __version__
from toolfold.errors import ConfigError

EXIT_CODES = """exit codes:
  0  it worked
  1  it did not, for a reason the message tells
  2  the command line or the configuration is wrong
  3  a server could not be started, reached or understood (what could be read was kept)
  4  no such category or tool, or no catalogue yet
  5  the store could not be read or written
  130  interrupted
"""


Command = Callable[[str, str], argparse.ArgumentParser]
"""Adds a command: its name, and what it does in a few words."""


class _Parser(argparse.ArgumentParser):
    """Raises our own error, so that `--json` holds for a mistyped command too."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message, next_action=f"see: {self.prog} --help")


def _common_options() -> _Parser:
    """Options that may stand before or after the command's name."""
    options = _Parser(add_help=False, argument_default=argparse.SUPPRESS)
    options.add_argument("--config", metavar="FILE", help="toolfold.toml or mcp.json (default: found by itself)")
    options.add_argument("--home", metavar="DIR", help="where state lives (default: TOOLFOLD_HOME or ~/.toolfold)")
    options.add_argument("--json", action="store_true", help="print JSON")
    options.add_argument("-v", "--verbose", action="count", help="say more; twice: say everything")
    return options


def build_parser() -> _Parser:
    shared = _common_options()
    parser = _Parser(
        prog="toolfold",
        description="Fold any number of tools into a few; unfold exactly what the model needs.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[shared],
    )
    parser.add_argument("-V", "--version", action="version", version=f"toolfold {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text, parents=[shared])

    _add_setup(command)
    _add_catalogue(command)
    _add_calls(command)
    _add_scripts(command)
    _add_agents(command)
    _add_review(command)
    _add_diagnostics(command)
    return parser


def _add_setup(command: Command) -> None:
    demo = command("demo", "the whole idea on real local servers, nothing to configure")
    demo.add_argument(
        "--more", action="store_true", help="add public servers from the package index, each in its own environment"
    )
    demo.add_argument("--keep", metavar="DIR", help="leave the data and the catalogue in DIR to look at")

    serve = command("serve", "serve MCP: on stdio, or with --http also JSON under /v1 and a page to read")
    serve.add_argument("--http", metavar="HOST:PORT", help="serve over HTTP (port 0: any that is free)")
    serve.add_argument(
        "--profile",
        choices=("discovery", "transparent", "direct", "auto", "live"),
        default="discovery",
        help="what clients see: the operations to find tools, one server as it is, all tools, whichever fits",
    )
    serve.add_argument("--server", metavar="NAME", help="transparent: which server")

    take = command("import", "take servers over from an MCP client's configuration")
    take.add_argument(
        "client",
        nargs="?",
        metavar="CLIENT",
        help="claude-desktop, claude-code, cursor, vscode, codex, gemini, or a file (default: all)",
    )
    take.add_argument("--yes", action="store_true", help="write it (otherwise only show what would be written)")
    take.add_argument(
        "--replace", action="store_true", help="with --yes: leave toolfold as the client's one server (after a backup)"
    )
    take.add_argument(
        "--drop-comments", action="store_true", help="with --replace: comments among the client's servers may go"
    )
    take.add_argument(
        "--to", metavar="FILE", help="the toolfold.toml to write (default: the one in use, else in --home)"
    )
    take.add_argument(
        "--secrets",
        choices=("keep", "env", "keyring"),
        default="keep",
        help="what becomes of secrets in plain text: kept, ${VAR} in their place, or moved to the keyring",
    )

    build = command("build", "connect to all servers, write the catalogue and tool_registry.json")
    build.add_argument(
        "--server", action="append", metavar="NAME", help="read only this server again (may be repeated)"
    )
    build.add_argument(
        "--registry", metavar="FILE", help="where tool_registry.json goes (default: in the state folder)"
    )

    build.add_argument("--no-search", action="store_true", help="leave the search index to the first search")

    servers = command("servers", "the configured servers and how each one is doing")
    servers.add_argument(
        "--connect", action="store_true", help="connect to each now, instead of telling what the last build saw"
    )


def _add_catalogue(command: Command) -> None:
    tree = command("tree", "the categories, with how many tools each holds")
    tree.add_argument("path", nargs="*", metavar="PATH", help="a category: Files/Search, or Files Search")
    tree.add_argument("--depth", type=_positive, default=2, metavar="N", help="levels to show (default 2)")
    tree.add_argument("--tools", action="store_true", help="show the tools too")

    listing = command("list", "one level of the catalogue, as a model sees it")
    listing.add_argument("path", nargs="*", metavar="PATH", help="a category (default: the root)")
    listing.add_argument(
        "--tag", action="append", default=[], metavar="TAG", help="only tools with this tag (all of several)"
    )
    listing.add_argument("--query", default="", metavar="TEXT", help="only what fits, from all levels below")
    listing.add_argument("--limit", type=_positive, default=10, metavar="N", help="entries, at most 50 (default 10)")
    listing.add_argument("--cursor", metavar="CURSOR", help="go on where an earlier page ended")

    nodes = command("nodes", "the categories that fit a request")
    nodes.add_argument("query", nargs="+", metavar="QUERY", help="what you want to get done, in plain words")
    nodes.add_argument("--limit", type=_positive, default=5, metavar="N", help="entries, at most 50 (default 5)")

    search = command("search", "the tools that fit a request, or that none does")
    search.add_argument("query", nargs="+", metavar="QUERY", help="what you want to get done, in plain words")
    search.add_argument(
        "--in", dest="within", default="", metavar="PATH", help="a category: Files/Search (default: all)"
    )
    search.add_argument("--limit", type=_positive, default=5, metavar="N", help="entries, at most 50 (default 5)")
    search.add_argument("--cursor", metavar="CURSOR", help="go on where an earlier page ended")
    search.add_argument("--explain", action="store_true", help="say why: which words, how near in meaning")


def _add_calls(command: Command) -> None:
    expand = command("expand", "one tool with its schemas")
    expand.add_argument("tool_id", metavar="ID", help="a tool's id, as `toolfold list` shows it")

    call = command("call", "call a tool, with arguments that fit its schema")
    call.add_argument("tool_id", metavar="ID", help="a tool's id, as `toolfold list` shows it")
    call.add_argument(
        "args", nargs="?", default="{}", metavar="ARGS", help="a JSON object, or - to read it (default {})"
    )
    call.add_argument("--yes", action="store_true", help="confirm a call that the policy wants confirmed")
    call.add_argument("--timeout", type=_positive, metavar="S", help="seconds to wait at most")
    call.add_argument(
        "--expect-version",
        type=_positive,
        metavar="N",
        help="fail if the tool has another version than `expand` showed",
    )

    call.add_argument("--whole", action="store_true", help="print the result however large, instead of storing it")

    command("outputs", "results that were too large to print, and how long they stay")

    part = command("output", "a part of a result that was too large, by its handle")
    part.add_argument("handle", metavar="HANDLE", help="as `toolfold call` and `toolfold outputs` show it")
    part.add_argument(
        "extract",
        nargs="+",
        metavar="EXTRACT",
        help="what to extract; a path (a.b[0]), `lines 10-20` or a /regex/ is answered exactly",
    )
    part.add_argument(
        "--mode",
        choices=("auto", "full-chunked", "read-grep", "truncate"),
        default="auto",
        help="how (default: by size and form)",
    )

    inspect = command("inspect-output", "the structure of one part of a tool's output")
    inspect.add_argument("tool_id", metavar="ID", help="a tool's id, as `toolfold list` shows it")
    inspect.add_argument(
        "field_path", nargs="?", default="", metavar="FIELD_PATH", help="a.b, a[], a[].b (default: the root)"
    )
    inspect.add_argument("--depth", type=_positive, default=4, metavar="N", help="levels to preview (default 4)")
    inspect.add_argument("--fields", type=_positive, default=120, metavar="N", help="lines to preview (default 120)")


def _add_scripts(command: Command) -> None:
    run = command("run", "run a script in the sandbox, with the tools that it asks for in plain words")
    run.add_argument("script", metavar="SCRIPT.py", help="the script, or - to read it")
    run.add_argument("--locked", action="store_true", help="keep to the tools in SCRIPT.py.lock; write it if need be")
    run.add_argument("--unsafe", action="store_true", help="run it without a sandbox, where there is none")
    run.add_argument("--yes", action="store_true", help="confirm every call that the policy wants confirmed")
    run.add_argument("--timeout", type=_positive, metavar="S", help="seconds it may take at most")
    run.add_argument("--args", nargs="*", metavar="ARG", help="what the script finds in sys.argv")

    stubs = command("stubs", "type stubs for the tools that fit some needs")
    stubs.add_argument("need", nargs="+", metavar="NEED", help="a need in plain words, in quotes, or a tool's id")
    stubs.add_argument("--server", metavar="NAME", help="only tools of this server")
    stubs.add_argument("--out", metavar="DIR", help="write the files there (otherwise they are printed)")

    repl = command("repl", "a Python prompt with an assistant that can look into the session")
    repl.add_argument("--model", metavar="NAME", help="provider:model for the assistant (default: the configured one)")
    repl.add_argument("--sandboxed", action="store_true", help="confine the session, as those of models are")


def _add_agents(command: Command) -> None:
    agent = command("agent", "do a task: a planner that searches, calls, scripts and reports")
    agent.add_argument("task", nargs="?", default="", metavar="TASK", help="what is to be done, or - to read it")
    agent.add_argument("--agent", metavar="NAME", help="an agent of .toolfold/agents/NAME.md (default: the planner)")
    agent.add_argument("--model", metavar="NAME", help="provider:model (default: the configured one)")
    agent.add_argument("--resume", metavar="RUN", help="go on with a run that broke off")
    agent.add_argument("--replay", metavar="RUN", help="run a record again, without a model, and say where it differs")
    agent.add_argument("--live-tools", action="store_true", help="with --replay: call the tools for real")
    agent.add_argument("--runs", action="store_true", help="the recorded runs")


def _add_review(command: Command) -> None:
    audit = command("audit", "what was searched, chosen, expanded and called, by whom")
    audit.add_argument("--session", metavar="S", help="only this session (default: all)")
    audit.add_argument("--last", type=_positive, default=200, metavar="N", help="steps to show (default 200)")
    audit.add_argument("--export", metavar="FILE", help="write all of it as JSON lines")

    trust = command("trust", "tools that changed since they were accepted or look odd, and accepting them")
    trust.add_argument("tool_id", nargs="*", metavar="ID", help="accept this tool as it is now")
    trust.add_argument("--all", action="store_true", help="accept every tool as it is now")
    trust.add_argument(
        "--list", action="store_true", help="only show (the default without an id); with an id: how it changed"
    )

    command("stats", "the tokens that all definitions would have cost, against what was shown")


def _add_diagnostics(command: Command) -> None:
    local = command("extract", "a part of a local file, by a request in plain words")
    local.add_argument("file", metavar="FILE", help="the file to read, or - for what is piped in")
    local.add_argument(
        "request",
        nargs="+",
        metavar="REQUEST",
        help="what to extract; a path (a.b[0]), `lines 10-20` or a /regex/ is answered exactly",
    )
    local.add_argument("--mode", choices=("auto", "full-chunked", "read-grep", "truncate"), default="auto")

    command("doctor", "what is wrong here, and what to do about it").add_argument(
        "--connect", action="store_true", help="also start every server once"
    )

    bench = command("bench", "measure, beside a peer or a bare baseline in the same run; prints JSON")
    bench.add_argument("name", metavar="NAME", help="start, build, ontology, …; `toolfold bench list` names them")
    bench.add_argument("--data", metavar="DIR", help="a folder of recorded servers and sets to measure on")
    bench.add_argument("--peers", metavar="DIR", help="environments of peers to compare with: DIR/fastmcp, …")
    bench.add_argument("--model", metavar="NAME", help="agent: which model plays; without one, scripted policies do")
    bench.add_argument("--only", metavar="PATTERN", help="agent: only tasks whose name fits, such as 'sqlite-*'")
    bench.add_argument("--ranked", metavar="FILE", help="retrieval: write each query's ranking there")


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments, with the shared options always there."""
    found = build_parser().parse_args(argv)
    defaults = {"config": None, "home": None, "json": False, "verbose": 0}
    for name, value in defaults.items():
        if not hasattr(found, name):
            setattr(found, name, value)
    return found


def split_path(words: Sequence[str]) -> tuple[str, ...]:
    """`Files/Search` and `Files Search` are the same category; empty parts are dropped."""
    return tuple(part.strip() for word in words for part in word.split("/") if part.strip())
