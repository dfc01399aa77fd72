"""`functions = "./tools.py"` and modules beside the configuration; errors name the keys that a person writes."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from toolfold import BlockingGateway, ConfigError, Settings
from toolfold.config.servers import ALL_KEYS
from toolfold.errors import ServerUnavailable
from toolfold.types import ServerSpec
from toolfold.upstream.base import Hooks
from toolfold.upstream.factory import make_upstream

TOOLS = '''
from dataclasses import dataclass
from {beside} import RATE

@dataclass
class Price:
    net: float
    gross: float

def price(net: float) -> Price:
    """Tells the price with tax."""
    return Price(net, net * RATE)

def other() -> str:
    """Another one."""
    return "other"
'''


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    name = f"beside_{abs(hash(str(tmp_path)))}"
    (folder / f"{name}.py").write_text("RATE = 2\n", encoding="utf-8")
    (folder / "tools.py").write_text(TOOLS.format(beside=name), encoding="utf-8")
    (folder / f"{name}_tools.py").write_text(TOOLS.format(beside=name), encoding="utf-8")
    monkeypatch.setenv("TOOLFOLD_HOME", str(tmp_path / "home"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)  # the file counts, not where the program was started
    return folder


def configured(project: Path, functions: str) -> BlockingGateway:
    file = project / "toolfold.toml"
    file.write_text(f'[servers.mine]\nfunctions = "{functions}"\n', encoding="utf-8")
    return BlockingGateway(Settings.load(file))


@pytest.mark.parametrize(
    "functions", ["./tools.py", "tools.py", "../project/tools.py", "{folder}/tools.py", "{module}"]
)
def test_17_functions_of_a_file_beside_the_configuration_are_tools(project: Path, functions: str) -> None:
    module = next(project.glob("*_tools.py")).stem
    with configured(project, functions.format(folder=project, module=module)) as gateway:
        gateway.build(index=False)
        assert gateway.inventory()["mine"] == ["other", "price"]
        assert gateway.call_tool("mine.price", {"net": 3}).data == {"net": 3.0, "gross": 6.0}


def test_17_one_function_of_a_file(project: Path) -> None:
    with configured(project, "./tools.py:other") as gateway:
        gateway.build(index=False)
        assert gateway.inventory()["mine"] == ["other"]


def test_17_two_files_of_one_name_are_two_modules(project: Path) -> None:
    (project / "more").mkdir()
    (project / "more" / "tools.py").write_text('def more() -> str:\n    """More."""\n    return "more"\n')
    file = project / "toolfold.toml"
    file.write_text('[servers.a]\nfunctions = "./tools.py:other"\n[servers.b]\nfunctions = "more/tools.py"\n')
    with BlockingGateway(Settings.load(file)) as gateway:
        gateway.build(index=False)
        assert (gateway.inventory()["a"], gateway.inventory()["b"]) == (["other"], ["more"])


def test_17_a_file_that_is_not_there_is_said_where_it_stands(project: Path) -> None:
    with pytest.raises(ConfigError, match=r"toml:2:\d+: servers\.mine\.functions: there is no file .*tols\.py"):
        configured(project, "./tols.py")


def test_17_a_module_that_is_not_there_says_where_it_was_looked_for(project: Path) -> None:
    with configured(project, "no_such_module") as gateway:
        failed = gateway.build(index=False).report
    assert "no_such_module" in str(failed)


BROKEN: list[dict[str, Any]] = [
    {"transport": "openapi", "document": ""},
    {"transport": "openapi", "document": "/no/such/file.json"},
    {"transport": "openapi", "document": "http://127.0.0.1:9/openapi.json"},
    {"transport": "openapi", "document": "{document}"},
    {"transport": "functions", "document": "no_such_module"},
    {"transport": "stdio", "command": "no-such-command"},
    {"transport": "stdio", "command": "true", "cwd": "/no/such/folder"},
    {"transport": "http", "url": "http://127.0.0.1:9/mcp"},
]


@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_17_what_to_do_names_keys_that_can_be_written(broken: dict[str, Any], tmp_path: Path) -> None:
    document = tmp_path / "api.json"
    document.write_text('{"openapi": "3.1.0", "info": {"title": "x", "version": "1"}, "paths": {}}', encoding="utf-8")
    if "document" in broken:
        broken = {**broken, "document": broken["document"].format(document=document)}
    upstream = make_upstream(ServerSpec(name="broken", **broken), Hooks())
    with pytest.raises(ServerUnavailable) as raised:
        asyncio.run(upstream.open())
    named = re.findall(r"`([a-z_]+)`", raised.value.next_action)
    assert named
    assert set(named) <= set(ALL_KEYS), raised.value.next_action
