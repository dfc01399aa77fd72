"""_Quotas: counted over all gateways on one store, refused with what ran out and when it works again."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec import Raw
from msgspec.structs import replace
from served_config import Served, wait_for_call

from toolfold import Gateway, Settings
from toolfold.config.sections import CallerKey, Policy, Scripts, _Quotas
from toolfold.errors import QuotaExceeded
from toolfold.policy.quotas import _QuotaKeeper
from toolfold.storage.sqlite.store import SqliteStore
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import CallContext, Caller, Tool, ToolCall, ToolDefinition

pytestmark = pytest.mark.requirement("G-18")

ANN, BOB = Caller(name="ann"), Caller(name="bob")
CALL = ToolCall(
    tool=Tool(tool_id="shop.buy", server="shop", definition=ToolDefinition(name="buy", raw=Raw(b"{}")), fingerprint=""),
    arguments=Raw(b"{}"),
)


class CountingStore(SqliteStore):
    """A real store that says how often it was asked, and can be taken away."""

    asked = 0
    away = False

    async def increment(self, *given: Any, **more: Any) -> float:
        self.asked += 1
        if self.away:
            await asyncio.Event().wait()
        return await super().increment(*given, **more)


class Scene:
    """Several gateways' keepers on one store, with a clock of their own."""

    def __init__(self, store: CountingStore, settings: Settings) -> None:
        self.now = 1_000_020.0
        self.store = store
        self.keepers = [_QuotaKeeper(store, settings, lambda: self.now) for _ in range(3)]

    async def call(self, keeper: int = 0, caller: Caller = ANN) -> CallContext:
        context = CallContext(caller=caller)
        waiting = self.keepers[keeper].check(CALL, context)
        if waiting is not None:
            await waiting
        return context


@asynccontextmanager
async def scene(tmp_path: Path, **settings: Any) -> AsyncIterator[Scene]:
    async with asyncio.timeout(60), CountingStore(tmp_path / "toolfold.sqlite") as store:
        made = Scene(store, Settings(home=tmp_path, **settings))
        yield made
        for keeper in made.keepers:
            await keeper.aclose()


async def test_19_without_quotas_the_store_is_never_asked(tmp_path: Path) -> None:
    async with scene(tmp_path) as now:
        for _ in range(100):
            assert now.keepers[0].check(CALL, CallContext(caller=ANN)) is None
        assert now.store.asked == 0


async def test_19_calls_are_counted_over_gateways_and_reserved_ahead(tmp_path: Path) -> None:
    async with scene(tmp_path, quotas=_Quotas(calls_per_minute=400)) as now:
        for number in range(360):
            await now.call(number % 3)
        assert now.store.asked <= 21, "twenty calls are reserved at a time"
        granted = 360
        with pytest.raises(QuotaExceeded) as refused:  # noqa: PT012 - which of them is refused is not known
            for number in range(100):
                await now.call(number % 3)
                granted += 1
        # Each of the two others may hold a batch that this gateway cannot have.
        assert 400 - 2 * 20 <= granted <= 400
        assert refused.value.as_dict()["quota"] == "calls_per_minute"
        assert refused.value.retry_after_s == 60 - now.now % 60
        asked = now.store.asked
        for _ in range(50):
            with pytest.raises(QuotaExceeded):
                await now.call(2)
        assert now.store.asked <= asked + 1, "whoever asks too often costs no round trip"
        await now.call(0, BOB)
        now.now += refused.value.retry_after_s
        await now.call(2)


async def test_19_never_more_than_the_quota_however_many_ask_at_once(tmp_path: Path) -> None:
    async with scene(tmp_path, quotas=_Quotas(calls_per_minute=7)) as now:
        calls = (now.call(number % 3) for number in range(60))
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(one, CallContext) for one in done) == 7
        assert all(isinstance(one, (CallContext, QuotaExceeded)) for one in done)


async def test_19_a_callers_own_quota_comes_before_its_policys_and_that_before_all(tmp_path: Path) -> None:
    policies = (Policy(name="narrow", quotas={"calls_per_minute": 2}),)
    callers = (CallerKey(name="cat", key="k" * 20, policy="narrow", quotas={"calls_per_minute": 5}),)
    async with scene(
        tmp_path, quotas=_Quotas(calls_per_minute=1, calls_at_once=9), policies=policies, callers=callers
    ) as now:
        keeper = now.keepers[0]
        assert keeper.of(ANN).calls_per_minute == 1
        assert keeper.of(Caller(name="dan", policy="narrow")).calls_per_minute == 2
        assert keeper.of(Caller(name="cat", policy="narrow")) == _Quotas(calls_per_minute=5, calls_at_once=9)
        keeper.reconfigure(Settings(home=tmp_path))
        assert keeper.check(CALL, CallContext(caller=ANN)) is None


async def test_19_calls_at_once_are_counted_over_gateways_and_a_freed_one_is_taken_elsewhere(tmp_path: Path) -> None:
    async with scene(tmp_path, quotas=_Quotas(calls_at_once=2)) as now:
        first, second = await now.call(0), await now.call(1)
        with pytest.raises(QuotaExceeded, match="2 of your calls run already"):
            await now.call(2)
        await now.call(2, BOB)
        now.keepers[0].ended(first)
        third = await now.call(2)  # waits until the first gateway gave its slot back
        now.keepers[1].ended(second)
        now.keepers[2].ended(third)
        for number in range(30):  # one after the other, through all gateways
            now.keepers[number % 3].ended(await now.call(number % 3))


async def test_19_calls_of_a_gateway_that_was_killed_count_until_the_minute_is_over(tmp_path: Path) -> None:
    async with scene(tmp_path, quotas=_Quotas(calls_at_once=1)) as now:
        await now.call(0)  # and nobody ever hears of it again
        with pytest.raises(QuotaExceeded):
            await now.call(1)
        now.now += 60
        now.keepers[1].ended(await now.call(1))


async def test_19_a_long_call_counts_in_the_next_minute_too(tmp_path: Path) -> None:
    async with scene(tmp_path, quotas=_Quotas(calls_at_once=2)) as now:
        await now.call(0)
        now.now += 60
        again = await now.call(0)  # tells the store of both
        with pytest.raises(QuotaExceeded):
            await now.call(1)
        now.keepers[0].ended(again)
        await now.call(1)


async def test_19_while_the_store_does_not_answer_a_gateway_counts_for_itself(tmp_path: Path) -> None:
    async with scene(tmp_path, quotas=_Quotas(calls_per_minute=3)) as now:
        now.store.away = True
        for _ in range(3):
            await now.call()
        with pytest.raises(QuotaExceeded):
            await now.call()
        now.store.away = False


def gateway_with(tmp_path: Path, quotas: _Quotas, *upstreams: Any) -> Gateway:
    settings = Settings(home=tmp_path, quotas=quotas, scripts=Scripts(ready=1))
    return Gateway(replace(settings, outputs=replace(settings.outputs, directory=str(tmp_path))), upstreams=upstreams)


async def test_19_stored_bytes_run_out_and_small_answers_still_come(tmp_path: Path) -> None:
    shop = MemoryUpstream("shop", [{"name": "report"}, {"name": "count"}])
    shop.answer("report", "x" * 50_000)
    shop.answer("count", "7")
    async with gateway_with(tmp_path, _Quotas(stored_bytes_per_day=80_000), shop) as gateway:
        await gateway.build()
        for _ in range(2):  # the second goes over: it is looked at before each
            assert (await gateway.call_tool("shop.report", {})).stored is not None
        with pytest.raises(QuotaExceeded, match="the tool did its work") as refused:
            await gateway.call_tool("shop.report", {})
        assert "ask for less" in refused.value.next_action
        assert (await gateway.call_tool("shop.count", {})).text == "7"
        assert (await gateway.call_tool("shop.report", {}, caller=BOB)).stored is not None
        [step] = [step for step in await gateway.audit_log.steps() if step.code]
        assert (step.tool_id, step.code) == ("shop.report", "QUOTA_EXCEEDED")


async def test_19_script_seconds_run_out(tmp_path: Path) -> None:
    async with gateway_with(tmp_path, _Quotas(script_s_per_hour=1)) as gateway:
        await gateway.build()
        assert (await gateway.run_script("import time\ntime.sleep(1.1)", caller=ANN)).outcome == "finished"
        with pytest.raises(QuotaExceeded, match="1 seconds of scripts an hour"):
            await gateway.run_script("1", caller=ANN)
        assert (await gateway.run_script("1 + 1", caller=BOB)).answer == 2


KEY = "a-key-of-enough-characters"
CALLERS = f'[callers.ann]\nkey = "{KEY}"\npolicy = "narrow"\n[callers.bob]\nkey = "another-{KEY}"\n'
HEADERS = {"Authorization": f"Bearer {KEY}"}


def post(url: str, seconds: float = 0.0, key: str = KEY) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {key}"}
    body = {"tool_id": "shop.buy", "args": {"seconds": seconds}}
    return httpx2.post(url.replace("/mcp", "/v1/call_tool"), json=body, headers=headers, timeout=60)


def test_19_two_served_gateways_on_one_store_count_together_and_follow_their_configuration(tmp_path: Path) -> None:
    served = Served(tmp_path)
    shop = served.table("shop", "buy")
    served.write(shop, CALLERS, "[policy.narrow]\nquotas = { calls_at_once = 1 }\n")
    with ExitStack() as stack:
        other = Served(tmp_path)
        urls = [stack.enter_context(one.over_http()) for one in (served, other)]
        for url in urls:
            wait_for_call(url, "shop.buy", KEY)
        long = threading.Thread(target=post, args=(urls[0], 60.0))
        long.start()
        served.wait_until_called("buy")
        refused = post(urls[1])
        error = refused.json()["error"]
        assert (refused.status_code, error["code"], error["quota"]) == (429, "QUOTA_EXCEEDED", "calls_at_once")
        assert refused.headers["retry-after"] == str(error["retry_after_s"]) == "1"
        assert post(urls[1], key=f"another-{KEY}").is_success
        served.end_calls("buy")
        long.join(20)
        assert post(urls[1]).is_success

        served.write(shop, CALLERS, "[policy.narrow]\nquotas = { calls_per_minute = 5 }\n")
        for one in (served, other):
            one.wait_for("the configuration was read again")
        granted = 0
        # A minute of the clock may end in between, once.
        while (answer := post(urls[granted % 2])).is_success:
            granted += 1
            assert granted <= 10
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert post(urls[0], key=f"another-{KEY}").is_success


def test_19_a_model_reads_what_ran_out_and_when_it_works_again(tmp_path: Path) -> None:
    from mcp import Client
    from served_config import parameters

    served = Served(tmp_path)
    served.write(served.table("shop", "buy"), "[quotas]\ncalls_per_minute = 1\n")

    async def ask() -> None:
        async with asyncio.timeout(60), Client(parameters(served.command(), tmp_path), cache=None) as client:
            deadline = time.monotonic() + 30
            while True:
                answer = await client.call_tool("shop_buy", {})
                text = str(getattr(answer.content[0], "text", ""))
                if answer.is_error and "QUOTA_EXCEEDED" in text:
                    break
                assert time.monotonic() < deadline, text
            assert "1 calls a minute" in text
            assert '"retry_after_s":' in text
            assert "then it works again" in text

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ("[quotas]\ncalls_per_minute = -1\n", "out of bounds"),
        ("[policy.p]\nquotas = { calls = 1 }\n", "unknown key"),
        ('[callers.ann]\nkey = "sixteen-letters-"\nquotas = 5\n', "expected a table"),
    ],
)
def test_19_quotas_that_are_wrong_are_told_with_their_place(tmp_path: Path, table: str, word: str) -> None:
    from toolfold.errors import ConfigError

    (tmp_path / "toolfold.toml").write_text(table)
    with pytest.raises(ConfigError, match=word):
        Settings.load(tmp_path / "toolfold.toml", home=tmp_path, require_servers=False)
