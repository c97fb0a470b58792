"""Finds the vectors nearest to one, exactly: the same scores whichever store the candidates come from."""

from collections.abc import Iterable

import numpy as np

from portico.catalog import Collection
from portico.errors import InvalidQuery
from portico.items import Item
from portico.query import NearVector, Page, Query, count_within, json_size, make_cursor, project, read_cursor
from portico.store.distance import meets_threshold, round_ranks, similarity

BLOCK = 4000  # vectors compared at a time, so that memory stays bounded


def find_nearest(candidates: Iterable[tuple[str, bytes]], near: NearVector) -> tuple[list[str], list[float]]:
    """Return the ids nearest to a vector, with their scores. Equally near ones are ordered by id."""
    best: list[tuple[float, str]] = []
    block: list[tuple[str, bytes]] = []
    lengths: set[int] = set()  # of the stored vectors

    def rank_block() -> None:
        lengths.update(len(vector) // 4 for _, vector in block)
        comparable = [row for row in block if len(row[1]) == 4 * len(near.vector)]
        if comparable:
            matrix = np.frombuffer(b"".join(v for _, v in comparable), dtype=np.float32).reshape(len(comparable), -1)
            ranks = round_ranks(similarity(near, matrix.astype(np.float64)))
            is_near = meets_threshold(near, ranks).tolist()
            rows = zip(ranks.tolist(), comparable, is_near, strict=True)
            best.extend((rank, id) for rank, (id, _), fits in rows if fits)
            best.sort(key=lambda pair: (-pair[0], pair[1]))
            del best[near.top :]
        block.clear()

    for candidate in candidates:
        block.append(candidate)
        if len(block) == BLOCK:
            rank_block()
    rank_block()
    if lengths and len(near.vector) not in lengths:
        raise wrong_length(near, min(lengths))
    sign = -1.0 if near.metric == "euclidean" else 1.0
    return [id for _, id in best], [sign * rank for rank, _ in best]


def wrong_length(near: NearVector, stored: int) -> InvalidQuery:
    return InvalidQuery(f"The vector has {len(near.vector)} numbers; the stored ones have {stored}")


def slice_page(query: Query, ids: list[str], secret: bytes) -> slice:
    """Return which part of the nearest ids is on the page."""
    start = 0
    if query.cursor:
        last = read_cursor(query, secret)[0]
        start = next((i + 1 for i, id in enumerate(ids) if id == last), len(ids))
    return slice(start, start + query.limit)


def make_nearest_page(
    query: Query, collection: Collection, ids: list[str], scores: list[float], items: dict[str, Item], secret: bytes
) -> Page:
    part = slice_page(query, ids, secret)
    readable = [
        (project(items[id], query.fields, collection), score)
        for id, score in zip(ids[part], scores[part], strict=True)
        if id in items
    ]
    page = readable[: count_within((json_size(item.data) for item, _ in readable), query.max_bytes)]
    is_cut = len(page) < len(readable)
    more = is_cut or part.stop < len(ids)
    return Page(
        tuple(item for item, _ in page),
        scores=tuple(score for _, score in page),
        total=len(ids),
        cursor=make_cursor(query, (page[-1][0].id if is_cut else ids[part][-1],), secret) if more else "",
    )
