"""GET /llms.txt: the site and its interfaces for language models (llmstxt.org)."""

from collections.abc import Iterator, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from portico.access.identity import ASK
from portico.ask.understanding.fields import words_of
from portico.catalog import Collection, FieldType, Operation
from portico.protocols import LlmsLink, Services
from portico.protocols.documents import document
from portico.protocols.http import base_of
from portico.protocols.problems import make_handler
from portico.requests import Caller
from portico.site import Site
from portico.web.addresses import collection_path

MAX_FIELDS = 8  # of a collection that are listed
# The file is Markdown. As plain text, every client accepts it and every browser displays it.
KIND = "text/plain; charset=utf-8"


def routes(services: Services) -> list[BaseRoute]:
    site, server = services.site, services.config.server
    links = [link for protocol in services.protocols for link in protocol.description(services).links]
    links.sort(key=lambda link: link.rank)

    async def show(request: Request, caller: Caller) -> Response:
        text = llms_text(site, services, links, caller, base_of(request, server))
        return document(request, text, KIND, server=server)

    return [Route("/llms.txt", make_handler(show), methods=["GET"])]


def llms_text(site: Site, services: Services, links: Sequence[LlmsLink], caller: Caller, base: str) -> str:
    """Return the whole file, limited to what the caller may read and do."""
    counts = services.counts()
    collections = [site.catalog.collections[name] for name in site.access.readable(caller)]
    operations = services.path_of("rest")
    own = [operation for operation in site.own_operations if site.access.may(operation, caller)]
    sections = {
        "Collections": [_collection(collection, counts.get(collection.name), base) for collection in collections],
        **{section: _links(links, section, base) for section in ("Ask", "Read", "Do", "Optional")},
    }
    sections["Do"] += [_operation(operation, f"{base}{operations}") for operation in own]
    about = _line(services.config.site.description) or "One entrance to everything here, for people and agents."
    parts = [f"# {_line(site.name)}", f"> {about}", f"{_INTRODUCTION} {_OPEN if ASK in caller.scopes else _CLOSED}"]
    parts += ["\n".join([f"## {title}", "", *lines]) for title, lines in sections.items() if lines]
    return "\n\n".join(parts) + "\n"


def _links(links: Sequence[LlmsLink], section: str, base: str) -> list[str]:
    return [link.text.format(base=base) for link in links if link.section == section]


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
    description = " ".join(f"{fact.rstrip('.')}." for fact in facts if fact)
    return f"- [{title}]({base}{collection_path(collection.name)}): {description}"


def _size(collection: Collection, count: int | None) -> Iterator[str]:
    kind = f" of type {collection.type}" if collection.type else ""
    if count is not None:
        yield f"{count:,} {'item' if count == 1 else 'items'}{kind}"


def _fields(collection: Collection) -> Iterator[str]:
    """Yield a line with the fields that questions may use: those that the site asks about, and measured ones."""
    measured = (name for name, field in collection.fields.items() if field.is_typed and field.type != FieldType.STRING)
    names = [words_of(name) for name in dict.fromkeys((*collection.details, *measured))]
    if names:
        yield f"Ask by {', '.join(names[:MAX_FIELDS])}{' and more' if len(names) > MAX_FIELDS else ''}"


def _operation(operation: Operation, url: str) -> str:
    # The link leads to the list: a GET of the operation itself would fail.
    return f"- [{operation.name}]({url}#{operation.name}): {_line(operation.summary)}"
