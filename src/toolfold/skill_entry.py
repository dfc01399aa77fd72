"""A skill as its server describes it: where its `SKILL.md` is, what that says of itself, and each file with its digest.

An entry that breaks a rule of the extension `io.modelcontextprotocol/skills` is no skill, and a file that is not what
its entry says is never shown. Above: whoever lists, reads and shows skills.
"""

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec import Raw, Struct

from toolfold.leaf_address import MAX_URI_CHARS
from toolfold.text import printable
from toolfold.yaml_reader import load_yaml

__all__ = ["EXTENSION", "SkillEntry", "SkillFile", "check_entry", "read_frontmatter", "tools_named"]

EXTENSION = "io.modelcontextprotocol/skills"
SKILL_FILE = "SKILL.md"
# What every host takes, by the extension's text.
MAX_FILES = 512
MAX_BYTES = 16 << 20
MAX_FRONTMATTER = 64 << 10
# Of an entry as it is listed: 512 files under long addresses.
MAX_ENTRY_BYTES = 512 << 10
MAX_TOOLS = 64

_NAME = re.compile(r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_FRONTMATTER = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_STEP = re.compile(r"[^/\\\x00-\x1f\x7f]+")
_SHOWN = 80


class SkillFile(Struct, frozen=True):
    """One file of a skill."""

    uri: str
    digest: str
    size: int


class SkillEntry(Struct, frozen=True):
    """One skill, as `skills/list` has it."""

    uri: str
    frontmatter: dict[str, Any]
    resources: tuple[SkillFile, ...]

    @staticmethod
    def of(raw: Raw) -> "SkillEntry":
        """That of a definition, which was checked when it was listed."""
        return msgspec.json.decode(raw, type=SkillEntry)

    @property
    def root(self) -> str:
        """What the addresses of its files begin with."""
        return self.uri.removesuffix(SKILL_FILE)

    @property
    def files(self) -> dict[str, SkillFile]:
        """Its files by their path in it, `SKILL.md` first."""
        paths = {file.uri.removeprefix(self.root): file for file in self.resources}
        return {SKILL_FILE: paths[SKILL_FILE], **paths}

    def check_content(self, uri: str, content: bytes) -> None:
        """Raises `ValueError`, with the reason, where this is not what the entry says of a file."""
        file = next((one for one in self.resources if one.uri == uri), None)
        if file is None:
            raise ValueError("it is no file that this skill lists")
        if len(content) != file.size:
            raise ValueError(f"it has {len(content):,} bytes, and not the {file.size:,} that its skill lists")
        if f"sha256:{sha256(content).hexdigest()}" != file.digest:
            raise ValueError("its content does not have the digest that its skill lists")
        if uri == self.uri and self.frontmatter not in _readings(content):
            raise ValueError("it says something else of the skill than the list does")


def check_entry(raw: Raw) -> SkillEntry:
    """The entry that a server sent. Raises `ValueError` with the reason for one that is no skill."""
    try:
        sent = msgspec.json.decode(raw, type=dict[str, Raw])
        if bytes(sent.get("resources", Raw(b""))) == b'"dynamic"':
            raise ValueError("its content is made anew each time, and has no digests to check it by")
        entry = msgspec.json.decode(raw, type=SkillEntry)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None
    try:
        _check_address(entry.uri, _check_frontmatter(entry.frontmatter))
        _check_files(entry)
    except ValueError as error:
        raise ValueError(f"{printable(entry.uri, _SHOWN)}: {error}") from None
    return entry


def _check_frontmatter(frontmatter: Mapping[str, Any]) -> str:
    name, description = frontmatter.get("name"), frontmatter.get("description")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        shown = printable(str(name), _SHOWN)
        raise ValueError(f"its name {shown!r} is none: up to 64 small letters, digits and single hyphens between them")
    if not isinstance(description, str) or not description.strip():
        raise ValueError(f"{name} has no description")
    return name


def _check_address(uri: str, name: str) -> None:
    path = uri.partition("://")[2]
    if len(uri) > MAX_URI_CHARS or path.split("/")[-2:] != [name, SKILL_FILE]:
        folder = printable(path.split("/")[-2] if "/" in path else "", _SHOWN)
        raise ValueError(
            f"its address does not end with {name}/{SKILL_FILE}: its folder is {folder!r}, its name {name!r}"
        )
    check_path(path.removeprefix("/"))  # as in file:///…


def _check_files(entry: SkillEntry) -> None:
    uris = {file.uri for file in entry.resources}
    if len(entry.resources) > MAX_FILES:
        raise ValueError(f"it has {len(entry.resources):,} files, over {MAX_FILES}")
    if len(uris) < len(entry.resources) or entry.uri not in uris:
        raise ValueError(f"it lists a file twice, or not its {SKILL_FILE}")
    for file in entry.resources:
        _check_file(entry.root, file)
    if (total := sum(file.size for file in entry.resources)) > MAX_BYTES:
        raise ValueError(f"its files have {total:,} bytes, over {MAX_BYTES >> 20} MiB")


def _check_file(root: str, file: SkillFile) -> None:
    if not file.uri.startswith(root) or len(file.uri) > MAX_URI_CHARS:
        raise ValueError(f"its file {printable(file.uri, _SHOWN)!r} is outside of it")
    check_path(file.uri.removeprefix(root))
    if not _DIGEST.fullmatch(file.digest) or file.size < 0:
        raise ValueError(f"its file {printable(file.uri, _SHOWN)!r} has no digest and size that can be checked")


def check_path(path: str) -> None:
    """Raises `ValueError` for a path that could lead out of its folder, also where it is percent-encoded."""
    for step in path.split("/"):
        plain = unquote(step)
        if not _STEP.fullmatch(plain) or plain in {".", ".."}:
            raise ValueError(f"the path {printable(path, _SHOWN)!r} has a step that is empty, a `..` or no plain name")


def read_frontmatter(content: bytes) -> dict[str, Any]:
    """What a `SKILL.md` says of itself, as JSON has it. Raises `ValueError`."""
    return _frontmatter(content, as_json=True)


def _readings(content: bytes) -> Iterable[dict[str, Any]]:
    """By both versions of YAML, since servers read it by either: `yes` is a text in the one and true in the other."""
    yield _frontmatter(content, as_json=True)
    yield _frontmatter(content, as_json=False)


def _frontmatter(content: bytes, *, as_json: bool) -> dict[str, Any]:
    try:
        text = content[: MAX_FRONTMATTER + 16].decode("utf-8", "ignore" if len(content) > MAX_FRONTMATTER else "strict")
        found = _FRONTMATTER.match(text)
        if found is None:
            raise ValueError(
                f"it does not begin with frontmatter between two lines of ---, of up to {MAX_FRONTMATTER:,}"
            )
        value = load_yaml(found[1], as_json=as_json)
        return msgspec.json.decode(msgspec.json.encode(value), type=dict[str, Any])
    except (TypeError, UnicodeDecodeError, msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"its frontmatter cannot be read: {error}") from None


def tools_named(frontmatter: Mapping[str, Any]) -> list[str]:
    """The tools that a skill names in `allowed-tools`: a text with blanks or commas between them, or a list."""
    named = frontmatter.get("allowed-tools")
    texts = [one for one in named if isinstance(one, str)] if isinstance(named, list) else [named]
    # `Bash(git add:*)` is one tool, with what it may be used for.
    words = [word for text in texts if isinstance(text, str) for word in re.findall(r"[^\s,(]+(?:\([^)]*\))?", text)]
    return list(dict.fromkeys(words))[:MAX_TOOLS]
