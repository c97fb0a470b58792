"""A library whose books lead to people, to each other and to a ledger that only its staff may read."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from portico.protocols import parse_config
from portico.protocols.aql.shapes import AqlOperation, AqlRequestContext, AqlResult
from portico.requests import Caller
from portico.server.assembly import Parts, open_site
from portico.store.records import Put

BOOKS: Mapping[str, Mapping[str, Any]] = {
    "dunes": {
        "@type": "Book",
        "name": "Dunes",
        "description": "Sand and more sand.",
        "url": "https://library.example/dunes",
        "genre": "novel",
        "pages": 300,
        "price": 12.0,
        "author": {"@id": "https://library.example/ann"},
        "mentions": ["tides", {"@id": "no-such-book"}],
        "offers": {"price": 12.0, "stock": 3},
    },
    "tides": {"@type": "Book", "name": "Tides", "genre": "novel", "pages": 200, "price": 9.0, "mentions": ["dunes"]},
    "ferns": {
        "@type": "Book",
        "name": "Ferns",
        "genre": "nature",
        "pages": 200,
        "author": {"@type": "Person", "name": "Bo"},
        "dateModified": "2020-01-01",
    },
    "mosses": {
        "@type": "Book",
        "name": "Mosses",
        "genre": "nature",
        "pages": 120,
        "isPartOf": "ferns",
        "sameAs": "mosses",
    },
    "atlas": {"@type": "Book", "name": "Atlas", "pages": 200, "price": 40.0, "isPartOf": {"url": "/shelf/maps"}},
}
PEOPLE: Mapping[str, Mapping[str, Any]] = {
    "ann": {"@type": "Person", "name": "Ann", "@id": "https://library.example/ann"},
    "bo": {"@type": "Person", "name": "Bo", "knows": [{"@type": "Person", "name": "Ann"}]},
    "bo-the-cat": {"@type": "Cat", "name": "Bo"},
    "cid": {"@type": "Person", "name": "Cid"},
}
LEDGERS: Mapping[str, Mapping[str, Any]] = {"debts": {"name": "Debts", "about": "dunes"}}
PAMPHLETS: Mapping[str, Mapping[str, Any]] = {f"p{n:03}": {"name": f"No. {n}", "editor": "cid"} for n in range(205)}

READER = AqlRequestContext(Caller(id="reader", scopes=frozenset({"read:books", "read:people"})))
STAFF = AqlRequestContext(Caller(id="staff", scopes=frozenset({"read:*"})))


@asynccontextmanager
async def library(folder: Path, **said: Any) -> AsyncIterator[Parts]:
    settings = {"search": {"embedder": "none:"}, "store": {"url": "sqlite:///:memory:"}, "folder": str(folder)}
    async with open_site(parse_config({**settings, "limits": {"keys_per_minute": 1_000_000}, **said})) as parts:
        for name, items in (
            ("books", BOOKS),
            ("people", PEOPLE),
            ("ledgers", LEDGERS),
            ("pamphlets", PAMPHLETS),
        ):
            await parts.store.collections.declare(parts.config.collection(name))
            await parts.store.items.write(name, [Put(id, data) for id, data in items.items()])
        await parts.index.sync(await parts.store.changes.head())
        yield parts


async def run(offered: AqlOperation, asking: AqlRequestContext = READER, **params: Any) -> AqlResult:
    return await offered.run(params, asking)


async def data(offered: AqlOperation, asking: AqlRequestContext = READER, **params: Any) -> Any:
    return (await run(offered, asking, **params)).data
