"""A folder of skills as an upstream: each folder in it that holds a `SKILL.md` is one, with all its files.

Nothing outside the folder is read: a link in a skill, or anything else that is no plain file, keeps the whole skill
out, with the reason. Files that were edited since they were listed are listed anew before they are shown. Names that
begin with a dot are left out. Above: the factory.
"""

import os
import stat
import time
from base64 import b64encode
from collections.abc import Iterable, Iterator
from hashlib import sha256
from mimetypes import guess_type
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec import Raw

from toolfold.errors import ProtocolViolation, ServerUnavailable, ToolNotFound
from toolfold.skill_entry import MAX_BYTES, MAX_FILES, SKILL_FILE, SkillEntry, check_path, read_frontmatter
from toolfold.text import printable
from toolfold.types import CallContext, Listing, Outcome, ServerInfo, ServerSpec, ToolCall, ToolDefinition
from toolfold.upstream.base import file_stamp
from toolfold.upstream.leaves import call_result, read_skill, request_of
from toolfold.upstream.threads import run_in_thread

__all__ = ["SkillFolder"]

# Of one folder: what is looked at, and how deep skills may stand.
MAX_SKILLS = 2_000
MAX_ENTRIES = 20_000
MAX_ALL_BYTES = 512 << 20
MAX_DEPTH = 16
_MAX_WARNINGS = 20
# Every call asks whether a file was edited, and there may be thousands: what is older is found by its digest.
LOOK_EVERY_S = 1.0
_SHOWN = 120


_Stamps = dict[Path, tuple[int, ...]]


class SkillFolder:
    """The skills below `spec.document`, which may be a skill itself."""

    pid: int | None = None

    def __init__(self, spec: ServerSpec) -> None:
        self.spec = spec
        self._folder = Path(spec.document)
        self._files: dict[str, Path] = {}
        # Of each folder and file that was read, as it was before.
        self._stamps: _Stamps = {}
        self._look_at = 0.0

    @property
    def outdated(self) -> bool:
        """Whether anything in it was written since it was listed."""
        now = time.monotonic()
        if now < self._look_at:
            return False
        edited = any(file_stamp(path) != stamp for path, stamp in self._stamps.items())
        self._look_at = 0.0 if edited else now + LOOK_EVERY_S
        return edited

    async def open(self) -> ServerInfo:
        if not self._folder.is_dir():
            raise ServerUnavailable(
                f"there is no folder {self._folder}", server=self.spec.name, next_action="Correct `skills`."
            )
        return ServerInfo(name=self.spec.name)

    async def listing(self) -> Listing:
        await self.open()
        skills, warnings = await run_in_thread(self._read)
        return Listing(
            server=self.spec.name, tools=skills, info=ServerInfo(name=self.spec.name), warnings=tuple(warnings)
        )

    async def call(self, call: ToolCall, context: CallContext) -> Outcome:
        method, params = request_of(call, context.meta)
        uri = msgspec.json.decode(params).get("uri", "")
        if not self._stamps:
            await self.listing()
        path = self._files.get(uri)
        if path is None:
            raise ToolNotFound(f"there is no file {printable(uri, _SHOWN)} in {self.spec.name}")
        try:
            content = await run_in_thread(lambda: _read_file(path, MAX_BYTES))
        except (OSError, ValueError) as error:
            action = "Put it back, or take the skill out of the folder."
            why = error.strerror if isinstance(error, OSError) else error  # callers learn no path of this machine
            raise ServerUnavailable(
                f"{printable(uri, _SHOWN)}: {why}", server=self.spec.name, next_action=action
            ) from error
        try:
            return Outcome(raw=call_result(call, method, params, _contents(uri, path, content)))
        except ProtocolViolation:
            self._look_at = 0.0
            raise

    async def aclose(self) -> None:
        """Nothing is open."""

    def _read(self) -> tuple[tuple[ToolDefinition, ...], list[str]]:
        skills: list[ToolDefinition] = []
        warnings: list[str] = []
        files: dict[str, Path] = {}
        stamps = {self._folder: file_stamp(self._folder)}
        left = MAX_ALL_BYTES
        for root in _skill_folders(self._folder, warnings, stamps):
            if left < 0:
                warnings.append(f"its skills have over {MAX_ALL_BYTES >> 20} MiB; the others were left out")
                break
            try:
                skill, own = _read_skill(root, self._folder, stamps)
            except (OSError, ValueError) as error:
                warnings.append(f"{printable(str(root), _SHOWN)} was left out: {printable(str(error), 200)}")
            else:
                skills.append(skill)
                files.update(own)
                left -= sum(file.size for file in SkillEntry.of(skill.raw).resources)
        self._files, self._stamps = files, stamps
        if (more := len(warnings) - _MAX_WARNINGS) > 0:
            warnings[_MAX_WARNINGS:] = [f"and {more:,} more warnings about this folder"]
        return tuple(skills), warnings


def _skill_folders(top: Path, warnings: list[str], stamps: _Stamps) -> Iterator[Path]:
    """The folders that hold a skill; each that is looked into is stamped before."""
    left, found = MAX_ENTRIES, 0
    for folder, below, names in os.walk(top):
        left -= len(below) + len(names)
        if left < 0 or len(Path(folder).relative_to(top).parts) >= MAX_DEPTH or found == MAX_SKILLS:
            warnings.append(f"not all of it was looked at: it has over {MAX_SKILLS:,} skills, {MAX_ENTRIES:,} files or")
            warnings[-1] += f" {MAX_DEPTH} folders within each other"
            below.clear()
        below[:] = sorted(_plain_names(below))
        for path in map(Path(folder).joinpath, below):
            stamps[path] = file_stamp(path)
            if path.is_symlink():
                warnings.append(f"{printable(str(path), _SHOWN)} is a link, and not followed")
        if SKILL_FILE in names and found < MAX_SKILLS:
            found += 1
            yield Path(folder)


def _plain_names(names: Iterable[str]) -> list[str]:
    return [name for name in names if not name.startswith(".")]


def _read_skill(root: Path, top: Path, stamps: _Stamps) -> tuple[ToolDefinition, dict[str, Path]]:
    """A skill and its files by their addresses. Raises `ValueError` with the reason for one that is none."""
    where = root.relative_to(top).parts or (root.resolve().name,)
    address = "skill://" + "/".join(quote(step, safe="") for step in where)
    left, frontmatter = MAX_BYTES, None
    resources: list[dict[str, str | int]] = []
    files: dict[str, Path] = {}
    for path, name in _files_below(root):
        if len(resources) == MAX_FILES:
            raise ValueError(f"it has over {MAX_FILES} files")
        stamps[path] = file_stamp(path)
        content = _read_file(path, left)
        left -= len(content)
        if name == SKILL_FILE:
            frontmatter = read_frontmatter(content)
        uri = f"{address}/{quote(name)}"
        files[uri] = path
        resources.append({"uri": uri, "digest": f"sha256:{sha256(content).hexdigest()}", "size": len(content)})
    entry = {"uri": f"{address}/{SKILL_FILE}", "frontmatter": frontmatter, "resources": resources}
    return read_skill(Raw(msgspec.json.encode(entry))), files


def _files_below(root: Path) -> Iterator[tuple[Path, str]]:
    for folder, below, names in os.walk(root):
        for name in (*below, *names):
            if Path(folder, name).is_symlink():
                raise ValueError(f"{name} is a link")
        below[:] = sorted(_plain_names(below))
        for name in sorted(_plain_names(names)):
            path = Path(folder, name)
            inner = path.relative_to(root).as_posix()
            if not inner.isprintable():
                raise ValueError(f"the name of {printable(inner, _SHOWN)} is no plain text")
            check_path(quote(inner))
            yield path, inner


def _read_file(path: Path, most: int) -> bytes:
    """A plain file, never a link or a pipe, of at most so many bytes."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(f"{path.name} is no plain file")
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"its files have over {MAX_BYTES >> 20} MiB")
    return content


def _contents(uri: str, path: Path, content: bytes) -> Raw:
    kind = "text/markdown" if path.suffix == ".md" else guess_type(path.name)[0] or ""
    held: dict[str, str] = {"uri": uri, **({"mimeType": kind} if kind else {})}
    try:
        held["text"] = content.decode()
    except UnicodeDecodeError:
        held["blob"] = b64encode(content).decode()
    return Raw(msgspec.json.encode({"contents": [held]}))
