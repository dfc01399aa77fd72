"""`toolfold repl`: a Python prompt in a live session of its own, with an assistant one keystroke away.

A line that starts with `?` asks the assistant, which looks into the session with the three tools. Without a model it is
a plain Python prompt that says how to add one. `_line_editor` reads the keys, `_Repl` runs what was read.
"""

import argparse
import asyncio
import codeop
import os
import re
import signal
import sys
import warnings
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolfold.errors import ConfigError, ToolfoldError
from toolfold.faces.cli.runner import load_settings, run_with_gateway
from toolfold.faces.cli.terminal import Output, safe
from toolfold.gateway import Gateway

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

    from toolfold.live.manager import Assistant, Envelope, LiveSession, Model

ADD_A_MODEL = (
    'no model is configured, so nobody answers. Add one in toolfold.toml: [model] name = "openai:gpt-5", '
    "or start with: toolfold repl --model NAME"
)
# The inputs that the assistant is told of, and how much of each result.
RECENT_INPUTS = 12
RECENT_CHARS = 500
FAILED = 1
INDENT = "    "
_NAME = re.compile(r"[\w.]+$")


def repl(arguments: argparse.Namespace, output: Output) -> int:
    return run_with_gateway(
        load_settings(arguments, require_servers=False),
        lambda gateway: _run_repl(gateway, output, model=arguments.model, sandboxed=arguments.sandboxed),
        keep_outputs=True,
        prints=True,
    )


async def _run_repl(
    gateway: Gateway, output: Output, *, model: "Model | str | None" = None, sandboxed: bool = False
) -> int:
    """Runs the prompt over one gateway. `model` may be one that a program made itself."""
    from toolfold.live.manager import Trace

    folder = gateway.settings.home / "live"
    # Outside the sandbox the session reads and writes this terminal itself, so that `input()` and `pdb` work.
    async with gateway.live(terminal=not sandboxed) as session:
        with Trace(folder / "traces", session.events):
            prompt = _Repl(session, output)
            prompt.connect_assistant(gateway, model)
            if sys.stdin.isatty():
                return await prompt.run_interactive(folder)
            return await prompt.run_input(output.read_piped())


class _Repl:
    """One prompt. It is also the assistant's `Watcher`: what the assistant says and does is printed here."""

    def __init__(self, session: "LiveSession", output: Output) -> None:
        self._session = session
        self._output = output
        self._assistant: Assistant | None = None
        self._why_no_assistant = ADD_A_MODEL
        self._recent: deque[str] = deque(maxlen=RECENT_INPUTS)
        self._exit_code: int | None = None

    def connect_assistant(self, gateway: Gateway, model: "Model | str | None") -> None:
        """Raises `ConfigError` for a model that was asked for and cannot be had; a configured one may be missing."""
        try:
            self._assistant = gateway.live_sessions.assistant(self._session, self, model)
        except ConfigError as error:
            if model is not None:
                raise
            if gateway.settings.model.name:
                self._why_no_assistant = f"{error.message}. {error.next_action}"

    async def run_interactive(self, folder: Path) -> int:
        """Reads and answers until the person leaves."""
        editor = _line_editor(self._session, folder / "history")
        version = ".".join(str(part) for part in sys.version_info[:3])
        hint = f"? asks {self._assistant.model.name}" if self._assistant else "? tells how to add an assistant"
        self._output.note(f"Python {version} in a live session. {hint}; Ctrl-D leaves.")
        while self._exit_code is None:
            try:
                text = await editor.prompt_async()
            except KeyboardInterrupt:
                continue
            except EOFError:
                break
            if text.lstrip().startswith("?"):
                await self._ask(text.strip()[1:].strip())
            elif text.strip():
                await self._run(text)
        return self._exit_code or 0

    async def run_input(self, text: str) -> int:
        """Runs code from a pipe as one input."""
        if not text.strip():
            return 0
        answer = await self._run(text)
        if self._exit_code is not None:
            return self._exit_code
        return 0 if answer["ok"] else FAILED

    async def _run(self, code: str) -> "Envelope":
        sandboxed = bool(self._session.layers)
        work = self._session.execute(code) if sandboxed else self._session.interact(code)
        answer = await self._forward_interrupts(work)
        self._remember(code, answer)
        self._session.events.emit("live.input", code=code, answer=answer)
        if sandboxed:
            self._print(answer)
        error = answer.get("error") or {}
        if error.get("exc_type") == "SystemExit":
            self._exit_code = int(error.get("exit_code") or 0)
        elif error and error.get("code") != "python_exception":
            self._output.warn(str(error.get("message")))
        return answer

    async def _forward_interrupts(self, work: "Coroutine[Any, Any, Envelope]") -> "Envelope":
        """Awaits `work`; Ctrl-C interrupts the session and not this process."""
        forwarded: set[asyncio.Future[None]] = set()

        def forward() -> None:
            # Outside the sandbox the session's process shares the terminal and gets the signal by itself.
            if self._session.layers:
                forwarded.add(asyncio.ensure_future(self._session.interrupt()))

        with _on_interrupt(forward):
            answer = await work
            await asyncio.gather(*forwarded)
            return answer

    def _print(self, answer: "Envelope") -> None:
        body = answer["result"] if answer["ok"] else answer["error"]
        self._output.out.write(safe(body.get("stdout") or ""))
        self._output.err.write(safe(body.get("stderr") or ""))
        if answer["ok"]:
            if body.get("value_repr") is not None:
                self._output.line(body["value_repr"])
        elif body.get("traceback"):
            self._output.note(f"Traceback (most recent call last):\n{body['traceback']}\n{body['message']}")
        elif body["code"] == "python_exception":
            self._output.note(body["message"])

    def _remember(self, code: str, answer: "Envelope") -> None:
        result = answer["result"].get("value_repr") if answer["ok"] else answer["error"]["message"]
        self._recent.append(f">>> {code.strip()}" + (f"\n{str(result)[:RECENT_CHARS]}" if result is not None else ""))

    async def _ask(self, question: str) -> None:
        if self._assistant is None:
            self._output.note(self._why_no_assistant)
            return
        if not question:
            self._output.note("ask something, such as: ? why is the last result None")
            return
        reply = asyncio.ensure_future(self._assistant.ask(question, recent="\n".join(self._recent)))
        with _on_interrupt(reply.cancel):
            try:
                await reply
                self._output.line()
            except asyncio.CancelledError:
                self._output.note("\nasked no further")
            except ToolfoldError as error:
                self._output.error(error)
            self._output.out.flush()

    def text(self, piece: str) -> None:
        self._output.out.write(safe(piece))
        self._output.out.flush()

    def tool(self, name: str, arguments: dict[str, Any], answer: "Envelope") -> None:
        from toolfold.live.manager import format_tool_call

        self._output.line(self._output.style(safe(f"· {format_tool_call(name, arguments, answer)}"), "dim"))
        self._output.out.flush()


@contextmanager
def _on_interrupt(act: Callable[[], object]) -> Iterator[None]:
    """Ctrl-C calls `act` in the meantime."""
    loop = asyncio.get_running_loop()
    # Removing asyncio's handler restores the default one, not the one that was set before.
    before = signal.getsignal(signal.SIGINT)
    loop.add_signal_handler(signal.SIGINT, act)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)


def _line_editor(session: "LiveSession", history: Path) -> "PromptSession[str]":
    """Reads at a terminal: history, completion from the live session, several lines, colours.

    Enter sends an input that is complete and opens a new line otherwise; a block ends with an empty line.
    """
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory, InMemoryHistory
    from prompt_toolkit.lexers import PygmentsLexer

    return PromptSession(
        ">>> ",
        history=FileHistory(str(history)) if _create_private(history) else InMemoryHistory(),
        multiline=True,
        completer=_completer(session),
        complete_while_typing=False,
        lexer=PygmentsLexer.from_filename("input.py") if Output.wants_colour(sys.stdout) else None,
        key_bindings=_bindings(),
        prompt_continuation="... ",
        enable_history_search=True,
    )


def _create_private(history: Path) -> bool:
    """Makes a file that only its owner can read; false where none can be had."""
    try:
        history.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(history, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError:
        return False
    return True


def _is_complete(text: str) -> bool:
    """Whether Enter sends this text: a question, a whole statement, or a block that ends with an empty line."""
    if text.lstrip().startswith("?") or not text.strip():
        return True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = codeop.compile_command(text, "<input>", "exec")
    except (SyntaxError, ValueError, OverflowError):
        # A top-level `await` is fine in the session, and real mistakes are reported there.
        return True
    if code is None:
        return False
    last = text.rpartition("\n")[2]
    return "\n" not in text or not last.strip() or not last.startswith((" ", "\t"))


def _next_indent(text: str) -> str:
    """The indentation of the line after `text`."""
    last = text.rpartition("\n")[2]
    indent = last[: len(last) - len(last.lstrip())]
    return indent + INDENT if last.rstrip().endswith(":") else indent


def _bindings() -> Any:
    from prompt_toolkit.filters import has_completions
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    bindings = KeyBindings()

    @bindings.add("enter", filter=~has_completions)
    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if _is_complete(buffer.text):
            buffer.validate_and_handle()
        elif buffer.document.is_cursor_at_the_end:
            buffer.insert_text("\n" + _next_indent(buffer.document.text_before_cursor))
        else:
            buffer.insert_text("\n")

    @bindings.add("tab")
    def tab(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if not buffer.document.current_line_before_cursor.strip():
            buffer.insert_text(INDENT)
        elif buffer.complete_state:
            buffer.complete_next()
        else:
            buffer.start_completion(insert_common_part=True)

    return bindings


def _completer(session: "LiveSession") -> Any:
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class LiveCompleter(Completer):
        """Completes from the names of the session."""

        # Abstract in prompt_toolkit; `prompt_async` takes the asynchronous one.
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> list[Completion]:
            return []

        async def get_completions_async(
            self, document: Document, complete_event: CompleteEvent
        ) -> AsyncGenerator[Completion, None]:
            match = _NAME.search(document.text_before_cursor)
            if match is None or document.text.lstrip().startswith("?"):
                return
            for word in await session.complete(match.group()):
                yield Completion(word, start_position=-len(match.group()), display=word.rpartition(".")[2])

    return LiveCompleter()
