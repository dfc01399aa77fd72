"""Very large answers of an HTTP service: stored or refused, in bounded memory, real processes on both ends."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from large_http import PIECE, RECORD

from toolfold.types import ServerSpec

SERVICE = Path(__file__).parents[1] / "servers" / "large_http.py"
GATEWAY = Path(__file__).parents[1] / "outputs" / "store_process.py"


@pytest.fixture(scope="module")
def spec() -> Iterator[ServerSpec]:
    with subprocess.Popen([sys.executable, str(SERVICE)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = f"http://127.0.0.1:{int(process.stdout.readline())}"
            yield ServerSpec(name="large", transport="openapi", document=f"{address}/openapi.json")
        finally:
            process.kill()


def called(folder: Path, spec: ServerSpec, tool: str, arguments: dict[str, int], **extra: Any) -> Any:
    """What came of a call, through a gateway in a process of its own, and how much its memory grew, in MiB."""
    (folder / "spec.json").write_bytes(msgspec.json.encode(spec))
    (folder / "extra.json").write_text(json.dumps(extra))
    line = [sys.executable, str(GATEWAY), str(folder), f"large.{tool}", json.dumps(arguments)]
    done = subprocess.run(line, capture_output=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.mark.requirement("O-14")
@pytest.mark.timeout(120)
def test_a_large_text_is_stored_as_it_came(tmp_path: Path, spec: ServerSpec) -> None:
    found = called(tmp_path, spec, "rows", {"megabytes": 60})
    assert found["size"] == found["stored"]["bytes"] == 60_000_000 // len(PIECE) * len(PIECE)
    assert found["head"].encode().startswith(RECORD)
    assert found["tail"].encode().endswith(RECORD)
    assert found["grown"] < 64, f"memory grew by {found['grown']} MiB"
    assert list((tmp_path / "base").iterdir()) == []


@pytest.mark.timeout(120)
def test_large_bytes_are_stored_as_bytes(tmp_path: Path, spec: ServerSpec) -> None:
    found = called(tmp_path, spec, "bytes", {"megabytes": 30})
    assert found["size"] == 30_000_000 // 256_000 * 256_000
    assert found["stored"]["media_type"] == "application/zip"
    assert found["grown"] < 64, f"memory grew by {found['grown']} MiB"


@pytest.mark.requirement("O-14")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("told", [0, 1])
@pytest.mark.parametrize("options", [{}, {"whole": True}])
def test_what_is_too_large_even_to_be_stored_is_refused(
    tmp_path: Path, spec: ServerSpec, told: int, options: dict[str, bool]
) -> None:
    limits = {"max_output_bytes": 20_000_000}
    found = called(tmp_path, spec, "rows", {"megabytes": 500, "told": told}, limits=limits, options=options)
    assert found["error"]["code"] == "FRAME_TOO_LARGE"
    assert found["error"]["next_action"]
    assert found["grown"] < 64, f"memory grew by {found['grown']} MiB"
