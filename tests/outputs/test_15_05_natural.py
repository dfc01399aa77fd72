"""Natural questions over tables, wrapped lists, nested objects and logs: every claim is true, doubt claims nothing."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from extract_kit import ask, stored
from test_15_05_computed import claims, computed, numbers_after, table

Row = dict[str, Any]
Fits = Callable[[Row], bool]
TEAMS = ("Sales", "Legal", "Engineering")


def staff(rng: random.Random) -> list[Row]:
    return [
        {
            "name": f"P{number}",
            "team": rng.choice((*TEAMS, "")),
            "state": rng.choice(("active", "retired", "on leave")),
            "salary_eur": rng.randrange(30, 90) * 1000,
            "hired": f"20{rng.randrange(10, 26)}-0{rng.randrange(1, 10)}-1{rng.randrange(10)}",
            "badge": rng.choice(("blue", "")),
            "remote": rng.choice(("yes", "no")),
        }
        for number in range(rng.randrange(20, 60))
    ]


def files(rows: list[Row]) -> dict[str, str]:
    known = [{key: value for key, value in row.items() if value != ""} for row in rows]
    nested = [
        {"name": row["name"], "work": {"team": row["team"] or None, "contracts": [{"salaryEur": row["salary_eur"]}]}}
        | {key: row[key] for key in ("state", "hired", "badge") if row[key]}
        | {"remote": row["remote"] == "yes"}
        for row in rows
    ]
    return {
        "csv": table(rows),
        "items": json.dumps({"total": len(rows), "items": known}),
        "result": json.dumps({"result": known}, indent=1),
        "staff": json.dumps({"staff": known}),
        "lines": "".join(json.dumps(row) + "\n" for row in known),
        "nested": json.dumps({"data": nested}),
    }


def questions(rng: random.Random) -> list[tuple[str, Fits]]:
    team, other = rng.sample(TEAMS, 2)
    year, limit = rng.randrange(2012, 2024), rng.randrange(35, 85) * 1000
    return [
        (f"work in {team}", lambda row: row["team"] == team),
        (f"are not in {team}", lambda row: row["team"] not in {team, ""}),
        (f"don't work in {team}", lambda row: row["team"] not in {team, ""}),
        (f"currently belong to neither {team} nor {other}", lambda row: row["team"] not in {team, other, ""}),
        (f"are there outside of {team}", lambda row: row["team"] not in {team, ""}),
        (f"are in teams except {team} and {other}", lambda row: row["team"] not in {team, other, ""}),
        ("are no longer active", lambda row: row["state"] != "active"),
        ("are unretired", lambda row: row["state"] != "retired"),
        ("aren't retired yet", lambda row: row["state"] != "retired"),
        ("are still active altogether", lambda row: row["state"] == "active"),
        ("are without a badge", lambda row: not row["badge"]),
        ("do not have a badge", lambda row: not row["badge"]),
        ("lack a badge", lambda row: not row["badge"]),
        ("are missing a team", lambda row: not row["team"]),
        ("are remote in total", lambda row: row["remote"] == "yes"),
        ("are not remote", lambda row: row["remote"] == "no"),
        (f"were hired after {year}", lambda row: int(row["hired"][:4]) > year),
        (f"were hired before {year}", lambda row: int(row["hired"][:4]) < year),
        (f"were hired up to {year}", lambda row: int(row["hired"][:4]) <= year),
        (f"were hired between {year} and 2024", lambda row: year <= int(row["hired"][:4]) <= 2024),
        (f"got a salary over {limit}", lambda row: row["salary_eur"] > limit),
        (f"have a salary of at most {limit} euros", lambda row: row["salary_eur"] <= limit),
        (f"in this file were hired in {year}", lambda row: int(row["hired"][:4]) == year),
        # Nobody may claim a number for these.
        (f"are in {team} or not active", lambda row: False),
        ("were never active", lambda row: False),
        ("are not unretired", lambda row: False),
        (f"are neither active nor in {team}", lambda row: False),
        (f"have a salary over {limit} dollars", lambda row: False),
        (f"work with the {team} discounts", lambda row: False),
        ("have no active colleagues", lambda row: False),
        (f"hired before {year} or after 2024", lambda row: False),
    ]


CLAIMABLE = 23


@pytest.mark.parametrize("seed", range(8))
def test_15_05_natural_questions_are_answered_and_every_claim_is_true(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    rows = staff(rng)
    kinds = {kind: stored(tmp_path, content) for kind, content in files(rows).items()}
    claimed = 0
    for number, (words, fits) in enumerate(questions(rng)):
        kind = rng.choice(sorted(kinds))
        noun = rng.choice(("employees", "people", "persons"))
        chosen = [row for row in rows if fits(row)]
        found = computed(kinds[kind], f"Can you tell me how many {noun} {words}?")
        assert number < CLAIMABLE or not found, (kind, words, found)
        if found:
            assert numbers_after(found[0].replace(f'"{noun}" is', "that is")) == str(len(chosen)), (kind, words, found)
        claimed += bool(found)
        total = computed(kinds[kind], f"what is the total salary of all {noun} that {words}")
        if total and chosen:
            said = numbers_after(total[0].replace(f'"{noun}" is', "that is"))
            assert said == str(sum(row["salary_eur"] for row in chosen)), (kind, words, total)
        assert number < CLAIMABLE or not total, (kind, words, total)
    assert claimed >= 0.8 * CLAIMABLE, claimed


@pytest.mark.parametrize("seed", range(4))
def test_15_05_superlatives_mean_the_one_field_they_can(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    rows = staff(rng)
    for kind, content in files(rows).items():
        document = stored(tmp_path, content)
        newest = computed(document, "which employee was hired most recently?")
        assert max(row["hired"] for row in rows) in newest[0], kind
        first = computed(document, "who was hired first?")
        assert min(row["hired"] for row in rows) in first[0], kind
        oldest = computed(document, "the oldest employee")
        assert min(row["hired"] for row in rows) in oldest[0], kind
        for asked in ("the dearest employee", "the longest name", "the slowest employee", "who is the largest?"):
            assert not computed(document, asked), (kind, asked)


SHOP = json.dumps(
    {
        "data": [
            {"sku": f"s{n}", "price_usd": n % 7, "weight": {"net_kg": n % 5}, "sizeBytes": n, "votes": n % 3}
            for n in range(21)
        ]
    }
)
TWO_KINDS = json.dumps(
    {
        "users": [{"id": n, "role": ("admin", "guest")[n % 2]} for n in range(8)],
        "orders": [{"id": n, "status": ("open", "paid")[n % 2], "price": n, "total": 2 * n} for n in range(12)],
    }
)
PODS = [
    {"name": f"p{n}", "status": {"phase": "Running", "containers": [{"restartCount": n}] * (1 + (n == 3))}}
    for n in range(6)
]
LOG = "".join(f"2026-05-01T10:{n:02}:00Z {('INFO', 'ERROR', 'WARN')[n % 3]} payments took {n} ms\n" for n in range(60))


@pytest.mark.parametrize(
    ("content", "request_", "said"),
    [
        (SHOP, "how many products are there?", 'elements of data[]: 21 ("products" is taken to mean the 21 elements'),
        (SHOP, "the cheapest product", "Least price_usd of 21 elements of data[]: 0, shared by 3"),
        (SHOP, "the biggest product", "Greatest sizeBytes of 21 elements of data[]: 20"),
        (SHOP, "how many products cost more than 3 dollars?", "where price_usd > 3: 9 (of 21 elements"),
        (SHOP, "how many products are over 3 dollars?", "where price_usd > 3: 9 (of 21 elements"),
        (SHOP, "how many products have a price over 3 euros?", ""),
        (SHOP, "how many products have a net weight over 3?", ""),
        (SHOP, "average net over all products", "Mean of weight.net_kg over 21 elements of data[]: 1.904762"),
        (SHOP, "total number of votes", "Sum of votes over 21 elements of data[]: 21"),
        (SHOP, "how many votes are there", ""),
        (SHOP, "how many products have 2 votes", "where votes = 2: 7 (of 21 elements"),
        (SHOP, "average number of votes per day", ""),
        (SHOP, "average number of votes per element", "Mean of votes over 21 elements of data[]: 1"),
        (TWO_KINDS, "how many accounts are there", ""),
        (TWO_KINDS, "how many orders are unpaid", 'where status != "paid": 6 (of 12 elements)'),
        (TWO_KINDS, "the dearest order", ""),
        (json.dumps(PODS[:3]), "the highest restartCount", "Greatest status.containers[].restartCount of 3"),
        (json.dumps(PODS), "the highest restartCount", ""),
        (json.dumps(PODS), "how many pods have a restart count over 1", ""),
        (LOG, "how many errors happened in total between 10:05 and 10:10?", "time <= 10:10: 2 (of 60 events)"),
        (LOG, "how many events are neither INFO nor WARN?", 'level is none of "INFO", "WARN": 20 (of 60 events)'),
        (LOG, "how many errors or warnings were logged?", "Count of events where level is one of"),
        (LOG, "how many events are neither INFO", ""),
        ("customer,state\nAda,open\nIvo,paid\nAda,paid\n", "which customer has the most rows", '2 different: "Ada": 2'),
        ("customer,state\nAda,open\nIvo,paid\nAda,paid\n", "how many customers have no open rows", ""),
        ("customer,state\nAda,open\nIvo,paid\nAda,paid\n", "what is the margin of Ada", ""),
        ("customer,state\nAda,in total\nIvo,paid\n", "how many rows are in total", 'state = "in total": 1'),
        ("order_id,state\n1,open\n2,paid\n", "how many refunds are there", ""),
        ("order_id,state\n1,paid\n2,open\n", "how many orders are paid, or not open", ""),
    ],
)
def test_15_05_what_natural_questions_get(tmp_path: Path, content: str, request_: str, said: str) -> None:
    found = computed(stored(tmp_path, content), request_)
    assert bool(found) == bool(said), found
    assert not said or said in found[0]


def test_15_05_candidates_are_named(tmp_path: Path) -> None:
    assert '"dearest" may be by price or total' in ask(stored(tmp_path, TWO_KINDS), "the dearest order").text


@pytest.mark.parametrize("asked", ["how many accounts are there in total?", "the largest accounts, i.e. those there"])
def test_15_05_words_of_the_question_are_not_reported_missing(tmp_path: Path, asked: str) -> None:
    text = ask(stored(tmp_path, "order_id,state\n1,open\n2,paid\n"), asked).text
    assert not claims(text)
    assert "No match" not in text
    assert "Not in the document" not in text
    body = text.partition("\n\n")[2].splitlines()
    assert len(body) <= 3
    assert body[-1] == "Fields of the 2 rows: order_id, state."
