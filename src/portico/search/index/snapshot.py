"""Ranks the items of one collection as they were at one moment. Pure: the same snapshot gives the same answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from portico.catalog import Collection
from portico.errors import InvalidQuery
from portico.query import EVERYTHING, And, Condition, Filter, Near, Order, conditions
from portico.search.index import DEPTH, TEXT_SHARE, Arranged, Held, Place, Ranked, Search
from portico.search.index.columns import NeedsStore
from portico.search.index.segment import Segment, Vocabulary
from portico.search.index.text import Term, Wanted, terms_of, wanted
from portico.search.index.vectors import Vectors, nearest_of
from portico.store.distance import DIGITS

K1 = 1.2
B = 0.75
DENYING = "no not without zero kein keine ohne sin sans"
LACKING = "free frei"
MAX_HELD = 20_000  # distinct values of a field that are told
PLAIN = 0.6  # of what words weigh by their number alone, where they cover a question
BEYOND = 1e-4  # how much farther than the last neighbour an item counts that is none

Mask = NDArray[np.bool_]
Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Snapshot:
    collection: Collection
    vocabulary: Vocabulary
    segments: tuple[Segment, ...] = ()
    live: tuple[Mask, ...] = ()
    vectors: dict[str, Vectors] = field(default_factory=dict[str, Vectors])
    seq: int = 0
    count: int = 0  # of living items
    mean: float = 1.0  # length of an item, in weighted words

    def counted(self) -> "Snapshot":
        """With what every search needs to know of the whole, worked out once."""
        parts = list(zip(self.segments, self.live, strict=True))
        count = sum(int(mask.sum()) for _, mask in parts)
        total = sum(float(segment.lengths[mask].sum(dtype=np.float64)) for segment, mask in parts)
        return replace(self, count=count, mean=total / count if count and total else 1.0)

    @property
    def languages(self) -> tuple[str, ...]:
        others = sorted(frozenset[str]().union(*(s.languages for s in self.segments)) - {self.collection.language})
        return (self.collection.language, *others)

    def unresolved(self, where: Filter) -> list[Condition]:
        """The conditions that the columns cannot test."""
        return [each for each in dict.fromkeys(conditions(where)) if not self._can_test(each)]

    def _can_test(self, condition: Condition) -> bool:
        try:
            for segment in self.segments:
                segment.columns.condition(condition, self.collection)
        except NeedsStore:
            return False
        return True

    def rank(self, search: Search, limit: int, after: tuple[float, str] | None) -> Ranked:
        allowed = self._allowed(search)
        if not len(allowed) or not allowed.any():
            return Ranked([], [], 0, [], [])
        parts = self._near_parts(search.near, allowed) if search.near else self._parts(search, allowed)
        docs, ranked = self._best(parts, limit, after)
        if search.explains:
            said, context = (self._covered(text, docs) for text in (search.text, search.context))
            ranked = replace(ranked, covered=said, in_context=context)
        vectors = self.vectors.get("")
        if search.near or search.neighbours or search.vector is None or vectors is None:
            return ranked
        return replace(ranked, by_meaning=self._exactly(vectors, docs, search.vector))

    def arranged(self, where: Filter, order: Sequence[Order], limit: int) -> Arranged:
        """What comes first in an order; raises NeedsStore where the columns cannot tell."""
        runs: list[list[Place]] = []
        total = 0
        for segment, live in zip(self.segments, self.live, strict=True):
            mask = live if where == EVERYTHING else live & segment.columns.mask(where, self.collection, {})
            docs = segment.columns.first(mask, order, self.collection, limit)
            runs.append(list(zip(repeat(segment.serial), docs, map(segment.ids.__getitem__, docs), strict=False)))
            total += int(np.count_nonzero(mask))
        return Arranged([run for run in runs if run], total)

    def _exactly(self, vectors: Vectors, docs: Sequence[int], vector: Floats) -> list[float]:
        """The cosines of a few items; -1 where there is no vector."""
        slots = self._slots("", vectors)[list(docs)]
        found = np.full(len(docs), -1.0)
        found[slots >= 0] = vectors.exact(slots[slots >= 0], vector)
        return found.tolist()

    def _allowed(self, search: Search) -> Mask:
        masks = list(self.live)
        if search.where != And(()):
            masks = [
                mask & segment.columns.mask(search.where, self.collection, search.resolved)
                for segment, mask in zip(self.segments, masks, strict=True)
            ]
        asked = wanted(search.text, self.languages)
        for phrase in asked.phrases:
            runs = [self._numbers(term) for term in phrase]
            masks = [mask & s.phrase(runs) for s, mask in zip(self.segments, masks, strict=True)]
        for unwanted in search.without:
            runs = [self._numbers(term) for term in terms_of(unwanted, self.languages)]
            if runs and all(runs):
                masks = [mask & ~self._saying(s, runs) for s, mask in zip(self.segments, masks, strict=True)]
        return np.concatenate(masks) if masks else np.zeros(0, bool)

    def _saying(self, segment: Segment, runs: Sequence[frozenset[int]]) -> Mask:
        """Which items say this. One that only says it is without it, or free of it, does not."""
        said = segment.saying(runs)
        before, after = (self._stems_of(words) for words in (DENYING, LACKING))
        for doc in np.flatnonzero(said & segment.saying([before | after])).tolist():
            said[doc] = segment.asserts(doc, runs, before, after)
        return said

    def _stems_of(self, words: str) -> frozenset[int]:
        return frozenset[int]().union(*(self._numbers(term) for term in terms_of(words, self.languages)))

    def _parts(self, search: Search, allowed: Mask) -> "Parts":
        by_word = self._text(wanted(search.text, self.languages))
        by_word[~allowed] = 0.0
        by_meaning = np.full(len(allowed), -1.0)
        # Without words everything that may be found is found, also what has no vector yet.
        scores = fuse_words(by_word) if search.text else np.where(allowed, 0.0, -np.inf)
        docs, products = self._products(search, allowed, by_word)
        if len(docs):
            by_meaning[docs] = products
            scores = _blend(scores, docs, products)
        return Parts(scores, by_word, by_meaning)

    def _near_parts(self, near: Near, allowed: Mask) -> "Parts":
        scores = self._nearest(near, allowed)
        return Parts(scores, np.zeros(len(scores)), scores)

    def _products(self, search: Search, allowed: Mask, by_word: Doubles) -> tuple[NDArray[np.int64], Doubles]:
        """The items whose meaning is known, and their cosines: exact for the nearest, on which the fusion depends."""
        if search.neighbours:
            return self._neighbours(search.neighbours, allowed, by_word > 0)
        vectors = self.vectors.get("")
        if search.vector is None or vectors is None:
            return np.zeros(0, np.int64), np.zeros(0, np.float64)
        slots = self._slots("", vectors)
        docs = np.flatnonzero(allowed & (slots >= 0))
        quick = vectors.products(slots[docs], search.vector)
        products = quick.astype(np.float64)
        close = nearest_of(quick, DEPTH)
        products[close] = vectors.exact(slots[docs[close]], search.vector)
        return docs, products

    def _neighbours(
        self, known: Mapping[str, float], allowed: Mask, matching: Mask
    ) -> tuple[NDArray[np.int64], Doubles]:
        far = min(known.values()) - BEYOND
        every = np.fromiter((known.get(id, far) for s in self.segments for id in s.ids), np.float64)
        near = every > far
        # With fewer neighbours than were asked for, whatever else matches has no vector; else it lies farther.
        docs = np.flatnonzero(allowed & (near | matching if len(known) >= DEPTH else near))
        return docs, every[docs]

    def _text(self, asked: Wanted) -> Doubles:
        """BM25 over all segments, as if they were one."""
        scores = [np.zeros(len(s), np.float64) for s in self.segments]
        for term in asked.terms:
            self._add_term(term, scores)
        return np.concatenate(scores)

    def _add_term(self, term: Term, scores: Sequence[Doubles]) -> None:
        stems = self._numbers(term)
        runs = [(i, *s.postings.of(stem)) for i, s in enumerate(self.segments) for stem in sorted(stems)]
        runs = [(i, docs, weights) for i, docs, weights in runs if len(docs)]
        frequency = sum(int(np.count_nonzero(self.live[i][docs])) for i, docs, _ in runs)
        rarity = np.log1p((self.count - frequency + 0.5) / (frequency + 0.5))
        for i, docs, weights in runs:
            lengths = self.segments[i].lengths[docs]
            scores[i][docs] += rarity * weights * (K1 + 1) / (weights + K1 * (1 - B + B * lengths / self.mean))

    def _covered(self, text: str, docs: Sequence[int]) -> list[float]:
        """How much of a text a few items say: a rare word weighs more, one that nobody says weighs most."""
        chosen = np.asarray(docs, np.int64)
        said, whole, several, terms = np.zeros(len(docs)), 0.0, np.zeros(len(docs)), 0
        for term in wanted(text, self.languages).terms if text else ():
            having, frequency = self._having(term, chosen)
            rarity = float(np.log1p((self.count - frequency + 0.5) / (frequency + 0.5)))
            said += rarity * having
            whole += rarity
            several += having
            terms += 1
        # Words that everything here has weigh nothing, and are words of the question all the same.
        return np.round(np.maximum(said / (whole or 1.0), PLAIN * several / (terms or 1)), DIGITS).tolist()

    def _having(self, term: Term, chosen: NDArray[np.int64]) -> tuple[Mask, int]:
        """Which of these items have a term, and how many items have it in all."""
        having, frequency, first = np.zeros(len(chosen), bool), 0, 0
        stems = self._numbers(term)
        for segment, live in zip(self.segments, self.live, strict=True):
            for stem in stems:
                run = segment.postings.of(stem)[0]
                if len(run):
                    frequency += int(np.count_nonzero(live[run]))
                    places = np.minimum(np.searchsorted(run, chosen - first), len(run) - 1)
                    having |= run[places] == chosen - first
            first += len(segment)
        return having, min(frequency, self.count)

    def values(self) -> dict[str, Held]:
        """The distinct values of every path, with how often living items have each; some of them if there are many."""
        found: dict[str, Held] = {}
        for segment, live in zip(self.segments, self.live, strict=True):
            for path, column in segment.columns.columns.items():
                counts = found.setdefault(path, Held())
                for value, count in column.counts(live):
                    counts[value] = counts.get(value, 0) + count
                    if len(counts) > MAX_HELD:
                        counts.is_whole = False
                        break
        return found

    def _numbers(self, term: Term) -> frozenset[int]:
        known = self.vocabulary.numbers
        return frozenset(known[stem] for stem in term.stems if stem in known)

    def _nearest(self, near: Near, allowed: Mask) -> Doubles:
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
        ranks = vectors.nearness(slots[docs], near)
        if len(docs) > near.top:
            edge = np.partition(ranks, -near.top)[-near.top]
            best = sorted((-ranks[at], self._id(int(docs[at])), at) for at in np.flatnonzero(ranks >= edge).tolist())
            kept = np.zeros(len(docs), bool)
            kept[[at for _, _, at in best[: near.top]]] = True
            ranks[~kept] = -np.inf
        scores[docs] = ranks
        return scores

    def _slots(self, name: str, vectors: Vectors) -> NDArray[np.int32]:
        if not name:
            return np.concatenate([s.slots for s in self.segments])
        return np.fromiter((vectors.slot(id) for s in self.segments for id in s.ids), np.int32)

    def _best(self, parts: "Parts", limit: int, after: tuple[float, str] | None) -> tuple[list[int], Ranked]:
        docs = np.flatnonzero(parts.scores > -np.inf)
        total = len(docs)
        scores = np.round(parts.scores[docs], DIGITS)
        if after:
            keep = self._behind(docs, scores, after)
            docs, scores = docs[keep], scores[keep]
        if len(docs) > 4 * limit + 64:
            keep = scores >= np.partition(scores, -limit - 1)[-limit - 1]
            docs, scores = docs[keep], scores[keep]
        pairs = zip(docs.tolist(), scores.tolist(), strict=True)
        best = sorted((-score, self._id(doc), doc) for doc, score in pairs)[:limit]
        chosen = [doc for _, _, doc in best]
        return chosen, Ranked(
            [id for _, id, _ in best],
            [-score for score, _, _ in best],
            total,
            parts.by_word[chosen].tolist(),
            parts.by_meaning[chosen].tolist(),
        )

    def _behind(self, docs: NDArray[np.int64], scores: Doubles, after: tuple[float, str]) -> Mask:
        """Which of these come after a position: a lower score, or the same and a later id."""
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
class Parts:
    """Scores of all items, -inf for those not found, and what they were made of."""

    scores: Doubles
    by_word: Doubles
    by_meaning: Doubles


def fuse_words(by_word: Doubles) -> Doubles:
    strongest = by_word.max() if len(by_word) else 0.0
    if strongest <= 0:
        return np.full(len(by_word), -np.inf)
    return np.where(by_word > 0, by_word / strongest, -np.inf)


def _blend(text: Doubles, docs: NDArray[np.int64], products: Doubles) -> Doubles:
    """Convex fusion of two scales, each stretched to 0..1 over what it found."""
    depth = min(DEPTH, len(docs))
    floor = float(np.partition(products, -depth)[-depth])
    span = max(float(products.max()) - floor, 1e-9)
    nearness = np.clip((products - floor) / span, 0.0, 1.0)
    # What has no vector yet is judged by its words alone.
    joined = text.copy()
    joined[docs] *= TEXT_SHARE
    neighbours = docs[products >= floor]
    joined[neighbours] = np.maximum(joined[neighbours], 0.0)
    joined[docs] += nearness * (1 - TEXT_SHARE)
    return joined
