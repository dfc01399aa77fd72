"""The files of a diff, listed, where a request asks which were changed."""

import re

from toolfold import tokens
from toolfold.outputs.local.index import Index

ASKED = re.compile(
    r"\b(?:which|what|list|all|how many|name|names of)\b[^.?]{0,30}\bfiles?\b"
    r"|\bfiles? (?:\w+ ){0,3}(?:changed|touched|modified)",
    re.IGNORECASE,
)
FILE = re.compile(r"diff --git a/(.+?) b/")


def changed_files(index: Index, request: str, budget: int) -> list[str]:
    """How many files a diff changes, and their names as far as the budget goes."""
    if not ASKED.search(request) or not len(index.outer):
        return []
    heads = (FILE.search(index.text(int(unit))) for unit in index.outer[:20_000])
    names = list(dict.fromkeys(head[1] for head in heads if head))
    if not names:
        return []
    shown, spent = [], 0
    for name in names:
        spent += tokens.count(name) + 2
        if spent > budget:
            break
        shown.append(name)
    more = f", and {len(names) - len(shown)} more" if len(shown) < len(names) else ""
    return [f"Exact count: {len(names)} files are changed: {', '.join(shown)}{more}."]
