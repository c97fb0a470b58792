"""Parses and evaluates paths such as `$.fetch.items[0].id` and conditions such as `size($.fetch.items) > 0`.

The paths are a part of JSONPath, the conditions a part of CEL. All of it is bounded, and none of it is ever Python.
"""

import operator
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, TypeAlias, cast

from msgspec import UNSET

from portico.errors import InvalidWorkflow

MAX_CONDITION = 512  # characters
MAX_DEPTH = 8  # steps of a path
MAX_NESTING = 32  # of parentheses, brackets and negations

Value: TypeAlias = Callable[[Mapping[str, Any]], Any]
Reading: TypeAlias = Callable[[], Value]

_TEXT = r"""'(?:[^'\\]|\\[\\'"nrt])*'|"(?:[^"\\]|\\[\\'"nrt])*\""""
_NAME = r"[^\W\d][\w-]*"
_STEP = rf"\.{_NAME}|\[[0-9]{{1,9}}\]|\[(?:{_TEXT})\]"
_EACH_STEP = re.compile(_STEP)
_PATH = re.compile(rf"\$(?:{_STEP})*")
_TOKEN = re.compile(
    rf"""\s*(?:
    (?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
    |(?P<text>{_TEXT})
    |(?P<path>(?:\$|{_NAME})(?:{_STEP})*)
    |(?P<symbol>&&|\|\||[=!<>]=|[<>!()\[\],])
    )""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
_CONSTANTS: Mapping[str, Any] = {"true": True, "false": False, "null": None}


@dataclass(frozen=True, slots=True)
class Path:
    """A path into JSON. Its first step is a name; without steps it is the whole value."""

    text: str
    steps: tuple[str | int, ...]

    @property
    def root(self) -> str | int:
        return self.steps[0] if self.steps else ""

    def find(self, data: Mapping[str, Any]) -> Any:
        """Return the value at this path, which may be None for null; UNSET if there is none."""
        value: Any = data
        for step in self.steps:
            value = _below(value, step)
        return value


def _below(value: Any, step: str | int) -> Any:
    match value, step:
        case Mapping(), str():
            return cast("Mapping[str, Any]", value).get(step, UNSET)
        case list(), int() if step < len(cast("list[Any]", value)):
            return cast("list[Any]", value)[step]
        case _:
            return UNSET


@dataclass(frozen=True, slots=True)
class ConditionExpression:
    """A condition on JSON, and the paths that it reads."""

    text: str
    test: Value
    paths: tuple[Path, ...]

    def holds(self, data: Mapping[str, Any]) -> bool:
        return _boolean(self.test(data))


def parse_path(text: str) -> Path:
    if not _PATH.fullmatch(text):
        raise InvalidWorkflow(
            f"{text[:100]!r} is not a path",
            reason="mapping",
            hint="Write $.step.field, $.step['a field'] or $.step[0].",
        )
    return _path(text, "mapping")


def _path(text: str, reason: str) -> Path:
    steps = tuple(map(_parse_step, _EACH_STEP.findall(text.removeprefix("$") if text.startswith("$") else f".{text}")))
    if len(steps) > MAX_DEPTH:
        raise InvalidWorkflow(f"A path may have up to {MAX_DEPTH} steps", reason=reason, limit=MAX_DEPTH)
    return Path(text, steps)


def _parse_step(text: str) -> str | int:
    if text.startswith("."):
        return text[1:]
    inner = text[1:-1]
    return int(inner) if inner.isdecimal() else _unquote(inner)


def _unquote(text: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), text[1:-1])


def parse_condition(text: str) -> ConditionExpression:
    if len(text) > MAX_CONDITION:
        raise _wrong(f"A condition has at most {MAX_CONDITION} characters", limit=MAX_CONDITION)
    reader = _Reader(text)
    return ConditionExpression(text, reader.parse(), tuple(reader.paths))


def _wrong(message: str, **details: Any) -> InvalidWorkflow:
    return InvalidWorkflow(message, reason="condition", **details)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


_END = _Token("end", "the end")


def _tokens(text: str) -> Iterator[_Token]:
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise _wrong(f"The condition cannot be read from character {position + 1} on", position=position)
        kind = str(match.lastgroup)
        yield _Token(kind, match[kind])
        position = match.end()


class _Reader:
    """Parses a condition from its tokens. By increasing precedence: ||, &&, comparisons, !."""

    def __init__(self, text: str) -> None:
        self._tokens = deque(_tokens(text))
        self._nesting = 0
        self.paths: list[Path] = []

    def parse(self) -> Value:
        value = self._parse_or()
        if self._tokens:
            raise _wrong(f"Unexpected {self._next().text!r} in the condition")
        return value

    def _parse_or(self) -> Value:
        parts = self._parse_separated("||", self._parse_and)
        return parts[0] if len(parts) == 1 else lambda data: any(_boolean(part(data)) for part in parts)

    def _parse_and(self) -> Value:
        parts = self._parse_separated("&&", self._parse_comparison)
        return parts[0] if len(parts) == 1 else lambda data: all(_boolean(part(data)) for part in parts)

    def _parse_separated(self, symbol: str, read: Reading) -> list[Value]:
        parts = [read()]
        while self._accept(symbol):
            parts.append(read())
        return parts

    def _parse_comparison(self) -> Value:
        left = self._parse_value()
        compare = _COMPARISONS.get(self._peek().text) if self._peek().kind in {"symbol", "path"} else None
        if compare is None:
            return left
        self._next()
        right = self._parse_value()
        return lambda data: compare(left(data), right(data))

    def _parse_value(self) -> Value:
        token = self._next()
        match token.kind, token.text:
            case "number", text:
                return _constant(_number(text))
            case "text", text:
                return _constant(_unquote(text))
            case "path", text:
                return self._parse_name(text)
            case "symbol", "!":
                inner = self._nest(self._parse_value)
                return lambda data: not _boolean(inner(data))
            case "symbol", "(":
                return self._nest(self._parse_parenthesized)
            case "symbol", "[":
                return self._nest(self._parse_list)
            case _, text:
                raise _wrong(f"A condition has no value at {text!r}")

    def _parse_name(self, text: str) -> Value:
        if text in _CONSTANTS:
            return _constant(_CONSTANTS[text])
        if text in _FUNCTIONS and self._accept("("):
            apply, path = _FUNCTIONS[text], self._parse_path()
            self._expect(")")
            return lambda data: apply(path, data)
        path = self._add_path(text)
        return lambda data: _value_at(path, data)

    def _parse_path(self) -> Path:
        token = self._next()
        if token.kind != "path":
            raise _wrong(f"{token.text!r} is not a path")
        return self._add_path(token.text)

    def _add_path(self, text: str) -> Path:
        self.paths.append(_path(text, "condition"))
        return self.paths[-1]

    def _parse_parenthesized(self) -> Value:
        value = self._parse_or()
        self._expect(")")
        return value

    def _parse_list(self) -> Value:
        if self._accept("]"):
            return _constant([])
        parts = self._parse_separated(",", self._parse_value)
        self._expect("]")
        return lambda data: [part(data) for part in parts]

    def _nest(self, read: Reading) -> Value:
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise _wrong(f"A condition is nested at most {MAX_NESTING} deep", limit=MAX_NESTING)
        value = read()
        self._nesting -= 1
        return value

    def _peek(self) -> _Token:
        return self._tokens[0] if self._tokens else _END

    def _next(self) -> _Token:
        return self._tokens.popleft() if self._tokens else _END

    def _accept(self, symbol: str) -> bool:
        there = self._peek() == _Token("symbol", symbol)
        if there:
            self._next()
        return there

    def _expect(self, symbol: str) -> None:
        if not self._accept(symbol):
            raise _wrong(f"The condition lacks {symbol!r} before {self._peek().text!r}")


def _constant(value: Any) -> Value:
    return lambda _: value


def _number(text: str) -> int | float:
    if not isfinite(float(text)):
        raise _wrong(f"{text[:100]} is too large a number")
    return int(text) if text.removeprefix("-").isdecimal() else float(text)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(f"{_kind(value)} is neither true nor false")
    return value


def _value_at(path: Path, data: Mapping[str, Any]) -> Any:
    value = path.find(data)
    if value is UNSET:
        raise _wrong(f"There is no value at {path.text[:100]}", path=path.text, hint="Test it with has(path) first.")
    return value


def _has(path: Path, data: Mapping[str, Any]) -> bool:
    return path.find(data) is not UNSET


def _size(path: Path, data: Mapping[str, Any]) -> int:
    value = _value_at(path, data)
    if not isinstance(value, str | list | Mapping):
        raise _wrong(f"{_kind(value)} has no size", path=path.text)
    return len(cast("str | list[Any]", value))


def _same(left: Any, right: Any) -> bool:
    """Return whether two values are equal in JSON, where true is not 1 and 1 is 1.0."""
    for value in (left, right):
        if isinstance(value, list | Mapping):
            raise _wrong(f"{_kind(value)} cannot be compared")
    return isinstance(left, bool) == isinstance(right, bool) and left == right


def _within(left: Any, right: Any) -> bool:
    match right:
        case list():
            return any(_same(left, item) for item in cast("list[Any]", right))
        case Mapping() if isinstance(left, str):
            return left in right
        case _:
            raise _wrong(f"{_kind(left)} cannot be in {_kind(right)}")


def _order_test(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def apply(left: Any, right: Any) -> bool:
        kind = _kind(left)
        if kind != _kind(right) or kind not in {"a number", "a text"}:
            raise _wrong(f"{kind} is neither more nor less than {_kind(right)}")
        return compare(left, right)

    return apply


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case _:
            return "an object"


_FUNCTIONS: Mapping[str, Callable[[Path, Mapping[str, Any]], Any]] = {"has": _has, "size": _size}
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": _same,
    "!=": lambda left, right: not _same(left, right),
    "<": _order_test(operator.lt),
    "<=": _order_test(operator.le),
    ">": _order_test(operator.gt),
    ">=": _order_test(operator.ge),
    "in": _within,
}
