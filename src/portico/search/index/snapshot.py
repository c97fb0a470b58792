"""Ranks the items of one collection as of one moment. Pure: the same snapshot gives the same ranking."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from portico.catalog import Collection
from portico.errors import InvalidQuery
from portico.query import MATCH_ALL, And, Condition, Filter, NearVector, Order, conditions
from portico.search.index import DEPTH, TEXT_SHARE, Location, Ranking, SearchRequest, SortedRuns, ValueCounts
from portico.search.index.columns import NeedsStore
from portico.search.index.segment import Segment, StemVocabulary
from portico.search.index.text import Term, TextQuery, parse_text_query, terms_of
from portico.search.index.vectors import VectorMatrix, nearest_candidates
from portico.store.distance import DIGITS

K1 = 1.2
B = 0.75
NEGATING_BEFORE = "no not without zero kein keine ohne sin sans"
NEGATING_AFTER = "free frei"
MAX_DISTINCT = 20_000  # distinct values of a field that are returned
COUNT_SHARE = 0.6  # weight of the share of covered words, where rarity does not count
FAR_MARGIN = 1e-4  # below the last neighbour: the cosine assumed for items that are not neighbours

Mask = NDArray[np.bool_]
Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Snapshot:
    collection: Collection
    vocabulary: StemVocabulary
    segments: tuple[Segment, ...] = ()
    live: tuple[Mask, ...] = ()
    vectors: dict[str, VectorMatrix] = field(default_factory=dict[str, VectorMatrix])
    seq: int = 0
    count: int = 0  # of live items
    mean: float = 1.0  # length of an item, in weighted words

    def with_statistics(self) -> "Snapshot":
        """Return this snapshot with the statistics that every search needs."""
        parts = list(zip(self.segments, self.live, strict=True))
        count = sum(int(mask.sum()) for _, mask in parts)
        total = sum(float(segment.lengths[mask].sum(dtype=np.float64)) for segment, mask in parts)
        return replace(self, count=count, mean=total / count if count and total else 1.0)

    @property
    def languages(self) -> tuple[str, ...]:
        others = sorted(frozenset[str]().union(*(s.languages for s in self.segments)) - {self.collection.language})
        return (self.collection.language, *others)

    def list_store_conditions(self, where: Filter) -> list[Condition]:
        """Return the conditions that the columns cannot test."""
        return [condition for condition in dict.fromkeys(conditions(where)) if not self._can_test(condition)]

    def _can_test(self, condition: Condition) -> bool:
        try:
            for segment in self.segments:
                segment.columns.condition(condition, self.collection)
        except NeedsStore:
            return False
        return True

    def rank(self, search: SearchRequest, limit: int, after: tuple[float, str] | None) -> Ranking:
        allowed = self._filter_mask(search)
        if not len(allowed) or not allowed.any():
            return Ranking([], [], 0, [], [])
        parts = self._vector_parts(search.near, allowed) if search.near else self._score_parts(search, allowed)
        docs, ranked = self._best(parts, limit, after)
        if search.explain:
            terms, context = (self._term_coverage(text, docs) for text in (search.text, search.context))
            ranked = replace(ranked, term_coverage=terms, context_coverage=context)
        vectors = self.vectors.get("")
        if search.near or search.neighbours or search.vector is None or vectors is None:
            return ranked
        return replace(ranked, vector_scores=self._exact_cosines(vectors, docs, search.vector))

    def list_sorted(self, where: Filter, order: Sequence[Order], limit: int) -> SortedRuns:
        """Return the first items in an order; raise NeedsStore if the columns cannot sort so."""
        runs: list[list[Location]] = []
        total = 0
        for segment, live in zip(self.segments, self.live, strict=True):
            mask = live if where == MATCH_ALL else live & segment.columns.mask(where, self.collection, {})
            docs = segment.columns.first(mask, order, self.collection, limit)
            runs.append(list(zip(repeat(segment.serial), docs, map(segment.ids.__getitem__, docs), strict=False)))
            total += int(np.count_nonzero(mask))
        return SortedRuns([run for run in runs if run], total)

    def _exact_cosines(self, vectors: VectorMatrix, docs: Sequence[int], vector: Floats) -> list[float]:
        """Return the cosines of a few items; -1 where there is no vector."""
        slots = self._slots("", vectors)[list(docs)]
        cosines = np.full(len(docs), -1.0)
        cosines[slots >= 0] = vectors.exact(slots[slots >= 0], vector)
        return cosines.tolist()

    def _filter_mask(self, search: SearchRequest) -> Mask:
        masks = list(self.live)
        if search.where != And(()):
            masks = [
                mask & segment.columns.mask(search.where, self.collection, search.resolved_ids)
                for segment, mask in zip(self.segments, masks, strict=True)
            ]
        text_query = parse_text_query(search.text, self.languages)
        for phrase in text_query.phrases:
            runs = [self._stem_numbers(term) for term in phrase]
            masks = [mask & s.phrase_mask(runs) for s, mask in zip(self.segments, masks, strict=True)]
        for unwanted in search.excluded:
            runs = [self._stem_numbers(term) for term in terms_of(unwanted, self.languages)]
            if runs and all(runs):
                masks = [mask & ~self._mention_mask(s, runs) for s, mask in zip(self.segments, masks, strict=True)]
        return np.concatenate(masks) if masks else np.zeros(0, bool)

    def _mention_mask(self, segment: Segment, runs: Sequence[frozenset[int]]) -> Mask:
        """Return which items mention these stems, except where only negated: "without nuts", "nut-free"."""
        mask = segment.mention_mask(runs)
        before, after = (self._stems_of(words) for words in (NEGATING_BEFORE, NEGATING_AFTER))
        for doc in np.flatnonzero(mask & segment.mention_mask([before | after])).tolist():
            mask[doc] = segment.asserts(doc, runs, before, after)
        return mask

    def _stems_of(self, words: str) -> frozenset[int]:
        return frozenset[int]().union(*(self._stem_numbers(term) for term in terms_of(words, self.languages)))

    def _score_parts(self, search: SearchRequest, allowed: Mask) -> "ScoreParts":
        by_word = self._score_text(parse_text_query(search.text, self.languages))
        by_word[~allowed] = 0.0
        by_meaning = np.full(len(allowed), -1.0)
        # Without words every allowed item matches, also one that has no vector yet.
        scores = fuse_words(by_word) if search.text else np.where(allowed, 0.0, -np.inf)
        docs, products = self._products(search, allowed, by_word)
        if len(docs):
            by_meaning[docs] = products
            scores = _blend(scores, docs, products)
        return ScoreParts(scores, by_word, by_meaning)

    def _vector_parts(self, near: NearVector, allowed: Mask) -> "ScoreParts":
        scores = self._nearest(near, allowed)
        return ScoreParts(scores, np.zeros(len(scores)), scores)

    def _products(self, search: SearchRequest, allowed: Mask, by_word: Doubles) -> tuple[NDArray[np.int64], Doubles]:
        """Return the items with a vector, and their cosines: exact for the nearest, on which the fusion depends."""
        if search.neighbours:
            return self._neighbours(search.neighbours, allowed, by_word > 0)
        vectors = self.vectors.get("")
        if search.vector is None or vectors is None:
            return np.zeros(0, np.int64), np.zeros(0, np.float64)
        slots = self._slots("", vectors)
        docs = np.flatnonzero(allowed & (slots >= 0))
        quick = vectors.products(slots[docs], search.vector)
        products = quick.astype(np.float64)
        close = nearest_candidates(quick, DEPTH)
        products[close] = vectors.exact(slots[docs[close]], search.vector)
        return docs, products

    def _neighbours(
        self, cosines: Mapping[str, float], allowed: Mask, matching: Mask
    ) -> tuple[NDArray[np.int64], Doubles]:
        far = min(cosines.values()) - FAR_MARGIN
        every = np.fromiter((cosines.get(id, far) for s in self.segments for id in s.ids), np.float64)
        near = every > far
        # With fewer neighbours than requested, other matches have no vector; otherwise they lie farther away.
        docs = np.flatnonzero(allowed & (near | matching if len(cosines) >= DEPTH else near))
        return docs, every[docs]

    def _score_text(self, text_query: TextQuery) -> Doubles:
        """BM25 over all segments, as if they were one."""
        scores = [np.zeros(len(s), np.float64) for s in self.segments]
        for term in text_query.terms:
            self._add_term(term, scores)
        return np.concatenate(scores)

    def _add_term(self, term: Term, scores: Sequence[Doubles]) -> None:
        stems = self._stem_numbers(term)
        runs = [(i, *s.postings.of(stem)) for i, s in enumerate(self.segments) for stem in sorted(stems)]
        runs = [(i, docs, weights) for i, docs, weights in runs if len(docs)]
        frequency = sum(int(np.count_nonzero(self.live[i][docs])) for i, docs, _ in runs)
        rarity = np.log1p((self.count - frequency + 0.5) / (frequency + 0.5))
        for i, docs, weights in runs:
            lengths = self.segments[i].lengths[docs]
            scores[i][docs] += rarity * weights * (K1 + 1) / (weights + K1 * (1 - B + B * lengths / self.mean))

    def _term_coverage(self, text: str, docs: Sequence[int]) -> list[float]:
        """Return how much of a text a few items contain. A rare word counts more, one that no item has counts most."""
        chosen = np.asarray(docs, np.int64)
        covered_weight, whole, several, terms = np.zeros(len(docs)), 0.0, np.zeros(len(docs)), 0
        for term in parse_text_query(text, self.languages).terms if text else ():
            having, frequency = self._docs_with_term(term, chosen)
            rarity = float(np.log1p((self.count - frequency + 0.5) / (frequency + 0.5)))
            covered_weight += rarity * having
            whole += rarity
            several += having
            terms += 1
        # Words that every item has weigh nothing, but they are part of the text all the same.
        return np.round(
            np.maximum(covered_weight / (whole or 1.0), COUNT_SHARE * several / (terms or 1)), DIGITS
        ).tolist()

    def _docs_with_term(self, term: Term, chosen: NDArray[np.int64]) -> tuple[Mask, int]:
        """Return which of these items have a term, and how many items have it in all."""
        having, frequency, first = np.zeros(len(chosen), bool), 0, 0
        stems = self._stem_numbers(term)
        for segment, live in zip(self.segments, self.live, strict=True):
            for stem in stems:
                run = segment.postings.of(stem)[0]
                if len(run):
                    frequency += int(np.count_nonzero(live[run]))
                    places = np.minimum(np.searchsorted(run, chosen - first), len(run) - 1)
                    having |= run[places] == chosen - first
            first += len(segment)
        return having, min(frequency, self.count)

    def values(self) -> dict[str, ValueCounts]:
        """Return the distinct values of every path and their counts; the first MAX_DISTINCT if there are more."""
        results: dict[str, ValueCounts] = {}
        for segment, live in zip(self.segments, self.live, strict=True):
            for path, column in segment.columns.columns.items():
                counts = results.setdefault(path, ValueCounts())
                for value, count in column.counts(live):
                    counts[value] = counts.get(value, 0) + count
                    if len(counts) > MAX_DISTINCT:
                        counts.is_whole = False
                        break
        return results

    def _stem_numbers(self, term: Term) -> frozenset[int]:
        numbers = self.vocabulary.numbers
        return frozenset(numbers[stem] for stem in term.stems if stem in numbers)

    def _nearest(self, near: NearVector, allowed: Mask) -> Doubles:
        scores = np.full(len(allowed), -np.inf)
        vectors = self.vectors.get(near.field)
        if vectors is None or not len(vectors):
            return scores
        if vectors.dimensions != len(near.vector):
            raise InvalidQuery(
                f"The vector has {len(near.vector)} numbers; the stored ones have {vectors.dimensions}",
                expected=vectors.dimensions,
            )
        slots = self._slots(near.field, vectors)
        docs = np.flatnonzero(allowed & (slots >= 0))
        ranks = vectors.rank_nearest(slots[docs], near)
        if len(docs) > near.top:
            edge = np.partition(ranks, -near.top)[-near.top]
            best = sorted((-ranks[at], self._id(int(docs[at])), at) for at in np.flatnonzero(ranks >= edge).tolist())
            keep = np.zeros(len(docs), bool)
            keep[[at for _, _, at in best[: near.top]]] = True
            ranks[~keep] = -np.inf
        scores[docs] = ranks
        return scores

    def _slots(self, name: str, vectors: VectorMatrix) -> NDArray[np.int32]:
        if not name:
            return np.concatenate([s.slots for s in self.segments])
        return np.fromiter((vectors.slot(id) for s in self.segments for id in s.ids), np.int32)

    def _best(self, parts: "ScoreParts", limit: int, after: tuple[float, str] | None) -> tuple[list[int], Ranking]:
        docs = np.flatnonzero(parts.scores > -np.inf)
        total = len(docs)
        scores = np.round(parts.scores[docs], DIGITS)
        if after:
            keep = self._after_mask(docs, scores, after)
            docs, scores = docs[keep], scores[keep]
        if len(docs) > 4 * limit + 64:
            keep = scores >= np.partition(scores, -limit - 1)[-limit - 1]
            docs, scores = docs[keep], scores[keep]
        pairs = zip(docs.tolist(), scores.tolist(), strict=True)
        best = sorted((-score, self._id(doc), doc) for doc, score in pairs)[:limit]
        chosen = [doc for _, _, doc in best]
        return chosen, Ranking(
            [id for _, id, _ in best],
            [-score for score, _, _ in best],
            total,
            parts.text_scores[chosen].tolist(),
            parts.vector_scores[chosen].tolist(),
        )

    def _after_mask(self, docs: NDArray[np.int64], scores: Doubles, after: tuple[float, str]) -> Mask:
        """Return which items follow a position: a lower score, or the same score and a later id."""
        keep = scores < after[0]
        for at in np.flatnonzero(scores == after[0]).tolist():
            keep[at] = self._id(int(docs[at])) > after[1]
        return keep

    def _id(self, doc: int) -> str:
        for segment in self.segments:
            if doc < len(segment):
                return segment.ids[doc]
            doc -= len(segment)
        raise IndexError(doc)


@dataclass(frozen=True, slots=True)
class ScoreParts:
    """Scores of all items, -inf for those that do not match, and their parts."""

    scores: Doubles
    text_scores: Doubles
    vector_scores: Doubles


def fuse_words(by_word: Doubles) -> Doubles:
    strongest = by_word.max() if len(by_word) else 0.0
    if strongest <= 0:
        return np.full(len(by_word), -np.inf)
    return np.where(by_word > 0, by_word / strongest, -np.inf)


def _blend(text: Doubles, docs: NDArray[np.int64], products: Doubles) -> Doubles:
    """Fuse two scales as a convex combination, each scaled to 0..1 over its matches."""
    depth = min(DEPTH, len(docs))
    floor = float(np.partition(products, -depth)[-depth])
    span = max(float(products.max()) - floor, 1e-9)
    nearness = np.clip((products - floor) / span, 0.0, 1.0)
    # The score of an item without a vector depends on its words alone.
    joined = text.copy()
    joined[docs] *= TEXT_SHARE
    neighbours = docs[products >= floor]
    joined[neighbours] = np.maximum(joined[neighbours], 0.0)
    joined[docs] += nearness * (1 - TEXT_SHARE)
    return joined
