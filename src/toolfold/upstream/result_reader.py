"""Reads the result of a call as its server sent it: whether it failed, and whether a client of MCP can read it.

One that has the protocol's form goes on byte for byte. Of another, what came becomes text, and a note says so: clients
refuse such a result whole, and a call that was made would look like one that was not. Above: `mcp.py` and
`toolfold.outputs`. Below: `toolfold.wire`.
"""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field
from msgspec.json import Decoder, encode

from toolfold.errors import ProtocolViolation
from toolfold.text import has_large_number
from toolfold.types import EMPTY_OBJECT, Outcome
from toolfold.wire.jsonrpc import ABSENT, DECODE_ERRORS
from toolfold.wire.repair import add_note, is_plain

_AS_TEXT = "the server's result was not of the form that MCP asks for; what came stands as text"
_NO_CONTENT = "the server sent a result without content"


class _Block(Struct, tag_field="type"):
    annotations: dict[str, Any] | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class _Text(_Block, tag="text", kw_only=True):
    text: str


class _Image(_Block, tag="image", kw_only=True):
    data: str
    mime_type: str = field(name="mimeType")


class _Audio(_Block, tag="audio", kw_only=True):
    data: str
    mime_type: str = field(name="mimeType")


class _Link(_Block, tag="resource_link", kw_only=True):
    uri: str
    name: str


class _Contents(Struct):
    uri: str
    text: str | UnsetType = UNSET
    blob: str | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.text is UNSET and self.blob is UNSET:
            raise ValueError("it has neither text nor blob")


class _Resource(_Block, tag="resource", kw_only=True):
    resource: _Contents


_AnyBlock = _Text | _Image | _Audio | _Link | _Resource


class _Result(Struct):
    content: list[_AnyBlock]
    is_error: bool = field(name="isError", default=False)
    meta: dict[str, Raw] | None = field(name="_meta", default=None)


class _OnlyText(Struct, forbid_unknown_fields=True):
    type: Literal["text"]
    text: str


class _OnlyTexts(Struct, forbid_unknown_fields=True):
    """The form of most results: nothing in it but `_meta` can speak in our name, and `content` has no numbers."""

    content: list[_OnlyText]
    is_error: bool = field(name="isError", default=False)
    result_type: Literal["complete"] = field(name="resultType", default="complete")
    structured: Raw = field(name="structuredContent", default=ABSENT)
    meta: dict[str, Raw] | UnsetType | None = field(name="_meta", default=UNSET)


_texts = Decoder(_OnlyTexts)
_result = Decoder(_Result)
_block = Decoder(_AnyBlock)
_members = Decoder(dict[str, Raw])
_NULL = Raw(b"null")
_OWN_MEMBERS = frozenset({"content", "structuredContent", "isError", "_meta", "resultType"})


class ResultReader:
    """Reads the result of one call, and tells on the way whether it needs repair: a search alone would cost more."""

    __slots__ = ("_outcome",)

    def __init__(self) -> None:
        self._outcome: Outcome | None = None

    def is_plain(self, result: Raw) -> bool:
        """Whether a result of texts needs no repair. False: it has another form, or something in it."""
        try:
            found = _texts.decode(result)
        except DECODE_ERRORS:
            return False
        # The whole is searched: of a member that stands there twice, only the second was kept.
        if found.meta is not UNSET and not is_plain(bytes(result)):
            return False
        if found.meta is UNSET and found.structured is not ABSENT and has_large_number(bytes(result)):
            return False
        self._outcome = Outcome(raw=result, is_error=found.is_error)
        return True

    def read(self, result: Raw) -> Outcome:
        """The outcome of the call that was answered so. Raises `ProtocolViolation` for what is no object."""
        known = self._outcome
        return known if known is not None and known.raw is result else _read_outcome(result)


def _read_outcome(result: Raw) -> Outcome:
    try:
        return Outcome(raw=result, is_error=_result.decode(result).is_error)
    except DECODE_ERRORS:
        pass
    try:
        members = _members.decode(result)
    except DECODE_ERRORS as error:
        raise ProtocolViolation(
            f"the result of the call cannot be read: {error}", next_action="Report this to the server's authors."
        ) from error
    if members.get("resultType") == Raw(b'"input_required"'):
        return Outcome(raw=result)
    return _mended(members)


def _mended(members: dict[str, Raw]) -> Outcome:
    is_error = members.get("isError") == Raw(b"true")
    blocks = _readable(members.get("content", _NULL)) or _without_content(members)
    meta = members.get("_meta", _NULL)
    kept = {"content": blocks, "isError": is_error, "_meta": meta if bytes(meta)[:1] == b"{" else EMPTY_OBJECT}
    note = _AS_TEXT if blocks else _NO_CONTENT
    return Outcome(raw=add_note(Raw(encode({**members, **kept})), note), is_error=is_error)


def _readable(content: Raw) -> list[Raw]:
    """Blocks that have the protocol's form as they are, all else as text."""
    if bytes(content)[:1] == b"[":
        blocks = msgspec.json.decode(content, type=list[Raw])
        return [block if _is_block(block) else _text(block) for block in blocks]
    return [] if content == _NULL else [_text(content)]


def _without_content(members: dict[str, Raw]) -> list[Raw]:
    """The structured content as text, or whatever else came."""
    further = {name: value for name, value in members.items() if name not in _OWN_MEMBERS}
    said = members.get("structuredContent", Raw(encode(further)) if further else _NULL)
    return [] if said == _NULL else [_text(said)]


def _is_block(block: Raw) -> bool:
    try:
        _block.decode(block)
    except DECODE_ERRORS:
        return False
    return True


def _text(value: Raw) -> Raw:
    """A value as a block of text: a string as it is, all else as its JSON."""
    try:
        text = msgspec.json.decode(value, type=str)
    except DECODE_ERRORS:
        text = bytes(value).decode("utf-8", "replace")
    return Raw(encode({"type": "text", "text": text}))
