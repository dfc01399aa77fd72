"""The history of the demo's repository: commits as values, and as the stream that `git fast-import` reads.

It tells of a small library that computes tide times: started, extended, broken, mended, released.
"""

from msgspec import Struct

_MARA = "Mara Brandt <mara@example.org>"
_JONAS = "Jonas Lind <jonas@example.org>"
_AYLIN = "Aylin Kaya <aylin@example.org>"
_START = 1_709_283_600  # 1 March 2024, 09:00 UTC
_STEP = 93_600  # 26 hours: a bit more than a day between commits


class _Change(Struct, frozen=True):
    """One commit: on which branch, by whom, with what message, and the files it writes."""

    author: str
    message: str
    files: dict[str, str]
    branch: str = "main"
    merges: str = ""


_README = """# tides

Tide times for a handful of harbours.

    from tides import next_high
    next_high("Husum")
"""
_HARBOURS = '''"""Harbours and their mean delay behind the reference, in minutes."""

DELAYS = {
    "Husum": 0,
    "Emden": 42,
}
'''
_MORE_HARBOURS = _HARBOURS.replace("}", '    "Stade": 175,\n    "Kiel": 0,\n}')
_NO_KIEL = _HARBOURS.replace("}", '    "Stade": 175,\n}')
_CHANGELOG = "# 0.1.0\n\n- High and low water.\n- The period no longer drifts.\n"
_CORE_1 = '''"""Tide times from a mean period. Good to about a quarter of an hour."""

from datetime import datetime, timedelta

from tides.harbours import DELAYS

PERIOD = timedelta(hours=12, minutes=25)
REFERENCE = datetime(2024, 1, 1, 3, 10)


def next_high(harbour: str, after: datetime) -> datetime:
    """The first high water at a harbour after a moment."""
    first = REFERENCE + timedelta(minutes=DELAYS[harbour])
    waves = (after - first) // PERIOD + 1
    return first + waves * PERIOD
'''
_CORE_2 = (
    _CORE_1
    + '''

def next_low(harbour: str, after: datetime) -> datetime:
    """The first low water at a harbour after a moment."""
    return next_high(harbour, after - PERIOD / 2) + PERIOD / 2
'''
)
_CORE_3 = _CORE_2.replace(
    "    first = REFERENCE + timedelta(minutes=DELAYS[harbour])\n",
    "    if harbour not in DELAYS:\n"
    "        raise KeyError(f\"unknown harbour {harbour!r}; known: {', '.join(sorted(DELAYS))}\")\n"
    "    first = REFERENCE + timedelta(minutes=DELAYS[harbour])\n",
)
_CORE_4 = _CORE_3.replace("minutes=25)", "minutes=25, seconds=14)").replace("a quarter of an hour", "five minutes")
_TEST_1 = """from datetime import datetime

from tides import next_high


def test_high_water_comes_after_the_moment_asked_for():
    after = datetime(2024, 3, 1, 12, 0)
    assert next_high("Husum", after) > after
"""
_TEST_2 = (
    _TEST_1.replace("import next_high", "import next_high, next_low")
    + """

def test_low_water_lies_between_two_high_waters():
    after = datetime(2024, 3, 1, 12, 0)
    high = next_high("Husum", after)
    assert high < next_low("Husum", high) < next_high("Husum", high)
"""
)
_CLI = '''"""`python -m tides HARBOUR` prints the next high water."""

import sys
from datetime import datetime

from tides import next_high

if __name__ == "__main__":
    print(next_high(sys.argv[1], datetime.now()))
'''
_JSON_CLI = _CLI.replace("import sys", "import json\nimport sys").replace(
    "    print(next_high(sys.argv[1], datetime.now()))",
    "    high = next_high(sys.argv[1], datetime.now())\n"
    '    print(json.dumps({"harbour": sys.argv[1], "high": high.isoformat()}))',
)

COMMITS = (
    _Change(_MARA, "Start the project", {"README.md": _README, ".gitignore": "__pycache__/\n"}),
    _Change(_MARA, "Add harbours and their delays", {"tides/harbours.py": _HARBOURS}),
    _Change(
        _MARA,
        "Compute the next high water\n\nA mean period is enough for walks on the mud flats.",
        {"tides/core.py": _CORE_1, "tides/__init__.py": "from tides.core import next_high\n"},
    ),
    _Change(_JONAS, "Test that high water lies ahead", {"tests/test_core.py": _TEST_1}),
    _Change(
        _JONAS,
        "Add Kiel and Stade",
        {"tides/harbours.py": _NO_KIEL},
    ),
    _Change(
        _AYLIN,
        "Compute the next low water",
        {"tides/core.py": _CORE_2, "tides/__init__.py": "from tides.core import next_high, next_low\n"},
    ),
    _Change(_AYLIN, "Test that low water lies between two high waters", {"tests/test_core.py": _TEST_2}),
    _Change(_MARA, "Add a command line", {"tides/__main__.py": _CLI}),
    _Change(
        _JONAS,
        "Remove Kiel: the Baltic has no tides worth the name\n\nReported by a reader who waited at the quay.",
        {"tides/harbours.py": _NO_KIEL},
    ),
    _Change(_AYLIN, "Name the known harbours when one is unknown", {"tides/core.py": _CORE_3}),
    _Change(_JONAS, "Print JSON on the command line", {"tides/__main__.py": _JSON_CLI}, branch="json-output"),
    _Change(
        _MARA,
        "Fix the drift of the period\n\nThe mean period was 14 seconds short, which added up to an hour over a year.",
        {"tides/core.py": _CORE_4},
    ),
    _Change(
        _MARA,
        "Write down what changed",
        {"CHANGELOG.md": "# 0.1.0\n\n- High and low water.\n- The period no longer drifts.\n"},
    ),
    _Change(_JONAS, "Merge the JSON output", {"tides/__main__.py": _JSON_CLI}, merges="json-output"),
    _Change(
        _AYLIN,
        "Explain the accuracy in the readme",
        {"README.md": _README + "\nTimes are good to about five minutes. Do not steer a ship by them.\n"},
    ),
)


def fast_import_stream(commits: tuple[_Change, ...]) -> bytes:
    """The commits as one stream. Dates count up from a fixed day, so hashes never differ."""
    out: list[bytes] = []
    begun: set[str] = {"main"}
    for number, change in enumerate(commits):
        when = f"{_START + number * _STEP} +0100"
        out.append(f"commit refs/heads/{change.branch}\n".encode())
        out.append(f"author {change.author} {when}\ncommitter {change.author} {when}\n".encode())
        out.append(_data_command(change.message + "\n"))
        if change.branch not in begun:
            begun.add(change.branch)
            out.append(b"from refs/heads/main\n")
        if change.merges:
            out.append(f"merge refs/heads/{change.merges}\n".encode())
        for path, text in change.files.items():
            out.append(f"M 100644 inline {path}\n".encode() + _data_command(text))
    out.append(b"tag v0.1.0\nfrom refs/heads/main\n")
    out.append(f"tagger {_MARA} {_START + len(commits) * _STEP} +0100\n".encode() + _data_command("First release\n"))
    out.append(b"done\n")
    return b"".join(out)


def _data_command(text: str) -> bytes:
    content = text.encode()
    return f"data {len(content)}\n".encode() + content + b"\n"
