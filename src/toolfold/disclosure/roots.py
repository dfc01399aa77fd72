"""Where a result begins: at the envelope's `data` where the schema is an envelope, else at its top.

An envelope is an object with a `data` and, beside it, only words about how the call went. An object that has other
fields beside its `data`, such as a cursor, is a result of its own: nothing of it is set aside. Only the root counts.
"""

import re
from typing import Any, NamedTuple

from toolfold.schema_walk import Document, Node
from toolfold.schema_walk.paths import Step

_ASIDE = re.compile(
    r"(?:\w+_)?(?:errors?|error_?(?:message|code|type)|extensions|warnings?)"
    r"|success|successful|succeeded|ok|status|status_?code|code|message|msg|version|request_?id|log_?id|trace_?id",
    re.IGNORECASE,
)

_CONTAINERS = frozenset({"object", "array", "tuple", "union"})


class Root(NamedTuple):
    """The node that paths start from. `envelope` is the node around it, where there is one."""

    node: Node
    envelope: Node | None = None


def root_of(schema: Any) -> Root:
    """The root of a schema. Anything that is no schema counts as one that says nothing."""
    document = Document(schema if isinstance(schema, (dict, bool)) else True)
    top = document.root
    aside = [name for name in top.names if name != "data"]
    if top.kind != "object" or not all(_ASIDE.fullmatch(name) for name in aside):
        return Root(top)
    data = top.child(Step("key", "data"))
    if data is None or data.kind not in _CONTAINERS:
        return Root(top)
    return Root(data, top)
