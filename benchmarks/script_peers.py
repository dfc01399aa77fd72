"""The peers of `toolfold bench scripts`, each run by the python of an environment that has it. Absent ones are told."""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import msgspec

PEERS = "TOOLFOLD_BENCH_PEERS"
TIMEOUT_S = 300

_SCHEMA = {
    "title": "Params",
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "Where."},
        "count": {"type": "integer", "default": 10},
        "kind": {"enum": ["a", "b", "c"]},
        "nested": {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": ["string", "null"]}}},
        "items": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    },
    "required": ["path"],
}

_GENERATOR = """
import json, sys, tempfile, time
from pathlib import Path
from datamodel_code_generator import DataModelType, InputFileType, generate
schema = json.loads(sys.argv[1])
times = []
with tempfile.TemporaryDirectory() as folder:
    for number in range(12):
        out = Path(folder) / f"m{number}.py"
        started = time.perf_counter()
        generate(json.dumps(schema), input_file_type=InputFileType.JsonSchema, output=out,
                 output_model_type=DataModelType.PydanticV2BaseModel)
        exec(compile(out.read_text(), "m", "exec"), {"__name__": "m"})
        times.append((time.perf_counter() - started) * 1000)
times = sorted(times[2:])
print(json.dumps({"ms_per_tool_p50": round(times[len(times) // 2], 3)}))
"""

_CODE_MODE = """
import asyncio, json, time
from fastmcp import Client, FastMCP
from fastmcp.experimental.transforms.code_mode import CodeMode
server = FastMCP("box", transforms=[CodeMode()])
@server.tool
def echo(text: str) -> str:
    "Gives its arguments back."
    return text
def spread(values):
    return round(sorted(values)[len(values) // 2] * 1000, 3)
async def main():
    async with Client(server) as client:
        tool = next(one for one in await client.list_tools() if "code" in json.dumps(one.inputSchema))
        one = "return 1"
        many = "\\n".join(["for i in range(50):", "    await call_tool('echo', {'text': 'x'})", "return 1"])
        await client.call_tool(tool.name, {"code": one})
        whole, hundred = [], []
        for _ in range(10):
            started = time.perf_counter()
            await client.call_tool(tool.name, {"code": one})
            whole.append(time.perf_counter() - started)
            started = time.perf_counter()
            await client.call_tool(tool.name, {"code": many})
            hundred.append(time.perf_counter() - started)
        print(json.dumps({"whole_script_ms_p50": spread(whole), "script_of_50_calls_ms_p50": spread(hundred)}))
asyncio.run(main())
"""


def peers() -> dict[str, Any]:
    python = os.environ.get(PEERS, "")
    if not python or not Path(python).exists():
        absent = f"not measured: {PEERS} names no python that has it"
        return {"datamodel_code_generator": absent, "fastmcp_code_mode": absent}
    schema = msgspec.json.encode(_SCHEMA).decode()
    return {
        "datamodel_code_generator": _ask(python, _GENERATOR, schema),
        "ours_on_the_same_schema": ours(),
        "fastmcp_code_mode": _ask(python, _CODE_MODE),
    }


def ours() -> dict[str, float]:
    """The same schema to a usable model, from nothing."""
    import time

    from toolfold.scripts.models_from_schema import ModelBuilder
    from toolfold.scripts.runtime.models import Models

    times = []
    for _ in range(50):
        started = time.perf_counter()
        modeller = ModelBuilder("Do")
        name = modeller.parameters(_SCHEMA)
        Models(modeller.models, "box").get(name)
        times.append((time.perf_counter() - started) * 1000)
    return {"ms_per_tool_p50": round(sorted(times)[len(times) // 2], 3)}


def _ask(python: str, code: str, *arguments: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [python, "-c", code, *arguments], capture_output=True, timeout=TIMEOUT_S, check=True, cwd=folder
            )
            return msgspec.json.decode(done.stdout.strip().splitlines()[-1])
        except subprocess.CalledProcessError as error:
            lines = error.stderr.decode(errors="replace").strip().splitlines()
            return f"not measured: {lines[-1] if lines else error.returncode}"
        except (OSError, subprocess.TimeoutExpired, IndexError, msgspec.DecodeError) as error:
            return f"not measured: {error}"
