"""One line of the audit trail as a value, and what it takes from the answers that steps give."""

from typing import Any, Literal

import msgspec
from msgspec import Struct

from toolfold import tokens

StepName = Literal["list", "nodes", "search", "choose", "expand", "inspect", "call", "surface"]


class Step(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the trail."""

    id: str
    step: str
    at: float
    caller: str
    session: str = ""
    selection: str = ""
    """What ties the steps of one choice together."""
    search: str = ""
    """The step whose answer the tool was chosen from."""
    tool_id: str = ""
    version: int | None = None
    query: str = ""
    path: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    """What the answer showed: tool ids, or categories."""
    confidence: tuple[float, ...] = ()
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
    shown_bytes: int = 0
    """What a model had to read of it."""
    shown_tokens: int | None = None
    """The same in tokens, where the token tables were at hand."""


encode_step = msgspec.json.Encoder().encode
decode_step = msgspec.json.Decoder(Step).decode


def result_ids(answer: Any) -> list[str]:
    """The tools that an answer points at, in their order."""
    if not isinstance(answer, dict):
        return []
    pointers = answer.get("tools") if "nodes" in answer else answer.get("results")
    if not isinstance(pointers, list):
        return []
    return [one["tool_id"] for one in pointers if "tool_id" in one]


def sizes(text: bytes) -> dict[str, Any]:
    """Tokens are counted only where the large tables are loaded already."""
    found: dict[str, Any] = {"shown_bytes": len(text)}
    if tokens.encoding.cache_info().currsize:
        found["shown_tokens"] = tokens.count(text.decode())
    return found


def answer_fields(answer: Any) -> dict[str, Any]:
    """Ids or categories, their confidence, and how much a model had to read."""
    found = sizes(encode_step(answer))
    if not isinstance(answer, dict):
        return found
    pointers = (answer.get("tools") if "nodes" in answer else answer.get("results")) or ()
    if pointers and isinstance(pointers, list):
        found["results"] = tuple(one["tool_id"] if "tool_id" in one else "/".join(one["path"]) for one in pointers)
        confidence = [one.get("confidence") for one in pointers]
        if None not in confidence:
            found["confidence"] = tuple(confidence)
    if isinstance(answer.get("version"), int):
        found["version"] = answer["version"]
    return found
