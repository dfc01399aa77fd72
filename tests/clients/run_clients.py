"""Runs the clients that people really use against `toolfold serve`, and real servers behind it; a line for each.

    python tests/clients/run_clients.py FOLDER [--gateways 3]

With `--gateways`, what is served over HTTP is served by so many processes behind a round-robin proxy.
Each client and server gets an environment of its own under FOLDER, installed with pip or npm where it is missing. What
cannot be installed is told and left out. Exits with 1 where a client fails, or where none could be installed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from client_environments import CLIENTS, SERVERS, Client, Environments

from toolfold.demo.data import demo_servers, make_demo_data

HERE = Path(__file__).parent
AT_ONCE = 2
RUN_S = 240.0


class Stage:
    """What all runs share: data, configurations, a built catalogue, the environments."""

    def __init__(self, work: Path, environments: Environments, *, verbose: bool, gateways: int = 1) -> None:
        self.work = work
        self.before = [sys.executable, str(HERE.parent / "round_robin.py"), str(gateways)] if gateways > 1 else []
        self.environments = environments
        self.verbose = verbose
        self.data = make_demo_data(work / "data")
        servers = {spec.name: {"command": spec.command, "args": spec.args} for spec in demo_servers(self.data)}
        self.demo = self.toolfold("demo", servers)
        done = subprocess.run([*self.demo, "build"], capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise SystemExit(f"the demo servers could not be built:\n{done.stdout}{done.stderr}")

    def toolfold(self, name: str, servers: dict[str, Any]) -> list[str]:
        """The command line of toolfold for these servers, as far as its options."""
        config = self.work / f"{name}.json"
        config.write_text(json.dumps({"mcpServers": servers}))
        return [sys.executable, "-m", "toolfold", "--config", str(config), "--home", str(self.work / f"{name}-home")]

    def run(self, name: str, python: Path, script: str, *arguments: str) -> tuple[bool, str]:
        """Whether a script passed, and the one line that says so."""
        started = time.monotonic()
        path = f"{self.environments.node_programs}{os.pathsep}{os.environ['PATH']}"
        try:
            done = subprocess.run(
                [str(python), str(HERE / script), *arguments],
                capture_output=True,
                text=True,
                timeout=RUN_S,
                check=False,
                env={**os.environ, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
                cwd=self.work,
            )
        except subprocess.TimeoutExpired:
            return False, f"FAILED {name}: not done after {RUN_S:.0f} s"
        said = done.stdout.strip()
        if done.returncode or not said:
            return False, f"FAILED {name}\n{said}\n{done.stderr[-3000:]}"
        whole = f"\n{said}" if self.verbose else ""
        steps = ", ".join(line.partition(": ok")[0] for line in said.splitlines())
        return True, f"ok     {name}: {steps} ({time.monotonic() - started:.0f} s){whole}"


def run_client(stage: Stage, client: Client) -> tuple[bool, str]:
    """Installs a client and puts it through the scenario."""
    problem = stage.environments.python(client.environment, client.packages)
    if problem:
        return True, f"left out {client.name}: {problem}"
    python = stage.environments.program(client.environment, "python")
    version = stage.environments.version(client.environment, client.packages)
    job = json.dumps({"serve": [*stage.before, *stage.demo, "serve"]})
    return stage.run(f"{client.name} {version}", python, client.script, job, *client.arguments)


def run_inspector(stage: Stage) -> tuple[bool, str]:
    problem = stage.environments.node()
    if problem:
        return True, f"left out inspector: {problem}"
    version = stage.environments.node_version("@modelcontextprotocol/inspector")
    job = json.dumps({"serve": [*stage.before, *stage.demo, "serve"]})
    return stage.run(f"inspector {version}", Path(sys.executable), "with_inspector.py", job)


def run_everything(stage: Stage) -> tuple[bool, str]:
    """One server passed through."""
    problem = stage.environments.node() or stage.environments.python("mcp", ("mcp>=2",))
    if problem:
        return True, f"left out everything: {problem}"
    everything = stage.toolfold("everything", {"everything": stage.environments.node_server("everything", ("stdio",))})
    job = json.dumps({"serve": [*stage.before, *everything, "serve"]})
    python = stage.environments.program("mcp", "python")
    return stage.run("everything, passed through", python, "passthrough_everything.py", job)


def run_servers(stage: Stage) -> tuple[bool, str]:
    """As many real servers as can be installed, behind one toolfold."""
    problem = stage.environments.node() or stage.environments.python("mcp", ("mcp>=2",))
    if problem:
        return True, f"left out real servers: {problem}"
    servers: dict[str, dict[str, Any]] = {}
    calls, missing = [], []
    places = {"data": str(stage.work / "data"), "work": str(stage.work)}
    for server in SERVERS:
        if server.packages and stage.environments.python(server.environment, server.packages):
            missing.append(server.name)
            continue
        args = tuple(arg.format(**places) for arg in server.args)
        if server.packages:
            program = stage.environments.program(server.environment, server.program)
            servers[server.name] = {"command": str(program), "args": args}
        else:
            servers[server.name] = stage.environments.node_server(server.program, args)
        servers[server.name]["env"] = {key: value.format(**places) for key, value in server.env.items()}
        text = json.dumps({"tool": server.tool, "args": server.call, "query": server.query, "result": server.result})
        calls.append(json.loads(text.replace("{data}", places["data"]).replace("{work}", places["work"])))
    toolfold = stage.toolfold("servers", servers)
    job = json.dumps(
        {
            "serve": [*stage.before, *toolfold, "serve", "--profile", "discovery"],
            "build": [*toolfold, "build"],
            "calls": calls,
        }
    )
    left_out = f", without {', '.join(missing)}" if missing else ""
    name = f"{len(servers)} real servers ({', '.join(servers)}{left_out})"
    return stage.run(name, stage.environments.program("mcp", "python"), "public_servers.py", job, "auto")


def install(environments: Environments) -> None:
    """Installs all that the runs need, one after the other. What cannot be is told by the run that lacks it."""
    environments.node()
    for name, packages in {(one.environment, one.packages) for one in (*SERVERS, *CLIENTS) if one.packages}:
        environments.python(name, packages)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", help="those whose name contains this")
    parser.add_argument("--verbose", action="store_true", help="print what each step took")
    parser.add_argument("--gateways", type=int, default=1, help="how many answer over HTTP, in turns")
    parser.add_argument("--install", action="store_true", help="only install what the runs need")
    options = parser.parse_args()
    if options.install:
        install(Environments(options.folder.resolve()))
        return 0
    with tempfile.TemporaryDirectory(prefix="toolfold-clients-") as work:
        stage = Stage(
            Path(work), Environments(options.folder.resolve()), verbose=options.verbose, gateways=options.gateways
        )
        jobs: dict[str, Callable[[Stage], tuple[bool, str]]] = {
            "servers": run_servers,
            "inspector": run_inspector,
            "everything": run_everything,
            **{client.name: partial(run_client, client=client) for client in CLIENTS},
        }
        chosen = {name: job for name, job in jobs.items() if options.only is None or options.only in name}
        with ThreadPoolExecutor(AT_ONCE) as pool:
            running = [pool.submit(job, stage) for job in chosen.values()]
            passed = failed = 0
            for future in running:
                ok, line = future.result()
                passed, failed = passed + line.startswith("ok"), failed + (not ok)
                sys.stdout.write(line + "\n")
                sys.stdout.flush()
    sys.stdout.write(f"{passed} passed, {failed} failed\n")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
