"""A program gets of the environment what it needs to start as it does in a client, and no secret by accident."""

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest
from misbehaving_stdio import misbehaving

from toolfold.__main__ import main
from toolfold.config import Settings
from toolfold.faces.cli.server_lines import server_lines
from toolfold.faces.cli.terminal import Output
from toolfold.gateway import Gateway
from toolfold.types import ServerSpec
from toolfold.wire.process import _INHERITED

PAGE = Path(__file__).resolve().parents[2] / "docs" / "servers.md"

PASSED = {
    "NODE_EXTRA_CA_CERTS": "/corp.pem",
    "SSL_CERT_FILE": "/corp.pem",
    "HTTPS_PROXY": "http://proxy.example:3128",
    "no_proxy": "localhost",
    "NPM_CONFIG_REGISTRY": "https://npm.example",
    "npm_config_cache": "/cache",
    "UV_INDEX_URL": "https://pypi.example/simple",
    "PIP_INDEX_URL": "https://pypi.example/simple",
    "DOCKER_HOST": "unix:///run/docker.sock",
    "SSH_AUTH_SOCK": "/run/agent",
    "DISPLAY": ":0",
    "WAYLAND_DISPLAY": "wayland-0",
    "XDG_RUNTIME_DIR": "/run/user/1",
    "JAVA_HOME": "/jdk",
    "NVM_DIR": "/nvm",
}
KEPT = {
    "GITHUB_TOKEN": "t1",
    "AWS_SECRET_ACCESS_KEY": "t2",
    "NPM_TOKEN": "t3",
    "UV_INDEX_CORP_PASSWORD": "t4",
    "DOCKER_AUTH_CONFIG": "t5",
    "NODE_AUTH_TOKEN": "t6",
    "CORP_REGION": "north",
}


def environment_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: str = "", own: str = ""
) -> dict[str, str]:
    """What a server that is started by the command line finds in its environment."""
    target = misbehaving()
    args = json.dumps(list(target.args))
    text = f"{more}\n[servers.bad]\ncommand = {json.dumps(target.command)}\nargs = {args}\n{own}\n"
    (folder / "toolfold.toml").write_text(text)
    for name, value in (PASSED | KEPT).items():
        monkeypatch.setenv(name, value)
    options = ["--config", str(folder / "toolfold.toml"), "--home", str(folder / "home"), "--json"]
    assert main([*options, "build", "--no-search"]) == 0
    capsys.readouterr()
    assert main([*options, "call", "bad.environment"]) == 0
    answer = json.loads(capsys.readouterr().out)
    text = re.sub(r'\\+"', '"', json.dumps(answer))
    return dict(re.findall(r'"([A-Za-z_]+)": "([^"]*)"', text))


def test_17_02_what_programs_need_is_passed_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = environment_of(tmp_path, monkeypatch, capsys)
    assert {name: found.get(name) for name in PASSED} == PASSED
    assert not KEPT.keys() & found.keys()


def test_17_02_defaults_and_named_variables_are_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    more = '[defaults]\nenv = { LOG_LEVEL = "info", WHO = "all" }\ninherit_env = ["CORP_*"]\n'
    own = 'env = { WHO = "me" }\ninherit_env = "GITHUB_TOKEN"\n'
    found = environment_of(tmp_path, monkeypatch, capsys, more, own)
    assert (found["LOG_LEVEL"], found["WHO"], found["CORP_REGION"]) == ("info", "me", "north")
    assert "GITHUB_TOKEN" in found
    assert "AWS_SECRET_ACCESS_KEY" not in found


def test_17_02_the_page_lists_what_is_passed() -> None:
    section = PAGE.read_text("utf-8").partition("## Environment")[2].partition("**Nothing else")[0]
    assert re.findall(r"`([^`]+)`", section) == list(_INHERITED)


@pytest.mark.parametrize(
    ("server", "seconds"),
    [
        ('command = "npx"\nargs = ["-y", "x"]', 120),
        ('command = "/usr/bin/docker"\nargs = ["run", "x"]', 120),
        ('command = "bash"\nargs = ["-lc", "uvx x"]', 120),
        ('command = "uvx"\nstart_timeout_s = 5', 5),
        ('command = "mcp-server-git"', 30),
    ],
)
def test_17_02_what_may_have_to_download_has_more_time(tmp_path: Path, server: str, seconds: float) -> None:
    (tmp_path / "toolfold.toml").write_text(f"[servers.a]\n{server}\n")
    (spec,) = Settings.load(cwd=tmp_path, environ={"HOME": str(tmp_path), "TOOLFOLD_TRUST_PROJECT": "1"}).servers
    assert spec.start_timeout_s == seconds


def test_17_02_what_a_slow_server_writes_is_shown_while_it_is_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "import sys; sys.stderr.write('fetching packages\\n'); sys.stderr.flush(); sys.stdin.readline(); input()"
    slow = ServerSpec(name="slow", transport="stdio", command=sys.executable, args=("-c", code), start_timeout_s=60)
    quick = misbehaving()
    ready = ServerSpec(name="ready", transport="stdio", command=quick.command, args=quick.args)
    settings = Settings(servers=(slow, ready), home=tmp_path)

    async def main_loop() -> str:
        async with Gateway(settings) as gateway:
            with server_lines(gateway, Output(), slow_s=0.3):
                reading = asyncio.create_task(gateway.servers(connect=True))
                told = ""
                while "slow: fetching packages" not in told:
                    await asyncio.sleep(0.02)
                    told += capsys.readouterr().err
                reading.cancel()
                return told

    assert "ready:" not in asyncio.run(main_loop())


def test_17_02_a_server_that_is_not_ready_says_what_it_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "import sys, time; sys.stderr.write('fetching 3 of 9 packages\\n'); sys.stderr.flush(); time.sleep(60)"
    for name, args in (("loud", ["-c", code]), ("mute", ["-c", "import time; time.sleep(60)"])):
        text = f"command = {json.dumps(sys.executable)}\nargs = {json.dumps(args)}\nstart_timeout_s = 0.5\n"
        with (tmp_path / "toolfold.toml").open("a") as file:
            file.write(f"[servers.{name}]\n{text}\n")
    assert main(["--config", str(tmp_path / "toolfold.toml"), "--home", str(tmp_path / "home"), "build"]) == 3
    told = capsys.readouterr().err
    assert "loud: the server was not ready within 0.5 seconds; its last words: fetching 3 of 9 packages" in told
    assert "mute: the server was not ready within 0.5 seconds and wrote nothing about it" in told
    assert "inherit_env" in told
