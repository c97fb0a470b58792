"""Search within one process: who matches a text, a vector and a filter, and how well. Never the record of anything.

`Index` is the seam: the one here (`memory.py`) holds a snapshot of every collection; a search engine elsewhere could
stand in its place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from numpy import float32
from numpy.typing import NDArray

from portico.catalog import Collection
from portico.query import EVERYTHING, Condition, Filter, Near, Order

TEXT_SHARE = 0.5  # of a fused score; the rest is nearness of meaning
DEPTH = 200  # neighbours by meaning that join the matches by word


@dataclass(frozen=True, slots=True)
class Search:
    """What to rank. `resolved` holds the ids for conditions that an index said it cannot test itself.

    `neighbours` are the nearest by meaning, with their cosines, where an index does not hold the vectors itself.
    With neither text nor vector nor near, everything that may be found is found, and nothing better than the rest.
    """

    text: str = ""
    vector: NDArray[float32] | None = None  # of the text, by the site's embedder
    near: Near | None = None
    where: Filter = EVERYTHING
    resolved: Mapping[Condition, frozenset[str]] = field(default_factory=dict[Condition, frozenset[str]])
    neighbours: Mapping[str, float] | None = None
    without: tuple[str, ...] = ()  # no item that says one of these; several words are a phrase
    context: str = ""  # what the search is part of: said of what is found, without a say in it
    explains: bool = False  # whether to say how much of the question and the context the found items share


@dataclass(frozen=True, slots=True)
class Ranked:
    """Ids by falling score, ties by id, and how many there are in all. Beside them, what the scores were made of."""

    ids: list[str]
    scores: list[float]
    total: int
    by_word: list[float]  # BM25, as it is
    by_meaning: list[float]  # cosine; -1 where there is no vector
    covered: list[float] = field(default_factory=list[float])  # how much of the question they say, if to be explained
    in_context: list[float] = field(default_factory=list[float])  # the same of the context


# Where an index keeps an item as it is now: a part, a number in it, the id. Once it has changed it is kept elsewhere.
Place: TypeAlias = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Arranged:
    """What comes first in an order, in each part of an index, and how many items match in all."""

    runs: list[list[Place]]
    total: int


class Held(dict[Any, int]):
    """The distinct values of a field, each with how often it occurs; only some of them where there are very many."""

    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an index is with a collection."""

    items: int
    embedded: int  # with a vector of the site's own that the index holds


class Index(Protocol):
    @property
    def is_ready(self) -> bool:
        """Whether every collection has been read, and the feed up to where it stood then."""
        ...

    @property
    def seq(self) -> int:
        """The newest change that can be found."""
        ...

    async def close(self) -> None: ...

    async def sync(self, seq: int) -> None:
        """Return once every change up to seq can be found; Unavailable if that takes too long."""
        ...

    def unresolved(self, collection: str, where: Filter) -> list[Condition]:
        """The conditions that only the store can test."""
        ...

    def holds(self, collection: str, field: str) -> bool:
        """Whether vectors of a field are ranked here. Without a field: those the site made. Else the store has them."""
        ...

    def rank(self, collection: str, search: Search, limit: int, after: tuple[float, str] | None = None) -> Ranked: ...

    def arranged(self, collection: Collection, where: Filter, order: Sequence[Order], limit: int) -> Arranged | None:
        """The first items that match, by their fields and then by id; None if it takes the store to tell, or less time.

        The collection is as the caller knows it, which may be newer than what was indexed.
        """
        ...

    def size(self, collection: str) -> int:
        """How many items there are to look through."""
        ...

    def revision(self, collection: str) -> int:
        """The newest change of a collection that can be found."""
        ...

    def values(self, collection: str) -> Mapping[str, Held]:
        """What the fields hold, by path. Long texts are left out."""
        ...

    def progress(self) -> Mapping[str, Progress]: ...
