"""`toolfold enrich` and `toolfold learn`: what search knows besides the tools' own texts, and forgetting it."""

import argparse
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack

from toolfold.faces.cli.build import plural, run_with_catalogue
from toolfold.faces.cli.runner import load_settings
from toolfold.faces.cli.terminal import Output
from toolfold.gateway import Gateway
from toolfold.models.factory import create_model


def enrich(arguments: argparse.Namespace, output: Output) -> int:
    settings = load_settings(arguments, require_servers=False)
    server = settings.server(arguments.server).name if arguments.server else ""

    async def work(gateway: Gateway) -> dict[str, int]:
        if arguments.forget:
            report = {"forgotten": await gateway.search.forget_requests(server=server)}
        else:
            async with AsyncExitStack() as resources:
                model = create_model(settings.model, arguments.model, resources)
                with ExitStack() as shown:

                    def on_start(tools: int) -> Callable[[str], None]:
                        return shown.enter_context(output.progress("asking", tools))

                    report = await gateway.search.enrich(model, server=server, limit=arguments.limit, on_start=on_start)
        with output.counter("indexing for search") as show:
            await gateway.search.sync(show)
        tree = await gateway.tree(depth=1)
        return {**report, "tools": tree.tools, "tools_enriched": await gateway.search.count_enriched()}

    report = run_with_catalogue(arguments, work)
    if output.as_json:
        output.data(report)
    else:
        _print_report(report, output)
    return 1 if report.get("failed") else 0


def _print_report(report: dict[str, int], output: Output) -> None:
    if "forgotten" in report:
        output.line(f"forgot the requests of {plural(report['forgotten'], 'tool')}")
    else:
        output.line(f"requests written for {plural(report['enriched'], 'tool')}")
        if report["unusable"]:
            output.line(f"nothing usable came for {plural(report['unusable'], 'tool')}")
        if report["failed"]:
            output.warn(f"the model failed for {plural(report['failed'], 'tool')}: run it again to ask about these")
    output.line(f"{report['tools_enriched']:,} of {plural(report['tools'], 'tool')} enriched")


def learn(arguments: argparse.Namespace, output: Output) -> None:
    async def work(gateway: Gateway) -> int:
        return await (gateway.search.forget_choices() if arguments.forget else gateway.search.count_choices())

    choices = run_with_catalogue(arguments, work, build_first=False)
    if output.as_json:
        output.data({"forgotten" if arguments.forget else "choices": choices})
    elif arguments.forget:
        output.line(f"forgot {plural(choices, 'choice')}")
    else:
        output.prose(f"search has learned from {plural(choices, 'choice')}; forget them with `toolfold learn --forget`")
