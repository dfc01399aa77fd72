"""A `toolfold serve` in a process of its own, with small servers that the test writes, and what it says on stderr."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp import StdioServerParameters

import fork_server

SERVER = """
import os, sys, time
from toolfold.demo.server import serve

def tool(name):
    def work(seconds: float = 0.0) -> str:
        end = time.monotonic() + seconds
        if seconds:
            open(f"{sys.argv[0]}.{name}", "w").close()
        while time.monotonic() < end and not os.path.exists(f"{sys.argv[0]}.{name}.enough"):
            time.sleep(0.01)
        return f"{name} {os.getpid()}"
    work.__name__, work.__doc__ = name, f"Does {name} of {sys.argv[1]}."
    return work

print("ready to", *sys.argv[2:], file=sys.stderr, flush=True)
serve(sys.argv[1], [tool(name) for name in sys.argv[2:]])
"""


class Served:
    """A `toolfold serve` that reads `toolfold.toml` of its own folder."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.config = home / "toolfold.toml"
        self.program = home / "server.py"
        self.program.write_text(SERVER)
        self.said: list[str] = []

    def table(self, name: str, *tools: str, more: str = "") -> str:
        args = json.dumps([str(self.program), name, *tools])
        return f'[servers.{name}]\ncommand = "{sys.executable}"\nargs = {args}\n{more}\n'

    def write(self, *tables: str) -> None:
        # In one step, as editors do: the program must never read half of it.
        new = self.config.with_suffix(".new")
        new.write_text("".join(tables))
        new.replace(self.config)

    def command(self, *options: str) -> list[str]:
        return [
            *(sys.executable, "-m", "toolfold", "--config", str(self.config), "--home", str(self.home)),
            *("serve", "--profile", "direct", *options),
        ]

    @contextmanager
    def over_http(self, *options: str) -> Iterator[str]:
        with fork_server.Popen(
            self.command("--http", "127.0.0.1:0", *options), stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            self.process = process
            listening = threading.Thread(target=lambda: self.said.extend(process.stderr or ()), daemon=True)
            try:
                while "serving on " not in (line := process.stderr.readline()):
                    assert line, f"it ended: {self.said}"
                    self.said.append(line)
                listening.start()
                yield line.split("serving on ")[1].strip()
            finally:
                process.terminate()
                assert process.wait(20) == 0
                if listening.ident is not None:
                    listening.join(5)

    def wait_for(self, text: str, count: int = 1) -> str:
        deadline = time.monotonic() + 20
        while len(found := [line for line in self.said if text in line]) < count:
            assert time.monotonic() < deadline, f"{text!r} not in {self.said}"
            time.sleep(0.02)
        return found[-1]

    def wait_until_called(self, tool: str) -> None:
        """Until a call of a tool that takes its time has begun."""
        deadline = time.monotonic() + 20
        while not Path(f"{self.program}.{tool}").exists():
            assert time.monotonic() < deadline, f"{tool} was not called: {self.said}"
            time.sleep(0.02)

    def end_calls(self, tool: str) -> None:
        """Calls of a tool that takes its time end now."""
        Path(f"{self.program}.{tool}.enough").touch()


def parameters(command: list[str], home: Path) -> StdioServerParameters:
    return StdioServerParameters(command=command[0], args=command[1:], env={**os.environ, "HOME": str(home)})


def call(url: str, tool_id: str, args: dict[str, Any], key: str = "") -> Any:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with httpx2.Client(timeout=20, headers=headers) as client:
        answer = client.post(url.replace("/mcp", "/v1/call_tool"), json={"tool_id": tool_id, "args": args})
    data = answer.json()
    return data.get("result", data)


def wait_for_call(url: str, tool_id: str, key: str = "") -> Any:
    deadline = time.monotonic() + 20
    while "content" not in (answer := call(url, tool_id, {}, key)):
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)
    return answer
