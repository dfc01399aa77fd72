"""The provider `toolbox` and its one tool, the inspector: its definition, its descriptor, and how a prompt explains it.

The definition stands in `inspector.json`, the explanation in `folding.md`, and the tool is described by the same code
as any other. What it does is `inspector.py`; that every caller may use it, and that planners get its descriptor first,
is arranged above.
"""

from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from msgspec import Raw
from msgspec.json import decode, encode

from toolfold.answers import ToolDescriptor
from toolfold.catalogue.kinds import TOOLBOX
from toolfold.disclosure.descriptor import describe
from toolfold.fingerprint import fingerprint
from toolfold.types import Annotations, Tool, ToolDefinition

INSPECTOR_ID = f"{TOOLBOX}.inspect_tool_output"


@cache
def folding_block(tool_id: str, field_path: str) -> str:
    """The part of a planner's prompt that explains summaries, markers and the inspector.

    Its example inspects a field that is folded in this planner's own tools: models copy what they read.
    """
    # Its last paragraph is a part of the contract with planners, fixed to the letter.
    text = (resources.files(__package__) / "folding.md").read_text(encoding="utf-8").removesuffix("\n")
    return text.replace("$TOOL_ID", tool_id).replace("$FIELD_PATH", field_path)


@cache
def inspector_tool() -> Tool:
    """The inspector as an entry of the catalogue."""
    sent = _inspector_definition()
    # Encoded anew: the fingerprint must not depend on how the file is indented.
    raw = Raw(encode(sent))
    return Tool(
        tool_id=INSPECTOR_ID,
        server=TOOLBOX,
        definition=ToolDefinition(
            name=sent["name"],
            raw=raw,
            title=sent["title"],
            description=sent["description"],
            input_schema=Raw(encode(sent["inputSchema"])),
            output_schema=Raw(encode(sent["outputSchema"])),
            annotations=Annotations(read_only=True, idempotent=True, open_world=False),
        ),
        fingerprint=fingerprint(raw),
        summary="Shows the structure of one part of a tool's output.",
        tags=("risk:read-only",),
        risks=("read-only",),
    )


def _inspector_definition() -> dict[str, Any]:
    text = (resources.files(__package__) / "inspector.json").read_bytes()
    return decode(text, type=dict[str, Any])


@cache
def _inspector_descriptor() -> ToolDescriptor:
    return describe(inspector_tool())


def with_inspector(descriptors: Sequence[ToolDescriptor]) -> list[ToolDescriptor]:
    """Descriptors for a planner, the inspector's first and only once."""
    return [{**_inspector_descriptor()}, *(entry for entry in descriptors if entry["tool_id"] != INSPECTOR_ID)]
