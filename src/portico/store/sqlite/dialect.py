"""How SQLite says what dialects say differently: JSON paths, patterns, lists. Knows no tables."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from portico.catalog import storable
from portico.store.sql import Element, Statement


class SqliteDialect:
    """JSON paths in SQLite. Path steps are checked by `segments`, so they can stand in the text."""

    def bound(self, params: list[Any], value: Any) -> str:
        params.append(value)
        return f"?{len(params)}"

    def regex(self, text: str, pattern: str) -> str:
        return f"portico_regex({text}, {pattern})"

    def contains(self, text: str, part: str) -> str:
        return f"(instr({text}, {part}) > 0)"

    def one_of(self, value: str, statement: Statement, wanted: Sequence[Any]) -> str:
        # As one parameter: there may be more values than SQLite takes parameters.
        numbers = [storable(each) if type(each) is int else each for each in wanted]
        return f"({value} IN (SELECT value FROM json_each({statement.bind(msgspec.json.encode(numbers).decode())})))"

    def reaches(self, path: tuple[str, ...], build: Callable[[Element], str]) -> str:
        opened, source = _opened(path)
        last = f"e{len(path)}"
        element = Element(
            number=f"(CASE WHEN {last}.type IN ('integer', 'real') THEN {last}.atom END)",
            text=f"(CASE {last}.type WHEN 'text' THEN {last}.atom END)",
            boolean=f"(CASE WHEN {last}.type IN ('true', 'false') THEN {last}.atom END)",
            is_null=f"({last}.type = 'null')",
            in_array=f"(json_type({source}) = 'array')",
        )
        sources = ", ".join([*opened, f"{_unwrapped(source)} {last}"])
        return f"EXISTS (SELECT 1 FROM {sources} WHERE {build(element)})"

    def exists(self, path: tuple[str, ...]) -> str:
        opened, source = _opened(path)
        there = f"coalesce(json_type({source}), 'null') <> 'null'"
        return f"EXISTS (SELECT 1 FROM {', '.join(opened)} WHERE {there})" if opened else f"({there})"

    def json_rank(self, path: tuple[str, ...]) -> str:
        return (
            f"(CASE json_type(data, '{_json_path(path)}') WHEN 'integer' THEN 0 WHEN 'real' THEN 0"
            " WHEN 'text' THEN 1 WHEN 'true' THEN 2 WHEN 'false' THEN 2 ELSE 3 END)"
        )

    def json_scalars(self, path: tuple[str, ...]) -> list[str]:
        return [f"(CASE WHEN {self.json_rank(path)} < 3 THEN data ->> '{_json_path(path)}' END)"]

    def json_number(self, path: tuple[str, ...]) -> str:
        return f"(CASE WHEN {self.json_rank(path)} = 0 THEN data ->> '{_json_path(path)}' END)"

    def json_extreme(self, function: str, path: tuple[str, ...]) -> str:
        text = f"{function}(CASE WHEN {self.json_rank(path)} = 1 THEN data ->> '{_json_path(path)}' END)"
        return (
            f"coalesce({function}({self.json_number(path)}), CASE WHEN {text} IS NOT NULL THEN json_quote({text}) END)"
        )

    def json_key(self, path: tuple[str, ...]) -> str:
        found = f"data -> '{_json_path(path)}'"
        return (
            f"(CASE coalesce(json_type(data, '{_json_path(path)}'), 'null') WHEN 'null' THEN NULL"
            f" WHEN 'integer' THEN {found} ->> '$' WHEN 'real' THEN {found} ->> '$'"
            f" WHEN 'object' THEN portico_canonical({found}) WHEN 'array' THEN portico_canonical({found})"
            f" ELSE {found} END)"
        )


DIALECT = SqliteDialect()


def _opened(path: tuple[str, ...]) -> tuple[list[str], str]:
    """The arrays of objects on the way to the end of a path, as tables, and the JSON found there."""
    source = f"(data -> '{_json_path(path[:1])}')"
    tables: list[str] = []
    for depth, step in enumerate(path[1:], 1):
        tables.append(f"{_unwrapped(source)} e{depth}")
        source = f"(CASE e{depth}.type WHEN 'object' THEN e{depth}.value -> '{_json_path((step,))}' END)"
    return tables, source


def _unwrapped(source: str) -> str:
    """An array as its elements, anything else as one row, nothing as none."""
    return (
        f"json_each(CASE WHEN {source} IS NULL THEN '[]' WHEN json_type({source}) = 'array' THEN {source}"
        f" ELSE json_array(json({source})) END)"
    )


def _json_path(path: Sequence[str]) -> str:
    return "$" + "".join(f'."{step}"' for step in path)
