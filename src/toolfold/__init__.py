"""toolfold: fold any number of tools into a few; unfold exactly what the model needs.

The public names are loaded on first use, so that `import toolfold` and `toolfold --version` stay light.
"""

# As in `typing`, which would take most of the time until the command line can answer Ctrl-C.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from toolfold.agent.agent import Agent
    from toolfold.answers import (
        ExpandedTool,
        InspectedOutput,
        NodePage,
        ToolDescriptor,
        ToolHit,
        ToolList,
        ToolPage,
        ToolPointer,
    )
    from toolfold.config import Settings
    from toolfold.disclosure.fold import flatten_schema_fields, summarize_schema_for_llm
    from toolfold.disclosure.inspector import inspect_schema
    from toolfold.errors import (
        BadCursor,
        CallLimit,
        CatalogueError,
        ConfigError,
        ConfirmationNeeded,
        Declined,
        FrameTooLarge,
        InputRefused,
        InputUnavailable,
        InvalidArguments,
        LiveError,
        LockMismatch,
        ModelError,
        NoMatchInCategory,
        NotAccepted,
        NotAuthorized,
        NotBuilt,
        NotDeclared,
        NotExpanded,
        OutputError,
        OutputFull,
        ProtocolViolation,
        QuotaExceeded,
        RemoteError,
        SandboxError,
        ScriptError,
        SecretNotFound,
        ServerClosed,
        ServerTimeout,
        ServerUnavailable,
        SignInRequired,
        StoreBusy,
        StoreChanged,
        StoreDamaged,
        StoreError,
        StoreFull,
        ToolChanged,
        ToolFailed,
        ToolfoldError,
        ToolNotFound,
        UnknownField,
        UnknownHandle,
        UnknownPath,
        UpstreamError,
    )
    from toolfold.gateway import BlockingGateway, Gateway
    from toolfold.live.session import LiveSession
    from toolfold.outputs.extraction import extract
    from toolfold.scripts.declarations import use_tools
    from toolfold.types import Outcome

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "BadCursor",
    "BlockingGateway",
    "CallLimit",
    "CatalogueError",
    "ConfigError",
    "ConfirmationNeeded",
    "Declined",
    "ExpandedTool",
    "FrameTooLarge",
    "Gateway",
    "InputRefused",
    "InputUnavailable",
    "InspectedOutput",
    "InvalidArguments",
    "LiveError",
    "LiveSession",
    "LockMismatch",
    "ModelError",
    "NoMatchInCategory",
    "NodePage",
    "NotAccepted",
    "NotAuthorized",
    "NotBuilt",
    "NotDeclared",
    "NotExpanded",
    "Outcome",
    "OutputError",
    "OutputFull",
    "ProtocolViolation",
    "QuotaExceeded",
    "RemoteError",
    "SandboxError",
    "ScriptError",
    "SecretNotFound",
    "ServerClosed",
    "ServerTimeout",
    "ServerUnavailable",
    "Settings",
    "SignInRequired",
    "StoreBusy",
    "StoreChanged",
    "StoreDamaged",
    "StoreError",
    "StoreFull",
    "ToolChanged",
    "ToolDescriptor",
    "ToolFailed",
    "ToolHit",
    "ToolList",
    "ToolNotFound",
    "ToolPage",
    "ToolPointer",
    "ToolfoldError",
    "UnknownField",
    "UnknownHandle",
    "UnknownPath",
    "UpstreamError",
    "__version__",
    "extract",
    "flatten_schema_fields",
    "inspect_schema",
    "summarize_schema_for_llm",
    "use_tools",
]

# Where the public names live. All others are errors: the whole tree of `toolfold.errors`.
_HOMES = {
    "Agent": "toolfold.agent.agent",
    "BlockingGateway": "toolfold.gateway",
    "ExpandedTool": "toolfold.answers",
    "Gateway": "toolfold.gateway",
    "InspectedOutput": "toolfold.answers",
    "LiveSession": "toolfold.live.session",
    "NodePage": "toolfold.answers",
    "Outcome": "toolfold.types",
    "Settings": "toolfold.config",
    "ToolDescriptor": "toolfold.answers",
    "ToolHit": "toolfold.answers",
    "ToolList": "toolfold.answers",
    "ToolPage": "toolfold.answers",
    "ToolPointer": "toolfold.answers",
    "extract": "toolfold.outputs.extraction",
    "flatten_schema_fields": "toolfold.disclosure.fold",
    "inspect_schema": "toolfold.disclosure.inspector",
    "summarize_schema_for_llm": "toolfold.disclosure.fold",
    "use_tools": "toolfold.scripts.declarations",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module 'toolfold' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "toolfold.errors")), name)


def __dir__() -> list[str]:
    return sorted(__all__)
