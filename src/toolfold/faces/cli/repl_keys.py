"""Reading at the prompt: history, completion from the live session, several lines, colours.

Enter sends a line that is whole and opens a new one otherwise; a block ends with an empty line.
"""

import codeop
import os
import re
import warnings
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolfold.faces.cli.output import wants_colour

if TYPE_CHECKING:
    from toolfold.gateway.living import LiveSession

_NAME = re.compile(r"[\w.]+$")
INDENT = "    "


class Keys:
    """The line editor. It needs a terminal."""

    def __init__(self, session: "LiveSession", history: Path, hint: str) -> None:
        import sys

        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import FileHistory, InMemoryHistory

        self._session = session
        kept = FileHistory(str(history)) if _private(history) else InMemoryHistory()
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


def _private(history: Path) -> bool:
    """Makes the history readable by its owner alone; false where no file can be had."""
    try:
        history.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(history, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError:
        return False
    return True


def whole(text: str) -> bool:
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


def next_indent(text: str) -> str:
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
        if buffer.document.is_cursor_at_the_end and not whole(buffer.text):
            buffer.insert_text("\n" + next_indent(buffer.document.text_before_cursor))
        elif buffer.document.is_cursor_at_the_end or whole(buffer.text):
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
