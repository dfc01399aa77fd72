"""A surface as LangChain tools: `create_agent(model, tools=await langchain_tools(gateway))`.

The tools are `StructuredTool`s of `langchain-core`, which must be installed. They are asynchronous; made from a
`BlockingGateway` they can be invoked without `async`, too.
"""

from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any

from toolfold.adapters.toolkit import Toolkit, ToolSource
from toolfold.blocking_gateway import BlockingGateway
from toolfold.errors import ConfigError
from toolfold.types import LOCAL, Caller


async def langchain_tools(source: ToolSource, *, caller: Caller = LOCAL) -> list[Any]:
    """The tools of a gateway or surface for LangChain and LangGraph."""
    try:
        tool_class = import_module("langchain_core.tools").StructuredTool
    except ImportError as error:
        raise ConfigError(
            "LangChain is not installed here", next_action="install it with: pip install langchain-core"
        ) from error
    toolkit = Toolkit(source, caller=caller)
    made = []
    for one in await toolkit.definitions():
        run = _call_function(toolkit, one["name"])
        made.append(
            tool_class(
                name=one["name"],
                description=one.get("description", ""),
                args_schema=one["inputSchema"],
                coroutine=run,
                func=_blocking_form(source, run) if isinstance(source, BlockingGateway) else None,
            )
        )
    return made


def _call_function(toolkit: Toolkit, name: str) -> Callable[..., Coroutine[Any, Any, str]]:
    async def run(**arguments: Any) -> str:
        return (await toolkit.call(name, arguments)).text

    return run


def _blocking_form(gateway: BlockingGateway, run: Callable[..., Coroutine[Any, Any, str]]) -> Callable[..., str]:
    def wait(**arguments: Any) -> str:
        return gateway.run(run(**arguments))

    return wait
