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

ISSUES = json.dumps(
    [
        {
            "number": n,
            "state": ("open", "closed")[n % 2],
            "user": {"login": ("ada", "ivo", "mia")[n % 3]},
            "labels": [{"name": name} for name in ("bug", "docs", "ui")[: n % 4]],
            "tags": ["slow", "page_view"][: n % 3],
            "assignee": {"login": "bo"} if n % 5 else None,
            "restart_count": n % 7,
            "years_experience": n % 9,
            "supplier": ("Acme", "Globex")[n % 2],
            "enabled": n % 4 == 0,
        }
        for n in range(40)
    ]
)
CHARGES = json.dumps({"data": [{"id": n, "object": "charge", "amount": n * 10, "kind": "a_b"} for n in range(20)]})
LEDGER = "day,category,amount\n" + "".join(f"2024-05-{n + 1:02},{('Rent', 'Food')[n % 2]},{n - 5}\n" for n in range(20))
SHIPMENTS = "ref,city,shipped_at\n" + "".join(f"r{n},{('Oslo', 'Graz')[n % 2]},2024-05-{n + 1:02}\n" for n in range(20))
CASES = "<suite>" + "".join(f'<testcase name="t{n}" time="{n % 7}.5"/>\n' for n in range(20)) + "</suite>"
PEOPLE = "person,score\n" + "".join(f"p{n},{n * 9 % 50}\n" for n in range(20))


@pytest.mark.parametrize(
    ("content", "request_", "stated"),
    [
        (ISSUES, "how many issues have the label bug", 'where labels[].name has "bug": 30 ('),
        (ISSUES, "how many issues are not bugs", 'where labels[].name does not have "bug": 10 ('),
        (ISSUES, "how many issues have no labels", "where labels has no value: 10 ("),
        (ISSUES, "how many issues are tagged slow", 'where tags has "slow": 26 ('),
        (ISSUES, "how many issues are tagged slow and page view", "Nothing was computed"),
        (ISSUES, "how many issues did ada open?", "Nothing was computed: "),
        (ISSUES, "how many issues are unassigned", "where assignee.login has no value: 8 ("),
        (ISSUES, "how many issues have more than 5 restarts", "where restart_count > 5: 5 ("),
        (ISSUES, "how many people have more than 6 years of experience", "where years_experience > 6: 8 ("),
        (ISSUES, "how many issues are supplied by Acme", 'where supplier = "Acme": 20 ('),
        (ISSUES, "how many issues are disabled", 'where enabled != "true": 30 ('),
        (CHARGES, "how many charges are there", "Count of elements of data[]: 20."),
        (CHARGES, "how many disputes are there", 'Nothing was computed: "disputes" has no place'),
        (LEDGER, "sum of all negative amounts", 'Nothing was computed: "negative" has no place'),
        (LEDGER, "what is the total for Rent?", 'Sum of amount over 10 rows where category = "Rent": 40 ('),
        (LEDGER, "what is the total for Rent?", 'Count of rows where category = "Rent": 10 ('),
        (SHIPMENTS, "how many shipments went to Oslo", "Nothing was computed"),
        (SHIPMENTS, "how many shipments from Oslo", 'Count of rows where city = "Oslo": 10 ('),
        (SHIPMENTS.replace("2024-05-01", ""), "how many shipments from Oslo", "Nothing was computed"),
        (CASES, "how many test cases are there", "Count of <testcase> elements: 20."),
        (CASES, "which test took the longest", "Greatest time of 20 <testcase> elements: 6.5, shared by 2."),
        (PEOPLE, "how many people are over 40?", 'Nothing was computed: which field "over 40" is of is not said'),
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
