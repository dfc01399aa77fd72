"""What a tool takes, in a few lines that leave nothing out: so a search can expand its hits.

Most schemas are a handful of plain values. Any other is for `expand_tool`: a line that left out a nested key or a rule
would be taken for all there is. Above: `render`, which shows the lines beside the pointers.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, MsgspecError, Raw, Struct, field
from msgspec.json import Decoder, encode

# Of the lines together: about 100 tokens. A whole expansion takes about 350.
MAX_CHARS = 400
MAX_SCHEMA_BYTES = 4_000

_Plain = Literal["string", "integer", "number", "boolean", "null"]
_Some = Meta(min_length=1, max_length=12)


# A keyword that has no field here makes a schema one that lines do not tell.
class _Value(Struct, forbid_unknown_fields=True, rename="camel"):
    """A plain value, some of them, or one of several kinds. Inside another it has no place for words of its own."""

    type: _Plain | Literal["array"] | Annotated[list[_Plain], _Some] | None = None
    enum: Annotated[list[Any], _Some] | None = None
    items: "_Value | None" = None
    any_of: Annotated[list["_Value"], _Some] | None = None
    title: str = ""

    def kind(self) -> str:
        """`string`, `integer|null`, `"asc"|"desc"`, `string[]`; empty where it is none of these."""
        if self.type in ("array", None) or self.items is not None or self.any_of is not None:
            return self._compound()
        types = [self.type] if isinstance(self.type, str) else self.type or []
        return "|".join(types if self.enum is None else [encode(value).decode() for value in self.enum])

    def _compound(self) -> str:
        match self:
            case _Value(type=None, enum=None, items=None, any_of=list(either)):
                kinds = [one.kind() for one in either]
                return "|".join(kinds) if all(kinds) else ""
            case _Value(type="array", enum=None, items=_Value() as items, any_of=None):
                inner = items.kind()
                return f"({inner})[]" if "|" in inner else inner and f"{inner}[]"
        return ""


class _Argument(_Value, rename="camel"):
    description: str = ""
    default: Any = None
    format: str | None = None
    minimum: int | float | None = None
    maximum: int | float | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    pattern: str | None = None

    def line(self, name: str, *, required: bool) -> str:
        mark = " (required)" if required else "" if self.default is None else f" = {encode(self.default).decode()}"
        bounds = "".join(f", {key} {bound}" for field, key in _BOUNDS if (bound := getattr(self, field)) is not None)
        about = f" - {' '.join(self.description.split())}" if self.description.strip() else ""
        return f"{name if name.isidentifier() else encode(name).decode()}: {self.kind()}{mark}{bounds}{about}"


# Those of the fields above that stand in a line under their own keyword.
_BOUNDS = list(zip(_Argument.__struct_fields__, _Argument.__struct_encode_fields__, strict=True))[-8:]


class _Arguments(Struct, forbid_unknown_fields=True, rename="camel"):
    properties: dict[str, _Argument]
    required: list[str] = []
    type: Literal["object"] = "object"
    additional_properties: bool = True
    title: str = ""
    description: str = ""
    dialect: str = field(name="$schema", default="")


_read = Decoder(_Arguments).decode


def plain_arguments(schema: Raw) -> list[str] | None:
    """One line an argument: `path: string (required) - The folder`, `limit: integer = 10, maximum 50`. `None` where
    lines would not tell all, or would be long."""
    if len(memoryview(schema)) > MAX_SCHEMA_BYTES:
        return None
    try:
        whole = _read(schema)
    except (MsgspecError, UnicodeError, RecursionError):
        return None
    if not whole.properties.keys() >= set(whole.required) or not all(one.kind() for one in whole.properties.values()):
        return None
    lines = [one.line(name, required=name in whole.required) for name, one in whole.properties.items()]
    return lines if sum(map(len, lines)) <= MAX_CHARS else None
