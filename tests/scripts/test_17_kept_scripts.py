"""Scripts that are kept by name: added, listed, locked, run and removed, and tools for every client."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolfold import Gateway, Settings
from toolfold.__main__ import main
from toolfold.errors import LockMismatch, NotAuthorized, ToolNotFound
from toolfold.types import Caller

SHOP = '''
def find_orders(customer: str, limit: int = 10) -> list[dict]:
    """Find the orders of a customer."""
    return [{"id": number, "customer": customer} for number in range(limit)]

def cancel_order(order: int) -> str:
    """Cancel an order."""
    return f"cancelled {order}"
'''
SCRIPT = '''
"""Kept in a shop."""
find = use_tools("shop.find_orders")

async def main(customer: str, limit: int = 3, kinds: list[str] | None = None):
    """Count the orders of a customer, whatever became of them.

    Args:
        customer: whose orders
    """
    found = await find(customer=customer, limit=limit)
    print("looked at", len(found))
    return {"orders": len(found), "customer": customer, "kinds": kinds}
'''
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    monkeypatch.delenv("TOOLFOLD_HOME", raising=False)
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "toolfold.toml").write_text(
        "[servers.shop]\nfunctions = 'shop.py'\n"
        "[callers.clerk]\nkey = 'a-long-key-of-the-clerk'\npolicy = 'clerk'\n"
        "[policy.clerk]\nallow = ['scripts.*', 'shop.find_orders']\ndeny = ['toolbox.run_script']\n"
        "[callers.guest]\nkey = 'a-long-key-of-the-guest'\npolicy = 'guest'\n[policy.guest]\nallow = ['scripts.*']\n"
    )
    (tmp_path / "count-orders.py").write_text(SCRIPT)

    def command(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def with_gateway(work: Callable[[Gateway], Any]) -> Any:
    async def scene() -> Any:
        async with Gateway(Settings.load()) as gateway:
            return await work(gateway)

    return asyncio.run(scene())


def test_17_a_script_is_kept_listed_shown_run_and_removed(run: Run, tmp_path: Path) -> None:
    assert "no script is kept" in run("scripts")[2]
    code, _, err = run("scripts", "add", "count-orders.py")
    assert (code, "shop.find_orders" in err) == (0, True)
    folder = tmp_path / ".toolfold" / "scripts"
    assert {path.name for path in folder.iterdir()} == {"count-orders.py", "count-orders.py.lock"}
    kept = json.loads(run("scripts", "list", "--json")[1])
    assert kept == {
        "scripts": [
            {
                "tool_id": "scripts.count-orders",
                "tools": "shop.find_orders",
                "description": "Count the orders of a customer, whatever became of them.",
            }
        ],
        "problems": {},
    }
    assert run("scripts", "show", "count-orders")[1].strip() == SCRIPT.strip()
    code, out, _ = run("scripts", "run", "count-orders", "customer=Ada", "limit=2")
    assert (code, out) == (0, 'looked at 2\n{"orders":2,"customer":"Ada","kinds":null}\n')
    assert run("call", "scripts.count-orders", "customer=Ada")[1].startswith("looked at 3\n")
    code, _, err = run("scripts", "run", "count-orders")
    assert code != 0
    assert "customer" in err
    assert "scripts.count-orders" in run("search", "count the orders of a customer")[1]
    code, _, err = run("scripts", "add", "count-orders.py")
    assert (code, "kept already" in err) == (2, True)
    assert run("scripts", "remove", "count-orders")[0] == 0
    assert list(folder.iterdir()) == []
    assert run("scripts", "run", "count-orders", "customer=Ada")[0] != 0
    assert "scripts.count-orders" not in run("tree", "--tools")[1]


def test_17_a_script_whose_tool_changed_says_which_and_can_be_locked_anew(run: Run, tmp_path: Path) -> None:
    run("scripts", "add", "count-orders.py")
    (tmp_path / "shop.py").write_text(SHOP.replace("limit: int = 10", "limit: int = 10, page: int = 0"))
    run("build")

    async def work(gateway: Gateway) -> None:
        with pytest.raises(LockMismatch, match=r"was locked to shop\.find_orders, which changed since"):
            await gateway.call_tool("scripts.count-orders", {"customer": "Ada"})

    with_gateway(work)
    code, _, err = run("scripts", "run", "count-orders", "customer=Ada")
    assert code != 0
    assert "shop.find_orders" in err
    assert "next:" in err
    assert run("scripts", "lock", "count-orders")[0] == 0
    assert run("scripts", "run", "count-orders", "customer=Ada")[0] == 0
    # And one that asks for more than was locked.
    kept = tmp_path / ".toolfold" / "scripts" / "count-orders.py"
    kept.write_text(kept.read_text() + '\nuse_tools("shop.cancel_order")\n')
    code, _, err = run("scripts", "run", "count-orders", "customer=Ada")
    assert (code != 0, "which is not in its lock" in err) == (True, True)


def test_17_a_kept_script_runs_under_the_policy_of_whoever_calls_it(run: Run) -> None:
    run("scripts", "add", "count-orders.py")

    async def work(gateway: Gateway) -> None:
        clerk, guest = Caller(name="clerk", policy="clerk"), Caller(name="guest", policy="guest")
        outcome = await gateway.call_tool("scripts.count-orders", {"customer": "Ada"}, caller=clerk)
        assert outcome.data == {"orders": 3, "customer": "Ada", "kinds": None}
        with pytest.raises(NotAuthorized):  # who may call it may not run any other for that
            await gateway.run_script("print(1)", caller=clerk)
        with pytest.raises(LockMismatch, match=r"shop\.find_orders, which is not there any more"):
            await gateway.call_tool("scripts.count-orders", {"customer": "Ada"}, caller=guest)

    with_gateway(work)


def test_17_nothing_of_a_script_is_run_to_describe_it(run: Run, tmp_path: Path) -> None:
    attack = tmp_path / "attack.py"
    for parameter in (
        "x: int = open('RAN', 'w')",
        "x: __import__('os').system('touch RAN') = 1",
        "x: (lambda: open('RAN', 'w'))() = 1",
        "x=[open('RAN', 'w') for _ in 'a']",
        "x: 'str.__subclasses__()' = 1",
    ):
        attack.write_text(f"def main({parameter}):\n    return 1\n")
        code, _, err = run("scripts", "add", "attack.py")
        assert code != 0, parameter
        assert "error:" in err
        assert not (tmp_path / "RAN").exists()
        assert not (tmp_path / ".toolfold" / "scripts" / "attack.py").exists()
    run("scripts", "add", "count-orders.py")
    (tmp_path / ".toolfold" / "scripts" / "attack.py").write_text("def main(x=open('RAN', 'w')):\n    return 1\n")
    assert "left out" in run("build")[2]
    assert "attack.py" in run("scripts")[2]
    assert not (tmp_path / "RAN").exists()

    async def work(gateway: Gateway) -> None:
        with pytest.raises(ToolNotFound):
            await gateway.call_tool("scripts.attack", {})

    with_gateway(work)


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "", "a b", "x" * 60, "1st"])
def test_17_only_plain_names_are_kept(run: Run, tmp_path: Path, name: str) -> None:
    for command in (["add", "count-orders.py", f"--name={name}"], ["show", name], ["remove", name]):
        if command[0] == "add" and not name:
            continue
        code, _, err = run("scripts", *command)
        assert (code, "next:" in err) == (2, True), command
    assert not list(tmp_path.glob("**/*.lock"))


def test_17_a_script_without_main_or_that_calls_it_itself_takes_no_arguments(run: Run, tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text('"""Says a word."""\nprint("hello")\n[1, 2]\n')
    (tmp_path / "own.py").write_text("import asyncio\n\nasync def main(n=4):\n    return n\n\nasyncio.run(main(7))\n")
    for name in ("plain", "own"):
        assert run("scripts", "add", f"{name}.py")[0] == 0
    assert run("scripts", "run", "plain")[1] == "hello\n[1,2]\n"
    assert run("scripts", "run", "own")[1] == "7\n"
    assert run("scripts", "run", "own", "n=1")[0] != 0

    async def work(gateway: Gateway) -> None:
        assert (await gateway.call_tool("scripts.plain", {})).data == [1, 2]

    with_gateway(work)


def test_17_scripts_do_not_call_each_other(run: Run, tmp_path: Path) -> None:
    (tmp_path / "again.py").write_text('use_tools("scripts.again")\nfrom servers.scripts import again\nawait again()\n')
    (tmp_path / "again2.py").write_text("async def main():\n    return 1\n")
    assert run("scripts", "add", "again2.py")[0] == 0
    (tmp_path / "again.py").write_text((tmp_path / "again.py").read_text().replace("again", "again2"))
    assert run("scripts", "add", "again.py")[0] == 4
    # However it came there.
    (tmp_path / "again.py").rename(tmp_path / ".toolfold" / "scripts" / "again.py")
    run("build")
    code, out, err = run("scripts", "run", "again")
    assert code == 1
    assert "scripts.again2" in out + err


@pytest.mark.parametrize(
    "answer",
    ["loop = []\nloop.append(loop)\nloop", "{'n': 10**5000}", "x = '\\ud800'\nx"],
    ids=["loop", "number", "half"],
)
def test_19_what_is_no_json_is_told_as_with_run(run: Run, tmp_path: Path, answer: str) -> None:
    (tmp_path / "odd.py").write_text(f"{answer}\n")
    told = "what the script returned is no JSON"
    code, _, err = run("run", "odd.py")
    assert (code, told in err) == (0, True)
    assert run("scripts", "add", "odd.py")[0] == 0
    code, out, _ = run("scripts", "run", "odd")
    assert (code, told in out, "null" in out) == (0, True, False)


def test_19_what_is_no_file_is_told_and_breaks_nothing_else(run: Run, tmp_path: Path) -> None:
    run("scripts", "add", "count-orders.py")
    folder = tmp_path / ".toolfold" / "scripts"
    os.mkfifo(folder / "pipe.py")
    (folder / "bad.py").write_text("1\n")
    (folder / "bad.py.lock").mkdir()
    code, out, err = run("scripts")
    assert (code, "scripts.count-orders" in out) == (0, True)
    assert "pipe.py is no file" in err
    assert "bad.py.lock is no file" in err
    assert run("build")[0] == 0
    assert run("scripts", "run", "count-orders", "customer=Ada")[0] == 0


def test_19_what_is_said_about_a_kept_script_can_be_done(run: Run, tmp_path: Path) -> None:
    code, _, err = run("scripts", "add", "count-orders.py")
    assert (code, "toolfold scripts run count-orders customer=…" in " ".join(err.split())) == (0, True)
    code, _, err = run("scripts", "add", "count-orders.py", "--name", "Count-Orders")
    assert (code, "'count-orders' is kept already" in err) == (2, True)
    (tmp_path / "nested.py").write_text("count = use_tools('scripts.count-orders')\n")
    code, _, err = run("scripts", "add", "nested.py")
    assert code != 0
    assert "do not call each other" in " ".join(err.split())
    assert not (tmp_path / ".toolfold" / "scripts" / "nested.py").exists()
    (tmp_path / "shop.py").write_text(SHOP.replace("limit: int = 10", "limit: int = 10, page: int = 0"))
    run("build")
    err = run("scripts", "run", "count-orders", "customer=Ada")[2]
    assert "toolfold scripts lock count-orders" in " ".join(err.split())


def test_19_a_script_that_takes_too_long_names_the_setting_of_scripts(run: Run, tmp_path: Path) -> None:
    with (tmp_path / "toolfold.toml").open("a") as file:
        file.write("[scripts]\nwall_s = 1\n")
    (tmp_path / "slow.py").write_text("while True:\n    pass\n")
    run("scripts", "add", "slow.py")
    code, out, err = run("scripts", "run", "slow")
    assert code != 0
    assert "wall_s of [scripts]" in " ".join((out + err).split())


def test_19_what_a_function_prints_is_no_part_of_the_answer(run: Run, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP.replace("    return f", "    print('noise')\n    return f"))
    for form in ([], ["--json"]):
        code, out, err = run("call", "shop.cancel_order", "order=7", *form)
        assert (code, "noise" in out, "noise" in err) == (0, False, True)
        assert "cancelled 7" in out
