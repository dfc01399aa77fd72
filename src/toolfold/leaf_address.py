"""The addresses under which clients read the resources of all servers, each with its server in it.

    toolfold://resources/SERVER/URI             one resource, its URI percent-encoded whole
    toolfold://templates/SERVER/TEMPLATE?a=1    what values make of a template
    skill://SERVER/…  ui://SERVER/…             a file of a skill, an app: hosts go by the scheme, and look for files
                                                of a skill beside each other, so each step is encoded for itself

All come back byte for byte. A template that is shown keeps its variables, all in the query: only so is it known what
of an address its server encoded and what the client. Above: whoever lists and reads resources.
"""

import posixpath
from collections.abc import Mapping
from urllib.parse import quote, unquote

from msgspec import Struct

from toolfold.uri_template import UriTemplate, Value

__all__ = ["LeafAddress", "fold_uri", "parse_address", "resource_address", "skill_address", "template_address"]

TOOLFOLD = "toolfold://"
RESOURCES = f"{TOOLFOLD}resources/"
TEMPLATES = f"{TOOLFOLD}templates/"
SKILLS = "skill://"
_OWN_SCHEMES = (SKILLS, "ui://")

# Longer ones are not offered, and not read.
MAX_URI_CHARS = 8_192


class LeafAddress(Struct, frozen=True):
    """What an address names: a URI of a server, or a template of it with values."""

    server: str
    uri: str = ""
    template: str = ""
    values: Mapping[str, Value] = {}


def resource_address(server: str, uri: str) -> str:
    scheme = next((one for one in _OWN_SCHEMES if uri.startswith(one)), "")
    return _stepwise(scheme, server, uri) if scheme else f"{RESOURCES}{_segment(server)}/{_segment(uri)}"


def skill_address(server: str, uri: str) -> str:
    """Of a file of a skill, whatever scheme its server gave it."""
    return _stepwise(SKILLS, server, uri)


def _stepwise(scheme: str, server: str, uri: str) -> str:
    rest = uri.removeprefix(scheme)
    # An empty step stands before a URI that is written whole.
    rest = f"/{uri}" if rest == uri or rest.startswith("/") else rest
    return f"{scheme}{_segment(server)}/{'/'.join(map(_segment, rest.split('/')))}"


def template_address(server: str, template: UriTemplate) -> str:
    """As a template, with the same variables."""
    names = ",".join(f"{name}*" if several else name for name, several in template.variables.items())
    return f"{TEMPLATES}{_segment(server)}/{_segment(template.text)}" + (f"{{?{names}}}" if names else "")


def parse_address(text: str) -> LeafAddress | None:
    """What an address of ours names; `None` where it is none."""
    if text.startswith(_OWN_SCHEMES):
        return _parse_stepwise(text)
    for front in (RESOURCES, TEMPLATES):
        server, slash, rest = text.removeprefix(front).partition("/")
        if not (text.startswith(front) and server and slash and rest):
            continue
        if front == RESOURCES:
            return LeafAddress(unquote(server), uri=unquote(rest))
        template, _, query = rest.partition("?")
        # One that was listed stands for itself: clients name it so when they ask for values.
        template = template.partition("{")[0]
        return LeafAddress(unquote(server), template=unquote(template), values=_values(query))
    return None


def _parse_stepwise(text: str) -> LeafAddress | None:
    scheme = next(one for one in _OWN_SCHEMES if text.startswith(one))
    server, _, rest = text.removeprefix(scheme).partition("/")
    plain = "/".join(map(unquote, rest.split("/")))
    uri = plain[1:] if plain.startswith("/") else scheme + plain
    return LeafAddress(unquote(server), uri=uri) if server and rest else None


def fold_uri(uri: str) -> str:
    """The same for all spellings that a server is likely to take for one: case, escapes, empty steps, `.` and `..`."""
    return posixpath.normpath(unquote(uri).replace("\\", "/")).casefold()


def _segment(text: str) -> str:
    # A segment of dots alone would be taken for a step up.
    return quote(text, safe="") if text.strip(".") else text.replace(".", "%2E")


def _values(query: str) -> dict[str, Value]:
    """The values by name. One that is given more than once, or with commas that are not encoded, is a list."""
    values: dict[str, Value] = {}
    for pair in query.split("&") if query else ():
        name, _, text = pair.partition("=")
        given = [unquote(one) for one in text.split(",")]
        before = values.get(name)
        if before is not None:
            given = [*([before] if isinstance(before, str) else before), *given]
        values[name] = given if len(given) > 1 else given[0]
    return values
