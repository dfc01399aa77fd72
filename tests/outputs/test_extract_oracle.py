"""Random awkward documents in all formats, asked what plain Python can compute: every claim must be equal to it.

A document has values of several forms on purpose. Where a figure has two readings, the oracle has none, and no claim
may be made.
"""

import csv
import io
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from statistics import median

import pytest

from toolfold.outputs.local.computed import compute
from toolfold.outputs.local.index import IndexCache

pytestmark = pytest.mark.requirement("Q-04")

Row = dict[str, str]
FIELDS = ("order_id", "status", "city", "amount", "fee", "paid", "booked")
FORMATS = ("csv", "tsv", "semicolon", "json", "object", "lines", "markdown", "page", "xml", "stanzas")
TRUE, FALSE = ("true", "TRUE", "yes"), ("false", "No", "no")
BLANK = ("", "n/a", "-", "null")
FIGURE = re.compile(r": (-?[\d.]+)(?:, shared by \d+)?(?:; [^()]*)?(?: \(.*\))?\.$")


def number(text: str) -> Decimal | None:
    return Decimal(text.replace(",", "")) if re.fullmatch(r"-?[\d,]+(?:\.\d+)?", text) else None


class Scene:
    """Rows, what is awkward about them, and the document that holds them."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.format = FORMATS[seed % len(FORMATS)]
        self.odd = rng.choice(("", "", "", "unit", "percent", "brackets", "spaces", "currency"))
        self.unclear_days = rng.random() < 0.25
        self.part = rng.random() < 0.3 and self.format in {"object", "csv", "markdown"}
        self.rows = [self._row(at) for at in range(rng.randrange(4, 14))]
        # Where numbers repeat, an order may be several rows.
        self.repeats = rng.random() < 0.2
        if self.repeats:
            self.rows.append(dict(rng.choice(self.rows)))
        if self.odd:
            at = rng.randrange(len(self.rows))
            odd = {"unit": "1.5k", "percent": "12%", "brackets": "(12)", "spaces": "1 200", "currency": "$7"}
            self.rows[at - 1]["amount"], self.rows[at]["amount"] = "5", odd[self.odd]
        self.text = getattr(self, f"_{self.format}")()

    def _row(self, at: int) -> Row:
        rng = self.rng
        day = f"2024-0{rng.randrange(1, 10)}-1{rng.randrange(10)}"
        return {
            "order_id": str(1000 + 7 * at),
            "status": rng.choice(("open", "Open", "failed", "shipped", "OPEN")),
            "city": rng.choice(("Graz", "Porto", "Oslo", *BLANK)),
            "amount": rng.choice((str(rng.randrange(-50, 900)), f"{rng.randrange(90_000) / 100:.2f}", *BLANK)),
            "fee": str(rng.randrange(1, 40)),
            "paid": rng.choice((*TRUE, *FALSE)),
            "booked": f"0{rng.randrange(1, 10)}/0{rng.randrange(1, 10)}/2024" if self.unclear_days else day,
        }

    def _separated(self, sign: str) -> str:
        out = io.StringIO()
        writer = csv.writer(out, delimiter=sign, lineterminator="\n")
        lines = [list(row.values()) for row in self.rows]
        if self.rng.random() < 0.3:
            lines.insert(self.rng.randrange(1, len(lines)), list(FIELDS))
        if self.rng.random() < 0.3:
            lines.append(["Total", "", "", "99999", "99999", "", ""])
        writer.writerows([FIELDS, *lines])
        return out.getvalue() + (f"Showing {len(self.rows)} of 400\n" if self.part else "")

    def _csv(self) -> str:
        return self._separated(",")

    def _tsv(self) -> str:
        return self._separated("\t")

    def _semicolon(self) -> str:
        return self._separated(";")

    def _json(self) -> str:
        return json.dumps(self.rows)

    def _object(self) -> str:
        return json.dumps({**({"has_more": True} if self.part else {"total": len(self.rows)}), "orders": self.rows})

    def _lines(self) -> str:
        return "".join(json.dumps(row) + "\n" for row in self.rows)

    def _markdown(self) -> str:
        lines = [FIELDS, ["---"] * len(FIELDS), *(row.values() for row in self.rows)]
        if self.rng.random() < 0.3:
            lines.append(["**Total**", "", "", "99999", "99999", "", ""])
        table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
        return f"# Orders\n\n{table}" + ("\nPage 1 of 9\n" if self.part else "")

    def _page(self) -> str:
        cells = "".join("<tr>" + "".join(f"<td>{v}</td>" for v in row.values()) + "</tr>\n" for row in self.rows)
        head = "".join(f"<th>{field}</th>" for field in FIELDS)
        return f"<!DOCTYPE html><html><body><h1>Orders</h1><table><tr>{head}</tr>\n{cells}</table></body></html>"

    def _xml(self) -> str:
        items = ("".join(f"<{key}>{value}</{key}>" for key, value in row.items()) for row in self.rows)
        return "<shop>\n" + "".join(f"<order>{item}</order>\n" for item in items) + "</shop>\n"

    def _stanzas(self) -> str:
        return "\n".join("".join(f"{key}: {value}\n" for key, value in row.items()) for row in self.rows)


Fits = Callable[[Row], bool]
Oracle = Callable[[list[Row]], object]


def conditions(scene: Scene) -> list[tuple[str, Fits | None]]:
    """Words of a condition with what they mean; `None` where they have two readings."""
    rng = scene.rng
    state, city, limit = rng.choice(("open", "failed", "shipped")), rng.choice(("Graz", "Porto")), rng.randrange(1, 800)
    clear, days = not scene.odd, not scene.unclear_days

    def over(row: Row) -> bool:
        own = number(row["amount"])
        return own is not None and own > limit

    return [
        ("", lambda row: True),
        (f"that are {state}", lambda row: row["status"].lower() == state),
        (f"that are not {state}", lambda row: row["status"].lower() != state),
        (f"with status other than {state}", lambda row: row["status"].lower() != state),
        (f"from {city}", lambda row: row["city"] == city),
        ("without a city", lambda row: row["city"] in BLANK),
        ("that have a city", lambda row: row["city"] not in BLANK),
        (f"with amount over {limit}", over if clear else None),
        (
            "where amount is more than fee",
            (lambda row: (number(row["amount"]) or 0) > int(row["fee"])) if clear else None,
        ),
        ("where paid is true", lambda row: row["paid"] in TRUE),
        ("where paid = no", lambda row: row["paid"] in FALSE),
        ("booked after 2024-05-12", (lambda row: row["booked"] > "2024-05-12") if days else None),
        (f"from {city} with fee below 20", lambda row: row["city"] == city and int(row["fee"]) < 20),
        (f"not {state} in {city}", None),
        ("that were never open", None),
        (f"{state} or from {city}", None),
    ]


def amounts(rows: list[Row]) -> list[Decimal]:
    return [own for row in rows if (own := number(row["amount"])) is not None]


def questions(scene: Scene) -> list[tuple[str, Oracle | None]]:
    clear = not scene.odd
    return [
        ("how many orders {}", len),
        ("number of orders {}", len),
        ("sum of fee for the orders {}", lambda rows: sum(int(row["fee"]) for row in rows) if rows else None),
        (
            "sum of amount for the orders {}",
            (lambda rows: sum(amounts(rows)) if amounts(rows) else None) if clear else None,
        ),
        ("the highest amount of orders {}", (lambda rows: max(amounts(rows), default=None)) if clear else None),
        ("lowest fee of the orders {}", lambda rows: min((int(row["fee"]) for row in rows), default=None)),
        (
            "median amount of the orders {}",
            (lambda rows: median(amounts(rows)) if amounts(rows) else None) if clear else None,
        ),
        ("how many different statuses of orders {}", lambda rows: len({row["status"].lower() for row in rows})),
        ("weekly sum of fee {}", None),
        ("how many duplicates {}", None),
    ]


def stated(line: str) -> object:
    if line.startswith("Values of"):
        found = re.search(r": (\d+) different", line)
        return Decimal(found[1]) if found else None
    found = FIGURE.search(line)
    return Decimal(found[1]) if found else None


def claims(folder: Path, scene: Scene, request: str) -> tuple[str, ...]:
    path = folder / "document"
    path.write_text(scene.text, encoding="utf-8")
    with IndexCache().of(path) as index:
        answer = compute(index, request)
    return answer.lines if answer.claimed else ()


@pytest.mark.parametrize("seed", range(40))
def test_every_claim_is_what_plain_python_computes(tmp_path: Path, seed: int) -> None:
    scene = Scene(seed)
    asked = answered = 0
    for words, fits in scene.rng.sample(conditions(scene), 8):
        template, oracle = scene.rng.choice(questions(scene))
        request = template.format(words).strip()
        lines = claims(tmp_path, scene, request)
        chosen = [row for row in scene.rows if fits is not None and fits(row)]
        expected = oracle(chosen) if oracle is not None and fits is not None else None
        asked, answered = asked + (expected is not None), answered + bool(lines)
        if not lines or lines[0].startswith("No "):
            continue
        about = (seed, request, lines, scene.text)
        assert oracle is not None, about
        assert fits is not None, about
        assert stated(lines[0]) == expected, about
        assert not scene.part or "only of what is here" in lines[0], about
    assert scene.repeats or answered >= asked // 2, (seed, answered, asked)


@pytest.mark.parametrize("seed", range(10))
def test_groups_are_those_of_plain_python(tmp_path: Path, seed: int) -> None:
    scene = Scene(seed)
    (line,) = claims(tmp_path, scene, "how many records per status")
    counts = Counter(row["status"].lower() for row in scene.rows)
    found = dict(re.findall(r'"(\w+)": (\d+)', line.rpartition("different")[2]))
    assert {name.lower(): int(count) for name, count in found.items()} == counts, (line, scene.text)
    sums: dict[str, int] = {}
    for row in scene.rows:
        sums[row["status"].lower()] = sums.get(row["status"].lower(), 0) + int(row["fee"])
    (line,) = claims(tmp_path, scene, "sum of fee per status")
    found = dict(re.findall(r'"(\w+)": (\d+)', line))
    assert {name.lower(): int(own) for name, own in found.items() if name.lower() in sums} == sums, (line, scene.text)
