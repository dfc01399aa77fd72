"""A gateway in a process of its own, for tests that measure its memory, kill it, or take its disk away.

`store_process.py FOLDER COMMAND ARGS`: calls `COMMAND` (JSON arguments in `ARGS`) of the server in `FOLDER/spec.json`
and prints what came of it as JSON, with the growth of its memory since before the call.
"""

import asyncio
import json
import logging
import resource
import sys
from pathlib import Path
from typing import Any

import msgspec

from toolfold import Gateway, Settings
from toolfold.config import Limits, Outputs
from toolfold.errors import ToolfoldError
from toolfold.types import ServerSpec


def memory(field: str = "VmHWM") -> int:
    """In MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) // 1024
    return 0


async def main(folder: Path, tool: str, arguments: str) -> dict[str, Any]:
    spec = msgspec.json.decode((folder / "spec.json").read_bytes(), type=ServerSpec)
    extra = json.loads((folder / "extra.json").read_text()) if (folder / "extra.json").exists() else {}
    settings = Settings(
        servers=(spec,),
        home=folder / "home",
        outputs=Outputs(directory=str(folder / "base")),
        limits=Limits(call_timeout_s=100, **extra.get("limits", {})),
    )
    async with Gateway(settings) as gateway:
        await gateway.build(index=False)
        if "file_bytes" in extra:
            resource.setrlimit(resource.RLIMIT_FSIZE, (extra["file_bytes"], extra["file_bytes"]))
        before = memory()
        sys.stderr.write("ready\n")
        sys.stderr.flush()
        found: dict[str, Any] = {}
        try:
            outcome = await gateway.call_tool(tool, json.loads(arguments), **extra.get("options", {}))
            found["result"] = json.loads(bytes(outcome.result))
            found["stored"] = None if outcome.stored is None else msgspec.to_builtins(outcome.stored)
        except ToolfoldError as error:
            found["error"] = error.as_dict()
        found["grown"] = memory() - before
        if found.get("stored"):
            path = await gateway.outputs.file(found["stored"]["handle"])
            with path.open("rb") as file:
                found["head"] = file.read(200).decode()
                file.seek(-200, 2)
                found["tail"] = file.read().decode("utf-8", "replace")
            found["size"] = path.stat().st_size
        if "then" in extra:
            after = await gateway.call_tool(*extra["then"])
            found["then"] = json.loads(bytes(after.result))
    return found


if __name__ == "__main__":
    logging.disable()
    sys.stdout.write(json.dumps(asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))))
