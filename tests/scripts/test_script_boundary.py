"""What crosses from child to host is checked there: each attack is a real script in a real sandbox."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from script_kit import git, open_gateway, run_script, run_scripts, with_tools

from toolfold import Gateway
from toolfold.config.sections import Policy, Scripts
from toolfold.events import Event
from toolfold.scripts import report
from toolfold.scripts.runner import ScriptResult
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import CallContext, Caller, ToolCall

RAW = """
import json, os, struct
log, = use_tools("git.git_log")
def frame(value):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    data = struct.pack(">I", len(body)) + body
    os.set_blocking(3, True)
    while data:
        data = data[os.write(3, data):]
def answer():
    os.set_blocking(3, True)
    size = struct.unpack(">I", os.read(3, 4))[0]
    data = b""
    while len(data) < size:
        data += os.read(3, size - len(data))
    return json.loads(data)
"""


VIOLATIONS = [
    "os.write(3, b'\\xff\\xff\\xff\\xff')",
    "os.write(3, b'\\x80\\x00\\x00\\x01x')",
    "os.write(3, b'\\x00\\x00\\x00\\x00')",
    "os.write(3, b'GET / HTTP/1.1\\r\\n\\r\\n' * 20)",
    "frame(b'not json')",
    "frame(b'[1, 2]')",
    "frame({'op': 'eval', 'id': 1})",
    "frame({'op': 'call', 'id': -1, 'tool': 'git.git_log'})",
    "frame({'op': 'call', 'id': 'x', 'tool': 'git.git_log'})",
    'frame(b\'{"op":"call","id":1,"args":\' + b\'[\' * 100_000)',
    "frame({'op': 'done', 'outcome': 'as I like it'})",
    "[frame({'op': 'call', 'id': 9, 'tool': 'git.git_log', 'args': {}}) for _ in range(50)]",
    'frame(b\'{"op":"load","id":1,"ref":1,"offset":\' + b\'9\' * 5000 + b\'}\')',
    "frame(b' ' * 5_000_000)",
    "[frame({'op': 'cancel', 'id': 1}) for _ in range(121_000)]",
]


def test_bytes_that_are_no_frame_end_the_run_as_a_violation(tmp_path: Path) -> None:
    codes = [f"{RAW}\n{attack}\nimport time\ntime.sleep(100)" for attack in VIOLATIONS]
    results = run_scripts(tmp_path, codes, scripts=Scripts(wall_s=100.0, ready=1))
    assert {attack: result.outcome for attack, result in zip(VIOLATIONS, results, strict=True)} == dict.fromkeys(
        VIOLATIONS, "protocol_violation"
    )


def test_a_frame_in_pieces_of_one_byte_is_a_frame(tmp_path: Path) -> None:
    code = f"""{RAW}
body = json.dumps({{"op": "call", "id": 1, "tool": "git.git_log", "args": {{"max_count": 2}}}}).encode()
for byte in struct.pack(">I", len(body)) + body:
    os.write(3, bytes([byte]))
print(len(answer()["result"]["structuredContent"]["commits"]))
"""
    assert run_script(tmp_path, code).stdout == "2\n"


NOT_DECLARED = [
    "mail.send_mail",
    "git.git_branch",
    "GIT.GIT_LOG",
    "git.git_log.",
    "git.\uff47it_log",
    "git.git_log\\0",
    "",
    "toolbox.inspect_tool_output",
]


def test_only_the_exact_ids_that_the_script_declared_can_be_called(tmp_path: Path) -> None:
    upstream = git()
    call = "frame({{'op': 'call', 'id': 1, 'tool': '{0}', 'args': {{}}}})\nprint(answer()['error']['code'])"
    results = run_scripts(tmp_path, [f"{RAW}\n{call.format(tool)}" for tool in NOT_DECLARED], upstreams=[upstream])
    assert [result.stdout for result in results] == ["NOT_DECLARED\n"] * len(NOT_DECLARED)
    assert {result.calls[0].code for result in results} == {"NOT_DECLARED"}
    assert upstream.calls == []


ODD_ARGUMENTS = [
    '{"max_count": NaN}',
    '{"max_count": Infinity}',
    '{"max_count": 1, "max_count": 2}',
    '{"max_count": ' + "9" * 90_000 + "}",
    '{"x": ' + "[" * 900 + "]" * 900 + "}",
    "[1]",
    '"text"',
    '{"max_count": "many"}',
    '{"max_count": 1, "sub": {"a": 1, "a": 2}}',
]


def test_odd_json_in_arguments_is_a_bounded_error_and_reaches_no_server(tmp_path: Path) -> None:
    upstream = git()
    bodies = ['{"op":"call","id":1,"tool":"git.git_log","args":' + arguments + "}" for arguments in ODD_ARGUMENTS]
    codes = [f"{RAW}\nframe({body!r}.encode())\nprint(answer()['error']['code'])" for body in bodies]
    results = run_scripts(tmp_path, codes, upstreams=[upstream])
    fine = {("INVALID_ARGUMENTS\n", "finished"), ("", "protocol_violation")}
    assert [index for index, one in enumerate(results) if (one.stdout, one.outcome) not in fine] == []
    assert upstream.calls == []


def test_hundreds_of_thousands_of_keys_are_no_trouble_for_the_host(tmp_path: Path) -> None:
    code = f"""{RAW}
frame({{'op': 'call', 'id': 1, 'tool': 'git.git_log', 'args': {{str(n): n for n in range(200_000)}}}})
print(answer()['error']['code'])
"""
    result = run_script(tmp_path, code)
    assert result.stdout == "INVALID_ARGUMENTS\n", report.as_text(result)


def test_many_calls_at_once_wait_their_turn_and_end_at_the_cap(tmp_path: Path) -> None:
    upstream = git()
    most = 0

    async def main() -> ScriptResult:
        running = 0

        async def slow(call: ToolCall) -> Any:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return {"content": []}

        original = upstream.call

        async def counted(call: ToolCall, context: CallContext) -> Any:
            await slow(call)
            return await original(call, context)

        upstream.call = counted  # type: ignore[method-assign]  # counts what runs at once
        async with open_gateway(
            tmp_path, [upstream], Scripts(wall_s=60.0, calls=300, calls_at_once=8, ready=1)
        ) as gateway:
            return await gateway.run_script(
                """
                import asyncio
                log, = use_tools("git.git_log")
                done = await asyncio.gather(*(log(max_count=1) for _ in range(20_000)), return_exceptions=True)
                [sum(not isinstance(one, Exception) for one in done), {type(one).__name__ for one in done}]
                """.replace("\n                ", "\n")
            )

    result = asyncio.run(main())
    assert result.answer[0] == 300, report.as_text(result)
    assert sorted(result.answer[1]) == ["CallLimit", "GitLogResult"]
    assert most <= 8
    assert len(upstream.calls) == 300


def test_raw_bytes_while_a_call_is_in_flight_end_the_run_and_the_call(tmp_path: Path) -> None:
    upstream = git()
    events: list[Event] = []

    async def main() -> ScriptResult:
        async with open_gateway(tmp_path, [upstream]) as gateway:
            gateway.events.subscribe(events.append)
            upstream.delay = asyncio.Event()
            return await gateway.run_script(
                "import asyncio, os\nlog, = use_tools('git.git_log')\n"
                "async def main():\n    task = asyncio.create_task(log())\n    await asyncio.sleep(0.2)\n"
                "    os.write(3, b'\\x00\\x00\\x00\\x05junk!')\n    await task\nasyncio.run(main())"
            )

    result = asyncio.run(main())
    assert result.outcome == "protocol_violation"
    assert [call.code for call in result.calls] == ["CANCELLED"]
    assert "script.call_cancelled" in [event.name for event in events]


async def test_cancelling_a_run_cancels_its_calls_and_says_so(tmp_path: Path) -> None:
    upstream = git()
    events: list[str] = []

    async with open_gateway(tmp_path, [upstream]) as gateway:
        started = asyncio.Event()

        def hear(event: Event) -> None:
            events.append(event.name)
            if event.name == "call.started":
                started.set()

        gateway.events.subscribe(hear)
        upstream.delay = asyncio.Event()
        task = asyncio.create_task(gateway.run_script("log, = use_tools('git.git_log')\nawait log()"))
        async with asyncio.timeout(20):
            await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert "script.call_cancelled" in events
    assert "script.cancelled" in events


def test_a_call_that_the_script_gives_up_is_cancelled_at_the_host(tmp_path: Path) -> None:
    upstream = git()

    async def main() -> ScriptResult:
        async with open_gateway(tmp_path, [upstream]) as gateway:
            upstream.delay = asyncio.Event()
            return await gateway.run_script(
                "import asyncio\nlog, = use_tools('git.git_log')\n"
                "try:\n    await asyncio.wait_for(log(), 0.2)\nexcept TimeoutError:\n    print('gave up')"
            )

    result = asyncio.run(main())
    assert result.stdout == "gave up\n"
    assert [call.code for call in result.calls] == ["CANCELLED"]


@pytest.mark.requirement("U-06")
def test_a_large_result_stays_with_the_host_until_the_script_looks_into_it(tmp_path: Path) -> None:
    big = MemoryUpstream(
        "logs", [{"name": "read_all", "description": "Read the whole log.", "inputSchema": {"type": "object"}}]
    )
    rows = [{"n": n, "text": "ü" * 40} for n in range(200_000)]
    big.answer("read_all", {"content": [], "structuredContent": {"rows": rows}})
    result = run_script(
        tmp_path,
        """
        read, = use_tools("logs.read_all")
        whole = await read()
        print(whole.size > 15_000_000, repr(whole)[:12])
        print(sum(len(piece) for piece in whole.pieces()) > 8_000_000)
        print(len(whole.rows), whole.rows[-1].n, whole["rows"][0]["text"][:2])
        """,
        upstreams=[big],
    )
    assert result.stdout.splitlines() == ["True <a result of", "True", "200000 199999 üü"], report.as_text(result)


def test_results_over_what_the_host_keeps_are_refused(tmp_path: Path) -> None:
    big = MemoryUpstream(
        "logs", [{"name": "read_all", "description": "Read the whole log.", "inputSchema": {"type": "object"}}]
    )
    big.answer("read_all", "x" * 900_000)
    code = """
    read, = use_tools("logs.read_all")
    for _ in range(5):
        await read()
    """
    result = run_script(tmp_path, code, upstreams=[big], scripts=Scripts(kept_bytes=2 << 20, ready=1))
    assert result.error is not None
    assert result.error.type == "CallLimit"
    assert len(result.calls) == 3


def test_what_the_script_breaks_in_its_own_process_does_not_reach_the_host(tmp_path: Path) -> None:
    upstream = git()
    result = run_script(
        tmp_path,
        """
        import builtins, gc, json, pydantic
        log, = use_tools("git.git_log")
        from toolfold.scripts.runtime.host_link import HostLink
        link = next(one for one in gc.get_objects() if isinstance(one, HostLink))
        pydantic.BaseModel.__init__ = lambda self, **given: None
        json.dumps = None
        print((await link._call("mail.send_mail", {"to": "x"})).error["code"])
        print((await link._call("git.git_log", {"max_count": "rm -rf"})).error["code"])
        """,
        upstreams=[upstream],
    )
    assert result.stdout == "NOT_DECLARED\nINVALID_ARGUMENTS\n", report.as_text(result)
    assert upstream.calls == []


def test_a_confirmation_stops_the_scripts_clock_and_the_call_goes_on(tmp_path: Path) -> None:
    waited: list[str] = []
    answers = iter([b'{"action":"accept","content":{"confirm":true}}', b'{"action":"decline"}'])

    async def person(method: str, params: msgspec.Raw) -> msgspec.Raw:
        waited.append(msgspec.json.decode(params)["message"])
        await asyncio.sleep(1.5)  # longer than the script may take
        return msgspec.Raw(next(answers))

    async def work(gateway: Gateway) -> ScriptResult:
        code = """
branch, = use_tools("git.git_branch")
print(await branch(name="one"))
try:
    await branch(name="two")
except Exception as error:
    print(type(error).__name__)
"""
        await gateway.run_script("pass")
        can_ask = msgspec.Raw(b'{"elicitation":{}}')
        return await gateway.run_script(code, on_input=person, capabilities=can_ask, timeout_s=1.2)

    upstream = git()
    policies = (Policy(name="default", confirm=("git.git_branch",)),)
    result = with_tools(tmp_path, work, upstreams=[upstream], policies=policies)
    assert result.stdout == "created one\nDeclined\n", report.as_text(result)
    assert "Allow this call of git.git_branch" in waited[0]
    assert len(upstream.calls) == 1


def test_a_tool_that_the_caller_may_not_see_is_not_there_for_its_scripts(tmp_path: Path) -> None:
    policies = (Policy(name="default"), Policy(name="readers", deny=("mail.*",)))
    code = """
try:
    use_tools("mail.send_mail")
except Exception as error:
    print(type(error).__name__, error.candidates)
use_tools("send an e-mail message to somebody")
"""

    async def work(gateway: Gateway) -> list[ScriptResult]:
        reader = Caller(name="ada", policy="readers")
        await gateway.run_script(code)
        return [await gateway.run_script(code, caller=reader), await gateway.run_script(code)]

    reader, local = with_tools(tmp_path, work, policies=policies)
    assert reader.outcome == "failed"
    assert reader.stdout.startswith("ToolNotFound")
    assert "mail" not in reader.stdout
    assert [need.tool_id for need in reader.needs] == ["", ""]
    assert local.outcome == "finished"
