"""`toolfold init`, `add`, `remove`, `enable` and `disable`: the servers of `toolfold.toml`, changed in place."""

import argparse
import asyncio
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from toolfold.config import Settings, missing
from toolfold.config.files import read_text
from toolfold.config.install_hints import problem_of
from toolfold.config.registry_form import read_server_json
from toolfold.config.schema import SCHEMA_FILE, schema_text
from toolfold.config.toml_file import TomlFile
from toolfold.errors import ConfigError, UpstreamError
from toolfold.faces.cli.runner import _user_home, load_settings
from toolfold.faces.cli.terminal import Output

_BY_HAND = "Check the address, or download the file and name it instead."
# Where the official registry and those of its form keep single servers.
_OPENAPI = re.compile(r"""^[\s{]*["']?(?:openapi|swagger)["']?\s*:""", re.MULTILINE)
_HEAD = 20_000
REGISTRY_PATH = re.compile(r".*\.json|/v0(\.\d+)?/servers/.+")


def init(arguments: argparse.Namespace, output: Output) -> None:
    if arguments.schema:
        output.out.write(schema_text())
        return
    file = Path("toolfold.toml").absolute() if arguments.project else _file(arguments, own=True)
    is_new = TomlFile(file).start()
    if output.as_json:
        output.data({"file": str(file), "new": is_new})
        return
    shown = output.short_path(file)
    output.line(
        f"{output.style('written:', 'green')} {shown}" if is_new else f"{shown} is there already, and stays as it is"
    )
    output.note(f"beside it, for editors: {SCHEMA_FILE}")
    if not is_new and not arguments.project:
        output.note("a file for this folder alone: toolfold init --project")
    output.line(f"{output.style('next:', 'cyan')} toolfold import, or toolfold add NAME -- COMMAND …")


def add(arguments: argparse.Namespace, output: Output) -> None:
    file = _file(arguments)
    name, table = _described(arguments)
    for key, given, sign in (("env", arguments.env, "="), ("headers", arguments.header, ":")):
        if given:
            table[key] = {**table.get(key, {}), **dict(_pair(item, sign) for item in given)}
    spec, notes = TomlFile(file).add(name, table)
    if (problem := problem_of(spec)) and not missing(spec):
        notes = (*notes, ": ".join(problem))
    if output.as_json:
        output.data({"file": str(file), "name": name, "shown": spec.shown(), "missing": missing(spec), "notes": notes})
        return
    output.line(
        f"{output.style('added:', 'green')} {name}  {output.style(spec.shown(), 'dim')}  to {output.short_path(file)}"
    )
    for note in notes:
        output.warn(note)
    for variable in missing(spec):
        output.line(f"set this before you go on: export {variable}=…")
    output.line(f"{output.style('next:', 'cyan')} toolfold build")


def remove(arguments: argparse.Namespace, output: Output) -> None:
    file = _file(arguments)
    backup = TomlFile(file).remove(arguments.name)
    if output.as_json:
        output.data({"file": str(file), "name": arguments.name, "backup": str(backup)})
        return
    output.line(f"{output.style('removed:', 'green')} {arguments.name} from {output.short_path(file)}")
    output.line(f"the file as it was: {output.short_path(str(backup))}")


def switch(arguments: argparse.Namespace, output: Output) -> None:
    """`enable` and `disable`."""
    file = _file(arguments)
    enabled = arguments.command == "enable"
    changed = TomlFile(file).switch(arguments.name, enabled=enabled)
    if output.as_json:
        output.data({"file": str(file), "name": arguments.name, "enabled": enabled, "changed": changed})
    elif changed:
        output.line(f"{output.style(f'{arguments.command}d:', 'green')} {arguments.name} in {output.short_path(file)}")
    else:
        output.note(f"{arguments.name} is {arguments.command}d already")


def _file(arguments: argparse.Namespace, *, own: bool = False) -> Path:
    """The `toolfold.toml` to change: the one asked for, the one in use, or the person's own."""
    if arguments.config:
        return Path(arguments.config).absolute()
    if own:  # whatever stands in this folder
        return _user_home(arguments, Settings()) / "toolfold.toml"
    settings = load_settings(arguments, require_servers=False)
    in_use = [source for source in settings.sources if source.suffix == ".toml"]
    return (in_use or [_user_home(arguments, settings) / "toolfold.toml"])[0]


def _described(arguments: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """The name and table that the command line describes: a program, an address, or a file of the registry's form."""
    name, words = arguments.name, arguments.target
    if arguments.functions:
        file, colon, function = arguments.functions.partition(":")
        return name, {"functions": f"{_placed(file, is_program=False)}{colon}{function}"}
    if not words:
        return _from_document(name, "")
    source = words[0] if len(words) == 1 else ""
    if _is_address(source):
        is_document = REGISTRY_PATH.fullmatch(urlsplit(source).path)
        return _from_document(source, name) if is_document else (name, {"url": source})
    if source.endswith((".json", ".yaml", ".yml")) and Path(source).is_file():
        return _from_document(source, name)
    if _holds_skills(source):
        return name, {"skills": str(Path(source).absolute())}
    if source.endswith(".py") and "/" not in source and Path(source).is_file():
        source = f"./{source}"  # what is here, and no program of PATH
    words = [_placed(word, is_program=not at) for at, word in enumerate([source] if source else words)]
    return name, {"command": words[0], **({"args": words[1:]} if words[1:] else {})}


def _holds_skills(folder: str) -> bool:
    return bool(folder) and any(next(Path(folder).glob(f"{at}SKILL.md"), None) for at in ("", "*/", "*/*/"))


def _placed(word: str, *, is_program: bool) -> str:
    """A file that is there as seen from here by its whole path: the server is started elsewhere, too. A program without
    a folder before it is one of PATH."""
    is_path = "/" in word if is_program else Path(word).suffix or word.startswith(("./", "../"))
    return str(Path(word).absolute()) if is_path and Path(word).is_file() else word


def _is_address(text: str) -> bool:
    return text.casefold().startswith(("http://", "https://"))


def _from_document(source: str, name: str) -> tuple[str, dict[str, Any]]:
    if _is_address(source):
        return _read_document(source, name, asyncio.run(_download(source)))
    if not Path(source).is_file():
        raise ConfigError(
            f"`{source}` does not say what to add",
            next_action=f"toolfold add {source} -- COMMAND …, toolfold add {source} https://…, or name a server.json.",
        )
    return _read_document(str(Path(source).absolute()), name, read_text(Path(source)))


def _read_document(source: str, name: str, text: str) -> tuple[str, dict[str, Any]]:
    """An OpenAPI document is told by its key; all else is of the registry's form."""
    is_openapi = bool(_OPENAPI.search(text[:_HEAD]))
    if is_openapi and not name:
        raise ConfigError(f"{source} is an OpenAPI document", next_action=f"name it: toolfold add NAME {source}")
    return (name, {"openapi": source}) if is_openapi else read_server_json(source, name, text)


async def _download(address: str) -> str:
    from toolfold.auth.fetch import Fetcher

    try:
        answer = await Fetcher(address).get(address)
    except UpstreamError as error:
        raise ConfigError(f"{address} cannot be read: {error.message}", next_action=_BY_HAND) from None
    if not answer.ok:
        raise ConfigError(f"{address} cannot be read: HTTP status {answer.status}", next_action=_BY_HAND)
    try:
        return answer.body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{address} cannot be read: {error}", next_action=_BY_HAND) from None


def _pair(text: str, sign: str) -> tuple[str, str]:
    name, found, value = text.partition(sign)
    if not found or not name.strip():
        raise ConfigError(
            f"`{text}` is no NAME{sign}VALUE", next_action=f"Write NAME{sign}VALUE, or NAME{sign}'${{NAME}}'."
        )
    return name.strip(), value.strip() if sign == ":" else value
