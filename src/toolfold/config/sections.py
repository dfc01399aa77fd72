"""The settings as frozen values. Each field states its type, its bounds and its default, once; nothing reads a file.

`validation` reads the annotations, so a new setting is one line here. Above: every layer that is configured.
"""

import re
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

KIB, MIB, GIB = 1024, 1024**2, 1024**3
# What may stand before a colon in a policy's pattern; without a colon it is a tool's id.
PATTERN_KINDS = ("path", "tag", "risk", "server", "flag", "resource", "template", "prompt", "skill")
# What may stand after `risk:`, besides those that the owner gives tools.
RISKS = ("destructive", "read-only", "idempotent", "open-world", "unstated")
# The caller that is whoever runs toolfold on this machine, and the shortest key that any other may have.
LOCAL_NAME = "local"
MIN_KEY_LENGTH = 16


def _range(low: float, high: float, unit: str = "") -> Meta:
    """Both bounds belong to the range; the unit is for error messages."""
    return Meta(ge=low, le=high, extra={"unit": unit})


_ResponseBytes = Annotated[int, _range(256, GIB, "bytes")]
_ResponseTokens = Annotated[int, _range(64, GIB, "tokens")]
_Seconds = Annotated[float, _range(0.1, 86_400, "seconds")]
# In the file one string may stand for a list of one.
_OneOrMore = Annotated[tuple[str, ...], Meta(extra={"single": True})]


class PartialRepr(Struct, frozen=True):
    """A value whose printed form has only the `printed` fields, since others may hold secrets."""

    printed: ClassVar[tuple[str, ...]]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__.lstrip('_')}({fields})"

    # `rich` prints fields by itself, so both forms must leave the others out.
    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self.printed]


# One result may take this part of a window, so that some thirty of them fit beside the instructions.
RESULT_SHARE = 32


class Limits(Struct, frozen=True, kw_only=True):
    """How long and how large things may get."""

    tool_response_max_bytes: _ResponseBytes = 12288
    """A larger tool result is stored, and the model gets a handle instead."""
    tool_response_max_tokens: _ResponseTokens | None = None
    """So is one that would take more tokens than this; without it, than a 32nd of `context_tokens`."""
    context_tokens: Annotated[int, _range(2048, 100_000_000, "tokens")] = 128_000
    """The window of the models that read results: no single result shall take more than its share of it."""
    tool_media_max_bytes: Annotated[int, _range(0, GIB, "bytes")] = 5 * MIB
    """Pictures and sound up to this size go to the model as they came; it reads them otherwise than text."""
    call_timeout_s: _Seconds = 60.0
    start_timeout_s: Annotated[float, _range(0.1, 3_600, "seconds")] = 30.0
    """From starting a server to the end of its list of tools."""
    max_frame_bytes: Annotated[int, _range(64 * KIB, 4 * GIB, "bytes")] = 64 * MIB
    """The largest single message that is held in memory."""
    max_output_bytes: Annotated[int, _range(64 * KIB, 1024 * GIB, "bytes")] = 2 * GIB
    """The largest answer to a tool call that is stored: it streams to a file and is never held in memory."""
    idle_s: Annotated[float, _range(0, 31_536_000, "seconds")] = 1800.0
    """A server's process that nobody called for so long is ended, and started again by the next call; 0: never."""
    parallel_starts: Annotated[int, _range(1, 1024, "servers")] = 32
    drain_s: Annotated[float, _range(0, 86_400, "seconds")] = 30.0
    """How long requests under way may go on after a signal to stop; `serve --http` then ends them."""
    drain_notice_s: Annotated[float, _range(0, 3_600, "seconds")] = 0.0
    """How long it answers after that signal in any case, of `drain_s`: a balancer that asks `/readyz` notices."""

    @property
    def response_tokens(self) -> int:
        """The token limit of a result."""
        return self.tool_response_max_tokens or self.context_tokens // RESULT_SHARE


class Defaults(PartialRepr, frozen=True, kw_only=True):
    """What every server that is a program gets."""

    printed = ("inherit_env",)

    env: dict[str, str] = {}
    """Variables for each; a server's own `env` wins."""
    inherit_env: _OneOrMore = ()
    """Variables of toolfold's own environment that are passed on besides the usual ones, with `*` for any text."""


class Extraction(Struct, frozen=True, kw_only=True):
    """How a question is asked of a large document: thresholds and budgets, of one extraction each."""

    max_chunks_for_full_mode: Annotated[int, _range(1, 1000, "chunks")] = 1
    average_line_bytes: Annotated[int, _range(1, 100 * MIB, "bytes")] = 1000
    chunk_overlap_percent: Annotated[int, _range(0, 90, "percent")] = 10
    max_chunks: Annotated[int, _range(1, 10_000, "chunks")] = 64
    """A document of more chunks is searched without the model."""
    answer_tokens: Annotated[int, _range(200, 1_000_000, "tokens")] = 2000
    """What an answer made without a model, or by truncation, may take."""
    extract_parallel: Annotated[int, _range(1, 256, "calls")] = 4
    """Chunks that the model reads at once."""
    extract_timeout_s: _Seconds = 120.0
    extract_max_tokens: Annotated[int, _range(0, 1_000_000_000, "tokens")] = 0
    """Tokens that the model calls of one extraction may take together; 0: no bound."""
    extract_max_cost: Annotated[float, _range(0, 1_000_000, "US dollars")] = 0.0
    """US dollars, the same way. Only models that tell their price can be held to it."""


class Outputs(Extraction, frozen=True, kw_only=True):
    """Where large results are stored, and how they are extracted from."""

    directory: str = "/tmp"  # noqa: S108 - the documented default; each session makes a private folder inside
    lifetime_s: Annotated[float, _range(1, 31_536_000, "seconds")] = 86_400.0
    """How long a stored result can be read, if its session does not end before."""
    reference_max_bytes: Annotated[int, _range(256, GIB, "bytes")] = 16 * MIB
    """How much of a stored result may stand in for `{"$output": …}` in the arguments of one call."""
    shared: Annotated[str, Meta(pattern=r"^(?:auto|off|store|s3://.+)$")] = "auto"
    """Whether every gateway of the store can read them: `store` keeps a copy there, `s3://bucket/prefix` in a bucket.
    `auto`: in the store, where that is one that gateways on several machines share."""
    shared_max_bytes: Annotated[int, _range(0, 4 * GIB, "bytes")] = 64 * MIB
    """A larger one is read by the one gateway that stored it."""
    redact_secrets: bool = False
    """Take what looks like a secret out of results: tokens of a known form, passwords in addresses, private keys."""
    send_once: bool = False
    """Leave `structuredContent` out of a result whose text says the same: for clients that read either."""


class Discovery(Struct, frozen=True, kw_only=True):
    """How models may go about finding and calling tools."""

    strict: bool = False
    """A model's call of a tool is refused until it has expanded the version that is there."""
    expand_hits: bool = True
    """A search shows a model what those hits take that a few lines tell whole, and that counts as expanding them."""
    pin: _OneOrMore = ()
    """Ids or globs over ids: these tools stand beside the discovery operations."""
    pin_used: Annotated[int, _range(0, 20, "tools")] = 3
    """Of the tools that a caller uses most, so many stand there by themselves in the profile `auto`; 0: none."""


class Scripts(Struct, frozen=True, kw_only=True):
    """What one script may use and ask for, and how many children wait for the next."""

    wall_s: _Seconds = 60.0
    """From its start to its end. Waiting for a person's answer does not count."""
    cpu_s: Annotated[int, _range(1, 86_400, "seconds")] = 60
    memory_bytes: Annotated[int, _range(128 * MIB, 1024 * GIB, "bytes")] = GIB
    scratch_bytes: Annotated[int, _range(MIB, 1024 * GIB, "bytes")] = 64 * MIB
    output_bytes: Annotated[int, _range(KIB, GIB, "bytes")] = MIB
    """Of what it prints; more is dropped, and the result says so."""
    calls: Annotated[int, _range(1, 10_000_000, "calls")] = 10_000
    calls_at_once: Annotated[int, _range(1, 1000, "calls")] = 16
    inline_bytes: Annotated[int, _range(KIB, GIB, "bytes")] = 256 * KIB
    """A larger tool result stays with the host until the script looks into it."""
    kept_bytes: Annotated[int, _range(MIB, 64 * GIB, "bytes")] = 256 * MIB
    """Of such results together."""
    at_once: Annotated[int, _range(1, 1000, "scripts")] = 16
    """Scripts that run at the same time, a quarter of them only for callers who run less than an equal share; the rest
    waits, callers in turn, each script as long as it may itself take."""
    ready: Annotated[int, _range(0, 64, "processes")] = 2
    """Children that are confined and waiting before a script needs one."""
    unsafe: bool = False
    """Run scripts without a sandbox. Every result then says so."""


class Model(PartialRepr, frozen=True, kw_only=True):
    """The model that extracts and plans. Without a name everything works that needs no model."""

    printed = ("name", "base_url")

    name: str | None = None
    base_url: str = ""
    """An endpoint with OpenAI's chat completions; empty: the provider that the name says."""
    key: str = ""
    context_tokens: Annotated[int, _range(512, 100_000_000, "tokens")] | None = None
    """Without it 32,768 for an endpoint and 128,000 for a provider; of these, 4,096 and 8,192 for an answer."""
    max_output_tokens: Annotated[int, _range(16, 10_000_000, "tokens")] | None = None
    calls_tools: bool = True
    """Whether the endpoint knows tool calls; else the model is asked for JSON commands."""
    timeout_s: _Seconds = 300.0
    """For one answer; of one that is streamed, for each piece of it."""
    temperature: Annotated[float, _range(0, 2)] | None = None
    """Without it the provider's own."""
    stream: bool = False
    """Whether answers are asked for piece by piece: a slow model then has `timeout_s` for each."""


class _Quotas(Struct, frozen=True, kw_only=True):
    """What one caller may use, over all gateways on one store; 0: as much as it likes. A policy or a caller may have
    quotas of its own."""

    calls_per_minute: Annotated[int, _range(0, 100_000_000, "calls")] = 0
    calls_at_once: Annotated[int, _range(0, 1_000_000, "calls")] = 0
    stored_bytes_per_day: Annotated[int, _range(0, 1024 * GIB, "bytes")] = 0
    """Of results that are too large to show."""
    script_s_per_hour: Annotated[int, _range(0, 100_000_000, "seconds")] = 0


class Policy(Struct, frozen=True, kw_only=True):
    """What a caller may see and call, as patterns over ids, paths, tags, risks and servers. `deny` wins."""

    name: str
    allow: tuple[str, ...] = ("**",)
    deny: tuple[str, ...] = ()
    confirm: tuple[str, ...] = ()
    """Calls that a person must confirm first."""
    reveal: tuple[str, ...] = ()
    """What a caller may know of though it may not use it: the answer is then `NOT_AUTHORIZED`."""
    claims: dict[str, Any] = {}
    """Whoever comes in with a token in which all of these stand has this policy; `a.b` is `b` in `a`."""
    scopes: _OneOrMore = ()
    """What such a token must be granted besides; the answer is else `insufficient_scope`."""
    quotas: dict[str, Any] = {}
    """Of each caller with this policy, in place of those of the table [quotas]."""
    admin: bool = False
    """Whether it may change servers, policies, callers and trust over `/v1/admin`: all that the owner may."""


class Subset(Struct, frozen=True, kw_only=True):
    """Some of the tools under a name of their own, to be served alone. A caller's policy holds there as well."""

    name: str
    tools: _OneOrMore = ("**",)
    """Patterns, as in a policy."""


class CallerKey(PartialRepr, frozen=True, kw_only=True):
    """Somebody who may come in, by a key, or on stdio by a client's name. `local` has neither: it is whoever runs
    toolfold on this machine."""

    printed = ("name", "policy", "groups")

    name: str
    key: str = ""
    """With its `${…}` references still in place. No printed form shows it."""
    client: str = ""
    """What an MCP client on stdio calls itself, instead of a key. Nothing proves it: any program may use the name."""
    policy: str = "default"
    groups: _OneOrMore = ()
    quotas: dict[str, Any] = {}
    """In place of its policy's and of those of the table [quotas]."""


class Auth(PartialRepr, frozen=True, kw_only=True):
    """Tokens of an identity provider, with which callers may come in beside those that have keys."""

    printed = ("issuer", "resource", "audience", "required_scopes", "policy", "name_claim", "groups_claim")

    issuer: str = ""
    """The provider's issuer, to the letter: its metadata and its tokens must name the same."""
    resource: str = ""
    """The public address of MCP here, such as https://tools.example.com/mcp; empty: the one that is served on."""
    audience: _OneOrMore = ()
    """What tokens must be issued for, one of these; empty: `resource`."""
    required_scopes: _OneOrMore = ()
    """What every token must be granted."""
    policy: str = ""
    """For tokens that the claims of no policy fit; empty: they are refused."""
    name_claim: str = "sub"
    """What tells callers apart: it must never change, and never belong to another."""
    groups_claim: str = "groups"
    clock_skew_s: Annotated[float, _range(0, 300, "seconds")] = 30.0
    """How far the clocks of issuer and gateway may be apart."""
    jwks_uri: str = ""
    """Where the issuer's keys are; empty: its metadata says."""
    keys_max_age_s: Annotated[float, _range(1, 604_800, "seconds")] = 86_400.0
    """How long known keys are used while the issuer cannot be reached."""
    introspection_client: str = ""
    """The client by which opaque tokens are asked for; empty: they are refused."""
    introspection_secret: str = ""
    introspection_uri: str = ""
    """Where they are asked for; empty: the issuer's metadata says."""


class _Search(Struct, frozen=True, kw_only=True):
    """What search understands requests with."""

    encoder: Literal["small", "large"] = "small"
    """`large` finds more by people's own words, for more time and memory. Needs the extra `large`."""


class _Storage(PartialRepr, frozen=True, kw_only=True):
    """Where the catalogue and all that gateways share is kept."""

    printed = ("connections", "timeout_s")

    url: str = ""
    """`postgresql://…`, which several gateways may share; empty: a SQLite file in the state folder. With its `${…}`
    references still in place: no printed form shows it."""
    listen_url: str = ""
    """Straight to PostgreSQL, where `url` leads through a pooler that passes no notifications on; empty: `url`."""
    connections: Annotated[int, _range(2, 1000, "connections")] = 10
    """Of one gateway to PostgreSQL, at most; one more hears what others write."""
    timeout_s: Annotated[float, _range(0.5, 600, "seconds")] = 10.0
    """How long PostgreSQL may take to let a gateway in, and for one statement."""


class _Ontology(Struct, frozen=True, kw_only=True):
    """The person's own order of the tree."""

    file: str = ""


class Trust(Struct, frozen=True, kw_only=True):
    """What happens to a tool that is new, or that changed since it was accepted."""

    hold_changed: bool = False
    """Hold a changed tool back until `toolfold trust ID`. It is reported in any case."""
    accept_new: bool = True
    """Take a tool that was never listed before as accepted."""


class Audit(Struct, frozen=True, kw_only=True):
    """What the audit log records of every step, and for how long."""

    enabled: bool = True
    values: Literal["shapes", "masked", "full"] = "shapes"
    """Of arguments: `shapes` (names, kinds and sizes), `masked` (values, cut, secrets masked), `full`."""
    max_entries: Annotated[int, _range(100, 100_000_000, "entries")] = 100_000
    keep_days: Annotated[int, _range(1, 3_650, "days")] = 30
    learn: bool = True
    """Let search learn from it: a tool that was chosen for a request and worked rises for requests like it."""

    @property
    def learns(self) -> bool:
        """What is not recorded teaches nothing."""
        return self.enabled and self.learn


class Telemetry(Struct, frozen=True, kw_only=True):
    """Traces and logs in the field's own forms."""

    traces: bool = False
    """Make OpenTelemetry spans. Needs the extra `otel`."""
    endpoint: str = ""
    """Where spans go, over OTLP and HTTP; empty: as the OTEL_… variables say."""
    metrics: bool = False
    """Send the duration histograms of MCP's conventions. Needs the extra `otel`."""
    metrics_endpoint: str = ""
    """Where they go, the same way."""
    audit: bool = False
    """Send the audit log as OTLP logs, each record at least once. Needs the extra `otel`."""
    audit_endpoint: str = ""
    """Where it goes, the same way."""
    logs: Literal["text", "json"] = "text"


class SignIn(PartialRepr, frozen=True, kw_only=True):
    """How callers sign in to servers from inside a conversation, and where what they signed in to is kept."""

    printed = ("public_url", "shared")

    public_url: str = ""
    """Where browsers reach `toolfold serve --http`: `https://tools.example.com`. Empty: the origin of `auth.resource`,
    else the address it serves on."""
    shared: Literal["auto", "off", "store"] = "auto"
    """Whether sign-ins are kept in the store, sealed, for all its gateways. `auto`: where gateways on several machines
    share it."""
    key: str = ""
    """What sign-ins in the store are sealed with, where `TOOLFOLD_VAULT_KEY` is not set: a reference such as
    `${env:NAME}`, the same for all gateways."""


class _Serve(PartialRepr, frozen=True, kw_only=True):
    """How `toolfold serve --http` serves."""

    printed = ()
    seal_keys: _OneOrMore = ()
    """Secrets that ids of sessions and states of requests are sealed with, as `${env:NAME}` and the like: the first
    seals, the others still open. The same for all gateways on one store. Without: keys in the store, which rotate."""


class MetadataRule(Struct, frozen=True):
    """What the owner says of tools whose id fits `match`, a glob. Rules add up; of several costs the last counts."""

    match: str
    cost: Annotated[float, _range(0, 1_000_000_000)] | None = None
    risk: _OneOrMore = ()
    access: _OneOrMore = ()
    tags: _OneOrMore = ()
    max_bytes: _ResponseBytes | None = None
    """Instead of `limits.tool_response_max_bytes`; of several rules the last counts."""
    max_tokens: _ResponseTokens | None = None
    """Instead of `limits.tool_response_max_tokens`."""
    name: str = ""
    """Another name for the one tool that `match` names."""
    description: str = ""
    """In place of what its server says of it."""
    hide: bool = False
    """Leave it out of the catalogue: nobody finds or calls it."""
    fixed: dict[str, Any] = {}
    """Parameters with the value they always have: they leave the schema, and are sent with every call."""

    def may_be_about(self, server: str) -> bool:
        """Whether it may fit a tool of a server, whichever it has: by what stands before the pattern's first mark."""
        head, front = re.split(r"[*?\[]", self.match.casefold(), maxsplit=1)[0], f"{server.casefold()}."
        return head.startswith(front) or front.startswith(head)


# Every plain section of `toolfold.toml`. The environment may override each of their settings.
SECTIONS: dict[str, type[Struct]] = {
    "limits": Limits,
    "defaults": Defaults,
    "outputs": Outputs,
    "discovery": Discovery,
    "search": _Search,
    "scripts": Scripts,
    "model": Model,
    "ontology": _Ontology,
    "trust": Trust,
    "audit": Audit,
    "telemetry": Telemetry,
    "auth": Auth,
    "sign_in": SignIn,
    "storage": _Storage,
    "serve": _Serve,
    "quotas": _Quotas,
}
