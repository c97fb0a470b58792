"""The agent card: what the site is and can do, for clients of A2A 1.0 and 0.3. Plain JSON, made from the catalog.

It has the members of both versions; each version ignores those of the other.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from portico import __version__
from portico.access.identity import ASK
from portico.catalog import Catalog, Danger, Operation
from portico.config import Config
from portico.operations import schema_of
from portico.protocols.a2a.settings import A2aSettings
from portico.site import Site

PATH = "/.well-known/agent-card.json"
RPC_PATH = "/a2a"
EARLIER = "0.3"
VERSIONS = ("1.0", EARLIER)  # of the protocol; what a client likes best comes first
TEXT, JSON = "text/plain", "application/json"
MAX_SKILLS = 100  # operations that a card names
MAX_EXAMPLES = 5

Shown = dict[str, Any]


def agent_card(site: Site, config: Config, base: str) -> Shown:
    """Return the card of a site at this address."""
    url, push = f"{base}{RPC_PATH}", config.section(A2aSettings).push
    about = config.site
    operations = [operation for operation in site.own_operations if operation.danger != Danger.FORBIDDEN]
    return {
        "name": site.name,
        "description": about.description or f"Answers questions about {site.name}.",
        "version": __version__,
        "protocolVersion": f"{EARLIER}.0",  # 0.3 names versions in three parts
        "url": url,
        "preferredTransport": "JSONRPC",
        "supportedInterfaces": [
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": version} for version in VERSIONS
        ],
        "provider": {"organization": site.name, "url": base},
        "capabilities": {"streaming": True, "pushNotifications": push},
        "defaultInputModes": [TEXT, JSON],
        "defaultOutputModes": [TEXT, JSON],
        "securitySchemes": _schemes(config),
        **_requirements(config),
        "skills": [_ask_skill(site.catalog), *map(_skill, operations[:MAX_SKILLS])],
    }


def _schemes(config: Config) -> Mapping[str, Shown]:
    """Return how a caller may authenticate, as 1.0 and as 0.3 describe it."""
    issuer = config.oauth.issuer
    # Not a scheme of its own: that would name one metadata URL, and an issuer may publish at either of two.
    token = f", or an access token of {issuer}" if issuer else ""
    bearer = {"scheme": "Bearer", "description": f"An API key of this site{token}."}
    key = {"name": "x-api-key", "description": "An API key of this site."}
    return {
        "bearer": {"type": "http", **bearer, "httpAuthSecurityScheme": bearer},
        "apiKey": {"type": "apiKey", "in": "header", **key, "apiKeySecurityScheme": {"location": "header", **key}},
    }


def _requirements(config: Config) -> Shown:
    """Return that any scheme is enough; none is needed if anonymous callers may ask."""
    if ASK in config.anonymous.scopes:
        return {}
    names = list(_schemes(config))
    return {
        "security": [{name: []} for name in names],
        "securityRequirements": [{"schemes": {name: {"list": []}}} for name in names],
    }


def _ask_skill(catalog: Catalog) -> Shown:
    collections = catalog.public
    titles = ", ".join(collection.title or collection.name for collection in collections)
    examples = [
        f"What do you have among {collection.title or collection.name}?" for collection in collections[:MAX_EXAMPLES]
    ]
    request = msgspec.json.encode({"query": {"text": examples[0] if examples else "What is there?"}}).decode()
    return {
        "id": ASK,
        "name": "Ask",
        "description": "Answers a question in plain words with items of this site"
        + (f": {titles}." if titles else ".")
        + " A data part may hold a whole NLWeb request.",
        "tags": ["ask", "search", "nlweb", *(collection.name for collection in collections)],
        "examples": [*examples, request],
        "inputModes": [TEXT, JSON],
        "outputModes": [TEXT, JSON],
    }


def _skill(operation: Operation) -> Shown:
    example = {"operation": operation.name, "params": dict.fromkeys(_names_of_required(operation), "…")}
    return {
        "id": operation.name,
        "name": operation.name.replace("_", " ").capitalize(),
        "description": operation.description or operation.name,
        "tags": ["operation", operation.kind.value, operation.danger.name.lower()],
        "examples": [msgspec.json.encode(example).decode()],
        "inputModes": [TEXT, JSON],
        "outputModes": [TEXT, JSON],
    }


def _names_of_required(operation: Operation) -> list[str]:
    schema = schema_of(operation.params)
    if "$ref" in schema:
        schema = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    return schema.get("required", [])
