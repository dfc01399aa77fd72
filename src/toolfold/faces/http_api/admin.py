"""`/v1/admin`: servers, policies, callers and trust, changed as the command line changes them.

For callers whose policy says `admin = true`, and nobody else: whoever may add a server runs programs on this machine.
Every change is written to `toolfold.toml` by the code that the command line uses, and each gateway that reads the file
follows it within a second. Every attempt is in the audit log, without what was sent, which may hold secrets. Above:
`app.py`.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from toolfold.config import Settings
from toolfold.config.toml_file import TomlFile
from toolfold.errors import ConfigError, InvalidArguments, NotAuthorized, ToolfoldError
from toolfold.faces.http_api.request import _read_body, _RequestError
from toolfold.faces.identity import Identities
from toolfold.gateway import Gateway
from toolfold.types import Caller
from toolfold.wire.jsonrpc import DECODE_ERRORS

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

_MAX_BODY_BYTES = 256 * 1024
_ACTIONS = ("enable", "disable", "refresh")
# What a table is called in the file, by what it is called here.
_TABLES = {"policies": "policy", "callers": "callers"}
_READ_ONLY = "change it where it comes from, and roll that out; each gateway follows its own file"

_Answer = Mapping[str, Any]
_Work = Callable[[Caller, "Request"], Awaitable[_Answer]]


class _NewServer(Struct, frozen=True, forbid_unknown_fields=True):
    """A server as `[servers.NAME]` has it."""

    name: str
    server: dict[str, Any]


class _Accept(Struct, frozen=True, forbid_unknown_fields=True):
    """Ids of tools to accept as they are now; or all."""

    tools: list[str] = []
    all: bool = False


def _admin_routes(gateway: Gateway, guarded: Callable[..., Any]) -> "list[Route]":
    """The addresses; `guarded` knows who asks and turns errors into answers."""
    from starlette.routing import Route

    admin = _Admin(gateway)

    def route(path: str, work: _Work, *methods: str) -> Route:
        return Route(f"/v1/admin/{path}", guarded(partial(admin.allowed, work)), methods=list(methods))

    return [
        route("servers", admin.servers, "GET", "POST"),
        route("servers/{name}", admin.remove_server, "DELETE"),
        route("servers/{name}/{action}", admin.act, "POST"),
        route("trust", admin.trust, "GET", "POST"),
        *(route(kind, partial(admin.list_tables, kind), "GET") for kind in _TABLES),
        *(route(f"{kind}/{{name}}", partial(admin.change_table, kind), "PUT", "DELETE") for kind in _TABLES),
    ]


class _Admin:
    """What administrators may do."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def allowed(self, work: _Work, caller: Caller, request: "Request") -> _Answer:
        """Runs it for an administrator, and records it; reading is not recorded."""
        what = f"{request.method} {request.url.path}"
        try:
            if not self._gateway.access.is_admin(caller):
                raise NotAuthorized(
                    "this is for administrators, and your policy makes you none",
                    next_action="ask whoever runs the gateway; it is `admin = true` in a [policy.NAME] of its own",
                )
            answer = await work(caller, request)
        except ToolfoldError as error:
            problem = _as_request_error(error)
            self._gateway.audit_log.record_change(caller, what, problem)
            raise problem from error
        if request.method != "GET":
            self._gateway.audit_log.record_change(caller, what)
        return answer

    # --- servers

    async def servers(self, caller: Caller, request: "Request") -> _Answer:
        if request.method == "GET":
            keys = ("name", "transport", "status", "shown", "tools", "note", "error", "next_action")
            states = await self._gateway.servers()
            return {"servers": [{key: getattr(state, key) for key in keys} for state in states]}
        new = await _decoded(request, _NewServer, '{"name": "git", "server": {"command": "mcp-server-git"}}')
        file = self.file()
        spec, notes = await asyncio.to_thread(self.toml(file).add, new.name, new.server)
        return {"changed": f"servers.{new.name}", "file": str(file), "shown": spec.shown(), "notes": list(notes)}

    async def remove_server(self, caller: Caller, request: "Request") -> _Answer:
        file, name = self.file(), request.path_params["name"]
        backup = await asyncio.to_thread(self.toml(file).remove, name)
        return {"changed": f"servers.{name}", "file": str(file), "backup": str(backup)}

    async def act(self, caller: Caller, request: "Request") -> _Answer:
        name, action = request.path_params["name"], request.path_params["action"]
        if action not in _ACTIONS:
            raise _RequestError(
                404, "NOT_FOUND", f"a server cannot be told to {action[:40]!r}", hints=_ACTIONS, next_action="see hints"
            )
        known = self._gateway.settings.server(name).name
        if action == "refresh":
            await self._gateway.reread(known)
            [state] = [one for one in await self._gateway.servers() if one.name == known]
            return {"changed": "", "server": known, "tools": state.tools, "error": state.error}
        file = self.file()
        switch = partial(self.toml(file).switch, known, enabled=action == "enable")
        return {"changed": f"servers.{known}" if await asyncio.to_thread(switch) else "", "file": str(file)}

    # --- policies and callers

    async def list_tables(self, kind: str, caller: Caller, request: "Request") -> _Answer:
        """Never a key: of a caller it is said whether it has one."""
        settings = self._gateway.settings
        if kind == "policies":
            return {kind: [msgspec.to_builtins(policy) for policy in settings.policies]}
        hidden = [{**msgspec.to_builtins(one), "key": bool(one.key)} for one in settings.callers]
        return {kind: hidden}

    async def change_table(self, kind: str, caller: Caller, request: "Request") -> _Answer:
        file, name, section = self.file(), request.path_params["name"], _TABLES[kind]
        table = None
        if request.method == "PUT":
            table = await _decoded(request, dict[str, Any], '{"allow": ["git.*"]}')
        put = partial(self.toml(file).put, section, name, table, self.check)
        backup = await asyncio.to_thread(put)
        return {"changed": f"{section}.{name}", "file": str(file), "backup": str(backup)}

    def check(self, draft: Path) -> None:
        """Reads a draft as the gateway would. Raises `ConfigError`."""
        try:
            settings = Settings.load(draft, home=self._gateway.settings.home, require_servers=False)
            identities = Identities(settings)
        except ConfigError as error:
            said = [str(text).replace(str(draft), "the new file") for text in (error.message, *error.hints)]
            raise ConfigError(said[0], hints=said[1:], next_action=error.next_action) from None
        if identities.open and not Identities(self._gateway.settings).open:
            raise ConfigError(
                "the last key would go, and then anybody would be let in", next_action="add another caller first"
            )

    # --- trust

    async def trust(self, caller: Caller, request: "Request") -> _Answer:
        trust = self._gateway.trust
        if request.method == "GET":
            review = await trust.review()
            return {"tools": review.tools, "standings": msgspec.to_builtins(review.standings)}
        wanted = await _decoded(request, _Accept, '{"tools": ["git.log"]}')
        if bool(wanted.tools) is wanted.all:
            raise InvalidArguments("either name tools or say all", next_action='send {"tools": [...]} or {"all": true}')
        return {"accepted": await trust.accept(None if wanted.all else wanted.tools)}

    def toml(self, file: Path) -> TomlFile:
        """The file as what the gateway follows: refused where a change of it would wait for an acceptance."""
        return TomlFile(file, self._gateway.settings.found)

    def file(self) -> Path:
        """The file to change. Raises where there is none, or none that may be written."""
        sources = self._gateway.settings.sources
        file = next((source for source in sources if source.suffix == ".toml"), None)
        if file is None:
            why = f"{sources[0]} is another program's" if sources else "no file stands behind it"
        elif not os.access(Path(os.path.realpath(file)).parent, os.W_OK):
            why = f"{file} cannot be written from here"
        else:
            return file
        raise _RequestError(409, "CONFIG_READ_ONLY", f"the configuration is read-only: {why}", next_action=_READ_ONLY)


def _as_request_error(error: ToolfoldError) -> ToolfoldError:
    """What an administrator sent is wrong, where a configuration made from it would be."""
    if not isinstance(error, ConfigError):
        return error
    action = error.next_action or "nothing was changed; send it again as hints and message say"
    return InvalidArguments(error.message, hints=error.hints, next_action=action)


async def _decoded(request: "Request", kind: Any, example: str) -> Any:
    body = await _read_body(request, _MAX_BODY_BYTES)
    try:
        return msgspec.json.decode(body, type=kind)
    except DECODE_ERRORS as error:
        raise InvalidArguments(f"the request cannot be read: {error}"[:300], next_action=f"send {example}") from None
