"""What is claimed of awkward documents: values of several forms, totals, pages, versions, zones, doubtful words.

Each case says what must be stated, or that nothing may be.
"""

import json
import re
from pathlib import Path

import pytest

from toolfold.outputs.local.answer import answer
from toolfold.outputs.local.computed import Computed, compute
from toolfold.outputs.local.index import IndexCache


def computed(folder: Path, content: str, request: str) -> Computed:
    path = folder / "document"
    path.write_text(content, encoding="utf-8")
    with IndexCache().of(path) as index:
        return compute(index, request)


def rows(header: str, *lines: str) -> str:
    return "\n".join([header, *lines]) + "\n"


def column(name: str, *values: str, sign: str = ",") -> str:
    """A table with one interesting column."""
    return rows(f"id{sign}who{sign}{name}", *(f"{at}{sign}w{at}{sign}{own}" for at, own in enumerate(values, 1)))


SHOP = rows(
    "order_id,customer,city,status,amount,quantity,payment_method,created_at,shipped_at",
    "1001,Ada Byrd,Graz,paid,120.50,3,card,2024-05-01,2024-05-03",
    "1002,Ivo Lund,Porto,open,80.00,1,invoice,2024-05-02,",
    "1003,Mia Roth,Graz,paid,15.25,2,card,2024-05-02,2024-05-04",
    "1004,Ada Byrd,Oslo,cancelled,220.00,5,paypal,2024-06-05,",
)
LOG = rows(
    "2024-05-01 10:00:01 INFO [api] request done status=200 duration=35ms user=ada",
    "2024-05-01 10:00:05 ERROR [db] connection timeout duration=3000ms",
    "2024-05-01 10:01:07 WARN [api] slow request status=404 duration=900ms user=ivo",
    "2024-05-01 11:02:31 ERROR [api] request failed status=500 duration=60ms user=ada",
)
DAYS = column("ordered,shipped", "01/02/2024,2024-02-03", "03/02/2024,2024-03-04", "05/01/2024,2024-02-06")
ZONES = column("at", "2024-05-01T10:00:00Z", "2024-05-01T10:00:00+02:00", "2024-05-01T11:00:00-05:00")
TOTALS = rows("region,product,revenue", "North,Tea,10", "North,Coffee,20", "Subtotal,,30", "South,Tea,5", "Total,,35")
MISSING = column("score", "5", "-", "null", "N/A", "7", "", "9")
FLAGS = column("is_paid", "yes", "TRUE", "1", "no", "N", "0", "true", "Y")
TWO = column("price,list_price", "5,5", "4,6", "7,7")
CASES = column("status", "Paid", "paid", "PAID", "open", "Open")
ZEROES = rows("id,zip,name", "007,01234,A", "7,1234,B", "07,01234,C")
VERSIONS = column("version", "1.10", "1.9", "1.2")
TIES = column("amount", "5", "9", "9", "7")
SERVICES = json.dumps(
    {
        "services": [
            {"name": "auth", "healthy": True, "region": "eu", "last_deploy": "2024-05-01T10:00:00Z", "replicas": 3},
            {"name": "mail", "healthy": True, "region": "us", "last_deploy": "2024-05-03T10:00:00Z", "replicas": 1},
            {"name": "bill", "healthy": False, "region": "us", "last_deploy": "2024-04-03T10:00:00Z", "replicas": 2},
        ]
    }
)
HALVES = column(
    "at,state", "2024-05-01 11:59 PM,ok", "2024-05-01 01:15 PM,bad", "2024-05-01 02:00 AM,bad", "2024-05-02 12:05 AM,ok"
)
TRACES = rows(
    "2024-05-01 10:00:00 ERROR a failed",
    "Traceback (most recent call last):",
    "psycopg2.OperationalError: FATAL: no role",
    "java.lang.RuntimeException: ERROR: at 2024-05-01 10:00:00",
    "2024-05-01 10:02:00 error lower",
    "2024-05-01 10:03:00 [ERROR] in brackets",
    "2024-05-01 10:04:00 INFO level=error quoted",
)
SERVED = rows(
    "2026-11-15 08:00:18 INFO [pay] request served in 408 ms",
    "2026-11-15 08:00:37 INFO [api] request served in 202 ms",
    "2026-11-15 08:00:53 WARN [api] gave up after 30 s",
)
COSTS = "item,cost\nA,10\nB,20\nC,30\n"
SURE = ("Total 2024", "Subtotal HR", "Total for March", "TOTAL:", "Grand Total (USD)")
MAYBE = (
    *("TOTAL COST", "Sum", "Summe", "Gesamt", "Overall", "All", "\u03a3", "\u2211", "Average", "Avg.", "Mean", "Max"),
    *("Count", "Net", "Balance", "Total g\u00e9n\u00e9ral"),
)
PROCESSES = """\
USER       PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND
root         1  0.0  0.1 168000 11000 ?        Ss   May01   0:05 /sbin/init
ann       1234 12.5  2.0 900000 99000 pts/0    R+   10:00   1:30 python train.py
bob       2222  0.5 10.1 500000 80000 ?        Sl   09:00  10:00 java -jar x.jar
root      3333  3.0  0.0      0     0 ?        Z    09:30   0:00 [sh] <defunct>
"""
COMPOSE = """\
services:
  web:
    image: nginx:1.25
    ports: ["80:80"]
    replicas: 3
  db:
    image: postgres:16
    replicas: 1
  cache:
    image: redis:7
    replicas: 2
"""


STAFF = rows(
    "name,role,manager,driver,salary,left_on",
    "Ann,Director,,no,200,",
    "Bob,Manager,Ann,yes,100,2020-01-01",
    "Cy,Driver,Bob,no,50,",
    "Dee,Clerk,Bob,no,60,",
)
BITS = rows("name,admin,locked", "a,1,0", "b,0,1", "c,1,1", "d,,0")
ERR = rows(
    '{"t":1,"level":"error","err":null}',
    '{"t":2,"level":"info","err":"oops"}',
    '{"t":3,"level":"error","err":"boom"}',
    '{"t":4,"level":"info","err":null}',
)
STANZAS = "Package: foo\n\nPackage: bar\nDepends: foo\n\nPackage: baz\nDepends: foo, bar\nConflicts: bar\n"
NEEDS = json.dumps([{"name": "a", "requires": "b"}, {"name": "b", "requires": None}, {"name": "c", "requires": "a"}])
OWNED = rows("name,owner,parent", "alpha,zoe,", "beta,yan,alpha", "gamma,zoe,beta")
DONE = rows(
    "id,amount,paid,refunded_at,approved_by,note",
    "1,10,yes,,ann,kept",
    "2,99,no,2024-01-01,,not returned",
    "3,20,yes,,bob,returned",
)
MATCHES = rows("date,home,away,goals", "2024-03-01,Ajax,PSV,3", "2024-03-02,PSV,Ajax,0", "2024-03-03,Ajax,PSV,4")
LIMITS = rows("name,used,limit,discount", "a,100,200,0", "b,300,200,5", "c,50,,0")
TICKETS = json.dumps({"tickets": [{"id": 1, "agent": "p", "hours": 5}, {"id": 2, "agent": None, "hours": 3}]})


def paged(**facts: object) -> str:
    return json.dumps({**facts, "orders": [{"id": 1, "amount": 3}, {"id": 2, "amount": 4}]})


MARKDOWN = "| id | amount |\n|---|---|\n| 1 | 3 |\n| 2 | 4 |\n"
REFUSED = [
    # Days with two readings, also where another column has times that are clear.
    (DAYS, "the latest order"),
    (DAYS, "orders ordered after 2024-02-01"),
    (DAYS, "how many orders before 2024-03-01"),
    (column("day", "2024-02-03", "03/02/2024", "13/01/2024"), "the latest day"),
    # 50% and 0.5.
    (column("rate", "50%", "0.5", "0.25", "75%"), "the highest rate"),
    (column("rate", "50%", "0.5", "0.25", "75%"), "average rate"),
    (column("rate", "0.50", "0.25", "0.75"), "how many have a rate over 40%"),
    (column("rate", "0.50", "0.25", "0.75"), "how many have rate = 50%"),
    # Versions and numbers with zeros before them are names.
    (VERSIONS, "the highest version"),
    (VERSIONS, "how many have version above 1.5"),
    (VERSIONS, "version = 1.1"),
    (VERSIONS, "average version"),
    (ZEROES, "sum of zip"),
    (ZEROES, "the highest zip"),
    (ZEROES, "how many have zip 1234"),
    (ZEROES, "id = 7"),
    # Units, currencies and signs.
    (column("size", "1.5k", "900", "12", "8"), "sum of size"),
    (column("size", "3 MB", "900", "12", "8"), "largest size"),
    (column("price", "$5", "€4", "7", "$9"), "how many have price over 4"),
    (column("price", "5 USD", "4 EUR", "7 USD"), "sum of price"),
    (column("amount", "(500)", "200", "300"), "sum of amount"),
    (column("amount", "1 234.50", "200", "300"), "highest amount"),
    (column("amount", "1.234,50", "2,5", "1,250", sign=";"), "sum of amount"),
    (column("amount", "1.234", "2.500", "1.250", sign=";"), "sum of amount"),
    # Tables that are not one.
    ("| id | a | a |\n|---|---|---|\n| 1 | 3 | 9 |\n| 2 | 4 | 8 |\n", "sum of a"),
    (rows("id,name,amount", *(f"{at},A,5" for at in range(30)), "31,B"), "sum of amount"),
    (rows("id,name,amount", "1,A,5", "2,B,7", "# a remark, with, commas", "3,C,9"), "how many rows"),
    (rows("id,name,amount", "1,A,5", "2,B,7", "", "city,zip,pop", "Graz,8010,300"), "sum of amount"),
    ("ada,graz,x\nivo,porto,y\nmia,oslo,x\nzoe,rome,y\n", "how many rows"),
    # Times of several zones.
    (ZONES, "how many after 2024-05-01 09:00"),
    (ZONES, "how many before 10:30"),
    (ZONES, "the latest"),
    # AM and PM: a clock without them among others may be either; a day of two readings is none.
    (column("at", "01:15 PM", "02:20", "03:00 AM"), "the latest at"),
    (column("at", "01:15 PM", "02:20", "03:00 AM"), "how many after 12:00"),
    ("05/01/2024 01:00:00 PM ERROR a\n05/02/2024 02:00:00 AM ERROR b\n" * 2, "latest error"),
    ('{"at":"05/01/2024 01:15:00 PM"}\n{"at":"05/01/2024 02:00:00 AM"}\n', "latest record"),
    # What may be a total.
    *((f"{COSTS}{label},60\n", "sum of cost") for label in MAYBE),
    *((f"{COSTS}Max,60\n", request) for request in ("how many rows", "highest cost", "average cost", "cost over 15")),
    (f"{COSTS}Max,60\n", "what percentage of rows have item = B"),
    (f"{COSTS}everybody,60\n", "highest cost"),
    ("id,item,cost\n1,A,10\n2,B,20\n,,30\n", "sum of cost"),
    ("id,item,cost\n1,A,10\n2,B,20\n,,30\n", "how many rows"),
    ("| item | cost |\n|---|---|\n| A | 3 |\n| B | 4 |\n| Average | 3.5 |\n", "sum of cost"),
    # What is grouped in a way that is not known, or repeated, is no record.
    (SHOP, "weekly count"),
    (SHOP, "running total of amount"),
    (SHOP, "count by status and city"),
    (SHOP, "how many cities per status"),
    (SHOP, "how many duplicates"),
    (SHOP, "sum of amount by city and status"),
    (SHOP, "percentage per status"),
    # How far a negation reaches, whether a word is a value.
    (SHOP, "how many orders were not paid by card"),
    (SERVICES, "healthy services in the us"),
    (column("paid", "on", "off", "x", ""), "how many are unpaid"),
    (column("note", "none", "ok", "x", ""), "how many have a note"),
    (TIES, "second highest amount"),
    (
        json.dumps([{"id": 1, "paid": True}, {"id": 2, "paid": "no"}, {"id": 3, "paid": 0}]),
        "how many have paid = false",
    ),
    # A word that names a field, or says which records are meant, is never passed over.
    *(
        (STAFF, request)
        for request in (
            *("total salary of managers", "sum of salary for managers", "lowest salary among managers"),
            *("how many people still work here", "how many people work here now", "how many people currently earn 50"),
            *("how many people are left", "how many rows yet", "how many people are here", "who left already"),
            *("how many weekdays", "how many engineers", "average salary of engineers"),
        )
    ),
    *((BITS, request) for request in ("non-admins", "locked admins", "how many admins are not locked")),
    *((STANZAS, f"packages that {verb}") for verb in ("depend on foo", "conflict with bar", "conflict with foo")),
    (STANZAS, "how many packages depend on bar"),
    (NEEDS, "who requires c"),
    (OWNED, "owner of the parent of gamma"),
    (DONE, "how many payments"),
    (DONE, "how many approvals"),
    (DONE, "how many approvals are paid"),
    (column("returned", "yes", "no", "no"), "how many returns"),
    (MATCHES, "how many home wins"),
    (TICKETS, "total hours of agents"),
    (TICKETS, "total hours of managers"),
    (TICKETS, "total hours of visitors"),
    ("2024-05-01 10:00:00 INFO a size=1 size=2\n" * 4, "sum of size"),
]
STATED = [
    (TOTALS, "how many rows", "Count of rows: 3 (line 4, line 6 left out as no record)."),
    (TOTALS, "sum of revenue", "Sum of revenue over 3 rows: 35 (line 4, line 6 left out as no record)."),
    (TOTALS, "the highest revenue", "Greatest revenue of 3 rows: 20 ("),
    ("| Item | Cost |\n|---|---|\n| Pen | 3 |\n| **Total** | **3** |\n", "how many items", "Count of rows: 1 ("),
    (MISSING, "average score", "Mean of score over 3 rows: 7 ('-', 'N/A', 'null' taken for no value; 4 of them"),
    (MISSING, "how many have a score", "score has a value: 3 (of 7 rows; '-', 'N/A', 'null' taken for no value)."),
    (MISSING, "how many without a score", "Count of rows where score has no value: 4 ("),
    (MISSING, "how many different scores", "Values of score in rows: 3 different"),
    (MISSING, "rows where score is null", "4 rows where score has no value"),
    (MISSING, "rows where score != 5", "2 rows where score != "),
    (FLAGS, "how many have is_paid false", 'is_paid is one of "no", "N", "0": 3 ('),
    (FLAGS, "is_paid = true", "5 rows where is_paid is one of"),
    (TWO, "how many have price = list_price", "Count of rows where price = list_price: 2 (of 3 rows)."),
    (TWO, "how many have a price below their list price", "Count of rows where price < list_price: 1 ("),
    (
        CASES,
        "how many different statuses",
        'Values of status in rows: 2 different (whatever the case of letters): "Paid": 3',
    ),
    (CASES, "count per status", '"Paid": 3, "open": 2.'),
    (TIES, "top 2 by amount", "Greatest amount of 4 rows: 9, shared by 2."),
    (TIES, "top 3 by amount", 'line 5: amount: "7"'),
    (column("amount", "5", "9", "7", "7"), "top 2 by amount", "(the last of 2 is shared: 3 in all)"),
    (column("amount", "5", "9", "8"), "the second highest amount", "Number 2 by greatest amount of 3 rows: 8."),
    (rows("id,amount,x", "1,5,a", "id,amount,x", "2,7,b", "3,1,c"), "sum of amount", "Sum of amount over 3 rows: 13."),
    (rows("id,amount,x", "1,5,a", ",,", "2,7,b", "3,1,c"), "how many rows", "Count of rows: 3."),
    ("| id | amount |\n|---|---|\n| 1 | 3 |\n| id | amount |\n| 2 | 4 |\n", "how many rows", "Count of rows: 2."),
    (rows("id,name,amount", '1,"A\nB",5', "2,C,7", "3,D,9"), "how many rows", "Count of rows: 3."),
    (column("v", ".1", "0.30", "+2", "\u22123"), "sum of v", "Sum of v over 4 rows: -0.6."),
    (column("v", ".1", "0.30", "2"), "how many have v = .3", "Count of rows where v = 0.3: 1 ("),
    (column("took", "35 ms", "20 ms", "5 ms"), "how many took over 10 ms", "Count of rows where took > 10: 2 ("),
    (column("day", "3 Feb 2024", "5 Mar 2024", "13 Jan 2024"), "the latest day", "Greatest day of 3 rows: 5 Mar 2024."),
    (rows("id,name", "1,A", "1,A", "2,B"), "how many orders", "id repeats"),
    # AM and PM.
    (HALVES, "earliest at", "Least at of 4 rows: 2024-05-01 02:00 AM."),
    (HALVES, "latest at", "Greatest at of 4 rows: 2024-05-02 12:05 AM."),
    (HALVES, "rows at 1 pm", "1 row where at = 13:00 to 13:59 ("),
    (HALVES, "how many after 2024-05-01 12:00", "at > 2024-05-01 12:00: 3 ("),
    (HALVES, "rows per hour", '"2024-05-01 02:00": 1, "2024-05-01 13:00": 1, "2024-05-01 23:00": 1, "2024-05-02 00'),
    (column("at", "9:05 AM", "12:30 AM", "1:00 p.m."), "earliest at", "Least at of 3 rows: 12:30 AM."),
    (HALVES.replace(" PM", ":00 PM"), "rows at 1 pm", "1 row where at = 13:00 to 13:59 ("),
    # Lines of a stack trace are no events; a level may be written small.
    (TRACES, "how many events", "Count of events: 4."),
    (TRACES, "how many errors", 'level is one of "ERROR", "error": 3 (of 4 events)'),
    (TRACES.replace("2024", "[2024"), "how many events", "Count of events: 4."),
    ("ERROR a\n  INFO b\nINFO c\nERROR d\n", "how many errors", "2 (of 3 events)"),
    # A field is not named by a preposition.
    (SERVED, "average served", "Mean of served ms over 2 events: 305"),
    # Totals by other names.
    *((f"{COSTS}{label},60\n", "sum of cost", "Sum of cost over 3 rows: 60 (line 5 left out") for label in SURE),
    (f"{COSTS}Balance,60\n", "cost of Balance", 'line 5: cost: "60"'),
    (f"{COSTS}Max,60\n", "how many have item = B", "1 (of 4 rows)"),
    ("id,item,cost\n1,A,10\n2,Total Recall DVD,30\n3,Sum 41 CD,5\n", "sum of cost", "over 3 rows: 45."),
    # Columns that are aligned to the right.
    (PROCESSES, "highest RSS", "Greatest RSS of 4 rows: 99000."),
    (PROCESSES, "greatest %MEM", "Greatest %MEM of 4 rows: 10.1."),
    (PROCESSES, "how many have USER = root", 'USER = "root": 2 (of 4 rows)'),
    # One list of YAML that is written as JSON.
    (COMPOSE, "how many services", "services.*: 3"),
    # More than is here.
    (paged(page=1, total_pages=9), "how many orders", 'only of what is here, as the document says "total_pages = 9"'),
    (paged(has_more=True), "sum of amount", 'only of what is here, as the document says "has_more = True"'),
    (paged(next_cursor="abc"), "highest amount", 'the document says "next_cursor = abc"'),
    (paged(total=400), "how many orders have amount over 3", 'the document says "total = 400"'),
    (paged(meta={"pagination": {"next": "/2"}}), "orders with amount over 9", 'says "meta.pagination.next = /2"'),
    (f"Showing 2 of 400 results\n\n{MARKDOWN}", "how many rows", 'the document says "Showing 2 of 400"'),
    (f"{MARKDOWN}\nPage 1 of 9\n", "sum of amount", 'the document says "Page 1 of 9"'),
    (rows("id,a,b", *["1,2,3"] * 20, "showing 20 of 400"), "how many rows", "Count of rows: 20 ("),
    ('{"id":1,"amount":3}\n{"id":2,"amount":4}\n{"next_cursor":"abc"}\n', "how many records", "Count of records: 2 ("),
    (
        "<orders page='1' pages='9'><order><id>1</id></order><order><id>2</id></order></orders>",
        "how many orders",
        "pages = 9",
    ),
    (json.dumps([{"page_id": at, "page_name": "a"} for at in (1, 2)]), "how many pages", "elements of []: 2"),
    # Figures of each.
    (
        SHOP,
        "sum of amount per status",
        'Sum of amount per status in 4 rows: "cancelled": 220, "paid": 135.75, "open": 80.',
    ),
    (LOG, "how many errors per hour", '"2024-05-01 10:00": 1, "2024-05-01 11:00": 1.'),
    (LOG, "errors per component", '"db": 1, "api": 1.'),
    (LOG, "how many errors and warnings", 'level is one of "ERROR", "WARN": 3 ('),
    (LOG, "how many 404 errors", 'Count of events where status = "404": 1 ('),
    (LOG, "average duration", "Mean of duration ms over 4 events: 998.75."),
    (SHOP, "how many orders have not been shipped", "Count of rows where shipped_at has no value: 2 (of 4 rows)."),
    (SHOP, "how many items were ordered in total", "Sum of quantity over 4 rows: 11."),
    (SHOP, "what cities are there", 'Values of city in rows: 3 different: "Graz": 2'),
    (SHOP, "top two customers by total quantity", '"Ada Byrd": 8, "Mia Roth": 2'),
    (SERVICES, "services deployed in May", "2 elements of services[] where last_deploy = 2024-05"),
    (SERVICES, "how many services have only one replica", "where replicas = 1: 1 ("),
    (SERVICES, "how many services are in the us region", 'region = "us": 2 ('),
    # What is not had, though `no` is a value of another field.
    (STAFF, "who has no manager", "1 row where manager has no value"),
    (STAFF, "no manager", "1 row where manager has no value"),
    (STAFF, "how many rows with no left_on", "Count of rows where left_on has no value: 3 ("),
    # A field that is called like a level.
    (ERR, "records where err is set", "2 records where err has a value"),
    (ERR, "events without err", "2 records where err has no value"),
    (ERR, "events whose err is boom", '1 record where err = "boom"'),
    (ERR, "how many errors", 'Count of records where level = "error": 2 ('),
    (NEEDS, "who requires a", 'where requires = "a"'),
    (DONE, "largest order refunded", "Greatest amount of 1 rows where refunded_at has a value: 99"),
    (DONE, "cheapest order refunded", "Least amount of 1 rows where refunded_at has a value: 99"),
    (DONE, "when was the largest order refunded", "Greatest amount of 3 rows: 99"),
    # The first figure is what was asked for.
    (STAFF, "how many managers are there", "Count of different values of manager in rows: 2; 3 of 4 have a value"),
    # Both readings.
    (DONE, "how many rows are not returned", 'note = "not returned": 1 ('),
    (DONE, "how many rows are not returned", 'note != "returned": 2 ('),
    (LIMITS, "how many rows have no discount", "Count of rows where discount has no value: 0 (of 3 rows)."),
    (LIMITS, "how many rows have no discount", "Count of rows where discount has no value or is 0: 2 (of 3 rows)."),
    (LIMITS, "rows with a discount", "1 row where discount has a value other than 0"),
    (SHOP, "the latest order", "Greatest created_at of 4 rows: 2024-06-05."),
    (SHOP, "the latest order", "Greatest shipped_at of 2 rows: 2024-05-04"),
    # What has nothing to compare is told by its own name.
    (LIMITS, "used over limit", "1 with no limit to compare"),
]


@pytest.mark.parametrize(("content", "request_"), REFUSED)
def test_nothing_is_claimed(content: str, request_: str, tmp_path: Path) -> None:
    stated = computed(tmp_path, content, request_)
    assert not stated.claimed, stated.lines


@pytest.mark.parametrize(("content", "request_", "said"), STATED)
def test_is_stated(content: str, request_: str, said: str, tmp_path: Path) -> None:
    stated = computed(tmp_path, content, request_)
    assert stated.claimed, stated.lines
    assert said in "\n".join(stated.lines)


@pytest.mark.parametrize(
    "facts", [{"total": 2}, {"has_more": False}, {"next_cursor": ""}, {"next": None}, {"pages": 1}]
)
def test_a_whole_list_is_not_called_a_part(facts: dict[str, object], tmp_path: Path) -> None:
    assert computed(tmp_path, paged(**facts), "how many orders").lines == ("Count of elements of orders[]: 2.",)


def test_a_refusal_ends_in_one_sign(tmp_path: Path) -> None:
    line = computed(tmp_path, STAFF, "average salary of managers").lines[0]
    assert line == 'Nothing was computed: what is demanded of manager is not said: "with manager"?'


def test_a_time_after_noon_is_not_said_to_be_absent(tmp_path: Path) -> None:
    path = tmp_path / "document"
    path.write_text("2024-05-01 01:15:00 PM ERROR disk\n2024-05-01 02:00:00 AM INFO x\n" * 3, encoding="utf-8")
    assert "has a time of" not in answer(IndexCache(), path, "what is said about disk at 13:15", 800)


def test_a_decimal_comma_is_named(tmp_path: Path) -> None:
    stated = computed(tmp_path, column("amount", "-850,00", "2400,50", "-43,20", sign=";"), "sum of amount")
    assert not stated.claimed
    assert 'amount may be written with a decimal comma ("-43,20"), which is not read' in stated.lines[0]


def answered(folder: Path, content: str, request: str) -> str:
    path = folder / "document"
    path.write_bytes(content.encode())
    return answer(IndexCache(), path, request, 800)


def test_how_many_are_quoted_is_said(tmp_path: Path) -> None:
    many = column("city,note", *[f"Graz,{'some words ' * 5}"] * 296)
    said = re.search(r"\((\d+) of 296 are quoted here\)", text := answered(tmp_path, many, "how many in Graz"))
    assert said is not None, text[:400]
    assert int(said[1]) == text.count(",Graz,") > 0
    assert "quoted here" not in answered(tmp_path, column("city", *["Graz"] * 5), "how many in Graz")


def test_a_small_document_is_quoted_once(tmp_path: Path) -> None:
    own = json.dumps([{"id": at, "city": "Graz"} for at in range(3)], indent=2)
    assert answered(tmp_path, own, "how many in Graz").count('"id":1,') == 1
