"""What was found not long ago. Forgets by time, however often it is asked for."""

from collections.abc import Callable, Hashable
from math import inf
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_KEPT = 1000


class Fresh(Generic[T]):
    """Values that count for so many seconds: so many things at most, the oldest forgotten first."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._kept: dict[Hashable, tuple[float, T]] = {}

    def get(self, key: Hashable) -> T | None:
        at, value = self._kept.get(key, (-inf, None))
        # A clock that was set back must not make anything last longer.
        return value if 0 <= self._clock() - at < self._seconds else None

    def put(self, key: Hashable, value: T) -> T:
        self._kept.pop(key, None)
        while len(self._kept) >= MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = (self._clock(), value)
        return value
