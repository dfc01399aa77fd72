"""Reading OpenAPI documents: versions, references, bounds, and what is wrong with them."""

import asyncio
import copy
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it ships no types; only `validate` is used
import pytest
from openapi_spec_validator import validate
from shop_service import DOCUMENT

from toolfold.errors import ServerUnavailable
from toolfold.types import ServerSpec
from toolfold.upstream.openapi import OpenApiUpstream
from toolfold.upstream.openapi.document import _parse_document
from toolfold.upstream.openapi.operations import Operation, OperationReader
from toolfold.upstream.openapi.schemas import _MAX_SCHEMA_BYTES, SchemaConverter

SWAGGER: dict[str, Any] = {
    "swagger": "2.0",
    "info": {"title": "Old shop", "version": "1"},
    "host": "shop.example",
    "basePath": "/v1",
    "schemes": ["https"],
    "parameters": {"limit": {"name": "limit", "in": "query", "type": "integer", "maximum": 50}},
    "definitions": {"Order": {"type": "object", "properties": {"id": {"type": "integer"}}}},
    "responses": {"Order": {"description": "one", "schema": {"$ref": "#/definitions/Order"}}},
    "paths": {
        "/orders": {
            "parameters": [{"$ref": "#/parameters/limit"}],
            "get": {
                "operationId": "list",
                "parameters": [
                    {"name": "tags", "in": "query", "type": "array", "items": {"type": "string"}},
                    {
                        "name": "ids",
                        "in": "query",
                        "type": "array",
                        "items": {"type": "integer"},
                        "collectionFormat": "multi",
                    },
                ],
                "responses": {"200": {"$ref": "#/responses/Order"}},
            },
            "post": {
                "operationId": "create",
                "parameters": [
                    {"name": "order", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Order"}}
                ],
                "responses": {"201": {"description": "made", "schema": {"$ref": "#/definitions/Order"}}},
            },
        },
        "/files": {
            "post": {
                "operationId": "upload",
                "consumes": ["multipart/form-data"],
                "parameters": [
                    {"name": "file", "in": "formData", "type": "file", "required": True},
                    {"name": "note", "in": "formData", "type": "string"},
                ],
                "responses": {"204": {"description": "done"}},
            }
        },
    },
}


def document(version: str = "3.0.3", **parts: Any) -> dict[str, Any]:
    return {"openapi": version, "info": {"title": "T", "version": "1"}, "paths": {}, **parts}


def body_of(schema: Any, **parts: Any) -> Any:
    """A document with one operation that takes `schema` as its body."""
    request = {"content": {"application/json": {"schema": schema}}}
    operation = {"operationId": "op", "requestBody": request, "responses": {"200": {"description": "good"}}}
    return document(paths={"/": {"post": operation}}, **parts)


def read(whole: dict[str, Any]) -> tuple[dict[str, Operation], list[str]]:
    reader = OperationReader(whole)
    return reader.operations(), reader.warnings


def input_of(whole: dict[str, Any], name: str = "op") -> Any:
    schema = json.loads(bytes(read(whole)[0][name].definition.input_schema))
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


def test_swagger_2_is_read_as_version_3() -> None:
    whole = _parse_document(json.dumps(SWAGGER).encode(), "swagger.json")
    validate(whole)
    operations, warnings = read(whole)
    assert not warnings
    assert set(operations) == {"list", "create", "upload"}
    explode = {parameter.name: parameter.explode for parameter in operations["list"].parameters}
    assert explode == {"limit": True, "tags": False, "ids": True}
    create = json.loads(bytes(operations["create"].definition.input_schema))
    assert create["properties"]["body"] == {"$ref": "#/$defs/Order"}
    assert create["required"] == ["body"]
    upload = operations["upload"]
    assert upload.body is not None
    assert (upload.body.kind, upload.body.binary) == ("multipart", ("file",))
    assert operations["list"].definition.output_schema is not None
    assert whole["servers"] == [{"url": "https://shop.example/v1"}]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "no object"),
        (b"[]", "no object"),
        (b"{", "no valid JSON"),
        (b"{}", "has no `openapi` field"),
        (b'{"openapi": "4.0.0"}', "says openapi: 4.0.0"),
        (b'{"swagger": "1.2"}', "has no `openapi` field"),
        (b"a: [", "no valid YAML"),
        (b"\xff\xfe\x00", "no valid YAML"),
        (b"just text", "no object"),
    ],
)
def test_what_is_no_document_is_refused(body: bytes, message: str) -> None:
    with pytest.raises(ServerUnavailable, match=message):
        _parse_document(body, "it")


def test_yaml_that_unfolds_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolfold.upstream.openapi.document._MAX_DOCUMENT_VALUES", 100_000)
    lines = ["openapi: 3.0.0", "a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(ServerUnavailable, match="unfolds to more than"):
        _parse_document("\n".join(lines).encode(), "bomb.yaml")


def test_yaml_that_is_not_installed_is_said_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ServerUnavailable, match="not installed") as caught:
        _parse_document(b"openapi: 3.0.0", "shop.yaml")
    assert "pip install pyyaml" in caught.value.next_action
    assert _parse_document(b'{"openapi": "3.0.0"}', "shop.json") == {"openapi": "3.0.0"}


def test_yaml_dates_and_number_keys_become_json() -> None:
    whole = _parse_document(b"openapi: 3.0.0\ninfo: {version: 2024-05-06}\nresponses: {200: {true: 1}}\n", "it.yaml")
    assert whole == {"openapi": "3.0.0", "info": {"version": "2024-05-06"}, "responses": {"200": {"true": 1}}}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "string", "nullable": True, "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}),
        (
            {"allOf": [{"type": "object"}], "nullable": True, "description": "d"},
            {"description": "d", "anyOf": [{"allOf": [{"type": "object"}]}, {"type": "null"}]},
        ),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, {"type": "integer", "exclusiveMinimum": 1}),
        ({"type": "integer", "maximum": 1, "exclusiveMaximum": False}, {"type": "integer", "maximum": 1}),
        ({"type": "string", "example": "x", "xml": {}}, {"type": "string"}),
        (
            {"type": "object", "properties": {"a": {"readOnly": True}, "b": {}}, "required": ["a", "b"]},
            {"type": "object", "properties": {"b": {}}, "required": ["b"]},
        ),
    ],
)
def test_schemas_of_version_3_0_become_json_schema(old: Any, new: Any) -> None:
    assert input_of(body_of(old))["properties"]["body"] == new


def test_a_nullable_reference_keeps_both() -> None:
    whole = body_of(
        {"type": "object", "properties": {"a": {"$ref": "#/components/schemas/A", "nullable": True}}},
        components={"schemas": {"A": {"type": "integer"}}},
    )
    schema = input_of(whole)
    assert schema["properties"]["body"]["properties"]["a"] == {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}
    jsonschema.validate({"body": {"a": None}}, schema)


def test_a_schema_that_is_only_itself_ends() -> None:
    whole = body_of(
        {"$ref": "#/components/schemas/A"},
        components={
            "schemas": {"A": {"$ref": "#/components/schemas/B"}, "B": {"allOf": [{"$ref": "#/components/schemas/A"}]}}
        },
    )
    assert set(input_of(whole)["$defs"]) == {"A", "B"}


def test_two_definitions_with_one_last_name_stay_apart() -> None:
    whole = body_of(
        {"anyOf": [{"$ref": "#/components/schemas/A"}, {"$ref": "#/components/x-more/A"}]},
        components={"schemas": {"A": {"type": "integer"}}, "x-more": {"A": {"type": "string"}}},
    )
    schema = input_of(whole)
    assert schema["$defs"] == {"A": {"type": "integer"}, "A_2": {"type": "string"}}


@pytest.mark.parametrize("reference", ["https://evil.example/x.json", "other.yaml#/A", "#/nowhere", "#anchor", 17])
def test_references_outside_the_document_are_never_read_and_accept_anything(reference: object) -> None:
    whole = body_of({"type": "object", "properties": {"a": {"$ref": reference}}})
    operations, warnings = read(whole)
    schema = json.loads(bytes(operations["op"].definition.input_schema))
    jsonschema.validate({"body": {"a": [1]}}, schema)
    assert any("not in the document" in warning for warning in warnings)


def test_what_one_tool_carries_is_bounded_and_still_accepts_all_that_fits() -> None:
    schemas: dict[str, Any] = {
        f"S{n}": {
            "type": "object",
            "description": "x" * 1000,
            "properties": {"next": {"$ref": f"#/components/schemas/S{n + 1}"}},
        }
        for n in range(1000)
    }
    schemas["S1000"] = {"type": "object"}
    whole = body_of({"$ref": "#/components/schemas/S0"}, components={"schemas": schemas})
    schema = input_of(whole)
    assert len(json.dumps(schema)) < 2 * _MAX_SCHEMA_BYTES
    assert any("left out here" in part.get("description", "") for part in schema["$defs"].values())
    value: dict[str, Any] = {}
    for _ in range(200):
        value = {"next": value}
    jsonschema.validate({"body": value}, schema)


def test_deep_and_broken_parts_do_no_harm() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(300):
        deep = {"type": "array", "items": deep}
    good = {"operationId": "op", "responses": {"200": {"description": "good"}}}
    whole = document(
        paths={
            "/deep": {"post": {**good, "requestBody": {"content": {"application/json": {"schema": deep}}}}},
            "/list": [],
            "/null": None,
            "no-slash": {"get": good},
            "/odd": {
                "get": {
                    "operationId": 3,
                    "parameters": [{"in": "nowhere", "name": "x"}, {"in": "query"}, 5, {"$ref": "#/x"}],
                    "responses": {"200": None, "2XX": {"content": {"application/json": []}}},
                },
                "post": {"operationId": "op", "requestBody": {"content": {}}, "responses": []},
            },
            "/missing/{id}": {"get": good},
        }
    )
    operations, warnings = read(whole)
    assert set(operations) == {"op", "get_odd", "op_2"}
    assert any("its path needs ['id']" in warning for warning in warnings)
    assert any("two operations would be named op" in warning for warning in warnings)


def test_finding_follows_escapes_and_lists() -> None:
    schemas = SchemaConverter(document(x={"a/b~c": [{"deep": 1}]}))
    assert schemas.find("#/x/a~1b~0c/0/deep") == 1
    assert schemas.find("#/x/a~1b~0c/1") is None


def opened(**settings: Any) -> str:
    """The message with which opening fails."""

    async def main() -> str:
        upstream = OpenApiUpstream(ServerSpec(name="shop", transport="openapi", **settings))
        with pytest.raises(ServerUnavailable) as caught:
            await upstream.open()
        await upstream.aclose()
        assert caught.value.server == "shop"
        return f"{caught.value.message} | {caught.value.next_action}"

    return asyncio.run(main())


def test_documents_that_cannot_be_had_are_told_with_a_way_out(tmp_path: Path) -> None:
    assert "Set `openapi`" in opened()
    assert "cannot be read" in opened(document=str(tmp_path / "missing.json"))
    assert "cannot be fetched" in opened(document="http://127.0.0.1:9/openapi.json")
    (tmp_path / "bare.json").write_text(json.dumps(document()))
    assert "Set `base_url`" in opened(document=str(tmp_path / "bare.json"))


def test_a_fetched_document_cannot_lead_calls_to_another_origin() -> None:
    spec = ServerSpec(name="shop", transport="openapi", document="https://docs.example/openapi.json")
    for server in (
        "http://169.254.169.254/latest",
        "//docs.example.evil",
        "http://docs.example",
        "https://docs.example:8",
    ):
        with pytest.raises(ServerUnavailable, match="another origin") as caught:
            OpenApiUpstream(spec)._base_address(document(servers=[{"url": server}]))
        assert "set url = " in caught.value.next_action
    for server in ("/v2", "https://docs.example/v2", "https://DOCS.example:443/v2"):
        base, _ = OpenApiUpstream(spec)._base_address(document(servers=[{"url": server}]))
        assert base.lower().endswith("/v2")


def test_server_variables_take_their_defaults(tmp_path: Path) -> None:
    servers = [
        {"url": "https://{region}.shop.example/{v}", "variables": {"region": {"default": "eu"}, "v": {"default": "2"}}}
    ]
    upstream = OpenApiUpstream(ServerSpec(name="shop", transport="openapi", document=str(tmp_path / "x.json")))
    assert upstream._base_address(document(servers=servers)) == ("https://eu.shop.example/2", "")


def every_place(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from every_place(item, (*path, key))


@pytest.mark.parametrize("garbage", [None, 17, "x", [], {}, True, [None], {"$ref": "#"}], ids=str)
@pytest.mark.parametrize("whole", [DOCUMENT, SWAGGER], ids=["3.1", "2.0"])
def test_garbage_at_any_place_of_a_document_raises_nothing_of_ours(whole: dict[str, Any], garbage: Any) -> None:
    for place in every_place(whole):
        broken = copy.deepcopy(whole)
        at: Any = broken
        for key in place[:-1]:
            at = at[key]
        at[place[-1]] = garbage
        try:
            parsed = _parse_document(json.dumps(broken).encode(), "broken.json")
            upstream = OpenApiUpstream(ServerSpec(name="shop", transport="openapi", document="broken.json"))
            upstream._base_address({"servers": [{"url": "https://shop.example"}]} | parsed)
        except ServerUnavailable:
            continue
        operations, _ = read(parsed)
        for operation in operations.values():
            json.loads(bytes(operation.definition.raw))
