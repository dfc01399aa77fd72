"""A secret in every spelling and in every place that a server may put it, and none of them gets through."""

import base64
import html
import json
import os
import re
import secrets
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

import fork_server
from toolfold import redaction
from toolfold.audit.result_redaction import _redact_json
from toolfold.config.secrets import redact_secrets
from toolfold.redaction import learn, redact

SECRET = 'pä/ss "wört"\\end+&7\'7'
TOKEN = "ghp_" + "a1B2" * 9

SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "json": lambda text: json.dumps(text)[1:-1],
    "json, not ascii": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "json twice": lambda text: json.dumps(json.dumps(text)[1:-1])[1:-1],
    "json, slashes": lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
    "json, all of it": lambda text: "".join(f"\\u{unit:04X}" for unit in array("H", text.encode("utf-16-le"))),
    "percent": quote,
    "percent, all": lambda text: quote(text, safe=""),
    "percent, small": lambda text: re.sub("%..", lambda found: found[0].lower(), quote(text, safe="")),
    "percent, plus": quote_plus,
    "percent, each letter": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    "percent twice": lambda text: quote(quote(text, safe=""), safe=""),
    "html": html.escape,
    "html, numbers": lambda text: re.sub("[&<>\"']", lambda found: f"&#{ord(found[0]):03};", text),
    "python": lambda text: text.encode("unicode_escape").decode(),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 behind one": lambda text: base64.b64encode(f"x{text} and more".encode()).decode(),
    "base64 behind two": lambda text: base64.b64encode(f"me{text}".encode()).decode(),
    "base64 for addresses": lambda text: base64.urlsafe_b64encode(f"user:{text}???>>>".encode()).decode(),
}


def known(text: str, mark: str) -> str:
    return redact_secrets(redact(text, (SECRET,), mark), mark)


def reveals(text: str, secret: str = SECRET) -> bool:
    """Whether anybody who reads the text gets at the secret, or at half of it."""
    return any(spell(part) in text for spell in SPELLINGS.values() for part in (secret, secret[: len(secret) // 2 + 3]))


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_17_a_known_secret_is_found_in_every_spelling(spelling: str) -> None:
    text = SPELLINGS[spelling](SECRET)
    clean = redact(f"before {text} after", (SECRET,))
    assert clean.startswith("before ")
    assert clean.endswith(" after")
    assert not reveals(clean), clean
    if "behind" not in spelling and "addresses" not in spelling:
        assert len(clean) < len("before  after") + 16  # and no more than it is cut


@given(st.text(min_size=4, max_size=40).filter(lambda text: len(text.strip()) >= 4), st.sampled_from(sorted(SPELLINGS)))
@settings(max_examples=200, deadline=None)
def test_17_any_secret_is_found_in_any_spelling(secret: str, spelling: str) -> None:
    # In Base64 the letters at its edges belong to what stands beside it as well, so that a short one has no form.
    if spelling.startswith("base64") and len(secret) < 8:
        return
    spelt = SPELLINGS[spelling](secret)
    assert spelt not in redact(f"<{spelt}>", (secret,))


@contextmanager
def nothing_learned() -> Iterator[None]:
    """What is learned inside is forgotten afterwards: other tests print what these secrets are made of."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redaction, "_learned", {})
        patch.setattr(redaction, "_marked", {})
        yield


@given(
    st.one_of(
        st.text(min_size=4, max_size=40).filter(lambda text: len(text.strip()) >= 4),
        st.text("0123456789abcdefux%\\+&", min_size=4, max_size=40),
    ),
    st.sampled_from(sorted(SPELLINGS)),
    st.sampled_from(["<", "%", "%2", "\\", "\\u00", "x4", "+"]),
)
@settings(max_examples=400, deadline=None)
def test_17_a_learned_secret_is_found_as_any_other_is(secret: str, spelling: str, before: str) -> None:
    text = f"{before}{SPELLINGS[spelling](secret)}>"
    with nothing_learned():
        named = redact(text, (secret,))
        learn(secret)
        assert redact(text, ()) == named


def test_17_a_thousand_learned_secrets_hold_up_no_line() -> None:
    # Each line that a server writes is looked through before the next request is read.
    line = 'GET /a?b=%20 failed: {"reason": "line\\nline"} & 100 % of it + more'
    with nothing_learned():
        tokens = [secrets.token_urlsafe(40) for _ in range(1_100)]
        learn(*tokens)
        start = time.thread_time()  # others' load is not counted
        for token in tokens[-100:]:
            assert redact(f"{line} {token}", ("one of the configuration",)) == f"{line} ***"
        assert time.thread_time() - start < 5.0
        assert redact(tokens[0], ()) == tokens[0]  # forgotten
        assert len(redaction._marked) < 20_000


def test_17_the_start_of_a_secret_at_the_end_of_a_cut_text_is_cut_as_well() -> None:
    assert redact(f"the key is {SECRET[:12]}…", (SECRET,)) == "the key is ***…"
    assert redact("the key is pä", (SECRET,)) == "the key is pä"


@pytest.mark.parametrize("secret", [SECRET, TOKEN], ids=["known", "by its form"])
@pytest.mark.parametrize("size", [65_400, 65_536, 1 << 20, (1 << 20) + 16_384, 3 << 20])
def test_17_no_border_between_two_pieces_hides_a_secret(size: int, secret: str) -> None:
    # Around the borders of pieces and windows, without a space that would tell where a word ends.
    for shift in (-40, -20, -3, 0, 5):
        value = {"a": "x" * (size + shift) + "\n" + f"{secret}<" + "y" * 70_000, "é\n": "\ud83d"}
        raw = Raw(json.dumps(value).encode())
        clean = bytes(_redact_json(raw, known)).decode()
        expected = str(value["a"]).replace(secret, "[secret removed]")
        assert json.loads(clean) == {**value, "a": expected}


@pytest.mark.parametrize("secret", [SECRET, TOKEN], ids=["known", "by its form"])
def test_17_text_in_base64_is_looked_through(secret: str) -> None:
    inside = f"key: {secret}\nnext line é"
    blob = base64.b64encode(inside.encode()).decode()
    value = {"blob": blob, "uri": f"data:text/plain;base64,{blob}", "image": base64.b64encode(os.urandom(999)).decode()}
    clean = json.loads(bytes(_redact_json(Raw(json.dumps(value).encode()), known)))
    assert clean["image"] == value["image"]
    for text in (clean["blob"], clean["uri"].removeprefix("data:text/plain;base64,")):
        assert not reveals(text, secret)
        if secret == TOKEN:
            assert base64.b64decode(text).decode() == inside.replace(TOKEN, "[secret removed]")


SERVER = """
import base64, json, os, sys

secret, token = os.environ["APP_SECRET"], "ghp_" + "a1B2" * 9
def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=bool(len(sys.argv) % 2)), flush=True)
both = f"{secret} and {token}"
blob = base64.b64encode(both.encode()).decode()
print("started with", both, file=sys.stderr, flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    method, number = asked["method"], asked.get("id")
    if method == "initialize":
        can = {"tools": {}, "resources": {}, "prompts": {}, "logging": {}}
        info = {"name": "leaky", "version": "1"}
        say(id=number, result={"protocolVersion": "2025-11-25", "capabilities": can, "serverInfo": info})
    elif method == "tools/list":
        schema = {"type": "object"}
        tools = [{"name": name, "description": name, "inputSchema": schema} for name in ("leak", "fail", "refuse")]
        say(id=number, result={"tools": tools})
    elif method == "tools/call" and asked["params"]["name"] == "refuse":
        say(id=number, error={"code": -32000, "message": f"no: {both}", "data": {"key": both, both: [both]}})
    elif method == "tools/call":
        print("called with", both, file=sys.stderr, flush=True)
        if (meta := asked["params"].get("_meta")) and "progressToken" in meta:
            told = {"progressToken": meta["progressToken"], "progress": 1, "message": f"at {both}"}
            say(method="notifications/progress", params=told)
        say(method="notifications/message", params={"level": "error", "data": {"key": both}})
        content = [{"type": "text", "text": both, "_meta": {"x": both}}]
        content += [{"type": "resource", "resource": {"uri": f"x://{token}", "blob": blob}}]
        result = {"content": content, "structuredContent": {"a": [both]}, "_meta": {"y": {"z": both}}}
        say(id=number, result={**result, "isError": asked["params"]["name"] == "fail"})
    elif method == "resources/read":
        say(id=number, result={"contents": [{"uri": "x://1", "text": both}, {"uri": "x://2", "blob": blob}]})
    elif method == "prompts/get":
        message = {"role": "user", "content": {"type": "text", "text": both}}
        say(id=number, result={"messages": [message]})
    elif number is not None:
        say(id=number, result={})
"""


@pytest.mark.parametrize("profile", ["transparent", "direct"])
def test_17_nothing_that_a_server_sends_brings_a_secret_along(tmp_path: Path, profile: str) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "toolfold.toml").write_text(
        f"[servers.leaky]\ncommand = {json.dumps(sys.executable)}\nargs = [{json.dumps(str(tmp_path / 'server.py'))}]\n"
        "env = { APP_SECRET = '${APP_SECRET}' }\n"
        "[outputs]\nredact_secrets = true\n[audit]\nvalues = 'full'\n"
    )
    prefix = "leaky_" if profile == "direct" else ""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    calls = [
        {"name": f"{prefix}{name}", "arguments": {}, "_meta": {"progressToken": name}}
        for name in ("leak", "fail", "refuse")
    ]
    asked = [("initialize", hello), ("logging/setLevel", {"level": "debug"}), *(("tools/call", call) for call in calls)]
    if profile == "transparent":
        asked += [("resources/read", {"uri": "x://1"}), ("prompts/get", {"name": "p"})]
    lines = [
        {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        for number, (method, params) in enumerate(asked)
    ]
    done = fork_server.run(
        [sys.executable, "-m", "toolfold", "-v", "--home", str(tmp_path / "home"), "serve", "--profile", profile],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "TOOLFOLD_TRUST_PROJECT": "1", "HOME": str(tmp_path), "APP_SECRET": SECRET},
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    answers = {line["id"]: line for line in map(json.loads, done.stdout.splitlines()) if "id" in line}
    assert set(answers) == set(range(len(asked))), done.stdout
    assert "[secret removed]" in json.dumps(answers[2]), answers[2]
    assert "notifications/progress" in done.stdout
    written = {path: path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file()}
    assert any(path.name == "leaky.log" for path in written)
    texts = {"stdout": done.stdout, "stderr": done.stderr}
    texts |= {str(path): data.decode("utf-8", "replace") for path, data in written.items()}
    for secret in (SECRET, TOKEN):
        leaks = {name: text for name, text in texts.items() if reveals(text, secret)}
        assert not leaks, (secret, leaks)
