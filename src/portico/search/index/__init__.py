"""Search within one process: ranks items by text, vector and filter. Everything in an index can be rebuilt.

`Index` is the interface: the implementation here (`memory.py`) holds a snapshot of every collection; an external
search engine could replace it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from numpy import float32
from numpy.typing import NDArray

from portico.catalog import Collection
from portico.query import MATCH_ALL, Condition, Filter, NearVector, Order

TEXT_SHARE = 0.5  # of a combined score; the rest is vector similarity
DEPTH = 200  # nearest neighbours that are combined with the text matches


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What to rank. `resolved_ids` holds the ids for conditions that an index said it cannot test itself.

    `neighbours` are the nearest by meaning, with their cosines, where an index does not hold the vectors itself.
    With neither text nor vector nor near, everything that may be found is found, and nothing better than the rest.
    """

    text: str = ""
    vector: NDArray[float32] | None = None  # of the text, by the site's embedder
    near: NearVector | None = None
    where: Filter = MATCH_ALL
    resolved_ids: Mapping[Condition, frozenset[str]] = field(default_factory=dict[Condition, frozenset[str]])
    neighbours: Mapping[str, float] | None = None
    excluded: tuple[str, ...] = ()  # leave out items with one of these; several words are a phrase
    context: str = ""  # of the conversation: scored for the results, without any effect on them
    explain: bool = False  # whether to compute term and context coverage


@dataclass(frozen=True, slots=True)
class Ranking:
    """Ids by falling score, ties by id, and the total number of matches. The other lists are parallel to the ids."""

    ids: list[str]
    scores: list[float]
    total: int
    text_scores: list[float]  # BM25, as it is
    vector_scores: list[float]  # cosine; -1 where there is no vector
    term_coverage: list[float] = field(default_factory=list[float])  # share of the query's words, if `explain`
    context_coverage: list[float] = field(default_factory=list[float])  # the same of the context


# Where an index has the current form of an item: segment, number in it, id. A changed item gets another location.
Location: TypeAlias = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class SortedRuns:
    """The first items of each segment in an order, and how many items match in total."""

    runs: list[list[Location]]
    total: int


class ValueCounts(dict[Any, int]):
    """The distinct values of a field and their counts; not all of them if there are very many."""

    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """The progress of the index of a collection."""

    items: int
    embedded: int  # with a vector of the site's own that the index holds


class Index(Protocol):
    @property
    def is_ready(self) -> bool:
        """Whether every collection has been read, and the feed up to that moment."""
        ...

    @property
    def seq(self) -> int:
        """The newest change that is indexed."""
        ...

    async def close(self) -> None: ...

    async def sync(self, seq: int) -> None:
        """Wait until every change up to seq is indexed; raise Unavailable if that takes too long."""
        ...

    def list_store_conditions(self, collection: str, where: Filter) -> list[Condition]:
        """Return the conditions that only the store can test."""
        ...

    def has_vectors(self, collection: str, field: str) -> bool:
        """Whether the index holds the vectors of a field, or of the embedder if it is empty; else the store ranks."""
        ...

    def rank(
        self, collection: str, search: SearchRequest, limit: int, after: tuple[float, str] | None = None
    ) -> Ranking: ...

    def list_sorted(
        self, collection: Collection, where: Filter, order: Sequence[Order], limit: int
    ) -> SortedRuns | None:
        """The first items that match, by their fields and then by id; None if it takes the store to tell, or less time.

        The collection is as the caller knows it, which may be newer than what was indexed.
        """
        ...

    def size(self, collection: str) -> int:
        """Return the number of items in a collection."""
        ...

    def revision(self, collection: str) -> int:
        """The newest change of a collection that is indexed."""
        ...

    def values(self, collection: str) -> Mapping[str, ValueCounts]:
        """Return the distinct values of fields, by path. Long texts are left out."""
        ...

    def progress(self) -> Mapping[str, IndexProgress]: ...
