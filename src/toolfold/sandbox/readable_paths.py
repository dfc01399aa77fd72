"""What a child may read: the interpreter's own files, its packages, toolfold, and what the caller adds.

Nothing else that happens to be on the import path: a project installed in place may have its secrets beside it.
Standard library only, run in the zygote. Above: `surroundings.py`, `confinement.py`.
"""

import os
import sys
import sysconfig

_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/nix/store", "/etc/ld.so.cache")
_TIME_ZONE_FILES = ("/usr/share/zoneinfo", "/etc/localtime")
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
_PACKAGE_FOLDERS = {"site-packages", "dist-packages"}


def readable_paths(extra: list[str]) -> list[str]:
    """Existing paths, as they are written; some may be links or lie in others."""
    paths = sysconfig.get_paths()
    wanted = [*_LIBRARIES, *_TIME_ZONE_FILES, *(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))]
    for prefix in (sys.base_prefix, sys.base_exec_prefix):
        wanted += [os.path.join(prefix, name) for name in ("lib", "lib64")]  # noqa: PTH118 - no pathlib in the zygote
    wanted += [_own_package(), *extra]
    return [path for path in dict.fromkeys(wanted) if os.path.exists(path)]  # noqa: PTH110 - as above


def _own_package() -> str:
    """Where toolfold lies: the packages folder it is installed in, or its own folder in a source tree."""
    package = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120 - as above
    around = os.path.dirname(package)  # noqa: PTH120 - as above
    return around if os.path.basename(around) in _PACKAGE_FOLDERS else package  # noqa: PTH119 - as above


def resolve_links(paths: list[str]) -> tuple[list[str], dict[str, str]]:
    """The real paths, none inside another, and the links by which they are also known."""
    links: dict[str, str] = {}
    real = sorted({_resolve_path(path, links) for path in paths}, key=len)
    outermost: list[str] = []
    for path in real:
        if not any(path == other or path.startswith(other.rstrip("/") + "/") for other in outermost):
            outermost.append(path)
    hidden = tuple(path + "/" for path in outermost)
    return outermost, {link: target for link, target in links.items() if not link.startswith(hidden)}


def _resolve_path(path: str, links: dict[str, str]) -> str:
    """Follows a path step by step and notes each link on the way."""
    rest = [part for part in path.split("/") if part]
    current = ""
    for _ in range(200):
        if not rest:
            break
        step = rest.pop(0)
        if step == "..":
            current = current.rpartition("/")[0]
            continue
        if step == ".":
            continue
        current = f"{current}/{step}"
        if os.path.islink(current):  # noqa: PTH114 - as above
            target = links[current] = os.readlink(current)  # noqa: PTH115 - as above
            rest = [part for part in target.split("/") if part] + rest
            current = "" if target.startswith("/") else current.rpartition("/")[0]
    return current or "/"
