"""Which fields of an item are shown: presets, paths and computed ones. Knows no page and no caller.

`@type` and `@id` are called schema_type and schema_id, because paths of MCP-AQL begin with a letter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from portico.catalog import ID, Collection
from portico.errors import UnknownField
from portico.items import TITLES, Item, type_name
from portico.protocols.aql.complaints import misfit
from portico.protocols.aql.shapes import ParameterInfo, TypeDetails
from portico.protocols.aql.types import SCHEMA_NAMES
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
    """Fields to show of every item, beside its id."""

    fields: tuple[str, ...] = ()  # paths, by the names that the items have
    whole: bool = False
    versions: tuple[str, ...] = ()
    computed: tuple[str, ...] = ()

    def __or__(self, other: "Selection") -> "Selection":
        return Selection(
            tuple(dict.fromkeys((*self.fields, *other.fields))),
            self.whole or other.whole,
            tuple(each for each in VERSIONS if each in {*self.versions, *other.versions}),
            tuple(dict.fromkeys((*self.computed, *other.computed))),
        )


def parameters(default: Preset) -> tuple[ParameterInfo, ParameterInfo]:
    """`fields` and `preset`. They have no published default: the one would be added to what the other says."""
    return (
        ParameterInfo(
            name="fields",
            type=SELECTION.name,
            required=False,
            description=f"Fields to show: {', '.join(PRESETS)}, or a list of paths. Without it: {default}",
        ),
        ParameterInfo(
            name="preset",
            type="string",
            required=False,
            description="A preset; together with a list in `fields` both are shown",
            enum=PRESETS,
        ),
    )


def preset_fields(collection: Collection, preset: Preset) -> tuple[str, ...]:
    """The fields of a preset that name any: the full one shows all."""
    known = collection.fields
    title = next((each for each in TITLES if each in known), "")
    minimal = [each for each in (title, "url") if each and each in known]
    if preset == "minimal":
        return tuple(minimal)
    scalars = [each.name for each in known.values() if each.is_typed and each.name not in LONG]
    described = [each for each in ("description",) if each in known]
    return tuple(dict.fromkeys([*minimal, *described, *scalars]))[:MAX_STANDARD]


def described(collection: Collection, default: Preset) -> str:
    """What the presets of a collection show."""
    minimal, standard = (
        ", ".join(map(shown_name, (ID, *preset_fields(collection, each)))) for each in ("minimal", "standard")
    )
    return (
        f"Presets of fields: minimal = {minimal}; standard = {standard}, _version, _etag; full = everything. "
        f"Without fields: {default}."
    )


def shown_name(own: str) -> str:
    return SCHEMA_NAMES.get(own, own)


def own_name(name: str, collection: Collection) -> str:
    """A field as the items call it."""
    return name if name in collection.fields else OWN_NAMES.get(name, name)


def field_names(collection: Collection) -> list[str]:
    """The names that a filter, a sort or a selection may begin with."""
    return [ID, *(shown_name(each) for each in collection.fields if each != ID)]


def read_selection(
    params: Mapping[str, Any], collection: Collection, default: Preset, computed: Sequence[str], operation: str
) -> Selection:
    """What `fields` and `preset` ask for; UnknownField for what the collection does not have."""
    fields, preset = params.get("fields"), params.get("preset")
    chosen = [_preset(each, collection, operation) for each in (fields, preset) if isinstance(each, str)]
    if isinstance(fields, list):
        chosen.append(_paths(cast("list[Any]", fields), collection, computed, operation))
    elif fields is not None and not isinstance(fields, str):
        raise misfit(operation, "fields", "'fields' must be a preset or a list of paths", "preset or array", fields)
    found = chosen[0] if chosen else _preset(default, collection, operation)
    for each in chosen[1:]:
        found |= each
    return found


def _preset(name: str, collection: Collection, operation: str) -> Selection:
    match name:
        case "minimal":
            return Selection(preset_fields(collection, name))
        case "standard":
            return Selection(preset_fields(collection, name), versions=VERSIONS)
        case "full":
            return Selection(whole=True, versions=VERSIONS)
        case _:
            expected = ", ".join(PRESETS)
            raise misfit(operation, "fields", f"There is no preset '{name[:64]}'; known: {expected}", expected, name)


def _paths(paths: list[Any], collection: Collection, computed: Sequence[str], operation: str) -> Selection:
    found = Selection()
    for path in paths:
        found |= _path(path, collection, computed, operation)
    return found


def _path(path: Any, collection: Collection, computed: Sequence[str], operation: str) -> Selection:
    if not isinstance(path, str):
        raise misfit(operation, "fields", f"A path must be a string, not {type_name(path)}", "string", path)
    head, _, rest = path.partition(".")
    if path in VERSIONS:
        return Selection(versions=(path,))
    if head == COMPUTED and rest in computed:
        return Selection(computed=(rest,))
    if path == ID:
        return Selection()
    own = f"{own_name(head, collection)}.{rest}" if rest else own_name(path, collection)
    try:
        collection.field(own)
    except UnknownField as error:
        valid = [*field_names(collection), *VERSIONS, *(f"{COMPUTED}.{each}" for each in computed)]
        raise UnknownField(
            f"{collection.name} has no field '{path[:128]}'",
            field=path[:128],
            collection=collection.name,
            operation=operation,
            param="fields",
            valid=valid,
        ) from error
    return Selection((own,))


def shown(item: Item, collection: Collection, selection: Selection, computed: Mapping[str, Any]) -> dict[str, Any]:
    """An item as one flat object. A field it lacks is left out."""
    tags = {"_version": item.version, "_etag": etag(item.version)}
    return {
        ID: item.id,
        **{shown_name(name): value for name, value in _data(item, collection, selection).items() if name != ID},
        **{each: tags[each] for each in selection.versions},
        **({COMPUTED: dict(computed)} if selection.computed else {}),
    }


def _data(item: Item, collection: Collection, selection: Selection) -> Mapping[str, Any]:
    if selection.whole:
        return item.data
    return project(item, selection.fields, collection).data if selection.fields else {}


def etag(version: str) -> str:
    return f'W/"{version}"'
