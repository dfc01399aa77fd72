"""Asks the person behind a client to sign in, where a call fails for want of it. The call is then made again, once.

The server refused it before it did anything. A client that can show an address is asked through MCP (URL elicitation,
either era); any other gets the address in the error. The account of a server that all callers share is connected by
whoever runs the gateway alone: a stranger's account would otherwise serve everybody.
"""

import asyncio
import logging

import msgspec
from msgspec import Raw, Struct

from toolfold.auth.sign_ins import SignIn
from toolfold.calls.confirm import can_ask
from toolfold.errors import InputUnavailable, RemoteError, SignInRequired, ToolfoldError
from toolfold.types import LOCAL, CallContext, ToolCall
from toolfold.upstream.refresh import UpstreamManager
from toolfold.wire.jsonrpc import URL_ELICITATION_REQUIRED

__all__ = ["SignInByAddress", "SignInRequester", "with_address"]

# How long a request is held while a person signs in: most clients give up on one after a minute.
_HELD_S = 45.0
# How often a client that comes back too early is asked again.
_MAX_ROUNDS = 10


log = logging.getLogger("toolfold.calls")


class _Answer(Struct):
    action: str = "cancel"


class SignInByAddress(RemoteError):
    """For a client that repeats its request by itself, once it hears that a person has signed in."""


class SignInRequester:
    """Asks for the sign-ins to the servers of one gateway."""

    def __init__(self, servers: UpstreamManager) -> None:
        self._servers = servers

    async def __call__(self, call: ToolCall, context: CallContext, error: SignInRequired) -> None:
        """Returns once somebody has signed in. Raises `error`, or one that has the address in it."""
        await self.ask(call.tool.server, context, error)

    async def ask(self, server: str, context: CallContext, error: SignInRequired) -> None:
        """The same, where there is no call yet: a server may show a caller nothing before it has signed in."""
        credentials = self._servers.credentials
        owner = credentials.owner(server, context.caller.name)
        if not (owner or context.caller.name == LOCAL.name):
            raise SignInRequired(
                error.message, server=server, next_action=f"ask whoever runs this gateway to sign in to {server}"
            )
        if context.on_input is None:
            raise error
        try:
            sign_in = await credentials.sign_ins.begin(server, owner)
        except ToolfoldError as problem:
            log.warning("%s: nobody can be asked to sign in: %s", server, problem.message)
            raise error from problem
        if not can_ask(context.capabilities, "url"):
            raise with_address(error, sign_in)
        await self._ask(context, error, sign_in)

    async def _ask(self, context: CallContext, error: SignInRequired, sign_in: SignIn) -> None:
        form = {
            "mode": "url",
            "elicitationId": sign_in.identifier,
            "url": sign_in.url,
            "message": f"{error.message}. Open this address in your browser to sign in to {sign_in.server}.",
        }
        for _ in range(_MAX_ROUNDS):
            answer = await self._answer(context, form, error, sign_in)
            if answer != "accept":
                raise SignInRequired(
                    f"{sign_in.server} {SignInRequired.phrase}, and the user did not want to sign in now",
                    server=sign_in.server,
                    next_action="do not try again as it is; ask the user what they want instead",
                )
            await asyncio.wait([sign_in.done], timeout=_HELD_S)
            if sign_in.done.done():
                if sign_in.done.result() is None:
                    raise error
                return
            if getattr(context.on_input, "era", "") == "legacy":
                # The client repeats the call once it hears that the sign-in is done.
                raise SignInByAddress(error.message, rpc_code=URL_ELICITATION_REQUIRED, data={"elicitations": [form]})
        raise with_address(error, sign_in)

    async def _answer(self, context: CallContext, form: object, error: SignInRequired, sign_in: SignIn) -> str:
        assert context.on_input is not None  # noqa: S101 - looked at before
        try:
            answer = await context.on_input("elicitation/create", Raw(msgspec.json.encode(form)))
            return msgspec.json.decode(answer, type=_Answer).action
        except (InputUnavailable, msgspec.DecodeError):
            raise with_address(error, sign_in) from None


def with_address(error: SignInRequired, sign_in: SignIn, more: str = "") -> SignInRequired:
    return SignInRequired(
        error.message,
        server=sign_in.server,
        hints=[sign_in.url],
        next_action="ask the user to open the address in hints in a browser and to sign in there, then call again"
        + more,
    )
