"""Asks a person before a call that the policy wants confirmed. Nothing is sent without a yes.

The question goes to the client as an elicitation, in either era: a form with one box. A client that did not declare
that it can ask is not asked; then the error says how the owner can allow the call. A yes is for one call only. While it
waits, an administrator may answer from the console: the first answer counts.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct

from toolfold.calls.pipeline import Check
from toolfold.errors import ConfirmationNeeded, Declined
from toolfold.text import printable
from toolfold.types import CallContext, ToolCall

if TYPE_CHECKING:
    from toolfold.policy.access import AccessControl
    from toolfold.policy.approvals import Approvals, Waiting

__all__ = ["MAX_SHOWN_CHARS", "_risk_text", "can_ask", "confirm"]

_ELICIT = "elicitation/create"
_ANSWER_WITHIN_S = 600.0
# What a person still reads. The arguments stand there whole up to it; past it, how much is hidden.
MAX_SHOWN_CHARS = 4_000

# What whoever is asked reads of a risk; one that the owner gave a tool stands as it is.
_RISK_WORDS = {
    "destructive": "may delete or overwrite something",
    "read-only": "only reads",
    "idempotent": "may be repeated without harm",
    "open-world": "reaches other systems",
    "unstated": "its server does not say whether it changes anything",
}

# The arguments as a person may read them, without secrets.
PrintArguments = Callable[[Raw], str]


class _Capabilities(Struct):
    elicitation: dict[str, Raw] | None = None


class _Answer(Struct):
    action: str = "cancel"
    content: dict[str, Raw] | None = None


def confirm(access: "AccessControl", print_arguments: PrintArguments) -> Check:
    """The check that asks the client's user where the policy says so."""

    def check(call: ToolCall, context: CallContext) -> Awaitable[ToolCall] | None:
        if context.confirmed or not access.requires_confirmation(call, context):
            return None
        return _ask_client(call, context, print_arguments(call.arguments), access.approvals)

    return check


async def _ask_client(call: ToolCall, context: CallContext, arguments: str, approvals: "Approvals") -> ToolCall:
    tool_id = call.tool.tool_id
    if context.on_input is None or not can_ask(context.capabilities):
        raise ConfirmationNeeded(
            f"{tool_id} needs a person's confirmation, and this client cannot ask for one",
            hints=[f"policy `{context.caller.policy}`, key `confirm`"],
            next_action="tell the user: they can call it with `toolfold call --yes` (in a script: `toolfold "
            "run --yes`), use a client that can ask, or take the tool out of `confirm` in the policy",
        )
    form = _confirmation_form(tool_id, call.tool.risks, arguments)
    try:
        with approvals.hold(call.tool, context.caller, printable(arguments, MAX_SHOWN_CHARS)) as waiting:
            async with asyncio.timeout(_ANSWER_WITHIN_S):
                accepted = await _first_answer(context.on_input(_ELICIT, form), waiting)
    except TimeoutError:
        raise Declined(
            f"nobody confirmed the call of {tool_id} within {_ANSWER_WITHIN_S:g} s; it was not made",
            next_action="ask the user, and call it again when they are there",
        ) from None
    if not accepted:
        raise Declined(
            f"the user did not confirm the call of {tool_id}; it was not made",
            next_action="do not try again as it is; ask the user what they want instead",
        )
    return call


async def _first_answer(asked: Awaitable[Raw], waiting: "Waiting") -> bool:
    """Whether the client's user said yes, or an administrator did; the other is asked no more."""
    client = asyncio.ensure_future(asked)
    try:
        await asyncio.wait((client, waiting.answer), return_when=asyncio.FIRST_COMPLETED)
        return waiting.answer.result() if waiting.answer.done() else _is_accepted(client.result())
    finally:
        if not client.done():
            client.cancel()
            await asyncio.wait((client,))
        if not client.cancelled():
            client.exception()  # whatever became of a question that nobody waits for any more


def _risk_text(risks: tuple[str, ...]) -> str:
    """What a tool may do, as a person reads it; empty where nothing is known."""
    return "; ".join(_RISK_WORDS.get(risk, risk) for risk in risks)


def _confirmation_form(tool_id: str, risks: tuple[str, ...], arguments: str) -> Raw:
    """A form with one box, in the words of the protocol."""
    known = _risk_text(risks)
    what = printable(f"{tool_id} ({known})" if known else tool_id, MAX_SHOWN_CHARS)
    form = {
        "mode": "form",
        "message": f"Allow this call of {what}?\nArguments: {printable(arguments, MAX_SHOWN_CHARS)}",
        "requestedSchema": {
            "type": "object",
            "properties": {"confirm": {"type": "boolean", "title": "Allow this call", "default": False}},
            "required": ["confirm"],
        },
    }
    return Raw(msgspec.json.encode(form))


def can_ask(capabilities: Raw | None, mode: str = "form") -> bool:
    """Whether a client declared that it can show a form, or open an address (`url`). Without a mode it has forms."""
    if capabilities is None:
        return False
    try:
        modes = msgspec.json.decode(capabilities, type=_Capabilities).elicitation
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return modes is not None and mode in (modes or ("form",))


def _is_accepted(answer: Raw) -> bool:
    try:
        form = msgspec.json.decode(answer, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return form.action == "accept" and form.content is not None and bytes(form.content.get("confirm", b"")) == b"true"
