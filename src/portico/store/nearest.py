"""The vectors nearest to one, exactly: the same numbers whichever store the candidates come from."""

from collections.abc import Iterable

import numpy as np

from portico.catalog import Collection
from portico.errors import InvalidQuery
from portico.items import Item
from portico.nearness import is_near_enough, rounded, similarity
from portico.query import Near, Page, Query, count_within, json_size, make_cursor, project, read_cursor

BLOCK = 4000  # vectors compared at a time, so that memory stays bounded


def nearest(rows: Iterable[tuple[str, bytes]], near: Near) -> tuple[list[str], list[float]]:
    """The ids nearest to a vector, with their scores. Equally near ones are in the order of their ids."""
    best: list[tuple[float, str]] = []
    block: list[tuple[str, bytes]] = []
    lengths: set[int] = set()  # of the vectors that there are

    def settle() -> None:
        lengths.update(len(vector) // 4 for _, vector in block)
        kept = [row for row in block if len(row[1]) == 4 * len(near.vector)]
        if kept:
            matrix = np.frombuffer(b"".join(v for _, v in kept), dtype=np.float32).reshape(len(kept), -1)
            ranks = rounded(similarity(near, matrix.astype(np.float64)))
            fitting = is_near_enough(near, ranks).tolist()
            best.extend((rank, id) for rank, (id, _), fits in zip(ranks.tolist(), kept, fitting, strict=True) if fits)
            best.sort(key=lambda pair: (-pair[0], pair[1]))
            del best[near.top :]
        block.clear()

    for row in rows:
        block.append(row)
        if len(block) == BLOCK:
            settle()
    settle()
    if lengths and len(near.vector) not in lengths:
        raise wrong_length(near, min(lengths))
    sign = -1.0 if near.metric == "euclidean" else 1.0
    return [id for _, id in best], [sign * rank for rank, _ in best]


def wrong_length(near: Near, stored: int) -> InvalidQuery:
    return InvalidQuery(f"The vector has {len(near.vector)} numbers; the stored ones have {stored}")


def part_shown(query: Query, ids: list[str], secret: bytes) -> slice:
    """Which part of the nearest a page shows."""
    start = 0
    if query.cursor:
        last = read_cursor(query, secret)[0]
        start = next((i + 1 for i, id in enumerate(ids) if id == last), len(ids))
    return slice(start, start + query.limit)


def page_of_nearest(
    query: Query, collection: Collection, ids: list[str], scores: list[float], found: dict[str, Item], secret: bytes
) -> Page:
    part = part_shown(query, ids, secret)
    readable = [
        (project(found[id], query.fields, collection), score)
        for id, score in zip(ids[part], scores[part], strict=True)
        if id in found
    ]
    shown = readable[: count_within((json_size(item.data) for item, _ in readable), query.max_bytes)]
    is_cut = len(shown) < len(readable)
    more = is_cut or part.stop < len(ids)
    return Page(
        tuple(item for item, _ in shown),
        scores=tuple(score for _, score in shown),
        total=len(ids),
        cursor=make_cursor(query, (shown[-1][0].id if is_cut else ids[part][-1],), secret) if more else "",
    )
