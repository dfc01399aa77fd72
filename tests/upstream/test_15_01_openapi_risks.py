"""What an operation of an OpenAPI document is said to risk: no more than its method and its words say, and no less."""

import pytest

from toolfold.catalogue.metadata import Rules
from toolfold.upstream.openapi.operations import OperationReader


def risks(method: str, path: str, **operation: str) -> tuple[str, ...]:
    document = {"openapi": "3.0.3", "paths": {path: {method: {**operation, "responses": {}}}}}
    (found,) = OperationReader(document).operations().values()
    return Rules().metadata("api.tool", found.definition).risks


@pytest.mark.parametrize(
    ("method", "path", "operation"),
    [
        ("post", "/routes", {"operationId": "planRoute", "summary": "Compute the shortest round for a list of stops"}),
        ("post", "/fuel", {"operationId": "logRefuel", "summary": "Enter a fuel receipt"}),
        ("put", "/orders", {"operationId": "putOrder"}),
        ("patch", "/orders", {"summary": "Change the address of an order"}),
        ("post", "/search", {"operationId": "searchItems", "summary": "Search deleted items"}),
    ],
)
def test_15_01_what_says_nothing_of_deleting_is_unstated(method: str, path: str, operation: dict[str, str]) -> None:
    found = risks(method, path, **operation)
    assert "unstated" in found
    assert "destructive" not in found


@pytest.mark.parametrize(
    ("method", "path", "operation"),
    [
        ("delete", "/vans", {"operationId": "retireVan", "summary": "Take a van out of service"}),
        ("delete", "/vans", {"operationId": "getRid", "summary": "Get rid of a van"}),
        ("post", "/items", {"operationId": "bulkDelete"}),
        ("post", "/items/delete", {"operationId": "items"}),
        ("post", "/items:batchRemove", {}),
        ("post", "/jobs", {"operationId": "runJob", "summary": "Permanently deletes all items of a list"}),
        ("put", "/state", {"description": "Overwrites the state."}),
        ("patch", "/log", {"summary": "Clear the log"}),
    ],
)
def test_15_01_what_deletes_by_its_method_or_its_words_is_destructive(
    method: str, path: str, operation: dict[str, str]
) -> None:
    assert "destructive" in risks(method, path, **operation)


def test_15_01_what_is_read_is_read_only() -> None:
    assert risks("get", "/deleted", summary="Deleted items")[0] == "read-only"
