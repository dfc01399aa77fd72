"""A small real MCP server for one folder: `python -m toolfold.demo.files DIRECTORY`.

Every path is taken from the folder and must stay in it, links included: a path is resolved first, and then opened step
by step without following links, so that one that is swapped meanwhile leads nowhere.
"""

import errno
import os
import stat as modes
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

from msgspec import Meta, Struct

from toolfold.demo.server import serve
from toolfold.upstream.function_tool import Function, tool

_MAX_READ = 200_000
_MAX_FILE = 20_000_000
_MAX_VISITS = 20_000

_Count = Annotated[int, Meta(ge=1, le=2000)]
_Kind = Literal["file", "folder", "link", "other"]


class Entry(Struct):
    """A file or folder."""

    name: str
    path: Annotated[str, Meta(description="From the served folder, with forward slashes.")]
    kind: _Kind
    size: Annotated[int, Meta(description="Bytes.")]
    modified: Annotated[str, Meta(description="ISO 8601, UTC.")]


class Listing(Struct):
    """What a folder holds."""

    entries: list[Entry]
    truncated: bool


class Text(Struct):
    """A part of a text file."""

    path: str
    text: str
    first_line: int
    lines: int
    total_lines: int
    truncated: Annotated[bool, Meta(description="Whether more lines follow; raise `start` to read on.")]


class Match(Struct):
    """A line that matches."""

    path: str
    line: int
    text: str


class Matches(Struct):
    """Lines that match."""

    matches: list[Match]
    files_searched: int
    truncated: bool


class Tree(Struct):
    """A drawing of a folder."""

    text: str
    files: int
    folders: int
    truncated: bool


class Written(Struct):
    """What was written."""

    path: str
    bytes: int
    created: bool


class _FileTools:
    """The tools, for one folder."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def functions(self) -> list[Function]:
        return [self.list_folder, self.read, self.search, self.stat, self.tree, self.write]

    @tool(name="list", title="List a folder", read_only=True, open_world=False)
    def list_folder(self, path: str = ".", limit: _Count = 200) -> Listing:
        """List the files and folders in a folder, by name.

        Args:
            path: The folder, from the served one.
            limit: How many entries at most.
        """
        folder = self._inside(path)
        names = sorted(each.name for each in folder.iterdir())
        return Listing([self._entry(folder / name) for name in names[:limit]], len(names) > limit)

    @tool(title="Read a text file", read_only=True, open_world=False)
    def read(self, path: str, start: int = 1, lines: _Count = 500) -> Text:
        """Read a text file, or some lines of it.

        Args:
            path: The file, from the served folder.
            start: The first line, counted from 1.
            lines: How many lines at most.
        """
        content = self._content(path)
        # As git tells binary files.
        if b"\0" in content[:8000]:
            raise ValueError(f"{path} is no text file")
        every = content.decode("utf-8", "replace").splitlines(keepends=True)
        first = max(start, 1)
        part = every[first - 1 : first - 1 + lines]
        text = "".join(part)
        truncated = len(text) > _MAX_READ or first - 1 + len(part) < len(every)
        return Text(path, text[:_MAX_READ], first, len(part), len(every), truncated)

    @tool(title="Search in files", read_only=True, open_world=False)
    def search(self, text: str, path: str = ".", pattern: str = "*", limit: _Count = 100) -> Matches:
        """Find lines that contain a text, in all files of a folder and below it. Letter case does not count.

        Args:
            text: What to look for.
            path: The folder or file to search.
            pattern: Only files whose name fits, such as `*.md`.
            limit: How many lines at most.
        """
        from fnmatch import fnmatch

        needle = text.lower()
        matches: list[Match] = []
        searched = 0
        for file in self._files(self._inside(path)):
            if not fnmatch(file.name, pattern):
                continue
            searched += 1
            for number, line in self._text_lines(file):
                if needle in line.lower():
                    matches.append(Match(self._relative(file), number, line.strip()[:500]))
                    # One more than asked for shows that there are more.
                    if len(matches) > limit:
                        return Matches(matches[:limit], searched, True)
        return Matches(matches, searched, False)

    @tool(title="File details", read_only=True, open_world=False)
    def stat(self, path: str) -> Entry:
        """Tell the kind, size and time of one file or folder.

        Args:
            path: The file or folder, from the served one.
        """
        return self._entry(self._inside(path))

    @tool(title="Folder tree", read_only=True, open_world=False)
    def tree(self, path: str = ".", depth: Annotated[int, Meta(ge=1, le=20)] = 3, limit: _Count = 500) -> Tree:
        """Draw a folder and what is below it as a tree.

        Args:
            path: The folder, from the served one.
            depth: How many levels.
            limit: How many lines at most.
        """
        top = self._inside(path)
        drawn = Tree(f"{self._relative(top)}/\n", 0, 0, False)
        self._draw(top, "", depth, limit, drawn)
        return drawn

    @tool(title="Write a file", read_only=False, destructive=True, idempotent=True, open_world=False)
    def write(self, path: str, text: str, overwrite: bool = False) -> Written:
        """Write a text file. Folders on the way are made.

        Args:
            path: The file, from the served folder.
            text: Its whole new content.
            overwrite: Whether a file that is there may be replaced.
        """
        target = self._inside(path)
        if target == self._root:
            raise ValueError("give the name of a file")
        content = text.encode()
        existed = target.exists()
        if existed and not overwrite:
            raise FileExistsError(f"{path} is there already; set overwrite to replace it")
        # O_EXCL, and not the look before: a file may appear in between.
        flags = os.O_WRONLY | os.O_CREAT | (0 if overwrite else os.O_EXCL)
        with self._file(path, target, flags, make_folders=True) as file:
            file.truncate()
            file.write(content)
        return Written(self._relative(target), len(content), not existed)

    def _inside(self, path: str) -> Path:
        """The resolved path. Raises `PermissionError` where it leaves the folder."""
        if "\0" in path:
            raise ValueError("a path holds no zero byte")
        resolved = (self._root / path).resolve()
        if not resolved.is_relative_to(self._root):
            raise PermissionError(f"{path} is outside the served folder")
        return resolved

    def _descriptor(self, resolved: Path, flags: int, *, make_folders: bool = False) -> int:
        """Opens a resolved path from the root on, following no link on the way."""
        parts = resolved.relative_to(self._root).parts
        at = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # O_NOFOLLOW at each step: a folder that was swapped for a link after `resolve` leads nowhere.
            for part in parts[:-1]:
                if make_folders:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=at)
                below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                os.close(at)
                at = below
            return os.open(parts[-1] if parts else ".", flags | os.O_NOFOLLOW, 0o644, dir_fd=at)
        finally:
            os.close(at)

    def _file(self, path: str, resolved: Path, flags: int, *, make_folders: bool = False) -> BinaryIO:
        """A plain file, and nothing else. Not blocking: a pipe in the folder must not hold this server up."""
        try:
            descriptor = self._descriptor(resolved, flags | os.O_NONBLOCK, make_folders=make_folders)
        except OSError as error:
            if error.errno != errno.ENXIO:  # a pipe that nobody reads, or a socket
                raise
            raise ValueError(f"{path} is no file") from None
        if not modes.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise ValueError(f"{path} is no file")
        return os.fdopen(descriptor, "rb" if flags & os.O_ACCMODE == os.O_RDONLY else "wb")

    def _content(self, path: str) -> bytes:
        with self._file(path, self._inside(path), os.O_RDONLY) as file:
            content = file.read(_MAX_FILE + 1)
        if len(content) > _MAX_FILE:
            raise ValueError(f"{path} is over {_MAX_FILE} bytes")
        return content

    def _text_lines(self, file: Path) -> Iterator[tuple[int, str]]:
        try:
            content = self._content(self._relative(file))
        except (OSError, ValueError):
            return  # Too large, or gone meanwhile, or not for us to read: there is nothing to find in it.
        if b"\0" not in content[:8000]:
            yield from enumerate(content.decode("utf-8", "replace").splitlines(), 1)

    def _files(self, top: Path) -> Iterator[Path]:
        """Every file at or below a path, in a steady order; links are not followed."""
        if top.is_file():
            yield top
            return
        visits = 0
        for folder, folders, names in os.walk(top, followlinks=False):
            folders.sort()
            for name in sorted(names):
                visits += 1
                # A served folder may be a whole disk.
                if visits > _MAX_VISITS:
                    return
                path = Path(folder, name)
                if not path.is_symlink():
                    yield path

    def _relative(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()

    def _entry(self, path: Path) -> Entry:
        from datetime import UTC, datetime

        status = path.lstat()
        modified = datetime.fromtimestamp(status.st_mtime, UTC).isoformat(timespec="seconds")
        return Entry(path.name, self._relative(path), _kind(status.st_mode), status.st_size, modified)

    def _draw(self, folder: Path, margin: str, depth: int, limit: int, drawn: Tree) -> None:
        names = sorted(each.name for each in folder.iterdir())
        for number, name in enumerate(names, 1):
            if drawn.files + drawn.folders >= limit:
                drawn.truncated = True
                return
            path = folder / name
            kind = _kind(path.lstat().st_mode)
            last = number == len(names)
            drawn.text += f"{margin}{'└── ' if last else '├── '}{name}{'/' if kind == 'folder' else ''}\n"
            if kind != "folder":
                drawn.files += 1
                continue
            drawn.folders += 1
            if depth > 1:
                self._draw(path, margin + ("    " if last else "│   "), depth - 1, limit, drawn)


def _kind(mode: int) -> _Kind:
    if modes.S_ISREG(mode):
        return "file"
    if modes.S_ISDIR(mode):
        return "folder"
    return "link" if modes.S_ISLNK(mode) else "other"


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    if not root.is_dir():
        sys.exit(f"{root} is no directory. Usage: python -m toolfold.demo.files DIRECTORY")
    serve(
        "demo-files",
        _FileTools(root).functions(),
        instructions="Lists, reads, searches and writes text files in one folder.",
    )


if __name__ == "__main__":
    main()
