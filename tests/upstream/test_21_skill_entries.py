"""Skills that break a rule are left out with the reason, and no file is taken that is not what its skill lists."""

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from made_skills import digest, skill
from msgspec import Raw

from toolfold.errors import ProtocolViolation, ServerUnavailable
from toolfold.leaf_address import parse_address, resource_address, skill_address
from toolfold.skill_entry import SkillEntry, check_entry, tools_named
from toolfold.types import CallContext, Listing, ServerSpec, Tool, ToolCall
from toolfold.upstream.leaves import read_leaf
from toolfold.upstream.skill_folder import SkillFolder
from toolfold.yaml_reader import load_yaml

pytestmark = pytest.mark.requirement("G-15")

URI = "skill://acme/refunds/SKILL.md"
GOOD, TEXTS = skill(URI, {"ref/FORMS.md": "forms"}, license="MIT")


def changed(**fields: Any) -> dict[str, Any]:
    return {**GOOD, **fields}


def with_file(**fields: Any) -> dict[str, Any]:
    file = {"uri": "skill://acme/refunds/a.md", "digest": digest("a"), "size": 1, **fields}
    return changed(resources=[GOOD["resources"][0], file])


def front(**fields: Any) -> dict[str, Any]:
    return changed(frontmatter={**GOOD["frontmatter"], **fields})


def many(count: int, size: int) -> dict[str, Any]:
    files = [{"uri": f"skill://acme/refunds/{n}", "digest": digest(""), "size": size} for n in range(count)]
    return changed(resources=[GOOD["resources"][0], *files])


def test_what_keeps_the_rules_is_a_leaf_with_its_files() -> None:
    leaf = read_leaf("skill", Raw(msgspec.json.encode(GOOD)))
    assert (leaf.kind, leaf.name, leaf.address, leaf.description) == ("skill", "refunds", URI, "How to do it.")
    schema = msgspec.json.decode(leaf.input_schema)
    assert schema["properties"]["file"]["enum"] == ["SKILL.md", "ref/FORMS.md"]
    read_leaf("skill", Raw(msgspec.json.encode(many(511, 0))))
    # In another order it is the same skill.
    turned = read_leaf("skill", Raw(msgspec.json.encode(changed(resources=GOOD["resources"][::-1]))))
    assert bytes(turned.raw) == bytes(leaf.raw)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (changed(resources="dynamic"), "no digests"),
        (changed(resources="other"), "Expected `array`"),
        ({key: GOOD[key] for key in ("uri", "frontmatter")}, "missing required field `resources`"),
        (changed(resources=[]), "not its SKILL.md"),
        (changed(resources=GOOD["resources"] * 2), "a file twice"),
        (changed(uri="skill://acme/other/SKILL.md"), "does not end with refunds/SKILL.md"),
        (changed(uri="skill://xrefunds/SKILL.md"), "does not end with"),
        (changed(uri="skill://../refunds/SKILL.md"), "empty, a `..`"),
        (changed(uri="refunds/SKILL.md"), "does not end with"),
        (front(name="Refunds"), "small letters"),
        (front(name="-a"), "small letters"),
        (front(name=7), "small letters"),
        (front(description=" "), "no description"),
        (with_file(uri="skill://acme/refunds/../secret"), "a `..`"),
        (with_file(uri="skill://acme/refunds/%2e%2E/secret"), "a `..`"),
        (with_file(uri="skill://acme/refunds/a%2Fb"), "no plain name"),
        (with_file(uri="skill://acme/refunds/a\\b"), "no plain name"),
        (with_file(uri="skill://acme/refunds/a\0b"), "no plain name"),
        (with_file(uri="skill://acme/refunds//etc/passwd"), "empty"),
        (with_file(uri="/etc/passwd"), "outside"),
        (with_file(uri="skill://acme/other/a.md"), "outside"),
        (with_file(digest="sha256:00"), "no digest"),
        (with_file(digest=digest("a").upper()), "no digest"),
        (with_file(size=-1), "no digest and size"),
        (with_file(size="1"), "Expected `int`"),
        (with_file(size=(16 << 20) + 1), "over 16 MiB"),
        (many(512, 0), "over 512"),
        (many(40, 1 << 20), "over 16 MiB"),
        (front(metadata={"x": "y" * (600 << 10)}), "524,288 bytes"),
    ],
)
def test_what_breaks_a_rule_is_no_skill(sent: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_leaf("skill", Raw(msgspec.json.encode(sent)))


def text_of(text: str) -> tuple[SkillEntry, bytes]:
    entry = changed(resources=[{"uri": URI, "digest": digest(text), "size": len(text.encode())}])
    return check_entry(Raw(msgspec.json.encode(entry))), text.encode()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("no frontmatter", "does not begin with frontmatter"),
        ("---\nname: refunds\ndescription: Something else.\nlicense: MIT\n---\n", "says something else"),
        ("---\nname: refunds\n---\n", "says something else"),
        ("---\na: &a [x,x]\nb: &b [*a,*a,*a]\nc: [*b,*b,*b]\n---\n", "aliases or tags"),
        ("---\na: !!python/object:os.system x\n---\n", "aliases or tags"),
        ("---\n" + "[" * 5_000 + "\n---\n", "deep"),
        (f"---\na: {'x' * 70_000}\n---\n", "of up to 65,536"),
        ("---\n- a\n---\n", "cannot be read"),
        ("---\na: [\n---\n", "line"),
    ],
)
def test_a_skill_file_says_what_the_list_said(text: str, why: str) -> None:
    entry, content = text_of(text)
    with pytest.raises(ValueError, match=why):
        entry.check_content(URI, content)


def test_frontmatter_is_read_as_json_has_it() -> None:
    text = "on: yes\nversion: 1.10\ndate: 2024-01-01\ntime: 12:30\nnone: ~\nempty:\ntrue: false\nquoted: '3'\n"
    texts: dict[Any, Any] = {"on": "yes", "date": "2024-01-01", "time": "12:30", "quoted": "3"}
    assert load_yaml(text, as_json=True) == {**texts, "version": 1.1, "none": None, "empty": None, True: False}


@pytest.mark.parametrize(
    "uri",
    [
        "skill://a/SKILL.md",
        "skill://acme/b c/ü/SKILL.md",
        "skill://acme/%20/%2F/SKILL.md",
        "skill:///a/SKILL.md",
        "github://o/r/skills/a/SKILL.md",
        "file:///home/a/SKILL.md",
        "ui://a/b?c=d#e",
        "ui://a",
        "ui:///a//b",
    ],
)
@pytest.mark.parametrize("server", ["docs", "Server.1", "a b/c"])
def test_addresses_come_back_byte_for_byte(server: str, uri: str) -> None:
    make = resource_address if uri.startswith("ui:") else skill_address
    address = make(server, uri)
    assert address.startswith(("skill://", "ui://"))
    assert address.endswith("/SKILL.md") or uri.startswith("ui:")
    named = parse_address(address)
    assert named is not None
    assert (named.server, named.uri) == (server, uri)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("Bash(git add:*, git log:*) Read, mcp__git__log", ["Bash(git add:*, git log:*)", "Read", "mcp__git__log"]),
        (["Read", "Grep", "Read", 7], ["Read", "Grep"]),
        (None, []),
        ({"a": 1}, []),
    ],
)
def test_the_tools_that_a_skill_names(given: Any, names: list[str]) -> None:
    assert tools_named({"allowed-tools": given}) == names


def put(folder: Path, name: str, text: str = "", **files: str) -> Path:
    root = folder / name
    root.mkdir(parents=True)
    (root / "SKILL.md").write_text(
        text or f"---\nname: {root.name}\ndescription: Does {root.name}.\n---\n{root.name}\n"
    )
    for path, held in files.items():
        (root / path).write_text(held)
    return root


async def listed(folder: Path) -> Listing:
    upstream = SkillFolder(ServerSpec(name="team", transport="skills", document=str(folder)))
    await upstream.open()
    return await upstream.listing()


async def test_each_folder_with_a_skill_file_is_a_skill(tmp_path: Path) -> None:
    put(tmp_path, "a", b="plain", **{".hidden": "no"})
    put(tmp_path, "deep/er/b")
    put(tmp_path, ".git/c")
    (tmp_path / "README.md").write_text("no skill")
    found = {leaf.address: SkillEntry.of(leaf.raw) for leaf in (await listed(tmp_path)).tools}
    assert list(found) == ["skill://a/SKILL.md", "skill://deep/er/b/SKILL.md"]
    assert list(found["skill://a/SKILL.md"].files) == ["SKILL.md", "b"]
    (one,) = (await listed(tmp_path / "a")).tools  # a folder that is a skill itself
    assert one.address == "skill://a/SKILL.md"


def test_a_hostile_folder_costs_its_own_skill_alone(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("SECRET")
    top = tmp_path / "skills"
    (put(top, "link") / "a").symlink_to(tmp_path / "outside")
    (put(top, "linked-folder") / "a").symlink_to(tmp_path)
    os.mkfifo(put(top, "pipe") / "a")
    with (put(top, "large") / "a").open("wb") as file:
        file.truncate((16 << 20) + 1)
    crowd = put(top, "crowd")
    for number in range(512):
        (crowd / str(number)).touch()
    put(top, "named", "---\nname: other\ndescription: d\n---\n")
    put(top, "bomb", "---\na: &a [x]\nname: *a\n---\n")
    put(top, "back\\slash")
    (put(top, "control") / "a\nb").touch()
    Path(os.fsdecode(os.fsencode(put(top, "bytes")) + b"/\xff")).touch()
    put(top, "good", b="fine")
    (top / "shortcut").symlink_to(put(tmp_path, "elsewhere"))
    listing = asyncio.run(listed(top))
    assert [leaf.name for leaf in listing.tools] == ["good"]
    said = "\n".join(listing.warnings)
    assert "shortcut is a link, and not followed" in said
    for name, why in {
        "link": "a is a link",
        "linked-folder": "a is a link",
        "pipe": "no plain file",
        "large": "over 16 MiB",
        "crowd": "over 512",
        "named": "its folder is 'named', its name 'other'",
        "bomb": "aliases",
        "slash": "",
        "control": "no plain text",
        "bytes": "no plain text",
    }.items():
        (line,) = [line for line in listing.warnings if f"{name} was left out" in line]
        assert why in line, said


async def test_a_file_that_was_edited_is_not_shown_as_it_was_listed(tmp_path: Path) -> None:
    root = put(tmp_path, "a", b="one")
    upstream = SkillFolder(ServerSpec(name="team", transport="skills", document=str(tmp_path)))
    (leaf,) = (await listed(tmp_path)).tools
    tool = Tool(tool_id="skill:team.a", server="team", definition=leaf, fingerprint="")
    call = ToolCall(tool=tool, arguments=Raw(b'{"file":"b"}'))
    # Called before it was listed, as after a restart.
    assert "one" in (await upstream.call(call, CallContext())).json()["content"][0]["text"]
    (root / "b").write_text("two")
    with pytest.raises(ProtocolViolation, match="does not have the digest"):
        await upstream.call(call, CallContext())
    assert [upstream.outdated, len((await upstream.listing()).tools), upstream.outdated] == [True, 1, False]
    (root / "b").unlink()
    (root / "b").symlink_to(tmp_path / "a" / "SKILL.md")
    with pytest.raises(ServerUnavailable, match="symbolic link"):
        await upstream.call(call, CallContext())
    shutil.move(tmp_path, tmp_path.with_name("gone"))
    with pytest.raises(ServerUnavailable, match="there is no folder"):
        await upstream.listing()
