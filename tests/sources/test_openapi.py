"""OpenAPI documents as operations."""

import gzip
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
        ({"parameters": [{"$ref": "other.yaml#/p"}]}, "does not exist"),
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


# Documents of several files


SPLIT = {
    "api.yaml": """
openapi: 3.1.0
servers: [{url: "https://api.example/v1"}]
paths:
  /tours: {$ref: "paths/tours.yaml"}
  /boats:
    get:
      operationId: listBoats
      parameters: [{$ref: "common/parts.json#/parameters/page"}]
      responses: {"200": {content: {application/json: {schema: {$ref: "common/Tour%20Boat.yaml"}}}}}
components: {schemas: {Name: {type: string}}}
""",
    "paths/tours.yaml": """
get:
  operationId: listTours
  parameters: [{$ref: "../common/parts.json#/parameters/page"}]
""",
    "common/parts.json": json.dumps(
        {
            "parameters": {"page": {"name": "page", "in": "query", "schema": {"$ref": "#/numbers/0"}}},
            "numbers": [{"type": "integer"}],
        }
    ),
    "common/Tour Boat.yaml": """
type: object
properties:
  name: {$ref: "../api.yaml#/components/schemas/Name"}
  sister: {$ref: "Tour%20Boat.yaml"}
""",
}


def test_references_lead_to_neighbouring_files_and_cycles_end(read, tmp_path: Path):
    split(tmp_path / "api")

    entries = read(tmp_path / "api" / "api.yaml")

    assert [entry.id for entry in entries] == ["list_tours", "list_boats"]
    for entry in entries:
        assert entry.data["params_schema"]["properties"] == {"page": {"type": "integer"}}
    boat = entries[1].data["result_schema"]
    assert boat["properties"]["name"] == {"type": "string"}
    sister = boat["properties"]["sister"]["properties"]
    assert sister == {"name": {"type": "string"}, "sister": {}}


def split(folder: Path) -> None:
    for name, text in SPLIT.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    "reference",
    [
        "../secret.yaml#/p",
        "{absolute}#/p",
        "file://{absolute}#/p",
        "link.yaml#/p",
        "folder/secret.yaml#/p",
        "..%2Fsecret.yaml#/p",
        "%2e%2e/secret.yaml#/p",
        "http://127.0.0.1:1/secret.yaml#/p",
        "//127.0.0.1/secret.yaml",
        "a\0b.yaml",
    ],
)
def test_references_never_leave_the_folder(read, tmp_path: Path, reference: str):
    secret = tmp_path / "secret.yaml"
    secret.write_text("p: {name: stolen, in: query}")
    folder = tmp_path / "api"
    folder.mkdir()
    (folder / "link.yaml").symlink_to(secret)
    (folder / "folder").symlink_to(tmp_path, target_is_directory=True)
    operation = {"parameters": [{"$ref": reference.format(absolute=secret)}]}

    [broken] = read(written(folder, {"/a": {"get": operation}}))

    assert "outside the document" in broken.reason
    assert "stolen" not in broken.reason


def test_a_file_in_an_archive_has_no_neighbours(read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text("p: {name: stolen, in: query}")
    path = written(tmp_path, {"/a": {"get": {"parameters": [{"$ref": "p.yaml#/p"}]}}})
    packed = tmp_path / "api.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))

    [broken] = read(packed)

    assert "outside the document" in broken.reason


def test_files_on_the_web_come_from_the_same_server_only(read, web):
    for name, text in SPLIT.items():
        url = web.serve(f"/docs/{name}".replace(" ", "%20"), text, "application/yaml")
    other = "http://localhost:1/x.yaml"
    web.redirect("/docs/moved.yaml", other)
    operation = {"get": {"parameters": [{"$ref": other}]}}
    moved = {"get": {"parameters": [{"$ref": "moved.yaml"}]}}
    document = {"openapi": "3.0.0", "paths": {"/a": operation, "/b": moved}}
    url = web.serve("/docs/bad.json", json.dumps(document), "application/json")

    entries = read(f"{web.url}/docs/api.yaml", allow_hosts=("127.0.0.1", "localhost"))
    broken = read(url, allow_hosts=("127.0.0.1", "localhost"))

    assert [entry.id for entry in entries] == ["list_tours", "list_boats"]
    assert "outside the document" in broken[0].reason
    assert "status 302" in broken[1].reason


def test_the_number_of_files_is_limited(read, tmp_path: Path):
    for number in range(250):
        (tmp_path / f"p{number}.yaml").write_text("name: page\nin: query\n")
    paths = {f"/{n}": {"get": {"parameters": [{"$ref": f"p{n}.yaml"}]}} for n in range(250)}

    entries = read(written(tmp_path, paths))

    broken = [entry for entry in entries if isinstance(entry, BadRecord)]
    assert 0 < len(broken) < 100
    assert "200 files" in broken[0].reason


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("api.json", json.dumps({"components": {"x": "y" * 70_000}, "openapi": "3.1.0", "paths": {"/a": {"get": {}}}})),
        ("api.yaml", f"components: {{x: {'y' * 70_000}}}\nopenapi: 3.0.0\npaths: {{/a: {{get: {{}}}}}}\n"),
        ("api", '{"openapi": "3.0.0", "paths": {"/a": {"get": {}}}}'),
    ],
)
def test_a_document_is_recognized_wherever_its_version_stands(read, tmp_path: Path, name: str, text: str):
    (tmp_path / name).write_text(text)

    assert [entry.id for entry in read(tmp_path / name)] == ["get_a"]


@pytest.mark.parametrize("text", ['{"swagger": "2.0", "paths": {}}', "swagger: '2.0'\npaths: {}\n"])
def test_a_swagger_document_is_recognized_and_refused(read, tmp_path: Path, text: str):
    path = tmp_path / ("api.json" if text[0] == "{" else "api.yaml")
    path.write_text(text)

    with pytest.raises(SourceError, match="Swagger 2"):
        read(path)


def test_data_about_interfaces_are_no_document(read, tmp_path: Path):
    (tmp_path / "apis.json").write_text(json.dumps({"items": [{"id": 1, "api": {"swagger": "2.0", "paths": {}}}]}))

    [entry] = read(tmp_path / "apis.json")

    assert entry.data["id"] == 1
