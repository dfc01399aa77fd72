"""References inside one document: pointers, anchors, ids. A reference that leaves the document is never followed.

The table of ids and anchors is made only when a reference needs it, since most documents use plain pointers.
"""

from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

MAX_INDEXED = 400_000
"""How many values the search for ids and anchors looks at before it gives up."""

_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})
_PLAIN = frozenset({"const", "enum", "default", "example", "examples", "required"})


class Home(NamedTuple):
    """The resource a schema belongs to: what `#` means there."""

    root: Any
    uri: str


Part = tuple[Any, Home]
"""A schema and the resource it stands in."""


def home_of(schema: Any, outer: Home) -> Home:
    """The resource that holds `schema`: a new one where it has an `$id` of its own."""
    if isinstance(schema, dict) and schema is not outer.root:
        name = schema.get("$id")
        if isinstance(name, str) and not name.startswith("#"):
            uri = _joined(outer.uri, name)
            return outer if uri is None else Home(schema, uri)
    return outer


def _joined(base: str, address: str) -> str | None:
    """The address as seen from `base`, without its fragment; `None` where one of them is none."""
    try:
        return urldefrag(urljoin(base, address))[0]
    except ValueError:
        return None


class Resolver:
    """Finds what a reference of one document means. Answers are kept, so each reference is looked up once."""

    def __init__(self, schema: Any) -> None:
        name = schema.get("$id") if isinstance(schema, dict) else None
        self.home = Home(schema, (_joined("", name) or "") if isinstance(name, str) else "")
        self._known: dict[tuple[int, str, bool], Part | None] = {}
        self._index: _Index | None = None

    def find(self, reference: str, home: Home, *, dynamic: bool = False) -> Part | None:
        """The schema a reference means, or `None` where it is not in this document."""
        key = (id(home.root), reference, dynamic)
        if key not in self._known:
            self._known[key] = self._find(reference, home, dynamic)
        return self._known[key]

    def _find(self, reference: str, home: Home, dynamic: bool) -> Part | None:
        address, _, fragment = reference.partition("#")
        if address:
            uri = _joined(home.uri, address)
            found = None if uri is None else self._resource(uri, home)
            if found is None:
                return None
            home = found
        fragment = unquote(fragment) if "%" in fragment else fragment
        if not fragment:
            return home.root, home
        if fragment.startswith("/"):
            # Some writers put an `$id` inside and still count their pointers from the top of the document.
            return _point(home, fragment) or (_point(self.home, fragment) if home is not self.home else None)
        return self._anchor(fragment, home, dynamic)

    def _resource(self, uri: str, home: Home) -> Home | None:
        for near in (home, self.home):
            if near.uri and near.uri == uri:
                return near
        return self._table().homes.get(uri)

    def _anchor(self, name: str, home: Home, dynamic: bool) -> Part | None:
        table = self._table()
        if dynamic and (home.uri, name) in table.dynamic and (self.home.uri, name) in table.dynamic:
            home = self.home
        return table.anchors.get((home.uri, name))

    def _table(self) -> "_Index":
        if self._index is None:
            self._index = _Index(self.home)
        return self._index


class _Index:
    """Every `$id`, `$anchor` and `$dynamicAnchor` of a document."""

    def __init__(self, home: Home) -> None:
        self.homes: dict[str, Home] = {home.uri: home}
        self.anchors: dict[tuple[str, str], Part] = {}
        self.dynamic: set[tuple[str, str]] = set()
        stack: list[tuple[Any, Home, bool]] = [(home.root, home, False)]
        left = MAX_INDEXED
        while stack and left:
            left -= 1
            value, inside, is_map = stack.pop()
            if isinstance(value, list):
                stack.extend((item, inside, False) for item in value)
            elif isinstance(value, dict):
                if not is_map:
                    inside = self._note(value, inside)
                stack.extend(
                    (item, inside, not is_map and key in _MAPS)
                    for key, item in value.items()
                    if isinstance(item, (dict, list)) and (is_map or key not in _PLAIN)
                )

    def _note(self, schema: dict[str, Any], outer: Home) -> Home:
        inside = home_of(schema, outer)
        if inside is not outer:
            self.homes.setdefault(inside.uri, inside)
        name = schema.get("$id")
        if isinstance(name, str) and name.startswith("#"):  # draft-07 wrote anchors as ids
            self.anchors.setdefault((inside.uri, name[1:]), (schema, inside))
        for keyword in ("$anchor", "$dynamicAnchor"):
            anchor = schema.get(keyword)
            if isinstance(anchor, str):
                self.anchors.setdefault((inside.uri, anchor), (schema, inside))
                if keyword == "$dynamicAnchor":
                    self.dynamic.add((inside.uri, anchor))
        return inside


def _point(home: Home, pointer: str) -> Part | None:
    """Follows a JSON pointer from the top of a resource."""
    value: Any = home.root
    for token in pointer[1:].split("/"):
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and len(key) < 10 and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
        home = home_of(value, home)
    return value, home
