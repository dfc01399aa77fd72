"""Tasks on a folder of files: read, search, write. Two of them get results that are too large to show."""

import json
from typing import Any

from benchmarks.agent.tasks import Tool, answers, file_holds, holds, load_tasks
from benchmarks.agent.world import World


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


CHECKS = {
    "files-vat": answers(lambda world: json.loads(world.file("config/shop.json"))["vat"]),
    "files-count": answers(lambda world: len(list((world.data / "files/notes").iterdir()))),
    "files-write": file_holds("welcome.txt", lambda world: "Open until 18"),
    "files-todo": file_holds("todo.txt", _todo),
    "files-price": answers(
        lambda world: dict(line.rsplit(",", 1) for line in world.file("prices.csv").splitlines())["Fog"]
    ),
    "files-dearest": answers(_dearest),
    "files-supplier": answers(lambda world: world.file("notes/suppliers.md").split("tide tables | ")[1].split()[0]),
    "files-append": holds(
        "the table ends with Windrose and has all it had",
        lambda world: (
            world.file("notes/suppliers.md").rstrip().endswith("| 2 |\n| Windrose | charts | 5 |")
            and world.file("notes/suppliers.md").startswith("# Suppliers\n\n| name | what | days |")
        ),
    ),
    "files-returns": answers(lambda world: world.file("logs/till.log").count(" return ")),
    "files-copy": file_holds("archive/README.md", lambda world: world.file("README.md")),
    "files-size": answers(lambda world: (world.data / "files/logs/till.log").stat().st_size),
    "files-change": holds("config/shop.json has vat 0.19 and all it had", _new_vat),
    "files-large-lines": answers(lambda world: len(world.file("logs/till.log").splitlines())),
    "files-large-hit": answers(_late),
}

TASKS = load_tasks(__name__, CHECKS)
