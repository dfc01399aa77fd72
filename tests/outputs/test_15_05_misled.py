"""What a reader could be misled by: a wrong quantity, a word passed over, a clock, a table, a currency, a negative."""

import csv
import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
from extract_kit import ask, stored

Row = dict[str, Any]


def answer(folder: Path, content: str, request: str) -> str:
    return ask(stored(folder, content), request).text


def make_tours() -> list[Row]:
    """Numbered under the name of the records; not in the order of their times."""
    rng = random.Random(5)
    return [
        {
            "tour": number,
            "guide": rng.choice(("Mina", "Otto", "Pia")),
            "began": f"2026-06-{rng.randrange(1, 29):02}T{rng.randrange(6, 20):02}:{rng.randrange(60):02}:00Z",
            "km": rng.randrange(20, 900) / 10,
            "rain": rng.random() < 0.3,
            "remark": rng.choice((None, None, "slow", "lost a boot")),
        }
        for number in range(1, 121)
    ]


TOURS = make_tours()
TOURS_JSON = json.dumps({"tours": TOURS})


def table(rows: list[Row]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: "" if value is None else value for key, value in row.items()} for row in rows)
    return out.getvalue()


TOURS_CSV = table(TOURS)
SHARE = round(100 * sum(row["rain"] for row in TOURS) / 120, 2)
LONGEST = max(TOURS, key=lambda row: row["km"])
EARLIEST = min(TOURS, key=lambda row: row["began"])


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ("percentage of tours with rain", f"{SHARE:g}% ("),
        ("total tours", "Count of elements of tours[]: 120."),
        ("longest tour", f"Greatest km of 120 elements of tours[]: {LONGEST['km']}."),
        ("the earliest tour", f"Least began of 120 elements of tours[]: {EARLIEST['began']}."),
        ("average km per tour", "Mean of km over 120 elements"),
        ("average tour", "Nothing was computed: the field is not named"),
        ("fastest tour", 'Nothing was computed: which field "fastest" is by is not said'),
        ("sum of tour", "Nothing was computed: "),
        ("highest tour", "Nothing was computed: "),
    ],
)
def test_15_05_what_the_records_are_called_is_no_quantity(tmp_path: Path, request_: str, said: str) -> None:
    assert said in answer(tmp_path, TOURS_JSON, request_)
    assert said.replace("elements of tours[]", "rows").replace("elements", "rows") in answer(
        tmp_path, TOURS_CSV, request_
    )


def test_15_05_a_quantity_by_the_name_of_the_records_is_one(tmp_path: Path) -> None:
    scores = json.dumps({"scores": [{"name": f"n{n}", "score": n % 7} for n in range(70)]})
    assert "Mean of score over 70 elements of scores[]: 3." in answer(tmp_path, scores, "average score")
    amounts = "amount,town\n" + "".join(f"{n * n},t{n}\n" for n in range(2, 30))
    assert "Sum of amount over 28 rows: 8554." in answer(tmp_path, amounts, "sum of amount")


def with_remark(**demands: Any) -> int:
    return sum(bool(row["remark"]) and all(row[key] == value for key, value in demands.items()) for row in TOURS)


@pytest.mark.parametrize("content", [TOURS_JSON, TOURS_CSV])
@pytest.mark.parametrize(
    ("request_", "count"),
    [
        ("tours of Mina with a remark", with_remark(guide="Mina")),
        ("tours of Mina that have a remark", with_remark(guide="Mina")),
        ("tours of Mina whose remark is set", with_remark(guide="Mina")),
        ("tours of Mina where the remark exists", with_remark(guide="Mina")),
        ("tours with rain and a remark", with_remark(rain=True)),
        ("tours with a remark and their guide", with_remark()),
        ("how many tours of Mina with a remark", with_remark(guide="Mina")),
    ],
)
def test_15_05_rows_keep_every_condition(tmp_path: Path, content: str, request_: str, count: int) -> None:
    text = answer(tmp_path, content, request_)
    assert "remark has a value" in text
    assert f"{count} elements" in text or f"{count} rows" in text or f": {count} (" in text


@pytest.mark.parametrize("asked", ["the latest tour with a remark", "the first tour with a remark"])
def test_15_05_every_operation_keeps_what_must_be_there(tmp_path: Path, asked: str) -> None:
    assert "remark has a value" in answer(tmp_path, TOURS_JSON, asked)


STAYS = (
    '<?xml version="1.0"?>\n<stays year="2026">\n'
    + "".join(
        f'  <stay no="N{n}">\n    <from>2026-0{n % 6 + 1}-11</from>\n    <arrive>2026-0{n % 6 + 1}-1{n % 9}</arrive>\n'
        f'    <leave>2026-0{n % 6 + 2}-1{n % 9}</leave>\n    <guests grown="2" small="{n % 4}"/>\n'
        f"    <room>{('Attic', 'Barn')[n % 2]}</room>\n" + ("    <dog/>\n" if n % 5 == 0 else "") + "  </stay>\n"
        for n in range(60)
    )
    + "</stays>\n"
)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ("stays in the Barn with a dog", '6 <stay> elements where room = "Barn" and dog is there'),
        ("how many stays without a dog", "Count of <stay> elements where dog is not there: 48"),
        ("how many stays with 3 small", "where guests.small = 3: 15 (of 60"),
        ("earliest arrival", "Least arrive of 60 <stay> elements: 2026-01-10"),
        ("how many stays with arrive in March", "where arrive = 2026-03: 10 (of 60"),
    ],
)
def test_15_05_empty_elements_and_attributes_of_xml(tmp_path: Path, request_: str, said: str) -> None:
    text = answer(tmp_path, STAYS, request_)
    assert said in text
    assert "dog: no value" not in text


NIGHT = "".join(
    f"2026-03-{4 + (20 * 60 + n * 3) // 1440:02} {(20 + n * 3 // 60) % 24:02}:{n * 3 % 60:02}:07 "
    f"{'ERROR' if n % 4 == 0 else 'INFO'} [kiln] the heat is {600 + n}\n"
    for n in range(180)
)
NIGHT_LINES = "".join(
    json.dumps({"ts": f"{line[:10]}T{line[11:19]}Z", "level": line[20:].split()[0].lower()}) + "\n"
    for line in NIGHT.splitlines()
)


def errors_between(first: str, last: str, *, over_midnight: bool = False) -> int:
    clocks = [line[11:19] for line in NIGHT.splitlines() if " ERROR " in line]
    if over_midnight:
        return sum(clock >= first or clock <= last for clock in clocks)
    return sum(first <= clock <= last for clock in clocks)


@pytest.mark.parametrize("content", [NIGHT, NIGHT_LINES])
@pytest.mark.parametrize(
    ("request_", "count"),
    [
        ("how many errors between 23:30 and 00:30", errors_between("23:30:00", "00:30:00", over_midnight=True)),
        ("how many errors between 23:30 and 00:29", errors_between("23:30:00", "00:29:59", over_midnight=True)),
        ("how many errors between 02:00 and 02:59", errors_between("02:00:00", "02:59:59")),
        ("how many errors from 11 pm to 1 am", errors_between("23:00:00", "01:00:00", over_midnight=True)),
        ("how many errors at 3 am", errors_between("03:00:00", "03:59:59")),
        ("how many errors at 3am", errors_between("03:00:00", "03:59:59")),
        ("how many errors after 3 am", errors_between("03:00:01", "19:00:00") + errors_between("20:00:00", "24")),
        ("how many errors between 2 am and 3 am", errors_between("02:00:00", "03:00:00")),
    ],
)
def test_15_05_a_clock_is_a_stretch_of_time(tmp_path: Path, content: str, request_: str, count: int) -> None:
    text = answer(tmp_path, content, request_)
    assert f": {count} (of 180" in text
    assert "Nothing in the document" not in text
    # Which day is meant is not said.
    assert "has several days, and the clock is that of each" in text


@pytest.mark.parametrize(
    "asked",
    [
        "how many errors after 23:00 and before 01:00",
        "how many errors between 23:30 and 00:30 on 2026-03-04",
        "how many errors between 2026-03-05 and 2026-03-04",
        "how many errors between 2026-03-04 23:30 and 00:30",
    ],
)
def test_15_05_a_time_that_ends_before_it_begins_is_not_counted(tmp_path: Path, asked: str) -> None:
    assert "Nothing was computed: " in answer(tmp_path, NIGHT, asked)


def test_15_05_with_its_day_a_clock_needs_no_remark(tmp_path: Path) -> None:
    text = answer(tmp_path, NIGHT, "how many errors before 22:00 on 2026-03-04")
    assert "time < 22:00 and time = 2026-03-04: 10 (of 180 events)." in text


@pytest.mark.parametrize(
    ("content", "asked", "word"),
    [
        (TOURS_JSON, "tours on Sundays", "sundays"),
        (TOURS_CSV, "hiking tours", "hiking"),
        ("a plain text\n" * 30, "zebras", "zebras"),
    ],
)
def test_15_05_only_the_word_is_said_to_be_missing(tmp_path: Path, content: str, asked: str, word: str) -> None:
    text = answer(tmp_path, content, asked)
    assert f"No match was found for the words: {word}" in text
    assert "Their meaning was not looked for, and nothing was computed." in text


def test_15_05_a_month_that_is_not_written_out_is_not_called_absent(tmp_path: Path) -> None:
    text = answer(tmp_path, TOURS_CSV, "how many tours began in June and were hardly wet")
    assert "Nothing was computed: " in text
    assert "Not in the document:" not in text


def test_15_05_a_text_that_is_worded_otherwise_is_not_denied(tmp_path: Path) -> None:
    log = NIGHT.replace("the heat is", "kiln probe P4 timeout at")
    text = answer(tmp_path, log, "how often did probe P4 time out")
    assert 'has "probe P4 time out" as a whole word; it may be worded otherwise' in text


PANTRY = (
    "# Pantry\n\n| item | shelf | stock |\n|---|---|---|\n"
    + "".join(f"| {('soap', 'egg', 'lamp oil')[n % 3]} {n} | B{n % 2} | {n} |\n" for n in range(60))
    + "\n## Ordered\n\n| item | quantity | due |\n|---|---|---|\n| flour | 3 | 2026-05-01 |\n"
    "| soap | 4 | 2026-05-02 |\n"
)


@pytest.mark.parametrize("asked", ["how many soaps", "how many eggs", "how many soap do we have", "how many jars"])
def test_15_05_which_table_is_meant_must_follow_from_the_question(tmp_path: Path, asked: str) -> None:
    text = answer(tmp_path, PANTRY, asked)
    assert "Nothing was computed: " in text
    assert "Count of" not in text


def test_15_05_the_form_that_works_is_told(tmp_path: Path) -> None:
    assert 'ask for item contains "egg"' in answer(tmp_path, PANTRY, "how many eggs")
    text = answer(tmp_path, PANTRY, 'how many rows where item contains "egg"')
    assert 'has "egg" as a whole word: 20 (of 60 rows)' in text


def test_15_05_a_field_says_which_table(tmp_path: Path) -> None:
    assert "Sum of quantity over 2 rows" in answer(tmp_path, PANTRY, "sum of quantity")


SALES = [
    {
        "no": f"S{n}",
        "sold_on": f"2026-0{n * 5 % 9 + 1}-1{n % 10}",
        "buyer": ("Tam", "Uri")[n % 2],
        "jars": n % 6 + 1,
        "price": f"{n % 5 + 4}.50",
        "currency": ("EUR", "EUR", "CHF")[n % 3],
        "state": ("paid", "open", "part paid")[n % 3 - 1],
        "paid_on": f"2026-10-1{n % 10}" if n % 3 == 1 else "",
    }
    for n in range(90)
]


def total(currency: str) -> str:
    return f"{sum(float(row['price']) for row in SALES if row['currency'] == currency):g}"


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ("sum of price", f'Sum of price over 90 rows, per currency: "EUR": {total("EUR")}, "CHF": {total("CHF")}; '),
        ("sum of price in CHF", f'Sum of price over 30 rows where currency = "CHF": {total("CHF")} (of 90 rows).'),
        ("highest price", 'as bare numbers, though of several currency: "EUR", "CHF"'),
        ("sum of jars", "Sum of jars over 90 rows: 315."),
        ("cheapest jar", "Least price of 90 rows: 4.50"),
        ("average price of a jar", 'Nothing was computed: "a jar" has no place'),
    ],
)
def test_15_05_several_currencies_are_told(tmp_path: Path, request_: str, said: str) -> None:
    assert said in answer(tmp_path, table(SALES), request_)


def test_15_05_several_signs_are_no_sum(tmp_path: Path) -> None:
    rows = "item,price\n" + "".join(f"i{n},{'$€'[n % 2]}{n}\n" for n in range(40))
    assert "Nothing was computed: price is in $ and €" in answer(tmp_path, rows, "total price")


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ("how many sales are paid", 'where state = "paid": 30 (of 90'),
        ("how many sales are not paid", 'where state != "paid": 60 (of 90'),
        ("how many sales were paid after 2026-10-15", "where paid_on > 2026-10-15"),
        ("when was S1 paid", 'paid_on: "2026-10-11"'),
        ("how many rows with sold_on in March", "where sold_on = 2026-03: "),
        ("last row of Uri", "Not in the order of sold_on: by that the latest is "),
        ("rows over 100", 'Nothing was computed: which field "over 100" is of is not said'),
    ],
)
def test_15_05_the_reason_is_the_true_one(tmp_path: Path, request_: str, said: str) -> None:
    assert said in answer(tmp_path, table(SALES), request_)


def test_15_05_the_words_of_the_request_are_quoted(tmp_path: Path) -> None:
    sales = json.dumps({"sales": SALES})
    assert 'which field "top" is by is not said' in answer(tmp_path, sales, "top 3 sales")
    assert '"missing" has no place' in answer(tmp_path, sales, "how many sales are missing")


def test_15_05_the_last_are_told_by_their_times_as_well(tmp_path: Path) -> None:
    latest = sorted(str(row["sold_on"]) for row in SALES)[-2:]
    text = answer(tmp_path, json.dumps({"sales": SALES}), "the last 2 sales")
    line = next(line for line in text.splitlines() if line.startswith("Not in the order of sold_on"))
    assert all(day in line for day in latest)


@pytest.mark.parametrize("content", [table(SALES), json.dumps({"sales": SALES}), TOURS_JSON, NIGHT])
@pytest.mark.parametrize("asked", ["whatever was not wanted over there", "rows of more than 20 miles", "wet or rainy"])
def test_15_05_passages_that_were_not_tested_say_so(tmp_path: Path, content: str, asked: str) -> None:
    text = answer(tmp_path, content, asked)
    assert "othing was computed" in text


def test_15_05_under_a_count_stand_only_records_that_fit(tmp_path: Path) -> None:
    text = answer(tmp_path, table(SALES), "how many sales of Tam in CHF")
    quoted = [line for line in text.splitlines() if line.startswith("S") and line[1:2].isdigit()]
    assert len(quoted) == 15
    assert all(",Tam," in line and ",CHF," in line for line in quoted)
    log = answer(tmp_path, NIGHT, "how many errors at 3 am")
    assert " INFO " not in log
    assert ",Uri," not in answer(tmp_path, table(SALES), "how many rows")


def test_15_05_who_used_the_most_is_not_guessed_from_one_note(tmp_path: Path) -> None:
    lines = "".join(
        json.dumps({"ts": f"2026-05-01T{n:02}:00:00Z", "dev": "fan" if n % 2 else "lamp", "w": n * 10}) + "\n"
        for n in range(24)
    )
    assert 'Nothing was computed: "device" has no place' in answer(tmp_path, lines, "which device used the most w")
