"""What was made lately and is likely to be wanted again."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

V = TypeVar("V")


class Recent(Generic[V]):
    """So many values, of so many bytes in all; the one that nobody has asked for longest goes first."""

    def __init__(self, most: int, most_bytes: int | None = None) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._values: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._bytes = 0

    def get(self, key: Hashable) -> V | None:
        found = self._values.get(key)
        if found is None:
            return None
        self._values.move_to_end(key)
        return found[0]

    def several(self, keys: Sequence[Hashable]) -> list[V | None]:
        """What there is for each of these."""
        values, later = self._values, self._values.move_to_end
        found: list[V | None] = []
        for key in keys:
            there = values.get(key)
            if there is None:
                found.append(None)
            else:
                later(key)
                found.append(there[0])
        return found

    def put(self, key: Hashable, value: V, size: int = 0) -> V:
        before = self._values.pop(key, None)
        self._bytes += size - (before[1] if before else 0)
        self._values[key] = value, size
        while len(self._values) > self._most or (self._most_bytes is not None and self._bytes > self._most_bytes):
            _, (_, freed) = self._values.popitem(last=False)
            self._bytes -= freed
        return value
