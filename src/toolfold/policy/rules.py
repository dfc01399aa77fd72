"""One policy, compiled: what it says of one tool. Deny wins over allow; a tool's own groups hold whatever it allows."""

from collections.abc import Iterable, Mapping, Sequence

from toolfold.config import Policy
from toolfold.errors import CatalogueError, NotAuthorized
from toolfold.policy.patterns import Flags, Patterns
from toolfold.policy.view import VisibleCatalogue
from toolfold.types import Node, Tool

DEFAULT_POLICY = "default"


class Rules:
    """What one policy says."""

    def __init__(self, policy: Policy) -> None:
        self._allow = Patterns(policy.allow)
        self._deny = Patterns(policy.deny)
        self._reveal = Patterns(policy.reveal)
        self._confirm = Patterns(policy.confirm)

    @property
    def allows_everything(self) -> bool:
        """Whether no tool has to be looked at, but for its groups."""
        return self._allow.everything and self._deny.nothing

    @property
    def confirms_nothing(self) -> bool:
        return self._confirm.nothing

    @property
    def asks_flags(self) -> bool:
        parts = (self._allow, self._deny, self._reveal, self._confirm)
        return any(part.asks_flags for part in parts)

    def allows(self, tool: Tool, groups: Iterable[str], flags: Flags = ()) -> bool:
        if tool.access and not set(tool.access) & set(groups):
            return False
        return self._allow.fit(tool, flags) and not self._deny.fit(tool, flags)

    def reveals(self, tool: Tool, flags: Flags = ()) -> bool:
        return not self._reveal.nothing and self._reveal.fit(tool, flags)

    def confirms(self, tool: Tool, flags: Flags = ()) -> bool:
        return not self._confirm.nothing and self._confirm.fit(tool, flags)


def compile_policies(policies: Sequence[Policy]) -> dict[str, Rules]:
    """Every policy by its name; the default one lets everything through where nobody wrote it."""
    found = {DEFAULT_POLICY: Rules(Policy(name=DEFAULT_POLICY))}
    found.update((policy.name, Rules(policy)) for policy in policies)
    return found


def visible_to(
    rules: Rules,
    groups: Iterable[str],
    tools: Sequence[Tool],
    nodes: Sequence[Node],
    *,
    flags: Mapping[str, Flags],
    held: Mapping[str, str],
) -> VisibleCatalogue:
    """What a caller of this policy sees of one generation. `flags` by fingerprint; `held` tells why, by tool id."""
    groups = frozenset(groups)
    seen: list[Tool] = []
    refused: dict[str, CatalogueError] = {}
    for tool in tools:
        found = flags.get(tool.fingerprint, ())
        if not rules.allows(tool, groups, found):
            if rules.reveals(tool, found):
                refused[tool.tool_id.casefold()] = _not_authorized(tool)
        elif tool.tool_id in held:
            refused[tool.tool_id.casefold()] = _held_back(tool, held[tool.tool_id])
        else:
            seen.append(tool)
    return VisibleCatalogue(seen, nodes, refused)


def _not_authorized(tool: Tool) -> NotAuthorized:
    return NotAuthorized(
        f"you may not use {tool.tool_id}",
        next_action="find another tool, or ask whoever runs the gateway to allow this one in its policy",
    )


def _held_back(tool: Tool, why: str) -> NotAuthorized:
    return NotAuthorized(
        f"{tool.tool_id} is held back: {why}",
        next_action=f"whoever runs the gateway looks at it and accepts it with `toolfold trust {tool.tool_id}`",
    )
