"""Resources, templates, prompts and skills of an MCP server as leaves of the catalogue: listed, read, asked for.

A list that is too long, too large or too slow is cut, with a warning, and never costs the server its tools. What is
called as a tool is answered like one, so that a large resource becomes a handle; a request of the protocol gets the
server's own result. A file of a skill is one of its digest and size, or an error. Above: `mcp.py`. Below: the wire.
"""

import asyncio
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct
from msgspec.json import Decoder, encode

from toolfold.errors import InvalidArguments, ProtocolViolation, UpstreamError
from toolfold.leaf_address import MAX_URI_CHARS, fold_uri, skill_address
from toolfold.skill_entry import EXTENSION, MAX_ENTRY_BYTES, SKILL_FILE, SkillEntry, check_entry
from toolfold.text import printable
from toolfold.types import Annotations, Kind, Tool, ToolCall, ToolDefinition
from toolfold.uri_template import UriTemplate
from toolfold.wire.jsonrpc import DECODE_ERRORS
from toolfold.wire.types import PROMPTS_CHANGED, RESOURCES_CHANGED

__all__ = ["LISTED_BY", "call_result", "list_leaves", "read_leaf", "read_skill", "request_of", "watched_lists"]

# Of one server and kind, and how large one of them may be; resources that real servers list are far below.
MAX_LEAVES = 10_000
MAX_LEAF_BYTES = 64 << 10
MAX_LIST_BYTES = 16 << 20
MAX_PAGES = 1_000
MAX_ARGUMENTS = 64
_MAX_WARNINGS = 10
_SHOWN = 80

_Request = Callable[[str, Raw | None], Awaitable[Raw]]


class _Listed(Struct, frozen=True):
    """How one kind is listed: the capability that says so, the method, and where its entries stand in the answer."""

    capability: str
    method: str
    member: str
    key: str
    """What an entry is read by."""


LISTED_BY: Mapping[Kind, _Listed] = {
    "resource": _Listed("resources", "resources/list", "resources", "uri"),
    "template": _Listed("resources", "resources/templates/list", "resourceTemplates", "uriTemplate"),
    "prompt": _Listed("prompts", "prompts/list", "prompts", "name"),
    "skill": _Listed(EXTENSION, "skills/list", "skills", "uri"),
}
_READ_ONLY = Annotations(read_only=True, destructive=False)
_CHANGED = {"prompts": PROMPTS_CHANGED, "resources": RESOURCES_CHANGED}

_members = Decoder(dict[str, Raw])
_entries = Decoder(list[Raw])
_value = Decoder()
_END = (b"", b"null", b'""')


def watched_lists(capabilities: Raw) -> dict[str, str]:
    """The lists besides that of the tools whose changes a server tells of, with the notification."""
    declared = _declared(capabilities)
    return {name: method for name, method in _CHANGED.items() if declared.get(name, {}).get("listChanged")}


def _declared(capabilities: Raw) -> dict[str, dict[str, Any]]:
    try:
        found = _value.decode(capabilities)
    except DECODE_ERRORS:
        return {}
    if not isinstance(found, dict):
        return {}
    extensions = found.get("extensions")
    found |= extensions if isinstance(extensions, dict) else {}
    return {key: value for key, value in found.items() if isinstance(value, dict)}


async def list_leaves(request: _Request, capabilities: Raw, within_s: float) -> tuple[list[ToolDefinition], list[str]]:
    """All leaves of a server that are no tools, and a sentence for each thing that was wrong."""
    declared = _declared(capabilities)
    lists = [_List(kind, how) for kind, how in LISTED_BY.items() if how.capability in declared]
    await asyncio.gather(*(one.read_within(request, within_s) for one in lists))
    return _without_skill_files(lists), [warning for one in lists for warning in one.warnings]


def _without_skill_files(lists: "list[_List]") -> list[ToolDefinition]:
    """What is a file of a skill, or makes one, is read as one: as a resource it would have no digest and no trust."""
    leaves = [leaf for one in lists for leaf in one.found.values()]
    roots = tuple(fold_uri(leaf.address).removesuffix(SKILL_FILE.casefold()) for leaf in leaves if leaf.kind == "skill")
    return [leaf for leaf in leaves if leaf.kind in ("prompt", "skill") or not fold_uri(leaf.address).startswith(roots)]


class _List:
    """The list of one kind, as far as it was read."""

    def __init__(self, kind: Kind, how: _Listed) -> None:
        self.kind = kind
        self.how = how
        self.found: dict[str, ToolDefinition] = {}
        self._said: list[str] = []
        self._unsaid = 0
        self._left = MAX_LIST_BYTES

    @property
    def warnings(self) -> list[str]:
        more = f"and {self._unsaid:,} more warnings about this server's {self.how.member}"
        return [*self._said, more] if self._unsaid else self._said

    def warn(self, text: str) -> None:
        if len(self._said) < _MAX_WARNINGS:
            self._said.append(text)
        else:
            self._unsaid += 1

    async def read_within(self, request: _Request, seconds: float) -> None:
        """Reads what comes in that time."""
        try:
            async with asyncio.timeout(seconds):
                await self._read(request)
        except TimeoutError:
            self.warn(f"its {self.how.member} took over {seconds:g} s to list; what came so far was kept")
        except UpstreamError as error:
            # Many servers have resources and no templates, and say so by an error.
            if self.found or self.kind != "template":
                self.warn(f"its {self.how.member} could not be listed: {printable(error.message, 200)}")

    async def _read(self, request: _Request) -> None:
        """Follows every cursor, but none twice, within the limits."""
        cursors: set[bytes] = set()
        cursor = b""
        for _ in range(MAX_PAGES):
            result = await request(self.how.method, Raw(b'{"cursor":%b}' % cursor) if cursor else None)
            cursor = self._add(result)
            if cursor in _END:
                return
            if cursor in cursors or self._left <= 0 or len(self.found) >= MAX_LEAVES:
                break
            cursors.add(cursor)
        self.warn(
            f"its list of {self.how.member} repeats its pages or has no end: {len(self.found):,} were kept, of at most "
            f"{MAX_LEAVES:,} in {MAX_LIST_BYTES >> 20} MiB"
        )

    def _add(self, result: Raw) -> bytes:
        try:
            page = _members.decode(result)
            entries = _entries.decode(page.get(self.how.member, Raw(b"[]")))
        except DECODE_ERRORS as error:
            self.warn(f"its list of {self.how.member} cannot be read: {error}")
            return b""
        self._left -= memoryview(result).nbytes
        for entry in entries[: MAX_LEAVES - len(self.found)]:
            try:
                leaf = read_leaf(self.kind, entry.copy())  # a slice would keep the whole page
            except ValueError as error:
                self.warn(f"one of its {self.how.member} was left out: {error}")
            else:
                self.found.setdefault(leaf.address, leaf)
        return bytes(page.get("nextCursor", Raw(b"")))


def read_leaf(kind: Kind, raw: Raw) -> ToolDefinition:
    """A leaf as its server sent it. Raises `ValueError` with the reason for one that nobody could read."""
    if kind == "skill":
        return read_skill(raw)
    if len(memoryview(raw)) > MAX_LEAF_BYTES:
        raise ValueError(f"it has over {MAX_LEAF_BYTES:,} bytes")
    try:
        sent = _value.decode(raw)
    except DECODE_ERRORS as error:
        raise ValueError(str(error)) from None
    sent = sent if isinstance(sent, dict) else {}
    address = _text(sent, LISTED_BY[kind].key)
    if not address or len(address) > MAX_URI_CHARS:
        raise ValueError(f"its {LISTED_BY[kind].key} is empty or over {MAX_URI_CHARS:,} characters")
    return ToolDefinition(
        name=_text(sent, "name") or address,
        raw=raw,
        title=_text(sent, "title"),
        description=_text(sent, "description"),
        input_schema=Raw(encode(_schema(kind, address, sent))),
        annotations=_READ_ONLY,
        kind=kind,
        address=address,
    )


def read_skill(raw: Raw) -> ToolDefinition:
    """The same of a skill; the order of its files means nothing, and makes no other skill of it."""
    if len(memoryview(raw)) > MAX_ENTRY_BYTES:
        raise ValueError(f"it has over {MAX_ENTRY_BYTES:,} bytes")
    entry = check_entry(raw)
    name = entry.frontmatter["name"]
    file = {"type": "string", "enum": list(entry.files), "description": f"Which of its files; none: {SKILL_FILE}."}
    schema = {"type": "object", "properties": {"file": file}, "additionalProperties": False}
    files = sorted(entry.resources, key=lambda file: file.uri)
    return ToolDefinition(
        name=name,
        raw=Raw(encode({**_members.decode(raw), "resources": files})),
        description=entry.frontmatter["description"],
        input_schema=Raw(encode(schema)),
        annotations=_READ_ONLY,
        kind="skill",
        address=entry.uri,
    )


def _text(sent: Mapping[str, Any], key: str) -> str:
    value = sent.get(key)
    return value if isinstance(value, str) else ""


def _schema(kind: Kind, address: str, sent: Mapping[str, Any]) -> dict[str, Any]:
    """What it takes where it is called as a tool."""
    schema: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
    if kind == "template":
        template = UriTemplate(address)
        lists = {"type": "array", "items": {"type": "string"}}
        several = {"anyOf": [{"type": "string"}, lists]}
        for name, is_several in template.variables.items():
            schema["properties"][name] = several if is_several else {"type": "string"}
        schema["required"] = template.required
    if kind == "prompt":
        arguments = list(_arguments(sent))
        for one in arguments:
            about = {"description": one["description"]} if isinstance(one.get("description"), str) else {}
            schema["properties"][one["name"]] = {"type": "string", **about}
        schema["required"] = [one["name"] for one in arguments if one.get("required") is True]
    return schema


def _arguments(sent: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    listed = sent.get("arguments")
    for one in listed[:MAX_ARGUMENTS] if isinstance(listed, list) else ():
        if isinstance(one, dict) and isinstance(one.get("name"), str):
            yield one


def request_of(call: ToolCall, meta: Raw | None) -> tuple[str, Raw]:
    """The method and the parameters of the request that a call of a leaf stands for. Raises `InvalidArguments`."""
    definition = call.tool.definition
    if call.method:
        method, params = call.method, _members.decode(call.arguments)
    elif definition.kind == "prompt":
        method, params = "prompts/get", {"name": _raw(definition.address), "arguments": call.arguments}
    else:
        method, params = "resources/read", {"uri": _raw(uri_of(definition, call.arguments))}
    return method, Raw(encode({**params, "_meta": meta} if meta is not None else params))


def uri_of(definition: ToolDefinition, arguments: Raw) -> str:
    """The URI that a resource has, or that a template makes of arguments. Raises `InvalidArguments`."""
    if definition.kind == "resource":
        return definition.address
    if definition.kind == "skill":
        return definition.address.removesuffix(SKILL_FILE) + (_Asked.decode(arguments).file or SKILL_FILE)
    try:
        uri = UriTemplate(definition.address).expand(msgspec.json.decode(arguments, type=dict[str, str | list[str]]))
    except (*DECODE_ERRORS, UnicodeEncodeError) as error:
        action = "give the variables of the template as texts"
        raise InvalidArguments(f"{definition.name} makes no URI of them: {error}", next_action=action) from None
    if len(uri) > MAX_URI_CHARS:
        action = "give shorter values"
        raise InvalidArguments(f"the URI would have over {MAX_URI_CHARS:,} characters", next_action=action)
    return uri


class _File(Struct):
    file: str = ""


_Asked = Decoder(_File)


def _raw(value: Any) -> Raw:
    return Raw(encode(value))


class _Contents(Struct):
    uri: str = ""
    mime_type: str = msgspec.field(name="mimeType", default="")
    text: str | None = None
    blob: str | None = None


class _Read(Struct):
    contents: list[_Contents]


class _Message(Struct):
    role: Literal["user", "assistant"]
    content: Raw


class _Prompt(Struct):
    messages: list[_Message]
    description: str | None = None


class _Completion(Struct):
    values: list[str]
    total: int | None = None
    has_more: bool | None = msgspec.field(name="hasMore", default=None)


class _Completed(Struct):
    completion: _Completion


class _Text(Struct):
    text: str
    type: str = ""


_FORMS: Mapping[str, type[Struct]] = {
    "resources/read": _Read,
    "prompts/get": _Prompt,
    "completion/complete": _Completed,
}


def check_result(method: str, result: Raw) -> Any:
    """The result by its form. Raises `ProtocolViolation` for one that clients could not read."""
    try:
        return msgspec.json.decode(result, type=_FORMS[method])
    except DECODE_ERRORS as error:
        raise ProtocolViolation(
            f"the result of {method} cannot be read: {error}", next_action="Report this to the server's authors."
        ) from None


def call_result(call: ToolCall, method: str, params: Raw, result: Raw) -> Raw:
    """What a call of a leaf gives: the result as it came, or that of a tool. Raises `ProtocolViolation`."""
    found, definition = check_result(method, result), call.tool.definition
    if definition.kind == "skill" and isinstance(found, _Read):
        _check_file(call.tool, _text(_value.decode(params), "uri"), found.contents)
    return result if call.method else _tool_result(call.tool.server, definition, result, found)


def _bytes_of(contents: "list[_Contents]") -> bytes:
    if len(contents) != 1 or (contents[0].text is None) == (contents[0].blob is None):
        raise ValueError("it is not one text or one file of bytes")
    text, blob = contents[0].text, contents[0].blob
    return text.encode() if text is not None else b64decode(blob or "", validate=True)


def _check_file(tool: Tool, uri: str, contents: "list[_Contents]") -> None:
    try:
        SkillEntry.of(tool.definition.raw).check_content(uri, _bytes_of(contents))
    except ValueError as error:
        raise ProtocolViolation(
            f"{printable(skill_address(tool.server, uri), MAX_URI_CHARS)} is not shown: {error}",
            next_action="Ask again: its list is read anew now, as after an edit. Where that says the same, the server "
            "lists it wrongly: whoever runs it has to mend that.",
        ) from None


def _tool_result(server: str, definition: ToolDefinition, result: Raw, found: Any) -> Raw:
    blocks = _of_contents(found.contents) if isinstance(found, _Read) else _of_messages(found.messages)
    members: dict[str, Any] = {"content": list(blocks)}
    if definition.kind == "skill":
        note = f"note: of the skill {definition.name} of the server {server}, in whose words this is"
        members["content"].append({"type": "text", "text": note})
    meta = _members.decode(result).get("_meta")
    return Raw(encode({**members, "_meta": meta} if meta is not None else members))


def _of_contents(contents: list[_Contents]) -> Iterable[dict[str, Any]]:
    for one in contents:
        family = one.mime_type.partition("/")[0]
        if one.blob is not None and family in {"image", "audio"}:
            yield {"type": family, "data": one.blob, "mimeType": one.mime_type}
        elif len(contents) == 1 and one.text is not None:
            yield {"type": "text", "text": one.text}
        else:
            # With its URI: it is one of several, or a file of a kind that no block has.
            held = {"blob": one.blob} if one.blob is not None else {"text": one.text or ""}
            kind = {"mimeType": one.mime_type} if one.mime_type else {}
            yield {"type": "resource", "resource": {"uri": one.uri, **kind, **held}}


def _of_messages(messages: list[_Message]) -> Iterable[Any]:
    """The messages in order, each text with the role that it stands for where there is more than one."""
    for message in messages:
        try:
            text = msgspec.json.decode(message.content, type=_Text)
        except DECODE_ERRORS:
            yield message.content
            continue
        role = f"{message.role}: " if len(messages) > 1 or message.role != "user" else ""
        yield {"type": "text", "text": role + text.text} if text.type == "text" else message.content
