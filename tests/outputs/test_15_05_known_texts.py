"""Texts that name no fields, but whose form is known, are records: commits, mails, changelogs, users, ports, files."""

from pathlib import Path

import pytest
from extract_kit import stored
from test_15_05_read_as_meant import said

from toolfold.outputs.local.computed import compute
from toolfold.outputs.local.index import IndexCache

COMMITS = "\n".join(
    f"commit {n:040x}\nAuthor: {('Ada', 'Ivo')[n % 2]} <a{n}@x.org>\nDate:   Mon Jun {n + 1} 10:0{n}:00 2024 +0200\n\n"
    f"    {('fix: leak', 'docs: export', 'feat: Author: Bob <b@x.org>')[n % 3]}\n\n src/a{n}.py | 2 +-\n"
    for n in range(9)
)
MAILS = "".join(
    f"From a{n}@x.org Mon Jun  3 10:0{n}:00 2024\nFrom: {('Ann Lee', 'Bo Ek')[n % 2]} <a{n}@x.org>\nX-Spam: no\n"
    f"Subject: {('Lunch', 'Plan', 'Re: Plan')[n % 3]}\nDate: Mon, 03 Jun 2024 10:0{n}:00 +0000\n\n"
    "Subject: none\n\nHi.\n\n"
    for n in range(9)
)
CHANGES = "".join(
    f"tool ({9 - n}.0-1) unstable; urgency={('high', 'low', 'low')[n % 3]}\n\n  * Fix {n}.\n\n"
    f" -- {('Ann Lee', 'Bo Ek')[n % 2]} <a@x.org>  Mon, {20 - n} May 2024 09:00:00 +0000\n\n"
    for n in range(9)
)
USERS = "".join(f"u{n}:x:{1000 + n}:100:User:/home/u{n}:{('/bin/sh', '/bin/false')[n % 3 == 0]}\n" for n in range(9))
PORTS = "# Services\n\n" + "".join(f"s{n}\t{n * 7 + 1}/{('tcp', 'udp')[n % 3 == 0]}\t# number {n}\n" for n in range(9))
INSTALLED = "".join(f"pkg/m{n}.py,sha256=AbC_{n},{n * 100}\n" for n in range(8)) + "pkg/RECORD,,\n"
FILES = "total 40\n" + "".join(
    f"{('-', 'd')[n % 4 == 3]}rw-r--r-- 1 root adm {n * 100} 2024-06-0{n + 1} 10:00 f {n}\n" for n in range(9)
)
ZONES = "# Zones\n#\n#codes\tcoordinates\tTZ\tcomments\n#\n" + "".join(
    f"{('AT', 'DE')[n % 2]}\t+48{n}\tEurope/C{n}{chr(9) + 'most' if n % 3 else ''}\n" for n in range(9)
)
NOTES = "# Planets\n\nKnown.\n\nHere:\n\n| Planet | Moons |\n|---|---|\n| Mars | 2 |\n| Venus | 0 |\n| Earth | 1 |\n"


@pytest.mark.parametrize(
    ("content", "request_", "stated"),
    [
        (COMMITS, "how many commits are there", "Count of commits: 9."),
        (COMMITS, "how many commits did Ada make?", 'Count of commits where author = "Ada": 5 (of 9 commits).'),
        (COMMITS, "how many commits by Bob", 'Nothing was computed: "bob" is said in message'),
        (COMMITS, "how many commits were made after 2024-06-03", "where date > 2024-06-03: 6 ("),
        (COMMITS, "commits where message contains a1", "There are no commits where message has"),
        (MAILS, "how many emails are not from Bo Ek?", 'Count of mails where from != "Bo Ek": 5 (of 9 mails).'),
        (MAILS, "how many messages have the subject Plan", 'Count of mails where subject = "Plan": 3 (of 9 mails).'),
        (CHANGES, "how many entries have urgency high", 'Count of entries where urgency = "high": 3 (of 9 entries).'),
        (CHANGES, "the latest entry", "Greatest date of 9 entries: Mon, 20 May 2024 09:00:00 +0000."),
        (USERS, "how many users do not have the shell /bin/sh", 'Count of users where shell != "/bin/sh": 3 ('),
        (USERS, "how many users have a uid over 1005", "Count of users where uid > 1005: 3 (of 9 users)."),
        (PORTS, "how many services use udp?", 'Count of services where protocol = "udp": 3 (of 9 services).'),
        (PORTS, "highest port", "Greatest port of 9 services: 57."),
        (INSTALLED, "total size", "Sum of size over 8 files: 2800 (1 of them without a number there)."),
        (FILES, "which file is the largest", 'where type = "file": 800 (of 9 entries).'),
        (FILES, "how many directories are there", 'Count of entries where type = "directory": 2 (of 9 entries).'),
        (ZONES, "how many zones are in AT", 'Count of rows where codes = "AT": 5 (of 9 rows'),
        (ZONES, "how many zones have no comments", "Count of rows where comments has no value: 3 (of 9 rows"),
        (NOTES, "how many moons are there in total", "Sum of Moons over 3 rows of the table at line 7: 3."),
    ],
)
def test_15_05_texts_of_a_known_form_are_records(tmp_path: Path, content: str, request_: str, stated: str) -> None:
    assert stated in said(tmp_path, content, request_)


@pytest.mark.parametrize(
    ("content", "request_"),
    [
        (f"{USERS}u9:x:odd\n", "how many users are there"),
        (f"{FILES}-rw-r--r-- broken\n", "how many directories are there"),
        (f"{PORTS}{PORTS.replace('tcp', 'tcp extra words')}{'x' * 9}\n", "how many services use udp?"),
    ],
)
def test_15_05_a_line_of_another_form_forbids_every_claim(tmp_path: Path, content: str, request_: str) -> None:
    with IndexCache().of(stored(tmp_path, content).path) as index:
        assert not compute(index, request_).claimed
