"""`toolfold login` by itself: it finds who waits, goes through all of them, and says what it cannot do."""

import json
import os
import re
import socket
from pathlib import Path

import pytest
from pages import METADATA, Pages, pages
from sign_in_kit import MarkedHttp, write_config
from test_18_login_job import ADDRESS, job, login
from test_18_state_folder import KEY, toolfold

pytestmark = [pytest.mark.usefixtures("no_proxy"), pytest.mark.requirement("G-12")]

SERVICE = '\n[servers.{name}.oauth]\ngrant = "client_credentials"\nclient_id = "me"\nclient_secret = "${{SECRET}}"\n'


def service(server: Pages, name: str) -> str:
    return f'[servers.{name}]\nurl = "{server.origin}/mcp"{SERVICE.format(name=name)}'


async def test_all_that_wait_are_gone_through_also_before_a_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "a-secret-of-the-client")
    async with pages() as good, pages() as down, MarkedHttp() as free:
        good.honest()
        down.honest()
        down.pages[METADATA] = (503, b"")
        free.free = ("server/discover", "initialize", "tools/list")
        config = tmp_path / "toolfold.toml"
        config.write_text(f'{service(down, "first")}[servers.plain]\nurl = "{free.url}"\n{service(good, "second")}')
        code, said = await toolfold(tmp_path, "--config", str(config), "login")
        assert code == 3
        assert "answered with status 503" in said
        assert "signed in to second" in said
        # What nobody asked yet is asked: one that lets everybody in waits for nobody.
        config.write_text(f'[servers.plain]\nurl = "{free.url}"\n[servers.box]\nurl = "{good.origin}/mcp"\n')
        code, said = await toolfold(tmp_path, "--config", str(config), "login")
        assert code == 2
        assert "nobody can sign in to box here" in said
        assert "plain" not in said
        good.pages["/mcp"] = (200, b"{}")
        code, said = await toolfold(tmp_path, "--config", str(config), "login", "--json")
        assert code == 0
        assert json.loads(said.partition("login SERVER")[2]) == []
    code, said = await toolfold(tmp_path, "--config", str(config), "login")
    assert code == 3
    assert "box could not be asked whether it wants a sign-in" in said


async def test_a_port_that_is_taken_leaves_the_paste(tmp_path: Path) -> None:
    async with pages() as server:
        server.honest()
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            more = f"[servers.box.oauth]\nredirect_port = {port}\n"
            config = write_config(tmp_path, f"{server.origin}/mcp", more)
            read, write = os.pipe()
            async with job(*config, "login", "box", "--no-browser", stdin=read) as running:
                os.close(read)
                found = await running.until(ADDRESS)
                assert f"127.0.0.1:{port} cannot be listened on" in running.said
                state = re.search(r"state=([^&\s]+)", found[0])
                assert state is not None
                os.write(write, f"http://127.0.0.1:{port}/oauth/callback?code=x&state={state[1]}\n".encode())
                assert await running.ended() == 0
                assert "signed in to box" in running.said
                os.close(write)
            environment = {"BROWSER": "true", "DISPLAY": ":99"}
            async with job(*config, "login", "box", more=environment) as running:
                assert await running.ended() == 2
                assert "or use --no-browser" in running.said


async def test_a_token_endpoint_that_is_none_ends_the_wait_for_a_code(tmp_path: Path) -> None:
    async with pages() as server:
        server.honest(device_authorization_endpoint=f"{server.origin}/device")
        device = {"device_code": "d", "user_code": "ABCD", "verification_uri": f"{server.origin}/go", "interval": 1}
        server.pages["/device"] = device
        server.pages["/token"] = (400, b"<html>", {"Content-Type": "text/html"})
        async with job(*login(server, tmp_path, "--device")) as running:
            await running.until("says HTTP status 400; it is asked again")
            assert await running.ended() == 3
            assert "the sign-in to box did not succeed" in running.said
        assert [request.path for request in server.seen].count("/token") == 3


async def test_a_key_of_two_lines_is_no_key(tmp_path: Path) -> None:
    async with MarkedHttp(api_keys={KEY.decode().strip(): "ada"}) as server:
        config = write_config(tmp_path, server.url)
        code, said = await toolfold(
            tmp_path, *config, "login", "box", "--header", "X-Api-Key", stdin=KEY + b"another line\n"
        )
        assert code == 2
        assert "standard input holds more than one line" in said
    assert not list((tmp_path / "home/sign-ins").glob("*.sealed"))
