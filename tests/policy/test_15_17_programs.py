"""A policy decides on scripts and live Python as on any tool, and the audit log has them, and refused keys, too."""

from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from msgspec import Raw
from policy_scene import gateway_of

from toolfold import Gateway, Settings
from toolfold.config.sections import CallerKey, Policy
from toolfold.errors import ConfirmationNeeded, Declined, NotAuthorized
from toolfold.faces.http_api import make_app
from toolfold.faces.identity import Identities
from toolfold.faces.mcp_server.http import make_guard
from toolfold.faces.surface.live import _LiveSurface
from toolfold.types import CallContext, Caller

POLICIES = (
    Policy(name="nothing", allow=()),
    Policy(name="narrow", allow=("shop.*",)),
    Policy(name="scripts", allow=("shop.*", "toolbox.run_script")),
    Policy(name="live", allow=("server:toolbox",), deny=("toolbox.run_script",)),
    Policy(name="asked", confirm=("toolbox.*",)),
)


def caller(policy: str) -> Caller:
    return Caller(name="ann", session="s", policy=policy)


@pytest.mark.parametrize("policy", ["nothing", "narrow", "live"])
async def test_15_17_a_policy_that_does_not_allow_scripts_runs_none(tmp_path: Path, policy: str) -> None:
    async with gateway_of(Settings(home=tmp_path, policies=POLICIES)) as gateway:
        with pytest.raises(NotAuthorized, match=r"toolbox\.run_script") as refused:
            await gateway.run_script("1 + 1", caller=caller(policy))
        assert f"`{policy}`" in refused.value.next_action


@pytest.mark.parametrize("policy", ["nothing", "narrow", "scripts"])
async def test_15_17_a_policy_that_does_not_allow_live_python_opens_no_session(tmp_path: Path, policy: str) -> None:
    async with gateway_of(Settings(home=tmp_path, policies=POLICIES)) as gateway:
        with pytest.raises(NotAuthorized, match=r"toolbox\.live_python"):
            gateway.live(caller=caller(policy))
        raw = await _LiveSurface(gateway).call("eval_expr", Raw(b'{"expr":"1"}'), CallContext(caller=caller(policy)))
        answer = msgspec.json.decode(raw)
        assert answer["isError"]
        assert "NOT_AUTHORIZED" in answer["content"][0]["text"]


async def test_15_17_what_a_policy_names_or_leaves_open_runs(tmp_path: Path) -> None:
    async with gateway_of(Settings(home=tmp_path, policies=POLICIES)) as gateway:
        await gateway.build()
        for policy in ("default", "scripts"):
            assert (await gateway.run_script("1 + 1", caller=caller(policy))).answer == 2
        for policy in ("default", "live"):
            answer = await gateway.live_sessions.sessions.dispatch(caller(policy), "eval_expr", {"expr": "6 * 7"})
            assert answer["result"]["value_repr"] == "42"


async def test_15_17_a_person_confirms_a_script_where_the_policy_says_so(tmp_path: Path) -> None:
    asked: list[Any] = []

    def answering(action: str) -> Any:
        async def person(method: str, params: Raw) -> Raw:
            asked.append(msgspec.json.decode(params))
            return Raw(msgspec.json.encode({"action": action, "content": {"confirm": True}}))

        return person

    able = Raw(b'{"elicitation":{}}')
    async with gateway_of(Settings(home=tmp_path, policies=POLICIES)) as gateway:
        with pytest.raises(ConfirmationNeeded):
            await gateway.run_script("1 + 1", caller=caller("asked"))
        with pytest.raises(Declined):
            await gateway.run_script("1 + 1", caller=caller("asked"), on_input=answering("decline"), capabilities=able)
        yes = answering("accept")
        result = await gateway.run_script("1 + 1", caller=caller("asked"), on_input=yes, capabilities=able)
        assert result.answer == 2
    assert "1 + 1" in asked[0]["message"]


async def test_15_17_scripts_and_evaluations_are_in_the_audit_log(tmp_path: Path) -> None:
    async with gateway_of(Settings(home=tmp_path, policies=POLICIES)) as gateway:
        await gateway.run_script("1 + 1", caller=caller("default"))
        await gateway.run_script("1 / 0", caller=caller("default"))
        with pytest.raises(NotAuthorized):
            await gateway.run_script("secret", caller=caller("nothing"))
        sessions = gateway.live_sessions.sessions
        await sessions.dispatch(caller("default"), "eval_expr", {"expr": "41 + 1"})
        steps = [step for step in await gateway.audit_log.steps() if step.step == "call"]
    assert [(step.tool_id, step.is_error, step.code) for step in steps] == [
        ("toolbox.run_script", False, ""),
        ("toolbox.run_script", True, ""),
        ("toolbox.run_script", False, "NOT_AUTHORIZED"),
        ("toolbox.live_python", False, ""),
    ]
    assert {(step.caller, step.session) for step in steps} == {("ann", "s")}
    assert steps[0].arguments == {"code": "string of 5"}
    assert steps[3].arguments == {"function": "string of 9", "expr": "string of 6"}


async def test_15_17_refused_keys_are_in_the_audit_log_and_cannot_flood_it(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, callers=(CallerKey(name="ann", key="a" * 20),))
    async with Gateway(settings) as gateway:
        guard = make_guard("127.0.0.1", Identities(settings), gateway.audit_log.record_refused_key)
        transport = httpx2.ASGITransport(make_app(gateway, guard), client=("192.0.2.7", 1))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for _ in range(50):
                answer = await client.get("/v1/servers", headers={"Authorization": "Bearer guessed-key-of-mallory"})
                assert answer.status_code == 401
            known = {"Authorization": "Bearer " + "a" * 20}
            assert (await client.get("/v1/servers", headers=known)).status_code == 200
        (step,) = await gateway.audit_log.steps()
        assert (step.step, step.query, step.code) == ("refused", "192.0.2.7", "NOT_AUTHENTICATED")
        assert "guessed" not in repr(step)
