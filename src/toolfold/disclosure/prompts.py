"""What a planner's prompt says about folded output schemas. `DIRECTIVE` is fixed to the letter.

Only texts: who puts them into which prompt is decided above.
"""

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
