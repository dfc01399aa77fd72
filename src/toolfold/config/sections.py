"""The settings as frozen values, and the bounds of each. Nothing here reads a file.

Above: every layer that is configured. Below: the types. A new setting is one field here and one line in `BOUNDS`.
"""

from msgspec import Struct

KIB, MIB, GIB = 1024, 1024**2, 1024**3


class Limits(Struct, frozen=True, kw_only=True):
    """How long and how large things may get."""

    tool_response_max_bytes: int = 12288
    """A larger tool result is stored, and the model gets a handle instead."""
    tool_response_max_tokens: int = 12288
    """So is one that would take more tokens than this."""
    tool_media_max_bytes: int = 5 * MIB
    """Pictures and sound up to this size go to the model as they came; it reads them otherwise than text."""
    call_timeout_s: float = 60.0
    start_timeout_s: float = 30.0
    """From starting a server to the end of its list of tools."""
    max_frame_bytes: int = 64 * MIB
    """The largest single message that is held in memory."""
    max_output_bytes: int = 2 * GIB
    """The largest answer to a tool call that is stored: it streams to a file and is never held."""
    parallel_starts: int = 32


class Extraction(Struct, frozen=True, kw_only=True):
    """How a question is asked of a large document: thresholds and budgets, of one extraction each."""

    max_chunks_for_full_mode: int = 1
    average_line_bytes: int = 1000
    chunk_overlap_percent: int = 10
    max_chunks: int = 64
    """A document of more chunks is searched without the model."""
    answer_tokens: int = 2000
    """What an answer made without a model, or by truncation, may take."""
    extract_parallel: int = 4
    """Chunks that the model reads at once."""
    extract_timeout_s: float = 120.0
    extract_max_tokens: int = 0
    """Tokens that the model calls of one extraction may take together; 0: no bound."""
    extract_max_cost: float = 0.0
    """US dollars, the same way. Only models that tell their price can be held to it."""


class Outputs(Extraction, frozen=True, kw_only=True):
    """Where large results are kept, and how they are extracted from."""

    directory: str = "/tmp"  # noqa: S108 - the documented default; each session makes a private folder inside
    lifetime_s: float = 86_400.0
    """How long a stored result can be read, if its session does not end before."""
    reference_max_bytes: int = 16 * MIB
    """How much of a stored result may stand in for `{"$output": …}` in the arguments of one call."""


class Discovery(Struct, frozen=True, kw_only=True):
    """How models may go about finding and calling tools."""

    strict: bool = False
    """A model's call of a tool is refused until it has expanded the version that is there."""


class Scripts(Struct, frozen=True, kw_only=True):
    """What one script may use and ask for, and how many children wait for the next."""

    wall_s: float = 60.0
    """From its start to its end. Waiting for a person's answer does not count."""
    cpu_s: int = 60
    memory_bytes: int = GIB
    scratch_bytes: int = 64 * MIB
    output_bytes: int = MIB
    """Of what it prints; more is dropped and told."""
    calls: int = 10_000
    calls_at_once: int = 16
    inline_bytes: int = 256 * KIB
    """A larger tool result stays with the host until the script looks into it."""
    kept_bytes: int = 256 * MIB
    """Of such results together."""
    at_once: int = 16
    """Scripts that run at the same time; others wait, each as long as it may itself take."""
    ready: int = 2
    """Children that are confined and waiting before a script needs one."""
    unsafe: bool = False
    """Run scripts without a sandbox. Every result then says so."""


class Model(Struct, frozen=True, kw_only=True):
    """The model that extracts and plans. Without a name everything works that needs no model."""

    name: str | None = None
    base_url: str = ""
    """An endpoint with OpenAI's chat completions; empty: the provider that the name says."""
    key: str = ""
    context_tokens: int | None = None
    """Without it 32,768 for an endpoint and 128,000 for a provider; of these, 4,096 and 8,192 for an answer."""
    max_output_tokens: int | None = None
    calls_tools: bool = True
    """Whether the endpoint knows tool calls; else the model is asked for JSON commands."""

    def __repr__(self) -> str:
        return f"Model(name={self.name!r}, base_url={self.base_url!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("name", self.name), ("base_url", self.base_url)]


class Policy(Struct, frozen=True, kw_only=True):
    """What a caller may see and call, as patterns over ids, paths, tags, risks and servers. `deny` wins."""

    name: str
    allow: tuple[str, ...] = ("**",)
    deny: tuple[str, ...] = ()
    confirm: tuple[str, ...] = ()
    """Calls that a person must confirm first."""
    reveal: tuple[str, ...] = ()
    """What a caller may know of though it may not use it: the answer is then `NOT_AUTHORIZED`."""


class CallerKey(Struct, frozen=True, kw_only=True):
    """Somebody who may come in, by a key. `local`, without one, is whoever runs toolfold on this machine."""

    name: str
    key: str = ""
    """With its `${…}` references still in place. Its printed form is never shown."""
    policy: str = "default"
    groups: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"CallerKey(name={self.name!r}, policy={self.policy!r}, groups={self.groups!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("name", self.name), ("policy", self.policy), ("groups", self.groups)]


class Trust(Struct, frozen=True, kw_only=True):
    """What happens to a tool that is new, or that changed since it was accepted."""

    hold_changed: bool = False
    """Hold a changed tool back until `toolfold trust ID`. It is reported in any case."""
    accept_new: bool = True
    """Take a tool that was never seen before as accepted."""


class Audit(Struct, frozen=True, kw_only=True):
    """What the trail of every step keeps, and for how long."""

    enabled: bool = True
    values: str = "shapes"
    """Of arguments: `shapes` (names, kinds and sizes), `masked` (values, cut, secrets masked), `full`."""
    max_entries: int = 100_000
    keep_days: int = 30
    learn: bool = False
    """Let search learn from it: a tool that was chosen for a request and worked rises for requests like it."""


class Telemetry(Struct, frozen=True, kw_only=True):
    """Traces and logs in the field's own forms."""

    traces: bool = False
    """Make OpenTelemetry spans. Needs the extra `otel`."""
    endpoint: str = ""
    """Where spans go, over OTLP and HTTP; empty: as the OTEL_… variables say."""
    logs: str = "text"


class MetadataRule(Struct, frozen=True):
    """What the owner says of tools whose id fits `match`, a glob. Rules add up; of several costs the last counts."""

    match: str
    cost: float | None = None
    risk: tuple[str, ...] = ()
    access: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    max_bytes: int | None = None
    """Instead of `limits.tool_response_max_bytes`; of several rules the last counts."""
    max_tokens: int | None = None
    """Instead of `limits.tool_response_max_tokens`."""


class Bounds(Struct, frozen=True):
    """The kind of a setting and the range it may take."""

    kind: type[int] | type[float] | type[str] | type[bool]
    low: float = 0
    high: float = 0
    unit: str = ""
    choices: tuple[str, ...] = ()
    """For a string: the only values it may take."""


SECTIONS: dict[str, dict[str, Bounds]] = {
    "limits": {
        "tool_response_max_bytes": Bounds(int, 256, GIB, "bytes"),
        "tool_response_max_tokens": Bounds(int, 64, GIB, "tokens"),
        "tool_media_max_bytes": Bounds(int, 0, GIB, "bytes"),
        "call_timeout_s": Bounds(float, 0.1, 86_400, "seconds"),
        "start_timeout_s": Bounds(float, 0.1, 3_600, "seconds"),
        "max_frame_bytes": Bounds(int, 64 * KIB, 4 * GIB, "bytes"),
        "max_output_bytes": Bounds(int, 64 * KIB, 1024 * GIB, "bytes"),
        "parallel_starts": Bounds(int, 1, 1024, "servers"),
    },
    "outputs": {
        "directory": Bounds(str),
        "lifetime_s": Bounds(float, 1, 31_536_000, "seconds"),
        "reference_max_bytes": Bounds(int, 256, GIB, "bytes"),
        "max_chunks_for_full_mode": Bounds(int, 1, 1000, "chunks"),
        "average_line_bytes": Bounds(int, 1, 100 * MIB, "bytes"),
        "chunk_overlap_percent": Bounds(int, 0, 90, "percent"),
        "max_chunks": Bounds(int, 1, 10_000, "chunks"),
        "answer_tokens": Bounds(int, 200, 1_000_000, "tokens"),
        "extract_parallel": Bounds(int, 1, 256, "calls"),
        "extract_timeout_s": Bounds(float, 0.1, 86_400, "seconds"),
        "extract_max_tokens": Bounds(int, 0, 1_000_000_000, "tokens"),
        "extract_max_cost": Bounds(float, 0, 1_000_000, "US dollars"),
    },
    "discovery": {"strict": Bounds(bool)},
    "scripts": {
        "wall_s": Bounds(float, 0.1, 86_400, "seconds"),
        "cpu_s": Bounds(int, 1, 86_400, "seconds"),
        "memory_bytes": Bounds(int, 128 * MIB, 1024 * GIB, "bytes"),
        "scratch_bytes": Bounds(int, MIB, 1024 * GIB, "bytes"),
        "output_bytes": Bounds(int, KIB, GIB, "bytes"),
        "calls": Bounds(int, 1, 10_000_000, "calls"),
        "calls_at_once": Bounds(int, 1, 1000, "calls"),
        "inline_bytes": Bounds(int, KIB, GIB, "bytes"),
        "kept_bytes": Bounds(int, MIB, 64 * GIB, "bytes"),
        "at_once": Bounds(int, 1, 1000, "scripts"),
        "ready": Bounds(int, 0, 64, "processes"),
        "unsafe": Bounds(bool),
    },
    "model": {
        "name": Bounds(str),
        "base_url": Bounds(str),
        "key": Bounds(str),
        "context_tokens": Bounds(int, 512, 100_000_000, "tokens"),
        "max_output_tokens": Bounds(int, 16, 10_000_000, "tokens"),
        "calls_tools": Bounds(bool),
    },
    "ontology": {"file": Bounds(str)},
    "trust": {"hold_changed": Bounds(bool), "accept_new": Bounds(bool)},
    "audit": {
        "enabled": Bounds(bool),
        "values": Bounds(str, choices=("shapes", "masked", "full")),
        "max_entries": Bounds(int, 100, 100_000_000, "entries"),
        "keep_days": Bounds(int, 1, 3_650, "days"),
        "learn": Bounds(bool),
    },
    "telemetry": {
        "traces": Bounds(bool),
        "endpoint": Bounds(str),
        "logs": Bounds(str, choices=("text", "json")),
    },
}
"""Every plain section of `toolfold.toml`. The environment may override each of these."""

COST = Bounds(float, 0, 1_000_000_000)

TOOL_LIMITS = {
    "max_bytes": SECTIONS["limits"]["tool_response_max_bytes"],
    "max_tokens": SECTIONS["limits"]["tool_response_max_tokens"],
}
"""What `[tools."glob"]` may say instead of `[limits]`."""
