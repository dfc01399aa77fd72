"""Documents of any size with a fixed seed, and questions with known answers about random places in them.

Nothing in a question quotes the line that answers it: it names a record by one of its traits and asks for another, in
words of its own. Above: `outputs.py`.
"""

import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec import Struct

word_list = str.split

FIRST = word_list("""
    Ada Bruno Chiara Dmitri Elif Farid Greta Hana Ivo Jonas Keiko Lena Marek Nadia Omar Priya Quinn Rosa Sven
    Tomas Ursula Vera Wei Yara Zoran
""")
LAST = word_list("""
    Abel Brandt Castro Dietz Engel Ferro Grau Hofer Ito Jansen Keller Lopez Meier Novak Okafor Petrov Rossi Sato
    Toth Urban Vogel Weber Young Zeman
""")
CITIES = [
    "Lisbon",
    "Graz",
    "Turin",
    "Leeds",
    "Osaka",
    "Bergen",
    "Lyon",
    "Porto",
    "Utrecht",
    "Malmo",
    "Bilbao",
    "Krakow",
    "Basel",
    "Ghent",
    "Tampere",
    "Aarhus",
]
SERVICES = word_list("""
    payments inventory search gateway billing mailer auth reports
""")
FAULTS = (
    "card expired",
    "upstream refused the connection",
    "disk quota exceeded",
    "certificate is not yet valid",
    "row was locked by another transaction",
    "token signature did not match",
    "queue is full",
    "schema version is too old",
)
THINGS = word_list("""
    harbour bridge library observatory mill theatre lighthouse canal cathedral market
""")
SYLLABLES = word_list("""
    vel mor ka ri ten dol sa bru nim or tal esh fen gar lio pra
""")

KINDS = ("log", "minified JSON", "pretty JSON", "diff", "CSV", "prose")
START = datetime(2026, 3, 1, tzinfo=UTC)


class Question(Struct, frozen=True):
    """A request, and a text that a right answer holds."""

    request: str
    answer: str


class Made(Struct, frozen=True):
    """A record as it was written: its lines, and the questions that it answers."""

    text: str
    questions: tuple[Question, ...]


def write(kind: str, path: Path, size: int, seed: int, asked: int) -> list[Question]:
    """Writes a document of about `size` bytes and returns questions from random places of it."""
    rng = random.Random(seed)
    make = MAKERS[kind]
    kept: list[Question] = []
    seen = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(HEADS.get(kind, ""))
        written = 0
        for made in records(make, rng):
            joint = JOINTS.get(kind, "") if seen else ""
            file.write(joint + made.text)
            written += len(joint) + len(made.text)
            seen += 1
            question = rng.choice(made.questions)
            # Every record has the same chance to be asked about.
            if len(kept) < asked:
                kept.append(question)
            elif (slot := rng.randrange(seen)) < asked:
                kept[slot] = question
            if written >= size:
                break
        file.write(TAILS.get(kind, ""))
    return kept


def records(make: Callable[[random.Random, int], Made], rng: random.Random) -> Iterator[Made]:
    number = 0
    while True:
        number += 1
        yield make(rng, number)


def token(rng: random.Random, length: int = 8) -> str:
    return f"{rng.getrandbits(length * 4):0{length}x}"


def log_record(rng: random.Random, number: int) -> Made:
    at = START + timedelta(milliseconds=number * 1370 + rng.randrange(900))
    service, request, user = rng.choice(SERVICES), token(rng), rng.randrange(10_000, 99_999)
    host, took = f"node-{rng.randrange(400):03}", rng.randrange(3, 9000)
    stamp = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if rng.random() < 0.12:
        fault, until = rng.choice(FAULTS), f"{at + timedelta(seconds=2):%H:%M:%S}"
        text = f"{stamp} ERROR [{service}] req={request} user={user} host={host} failed after {took} ms: {fault}\n"
        return Made(
            text,
            (
                Question(f"Why did request {request} fail?", fault),
                Question(f"What went wrong for user {user} in the {service} service at {at:%H:%M:%S}?", fault),
                Question(f"Which machine handled the failed request {request}?", host),
                Question(f"I need the request id of the {service} error on {at:%d %B %Y} at {at:%H:%M:%S}.", request),
                Question(
                    f"errors in {service} between {at:%H:%M:%S} and {until} on {at:%Y-%m-%d}",
                    request,
                ),
            ),
        )
    status = rng.choice((200, 200, 200, 201, 204, 404))
    text = f"{stamp} INFO [{service}] req={request} user={user} host={host} done status={status} in {took} ms\n"
    return Made(
        text,
        (
            Question(f"How long did request {request} take?", f"{took} ms"),
            Question(f"Which user made the call {request}?", str(user)),
            Question(f"On what host did {request} run, and with which status did it end?", host),
        ),
    )


def order(rng: random.Random, number: int) -> tuple[dict[str, Any], tuple[Question, ...]]:
    name = f"{rng.choice(FIRST)} {rng.choice(LAST)}"
    identity = 100_000 + number * 7 + rng.randrange(7)
    mail = f"{name.lower().replace(' ', '.')}{rng.randrange(100_000)}@example.org"
    sku, amount = f"SKU-{token(rng, 5).upper()}", rng.randrange(1, 90)
    value: dict[str, Any] = {
        "orderId": identity,
        "status": rng.choice(("shipped", "pending", "cancelled", "returned")),
        "customer": {"name": name, "email": mail, "city": rng.choice(CITIES)},
        "items": [
            {"sku": sku, "quantity": amount, "unitPrice": rng.randrange(100, 99_000) / 100},
            {"sku": f"SKU-{token(rng, 5).upper()}", "quantity": rng.randrange(1, 9), "unitPrice": 4.5},
        ],
        "trackingCode": token(rng, 12),
    }
    city = value["customer"]["city"]
    return value, (
        Question(f"What is the e-mail address of the customer who placed order {identity}?", mail),
        Question(f"Where was order {identity} shipped to? I need the city.", city),
        Question(f"tracking code for the order of {mail}", value["trackingCode"]),
        Question(f"How many pieces of article {sku} were ordered?", f'"quantity":{amount}'),
        Question(f"Which order number belongs to the parcel with tracking {value['trackingCode']}?", str(identity)),
        Question(f"status of order no. {identity}", value["status"]),
    )


def minified(rng: random.Random, number: int) -> Made:
    value, questions = order(rng, number)
    return Made(json.dumps(value, separators=(",", ":")), questions)


def pretty(rng: random.Random, number: int) -> Made:
    value, questions = order(rng, number)
    return Made("".join(f"    {line}\n" for line in json.dumps(value, indent=2).splitlines()).rstrip("\n"), questions)


def csv_record(rng: random.Random, number: int) -> Made:
    identity, name = f"T{number * 13 + rng.randrange(13):08}", f"{rng.choice(FIRST)} {rng.choice(LAST)}"
    account, cents, city = f"DE{rng.randrange(10**12):012}", rng.randrange(100, 900_000), rng.choice(CITIES)
    status, day = rng.choice(("settled", "failed", "pending")), START + timedelta(minutes=number)
    amount = f"{cents / 100:.2f}"
    text = f"{identity},{day:%Y-%m-%d},{name},{account},{amount},{city},{status}\n"
    return Made(
        text,
        (
            Question(f"Who is behind transaction {identity}?", name),
            Question(f"How much money moved in {identity}?", amount),
            Question(f"Which branch office dealt with the payment to account {account}?", city),
            Question(f"To which account did {name} pay {amount}?", account),
            Question(f"did transaction {identity} go through?", status),
        ),
    )


def diff_record(rng: random.Random, number: int) -> Made:
    folder, module = rng.choice(SERVICES), f"{rng.choice(SYLLABLES)}{rng.choice(SYLLABLES)}_{number}"
    constant = (
        f"{rng.choice(('MAX', 'MIN', 'DEFAULT'))}_{rng.choice(THINGS).upper()}_{rng.choice(('LIMIT', 'DELAY', 'SIZE'))}"
    )
    old, new, function = rng.randrange(10, 9999), rng.randrange(10_000, 99_999), f"load_{token(rng, 6)}"
    file = f"services/{folder}/{module}.py"
    body = "".join(
        f"     step_{rng.randrange(999)} = prepare({rng.randrange(999)})\n" for _ in range(rng.randrange(2, 9))
    )
    text = (
        f"diff --git a/{file} b/{file}\nindex {token(rng, 7)}..{token(rng, 7)} 100644\n--- a/{file}\n+++ b/{file}\n"
        f"@@ -{rng.randrange(1, 400)},8 +{rng.randrange(1, 400)},8 @@ def {function}(path):\n{body}"
        f"-    {constant} = {old}\n+    {constant} = {new}\n     return path\n"
    )
    return Made(
        text,
        (
            Question(f"What is the new value of {constant} in {module}.py?", f"{constant} = {new}"),
            Question(f"What was {constant} set to before the change to {file}?", f"{constant} = {old}"),
            Question(f"Which constant changed inside the function {function}?", constant),
            Question(f"In which file was {function} touched?", file),
        ),
    )


def name_of(rng: random.Random, parts: int) -> str:
    return "".join(rng.choice(SYLLABLES) for _ in range(parts)).capitalize()


def prose_record(rng: random.Random, number: int) -> Made:
    town, thing, person = name_of(rng, 4), rng.choice(THINGS), f"{rng.choice(FIRST)} {name_of(rng, 3)}"
    year, cost, feature = rng.randrange(1500, 1990), rng.randrange(1000, 99_000), name_of(rng, 3)
    fillers = (
        "Travellers of the time describe the road there as long and the inns as few.",
        "The council minutes of those years are lost, and most of what is known comes from letters.",
        "Trade with the coast had declined, and several workshops stood empty.",
        "Nothing of the earlier building can be seen today, apart from two low walls.",
    )
    text = (
        f"{rng.choice(fillers)} The {thing} of {town} was rebuilt in {year} under the direction of {person}, who had "
        f"worked on smaller commissions before. {rng.choice(fillers)} The works cost {cost} crowns, a sum that "
        f"the guild of {feature} advanced. {rng.choice(fillers)}\n\n"
    )
    del number
    return Made(
        text,
        (
            Question(f"Who was in charge of the reconstruction of the {thing} in {town}?", person),
            Question(f"In what year did {town} get its new {thing}?", str(year)),
            Question(f"How expensive was the project that {person} led?", f"{cost} crowns"),
            Question(f"Who lent the money for {town}'s {thing}?", feature),
        ),
    )


MAKERS: dict[str, Callable[[random.Random, int], Made]] = {
    "log": log_record,
    "minified JSON": minified,
    "pretty JSON": pretty,
    "diff": diff_record,
    "CSV": csv_record,
    "prose": prose_record,
}
HEADS = {
    "minified JSON": '{"count":0,"orders":[',
    "pretty JSON": '{\n  "count": 0,\n  "orders": [\n',
    "CSV": "transaction_id,booked_on,customer,account,amount,branch,state\n",
}
JOINTS = {"minified JSON": ",", "pretty JSON": ",\n"}
TAILS = {"minified JSON": "]}", "pretty JSON": "\n  ]\n}\n"}
