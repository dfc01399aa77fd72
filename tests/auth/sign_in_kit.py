"""What the tests of logins share: a server whose answers carry their caller's mark, a terminal, a browser."""

import asyncio
import json
import os
import pty
import re
import shutil
import signal
import sys
import termios
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urljoin

import httpx2
import pytest
from misbehaving_http import Request, send
from provider import Form, ProtectedHttp, Provider

OBJECT = {"type": "object", "properties": {"n": {"type": "integer"}}}


@dataclass
class MarkedHttp(ProtectedHttp):
    """Says in every answer who signed in. Each account has `whoami`, and the tools of its own in `own`."""

    own: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    api_keys: Mapping[str, str] = field(default_factory=dict)
    """Values of the header `X-Api-Key` that will do as well, each with its account."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.calls: list[str] = []

    def _claims(self, token: str) -> dict[str, Any] | None:
        return super()._claims(token)

    async def _respond(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        account = self.api_keys.get(request.headers.get("x-api-key", ""))
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        claims = {"sub": account} if account else self._claims(token)
        if claims is None or request.method not in ("tools/list", "tools/call", "initialize", "server/discover"):
            return await super()._respond(request, reader, writer)
        if request.method not in ("tools/list", "tools/call") or request.method == self.hang:
            self.accepted.append(claims)
            return await super(ProtectedHttp, self)._respond(request, reader, writer)
        result: dict[str, Any]
        if request.method == "tools/list":
            names = ("whoami", *self.own.get(claims["sub"], ()))
            result = {"tools": [{"name": name, "description": name, "inputSchema": OBJECT} for name in names]}
        else:
            self.calls.append(claims["sub"])
            number = request.message["params"].get("arguments", {}).get("n", 0)
            result = {"content": [{"type": "text", "text": f"{claims['sub']} {number}"}]}
        result = {**result, "resultType": "complete", "ttlMs": 60_000, "cacheScope": "private"}
        body = json.dumps({"jsonrpc": "2.0", "id": request.message["id"], "result": result})
        return send(writer, 200, body.encode())


class Terminal:
    """A command of toolfold in a terminal of its own. Use it as `async with`."""

    def __init__(self, *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> None:
        self._command = [sys.executable, "-m", "toolfold", *arguments]
        clean = {name: value for name, value in os.environ.items() if name not in _HERE}
        self._env = {**clean, "TERM": "dumb", **(env or {})}
        self._cwd = cwd
        self.shown = ""
        self._news = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._parent, child = pty.openpty()
        termios.tcsetwinsize(child, (50, 400))
        self.process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=child,
            stdout=child,
            stderr=child,
            env=self._env,
            cwd=self._cwd,
            preexec_fn=_own_terminal,
        )
        os.close(child)
        asyncio.get_running_loop().add_reader(self._parent, self._read)
        return self

    def _read(self) -> None:
        try:
            data = os.read(self._parent, 65536)
        except OSError:  # how a terminal says that nobody writes any more
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._parent)
        self.shown += data.decode(errors="replace").replace("\r\n", "\n")
        self._news.set()

    async def until(self, text: str) -> str:
        """Waits until the text is shown, on whatever lines it is folded to; gives all that is."""
        async with asyncio.timeout(60):
            while text not in " ".join(self.shown.split()) and text not in self.shown:
                self._news.clear()
                try:
                    async with asyncio.timeout(50):
                        await self._news.wait()
                except TimeoutError:
                    raise AssertionError(f"{text!r} was never shown, but: {self.shown}") from None
        return self.shown

    def type(self, text: str) -> None:
        os.write(self._parent, text.encode())

    async def ended(self) -> int:
        async with asyncio.timeout(60):
            return await self.process.wait()

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        asyncio.get_running_loop().remove_reader(self._parent)
        os.close(self._parent)


# What tells a program that there is a browser, or that there is none.
_HERE = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "SSH_CONNECTION", "SSH_TTY")


def _own_terminal() -> None:
    """In the child: Ctrl-C reaches it, whoever ignored that before."""
    import fcntl

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def write_config(folder: Path, url: str, more: str = "") -> tuple[str, ...]:
    """A configuration of one server `box`; the options that lead to it."""
    config = folder / "toolfold.toml"
    config.write_text(f'[servers.box]\nurl = "{url}"\n{more}\n')
    return "--config", str(config), "--home", str(folder / "home")


class Browser:
    """A person's browser: opens what the gateway gave out, and signs in at the provider."""

    def __init__(self, issuer: Provider) -> None:
        self._issuer = issuer
        self._client = httpx2.AsyncClient(trust_env=False, timeout=60)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def start(self, url: str) -> str:
        """Reads the page of the gateway and goes on from there; the address at the provider."""
        page = await self._client.get(url)
        assert page.status_code == 200, page.text
        self.shown = page.text
        form = Form()
        form.feed(page.text)
        answer = await self._client.post(urljoin(url, form.action))
        assert answer.status_code == 303, answer.text
        return str(answer.headers["location"])

    async def finish(self, url: str, account: str) -> httpx2.Response:
        """Signs in at the provider, goes where it leads, and says that it is theirs where that is asked."""
        page = await self._client.get(await self._issuer.visit(url, account))
        form = Form()
        form.feed(page.text)
        return await self._client.post(urljoin(str(page.url), form.action)) if form.action else page

    async def sign_in(self, url: str, account: str) -> str:
        page = await self.finish(await self.start(url), account)
        assert page.status_code == 200, page.text
        return page.text


class Chromium:
    """A headless Chromium, driven as WebDriver says. Skips the test where there is none."""

    def __init__(self, profile: Path) -> None:
        driver, browser = shutil.which("chromedriver"), shutil.which("chromium") or shutil.which("chromium-browser")
        if driver is None or browser is None:
            pytest.skip("there is no chromium with its chromedriver here")
        self._driver = driver
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
        options = {"binary": browser, "args": arguments}
        self._wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            self._driver, "--port=0", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(30):
            while not (
                found := re.search(rb"successfully on port (\d+)", line := await self._process.stdout.readline())
            ):
                assert line
        self._client = httpx2.AsyncClient(base_url=f"http://127.0.0.1:{int(found[1])}", timeout=60, trust_env=False)
        self._session = f"/session/{(await self._post('/session', self._wanted))['sessionId']}"
        await self._post(f"{self._session}/timeouts", {"implicit": 20_000})  # a page may still be on its way
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.delete(self._session)
        await self._client.aclose()
        self._process.terminate()
        await self._process.wait()

    async def _post(self, path: str, body: Any) -> Any:
        answer = await self._client.post(path, json=body)
        assert answer.is_success, answer.text
        return answer.json()["value"]

    async def open(self, url: str) -> None:
        await self._post(f"{self._session}/url", {"url": url})

    async def _find(self, selector: str) -> str:
        element = await self._post(f"{self._session}/element", {"using": "css selector", "value": selector})
        return f"{self._session}/element/{next(iter(element.values()))}"

    async def fill_in(self, fields: Mapping[str, str]) -> None:
        for name, text in fields.items():
            await self._post(f"{await self._find(f'input[name={name}]')}/value", {"text": text})
        await self.press()

    async def press(self, which: str = "button") -> None:
        await self._post(f"{await self._find(which)}/click", {})

    async def text(self, wanted: str) -> str:
        """What the page says, once it says this."""
        script = {"script": "return document.body.innerText", "args": []}
        shown = ""
        async with asyncio.timeout(30):
            while wanted not in shown:
                shown = str(await self._post(f"{self._session}/execute/sync", script))
        return shown
