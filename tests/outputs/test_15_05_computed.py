"""Nothing is claimed that was guessed: a request is a query to its last word, or nothing is stated."""

import csv
import io
import json
import random
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from extract_kit import ask, stored

from toolfold.outputs.document import Document
from toolfold.outputs.local.computed import compute
from toolfold.outputs.local.index import IndexCache

Row = dict[str, Any]
STATES = ("open", "failed", "paid", "in transit")
CITIES = ("Graz", "Porto", "Turin")
# Anything that reads as a computed statement.
CLAIM = re.compile(
    r"^(?:Count|Sum|Mean|Greatest|Least|Values|By its place|There are no|\d+ \S+ where)\b.*", re.MULTILINE
)


def answer(folder: Path, content: str | bytes, request: str) -> str:
    return ask(stored(folder, content), request).text


def claims(text: str) -> list[str]:
    return CLAIM.findall(text)


def computed(document: Document, request: str) -> list[str]:
    """What is claimed, without the passages, which take most of the time."""
    with IndexCache().of(document.path) as index:
        return claims("\n".join(compute(index, request).lines))


def table(rows: list[Row]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def stanzas(rows: list[Row]) -> str:
    return "\n".join("".join(f"{key}: {value}\n" for key, value in row.items() if value != "") for row in rows)


def elements(rows: list[Row]) -> str:
    fields = [
        "".join(f"    <{key}>{value}</{key}>\n" for key, value in row.items() if key != "order_id" and value != "")
        for row in rows
    ]
    body = "".join(
        f'  <order order_id="{row["order_id"]}">\n{own}  </order>\n' for row, own in zip(rows, fields, strict=True)
    )
    return f"<?xml version='1.0'?>\n<shop>\n{body}</shop>\n"


def markdown(rows: list[Row]) -> str:
    lines = [" | ".join(rows[0]), " | ".join("---" for _ in rows[0])]
    lines += [" | ".join(str(value) for value in row.values()) for row in rows]
    return "# Orders\n\nThe orders of a week.\n\n## All\n\n" + "".join(f"| {line} |\n" for line in lines)


def page(rows: list[Row]) -> str:
    head = "".join(f"<th>{key}</th>" for key in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{value}</td>" for value in row.values()) + "</tr>\n" for row in rows)
    return f"<!DOCTYPE html><html><body><h1>Orders</h1>\n<table>\n<tr>{head}</tr>\n{body}</table></body></html>"


def documents(rows: list[Row]) -> dict[str, str]:
    known = [{key: value for key, value in row.items() if value != ""} for row in rows]
    return {
        "csv": table(rows),
        "json": json.dumps({"total": len(rows), "orders": known}),
        "pretty": json.dumps(known, indent=2),
        "lines": "".join(json.dumps(row) + "\n" for row in known),
        "stanzas": stanzas(rows),
        "xml": elements(rows),
        "markdown": markdown(rows),
        "page": page(rows),
    }


def make_rows(rng: random.Random) -> list[Row]:
    def maybe(value: Any) -> Any:
        return "" if rng.random() < sparse else value

    sparse = rng.choice((0, 0.1, 0.5))
    return [
        {
            "order_id": 1000 + number * 3,
            "status": maybe(rng.choice(STATES)),
            "city": maybe(rng.choice(CITIES)),
            "amount": maybe(rng.choice((f"{rng.randrange(1, 90_000) / 100:.2f}", str(rng.randrange(1, 900))))),
            "booked": f"2026-0{rng.randrange(1, 10)}-1{rng.randrange(10)}",
        }
        for number in range(rng.randrange(5, 60))
    ]


def amount(row: Row) -> Decimal | None:
    return Decimal(row["amount"]) if row["amount"] != "" else None


Test = Callable[[Row], bool]


def conditions(rng: random.Random) -> list[tuple[str, Test]]:
    """Ways to say a condition, each with what it means in plain Python."""
    state, other = rng.sample(STATES, 2)
    city, limit = rng.choice(CITIES), rng.randrange(1, 900)
    low, high = sorted(rng.sample(range(1, 900), 2))
    day = f"2026-0{rng.randrange(1, 10)}-15"
    return [
        (f"with status {state}", lambda row: row["status"] == state),
        (f"that are {state}", lambda row: row["status"] == state),
        (f"that are not {state}", lambda row: row["status"] not in {state, ""}),
        (f"that aren't {state}", lambda row: row["status"] not in {state, ""}),
        (f"where status is not {state}", lambda row: row["status"] not in {state, ""}),
        (f'where status != "{state}"', lambda row: row["status"] not in {state, ""}),
        (f"except {state}", lambda row: row["status"] not in {state, ""}),
        (f"excluding {state} and {other}", lambda row: row["status"] not in {state, other, ""}),
        (f"other than {state}", lambda row: row["status"] not in {state, ""}),
        (f"without status {state}", lambda row: row["status"] not in {state, ""}),
        (f"that are {state} or {other}", lambda row: row["status"] in {state, other}),
        (f"not {state} or {other}", lambda row: row["status"] not in {state, other, ""}),
        ("without a city", lambda row: row["city"] == ""),
        ("that have no amount", lambda row: row["amount"] == ""),
        (f"with amount over {limit}", lambda row: (amount(row) or 0) > limit),
        (f"with an amount of at most {limit}", lambda row: amount(row) is not None and (amount(row) or 0) <= limit),
        (f"with amount between {low} and {high}", lambda row: low <= (amount(row) or -1) <= high),
        (f"where amount is not over {limit}", lambda row: amount(row) is not None and (amount(row) or 0) <= limit),
        (f"from {city} that are {state}", lambda row: row["city"] == city and row["status"] == state),
        (f"in {city} not {state}", lambda row: row["city"] == city and row["status"] not in {state, ""}),
        (f"booked after {day}", lambda row: row["booked"] > day),
        (f"before {day} with status {state}", lambda row: row["booked"] < day and row["status"] == state),
        (
            f"between {day} and 2026-09-30 in {city}",
            lambda row: day <= row["booked"] <= "2026-09-30" and row["city"] == city,
        ),
        (f"that are neither {state} nor {other}", lambda row: row["status"] not in {state, other, ""}),
        (f"that are un{state}", lambda row: row["status"] not in {state, ""}),
        # No part of the grammar: nobody may claim a number for these.
        (f"that were never {state}", lambda row: False),
        (f"whose owner is not {state}", lambda row: False),
        (f"that are hardly {state}", lambda row: False),
        (f"except {state} from {city}", lambda row: False),
        (f"not {state} and {other}", lambda row: False),
        (f"{state} or from {city}", lambda row: False),
    ]


UNPLACED = 6


def numbers_after(line: str) -> str:
    """The figure of a statement: what stands behind its last colon, without the notes."""
    return re.sub(r" \((?:of|\d+ with no|that).*\)\.$|\.$", "", line).rpartition(": ")[2].split("; ")[0]


@pytest.mark.parametrize("seed", range(10))
def test_15_05_every_claim_is_true_and_common_forms_get_one(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    rows = make_rows(rng)
    kinds = documents(rows)
    asked = claimed = 0
    for number, (words, fits) in enumerate(every := conditions(rng)):
        kind = rng.choice(sorted(kinds))
        document = stored(tmp_path, kinds[kind])
        chosen = [row for row in rows if fits(row)]
        placed = number < len(every) - UNPLACED
        found = computed(document, f"how many orders {words}?")
        assert placed or not found, (kind, words, found)
        if found:
            assert numbers_after(found[0]) == str(len(chosen)), (kind, words, found)
        asked, claimed = asked + placed, claimed + bool(found)
        values = [own for row in chosen if (own := amount(row)) is not None]
        total = computed(document, f"what is the sum of amount for the orders {words}")
        if placed and total and values:
            assert Decimal(numbers_after(total[0])) == sum(values), (kind, words, total)
        most = computed(document, f"the highest amount of orders {words}")
        if placed and most and values:
            assert Decimal(numbers_after(most[0])) == max(values), (kind, words, most)
        assert placed or not (total or most), (kind, words, total, most)
    # A value that no row has is no condition: the more rows, the fewer of these there are.
    assert claimed >= 0.8 * asked, f"{claimed} of {asked}"


@pytest.mark.parametrize("seed", range(6))
def test_15_05_first_last_and_lookups_are_those_of_the_document(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    rows = make_rows(rng)
    kinds = documents(rows)
    for kind, content in kinds.items():
        document = stored(tmp_path, content)
        row = rng.choice(rows)
        looked_up = ask(document, f"what is the city of order {row['order_id']}?").text
        wanted = f'city: "{row["city"]}"' if row["city"] else "city: no value"
        assert any(wanted in line for line in looked_up.splitlines() if f'"{row["order_id"]}"' in line), (
            kind,
            looked_up,
        )
        state = rng.choice(STATES)
        fitting = [row for row in rows if row["status"] == state]
        for word, place in (("first", 0), ("last", -1)):
            found = computed(document, f"the {word} order with status {state}")
            assert bool(found) == bool(fitting), (kind, state, found)
            assert not fitting or f'"{fitting[place]["order_id"]}"' in found[0], (kind, word, state, found)


ORDERS = "order_id,status,amount\n" + "".join(f"{n},{'failed' if n % 5 == 0 else 'paid'},{n}.50\n" for n in range(100))


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ("how many orders are not failed", 'Count of rows where status != "failed": 80 (of 100 rows).'),
        ("sum of amount except failed", 'Sum of amount over 80 rows where status != "failed": 4040 (of 100 rows).'),
        ("total amount of orders not paid", 'Sum of amount over 20 rows where status != "paid": 960 (of 100 rows).'),
        (
            "the sum of amount without failed",
            'Sum of amount over 80 rows where status != "failed": 4040 (of 100 rows).',
        ),
    ],
)
def test_15_05_negations_count_and_are_printed(tmp_path: Path, request_: str, said: str) -> None:
    assert said in answer(tmp_path, ORDERS, request_)


def test_15_05_rows_without_a_value_are_told(tmp_path: Path) -> None:
    rows = "".join(f"r{n},{n if n % 4 == 0 else ''},{'x' if n % 2 else ''}\n" for n in range(1, 101))
    text = answer(tmp_path, "name,size,kind\n" + rows, "largest size")
    assert "Greatest size of 25 rows: 100 (75 of them without a value to compare)." in text
    text = answer(tmp_path, "name,size,kind\n" + rows, "how many rows where kind is not x")
    assert 'Count of rows where kind != "x": 0 (of 100 rows; 50 with no kind to compare).' in text


@pytest.mark.parametrize(
    "content",
    [
        ORDERS + '100,"failed\n',
        ORDERS + "100,failed,1,2\n",
        json.dumps({"orders": [{"order_id": n, "status": "failed"} for n in range(300)]})[:-40],
        "".join(json.dumps({"order_id": n, "status": "failed"}) + "\n" for n in range(90)) + '{"order_id": 91, "st',
        json.dumps([{"order_id": 1, "status": "failed"}]) + json.dumps([{"order_id": 2, "status": "failed"}]),
    ],
)
def test_15_05_what_cannot_be_read_whole_is_not_counted(tmp_path: Path, content: str) -> None:
    text = answer(tmp_path, content, "how many orders are failed?")
    assert not claims(text)
    assert "Nothing was computed: " in text


def test_15_05_numbers_match_whole(tmp_path: Path) -> None:
    rows = "order_id,amount\n" + "".join(f"{n},{n + 3321}.99\n" for n in range(1000, 9000, 7))
    assert not claims(answer(tmp_path, rows, "the amount of order 4321"))
    assert "4321.99" not in answer(tmp_path, rows, "the amount of order 4321")
    assert "No match was found" in answer(tmp_path, "a 43210 b\n" * 50 + "x\n" * 50, "what is 4321?")
    assert "ticket 4321 is closed" in answer(
        tmp_path, "it is 4321.99\n" * 50 + "ticket 4321 is closed.\n", "ticket 4321"
    )


def test_15_05_the_first_of_a_list_is_not_given_for_another(tmp_path: Path) -> None:
    users = [{"id": n, "name": f"u{n}", **({"email": f"u{n}@test"} if n < 40 else {})} for n in range(2000)]
    text = answer(tmp_path, json.dumps({"users": users}), "what is the email of user 1500?")
    assert "By the names of keys" not in text
    assert 'users[1500]: email: no value, id: "1500"' in text


def test_15_05_different_values_are_told_apart_and_cut_with_a_mark(tmp_path: Path) -> None:
    long = [f"{'the same beginning of a long message ' * 9}{n}" for n in range(5)]
    rows = json.dumps([{"id": n, "message": long[n % 5]} for n in range(50)])
    text = answer(tmp_path, rows, "how many different messages are there?")
    assert "Values of message in elements of []: 5 different" in text
    assert text.count("more characters)") == 5


def test_15_05_words_of_the_question_are_not_missing_from_the_document(tmp_path: Path) -> None:
    text = answer(tmp_path, ORDERS, "which ordered goods are not the largest of zone Z9-77, at 12.50?")
    assert "Not in the document as written: z9-77." in text
    for word in ("largest", "not,", "ord,", "goods"):
        assert word not in text.split("Not in the document as written: ")[1].split("\n")[0]


@pytest.mark.parametrize("asked", ["the invoice 88231 of March", "zebras", "the owner of svc_unknown_7"])
@pytest.mark.parametrize(
    "content", [ORDERS * 20, json.dumps({"orders": [{"id": n, "a": {"b": n}} for n in range(900)]})]
)
def test_15_05_not_found_takes_three_lines(tmp_path: Path, content: str, asked: str) -> None:
    text = answer(tmp_path, content, asked)
    assert "No match was found for the words: " in text
    body = text.partition("\n\n")[2]
    assert len(body.splitlines()) == 3
    assert len(body) < 1000


def test_15_05_a_record_that_is_not_there_takes_three_lines(tmp_path: Path) -> None:
    text = answer(tmp_path, ORDERS, "status of the order frobnicate")
    assert "No match was found for the words: frobnicate. Their meaning was not looked for, " in text
    assert len(text.partition("\n\n")[2].splitlines()) == 3


@pytest.mark.parametrize(
    ("request_", "wanted"),
    [
        ("what became of ticket #4321?", "ticket 4321 is closed"),
        ("ticket-4321", "ticket 4321 is closed"),
        ("what is new in v2.7.1", "release 2.7.1 adds lamps"),
        ("what cost 1234567", "it cost 1,234,567 crowns"),
        ("what happened on 2026-05-03", "on 03 May 2026 the harbour"),
    ],
)
def test_15_05_what_is_written_otherwise_is_not_called_absent(tmp_path: Path, request_: str, wanted: str) -> None:
    lines = [
        "ticket 4321 is closed",
        "release 2.7.1 adds lamps",
        "it cost 1,234,567 crowns",
        "on 03 May 2026 the harbour",
    ]
    text = answer(tmp_path, "\n".join(["nothing here"] * 9 + lines + ["what happened before"] * 9), request_)
    assert wanted in text
    assert "Not in the document" not in text
    assert "No match" not in text


def test_15_05_a_carriage_return_is_quoted_as_it_is(tmp_path: Path) -> None:
    text = answer(tmp_path, "one\r\nthe needle is here\r\nthree\r\n" * 3, "needle")
    assert "\ufffd" not in text
    assert "the needle is here\r\n" in text


def test_15_05_a_value_is_verbatim_with_its_carriage_return(tmp_path: Path) -> None:
    rows = "".join(f'{n},"first\rsecond {n}",2\r\n' for n in range(500, 600))
    text = answer(tmp_path, f"order_id,note,size\r\n{rows}", "the note of order 577")
    assert 'note: "first\rsecond 577", order_id: "577"' in text


NESTED = json.dumps(
    {
        "orders": [
            {
                "id": n,
                "status": ("open", "paid")[n % 2],
                "customer": {"name": ("open", "Ada", "Ivo")[n % 3]},
                "tags": ["a", "b"],
                "created_at": f"2026-05-{n % 28 + 1:02}",
                "updated_at": f"2026-06-{n % 28 + 1:02}",
                "amount": n,
            }
            for n in range(84)
        ]
    }
)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ("how many open orders", '"open" is a value of status and of customer.name'),
        ("how many customers are there", '"customers" has no place'),
        ("how many orders after 2026-05-10", "which field the time is of is not said"),
        ("how many orders have tags over 5", "tags is a list"),
        ("is the last order paid", '"is" has no place'),
        ("how many orders are paid or have amount over 5", '"or" has no place'),
        ("how many orders were paid twice", '"twice" has no place'),
        ("the highest amount that Eve paid", '"Eve" has no place'),
        ("how many paid orders except Ada with amount over 5", "has no place"),
        ("sum of customers", '"customers" has no place'),
        ("sum of status", "status is no number"),
    ],
)
def test_15_05_doubt_is_said_and_nothing_claimed(tmp_path: Path, request_: str, why: str) -> None:
    text = answer(tmp_path, NESTED, request_)
    assert f"Nothing was computed: {why}" in text or (why in text and "Nothing was computed: " in text)
    assert not claims(text)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ("how many orders with open status", 'where status = "open": 42 (of 84 elements)'),
        ("how many orders were created after 2026-05-10", "where created_at > 2026-05-10: 54 (of 84 elements)"),
        ("how many orders created in May 2026", "where created_at = 2026-05: 84 (of 84 elements)"),
        ("orders with an amount over 50 but under 60", "9 elements of orders[] where amount > 50 and amount < 60"),
        (
            "how many orders of Ada are not paid",
            'where customer.name = "Ada" and status != "paid": 14 (of 84 elements)',
        ),
        (
            "how many orders per status",
            'Values of status in elements of orders[]: 2 different: "open": 42, "paid": 42.',
        ),
        ("when was order 17 created?", 'orders[17]: created_at: "2026-05-18", id: "17"'),
        ("the third paid order", "By its place in the list, 3 of 42 elements of orders[] where status"),
        ("how many orders have an amount of exactly 12", "where amount = "),
    ],
)
def test_15_05_other_forms_are_answered_with_their_condition(tmp_path: Path, request_: str, said: str) -> None:
    assert said in answer(tmp_path, NESTED, request_)


@pytest.mark.parametrize(
    "request_", ["how many files are there", "how many directories", "how many entries of type file"]
)
def test_15_05_the_top_of_a_tree_is_not_counted_for_all_of_it(tmp_path: Path, request_: str) -> None:
    folder = {"name": "d", "type": "directory", "children": [{"name": f"f{n}", "type": "file"} for n in range(50)]}
    tree = [{"name": "a", "type": "file"}, {**folder, "children": [folder, folder, {"name": "x", "type": "file"}]}]
    text = answer(tmp_path, json.dumps(tree), request_)
    assert not claims(text)
    assert "elements of [].children[] may be meant, too" in text


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "latin-1", "cp1252"])
def test_15_05_other_encodings_are_read(tmp_path: Path, encoding: str) -> None:
    rows = "name;town;size\n" + "".join(f"Jörg{n};Köln;{n}\n" for n in range(200))
    document = stored(tmp_path, rows.encode(encoding))
    assert 'Count of rows where town = "Köln": 200 (of 200 rows).' in ask(document, "how many rows with town Köln").text
    assert "Jörg77;Köln;77" in ask(document, "size of Jörg77").text
    assert "\ufffd" not in ask(document, "size of Jörg77").text
    assert "1 lines fit" in ask(document, "/J.rg77;/").text


STANZAS = "\n".join(
    f"Package: p{n}\nStatus: install ok {'installed' if n % 3 else 'half-configured'}\nInstalled-Size: {n * 7 % 501}\n"
    f"Description: the package {n}\n more of it\n .\n and more\n" + ("Essential: yes\n" if n % 50 == 0 else "")
    for n in range(1, 301)
)
LOG = "".join(
    f"2026-05-0{1 + n // 720} {n // 60 % 24:02}:{n % 60:02}:00 "
    f"{'ERROR' if n % 50 == 0 else 'WARN' if n % 7 == 0 else 'INFO'} "
    f"[svc-{n % 9}] slow query took {n * 37 % 1009} ms user=u{n % 11}\n" + ("    at frame one\n" if n % 50 == 0 else "")
    for n in range(1440)
)


SYSLOG = "".join(
    f"May {1 + n // 100:2} {n % 24:02}:{n % 60:02}:00 host{n % 2} "
    f"{('sshd', 'cron')[n % 5 == 0]}[{n * 7}]: Failed password\n"
    for n in range(400)
)
JSON_LOG = "".join(
    json.dumps({"ts": f"2026-05-01T{n % 24:02}:00:00Z", "level": ("info", "warn")[n % 4 == 0]}) + "\n"
    for n in range(80)
)


@pytest.mark.parametrize(
    ("content", "request_", "said"),
    [
        (SYSLOG, "how many events from sshd", 'Count of events where program = "sshd": 320 (of 400 events).'),
        (SYSLOG, "how many events not from cron after 20:00", 'where program != "cron" and time > 20:00: '),
        (SYSLOG, "the last event of cron", 'time: "May  4 11:35:00"'),
        (JSON_LOG, "how many warnings", 'Count of records where level = "warn": 20 (of 80 records).'),
        (JSON_LOG, "how many errors", 'Nothing was computed: "error" has no place'),
        (LOG, "how many events are not very important", 'Nothing was computed: "very" has no place'),
        (LOG, "how many fatal events", 'Count of events where level = "fatal": 0 (of 1440 events).'),
        (
            STANZAS,
            "which package has the largest installed size?",
            'Greatest Installed-Size of 300 records: 500.\nline 1139: Package: "p143"',
        ),
        (
            STANZAS,
            "how many packages are essential",
            'Count of records where Essential = "yes": 6 (of 300 records; 294',
        ),
        (STANZAS, "the description of package p77", 'Description: "the package 77\n more of it\n .\n and more"'),
        (
            LOG,
            "how many errors on 2026-05-01",
            'Count of events where level = "ERROR" and time = 2026-05-01: 15 (of 1440 events).',
        ),
        (LOG, "how many errors between 10:00 and 12:00 on 2026-05-02", "Count of events where"),
        (LOG, "how many events are not errors", 'Count of events where level != "ERROR": 1411 (of 1440 events).'),
        (LOG, "the last warning before 03:00 on 2026-05-01", "line "),
        (LOG, "slowest query", 'Greatest took ms of 1440 events where the text has "query" as a whole word: 1008'),
        (LOG, "how many different user values are there", "Values of user in events: 11 different"),
    ],
)
def test_15_05_stanzas_and_logs_are_records(tmp_path: Path, content: str, request_: str, said: str) -> None:
    assert said in answer(tmp_path, content, request_)
