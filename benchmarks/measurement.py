"""What every bench needs: facts of the machine, percentiles, CPU time. A bench says itself what its figures mean."""

import os
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from typing import Any


def environment(*packages: str) -> dict[str, Any]:
    """Where a figure was measured: interpreter, machine, cores, load, and the versions of `packages`."""
    return {
        "toolfold": _version("toolfold"),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load_1min": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "packages": {package: _version(package) for package in packages},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the values lie; the nearest of them, 0 where there are none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Spent:
    """CPU seconds of this process between entering and leaving `cpu_time()`."""

    seconds: float = 0.0


@contextmanager
def cpu_time() -> Iterator[Spent]:
    spent = Spent()
    started = time.process_time()
    try:
        yield spent
    finally:
        spent.seconds = time.process_time() - started
