"""Extraction without a model: passages, records, tables, logs, diffs; exact requests; ranges that can be checked."""

import json
import re
from pathlib import Path

import pytest
from extract_kit import ask, stored

import toolfold
from benchmarks.outputs.documents import KINDS, write
from toolfold import tokens
from toolfold.outputs.local.answer import answer
from toolfold.outputs.local.index import IndexCache
from toolfold.outputs.tool_output_definition import Mode

ORDERS = {
    "total": 400,
    "orders": [
        {
            "orderId": 9000 + n,
            "email": f"user{n}@example.org",
            "status": ("open", "failed", "done", "done")[n % 4],
            "amount": n * 1.5,
            "note": 'ship ähnlich "quick"' if n == 333 else "none",
        }
        for n in range(400)
    ],
}
PRETTY, MINIFIED = json.dumps(ORDERS, indent=2), json.dumps(ORDERS, separators=(",", ":"))
CSV = "id,name,status,amount\n" + "".join(
    f"{n},person {n},{'failed' if n % 7 == 0 else 'ok'},{n * 2}\n" for n in range(1000)
)
LOG = "".join(
    f"2026-05-0{1 + n // 720} {n // 60 % 24:02}:{n % 60:02}:00 "
    f"{'ERROR' if n % 50 == 0 else 'INFO'} svc-{n % 9} request {n:05} handled\n"
    for n in range(1440)
)
DIFF = "".join(
    f"diff --git a/src/m{n}.py b/src/m{n}.py\n--- a/src/m{n}.py\n+++ b/src/m{n}.py\n@@ -1,3 +1,3 @@ def run_{n}():\n"
    f"     x = 1\n-    limit = {n}\n+    limit = {n + 5000}\n     return x\n"
    for n in range(300)
)
PODS = "\n\nNAME     STATUS   AGE\n" + "".join(f"pod-{n:02}   Running  {n + 1}d\n" for n in range(20))
RANGE = re.compile(r"\[lines? (\d+)(?:-(\d+))?, bytes (\d+)-(\d+)\]")


@pytest.mark.requirement("O-13")
@pytest.mark.parametrize(
    ("content", "request_text", "wanted"),
    [
        (PRETTY, "the email of order 9123", "user123@example.org"),
        (MINIFIED, "the email of order 9123", "user123@example.org"),
        (MINIFIED, "Which order belongs to user77@example.org?", '"orderId":9077'),
        (MINIFIED, "what is the note on order 9333", "ähnlich"),
        (CSV, "amount for person 512", "512,person 512,ok,1024"),
        (CSV, "how many rows where status = failed", 'Count of rows where status = "failed": 143 (of 1000 rows).'),
        (CSV, "what is the highest amount", "Greatest amount of 1000 rows: 1998."),
        ("\n" + CSV, "how many rows are there", "Count of rows: 1000."),
        (PODS, "how many rows are there", "Count of rows: 20."),
        (
            MINIFIED,
            "How many orders are failed?",
            'Count of elements of orders[] where status = "failed": 100 (of 400 ',
        ),
        (
            PRETTY,
            "number of orders with amount over 500",
            "Count of elements of orders[] where amount > 500: 66 (of 400 ",
        ),
        (LOG, "errors between 10:00 and 11:00 on 2026-05-01", "10:00:00 ERROR svc-6 request 00600"),
        (LOG, "how many errors are there", 'Count of events where level = "ERROR": 29 (of 1440 events).'),
        (LOG, "the last error", "request 01400 handled"),
        (
            LOG,
            "how many errors between 00:00 and 05:00 on 2026-05-01",
            'level = "ERROR" and time >= 00:00 and time <= 05:00 and time = 2026-05-01: 7 (of 1440 events).',
        ),
        (DIFF, "what is the new limit in src/m217.py", "+    limit = 5217"),
        (DIFF, "which limit did run_88 have before", "-    limit = 88"),
        (DIFF, "which files were changed?", "Count of files that are changed: 300: src/m0.py, src/m1.py"),
    ],
)
def test_the_answer_is_found_without_a_model(tmp_path: Path, content: str, request_text: str, wanted: str) -> None:
    found = ask(stored(tmp_path, content), request_text)
    assert wanted in found.text
    assert "Made without a language model" in found.text
    assert tokens.count(found.text) <= 2100


@pytest.mark.requirement("O-13")
@pytest.mark.parametrize("mode", ["auto", "full-chunked", "read-grep"])
def test_every_mode_works_without_a_model_and_none_claims_one(tmp_path: Path, mode: Mode) -> None:
    found = ask(stored(tmp_path, PRETTY), "email of order 9123", mode=mode)
    assert "user123@example.org" in found.text
    assert found.strategy == "read-grep"
    assert ("needs a language model, and none is configured" in found.text) == (mode == "full-chunked")


@pytest.mark.requirement("O-13")
def test_a_diff_is_quoted_with_its_file_and_hunk(tmp_path: Path) -> None:
    found = ask(stored(tmp_path, DIFF), "limit = 5217")
    assert "diff --git a/src/m217.py b/src/m217.py" in found.text
    assert "def run_217():" in found.text


@pytest.mark.requirement("O-13")
def test_what_is_not_there_is_told_with_the_shape_of_what_is(tmp_path: Path) -> None:
    found = ask(stored(tmp_path, MINIFIED), "zebras")
    assert "No match was found" in found.text
    assert "orders[].email: string" in found.text


@pytest.mark.requirement("O-15")
@pytest.mark.parametrize("content", [PRETTY, MINIFIED, CSV, LOG, DIFF])
@pytest.mark.parametrize("asked", ["order 9123 email", "person 512 failed", "request 00777", "limit of run_88", "done"])
def test_every_quoted_passage_stands_where_it_says(tmp_path: Path, content: str, asked: str) -> None:
    document = stored(tmp_path, content)
    raw = document.path.read_bytes()
    text = ask(document, asked).text
    parts = RANGE.split(text)
    for at in range(1, len(parts), 5):
        first, last, start, end, body = parts[at : at + 5]
        begin, finish = int(start), int(end) + 1
        assert raw[:begin].count(b"\n") + 1 == int(first)
        assert raw[: finish - 1].count(b"\n") + 1 == int(last or first)
        there = raw[begin:finish].decode()
        quoted = [
            line for line in body.strip().split("\n\n")[0].split("\n") if not line.startswith(("(under", "(", "Header"))
        ]
        if content in {PRETTY, MINIFIED} and there.startswith("{") and quoted[0].startswith("{"):
            assert json.loads(quoted[0]) == json.loads(there)
        elif content not in {PRETTY, MINIFIED}:
            assert "\n".join(quoted) in there
    assert len(parts) > 1 or "No match was found" in text


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ("orders[3].email", '"user3@example.org"'),
        ("$.total", "400"),
        ("orders[399]", '"orderId":9399'),
        ("What is orders[3].email?", '"user3@example.org"'),
        ("orders[].email", "leads to 200 values"),
        ("orders[3].mail", "orders[3] is there and holds: orderId, email, status, amount, note"),
        ("orders[4000]", "orders is there and holds: 400 elements"),
        ("orders", "400 elements"),
    ],
)
@pytest.mark.parametrize("content", [PRETTY, MINIFIED])
def test_a_path_is_answered_exactly(tmp_path: Path, content: str, asked: str, wanted: str) -> None:
    assert wanted in ask(stored(tmp_path, content), asked).text


def test_ranges_and_patterns_are_answered_exactly(tmp_path: Path) -> None:
    document = stored(tmp_path, LOG)
    raw = document.path.read_bytes()
    lines = LOG.splitlines()
    assert "\n".join(lines[99:103]) in ask(document, "lines 100-103").text
    assert lines[56] in ask(document, "show me line 57").text
    assert raw[100:201].decode() in ask(document, "bytes 100-200").text
    assert lines[-1] in ask(document, "the last 3 lines").text
    assert lines[0] in ask(document, "first 3 lines please").text
    found = ask(document, "/ERROR svc-[37] /").text
    assert f"{sum(1 for line in lines if re.search('ERROR svc-[37] ', line))} lines fit /ERROR svc-[37] /." in found
    assert "There are no such lines: the document has lines 1-1440." in ask(document, "lines 5000-5001").text
    assert "There are no such bytes" in ask(document, "bytes 99999999-99999999").text
    assert "is no regular expression" in ask(document, "/(/").text


def test_the_public_function_takes_text_bytes_and_paths(tmp_path: Path) -> None:
    file = tmp_path / "orders.json"
    file.write_text(PRETTY)
    for document in (PRETTY, PRETTY.encode(), file):
        text = toolfold.extract(document, "email of order 9123")
        assert text.startswith("ABSTRACT FROM TOOL OUTPUT ")
        assert "user123@example.org" in text
    assert toolfold.extract(str(file), "orders") != toolfold.extract(file, "orders")
    with pytest.raises(toolfold.ToolfoldError, match="cannot be read"):
        toolfold.extract(tmp_path / "absent", "x")
    with pytest.raises(toolfold.ToolfoldError, match="no mode"):
        toolfold.extract("x", "x", mode="guess")  # type: ignore[arg-type]  # on purpose


@pytest.mark.load
@pytest.mark.requirement("O-13")
@pytest.mark.parametrize("kind", KINDS)
def test_most_questions_to_generated_documents_are_answered(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "document"
    questions = write(kind, path, 300_000, 5, 12)
    indexes = IndexCache()
    texts = [answer(indexes, path, question.request, 2000) for question in questions]
    held = [
        q for q, text in zip(questions, texts, strict=True) if q.answer in text or q.answer in text.replace('": ', '":')
    ]
    assert len(held) >= 11
