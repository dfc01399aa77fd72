"""Risk, cost and access of a tool: from the server's claims, the tool's name, and the owner's rules.

A server's annotations are claims. They are read with the protocol's own defaults, and the name may raise the risk they
state, never lower it. The owner's rules only add. Nothing is decided here: policies above read what this states.

| the server says | risks |
|---|---|
| nothing on reading or destroying | `unstated` |
| `readOnlyHint: true` | `read-only` |
| `readOnlyHint: false`, nothing on destroying | `destructive`: the protocol's default |
| `destructiveHint: true` | `destructive`, and not `read-only`, whatever else is claimed |
| `destructiveHint: false` | neither: it writes and destroys nothing |
| `idempotentHint: true` of a tool that writes | also `idempotent` |
| `openWorldHint: true` | also `open-world`; unsaid it is left out, since nearly every tool would carry it |

A name such as `delete_branch` makes a tool `destructive` unless the server denies it with `destructiveHint: false`.
"""

import re
from collections.abc import Sequence
from fnmatch import translate
from typing import Any

from msgspec import Raw, Struct, field
from msgspec.json import Decoder

from toolfold.catalogue.ids import natural_id
from toolfold.catalogue.kinds import bare_id
from toolfold.config import MetadataRule
from toolfold.types import Annotations, ToolDefinition
from toolfold.words import READING, sounds_destructive, split_identifier

MAX_SENT_TAGS = 4
# A risk of most tools, and no news: policies see it, the tags that a model reads leave it out.
UNSTATED = "unstated"

_TAG = re.compile(r"[^a-z0-9:._-]+")


class _Metadata(Struct, frozen=True):
    risks: tuple[str, ...]
    tags: tuple[str, ...]
    cost: float | None
    access: tuple[str, ...]


class Rules:
    """The owner's rules, made ready to be asked for many tools."""

    def __init__(self, rules: Sequence[MetadataRule] = ()) -> None:
        self._rules = [(re.compile(translate(rule.match), re.IGNORECASE), rule) for rule in rules]

    def metadata(self, tool_id: str, definition: ToolDefinition, server: str = "") -> _Metadata:
        sent, renamed = _sent(definition.raw), definition.original is not None
        # Of a rule for `git.*` nothing of git is left out: what is no tool is found by its id without the kind, too.
        ids = (tool_id, natural_id(server, definition.sent_name)) if renamed else (tool_id, bare_id(tool_id))
        cost = _cost(sent)
        extra: list[str] = []
        access: list[str] = []
        tags = _sent_tags(sent)
        for pattern, rule in self._rules:
            if any(map(pattern.match, ids)):
                extra += rule.risk
                access += rule.access
                tags += rule.tags
                cost = cost if rule.cost is None else rule.cost
        name = definition.sent_name if definition.kind == "tool" else ""  # one of a document says nothing of risks
        risks = _with(_risks_of(name, definition.annotations), extra)
        return _Metadata(
            risks=risks,
            tags=_once([*(f"risk:{risk}" for risk in risks if risk != UNSTATED), *tags]),
            cost=cost,
            access=_once(access),
        )


def _risks_of(name: str, claims: Annotations) -> tuple[str, ...]:
    """The risk flags of a tool: see the table above."""
    # Unsaid, the protocol takes a tool that writes as destructive.
    destructive = claims.destructive
    if destructive is None and (claims.read_only is False or sounds_destructive(name)):
        destructive = True
    read_only = bool(claims.read_only) and not destructive
    flags = {
        "destructive": destructive,
        "read-only": read_only,
        "idempotent": claims.idempotent and not read_only,
        "open-world": claims.open_world,
        UNSTATED: claims.read_only is None and claims.destructive is None,
    }
    return tuple(flag for flag, holds in flags.items() if holds)


def may_write(name: str, risks: Sequence[str]) -> bool:
    """Whether a tool may change something: its server says so, or says nothing and the name has no reading verb."""
    if "read-only" in risks:
        return False
    return UNSTATED not in risks or not any(word in READING for word in map(str.lower, split_identifier(name)))


def _with(risks: tuple[str, ...], extra: Sequence[str]) -> tuple[str, ...]:
    """The owner's word on reading or destroying settles what the server left open; it takes no flag away."""
    if {"read-only", "destructive"} & set(extra):
        risks = tuple(risk for risk in risks if risk != UNSTATED)
    return _once([*risks, *extra])


class _Sent(Struct):
    meta: dict[str, Any] | None = field(default=None, name="_meta")


_decoder = Decoder(_Sent)


def _sent(raw: Raw) -> dict[str, Any]:
    """The `_meta` of a tool object; nothing where it is not an object or cannot be read."""
    # Few tools have it, and searching bytes is far cheaper than decoding.
    if b"_meta" not in bytes(raw):
        return {}
    try:
        return _decoder.decode(raw).meta or {}
    except (ValueError, RecursionError):
        return {}


def _cost(sent: dict[str, Any]) -> float | None:
    cost = sent.get("toolfold/cost", sent.get("cost"))
    return float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) and cost >= 0 else None


def _sent_tags(sent: dict[str, Any]) -> list[str]:
    """Tags that the server's framework sends along, `deprecated` and `app-only`."""
    tags: list[str] = []
    for key in ("fastmcp", "_fastmcp"):
        block = sent.get(key)
        values = block.get("tags") if isinstance(block, dict) else None
        if isinstance(values, list):
            # Foreign text that a model will read: cleaned, short and few, and no claim about risk.
            cleaned = (_TAG.sub("-", tag.strip().lower())[:32].strip("-") for tag in values if isinstance(tag, str))
            tags += [tag for tag in cleaned if tag and not tag.startswith("risk:")]
    return [*tags[:MAX_SENT_TAGS], *(["deprecated"] if sent.get("deprecated") is True else []), *_app_tags(sent)]


def _app_tags(sent: dict[str, Any]) -> list[str]:
    app = sent.get("ui")
    shown_to = app.get("visibility") if isinstance(app, dict) else None
    # For the page of an app alone, which calls it itself.
    return ["app-only"] if isinstance(shown_to, list) and "model" not in shown_to else []


def _once(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
