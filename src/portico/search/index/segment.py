"""An immutable set of items that can be searched: postings, tokens, columns."""

import itertools
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from portico.catalog import Collection, FieldType
from portico.items import Item
from portico.search.index.columns import PRESENT, Columns, ColumnsBuilder, IndexColumn, merge_columns
from portico.search.index.text import passages, stemmer, words

GAP = -1  # the token between two passages, so that no phrase spans them
WEIGHT_STEP = 0.25  # weights of words are kept in quarters

Ints = NDArray[np.int32]
_serial = itertools.count()


class StemVocabulary:
    """The numbers of stems, in the order of their first use. Only grows."""

    def __init__(self, stems: Sequence[str] = ()) -> None:
        self.numbers = {stem: i for i, stem in enumerate(stems)}

    def number(self, stem: str) -> int:
        return self.numbers.setdefault(stem, len(self.numbers))

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True, slots=True)
class Postings:
    """For each stem of the segment, the items that have it and how often, weighted."""

    stems: Ints  # sorted
    starts: NDArray[np.int64]  # one more than stems
    docs: Ints
    weights: NDArray[np.float32]

    def of(self, stem: int) -> tuple[Ints, NDArray[np.float32]]:
        at = int(np.searchsorted(self.stems, stem))
        if at == len(self.stems) or self.stems[at] != stem:
            return self.docs[:0], self.weights[:0]
        run = slice(int(self.starts[at]), int(self.starts[at + 1]))
        return self.docs[run], self.weights[run]


@dataclass(frozen=True, slots=True)
class Segment:
    """Items with their postings and columns. Only `slots` changes: the row of each item's vector, or -1."""

    serial: int
    ids: list[str]
    languages: frozenset[str]
    tokens: Ints  # stems of all items in a row, GAP between passages
    starts: NDArray[np.int64]  # of each item in tokens, one more than items
    quarters: NDArray[np.uint8]  # beside tokens: their weight
    lengths: NDArray[np.float32]
    postings: Postings
    columns: Columns
    slots: Ints

    def __len__(self) -> int:
        return len(self.ids)

    def mention_mask(self, runs: Sequence[frozenset[int]]) -> NDArray[np.bool_]:
        """Return which items have these stems in a row. A single stem is looked up in the postings."""
        if len(runs) > 1:
            return self.phrase_mask(runs)
        mask = np.zeros(len(self), bool)
        for stem in runs[0]:
            mask[self.postings.of(stem)[0]] = True
        return mask

    def asserts(self, doc: int, runs: Sequence[frozenset[int]], before: frozenset[int], after: frozenset[int]) -> bool:
        """Whether an item has these stems at least once without a negation before or after them."""
        tokens = self.tokens[int(self.starts[doc]) : int(self.starts[doc + 1])].tolist()
        for at in range(len(tokens) - len(runs) + 1):
            if all(tokens[at + i] in stems for i, stems in enumerate(runs)):
                behind = tokens[at + len(runs)] if at + len(runs) < len(tokens) else GAP
                if not (at and tokens[at - 1] in before) and behind not in after:
                    return True
        return False

    def phrase_mask(self, runs: Sequence[frozenset[int]]) -> NDArray[np.bool_]:
        """Return which items have these stems in a row."""
        mask = np.zeros(len(self), bool)
        last = len(self.tokens) - len(runs) + 1
        if last <= 0:
            return mask
        hits = np.ones(last, bool)
        for offset, stems in enumerate(runs):
            hits &= np.isin(self.tokens[offset : offset + last], list(stems))
        mask[np.searchsorted(self.starts, np.flatnonzero(hits), side="right") - 1] = True
        return mask


class StemNumbers(dict[str, int]):
    """The stem numbers of the words of one language. A cache: texts repeat their words."""

    def __init__(self, language: str, vocabulary: StemVocabulary) -> None:
        super().__init__()
        self._stem = stemmer(language)
        self._vocabulary = vocabulary

    def __missing__(self, word: str) -> int:
        number = self[word] = self._vocabulary.number(self._stem(word))
        return number


class SegmentBuilder:
    """Collects items into one segment."""

    def __init__(self, collection: Collection, vocabulary: StemVocabulary) -> None:
        self._collection = collection
        self._vocabulary = vocabulary
        self._numbers: dict[str, StemNumbers] = {}
        self._ids: list[str] = []
        self._tokens = array("i")
        self._quarters = bytearray()
        self._starts = array("q", [0])
        self._columns = ColumnsBuilder(collection)

    def add(self, items: Iterable[Item]) -> list[tuple[Item, Exception]]:
        """Add items. Return those that cannot be indexed, with the errors; nothing of them is added."""
        failed: list[tuple[Item, Exception]] = []
        for item in items:
            try:
                tokens, quarters = self._read(item)
                values = self._columns.read(item.data)
            except Exception as error:  # noqa: BLE001 - a row may hold anything, and the others are to be found
                failed.append((item, error))
                continue
            self._tokens += tokens
            self._quarters += quarters
            self._columns.add(len(self._ids), values)
            self._starts.append(len(self._tokens))
            self._ids.append(item.id)
        return failed

    def _read(self, item: Item) -> tuple["array[int]", bytes]:
        """Return the tokens of an item, and their weights."""
        tokens, quarters = array("i"), bytearray()
        language = item.data.get("inLanguage")
        code = language[:2].lower() if isinstance(language, str) else ""
        numbers = self._numbers_of(code or self._collection.language)
        for passage in passages(item, self._collection):
            passage_words = words(passage.text)
            tokens.extend(map(numbers.__getitem__, passage_words))
            tokens.append(GAP)
            quarters += bytes([min(255, round(passage.weight / WEIGHT_STEP))]) * len(passage_words) + b"\0"
        return tokens, bytes(quarters)

    def _numbers_of(self, language: str) -> StemNumbers:
        numbers = self._numbers.get(language)
        if numbers is None:
            numbers = self._numbers[language] = StemNumbers(language, self._vocabulary)
        return numbers

    def build(self) -> Segment:
        return _assemble(
            self._ids,
            frozenset(self._numbers),
            np.frombuffer(self._tokens, np.int32) if self._tokens else np.zeros(0, np.int32),
            np.frombuffer(self._starts, np.int64),
            np.frombuffer(bytes(self._quarters), np.uint8),
            self._columns.build(),
            np.full(len(self._ids), -1, np.int32),
        )


def build_segment(items: Iterable[Item], collection: Collection, vocabulary: StemVocabulary) -> Segment:
    builder = SegmentBuilder(collection, vocabulary)
    builder.add(items)
    return builder.build()


def _assemble(
    ids: list[str],
    languages: frozenset[str],
    tokens: Ints,
    starts: NDArray[np.int64],
    quarters: NDArray[np.uint8],
    columns: Mapping[str, IndexColumn],
    slots: Ints,
    postings: Postings | None = None,
) -> Segment:
    docs = np.repeat(np.arange(len(ids), dtype=np.int64), np.diff(starts))
    weights = quarters * np.float32(WEIGHT_STEP)
    lengths = np.bincount(docs, weights, len(ids)).astype(np.float32)
    return Segment(
        next(_serial),
        ids,
        languages,
        tokens,
        starts,
        quarters,
        lengths,
        postings or _postings(tokens, docs, weights, len(ids)),
        Columns(ids, columns),
        slots,
    )


def _postings(tokens: Ints, docs: NDArray[np.int64], weights: NDArray[np.float32], count: int) -> Postings:
    real = tokens != GAP
    keys = tokens[real].astype(np.int64) * max(count, 1) + docs[real]
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = np.ones(len(keys), bool)
    first[1:] = keys[1:] != keys[:-1]
    sums = np.add.reduceat(weights[real][order], np.flatnonzero(first)) if len(keys) else weights[:0]
    keys = keys[first]
    stems, starts = np.unique(keys // max(count, 1), return_index=True)
    return Postings(
        stems.astype(np.int32),
        np.append(starts, len(keys)).astype(np.int64),
        (keys % max(count, 1)).astype(np.int32),
        sums.astype(np.float32),
    )


def merge_segments(segments: Sequence[Segment], live: Sequence[NDArray[np.bool_]]) -> Segment:
    """Merge the live items of several segments into one."""
    renumbers: list[Ints] = []
    base = 0
    for mask in live:
        renumber = np.where(mask, np.cumsum(mask) - 1 + base, -1).astype(np.int32)
        renumbers.append(renumber)
        base += int(mask.sum())
    kept_tokens = [np.repeat(mask, np.diff(s.starts)) for s, mask in zip(segments, live, strict=True)]
    sizes = np.concatenate([np.diff(s.starts)[mask] for s, mask in zip(segments, live, strict=True)])
    paths = dict.fromkeys(path for s in segments for path in s.columns.columns)
    return _assemble(
        [id for s, mask in zip(segments, live, strict=True) for id in itertools.compress(s.ids, mask.tolist())],
        frozenset[str]().union(*(s.languages for s in segments)),
        np.concatenate([s.tokens[keep] for s, keep in zip(segments, kept_tokens, strict=True)]),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.concatenate([s.quarters[keep] for s, keep in zip(segments, kept_tokens, strict=True)]),
        {
            path: merge_columns([(s.columns.columns.get(path), r) for s, r in zip(segments, renumbers, strict=True)])
            for path in paths
        },
        np.concatenate([s.slots[mask] for s, mask in zip(segments, live, strict=True)]),
    )


def dump_segment(segment: Segment, vocabulary: StemVocabulary) -> bytes:
    """Encode a segment, so that the next start need not read every item again."""
    postings = segment.postings
    return msgspec.msgpack.encode(
        {
            "ids": segment.ids,
            "languages": sorted(segment.languages),
            "stems": list(vocabulary.numbers),
            "tokens": segment.tokens.tobytes(),
            "starts": segment.starts.tobytes(),
            "quarters": segment.quarters.tobytes(),
            "postings": [a.tobytes() for a in (postings.stems, postings.starts, postings.docs, postings.weights)],
            "columns": {path: _dump_column(column) for path, column in segment.columns.columns.items()},
        }
    )


def load_segment(raw: bytes) -> tuple[Segment, StemVocabulary]:
    stored = msgspec.msgpack.decode(raw)
    ids: list[str] = stored["ids"]
    stems, starts, docs, weights = stored["postings"]
    segment = _assemble(
        ids,
        frozenset(stored["languages"]),
        np.frombuffer(stored["tokens"], np.int32),
        np.frombuffer(stored["starts"], np.int64),
        np.frombuffer(stored["quarters"], np.uint8),
        {path: _load_column(column) for path, column in stored["columns"].items()},
        np.full(len(ids), -1, np.int32),
        Postings(
            np.frombuffer(stems, np.int32),
            np.frombuffer(starts, np.int64),
            np.frombuffer(docs, np.int32),
            np.frombuffer(weights, np.float32),
        ),
    )
    return segment, StemVocabulary(stored["stems"])


def _dump_column(column: IndexColumn) -> dict[str, Any]:
    present = next((i for i, value in enumerate(column.values) if value is PRESENT), -1)
    return {
        "values": [None if value is PRESENT else value for value in column.values],
        "present": present,
        "in_array": column.in_array.tobytes(),
        "docs": column.docs.tobytes(),
        "entries": column.entries.tobytes(),
        "partial": column.partial,
        "type": str(column.type),
    }


def _load_column(stored: dict[str, Any]) -> IndexColumn:
    values: list[Any] = stored["values"]
    if stored["present"] >= 0:
        values[stored["present"]] = PRESENT
    return IndexColumn(
        values,
        np.frombuffer(stored["in_array"], np.bool_),
        np.frombuffer(stored["docs"], np.int32),
        np.frombuffer(stored["entries"], np.int32),
        stored["partial"],
        FieldType(stored["type"]),
    )
