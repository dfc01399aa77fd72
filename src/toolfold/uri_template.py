"""URI templates (RFC 6570): their variables, and the URI that values make of one.

Every form of expression: the eight operators, `*` and `:3`. What is no template is refused when it is read. Above: the
addresses of resources, and whoever reads one by a template.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from urllib.parse import quote

from msgspec import Struct

__all__ = ["UriTemplate", "Value"]

# What a variable may be given. A list is one value after the other, a mapping names with values.
Value = str | Sequence[str] | Mapping[str, str]

MAX_VARIABLES = 64

_RESERVED = ":/?#[]@!$&'()*+,;="
_TRIPLET = re.compile(r"(%[0-9A-Fa-f]{2})")
_EXPRESSION = re.compile(r"\{([^{}]*)\}")
_VARIABLE = re.compile(r"((?:\w|%[0-9A-Fa-f]{2})(?:[\w.]|%[0-9A-Fa-f]{2})*)(\*|:[1-9]\d{0,3})?", re.ASCII)


class _Operator(Struct, frozen=True):
    first: str = ""
    separator: str = ","
    named: bool = False
    if_empty: str = ""
    keeps: str = ""
    """The characters that stay as they are, besides those that always do."""


_OPERATORS = {
    "": _Operator(),
    "+": _Operator(keeps=_RESERVED),
    "#": _Operator(first="#", keeps=_RESERVED),
    ".": _Operator(first=".", separator="."),
    "/": _Operator(first="/", separator="/"),
    ";": _Operator(first=";", separator=";", named=True),
    "?": _Operator(first="?", separator="&", named=True, if_empty="="),
    "&": _Operator(first="&", separator="&", named=True, if_empty="="),
}


class _Variable(Struct, frozen=True):
    name: str
    explode: bool = False
    prefix: int = 0


class _Expression(Struct, frozen=True):
    operator: _Operator
    variables: tuple[_Variable, ...]

    @property
    def optional(self) -> bool:
        """Whether a URI is of use without it."""
        return self.operator.named or self.operator.first == "#"


class UriTemplate:
    """One template. Raises `ValueError` for what is none."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._parts = tuple(_parse(text))
        if len(self.variables) > MAX_VARIABLES:
            raise ValueError(f"it has more than {MAX_VARIABLES} variables")

    @property
    def expressions(self) -> tuple[_Expression, ...]:
        return tuple(part for part in self._parts if isinstance(part, _Expression))

    @property
    def variables(self) -> dict[str, bool]:
        """The names in order, and whether several values may be given for each."""
        found: dict[str, bool] = {}
        for variable in (one for expression in self.expressions for one in expression.variables):
            found[variable.name] = found.get(variable.name, False) or variable.explode
        return found

    @property
    def required(self) -> list[str]:
        """The names without which the URI would lack a part of its path."""
        needed = (one.name for part in self.expressions if not part.optional for one in part.variables)
        return list(dict.fromkeys(needed))

    def expand(self, values: Mapping[str, Value]) -> str:
        """The URI of these values; what has none is left out."""
        return "".join(_literal(part) if isinstance(part, str) else _expanded(part, values) for part in self._parts)

    def may_make(self, uri: str) -> bool:
        """Whether values may make this URI. One look from left to right: a template is a server's text, and a search
        that goes back could be made to take for ever."""
        at = 0
        for before, part in pairwise((_NOTHING, *self._parts)):
            if isinstance(part, str):
                literal = _literal(part)
                at = _place_of(literal, uri, at, anywhere=before is not _NOTHING)
                if at < 0:
                    return False
                at += len(literal)
        last = self._parts[-1] if self._parts else ""
        # Where a variable stands before the last literal, that may stand further on than it was found.
        return at == len(uri) or not isinstance(last, str) or (len(self._parts) > 1 and uri.endswith(_literal(last)))

    def may_enter(self, folder: str) -> bool:
        """Whether values may make a URI in this folder, as far as the text before the first variable tells."""
        first = self._parts[0] if self._parts else ""
        front = _literal(first) if isinstance(first, str) else ""
        return front.startswith(folder) or folder.startswith(front)


_NOTHING = ""


def _place_of(literal: str, uri: str, at: int, *, anywhere: bool) -> int:
    if anywhere:
        return uri.find(literal, at)
    return 0 if uri.startswith(literal) else -1


def _parse(text: str) -> Iterator[str | _Expression]:
    at = 0
    for match in _EXPRESSION.finditer(text):
        if match.start() > at:
            yield _checked(text[at : match.start()])
        yield _expression(match[1])
        at = match.end()
    if at < len(text):
        yield _checked(text[at:])


def _checked(literal: str) -> str:
    if "{" in literal or "}" in literal:
        raise ValueError("a brace stands alone")
    return literal


def _expression(text: str) -> _Expression:
    sign = text[:1] if text[:1] in _OPERATORS else ""
    variables = []
    for name in text[len(sign) :].split(","):
        match = _VARIABLE.fullmatch(name)
        if match is None:
            raise ValueError(f"{name[:40]!r} is no variable")
        modifier = match[2] or ""
        prefix = int(modifier[1:]) if modifier.startswith(":") else 0
        variables.append(_Variable(match[1], modifier == "*", prefix))
    return _Expression(_OPERATORS[sign], tuple(variables))


def _literal(text: str) -> str:
    return _quoted(text, _RESERVED)


def _quoted(text: str, keeps: str) -> str:
    if not keeps:
        return quote(text, safe="")
    # What is encoded already stays as it is.
    return "".join(part if at % 2 else quote(part, safe=keeps) for at, part in enumerate(_TRIPLET.split(text)))


def _expanded(part: _Expression, values: Mapping[str, Value]) -> str:
    texts = [text for one in part.variables if (text := _of_variable(part.operator, one, values)) is not None]
    return part.operator.first + part.operator.separator.join(texts) if texts else ""


def _of_variable(operator: _Operator, variable: _Variable, values: Mapping[str, Value]) -> str | None:
    value = values.get(variable.name)
    if value is None:
        return None
    if isinstance(value, str):
        text = _quoted(value[: variable.prefix] if variable.prefix else value, operator.keeps)
        return _named(operator, variable.name, text) if operator.named else text
    if not value:
        return None
    return _exploded(operator, variable, value) if variable.explode else _joined(operator, variable, value)


def _named(operator: _Operator, name: str, text: str) -> str:
    return f"{name}={text}" if text else name + operator.if_empty


def _joined(operator: _Operator, variable: _Variable, value: Sequence[str] | Mapping[str, str]) -> str:
    flat = [text for pair in value.items() for text in pair] if isinstance(value, Mapping) else value
    text = ",".join(_quoted(one, operator.keeps) for one in flat)
    return _named(operator, variable.name, text) if operator.named else text


def _exploded(operator: _Operator, variable: _Variable, value: Sequence[str] | Mapping[str, str]) -> str:
    if isinstance(value, Mapping):
        pairs = ((_quoted(key, operator.keeps), _quoted(one, operator.keeps)) for key, one in value.items())
        return operator.separator.join(f"{key}={one}" for key, one in pairs)
    texts = [_quoted(one, operator.keeps) for one in value]
    named = [_named(operator, variable.name, text) for text in texts] if operator.named else texts
    return operator.separator.join(named)
