"""The pages about discovery and HTTP tell the truth."""

import re
from pathlib import Path
from typing import Any

import pytest

from toolfold import errors
from toolfold.faces.http_api.app import STATUSES
from toolfold.faces.http_api.openapi import document
from toolfold.faces.surface.definitions import DISCOVERY

DOCS = Path(__file__).resolve().parents[2] / "docs"


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)


@pytest.mark.requirement("G-02")
def test_the_example_finds_expands_and_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(blocks("discovery.md")[0], "discovery.md", "exec"), names)
    assert "changed_files" in capsys.readouterr().out


def test_the_face_can_be_mounted_in_another_app(tmp_path: Path) -> None:
    import asyncio

    from toolfold import Gateway, Settings

    names: dict[str, Any] = {}
    exec(compile(blocks("http.md")[0], "http.md", "exec"), names)

    async def main() -> None:
        settings = Settings(home=tmp_path)
        async with Gateway(settings) as gateway:
            app = names["around"](gateway, settings)
            sent: list[Any] = []
            scope = {
                "type": "http", "method": "GET", "path": "/tools/healthz", "query_string": b"", "root_path": "",
                "headers": [(b"host", b"localhost")],
            }  # fmt: skip

            async def receive() -> dict[str, Any]:
                return {"type": "http.request", "body": b""}

            async def send(message: dict[str, Any]) -> None:
                sent.append(message)

            await app(scope, receive, send)
            assert sent[0]["status"] == 200

    asyncio.run(main())


def test_every_operation_address_and_status_is_on_its_page() -> None:
    discovery, http = ((DOCS / name).read_text("utf-8") for name in ("discovery.md", "http.md"))
    for one in DISCOVERY:
        arguments = re.search(rf"`{one.name}\(([^)]*)\)`", discovery)
        assert arguments is not None
        assert arguments.group(1).split(", ") == list(one.properties)
    for path in document()["paths"]:
        assert path in http
    for code, status in re.findall(r"`([A-Z_]{6,})`|^\| (\d{3})", http, re.MULTILINE):
        assert not code or code in STATUSES or code in _of_http()
        assert not status or int(status) in (401, 405, 500) or int(status) in STATUSES.values()
    assert all(hasattr(errors, name) for name in ("NotExpanded", "ToolChanged"))


def _of_http() -> set[str]:
    source = Path(errors.__file__).parent
    folders = ("faces/http_api/*.py", "wire/serving/*.py", "auth/resource.py")
    files = [file for folder in folders for file in source.glob(folder)]
    return set(re.findall(r'"([A-Z_]{6,})"', "".join(file.read_text("utf-8") for file in files)))
