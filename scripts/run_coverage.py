"""Runs the tests under branch coverage, in every process that they start, and fails below the aim.

    python scripts/run_coverage.py [pytest's arguments]

`coverage run` with its patch for subprocesses reaches only processes that inherit the environment and may write files.
Ours often have neither: servers and commands are started with environments of their own, and scripts, live sessions and
searches run in processes that the operating system confines. So each interpreter of this environment is started with
coverage by a `.pth` file, and adds the branches it took to one table in shared memory, mapped before anything is
confined: that takes no descriptor and no system call at the end. Processes that are killed add nothing.
"""

import json
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

from coverage_hook import SOURCE, TABLE, make_table, read_table

ROOT = Path(__file__).resolve().parents[1]
HOOK = Path(__file__).with_name("coverage_hook.py")
PTH = Path(sysconfig.get_paths()["purelib"]) / "toolfold_coverage.pth"


def collected(names: list[str]) -> None:
    """Turns the table into coverage's own file."""
    from coverage import CoverageData

    arcs: dict[str, list[tuple[int, int]]] = {}
    for file, start, end in read_table():
        arcs.setdefault(file, []).append((start, end))
    (ROOT / ".coverage").unlink(missing_ok=True)
    data = CoverageData(str(ROOT / ".coverage"))
    data.add_arcs(arcs)
    data.touch_files(names)  # what nothing imported counts as well
    data.write()


def print_report() -> None:
    """The files that are not covered whole, least first. Every analysis parses all sources: one must do."""
    found = json.loads((ROOT / "coverage.json").read_text(encoding="utf-8"))
    shares = {name: file["summary"]["percent_covered"] for name, file in found["files"].items()}
    rows = [(share, name) for name, share in shares.items() if share < 100]
    rows = [*sorted(rows), (found["totals"]["percent_covered"], "in all, lines and branches")]
    sys.stdout.writelines(f"{share:6.2f} %  {name}\n" for share, name in rows)


def main() -> int:
    # Ended from outside, it must still take the `.pth` file away.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    names = sorted(str(path) for path in Path(SOURCE).rglob("*.py"))
    make_table(names)
    path = str(HOOK.parent)
    PTH.write_text(f"import sys; sys.path.append({path!r}); import coverage_hook; sys.path.remove({path!r})\n")
    try:
        pytest = [sys.executable, "-m", "pytest", "-p", "coverage_hook", *sys.argv[1:]]
        tests = subprocess.run(pytest, cwd=ROOT, check=False).returncode
    finally:
        PTH.unlink()
    collected(names)
    Path(TABLE).unlink()
    report = subprocess.run([sys.executable, "-m", "coverage", "json", "-q"], cwd=ROOT, check=False).returncode
    print_report()
    return tests or report


if __name__ == "__main__":
    raise SystemExit(main())
