"""`toolfold repl`: a Python prompt in a live session of its own, with an assistant one keystroke away.

A line that starts with `?` asks the assistant, which looks into the session with the three tools. Without a model it is
a plain Python prompt that says how to add one. Reading the keys stands in `repl_keys.py`.
"""

import argparse
import asyncio
import codeop
import os
import re
import signal
import sys
import warnings
from collections.abc import AsyncGenerator, Awaitable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolfold.errors import ConfigError, ToolfoldError
from toolfold.faces.cli.runner import load_settings, run_with_gateway
from toolfold.faces.cli.terminal import Output, safe, wants_colour
from toolfold.gateway import Gateway

if TYPE_CHECKING:
    from toolfold.live.manager import Assistant, Envelope, LiveSession, Model


# --- Reading at the prompt: history, completion from the live session, several lines, colours.

_NAME = re.compile(r"[\w.]+$")
INDENT = "    "


class _LineEditor:
    """The line editor. It needs a terminal."""

    def __init__(self, session: "LiveSession", history: Path, hint: str) -> None:
        import sys

        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import FileHistory, InMemoryHistory

        self._session = session
        kept = FileHistory(str(history)) if _create_private(history) else InMemoryHistory()
        self._prompt: PromptSession[str] = PromptSession(
            history=kept,
            multiline=True,
            completer=_completer(session),
            complete_while_typing=False,
            lexer=_lexer() if wants_colour(sys.stdout) else None,
            key_bindings=_bindings(),
            prompt_continuation="... ",
            enable_history_search=True,
        )
        self._hint = hint

    async def read(self) -> str:
        """One whole input. Raises `EOFError` and `KeyboardInterrupt`."""
        return await self._prompt.prompt_async(">>> ")


def _create_private(history: Path) -> bool:
    """Makes the history readable by its owner alone; false where no file can be had."""
    try:
        history.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(history, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError:
        return False
    return True


def _is_complete(text: str) -> bool:
    """Whether Enter should send this text: a question, a whole statement, or a block that ends with an empty line."""
    if text.lstrip().startswith("?") or not text.strip():
        return True
    lines = text.split("\n")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = codeop.compile_command(text, "<input>", "exec")
    except (SyntaxError, ValueError, OverflowError):
        # A top-level `await` is fine in the session, and real mistakes are told there.
        return True
    if made is None:
        return False
    return len(lines) == 1 or not lines[-1].strip() or not lines[-1].startswith((" ", "\t"))


def _next_indent(text: str) -> str:
    """How far the next line stands in."""
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
        if buffer.document.is_cursor_at_the_end and not _is_complete(buffer.text):
            buffer.insert_text("\n" + _next_indent(buffer.document.text_before_cursor))
        elif buffer.document.is_cursor_at_the_end or _is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    @bindings.add("tab")
    def tab(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.current_line_before_cursor.strip():
            if buffer.complete_state:
                buffer.complete_next()
            else:
                buffer.start_completion(insert_common_part=True)
        else:
            buffer.insert_text(INDENT)

    return bindings


def _completer(session: "LiveSession") -> Any:
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class LiveCompleter(Completer):
        """Asks the session, whose names are the ones that count."""

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


def _lexer() -> Any:
    from prompt_toolkit.lexers import PygmentsLexer

    return PygmentsLexer.from_filename("input.py")


ADD_A_MODEL = (
    'no model is configured, so nobody answers. Add one in toolfold.toml: [model] name = "openai:gpt-5", '
    "or start with: toolfold repl --model NAME"
)
RECENT = 12
FAILED = 1


def repl(arguments: argparse.Namespace, output: Output) -> int:
    settings = load_settings(arguments, require_servers=False)

    async def work(gateway: Gateway) -> int:
        return await run_repl(gateway, output, model=arguments.model, sandboxed=arguments.sandboxed)

    return run_with_gateway(settings, work)


async def run_repl(
    gateway: Gateway, output: Output, *, model: "Model | str | None" = None, sandboxed: bool = False
) -> int:
    """The whole prompt over one gateway. `model` may be one that a program made itself."""
    from toolfold.live.manager import Trace

    interactive = sys.stdin.isatty()
    folder = gateway.settings.home / "live"
    async with gateway.live(terminal=not sandboxed) as session:
        with Trace(folder / "traces", session.events):
            prompt = _Repl(session, output)
            prompt.assistant, why_none = _make_assistant(gateway, session, prompt, model)
            prompt.why_none = why_none
            return await (prompt.serve(folder) if interactive else prompt.run_input(sys.stdin.read()))


def _make_assistant(
    gateway: Gateway, session: "LiveSession", prompt: "_Repl", model: "Model | str | None"
) -> "tuple[Assistant | None, str]":
    try:
        return gateway.living.assistant(session, prompt, model), ""
    except ConfigError as error:
        if model is not None:
            raise
        named = gateway.settings.model.name
        return None, f"{error.message}. {error.next_action}" if named else ADD_A_MODEL


class _Repl:
    """One prompt. It is also the assistant's `Watcher`: what it says and does is shown here."""

    def __init__(self, session: "LiveSession", output: Output) -> None:
        self.session = session
        self.assistant: Assistant | None = None
        self.why_none = ADD_A_MODEL
        self._output = output
        self._recent: list[str] = []
        self._leaving: int | None = None

    async def serve(self, folder: Path) -> int:
        """Reads and answers until the person leaves."""
        # XXX dropped import

        keys = _LineEditor(self.session, folder / "history", self._hint())
        version = ".".join(str(part) for part in sys.version_info[:3])
        self._output.note(f"Python {version} in a live session. {self._hint()}; Ctrl-D leaves.")
        while self._leaving is None:
            try:
                text = await keys.read()
            except KeyboardInterrupt:
                continue
            except EOFError:
                break
            await self.handle(text)
        return self._leaving or 0

    async def run_input(self, text: str) -> int:
        """Code from a pipe, run whole."""
        if not text.strip():
            return 0
        answer = await self._run(text)
        return self._leaving if self._leaving is not None else 0 if answer["ok"] else FAILED

    async def handle(self, text: str) -> None:
        stripped = text.strip()
        if not stripped:
            return
        if stripped.startswith("?"):
            await self._ask(stripped[1:].strip())
        else:
            await self._run(text)

    def _hint(self) -> str:
        return f"? asks {self.assistant.model.name}" if self.assistant else "? tells how to add an assistant"

    async def _run(self, code: str) -> "Envelope":
        sandboxed = bool(self.session.layers)
        work = self.session.execute(code) if sandboxed else self.session.interact(code)
        answer = await self._uninterrupted(work)
        self._note(code, answer)
        self.session.events.emit("live.input", code=code, answer=answer)
        if sandboxed:
            self._show(answer)
        self._consider(answer)
        return answer

    async def _uninterrupted(self, work: "Coroutine[Any, Any, Envelope]") -> "Envelope":
        """Ctrl-C goes to the session's process, which shares the terminal; in the sandbox it is handed on."""
        loop = asyncio.get_running_loop()
        waiting: set[asyncio.Future[None]] = set()

        def hand_on() -> None:
            if self.session.layers:
                waiting.add(asyncio.ensure_future(self.session.interrupt()))

        with _on_interrupt(loop, hand_on):
            answer = await work
            await asyncio.gather(*waiting)
            return answer

    def _show(self, answer: "Envelope") -> None:
        shown = answer["result"] if answer["ok"] else answer["error"]
        for stream, key in ((self._output.out, "stdout"), (self._output.err, "stderr")):
            stream.write(safe(shown.get(key) or ""))
        if answer["ok"] and shown.get("value_repr") is not None:
            self._output.line(shown["value_repr"])
        if not answer["ok"] and shown.get("traceback"):
            self._output.note(f"Traceback (most recent call last):\n{shown['traceback']}\n{shown['message']}")
        elif not answer["ok"] and shown["code"] == "python_exception":
            self._output.note(shown["message"])

    def _consider(self, answer: "Envelope") -> None:
        error = answer.get("error") or {}
        if error.get("exc_type") == "SystemExit":
            self._leaving = int(error.get("exit_code") or 0)
        elif error and error.get("code") != "python_exception":
            self._output.warn(str(error.get("message")))

    def _note(self, code: str, answer: "Envelope") -> None:
        """What the assistant is told of the prompt: the last inputs and how each ended."""
        shown = answer["result"].get("value_repr") if answer["ok"] else answer["error"]["message"]
        self._recent.append(f">>> {code.strip()}" + (f"\n{str(shown)[:500]}" if shown is not None else ""))
        del self._recent[:-RECENT]

    async def _ask(self, question: str) -> None:
        if self.assistant is None:
            self._output.note(self.why_none)
            return
        if not question:
            self._output.note("ask something, such as: ? why is the last result None")
            return
        asking = asyncio.ensure_future(self.assistant.ask(question, recent="\n".join(self._recent)))
        with _on_interrupt(asyncio.get_running_loop(), asking.cancel):
            await self._answered(asking)

    async def _answered(self, asking: Awaitable[str]) -> None:
        try:
            await asking
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

        line = f"· {format_tool_call(name, arguments, answer)}"
        self._output.line(self._output.style(safe(line), "dim"))
        self._output.out.flush()


class _on_interrupt:  # noqa: N801 - used as a statement, as `contextlib.suppress` is
    """What Ctrl-C does in the meantime. Where no handler can be set it stays as it is."""

    def __init__(self, loop: asyncio.AbstractEventLoop, act: Any) -> None:
        self._loop, self._act = loop, act
        self._before: Any = None

    def __enter__(self) -> None:
        self._before = signal.getsignal(signal.SIGINT)
        self._loop.add_signal_handler(signal.SIGINT, self._act)

    def __exit__(self, *exc_info: object) -> None:
        self._loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, self._before)
