"""Gives records names that fields can have, and reports those that are easily confused. Reads nothing itself."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

from portico.catalog import MAX_FIELDS
from portico.field_names import clean_name, normalize, problem_with_name
from portico.sources.records import Doubt, Entry, Record

MAX_SHOWN = 80  # characters of a name in a report


@dataclass(slots=True)
class RecordNames:
    """The names in the records of one collection so far."""

    renamed: dict[str, str] = field(default_factory=dict[str, str])  # names as the source has them -> names of fields
    unchanged: set[str] = field(default_factory=set[str])
    taken: set[str] = field(default_factory=set[str])  # names of fields
    normal_forms: dict[str, str] = field(default_factory=dict[str, str])  # the first name of each

    def learn(self, name: str, where: str) -> Iterator[Doubt]:
        """Choose the name of a field for a name of the source, and yield what is doubtful about it."""
        problem = problem_with_name(name)
        own = self._distinct(clean_name(name))
        self.renamed[name] = own
        self.taken.add(own)
        if own != name:
            problem = problem or "a cleaned name is the same"
            yield Doubt(where, f"the name {_shown(name)}: {problem}; it became {_shown(own)}", own, _shown(name))
        else:
            self.unchanged.add(name)
        other = self.normal_forms.setdefault(normalize(own) or own, own)
        if other != own:
            reason = f"{_shown(other)} and {_shown(own)} are easily confused; write their names in full"
            yield Doubt(where, reason, own, _shown(name))

    def _distinct(self, name: str) -> str:
        number, distinct = 2, name
        while distinct in self.taken:
            distinct, number = f"{name[:500]}_{number}", number + 1
        return distinct


def check_names(entries: Iterable[Entry], collection: str) -> Iterator[Entry]:
    """Yield the entries of a source, records with names that fields can have. A doubt comes before its record."""
    names_by_collection: dict[str, RecordNames] = {}
    for entry in entries:
        if not isinstance(entry, Record):
            yield entry
            continue
        names = names_by_collection.setdefault(entry.collection or collection, RecordNames())
        if names.unchanged.issuperset(entry.data):
            yield entry
            continue
        for name in cast("dict[Any, Any]", entry.data):  # keys of YAML may be numbers; such a record is refused later
            if isinstance(name, str) and name not in names.renamed and len(names.renamed) < MAX_FIELDS:
                yield from names.learn(name, entry.where)
        if names.unchanged.issuperset(entry.data):
            yield entry
        else:
            yield replace(entry, data={names.renamed.get(name, name): value for name, value in entry.data.items()})


def _shown(name: str) -> str:
    return ascii(name[:MAX_SHOWN]) if problem_with_name(name) else repr(name[:MAX_SHOWN])
