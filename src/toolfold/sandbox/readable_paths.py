"""What a child may read: the interpreter's own files, its packages, toolfold, and what the caller adds.

Nothing else from the import path: a project installed in place may have its secrets beside it. Standard library only.
Above: `isolation.py` and `confinement.py` in the zygote, `zygote.py` in the host.
"""

# The zygote does not import pathlib.
# ruff: noqa: PTH110, PTH114, PTH115, PTH118, PTH119, PTH120

import os
import sys
import sysconfig

DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/nix/store", "/etc/ld.so.cache")
_TIME_ZONE_FILES = ("/usr/share/zoneinfo", "/etc/localtime")
_PACKAGE_FOLDERS = {"site-packages", "dist-packages"}
# More steps than any honest chain of links takes; a loop of links ends here.
_MAX_STEPS = 200


def readable_paths(extra: list[str]) -> list[str]:
    """Lists the paths that exist, unresolved; some may be links or lie within others."""
    paths = sysconfig.get_paths()
    wanted = [*_LIBRARIES, *_TIME_ZONE_FILES, *(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))]
    for prefix in (sys.base_prefix, sys.base_exec_prefix):
        wanted += [os.path.join(prefix, name) for name in ("lib", "lib64")]
    wanted += [_own_package(), *extra]
    return [path for path in dict.fromkeys(wanted) if os.path.exists(path)]


def _own_package() -> str:
    """The packages folder toolfold is installed in, or its own folder in a source tree."""
    package = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    parent = os.path.dirname(package)
    return parent if os.path.basename(parent) in _PACKAGE_FOLDERS else package


def resolve_links(paths: list[str]) -> tuple[list[str], dict[str, str]]:
    """Returns the real paths, none within another, and the links that lead to them."""
    links: dict[str, str] = {}
    real = sorted({_resolve_path(path, links) for path in paths}, key=len)
    outermost: list[str] = []
    for path in real:
        if not any(path == other or path.startswith(other.rstrip("/") + "/") for other in outermost):
            outermost.append(path)
    hidden = tuple(path + "/" for path in outermost)
    return outermost, {link: target for link, target in links.items() if not link.startswith(hidden)}


def _resolve_path(path: str, links: dict[str, str]) -> str:
    """Resolves a path step by step and adds each link on the way to `links`."""
    rest = _split(path)
    current = ""
    for _ in range(_MAX_STEPS):
        if not rest:
            break
        step = rest.pop(0)
        if step == "..":
            current = current.rpartition("/")[0]
            continue
        current = f"{current}/{step}"
        if os.path.islink(current):
            target = links[current] = os.readlink(current)
            rest = _split(target) + rest
            current = "" if target.startswith("/") else current.rpartition("/")[0]
    return current or "/"


def _split(path: str) -> list[str]:
    return [step for step in path.split("/") if step not in ("", ".")]
