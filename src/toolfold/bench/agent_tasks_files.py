"""Tasks on a folder of files: read, search, write. Two of them get results that are too large to show."""

import json
from typing import Any

from toolfold.bench.agent_tasks import Task, Tool, answers, file_holds, holds
from toolfold.bench.agent_world import World

READ = "read a text file"
WRITE = "write a text file"
SEARCH = "find lines that contain a text in files"


async def vat(read: Tool) -> Any:
    found = await read(path="config/shop.json")
    return json.loads(found.text)["vat"]


async def notes(list_folder: Tool) -> Any:
    found = await list_folder(path="notes")
    return len(found.entries)


async def greeting(write: Tool) -> Any:
    await write(path="welcome.txt", text="Open until 18\n")
    return "Written."


async def todo(search: Tool, write: Tool) -> Any:
    found = await search(text="TODO")
    await write(path="todo.txt", text="\n".join(sorted({hit.path for hit in found.matches})))
    return "Written."


async def price(search: Tool) -> Any:
    found = await search(text="Fog,", path="prices.csv")
    return found.matches[0].text.split(",")[1]


async def dearest(read: Tool) -> Any:
    found = await read(path="prices.csv")
    rows = [line.rsplit(",", 1) for line in found.text.splitlines()[1:]]
    return max(rows, key=lambda row: float(row[1]))[0]


async def supplier(read: Tool) -> Any:
    found = await read(path="notes/suppliers.md")
    (row,) = [line for line in found.text.splitlines() if "Kartograf" in line]
    return row.split("|")[3].strip()


async def append(read: Tool, write: Tool) -> Any:
    found = await read(path="notes/suppliers.md")
    await write(path="notes/suppliers.md", text=found.text + "| Windrose | charts | 5 |\n", overwrite=True)
    return "Added."


async def returns(search: Tool) -> Any:
    found = await search(text=" return ", path="logs/till.log", limit=2000)
    return len(found.matches)


async def copy(read: Tool, write: Tool) -> Any:
    found = await read(path="README.md")
    await write(path="archive/README.md", text=found.text)
    return "Copied."


async def size(stat: Tool) -> Any:
    found = await stat(path="logs/till.log")
    return found.size


async def new_vat(read: Tool, write: Tool) -> Any:
    found = await read(path="config/shop.json")
    changed = json.loads(found.text) | {"vat": 0.19}
    await write(path="config/shop.json", text=json.dumps(changed, indent=2), overwrite=True)
    return "Changed."


async def till_lines(read: Tool) -> Any:
    found = await read(path="logs/till.log")
    return found.total_lines


async def late(search: Tool) -> Any:
    found = await search(text=" late", path="logs/deliveries.log", limit=1000)
    return found.matches[119].text


def _late(world: World) -> str:
    return [line for line in world.file("logs/deliveries.log").splitlines() if line.endswith(" late")][119].split()[1]


def _todo(world: World) -> str:
    files = sorted((world.data / "files").rglob("*.md"))
    found = [one for one in files if "TODO" in one.read_text(encoding="utf-8")]
    return "\n".join(str(one.relative_to(world.data / "files")) for one in found)


def _dearest(world: World) -> str:
    rows = [line.rsplit(",", 1) for line in world.file("prices.csv").splitlines()[1:]]
    highest = max(float(price) for _, price in rows)
    return next(title for title, price in rows if float(price) == highest)


def _original(world: World) -> dict[str, Any]:
    return {"currency": "EUR", "vat": 0.19, "open": {"mon-fri": "9-18", "sat": "9-14"}}


def _new_vat(world: World) -> bool:
    try:
        return bool(json.loads(world.file("config/shop.json")) == _original(world))
    except ValueError:
        return False


TASKS = (
    Task(
        name="files-vat",
        text="Which VAT rate does config/shop.json in the shop's files set? Answer with the number as it is written.",
        needs={"files.read": READ},
        plan=vat,
        check=answers(lambda world: json.loads(world.file("config/shop.json"))["vat"]),
    ),
    Task(
        name="files-count",
        text="How many files are in the folder notes of the shop's files?",
        needs={"files.list": "list the files in a folder"},
        plan=notes,
        check=answers(lambda world: len(list((world.data / "files/notes").iterdir()))),
    ),
    Task(
        name="files-write",
        text="Write a file welcome.txt among the shop's files with the one line: Open until 18",
        needs={"files.write": WRITE},
        plan=greeting,
        check=file_holds("welcome.txt", lambda world: "Open until 18"),
    ),
    Task(
        name="files-todo",
        text="Write the paths of all the shop's files that hold the word TODO to todo.txt, sorted, one a line.",
        needs={"files.search": SEARCH, "files.write": WRITE},
        plan=todo,
        check=file_holds("todo.txt", _todo),
    ),
    Task(
        name="files-price",
        text="What does the book Fog cost according to prices.csv? Answer with the number as it is written there.",
        needs={"files.search": SEARCH},
        plan=price,
        check=answers(lambda world: dict(line.rsplit(",", 1) for line in world.file("prices.csv").splitlines())["Fog"]),
    ),
    Task(
        name="files-dearest",
        text="Which title in prices.csv is the dearest?",
        needs={"files.read": READ},
        plan=dearest,
        check=answers(_dearest),
    ),
    Task(
        name="files-supplier",
        text="How many days does the supplier Kartograf need, according to the notes on suppliers?",
        needs={"files.read": READ},
        plan=supplier,
        check=answers(lambda world: world.file("notes/suppliers.md").split("tide tables | ")[1].split()[0]),
    ),
    Task(
        name="files-append",
        text=(
            "Add the supplier Windrose, charts, 5 days, as the last row of the table in notes/suppliers.md: "
            "`| Windrose | charts | 5 |`. Leave the rest as it is."
        ),
        needs={"files.read": READ, "files.write": WRITE},
        plan=append,
        check=holds(
            "the table ends with Windrose and has all it had",
            lambda world: (
                world.file("notes/suppliers.md").rstrip().endswith("| 2 |\n| Windrose | charts | 5 |")
                and world.file("notes/suppliers.md").startswith("# Suppliers\n\n| name | what | days |")
            ),
        ),
    ),
    Task(
        name="files-returns",
        text="How many returns does the till's log, logs/till.log, hold? A return is a line with the word return.",
        needs={"files.search": SEARCH},
        plan=returns,
        check=answers(lambda world: world.file("logs/till.log").count(" return ")),
    ),
    Task(
        name="files-copy",
        text="Copy README.md of the shop's files to archive/README.md, word for word.",
        needs={"files.read": READ, "files.write": WRITE},
        plan=copy,
        check=file_holds("archive/README.md", lambda world: world.file("README.md")),
    ),
    Task(
        name="files-size",
        text="How many bytes has the file logs/till.log of the shop?",
        needs={"files.stat": "tell the size of a file"},
        plan=size,
        check=answers(lambda world: (world.data / "files/logs/till.log").stat().st_size),
    ),
    Task(
        name="files-change",
        text="Set vat to 0.19 in config/shop.json of the shop's files. All else in it stays, and it stays JSON.",
        needs={"files.read": READ, "files.write": WRITE},
        plan=new_vat,
        check=holds("config/shop.json has vat 0.19 and all it had", _new_vat),
    ),
    Task(
        name="files-large-lines",
        text="Read logs/till.log of the shop from its start. How many lines has it in all?",
        needs={"files.read": READ},
        plan=till_lines,
        extracts={"files.read": ("total_lines",)},
        check=answers(lambda world: len(world.file("logs/till.log").splitlines())),
    ),
    Task(
        name="files-large-hit",
        text="Find all lines with the word late in logs/deliveries.log. Which parcel does the 120th of them name?",
        needs={"files.search": SEARCH},
        plan=late,
        extracts={"files.search": ("matches[119].text",)},
        check=answers(_late),
    ),
)
