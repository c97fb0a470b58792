"""Reads the operations of an OpenAPI 3 document. Calls nothing; follows references inside it and to neighbouring files.

Each record describes one operation: name, description, kind, method, url, parameters, `params_schema` and
`result_schema`. The properties of a JSON body stand beside the other parameters (`body` is "merged"), unless
a name would clash or the body is not a plain object: then it is one parameter named body (`body` is "whole").
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from portico.catalog import OPERATIONS
from portico.errors import SourceError
from portico.network import join_url
from portico.sources.fetch import Fetcher, origin_of
from portico.sources.records import MAX_DEPTH, BadRecord, Document, Entry, Record, SourceOptions
from portico.sources.references import InvalidReference, Library, parse_document

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


class InvalidOperation(ValueError):
    """This operation cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    place: str  # path, query, header, body
    is_required: bool
    schema: dict[str, Any]

    def as_data(self) -> dict[str, Any]:
        return {"name": self.name, "in": self.place, "required": self.is_required, "schema": self.schema}


@dataclass(frozen=True, slots=True)
class _RequestBody:
    parameters: tuple[_Parameter, ...] = ()
    style: str | None = None  # merged, whole
    content_type: str | None = None
    is_open: bool = False  # may have properties that are not named


@dataclass(frozen=True, slots=True)
class _Operation:
    """One method of one path, as written, with its document."""

    api: dict[str, Any]
    path: str
    item: dict[str, Any]
    method: str

    @property
    def spec(self) -> dict[str, Any]:
        return _require_object(self.item[self.method], "an operation")

    @property
    def name(self) -> str:
        return _name(str(self.spec.get("operationId") or f"{self.method}_{self.path}"))


def read(document: Document, options: SourceOptions, web: Fetcher) -> Iterator[Entry]:
    names: set[str] = set()
    api = load(document)
    library = Library(document, api, web)
    for path, item in _as_dict(api.get("paths")).items():
        for where, operation in _operations(api, path, item, library, document.name):
            if isinstance(operation, BadRecord):
                yield operation
                continue
            try:
                if operation.name in names:
                    raise InvalidOperation(f"has the name {operation.name}, which another operation has already")
                data = _data(operation, document, _Resolver(library), options.auth_parameter)
                yield Record(data | _authentication(operation, document, options), where, operation.name, OPERATIONS)
                names.add(operation.name)
            except (InvalidOperation, InvalidReference) as problem:
                yield BadRecord(where, str(problem))


def load(document: Document) -> dict[str, Any]:
    """Parse the document; refuse any but OpenAPI 3."""
    text = document.read()
    if text is None:
        raise SourceError(f"{document.name} is too large for an OpenAPI document.")
    value = parse_document(text, document.name)
    if isinstance(value, dict) and "swagger" in value:
        hint = "Convert it to OpenAPI 3, for instance with the Swagger editor."
        raise SourceError(f"{document.name} is a Swagger 2 document, which is not read.", hint=hint)
    if not isinstance(value, dict) or not str(cast("dict[str, Any]", value).get("openapi", "")).startswith("3."):
        raise SourceError(f"{document.name} is not an OpenAPI 3 document.", hint="It must begin with `openapi: 3.x`.")
    return cast("dict[str, Any]", value)


def _operations(
    api: dict[str, Any], path: str, item: Any, library: Library, name: str
) -> Iterator[tuple[str, _Operation | BadRecord]]:
    """Yield the operations of a path, whose description may be in another file."""
    try:
        item = _as_dict(_Resolver(library).target(item))
    except (InvalidOperation, InvalidReference) as problem:
        yield "", BadRecord(f"{name} {path}", str(problem))
        return
    for method in KINDS:
        if method in item:
            yield f"{name} {method.upper()} {path}", _Operation(api, path, item, method)


def _authentication(operation: _Operation, document: Document, options: SourceOptions) -> dict[str, str]:
    """Return the source whose credentials an operation is called with, and where these may be sent."""
    if not options.auth_source:
        return {}
    origin = origin_of(_server((operation.api,), document))
    return {"source": options.auth_source, "origin": origin}


def _data(operation: _Operation, document: Document, resolver: "_Resolver", filled: tuple[str, str]) -> dict[str, Any]:
    spec = operation.spec
    parameters = [
        parameter
        for parameter in _parameters(resolver, operation)
        if (parameter.place, parameter.name.lower()) != (filled[0], filled[1].lower())
    ]
    unfilled = set(_TEMPLATE.findall(operation.path)) - {one.name for one in parameters if one.place == "path"}
    if unfilled:
        raise InvalidOperation(f"has no parameter for {{{unfilled.pop()}}} in its path")
    body = _body(resolver, spec, {parameter.name for parameter in parameters})
    every = [*parameters, *body.parameters]
    return {
        "name": operation.name,
        "description": str(spec.get("description") or spec.get("summary") or ""),
        "kind": KINDS[operation.method],
        "method": operation.method.upper(),
        "url": _server((spec, operation.item, operation.api), document) + operation.path,
        "parameters": [parameter.as_data() for parameter in every],
        "params_schema": _params_schema(every, body),
        "body": body.style,
        "content_type": body.content_type,
        "result_schema": _result_schema(resolver, spec),
    }


def _parameters(resolver: "_Resolver", operation: _Operation) -> list[_Parameter]:
    """Return the parameters of the path, overridden by those of the operation."""
    parameters: dict[tuple[str, str], _Parameter] = {}
    for holder in (operation.item, operation.spec):
        for raw in _as_list(holder.get("parameters")):
            parameter = _parameter(resolver, raw)
            if parameter is not None:
                parameters[parameter.name, parameter.place] = parameter
    names = [name for name, _ in parameters]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidOperation(f"has two parameters named {twice}")
    return list(parameters.values())


def _parameter(resolver: "_Resolver", raw: Any) -> _Parameter | None:
    parameter = _require_object(resolver.target(raw), "a parameter")
    name, place = str(parameter.get("name") or ""), str(parameter.get("in") or "")
    is_required = parameter.get("required") is True or place == "path"
    if not name or place not in ("path", "query", "header", "cookie"):
        raise InvalidOperation(f"has a parameter {name!r} in {place!r}")
    if place == "cookie":
        if is_required:
            raise InvalidOperation(f"needs the cookie {name}, and cookies are not sent")
        return None
    if place == "header" and name.lower() in _IGNORED_HEADERS:
        return None
    content = next(iter(_as_dict(parameter.get("content")).values()), None)
    schema = resolver.schema(parameter.get("schema") or _as_dict(content).get("schema") or {})
    described = parameter.get("description")
    return _Parameter(name, place, is_required, {"description": described, **schema} if described else schema)


def _body(resolver: "_Resolver", operation: dict[str, Any], used_names: set[str]) -> _RequestBody:
    if "requestBody" not in operation:
        return _RequestBody()
    spec = _require_object(resolver.target(operation["requestBody"]), "the request body")
    is_required = spec.get("required") is True
    content = _as_dict(spec.get("content"))
    content_type = next(filter(_is_json, content), _FORM if _FORM in content else None)
    if content_type is None:
        if is_required:
            raise InvalidOperation(f"takes {', '.join(content) or 'a body of no type'}, not JSON")
        return _RequestBody()
    schema = resolver.schema(_as_dict(content[content_type]).get("schema") or {})
    properties = _as_dict(schema.get("properties"))
    if schema.get("type") != "object" or not properties or used_names & properties.keys():
        if "body" in used_names:
            raise InvalidOperation("has a parameter named body beside its body")
        return _RequestBody((_Parameter("body", "body", is_required, schema),), "whole", content_type)
    needed = _as_list(schema.get("required")) if is_required else []
    merged = tuple(_Parameter(name, "body", name in needed, _as_dict(one)) for name, one in properties.items())
    return _RequestBody(merged, "merged", content_type, bool(schema.get("additionalProperties")))


def _params_schema(parameters: list[_Parameter], body: _RequestBody) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {parameter.name: parameter.schema for parameter in parameters},
        "required": [parameter.name for parameter in parameters if parameter.is_required],
        "additionalProperties": body.is_open,
    }


def _result_schema(resolver: "_Resolver", operation: dict[str, Any]) -> dict[str, Any] | None:
    responses = _as_dict(operation.get("responses"))
    for status in sorted(responses):
        if not status.startswith("2"):
            continue
        content = _as_dict(_as_dict(resolver.target(responses[status])).get("content"))
        for content_type, media in content.items():
            schema = _as_dict(media).get("schema")
            if _is_json(content_type) and schema is not None:
                return resolver.schema(schema)
    return None


def _server(holders: tuple[dict[str, Any], ...], document: Document) -> str:
    """Return the base URL from the first list of servers, with default variables and no trailing slash."""
    server = next(
        (_as_dict(servers[0]) for holder in holders if (servers := _as_list(holder.get("servers")))), _as_dict(None)
    )
    url = str(server.get("url") or "/")
    for name, variable in _as_dict(server.get("variables")).items():
        url = url.replace(f"{{{name}}}", str(_as_dict(variable).get("default", "")))
    return join_url(document.url or "", url).rstrip("/")


class _Resolver:
    """Resolves references. A cycle becomes "any value"; the size of an operation is limited."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._left = MAX_NODES

    def target(self, value: Any) -> Any:
        """Resolve a reference to a parameter, a body or a response."""
        for _ in range(MAX_DEPTH):
            reference = _as_dict(value).get("$ref")
            if not isinstance(reference, str):
                return value
            value = self._library.look_up(reference)
        raise InvalidOperation("has circular references")

    def schema(self, value: Any) -> dict[str, Any]:
        if value is True:
            return {}
        return _require_object(self._inline(value, ()), "a schema")

    def _inline(self, value: Any, trail: tuple[str, ...], *, names_members: bool = False) -> Any:
        """Resolve a schema. With `names_members`, it is a table of properties, whose keys are names, not keywords."""
        self._left -= 1
        if self._left < 0:
            raise InvalidOperation(f"has schemas of more than {MAX_NODES} parts")
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
            return self._inline(self._library.look_up(reference), (*trail, reference))
        return _json_schema({name: self._member(name, one, trail) for name, one in node.items()})

    def _member(self, name: str, value: Any, trail: tuple[str, ...]) -> Any:
        return value if name in _LITERAL else self._inline(value, trail, names_members=name in _TABLES)


def _json_schema(node: dict[str, Any]) -> dict[str, Any]:
    """Convert the keywords of OpenAPI 3.0 to those of JSON Schema (and OpenAPI 3.1)."""
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


def _name(identifier: str) -> str:
    """Return list_pets for listPets, and get_pets_id for "GET /pets/{id}"."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", identifier)
    name = re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")
    if not name:
        raise InvalidOperation("has no name that can be written in letters and digits")
    return name


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def _require_object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidOperation(f"has {what} that is not an object")
    return cast("dict[str, Any]", value)


def _as_dict(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
