"""Lines that head what follows them: `diff --git`, `@@ … @@`, `commit …`, `# Title`. Found by plain search."""

import numpy as np

from toolfold.outputs.local.scan import places
from toolfold.outputs.local.source import BLOCK, Offsets, Source, distinct

OUTER = (b"diff --git ", b"commit ", b"# ")
"""Those that head others."""
INNER = (b"@@ -", b"## ", b"### ")
BEFORE = (b"\n", b"\\n", b'"')
"""A newline, also one that is escaped in a JSON string, or the beginning of such a string."""


def find_headings(source: Source, marks: tuple[bytes, ...]) -> Offsets:
    """Where the headings with these marks begin."""
    found = [np.zeros(0, dtype=np.int64)]
    found += [np.zeros(1, dtype=np.int64) for mark in marks if source.read(0, len(mark)) == mark]
    for at in range(0, source.size, BLOCK):
        block = source.read(at, at + BLOCK + 32)
        for before in BEFORE:
            hits = [hit for mark in marks for hit in places(block, before + mark)]
            found.append(np.array(hits, dtype=np.int64) + at + len(before))
    return distinct(np.concatenate(found))
