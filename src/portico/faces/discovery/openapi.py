"""`/openapi.json`: all that the site answers over HTTP, from the types that read it. `/docs` shows the same to people.

It tells everybody the same: what there is, not what a caller may do. Made anew when the catalog changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from portico import __version__
from portico.catalog import Catalog, JsonSchema, Operation
from portico.config import Config
from portico.faces import documents
from portico.faces.discovery.docs import BASE, PAGE_HEADERS, docs_page
from portico.faces.discovery.paths import (
    JSON,
    OPERATION_PROBLEMS,
    TAGS,
    Described,
    answer,
    components,
    content,
    paths,
    problems,
    reference,
    step,
)
from portico.faces.wire import base_of
from portico.operations import schema_of
from portico.site import Site


@dataclass(frozen=True, slots=True)
class Edition:
    """The document as one catalog makes it."""

    catalog: Catalog
    body: bytes
    page: str  # with BASE where the address of the site belongs


class Press:
    """Keeps the newest edition."""

    def __init__(self, site: Site, config: Config) -> None:
        self._site = site
        self._config = config
        self._newest: Edition | None = None

    @property
    def newest(self) -> Edition:
        catalog = self._site.catalog
        if self._newest is None or self._newest.catalog is not catalog:
            shown = document(catalog, self._config)
            self._newest = Edition(catalog, msgspec.json.encode(shown), docs_page(shown))
        return self._newest


def routes(site: Site, config: Config) -> list[BaseRoute]:
    press = Press(site, config)

    async def show(request: Request) -> Response:
        return documents.document(request, press.newest.body, JSON, {"cache-control": "no-cache"})

    async def docs(request: Request) -> Response:
        page = press.newest.page.replace(BASE, escape(base_of(request, config.server)))
        return documents.document(request, page, "text/html", PAGE_HEADERS)

    return [Route("/openapi.json", show, methods=["GET"]), Route("/docs", docs, methods=["GET"])]


def document(catalog: Catalog, config: Config) -> Described:
    """The OpenAPI 3.1 document of a site."""
    operations = [catalog.operations[name] for name in sorted(catalog.operations)]
    schemas, shapes = _schemas(operations)
    parts = components()
    return {
        "openapi": "3.1.0",
        "info": {"title": config.site.name, "version": __version__, "description": config.site.description},
        "servers": [{"url": "/"}],
        "security": [{}, {"bearer": []}, {"key": []}],
        "tags": [{"name": name, "description": says} for name, says in TAGS.items()],
        "paths": {
            **paths(config, _question(catalog)),
            **{f"/operations/{each.name}": _call(each, schemas[each.name]) for each in operations},
        },
        "components": {**parts, "schemas": {**parts["schemas"], **shapes}},
    }


def _question(catalog: Catalog) -> str:
    """One that this site can answer."""
    return f"Which {next((each.name for each in catalog.public), 'things')} are there?"


@dataclass(frozen=True, slots=True)
class _Schemas:
    params: Described
    result: Described


def _schemas(operations: Sequence[Operation]) -> tuple[Mapping[str, _Schemas], Mapping[str, Described]]:
    """Of each operation the schemas, and what they refer to. A dot keeps the site's names apart from ours."""
    names = [each.name for each in operations]
    kinds = [_published(kind) for each in operations for kind in (each.params, each.result)]
    typed = [Any if isinstance(kind, JsonSchema) else kind for kind in kinds]
    shown, shapes = msgspec.json.schema_components(typed, ref_template="#/components/schemas/site.{name}")
    told = [dict(k.schema) if isinstance(k, JsonSchema) else each for k, each in zip(kinds, shown, strict=True)]
    schemas = map(_Schemas, told[::2], told[1::2])
    return dict(zip(names, schemas, strict=True)), {f"site.{name}": shape for name, shape in shapes.items()}


def _published(kind: Any) -> Any:
    """The kind, or anything if it is one that JSON Schema has no words for."""
    try:
        schema_of(kind)
    except TypeError:
        return Any
    return kind


def _call(operation: Operation, schemas: _Schemas) -> Described:
    done: dict[str, Any] = {
        "type": "object",
        "properties": {"operation": {"const": operation.name}, "result": schemas.result},
        "required": ["operation", "result"],
    }
    begun = {202: reference("responses", "Begun")}
    answers = {200: answer("The result", content(done, JSON)), **begun, **problems(*OPERATION_PROBLEMS)}
    return {
        "post": step(
            f"call_{operation.name}",
            "Operations",
            operation.summary or operation.name,
            answers,
            **({"description": operation.description} if operation.description != operation.summary else {}),
            parameters=[reference("parameters", "Prefer"), reference("parameters", "IdempotencyKey")],
            requestBody={"required": True, "content": content(schemas.params, JSON)},
            **{"x-kind": operation.kind.value, "x-danger": operation.danger.name.lower()},
        )
    }
