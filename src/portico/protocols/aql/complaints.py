"""How parameters of collections are refused: each refusal names the parameter, and says what it takes."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from portico.errors import InvalidParams, InvalidQuery, UnknownField
from portico.items import type_name
from portico.query import OPERATORS

FILTER_OPERATORS = (*(f"${name}" for name in OPERATORS), "$and", "$or", "$not")


@contextmanager
def concerning(operation: str, param: str, fields: Sequence[str] = ()) -> Generator[None]:
    """Refusals in here are of this parameter; those of a name say which names there are."""
    try:
        yield
    except InvalidQuery as error:
        known = _names(error, fields)
        error.details = {"operation": operation, "param": param, **error.details, **({"valid": known} if known else {})}
        raise


def _names(error: InvalidQuery, fields: Sequence[str]) -> list[str]:
    if isinstance(error, UnknownField):
        return list(fields)
    return list(FILTER_OPERATORS) if "operator" in error.details else []


def misfit(operation: str, param: str, message: str, expected: str, value: Any = None) -> InvalidParams:
    """A parameter that is not as it has to be."""
    return InvalidParams(message, operation=operation, param=param, expected=expected, got=type_name(value))
