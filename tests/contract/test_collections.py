"""What a store learns of its collections from the site file and from the data."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.contract.shelf import fill, ids

from portico.catalog import Collection, Field, FieldType
from portico.errors import ConfigError, UnknownCollection, UnknownField
from portico.query import MATCH_ALL, Aggregate, Aggregation, Order, Query
from portico.store import Store
from portico.store.records import Put

VECTOR = [0.5] * 16


def types(store: Store, name: str = "things") -> dict[str, str]:
    return {field.name: str(field.type) for field in store.collections.schema[name].fields.values()}


async def test_a_declared_collection_is_known_at_once(store: Store) -> None:
    wanted = Collection(
        "recipes",
        {"cuisine": Field("cuisine", FieldType.STRING, "recipeCuisine", True, "Where it comes from")},
        "Recipes",
        "What to cook",
        "Recipe",
        "dish",
        "de",
        {"name": 3.0},
        True,
    )

    assert await store.collections.declare(wanted) == wanted
    assert store.collections.schema == {"recipes": wanted}
    assert await store.collections.refresh() == {"recipes": wanted}


async def test_declaring_again_updates_the_description_and_keeps_what_the_data_taught(store: Store) -> None:
    await fill(store, {"a": {"name": "soup"}})

    await store.collections.declare(Collection("things", title="Things"))

    assert store.collections.schema["things"] == Collection(
        "things", {"name": Field("name", FieldType.STRING)}, title="Things"
    )
    assert await ids(store, {"name": "soup"}) == ["a"]


async def test_each_kind_of_value_teaches_the_type_of_its_field(store: Store) -> None:
    await fill(
        store,
        {
            "a": {
                "text": "soup",
                "count": 3,
                "price": 2.5,
                "vegan": True,
                "made": "2024-05-01T10:00:00Z",
                "day": "2024-05-01",
                "takes": "PT25M",
                "offers": {"price": 3},
                "tags": ["a"],
                "embedding": VECTOR,
                "nothing": None,
                "Any name": 1,
                "a.b": 1,
            }
        },
    )

    assert types(store) == {
        "text": "string",
        "count": "integer",
        "price": "number",
        "vegan": "boolean",
        "made": "timestamp",
        "day": "timestamp",
        "takes": "duration",
        "offers": "object",
        "tags": "array",
        "embedding": "vector",
        "Any name": "integer",
        "a.b": "integer",
    }


@pytest.mark.parametrize(
    ("first", "then", "kind"),
    [
        (1, 2.5, "number"),
        (2.5, 1, "number"),
        ("2024-05-01", "soon", "string"),
        ("PT5M", "a while", "string"),
        ("PT5M", "2024-05-01", "string"),
        (1, "one", "any"),
        (True, 1, "any"),
        ("text", {"a": 1}, "any"),
        ({"a": 1}, [1], "any"),
        (VECTOR, [1], "array"),
        ("text", None, "string"),
    ],
)
async def test_a_field_widens_to_hold_what_comes(backend: Store, first: Any, then: Any, kind: str) -> None:
    await fill(backend, {"a": {"f": first}})

    await fill(backend, {"b": {"f": then}})

    assert types(backend) == {"f": kind}


@pytest.mark.parametrize(
    ("first", "then"),
    [(1, 2.5), ("2024-05-01", "soon"), ("PT5M", "a while"), (1, "one"), (True, 1), (7, {"a": 1})],
)
async def test_values_from_before_a_field_widened_are_still_found(store: Store, first: Any, then: Any) -> None:
    await fill(store, {"a": {"f": first}})
    await fill(store, {"b": {"f": then}})

    assert await ids(store, {"f": first}) == ["a"]
    assert await ids(store, {"f": {"$exists": True}}) == ["a", "b"]


async def test_a_later_item_may_bring_new_fields(store: Store) -> None:
    await fill(store, {"a": {"x": 1}})
    await fill(store, {"b": {"y": 2}})

    assert types(store) == {"x": "integer", "y": "integer"}
    assert await ids(store, {"y": {"$exists": False}}) == ["a"]
    assert await ids(store, {"y": 2}) == ["b"]


async def test_a_declared_field_does_not_widen_and_unfit_data_counts_as_absent(store: Store) -> None:
    await store.collections.declare(Collection("things", {"n": Field("n", FieldType.INTEGER, declared=True)}))

    await fill(store, {"a": {"n": 1}, "b": {"n": "many"}, "c": {"n": "3"}})

    assert types(store) == {"n": "integer"}
    assert await ids(store, {"n": {"$exists": False}}) == ["b"]
    assert await ids(store, {"n": {"$gte": 2}}) == ["c"]


async def test_a_declared_field_may_have_another_name_than_its_place_in_the_data(store: Store) -> None:
    city = Field("city", FieldType.STRING, "address.town", declared=True)
    await store.collections.declare(Collection("things", {"city": city}))
    await fill(store, {"a": {"address": {"town": "Oslo"}}, "b": {"address": {"town": "Bergen"}}, "c": {}})

    page = await store.items.find(Query("things", order=(), fields=("city",)))

    assert await ids(store, {"city": "Oslo"}) == ["a"]
    assert await ids(store, {"city": {"$exists": False}}) == ["c"]
    assert [dict(item.data) for item in page.items] == [
        {"city": "Oslo"},
        {"city": "Bergen"},
        {},
    ]


async def test_a_declaration_after_the_data_applies_to_what_is_there(store: Store) -> None:
    await fill(store, {"a": {"n": "10", "o": {"when": "2024-05-01"}}, "b": {"n": "9"}})
    declared = {
        "n": Field("n", FieldType.NUMBER, declared=True),
        "when": Field("when", FieldType.TIMESTAMP, "o.when", declared=True),
    }

    await store.collections.declare(Collection("things", declared))

    assert await ids(store, {"n": {"$gt": 9}}) == ["a"]
    assert await ids(store, {"when": {"$lt": "2024-05-01T01:00:00Z"}}) == ["a"]


async def test_a_declaration_that_goes_away_leaves_the_other_fields_as_they_were(store: Store) -> None:
    await store.collections.declare(Collection("things", {"first": Field("first", FieldType.STRING, declared=True)}))
    await fill(store, {"a": {"first": "x", "second": 5, "third": True}})

    await store.collections.declare(Collection("things"))
    await store.collections.refresh()

    assert await ids(store, {"second": 5}) == ["a"]
    assert await ids(store, {"third": True}) == ["a"]


async def test_a_declaration_that_goes_away_does_not_mix_up_later_fields(store: Store) -> None:
    await store.collections.declare(Collection("things", {"first": Field("first", FieldType.STRING, declared=True)}))
    await fill(store, {"a": {"first": "x", "second": 5}})
    await store.collections.declare(Collection("things"))

    await fill(store, {"b": {"second": 6, "third": 7}})

    assert await ids(store, {"second": {"$in": [5, 6]}}) == ["a", "b"]
    assert await ids(store, {"third": 7}) == ["b"]


async def test_many_fields_are_all_found(store: Store) -> None:
    await fill(store, {"a": {f"f{n}": n for n in range(250)}, "b": {"f240": 1}})

    assert await ids(store, {"f240": 240}) == ["a"]
    assert await ids(store, {"f240": {"$gt": 0}}) == ["a", "b"]
    assert await ids(store, {"f3": 3}) == ["a"]


@pytest.fixture
def wide() -> Callable[[Any], dict[str, Any]]:
    """An item with so many fields that the last one may well be kept differently."""

    def item(last: Any) -> dict[str, Any]:
        return {**{f"f{n}": n for n in range(220)}, "last": last}

    return item


async def test_a_time_beyond_many_fields_is_compared_as_an_instant(
    store: Store, wide: Callable[[Any], dict[str, Any]]
) -> None:
    await fill(store, {"a": wide("2024-05-01T10:00:00+02:00"), "b": {"last": "2024-05-01T09:00:00Z"}})

    assert await ids(store, {"last": "2024-05-01T08:00:00Z"}) == ["a"]
    assert await ids(store, {"last": {"$gt": "2024-05-01T08:30:00Z"}}) == ["b"]


async def test_a_length_beyond_many_fields_is_ordered_by_length(
    store: Store, wide: Callable[[Any], dict[str, Any]]
) -> None:
    await fill(store, {"a": wide("PT10M"), "b": {"last": "PT5M"}, "c": {"last": "PT1H"}})

    page = await store.items.find(Query("things", order=(Order("last"),)))

    assert [item.id for item in page.items] == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [("soup", "soup"), ("2024-05-01T10:00:00Z", "2024-05-01T10:00:00Z"), ("PT5M", "PT5M"), (5, 5)],
)
async def test_groups_by_a_field_beyond_many_are_shown_as_any_other(
    backend: Store, wide: Callable[[Any], dict[str, Any]], value: Any, shown: Any
) -> None:
    await fill(backend, {"a": wide(value)})

    page = await backend.items.find(Query("things", aggregate=Aggregate((Aggregation("count", "n"),), ("last",))))

    assert page.rows == ({"last": shown, "n": 1},)


async def test_an_unknown_collection_is_refused_by_every_method(store: Store) -> None:
    await store.collections.declare(Collection("recipes"))
    for call in (
        store.items.get("nope", "a"),
        store.items.get_many("nope", ["a"]),
        store.items.find(Query("nope")),
        store.items.count("nope", MATCH_ALL),
        store.items.list_ids("nope", MATCH_ALL),
        store.items.write("nope", [Put("a", {})]),
        store.vectors.list_missing("nope", "m", 1),
        store.vectors.put("nope", "m", []),
        store.vectors.list_after("nope", "", "m", 0, 1),
        store.vectors.count("nope", "m"),
        store.changes.list_since(0, collection="nope"),
    ):
        with pytest.raises(UnknownCollection) as refusal:
            await call
        assert refusal.value.details == {"collection": "nope"}
        assert refusal.value.hint == "Known collections: recipes."


async def test_an_unknown_field_is_refused_and_the_known_ones_named(store: Store) -> None:
    await fill(store, {"a": {"name": "soup", "n": 1}})

    with pytest.raises(UnknownField) as refusal:
        await ids(store, {"nome": 1})

    assert refusal.value.details == {"field": "nome", "collection": "things"}
    assert refusal.value.hint == "Known fields: name, n."


@pytest.mark.parametrize("name", ["", "a b", "x;--", 'a"b', "a'b", "a.b", "a/b", "a\0", "x" * 129])
async def test_a_name_that_could_not_be_addressed_is_refused(backend: Store, name: str) -> None:
    with pytest.raises(ConfigError):
        await backend.collections.declare(Collection(name))

    assert await backend.collections.refresh() == {}


@pytest.mark.parametrize("name", ["select", "items_1", "Grüße", "日本", "a-b", "changes", "x" * 128])
async def test_unusual_names_of_collections_are_just_names(backend: Store, name: str) -> None:
    await fill(backend, {"a": {"n": 1}}, name)

    assert await ids(backend, {"n": 1}, name) == ["a"]


async def test_two_collections_keep_apart_what_has_the_same_id(store: Store) -> None:
    await fill(store, {"a": {"n": 1}}, "left")
    await fill(store, {"a": {"n": 2}}, "right")

    await fill(store, {"a": {"n": 3}}, "left")

    left, right = await store.items.get("left", "a"), await store.items.get("right", "a")
    assert left is not None
    assert right is not None
    assert (left.data, right.data) == ({"n": 3}, {"n": 2})
