"""Field selection: presets, paths and computed fields. Knows no page and no caller.

`@type` and `@id` are named schema_type and schema_id, because paths of MCP-AQL begin with a letter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from portico.catalog import ID, Collection
from portico.errors import UnknownField
from portico.items import Item, type_name
from portico.protocols.aql.envelopes import invalid_param
from portico.protocols.aql.shapes import ParameterInfo, TypeDetails
from portico.protocols.aql.types import SCHEMA_NAMES, names_of, public_name
from portico.query import project

Preset: TypeAlias = Literal["minimal", "standard", "full"]

PRESETS: tuple[Preset, ...] = ("minimal", "standard", "full")
OWN_NAMES = {alias: own for own, alias in SCHEMA_NAMES.items()}
VERSIONS = ("_version", "_etag")
COMPUTED = "_computed"
MAX_STANDARD = 16  # fields of the preset
LONG = frozenset({"articleBody", "text", "reviewBody", "transcript", "recipeInstructions", "@context", "@id"})

PRESET = TypeDetails(name="FieldPreset", kind="enum", description="A set of fields.", values=PRESETS)
SELECTION = TypeDetails(
    name="FieldSelection",
    kind="union",
    description="A preset, or a list of paths such as offers.price or _computed.title.",
    members=(PRESET.name, "array"),
)


@dataclass(frozen=True, slots=True)
class Selection:
    """The fields to return of every item, besides its id."""

    fields: tuple[str, ...] = ()  # paths with the items' own names
    whole: bool = False
    versions: tuple[str, ...] = ()
    computed: tuple[str, ...] = ()

    def __or__(self, other: "Selection") -> "Selection":
        return Selection(
            tuple(dict.fromkeys((*self.fields, *other.fields))),
            self.whole or other.whole,
            tuple(name for name in VERSIONS if name in {*self.versions, *other.versions}),
            tuple(dict.fromkeys((*self.computed, *other.computed))),
        )


def selection_params(default: Preset) -> tuple[ParameterInfo, ParameterInfo]:
    """Return `fields` and `preset`, without a default: one's default would be added to the other's value."""
    return (
        ParameterInfo(
            name="fields",
            type=SELECTION.name,
            required=False,
            description=f"Fields to return: {', '.join(PRESETS)}, or a list of paths. Default: {default}",
        ),
        ParameterInfo(
            name="preset",
            type="string",
            required=False,
            description="A preset; combined with a list in `fields`",
            enum=PRESETS,
        ),
    )


def preset_fields(collection: Collection, preset: Preset) -> tuple[str, ...]:
    """Return the fields of the minimal or standard preset; the full one has all."""
    fields = collection.fields
    title = next((name for name in collection.title_fields if name in fields), "")
    minimal = [name for name in (title, collection.field_for("link") or "url") if name and name in fields]
    if preset == "minimal":
        return tuple(minimal)
    scalars = [name.name for name in fields.values() if name.is_typed and name.name not in LONG]
    described = [name for name in (collection.field_for("description") or "description",) if name in fields]
    return tuple(dict.fromkeys([*minimal, *described, *scalars]))[:MAX_STANDARD]


def describe_presets(collection: Collection, default: Preset) -> str:
    """Describe the presets of a collection."""
    minimal, standard = (
        ", ".join(public_name(name, collection) for name in (ID, *preset_fields(collection, preset)))
        for preset in ("minimal", "standard")
    )
    return (
        f"Field presets: minimal = {minimal}; standard = {standard}, _version, _etag; full = everything. "
        f"Default: {default}."
    )


def own_name(path: str, collection: Collection) -> str:
    """Return the items' own name of a field, or a path that begins with it. Published names come before all others."""
    own = names_of(collection).own_path(path)
    head, dot, below = own.partition(".")
    if head in OWN_NAMES and head not in collection.fields:
        own = f"{OWN_NAMES[head]}{dot}{below}"
    try:
        return collection.field(own).name
    except UnknownField:
        return own


def field_names(collection: Collection) -> list[str]:
    """Return the names that a path in a filter, a sort or a selection may begin with."""
    return [ID, *(public_name(name, collection) for name in collection.fields if name != ID)]


def read_selection(
    params: Mapping[str, Any], collection: Collection, default: Preset, computed: Sequence[str], operation: str
) -> Selection:
    """Parse `fields` and `preset`. Raises UnknownField for a field that the collection does not have."""
    fields, preset = params.get("fields"), params.get("preset")
    chosen = [_parse_preset(choice, collection, operation) for choice in (fields, preset) if isinstance(choice, str)]
    if isinstance(fields, list):
        chosen.append(_parse_paths(cast("list[Any]", fields), collection, computed, operation))
    elif fields is not None and not isinstance(fields, str):
        raise invalid_param(
            operation, "fields", "'fields' must be a preset or a list of paths", "preset or array", fields
        )
    selection = chosen[0] if chosen else _parse_preset(default, collection, operation)
    for choice in chosen[1:]:
        selection |= choice
    return selection


def _parse_preset(name: str, collection: Collection, operation: str) -> Selection:
    match name:
        case "minimal":
            return Selection(preset_fields(collection, name))
        case "standard":
            return Selection(preset_fields(collection, name), versions=VERSIONS)
        case "full":
            return Selection(whole=True, versions=VERSIONS)
        case _:
            expected = ", ".join(PRESETS)
            raise invalid_param(
                operation, "fields", f"There is no preset '{name[:64]}'; known: {expected}", expected, name
            )


def _parse_paths(paths: list[Any], collection: Collection, computed: Sequence[str], operation: str) -> Selection:
    selection = Selection()
    for path in paths:
        selection |= _parse_path(path, collection, computed, operation)
    return selection


def _parse_path(path: Any, collection: Collection, computed: Sequence[str], operation: str) -> Selection:
    if not isinstance(path, str):
        raise invalid_param(operation, "fields", f"A path must be a string, not {type_name(path)}", "string", path)
    head, _, rest = path.partition(".")
    if path in VERSIONS:
        return Selection(versions=(path,))
    if head == COMPUTED and rest in computed:
        return Selection(computed=(rest,))
    if path == ID:
        return Selection()
    own = own_name(path, collection)
    try:
        collection.field(own)
    except UnknownField as error:
        valid = [*field_names(collection), *VERSIONS, *(f"{COMPUTED}.{name}" for name in computed)]
        raise UnknownField(
            f"{collection.name} has no field '{path[:128]}'",
            field=path[:128],
            collection=collection.name,
            operation=operation,
            param="fields",
            valid=valid,
        ) from error
    return Selection((own,))


def render_item(
    item: Item, collection: Collection, selection: Selection, computed: Mapping[str, Any]
) -> dict[str, Any]:
    """Return an item as one flat object, without the fields that it lacks."""
    tags = {"_version": item.version, "_etag": etag(item.version)}
    data = _select_data(item, collection, selection)
    return {
        ID: item.id,
        **{public_name(name, collection): value for name, value in data.items() if name != ID},
        **{version_name: tags[version_name] for version_name in selection.versions},
        **({COMPUTED: dict(computed)} if selection.computed else {}),
    }


def _select_data(item: Item, collection: Collection, selection: Selection) -> Mapping[str, Any]:
    if selection.whole:
        return item.data
    return project(item, selection.fields, collection).data if selection.fields else {}


def etag(version: str) -> str:
    return f'W/"{version}"'
