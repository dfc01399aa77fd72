"""Storing in real processes: bounded memory, a kill at any point, a full disk, two gateways on one folder."""

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from large_stdio import LINE
from output_scene import Scene, large_spec, run, settings, text_result

from toolfold import Gateway, tokens
from toolfold.types import LOCAL, ServerSpec

PROCESS = Path(__file__).with_name("store_process.py")
HTTP = Path(__file__).parents[1] / "servers" / "large_http.py"
TEXT = json.loads(f'"{LINE}"')


def command(
    folder: Path, tool: str, arguments: dict[str, Any], spec: ServerSpec | None = None, **extra: Any
) -> list[str]:
    (folder / "spec.json").write_bytes(msgspec.json.encode(spec or large_spec()))
    (folder / "extra.json").write_text(json.dumps(extra))
    return [sys.executable, str(PROCESS), str(folder), tool, json.dumps(arguments)]


def called(folder: Path, tool: str, arguments: dict[str, Any], spec: ServerSpec | None = None, **extra: Any) -> Any:
    line = command(folder, tool, arguments, spec, **extra)
    done = subprocess.run(line, capture_output=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.mark.requirement("O-14")
@pytest.mark.timeout(120)
def test_a_huge_result_of_a_process_is_stored_in_bounded_memory(tmp_path: Path) -> None:
    found = called(tmp_path, "large.large", {"megabytes": 120})
    lines = found["stored"]["lines"]
    assert lines * len(LINE) >= 120_000_000
    assert found["stored"]["bytes"] == found["size"] == lines * len(TEXT.encode())
    assert found["stored"]["tokens"] == lines * tokens.count(TEXT)
    assert found["head"].startswith(TEXT)
    assert found["tail"].endswith(TEXT)
    assert len(json.dumps(found["result"])) < 1000
    assert found["grown"] < 40, f"memory grew by {found['grown']} MiB for a result of {found['size'] >> 20} MiB"
    assert list((tmp_path / "base").iterdir()) == []


@contextlib.contextmanager
def http_server() -> Iterator[ServerSpec]:
    with subprocess.Popen([sys.executable, str(HTTP)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            yield ServerSpec(name="large", transport="http", url=f"http://127.0.0.1:{port}/mcp")
        finally:
            process.kill()


@pytest.mark.requirement("O-14")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("form", ["json", "stream"])
def test_a_huge_result_over_http_is_stored_in_bounded_memory(tmp_path: Path, form: str) -> None:
    with http_server() as spec:
        found = called(tmp_path, "large.large", {"megabytes": 60, "form": form}, spec)
    text = '{"id": 1234567, "name": "café 😀"},\n'
    assert found["stored"]["bytes"] == found["size"] == found["stored"]["lines"] * len(text.encode())
    assert found["size"] > 25_000_000
    assert found["head"].startswith(text)
    assert found["tail"].endswith(text)
    assert found["grown"] < 50, f"memory grew by {found['grown']} MiB for a result of {found['size'] >> 20} MiB"


@pytest.mark.requirement("O-14")
def test_a_result_over_what_may_be_stored_is_refused_and_the_next_call_works(tmp_path: Path) -> None:
    limits = {"max_output_bytes": 6_000_000, "max_frame_bytes": 1_000_000}
    found = called(
        tmp_path, "large.large", {"megabytes": 8}, limits=limits, then=["large.echo", {"text": "still here"}]
    )
    assert found["error"]["code"] == "FRAME_TOO_LARGE"
    assert "max_output_bytes" in found["error"]["next_action"]
    assert found["then"] == text_result("still here")


@pytest.mark.requirement("O-14")
def test_a_program_that_wants_a_huge_result_whole_is_told_how_to_get_it(tmp_path: Path) -> None:
    limits = {"max_frame_bytes": 6_000_000}
    found = called(tmp_path, "large.large", {"megabytes": 5}, limits=limits, options={"whole": True})
    assert found["result"]["content"][0]["text"].startswith(TEXT)
    found = called(tmp_path, "large.large", {"megabytes": 8}, limits=limits, options={"whole": True})
    assert found["error"]["code"] == "FRAME_TOO_LARGE"
    assert "handle" in found["error"]["next_action"]


@pytest.mark.requirement("O-02")
@pytest.mark.parametrize("megabytes", [3, 20], ids=["held", "spilled"])
def test_a_full_disk_is_told_while_small_calls_go_on(tmp_path: Path, megabytes: int) -> None:
    found = called(
        tmp_path,
        "large.large",
        {"megabytes": megabytes},
        file_bytes=1_000_000 if megabytes < 4 else 8_000_000,
        then=["large.echo", {"text": "still here"}],
    )
    assert found["error"]["code"] == "OUTPUT_FULL"
    assert "outputs.directory" in found["error"]["next_action"]
    assert found["then"] == text_result("still here")
    assert list((tmp_path / "base").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_file_system_without_room_is_told_too(tmp_path: Path) -> None:
    small = tmp_path / "base"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small)], check=False, timeout=30)
    if mounted.returncode != 0:
        pytest.skip("file systems cannot be mounted here")
    try:
        found = called(tmp_path, "large.large", {"megabytes": 9}, then=["large.echo", {"text": "still here"}])
        assert found["error"]["code"] == "OUTPUT_FULL"
        assert "No space left" in found["error"]["message"]
        assert found["then"] == text_result("still here")
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True, timeout=30)


@pytest.mark.requirement("O-02")
@pytest.mark.timeout(120)
def test_a_kill_at_any_point_of_storing_leaves_nothing_that_is_ever_served(tmp_path: Path) -> None:
    for step in range(6):
        line = command(tmp_path, "large.large", {"megabytes": 15})
        with subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
            assert process.stderr is not None
            process.stderr.readline()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.15 * step)
            process.send_signal(signal.SIGKILL)

    async def main() -> None:
        async with Scene(tmp_path) as scene:
            outcome = await scene.give(text_result("word " * 5000))
            assert [found.handle for found in await scene.gateway.outputs()] == [
                outcome.stored and outcome.stored.handle
            ]
            await scene.gateway.outputs.wait_swept()
            folders = list(scene.base.iterdir())
            assert len(folders) == 1

    run(main())
    assert list((tmp_path / "base").iterdir()) == []


def test_a_server_that_dies_in_the_middle_of_a_huge_result_is_told(tmp_path: Path) -> None:
    found = called(tmp_path, "large.large", {"megabytes": 20, "die_after": 10})
    assert found["error"]["code"] == "SERVER_CLOSED"
    assert list((tmp_path / "base").iterdir()) == []


@pytest.mark.requirement("O-02")
def test_two_gateways_share_a_folder_and_leave_each_other_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async with Scene(tmp_path) as one, Scene(tmp_path, settings(tmp_path / "b")) as two:
            two.gateway.outputs.store.base = one.base
            first = await one.give(text_result("one " * 5000))
            second = await two.give(text_result("two " * 5000))
            for scene in (one, two):
                assert scene.gateway.outputs.store.sweep() == []
            assert one.kept(first) == b"one " * 5000
            assert two.kept(second) == b"two " * 5000
            await two.gateway.aclose()
            assert one.kept(first) == b"one " * 5000

    run(main())


@pytest.mark.requirement("O-12")
@pytest.mark.timeout(120)
def test_real_results_are_stored_to_the_last_byte(tmp_path: Path, shared_data: Path) -> None:
    given = settings(tmp_path)
    given = msgspec.structs.replace(given, servers=(large_spec(),))

    async def main() -> None:
        async with Gateway(given) as gateway:
            await gateway.build()
            for file in sorted((shared_data / "results").glob("*.json.gz")):
                result = json.loads(gzip.decompress(file.read_bytes()))["response"]["result"]
                (tmp_path / "result.json").write_text(json.dumps(result), encoding="utf-8")
                outcome = await gateway.call_tool("large.give", {"file": str(tmp_path / "result.json")})
                assert outcome.stored is not None, file.name
                kept = gateway.outputs.store.find(outcome.stored.handle, LOCAL)[1].read_bytes().decode()
                texts = [block["text"] for block in result["content"] if block["type"] == "text"]
                assert len(texts) == 1
                assert kept in {texts[0], json.dumps(result.get("structuredContent"))}
                everything = [
                    gateway.outputs.store.find(found.handle, LOCAL)[1].read_text(encoding="utf-8")
                    for found in await gateway.outputs()
                ]
                assert texts[0] in everything or texts[0] in json.dumps(
                    json.loads(bytes(outcome.result)), ensure_ascii=False
                )

    run(main())
