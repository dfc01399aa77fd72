"""A streamed answer in the form of OpenAI's chat completions, put together to the response that it would have been.

Above: `openai_compatible`, which reads the result as any other response.
"""

from typing import Any

import msgspec

from toolfold.errors import ModelError
from toolfold.model import OnText

_MAX_CHARS = 16 * 1024 * 1024


class StreamedAnswer:
    """Takes the lines of one stream. `on_text` is called with each piece of text."""

    def __init__(self, on_text: OnText) -> None:
        self._on_text = on_text
        self._texts: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._usage: Any = None
        self._finish_reason: Any = None
        self._chars = 0

    def add_line(self, line: str) -> None:
        """Raises `ModelError` for an answer without an end, and for one that is not in this form."""
        self._chars += len(line)
        if self._chars > _MAX_CHARS:
            raise ModelError(f"the model's answer is longer than {_MAX_CHARS} characters")
        data = line.removeprefix("data:").strip()
        if not line.startswith("data:") or data == "[DONE]":
            return
        try:
            self._add(msgspec.json.decode(data))
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise ModelError("the model's answer is not in the form of chat completions") from error

    def _add(self, chunk: Any) -> None:
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices", ())[:1]:
            self._finish_reason = choice.get("finish_reason") or self._finish_reason
            delta = choice.get("delta") or {}
            if delta.get("content"):
                self._texts.append(str(delta["content"]))
                self._on_text(self._texts[-1])
            for piece in delta.get("tool_calls") or ():
                self._add_call(piece)

    def _add_call(self, piece: dict[str, Any]) -> None:
        """The first piece of a call has its name, all have parts of its arguments."""
        call = self._calls.setdefault(int(piece.get("index") or 0), {"id": "", "name": "", "arguments": ""})
        function = piece.get("function") or {}
        call["id"] = piece.get("id") or call["id"]
        call["name"] = function.get("name") or call["name"]
        call["arguments"] += function.get("arguments") or ""

    def as_response(self) -> bytes:
        calls = [{"id": call.pop("id"), "function": call} for _, call in sorted(self._calls.items())]
        message = {"content": "".join(self._texts), "tool_calls": calls}
        choice = {"message": message, "finish_reason": self._finish_reason}
        return msgspec.json.encode({"choices": [choice], "usage": self._usage})
