"""A model behind any endpoint that speaks OpenAI's chat completions: a local server, a proxy, a provider.

A minimal adapter that needs nothing but the HTTP client. Native tool calls where the endpoint has them.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from toolfold import tokens
from toolfold.config.secrets import fill
from toolfold.errors import ConfigError, ModelError
from toolfold.model import Message, OnText, Prompt, Reply, ToolUse, Usage
from toolfold.models.retry import SLOW_ADVICE, TransientModelError
from toolfold.redaction import redact
from toolfold.wire.http_client import is_loopback

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response

    from toolfold.config.sections import Model as ModelSettings

_TRANSIENT_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_QUOTE_MAX_CHARS = 300
_CONTEXT_TOKENS = 32_768
_MAX_OUTPUT_TOKENS = 4_096
_STREAMED_MAX_CHARS = 16 * 1024 * 1024


class OpenAICompatible:
    """Implements `toolfold.model.Model`. `base_url` ends before `/chat/completions`, as in `http://127.0.0.1:8080/v1`."""

    def __init__(
        self,
        name: str,
        base_url: str,
        *,
        key: str = "",
        context_tokens: int = _CONTEXT_TOKENS,
        max_output_tokens: int = _MAX_OUTPUT_TOKENS,
        calls_tools: bool = True,
        timeout_s: float = 300.0,
        temperature: float | None = None,
        stream: bool = False,
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigError(
                "[model] base_url is no address", next_action="write one such as http://127.0.0.1:8080/v1"
            )
        self.name = f"openai-compatible:{name}"
        self._name = name
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._host = parts.hostname
        self._key = key
        self.context_tokens = context_tokens
        self.max_output_tokens = max_output_tokens
        self.calls_tools = calls_tools
        self._timeout_s = timeout_s
        self._temperature = temperature
        self._streams = stream
        self._client: AsyncClient | None = None

    @classmethod
    def from_settings(cls, settings: "ModelSettings", name: str) -> "OpenAICompatible":
        """From `[model]`. A name of `openai-compatible:NAME` asks the endpoint for `NAME`."""
        return cls(
            name.removeprefix("openai-compatible").removeprefix(":") or "default",
            settings.base_url,
            key=fill(settings.key, "[model] key"),
            context_tokens=settings.context_tokens or _CONTEXT_TOKENS,
            max_output_tokens=settings.max_output_tokens or _MAX_OUTPUT_TOKENS,
            calls_tools=settings.calls_tools,
            timeout_s=settings.timeout_s,
            temperature=settings.temperature,
            stream=settings.stream,
        )

    def count_tokens(self, text: str) -> int:
        """By the o200k table: near enough for budgets, and offline."""
        return tokens.count(text)

    def connection(self) -> "AsyncClient":
        """The client for all further requests, for the caller to close. Without it, each request opens its own."""
        self._client = self._new_client()
        return self._client

    def _new_client(self) -> "AsyncClient":
        import httpx2

        # A proxy from the environment must not see requests to this machine.
        return httpx2.AsyncClient(trust_env=not is_loopback(self._host), timeout=self._timeout_s)

    async def complete(self, prompt: Prompt) -> Reply:
        if self._streams:
            return await self.stream(prompt, lambda piece: None)
        async with self._response(self._body(prompt)) as response:
            return _decode_reply(await response.aread())

    async def stream(self, prompt: Prompt, on_text: OnText) -> Reply:
        body = {**self._body(prompt), "stream": True, "stream_options": {"include_usage": True}}
        answer = _StreamedAnswer(on_text)
        async with self._response(body) as response:
            async for line in response.aiter_lines():
                answer.add_line(line)
        return _decode_reply(answer.as_response())

    @asynccontextmanager
    async def _response(self, body: dict[str, Any]) -> "AsyncIterator[Response]":
        """A response that succeeded. Its body is read inside, so that a line that breaks there is told the same way."""
        import httpx2

        headers = {"authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            async with self._new_client() if self._client is None else nullcontext(self._client) as client:  # noqa: SIM117 - the line would be too long
                async with client.stream("POST", self._url, json=body, headers=headers) as response:
                    if response.status_code != httpx2.codes.OK:
                        await response.aread()
                        raise self._status_error(response)
                    yield response
        except (httpx2.ReadTimeout, httpx2.WriteTimeout) as error:
            raise ModelError(
                f"the model at {self._host} did not answer within {self._timeout_s:g} s", next_action=SLOW_ADVICE
            ) from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise TransientModelError(
                f"the model at {self._host} could not be asked: {type(error).__name__}",
                next_action="see that the endpoint of [model] base_url runs",
            ) from error

    def _status_error(self, response: "Response") -> ModelError:
        kind = TransientModelError if response.status_code in _TRANSIENT_STATUSES else ModelError
        # Some endpoints repeat the key in their error, and others answer with whole pages.
        quote = redact(response.text[:_QUOTE_MAX_CHARS], (self._key,))
        return kind(f"the model at {self._host} answered {response.status_code}: {quote}")

    def _body(self, prompt: Prompt) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self._name, "messages": [_encode_message(item) for item in prompt.messages]}
        if self._temperature is not None:
            body["temperature"] = self._temperature
        if prompt.max_output_tokens is not None:
            body["max_tokens"] = prompt.max_output_tokens
        if prompt.tools:
            body["tools"] = [{"type": "function", "function": msgspec.to_builtins(offer)} for offer in prompt.tools]
        if prompt.answer_schema is not None:
            schema = {"name": "answer", "schema": prompt.answer_schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body


class _StreamedAnswer:
    """The lines of a stream, put together to the response that it would have been. `on_text` gets each piece."""

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
        if self._chars > _STREAMED_MAX_CHARS:
            raise ModelError(f"the model's answer is longer than {_STREAMED_MAX_CHARS} characters")
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


def _encode_message(message: Message) -> dict[str, Any]:
    encoded: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.uses:
        encoded["tool_calls"] = [
            {
                "id": use.id,
                "type": "function",
                "function": {"name": use.name, "arguments": msgspec.json.encode(use.arguments).decode()},
            }
            for use in message.uses
        ]
    if message.role == "tool":
        encoded["tool_call_id"] = message.use_id
    return encoded


def _decode_reply(raw: bytes) -> Reply:
    """The first choice of a response. Raises `ModelError` for anything that is no such response."""
    try:
        body = msgspec.json.decode(raw)
        choice = body["choices"][0]
        message = choice["message"]
        usage = body.get("usage") or {}
        return Reply(
            text=str(message.get("content") or ""),
            uses=tuple(_decode_tool_use(item) for item in message.get("tool_calls") or ()),
            usage=Usage(int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)),
            cut=choice.get("finish_reason") == "length",
        )
    except (msgspec.DecodeError, KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise ModelError("the model's answer is not in the form of chat completions") from error


def _decode_tool_use(item: dict[str, Any]) -> ToolUse:
    function = item["function"]
    raw = function.get("arguments") or "{}"
    try:
        arguments = msgspec.json.decode(raw) if isinstance(raw, str) else raw
    except msgspec.DecodeError:
        arguments = None
    # Arguments that are no object are passed on under a name that no tool has: its schema refuses them.
    if not isinstance(arguments, dict):
        arguments = {"unreadable": str(raw)}
    return ToolUse(str(item.get("id") or ""), str(function["name"]), arguments)
