"""The page about the configuration tells the truth."""

import re
from pathlib import Path

import pytest

from toolfold.config import Limits, Model, Outputs, Settings
from toolfold.config.clients import CLIENTS, backups, restore
from toolfold.config.sections import SECTIONS
from toolfold.config.servers import ALL_KEYS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


@pytest.mark.requirement("G-06")
def test_the_example_loads_and_shows_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "toolfold.toml").write_text(blocks("toml")[0], "utf-8")
    settings = Settings.load(environ={"HOME": str(tmp_path / "home"), "TOOLFOLD_TRUST_PROJECT": "1"}, cwd=tmp_path)
    assert [spec.transport for spec in settings.servers] == ["stdio", "http", "openapi", "functions", "skills"]
    assert (settings.limits, settings.outputs, settings.model) == (Limits(), Outputs(), Model(name="openai:gpt-…"))
    assert settings.warnings == ()


def test_every_key_setting_and_client_is_on_the_page() -> None:
    text = PAGE.read_text("utf-8")
    settings = [f"`{name}.{key}`" for name, section in SECTIONS.items() for key in section.__struct_fields__]
    for word in [*settings, *(f"`{key}`" for key in ALL_KEYS), *(f"`{client}`" for client in CLIENTS)]:
        assert word in text


def test_the_way_back_works_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(name in blocks("python")[0] for name in (backups.__name__, restore.__name__))
    (tmp_path / "toolfold.toml").write_text("new")
    (tmp_path / "toolfold.toml.20260101-120000.bak").write_text("old")
    (tmp_path / "toolfold.toml.20260101-120000-2.bak").write_text("older name, later copy")
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks("python")[0], "page", "exec"), {})
    assert (tmp_path / "toolfold.toml").read_text() == "older name, later copy"
    assert "new" in {path.read_text() for path in backups(tmp_path / "toolfold.toml")}
