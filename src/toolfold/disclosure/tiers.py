"""Which fields matter most: identifiers and the fields that most tasks turn on.

The pattern is part of the wire contract of summaries. The additions cover how else real services spell the same fields.
"""

import re

TIER_1_REGEX = r"(?:^|\.|\[\]\.)(id|.*_id|name|title|status|type|url|email|price|amount|created|updated|timestamp)$"
"""Matched against a whole path; what counts is its last key."""

TIER_1_ADDITIONS_REGEX = r"(?:^|\.|\[\]\.)(.*[a-z0-9](?:Id|ID|At)|.*_at|(?:created|updated)(?:_?[Tt]ime|On|_on))$"
"""Ours: `orderId`, `createdAt`, `updated_at`, `created_time`."""

_BASE = re.compile(TIER_1_REGEX, re.DOTALL)
_ADDED = re.compile(TIER_1_ADDITIONS_REGEX, re.DOTALL)


def rank(key: str) -> int:
    """How important a key is: 0 where the pattern names it, 1 where only our additions do, 2 otherwise."""
    if _BASE.match(key):
        return 0
    return 1 if _ADDED.match(key) else 2
