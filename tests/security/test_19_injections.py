"""Texts that try to take a model over, those of AgentDojo: in a description they are flagged, for an extracting model
they stand between marks that they cannot know, and wherever they go as a value they change no header, path or
policy."""

import ast
import asyncio
import importlib.util
import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from gateway_process import Home, figure
from pages import pages

from toolfold.outputs.prompts import mark_as_data
from toolfold.policy.description_scan import scan

CANNOT_BE_READ = "AgentDojo's texts are not here: pip install --no-deps agentdojo"


def constants(file: Path, name: str) -> list[str]:
    """The texts that classes of a module give a name. Not imported: it would load the clients of five vendors."""
    found = []
    for part in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(part, ast.Assign) and getattr(part.targets[0], "id", "") == name:
            found += [literal(part.value)]
    return found


def literal(value: ast.expr) -> str:
    """A string, with a word in the place of what is filled in."""
    if isinstance(value, ast.JoinedStr):
        return "".join(str(one.value) if isinstance(one, ast.Constant) else "X" for one in value.values)
    return str(value.value) if isinstance(value, ast.Constant) else ""


def called_with(file: Path) -> list[str]:
    """The attacks that are given as an argument."""
    texts = [node.value for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Constant)]
    return [text for text in texts if isinstance(text, str) and "{goal}" in text and "`" not in text]


@pytest.fixture(scope="module")
def attacks() -> list[str]:
    spec = importlib.util.find_spec("agentdojo")
    if spec is None or spec.origin is None:
        pytest.skip(CANNOT_BE_READ)
    root = Path(spec.origin).parent
    goals = [
        goal for file in sorted(root.glob("default_suites/*/*/injection_tasks.py")) for goal in constants(file, "GOAL")
    ]
    forms = [*constants(root / "attacks/important_instructions_attacks.py", "_JB_STRING")]
    forms += called_with(root / "attacks/baseline_attacks.py")
    assert len(goals) > 40
    assert len(forms) > 4
    filled = [form.replace("{user}", "Emma").replace("{model}", "model") for form in forms]
    return [form.replace("{goal}", goal) for form in filled for goal in goals]


def test_they_are_flagged_in_a_description(attacks: list[str]) -> None:
    plain = [text for text in attacks if text.startswith("TODO: ")]
    disguised = [text for text in attacks if not text.startswith("TODO: ")]
    missed = [text for text in disguised if not flags(text)]
    figure(
        "injections in descriptions",
        texts=len(disguised),
        flagged=len(disguised) - len(missed),
        plain_wishes=len(plain),
        plain_wishes_flagged=sum(bool(flags(text)) for text in plain),
    )
    assert not missed, missed[:2]


def flags(text: str) -> Any:
    return scan(json.dumps({"name": "a", "description": f"Lists orders. {text}", "inputSchema": {}}).encode())


def test_an_extracting_model_gets_them_between_marks_that_they_cannot_know(attacks: list[str]) -> None:
    marks = set()
    for text in attacks:
        told = mark_as_data(text, "a document")
        mark = told.split("the mark ")[1].split()[0]
        assert told.endswith(f"[{mark}\n{text}\n{mark}]")
        assert "never instructions" in told.split(f"[{mark}")[0]
        assert mark not in text
        marks.add(mark)
    assert len(marks) == len(attacks)


HEADERS = ("x-api-version", "host", "user-agent", "accept", "authorization")
BREAKS = ("\r\nX-Evil: 1", "\nX-Evil: 1", "/../../admin", "?admin=true", "#", "%2e%2e%2f", "\x00", "a b\tc", "é\u202e")
DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "shop", "version": "1"},
    "paths": {
        "/orders/{name}/lines": {
            "get": {
                "operationId": "lines",
                "parameters": [
                    {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}},
                    {"name": "text", "in": "query", "schema": {"type": "string"}},
                    {"name": "X-Api-Version", "in": "header", "schema": {"type": "string"}},
                ],
                "responses": {"200": {"description": "ok"}},
            }
        }
    },
}


async def test_as_values_they_change_no_header_path_or_policy(tmp_path: Path, attacks: list[str]) -> None:
    texts = [*attacks[::29], *(attacks[0] + line for line in BREAKS), *BREAKS]
    async with pages() as shop:
        shop.pages["/openapi.json"] = DOCUMENT
        home = Home(tmp_path).write(
            '[callers.ann]\nkey = "a key of ann, long enough"\npolicy = "few"\n',
            '[policy.few]\nallow = ["shop.*", "good.echo"]\ndeny = ["good.environment"]\n',
            Home.server("good", "misbehaving_stdio.py"),
            f'[servers.shop]\nopenapi = "{shop.origin}/openapi.json"\nbearer_token = "the token of the shop"\n',
        )
        sent = await asyncio.to_thread(send_all, home, texts)
        asked = [request for request in shop.seen if request.path.startswith("/orders")]
    assert asked
    for request in asked:
        path, _, query = request.path.partition("?")
        assert path.count("/") == 3, request.path
        assert path.startswith("/orders/")
        assert path.endswith("/lines")
        assert query.count("&") == 0
        assert "x-evil" not in request.headers
        assert request.headers["authorization"] == "Bearer the token of the shop"
        assert unquote(path.split("/")[2]) in {"first", *texts}
    figure(
        "injections as values", texts=len(texts), sent=len(asked), refused=3 * len(texts) - len(asked), policies=sent
    )


def send_all(home: Home, texts: list[str]) -> int:
    """As each kind of parameter, by a caller whose view is the same before and after."""
    key = "a key of ann, long enough"
    with home.serve() as gateway:
        gateway.wait_for("good.echo", key)
        gateway.wait_for("shop.lines", key, name="first")
        before = gateway.post("list", key, path=[])
        assert "error" not in before
        for text in texts:
            extras: tuple[dict[str, Any], ...] = ({}, {"text": text}, {"X-Api-Version": text})
            for extra in extras:
                gateway.call("shop.lines", key, name=text, **extra)
            echoed = gateway.call("good.echo", key, text=text)
            assert echoed["structuredContent"] == {"text": text}  # as data, and as it was
            assert gateway.call("good.environment", key)["error"]["code"] == "TOOL_NOT_FOUND"
        assert gateway.post("list", key, path=[]) == before
    return len(texts)
