"""The resources: the catalog, each collection's schema, each item. Shows nothing that the caller may not read.

portico://catalog                     the collections, and the operations that the caller may run
portico://collections/{collection}    a collection: its fields, and how many items it has
portico://items/{collection}/{id}     an item as JSON-LD

Items are not listed, because there may be very many: a template describes their URIs.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import mcp_types as types
import msgspec
from mcp.shared.exceptions import MCPError
from mcp_types.version import LATEST_PROTOCOL_VERSION, MODERN_PROTOCOL_VERSIONS

from portico.catalog import ID, Collection, Field, Operation
from portico.errors import UnknownCollection
from portico.items import text_problem
from portico.presentation import present
from portico.protocols.rendering import item_json_ld
from portico.query import Condition, Query
from portico.requests import Caller
from portico.site import Site

CATALOG = "portico://catalog"
COLLECTION = "portico://collections/{collection}"
ITEM = "portico://items/{collection}/{id}"
MAX_URI = 6000  # characters: an id has up to 1024 bytes, a name up to 128 letters, and each byte may take three
PAGE = 100  # collections in one page of the list
JSON = "application/json"
JSON_LD = "application/ld+json"
NOT_FOUND = -32002  # of a resource, until 2025-11-25

_ADDRESS = re.compile(r"portico://(?:catalog|collections/([^/?#]+)|items/([^/?#]+)/([^?#]+))\Z")
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class ResourceAddress:
    """The target of a URI: an item, a collection if there is no id, the catalog if there is neither."""

    collection: str = ""
    id: str = ""

    @property
    def uri(self) -> str:
        if not self.collection:
            return CATALOG
        name = quote(self.collection, safe="")
        return f"portico://items/{name}/{quote(self.id, safe='')}" if self.id else f"portico://collections/{name}"


def address_of(uri: str) -> ResourceAddress | None:
    """Parse a URI; None if it names nothing. Slashes in an id need no escapes, because no path is followed."""
    match = _ADDRESS.match(uri) if len(uri) <= MAX_URI else None
    if match is None:
        return None
    collection, of_item, id = (_decode(part or "") for part in match.groups())
    if collection is None or of_item is None or id is None:
        return None
    return ResourceAddress(collection or of_item, id)


def _decode(part: str) -> str | None:
    if _STRAY_PERCENT.search(part):
        return None
    try:
        text = unquote(part, errors="strict")
    except UnicodeDecodeError:
        return None
    return None if text_problem(text) else text


# Listing


async def list_resources(site: Site, caller: Caller, cursor: str | None) -> types.ListResourcesResult:
    """Return the catalog and the collections that the caller may read."""
    names = sorted(site.access.readable(caller))
    if cursor is not None and cursor not in names:
        raise MCPError(types.INVALID_PARAMS, "The cursor is not valid")
    rest = [name for name in names if cursor is None or name > cursor]
    resources = [_collection_resource(site.catalog.collections[name]) for name in rest[:PAGE]]
    return types.ListResourcesResult(
        resources=resources if cursor is not None else [_catalog_resource(site), *resources],
        next_cursor=rest[PAGE - 1] if len(rest) > PAGE else None,
    )


def _catalog_resource(site: Site) -> types.Resource:
    return types.Resource(
        uri=CATALOG,
        name="catalog",
        title=f"Catalog of {site.name}",
        description="The collections and their fields, and the operations that you may run.",
        mime_type=JSON,
        annotations=types.Annotations(audience=["assistant"], priority=1.0),
    )


def _collection_resource(collection: Collection) -> types.Resource:
    return types.Resource(
        uri=ResourceAddress(collection.name).uri,
        name=collection.name,
        title=collection.title or collection.name,
        description=collection.description or f"The fields of {collection.name}, and how many items there are.",
        mime_type=JSON,
    )


def list_templates(site: Site, caller: Caller) -> types.ListResourceTemplatesResult:
    names = ", ".join(sorted(site.access.readable(caller))[:PAGE])
    collection = types.ResourceTemplate(
        uri_template=COLLECTION,
        name="collection",
        title="Collection",
        description=f"The fields of a collection, and how many items it has. There are: {names}.",
        mime_type=JSON,
    )
    item = types.ResourceTemplate(
        uri_template=ITEM,
        name="item",
        title="Item",
        description=f"One item of {site.name} as JSON-LD, by its id.",
        mime_type=JSON_LD,
    )
    return types.ListResourceTemplatesResult(resource_templates=[collection, item] if names else [])


# Reading


async def read_resource(
    site: Site, caller: Caller, uri: str, revision: str = LATEST_PROTOCOL_VERSION
) -> types.ReadResourceResult:
    """Return a resource. What the caller may not read does not exist."""
    address = address_of(uri)
    if address is None:
        raise not_found(uri, revision)
    if not address.collection:
        return _contents(uri, _catalog(site, caller))
    name = address.collection
    if name not in site.access.readable(caller) and not await readable_collections(site, caller, {name}):
        raise not_found(uri, revision)
    if not address.id:
        return _contents(uri, await _collection(site, caller, address.collection))
    page = await site.query(Query(address.collection, where=Condition(ID, "eq", address.id), limit=1), caller)
    if not page.items:
        raise not_found(uri, revision)
    collection = site.catalog.collections[page.items[0].collection]
    return _contents(uri, item_json_ld(present(page.items[0], collection), collection.type), JSON_LD)


def not_found(uri: str, revision: str) -> MCPError:
    """Return the error for a resource that does not exist, or that the caller may not know of."""
    code = types.INVALID_PARAMS if revision in MODERN_PROTOCOL_VERSIONS else NOT_FOUND
    # Half a surrogate pair can be received, but not sent.
    sendable_uri = uri[:MAX_URI].encode(errors="replace").decode()
    return MCPError(code, "Resource not found", {"uri": sendable_uri})


async def readable_collections(site: Site, caller: Caller, names: Iterable[str]) -> set[str]:
    """Return the collections that the caller may read. Another process may just have created one."""
    requested = set(names)

    def check() -> None:
        if not requested <= set(site.access.readable(caller)):
            raise UnknownCollection("There is no such collection")

    with suppress(UnknownCollection):
        await site.access.look_up(check)
    return requested & set(site.access.readable(caller))


def _contents(uri: str, body: Any, mime_type: str = JSON) -> types.ReadResourceResult:
    text = msgspec.json.encode(body).decode()
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=mime_type, text=text)])


def _catalog(site: Site, caller: Caller) -> dict[str, Any]:
    catalog = site.catalog
    return {
        "site": site.name,
        "collections": [_summary(catalog.collections[name]) for name in sorted(site.access.readable(caller))],
        "operations": [
            _operation(operation)
            for _, operation in sorted(catalog.operations.items())
            if site.access.may(operation, caller)
        ],
    }


def _summary(collection: Collection) -> dict[str, Any]:
    fields = {field.name: field.type.value for field in collection.fields.values()}
    return {"uri": ResourceAddress(collection.name).uri, **_collection_texts(collection), "fields": fields}


def _collection_texts(collection: Collection) -> dict[str, str]:
    """Return the name, title, description and type of a collection, without empty ones."""
    texts = {"title": collection.title, "description": collection.description, "type": collection.type}
    return {"name": collection.name, **{name: text for name, text in texts.items() if text}}


def _operation(operation: Operation) -> dict[str, str]:
    return {
        "name": operation.name,
        "kind": operation.kind.value,
        "danger": operation.danger.name.lower(),
        "description": operation.description.strip(),
    }


async def _collection(site: Site, caller: Caller, name: str) -> dict[str, Any]:
    page = await site.query(Query(name, limit=1, fields=(ID,), count=True), caller)
    collection = site.catalog.collections[name]
    return {
        **_collection_texts(collection),
        "language": collection.language,
        "count": page.total,
        "anchor_id": collection.anchor_id,
        "items": ITEM.replace("{collection}", quote(name, safe="")),
        "fields": {field.name: _field(field) for field in collection.fields.values()},
    }


def _field(field: Field) -> dict[str, str]:
    texts = {"type": field.type.value, "path": field.path, "description": field.description}
    return {name: text for name, text in texts.items() if text}
