"""`/openapi.json`: all that the site answers over HTTP, from the types that read it. `/docs` shows the same to people.

It tells everybody the same: what there is, not what a caller may do. Made anew when the catalog changes.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from portico import __version__
from portico.catalog import Catalog, JsonSchema, Operation
from portico.config import Config
from portico.operations import schema_hook
from portico.protocols import documents
from portico.protocols.discovery import published
from portico.protocols.discovery.docs import BASE, docs_page
from portico.protocols.discovery.nodes import TAGS as NODE_TAGS
from portico.protocols.discovery.nodes import node_components, node_paths
from portico.protocols.discovery.paths import (
    FIRST_TAGS,
    JSON,
    OPERATION_PROBLEMS,
    OPERATIONS,
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
from portico.protocols.http import base_of
from portico.protocols.rest.operations import PATH
from portico.requests import Caller
from portico.site import Site
from portico.web.addresses import operation_anchor
from portico.web.style import HEADERS

MAX_ADDRESSES = 8  # of the site for which a page is kept
OWN = "Own operations"


@dataclass(frozen=True, slots=True)
class Printed:
    body: bytes
    tag: str


def printed(body: bytes) -> Printed:
    return Printed(body, documents.tag_of(body))


class Edition:
    """The document as one catalog makes it, and its page as the latest readers reached the site."""

    def __init__(self, catalog: Catalog, shown: Described) -> None:
        self.catalog = catalog
        self.document = printed(msgspec.json.encode(shown))
        self._page = docs_page(shown)
        self.page = lru_cache(MAX_ADDRESSES)(self._addressed)

    def _addressed(self, base: str) -> Printed:
        return printed(self._page.replace(BASE, escape(base)).encode())


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
            self._newest = Edition(catalog, document(self._site, self._config))
        return self._newest


def routes(site: Site, config: Config) -> list[BaseRoute]:
    press = Press(site, config)

    async def show(request: Request, _: Caller) -> Response:
        found = press.newest.document
        return documents.document(request, found.body, JSON, server=None, seconds=0, tag=found.tag)

    async def docs(request: Request, _: Caller) -> Response:
        found = press.newest.page(base_of(request, config.server))
        return documents.document(request, found.body, "text/html", HEADERS, server=config.server, tag=found.tag)

    return [
        Route("/openapi.json", published(show, site), methods=["GET"]),
        Route("/docs", published(docs, site), methods=["GET"]),
    ]


def document(site: Site, config: Config) -> Described:
    """The OpenAPI 3.1 document of a site."""
    catalog = site.catalog
    operations = [catalog.operations[name] for name in sorted(catalog.operations)]
    schemas, shapes = _schemas(operations)
    tags = _tags_of(site)
    common, parts = components(), node_components()
    return {
        "openapi": "3.1.0",
        "info": {"title": config.site.name, "version": __version__, "description": config.site.description},
        "servers": [{"url": "/"}],
        "security": [{}, {"bearer": []}, {"key": []}],
        "tags": [{"name": name, "description": says} for name, says in _tags(catalog, tags.values()).items()],
        "paths": {
            **paths(config, _question(catalog)),
            **node_paths(),
            **{
                f"{PATH}/{each.name}": _call(each, schemas[each.name], tags.get(each.name, OPERATIONS))
                for each in operations
            },
        },
        "components": {
            **common,
            "schemas": {**common["schemas"], **parts["schemas"], **shapes},
            "responses": {**common["responses"], **parts["responses"]},
        },
    }


def _tags_of(site: Site) -> dict[str, str]:
    """The operations that are not every site's: its own, and those of its collections."""
    public = {each.name for each in site.catalog.public}
    shelved = {each.name: each.collection for each in site.catalog.operations.values() if each.collection in public}
    return {
        **dict.fromkeys((each.name for each in site.own_operations), OWN),
        **{name: _shelf(collection) for name, collection in shelved.items()},
    }


def _shelf(collection: str) -> str:
    return f"Collection {collection}"


def _tags(catalog: Catalog, used: Collection[str]) -> dict[str, str]:
    """What readers look for first: what only this site does, questions, and what there is."""
    own = {OWN: "What this site does and others do not."} if OWN in used else {}
    shelves = {_shelf(each.name): each.description or each.title or each.name for each in catalog.public}
    return {**own, **FIRST_TAGS, **shelves, **TAGS, **NODE_TAGS}


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
    kinds = [kind for each in operations for kind in (each.params, each.result)]
    typed = [Any if kind is object or isinstance(kind, JsonSchema) else kind for kind in kinds]
    shown, shapes = msgspec.json.schema_components(
        typed, ref_template="#/components/schemas/site.{name}", schema_hook=schema_hook
    )
    told = [dict(k.schema) if isinstance(k, JsonSchema) else each for k, each in zip(kinds, shown, strict=True)]
    schemas = map(_Schemas, told[::2], told[1::2])
    return dict(zip(names, schemas, strict=True)), {f"site.{name}": shape for name, shape in shapes.items()}


def _call(operation: Operation, schemas: _Schemas, tag: str) -> Described:
    done: dict[str, Any] = {
        "type": "object",
        "properties": {"operation": {"const": operation.name}, "result": schemas.result},
        "required": ["operation", "result"],
    }
    begun = {202: reference("responses", "Begun")}
    answers = {200: answer("The result", content(done, JSON)), **begun, **problems(*OPERATION_PROBLEMS)}
    return {
        "post": step(
            operation_anchor(operation.name),
            tag,
            operation.summary or operation.name,
            answers,
            **({"description": operation.description} if operation.description != operation.summary else {}),
            parameters=[reference("parameters", "Prefer"), reference("parameters", "IdempotencyKey")],
            requestBody={"required": True, "content": content(schemas.params, JSON)},
            **{"x-kind": operation.kind.value, "x-danger": operation.danger.name.lower()},
        )
    }
