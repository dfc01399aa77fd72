"""Documents that an installation has or prints, and what is true of them, computed with plain Python.

Nothing of them is kept in this repository: each is read when the bench runs. Where one is absent, so are its questions,
and the reason is in the figures. Above: `benchmarks/outputs/asked`.
"""

import csv
import gzip
import io
import json
import mimetypes
import os
import re
import statistics
import subprocess
import sys
import sysconfig
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from html.parser import HTMLParser
from importlib.metadata import distribution
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from msgspec import Struct

Value = str | int | float
Truth = list[Value | tuple[Value, ...]]
"""What a right answer has, all of it; a tuple has several spellings of one thing."""

STDLIB = Path(sysconfig.get_paths()["stdlib"])
ROOT = Path(__file__).resolve().parents[3]


class Document(Struct, frozen=True):
    """A document, what is true of it by question, and words that its questions take from it."""

    data: bytes
    truth: dict[str, Truth]
    words: dict[str, str] = {}


def printed(*command: str, error_stream: bool = False) -> str:
    """What a command prints, in the plain locale."""
    environment = {**os.environ, "LC_ALL": "C", "COLUMNS": "200", "GIT_PAGER": "cat"}
    done = subprocess.run(command, capture_output=True, cwd=ROOT, env=environment, check=True, timeout=120)
    return (done.stderr if error_stream else done.stdout).decode(errors="replace")


def only_one(rows: Iterable[Any], key: Callable[[Any], Any]) -> Any:
    """The row with the largest key; two of them would make the question unfair."""
    first, second = sorted(rows, key=key, reverse=True)[:2]
    if key(first) == key(second):
        raise ValueError("two rows share the extreme")
    return first


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.DOTALL)
    if match is None:
        raise ValueError(f"nothing matches {pattern!r}")
    return match.group(1)


def stanzas(text: str) -> list[dict[str, str]]:
    """Fields of each block; a field's continued lines are joined by line breaks."""
    blocks: list[dict[str, str]] = []
    for block in text.strip().split("\n\n"):
        fields: dict[str, str] = {}
        name = ""
        for line in block.split("\n"):
            if line[:1].isspace():
                fields[name] += "\n" + line
            else:
                name, _, value = line.partition(":")
                fields[name] = value.strip()
        blocks.append(fields)
    return blocks


def dpkg_status() -> Document:
    data = Path("/var/lib/dpkg/status").read_bytes()
    packages = {fields["Package"]: fields for fields in stanzas(data.decode())}
    largest = only_one(
        (fields for fields in packages.values() if "Installed-Size" in fields),
        lambda fields: int(fields["Installed-Size"]),
    )
    every = stanzas(data.decode())
    return Document(
        data,
        {
            "bash": [packages["bash"]["Version"]],
            "not_all": [sum(fields.get("Architecture") != "all" for fields in every)],
            "largest": [largest["Package"]],
            "tar": [packages["tar"]["Maintainer"].split("<")[0].strip(), packages["tar"]["Section"]],
        },
    )


def services() -> Document:
    data = Path("/etc/services").read_bytes()
    rows = [line.split("#")[0].split() for line in data.decode().splitlines() if line.split("#")[0].strip()]
    ports = [(row[0], int(row[1].split("/")[0]), row[1].split("/")[1], row[2:]) for row in rows]
    over = {way: {name for name, _, has, _ in ports if has == way} for way in ("tcp", "udp")}
    highest = max(port for _, port, _, _ in ports)
    return Document(
        data,
        {
            "alias": [next(name for name, _, _, aliases in ports if "portmapper" in aliases)],
            "udp_only": [len(over["udp"] - over["tcp"])],
            "highest": [highest, next(name for name, port, _, _ in ports if port == highest)],
            "mail": [
                next(port for name, port, _, _ in ports if name == wanted) for wanted in ("smtp", "pop3", "imap2")
            ],
        },
    )


def passwd() -> Document:
    data = Path("/etc/passwd").read_bytes()
    rows = [line.split(":") for line in data.decode().splitlines() if line]
    return Document(
        data,
        {
            "shells": [row[0] for row in rows if not row[6].endswith(("nologin", "false"))],
            "uid": [next(row[0] for row in rows if row[2] == "3")],
            "number": [len(rows)],
        },
    )


def zones() -> Document:
    data = Path("/usr/share/zoneinfo/zone1970.tab").read_bytes()
    rows = [line.split("\t") for line in data.decode().splitlines() if line and not line.startswith("#")]

    def north(row: list[str]) -> int:
        sign, digits = re.match(r"([+-])(\d+)", row[1]).groups()  # type: ignore[union-attr]
        return int(sign + digits.ljust(6, "0"))

    return Document(
        data,
        {
            "mexico": [row[2] for row in rows if "MX" in row[0].split(",")],
            "uncommented": [sum(len(row) < 4 for row in rows)],
            "north": [only_one(rows, north)[2]],
            "last": [rows[-1][2]],
        },
    )


def mime_types() -> Document:
    known = mimetypes.MimeTypes(()).types_map[True]
    text = "extension\ttype\n" + "".join(f"{ending}\t{kind}\n" for ending, kind in sorted(known.items()))
    usual = ("application", "text", "image", "audio", "video")
    return Document(
        text.encode(),
        {
            "js": [known[".js"]],
            "audio": [sum(kind.startswith("audio/") for kind in known.values())],
            "binary": [ending for ending, kind in known.items() if kind == "application/octet-stream"],
            "unusual": [ending for ending, kind in known.items() if kind.split("/")[0] not in usual],
        },
    )


def build_settings() -> Document:
    values = {name: value for name, value in sysconfig.get_config_vars().items() if isinstance(value, (str, int))}
    checks = [value for name, value in values.items() if name.startswith("HAVE_")]
    return Document(
        json.dumps(values, indent=1).encode(),
        {
            "long_double": [
                tuple(f"SIZEOF_LONG_DOUBLE{sign}{values['SIZEOF_LONG_DOUBLE']}" for sign in ('": ', ": ", " = "))
            ],
            "suffix": [values["EXT_SUFFIX"]],
            "have_not": [checks.count(0)],
            "versions": [values["py_version"], values["py_version_nodot"]],
        },
    )


class PlainText(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


def idle_help() -> Document:
    data = (STDLIB / "idlelib" / "help.html").read_bytes()
    parser = PlainText()
    parser.feed(data.decode())
    text = " ".join("".join(parser.parts).split())
    return Document(
        data,
        {
            "undo": [int(found(r"maximum of (\d+) changes", text))],
            "columns": [int(found(r"where N defaults to (\d+)", text))],
            "delay": [found(r"This defaults to (\d+ seconds)", text)],
            "size": [found(r"defaults to (\d+ lines) by", text), found(r"lines by (\d+ chars)", text)],
        },
    )


def idle_news() -> Document:
    names = [name for name in ("NEWS.txt", "News3.txt") if (STDLIB / "idlelib" / name).is_file()]
    data = (STDLIB / "idlelib" / [*names, "NEWS.txt"][0]).read_bytes()
    parts = re.split(r"(?m)^What's New in IDLE (?=\d+\.\d+\.\w+\b)", data.decode())[1:]
    sections = {part.split()[0].rstrip("?"): part for part in parts}
    dates = {name: re.search(r"Released on (\d{4}-\d\d-\d\d)", part) for name, part in sections.items()}
    return Document(
        data,
        {
            "released": [dates["3.8.0"][1]],  # type: ignore[index]
            "blink": [found(r"(bpo-\d+): Add an option to toggle IDLE's cursor blink", sections["3.9.0"])],
            "entries": [len(re.findall(r"(?m)^(?:bpo|gh)-\d+", sections["3.9.0"]))],
            "najera": re.findall(r"(?m)^(bpo-\d+)(?:(?!\n\n).)*?Johnny\s+Najera", sections["3.9.0"], re.DOTALL),
        },
    )


def topics() -> Document:
    from pydoc_data.topics import topics as known

    text = "\n\n".join(f"{name}\n\n{known[name]}" for name in sorted(known))
    methods = known["string-methods"]
    return Document(
        text.encode(),
        {
            "expandtabs": [found(r"str\.expandtabs\((tabsize=\d+)\)", methods)],
            "raise": [found(r"there isn.t currently an\s+active exception, a\s+\"(\w+)\"", known["raise"])],
            "casefold": [found(r"algorithm is described in\s+(section\s[\d.]*\d)", methods)],
        },
    )


def package_metadata() -> Document:
    text = str(distribution("pydantic").read_text("METADATA"))
    fields = text.partition("\n\n")[0].split("\n")
    needs = [line.split(": ")[1] for line in fields if line.startswith("Requires-Dist: ")]
    dates = dict(re.findall(r"(?m)^## v(\S+) \((\d{4}-\d\d-\d\d)\)", text))
    near = [name for name in dates if any(other.startswith(name) and other != name for other in dates)]
    release = near[len(near) // 2]
    return Document(
        text.encode(),
        {
            "license": [next(line.split(": ")[1] for line in fields if line.startswith("License"))],
            "python": [next(line.split(": ")[1] for line in fields if line.startswith("Requires-Python"))],
            "release": [dates[release]],
            "needs": [re.split(r"[<>=!~; ]", need, maxsplit=1)[0] for need in needs if "extra ==" not in need],
        },
        {"release": release},
    )


def record() -> Document:
    text = str(distribution("numpy").read_text("RECORD"))
    rows = list(csv.reader(io.StringIO(text)))
    sizes = {row[0]: int(row[2]) for row in rows if row[2]}
    return Document(
        text.encode(),
        {
            "init": [sizes["numpy/__init__.py"]],
            "unhashed": [sum(not row[1] for row in rows)],
            "largest": [only_one(sizes, lambda name: sizes[name])],
            "linalg": [sum(size for name, size in sizes.items() if name.startswith("numpy/linalg/"))],
        },
    )


def currencies() -> Document:
    data = Path("/usr/share/iso-codes/json/iso_4217.json").read_bytes()
    rows = json.loads(data)["4217"]
    return Document(
        data,
        {
            "franc": [next(row["numeric"] for row in rows if row["name"] == "Swiss Franc")],
            "gold": [next(row["name"] for row in rows if row["alpha_3"] == "XAU")],
            "dollars": [sum("Dollar" in row["name"] for row in rows)],
            "by_number": [next(row["alpha_3"] for row in rows if row["numeric"] == "048")],
        },
    )


def mime_database() -> Document:
    data = Path("/usr/share/mime/packages/freedesktop.org.xml").read_bytes()
    space = "{http://www.freedesktop.org/standards/shared-mime-info}"
    kinds = {node.attrib["type"]: node for node in ElementTree.fromstring(data).iter(f"{space}mime-type")}  # noqa: S314

    def under(kind: str, tag: str, attribute: str) -> list[str]:
        return [node.attrib[attribute] for node in kinds[kind].findall(space + tag)]

    pdf = kinds["application/pdf"].find(f"{space}expanded-acronym")
    assert pdf is not None
    return Document(
        data,
        {
            "pdf": [str(pdf.text)],
            "tiff": list(under("image/tiff", "glob", "pattern")),
            "alias": [next(kind for kind in kinds if "application/x-gzip" in under(kind, "alias", "type"))],
            "not_application": [sum(not kind.startswith("application/") for kind in kinds)],
        },
    )


def commits() -> Document:
    text = printed("git", "log", "-n", "300", "--no-merges", "--date=iso", "--shortstat")
    rows = []
    for part in re.split(r"(?m)^commit (?=[0-9a-f]{40}\b)", text)[1:]:
        changed = re.search(r"\d+ files? changed(?:, (\d+) insertions?...)?(?:, (\d+) deletions?...)?", part)
        added, removed = (int(value or 0) for value in (changed.groups() if changed else (0, 0)))
        subject = found(r"\n\n    ([^\n]+)", part)
        rows.append((part[:40], found(r"Date:\s+(\S+ \d\d)", part), subject, added, removed))
    hours = sorted(Counter(row[1] for row in rows).items())
    hour, number = hours[len(hours) // 2]
    day, start = hour.split()
    middle = rows[len(rows) // 2]
    return Document(
        text.encode(),
        {
            "subject": [middle[2]],
            "most_added": [(only_one(rows, lambda row: row[3])[0], only_one(rows, lambda row: row[3])[2])],
            "in_hour": [number],
            "oldest": [rows[-1][2]],
            "removed": [sum(row[4] for row in rows)],
        },
        {"commit": middle[0][:12], "day": day, "start": f"{start}:00", "end": f"{start}:59"},
    )


def listing() -> Document:
    text = printed("ls", "-l", "--time-style=long-iso", str(STDLIB))
    rows = [line.split(None, 7) for line in text.splitlines()[1:]]
    files = {row[7]: int(row[4]) for row in rows if row[0].startswith("-")}
    return Document(
        text.encode(),
        {
            "largest": [only_one(files, lambda name: files[name])],
            "csv": [files["csv.py"]],
            "tokens": [files["token.py"] + files["tokenize.py"]],
            "not_python": [sum(not row[7].endswith(".py") for row in rows)],
        },
    )


def installed() -> Document:
    text = printed(sys.executable, "-m", "pip", "list", "--format=json", "--disable-pip-version-check")
    rows = {row["name"]: row["version"] for row in json.loads(text)}
    return Document(
        text.encode(),
        {
            "httpx": [rows["httpx"]],
            "number": [len(rows)],
            "under": [name for name in rows if name.lower().startswith("pyd")],
        },
    )


def import_times() -> Document:
    modules = "import asyncio, email.message, http.client, json, xml.dom.minidom"
    text = printed(sys.executable, "-I", "-X", "importtime", "-c", modules, error_stream=True)
    rows: list[tuple[str, int, int]] = []
    for line in text.splitlines()[1:]:
        alone, whole, module = line.split(":", 1)[1].split("|")
        rows.append((module.strip(), int(alone), int(whole)))
    return Document(
        text.encode(),
        {
            "asyncio": [next(row[2] for row in rows if row[0] == "asyncio")],
            "slowest": [only_one(rows, lambda row: row[1])[0]],
            "average": [statistics.fmean(row[1] for row in rows)],
        },
    )


def processes() -> Document:
    text = printed("ps", "-eo", "pid,ppid,rss,user,comm")
    rows = [line.split(None, 4) for line in text.splitlines()[1:]]
    return Document(
        text.encode(),
        {
            "one": [next(row[4].strip() for row in rows if row[0] == "1")],
            "memory": [int(only_one(rows, lambda row: int(row[2]))[0])],
            "resident": [sum(int(row[2]) for row in rows)],
            "not_of_one": [sum(row[1] != "1" for row in rows)],
        },
    )


def manual() -> Document:
    data = gzip.decompress(Path("/usr/share/man/man1/tar.1.gz").read_bytes())
    options = re.findall(r"(?m)^\.TP\n(\\f.*)\n((?:[^.].*\n)+)", data.decode())

    def option(told: str) -> tuple[str, str]:
        name = next(
            re.findall(r"\\-\\-[a-z]+(?:\\-[a-z]+)*", head)[0]
            for head, text in options
            if told in " ".join(text.split())
        )
        return name, name.replace("\\", "")

    return Document(
        data,
        {
            "strip": [option("leading components from file names")],
            "stdout": [option("Extract files to standard output")],
            "checkpoint": [found(r"messages every \\fIN\\fRth record \((default \d+)\)", data.decode())],
            "differ": [(found(r"\n\.B 1\n\.I (Some files differ)", data.decode()), "some files in the archive differ")],
        },
    )


def changelog() -> Document:
    data = gzip.decompress(Path("/usr/share/doc/base-files/changelog.gz").read_bytes())
    pattern = r"(?m)^\S+ \((\S+)\) [^;]*; urgency=(\w+)$|^ -- (.+?) <.*?>  (.*)$"
    flat = re.findall(pattern, data.decode())
    rows = [(*head[:2], *foot[2:]) for head, foot in zip(flat[::2], flat[1::2], strict=True)]
    near = [row for row in rows if any(other[0].startswith(row[0]) and other != row for other in rows)]
    middle = near[len(near) // 2]
    main = Counter(row[2] for row in rows).most_common(1)[0][0]
    return Document(
        data,
        {
            "dated": [middle[3]],
            "others": [sum(row[2] != main for row in rows)],
            "not_medium": [sum(row[1] != "medium" for row in rows)],
            "oldest": [rows[-1][0], rows[-1][2]],
        },
        {"version": middle[0], "main": main},
    )


def install_log() -> Document:
    data = Path("/var/log/dpkg.log").read_bytes()
    rows = [line.split() for line in data.decode().splitlines()]
    upgrades = [row for row in rows if row[2] == "upgrade"]
    day = Counter(row[0] for row in upgrades).most_common(1)[0][0]
    return Document(
        data,
        {
            "first": [f"{rows[0][0]} {rows[0][1]}"],
            "installs": [sum(row[2] == "install" for row in rows)],
            "last_upgrade": [upgrades[-1][3].split(":")[0], upgrades[-1][5]],
            "on_day": [sum(row[0] == day and row[2] == "upgrade" for row in rows)],
        },
        {"day": day},
    )


def characters() -> Document:
    """Letters and signs as this Python knows them; one column is mostly empty."""
    rows = []
    for point in (*range(0x20, 0x7F), *range(0xA0, 0x250), *range(0x2000, 0x2250)):
        sign = chr(point)
        if (name := unicodedata.name(sign, "")) != "":
            numeric = unicodedata.numeric(sign, None)
            value = "" if numeric is None else f"{numeric:g}"
            rows.append((f"U+{point:04X}", name, unicodedata.category(sign), unicodedata.bidirectional(sign), value))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("code_point", "name", "category", "direction", "numeric_value"))
    writer.writerows(rows)
    greatest = only_one((row for row in rows if row[4]), lambda row: float(row[4]))
    return Document(
        out.getvalue().encode(),
        {
            "fraction_slash": [next(row[1] for row in rows if row[0] == "U+2044")],
            "currency": [sum(row[2] == "Sc" for row in rows)],
            "without_value": [sum(not row[4] for row in rows)],
            "greatest": [greatest[0]],
        },
    )


def source() -> Document:
    data = (STDLIB / "tarfile.py").read_bytes()
    text = data.decode()
    parents: Mapping[str, str] = dict(re.findall(r"(?m)^class (\w+)\((\w+)\):", text))
    return Document(
        data,
        {
            "prefix": [int(found(r"LENGTH_PREFIX = (\d+)", text))],
            "format": [found(r"(?m)^DEFAULT_FORMAT = (\w+)", text)],
            "headers": [name for name, parent in parents.items() if parent == "HeaderError"],
            "errors": [sum(name.endswith("Error") and parent != "FilterError" for name, parent in parents.items())],
        },
    )


FOUND: dict[str, Callable[[], Document]] = {
    make.__name__: make
    for make in (
        dpkg_status,
        services,
        passwd,
        zones,
        mime_types,
        build_settings,
        idle_help,
        idle_news,
        topics,
        package_metadata,
        record,
        currencies,
        mime_database,
        commits,
        listing,
        installed,
        import_times,
        processes,
        manual,
        changelog,
        install_log,
        characters,
        source,
    )
}
