"""Objects made to break whoever looks at them: each is answered in time, bounded, and the session is as it was."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from live_torture import TORTURES, Torture

from toolfold import LiveSession
from toolfold.live.session import WORKER_ENTRY, LiveLimits
from toolfold.sandbox.zygote import Zygote

pytestmark = pytest.mark.load

LIMITS = LiveLimits(inspect_s=0.6)
LATE_S = 8.0
"""A deadline and what a busy machine adds. It only tells an answer from a hang."""
PAYLOAD = 32 * 1024

# What must not change: which names there are, what they are bound to, how far iterators stand, what lists hold.
DIGEST = """
import hashlib as _hashlib
def _digest(
    _sha=_hashlib.sha256, _id=id, _type=type, _str=str, _sorted=sorted, _list=list, _len=len, _repr=repr,
    _globals=globals,
):
    facts = [(name, _id(value)) for name, value in _list(_globals().items()) if _type(name) is _str]
    for name, value in _list(_globals().items()):
        if any_(_type(value) is kind for kind in (_list, dict_, set_)):
            facts.append((_str(name) + '#', _len(value)))
        if _type(value) is list_iterator:
            facts.append((_str(name) + '@', value.__length_hint__()))
        if _type(value) is generator and value.gi_frame is not None:
            facts.append((_str(name) + '@', value.gi_frame.f_lasti))
    return _sha(_repr(_sorted(facts)).encode()).hexdigest()
any_, dict_, set_, list_iterator, generator = any, dict, set, type(iter([])), type(_ for _ in ())
"""


@asynccontextmanager
async def sessions() -> AsyncIterator[Zygote]:
    async with Zygote(WORKER_ENTRY, limits=LIMITS.sandbox_limits(), ready=2) as zygote:
        yield zygote


async def digest(session: LiveSession) -> str:
    answer = await session.eval_expr("_digest()")
    assert answer["ok"], answer
    return str(answer["result"]["value_repr"])


async def tortured(zygote: Zygote, torture: Torture) -> None:
    async with LiveSession(children=zygote, limits=LIMITS) as session:
        for code in (DIGEST, torture.setup):
            answer = await session.execute(code)
            assert answer["ok"], (torture.name, answer)
        before = await digest(session)
        started = time.monotonic()
        answer = await session.inspect(torture.expr)
        assert time.monotonic() - started < LATE_S, torture.name
        assert len(json.dumps(answer)) <= PAYLOAD, torture.name
        assert not (torture.forges and answer["ok"]), torture.name
        if answer["ok"]:
            assert {"type", "kind"} <= set(answer["result"]), torture.name
        else:
            codes = {"invalid_result_shape"} if torture.forges else {"inspect_timeout", "python_exception"}
            assert answer["error"]["code"] in codes, (torture.name, answer)
        assert torture.slow or torture.forges or answer["ok"] or torture.expr != "it", (torture.name, answer)
        assert await digest(session) == before, torture.name
        assert (await session.list_globals())["ok"], torture.name


@pytest.mark.requirement("L-03", "L-04", "L-05", "L-08")
async def test_every_torture_is_answered_in_time_and_changes_nothing() -> None:
    async with sessions() as zygote:
        room = asyncio.Semaphore(4)

        async def one(torture: Torture) -> None:
            async with room:
                await tortured(zygote, torture)

        async with asyncio.TaskGroup() as group:
            for torture in TORTURES:
                group.create_task(one(torture))


# Those that change the interpreter for all others cannot stand in one session with them.
ALONE = ("builtins", "shadowed", "settings", "recursion limit", "trace", "ignored", "odd keys", "very wide", "huge")
GALLERY = tuple(
    torture
    for torture in TORTURES
    if not torture.slow
    and not torture.forges
    and torture.expr == "it"
    and not any(word in torture.name for word in ALONE)
)
THREADS = """
import threading as _threading, time as _time
_held = _threading.Lock()
def _busy():
    while True:
        with _held:
            sum(range(200))
        _time.sleep(0.0005)
_threads = [_threading.Thread(target=_busy, daemon=True) for _ in range(3)]
for _thread in _threads: _thread.start()
class TakesALock:
    def __repr__(self):
        with _held:
            return 'free'
it_lock = TakesALock()
"""


async def rounds(session: LiveSession, names: list[str], count: int) -> None:
    before = await digest(session)
    for number in range(count):
        name = names[number % len(names)]
        answer = await session.inspect(name)
        assert answer["ok"] or answer["error"]["code"] == "inspect_timeout", (name, answer)
        assert len(json.dumps(answer)) <= PAYLOAD
    assert await digest(session) == before
    assert (await session.eval_expr("_digest.__name__"))["result"]["value_repr"] == "'_digest'"


@pytest.mark.requirement("L-05", "L-08")
@pytest.mark.parametrize("threaded", [False, True], ids=["one thread", "several threads"])
async def test_many_rounds_over_all_objects_leave_the_session_as_it_was(threaded: bool) -> None:
    async with LiveSession(limits=LiveLimits(inspect_s=1.0)) as session:
        assert (await session.execute(DIGEST))["ok"]
        names = []
        for number, torture in enumerate(GALLERY):
            answer = await session.execute(f"{torture.setup}\nit_{number} = it")
            assert answer["ok"], (torture.name, answer)
            names.append(f"it_{number}")
        if threaded:
            assert (answer := await session.execute(THREADS))["ok"], answer
            names.append("it_lock")
        await rounds(session, names, 500)


@pytest.mark.requirement("L-08")
async def test_a_lock_that_another_thread_holds_is_a_timeout_and_no_deadlock() -> None:
    async with LiveSession(limits=LIMITS) as session:
        await session.execute(
            "import threading\nlock = threading.Lock()\nready = threading.Event()\n"
            "def hold():\n    with lock:\n        ready.set()\n        threading.Event().wait()\n"
            "threading.Thread(target=hold, daemon=True).start()\nready.wait()\n"
            "class Odd:\n    def __repr__(self):\n        with lock: return 'never'\nit = Odd()"
        )
        answer = await session.inspect("it")
        assert answer["error"]["code"] == "inspect_timeout"
        assert answer["error"]["partial"]["kind"] == "object"
        assert (await session.eval_expr("lock.locked()"))["result"]["value_repr"] == "True"
