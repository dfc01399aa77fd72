"""Access: which policy a caller has, what it may see of the catalogue, and which calls a person must confirm.

A policy is lists of patterns. Deny wins over allow, and the groups that a tool names itself (`Tool.access`) hold
whatever the policy allows. A tool fits a list if it fits one of its patterns, and letter case never counts:

    git.*, **           a tool's id, with * for any letters; but in `allow` also the id that a twin of it would have
    path:Storage/**     a category: * is one step, ** any number of them; a tool fits by any of its places
    tag:money           a tag
    risk:destructive    a risk: what the server claims, what the name says, what the owner adds. `risk:unstated` too
    server:git          the configured name of a server
    flag:instructions   something that the check of descriptions found
    resource:git.*      a resource or a template, by its id; `template:` a template alone, `prompt:` a prompt
    skill:git.*         a skill, with all its files

Resources, prompts and skills are leaves like tools, and all kinds of patterns fit them. An id without a kind means
tools; but in `deny`, `reveal` and `confirm` whatever has that id: who denies `git.*` means all of git.

`toolbox.run_script` and `toolbox.live_python` are ids, too: of scripts, and of live Python.

For a caller whose policy allows everything this costs a look into a dictionary; anybody else gets a `CatalogueView` of
their own, shared by all callers with the same policy and groups, unless each caller signs in to some server itself.
What tools are trusted is `trust`. Above: the gateway and the checks of `calls`. Below: the catalogue.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import filter as fnmatch_filter
from fnmatch import fnmatchcase, translate

from msgspec.structs import replace

from toolfold.catalogue.catalogue import Catalogue, tool_batches
from toolfold.catalogue.ids import ids_of, plain_id
from toolfold.catalogue.kinds import bare_id
from toolfold.config import CallerKey, Policy, Settings
from toolfold.config.sections import LOCAL_NAME, PATTERN_KINDS
from toolfold.containers import BoundedDict
from toolfold.errors import CatalogueError, ConfigError, NotAuthorized
from toolfold.policy.approvals import Approvals
from toolfold.policy.quotas import _QuotaKeeper
from toolfold.policy.trust import TrustMonitor, TrustReview
from toolfold.policy.view import CatalogueView, VisibleCatalogue
from toolfold.storage.base import Snapshot, Store
from toolfold.types import EMPTY_OBJECT, LOCAL, CallContext, Caller, Node, Tool, ToolCall, ToolDefinition
from toolfold.upstream.refresh import UpstreamManager

_EVERYTHING = frozenset({"*", "**"})

Flags = tuple[str, ...]
_Words = Callable[[Tool, Flags], Iterable[str]]

_WORDS: dict[str, _Words] = {
    # A tool whose id carries a hash, since another had it first, is still the one that its name says.
    "id": lambda tool, flags: (*ids_of(tool), bare_id(tool.tool_id), plain_id(tool.server, tool.definition.sent_name)),
    "exact id": lambda tool, flags: ids_of(tool),
    "resource": lambda tool, flags: (bare_id(tool.tool_id),) if tool.kind in {"resource", "template"} else (),
    "template": lambda tool, flags: (bare_id(tool.tool_id),) if tool.kind == "template" else (),
    "prompt": lambda tool, flags: (bare_id(tool.tool_id),) if tool.kind == "prompt" else (),
    "skill": lambda tool, flags: (bare_id(tool.tool_id),) if tool.kind == "skill" else (),
    "path": lambda tool, flags: ("/".join(path) for path in tool.paths),
    "tag": lambda tool, flags: tool.tags,
    "risk": lambda tool, flags: tool.risks,
    "server": lambda tool, flags: (tool.server,),
    "flag": lambda tool, flags: flags,
}


class _Patterns:
    """Several patterns; a tool fits if it fits one of them. `exact`: an id means that very tool, and no twin of it."""

    def __init__(self, texts: Iterable[str], *, exact: bool = False) -> None:
        texts = tuple(texts)
        self.everything = any(text.strip() in _EVERYTHING for text in texts)
        self.nothing = not texts
        self._texts = texts
        by_kind: dict[str, list[str]] = {}
        for text in () if self.everything else texts:
            kind, expression = _split_pattern(text)
            kind = "exact id" if exact and kind == "id" else kind
            by_kind.setdefault(kind, []).append(expression)
        # Flags cost a scan of every description: they are made only where a policy asks for them.
        self.asks_flags = "flag" in by_kind
        self._matchers = [(_WORDS[kind], _compile_patterns(kind, parts)) for kind, parts in by_kind.items()]

    def match(self, tool: Tool, flags: Flags = ()) -> bool:
        if self.everything:
            return True
        return any(pattern.match(word) for words, pattern in self._matchers for word in words(tool, flags))

    def may_fit(self, server: str) -> bool:
        """Whether some tool of a server may fit, whichever it has. Only ids and servers can tell that none does."""
        return self.everything or any(_may_fit(*_split_pattern(text), server) for text in self._texts)


_BY_ID = frozenset({"id", "resource", "template", "prompt", "skill"})


def _may_fit(kind: str, expression: str, server: str) -> bool:
    if kind == "server":
        return re.match(translate(expression), server, re.IGNORECASE) is not None
    front, head = plain_id(server, "").casefold(), re.split(r"[*?\[]", expression, maxsplit=1)[0].casefold()
    return kind not in _BY_ID or head.startswith(front) or front.startswith(head)


# Ids that no server has: of scripts, and of live Python.
_PROGRAMS = ("toolbox.run_script", "toolbox.live_python")


def _fits_any(text: str, tools: Sequence[Tool], flags: Mapping[str, Flags]) -> bool:
    patterns = _Patterns((text,))
    return any(fnmatchcase(program, text.casefold()) for program in _PROGRAMS) or any(
        patterns.match(tool, flags.get(tool.fingerprint, ())) for tool in tools
    )


def _split_pattern(text: str) -> tuple[str, str]:
    """The kind of a pattern, and what it matches."""
    kind, colon, rest = text.strip().partition(":")
    if not colon:
        return "id", kind
    if kind not in PATTERN_KINDS:
        raise ConfigError(
            f"a policy has the pattern {text[:80]!r} of an unknown kind",
            hints=[f"{known}:" for known in PATTERN_KINDS],
            next_action="use one of these kinds, or a tool's id without a colon",
        )
    return kind, rest


def _compile_patterns(kind: str, parts: list[str]) -> re.Pattern[str]:
    expressions = (_path_expression(part) if kind == "path" else translate(part) for part in parts)
    return re.compile("|".join(f"(?:{expression})" for expression in expressions), re.IGNORECASE)


def _path_expression(text: str) -> str:
    """`Storage/**` is Storage and all below it; `*/Orders` is Orders one step down, anywhere."""
    steps = [step.strip() for step in text.split("/") if step.strip()]
    # `**/**` says no more than `**`, and would backtrack on long paths.
    steps = [step for number, step in enumerate(steps) if step != "**" or steps[number - 1 : number] != ["**"]]
    if steps == ["**"]:
        return r".*\Z"
    anywhere = steps[:1] == ["**"]
    rest = "".join("(?:/.*)?" if step == "**" else f"/{_step_expression(step)}" for step in steps[anywhere:])
    return ("(?:.*/)?" if anywhere else "") + rest.removeprefix("/") + r"\Z"


def _step_expression(step: str) -> str:
    return re.escape(step).replace(r"\*", "[^/]*").replace(r"\?", "[^/]")


DEFAULT_POLICY = "default"
# A caller that the configuration no longer has, and whose session is still open. No table can have this name.
_NOBODY = CallerKey(name="", policy="\0nobody")


class _Rules:
    """What one policy says."""

    def __init__(self, policy: Policy, subset: Sequence[str] = ("**",)) -> None:
        self.policy = policy
        self._subset = _Patterns(subset, exact=True)
        self._allow = _Patterns(policy.allow, exact=True)
        self._deny = _Patterns(policy.deny)
        self._reveal = _Patterns(policy.reveal)
        self._confirm = _Patterns(policy.confirm)

    @property
    def allows_everything(self) -> bool:
        """Whether no tool has to be matched, except for its groups."""
        return self._allow.everything and self._deny.nothing and self._subset.everything

    @property
    def confirms_nothing(self) -> bool:
        return self._confirm.nothing

    @property
    def asks_flags(self) -> bool:
        parts = (self._allow, self._deny, self._reveal, self._confirm, self._subset)
        return any(part.asks_flags for part in parts)

    def allows(self, tool: Tool, groups: Iterable[str], flags: Flags = ()) -> bool:
        if tool.access and not set(tool.access) & set(groups):
            return False
        return self._allow.match(tool, flags) and not self._deny.match(tool, flags)

    def holds(self, tool: Tool, flags: Flags = ()) -> bool:
        """Whether the tool is in the subset: what is not does not exist there."""
        return self._subset.match(tool, flags)

    def hides(self, server: str, tool_id: str = "") -> bool:
        """Whether nothing of a server may be seen, whatever its tools are; with an id, whether that tool may not, of
        which nothing else is known."""
        definition = ToolDefinition(name="\0", raw=EMPTY_OBJECT)
        named = tool_id or plain_id(server, "\0")
        unknown = Tool(tool_id=named, server=server, definition=definition, fingerprint="")
        if tool_id:
            seen = self._allow.match(unknown, ()) and self._subset.match(unknown, ())
        else:
            seen = self._allow.may_fit(server) and self._subset.may_fit(server)
        return not seen or self._deny.match(unknown)

    def reveals(self, tool: Tool, flags: Flags = ()) -> bool:
        return not self._reveal.nothing and self._reveal.match(tool, flags)

    def confirms(self, tool: Tool, flags: Flags = ()) -> bool:
        return not self._confirm.nothing and self._confirm.match(tool, flags)


def _compile_policies(policies: Sequence[Policy]) -> dict[str, _Rules]:
    """Every policy by its name; the default one lets everything through where nobody wrote it."""
    rules = {DEFAULT_POLICY: _Rules(Policy(name=DEFAULT_POLICY))}
    rules[_NOBODY.policy] = _Rules(Policy(name=_NOBODY.policy, allow=()))
    rules.update((policy.name, _Rules(policy)) for policy in policies)
    return rules


def _visible_to(
    rules: _Rules,
    groups: Iterable[str],
    tools: Sequence[Tool],
    nodes: Sequence[Node],
    *,
    flags: Mapping[str, Flags],
    held: Mapping[str, str],
) -> VisibleCatalogue:
    """What a caller of this policy sees of one generation. `flags` by fingerprint; `held`: reasons, by tool id."""
    groups = frozenset(groups)
    visible: list[Tool] = []
    refused: dict[str, CatalogueError] = {}
    for tool in tools:
        tool_flags = flags.get(tool.fingerprint, ())
        if not rules.holds(tool, tool_flags):
            continue
        if not rules.allows(tool, groups, tool_flags):
            # Without `reveal` a refusal would tell that the tool exists.
            if rules.reveals(tool, tool_flags):
                refused[tool.tool_id.casefold()] = _not_authorized(tool)
        elif tool.tool_id in held:
            refused[tool.tool_id.casefold()] = _held_back(tool, held[tool.tool_id])
        else:
            visible.append(tool)
    return VisibleCatalogue(visible, nodes, refused)


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


def _configured_patterns(settings: Settings, hidden: Sequence[str]) -> list[tuple[str, str]]:
    """Where patterns stand in the settings, with each; but for rules that hide these tools, which are nowhere else."""
    return [
        *(
            (f"[policy.{policy.name}] {key}", text)
            for policy in settings.policies
            for key in ("allow", "deny", "confirm", "reveal")
            for text in getattr(policy, key)
        ),
        *((f"[subsets.{subset.name}]", text) for subset in settings.subsets for text in subset.tools),
        *(
            ("[tools]", rule.match)
            for rule in settings.rules
            if not (rule.hide and fnmatch_filter(hidden, rule.match.casefold()))
        ),
        *(("[discovery] pin", text) for text in settings.discovery.pin),
    ]


_MAX_VIEWS = 256


class AccessControl:
    """The policies of one configuration, applied to one catalogue."""

    def __init__(
        self,
        catalogue: Catalogue,
        settings: Settings,
        trust: TrustMonitor,
        servers: UpstreamManager | None = None,
        store: Store | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._servers = servers
        self._trust = trust
        self._whole = CatalogueView(catalogue, servers=servers)
        self._views: BoundedDict[tuple[str, tuple[str, ...], str, str], CatalogueView] = BoundedDict(_MAX_VIEWS)
        # Callers as earlier settings had them, which sessions may still hold.
        self._outdated: dict[tuple[str, str, tuple[str, ...]], CallerKey | None] = {}
        self.quotas = _QuotaKeeper(store, settings)
        self.approvals = Approvals()
        self._use_settings(settings)

    async def aclose(self) -> None:
        await self.quotas.aclose()

    def is_admin(self, caller: Caller) -> bool:
        """Whether a caller's policy lets it do what the owner does."""
        rules = self._rules.get(self.resolve(caller).policy)
        return rules is not None and rules.policy.admin

    def _use_settings(self, settings: Settings) -> None:
        self._settings = settings
        self._subsets = {subset.name: subset.tools for subset in settings.subsets}
        self._callers = {entry.name: entry for entry in settings.callers}
        self._local = self._callers.get(LOCAL_NAME)
        self._groups = frozenset(group for rule in settings.rules for group in rule.access)
        self._rules = _compile_policies(settings.policies)
        self._unrestricted = {name: self._allows_all(rules) for name, rules in self._rules.items()}

    def reconfigure(self, settings: Settings) -> None:
        """Takes over other policies and callers, at once and for everybody, sessions that are open included."""
        known = {*self._outdated, *((key.name, key.policy, key.groups) for key in self._callers.values())}
        self._use_settings(settings)
        self.quotas.reconfigure(settings)
        self._views.clear()
        now = {(key.name, key.policy, key.groups) for key in self._callers.values()}
        self._outdated = {key: self._callers.get(key[0]) for key in known - now if key[0] != LOCAL_NAME}

    def _allows_all(self, rules: _Rules) -> bool:
        return rules.allows_everything and not (self._groups or self._trust.holds_tools or rules.asks_flags)

    def resolve(self, caller: Caller) -> Caller:
        """The caller with its policy: what `[callers.local]` says holds for whoever runs the gateway."""
        if self._outdated and (key := (caller.name, caller.policy, caller.groups)) in self._outdated:
            entry = self._outdated[key] or _NOBODY
            return replace(caller, policy=entry.policy, groups=entry.groups)
        if self._local is None or caller.name != LOCAL_NAME or caller.policy != DEFAULT_POLICY or caller.groups:
            return caller
        return replace(caller, policy=self._local.policy, groups=self._local.groups)

    def view(self, caller: Caller = LOCAL) -> CatalogueView:
        """What this caller may see. Raises `ConfigError` for a policy that does not exist."""
        caller = self.resolve(caller)
        unrestricted = self._unrestricted.get(caller.policy)
        if unrestricted is None:
            raise ConfigError(
                f"there is no policy {caller.policy[:80]!r}",
                hints=sorted(self._rules),
                next_action="name one of the policies in hints, or add a [policy.NAME] table to the configuration",
            )
        # Servers that each caller signs in to itself list other tools to each.
        own = caller.name if self._servers is not None and self._servers.per_caller else ""
        if unrestricted and not caller.subset and not own:
            return self._whole
        # A directory knows hundreds of groups of a person: callers who differ in no group that counts share a view.
        key = (caller.policy, tuple(sorted(self._groups.intersection(caller.groups))), caller.subset, own)
        view = self._views.get(key)
        if view is None:
            rules = self._rules[caller.policy]
            rules = _Rules(rules.policy, self.subset(caller.subset)) if caller.subset else rules
            view = self._views[key] = self._restricted(rules, key[1], own)
        return view

    def subset(self, name: str) -> tuple[str, ...]:
        """The patterns of a subset. Raises `ConfigError` where there is none of that name."""
        if name not in self._subsets:
            raise ConfigError(
                f"there is no subset {name[:80]!r}",
                hints=sorted(self._subsets),
                next_action="name one of the subsets in hints, or add a [subsets.NAME] table to the configuration",
            )
        return self._subsets[name]

    def _restricted(self, rules: _Rules, groups: tuple[str, ...], own: str) -> CatalogueView:
        async def hidden() -> frozenset[tuple[str, str]]:
            servers = self._servers
            if servers is None or not own:
                return frozenset()
            return await servers.caller_tools.hidden_from(own, servers.per_caller)

        async def stamp() -> object:
            return await self._trust.stamp(), await hidden()

        async def compile_view(view: Snapshot) -> VisibleCatalogue:
            gone = await hidden()
            found = [tool async for batch in tool_batches(view) for tool in batch]
            tools = [tool for tool in found if not gone or (tool.server, tool.definition.sent_key) not in gone]
            review = TrustReview()
            if self._trust.holds_tools or rules.asks_flags:
                review = await self._trust.review_tools(view.generation, tools)
            nodes = await view.nodes()
            # Matching 100,000 tools against patterns takes a second: not on the event loop.
            return await asyncio.to_thread(
                _visible_to, rules, groups, tools, nodes, flags=review.flags, held=review.held
            )

        return CatalogueView(self._catalogue, compile_view, stamp, self._servers, rules.hides, own=own)

    def allows_unlisted(self, resource: Tool, caller: Caller) -> bool:
        """Whether this caller may read a resource that its server does not list: it is nowhere in the tree, and nobody
        has accepted it."""
        caller = self.resolve(caller)
        rules = _Rules(self._rules[caller.policy].policy, self.subset(caller.subset) if caller.subset else ("**",))
        accepted = self._settings.trust.accept_new
        return accepted and rules.holds(resource) and rules.allows(resource, caller.groups)

    def check_program(self, program: Tool, caller: Caller) -> None:
        """Raises `NotAuthorized` where the caller's policy does not allow this program of the toolbox."""
        caller = self.resolve(caller)
        self.view(caller)  # a policy that does not exist is named here
        if not self._rules[caller.policy].allows(program, caller.groups):
            raise NotAuthorized(
                f"your policy does not allow {program.tool_id}",
                next_action="do it with the tools that you have; whoever runs the gateway can allow it: "
                f"{program.tool_id} in `allow` of the policy `{caller.policy}`",
            )

    async def whole_servers(self, caller: Caller) -> frozenset[str] | None:
        """The servers of which this caller may see every tool; `None`: its policy hides none. What is held back is
        hidden from everybody and does not count."""
        caller, whole = self.resolve(caller), self._catalogue
        view = self.view(caller)
        allows_everything = self._rules[caller.policy].allows_everything and not caller.subset
        if view.unrestricted or (allows_everything and not self._groups):
            return None
        if not await whole.generations():
            return frozenset()
        async with whole.snapshot() as snapshot, view.catalogue.snapshot() as visible:
            tools = {record.name: (record.tools, record.others) for record in await snapshot.servers()}
            seen = await visible.servers()
            return frozenset(entry.name for entry in seen if (entry.tools, entry.others) == tools.get(entry.name))

    async def unused_patterns(self) -> Sequence[tuple[str, str]]:
        """Patterns of the settings that fit no tool there is: where each stands, and the pattern."""
        async with self._catalogue.snapshot() as view:
            tools = [tool async for batch in tool_batches(view) for tool in batch]
            hidden = [tool_id.casefold() for record in await view.servers() for tool_id in record.hidden]
            flags = (await self._trust.review_tools(view.generation, tools)).flags
        patterns = _configured_patterns(self._settings, hidden)
        return await asyncio.to_thread(
            lambda: [(where, text) for where, text in patterns if not _fits_any(text, tools, flags)]
        )

    def requires_confirmation(self, call: ToolCall, context: CallContext) -> bool:
        """Whether the caller's policy wants a person to confirm this call."""
        rules = self._rules[context.caller.policy]
        if rules.confirms_nothing:
            return False
        return rules.confirms(call.tool, self._trust.latest.flags.get(call.tool.fingerprint, ()))
