"""Collections as a database lays them out: numbered tables and columns, and the rows in them. Knows no connection."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import msgspec

from portico.catalog import NUMERIC, Collection, Field, FieldType
from portico.errors import Conflict, FeedExpired, InvalidCursor, UnknownCollection
from portico.items import Change, ChangeKind, Item, content_hash, version_of
from portico.query import Query, item_bytes, project, read_cursor
from portico.store import Load
from portico.store.health import StoreFault, UnreadableRow
from portico.store.ledger import moment

INDEXED_FROM = 1000  # items, before columns are worth an index
INDEXED_COLUMNS = 16  # of a collection
INDEXED_LENGTH = 80  # characters: longer texts are looked for by words, not by their order
SCAN_BATCH = 1000
ADOPTED_AT_ONCE = 5000  # items that change their source in one transaction
ABOUT = ("title", "description", "type", "singular", "language", "weights", "private", "details")

T = TypeVar("T")

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class Table:
    """A collection as it lies in the database."""

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
        """What is said of the collection besides its fields."""
        return text({name: getattr(self.collection, name) for name in ABOUT})

    def values(self, data: Mapping[str, Any]) -> list[Any]:
        fields = self.collection.fields
        return [fields[name].typed_value(data) for name in self.columns]

    def field_rows(self) -> list[tuple[Any, ...]]:
        """The fields as the database keeps them."""
        return [
            (self.number, position, f.name, f.type, f.path, f.declared, f.description, self.columns.get(f.name))
            for position, f in enumerate(self.collection.fields.values())
        ]

    def item(self, id: str, data: str, revision: int, digest: str) -> Item:
        try:
            return Item(id, self.collection.name, _decode_object(data), version_of(revision, digest))
        except _UNREADABLE as error:
            raise UnreadableRow(f"The item {id!r} of {self.collection.name}") from error

    def row_before(self, id: str, data: str, revision: int, digest: str) -> "Row":
        """The row that a write replaces. A damaged one counts as empty, so that it can be written anew or removed."""
        try:
            return self.row(id, data, revision, digest)
        except UnreadableRow:
            return Row(Item(id, self.collection.name, {}, version_of(revision, "")), revision, "", "{}")

    def find_damage(self, id: str, data: str, revision: int, digest: str) -> str:
        """Say what is wrong with a row; empty if nothing is. Its digest tells whether it is what was written."""
        try:
            item = self.item(id, data, revision, digest)
        except UnreadableRow as error:
            return error.message
        is_whole = content_hash(item.data) == digest
        return "" if is_whole else f"The item {id!r} of {self.collection.name} is not what was written"

    def row(self, id: str, data: str, revision: int, digest: str) -> "Row":
        return Row(self.item(id, data, revision, digest), revision, digest, data)


@dataclass(frozen=True)
class Schema:
    """All tables as of one change of their shape."""

    number: int
    tables: Mapping[str, Table]

    @cached_property
    def collections(self) -> Mapping[str, Collection]:
        return {name: table.collection for name, table in self.tables.items()}

    @cached_property
    def names(self) -> Mapping[int, str]:
        return {table.number: name for name, table in self.tables.items()}

    def table(self, name: str) -> Table:
        found = self.tables.get(name)
        if found is None:
            raise UnknownCollection(
                f"There is no collection {name!r}",
                collection=name,
                hint=f"Known collections: {', '.join(self.tables) or 'none yet'}.",
            )
        return found


@dataclass(frozen=True, slots=True)
class Row:
    """A stored item with what is kept beside it."""

    item: Item
    revision: int
    digest: str  # empty if the data is damaged
    raw: str  # its data as JSON text


def text(value: Any) -> str:
    return encode(value).decode()


def _decode_object(data: str) -> dict[str, Any]:
    found = decode(data)
    if not isinstance(found, dict):
        raise TypeError(f"{type(found).__name__} in the place of an object")
    return cast("dict[str, Any]", found)


# What reading a row may raise that holds anything at all. SQLite's columns take any type.
_UNREADABLE = (msgspec.DecodeError, TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError)


def read_rows(
    make: Callable[..., T], rows: Iterable[Sequence[Any]], report: Callable[[UnreadableRow], None]
) -> list[T]:
    """Make something of each row. One that cannot be read is reported and left out."""
    made: list[T] = []
    for row in rows:
        try:
            made.append(make(*row))
        except UnreadableRow as error:
            report(error)
    return made


def read_table(number: int, name: str, about: str, rows: Iterable[tuple[Any, ...]]) -> Table:
    """A table from what the database says of it and of its fields, in their order."""
    try:
        return _read_table(number, name, about, rows)
    except _UNREADABLE as error:
        hint = "`portico check` looks the store over; restore a backup."
        raise StoreFault(f"The description of {name} cannot be read", hint=hint, is_damage=True) from error


def _read_table(number: int, name: str, about: str, rows: Iterable[tuple[Any, ...]]) -> Table:
    fields: dict[str, Field] = {}
    columns: dict[str, str] = {}
    for field, kind, path, declared, description, column in rows:
        fields[field] = Field(field, FieldType(kind), path, bool(declared), description)
        if column:
            columns[field] = column
    said = decode(about)
    said["details"] = tuple(said.get("details", ()))
    return Table(number, Collection(name, fields, **said), columns)


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
    return Change(seq, _KINDS[kind], item, tuple(decode(patch)), moment(at), tuple(decode(undo)))


def read_changes(
    names: Mapping[int, str], rows: Iterable[Sequence[Any]], report: Callable[[UnreadableRow], None]
) -> list[Change]:
    """Read rows of the feed. A damaged one is reported and keeps its number, so that the feed goes on behind it."""
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
            changes.append(Change(seq, "update", item, (), moment(0), is_readable=False))
    return changes


_KINDS: Mapping[str, ChangeKind] = {"create": "create", "update": "update", "delete": "delete"}


def from_json(value: Any) -> Any:
    return decode(value) if isinstance(value, str) else value


# Changing the shape of a table


def combined(known: Collection, said: Collection) -> Collection:
    """What the data taught, under what the site file says."""
    fields = {name: f for name, f in known.fields.items() if not f.declared or name in said.fields}
    return replace(said, fields={**fields, **said.fields})


def undeclared(table: Table, wanted: Collection) -> list[str]:
    """Fields that are no longer declared: the data says anew what type they have (see `relearned`)."""
    return [name for name in table.collection.fields if name not in wanted.fields]


def relearned(wanted: Collection, names: Iterable[str], data: Mapping[str, Any]) -> Collection:
    return wanted.widened({name: data[name] for name in names if name in data})


def same_storage(before: Field | None, now: Field) -> bool:
    if before is None or before.where != now.where:
        return False
    return before.type == now.type or {before.type, now.type} <= NUMERIC


def reshaped(
    table: Table,
    wanted: Collection,
    last: int,
    stays: Callable[[Field | None, Field], bool],
    unused: Callable[[Field], str | None] = lambda known: None,
) -> Table:
    """The table for a collection's new fields. A known one may stay in its column; others get one of their own.

    Columns are numbered on from the last there ever was. One that is filled anew may take a column that is not in use.
    """
    before = table.collection.fields
    columns = {
        name: column
        for name, column in table.columns.items()
        if _is_placed(wanted, name) and stays(before.get(name), wanted.fields[name])
    }
    for name, known in wanted.fields.items():
        if known.is_typed and name not in columns:
            column = unused(known) if needs_filling(before.get(name), known) else None
            last += column is None
            columns[name] = column or f"f{last}"
    return Table(table.number, wanted, columns)


def _is_placed(collection: Collection, name: str) -> bool:
    known = collection.fields.get(name)
    return known is not None and known.is_typed


def refilled(before: Table, after: Table) -> list[Field]:
    """The fields whose stored form has to be computed anew from the data."""
    known = before.collection.fields
    return [f for f in after.collection.fields.values() if needs_filling(known.get(f.name), f)]


def needs_filling(before: Field | None, now: Field) -> bool:
    """Whether items that are there already may have a value that is not stored in this form."""
    if before is None:
        # A field that is found in the data is known from its first value on.
        return now.declared or bool(now.path)
    return not same_storage(before, now)


def column_number(name: str) -> int:
    """The number of a typed column; 0 for the columns that every table has."""
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
    left out. `is_cut` tells that the database has more rows than it sent.
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
        size += item_bytes(item, _bytes_of(row[1]), query)
        if items and query.max_bytes and size > query.max_bytes:
            return tuple(items), position
        items.append(item)
        position = row[4:]
    return tuple(items), position if is_cut else ()


def _bytes_of(data: str) -> int:
    return len(data) if data.isascii() else len(data.encode())


def position_of(query: Query, kinds: str, secret: bytes) -> list[Any]:
    """Where a cursor stands; refused if a field it sorts by has changed its kind since."""
    made_for, *position = read_cursor(query, secret)
    if made_for != kinds:
        raise InvalidCursor("A field in the order has changed its type", hint="Start again without a cursor.")
    return position


# Refusals


def overtaken(load: Load) -> Conflict:
    return Conflict(f"Another load of {load.source} has begun", source=load.source, hint="Let that one finish.")


def feed_expired(since: int, oldest: int, newest: int) -> FeedExpired:
    return FeedExpired(
        f"Changes after {since} are not kept; the feed has {oldest} to {newest}",
        oldest=oldest,
        newest=newest,
        hint="Read the items anew and follow from the newest change.",
    )
