"""Every behaviour of the discovery protocol, over each of the four faces, on one catalogue."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from example_server import RENAME_ARGS, RENAME_RESULT, RENAME_SUMMARY
from four_faces import (
    CommandLineFace,
    Face,
    HttpFace,
    PythonFace,
    gateways_of,
    http_server,
    make_project,
    mcp_client,
    settings_of,
)

from toolfold import BlockingGateway

REFACTORING = ["Coding", "Refactoring"]
FACES = ("python", "command line", "http", "mcp", *(f"{one}, three gateways" for one in ("http", "legacy", "auto")))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("note"))


@pytest.fixture(scope="module", params=FACES)
def face(request: pytest.FixtureRequest, project: Path) -> Iterator[Face]:
    """The one fixture: whatever is asked through it is asked the same way, over a face of its own."""
    settings = settings_of(project)
    if request.param == "command line":
        yield CommandLineFace(project)
    elif request.param == "http":
        import httpx2

        with http_server(settings) as address, httpx2.Client(base_url=address, timeout=30) as session:
            yield HttpFace(session)
    elif "three gateways" in request.param:
        import httpx2

        with gateways_of(project, 3) as address:
            mode = request.param.partition(",")[0]
            if mode == "http":
                with httpx2.Client(base_url=address, timeout=30) as session:
                    yield HttpFace(session)
            else:
                with mcp_client(project, address, mode) as client:
                    yield client
    elif request.param == "mcp":
        with mcp_client(project) as client:
            yield client
    else:
        with BlockingGateway(settings) as gateway:
            yield PythonFace(gateway)


@pytest.mark.requirement("D-15", "G-02")
def test_the_example_interaction_of_the_note_word_for_word(face: Face, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("def old_name():\n    return old_name\n", encoding="utf-8")

    root = face.ask("list").data
    assert {node["name"] for node in root["nodes"]} == {"Coding", "Rendering", "Storage", "User", "Data"}

    level = face.ask("list", path=["Coding", "Refactoring"]).data
    assert RENAME_SUMMARY in [tool["summary"] for tool in level["tools"]]

    found = face.ask("search_tool_by_category", query="rename symbol", category_path=["Coding", "Refactoring"]).data
    assert found["category_path"] == ["Coding", "Refactoring"]
    assert found["results"][0]["tool_id"] == "refactor.rename_symbol"
    assert found["next_cursor"] is None

    expanded = face.ask("expand_tool", tool_id="refactor.rename_symbol").data
    assert expanded["tool_id"] == "refactor.rename_symbol"
    assert expanded["path"] == ["Coding", "Refactoring"]
    assert expanded["summary"] == RENAME_SUMMARY
    assert expanded["args_schema"] == RENAME_ARGS
    assert expanded["result_schema"] == RENAME_RESULT

    args = {"project_root": str(tmp_path), "symbol": "old_name", "new_name": "new_name", "dry_run": False}
    called = face.ask("call_tool", tool_id="refactor.rename_symbol", args=args).data
    assert called["structuredContent"]["changed_files"] == 1
    assert (tmp_path / "main.py").read_text(encoding="utf-8") == "def new_name():\n    return new_name\n"


@pytest.mark.requirement("D-01")
def test_a_listing_has_just_the_keys_of_the_note(face: Face) -> None:
    page = face.ask("list", path=["Storage"]).data
    assert page == {
        "path": ["Storage"],
        "nodes": [
            {
                "name": "Buckets",
                "path": ["Storage", "Buckets"],
                "summary": "Create and manage object storage buckets",
                "tags": page["nodes"][0]["tags"],
            }
        ],
        "tools": [],
        "next_cursor": None,
    }
    assert {"storage", "objects"} <= set(page["nodes"][0]["tags"])


@pytest.mark.requirement("D-01", "D-02")
def test_a_query_filters_a_listing_by_meaning_from_everything_below_the_path(face: Face) -> None:
    page = face.ask("list", path=["Storage"], query="upload file", limit=10).data
    assert page["path"] == ["Storage"]
    assert [node["name"] for node in page["nodes"]] == ["Buckets"]
    best = page["tools"][0]
    assert (best["tool_id"], best["path"]) == ("storage.put_object", ["Storage", "Buckets"])
    assert set(best) == {"tool_id", "path", "summary", "tags", "confidence"}
    assert {"storage", "upload"} <= set(best["tags"])
    confidences = [tool["confidence"] for tool in page["tools"]]
    assert confidences[0] == max(confidences)
    assert all(0 < one <= 1 for one in confidences)
    assert {tool["tool_id"].partition(".")[0] for tool in page["tools"]} == {"storage"}


@pytest.mark.requirement("D-01")
def test_a_query_and_tags_hold_together(face: Face) -> None:
    page = face.ask("list", query="buckets for objects", tags=["RISK:destructive"]).data
    assert [tool["tool_id"] for tool in page["tools"]] == ["storage.delete_bucket"]
    both = face.ask("list", path=["Storage", "Buckets"], tags=["storage", "upload"]).data
    assert [tool["tool_id"] for tool in both["tools"]] == ["storage.put_object"]


@pytest.mark.requirement("D-01")
@pytest.mark.parametrize("query", [None, "object storage bucket"])
def test_pages_of_one_lead_through_everything_once(face: Face, query: str | None) -> None:
    asked: dict[str, Any] = {"path": ["Storage", "Buckets"], **({"query": query} if query else {})}
    whole = face.ask("list", **asked, limit=50).data
    assert len(whole["tools"]) == 4
    seen: list[Any] = []
    cursor = None
    for _ in whole["tools"]:
        page = face.ask("list", **asked, limit=1, **({"cursor": cursor} if cursor else {})).data
        seen += page["tools"]
        cursor = page["next_cursor"]
    assert (seen, cursor) == (whole["tools"], None)


@pytest.mark.requirement("D-01")
def test_letter_case_does_not_count_in_a_path_and_is_told_as_stored(face: Face) -> None:
    assert face.ask("list", path=["coding", "REFACTORING"]).data["path"] == REFACTORING


@pytest.mark.requirement("D-03")
def test_an_empty_category_path_searches_everything(face: Face) -> None:
    found = face.ask("search_tool_by_category", query="log a user in with oauth", category_path=[]).data
    assert found["category_path"] == []
    assert found["results"][0]["tool_id"] == "user.oauth_login"
    assert set(found["results"][0]) == {"tool_id", "path", "summary", "tags", "confidence"}


@pytest.mark.requirement("D-04")
def test_categories_are_found_by_what_one_wants_to_do(face: Face) -> None:
    found = face.ask("search_nodes", query="oauth login", limit=5).data
    assert set(found) == {"results"}
    assert found["results"][0]["path"] == ["User", "Auth"]
    assert found["results"][0]["summary"] == "Authentication and authorization workflows"
    assert set(found["results"][0]) == {"path", "summary", "confidence"}


@pytest.mark.requirement("D-05")
def test_only_expanding_shows_a_schema(face: Face) -> None:
    for operation, asked in (
        ("list", {"path": REFACTORING}),
        ("list", {"query": "rename a symbol"}),
        ("search_tool_by_category", {"query": "rename a symbol"}),
        ("search_nodes", {"query": "rename a symbol"}),
    ):
        data = face.ask(operation, **asked).data
        data.pop("expanded", None)  # what a search itself expands for a model: test_20_expanded_hits.py
        text = json.dumps(data)
        assert "schema" not in text
        assert "project_root" not in text
    assert face.ask("expand_tool", tool_id="refactor.rename_symbol").data["version"] == 1


@pytest.mark.requirement("D-06")
def test_wrong_arguments_never_reach_the_tool_and_are_put_right(face: Face, tmp_path: Path) -> None:
    args = {"project_root": str(tmp_path), "symbol": "a", "new_name": 5}
    error = face.ask("call_tool", tool_id="refactor.rename_symbol", args=args).error
    assert error["code"] == "INVALID_ARGUMENTS"
    assert "new_name" in error["message"]
    assert any(hint.get("field") == "new_name" for hint in error["hints"])
    assert '"new_name":"5"' in error["next_action"]


@pytest.mark.requirement("D-13")
def test_a_call_for_another_version_says_to_expand_again(face: Face) -> None:
    asked = {"tool_id": "data.query_table", "args": {"name": "x"}}
    assert face.ask("call_tool", **asked, expect_version=1).data["structuredContent"] == {"given": {"name": "x"}}
    error = face.ask("call_tool", **asked, expect_version=2).error
    assert error["code"] == "TOOL_CHANGED"
    assert "expand_tool" in error["next_action"]


@pytest.mark.requirement("S-07")
def test_a_part_of_an_output_is_inspected(face: Face) -> None:
    answer = face.ask("inspect_tool_output", tool_id="refactor.rename_symbol", field_path="changed_files").data
    assert (answer["tool_id"], answer["node_type"]) == ("refactor.rename_symbol", "integer")


@pytest.mark.requirement("D-07")
def test_nothing_that_fits_is_an_answer_with_categories_that_do(face: Face) -> None:
    error = face.ask("search_tool_by_category", query="rename a symbol", category_path=["Storage"]).error
    assert error["code"] == "NO_MATCH_IN_CATEGORY"
    assert REFACTORING in error["categories"]
    assert error["hints"][0] == {"tool_id": "refactor.rename_symbol", "summary": RENAME_SUMMARY}
    assert len(error["hints"]) <= 5
    assert "search_tool_by_category" in error["next_action"]
    listed = face.ask("list", path=["Storage"], query="rename a symbol").error
    assert (listed["code"], listed["hints"]) == ("NO_MATCH_IN_CATEGORY", error["hints"])


@pytest.mark.requirement("D-14")
def test_16_02_of_few_tools_the_nearest_are_shown_and_it_is_said_that_none_fits(face: Face) -> None:
    flight = "book a flight to Lisbon"
    for found in (
        face.ask("search_nodes", query=flight).data,
        face.ask("search_tool_by_category", query=flight).data,
        face.ask("list", query=flight).data,
    ):
        assert found["note"].startswith("nothing fits for sure")
        shown = found["results"] if "results" in found else found["tools"]
        assert 0 < len(shown) <= 5
        assert shown[0]["confidence"] < 0.3
    assert "note" not in face.ask("search_tool_by_category", query="rename a symbol").data


@pytest.mark.requirement("D-07")
def test_an_unknown_path_answers_with_the_closest_ones_that_exist(face: Face) -> None:
    for path, meant in (
        (["Codng"], ["Coding"]),
        (["Coding", "Refactorings"], REFACTORING),
        (["Auth"], ["User", "Auth"]),
    ):
        error = face.ask("list", path=path).error
        assert error["code"] == "UNKNOWN_PATH"
        assert meant in error["hints"]
        assert "list" in error["next_action"]
    searched = face.ask("search_tool_by_category", query="rename", category_path=["Zzz"]).error
    assert searched["code"] == "UNKNOWN_PATH"
    assert searched["hints"], "where nothing is near, the roots are named"
    # A path that a model made up costs it nothing but a step: what fits elsewhere is there.
    for operation, place in (("search_tool_by_category", "category_path"), ("list", "path")):
        error = face.ask(operation, query="rename a symbol", **{place: ["Editing", "Symbols"]}).error
        assert (error["code"], error["tools"][0]["tool_id"]) == ("UNKNOWN_PATH", "refactor.rename_symbol")
        assert "`tools`" in error["next_action"]
        assert "tools" not in face.ask(operation, query="order a taxi", **{place: ["Editing"]}).error


@pytest.mark.requirement("D-07")
def test_an_unknown_tool_answers_with_ids_near_by_letters_and_by_meaning(face: Face) -> None:
    error = face.ask("expand_tool", tool_id="refactor.rename_symbl").error
    assert error["code"] == "TOOL_NOT_FOUND"
    assert error["hints"][0] == "refactor.rename_symbol"
    meant = face.ask("call_tool", tool_id="auth.sign_in_user_with_oauth", args={}).error
    assert meant["code"] == "TOOL_NOT_FOUND"
    assert meant["hints"][0] == "user.oauth_login"
    assert meant["next_action"]


@pytest.mark.requirement("D-07")
def test_a_cursor_of_another_question_is_refused(face: Face) -> None:
    cursor = face.ask("list", path=["Storage", "Buckets"], limit=1).data["next_cursor"]
    for asked in ({"path": REFACTORING}, {"path": ["Storage", "Buckets"], "query": "bucket"}):
        error = face.ask("list", **asked, cursor=cursor).error
        assert error["code"] == "BAD_CURSOR"
        assert "without a cursor" in error["next_action"]
