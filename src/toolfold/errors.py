"""Every error toolfold raises, in one tree. Each says what happened, what would work, and what to do next.

    ToolfoldError
    ├── ConfigError            a setting is missing, unknown or of the wrong kind
    │   ├── SecretNotFound     a secret that the configuration names is not there
    │   └── NotAccepted        a configuration came with a folder, and the person has not accepted it
    ├── UpstreamError          a tool server did not do what was asked
    │   ├── ServerUnavailable  it could not be started or reached
    │   │   └── SignInRequired somebody has to sign in to it first
    │   ├── ServerClosed       it went away; calls in flight are lost
    │   ├── ServerTimeout      it did not answer in time
    │   ├── ProtocolViolation  it answered something that cannot be read
    │   │   └── FrameTooLarge  it sent a message over the configured cap
    │   ├── RemoteError        it answered with a JSON-RPC error
    │   └── InputUnavailable   it asked for input that nobody here can give
    ├── CatalogueError
    │   ├── NotBuilt           there is no catalogue yet
    │   ├── UnknownPath        no such category
    │   ├── UnknownField       no such field in a tool's output
    │   ├── ToolNotFound       no such tool, or none the caller may see
    │   ├── NotAuthorized      the caller may know of the tool and not use it
    │   ├── NoMatchInCategory  nothing in the category fits the request
    │   ├── ToolChanged        the tool changed between `expand_tool` and `call_tool`
    │   ├── NotExpanded        the tool was called before it was expanded, where that is not allowed
    │   └── BadCursor          a cursor that this catalogue did not give out
    ├── InvalidArguments       the arguments do not fit the tool's schema
    ├── ConfirmationNeeded     the policy wants a person's yes first, and nobody could be asked
    │   └── Declined           a person was asked and did not say yes
    ├── QuotaExceeded          the caller used up what it may use for now
    ├── OutputError
    │   ├── UnknownHandle      no stored output of that name here: unknown, expired or lost
    │   └── OutputFull         no room to store a result
    ├── ModelError             the language model could not be asked, or did not answer
    ├── SandboxError           there is no sandbox here, or it broke
    ├── ScriptError            a script cannot be run as it is written
    │   ├── LockMismatch       what a script was locked to is not there any more
    │   ├── NotDeclared        a script called a tool that it did not declare
    │   ├── CallLimit          a script asked for more than it may have
    │   ├── ToolFailed         a tool that a script called answered with an error
    │   └── InputRefused       a script wanted to ask a person something
    ├── LiveError              a live session cannot do what was asked
    └── StoreError
        ├── StoreBusy          another process holds the store
        ├── StoreChanged       another writer committed first; compute again from what is there now
        ├── StoreDamaged       the file is not a toolfold store, or is broken
        └── StoreFull          no room to write

A face maps an error with `as_dict()` and nothing else. Code below a stage raises these or lets its own bugs through;
nothing catches `Exception`.
"""

import shlex
from collections.abc import Sequence
from typing import Any, ClassVar, Self

INTERNAL_ERROR = "INTERNAL_ERROR"
"""The code of a bug: what went wrong is in the log, and has no class here."""


class ToolfoldError(Exception):
    """The root. `code` is stable and for programs; the rest is for whoever reads it, person or model."""

    code: ClassVar[str] = "TOOLFOLD_ERROR"
    exit_code: int = 1
    done = False  # whether a tool did its work all the same, and only its result is lost

    def __init__(self, message: str, *, hints: Sequence[Any] = (), next_action: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hints = tuple(hints)
        self.next_action = next_action

    def as_dict(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "message": self.message,
            "hints": list(self.hints),
            "next_action": self.next_action,
            **({"done": True} if self.done else {}),
        }

    def after_work(self) -> Self:
        """The same for the result of a call that was made. Whoever takes it for one that was not might pay twice."""
        if not self.done:
            self.done = True
            self.exit_code = StoreError.exit_code if self.exit_code == CatalogueError.exit_code else self.exit_code
            self.message = f"the tool has done its work, and its result is lost: {self.message}"
            self.args = (self.message,)
            first = "do not simply repeat the call: find out first what it did"
            self.next_action = f"{first}. For later calls: {self.next_action}" if self.next_action else first
        return self


class ConfigError(ToolfoldError):
    code = "CONFIG_INVALID"
    exit_code = 2


class SecretNotFound(ConfigError):
    code = "SECRET_NOT_FOUND"


class NotAccepted(ConfigError):
    """`file` is what is known of it, filled in by whoever found it."""

    code = "CONFIG_NOT_ACCEPTED"
    file: Any = None


class UpstreamError(ToolfoldError):
    """`server` is the configured name, filled in by whoever knows it."""

    code = "UPSTREAM_ERROR"
    exit_code = 3

    def __init__(self, message: str, *, server: str = "", hints: Sequence[Any] = (), next_action: str = "") -> None:
        super().__init__(message, hints=hints, next_action=next_action)
        self.server = server


class ServerUnavailable(UpstreamError):
    code = "SERVER_UNAVAILABLE"

    @classmethod
    def disabled(cls, server: str) -> "ServerUnavailable":
        action = f"to use it again: toolfold enable {server}"
        return cls(f"{server} is disabled in the configuration", server=server, next_action=action)


class SignInRequired(ServerUnavailable):
    """The server wants somebody to sign in, and nothing that is stored will do. Each message has the phrase, by which
    the catalogue's record of a failure is known again."""

    code = "SIGN_IN_REQUIRED"
    phrase: ClassVar[str] = "needs sign-in"

    def __init__(self, message: str, *, server: str = "", hints: Sequence[Any] = (), next_action: str = "") -> None:
        message = message if self.phrase in message else f"{self.phrase}: {message}"
        super().__init__(message, server=server, hints=hints, next_action=next_action)

    @classmethod
    def of(cls, server: str, caller: str, reason: str, *, header: str = "") -> "SignInRequired":
        action = f"Run: {cls.command(server, caller, header=header)}"
        return cls(f"{server} {cls.phrase}: {reason}", server=server, next_action=action)

    @staticmethod
    def command(server: str, caller: str = "", *, header: str = "") -> str:
        """What to type; `header`: that of a key. A caller's name may come from a token, and hold what a shell acts
        upon."""
        options = (*(("--header", header) if header else ()), *(("--as", caller) if caller else ()))
        return shlex.join(("toolfold", "login", server, *options))


class ServerClosed(UpstreamError):
    code = "SERVER_CLOSED"


class ServerTimeout(UpstreamError):
    code = "SERVER_TIMEOUT"


class ProtocolViolation(UpstreamError):
    code = "PROTOCOL_VIOLATION"


class FrameTooLarge(ProtocolViolation):
    code = "FRAME_TOO_LARGE"


class RemoteError(UpstreamError):
    """`rpc_code` and `data` are the server's own."""

    code = "REMOTE_ERROR"

    def __init__(
        self,
        message: str,
        *,
        rpc_code: int,
        data: Any = None,
        server: str = "",
        hints: Sequence[Any] = (),
        next_action: str = "",
    ) -> None:
        super().__init__(message, server=server, hints=hints, next_action=next_action)
        self.rpc_code = rpc_code
        self.data = data

    def as_dict(self) -> dict[str, Any]:
        own = {"rpc_code": self.rpc_code} if self.data is None else {"rpc_code": self.rpc_code, "data": self.data}
        return {**super().as_dict(), **own}


class InputUnavailable(UpstreamError):
    code = "INPUT_UNAVAILABLE"


class CatalogueError(ToolfoldError):
    code = "CATALOGUE_ERROR"
    exit_code = 4


class NotBuilt(CatalogueError):
    code = "NOT_BUILT"


class UnknownPath(CatalogueError):
    """`hints` are paths that there are, `tools` what fits the request anyway, wherever it stands."""

    code = "UNKNOWN_PATH"
    tools: Sequence[Any] = ()

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), **({"tools": list(self.tools)} if self.tools else {})}


class UnknownField(CatalogueError):
    code = "UNKNOWN_FIELD"


class ToolNotFound(CatalogueError):
    """`query` is what was asked for in plain words, where it was not asked by id; `candidates` are the nearest ids.
    `removed`: it was there, and the first hints may be what it is called now."""

    code = "TOOL_NOT_FOUND"

    def __init__(
        self, message: str, *, query: str = "", hints: Sequence[Any] = (), next_action: str = "", removed: bool = False
    ) -> None:
        near = "use one of the ids in hints, or " if hints else ""
        super().__init__(message, hints=hints, next_action=next_action or f"{near}find the tool with list or a search")
        self.query = query
        self.candidates = tuple(hint["tool_id"] if isinstance(hint, dict) else hint for hint in self.hints)
        self.removed = removed


class NotAuthorized(CatalogueError):
    code = "NOT_AUTHORIZED"


class NoMatchInCategory(CatalogueError):
    """`hints` are the nearest tools, `categories` the paths of categories elsewhere in which something fits."""

    code = "NO_MATCH_IN_CATEGORY"

    def __init__(
        self,
        message: str,
        *,
        categories: Sequence[Sequence[str]] = (),
        hints: Sequence[Any] = (),
        next_action: str = "",
    ) -> None:
        super().__init__(message, hints=hints, next_action=next_action)
        self.categories = tuple(categories)

    def as_dict(self) -> dict[str, Any]:
        own = {"categories": [list(path) for path in self.categories]} if self.categories else {}
        return {**super().as_dict(), **own}


class ToolChanged(CatalogueError):
    code = "TOOL_CHANGED"


class NotExpanded(CatalogueError):
    code = "NOT_EXPANDED"


class BadCursor(CatalogueError):
    code = "BAD_CURSOR"


class InvalidArguments(ToolfoldError):
    code = "INVALID_ARGUMENTS"
    exit_code = 4


class ConfirmationNeeded(ToolfoldError):
    code = "CONFIRMATION_NEEDED"
    exit_code = 4


class Declined(ConfirmationNeeded):
    code = "CONFIRMATION_DECLINED"


class QuotaExceeded(ToolfoldError):
    """`quota` is the setting that ran out, `retry_after_s` when it works again."""

    code = "QUOTA_EXCEEDED"
    exit_code = 4

    def __init__(self, message: str, *, quota: str, retry_after_s: int, next_action: str) -> None:
        super().__init__(message, next_action=next_action)
        self.quota = quota
        self.retry_after_s = retry_after_s

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "quota": self.quota, "retry_after_s": self.retry_after_s}


class OutputError(ToolfoldError):
    code = "OUTPUT_ERROR"
    exit_code = 4


class UnknownHandle(OutputError):
    """`tool` is the one whose output it was, where the caller has a right to know."""

    code = "UNKNOWN_HANDLE"

    def __init__(self, message: str, *, tool: str = "", hints: Sequence[Any] = (), next_action: str = "") -> None:
        super().__init__(message, hints=hints, next_action=next_action)
        self.tool = tool

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "tool": self.tool} if self.tool else super().as_dict()


class OutputFull(OutputError):
    code = "OUTPUT_FULL"
    exit_code = 5


class ModelError(ToolfoldError):
    code = "MODEL_ERROR"


class SandboxError(ToolfoldError):
    code = "SANDBOX_ERROR"


class ScriptError(ToolfoldError):
    code = "SCRIPT_INVALID"
    exit_code = 4


class LockMismatch(ScriptError):
    code = "LOCK_MISMATCH"


class NotDeclared(ScriptError):
    code = "NOT_DECLARED"


class CallLimit(ScriptError):
    code = "CALL_LIMIT"


class ToolFailed(ScriptError):
    code = "TOOL_FAILED"


class InputRefused(ScriptError):
    code = "INPUT_REFUSED"


class LiveError(ToolfoldError):
    code = "LIVE_ERROR"


class StoreError(ToolfoldError):
    code = "STORE_ERROR"
    exit_code = 5


class StoreBusy(StoreError):
    code = "STORE_BUSY"


class StoreChanged(StoreError):
    code = "STORE_CHANGED"


class StoreDamaged(StoreError):
    code = "STORE_DAMAGED"


class StoreFull(StoreError):
    code = "STORE_FULL"
