"""`toolfold search` and `toolfold nodes`: tools or categories for a request in plain words, or that nothing fits."""

import argparse
from collections.abc import Sequence
from typing import Any

from toolfold.faces.cli.browsing import risk_of
from toolfold.faces.cli.output import Output
from toolfold.faces.cli.parser import path_of
from toolfold.faces.cli.running import with_catalogue
from toolfold.gateway import Gateway
from toolfold.types import Hit


def search(arguments: argparse.Namespace, output: Output) -> int:
    query, path = " ".join(arguments.query), path_of([arguments.within])

    async def work(gateway: Gateway) -> tuple[dict[str, Any], Sequence[Hit]]:
        page = await gateway.search_tool_by_category(query, path, limit=arguments.limit, cursor=arguments.cursor)
        place = tuple(page["category_path"])
        return page, await gateway.scene().finder.hits(query, place, limit=arguments.limit) if arguments.explain else ()

    page, hits = with_catalogue(arguments, work)
    reasons = {hit.tool_id: hit for hit in hits}
    if output.as_json:
        output.data({**page, "why": {hit.tool_id: hit.why for hit in hits}} if arguments.explain else page)
        return 0
    rows = [
        (
            percent(tool["confidence"]),
            output.style(tool["tool_id"], "cyan"),
            " ".join(risk_of(tool["tags"])),
            tool["summary"],
        )
        for tool in page["results"]
    ]
    output.table(("fits", "tool", "risk", "what it does"), rows)
    for tool in page["results"]:
        if tool["tool_id"] in reasons:
            output.line(f"{tool['tool_id']}: {reason(reasons[tool['tool_id']])}")
    if page["next_cursor"]:
        output.note(f"there is more: --cursor {page['next_cursor']}")
    return 0


def reason(hit: Hit) -> str:
    """Why a tool was found, on one line."""
    why = hit.why
    words = f"words {', '.join(why.words)} ({why.lexical:+.1f})" if why.words else "no word in common"
    part = f', for "{why.part}"' if why.part else ""
    prior = f", chosen before ({why.prior:+.2f})" if why.prior else ""
    return f"{words}; nearness {why.near:.2f} ({why.dense:+.1f}){part}{prior}; score {hit.score:.2f}"


def nodes(arguments: argparse.Namespace, output: Output) -> int:
    async def work(gateway: Gateway) -> dict[str, Any]:
        return await gateway.search_nodes(" ".join(arguments.query), limit=arguments.limit)

    found = with_catalogue(arguments, work)
    if output.as_json:
        output.data(found)
        return 0
    rows = [(percent(node["confidence"]), " / ".join(node["path"]), node["summary"]) for node in found["results"]]
    output.table(("fits", "category", "what it holds"), rows)
    return 0


def percent(confidence: float) -> str:
    return f"{confidence:.0%}"
