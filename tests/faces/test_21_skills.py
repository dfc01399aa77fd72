"""Skills of all servers through one endpoint: listed, read, checked, held back, found by a need."""

import asyncio
import copy
import json
import os
import sys
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from leaf_servers import Leaves, met, operate, play
from made_skills import digest, made, skill
from mcp import Client
from mcp_client_helpers import RecordingClient
from msgspec import Raw

from toolfold import Gateway, Settings, ToolfoldError
from toolfold.config.sections import MetadataRule, Policy, Trust
from toolfold.errors import RemoteError
from toolfold.types import LOCAL, CallContext, Caller, Era, ServerSpec
from toolfold.wire import Connection, StdioTarget
from toolfold.wire.connect import connect

pytestmark = pytest.mark.requirement("G-15")

SERVER = Path(__file__).parents[1] / "servers" / "leaves_stdio.py"
REFUNDS = skill(
    "skill://acme/refunds/SKILL.md",
    {"ref/FORMS.md": "forms", "ref/inner/SKILL.md": "---\nname: inner\n---\n"},
    description="Process customer refund requests by company policy.",
    **{"allowed-tools": "Bash(git:*) mcp__docs__point asked mcp__wiki__tell nothing"},
)
WORKFLOW = skill("github://o/r/git-workflow/SKILL.md", description="Conventions for branches and commits.")
PLAIN = [{"uri": "skill://acme/refunds/ref/FORMS.md", "name": "FORMS"}, {"uri": "test:plain", "name": "plain"}]
OF_FILES = [{"uriTemplate": "skill://acme/refunds/{path*}", "name": "files"}]
DOCS = made(REFUNDS, WORKFLOW, page=1, resources=PLAIN, templates=OF_FILES)
ADDRESS = "skill://docs/acme/refunds/SKILL.md"
OTHER = "skill://docs//github%3A//o/r/git-workflow/SKILL.md"


async def asked(connection: Connection, method: str, **params: Any) -> Any:
    return msgspec.json.decode(await connection.request(method, Raw(msgspec.json.encode(params))))


def whole(leaves: Leaves, era: Era, scene: Callable[[Connection], Awaitable[None]]) -> None:
    """A client that speaks any method, of that era."""

    async def main() -> None:
        command = leaves.command()
        target = StdioTarget(command[0], tuple(command[1:]), dict(os.environ))
        async with asyncio.timeout(90):
            connection = await connect(target, era=era)
            try:
                await scene(connection)
            finally:
                await connection.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("profile", ["discovery", "direct", "auto"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_skills_of_all_servers_are_listed_and_read(profile: str, era: Era, tmp_path: Path) -> None:
    leaves = Leaves(tmp_path, profile, docs=DOCS)
    (tmp_path / "team" / "pdf").mkdir(parents=True)
    (tmp_path / "team" / "pdf" / "SKILL.md").write_text("---\nname: pdf\ndescription: Fill in forms.\n---\nForms.\n")
    leaves.more('[servers.team]\nskills = "team"\n')

    async def scene(connection: Connection) -> None:
        declared = msgspec.json.decode(connection.capabilities)
        assert declared["extensions"]["io.modelcontextprotocol/skills"] == {}
        assert "resources" in declared
        await asked(connection, "tools/call", name="list", arguments={}) if profile == "discovery" else None
        answer = await asked(connection, "skills/list")
        assert (answer["resultType"], answer["ttlMs"], answer["cacheScope"]) == ("complete", 0, "private")
        listed = {entry["uri"]: entry for entry in answer["skills"]}
        assert listed.keys() == {ADDRESS, OTHER, "skill://team/pdf/SKILL.md"}
        for uri, entry in listed.items():
            got = await asked(connection, "skills/get", uri=uri)
            assert got["skill"] == entry
            assert (got["ttlMs"], got["cacheScope"]) == (0, "private")
            assert uri.endswith(f"/{entry['frontmatter']['name']}/SKILL.md")
            for file in entry["resources"]:
                (content,) = (await asked(connection, "resources/read", uri=file["uri"]))["contents"]
                held = content["text"].encode()
                assert content["uri"] == file["uri"]
                assert (len(held), f"sha256:{sha256(held).hexdigest()}") == (file["size"], file["digest"])
        assert listed[ADDRESS]["frontmatter"] == REFUNDS[0]["frontmatter"]
        for method, uri in (
            ("skills/get", "skill://docs/acme/refunds/ref/FORMS.md"),
            ("skills/get", "skill://docs/nothing/SKILL.md"),
            ("skills/get", "skill://nobody/acme/refunds/SKILL.md"),
            ("resources/read", "skill://docs/acme/refunds/unlisted.md"),
        ):
            with pytest.raises(RemoteError) as missing:
                await asked(connection, method, uri=uri)
            assert missing.value.rpc_code == (-32002 if method == "resources/read" and era == "legacy" else -32602)
        # A file of a skill is no resource besides, under no address.
        names = [one["name"] for one in (await asked(connection, "resources/list"))["resources"]]
        assert names == ["plain"]
        templates = (await asked(connection, "resources/templates/list"))["resourceTemplates"]
        assert [one["name"] for one in templates] == ["output"]
        aside = "toolfold://resources/docs/skill%3A%2F%2Facme%2Frefunds%2Fref%2FFORMS.md"
        (content,) = (await asked(connection, "resources/read", uri=aside))["contents"]
        assert content["text"] == "forms"
        (content,) = (await asked(connection, "resources/read", uri="skill://acme/refunds/ref/FORMS.md"))["contents"]
        assert content["text"] == "forms"

    whole(leaves, era, scene)


def test_where_tools_are_listed_a_model_is_told_of_what_else_there_is(tmp_path: Path) -> None:
    async def seen(folder: str, docs: Any) -> tuple[set[str], str]:
        (tmp_path / folder).mkdir()
        leaves = Leaves(tmp_path / folder, "auto", docs=docs)
        async with met(leaves, "legacy") as (client, _):
            await client.list_tools()  # once there is a catalogue
        async with met(leaves, "legacy") as (client, _):
            return {tool.name for tool in (await client.list_tools()).tools}, client.instructions or ""

    readers = {"search_tool_by_category", "expand_tool", "call_tool"}
    names, told = asyncio.run(seen("a", DOCS))
    assert {"docs_point", *readers} <= names
    assert "Resources (1), Skills (2): search_tool_by_category finds them" in told
    names, told = asyncio.run(seen("b", {}))
    assert "docs_point" in names
    assert not readers & names
    assert "search_tool_by_category" not in told


def test_a_tool_client_finds_and_reads_skills(tmp_path: Path) -> None:
    async def scene(client: Client, recorder: RecordingClient) -> None:
        root = await operate(client, "list")
        assert "Skills" in {node["name"] for node in root["nodes"]}
        shelf = await operate(client, "list", path=["Skills", "docs"])
        assert [tool["tool_id"] for tool in shelf["tools"]] == ["skill:docs.git-workflow", "skill:docs.refunds"]
        found = await operate(client, "search_tool_by_category", query="give a customer the money back: a refund")
        assert found["results"][0]["tool_id"] == "skill:docs.refunds"
        shown = await operate(client, "expand_tool", tool_id="skill:docs.refunds")
        assert (shown["kind"], shown["address"]) == ("skill", ADDRESS)
        assert shown["tools_named"] == [
            {"name": "Bash(git:*)"},
            {"name": "mcp__docs__point", "tool_id": "docs.point"},
            {"name": "asked", "tool_id": "docs.asked"},
            {"name": "mcp__wiki__tell", "tool_id": "wiki.tell"},
            {"name": "nothing"},
        ]
        read = await client.call_tool("call_tool", {"tool_id": "skill:docs.refunds"})
        said = [block.text for block in read.content]  # type: ignore[union-attr]
        assert said[0].endswith("Do it.\n")
        assert said[1] == "note: of the skill refunds of the server docs, in whose words this is"
        args = {"file": "ref/FORMS.md"}
        read = await client.call_tool("call_tool", {"tool_id": "skill:docs.refunds", "args": args})
        assert read.content[0].text == "forms"  # type: ignore[union-attr]
        wrong = {"tool_id": "skill:docs.refunds", "args": {"file": "../secret"}}
        assert "SKILL.md" in (await client.call_tool("call_tool", wrong)).content[0].text  # type: ignore[union-attr]

    play(Leaves(tmp_path, docs=DOCS, wiki={}), "modern", scene)


def test_the_same_over_http_and_json(tmp_path: Path) -> None:
    leaves = Leaves(tmp_path, docs=DOCS)
    with leaves.over_http() as url, httpx2.Client(base_url=url.replace("/mcp", "/v1/"), timeout=30) as client:
        assert [one["uri"] for one in client.get("skills").json()["skills"]] == [OTHER, ADDRESS]
        read = client.post("read_resource", json={"uri": ADDRESS.replace("SKILL.md", "ref/FORMS.md")}).json()
        assert read["contents"][0]["text"] == "forms"


def scene_of(home: Path, scene: Callable[[Gateway], Awaitable[None]], held: Any = DOCS, **settings: Any) -> None:
    (home / "a.json").write_text(json.dumps(held))
    spec = ServerSpec(name="a", transport="stdio", command=sys.executable, args=(str(SERVER), str(home / "a.json")))

    async def main() -> None:
        async with asyncio.timeout(60), Gateway(Settings(home=home, servers=(spec,), **settings)) as gateway:
            await gateway.build(index=False)
            await scene(gateway)

    asyncio.run(main())


async def answer(gateway: Gateway, uri: str, caller: Caller = LOCAL) -> str:
    try:
        return str((await gateway.leaves.read(uri, CallContext(caller=caller))).json()["contents"][0]["text"])
    except ToolfoldError as error:
        return error.message


async def skills(gateway: Gateway, caller: Caller = LOCAL) -> set[str]:
    return {leaf.tool_id for leaf in (await gateway.leaves.page("skill", caller=caller)).leaves}


FORMS = "skill://acme/refunds/ref/FORMS.md"


@pytest.mark.parametrize(
    ("contents", "why"),
    [
        ([{"uri": FORMS, "text": "FORMs"}], "does not have the digest"),
        ([{"uri": FORMS, "text": "forms "}], "has 6 bytes, and not the 5"),
        ([{"uri": FORMS, "text": "x" * 200_000}], "has 200,000 bytes"),
        ([{"uri": FORMS, "text": "forms"}, {"uri": FORMS, "text": "EVIL"}], "not one text"),
        ([{"uri": FORMS, "text": "forms", "blob": "RVZJTA=="}], "not one text"),
        ([{"uri": FORMS}], "not one text"),
        ([{"uri": FORMS, "blob": "RVZJTA"}], "is not shown"),
        ([], "not one text"),
    ],
)
def test_what_is_not_of_its_digest_is_an_error_and_no_content(contents: Any, why: str, tmp_path: Path) -> None:
    async def scene(gateway: Gateway) -> None:
        said = await answer(gateway, "skill://a/acme/refunds/ref/FORMS.md")
        assert why in said
        assert "EVIL" not in said
        with pytest.raises(ToolfoldError, match=why):
            await gateway.call_tool("skill:a.refunds", {"file": "ref/FORMS.md"})

    scene_of(tmp_path, scene, {**DOCS, "texts": {**DOCS["texts"], FORMS: {"contents": contents}}})


def test_a_skill_that_changed_is_read_anew_and_held_until_it_is_accepted(tmp_path: Path) -> None:
    changed = copy.deepcopy(DOCS)
    changed["texts"][FORMS] = {"contents": [{"uri": FORMS, "text": "other"}]}
    (file,) = (file for file in changed["skills"][0]["resources"] if file["uri"] == FORMS)
    file["digest"] = digest("other")

    async def scene(gateway: Gateway) -> None:
        await gateway.trust.review()
        assert await answer(gateway, "skill://a/acme/refunds/ref/FORMS.md") == "forms"
        rebuilt = asyncio.Event()
        gateway.events.subscribe(lambda event: rebuilt.set(), only="catalogue.updated")
        (tmp_path / "a.json").write_text(json.dumps(changed))
        assert "does not have the digest" in await answer(gateway, "skill://a/acme/refunds/ref/FORMS.md")
        await rebuilt.wait()
        await gateway.trust.review()
        assert await skills(gateway) == {"skill:a.git-workflow"}
        said = await answer(gateway, "skill://a/acme/refunds/ref/FORMS.md")
        assert "other" not in said.replace(FORMS, "")
        with pytest.raises(ToolfoldError, match="held back"):
            await gateway.call_tool("skill:a.refunds", {})
        await gateway.trust.accept(["skill:a.refunds"])
        assert await skills(gateway) == {"skill:a.git-workflow", "skill:a.refunds"}
        assert await answer(gateway, "skill://a/acme/refunds/ref/FORMS.md") == "other"

    scene_of(tmp_path, scene, trust=Trust(hold_changed=True))


BOTH = {"skill:a.git-workflow", "skill:a.refunds"}
NESTED = skill("skill://acme/refunds/ref/inner/SKILL.md")
ANY_FILE = "toolfold://templates/a/skill%3A%2F%2Facme%2F%7B%2Bpath%7D?path="
FILES = [{"uriTemplate": "skill://{+path}", "name": "files"}]


@pytest.mark.parametrize(
    ("policy", "visible", "readable"),
    [
        ({}, BOTH, True),
        ({"deny": ("skill:a.refunds",)}, BOTH - {"skill:a.refunds"}, False),
        ({"deny": ("a.*",)}, set(), False),
        ({"deny": ("path:Skills/**",)}, set(), False),
        ({"allow": ("a.*",)}, set(), False),
        ({"allow": ("skill:a.refunds", "template:a.*")}, {"skill:a.refunds"}, True),
        ({"deny": ("resource:*", "template:*", "prompt:*")}, BOTH, True),
    ],
)
def test_policies_decide_on_skills(policy: Any, visible: set[str], readable: bool, tmp_path: Path) -> None:
    async def scene(gateway: Gateway) -> None:
        assert await skills(gateway) == visible
        for uri in (
            "skill://a/acme/refunds/ref/FORMS.md",
            FORMS,
            "toolfold://resources/a/skill%3A%2F%2Facme%2Frefunds%2Fref%2FFORMS.md",
            "toolfold://templates/a/skill%3A%2F%2F%7B%2Bpath%7D?path=acme%2Frefunds%2Fref%2FFORMS.md",
        ):
            if not ("templates" in uri and readable and "template:*" in policy.get("deny", ())):
                assert (await answer(gateway, uri) == "forms") is readable, uri
        # No template leads to a file unchecked.
        with pytest.raises(ToolfoldError):
            await gateway.call_tool("template:a.files", {"path": "acme/refunds/ref/FORMS.md"})

    held = {**DOCS, "templates": FILES}
    scene_of(tmp_path, scene, held, policies=(Policy(name="default", **policy),))


@pytest.mark.parametrize("match", ["skill:a.refunds", "a.refunds"])
def test_a_skill_that_its_owner_hides_is_not_there(match: str, tmp_path: Path) -> None:
    async def scene(gateway: Gateway) -> None:
        assert await skills(gateway) == {"skill:a.git-workflow"}
        for uri in ("skill://a/acme/refunds/ref/FORMS.md", FORMS):
            assert "there is no resource" in await answer(gateway, uri)

    scene_of(tmp_path, scene, rules=(MetadataRule(match=match, hide=True),))


def test_a_hidden_skill_within_another_stays_hidden(tmp_path: Path) -> None:
    async def scene(gateway: Gateway) -> None:
        assert await skills(gateway) == {"skill:a.refunds"}
        assert "there is no resource" in await answer(gateway, "skill://a/acme/refunds/ref/inner/SKILL.md")
        assert await answer(gateway, "skill://a/acme/refunds/ref/FORMS.md") == "forms"

    policies = (Policy(name="default", deny=("skill:a.inner",)),)
    outer = copy.deepcopy(REFUNDS)
    scene_of(tmp_path, scene, made(outer, NESTED), policies=policies)


@pytest.mark.parametrize(
    ("hidden", "missing"),
    [
        ("skill://a/acme/refunds/SKILL.md", "skill://a/acme/nothing/SKILL.md"),
        ("skill://a/acme/refunds/no.md", "skill://a/acme/nothing/no.md"),
        (FORMS, "skill://acme/nothing/ref/FORMS.md"),
        (
            "toolfold://resources/a/skill%3A%2F%2Facme%2Frefunds%2Fx",
            "toolfold://resources/a/skill%3A%2F%2Facme%2Fno%2Fx",
        ),
        (f"{ANY_FILE}refunds%2Fx", f"{ANY_FILE}nothing%2Fx"),
    ],
)
def test_nobody_is_told_that_a_skill_is_hidden(hidden: str, missing: str, tmp_path: Path) -> None:
    async def scene(gateway: Gateway) -> None:
        for uri in (hidden, missing):
            assert await answer(gateway, uri) == f"there is no resource {uri!r}"
            with pytest.raises(ToolfoldError) as refused:
                await gateway.leaves.find_skill(uri)
            assert refused.value.message == f"there is no resource {uri!r}"
        refusals = {}
        for path in ("refunds/no.md", "nothing/no.md"):
            with pytest.raises(ToolfoldError) as refused:
                await gateway.call_tool("template:a.files", {"path": path})
            refusals[path] = str(refused.value).replace(path, "PATH")
        assert len(set(refusals.values())) == 1

    files = [{"uriTemplate": "skill://acme/{+path}", "name": "files"}]
    scene_of(
        tmp_path, scene, {**DOCS, "templates": files}, policies=(Policy(name="default", deny=("skill:a.refunds",)),)
    )


@pytest.mark.parametrize(
    "uri",
    [
        "skill://a/ACME/refunds/ref/FORMS.md",
        "skill://a/acme/refunds/ref/forms.md",
        "toolfold://resources/a/SKILL%3A%2F%2Facme%2Frefunds%2Fref%2FFORMS.md",
        "toolfold://resources/a/skill%3A%2F%2F%2561cme%2Frefunds%2Fref%2FFORMS.md",
        "toolfold://resources/a/skill%3A%2F%2Fx%2F..%2Facme%2Frefunds%2Fref%2FFORMS.md",
        "toolfold://resources/a/skill%3A%2F%2Fu%40acme%2Frefunds%2Fref%2FFORMS.md",
        "toolfold://resources/a/GitHub%3A%2F%2Fo%2Fr%2Fgit-workflow%2FSKILL.md",
        "toolfold://templates/a/%7B%2Bany%7D?any=Skill%3A%2F%2Facme%2Frefunds%2Fref%2FFORMS.md",
        # Nor does a server answer for one that is not there.
        "skill://gone/acme/refunds/ref/FORMS.md",
        "ui://gone/page",
    ],
)
def test_no_spelling_leads_past_the_digest(uri: str, tmp_path: Path) -> None:
    async def scene(gateway: Gateway) -> None:
        assert await answer(gateway, "skill://a/acme/refunds/ref/FORMS.md") == "forms"
        assert await answer(gateway, "test:any") == "any"
        assert await answer(gateway, uri) == f"there is no resource {uri!r}"

    sent = [*PLAIN, {"uri": "skill://ACME/refunds/ref/forms.md", "name": "again"}]
    held = {**DOCS, "resources": sent, "templates": [{"uriTemplate": "{+any}", "name": "any"}]}
    scene_of(tmp_path, scene, {**held, "texts": {**DOCS["texts"], "test:any": "any"}})


def test_a_skill_that_breaks_a_rule_is_a_warning_and_costs_nothing_else(tmp_path: Path) -> None:
    bad = {**REFUNDS[0], "resources": [{**REFUNDS[0]["resources"][0], "uri": "skill://acme/refunds/../x"}]}

    async def scene(gateway: Gateway) -> None:
        (state,) = await gateway.servers()
        assert "one of its skills was left out: skill://acme/refunds/SKILL.md: " in " ".join(state.warnings)
        assert await skills(gateway) == {"skill:a.git-workflow"}
        assert state.tools == 3

    scene_of(tmp_path, scene, {**made(WORKFLOW), "skills": [bad, WORKFLOW[0]]})


def test_three_hundred_skills_leave_the_listed_tools_as_they_are(tmp_path: Path) -> None:
    async def surface(folder: str, docs: Any) -> tuple[str, str]:
        (tmp_path / folder).mkdir()
        leaves = Leaves(tmp_path / folder, docs=docs)
        async with met(leaves, "legacy") as (client, _):
            await client.call_tool("list", {})  # once there is a catalogue
        async with met(leaves, "legacy") as (client, _):
            return (await client.list_tools()).model_dump_json(), client.instructions or ""

    many = made(*(skill(f"skill://s{n}/SKILL.md") for n in range(300)))
    without, with_them = asyncio.run(surface("a", {"skills": []})), asyncio.run(surface("b", many))
    assert without[0] == with_them[0]
    assert "Skills (300)" in with_them[1]
