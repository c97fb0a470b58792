"""Answers queries with pages, with or without text. Combines the index and the store, and checks one by the other."""

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
    MATCH_ALL,
    READ_SHARE,
    Filter,
    NearVector,
    Page,
    Query,
    count_within,
    json_size,
    make_cursor,
    matcher,
    project,
    read_cursor,
    validate_query,
)
from portico.requests import Retrieval
from portico.search.index import DEPTH, TEXT_SHARE, Index, Ranking, SearchRequest
from portico.search.pages import PageFinder, sort_items
from portico.store import Store
from portico.store.distance import DIGITS

Vector: TypeAlias = NDArray[np.float32]

SPARE = 8  # candidates beyond a page, in case some have changed since they were indexed
FIRST_PART = 32  # items of a search that are read before it is seen how large they are
MAX_ORDERED = 1000  # best matches among which another order than relevance is given
FRESH_SECONDS = 0.25  # that a search waits for what other processes wrote; under a heavy load it answers without


class Ranker(Protocol):
    """A prepared search, which returns the best matches after a position."""

    async def __call__(self, limit: int, after: tuple[float, str] | None = None) -> Ranking: ...


@dataclass(frozen=True, slots=True)
class SearchTarget:
    """A collection to search, with its filter."""

    collection: str
    where: Filter = MATCH_ALL
    excluded: tuple[str, ...] = ()  # words that no item may contain


@dataclass(frozen=True, slots=True)
class ScoredItem:
    """An item of a search across collections, with its scores."""

    item: Item
    score: float  # 0 to 1, relative to the best result of the search
    text_score: float  # BM25, as it is
    vector_score: float  # cosine; -1 where there is no vector
    term_coverage: float  # share of the query's words that it has, 0 to 1, weighted by rarity
    context_coverage: float = 0.0  # the same for the words of the context


class Finder:
    """Finds items. A page has at most `page_bytes` of them as JSON, and a cursor if more follow."""

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
        self._pages = PageFinder(store, index)

    async def find(self, query: Query, min_seq: int = 0) -> Page:
        """Return a page of items that reflects at least the change numbered `min_seq`."""
        query = self.limit_bytes(query)
        if not query.text and query.near is None:
            return await self._pages.find(query)
        validated = await self._validate(query)
        if self.index:
            await self._sync(self.index, min_seq)
        rank, notes = await self._make_ranker(validated)
        page = (
            await self._find_ordered(validated, rank) if validated.order else await self._find_by_rank(validated, rank)
        )
        return replace(page, notes=notes)

    def limit_bytes(self, query: Query) -> Query:
        """Return the query with the site's limit on bytes, unless it has a smaller one."""
        return query if 0 < query.max_bytes <= self.page_bytes else replace(query, max_bytes=self.page_bytes)

    async def _validate(self, query: Query) -> Query:
        """Return the validated query. Refresh the schema once for what another process has made."""
        try:
            return validate_query(query, self._collection(query.collection))
        except (UnknownCollection, UnknownField):
            await self.store.collections.refresh()
            return validate_query(query, self._collection(query.collection))

    def _collection(self, name: str) -> Collection:
        collection = self.store.collections.schema.get(name)
        if collection is None:
            raise UnknownCollection(f"There is no collection {name!r}", collection=name)
        return collection

    async def _sync(self, index: Index, min_seq: int) -> None:
        """Wait for the changes that the caller knows of, and only briefly for those of other processes."""
        await index.sync(min_seq)
        head = await self.store.changes.head()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FRESH_SECONDS):
                await index.sync(head)

    async def _make_ranker(self, query: Query) -> tuple[Ranker, tuple[str, ...]]:
        """Return the index's ranker, or the store's for vectors that this process does not hold."""
        index, near = self.index, query.near
        if near and (index is None or not index.has_vectors(query.collection, near.field)):
            return partial(self._rank_in_store, query, near), ()
        if index is None:
            raise Unsupported("This process has no search index", hint="Leave the text out, or ask a server.")
        vector, notes = await self._embed_query(query.text)
        search = await self._make_request(index, query, vector)
        return partial(_rank, index, query.collection, search), notes

    async def _make_request(self, index: Index, query: Query, vector: Vector | None) -> SearchRequest:
        resolved = {
            condition: frozenset(await self.store.items.list_ids(query.collection, condition))
            for condition in await asyncio.to_thread(index.list_store_conditions, query.collection, query.where)
        }
        neighbours = None
        if vector is not None and not index.has_vectors(query.collection, ""):
            neighbours = await self._find_neighbours(query, NearVector(tuple(vector.tolist()), top=DEPTH))
        return SearchRequest(query.text, vector, query.near, query.where, resolved, neighbours)

    async def _find_neighbours(self, query: Query, near: NearVector) -> dict[str, float]:
        ranked = await self._rank_in_store(query, near, near.top)
        return dict(zip(ranked.ids, ranked.vector_scores, strict=True))

    async def _rank_in_store(
        self, query: Query, near: NearVector, limit: int, after: tuple[float, str] | None = None
    ) -> Ranking:
        """Rank by the store's vectors, in the form and on the scale of the index."""
        page = await self.store.items.find(
            Query(query.collection, near=near, where=query.where, fields=(ID,), limit=near.top)
        )
        scores = [round(_public_score(query, score), DIGITS) for score in page.scores]
        ordered = sorted((-score, item.id) for score, item in zip(scores, page.items, strict=True))
        if after:
            ordered = [place for place in ordered if place > (-after[0], after[1])]
        best = ordered[:limit]
        ranks = [-score for score, _ in best]
        return Ranking([id for _, id in best], ranks, len(page.items), [0.0] * len(best), ranks)

    async def _embed_query(self, text: str) -> tuple[Vector | None, tuple[str, ...]]:
        if self.embedder is None or not text:
            return None, ()
        try:
            return await asyncio.to_thread(self.embedder.embed_query, text), ()
        except Unavailable as error:
            return None, (f"Searched by words alone: {error.message}",)

    async def _find_by_rank(self, query: Query, rank: Ranker) -> Page:
        after = _position(query, self.store.secret)
        room = query.max_bytes * (READ_SHARE if query.fields else 1)  # bytes that may be read
        items: list[Item] = []
        scores: list[float] = []
        while True:
            count = query.limit + 1 - len(items) + SPARE
            ranked = await rank(count, after)
            ranks = dict(zip(ranked.ids, ranked.scores, strict=True))
            for ids in _chunk_ids(ranked.ids):
                matching = await self._load_matching(query.collection, ids, query.where)
                items += [matching[id] for id in ids if id in matching]
                room -= sum(json_size(item.data) for item in matching.values())
                if len(items) > query.limit or (room < 0 and len(items) > 1):
                    # The last of them only shows that more follows.
                    scores += [ranks[item.id] for item in items[len(scores) :]]
                    return self._build_page(query, items, scores, ranked.total, min(len(items) - 1, query.limit))
            scores += [ranks[item.id] for item in items[len(scores) :]]
            if len(ranked.ids) < count:
                return self._build_page(query, items, scores, ranked.total, len(items))
            after = (ranked.scores[-1], ranked.ids[-1])

    def _build_page(self, query: Query, items: list[Item], scores: list[float], total: int, most: int) -> Page:
        projected = self._project(query, items[:most])
        more = len(items) > len(projected)
        cursor = make_cursor(query, (scores[len(projected) - 1], projected[-1].id), self.store.secret) if more else ""
        return Page(
            tuple(projected),
            scores=tuple(_public_score(query, score) for score in scores[: len(projected)]),
            total=total if query.count else None,
            cursor=cursor,
        )

    def _project(self, query: Query, items: Sequence[Item]) -> list[Item]:
        """Return as many of the items as fit on a page, with the selected fields."""
        collection = self._collection(query.collection)
        projected = [project(item, query.fields, collection) for item in items]
        return projected[: count_within((json_size(item.data) for item in projected), query.max_bytes)]

    async def _load_matching(self, collection: str, ids: list[str], where: Filter) -> dict[str, Item]:
        """Return the current items; leave out those that are gone or no longer match."""
        test = matcher(where, self._collection(collection))
        stored = await self.store.items.get_many(collection, ids)
        return await asyncio.to_thread(lambda: {id: item for id, item in stored.items() if test(item)})

    async def _find_ordered(self, query: Query, rank: Ranker) -> Page:
        """Return the best matches in an order other than relevance."""
        ranked = await rank(MAX_ORDERED)
        matching = await self._load_matching(query.collection, ranked.ids, query.where)
        scores = dict(zip(ranked.ids, ranked.scores, strict=True))
        items = sort_items(matching.values(), query.order, self._collection(query.collection))
        start = 0
        if query.cursor:
            last = read_cursor(query, self.store.secret)[0]
            start = next((i + 1 for i, item in enumerate(items) if item.id == last), -1)
            if start < 0:
                raise InvalidCursor("The item behind this cursor is gone", hint="Start again without a cursor.")
        projected = self._project(query, items[start : start + query.limit])
        more = start + len(projected) < len(items)
        return Page(
            tuple(projected),
            scores=tuple(_public_score(query, scores[item.id]) for item in projected),
            total=len(items) if query.count else None,
            cursor=make_cursor(query, (projected[-1].id,), self.store.secret) if more else "",
        )

    async def find_across(
        self,
        targets: Sequence[SearchTarget],
        text: str,
        limit: int,
        min_seq: int = 0,
        *,
        semantic_text: str = "",
        context: str = "",
        retrieval: Retrieval = "hybrid",
    ) -> tuple[list[ScoredItem], tuple[str, ...]]:
        """Return the best items of several collections, scored on one scale, and notes on what could not be used.

        `semantic_text` is embedded in place of the text, if there is any. `context` finds nothing by itself: the hits
        report how much of it they share. Without any text, the hits are what the filters let through, ordered by ID.
        """
        if self.index is None:
            raise Unsupported("This process has no search index", hint="Ask a server.")
        vector, notes = await self._embed_query("" if retrieval == "text" else semantic_text or text)
        words = "" if retrieval == "vectors" and vector is not None else text
        queries = [(await self._validate(Query(w.collection, text=words, where=w.where)), w.excluded) for w in targets]
        await self._sync(self.index, min_seq)
        searches: list[tuple[Query, SearchRequest]] = []
        for query, excluded in queries:
            search = await self._make_request(self.index, query, vector)
            searches.append((query, replace(search, excluded=excluded, context=context, explain=True)))
        pending = [self._search_collection(self.index, query, search, limit) for query, search in searches]
        hits = [hit for results in await asyncio.gather(*pending) for hit in results]
        candidates = hits if len(targets) == 1 else _normalize_scores(hits)
        scored = sorted(candidates, key=lambda hit: (-hit.score, hit.item.collection, hit.item.id))
        return scored[:limit], notes

    async def _search_collection(
        self, index: Index, query: Query, search: SearchRequest, limit: int
    ) -> list[ScoredItem]:
        ranked = await _rank(index, query.collection, search, limit + SPARE)
        matching = await self._load_matching(query.collection, ranked.ids, query.where)
        scores = (
            ranked.scores,
            ranked.text_scores,
            ranked.vector_scores,
            ranked.term_coverage,
            ranked.context_coverage,
        )
        parts = zip(ranked.ids, *scores, strict=True)
        return [ScoredItem(matching[id], *scores) for id, *scores in parts if id in matching]


async def _rank(
    index: Index, collection: str, search: SearchRequest, limit: int, after: tuple[float, str] | None = None
) -> Ranking:
    return await asyncio.to_thread(index.rank, collection, search, limit, after)


def _chunk_ids(ids: list[str]) -> Iterator[list[str]]:
    """Yield ids in chunks, a few at first: their items may be large and fill a page."""
    start, end = 0, FIRST_PART
    while start < len(ids):
        yield ids[start:end]
        start, end = end, 2 * end


def _normalize_scores(hits: list[ScoredItem]) -> Iterator[ScoredItem]:
    """Combine text and vector scores in equal shares, each relative to the best of all collections."""
    strongest = max((hit.text_score for hit in hits), default=0.0) or 1.0
    nearest = max((hit.vector_score for hit in hits), default=0.0)
    furthest = min((hit.vector_score for hit in hits if hit.vector_score > -1), default=0.0)
    span = max(nearest - furthest, 1e-9)
    share = TEXT_SHARE if nearest > 0 else 1.0
    for hit in hits:
        word = hit.text_score / strongest
        # What has no vector yet is judged by its words alone.
        meaning = word if hit.vector_score <= -1 else max(hit.vector_score - furthest, 0.0) / span
        yield replace(hit, score=share * word + (1 - share) * meaning)


def _public_score(query: Query, score: float) -> float:
    """Ranks fall, distances grow: a euclidean rank is a negated distance."""
    return -score if query.near and query.near.metric == "euclidean" else score


def _position(query: Query, secret: bytes) -> tuple[float, str] | None:
    if not query.cursor:
        return None
    score, id = read_cursor(query, secret)
    return float(score), str(id)
