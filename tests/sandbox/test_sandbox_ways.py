"""How children are confined here, and what happens where a layer is not to be had: the next way, or a refusal."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sandbox_lab import CONFINED, Lab

from toolfold.errors import SandboxError
from toolfold.sandbox import confinement, libc
from toolfold.sandbox import zygote as backends
from toolfold.sandbox.base import MIB, ChildLimits
from toolfold.sandbox.readable_paths import resolve_links

X86_ONLY = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the test forbids system calls by their numbers")

FORBIDDING = """
import asyncio, json, struct, sys
import msgspec
from toolfold.sandbox import libc, seccomp
forbidden = json.loads(sys.argv[1])
code = [(0x20, 0, 0, 0)]
for number in forbidden:
    code += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | 38)]
code.append((0x06, 0, 0, 0x7FFF0000))
libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
seccomp.install(b"".join(struct.pack("=HBBI", *each) for each in code))
from toolfold.sandbox.probe import probe
report = asyncio.run(probe())
print(json.dumps({**msgspec.to_builtins(report), "holds": report.holds}))
"""
LANDLOCK, UNSHARE = [444, 445, 446], [272]


def report_without(numbers: list[int], path: str = "") -> dict[str, object]:
    """What a host finds whose kernel has none of these system calls."""
    done = subprocess.run(
        [sys.executable, "-c", FORBIDDING, json.dumps(numbers)],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    report: dict[str, object] = json.loads(done.stdout)
    return report


@pytest.mark.requirement("U-10")
@pytest.mark.parametrize("way", CONFINED)
def test_the_layers_that_must_hold_do(lab: Lab, way: str) -> None:
    layers = lab.attack(way, "result = 1").layers
    assert {"no_new_privs", "rlimits", "seccomp"} <= set(layers)
    assert "landlock" in layers or way == "bubblewrap"


@pytest.mark.requirement("U-10")
@X86_ONLY
def test_without_landlock_and_bubblewrap_it_refuses_and_says_what_to_do() -> None:
    report = report_without(LANDLOCK)
    assert report["layers"] == []
    assert "there is no sandbox here: the kernel has no Landlock" in str(report["refusal"])
    assert "bubblewrap" in str(report["next_action"])
    assert "--unsafe" in str(report["next_action"])


@X86_ONLY
def test_without_namespaces_the_other_layers_hold_alone() -> None:
    report = report_without(UNSHARE)
    assert report["holds"], report
    assert {"landlock", "seccomp", "rlimits"} <= set(report["layers"])  # type: ignore[call-overload]  # a list, from JSON
    assert "namespaces" not in report["layers"]  # type: ignore[operator]  # as above
    assert "no namespaces" in str(report["missing"])


WEAK_ROOT = """
import json, os, sys
from toolfold.sandbox import libc
kept, groups, *command = sys.argv[1:]
if groups == "no groups":
    libc.call("unshare", 0x20000)
    libc.call("mount", None, "/", None, 0x4000 | 0x40000, None)
    for line in open("/proc/mounts").read().splitlines()[::-1]:
        if " /sys/fs/cgroup" in line:
            libc.call("umount2", line.split()[1], 2)
for number in range(64):
    if number not in json.loads(kept):
        try:
            libc.prctl(libc.PR_CAPBSET_DROP, number)
        except OSError:
            break
os.execv(command[0], command)
"""
FOR_A_USER = sorted(libc.CAPABILITIES.values())
LIMITED = """
import asyncio, json, sys
from toolfold.errors import SandboxError
from toolfold.sandbox.base import ChildLimits
from toolfold.sandbox.zygote import Zygote
many = "import threading\\nhold = threading.Event()\\nthreading.stack_size(32768)\\nresult = 0\\n"
many += "while True:\\n try:\\n  threading.Thread(target=hold.wait, daemon=True).start(); result += 1\\n"
many += " except RuntimeError:\\n  if result < 40: break\\n"
async def use(may_fork, code):
    limits = ChildLimits(wall_s=20, threads=16, may_fork=may_fork)
    async with Zygote("toolfold.sandbox.probe:execute", ready=1, limits=limits) as zygote:
        try:
            async with await zygote.take() as child:
                await child.send(json.dumps({"code": code}).encode())
                answer = json.loads(await child.receive() or b"null")
                return [child.layers, answer, (await child.wait()).ending if answer is None else ""]
        except SandboxError as error:
            return str(error)
print(json.dumps([asyncio.run(use(False, many)), asyncio.run(use(True, "result = 1"))]))
"""


def as_weak_root(kept: list[int], groups: str, *command: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """What root says that has these capabilities alone, as in a container."""
    done = subprocess.run(
        [sys.executable, "-c", WEAK_ROOT, json.dumps(kept), groups, sys.executable, *command],
        env={**os.environ, "HOME": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    if "unshare" in done.stderr or "umount2" in done.stderr:
        pytest.skip("this root may mount nothing")
    return done


@pytest.mark.requirement("U-10")
@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can be a root without capabilities")
@pytest.mark.parametrize("groups", ["groups", "no groups"])
@pytest.mark.parametrize("kept", [[], [7], [0, 1, 3, 5, 6, 7], FOR_A_USER], ids=str)
def test_root_without_capabilities_runs_scripts_and_the_doctor_names_what_is_missing(
    kept: list[int], groups: str, tmp_path: Path
) -> None:
    script = tmp_path / "s.py"
    script.write_text("print(6 * 7)\n")
    (tmp_path / "tools.py").write_text('def add(a: int, b: int) -> int:\n    """Adds."""\n    return a + b\n')
    (tmp_path / "toolfold.toml").write_text('[servers.own]\nfunctions = "./tools.py"\n')
    toolfold = ("-m", "toolfold", "--config", str(tmp_path / "toolfold.toml"))
    ran = as_weak_root(kept, groups, *toolfold, "run", str(script), folder=tmp_path)
    assert "42" in ran.stdout, ran.stderr
    told = as_weak_root(kept, groups, *toolfold, "doctor", "--json", folder=tmp_path)
    findings = [each for each in json.loads(told.stdout)["findings"] if each["subject"] == "sandbox"]
    layers = findings[0]["text"]
    assert "14 of 14 attacks stopped by" in layers
    said = " ".join(each["text"] for each in findings)
    assert ("user," in layers) != ("no user of its own for each child: toolfold runs as root without CAP_" in said)
    assert "run `toolfold doctor`" not in told.stdout
    if groups == "groups":
        return
    threads, forking = json.loads(as_weak_root(kept, groups, "-c", LIMITED, folder=tmp_path).stdout)
    if "user" in threads[0]:  # the kernel counts
        assert threads[1]["result"] < 40
        assert forking[1] == {"result": 1}
    else:  # the host does, and kills
        assert threads[1:] == [None, "killed"]
        assert "nothing would bound how many processes it forks" in forking
        assert "no limit of the kernel on threads" in said


@X86_ONLY
@pytest.mark.skipif("bubblewrap" not in CONFINED, reason="bubblewrap is not installed")
def test_without_landlock_bubblewrap_does() -> None:
    report = report_without(LANDLOCK, os.environ["PATH"])
    assert report["holds"], report
    assert {"bubblewrap", "seccomp", "rlimits"} <= set(report["layers"])  # type: ignore[call-overload]  # as above


def test_unsafe_must_be_asked_for_and_is_told(lab: Lab) -> None:
    outcome = lab.attack("unsafe", "result = len(open('/etc/passwd').read()) > 0")
    assert outcome.layers == ()
    assert outcome.answer == {"result": True}


@pytest.mark.parametrize("way", CONFINED)
def test_the_library_of_python_works_inside(lab: Lab, way: str) -> None:
    code = """
import asyncio, concurrent.futures, importlib, shutil, sqlite3, tempfile, zipfile, zoneinfo
async def main():
    await asyncio.sleep(0.001)
    return await asyncio.gather(*(asyncio.to_thread(pow, n, 2) for n in range(4)))
done = [asyncio.run(main())]
with sqlite3.connect("data.sqlite") as database:
    database.execute("create table t (x)")
    database.execute("insert into t values (1)")
    done.append(database.execute("select x from t").fetchone()[0])
database.close()
with tempfile.TemporaryDirectory() as folder:
    with open(folder + "/a", "w") as file:
        file.write("text")
    shutil.copyfile(folder + "/a", "b")
    os.rename("b", "c")
    with zipfile.ZipFile("z.zip", "w") as archive:
        archive.write("c")
done += [open("c").read(), sorted(os.listdir(".")), str(zoneinfo.ZoneInfo("Europe/Berlin"))]
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    done.append(sum(pool.map(len, ["a", "bb"])))
for name in ("ssl", "csv", "decimal", "hashlib", "multiprocessing", "urllib.request", "numpy", "pydantic"):
    importlib.import_module(name)
done.append(len(os.urandom(4)))
result = done
"""
    outcome = lab.attack(way, code)
    expected = [[0, 1, 4, 9], 1, "text", ["c", "data.sqlite", "z.zip"], "Europe/Berlin", 3, 4]
    assert outcome.answer == {"result": expected}, outcome


def test_modes_can_be_changed_in_a_folder_of_its_own(lab: Lab) -> None:
    code = "open('a', 'w').close(); os.chmod('a', 0o600); os.utime('a', (1, 1))\nresult = os.stat('a').st_mtime"
    assert lab.attack("namespaces", code).answer == {"result": 1.0}


def test_the_name_of_the_machine_stays_outside(lab: Lab) -> None:
    assert lab.attack("namespaces", "result = os.uname().nodename").answer == {"result": "sandbox"}


@pytest.mark.parametrize("way", ["namespaces", "plain"])
def test_a_family_shares_its_memory_where_groups_can_be_made(lab: Lab, way: str) -> None:
    code = """
import time
reading, writing = os.pipe()
for _ in range(6):
    if os.fork() == 0:
        kept = b"x" * 100 * 2**20
        os.write(writing, b".")
        time.sleep(600)
ended = os.wait()[1]
result = os.waitstatus_to_exitcode(ended)
"""
    limits = ChildLimits(wall_s=20, memory_bytes=128 * MIB, scratch_bytes=MIB, may_fork=True)
    outcome = lab.attack(way, code, limits=limits)
    if "cgroups" not in outcome.layers:
        pytest.skip("this user may make no control groups here")
    assert outcome.answer == {"result": -9} or outcome.exit.ending in ("out_of_memory", "killed")


def test_links_and_the_places_they_lead_to_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "far").symlink_to(tmp_path / "link" / "inner")
    real, links = resolve_links([str(tmp_path / "far"), str(tmp_path / "link")])
    assert [path for path in real if path.startswith(str(tmp_path))] == [str(tmp_path / "real")]
    assert links == {str(tmp_path / "far"): str(tmp_path / "link" / "inner"), str(tmp_path / "link"): "real"}


def test_bubblewrap_is_given_no_network_no_proc_no_environment_and_one_folder(tmp_path: Path) -> None:
    command = backends._bubblewrap_command("bwrap", str(tmp_path), [])
    assert {"--unshare-net", "--unshare-pid", "--clearenv", "--die-with-parent", "--new-session"} <= set(command)
    assert "--proc" not in command
    assert [command[place + 1] for place, each in enumerate(command) if each == "--bind"] == [str(tmp_path)]
    assert command[-1] == "--"


def test_the_first_backend_that_works_is_chosen_and_none_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert backends._choose_backend(readable=[]).name == "native"
    assert backends._choose_backend(readable=[], unsafe=True).name == "unsafe"
    monkeypatch.setattr(confinement, "missing_requirement", lambda *, namespaced: "no Landlock")
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/bwrap")
    chosen = backends._choose_backend(readable=[])
    assert (chosen.name, chosen.single, chosen.wrap("/f")[0]) == ("bubblewrap", True, "/usr/bin/bwrap")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(SandboxError, match="there is no sandbox here: no Landlock"):
        backends._choose_backend(readable=[])


def test_the_seatbelt_profile_denies_all_but_what_it_names() -> None:
    text = backends._seatbelt_profile("/private/tmp/scratch", ['/opt/py"thon', "/opt/lib"])
    lines = text.splitlines()
    assert lines[:3] == ["(version 1)", "(deny default)", "(deny network*)"]
    assert [line for line in lines if "file-write" in line] == [
        '(allow file-read* file-write* (subpath "/private/tmp/scratch"))',
        '(allow file-write-data (literal "/dev/null"))',
    ]
    assert '(allow file-read* (subpath "/opt/py\\"thon"))' in lines
    assert not [line for line in lines if line.startswith("(allow network")]
    assert text.count("(") == text.count(")")
    assert backends._seatbelt_command("/f", [])[:2] == [backends._SANDBOX_EXEC, "-p"]
