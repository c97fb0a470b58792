"""GET /llms.txt: what the site has and how to come in, for language models, as llmstxt.org describes it."""

from collections.abc import Iterator, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from portico.access.identity import ASK
from portico.ask.understanding.fields import spoken
from portico.catalog import Collection, FieldType, Operation
from portico.config import Config
from portico.protocols.a2a.card import PATH as AGENT_CARD_PATH
from portico.protocols.a2a.card import RPC_PATH as A2A_PATH
from portico.protocols.discovery import published
from portico.protocols.discovery.wellknown import CARD_PATH, MANIFEST_PATH, NODE_PATH
from portico.protocols.documents import document
from portico.protocols.http import base_of
from portico.protocols.mcp.routes import PATH as MCP_PATH
from portico.protocols.rest import operations
from portico.protocols.rest.items import Counts
from portico.requests import Caller
from portico.site import Site
from portico.web.addresses import collection_path

MAX_FIELDS = 8  # of a collection that are named
# The file is Markdown, and called .txt: as plain text every reader takes it and every browser shows it.
KIND = "text/plain; charset=utf-8"


def routes(site: Site, config: Config, counts: Counts) -> list[BaseRoute]:
    """The address of this face."""

    async def show(request: Request, caller: Caller) -> Response:
        text = llms_text(site, config, counts(), caller, base_of(request, config.server))
        return document(request, text, KIND, server=config.server)

    return [Route("/llms.txt", published(show, site), methods=["GET"])]


def llms_text(site: Site, config: Config, counts: Mapping[str, int], caller: Caller, base: str) -> str:
    """The whole file, of what the caller may read and do."""
    collections = [site.catalog.collections[name] for name in site.gate.readable(caller)]
    own = [each for each in site.own_operations if site.gate.may(each, caller)]
    sections = {
        "Collections": [_collection(each, counts.get(each.name), base) for each in collections],
        "Ask": _asking(base),
        "Read": _reading(base),
        "Do": [*_doing(base), *(_operation(each, base) for each in own)],
        "Optional": [f"- [Documentation]({base}/docs): the HTTP interface, for people."],
    }
    about = _line(config.site.description) or "One entrance to everything here, for people and agents."
    parts = [f"# {_line(site.name)}", f"> {about}", f"{_INTRODUCTION} {_OPEN if ASK in caller.scopes else _CLOSED}"]
    parts += ["\n".join([f"## {title}", "", *lines]) for title, lines in sections.items() if lines]
    return "\n\n".join(parts) + "\n"


_INTRODUCTION = (
    "Ask in plain words, in any of the ways below: all of them give the same items, in the same order. "
    "Items are schema.org objects."
)
_OPEN = "Nothing here needs an account unless an answer says so."
_CLOSED = "This site answers callers that it knows: send a key as `authorization: Bearer …`."


def _line(text: str) -> str:
    return " ".join(text.split())


def _collection(collection: Collection, count: int | None, base: str) -> str:
    title = _line(collection.title or collection.name)
    facts = [_line(collection.description), *_size(collection, count), *_fields(collection)]
    told = " ".join(f"{each.rstrip('.')}." for each in facts if each)
    return f"- [{title}]({base}{collection_path(collection.name)}): {told}"


def _size(collection: Collection, count: int | None) -> Iterator[str]:
    kind = f" of type {collection.type}" if collection.type else ""
    if count is not None:
        yield f"{count:,} {'item' if count == 1 else 'items'}{kind}"


def _fields(collection: Collection) -> Iterator[str]:
    """What a question about these items may go by: what they differ in by amount, and what the site asks back about."""
    measured = (name for name, each in collection.fields.items() if each.is_typed and each.type != FieldType.STRING)
    names = [spoken(name) for name in dict.fromkeys((*collection.details, *measured))]
    if names:
        yield f"Ask by {', '.join(names[:MAX_FIELDS])}{' and more' if len(names) > MAX_FIELDS else ''}"


def _asking(base: str) -> list[str]:
    example = f"""curl {base}/ask -H 'content-type: application/json' -d '{{"query": {{"text": "your question"}}}}'"""
    return [
        f"- [MCP]({base}{MCP_PATH}): Streamable HTTP, with the tools `ask` and `await`. "
        f"Its [server card]({base}{CARD_PATH}) says how to connect.",
        f"- [A2A]({base}{A2A_PATH}): send a message with the question. "
        f"The [agent card]({base}{AGENT_CARD_PATH}) lists the skills.",
        f"- [NLWeb over HTTP]({base}/ask): `{example}`",
    ]


def _reading(base: str) -> list[str]:
    return [
        f"- [Sitemap]({base}/sitemap.xml): the address of every item. An item is a page for browsers, JSON-LD with "
        "`accept: application/ld+json`, and plain JSON with `accept: application/json`.",
        f"- [NWP]({base}{NODE_PATH}): records by filter, in parts and as they change, and what can be done with them: "
        f"""`curl {base}{NODE_PATH}/query -d '{{"limit": 3}}'`. Its [manifest]({base}{MANIFEST_PATH}) says how.""",
    ]


def _doing(base: str) -> list[str]:
    return [
        f"- [Operations]({base}{operations.PATH}): what can be done, with the JSON Schema of the parameters. "
        f"Each is called with `POST {base}{operations.PATH}/NAME`.",
        f"- [OpenAPI]({base}/openapi.json): the whole HTTP interface.",
    ]


def _operation(operation: Operation, base: str) -> str:
    # Whoever follows a link reads: where it is called, nothing can be read.
    return f"- [{operation.name}]({base}{operations.PATH}#{operation.name}): {_line(operation.summary)}"
