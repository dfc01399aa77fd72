"""A gateway's tools as the native tools of other libraries: OpenAI, Anthropic, pydantic-ai, LangChain.

    from toolfold.adapters import OpenAITools
    tools = OpenAITools(gateway)
    answer = client.chat.completions.create(model=…, messages=messages, tools=await tools.chat_tools())
    messages += [answer.choices[0].message, *await tools.run_chat(answer.choices[0].message)]

Each takes an open gateway, and offers its tools while they are few and the discovery operations where they are many; or
any surface (`DirectSurface`, `DiscoverySurface`). With `defer=True` the provider's own tool search loads them one by
one, with ours behind it. No library is imported before it is used, and those of OpenAI and Anthropic never: their tools
are plain dictionaries.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolfold.adapters.anthropic import AnthropicTools
    from toolfold.adapters.langchain import langchain_tools
    from toolfold.adapters.openai import OpenAITools
    from toolfold.adapters.pydantic_ai import SurfaceToolset
    from toolfold.faces.surface.auto import AutoSurface
    from toolfold.faces.surface.direct import DirectSurface
    from toolfold.faces.surface.discovery import DiscoverySurface

__all__ = [
    "AnthropicTools",
    "AutoSurface",
    "DirectSurface",
    "DiscoverySurface",
    "OpenAITools",
    "SurfaceToolset",
    "langchain_tools",
]

_HOMES = {
    "AnthropicTools": "toolfold.adapters.anthropic",
    "AutoSurface": "toolfold.faces.surface.auto",
    "DirectSurface": "toolfold.faces.surface.direct",
    "DiscoverySurface": "toolfold.faces.surface.discovery",
    "OpenAITools": "toolfold.adapters.openai",
    "SurfaceToolset": "toolfold.adapters.pydantic_ai",
    "langchain_tools": "toolfold.adapters.langchain",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'toolfold.adapters' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
