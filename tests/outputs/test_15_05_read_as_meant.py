"""Words of a request that could be read otherwise than they are meant: an answer is by the right field, or is none."""

import json
from pathlib import Path

import pytest
from extract_kit import stored

from toolfold.outputs.local.answer import answer
from toolfold.outputs.local.computed import compute
from toolfold.outputs.local.index import IndexCache


def said(folder: Path, content: str, request: str) -> str:
    """What is stated, or why nothing is, without passages."""
    with IndexCache().of(stored(folder, content).path) as index:
        return "\n".join(compute(index, request).lines)


STAFF = "name\ttitle\tmanager\tpay\n" + "".join(
    f"P{n}\t{'manager' if n % 5 == 0 else 'clerk'}\tP{n % 3}\t{n * 7 % 50}\n" for n in range(40)
)
COMMITS = "".join(
    json.dumps({"sha": f"{n:07x}", "author": "Ada", "message": "fix: leak" if n % 4 else "docs: fix it"}) + "\n"
    for n in range(20)
)


@pytest.mark.parametrize(
    ("content", "request_", "stated"),
    [
        (STAFF, "What is the phone number of P7?", 'Nothing was computed: "phone" has no place'),
        (STAFF, "How many managers are there?", "Count of different values of manager in rows: 3; 40 of 40"),
        (STAFF, "How many managers are there?", 'Count of rows where title = "manager": 8 (of 40 rows).'),
        (STAFF, "who has the highest pay?", 'Greatest pay of 40 rows: 49.\nline 9: name: "P7"'),
        (COMMITS, "how many commits start with fix", 'where message starts with "fix": 15 ('),
        (COMMITS, "how many commits start with Bob", 'Nothing was computed: which field begins or ends with "Bob"'),
    ],
)
def test_15_05_a_word_is_read_as_it_is_meant(tmp_path: Path, content: str, request_: str, stated: str) -> None:
    assert stated in said(tmp_path, content, request_)


def test_15_05_what_is_claimed_of_yaml_has_no_untested_passages(tmp_path: Path) -> None:
    servers = "servers:\n" + "".join(f"  - name: s{n}\n    cpus: {2 + n % 3}\n    zone: z{n % 2}\n" for n in range(9))
    text = answer(IndexCache(), stored(tmp_path, servers).path, "how many servers have 4 cpus?", 2000)
    assert text.endswith("Count of items of servers where cpus = 4: 3 (of 9 items).")
