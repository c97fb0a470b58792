"""Applies the types of a source's columns: to its records, to the fields of a collection, and to the report.

Reads no source and writes to no store.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from portico.catalog import ID, Collection, Field, FieldType, widen
from portico.sources.columns import EXAMPLES, Column, Path, Profile, objects_in
from portico.sources.conversion import ABSENT, UNREADABLE, Converter
from portico.sources.decisions import ColumnType, decide, noun_of, setting_for
from portico.sources.records import Doubt, Remark
from portico.sources.reports import CollectionReport, FieldReport, shorten_example
from portico.sources.roles import FieldProfile, assign_roles

SHOWN_LENGTH = 100  # characters of a value in a doubt
# A value of each type, of which a collection infers it.
_SAMPLES: Mapping[FieldType, Any] = {
    FieldType.STRING: "",
    FieldType.INTEGER: 1,
    FieldType.NUMBER: 1.5,
    FieldType.BOOLEAN: True,
    FieldType.TIMESTAMP: "2026-01-01",
    FieldType.DURATION: "PT1H",
    FieldType.VECTOR: [1.0] * 16,
    FieldType.OBJECT: {},
    FieldType.ARRAY: [],
}


@dataclass(frozen=True)
class Plan:
    """What becomes of the records of one collection of a source. Equal ones make the same items."""

    collection: str
    types: Mapping[Path, ColumnType]

    @property
    def conversions(self) -> dict[Path, Any]:
        return {path: decided.conversion for path, decided in self.types.items() if decided.conversion}

    @cached_property
    def _top(self) -> list[tuple[str, Converter]]:
        return [
            (path[0], decided.conversion.converter())
            for path, decided in self.types.items()
            if decided.conversion and len(path) == 1
        ]

    @cached_property
    def _nested(self) -> dict[Path, Converter]:
        return {
            path: decided.conversion.converter()
            for path, decided in self.types.items()
            if decided.conversion and len(path) > 1
        }

    @cached_property
    def _parents(self) -> list[str]:
        return list(dict.fromkeys(path[0] for path in self._nested))

    def apply(self, data: dict[str, Any], report: Callable[[Path, Any], None]) -> None:
        """Convert the values of a record in place. Report those that do not fit, which stay as they are."""
        for name, convert in self._top:
            value = data.get(name)
            if value is None:
                continue
            result = convert(value)
            if result is UNREADABLE:
                report((name,), value)
            elif result is ABSENT:
                del data[name]
            elif result is not value:
                data[name] = result
        for name in self._parents:
            if name in data:
                self._apply_nested((name,), data[name], report)

    def _apply_nested(self, path: Path, value: Any, report: Callable[[Path, Any], None]) -> None:
        for inner in objects_in(value):
            for name, member in list(inner.items()):
                below = (*path, name)
                convert = self._nested.get(below)
                if convert is not None and member is not None:
                    result = convert(member)
                    if result is UNREADABLE:
                        report(below, member)
                    elif result is ABSENT:
                        del inner[name]
                    else:
                        inner[name] = result
                if isinstance(member, dict | list):
                    self._apply_nested(below, member, report)

    def doubt(self, path: Path, value: Any, place: str) -> Doubt:
        """Return the doubt about a value that is not of the type of its column."""
        name, decided = ".".join(path), self.types[path]
        conversion = decided.conversion
        noun = noun_of(decided.type) + (f" in {decided.unit}" if decided.unit else "")
        is_declared = conversion is not None and conversion.is_declared
        reason = f"the site file declares {noun}" if is_declared else f"the other values are {noun}"
        setting = setting_for(self.collection, name, "string" if isinstance(value, str) else "any")
        return Doubt(place, f"{reason}; it is kept as it is written", name, str(value)[:SHOWN_LENGTH], setting)

    def doubts(self, place: str) -> list[Doubt]:
        """Return the doubts about whole columns."""
        return [
            Doubt(place, decided.doubt, ".".join(path), decided.example[:SHOWN_LENGTH], decided.setting)
            for path, decided in self.types.items()
            if decided.doubt
        ]

    def remarks(self, place: str) -> list[Remark]:
        return [Remark(place, decided.remark) for decided in self.types.values() if decided.remark]


def make_plan(profile: Profile, declared: Collection) -> Plan:
    fields = {spec.where: spec for spec in declared.fields.values() if spec.declared}
    return Plan(declared.name, decide(declared.name, profile, fields))


def field_profiles(profile: Profile, plan: Plan) -> list[FieldProfile]:
    """Describe the fields of a collection, and those of objects in it, for `assign_roles`."""
    return [
        _field_profile(column, plan.types[column.path], profile.items)
        for column in (*profile.top.values(), *profile.nested.values())
        if column.path in plan.types
    ]


def _field_profile(column: Column, decided: ColumnType, items: int) -> FieldProfile:
    texts = column.texts
    natives = len(column.examples) / min(EXAMPLES, max(1, sum(column.natives.values())))
    return FieldProfile(
        column.name,
        decided.type,
        decided.format,
        coverage=min(1.0, column.filled / max(1, items)),
        distinct=min(1.0, len(column.sample) / column.sampled if column.sampled else natives),
        length=column.length / texts if texts else 0.0,
        examples=tuple(_examples(column, decided)),
    )


def _examples(column: Column, decided: ColumnType) -> Iterable[Any]:
    values = [*list(column.sample)[:EXAMPLES], *column.examples][:EXAMPLES]
    if decided.conversion is None:
        return values
    convert = decided.conversion.converter()
    return [result for value in values if not ((result := convert(value)) is ABSENT or result is UNREADABLE)]


@dataclass(frozen=True, slots=True)
class Settlement:
    """The fields that a source gives to a collection."""

    plan: Plan
    profile: Profile
    targets: Mapping[str, str] = field(default_factory=dict[str, str])  # of links, by field
    is_shared: bool = False  # other sources or callers have items in the collection: types are widened

    def settle(self, stored: Collection) -> Collection:
        """Return a collection with the fields that its data has. Declared ones keep what the site file says."""
        types = {path[0]: decided for path, decided in self.plan.types.items() if len(path) == 1 and path[0] != ID}
        typed = {name: decided for name, decided in types.items() if self.profile.top[name].filled}
        known = stored.widen({name: _SAMPLES.get(decided.type, "") for name, decided in typed.items()})
        roles = {
            name: role for role, name in assign_roles(field_profiles(self.profile, self.plan), stored.name).items()
        }
        fields = {
            name: self._settle_field(spec, stored.fields.get(name), typed.get(name), roles.get(name, ""))
            for name, spec in known.fields.items()
        }
        return replace(stored, fields=fields)

    def _settle_field(self, field: Field, stored: Field | None, decided: ColumnType | None, role: Any) -> Field:
        target = self.targets.get(field.where, field.target)
        if field.declared:
            return replace(field, role=role, target=target)
        if decided is None:
            return field if self.is_shared else replace(field, role="")
        kind = decided.type
        if stored is None and field.type is FieldType.ANY:
            kind = FieldType.ANY  # one column more than a table has
        elif stored is not None and self.is_shared:
            kind = widen(stored.type, kind)
        is_same = kind is decided.type or not self.is_shared
        return replace(
            field,
            type=kind,
            format=decided.format if is_same else "",
            unit=decided.unit if is_same else "",
            role=role,
            target=target,
            settled=True,
        )


def describe(collection: Collection, profile: Profile, plan: Plan) -> CollectionReport:
    """Return what a load made of a collection, field by field."""
    fields = {name: _describe_field(spec, collection, profile, plan) for name, spec in collection.fields.items()}
    return CollectionReport(items=profile.items, fields=fields)


def _describe_field(spec: Field, collection: Collection, profile: Profile, plan: Plan) -> FieldReport:
    path = tuple(spec.where.split("."))
    column = profile.top.get(spec.where) or profile.nested.get(path)
    decided = plan.types.get(column.path) if column else None
    role = collection.role_of(spec.name)
    if column is None or decided is None:
        return FieldReport(type=spec.type, role=role, format=spec.format, unit=spec.unit)
    return FieldReport(
        type=spec.type,
        role=role,
        format=spec.format,
        unit=spec.unit,
        coverage=round(min(1.0, decided.fits / max(1, profile.items)), 4),
        example=shorten_example(next(iter(_examples(column, decided)), None)),
    )
