"""The users that children of a root process become: numbers that nobody has, another one for each child.

Above: `nursery.py`. Where high numbers do not exist, as in many containers, children become `nobody` together.
"""

import os
import secrets
from pathlib import Path

FROM = 0x70000000
COUNT = 0x0F000000


def first_user() -> int | None:
    """Where a zygote's children start to count; nothing where it is not for us to choose."""
    if os.geteuid() != 0:
        return None
    try:
        lines = Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    if not any(int(line.split()[2]) > 2 * FROM for line in lines):
        return None
    return FROM + secrets.randbelow(COUNT)
