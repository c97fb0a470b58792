"""The layout of collections in a database: numbered tables and columns, and their rows. Knows no connection."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import msgspec

from portico.catalog import NUMERIC, Collection, Field, FieldType
from portico.errors import Conflict, FeedExpired, InvalidCursor, UnknownCollection
from portico.items import Change, ChangeKind, Item, content_hash, version_of
from portico.query import Query, item_bytes, project, read_cursor
from portico.store.encoding import from_micros
from portico.store.health import StoreFault, UnreadableRow
from portico.store.records import Load

INDEXED_FROM = 1000  # items, before columns are worth an index
INDEXED_COLUMNS = 16  # of a collection
INDEXED_LENGTH = 80  # characters: longer texts are searched by words, not sorted
SCAN_BATCH = 1000
ADOPT_BATCH = 5000  # items that change their source in one transaction
MAX_PROBLEMS = 10  # that a check reports
CHANGE_COLUMNS = "seq, collection, id, kind, version, data, patch, undo, at"
ABOUT = ("title", "description", "type", "singular", "language", "weights", "private", "details", "roles", "unknown")
INFERRED = (
    "format",
    "unit",
    "role",
    "target",
    "settled",
    "keys",
)  # of a field, stored with the description of its collection

T = TypeVar("T")

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class Table:
    """The table of a collection."""

    number: int
    collection: Collection
    columns: Mapping[str, str]  # field -> column

    @property
    def name(self) -> str:
        return f"items_{self.number}"

    @property
    def vector_fields(self) -> list[Field]:
        return [f for f in self.collection.fields.values() if f.type == FieldType.VECTOR]

    @property
    def about(self) -> str:
        """The description of the collection besides the names and types of its fields, as JSON."""
        inferred = {
            f.name: values
            for f in self.collection.fields.values()
            if (values := {name: value for name in INFERRED if (value := getattr(f, name))})
        }
        return encode_text({**{name: getattr(self.collection, name) for name in ABOUT}, "fields": inferred})

    def values(self, data: Mapping[str, Any]) -> list[Any]:
        fields = self.collection.fields
        return [fields[name].comparable_value(data) for name in self.columns]

    def field_rows(self) -> list[tuple[Any, ...]]:
        """Return the rows of the table `fields`."""
        return [
            (self.number, position, f.name, f.type, f.path, f.declared, f.description, self.columns.get(f.name))
            for position, f in enumerate(self.collection.fields.values())
        ]

    def item(self, id: str, data: str, revision: int, digest: str) -> Item:
        try:
            return Item(id, self.collection.name, _decode_object(data), version_of(revision, digest))
        except _UNREADABLE as error:
            raise UnreadableRow(f"The item {id!r} of {self.collection.name}") from error

    def row_before(self, id: str, data: str, revision: int, digest: str) -> "StoredRow":
        """Return the row that a write replaces. A damaged one counts as empty, so that it can be replaced."""
        try:
            return self.row(id, data, revision, digest)
        except UnreadableRow:
            return StoredRow(Item(id, self.collection.name, {}, version_of(revision, "")), revision, "", "{}")

    def find_damage(self, id: str, data: str, revision: int, digest: str) -> str:
        """Describe the damage of a row; empty if there is none. Its digest tells whether it is what was written."""
        try:
            item = self.item(id, data, revision, digest)
        except UnreadableRow as error:
            return error.message
        is_whole = content_hash(item.data) == digest
        return "" if is_whole else f"The item {id!r} of {self.collection.name} is not what was written"

    def row(self, id: str, data: str, revision: int, digest: str) -> "StoredRow":
        return StoredRow(self.item(id, data, revision, digest), revision, digest, data)


@dataclass(frozen=True)
class Schema:
    """All tables as of one change of their columns."""

    number: int
    tables: Mapping[str, Table]

    @cached_property
    def collections(self) -> Mapping[str, Collection]:
        return {name: table.collection for name, table in self.tables.items()}

    @cached_property
    def names(self) -> Mapping[int, str]:
        return {table.number: name for name, table in self.tables.items()}

    def table(self, name: str) -> Table:
        table = self.tables.get(name)
        if table is None:
            raise UnknownCollection(
                f"There is no collection {name!r}",
                collection=name,
                hint=f"Known collections: {', '.join(self.tables) or 'none yet'}.",
            )
        return table


@dataclass(frozen=True, slots=True)
class StoredRow:
    """An item with the columns stored beside it."""

    item: Item
    revision: int
    digest: str  # empty if the data is damaged
    raw: str  # its data as JSON encode_text


def encode_text(value: Any) -> str:
    return encode(value).decode()


def _decode_object(data: str) -> dict[str, Any]:
    value = decode(data)
    if not isinstance(value, dict):
        raise TypeError(f"{type(value).__name__} in place of an object")
    return cast("dict[str, Any]", value)


# What reading a damaged row may raise. SQLite's columns take any type.
_UNREADABLE = (msgspec.DecodeError, TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError)


def read_rows(
    make: Callable[..., T], rows: Iterable[Sequence[Any]], report: Callable[[UnreadableRow], None]
) -> list[T]:
    """Return what `make` returns for every row. A row that cannot be read is reported and left out."""
    results: list[T] = []
    for row in rows:
        try:
            results.append(make(*row))
        except UnreadableRow as error:
            report(error)
    return results


def read_table(number: int, name: str, about: str, rows: Iterable[tuple[Any, ...]]) -> Table:
    """Return the table that these rows of `collections` and `fields` describe."""
    try:
        return _read_table(number, name, about, rows)
    except _UNREADABLE as error:
        hint = "Run `portico check` and restore a backup."
        raise StoreFault(f"The description of {name} cannot be read", hint=hint, is_damage=True) from error


def _read_table(number: int, name: str, about: str, rows: Iterable[tuple[Any, ...]]) -> Table:
    fields: dict[str, Field] = {}
    columns: dict[str, str] = {}
    about_collection = decode(about)
    inferred = about_collection.pop("fields", {})
    for field, kind, path, declared, description, column in rows:
        others: dict[str, Any] = {**inferred.get(field, {})}
        keys = tuple(others.pop("keys", ()))
        fields[field] = Field(field, FieldType(kind), path, bool(declared), description, keys=keys, **others)
        if column:
            columns[field] = column
    about_collection["details"] = tuple(about_collection.get("details", ()))
    return Table(number, Collection(name, fields, **about_collection), columns)


def read_change(
    names: Mapping[int, str],
    seq: int,
    collection: int,
    id: str,
    kind: str,
    version: str,
    data: str,
    patch: str,
    undo: str,
    at: int,
) -> Change:
    item = Item(id, names[collection], _decode_object(data), version)
    return Change(seq, _KINDS[kind], item, tuple(decode(patch)), from_micros(at), tuple(decode(undo)))


def read_changes(
    names: Mapping[int, str], rows: Iterable[Sequence[Any]], report: Callable[[UnreadableRow], None]
) -> list[Change]:
    """Read rows of the feed. A damaged one is reported and keeps its number, so that the feed continues after it."""
    changes: list[Change] = []
    for row in rows:
        try:
            changes.append(read_change(names, *row))
        except _UNREADABLE as error:
            seq, collection, id = row[:3]
            damaged = UnreadableRow(f"Change {seq} ({names.get(collection, collection)}/{id})")
            damaged.__cause__ = error
            report(damaged)
            item = Item(str(id), names.get(collection, ""), {})
            changes.append(Change(seq, "update", item, (), from_micros(0), is_readable=False))
    return changes


_KINDS: Mapping[str, ChangeKind] = {"create": "create", "update": "update", "delete": "delete"}


def from_json(value: Any) -> Any:
    return decode(value) if isinstance(value, str) else value


# Changing the columns of a table


def merge_description(stored: Collection, declared: Collection) -> Collection:
    """Return the declared collection with the fields that were inferred from data."""
    fields = {name: f for name, f in stored.fields.items() if not f.declared or name in declared.fields}
    fields.update((name, _with_inferred(f, stored.fields.get(name))) for name, f in declared.fields.items())
    return replace(declared, fields=fields)


def _with_inferred(field: Field, stored: Field | None) -> Field:
    """Return a declared field with the role and the keys that were found for it, unless it says otherwise."""
    if stored is None:
        return field
    return replace(field, role=field.role or stored.role, keys=() if field.path else stored.keys)


def list_undeclared(table: Table, target: Collection) -> list[str]:
    """Return the fields that are no longer declared: their types are inferred again (see `relearn`)."""
    return [name for name in table.collection.fields if name not in target.fields]


def relearn(target: Collection, names: Iterable[str], data: Mapping[str, Any]) -> Collection:
    return target.widen({name: data[name] for name in names if name in data})


def has_same_storage(before: Field | None, now: Field) -> bool:
    if before is None or (before.where, before.keys) != (now.where, now.keys):
        return False
    return before.type == now.type or {before.type, now.type} <= NUMERIC


def change_columns(
    table: Table,
    target: Collection,
    last: int,
    keeps_column: Callable[[Field | None, Field], bool],
    take_unused: Callable[[Field], str | None] = lambda field: None,
) -> Table:
    """Return the table for a collection's new fields. A field may keep its column; others get a new one.

    New columns are numbered after the last there ever was. A field that is refilled may take an unused column.
    """
    before = table.collection.fields
    columns = {
        name: column
        for name, column in table.columns.items()
        if name in target.fields and target.fields[name].is_typed
        if keeps_column(before.get(name), target.fields[name])
    }
    for name, field in target.fields.items():
        if field.is_typed and name not in columns:
            column = take_unused(field) if needs_filling(before.get(name), field) else None
            last += column is None
            columns[name] = column or f"f{last}"
    return Table(table.number, target, columns)


def list_unfilled(before: Table, after: Table) -> list[Field]:
    """Return the fields whose stored form has to be computed from the data again."""
    fields = before.collection.fields
    return [field for field in after.collection.fields.values() if needs_filling(fields.get(field.name), field)]


def needs_filling(before: Field | None, now: Field) -> bool:
    """Return whether existing items may have a value that is not stored in this form."""
    if before is None:
        # An inferred field exists from its first value on.
        return now.declared or bool(now.path)
    return not has_same_storage(before, now)


def column_number(name: str) -> int:
    """Return the number of a typed column; 0 for the columns that every table has."""
    return int(name[1:]) if name[:1] == "f" and name[1:].isdigit() else 0


# Cursors


def fill_page(
    rows: Iterable[Sequence[Any]],
    query: Query,
    table: Table,
    report: Callable[[UnreadableRow], None],
    *,
    is_cut: bool = False,
) -> tuple[tuple[Item, ...], Sequence[Any]]:
    """Return the items of a page, and the position of the last row if more follows. Reads one row beyond the page.

    A row is an item's id, data, revision and digest, and then its position. One that cannot be read is reported and
    left out. `is_cut` says that the database has more rows than it sent.
    """
    items: list[Item] = []
    position: Sequence[Any] = ()
    size = 0
    for number, row in enumerate(rows):
        if number == query.limit:
            return tuple(items), position
        try:
            item = project(table.item(*row[:4]), query.fields, table.collection)
        except UnreadableRow as error:
            report(error)
            position = row[4:]
            continue
        stored_bytes = len(row[1]) if row[1].isascii() else len(row[1].encode())
        size += item_bytes(item, stored_bytes, query)
        if items and query.max_bytes and size > query.max_bytes:
            return tuple(items), position
        items.append(item)
        position = row[4:]
    return tuple(items), position if is_cut else ()


def position_of(query: Query, kinds: str, secret: bytes) -> list[Any]:
    """Return the position of a cursor; raise InvalidCursor if a field it sorts by has changed its type."""
    cursor_kinds, *position = read_cursor(query, secret)
    if cursor_kinds != kinds:
        raise InvalidCursor("A field in the order has changed its type", hint="Start again without a cursor.")
    return position


# Errors


def load_superseded(load: Load) -> Conflict:
    return Conflict(f"Another load of {load.source} has begun", source=load.source, hint="Wait until it has finished.")


def feed_expired(since: int, oldest: int, newest: int) -> FeedExpired:
    return FeedExpired(
        f"Changes after {since} are no longer stored; the feed has {oldest} to {newest}",
        oldest=oldest,
        newest=newest,
        hint="Read the items again and follow from the newest change.",
    )
