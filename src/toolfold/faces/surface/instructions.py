"""What a model reads before its first call: the rules of the discovery protocol, and what there is to discover.

Models do not search an index that does not say what lies behind it. So the inventory is true, of what this caller may
see, and never longer than its budget: servers and categories that do not fit are counted instead of named.
"""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from msgspec.structs import replace

from toolfold import tokens
from toolfold.catalogue.kinds import TOOLBOX
from toolfold.errors import ConfigError, NoMatchInCategory, NotBuilt
from toolfold.gateway import Gateway
from toolfold.types import LOCAL, Caller, ServerState

MAX_TOKENS = 400
MAX_NAME = 40
MAX_UNREAD = 12
MAX_PINNED = 5
# So many servers are shown with their own words, of which the opening tells what they are connected to.
MAX_ABOUT = 12
MAX_SAID = 80

RULES = """\
These operations are an index over tools that are not listed here.
1. Do not assume tools exist. Always discover via `list` or `search_*`.
2. Prefer hierarchical navigation. Use `list(path=…)` to explore before searching.
3. Use the escape hatch when uncertain. If no child node seems appropriate, call `search_nodes` or \
`search_tool_by_category`.
4. Never call a tool without expanding it. Always call `expand_tool` before execution to obtain the argument schema, \
unless a search `expanded` it. A script may do without.
5. Follow error hints. On error, retry with suggested categories or queries.
Search in one whole sentence: what to do, with what kind of thing, in which product."""

_SENTENCE_END = re.compile(r"[.:;](?: |$)")
_UNLESS = ", unless a search `expanded` it"

_Counted = tuple[str, int]


async def discovery_instructions(gateway: Gateway, caller: Caller, pinned: Sequence[str] = ()) -> str:
    """Rules and inventory, in at most `MAX_TOKENS`. `pinned` are the tools listed beside the operations."""
    rules = RULES if gateway.settings.discovery.expand_hits else RULES.replace(_UNLESS, "")
    try:
        servers, categories = await _inventory(gateway, caller)
        about = await _about_servers(gateway, [name for name, _ in servers])
    except NotBuilt:
        return f"{rules}\n{_without_catalogue(gateway, caller)}"
    rules = f"{rules}\n{_about_pinned(pinned)}" if pinned else rules
    waiting = await sign_in_line(gateway, caller)
    return _fit_budget(servers, categories, f"{rules}\n{waiting}" if waiting else rules, about)


async def sign_in_line(gateway: Gateway, caller: Caller, listed: Sequence[str] = ()) -> str:
    """One line about the servers that this caller may see and that want somebody to sign in; mostly there are none.
    `listed` are the tools for it, in a profile that lists tools and no operations."""
    upstreams, names = gateway.upstreams, await _waiting_for_sign_in(gateway, caller)
    if not names:
        return ""
    more = f" and {len(names) - MAX_UNREAD:,} more" if len(names) > MAX_UNREAD else ""
    own = next((name for name in names if name in upstreams.per_caller), "")
    way = f"call the tool id `NAME.sign_in` (`{own}.sign_in`) with `call_tool`; it is in no list"
    ways = [f"call the listed tool for it, such as `{listed[0]}`" if listed else way] if own else []
    if not upstreams.per_caller.issuperset(names):
        runs = (
            "the user runs `toolfold login NAME`" if caller.name == LOCAL.name else "whoever runs this gateway does it"
        )
        ways.append(f"for accounts that all callers share, {runs}" if own else runs)
    return f"Sign-in needed: {', '.join(names[:MAX_UNREAD])}{more}. To sign in: {'; '.join(ways)}."


@asynccontextmanager
async def _name_sign_ins(gateway: Gateway, caller: Caller) -> AsyncIterator[None]:
    """Around a search: where nothing fits, what would may belong to a server that waits for somebody to sign in."""
    try:
        yield
    except NoMatchInCategory as error:
        error.next_action = " ".join(filter(None, (await sign_in_line(gateway, caller), error.next_action)))
        raise


async def _waiting_for_sign_in(gateway: Gateway, caller: Caller) -> list[str]:
    upstreams, view = gateway.upstreams, gateway.view(caller)
    waiting = {state.name for state in await gateway.servers() if state.status == "needs sign-in"}
    waiting = (waiting - upstreams.per_caller) | await upstreams.arrivals.to_sign_in(caller.name)
    return [_plain(name) for name in sorted(waiting) if not view.hides(name)]


def _about_pinned(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_PINNED:,} more" if len(names) > MAX_PINNED else ""
    listed = f"{', '.join(names[:MAX_PINNED])}{more}"
    return f"Listed beside these operations, to be called directly: {listed}. The rules are for all other tools."


def _without_catalogue(gateway: Gateway, caller: Caller) -> str:
    """The line in place of the inventory. Servers are named to those who may see all of them."""
    if not gateway.initial_build.pending:
        return "There is no catalogue yet: whoever runs toolfold has to build it."
    specs = gateway.upstreams.specs() if _sees_everything(gateway, caller) else ()
    names = [_plain(spec.name) for spec in specs if spec.enabled]
    more = f" and {len(names) - MAX_UNREAD:,} more" if len(names) > MAX_UNREAD else ""
    listed = f": {', '.join(names[:MAX_UNREAD])}{more}" if names else ""
    return f"The servers are being read right now{listed}. The first `list` or search waits for them."


async def _inventory(gateway: Gateway, caller: Caller) -> tuple[list[_Counted], list[_Counted]]:
    """Servers and root categories with how many tools of each the caller may see, the largest first."""
    tree = await gateway.view(caller).catalogue.tree((), 1)  # as it is: a handshake waits for no server
    # A node of a higher rank shows the same tools once more.
    branches = [(branch.node.name, branch.node.tools) for branch in tree.branches if branch.node.rank <= 0]
    return _largest_first(list((await visible_servers(gateway, caller)).items())), _largest_first(branches)


async def _about_servers(gateway: Gateway, names: Sequence[str]) -> dict[str, str]:
    """What few servers say they are connected to: the opening of their own words."""
    if len(names) > MAX_ABOUT:
        return {}
    said = {record.name: record.info.instructions for record in await gateway.catalogue.servers()}
    opening = {name: _plain(said.get(name, "")[: 4 * MAX_SAID].replace('"', "'"), MAX_SAID) for name in names}
    return {name: first for name, text in opening.items() if (first := _SENTENCE_END.split(text.lstrip("# "), 1)[0])}


async def visible_servers(gateway: Gateway, caller: Caller) -> dict[str, int]:
    """How many tools of each server the caller may see."""
    if _sees_everything(gateway, caller):  # the catalogue has counted them
        return {record.name: record.tools for record in await gateway.catalogue.servers()}
    names = await gateway.inventory(caller=caller)
    return {name: len(tools) for name, tools in names.items() if name != TOOLBOX}


async def _visible_states(gateway: Gateway, caller: Caller) -> Sequence[ServerState]:
    """How each server is doing that the caller may see, with its own counts and sign-ins."""
    states, view = await gateway.servers(), gateway.view(caller)
    if view.unrestricted:
        return states
    visible = await visible_servers(gateway, caller)
    own = {name for name in gateway.upstreams.per_caller if not view.hides(name)}
    waiting = own & await gateway.upstreams.arrivals.to_sign_in(caller.name)
    return [
        replace(
            state,
            tools=visible.get(state.name, 0),
            status="needs sign-in" if state.name in waiting else state.status,
        )
        for state in states
        if visible.get(state.name) or state.name in own
    ]


def _sees_everything(gateway: Gateway, caller: Caller) -> bool:
    return gateway.view(caller).unrestricted


def _fit_budget(
    servers: Sequence[_Counted], categories: Sequence[_Counted], rules: str = RULES, about: Mapping[str, str] = {}
) -> str:
    """As many names as fit; what is left out is counted. What servers say of themselves only beside all names."""
    total = sum(count for _, count in servers)
    names = max(len(servers), len(categories))
    while True:
        text = (
            f"{rules}\nThere {'is' if total == 1 else 'are'} {total:,} tool{'s' * (total != 1)} of {len(servers):,} "
            f"server{'s' * (len(servers) != 1)}: {_name_list(servers, names, about)}.\n"
            f"Categories at the root: {_name_list(categories, names)}."
        )
        if not names or count_tokens(text) <= MAX_TOKENS:
            return text
        names, about = (names, {}) if about else (min(names - 1, names * 7 // 8), about)


def _name_list(entries: Sequence[_Counted], limit: int, about: Mapping[str, str] = {}) -> str:
    said = {name: f': "{text}"' for name, text in about.items()}
    names = [f"{_plain(name)} ({count:,}{said.get(name, '')})" for name, count in entries[:limit]]
    left = len(entries) - len(names)
    if left:
        names.append(f"and {left:,} more" if names else f"{left:,}")
    return ", ".join(names) or "none"


def _plain(name: str, limit: int = MAX_NAME) -> str:
    """A name on one short line."""
    # Names come from servers: one with line breaks could pose as instructions.
    text = "".join(char if char.isprintable() else " " for char in name)
    return " ".join(text.split())[:limit]


def count_tokens(text: str) -> int:
    """Exact where the tables are there, else an upper bound."""
    try:
        return tokens.count(text)
    except ConfigError:
        # Without the token tables: English takes more than two characters a token, other scripts up to three tokens a
        # character.
        return sum(1 if char.isascii() else 6 for char in text) // 2


def _largest_first(entries: Sequence[_Counted]) -> list[_Counted]:
    return sorted(
        ((name, count) for name, count in entries if count), key=lambda entry: (-entry[1], entry[0].casefold())
    )
