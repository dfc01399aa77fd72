"""Requests that a model wrote for tools, in the words of people: asked for once, kept by the tool's fingerprint.

A tool that changed is asked for again, one that did not never is. What a model answers is foreign text: of it only
lines that can be a request are kept, few and short. The index takes them in as text of the tool (`document.py`).
"""

import asyncio
import itertools
import logging
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from toolfold.errors import ModelError
from toolfold.model import Message, Model, Prompt
from toolfold.storage.base import Store
from toolfold.types import Tool

# By fingerprint: the requests of each tool that a model was asked about; none where it answered nothing usable.
Requests = Mapping[str, tuple[str, ...]]

_NAMESPACE = "requests"
# Beside the generation that the index holds: changes with every request that is kept or forgotten.
_STATE, _REVISION = "search", "requests"
_MAX_KEPT = 100_000
_PER_TOOL = 5
_MIN_CHARS, _MAX_CHARS = 4, 160
# How much of an answer is read, and how much of a tool is told.
_MAX_ANSWER_CHARS = 4_000
_MAX_DESCRIPTION_CHARS = 1_200
_MAX_PARAMETERS = 20
_MAX_OUTPUT_TOKENS = 200
_AT_ONCE = 4
# So many failures without an answer between them say that it is the model, not the tool.
_FAILURES_IN_A_ROW = 3

# Without an example: a small model gave the example's requests for tools that had nothing to do with it.
_PROMPT = """Tool of {server}: {name}
{description}
Parameters: {parameters}

Write {count} different short requests of people who need this tool and do not know that it exists: what they want to \
get done, in everyday words and not in those above, each with another concrete case. One request on each line, nothing \
else."""

_FENCE = re.compile(r"^```\w*\s*$", re.MULTILINE)
_LINE_END = re.compile(r"[\r\n]+|(?<=[\"'])\s*,\s*(?=[\"'])")
_LIST_MARK = re.compile(r"^(?:[-*\u2022\u2013>#\s]+|\(?\d{1,2}[.):]\s*|[\"'`\u201c\u2018\[,]+)+")
_TAIL = "*\"'`\u201d\u2019,] \t"
_CHATTER = re.compile(
    r"(?:sure|certainly|of course|okay|ok|here (?:are|is)|note|example|requests?|output|parameters)\b[^?]{0,80}[:!]"
    r"|.*:$|i(?:'|\u2019)?m (?:sorry|unable)|i am (?:sorry|unable|an ai|a language model)|i apologi[sz]e|sorry,"
    r"|as an? (?:ai|language model|assistant)"
    r"|i (?:cannot|can(?:'|\u2019)t|won(?:'|\u2019)t) (?:help|assist|provide|write|create|generate|fulfil|comply)",
    re.IGNORECASE,
)

log = logging.getLogger("toolfold.search")


class Enrichment:
    """The requests of one store's tools."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def requests(self) -> Requests:
        return {key: _decoded(value) for key, value in (await self._store.items(_NAMESPACE)).items()}

    async def pending(self, tools: Sequence[Tool], *, server: str = "", limit: int | None = None) -> list[Tool]:
        """Of all tools those that were never asked about, each kind once. Makes room for them."""
        kept, current = await self.requests(), {tool.fingerprint for tool in tools}
        if len(kept) + len(current - kept.keys()) > _MAX_KEPT:
            await self.forget(sorted(kept.keys() - current))
        new = {tool.fingerprint: tool for tool in tools if tool.fingerprint not in kept and server in ("", tool.server)}
        room = max(0, _MAX_KEPT - len(kept.keys() & current))
        return list(new.values())[: room if limit is None else min(limit, room)]

    async def revision(self) -> str:
        """Another one whenever any request is: empty where there never was one."""
        return (await self._store.get(_STATE, _REVISION) or b"").decode()

    async def ask(
        self, model: Model, tools: Sequence[Tool], on_tool: Callable[[str], None] | None = None
    ) -> dict[str, int]:
        """Asks about each tool, a few at once, and keeps each answer as it comes: broken off, it goes on from there.

        Returns how many tools were `enriched`, gave nothing `usable` as a request, and `failed`. Raises the model's
        error where it fails again and again.
        """
        report = {"enriched": 0, "unusable": 0, "failed": 0}
        remaining = (tool for tool in tools)
        failures: list[ModelError] = []  # since the last answer

        async def work() -> None:
            for tool in remaining:
                try:
                    reply = await model.complete(_prompt(tool))
                except ModelError as error:
                    log.info("no requests for %s: %s", tool.tool_id, error.message)
                    report["failed"] += 1
                    failures.append(error)
                    if len(failures) >= _FAILURES_IN_A_ROW:
                        remaining.close()  # nobody takes another; what the others are being answered is kept
                    continue
                failures.clear()
                requests = _requests_in(reply.text, tool.name)
                await self._put(tool.fingerprint, requests)
                report["enriched" if requests else "unusable"] += 1
                if on_tool is not None:
                    on_tool(tool.tool_id)

        await asyncio.gather(*(work() for _ in range(_AT_ONCE)))
        if failures and len(failures) >= min(_FAILURES_IN_A_ROW, len(tools)):
            raise failures[0]
        return report

    async def forget(self, fingerprints: Collection[str]) -> int:
        """Drops what is kept for these; returns for how many there were requests."""
        requests = await self.requests()
        kept = requests.keys() & set(fingerprints)
        for fingerprint in sorted(kept):
            await self._store.delete(_NAMESPACE, fingerprint)
        if kept:
            await self._revise()
        return sum(bool(requests[fingerprint]) for fingerprint in kept)

    async def _put(self, fingerprint: str, requests: Sequence[str]) -> None:
        await self._store.put(_NAMESPACE, fingerprint, msgspec.json.encode(requests))
        # After it: whoever sees the new revision finds the requests.
        await self._revise()

    async def _revise(self) -> None:
        await self._store.put(_STATE, _REVISION, secrets.token_hex(8).encode())


def _prompt(tool: Tool) -> Prompt:
    schema = msgspec.json.decode(tool.definition.input_schema)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    names = itertools.islice(properties if isinstance(properties, dict) else (), _MAX_PARAMETERS)
    text = _PROMPT.format(
        server=tool.server,
        name=tool.name,
        description=tool.definition.description[:_MAX_DESCRIPTION_CHARS].strip() or tool.definition.title,
        parameters=", ".join(name[:50] for name in names) or "none",
        count=_PER_TOOL,
    )
    return Prompt(messages=(Message(role="user", content=text),), max_output_tokens=_MAX_OUTPUT_TOKENS)


def _requests_in(answer: str, name: str = "") -> tuple[str, ...]:
    """The lines of an answer that can be a request, each once, a few at most. None that calls the tool by its `name`:
    that is code or talk about the tool."""
    code = ["`", "**", *([name.casefold()] if "_" in name else [])]
    found: dict[str, str] = {}
    for line in _LINE_END.split(_FENCE.sub("", answer[:_MAX_ANSWER_CHARS])):
        text = " ".join(_LIST_MARK.sub("", line.strip()).rstrip(_TAIL).split())
        folded = text.casefold()
        if not _MIN_CHARS <= len(text) <= _MAX_CHARS or not text.isprintable() or _CHATTER.match(text):
            continue
        if not any(mark in folded for mark in code):
            found.setdefault(folded.rstrip(".!?"), text)
    return tuple(found.values())[:_PER_TOOL]


def _decoded(value: bytes) -> tuple[str, ...]:
    try:
        return msgspec.json.decode(value, type=tuple[str, ...])
    except msgspec.DecodeError:
        return ()  # an index without them is worth more than an error
