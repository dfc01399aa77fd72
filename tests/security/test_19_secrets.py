"""Secrets of the configuration in what servers send back: results (where asked for), errors, logs and the audit log
show none of them, in no spelling; and no file that a gateway leaves holds one."""

import base64
import json
import urllib.parse
from pathlib import Path

import pytest
from gateway_process import Home, figure

SECRET = 'sk-very"secret/τoken+42 of the shop'
PLAIN = "glpat-AbCdEf0123456789xyzq"  # known by its form alone
SPELLINGS = {
    "plain": SECRET,
    "escaped": json.dumps(SECRET)[1:-1],
    "percent": urllib.parse.quote(SECRET, safe=""),
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "by form": PLAIN,
}


def test_no_spelling_of_a_secret_comes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_SECRET", SECRET)
    home = Home(tmp_path)
    table = f'[outputs]\ndirectory = "{home.outputs}"\nredact_secrets = true\n[audit]\nvalues = "full"\n'
    home.write(table, Home.server("bad", "misbehaving_stdio.py", more='env = { SHOP_SECRET = "${SHOP_SECRET}" }\n'))
    shown: list[tuple[str, str]] = []
    with home.serve("-v") as gateway:
        gateway.wait_for("bad.echo")
        environment = gateway.call("bad.environment")
        assert "[secret removed]" in json.dumps(environment)
        shown.append(("environment", json.dumps(environment, ensure_ascii=False)))
        for name, value in SPELLINGS.items():
            echoed = gateway.call("bad.echo", text=value, api_key=value)
            shown.append((f"result, {name}", json.dumps(echoed, ensure_ascii=False)))
            error = json.dumps({"code": -32000, "message": f"cannot use {value}", "data": {"key": value}})
            refused = gateway.call("bad.raw_error", text=error)
            shown.append((f"error, {name}", json.dumps(refused, ensure_ascii=False)))
    commands = (("servers", "--json"), ("audit", "--json"), ("logs",))
    shown += [(command[0], home.run(*command).stdout) for command in commands]
    shown.append(("log", "".join(gateway.said)))
    leaks = [(where, name) for where, text in shown for name, value in SPELLINGS.items() if value in text]
    assert leaks == []
    files = [path for path in home.state.rglob("*") if path.is_file()] + [*home.outputs.rglob("*")]
    kept = [
        (path.name, name)
        for path in files
        if path.is_file()
        for name, value in SPELLINGS.items()
        if value.encode() in path.read_bytes()
    ]
    assert kept == []
    figure("secrets", spellings=len(SPELLINGS), answers=len(shown), files=len(files), leaked=0)
