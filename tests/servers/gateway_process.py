"""A `toolfold serve --http` in a process of its own that a test may kill, stop, starve and look into, and its figures.

`Home` is a folder with a configuration and state, `GatewayProcess` one run on it. What is started here is ended here,
by its id. Each test prints one line with what it measured; `TOOLFOLD_FIGURES=FILE` keeps those lines, and
`TOOLFOLD_FAULTS=long` makes every count and time what `toolfold bench faults` wants instead of what fits a check.
"""

import contextlib
import json
import os
import signal
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import httpx2

SERVERS = Path(__file__).parent
LONG = os.environ.get("TOOLFOLD_FAULTS") == "long"
WAIT_S = 60.0
# Loading certificates takes longer than a call, and nothing here is encrypted.
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def scaled(short: int, long: int) -> int:
    """A count or a time: what a check can afford, or what the bench runs."""
    return long if LONG else short


def figure(name: str, **values: Any) -> None:
    """Prints what a test measured, as one line of JSON."""
    line = json.dumps({"figure": name, **values})
    sys.stdout.write(f"\n{line}\n")
    if kept := os.environ.get("TOOLFOLD_FIGURES"):
        with Path(kept).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


def until(what: Callable[[], Any], why: str, seconds: float = WAIT_S) -> Any:
    """Waits until something is there, and gives it."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, why
        time.sleep(0.01)
    return found


class Home:
    """A folder for one configuration: `toolfold.toml`, the state in `home`, stored outputs in `outputs`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "toolfold.toml"
        self.state = folder / "home"
        self.outputs = folder / "outputs"
        self.outputs.mkdir(exist_ok=True)
        self.state.mkdir(exist_ok=True)

    @staticmethod
    def server(name: str, program: str, *args: str, more: str = "") -> str:
        """The table of a server that is one of the programs of this folder, or another file."""
        file = SERVERS / program
        words = json.dumps(["-I", "-S", str(file), *args])
        return f'[servers.{name}]\ncommand = "{sys.executable}"\nargs = {words}\n{more}\n'

    def write(self, *tables: str) -> Self:
        text = "".join(tables)
        if "[outputs]" not in text:
            text = f'[outputs]\ndirectory = "{self.outputs}"\n{text}'
        new = self.config.with_suffix(".new")
        new.write_text(text)
        new.replace(self.config)
        return self

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "toolfold", "--config", str(self.config), "--home", str(self.state), *words]

    def run(self, *words: str, env: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
        """A command of the command line, ended after a minute."""
        environment = {**os.environ, **(env or {})}
        return subprocess.run(
            self.command(*words), capture_output=True, text=True, timeout=60, check=False, env=environment
        )

    def is_sound(self) -> bool:
        """Whether the database of the state is whole."""
        with contextlib.closing(sqlite3.connect(self.state / "toolfold.sqlite", timeout=10)) as database:
            return bool(database.execute("PRAGMA integrity_check").fetchall() == [("ok",)])

    @contextlib.contextmanager
    def serve(self, *options: str, **more: Any) -> "Iterator[GatewayProcess]":
        process = GatewayProcess(self, *options, **more)
        try:
            yield process
        finally:
            process.close()


class GatewayProcess:
    """One run. It listens when the constructor returns; `ready_s` is how long that took, `ready_cpu_s` for how long it
    was at work."""

    def __init__(
        self,
        home: Home,
        *options: str,
        env: Mapping[str, str] | None = None,
        preexec: Callable[[], None] | None = None,
        address: str = "127.0.0.1:0",
    ) -> None:
        self.said: list[str] = []
        started = time.monotonic()
        self.process = subprocess.Popen(
            home.command("serve", "--http", address, *options),
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **(env or {})},
            preexec_fn=preexec,  # noqa: PLW1509 - a limit of the operating system, set in the child alone
        )
        self.pid = self.process.pid
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()
        try:
            line = until(lambda: self._line("serving on ") or self.process.poll() is not None, "it does not listen")
            assert line is not True, f"it ended: {self.said}"
        except BaseException:
            self.close()
            raise
        self.ready_s, self.ready_cpu_s = time.monotonic() - started, self.cpu_s()
        self.url = line.split("serving on ")[1].strip().removesuffix("/mcp")
        self.port = int(self.url.rpartition(":")[2])

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)

    def _line(self, text: str) -> str:
        return next((line for line in self.said if text in line), "")

    def client(self, key: str = "", timeout: float = WAIT_S) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx2.Client(base_url=self.url, timeout=timeout, headers=headers, trust_env=False, verify=_NO_TLS)

    def call(self, tool_id: str, key: str = "", timeout: float = WAIT_S, **args: Any) -> Any:
        """The answer of `/v1/call_tool`, an error of the gateway included."""
        return self.post("call_tool", key, timeout, tool_id=tool_id, args=args)

    def post(self, operation: str, key: str = "", timeout: float = WAIT_S, **body: Any) -> Any:
        with self.client(key, timeout) as client:
            return client.post(f"/v1/{operation}", json=body).json()

    def wait_for(self, tool_id: str, key: str = "", **args: Any) -> Any:
        """The first answer to a call that is none of the gateway's errors: its servers are up."""
        return until(
            lambda: answer if "content" in (answer := self.call(tool_id, key, **args)) else None,
            f"{tool_id} cannot be called: {self.said[-5:]}",
        )

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def close(self) -> None:
        """Ends it as an operator would; it must then leave by itself."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)
                raise
        self._listening.join(5)
        if self.process.stderr is not None:
            self.process.stderr.close()

    def memory_mb(self, key: str = "VmRSS") -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1]) / 1024
        return 0.0

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))  # noqa: PTH208 - names are enough

    def family(self) -> list[int]:
        """All processes below it, those in sessions of their own included."""
        found = [self.pid]
        for parent in found:
            for task in Path(f"/proc/{parent}/task").glob("*/children"):
                with contextlib.suppress(OSError):
                    found += [int(child) for child in task.read_text().split()]
        return found[1:]


def is_alive(pid: int) -> bool:
    """Whether a process runs: one that is dead and not yet fetched by its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False
