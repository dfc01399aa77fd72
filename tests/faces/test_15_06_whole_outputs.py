"""What was too large to show can be had whole: over `/v1` as bytes under their type, by `toolfold call` as a file."""

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from four_faces import http_server, run_command

from toolfold import Settings
from toolfold.config import CallerKey, Limits, Outputs
from toolfold.testing.memory_upstream import MemoryUpstream

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 100
KEYS = {name: f"{name}-{'k' * 32}" for name in ("ann", "bob")}
ABSENT = "00000000-0000-4000-8000-000000000000"


def image(data: bytes, media_type: str = "image/png") -> dict[str, Any]:
    block = {"type": "image", "mimeType": media_type, "data": base64.b64encode(data).decode()}
    return {"content": [block]}


class Service:
    """A served gateway; `give` is the handle of a result that was too large for the one who called."""

    def __init__(self, folder: Path, lifetime_s: float) -> None:
        self.server = MemoryUpstream("s", [{"name": "give", "inputSchema": {"type": "object"}}])
        callers = tuple(CallerKey(name=name, key=key) for name, key in KEYS.items())
        self.settings = Settings(
            home=folder / "home",
            callers=callers,
            limits=Limits(tool_media_max_bytes=1000),
            outputs=Outputs(directory=str(folder / "outputs"), lifetime_s=lifetime_s),
        )
        self.client = httpx2.Client(timeout=30)

    def give(self, result: dict[str, Any]) -> str:
        self.server.answer("give", result)
        answer = self.client.post(
            "/v1/call_tool", json={"tool_id": "s.give"}, headers={"authorization": f"Bearer {KEYS['ann']}"}
        ).json()
        handle: str = answer["content"][0]["text"].partition('handle = "')[2][: len(ABSENT)]
        assert f"/v1/outputs/{handle}" in answer["content"][1]["text"] or "image" not in json.dumps(result)
        return handle

    def get(self, handle: str, caller: str | None = "ann") -> httpx2.Response:
        headers = {} if caller is None else {"authorization": f"Bearer {KEYS[caller]}"}
        return self.client.get(f"/v1/outputs/{handle}", headers=headers)


@pytest.fixture
def service(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Service]:
    service = Service(tmp_path, getattr(request, "param", 600))
    with http_server(service.settings, [service.server], build=True) as address, service.client as client:
        client.base_url = httpx2.URL(address)
        yield service


def test_15_06_a_stored_picture_comes_as_its_bytes_under_its_type(service: Service) -> None:
    answer = service.get(service.give(image(PICTURE)))
    assert (answer.status_code, answer.content) == (200, PICTURE)
    assert answer.headers["content-type"] == "image/png"
    # Whatever a tool's server sends, no browser takes it for a page of this service.
    assert answer.headers["content-disposition"] == "attachment"
    assert answer.headers["content-security-policy"] == "sandbox"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


def test_15_06_a_stored_text_comes_whole_too(service: Service) -> None:
    text = "été\n" * 20_000
    answer = service.get(service.give({"content": [{"type": "text", "text": text}]}))
    assert (answer.status_code, answer.text) == (200, text)
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize("media_type", ["text/html\r\nx-evil: 1", "", "é/é", "a" * 300])
def test_15_06_a_type_that_is_none_becomes_plain_bytes(service: Service, media_type: str) -> None:
    answer = service.get(service.give(image(PICTURE, media_type)))
    assert (answer.status_code, answer.content) == (200, PICTURE)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert "x-evil" not in answer.headers


def test_15_06_only_its_own_caller_gets_an_output(service: Service) -> None:
    handle = service.give(image(PICTURE))
    assert service.get(handle, None).status_code == 401
    foreign, unknown = service.get(handle, "bob"), service.get(ABSENT, "bob")
    assert (foreign.status_code, unknown.status_code) == (404, 404)
    assert foreign.text.replace(handle, ABSENT) == unknown.text
    for odd in ("..%2f..%2fetc%2fpasswd", "%00", handle.upper()):
        assert service.get(odd).status_code == 404
    assert service.get(handle).status_code == 200


@pytest.mark.parametrize("service", [0.2], indirect=True)
def test_15_06_an_expired_output_says_so(service: Service) -> None:
    handle = service.give(image(PICTURE))
    while service.get(handle).status_code == 200:
        time.sleep(0.02)
    error = service.get(handle).json()["error"]
    assert error["code"] == "UNKNOWN_HANDLE"
    assert "expired" in error["message"]
    assert "s.give" in error["next_action"]


SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "initialize":
        about = {"name": "s", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about}
    elif message["method"] == "tools/list":
        result = {"tools": [{"name": "give", "inputSchema": {"type": "object"}}]}
    elif message["method"] == "tools/call":
        result = json.load(open("result.json"))
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("save")
    (folder / "server.py").write_text(SERVER, encoding="utf-8")
    text = '[servers.s]\ncommand = "python3"\nargs = ["server.py"]\n[limits]\ntool_media_max_bytes = 10000\n'
    (folder / "toolfold.toml").write_text(text, encoding="utf-8")
    assert run_command(folder, "build").returncode == 0
    return folder


TEXT = {"type": "text", "text": "été\n"}
SOUND = {"type": "audio", "mimeType": "audio/wav", "data": base64.b64encode(b"wave").decode()}
FILE = {"type": "resource", "resource": {"uri": "a://b", "blob": base64.b64encode(b"file").decode()}}


@pytest.mark.parametrize(
    ("content", "files"),
    [
        ([TEXT, image(b"small")["content"][0]], {"it.png": b"small"}),
        (image(PICTURE)["content"], {"it.png": PICTURE}),
        ([SOUND, FILE], {"it.png": b"wave", "it-2.png": b"file"}),
        ([TEXT, TEXT], {"it.png": "été\n\nété\n".encode()}),
    ],
    ids=["small picture", "stored picture", "two parts", "text"],
)
def test_15_06_a_call_saves_what_it_returned(project: Path, content: Any, files: dict[str, bytes]) -> None:
    (project / "result.json").write_text(json.dumps({"content": content}), encoding="utf-8")
    for file in project.glob("it*.png"):
        file.unlink()
    done = run_command(project, "call", "s.give", "--save", "it.png", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["saved"] == [{"file": name, "bytes": len(data)} for name, data in files.items()]
    assert {file.name: file.read_bytes() for file in project.glob("it*.png")} == files


def test_15_06_nothing_is_called_where_nothing_could_be_saved(project: Path) -> None:
    (project / "result.json").unlink(missing_ok=True)  # the server would end with an error
    (project / "there").write_text("mine", encoding="utf-8")
    for target in ("there", "no-folder/it"):
        done = run_command(project, "call", "s.give", "--save", target)
        assert done.returncode > 1
        assert "name a file that is not there yet" in done.stderr
    assert (project / "there").read_text(encoding="utf-8") == "mine"


def test_15_06_a_failed_call_saves_nothing(project: Path) -> None:
    (project / "result.json").write_text(json.dumps({"content": [TEXT], "isError": True}), encoding="utf-8")
    done = run_command(project, "call", "s.give", "--save", "failed.txt")
    assert (done.returncode, (project / "failed.txt").exists()) == (1, False)
    assert "été" in done.stdout
