"""Documents with a fixed seed, in forms that no installation has, and what is true of them, computed with plain Python.

Each has what a tool would answer with: near-identical numbers, columns that are mostly empty, other encodings, text
around tables. Above: `benchmarks/outputs/asked`.
"""

import csv
import html
import io
import json
import random
import statistics
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.outputs.asked.found import Document, only_one
from benchmarks.outputs.documents import CITIES, FAULTS, FIRST, LAST, SERVICES

SEED = 60_317


def chance(document: str) -> random.Random:
    return random.Random(f"{SEED} {document}")


def names(rng: random.Random, count: int) -> list[str]:
    """Different people."""
    return rng.sample([f"{first} {last}" for first in FIRST for last in LAST], count)


def separated(rows: Sequence[Sequence[object]], separator: str = ",", end: str = "\n") -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=separator, lineterminator=end).writerows(rows)
    return out.getvalue()


def access_log() -> Document:
    rng, at = chance("access log"), datetime(2026, 2, 14, 5, 58, 11, tzinfo=UTC)
    pages = ("/", "/cart", "/checkout", "/api/export", "/api/exports", "/login", "/static/app.js", "/search?q=lamp")
    rows: list[tuple[str, datetime, str, str, int, int]] = []
    for number in range(2600):
        at += timedelta(seconds=rng.randrange(1, 24))
        page = rng.choice(pages)
        status = rng.choices((200, 304, 404, 500, 503, 302), (70, 9, 8, 3, 1, 9))[0]
        size = 900_000 + number if number == 1703 else rng.randrange(180, 88_000)
        address = f"203.0.113.{rng.randrange(1, 255)}"
        rows.append((address, at, rng.choice(("GET", "GET", "GET", "POST", "HEAD")), page, status, size))
    text = "".join(
        f'{address} - - [{when:%d/%b/%Y:%H:%M:%S +0000}] "{verb} {page} HTTP/1.1" {status} {size} "-" "Mozilla/5.0"\n'
        for address, when, verb, page, status, size in rows
    )
    failures = [row for row in rows if row[4] == 500]
    return Document(
        text.encode(),
        {
            "window": [sum(row[1].hour == 9 for row in rows)],
            "not_ok": [sum(row[4] != 200 for row in rows)],
            "largest": [rows[1703][0], rows[1703][5]],
            "first_failure": [f"{failures[0][1]:%H:%M:%S}"],
            "export_bytes": [sum(row[5] for row in rows if row[3] == "/api/export")],
        },
    )


def service_log() -> Document:
    rng, at = chance("service log"), datetime(2026, 4, 2, 8, tzinfo=UTC)
    rows: list[tuple[datetime, str, str, str, str]] = []
    for number in range(1500):
        at += timedelta(milliseconds=rng.randrange(200, 9000))
        level = rng.choices(("INFO", "DEBUG", "WARN", "ERROR"), (70, 18, 8, 4))[0]
        said = (
            f"{rng.choice(FAULTS)} (job {40_000 + number})"
            if level in {"WARN", "ERROR"}
            else f"job {40_000 + number} done"
        )
        service, worker = rng.choice(SERVICES), f"worker-{rng.randrange(1, 13)}"
        if number == 977:
            level, service, worker, said = "ERROR", "reports", "worker-7", "ran out of memory while sorting"
        rows.append((at, level, service, worker, said))
    text = ""
    for when, level, service, worker, said in rows:
        text += f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03}Z {level:<5} {service} {worker} {said}\n"
        if level == "ERROR":
            text += '  File "app/jobs.py", line 88, in run\n    step(job)\n'
    early = [row for row in rows if row[1] == "ERROR" and row[0] < datetime(2026, 4, 2, 8, 30, tzinfo=UTC)]
    return Document(
        text.encode(),
        {
            "last_before": [f"{early[-1][0]:%H:%M:%S}", early[-1][4]],
            "billing": [sum(row[1:3] == ("WARN", "billing") for row in rows)],
            "memory": ["worker-7"],
            "loud": [sum(row[1] not in {"INFO", "DEBUG"} for row in rows)],
        },
    )


def dump() -> Document:
    rng = chance("dump")
    people = names(rng, 400)
    rows = [
        (
            1000 + number,
            name,
            rng.choice(CITIES),
            rng.randrange(0, 9_000_00) / 100,
            rng.choice(("gold", "basic", "none")),
        )
        for number, name in enumerate(people)
    ]
    text = "-- dump of shop\nCREATE TABLE `customers` (\n  `id` int NOT NULL,\n  `name` varchar(80),\n"
    text += "  `city` varchar(40),\n  `balance` decimal(10,2),\n  `plan` varchar(8),\n  PRIMARY KEY (`id`)\n);\n"
    for start in range(0, len(rows), 50):
        values = ",\n".join(f"({r[0]},'{r[1]}','{r[2]}',{r[3]:.2f},'{r[4]}')" for r in rows[start : start + 50])
        text += f"INSERT INTO `customers` VALUES\n{values};\n"
    parcels = [(n, rng.choice(rows)[0], rng.choice(("sent", "lost", "held"))) for n in range(1, 301)]
    text += "CREATE TABLE `parcels` (\n  `id` int NOT NULL,\n  `customer_id` int,\n  `state` varchar(8)\n);\n"
    text += "INSERT INTO `parcels` VALUES\n" + ",\n".join(f"({a},{b},'{c}')" for a, b, c in parcels) + ";\n"
    return Document(
        text.encode(),
        {
            "customer": [rows[217][1], rows[217][2]],
            "richest": [only_one(rows, lambda row: row[3])[1]],
            "lost": [sum(parcel[2] == "lost" for parcel in parcels)],
            "gold_balance": [round(sum(row[3] for row in rows if row[4] == "gold"), 2)],
        },
    )


def orders() -> Document:
    rng = chance("orders")
    head = ("order_no", "placed_on", "buyer", "status", "total", "coupon", "returned_on", "note")
    rows: list[tuple[str, ...]] = []
    for number, buyer in enumerate(names(rng, 520)):
        day = datetime(2025, 11, 3, tzinfo=UTC) + timedelta(hours=5 * number)
        status = rng.choices(("shipped", "failed", "open", "refunded"), (60, 12, 20, 8))[0]
        back = f"{day + timedelta(days=9):%Y-%m-%d}" if status == "refunded" else ""
        coupon = f"SAVE{rng.randrange(10, 40)}" if rng.random() < 0.06 else ""
        note = 'said "ring twice", then left' if number == 300 else ""
        total = f"{rng.randrange(500, 90_000) / 100:.2f}"
        rows.append((str(70_000 + 3 * number), f"{day:%Y-%m-%d}", buyer, status, total, coupon, back, note))
    december = [row for row in rows if row[1].startswith("2025-12")]
    return Document(
        separated([head, *rows]).encode(),
        {
            "not_failed": [sum(row[3] != "failed" for row in rows)],
            "with_coupon": [sum(row[5] != "" for row in rows)],
            "twice": [rows[300][2]],
            "average": [statistics.fmean(float(row[4]) for row in rows if row[3] == "refunded")],
            "december": [only_one(december, lambda row: float(row[4]))[0]],
            "first_open": [next(row[0] for row in rows if row[3] == "open")],
        },
    )


def stock() -> Document:
    """Semicolons, decimal commas and Latin-1, as a spreadsheet of western Europe writes them."""
    rng = chance("stock")
    goods = ("Käse", "Brötchen", "Crème brûlée", "Jamón", "Åkerbär", "Müsli", "Pâté", "Smørrebrød")
    rows = []
    for number in range(240):
        kept = (f"R{number // 20 + 1}", rng.choice(("kühl", "trocken", "gefroren")))
        price = rng.randrange(80, 4_000)
        rows.append((f"{goods[number % 8]} {number // 8 + 1}", *kept, rng.randrange(0, 400), price))
    lines = [(*row[:4], f"{row[4] // 100},{row[4] % 100:02}") for row in rows]
    head = ("Artikel", "Regal", "Lagerung", "Bestand", "Preis")
    dearest = only_one(rows, lambda row: row[4])
    return Document(
        separated([head, *lines], ";", "\r\n").encode("latin-1"),
        {
            "price": [next(line[4] for line in lines if line[0] == "Crème brûlée 3")],
            "dearest": [dearest[0]],
            "stock": [sum(row[3] for row in rows if row[1] == "R4")],
        },
    )


def handbook() -> Document:
    """Markdown: headings, paragraphs and tables of different columns."""
    rng = chance("handbook")
    teams = [
        (team, *pair)
        for team, pair in zip(SERVICES, zip(names(rng, 8), rng.sample(CITIES, 8), strict=True), strict=True)
    ]
    text = "# Operations handbook\n\nEverything an engineer on call has to know, in one place.\n\n## Teams\n\n"
    text += "| team | lead | office |\n|---|---|---|\n" + "".join(f"| {a} | {b} | {c} |\n" for a, b, c in teams)
    limits = []
    for team, _, _ in teams:
        text += f"\n## Service limits: {team}\n\nAsk the team before you raise one of these.\n\n"
        text += "| limit | value | unit | alert |\n|:--|--:|---|---|\n"
        for limit in ("requests", "connections", "queue length", "payload", "retries"):
            value, alert = rng.randrange(5, 9000), rng.choice(("page", "mail", "none"))
            limits.append((team, limit, value, alert))
            text += f"| {limit} | {value} | {'kB' if limit == 'payload' else 'per minute'} | {alert} |\n"
    text += (
        "\n## Escalation\n\n1. Page the team's lead.\n2. After 20 minutes without an answer, call the duty manager\n"
    )
    text += "   on extension 5140.\n3. Never restart `billing` during the nightly close, which starts at 23:40.\n"
    queues = [row for row in limits if row[1] == "queue length"]
    return Document(
        text.encode(),
        {
            "payload": [next(row[2] for row in limits if row[:2] == ("auth", "payload"))],
            "extension": ["5140"],
            "longest": [only_one(queues, lambda row: row[2])[0]],
            "paged": [sum(row[3] == "page" for row in limits)],
        },
    )


def results_page() -> Document:
    """HTML with two tables and much around them."""
    rng = chance("results page")
    runners = names(rng, 180)
    times = sorted(rng.sample(range(7_300, 16_000), 180))
    rows = [
        (
            place,
            name,
            rng.choice(CITIES),
            f"{t // 3600}:{t // 60 % 60:02}:{t % 60:02}",
            rng.choice(("M35", "W35", "M50", "W50")),
        )
        for place, (name, t) in enumerate(zip(runners, times, strict=True), 1)
    ]
    bibs = rng.sample(range(100, 999), 180)
    quit_early = [(name, km) for name, km in zip(names(rng, 200)[180:], rng.sample(range(3, 40), 20), strict=True)]
    body = "".join(
        f'<tr class="{"odd" if row[0] % 2 else "even"}"><td>{row[0]}</td><td>{bib}</td><td>{html.escape(row[1])}</td>'
        f"<td>{row[2]}</td><td>{row[4]}</td><td>{row[3]}</td></tr>\n"
        for row, bib in zip(rows, bibs, strict=True)
    )
    gone = "".join(f"<tr><td>{name}</td><td>{km}</td></tr>\n" for name, km in quit_early)
    text = (
        "<!doctype html><html><head><title>Results</title><style>td{padding:2px}</style></head><body>\n"
        "<h1>Harbour marathon &amp; relay</h1><p>Started at 09:05 in light rain; wind from the north-west.</p>\n"
        "<table id=finishers><tr><th>Place</th><th>Bib</th><th>Name</th><th>Club</th><th>Class</th><th>Time</th></tr>\n"
        f"{body}</table>\n<h2>Did not finish</h2><table><tr><th>Name</th><th>Gave up at km</th></tr>\n{gone}</table>\n"
        "<footer>Timing by the rowing club.</footer></body></html>\n"
    )
    return Document(
        text.encode(),
        {
            "bib": [rows[88][1]],
            "winner_w50": [next(row[1] for row in rows if row[4] == "W50")],
            "gave_up": [only_one(quit_early, lambda row: row[1])[0]],
            "start": ["09:05"],
        },
        {"bib": str(bibs[88])},
    )


def issues() -> Document:
    """An API's page of issues, wrapped and on one line."""
    rng = chance("issues")
    logins = [f"{name.split()[0].lower()}-{name.split()[1].lower()}" for name in names(rng, 9)]
    rows: list[dict[str, Any]] = []
    for number in range(130):
        opened = datetime(2026, 1, 3, 7, tzinfo=UTC) + timedelta(hours=11 * number)
        state = rng.choice(("open", "closed", "closed"))
        row = {
            "id": 900_100_000 + number * 17,
            "number": 4250 + number,
            "title": f"{rng.choice(SERVICES)}: {rng.choice(FAULTS)}",
            "user": {"login": rng.choice(logins), "site_admin": False},
            "labels": [
                {"name": label}
                for label in rng.sample(("bug", "docs", "perf", "ui", "regression"), rng.randrange(0, 3))
            ],
            "state": state,
            "comments": 5000 + number if number == 61 else rng.randrange(0, 60),
            "created_at": f"{opened:%Y-%m-%dT%H:%M:%SZ}",
            "closed_at": f"{opened + timedelta(days=2):%Y-%m-%dT%H:%M:%SZ}" if state == "closed" else None,
            "milestone": {"title": "v2.1"} if rng.random() < 0.1 else None,
        }
        rows.append(row)
    february = [row for row in rows if row["created_at"].startswith("2026-02")]
    return Document(
        json.dumps({"result": rows}, separators=(",", ":")).encode(),
        {
            "author": [rows[71]["user"]["login"], rows[71]["title"]],
            "unlabelled": [sum(not row["labels"] for row in rows)],
            "discussed": [rows[61]["number"]],
            "february": [len(february)],
            "milestone": [row["number"] for row in rows if row["milestone"]],
        },
    )


def charges() -> Document:
    """Payments whose identifiers and amounts are easily taken for each other."""
    rng = chance("charges")
    rows: list[dict[str, Any]] = []
    for number in range(160):
        status = rng.choices(("succeeded", "failed", "pending"), (80, 14, 6))[0]
        amount = (4321, 43210, 432199)[number % 3] if 40 <= number < 43 else rng.randrange(150, 250_000)
        row = {
            "id": f"ch_{3 * number + 1000}",
            "object": "charge",
            "amount": amount,
            "amount_refunded": amount if number % 23 == 5 else 0,
            "currency": rng.choice(("eur", "eur", "usd", "gbp")),
            "customer": f"cus_{rng.randrange(100, 140)}",
            "billing_details": {"name": None, "address": {"city": rng.choice(CITIES), "postal_code": None}},
            "failure_code": rng.choice(("card_declined", "expired_card")) if status == "failed" else None,
            "status": status,
        }
        rows.append(row)
    rows[-1]["id"] = "ch_11230"
    dollars = [row for row in rows if row["currency"] == "usd" and row["status"] == "succeeded"]
    return Document(
        json.dumps({"result": rows, "has_more": True}, indent=2).encode(),
        {
            "by_id": [next(row["customer"] for row in rows if row["id"] == "ch_1123")],
            "by_amount": [next(row["id"] for row in rows if row["amount"] == 4321)],
            "dollars": [sum(row["amount"] for row in dollars)],
        },
    )


def minutes() -> Document:
    """Prose in UTF-16, with what was said spread over paragraphs."""
    rng = chance("minutes")
    people = names(rng, 30)
    text, motions = "Minutes of the bridge committee, Zürich and Łódź\r\n\r\n", []
    for number, person in enumerate(people, 1):
        day = datetime(2024, 1, 9, tzinfo=UTC) + timedelta(days=14 * number)
        cost, against, ware = (
            rng.randrange(1_000, 90_000),
            rng.randrange(2, 14),
            rng.choice(("paint", "rivets", "lamps")),
        )
        motions.append((number, person, day, cost))
        text += (
            f"Meeting {number}, {day.day} {day:%B %Y}. The chair opened at 19:30. After some debate about the weather "
            f"and the state of the railings, {person} moved to spend {cost} crowns on {ware} for span {number * 3}. "
            f"The motion was carried with {against} votes against. “Wait and see,” said the treasurer.\r\n\r\n"
        )
    return Document(
        text.encode("utf-16"),
        {
            "mover": [motions[11][1]],
            "dearest": [only_one(motions, lambda row: row[3])[3]],
            "span": [motions[6][1], motions[6][3]],
            "last": [motions[-1][1]],
        },
    )


def settings() -> Document:
    """An INI file with Windows line ends, comments and the same keys in each section."""
    rng = chance("settings")
    text, rows = "; written by the installer\r\n", []
    for number, service in enumerate(SERVICES * 3):
        section = f"{service}.{('eu', 'us', 'ap')[number // len(SERVICES)]}"
        port, timeout, debug = 8000 + number, rng.randrange(5, 900), rng.choice(("on", "off", "off"))
        rows.append((section, port, timeout, debug))
        text += (
            f"\r\n[{section}]\r\n; see the handbook\r\nport = {port}\r\ntimeout_ms = {timeout}\r\ndebug = {debug}\r\n"
        )
        text += f"database = db-{service}-{rng.randrange(10, 99)}.internal\r\n"
        if number % 5 == 3:
            text += f"proxy = 10.0.{number}.1:3128\r\n"
    return Document(
        text.encode(),
        {
            "port": [next(row[1] for row in rows if row[0] == "billing.us")],
            "owner": [next(row[0] for row in rows if row[1] == 8013)],
            "debug": [sum(row[3] == "on" for row in rows)],
            "slowest": [only_one(rows, lambda row: row[2])[0]],
        },
    )


def pods() -> Document:
    """Deeply nested JSON, as a cluster answers."""
    rng = chance("pods")
    items: list[dict[str, Any]] = []
    for number in range(90):
        service = rng.choice(SERVICES)
        restarts = 77 if number == 52 else rng.randrange(0, 9)
        items.append(
            {
                "metadata": {
                    "name": f"{service}-{number:03}",
                    "namespace": rng.choice(("prod", "prod", "staging")),
                    "labels": {"app": service, **({"canary": "true"} if number % 29 == 4 else {})},
                },
                "spec": {
                    "nodeName": f"node-{rng.randrange(1, 15)}",
                    "containers": [
                        {
                            "name": "main",
                            "image": f"registry.example/{service}:{rng.randrange(1, 4)}.{rng.randrange(0, 20)}",
                        },
                        {"name": "proxy", "image": "registry.example/proxy:1.9"},
                    ],
                },
                "status": {
                    "phase": rng.choices(("Running", "Pending", "Failed"), (85, 8, 7))[0],
                    "podIP": f"10.4.{number}.{rng.randrange(2, 250)}",
                    "containerStatuses": [{"name": "main", "restartCount": restarts, "ready": restarts < 6}],
                },
            }
        )
    first = items[33]
    canaries = [item["metadata"]["name"] for item in items if "canary" in item["metadata"]["labels"]]
    states = [item["status"] for item in items]
    return Document(
        json.dumps({"kind": "PodList", "items": items}, indent=4).encode(),
        {
            "image": [first["spec"]["containers"][0]["image"]],
            "not_running": [sum(state["phase"] != "Running" for state in states)],
            "restarts": [items[52]["metadata"]["name"]],
            "canaries": canaries,
            "all_restarts": [sum(state["containerStatuses"][0]["restartCount"] for state in states)],
        },
        {"pod": first["metadata"]["name"]},
    )


def events() -> Document:
    """JSON lines whose records differ in their fields."""
    rng, at = chance("events"), datetime(2026, 5, 20, 22, 0, tzinfo=UTC)
    rows: list[dict[str, Any]] = []
    for _ in range(700):
        at += timedelta(seconds=rng.randrange(1, 40))
        kind = rng.choices(("page_view", "click", "purchase", "signup"), (60, 28, 8, 4))[0]
        row: dict[str, Any] = {
            "ts": f"{at:%Y-%m-%dT%H:%M:%SZ}",
            "event": kind,
            "session": f"s{rng.randrange(1000, 1150)}",
        }
        if kind == "purchase":
            row |= {"basket": {"total": rng.randrange(300, 70_000) / 100, "items": rng.randrange(1, 9)}}
        if kind == "signup":
            row |= {
                "referrer": rng.choice(("newsletter", "friend", "search")),
                "country": rng.choice(("AT", "PT", "NO")),
            }
        rows.append(row)
    bought = [row for row in rows if row["event"] == "purchase"]
    after = [row for row in rows if row["event"] == "signup" and row["ts"] >= "2026-05-21T00:00:00Z"]
    return Document(
        "".join(json.dumps(row) + "\n" for row in rows).encode(),
        {
            "revenue": [round(sum(row["basket"]["total"] for row in bought), 2)],
            "after_midnight": [after[0]["ts"], after[0]["session"]],
            "biggest": [only_one(bought, lambda row: row["basket"]["total"])["session"]],
        },
    )


def playbook() -> Document:
    """YAML, with lists inside mappings."""
    rng = chance("playbook")
    hosts = [
        (
            f"{city.lower()}-{number:02}",
            f"192.0.2.{10 * index + number}",
            rng.choice((8, 16, 32, 64)),
            rng.choice(("web", "db", "cache")),
        )
        for index, city in enumerate(CITIES[:12])
        for number in range(1, 5)
    ]
    text = "# inventory\nversion: 3\nhosts:\n"
    for name, address, memory, role in hosts:
        text += f"  - name: {name}\n    address: {address}\n    memory_gb: {memory}\n    role: {role}\n"
        text += f"    tags: [{role}, managed]\n"
    text += "maintenance:\n  window: Sunday 02:30-04:15\n  contact: night-desk@example.org\n"
    text += "  skip:\n    - osaka-02\n    - lyon-04\n"
    return Document(
        text.encode(),
        {
            "address": [next(host[1] for host in hosts if host[0] == "bergen-03")],
            "window": ["Sunday", "02:30-04:15"],
            "skipped": ["osaka-02", "lyon-04"],
            "memory": [sum(host[2] for host in hosts if host[3] == "cache")],
        },
    )


def ledger() -> Document:
    """Rows whose numbers begin alike: 4321, 43210, 4321.99."""
    rng = chance("ledger")
    people = names(rng, 300)
    amounts = [f"{rng.randrange(1_000, 99_999)}.{rng.randrange(100):02}" for _ in people]
    entries = [str(number) for number in rng.sample(range(10_000, 99_999), 300)]
    entries[120], entries[121], entries[122] = "4321", "43210", "54321"
    amounts[121], amounts[199], amounts[200] = "4321.99", "4321.00", "14321.99"
    rows = list(zip(entries, people, amounts, (rng.choice(("credit", "debit")) for _ in people), strict=True))
    return Document(
        separated([("entry", "holder", "amount", "side"), *rows], "\t").encode(),
        {
            "entry": [people[120], amounts[120]],
            "amount": [people[121]],
            "larger": [people[122]],
            "smallest": [min(rows, key=lambda row: float(row[2]))[0]],
            "average": [statistics.fmean(float(row[2]) for row in rows)],
        },
    )


def mailbox() -> Document:
    """A mailbox: headers, bodies and quoted answers."""
    rng, at = chance("mailbox"), datetime(2026, 6, 1, 6, 40, tzinfo=UTC)
    people = names(rng, 12)
    topics = (
        "Crane inspection",
        "Budget for spare parts",
        "Night shift rota",
        "Broken badge reader",
        "Visit on Friday",
    )
    text, rows = "", []
    for number in range(110):
        at += timedelta(minutes=rng.randrange(9, 400))
        sender, topic = rng.choice(people), rng.choice(topics)
        attached = f"plan-{number}.pdf" if number % 17 == 8 else ""
        rows.append((at, sender, topic, attached))
        mail = f"{sender.lower().replace(' ', '.')}@example.org"
        text += f"From {mail} {at:%a %b %d %H:%M:%S %Y}\nFrom: {sender} <{mail}>\nTo: crew@example.org\n"
        text += f"Date: {at:%a, %d %b %Y %H:%M:%S} +0000\nMessage-ID: <{7000 + number}@example.org>\n"
        text += f"Subject: {'Re: ' if number > 9 else ''}{topic}\n"
        text += f"X-Attachment: {attached}\n" if attached else ""
        code = "\nThe new gate code is 8841, please do not write it on the board.\n" if number == 64 else ""
        text += f"\nHello all,\n{code}\nabout point {number}: I would rather wait.\n"
        text += f"> somebody else had written before\n\n{sender}\n\n"
    return Document(
        text.encode(),
        {
            "gate": ["8841"],
            "sender": [rows[42][1]],
            "attachments": [row[3] for row in rows if row[3]],
            "last": [rows[-1][1], rows[-1][2]],
        },
    )


def invoices() -> Document:
    """XML with attributes, children and empty elements."""
    rng = chance("invoices")
    rows = []
    for number, buyer in enumerate(names(rng, 140)):
        lines = [
            (f"A-{rng.randrange(100, 999)}", rng.randrange(1, 12), rng.randrange(100, 9_000))
            for _ in range(rng.randrange(1, 4))
        ]
        rows.append(
            (f"2026-{number + 11}", buyer, rng.choice(CITIES), rng.choice(("paid", "paid", "due", "overdue")), lines)
        )
    text = '<?xml version="1.0" encoding="UTF-8"?>\n<invoices period="2026-H1">\n'
    for no, buyer, city, state, lines in rows:
        parts = "".join(f'    <line article="{a}" pieces="{p}" cents="{c}"/>\n' for a, p, c in lines)
        text += f'  <invoice no="{no}" state="{state}">\n    <buyer city="{city}">{escape(buyer)}</buyer>\n{parts}'
        text += "    <remark/>\n  </invoice>\n"
    text += "</invoices>\n"
    return Document(
        text.encode(),
        {
            "buyer": [next(row[1] for row in rows if row[0] == "2026-13")],
            "not_paid": [sum(row[3] != "paid" for row in rows)],
            "lines": [sum(len(row[4]) for row in rows)],
            "dearest": [only_one([(c, row[1]) for row in rows for _, _, c in row[4]], lambda line: line[0])[1]],
        },
    )


MADE: dict[str, Callable[[], Document]] = {
    make.__name__: make
    for make in (
        access_log,
        service_log,
        dump,
        orders,
        stock,
        handbook,
        results_page,
        issues,
        charges,
        minutes,
        settings,
        pods,
        events,
        playbook,
        ledger,
        mailbox,
        invoices,
    )
}
