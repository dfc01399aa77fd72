"""Stored outputs of another caller: every way to name one answers as if it had never been, whoever asks and however
often."""

import json
import uuid
from pathlib import Path
from typing import Any

from gateway_process import GatewayProcess, Home, figure

KEYS = {name: f"a key of {name}, long enough" for name in ("alice", "bob")}
CALLERS = "".join(f'[callers.{name}]\nkey = "{key}"\n' for name, key in KEYS.items())


def ask(gateway: GatewayProcess, key: str, handle: str) -> list[Any]:
    """What each way of using a handle answers."""
    with gateway.client(key) as client:
        page = client.get(f"/v1/outputs/{handle}")
        answers = [
            {"status": page.status_code, "body": page.text},
            client.post("/v1/tool_output", json={"handle": handle, "extract": "lines 1-2"}).json(),
            client.post("/v1/call_tool", json={"tool_id": "big.echo", "args": {"text": {"$output": handle}}}).json(),
            client.post(
                "/v1/call_tool", json={"tool_id": "big.echo", "args": {"text": {"$output": handle, "path": "$"}}}
            ).json(),
        ]
    return [json.loads(json.dumps(answer).replace(handle, "HANDLE")) for answer in answers]


def test_a_handle_of_another_caller_is_as_unknown_as_one_that_never_was(tmp_path: Path) -> None:
    home = Home(tmp_path).write(
        "[limits]\ntool_response_max_bytes = 1024\n", CALLERS, Home.server("big", "large_stdio.py")
    )
    tried = 0
    with home.serve() as gateway:
        gateway.wait_for("big.echo", KEYS["alice"], text="x")
        handles = []
        for _ in range(20):
            text = gateway.call("big.large", KEYS["alice"], megabytes=0.01)["content"][0]["text"]
            handles.append(text.split('handle = "')[1].split('"')[0])
        mine = ask(gateway, KEYS["alice"], handles[0])
        assert mine[0]["status"] == 200
        assert "worker-7" in mine[1]["text"]
        never = ask(gateway, KEYS["bob"], str(uuid.uuid4()))
        for handle in handles:
            theirs = ask(gateway, KEYS["bob"], handle)
            assert theirs == never
            assert "worker-7" not in json.dumps(theirs)
            tried += len(theirs)
        # Close to a handle is nowhere, and what is no handle reaches no file.
        for odd in (
            handles[0].upper(),
            handles[0] + "/",
            "../" + handles[0],
            f".about-{handles[0]}",
            "%2e%2e",
            "*",
            "",
        ):
            answers = [gateway.post("tool_output", KEYS["bob"], handle=odd, extract="lines 1-2")]
            with gateway.client(KEYS["bob"]) as client:
                answers.append(client.get(f"/v1/outputs/{odd}").text)
            assert "worker-7" not in json.dumps(answers)
            tried += len(answers)
        with gateway.client() as client:
            assert client.get(f"/v1/outputs/{handles[0]}").status_code == 401
    figure("handles of others", tried=tried, leaked=0)
