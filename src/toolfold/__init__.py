"""toolfold: fold any number of tools into a few; unfold exactly what the model needs.

The public names are loaded on first use, so that `import toolfold` and `toolfold --version` stay light.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolfold.blocking_gateway import BlockingGateway
    from toolfold.config import Settings
    from toolfold.disclosure.fold import flatten_schema_fields, summarize_schema_for_llm
    from toolfold.disclosure.inspector import inspect_schema
    from toolfold.errors import ToolfoldError
    from toolfold.gateway import Gateway
    from toolfold.live.session import LiveSession
    from toolfold.outputs.extraction import extract
    from toolfold.scripts.declarations import use_tools

__version__ = "0.1.0"

__all__ = [
    "BlockingGateway",
    "Gateway",
    "LiveSession",
    "Settings",
    "ToolfoldError",
    "__version__",
    "extract",
    "flatten_schema_fields",
    "inspect_schema",
    "summarize_schema_for_llm",
    "use_tools",
]

_HOMES = {
    "BlockingGateway": "toolfold.blocking_gateway",
    "Gateway": "toolfold.gateway",
    "LiveSession": "toolfold.live.session",
    "Settings": "toolfold.config",
    "ToolfoldError": "toolfold.errors",
    "extract": "toolfold.outputs.extraction",
    "flatten_schema_fields": "toolfold.disclosure.fold",
    "inspect_schema": "toolfold.disclosure.inspector",
    "summarize_schema_for_llm": "toolfold.disclosure.fold",
    "use_tools": "toolfold.scripts.declarations",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'toolfold' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
