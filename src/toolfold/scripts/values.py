"""The values of a script and its run, frozen. Those that the child gets travel as JSON in its first frame."""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

MAX_WARNINGS = 20
MAX_WARNING = 500
"""How many warnings a run may have, and characters each."""

TypeSpec = Any
"""A type as plain JSON: `"str"`, `"int"`, `"num"`, `"bool"`, `"null"`, `"any"`, `["list", T]`, `["map", T]`,
`["lit", [values]]`, `["or", [T, …]]`, or `["obj", name]`, a model of the same tool."""


class FieldSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One field of a model: `name` is a Python name, `key` is what stands in the JSON."""

    name: str
    key: str
    type: TypeSpec
    required: bool = False
    nullable: bool = False
    default: Any | UnsetType = UNSET
    doc: str = ""


class ModelSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model. `extra` is the type of further keys; `None`: there are none."""

    name: str
    fields: tuple[FieldSpec, ...] = ()
    extra: TypeSpec | None = None
    doc: str = ""


class ToolSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool as a script sees it: a function of a module, with its models."""

    tool_id: str
    module: str
    """`git` for `servers.git`."""
    function: str
    params: str
    """The name of the parameters' model."""
    models: tuple[ModelSpec, ...] = ()
    result: TypeSpec | None = None
    """What the result is; `None`: nothing is known of it."""
    result_from: Literal["declared", "observed", "nothing"] = "nothing"
    fingerprint: str = ""
    doc: str = ""
    signature: str = ""


class DeclaredNeed(Struct, frozen=True):
    """A need as the script states it, and the line where it does so first."""

    query: str
    server: str | None = None
    line: int = 0


class Need(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A need with what was found for it: a tool and how sure that is, or why there is none."""

    query: str
    server: str | None = None
    line: int = 0
    tool_id: str = ""
    confidence: float = 0.0
    fingerprint: str = ""
    problem: str = ""
    candidates: tuple[str, ...] = ()
    next_action: str = ""


class StartFrame(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first frame that a child gets."""

    source: str
    name: str = "script.py"
    needs: tuple[Need, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    args: tuple[str, ...] = ()
    calls_at_once: int = 16
    answer_bytes: int = 1 << 20
    """The longest final JSON summary."""
    heard_bytes: int = 4 << 20
    """The longest frame that the host takes."""


class RunLimits(Struct, frozen=True, kw_only=True):
    """What one run may ask of the host; what its process may use stands in the sandbox's own limits."""

    wall_s: float = 60.0
    calls: int = 10_000
    calls_at_once: int = 16
    inline_bytes: int = 256 * 1024
    """A larger result stays with the host until the script looks into it."""
    kept_bytes: int = 256 * 1024 * 1024
    """Of such results together."""
    answer_bytes: int = 1 << 20


RunOutcome = Literal[
    "finished",
    "failed",
    "exited",
    "left",
    "interrupted",
    "input_refused",
    "timed_out",
    "out_of_memory",
    "crashed",
    "killed",
    "protocol_violation",
]
"""How a run ended. `exited`: `exit()`; `left`: the process ended without a word, as by `os._exit`."""


class CallRecord(Struct, frozen=True, kw_only=True):
    """One call that a script made. No values: what and how, not with what."""

    tool_id: str
    ok: bool
    seconds: float
    code: str = ""
    result_bytes: int = 0


class ScriptProblem(Struct, frozen=True, kw_only=True):
    """Why a script failed, by its own line."""

    type: str
    message: str
    line: int | None = None
    source: str = ""
    """That line's text."""
    traceback: str = ""
    next_action: str = ""


class ScriptResult(Struct, frozen=True, kw_only=True):
    """What a run gave. `ok` says whether the script came to its end."""

    run: str
    outcome: RunOutcome
    answer: Any = None
    """The final JSON summary: what `main()` returned, the last expression, or the last line of JSON printed."""
    stdout: str = ""
    stderr: str = ""
    output_dropped: int = 0
    code: int | None = None
    error: ScriptProblem | None = None
    needs: tuple[Need, ...] = ()
    calls: tuple[CallRecord, ...] = ()
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    layers: tuple[str, ...] = ()
    unsafe: bool = False

    @property
    def ok(self) -> bool:
        return self.outcome == "finished" or (self.outcome == "exited" and not self.code)
