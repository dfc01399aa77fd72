"""The modern form of elicitation: a result that asks for input, and the same request again with the answers.

Above: `connection.py`. The legacy form, a request of the server during a call, is in `peer.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Raw, Struct, field

from toolfold.errors import ProtocolViolation
from toolfold.wire.jsonrpc import ABSENT, UNREADABLE, encode, one_line
from toolfold.wire.peer import nobody_answers, unreadable
from toolfold.wire.tail import last_members
from toolfold.wire.values import OnInput

METHODS = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The only requests whose result may ask for input."""

Once = Callable[[Raw | None], Awaitable[Raw]]
"""Sends the request once, with these further members of `params`."""

LONGEST_PAUSE_S = 1.0

_MARK = b"input_required"


class _Wanted(Struct):
    method: str
    params: Raw = Raw(b"{}")


class _Required(Struct):
    resultType: str = "complete"  # noqa: N815 - the protocol's spelling
    inputRequests: dict[str, _Wanted] = field(default_factory=dict)  # noqa: N815 - as above
    requestState: Raw = ABSENT  # noqa: N815 - as above


def may_be_required(result: Raw) -> bool:
    """A quick look without decoding: whether `rounds` needs to look closer."""
    text = bytes(result)
    return last_members(text).get(b"resultType") != b'"complete"' and _MARK in text


async def rounds(method: str, result: Raw, once: Once, who: Callable[[str], OnInput | None], most: int) -> Raw:
    """Answers and repeats until the result is complete."""
    for turn in range(most):
        required = _read(method, result)
        if required is None:
            return result
        if not required.inputRequests:
            if required.requestState is ABSENT:
                raise unreadable(method, "it asks for input without saying which")
            await asyncio.sleep(min(0.05 * 2**turn, LONGEST_PAUSE_S) if turn else 0)
        answers = {key: await _ask(wanted, who(wanted.method)) for key, wanted in required.inputRequests.items()}
        members = {"inputResponses": Raw(encode(answers))} if answers else {}
        if required.requestState is not ABSENT:
            members["requestState"] = required.requestState
        result = await once(Raw(encode(members)))
    if _read(method, result) is None:
        return result
    raise ProtocolViolation(
        f"the server asked for input {most} times during one {method}",
        next_action="report this to the author of the server",
    )


def _read(method: str, result: Raw) -> _Required | None:
    if not may_be_required(result):
        return None
    try:
        found = msgspec.json.decode(result, type=_Required)
    except UNREADABLE as error:
        raise unreadable(method, f"its wish for input is malformed ({error})") from error
    return found if found.resultType == "input_required" else None


async def _ask(wanted: _Wanted, answer: OnInput | None) -> Raw:
    if answer is None:
        raise nobody_answers(wanted.method)
    return Raw(one_line(await answer(wanted.method, wanted.params)))


def appended(answered: Raw | None) -> bytes:
    """The further members, to stand after others."""
    return b"," + bytes(answered)[1:-1] if answered is not None else b""


def joined(params: Raw | None, answered: Raw | None) -> Raw | None:
    """`params` with the further members."""
    if answered is None:
        return params
    text = one_line(params).strip() if params is not None else b"{}"
    rest = text[1:].lstrip()
    return Raw(bytes(answered)[:-1] + (b"" if rest.startswith(b"}") else b",") + rest)
