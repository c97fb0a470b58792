"""PostgreSQL's form of what differs between databases: typed parameters, JSON paths, lists. Knows no tables."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from portico.catalog import FieldType, storable
from portico.errors import Unsupported
from portico.store.sql import PLAIN_KEY, Element, Statement

MAX_EXPONENT = 300  # of ten: a number beyond is a float, or too large for one
FEW = 100  # values: so many are looked up one by one, more are hashed


class PostgresDialect:
    """Items are stored in `data` as text and in `doc` as jsonb."""

    def bind(self, params: list[Any], value: Any) -> str:
        params.append(native(value))
        return f"${len(params)}::{_type(value)}"

    def regex(self, text: str, pattern: str) -> str:
        raise Unsupported("A pattern must be resolved before the statement is built")

    def contains(self, text: str, part: str) -> str:
        return f"(strpos({text}, {part}) > 0)"

    def one_of(self, value: str, statement: Statement, options: Sequence[Any]) -> str:
        statement.params.append([native(storable(option) if type(option) is int else option) for option in options])
        values = f"${len(statement.params)}::{_type(options[0])}[]" if options else "'{}'::text[]"
        return f"({value} = ANY({values}))" if len(options) <= FEW else f"({value} IN (SELECT unnest({values})))"

    def reaches(self, path: tuple[str, ...], build: Callable[[Element], str]) -> str:
        arrays, source = _unnest_arrays(path)
        last = f"e{len(path)}.value"
        element = Element(
            number=f"number_of({last})",
            text=f'(text_of({last}) COLLATE "C")',
            boolean=f"boolean_of({last})",
            is_null=f"(jsonb_typeof({last}) = 'null')",
            in_array=f"(jsonb_typeof({source}) = 'array')",
        )
        sources = ", ".join([*arrays, _elements(source, len(path))])
        return f"EXISTS (SELECT 1 FROM {sources} WHERE {build(element)})"

    def exists(self, path: tuple[str, ...]) -> str:
        arrays, source = _unnest_arrays(path)
        is_present = f"coalesce(jsonb_typeof({source}), 'null') <> 'null'"
        return f"EXISTS (SELECT 1 FROM {', '.join(arrays)} WHERE {is_present})" if arrays else f"({is_present})"

    def json_rank(self, path: tuple[str, ...]) -> str:
        return (
            f"(CASE jsonb_typeof({_at(path)}) WHEN 'number' THEN 0 WHEN 'string' THEN 1 WHEN 'boolean' THEN 2"
            " ELSE 3 END)"
        )

    def json_scalars(self, path: tuple[str, ...]) -> list[str]:
        return [self.json_number(path), f'(text_of({_at(path)}) COLLATE "C")', f"boolean_of({_at(path)})"]

    def json_number(self, path: tuple[str, ...]) -> str:
        return f"number_of({_at(path)})"

    def json_extreme(self, function: str, path: tuple[str, ...]) -> str:
        number, text, _ = self.json_scalars(path)
        return f"coalesce(to_jsonb({function}({number})), to_jsonb({function}({text})))"

    def json_key(self, path: tuple[str, ...]) -> str:
        return f"nullif({_at(path)}, 'null'::jsonb)"


DIALECT = PostgresDialect()


def column_type(kind: FieldType) -> str:
    """Return the type of a column. Numbers, times and durations are numeric: exact, and comparable with any number."""
    match kind:
        case FieldType.STRING:
            return 'text COLLATE "C"'
        case FieldType.BOOLEAN:
            return "boolean"
        case _:
            return "numeric"


def native(value: Any) -> Any:
    """Return a number as PostgreSQL's numeric: a float by the digits of its repr, not by its exact value."""
    match value:
        case bool():
            return value
        case int():
            return Decimal(value)
        case float():
            return Decimal(repr(value))
        case _:
            return value


def plain(value: Any) -> Any:
    """Return a number that `native` converted as a number of Python."""
    if not isinstance(value, Decimal):
        return value
    exponent = value.as_tuple().exponent
    if (isinstance(exponent, int) and exponent < 0) or value.adjusted() > MAX_EXPONENT:
        return float(value)
    return storable(int(value))


def _type(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int() | float():
            return "numeric"
        case _:
            return "text"


def _at(path: Sequence[str]) -> str:
    return f"(doc{''.join(_step(step) for step in path)})"


def _step(step: str) -> str:
    return f" -> {json_key(step)}"


def json_key(name: str) -> str:
    """Return a key as SQL text: as it is if it is plain, else in hexadecimal digits, which need no quoting."""
    if PLAIN_KEY.match(name):
        return f"'{name}'"
    return f"convert_from(decode('{name.encode().hex()}', 'hex'), 'UTF8')"


def _unnest_arrays(path: tuple[str, ...]) -> tuple[list[str], str]:
    """Return the arrays of objects along a path, as tables, and the JSON at its end."""
    source = _at(path[:1])
    tables: list[str] = []
    for depth, step in enumerate(path[1:], 1):
        tables.append(_elements(source, depth))
        source = f"(e{depth}.value{_step(step)})"
    return tables, source


def _elements(source: str, depth: int) -> str:
    return f"jsonb_array_elements(elements_of({source})) AS e{depth}(value)"
