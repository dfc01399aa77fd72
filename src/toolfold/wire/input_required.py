"""The modern form of elicitation: a result that asks for input, and the same request again with the answers.

Above: `connection.py`. The legacy form, a request of the server during a call, is in `peer.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Raw, Struct, field

from toolfold.errors import ProtocolViolation
from toolfold.wire.dispatcher import input_unavailable, unreadable_answer
from toolfold.wire.jsonrpc import ABSENT, DECODE_ERRORS, encode, single_line
from toolfold.wire.results import trailing_members
from toolfold.wire.types import OnInput

INPUT_METHODS = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The only requests whose result may ask for input."""

SendRequest = Callable[[Raw | None], Awaitable[Raw]]
"""Sends the request once, with these further members of `params`."""

_MAX_PAUSE_S = 1.0

_INPUT_REQUIRED = b"input_required"


class _InputRequest(Struct):
    method: str
    params: Raw = Raw(b"{}")


class _InputRequired(Struct):
    resultType: str = "complete"  # noqa: N815 - the protocol's spelling
    inputRequests: dict[str, _InputRequest] = field(default_factory=dict)  # noqa: N815 - as above
    requestState: Raw = ABSENT  # noqa: N815 - as above


def may_require_input(result: Raw) -> bool:
    """A quick look without decoding: whether `rounds` needs to look closer."""
    text = bytes(result)
    return trailing_members(text).get(b"resultType") != b'"complete"' and _INPUT_REQUIRED in text


async def run_input_rounds(
    method: str, result: Raw, once: SendRequest, who: Callable[[str], OnInput | None], most: int
) -> Raw:
    """Answers and repeats until the result is complete."""
    for turn in range(most):
        required = _parse(method, result)
        if required is None:
            return result
        if not required.inputRequests:
            if required.requestState is ABSENT:
                raise unreadable_answer(method, "it asks for input without saying which")
            await asyncio.sleep(min(0.05 * 2**turn, _MAX_PAUSE_S) if turn else 0)
        answers = {key: await _ask(wanted, who(wanted.method)) for key, wanted in required.inputRequests.items()}
        members = {"inputResponses": Raw(encode(answers))} if answers else {}
        if required.requestState is not ABSENT:
            members["requestState"] = required.requestState
        result = await once(Raw(encode(members)))
    if _parse(method, result) is None:
        return result
    raise ProtocolViolation(
        f"the server asked for input {most} times during one {method}",
        next_action="report this to the author of the server",
    )


def _parse(method: str, result: Raw) -> _InputRequired | None:
    if not may_require_input(result):
        return None
    try:
        found = msgspec.json.decode(result, type=_InputRequired)
    except DECODE_ERRORS as error:
        raise unreadable_answer(method, f"its wish for input is malformed ({error})") from error
    return found if found.resultType == "input_required" else None


async def _ask(wanted: _InputRequest, answer: OnInput | None) -> Raw:
    if answer is None:
        raise input_unavailable(wanted.method)
    return Raw(single_line(await answer(wanted.method, wanted.params)))


def append_members(answered: Raw | None) -> bytes:
    """The further members, to stand after others."""
    return b"," + bytes(answered)[1:-1] if answered is not None else b""


def merge_members(params: Raw | None, answered: Raw | None) -> Raw | None:
    """`params` with the further members."""
    if answered is None:
        return params
    text = single_line(params).strip() if params is not None else b"{}"
    rest = text[1:].lstrip()
    return Raw(bytes(answered)[:-1] + (b"" if rest.startswith(b"}") else b",") + rest)
