"""The operations of an OpenAPI 3 document as records. Calls nothing; follows only references inside it.

Each record describes one operation: name, description, kind, method, url, parameters, `params_schema` and
`result_schema`. The properties of a JSON body stand beside the other parameters (`body` is "merged"), unless
a name would clash or the body is not a plain object: then it is one parameter named body (`body` is "whole").
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urljoin

import yaml

from portico.catalog import OPERATIONS
from portico.errors import SourceError
from portico.sources import jsonld
from portico.sources.plain import load_yaml, plain
from portico.sources.records import MAX_DEPTH, BadRecord, Document, Entry, Record

KINDS = {
    "get": "read",
    "head": "read",
    "post": "create",
    "put": "update",
    "patch": "update",
    "delete": "delete",
}
MAX_NODES = 20_000  # of one operation, once its references are resolved
# OpenAPI 3, Parameter Object: header parameters of these names are ignored.
_IGNORED_HEADERS = frozenset(("accept", "content-type", "authorization"))
_TEMPLATE = re.compile(r"{([^{}]+)}")
_FORM = "application/x-www-form-urlencoded"
_NOT_SCHEMA = frozenset(("discriminator", "xml", "externalDocs", "example", "nullable"))

_LITERAL = frozenset(("default", "enum", "const", "examples"))
_TABLES = frozenset(("properties", "patternProperties", "$defs"))


class Broken(ValueError):
    """This operation cannot be described; the message says why."""


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    place: str  # path, query, header, body
    is_required: bool
    schema: dict[str, Any]

    def as_data(self) -> dict[str, Any]:
        return {"name": self.name, "in": self.place, "required": self.is_required, "schema": self.schema}


@dataclass(frozen=True, slots=True)
class _Body:
    parameters: tuple[_Parameter, ...] = ()
    style: str | None = None  # merged, whole
    content_type: str | None = None
    is_open: bool = False  # may have properties that are not named


@dataclass(frozen=True, slots=True)
class _Operation:
    """One method of one path, as it is written, with the document around it."""

    api: dict[str, Any]
    path: str
    item: dict[str, Any]
    method: str

    @property
    def written(self) -> dict[str, Any]:
        return _object(self.item[self.method], "an operation")

    @property
    def name(self) -> str:
        return _name(str(self.written.get("operationId") or f"{self.method}_{self.path}"))


def read(document: Document) -> Iterator[Entry]:
    names: set[str] = set()
    for operation in _operations(load(document)):
        where = f"{document.name} {operation.method.upper()} {operation.path}"
        try:
            if operation.name in names:
                raise Broken(f"has the name {operation.name}, which another operation has already")
            yield Record(_data(operation, document), where, operation.name, OPERATIONS)
            names.add(operation.name)
        except Broken as problem:
            yield BadRecord(where, str(problem))


def load(document: Document) -> dict[str, Any]:
    """The whole document, refused unless it is OpenAPI 3."""
    text = document.read()
    if text is None:
        raise SourceError(f"{document.name} is too large for an OpenAPI document.")
    try:
        value = jsonld.decode(text) if text.lstrip()[:1] == b"{" else plain(load_yaml(text.decode("utf-8-sig")))
    except (jsonld.NotJson, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise SourceError(f"{document.name} is neither JSON nor YAML: {problem}") from problem
    if not isinstance(value, dict) or not str(cast("dict[str, Any]", value).get("openapi", "")).startswith("3."):
        raise SourceError(f"{document.name} is not an OpenAPI 3 document.", hint="It must begin with `openapi: 3.x`.")
    return cast("dict[str, Any]", value)


def _operations(api: dict[str, Any]) -> Iterator[_Operation]:
    for path, item in _mapping(api.get("paths")).items():
        for method in KINDS:
            if method in _mapping(item):
                yield _Operation(api, path, item, method)


def _data(operation: _Operation, document: Document) -> dict[str, Any]:
    resolver = _Resolver(operation.api)
    written = operation.written
    parameters = _parameters(resolver, operation)
    unfilled = set(_TEMPLATE.findall(operation.path)) - {one.name for one in parameters if one.place == "path"}
    if unfilled:
        raise Broken(f"has no parameter for {{{unfilled.pop()}}} in its path")
    body = _body(resolver, written, {parameter.name for parameter in parameters})
    every = [*parameters, *body.parameters]
    return {
        "name": operation.name,
        "description": str(written.get("description") or written.get("summary") or ""),
        "kind": KINDS[operation.method],
        "method": operation.method.upper(),
        "url": _server(operation, document) + operation.path,
        "parameters": [parameter.as_data() for parameter in every],
        "params_schema": _params_schema(every, body),
        "body": body.style,
        "content_type": body.content_type,
        "result_schema": _result_schema(resolver, written),
    }


def _parameters(resolver: "_Resolver", operation: _Operation) -> list[_Parameter]:
    """Those of the path, overridden by those of the operation."""
    found: dict[tuple[str, str], _Parameter] = {}
    for holder in (operation.item, operation.written):
        for written in _list(holder.get("parameters")):
            parameter = _parameter(resolver, written)
            if parameter is not None:
                found[parameter.name, parameter.place] = parameter
    names = [name for name, _ in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise Broken(f"has two parameters named {twice}")
    return list(found.values())


def _parameter(resolver: "_Resolver", written: Any) -> _Parameter | None:
    parameter = _object(resolver.target(written), "a parameter")
    name, place = str(parameter.get("name") or ""), str(parameter.get("in") or "")
    is_required = parameter.get("required") is True or place == "path"
    if not name or place not in ("path", "query", "header", "cookie"):
        raise Broken(f"has a parameter {name!r} in {place!r}")
    if place == "cookie":
        if is_required:
            raise Broken(f"needs the cookie {name}, and cookies are not sent")
        return None
    if place == "header" and name.lower() in _IGNORED_HEADERS:
        return None
    content = next(iter(_mapping(parameter.get("content")).values()), None)
    schema = resolver.schema(parameter.get("schema") or _mapping(content).get("schema") or {})
    described = parameter.get("description")
    return _Parameter(name, place, is_required, {"description": described, **schema} if described else schema)


def _body(resolver: "_Resolver", operation: dict[str, Any], taken: set[str]) -> _Body:
    if "requestBody" not in operation:
        return _Body()
    written = _object(resolver.target(operation["requestBody"]), "the request body")
    is_required = written.get("required") is True
    content = _mapping(written.get("content"))
    content_type = next(filter(_is_json, content), _FORM if _FORM in content else None)
    if content_type is None:
        if is_required:
            raise Broken(f"takes {', '.join(content) or 'a body of no type'}, not JSON")
        return _Body()
    schema = resolver.schema(_mapping(content[content_type]).get("schema") or {})
    properties = _mapping(schema.get("properties"))
    if schema.get("type") != "object" or not properties or taken & properties.keys():
        if "body" in taken:
            raise Broken("has a parameter named body beside its body")
        return _Body((_Parameter("body", "body", is_required, schema),), "whole", content_type)
    needed = _list(schema.get("required")) if is_required else []
    merged = tuple(_Parameter(name, "body", name in needed, _mapping(one)) for name, one in properties.items())
    return _Body(merged, "merged", content_type, bool(schema.get("additionalProperties")))


def _params_schema(parameters: list[_Parameter], body: _Body) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {parameter.name: parameter.schema for parameter in parameters},
        "required": [parameter.name for parameter in parameters if parameter.is_required],
        "additionalProperties": body.is_open,
    }


def _result_schema(resolver: "_Resolver", operation: dict[str, Any]) -> dict[str, Any] | None:
    responses = _mapping(operation.get("responses"))
    for status in sorted(responses):
        if not status.startswith("2"):
            continue
        content = _mapping(_mapping(resolver.target(responses[status])).get("content"))
        for content_type, media in content.items():
            schema = _mapping(media).get("schema")
            if _is_json(content_type) and schema is not None:
                return resolver.schema(schema)
    return None


def _server(operation: _Operation, document: Document) -> str:
    """The base of the nearest list of servers, its variables at their defaults, without a closing slash."""
    holders = (operation.written, operation.item, operation.api)
    server = next((_mapping(found[0]) for holder in holders if (found := _list(holder.get("servers")))), _mapping(None))
    url = str(server.get("url") or "/")
    for name, variable in _mapping(server.get("variables")).items():
        url = url.replace(f"{{{name}}}", str(_mapping(variable).get("default", "")))
    return urljoin(document.url or "", url).rstrip("/")


class _Resolver:
    """Puts local references in place. A cycle becomes "anything", and an operation may only grow so far."""

    def __init__(self, api: Mapping[str, Any]) -> None:
        self._api = api
        self._left = MAX_NODES

    def target(self, value: Any) -> Any:
        """What a reference to a parameter, a body or a response means."""
        for _ in range(MAX_DEPTH):
            reference = _mapping(value).get("$ref")
            if not isinstance(reference, str):
                return value
            value = self._look_up(reference)
        raise Broken("has references that go in a circle")

    def schema(self, value: Any) -> dict[str, Any]:
        if value is True:
            return {}
        return _object(self._inline(value, ()), "a schema")

    def _inline(self, value: Any, trail: tuple[str, ...], *, names_members: bool = False) -> Any:
        """`names_members`: this is a table of properties, in which no word has a meaning of its own."""
        self._left -= 1
        if self._left < 0:
            raise Broken(f"has schemas of more than {MAX_NODES} parts")
        if isinstance(value, list):
            return [self._inline(one, trail) for one in cast("list[Any]", value)]
        if not isinstance(value, dict):
            return value
        node = cast("dict[str, Any]", value)
        if names_members:
            return {name: self._inline(one, trail) for name, one in node.items()}
        reference = node.get("$ref")
        if isinstance(reference, str):
            if reference in trail:
                return {}
            return self._inline(self._look_up(reference), (*trail, reference))
        return _json_schema({name: self._member(name, one, trail) for name, one in node.items()})

    def _member(self, name: str, value: Any, trail: tuple[str, ...]) -> Any:
        return value if name in _LITERAL else self._inline(value, trail, names_members=name in _TABLES)

    def _look_up(self, reference: str) -> Any:
        if not reference.startswith("#/"):
            raise Broken(f"refers to {reference!r}, which is outside the document")
        node: Any = self._api
        for part in reference[2:].split("/"):
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, dict) or name not in node:
                raise Broken(f"refers to {reference!r}, which is not there")
            node = cast("dict[str, Any]", node)[name]
        return node


def _json_schema(node: dict[str, Any]) -> dict[str, Any]:
    """OpenAPI 3.0 has a few words of its own; JSON Schema (and OpenAPI 3.1) says the same in others."""
    if not isinstance(node.get("type"), str):
        return node
    schema = {name: value for name, value in node.items() if name not in _NOT_SCHEMA}
    if node.get("nullable") is True:
        schema["type"] = [node["type"], "null"]
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        match schema.pop(exclusive, None):
            case True if bound in schema:
                schema[exclusive] = schema.pop(bound)
            case bool() | None:
                pass
            case number:
                schema[exclusive] = number
    return schema


def _name(written: str) -> str:
    """listPets and "GET /pets/{id}" as list_pets and get_pets_id."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", written)
    name = re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")
    if not name:
        raise Broken("has no name that can be written in letters and digits")
    return name


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Broken(f"has {what} that is not an object")
    return cast("dict[str, Any]", value)


def _mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
