"""Asks a person before a call that the policy wants confirmed. Nothing is sent without a yes.

The question goes to the client as an elicitation, in either era: a form with one box. A client that did not declare
that it can ask is not asked; then the error says how the owner can allow the call. A yes is for one call only.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Raw, Struct

from toolfold.calls.pipeline import CallRequest, Check
from toolfold.errors import ConfirmationNeeded, Declined

ELICIT = "elicitation/create"
ANSWER_WITHIN_S = 600.0
SHOWN_ARGUMENTS = 600

Wanted = Callable[[CallRequest], bool]
"""Whether the policy wants this call confirmed."""

Shown = Callable[[CallRequest], str]
"""The arguments as a person may read them."""


class _Capabilities(Struct):
    elicitation: dict[str, Raw] | None = None


class _Answer(Struct):
    action: str = "cancel"
    content: dict[str, Raw] | None = None


def confirmation(wanted: Wanted, shown: Shown) -> Check:
    def check(request: CallRequest) -> Awaitable[CallRequest] | None:
        return _ask_client(request, shown(request)) if not request.confirmed and wanted(request) else None

    return check


async def _ask_client(request: CallRequest, arguments: str) -> CallRequest:
    tool_id = request.tool.tool_id
    if request.on_input is None or not _can_ask(request.capabilities):
        raise ConfirmationNeeded(
            f"{tool_id} needs a person's confirmation, and this client cannot ask for one",
            hints=[f"policy `{request.caller.policy}`, key `confirm`"],
            next_action="tell the user: they can call it with `toolfold call --yes`, use a client that can ask, or "
            "take the tool out of `confirm` in the policy",
        )
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            given = await request.on_input(ELICIT, _confirmation_form(tool_id, request.tool.risks, arguments))
    except TimeoutError:
        raise Declined(
            f"nobody confirmed the call of {tool_id} within {ANSWER_WITHIN_S:g} s; it was not made",
            next_action="ask the user, and call it again when they are there",
        ) from None
    if not _is_accepted(given):
        raise Declined(
            f"the user did not confirm the call of {tool_id}; it was not made",
            next_action="do not try again as it is; ask the user what they want instead",
        )
    return request


def _confirmation_form(tool_id: str, risks: tuple[str, ...], arguments: str) -> Raw:
    """A form with one box, in the words of the protocol."""
    more = f" ({', '.join(risks)})" if risks else ""
    short = arguments if len(arguments) <= SHOWN_ARGUMENTS else arguments[:SHOWN_ARGUMENTS] + " …"
    form = {
        "mode": "form",
        "message": f"Allow this call of {tool_id}{more}?\nArguments: {short}",
        "requestedSchema": {
            "type": "object",
            "properties": {"confirm": {"type": "boolean", "title": "Allow this call", "default": False}},
            "required": ["confirm"],
        },
    }
    return Raw(msgspec.json.encode(form))


def _can_ask(capabilities: Raw | None) -> bool:
    """Whether a client declared that it can show a form. One that names no mode can."""
    if capabilities is None:
        return False
    try:
        found = msgspec.json.decode(capabilities, type=_Capabilities).elicitation
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return found is not None and (not found or "form" in found)


def _is_accepted(answer: Raw) -> bool:
    try:
        given = msgspec.json.decode(answer, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return (
        given.action == "accept" and given.content is not None and bytes(given.content.get("confirm", b"")) == b"true"
    )
