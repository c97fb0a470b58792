"""find(): the one way to a Page, with or without text. Asks index and store, and checks the one by the other."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from portico.access.limits import Limits
from portico.catalog import ID, Collection
from portico.errors import InvalidCursor, Unavailable, UnknownCollection, UnknownField, Unsupported
from portico.items import Item
from portico.models import Embedder
from portico.query import (
    EVERYTHING,
    READ_SHARE,
    Filter,
    Near,
    Page,
    Query,
    checked,
    count_within,
    json_size,
    make_cursor,
    matcher,
    project,
    read_cursor,
)
from portico.requests import Retrieval
from portico.search.index import DEPTH, TEXT_SHARE, Index, Ranked, Search
from portico.search.pages import Pages, in_order
from portico.store import Store
from portico.store.distance import DIGITS

Vector: TypeAlias = NDArray[np.float32]

SPARE = 8  # candidates beyond a page, in case some have changed since they were indexed
FIRST_PART = 32  # items of a search that are read before it is seen how large they are
MAX_ORDERED = 1000  # best matches among which another order than relevance is given
FRESH_SECONDS = 0.25  # that a search waits for what other processes wrote; under a heavy load it answers without


class Rank(Protocol):
    """A search that is ready to run: the best matches after a position."""

    async def __call__(self, limit: int, after: tuple[float, str] | None = None) -> Ranked: ...


@dataclass(frozen=True, slots=True)
class Wish:
    """What to look for in one of several collections."""

    collection: str
    where: Filter = EVERYTHING
    without: tuple[str, ...] = ()  # words that no item may say


@dataclass(frozen=True, slots=True)
class Hit:
    """An item that was found across collections, and why."""

    item: Item
    score: float  # 0 to 1, against the best of all that were found with it
    by_word: float  # BM25, as it is
    by_meaning: float  # cosine; -1 where there is no vector
    covered: float  # how much of the question's words it has, 0 to 1, by their rarity
    in_context: float = 0.0  # the same of what the question is part of


class Finder:
    """Finds items. A page has at most `page_bytes` of them as JSON, and then a cursor that leads to the rest."""

    def __init__(
        self,
        store: Store,
        index: Index | None = None,
        embedder: Embedder | None = None,
        page_bytes: int = Limits().page_bytes,
    ) -> None:
        self.store = store
        self.index = index
        self.embedder = embedder
        self.page_bytes = page_bytes
        self._pages = Pages(store, index)

    async def find(self, query: Query, seen: int = 0) -> Page:
        """A page of items. `seen` is a change the caller knows of and must find reflected."""
        query = self.bound(query)
        if not query.text and query.near is None:
            return await self._pages.find(query)
        asked = await self._checked(query)
        if self.index:
            await self._in_step(self.index, seen)
        rank, notes = await self._ranking(asked)
        page = await self._ordered(asked, rank) if asked.order else await self._ranked(asked, rank)
        return replace(page, notes=notes)

    def bound(self, query: Query) -> Query:
        """The query with the bound of the site, unless it has a smaller one."""
        return query if 0 < query.max_bytes <= self.page_bytes else replace(query, max_bytes=self.page_bytes)

    async def _checked(self, query: Query) -> Query:
        """The query as it fits its collection. What another process has just made is looked for, once."""
        try:
            return checked(query, self._collection(query.collection))
        except (UnknownCollection, UnknownField):
            await self.store.collections.refresh()
            return checked(query, self._collection(query.collection))

    def _collection(self, name: str) -> Collection:
        found = self.store.collections.schema.get(name)
        if found is None:
            raise UnknownCollection(f"There is no collection {name!r}", collection=name)
        return found

    async def _in_step(self, index: Index, seen: int) -> None:
        """What the caller knows of is waited for, what other processes have acknowledged only for a moment."""
        await index.sync(seen)
        head = await self.store.changes.head()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FRESH_SECONDS):
                await index.sync(head)

    async def _ranking(self, query: Query) -> tuple[Rank, tuple[str, ...]]:
        """Who ranks: the index, or the store for vectors that are not held in this process."""
        index, near = self.index, query.near
        if near and (index is None or not index.holds(query.collection, near.field)):
            return partial(self._nearest, query, near), ()
        if index is None:
            raise Unsupported("This process has no search index", hint="Leave the text out, or ask a server.")
        vector, notes = await self._vector(query.text)
        search = await self._search(index, query, vector)
        return partial(_rank, index, query.collection, search), notes

    async def _search(self, index: Index, query: Query, vector: Vector | None) -> Search:
        resolved = {
            condition: frozenset(await self.store.items.list_ids(query.collection, condition))
            for condition in await asyncio.to_thread(index.unresolved, query.collection, query.where)
        }
        neighbours = None
        if vector is not None and not index.holds(query.collection, ""):
            neighbours = await self._neighbours(query, Near(tuple(vector.tolist()), top=DEPTH))
        return Search(query.text, vector, query.near, query.where, resolved, neighbours)

    async def _neighbours(self, query: Query, near: Near) -> dict[str, float]:
        ranked = await self._nearest(query, near, near.top)
        return dict(zip(ranked.ids, ranked.by_meaning, strict=True))

    async def _nearest(self, query: Query, near: Near, limit: int, after: tuple[float, str] | None = None) -> Ranked:
        """Neighbours by the store, in the form and on the scale of the index."""
        page = await self.store.items.find(
            Query(query.collection, near=near, where=query.where, fields=(ID,), limit=near.top)
        )
        scores = [round(_shown_score(query, score), DIGITS) for score in page.scores]
        places = sorted((-score, item.id) for score, item in zip(scores, page.items, strict=True))
        if after:
            places = [place for place in places if place > (-after[0], after[1])]
        best = places[:limit]
        ranks = [-score for score, _ in best]
        return Ranked([id for _, id in best], ranks, len(page.items), [0.0] * len(best), ranks)

    async def _vector(self, text: str) -> tuple[Vector | None, tuple[str, ...]]:
        if self.embedder is None or not text:
            return None, ()
        try:
            return await asyncio.to_thread(self.embedder.embed_query, text), ()
        except Unavailable as error:
            return None, (f"Searched by words alone: {error.message}",)

    async def _ranked(self, query: Query, rank: Rank) -> Page:
        after = _position(query, self.store.secret)
        room = query.max_bytes * (READ_SHARE if query.fields else 1)  # bytes that may be read
        items: list[Item] = []
        scores: list[float] = []
        while True:
            wanted = query.limit + 1 - len(items) + SPARE
            ranked = await rank(wanted, after)
            placed = dict(zip(ranked.ids, ranked.scores, strict=True))
            for ids in _in_parts(ranked.ids):
                found = await self._still_matching(query.collection, ids, query.where)
                items += [found[id] for id in ids if id in found]
                room -= sum(json_size(item.data) for item in found.values())
                if len(items) > query.limit or (room < 0 and len(items) > 1):
                    # The last of them only shows that more follows.
                    scores += [placed[item.id] for item in items[len(scores) :]]
                    return self._page(query, items, scores, ranked.total, min(len(items) - 1, query.limit))
            scores += [placed[item.id] for item in items[len(scores) :]]
            if len(ranked.ids) < wanted:
                return self._page(query, items, scores, ranked.total, len(items))
            after = (ranked.scores[-1], ranked.ids[-1])

    def _page(self, query: Query, items: list[Item], scores: list[float], total: int, most: int) -> Page:
        shown = self._shown(query, items[:most])
        more = len(items) > len(shown)
        cursor = make_cursor(query, (scores[len(shown) - 1], shown[-1].id), self.store.secret) if more else ""
        return Page(
            tuple(shown),
            scores=tuple(_shown_score(query, score) for score in scores[: len(shown)]),
            total=total if query.count else None,
            cursor=cursor,
        )

    def _shown(self, query: Query, items: Sequence[Item]) -> list[Item]:
        """As many of the items as a page holds, with the fields that are asked for."""
        collection = self._collection(query.collection)
        shown = [project(item, query.fields, collection) for item in items]
        return shown[: count_within((json_size(item.data) for item in shown), query.max_bytes)]

    async def _still_matching(self, collection: str, ids: list[str], where: Filter) -> dict[str, Item]:
        """The items as they are now; those that went or no longer match are left out."""
        test = matcher(where, self._collection(collection))
        found = await self.store.items.get_many(collection, ids)
        return await asyncio.to_thread(lambda: {id: item for id, item in found.items() if test(item)})

    async def _ordered(self, query: Query, rank: Rank) -> Page:
        """The best matches in another order than relevance."""
        ranked = await rank(MAX_ORDERED)
        found = await self._still_matching(query.collection, ranked.ids, query.where)
        scores = dict(zip(ranked.ids, ranked.scores, strict=True))
        items = in_order(found.values(), query.order, self._collection(query.collection))
        start = 0
        if query.cursor:
            last = read_cursor(query, self.store.secret)[0]
            start = next((i + 1 for i, item in enumerate(items) if item.id == last), -1)
            if start < 0:
                raise InvalidCursor("The item behind this cursor is gone", hint="Start again without a cursor.")
        shown = self._shown(query, items[start : start + query.limit])
        more = start + len(shown) < len(items)
        return Page(
            tuple(shown),
            scores=tuple(_shown_score(query, scores[item.id]) for item in shown),
            total=len(items) if query.count else None,
            cursor=make_cursor(query, (shown[-1].id,), self.store.secret) if more else "",
        )

    async def find_across(
        self,
        wishes: Sequence[Wish],
        text: str,
        limit: int,
        seen: int = 0,
        *,
        meaning: str = "",
        context: str = "",
        by: Retrieval = "hybrid",
    ) -> tuple[list[Hit], tuple[str, ...]]:
        """The best items of several collections on one scale. `meaning` is embedded in place of the text, if given.

        `context` finds nothing: of what is found it is said how much of it they share.
        Without text and meaning: whatever the filters let through, in no better order than that of their ids.
        """
        if self.index is None:
            raise Unsupported("This process has no search index", hint="Ask a server.")
        vector, notes = await self._vector("" if by == "text" else meaning or text)
        said = "" if by == "vectors" and vector is not None else text
        asked = [(await self._checked(Query(w.collection, text=said, where=w.where)), w.without) for w in wishes]
        await self._in_step(self.index, seen)
        searches = [
            (
                query,
                replace(await self._search(self.index, query, vector), without=without, context=context, explains=True),
            )
            for query, without in asked
        ]
        looks = [self._hits(self.index, query, search, limit) for query, search in searches]
        hits = [hit for found in await asyncio.gather(*looks) for hit in found]
        placed = hits if len(wishes) == 1 else _on_one_scale(hits)
        scored = sorted(placed, key=lambda hit: (-hit.score, hit.item.collection, hit.item.id))
        return scored[:limit], notes

    async def _hits(self, index: Index, query: Query, search: Search, limit: int) -> list[Hit]:
        ranked = await _rank(index, query.collection, search, limit + SPARE)
        found = await self._still_matching(query.collection, ranked.ids, query.where)
        scores = (ranked.scores, ranked.by_word, ranked.by_meaning, ranked.covered, ranked.in_context)
        parts = zip(ranked.ids, *scores, strict=True)
        return [Hit(found[id], *scores) for id, *scores in parts if id in found]


async def _rank(
    index: Index, collection: str, search: Search, limit: int, after: tuple[float, str] | None = None
) -> Ranked:
    return await asyncio.to_thread(index.rank, collection, search, limit, after)


def _in_parts(ids: list[str]) -> Iterator[list[str]]:
    """Ids in parts, a few at first: their items may be large, and fill a page."""
    start, end = 0, FIRST_PART
    while start < len(ids):
        yield ids[start:end]
        start, end = end, 2 * end


def _on_one_scale(hits: list[Hit]) -> Iterator[Hit]:
    """Words and meaning in equal shares, each measured against the best of all collections."""
    strongest = max((hit.by_word for hit in hits), default=0.0) or 1.0
    nearest = max((hit.by_meaning for hit in hits), default=0.0)
    furthest = min((hit.by_meaning for hit in hits if hit.by_meaning > -1), default=0.0)
    span = max(nearest - furthest, 1e-9)
    share = TEXT_SHARE if nearest > 0 else 1.0
    for hit in hits:
        word = hit.by_word / strongest
        # What has no vector yet is judged by its words alone.
        meaning = word if hit.by_meaning <= -1 else max(hit.by_meaning - furthest, 0.0) / span
        yield replace(hit, score=share * word + (1 - share) * meaning)


def _shown_score(query: Query, score: float) -> float:
    """Ranks fall, distances grow: a euclidean rank is a negated distance."""
    return -score if query.near and query.near.metric == "euclidean" else score


def _position(query: Query, secret: bytes) -> tuple[float, str] | None:
    if not query.cursor:
        return None
    score, id = read_cursor(query, secret)
    return float(score), str(id)
