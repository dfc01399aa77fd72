"""What a gateway writes into its own configuration counts, where it runs on what stood there before."""

import time
from pathlib import Path

import httpx2
import pytest
from project_kit import Person, serving

pytestmark = pytest.mark.requirement("G-03")


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


@pytest.mark.parametrize("is_accepted", [False, True])
def test_what_the_gateway_writes_itself_is_accepted_where_it_runs_on_what_stood_there(
    person: Person, is_accepted: bool
) -> None:
    file = person.clone / "toolfold.toml"
    by_hand = (
        '[callers.root]\nkey = "a-key-of-the-administrator"\npolicy = "operators"\n[policy.operators]\nadmin = true\n'
    )
    file.write_text(person.table("theirs") + by_hand)
    if is_accepted:
        person.run("trust", "--project")
    with serving(person) as served:
        address = served.wait_for("serving on ").split("serving on ")[1].strip().removesuffix("/mcp")
        served.wait_for("theirs: started")
        headers = {"authorization": "Bearer a-key-of-the-administrator"}
        with httpx2.Client(base_url=address, headers=headers, timeout=30) as client:
            while "theirs.look" not in (unused := client.get("/unused").text):
                time.sleep(0.05)
            form = {
                "tool": "theirs.look",
                "hide": "yes",
                "token": unused.split('name="token" value="')[1].split('"')[0],
            }
            assert "is hidden" in client.post("/hide", data=form, follow_redirects=True).text
            served.wait_for("the configuration was read again")
            while "Show again theirs.look" not in client.get("/unused").text:  # servers are read anew
                time.sleep(0.05)
            # And from /v1/admin; then somebody writes it by hand.
            policy = client.put("/v1/admin/policies/shoppers", json={"allow": ["theirs.*"]})
            assert policy.status_code == 200, policy.text
            while "shoppers" not in client.get("/v1/admin/policies").text:
                time.sleep(0.05)
            file.write_text(changed := file.read_text() + person.table("more"))
            refused = client.post("/hide", data={**form, "hide": "no"}, follow_redirects=True)
            assert refused.status_code == 409, refused.text
            assert "nothing was written" in refused.text
            assert f"toolfold trust --project {person.clone}" in refused.text
            assert client.post("/v1/admin/servers/theirs/disable").status_code >= 400
            assert file.read_text() == changed
            person.run("trust", "--project")
            served.wait_for("more: started")
            assert client.post("/v1/admin/servers/more/disable").status_code == 200
    assert "enabled = false" in file.read_text()
