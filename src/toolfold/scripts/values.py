"""The values of a script and its run, frozen. Those that the child gets travel as JSON in its first frame."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from toolfold.types import Stored

# How many warnings a run may have, and characters each.
MAX_WARNINGS = 20
MAX_WARNING = 500

# A type as plain JSON: `"str"`, `"int"`, `"num"`, `"bool"`, `"null"`, `"any"`, `["list", T]`, `["map", T]`,
# `["lit", [values]]`, `["or", [T, …]]`, or `["obj", name]`, a model of the same tool.
TypeSpec = Any


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
    """A tool as a script sees it: a function of a module, with its models.

    `module` is `git` for `servers.git`, `params` the name of the parameters' model, `result` the type of what it
    returns, `None` where nothing is known of it. `seen`: how many results that type comes from; 0: it is declared.
    """

    tool_id: str
    module: str
    function: str
    params: str
    models: tuple[ModelSpec, ...] = ()
    result: TypeSpec | None = None
    seen: int = 0
    fingerprint: str = ""
    doc: str = ""
    signature: str = ""


class Need(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A need as the script states it, with the first line where it does; once resolved, its tool and how sure the
    match is, or why there is none. `observed`: the schema of its tool's results that a lock pins."""

    query: str
    server: str | None = None
    line: int = 0
    tool_id: str = ""
    confidence: float = 0.0
    fingerprint: str = ""
    signature: str = ""
    observed: Any = None
    problem: str = ""
    hints: tuple[Any, ...] = ()
    next_action: str = ""

    @property
    def candidates(self) -> tuple[str, ...]:
        """The ids of the nearest tools."""
        return tuple(hint["tool_id"] if isinstance(hint, dict) else str(hint) for hint in self.hints)

    @property
    def shown(self) -> str:
        """What it became, on one line: the tool, how sure that is, and how it is called."""
        if self.tool_id:
            found = f"{self.query!r} -> {self.tool_id} ({self.confidence:.2f})"
            return ": ".join(filter(None, [self.tool_id if self.tool_id == self.query else found, self.signature]))
        known = [f"{hint['tool_id']} ({hint['summary']})" if isinstance(hint, dict) else hint for hint in self.hints]
        near = f"; nearest: {', '.join(known)}" if known else ""
        return f"{self.query!r} -> nothing fits{near}"


class StartFrame(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first frame that a child gets. It says, too, how long an answer and a frame of the child may be, and how long
    a summary that is stored instead."""

    source: str
    name: str = "script.py"
    needs: tuple[Need, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    args: tuple[str, ...] = ()
    calls_at_once: int = 16
    answer_bytes: int = 1 << 20
    summary_bytes: int = 1 << 28
    frame_bytes: int = 4 << 20


# How a run ended. `exited`: `exit()`; `left`: the process ended without a word, as by `os._exit`.
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


class CallRecord(Struct, frozen=True, kw_only=True):
    """One call that a script made: what and how, never with which values."""

    tool_id: str
    ok: bool
    seconds: float
    code: str = ""
    result_bytes: int = 0


class ScriptProblem(Struct, frozen=True, kw_only=True):
    """Why a script failed. `line` is the script's own, `source` its text."""

    type: str
    message: str
    line: int | None = None
    source: str = ""
    traceback: str = ""
    next_action: str = ""


class ScriptResult(Struct, frozen=True, kw_only=True):
    """The result of a run. `answer`: what `main()` returned, the last expression, or the last line of JSON printed;
    `stored`: where it is, if it was too large."""

    run: str
    outcome: RunOutcome
    answer: Any = None
    stored: Stored | None = None
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
        """Whether the script came to its end."""
        return self.outcome == "finished" or (self.outcome == "exited" and not self.code)

    @property
    def unsaid(self) -> Any:
        """The answer; `None` where it is the last thing that was printed, too: nobody needs it twice."""
        texts = {str(self.answer), msgspec.json.encode(self.answer, enc_hook=str).decode()}
        ends = tuple(f"\n{text.rstrip()}" for text in texts if text.strip())
        return None if f"\n{self.stdout.rstrip()}".endswith(ends) else self.answer
