"""OpenAPI documents as operations."""

import json
from pathlib import Path
from typing import Any

import pytest

from portico.errors import SourceError
from portico.sources.registry import BadRecord


def written(tmp_path: Path, paths: dict[str, Any], **more: Any) -> Path:
    path = tmp_path / "api.json"
    servers = [{"url": "https://api.example/v1"}]
    path.write_text(json.dumps({"openapi": "3.1.0", "servers": servers, "paths": paths, **more}))
    return path


def test_every_operation_becomes_a_record(read, examples):
    entries = read(examples / "tours.openapi.yaml")

    assert [(entry.id, entry.data["kind"], entry.collection) for entry in entries] == [
        ("list_tours", "read", "_operations"),
        ("get_tours_id", "read", "_operations"),
        ("cancel_tour", "delete", "_operations"),
        ("book_tour", "create", "_operations"),
    ]


def test_a_body_is_merged_with_the_other_parameters(read, examples):
    assert read(examples / "tours.openapi.yaml")[3].data == {
        "name": "book_tour",
        "description": "Book seats on a tour.",
        "kind": "create",
        "method": "POST",
        "url": "https://north.tours.example/api/tours/{id}/bookings",
        "parameters": [
            {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
            {"name": "seats", "in": "body", "required": True, "schema": {"type": "integer", "minimum": 1}},
            {"name": "name", "in": "body", "required": False, "schema": {"type": "string"}},
        ],
        "params_schema": {
            "type": "object",
            "properties": {
                "id": {"type": "string"},
                "seats": {"type": "integer", "minimum": 1},
                "name": {"type": "string"},
            },
            "required": ["id", "seats"],
            "additionalProperties": False,
        },
        "body": "merged",
        "content_type": "application/json",
        "result_schema": {
            "type": "object",
            "required": ["seats"],
            "properties": {"seats": {"type": "integer", "minimum": 1}, "name": {"type": "string"}},
        },
    }


def test_a_schema_that_contains_itself_ends_in_anything(read, examples):
    tour = read(examples / "tours.openapi.yaml")[1].data["result_schema"]

    assert tour["properties"]["next"] == {}
    assert tour["properties"]["note"] == {"type": ["string", "null"]}


def test_a_body_whose_names_clash_stays_whole(read, tmp_path: Path):
    body = {"type": "object", "properties": {"id": {"type": "integer"}}}
    operation = {
        "parameters": [{"name": "id", "in": "path", "required": True}],
        "requestBody": {"content": {"application/json": {"schema": body}}},
    }

    [entry] = read(written(tmp_path, {"/a/{id}": {"put": operation}}))

    assert entry.data["body"] == "whole"
    assert entry.data["params_schema"]["properties"] == {"id": {}, "body": body}
    assert entry.data["params_schema"]["required"] == ["id"]
    assert entry.data["url"] == "https://api.example/v1/a/{id}"


def test_words_of_openapi_3_0_become_json_schema_but_property_names_stay(read, tmp_path: Path):
    schema = {
        "type": "object",
        "properties": {
            "type": {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "example": 3},
            "example": {"type": "string", "default": {"type": "x", "xml": 1}},
            "$ref": {"type": "string"},
        },
    }
    operation = {"requestBody": {"content": {"application/json": {"schema": schema}}}}

    [entry] = read(written(tmp_path, {"/a": {"post": operation}}))

    assert entry.data["params_schema"]["properties"] == {
        "type": {"type": "integer", "exclusiveMinimum": 0},
        "example": {"type": "string", "default": {"type": "x", "xml": 1}},
        "$ref": {"type": "string"},
    }


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        ({"parameters": [{"$ref": "https://evil.example/p"}]}, "outside the document"),
        ({"parameters": [{"$ref": "other.yaml#/p"}]}, "outside the document"),
        ({"parameters": [{"$ref": "#/nowhere"}]}, "does not exist"),
        ({"parameters": [{"$ref": "#/components/loop"}]}, "circular references"),
        ({"parameters": ["x"]}, "not an object"),
        ({"parameters": [{"name": "a", "in": "moon"}]}, "in 'moon'"),
        (
            {"parameters": [{"name": "a", "in": "query"}, {"name": "a", "in": "header"}]},
            "two parameters named a",
        ),
        ({"parameters": [{"name": "a", "in": "cookie", "required": True}]}, "cookie"),
        ({"requestBody": {"required": True, "content": {"multipart/form-data": {}}}}, "not JSON"),
        (
            {"responses": {"200": {"content": {"application/json": {"schema": {"$ref": "#/components/b30"}}}}}},
            "parts",
        ),
        ({"operationId": "???"}, "no name"),
        ({"operationId": "fine"}, "another operation"),
        (7, "not an object"),
    ],
)
def test_a_broken_operation_is_reported_and_the_rest_is_read(read, tmp_path: Path, operation, reason):
    twice = {f"b{n}": {"items": [{"$ref": f"#/components/b{n - 1}"}] * 2} for n in range(1, 31)}
    components = {"loop": {"$ref": "#/components/loop"}, "b0": {"type": "string"}, **twice}
    path = written(
        tmp_path,
        {"/fine": {"get": {"operationId": "fine"}}, "/a": {"post": operation}},
        components=components,
    )

    fine, broken = read(path)

    assert fine.id == "fine"
    assert isinstance(broken, BadRecord)
    assert broken.where == f"{path} POST /a"
    assert reason in broken.reason


def test_a_path_whose_placeholder_nobody_fills_is_reported(read, tmp_path: Path):
    [entry] = read(written(tmp_path, {"/a/{id}": {"get": {}}}))

    assert entry.reason == "has no parameter for {id} in its path"


def test_a_document_on_the_web_is_the_base_of_a_relative_server(read, web):
    url = web.serve("/docs/api", 'openapi: 3.0.0\nservers: [{url: "../v2/"}]\npaths: {/a: {get: {}}}', "text/yaml")

    for source in (url, f"openapi+{url}"):
        assert [entry.data["url"] for entry in read(source)] == [f"{web.url}/v2/a"]


@pytest.mark.parametrize("text", ["swagger: '2.0'", "[]", "a: &a [1]\nb: *a", "{", "openapi: 4.0.0", "a: [", ""])
def test_what_is_not_openapi_3_is_refused(read, tmp_path: Path, text):
    (tmp_path / "a.yaml").write_text(text)

    with pytest.raises(SourceError):
        read(tmp_path / "a.yaml", format="openapi")
