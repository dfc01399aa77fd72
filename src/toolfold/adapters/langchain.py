"""A surface as LangChain tools: `create_agent(model, tools=await langchain_tools(gateway))`.

The tools are `StructuredTool`s of `langchain-core`, which must be installed. They are asynchronous; those of a
`BlockingGateway` can be invoked without `async`, too. With `defer=True` they are marked for LangChain's
`ProviderToolSearchMiddleware`: the search is then the provider's, for LangChain has no place for another.
"""

from importlib import import_module
from typing import Any

from toolfold.adapters.toolkit import Toolkit, ToolSource
from toolfold.errors import ConfigError
from toolfold.gateway import BlockingGateway
from toolfold.types import LOCAL, Caller


async def langchain_tools(source: ToolSource, *, caller: Caller = LOCAL, defer: bool = False) -> list[Any]:
    """The tools of a gateway or surface for LangChain and LangGraph."""
    try:
        tool_class = import_module("langchain_core.tools").StructuredTool
    except ImportError as error:
        raise ConfigError(
            "LangChain is not installed here", next_action="install it with: pip install langchain-core"
        ) from error
    toolkit = Toolkit(source, caller=caller, defer=defer)
    return [_structured_tool(tool_class, toolkit, source, tool) for tool in await toolkit.definitions()]


def _structured_tool(tool_class: Any, toolkit: Toolkit, source: ToolSource, tool: dict[str, Any]) -> Any:
    async def run(**arguments: Any) -> str:
        return (await toolkit.call(tool["name"], arguments)).text

    deferred = toolkit.deferred is not None and tool["name"] not in toolkit.deferred.always
    blocking = source if isinstance(source, BlockingGateway) else None
    return tool_class(
        name=tool["name"],
        description=tool.get("description", ""),
        args_schema=tool["inputSchema"],
        coroutine=run,
        **({"extras": {"defer_loading": True}} if deferred else {}),
        func=None if blocking is None else lambda **arguments: blocking.run(run(**arguments)),
    )
