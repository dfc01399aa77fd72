"""`toolfold inspect-output`: what a tool returns, opened where asked. It reads the catalogue and calls nothing."""

import argparse
from typing import Any

from toolfold.faces.cli.output import Output
from toolfold.faces.cli.running import with_catalogue
from toolfold.gateway import Gateway


def inspect_output(arguments: argparse.Namespace, output: Output) -> int:
    async def work(gateway: Gateway) -> dict[str, Any]:
        return await gateway.inspect_tool_output(
            arguments.tool_id, arguments.field_path, max_depth=arguments.depth, max_fields=arguments.fields
        )

    answer = with_catalogue(arguments, work)
    if output.as_json:
        output.data(answer)
        return 0
    place = f" at {answer['field_path']}" if answer["field_path"] else ""
    fields = f", {answer['total_child_fields']} fields" if answer["total_child_fields"] else ""
    output.line(f"{output.style(answer['tool_id'], 'bold')}{place}: {answer['node_type']}{fields}")
    for line in answer["flattened_fields"]:
        output.line(f"  {line}")
    if "note" in answer:
        output.note(answer["note"])
    return 0
