"""The provider `toolbox` and its one tool, the inspector, as values: its definition, its schemas, its descriptor.

It describes itself with the same code as any other tool. What it does is `inspector.py`; that every caller may use it,
and that planners get its descriptor first, is arranged above.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from msgspec import Raw
from msgspec.json import encode

from toolfold.disclosure.descriptor import Descriptor, describe
from toolfold.disclosure.fold import DEFAULT_INSPECT_MAX_DEPTH, DEFAULT_INSPECT_MAX_FIELDS
from toolfold.schema import fingerprint
from toolfold.types import Annotations, Tool, ToolDefinition

TOOLBOX = "toolbox"
INSPECTOR = "inspect_tool_output"
INSPECTOR_ID = f"{TOOLBOX}.{INSPECTOR}"

DESCRIPTION = (
    "Shows the structure of one part of a tool's output: the type at a field path, its children, and a preview of what "
    "is below. Use it when a summary line says that fields are hidden, with the path that the line names."
)


def _input_schema() -> dict[str, Any]:
    """What the inspector takes."""
    return {
        "type": "object",
        "properties": {
            "tool_id": {"type": "string", "description": "The tool whose output is meant."},
            "field_path": {
                "type": ["string", "null"],
                "default": "",
                "description": "Where to look: a.b for keys, a[] for items of an array. Empty: the root.",
            },
            "max_depth": {"type": "integer", "minimum": 1, "default": DEFAULT_INSPECT_MAX_DEPTH},
            "max_fields": {"type": "integer", "minimum": 1, "default": DEFAULT_INSPECT_MAX_FIELDS},
        },
        "required": ["tool_id"],
        "additionalProperties": False,
    }


def output_schema() -> dict[str, Any]:
    """What the inspector answers."""
    text = {"type": "string"}
    alternative = {
        "type": "object",
        "properties": {"path": text, "type": text, "fields": {"type": "integer"}},
        "required": ["path", "type", "fields"],
    }
    return {
        "type": "object",
        "properties": {
            "tool_id": text,
            "field_path": text,
            "node_type": text,
            "children": {
                "type": "array",
                "items": {"type": "object", "properties": {"name": text, "type": text}, "required": ["name", "type"]},
            },
            "flattened_fields": {"type": "array", "items": text},
            "total_child_fields": {"type": "integer"},
            "truncated": {"type": "boolean"},
            "alternatives": {"type": "array", "items": alternative},
            "observed_calls": {"type": "integer"},
            "note": text,
        },
        "required": [
            "tool_id",
            "field_path",
            "node_type",
            "children",
            "flattened_fields",
            "total_child_fields",
            "truncated",
        ],
    }


@cache
def inspector_tool() -> Tool:
    """The inspector as an entry of the catalogue."""
    definition = {
        "name": INSPECTOR,
        "title": "Inspect a tool's output",
        "description": DESCRIPTION,
        "inputSchema": _input_schema(),
        "outputSchema": output_schema(),
        "annotations": {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False},
    }
    raw = Raw(encode(definition))
    return Tool(
        tool_id=INSPECTOR_ID,
        server=TOOLBOX,
        definition=ToolDefinition(
            name=INSPECTOR,
            raw=raw,
            title="Inspect a tool's output",
            description=DESCRIPTION,
            input_schema=Raw(encode(_input_schema())),
            output_schema=Raw(encode(output_schema())),
            annotations=Annotations(read_only=True, idempotent=True, open_world=False),
        ),
        fingerprint=fingerprint(raw),
        summary="Shows the structure of one part of a tool's output.",
        tags=("risk:read-only",),
        risks=("read-only",),
    )


@cache
def _inspector_descriptor() -> Descriptor:
    """The descriptor that planners get before any search."""
    return describe(inspector_tool())


def with_inspector(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Descriptors for a planner, the inspector's first and only once. What was found stays as it is."""
    return [_inspector_descriptor().as_dict(), *(one for one in found if one["tool_id"] != INSPECTOR_ID)]


# --- What a planner's prompt says about folded output schemas. `DIRECTIVE` is fixed to the letter.

DIRECTIVE = """\
**Handling Large Outputs:**
Some tools have large output schemas that are summarized.
* If you see a field marked like `variants[]: object (contains 15 sub-fields; inspect...)`, it means the details are hidden.
* **Rule:** If you need to access a hidden field to write your plan (e.g., checking a specific variant attribute), you MUST first call `toolbox.inspect_tool_output(tool_id, field_path)` to see the structure. Do not guess paths."""  # noqa: E501 - the block is fixed, line by line

FOLDING = """\
Each tool lists the fields of its result in `output_fields`, one per line, as `path: type`. A path names keys from the \
root of the result: `a.b` is a key of an object, `a[]` each item of an array, `a.*` any value of a map, `a[0]` a place \
in a tuple, `a<X>` one alternative of a union, `['a.b']` a key that is no plain word. `?` after a type says that the \
value may be null.
When `has_hidden_fields` is true, `output_fields` is a summary and not all fields are listed. A line such as \
`variants[]: object (contains 15 sub-fields; inspect...)` stands for a container that is there and folded; \
`body.* (+12 more fields; inspect...)` counts fields that found no room; `unknown keys` says that the schema does not \
name the keys. If you need the structure of a folded field to write correct code, call `toolbox.inspect_tool_output` \
before proceeding. For example:
{"type": "tool", "tool_id": "toolbox.inspect_tool_output", "server": "toolbox", \
"args": {"tool_id": "shopify.shopify_get_order", "field_path": "variants[]"}, \
"reasoning": "Need variant fields to extract inventory status correctly."}"""


def folding_block() -> str:
    """The part of a planner's prompt that explains summaries, markers and the inspector."""
    return f"{FOLDING}\n\n{DIRECTIVE}"
