"""The commands and their options. Nothing here imports what a command needs to run: parsing stays cheap."""

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from difflib import get_close_matches
from functools import partial
from textwrap import fill
from typing import TYPE_CHECKING, Any, NoReturn

from toolfold import __version__
from toolfold.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

EXIT_CODES = """exit codes:
  0  it worked
  1  it did not, for a reason the message tells
  2  the command line or the configuration is wrong
  3  a server could not be started, reached or understood; the rest was kept
  4  no such category or tool, or no catalogue yet; or a call was not made,
     since its arguments do not fit or a confirmation is missing
  5  the store could not be read or written, or a call was made and its result
     could not be kept
  6  agent --replay: the run now differs from its record
  7  agent: it gave up, or its budget was used up
  8  agent: it answered without calling any tool
  130  interrupted
"""
# The commands that take a server's command after `--`.
_STARTING = frozenset({"add", "conformance"})
# Every one runs as it is in the folder that `toolfold demo --keep` leaves: a test does so.
EXAMPLES: dict[str, tuple[str, ...]] = {
    "demo": ("demo", "demo --serve", "demo --keep playground"),
    "serve": ("serve", "serve --http 127.0.0.1:8080", "serve --profile transparent --server git"),
    "console": ("console", "console --port 8090"),
    "init": ("init", "init --project"),
    "add": ("add time -- mcp-server-time", "add notion https://mcp.notion.com/mcp", "add ./server.json"),
    "remove": ("remove time",),
    "enable": ("enable time",),
    "disable": ("disable time",),
    "import": ("import", "import cursor", "import --yes", "import --yes --replace", "import --undo"),
    "build": ("build", "build --server git"),
    "servers": ("servers", "servers --connect"),
    "login": ("login", "login --no-browser"),
    "logout": ("logout --all",),
    "enrich": ("enrich --server git --limit 5", "enrich --forget"),
    "learn": ("learn", "learn --forget"),
    "tree": ("tree", "tree --tools", "tree Files"),
    "list": ("list", "list Files", "list --query 'find a text'"),
    "nodes": ("nodes read files",),
    "search": ("search list the latest commits", "search 'run a query' --in Databases --explain"),
    "expand": ("expand git.log", "expand git.log --json"),
    "call": (
        "call git.log limit=3 author=Aylin",
        "call sqlite.query sql='SELECT abs(?)' parameters:='[-3]'",
        """call git.log '{"limit": 3}'""",
    ),
    "conformance": ("conformance -- toolfold serve --profile discovery",),
    "outputs": ("outputs",),
    "output": ("output last 'rows[3]'", "output last --save result.json"),
    "inspect-output": ("inspect-output git.log", "inspect-output git.log 'commits[]'"),
    "run": ("run script.py", "run script.py --locked"),
    "scripts": ("scripts", "scripts list --json"),
    "stubs": ("stubs 'list commits' git.diff",),
    "repl": ("repl",),
    "agent": ("agent 'which customer ordered most?'", "agent --runs"),
    "logs": ("logs", "logs git --follow"),
    "audit": ("audit", "audit --last 20", "audit --status failed --since 1h", "audit --export jsonl --after 1200"),
    "trust": ("trust", "trust --list git.log", "trust git.log", "trust --project"),
    "stats": ("stats",),
    "extract": ("extract data/files/README.md 'lines 1-3'", "extract data/files/prices.csv 'how many rows are there?'"),
    "doctor": ("doctor", "doctor --connect"),
    "bench": ("bench list",),
    "help": ("help", "help call", "help policy"),
    "completion": ("completion bash", "completion zsh", "completion fish"),
}
_FEW_CHOICES = 6
MODES = ("auto", "full-chunked", "read-grep", "truncate")
EXTRACTION = "what to extract; a path (a.b[0]), `lines 10-20` or a /regex/ is answered exactly"


class _HelpText(argparse.RawDescriptionHelpFormatter):
    """Lines stay lines, each broken where it is too long; but not commands, which are copied."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = [
            line
            if line.startswith("  toolfold ")
            else fill(line, width, subsequent_indent=re.sub(r"\S", " ", re.match(r" *(?:\d+ +)?", line)[0]))  # type: ignore[index]
            for line in text.splitlines()
        ]
        return "".join(f"{indent}{line}\n" for line in lines)


class _Parser(argparse.ArgumentParser):
    """Raises our own error, so that `--json` holds for a mistyped command too."""

    # Whether options may stand anywhere among the arguments, the next time it parses.
    mixed = False

    def error(self, message: str) -> NoReturn:
        raise ConfigError(self._explained(message), next_action=f"see: {self.prog} --help")

    def _explained(self, message: str) -> str:
        """What is wrong in words, with the nearest of what there is."""
        if wrong := re.match(r"argument ([\w-]+)(?:/\S+)?: invalid choice: '?([^']*?)'? \(choose from", message):
            action = next(
                action for action in self._actions if wrong[1] in (action.metavar, action.dest, *action.option_strings)
            )
            what = "command" if action.dest == "command" else f"choice of {wrong[1]}"
            choices = tuple(action.choices or ())
            guess = _guess(wrong[2], choices)
            named = f": choose {', '.join(choices[:-1])} or {choices[-1]}" if 1 < len(choices) <= _FEW_CHOICES else ""
            return f"there is no {what} {wrong[2]!r}{guess or named}"
        return message.removesuffix(", words")  # those of `completion` are no person's

    def _print_message(self, message: str, file: "SupportsWrite[str] | None" = None) -> None:
        # argparse swallows what keeps it from printing.
        if message:
            (file or sys.stderr).write(message)

    def options(self) -> list[str]:
        return [name for action in self._actions for name in action.option_strings]

    def commands(self) -> dict[str, "_Parser"]:
        """The parsers of the commands below this one."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - argparse offers no public way to them
                return dict(action.choices)
        return {}

    def awaited(self, words: Iterable[str]) -> argparse.Action | None:
        """The option or the argument whose value comes after these words."""
        options = {name: action for action in self._actions for name in action.option_strings if action.nargs != 0}
        waits: argparse.Action | None = None
        place = 0
        for word in words:
            place += waits is None and not word.startswith("-")
            waits = options.get(word) if waits is None else None
        return waits or self._argument(place)

    def _argument(self, place: int) -> argparse.Action | None:
        """The argument that a word is for, by its place; the last one may take all further words."""
        own = [action for action in self._actions if not action.option_strings]
        if own and own[-1].nargs in {"*", "+"}:
            place = min(place, len(own) - 1)
        return own[place] if place < len(own) else None

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        if not self.mixed or any(action.nargs == argparse.REMAINDER for action in self._actions):
            return super().parse_known_args(args, namespace)
        self.mixed = False
        return self.parse_known_intermixed_args(args, namespace)

    def flag(self, name: str, text: str) -> None:
        self.add_argument(name, action="store_true", help=text)

    def value(self, name: str, metavar: str, text: str, **options: Any) -> None:
        self.add_argument(name, metavar=metavar, help=text, **options)

    def number(self, name: str, metavar: str, text: str, default: int | None = None, *, most: int = 10**9) -> None:
        self.value(name, metavar, text, type=partial(_positive, most=most), default=default)

    def seen_as(self) -> None:
        """A command that only reads can show what a caller sees."""
        self.value(
            "--as",
            "CALLER",
            "what this caller sees, or whoever claims this: {…}",
            dest="view_as",
        )

    def choice(self, name: str, choices: Sequence[str], text: str | None = None) -> None:
        """An option whose default is the first choice."""
        self.add_argument(name, choices=choices, default=choices[0], help=text)


# Adds a command: its name, and what it does in a few words.
_AddCommand = Callable[[str, str], _Parser]


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
        formatter_class=_HelpText,
        parents=[shared],
    )
    parser.add_argument("-V", "--version", action="version", version=f"toolfold {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)

    def command(name: str, text: str) -> _Parser:
        examples = "".join(f"\n  toolfold {line}" for line in EXAMPLES.get(name, ()))
        return commands.add_parser(
            name,
            help=text,
            description=text,
            parents=[shared],
            epilog=f"examples:{examples}",
            formatter_class=_HelpText,
        )

    _add_demo(command)
    _add_setup(command)
    _add_console(command)
    _add_sign_in(command)
    _add_catalogue(command)
    _add_calls(command)
    _add_programs(command)
    _add_review(command)
    _add_diagnostics(command)
    return parser


def _add_demo(command: _AddCommand) -> None:
    demo = command("demo", "the whole idea on real local servers, nothing to configure")
    demo.flag("--more", "add public servers from the package index, each in its own environment")
    demo.value("--keep", "DIR", "leave the data and the catalogue in DIR to look at")
    demo.flag("--serve", "then serve the console, with what the demo did in it, until Ctrl-C")
    demo.number("--port", "PORT", "with --serve: the port on this machine (0: any that is free)", default=0)
    demo.flag("--no-browser", "with --serve: only print the address, also where there is a display")


def _add_setup(command: _AddCommand) -> None:
    serve = command("serve", "serve MCP: on stdio, or with --http also JSON under /v1 and the console")
    serve.value("--http", "HOST:PORT", "serve over HTTP (port 0: any that is free)")
    serve.number("--workers", "N", "with --http: so many processes, which all answer on the one address", default=1)
    profiles = ("auto", "discovery", "direct", "transparent", "live")
    text = (
        "what clients see: auto, few tools as they are, many behind the operations of discovery; direct, all of them; "
        "transparent, one server as it is; live, a Python session"
    )
    serve.choice("--profile", profiles, text)
    serve.value("--server", "NAME", "transparent: which server")
    serve.value("--subset", "NAME", "only the tools of [subsets.NAME]; over HTTP each is at /mcp/p/NAME anyway")
    serve.value("--server-json", "NAME", "only print a server.json for the MCP registry, such as com.example/tools")
    serve.choice("--log", ("text", "json"), "how the log on standard error is written")

    init = command("init", "write a toolfold.toml to begin with, and its schema for editors beside it")
    init.flag("--project", "for this folder alone (default: your own, for every folder)")
    init.flag("--schema", "print the JSON Schema of toolfold.toml instead")

    add = command("add", "add a server: a program, an address, or a server.json of the MCP registry's form")
    add.value("name", "NAME", "what it is called here; or the path or address of a server.json alone")
    text = "the program with its arguments (after --), an address, or a server.json"
    add.value("target", "COMMAND", text, nargs="*")
    add.value("--functions", "FILE.py", "a file of Python functions instead")
    add.value("--env", "NAME=VALUE", "a variable for the program (may be repeated)", action="append", default=[])
    add.value("--header", "NAME:VALUE", "a header for the address (may be repeated)", action="append", default=[])

    for name, text in (
        ("remove", "take a server out of toolfold.toml (after a backup)"),
        ("enable", "switch a server on again"),
        ("disable", "switch a server off; its entry stays"),
    ):
        command(name, text).value("name", "NAME", "the server's name")

    take = command("import", "take servers over from an MCP client's configuration")
    text = "claude-desktop, claude-code, cursor, vscode, codex, gemini, or a file (default: all)"
    take.value("client", "CLIENT", text, nargs="?")
    take.flag("--yes", "write it (otherwise only show what would be written)")
    take.flag("--replace", "start the servers once, then point the client at toolfold instead (after a backup)")
    take.flag("--even-failed", "with --replace: take servers from the client that do not start, too")
    take.flag("--project", "the project's own files alone, into ./toolfold.toml, without paths of this machine")
    take.flag("--drop-comments", "with --replace: comments among the client's servers may go")
    take.flag("--undo", "take the last import back: every file as it was before")
    take.value("--to", "FILE", "the toolfold.toml to write (default: the one in use, else in --home)")
    text = "what becomes of secrets in plain text: kept, ${VAR} in their place, or moved to the keyring"
    take.choice("--secrets", ("keep", "env", "keyring"), text)

    build = command("build", "connect to all servers, write the catalogue and tool_registry.json")
    build.value("--server", "NAME", "read only this server again (may be repeated)", action="append")
    build.value("--registry", "FILE", "where tool_registry.json goes (default: in the state folder)")
    build.flag("--no-search", "leave the search index to the first search")

    servers = command("servers", "the configured servers and how each one is doing")
    servers.flag("--connect", "connect to each now, instead of telling what the last build saw")
    servers.seen_as()

    enrich = command("enrich", "have the configured model write requests for each tool, which search then knows")
    enrich.value("--server", "NAME", "only tools of this server", default="")
    enrich.number("--limit", "N", "ask about so many tools at most (default: all that were not asked about)")
    enrich.value("--model", "NAME", "provider:model that writes them (default: the configured one)", default="")
    enrich.flag("--forget", "drop what was written instead")

    learn = command("learn", "how many choices search has learned from")
    learn.flag("--forget", "forget them all")


def _add_console(command: _AddCommand) -> None:
    console = command("console", "what agents see, do and save, in your browser: prints an address to open")
    console.number("--port", "PORT", "the port on this machine (0: any that is free)", default=0)
    console.flag("--no-browser", "only print the address, also where there is a display")


def _add_sign_in(command: _AddCommand) -> None:
    login = command("login", "sign in to a server: in a browser, by a code, or by an address to paste")
    login.value("server", "SERVER", "the server (default: each that waits for a sign-in)", nargs="?")
    login.value("--as", "CALLER", 'whose account it is, at a server with credentials = "caller"', dest="caller")
    login.flag("--no-browser", "open none here: a code for another device, or an address to open anywhere")
    login.flag("--device", "by a code that is confirmed on another device")
    login.number("--timeout", "SECONDS", "give up after so long (default: 600)")
    login.value("--header", "NAME", "store a header instead, whose value is read from standard input")

    logout = command("logout", "sign out of a server, and have its issuer take the tokens back")
    logout.value("server", "SERVER", "the server (default: the only one there is)", nargs="?")
    logout.value("--as", "CALLER", "whose account it is", dest="caller")
    logout.flag("--all", "of all of them")


def _add_catalogue(command: _AddCommand) -> None:
    tree = command("tree", "the categories, with how many tools each holds")
    tree.value("path", "PATH", "a category: Files/Search, or Files Search", nargs="*")
    tree.number("--depth", "N", "levels to show (default 2)", 2)
    tree.flag("--tools", "show the tools too")
    tree.seen_as()

    listing = command("list", "one level of the catalogue, as a model sees it")
    listing.value("path", "PATH", "a category (default: the root)", nargs="*")
    listing.value("--tag", "TAG", "only tools with this tag (all of several)", action="append", default=[])
    listing.value("--query", "TEXT", "only what fits, from all levels below", default="")
    listing.number("--limit", "N", "entries, at most 50 (default 10)", 10, most=50)
    listing.value("--cursor", "CURSOR", "go on where an earlier page ended")
    listing.seen_as()

    nodes = command("nodes", "the categories that fit a request")
    nodes.value("query", "QUERY", "what the tools must do, in general words: get the state of a lock", nargs="+")
    nodes.number("--limit", "N", "entries, at most 50 (default 5)", 5, most=50)
    nodes.seen_as()

    search = command("search", "the tools that fit a request, or that none does")
    search.value(
        "query", "QUERY", "what the tool must do, in general words (get the state of a lock), or its name", nargs="+"
    )
    search.value("--in", "PATH", "a category: Files/Search (default: all)", dest="within", default="")
    search.number("--limit", "N", "entries, at most 50 (default 5)", 5, most=50)
    search.value("--cursor", "CURSOR", "go on where an earlier page ended")
    search.flag("--explain", "say why: which words, how near in meaning")
    search.seen_as()


def _add_calls(command: _AddCommand) -> None:
    expand = command("expand", "one tool with its schemas")
    expand.value("tool_id", "ID", "a tool's id, as `toolfold list` shows it")
    expand.seen_as()

    call = command("call", "call a tool, with arguments that fit its schema")
    call.value("tool_id", "ID", "a tool's id, as `toolfold list` shows it")
    text = "key=value, key:=JSON, a.b=value; or one JSON object; or - to read that"
    call.value("args", "ARG", text, nargs="*")
    call.flag("--yes", "confirm a call that the policy wants confirmed")
    call.number("--timeout", "S", "seconds to wait at most")
    call.number("--expect-version", "N", "fail if the tool has another version than `expand` showed")
    call.flag("--whole", "print the result however large, instead of storing it")
    call.value("--save", "FILE", "write pictures, sound and stored parts of the result to a file, else its text")

    command("outputs", "results that were too large to print, and how long they stay")

    part = command("output", "a part of a result that was too large, by its handle")
    part.value("handle", "HANDLE", "as `toolfold call` and `toolfold outputs` show it; last: the newest")
    part.value("extract", "EXTRACT", EXTRACTION, nargs="*")
    part.choice("--mode", MODES, "how (default: by size and form)")
    part.value("--save", "FILE", "write the whole result to a file, as it is")

    inspect = command("inspect-output", "the structure of one part of a tool's output")
    inspect.value("tool_id", "ID", "a tool's id, as `toolfold list` shows it")
    inspect.value("field_path", "FIELD_PATH", "a.b, a[], a[].b (default: the root)", nargs="?", default="")
    inspect.number("--depth", "N", "levels to preview (default 4)", 4)
    inspect.number("--fields", "N", "lines to preview (default 120)", 120)
    inspect.seen_as()


def _add_programs(command: _AddCommand) -> None:
    run = command("run", "run a script in the sandbox, with the tools that it asks for in words")
    run.value("script", "SCRIPT.py", "the script, or - to read it")
    run.flag("--locked", "keep to the tools in SCRIPT.py.lock; write it if need be")
    run.flag("--unsafe", "run it without a sandbox, where there is none")
    run.flag("--yes", "confirm every call that the policy wants confirmed")
    run.number("--timeout", "S", "seconds it may take at most")
    run.value("--args", "ARG", "what the script finds in sys.argv", nargs="*")

    kept = command("scripts", "scripts that are kept by name, each a tool for every client: scripts.NAME")
    actions = ("list", "add", "show", "lock", "run", "remove")
    kept.add_argument("action", metavar="ACTION", nargs="?", default="list", choices=actions, help=", ".join(actions))
    kept.value("script", "NAME", "the script's name; for add, the file to take", nargs="?", default="")
    kept.value("args", "ARG", "run: its arguments, as for `toolfold call`", nargs="*")
    kept.value("--name", "NAME", "add: what it is called (default: as its file)", default="")
    kept.flag("--yes", "run: confirm every call that the policy wants confirmed")

    stubs = command("stubs", "type stubs for the tools that fit some needs")
    stubs.value("need", "NEED", "what a tool must do, in quotes, or a tool's id", nargs="+")
    stubs.value("--server", "NAME", "only tools of this server")
    stubs.value("--out", "DIR", "write the files there (otherwise they are printed)")
    stubs.seen_as()

    repl = command("repl", "a Python prompt with an assistant that can look into the session")
    repl.value("--model", "NAME", "provider:model for the assistant (default: the configured one)")
    repl.flag("--sandboxed", "confine the session, as those of models are")

    agent = command("agent", "do a task: a planner that searches, calls, scripts and reports")
    agent.value("task", "TASK", "what is to be done, or - to read it", nargs="?", default="")
    agent.value("--agent", "NAME", "an agent of .toolfold/agents/NAME.md (default: the planner)")
    agent.value("--model", "NAME", "provider:model (default: the configured one)")
    agent.value("--resume", "RUN", "go on with a run that broke off")
    agent.value("--replay", "RUN", "run a record again, without a model, and say where it differs")
    agent.flag("--live-tools", "with --replay: call the tools for real")
    agent.flag("--runs", "the recorded runs")


def _add_review(command: _AddCommand) -> None:
    audit = command("audit", "what was searched, chosen, expanded and called, by whom")
    audit.value("--session", "S", "only this session (default: all)")
    audit.value("--server", "NAME", "only tools of this server")
    audit.value("--tool", "ID", "only this tool; * stands for any letters")
    audit.value("--caller", "NAME", "only this caller")
    audit.value("--status", "STATUS", "only what went well (ok), or what did not (failed)", choices=("ok", "failed"))
    audit.value("--since", "WHEN", "only from then on: 10m, 2h, 3d ago, or a date", type=_moment)
    audit.number("--last", "N", "steps to show (default 200)", 200)
    audit.flag("--follow", "go on with what is recorded from now on, until Ctrl-C")
    audit.value("--export", "FILE", "write all of it as JSON lines; jsonl: to standard output, each with its number")
    audit.value("--after", "N", "with --export jsonl: go on after the record of this number", type=int, default=0)

    logs = command("logs", "what the servers wrote on standard error, and what became of them")
    logs.value("server", "SERVER", "only this one", nargs="?")
    logs.number("--last", "N", "lines to show (default 100)", 100)
    logs.flag("--follow", "go on with what is written from now on, until Ctrl-C")

    trust = command("trust", "tools that changed or look odd, and a project's configuration: accepting them")
    trust.value("tool_id", "ID", "accept this tool as it is now", nargs="*")
    trust.flag("--all", "accept every tool as it is now")
    trust.flag("--list", "only show (the default without an id); with an id: how it changed")
    text = "accept the configuration of this folder (default: here) as it is now, with what it starts"
    trust.value("--project", "DIR", text, nargs="?", const=".")
    trust.flag("--forget", "with --project: take that back")

    command("stats", "the tokens that all definitions would have cost, against what was shown").seen_as()


def _add_diagnostics(command: _AddCommand) -> None:
    conformance = command("conformance", "whether a server conforms to the discovery extension (docs/specification.md)")
    conformance.value("target", "ADDRESS", "its address, or after -- its program with arguments", nargs="*")
    text = "a header for the address (may be repeated)"
    conformance.value("--header", "NAME:VALUE", text, action="append", default=[])
    conformance.value("--call", "TOOL_ID", "a tool that may be called; without one, none is")
    conformance.value("--args", "JSON", "its arguments", default="{}")
    text = "how long one case may take; all of them ten times as long"
    conformance.number("--timeout", "SECONDS", text, default=30, most=3600)

    local = command("extract", "a part of a local file, by a request in plain words")
    local.value("file", "FILE", "the file to read, or - for what is piped in")
    local.value("request", "REQUEST", EXTRACTION, nargs="+")
    local.choice("--mode", MODES)

    command("doctor", "what is wrong here, and what to do about it; exits with 1 where something is").flag(
        "--connect", "also start every server once"
    )

    topic = command("help", "a command's options and examples, or a page of the documentation")
    text = "a command, a page, or man: all commands, for `man -l -` (default: what there is)"
    topic.value("topic", "TOPIC", text, nargs="?", default="")

    complete = command("completion", "what makes the shell complete commands, options, servers and tools")
    complete.add_argument("shell", choices=("bash", "zsh", "fish"), help="prints its script, with how to load it")
    complete.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)

    bench = command("bench", "measure, beside a peer or a bare baseline in the same run; prints JSON")
    bench.value("name", "NAME", "start, build, ontology, …; `toolfold bench list` names them")
    bench.value("--data", "DIR", "a folder of recorded servers and sets to measure on")
    bench.value("--peers", "DIR", "environments of peers to compare with: DIR/fastmcp, …")
    bench.value("--model", "NAME", "agent: its model; bfcl, results: URL[,NAME]; without one, scripted policies play")
    bench.value("--only", "PATTERN", "agent: only tasks whose name fits, such as 'sqlite-*'; or easy")
    bench.value("--settings", "NAMES", "agent, bfcl: only some settings, such as all_tools,surface,scripts")
    many = "agent, bfcl: so many tools in all, or all; the rest from recorded servers of --data"
    bench.value("--tools", "N", many, type=_positive_or_all, default=0)
    bench.value("--policy", "NAME", "bfcl: gold, the official answers; or model", choices=("gold", "model"))
    bench.number("--sample", "N", "bfcl, results: so many tasks, chosen by --seed")
    bench.number("--seed", "N", "bfcl, results: for the sample, and for the model")
    bench.number("--seeds", "N", "bfcl: the model plays so often, with seeds from --seed on, and the spread is told")
    bench.value("--wheel", "FILE", "bfcl, results: the wheel of bfcl-eval, where that is not installed")
    bench.flag("--quick", "all: some minutes instead of hours")
    bench.value("--ranked", "FILE", "retrieval: write each query's ranking there")


def _positive(text: str, *, most: int) -> int:
    if not text.isdigit() or not 1 <= int(text) <= most:
        bounds = "of at least 1" if int(text if text.isdigit() else 0) < 1 else f"up to {most:,}"
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number {bounds}")
    return int(text)


def _positive_or_all(text: str) -> int:
    return sys.maxsize if text == "all" else _positive(text, most=sys.maxsize)


def _moment(text: str) -> float:
    """The time that an option means."""
    unit = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(text[-1:])
    if unit is not None and text[:-1].isdigit():
        return time.time() - int(text[:-1]) * unit
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is no time: give 10m, 2h, 3d or 2026-01-31T10:00") from None


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments, with the shared options always there."""
    # Defaults of the shared options cannot stand in the parser: those of the command would hide what was given before
    # the command's name.
    shared = argparse.Namespace(config=None, home=None, json=False, verbose=0)
    cut = argv.index("--") if "--" in argv else len(argv)
    # What stands after `--` is a server's command, and argparse loses it once an option stands before it.
    own, after = (argv[:cut], argv[cut + 1 :]) if _STARTING.intersection(argv[:cut]) else (argv, ())
    parser = build_parser()
    arguments, unknown = parser.parse_known_args(own, shared)
    command = parser.commands().get(arguments.command or "", parser)
    if unknown:  # argparse gives words up once an option stood between them
        shared = argparse.Namespace(config=None, home=None, json=False, verbose=0)
        command.mixed = command is not parser
        arguments, unknown = parser.parse_known_args(own, shared)
    if unknown:
        name = unknown[0].partition("=")[0]
        guess = _guess(name, command.options()) if name.startswith("-") else ""
        raise ConfigError(f"unknown: {' '.join(unknown)}{guess}", next_action=f"see: {command.prog} --help")
    if after and arguments.command in _STARTING:
        arguments.target += after
    elif after:
        return parser.parse_args(argv, shared)
    return arguments


def _guess(wrong: str, known: Iterable[str]) -> str:
    if wrong == "--as":
        return "; it is for commands that only look, such as search and expand: what is done is done as yourself"
    # Nobody says yes by a slip of the keyboard.
    near = get_close_matches(wrong, [name for name in known if name != "--yes"], n=1)
    return f"; did you mean {near[0]}?" if near else ""
