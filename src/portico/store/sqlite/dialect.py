"""SQLite's form of what differs between databases: JSON paths, patterns, lists. Knows no tables."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from portico.catalog import storable
from portico.store.sql import PLAIN_KEY, Element, Statement


class SqliteDialect:
    """JSON paths in SQLite."""

    def bind(self, params: list[Any], value: Any) -> str:
        params.append(value)
        return f"?{len(params)}"

    def regex(self, text: str, pattern: str) -> str:
        return f"portico_regex({text}, {pattern})"

    def contains(self, text: str, part: str) -> str:
        return f"(instr({text}, {part}) > 0)"

    def one_of(self, value: str, statement: Statement, options: Sequence[Any]) -> str:
        # As one parameter: there may be more values than SQLite takes parameters.
        numbers = [storable(option) if type(option) is int else option for option in options]
        return f"({value} IN (SELECT value FROM json_each({statement.bind(msgspec.json.encode(numbers).decode())})))"

    def reaches(self, path: tuple[str, ...], build: Callable[[Element], str]) -> str:
        arrays, source = _unnest_arrays(path)
        last = f"e{len(path)}"
        element = Element(
            number=f"(CASE WHEN {last}.type IN ('integer', 'real') THEN {last}.atom END)",
            text=f"(CASE {last}.type WHEN 'text' THEN {last}.atom END)",
            boolean=f"(CASE WHEN {last}.type IN ('true', 'false') THEN {last}.atom END)",
            is_null=f"({last}.type = 'null')",
            in_array=f"(json_type({source}) = 'array')",
        )
        sources = ", ".join([*arrays, f"{_elements(source)} {last}"])
        return f"EXISTS (SELECT 1 FROM {sources} WHERE {build(element)})"

    def exists(self, path: tuple[str, ...]) -> str:
        arrays, source = _unnest_arrays(path)
        is_present = f"coalesce(json_type({source}), 'null') <> 'null'"
        return f"EXISTS (SELECT 1 FROM {', '.join(arrays)} WHERE {is_present})" if arrays else f"({is_present})"

    def json_rank(self, path: tuple[str, ...]) -> str:
        return (
            f"(CASE json_type(data, {_json_path(path)}) WHEN 'integer' THEN 0 WHEN 'real' THEN 0"
            " WHEN 'text' THEN 1 WHEN 'true' THEN 2 WHEN 'false' THEN 2 ELSE 3 END)"
        )

    def json_scalars(self, path: tuple[str, ...]) -> list[str]:
        return [f"(CASE WHEN {self.json_rank(path)} < 3 THEN data ->> {_json_path(path)} END)"]

    def json_number(self, path: tuple[str, ...]) -> str:
        return f"(CASE WHEN {self.json_rank(path)} = 0 THEN data ->> {_json_path(path)} END)"

    def json_extreme(self, function: str, path: tuple[str, ...]) -> str:
        text = f"{function}(CASE WHEN {self.json_rank(path)} = 1 THEN data ->> {_json_path(path)} END)"
        return (
            f"coalesce({function}({self.json_number(path)}), CASE WHEN {text} IS NOT NULL THEN json_quote({text}) END)"
        )

    def json_key(self, path: tuple[str, ...]) -> str:
        value = f"data -> {_json_path(path)}"
        return (
            f"(CASE coalesce(json_type(data, {_json_path(path)}), 'null') WHEN 'null' THEN NULL"
            f" WHEN 'integer' THEN {value} ->> '$' WHEN 'real' THEN {value} ->> '$'"
            f" WHEN 'object' THEN portico_canonical({value}) WHEN 'array' THEN portico_canonical({value})"
            f" ELSE {value} END)"
        )


DIALECT = SqliteDialect()


def _unnest_arrays(path: tuple[str, ...]) -> tuple[list[str], str]:
    """Return the arrays of objects along a path, as tables, and the JSON at its end."""
    source = f"(data -> {_json_path(path[:1])})"
    tables: list[str] = []
    for depth, step in enumerate(path[1:], 1):
        tables.append(f"{_elements(source)} e{depth}")
        source = f"(CASE e{depth}.type WHEN 'object' THEN e{depth}.value -> {_json_path((step,))} END)"
    return tables, source


def _elements(source: str) -> str:
    """Return a table of an array's elements; of one row for any other value, and of none for a missing one."""
    return (
        f"json_each(CASE WHEN {source} IS NULL THEN '[]' WHEN json_type({source}) = 'array' THEN {source}"
        f" ELSE json_array(json({source})) END)"
    )


def _json_path(path: Sequence[str]) -> str:
    """Return a path as SQL text: as it is if its keys are plain, else in hexadecimal digits, which need no quoting."""
    if all(map(PLAIN_KEY.match, path)):
        return "'$" + "".join(f'."{step}"' for step in path) + "'"
    # SQLite reads the keys of a path as JSON strings.
    encoded = "$" + "".join(f".{msgspec.json.encode(step).decode()}" for step in path)
    return f"CAST(X'{encoded.encode().hex()}' AS TEXT)"
