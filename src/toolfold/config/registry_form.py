"""A `server.json` of the MCP registry's form as a server's table: npm, PyPI and OCI packages, and remote servers.

Its author is a stranger: references such as `${VAR}` in it are taken as plain text, the program is one of three, and
nothing is started. What a person has to give becomes a reference to the environment. Above: `toolfold add`.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from toolfold.addresses import host_kind
from toolfold.config.files import read_text
from toolfold.config.jsonc import parse_json
from toolfold.config.servers import clean_name
from toolfold.errors import ConfigError

__all__ = ["read_server_json"]

_MAX_ITEMS = 200
_PROGRAMS = {"npm": "npx", "pypi": "uvx", "oci": "docker"}
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w-]*)\}")

_Json = dict[str, Any]


def read_server_json(source: str, name: str = "", text: str | None = None) -> tuple[str, _Json]:
    """The server's name and table. `name` is the person's choice, `text` what a download brought, else a file is read.

    Raises `ConfigError` where nothing in it fits.
    """
    value = _dict(parse_json(Path(source), read_text(Path(source)) if text is None else text).value)
    document = _dict(value.get("server", value))
    written = _text(document, "name")
    packages, remotes = _dicts(document, "packages"), _dicts(document, "remotes")
    if not written or not (packages or remotes):
        raise ConfigError(
            f"{source} is no server of the MCP registry's form: it needs `name`, and `packages` or `remotes`",
            next_action="For an MCP server's own address, give a name before it: toolfold add NAME https://…",
        )
    name = name or clean_name(written.rpartition("/")[2])
    tables = [*_packages(packages, name), *_remotes(remotes, name)]
    if not tables:
        raise ConfigError(
            f"{source} has no package that toolfold can start",
            next_action="npm, pypi and oci packages on stdio work, and remotes over HTTP.",
        )
    return name, next(filter(_is_ready, tables), tables[0])


def _is_ready(table: _Json) -> bool:
    return "url" in table or shutil.which(table["command"]) is not None


def _packages(packages: list[_Json], name: str) -> Iterator[_Json]:
    for package in packages:
        program = _PROGRAMS.get(_text(package, "registryType"))
        identifier = _plain(_text(package, "identifier"))
        if program and identifier and _text(_dict(package.get("transport")), "type") in {"", "stdio"}:
            yield _package(package, program, identifier, name)


def _package(package: _Json, program: str, identifier: str, name: str) -> _Json:
    version = _plain(_text(package, "version"))
    env = dict(_inputs(_dicts(package, "environmentVariables"), "", name))
    runtime = _arguments(_dicts(package, "runtimeArguments"), name)
    sign = "@"
    if program == "docker":
        given = [word for variable in env for word in ("-e", variable)]
        runtime, sign = ["run", "-i", "--rm", *given, *runtime], ":"
    elif program == "npx" and "-y" not in runtime:
        runtime = ["-y", *runtime]
    # An image may hold its version already.
    is_whole = not version or sign in identifier.rpartition("/")[2]
    what = identifier if is_whole else f"{identifier}{sign}{version}"
    args = [*runtime, what, *_arguments(_dicts(package, "packageArguments"), name)]
    return {"command": program, "args": args} | ({"env": env} if env else {})


def _remotes(remotes: list[_Json], name: str) -> Iterator[_Json]:
    # The older transport last.
    for remote in sorted(remotes, key=lambda item: "sse" in (_text(item, "type"), _text(item, "transportType"))):
        if url := _text(remote, "url"):
            host = urlsplit(url).hostname or ""
            if host_kind(host):
                raise ConfigError(
                    f"the file names the server's address as {url[:200]}, which is not reachable from the internet",
                    next_action=f"If that is your own server, say so yourself: toolfold add {name} ADDRESS",
                )
            headers = dict(_inputs(_dicts(remote, "headers"), name, name))
            yield {
                "url": _filled(url, _dict(remote.get("variables")), name),
                **({"headers": headers} if headers else {}),
            }


def _inputs(inputs: list[_Json], prefix: str, name: str) -> Iterator[tuple[str, str]]:
    """Variables or headers with their values; what is optional and has none is left out."""
    for item in inputs:
        label = _text(item, "name")
        value = _value(item, f"{prefix}_{label}" if prefix else label, name)
        if label and value is not None:
            yield label, value


def _arguments(arguments: list[_Json], name: str) -> list[str]:
    words: list[str] = []
    for item in arguments:
        label = _text(item, "name")
        value = _value(item, f"{name}_{_text(item, 'valueHint') or label or 'argument'}", name)
        if value is not None:
            words += [_plain(label), value] if label else [value]
        elif label and not item.keys() - {"type", "name", "description"}:
            words.append(_plain(label))  # a switch
    return words


def _value(item: _Json, label: str, name: str) -> str | None:
    """What is written, the default, or a reference to what a person has to give."""
    if (value := _text(item, "value")) or (value := _text(item, "default")):
        return _filled(value, _dict(item.get("variables")), name)
    return _reference(label) if _get(item, "isRequired") or _get(item, "isSecret") else None


def _filled(text: str, variables: _Json, name: str) -> str:
    """The text with its placeholders filled in: by a value or default of the file, else by a reference."""
    references: list[str] = []

    def fill(match: re.Match[str]) -> str:
        variable = _dict(variables.get(match[1]))
        if not variable:
            return match[0]
        if given := _text(variable, "value") or _text(variable, "default"):
            return given.replace("\0", "")
        references.append(_reference(f"{name}_{match[1]}"))
        return f"\0{len(references) - 1}\0"

    # What the file says is made plain as a whole, so that no two parts of it make a reference where they meet.
    whole = _plain(_PLACEHOLDER.sub(fill, text.replace("\0", "")))
    return re.sub(r"\0(\d+)\0", lambda match: references[int(match[1])], whole)


def _reference(label: str) -> str:
    variable = re.sub(r"[^A-Za-z0-9]+", "_", label).strip("_").upper() or "VALUE"
    return f"${{{variable}}}"


def _plain(text: str) -> str:
    """The text so that no reference in it is filled in: it would hand a person's secrets to the server."""
    return text.replace("${", "$${")


def _get(item: _Json, key: str) -> Any:
    """A value under its present name or under the one with underscores that the form had before."""
    return item.get(key, item.get(re.sub(r"([A-Z])", r"_\1", key).lower()))


def _text(item: _Json, key: str) -> str:
    value = _get(item, key)
    return value if isinstance(value, str) else ""


def _dict(value: Any) -> _Json:
    return value if isinstance(value, dict) else {}


def _dicts(item: _Json, key: str) -> list[_Json]:
    value = _get(item, key)
    return [entry for entry in value[:_MAX_ITEMS] if isinstance(entry, dict)] if isinstance(value, list) else []
