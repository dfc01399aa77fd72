"""Stable ids for tools: `server.tool`, unique without regard to letter case, fit to be exported as tool names.

An id has at most 64 characters of `A-Za-z0-9_.-`. A server's name is cleaned to those, a `/` in a tool's name is a `.`.
A tool whose name needs more than that gets a short form that ends in a hash of the full name, whoever else is there.
Where two tools want one id, the one that had it keeps it, else the one whose name fits as it is, else the first by
server and name; the other gets the hashed form. The order of reading never matters, and each such case is a warning.

Before the id of a leaf that is no tool stands its kind: `prompt:git.review`. No tool's id has a colon.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from hashlib import blake2b

from msgspec import Struct

from toolfold.text import printable
from toolfold.types import Tool, ToolDefinition

__all__ = ["ids_of", "natural_id", "natural_leaf_id", "plain_id"]

MAX_LENGTH = 64
# What a long server name is cut to where the whole would be too long: the tool's own name matters more.
MAX_SERVER = 24
_SHOWN_NAME = 80

# A tool as its source knows it: the configured server and the name the server gave it.
Key = tuple[str, str]

_FIT = re.compile(r"[A-Za-z0-9_.-]+")
_ODD = re.compile(r"[^A-Za-z0-9_.-]+")


class _Assigned(Struct, frozen=True):
    ids: dict[Key, str]
    warnings: tuple[str, ...]
    """Which tools could not have the id one would expect, why, and what they have instead."""


def natural_id(server: str, name: str) -> str:
    """The id a tool has where nobody else wants it."""
    tool = name.replace("/", ".")
    tool_id = f"{_server_prefix(server)}.{tool}"
    return tool_id if _FIT.fullmatch(tool) and len(tool_id) <= MAX_LENGTH else _hashed_id(server, name)


def natural_leaf_id(server: str, leaf: ToolDefinition) -> str:
    """The id of any leaf where nobody else wants it. Names of resources are for people: cleaned rather than hashed."""
    if leaf.kind == "tool":
        return natural_id(server, leaf.name)
    own = f"{leaf.kind}:{_server_prefix(server)}.{_clean(leaf.name[:MAX_LENGTH])}"
    return own if len(own) <= MAX_LENGTH and own[-1] != "." else _hashed_leaf_id(server, leaf)


def _hashed_leaf_id(server: str, leaf: ToolDefinition, digits: int = 8) -> str:
    # By the address: several resources may have one name.
    room, mark = MAX_LENGTH - digits - 1, _digest(f"{server}\0{leaf.key}", digits=digits)
    front = f"{leaf.kind}:{_server_prefix(server)[:MAX_SERVER].rstrip('._-')}.{_clean(leaf.name[:room])}"
    return f"{front[:room].rstrip('._-')}-{mark}"


def ids_of(tool: Tool) -> tuple[str, ...]:
    """The id of a tool, and the one it would have if its owner had not renamed it: rules and policies know both."""
    sent = tool.definition.sent_name
    return (tool.tool_id,) if sent == tool.name else (tool.tool_id, natural_id(tool.server, sent))


def plain_id(server: str, name: str) -> str:
    """The id without the hash that tells it from others: what a person who knows the tool's name would write."""
    tool = name.replace("/", ".")
    return f"{_server_prefix(server)}.{tool if _FIT.fullmatch(tool) else _clean(tool)}"


def _server_prefix(server: str) -> str:
    """What the ids of a server's tools begin with."""
    if _FIT.fullmatch(server):
        return server
    return _clean(server) or f"server-{_digest(server, digits=6)}"


def _hashed_id(server: str, name: str, *, digits: int = 8) -> str:
    """The short form: as much of both names as fits, and a hash of the whole."""
    room = MAX_LENGTH - digits - 1
    front, back = _server_prefix(server), _clean(name) or "tool"
    if len(front) + 1 + len(back) > room:
        front = front[: max(MAX_SERVER, room - 1 - len(back))].rstrip("._-") or "server"
    return f"{front}.{back}"[:room].rstrip("._-") + "-" + _digest(f"{server}\0{name}", digits=digits)


def _assign_leaf_ids(leaves: Mapping[Key, ToolDefinition], previous: Mapping[Key, str]) -> dict[Key, str]:
    """The same for leaves that are no tools, by their keys. Many have one name, and that is no news."""
    ids = {key: previous[key] for key in leaves if key in previous}
    taken = {tool_id.casefold() for tool_id in ids.values()}
    for key in sorted(leaves.keys() - ids.keys()):
        forms = (natural_leaf_id(key[0], leaves[key]), *(_hashed_leaf_id(key[0], leaves[key], n) for n in (8, 16, 32)))
        ids[key] = next(form for form in forms if form.casefold() not in taken)
        taken.add(ids[key].casefold())
    return ids


def assign_all_ids(
    leaves: Mapping[Key, ToolDefinition], previous: Mapping[Key, str]
) -> tuple[dict[Key, str], tuple[str, ...]]:
    """The ids of tools and of all other leaves, and which tools could not have the one that one would expect."""
    others = {key: leaf for key, leaf in leaves.items() if leaf.kind != "tool"}
    assigned = assign_ids(leaves.keys() - others.keys(), previous)
    return {**assigned.ids, **_assign_leaf_ids(others, previous)}, assigned.warnings


def assign_ids(keys: Iterable[Key], previous: Mapping[Key, str]) -> _Assigned:
    """An id for each tool. `previous` are the ids of the build before, kept wherever their tool is still there."""
    tools = set(keys)
    ids = {key: previous[key] for key in sorted(tools) if key in previous}
    holders = {tool_id.casefold(): key for key, tool_id in ids.items()}
    natural = {key: natural_id(*key) for key in tools}
    # Ids of the build before come first: models, locks and policies remember them.
    for key in sorted(tools - ids.keys(), key=lambda key: (natural[key] != ".".join(key), key)):
        tool_id = natural[key]
        ids[key] = _free(key, holders) if tool_id.casefold() in holders else tool_id
        holders[ids[key].casefold()] = key
    return _Assigned(ids, _warnings(ids, natural, holders))


def _warnings(ids: Mapping[Key, str], natural: Mapping[Key, str], holders: Mapping[str, Key]) -> tuple[str, ...]:
    """Repeated in every build, not only in the one that gave the id."""
    warnings = [
        f'the ids of server "{server}" begin with "{_server_prefix(server)}.", since ids have only A-Z a-z 0-9 _ . -'
        for server in sorted({server for server, _ in ids})
        if _server_prefix(server) != server
    ]
    for key, tool_id in sorted(ids.items()):
        server, name = key
        if tool_id == f"{_server_prefix(server)}.{name}":
            continue
        tool = f'the tool "{printable(name, _SHOWN_NAME)}" of server "{server}"'
        holder = holders.get(natural[key].casefold())
        if tool_id == natural[key]:
            text = f"{tool} has the id {tool_id}: ids have at most {MAX_LENGTH} characters of A-Z a-z 0-9 _ . -"
        elif holder is None:
            text = f"{tool} keeps the id {tool_id}, since {natural[key]} was taken when it came"
        else:
            text = (
                f'{tool} has the id {tool_id}, since the tool "{printable(holder[1], _SHOWN_NAME)}" of '
                f'server "{holder[0]}" has {ids[holder]}'
            )
        warnings.append(text)
    return tuple(warnings)


def _free(key: Key, holders: Mapping[str, Key]) -> str:
    for digits in (8, 16, 32):
        tool_id = _hashed_id(*key, digits=digits)
        if tool_id.casefold() not in holders:
            return tool_id
    raise AssertionError(f"no free id for {key}: its 128-bit hash is taken")


def _digest(text: str, *, digits: int) -> str:
    # Names come from JSON and may hold lone surrogates.
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()[:digits]


def _clean(text: str) -> str:
    if not text.isascii():
        text = "".join(mark for mark in unicodedata.normalize("NFKD", text) if not unicodedata.combining(mark))
    return _ODD.sub("_", text).strip("_.-")
