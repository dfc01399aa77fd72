"""The kind that stands before an id, where the leaf is no tool: `prompt:git.review`. No tool's id has a colon."""

__all__ = ["TOOLBOX", "bare_id", "is_tool_id", "server_of"]

# What stands where a server does in the ids of the gateway's own programs.
TOOLBOX = "toolbox"


def is_tool_id(tool_id: str) -> bool:
    """Whether it is a tool's, and no other leaf's."""
    return ":" not in tool_id


def bare_id(tool_id: str) -> str:
    """The id without the kind that may stand before it."""
    return tool_id.partition(":")[2] or tool_id


def server_of(tool_id: str) -> str:
    """What an id says of its server: the first part of it."""
    return bare_id(tool_id).partition(".")[0]
