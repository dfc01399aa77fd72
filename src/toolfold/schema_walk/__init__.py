"""JSON Schema seen as a tree of typed fields, opened one node at a time.

Reads draft 2020-12 and the draft-07 forms that real servers send. It resolves references inside the document, merges
`allOf`, joins the alternatives of unions, and says for each node what can be below it. It validates nothing, fetches
nothing and never expands more than it is asked for. Above it: folding, inspection, typed wrappers. Below it: nothing.

    keywords.py   the keywords of one schema, and of all it refers to or includes -> one reading
    node.py       a reading and its alternatives -> nodes with a kind, a label and children, made when asked for
    paths.py      how a place in the tree is written
"""

from toolfold.schema_walk.node import Document, Node

__all__ = ["Document", "Node"]
