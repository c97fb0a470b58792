"""Extension points: what is built in by name, and what installed packages add through entry points.

Knows names and where to import them from; nothing is imported before it is needed.
"""

import importlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Generic, TypeVar

from portico.errors import ConfigError

T = TypeVar("T")

PROTOCOLS: Final = "portico.protocols"
SOURCES: Final = "portico.sources"
STORES: Final = "portico.stores"
MODELS: Final = "portico.models"


def load_attribute(reference: str) -> Any:
    """Import `package.module:attribute`."""
    module, _, attribute = reference.partition(":")
    return getattr(importlib.import_module(module), attribute)


class Registry(Generic[T]):
    """The members of one extension point, by name. A built-in member cannot be replaced by an installed package."""

    def __init__(self, group: str, built_in: Mapping[str, str], kind: Any) -> None:
        self._group = group
        self._built_in = built_in
        self._kind = kind
        self._loaded: dict[str, T] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._built_in or name in self._installed

    def __iter__(self) -> Iterator[str]:
        """Yield the names: built-in members in their order, then installed ones in alphabetical order."""
        yield from self._built_in
        yield from sorted(self._installed)

    def adds(self, name: str) -> bool:
        """Return whether an installed package adds this name."""
        return name in self._installed

    def get(self, name: str) -> T:
        """Import a member. Raise KeyError if there is none of this name, ConfigError if its package is broken."""
        if name not in self._loaded:
            reference = self._built_in.get(name)
            self._loaded[name] = load_attribute(reference) if reference else self._load_installed(name)
        return self._loaded[name]

    @cached_property
    def _installed(self) -> dict[str, EntryPoint]:
        points: dict[str, EntryPoint] = {}
        for point in entry_points(group=self._group):
            other = "Portico itself" if point.name in self._built_in else _package_of(points.get(point.name))
            if other:
                raise ConfigError(
                    f"The package {_package_of(point)} adds {point.name!r} to {self._group}, which {other} provides",
                    hint="Uninstall one of them.",
                )
            points[point.name] = point
        return points

    def _load_installed(self, name: str) -> T:
        point = self._installed[name]
        place = f"The entry point {name!r} in {self._group} of the package {_package_of(point)}"
        try:
            member = point.load()
        except Exception as error:  # another package's code may raise anything
            raise ConfigError(
                f"{place} cannot be loaded: {error!r}", hint="Repair or uninstall that package."
            ) from error
        if not isinstance(member, self._kind):
            raise ConfigError(
                f"{place} must be a {self._kind.__name__}, not a {type(member).__name__}",
                hint="Repair or uninstall that package.",
            )
        return member


def _package_of(point: EntryPoint | None) -> str:
    if point is None:
        return ""
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value
