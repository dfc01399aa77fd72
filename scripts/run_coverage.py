"""Runs the tests under branch coverage, in every process that they start, and fails below the aim.

    python scripts/run_coverage.py [pytest's arguments]

`coverage run` with its patch for subprocesses reaches only processes that inherit the environment and may write files.
Ours often have neither: servers and commands are started with environments of their own, and scripts, live sessions and
searches run in processes that the operating system confines. So each interpreter of this environment is started with
coverage by a `.pth` file, and adds the branches it took to one table in shared memory, mapped before anything is
confined: that takes no descriptor and no system call at the end. Processes that are killed add nothing.
"""

import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOOK = Path(__file__).with_name("coverage_hook.py")
PTH = Path(sysconfig.get_paths()["purelib"]) / "toolfold_coverage.pth"
TABLE = ROOT / ".coverage.table"


def collected() -> None:
    """Turns the table into coverage's own file."""
    from coverage import CoverageData

    sys.path.insert(0, str(HOOK.parent))
    from coverage_hook import entries, files

    names = files()
    arcs: dict[str, list[tuple[int, int]]] = {}
    for file, start, end in entries(TABLE):
        arcs.setdefault(names[file], []).append((start, end))
    (ROOT / ".coverage").unlink(missing_ok=True)
    data = CoverageData(str(ROOT / ".coverage"))
    data.add_arcs(arcs)
    data.touch_files(names)  # what nothing imported counts as well
    data.write()


def main() -> int:
    # Ended from outside, it must still take the `.pth` file away.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with TABLE.open("wb") as table:
        table.truncate(1 << 22)
    path = str(HOOK.parent)
    PTH.write_text(f"import sys; sys.path.append({path!r}); import coverage_hook; sys.path.remove({path!r})\n")
    try:
        pytest = [sys.executable, "-m", "pytest", "-p", "coverage_hook", *sys.argv[1:]]
        tests = subprocess.run(pytest, cwd=ROOT, check=False).returncode
    finally:
        PTH.unlink()
    collected()
    TABLE.unlink()
    coverage = [sys.executable, "-m", "coverage"]
    subprocess.run([*coverage, "json", "-q"], cwd=ROOT, check=False)
    report = subprocess.run([*coverage, "report", "--skip-covered", "--sort=cover"], cwd=ROOT, check=False).returncode
    return tests or report


if __name__ == "__main__":
    raise SystemExit(main())
