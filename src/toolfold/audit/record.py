"""One line of the audit log as a value, and the result of a step as the log takes it in."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec
from msgspec import Struct

from toolfold import tokens
from toolfold.catalogue.kinds import TOOLBOX
from toolfold.policy.view import CatalogueView

__all__ = ["Step", "_read_bytes", "decode_step"]

# A request that was let in nowhere: it belongs to no caller.
REFUSED = "refused"
# A change of the gateway itself: its servers, policies, callers, or what is trusted.
ADMIN = "admin"

A = TypeVar("A")

StepName = Literal["list", "nodes", "search", "choose", "expand", "inspect", "call"]


class Step(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the log. The names of the fields are those of the stored JSON."""

    id: str
    step: str
    at: float
    caller: str
    session: str = ""
    selection: str = ""
    """What ties the steps of one selection together."""
    search: str = ""
    """The step whose answer the tool was selected from."""
    tool_id: str = ""
    sent_as: str = ""
    """The name that the server knows the tool by, where the owner gave it another."""
    version: int | None = None
    query: str = ""
    path: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    """What the answer showed: tool ids, or categories."""
    confidence: tuple[float, ...] = ()
    expanded: tuple[str, ...] = ()
    """Of `results`, the tools that a search expanded."""
    rank: int | None = None
    """For `choose`: where the tool stood in the answer, from 1."""
    seconds: float = 0.0
    code: str = ""
    """What went wrong; empty: nothing."""
    message: str = ""
    arguments: Any = None
    argument_bytes: int | None = None
    result_bytes: int | None = None
    is_error: bool = False
    stored: str = ""
    stored_bytes: int | None = None
    """How large the result was that was stored."""
    to_program: bool = False
    """A program got the result, such as a script that made the call: no model read it."""
    shown_bytes: int = 0
    """What a model had to read of it."""
    shown_tokens: int | None = None
    """The same in tokens, where the token tables were loaded."""


def _read_bytes(tool_id: str, folded: int | None, stored: int | None, *, to_program: bool) -> tuple[int, int]:
    """Of a call's result: what a model read of it, and what it would have read without folding. Only with folding there
    are programs and the inspector: what these answer is read, and replaces nothing."""
    whole = 0 if tool_id.startswith(f"{TOOLBOX}.") else stored or folded or 0
    return 0 if to_program else folded or 0, whole


class _Hits(Protocol):
    """A page of a search."""

    @property
    def tool_ids(self) -> tuple[str, ...]: ...

    @property
    def twins(self) -> Mapping[str, str]: ...

    @property
    def confidences(self) -> tuple[float, ...]: ...


class _Nodes(Protocol):
    """A page of categories that a search found."""

    @property
    def paths(self) -> tuple[tuple[str, ...], ...]: ...

    @property
    def confidences(self) -> tuple[float, ...]: ...


class StepResult(Struct, Generic[A], frozen=True, kw_only=True):
    """What a step of finding a tool came to: the answer that the caller gets, and the values it was rendered from."""

    answer: A
    tool_ids: tuple[str, ...] = ()
    twins: Mapping[str, str] = {}
    """The ids that a hit carries besides its own, each with that: whoever takes one of them chose this hit."""
    paths: tuple[tuple[str, ...], ...] = ()
    confidence: tuple[float, ...] = ()
    expanded: tuple[str, ...] = ()
    version: int | None = None

    @classmethod
    def of_hits(cls, answer: A, page: _Hits, expanded: Iterable[str] = ()) -> "StepResult[A]":
        return cls(
            answer=answer,
            tool_ids=page.tool_ids,
            twins=page.twins,
            confidence=page.confidences,
            expanded=tuple(expanded),
        )

    @classmethod
    def of_nodes(cls, answer: A, page: _Nodes) -> "StepResult[A]":
        return cls(answer=answer, paths=page.paths, confidence=page.confidences)

    def fields(self) -> dict[str, Any]:
        """The fields of a `Step` about it. Encodes the whole answer to measure it: not on the event loop."""
        fields = _measure(encode_step(self.answer))
        if results := self.tool_ids or tuple("/".join(path) for path in self.paths):
            fields["results"] = results
        if self.confidence:
            fields["confidence"] = tuple(round(value, 2) for value in self.confidence)  # as they were shown
        if self.expanded:
            fields["expanded"] = self.expanded
        if self.version is not None:
            fields["version"] = self.version
        return fields


# One step of finding a tool, in the view of whoever asks.
Operation = Callable[[CatalogueView], Awaitable[StepResult[A]]]


encode_step = msgspec.json.Encoder().encode
decode_step = msgspec.json.Decoder(Step).decode


def _measure(text: bytes) -> dict[str, Any]:
    """The size of what a model reads. Tokens are counted only where the large tables are loaded already."""
    fields: dict[str, Any] = {"shown_bytes": len(text)}
    if tokens.encoding.cache_info().currsize:
        fields["shown_tokens"] = tokens.count(text.decode())
    return fields
