"""Plans what a batch of writes does to the items it names. Reads and writes nothing: each store applies the plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import cast

from portico.catalog import Collection
from portico.errors import AlreadyExists, InvalidParams, UnknownItem, VersionMismatch
from portico.items import Change, Item, content_hash, diff, merge, parts_of, problem_with, version_of
from portico.store.health import UnreadableRow
from portico.store.records import LoadResult, Merge, Put, Remove, SourcedItem, Write
from portico.store.shape import check_shape
from portico.store.tables import StoredRow, encode_text


@dataclass(slots=True)
class WritePlan:
    """What becomes of each item, and the changes for the feed, in order and not yet numbered."""

    collection: Collection  # with the fields of all that is written
    before: Mapping[str, StoredRow]
    at: datetime
    after: dict[str, StoredRow | None] = field(default_factory=dict[str, StoredRow | None])
    changes: list[Change] = field(default_factory=list[Change])
    raws: list[str] = field(default_factory=list[str])  # beside changes: the item's data as JSON text
    keeps_types: list[bool] = field(default_factory=list[bool])  # beside changes: whether the write widened no type
    items: list[Item] = field(default_factory=list[Item])  # for every write: the item after it, or before its removal

    @property
    def inserts(self) -> list[StoredRow]:
        return [row for id, row in self.after.items() if row and id not in self.before]

    @property
    def updates(self) -> list[StoredRow]:
        return [row for id, row in self.after.items() if row and id in self.before]

    @property
    def deletes(self) -> list[str]:
        return [id for id, row in self.after.items() if row is None and id in self.before]

    def current(self, id: str) -> StoredRow | None:
        return self.after[id] if id in self.after else self.before.get(id)

    def put(self, put: Put, digest: str) -> None:
        old = self.current(put.id)
        version = version_of(old.revision + 1 if old else 1, digest)
        self.restore(Item(put.id, self.collection.name, put.data, version), keeps_types=put.keeps_types)

    def restore(self, item: Item, *, keeps_types: bool = False) -> None:
        """Put an item that has its version already."""
        old = self.current(item.id)
        self.collection = self.collection.widen(item.data, keeps_types=keeps_types)
        patch = diff(old.item.data, item.data) if old else ()
        undo = diff(item.data, old.item.data) if old else ()
        row = self.after[item.id] = StoredRow(item, *parts_of(item.version), encode_text(item.data))
        self._add_change(Change(0, "update" if old else "create", item, patch, self.at, undo), row, keeps_types)

    def remove(self, row: StoredRow) -> None:
        self.after[row.item.id] = None
        self._add_change(Change(0, "delete", row.item, (), self.at), row)

    def _add_change(self, change: Change, row: StoredRow, keeps_types: bool = False) -> None:
        self.changes.append(change)
        self.raws.append(row.raw)
        self.keeps_types.append(keeps_types)


def check_ids(writes: Sequence[Write]) -> None:
    for write in writes:
        problem = problem_with(write.id, {})
        if problem:
            raise InvalidParams(f"{write.id[:80]!a} cannot be an id: {problem}")


def plan_writes(
    collection: Collection, writes: Sequence[Write], before: Mapping[str, StoredRow], at: datetime
) -> WritePlan:
    """Return the plan for all of the writes; raise the reason why one of them cannot be done."""
    plan = WritePlan(collection, before, at)
    for write in writes:
        old = plan.current(write.id)
        _check_expected(collection, write, old)
        if old is None and not isinstance(write, Put):
            raise UnknownItem(f"{collection.name} has no item {write.id!r}", collection=collection.name, id=write.id)
        if isinstance(write, Merge) and old and not old.digest:
            raise UnreadableRow(f"The item {write.id!r} of {collection.name}")
        if isinstance(write, Remove):
            if old:
                plan.remove(old)
                plan.items.append(old.item)
            continue
        written = write.data
        if write.keeps_types:
            written = check_shape(plan.collection, written)
        data = merge(old.item.data, written) if isinstance(write, Merge) and old else dict(written)
        put = Put(write.id, data, keeps_types=write.keeps_types)
        digest = _check_and_hash(put)
        if old is None or old.digest != digest:
            plan.put(put, digest)
        plan.items.append(cast("StoredRow", plan.current(write.id)).item)
    return plan


def group_by_collection(writes: Sequence[tuple[str, Write]]) -> dict[str, list[Write]]:
    """Return writes by collection. The names are sorted, so that no two transactions wait for each other."""
    groups: dict[str, list[Write]] = {name: [] for name in sorted({name for name, _ in writes})}
    for name, write in writes:
        groups[name].append(write)
    return groups


def items_in_order(writes: Sequence[tuple[str, Write]], plans: Mapping[str, WritePlan]) -> list[Item]:
    """Return the items of all plans in the order of the writes."""
    items = {name: iter(plan.items) for name, plan in plans.items()}
    return [next(items[name]) for name, _ in writes]


def plan_removal(collection: Collection, before: Mapping[str, StoredRow], at: datetime) -> WritePlan:
    plan = WritePlan(collection, before, at)
    for row in before.values():
        plan.remove(row)
    return plan


def plan_restore(
    collection: Collection, items: Sequence[Item], before: Mapping[str, StoredRow], at: datetime
) -> WritePlan:
    """Return the plan for items that keep the versions they have."""
    plan = WritePlan(collection, before, at)
    for item in items:
        old = plan.current(item.id)
        if old is None or old.item.version != item.version:
            plan.restore(item)
    return plan


def group_by_source(items: Sequence[SourcedItem]) -> list[tuple[str, list[Item]]]:
    groups: dict[str, list[Item]] = {}
    for sourced in items:
        groups.setdefault(sourced.source, []).append(sourced.item)
    return list(groups.items())


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What a batch of a load does. Unchanged items that the run sees for the first time get its source."""

    writes: WritePlan
    result: LoadResult
    unchanged: tuple[str, ...]


def plan_load(
    collection: Collection, puts: Sequence[Put], before: Mapping[str, StoredRow], run_ids: set[str], at: datetime
) -> LoadPlan:
    plan = WritePlan(collection, before, at)
    counts = {"added": 0, "changed": 0, "unchanged": 0}
    repeated: list[str] = []
    unchanged: list[str] = []
    run_ids = set(run_ids)
    for put in puts:
        digest = _check_and_hash(put)
        old = plan.current(put.id)
        if old and old.digest == digest:
            counts["unchanged"] += 1
            if put.id not in run_ids:
                unchanged.append(put.id)
        elif put.id in run_ids:
            repeated.append(put.id)
        else:
            plan.put(put, digest)
            counts["changed" if old else "added"] += 1
        run_ids.add(put.id)
    return LoadPlan(plan, LoadResult(**counts, repeated=tuple(repeated)), tuple(unchanged))


def _check_and_hash(put: Put) -> str:
    problem = problem_with(put.id, put.data)
    if problem:
        raise InvalidParams(f"{put.id[:80]!r} cannot be stored: {problem}", id=put.id[:80])
    return content_hash(put.data)


def _check_expected(collection: Collection, write: Write, old: StoredRow | None) -> None:
    if write.expect is None:
        return
    if write.expect == "" and old:
        raise AlreadyExists(
            f"{collection.name} already has an item {write.id!r}",
            id=write.id,
            hint=f"Use update_{collection.one}, or another id.",
        )
    if write.expect and (old is None or old.item.version != write.expect):
        raise VersionMismatch(
            f"{write.id!r} no longer has version {write.expect}",
            id=write.id,
            expected=write.expect,
            actual=old.item.version if old else None,
            hint="Read the item again, then apply the change to it.",
        )
