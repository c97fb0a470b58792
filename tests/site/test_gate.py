"""What the gate lets through, for whom, and that nothing passes beside it."""

import gc
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.site.conftest import OPERATOR, Open, config, furnish, key_holder

from portico.access.identity import RequestCredentials, make_key
from portico.ask.events import InterpretationEvent
from portico.catalog import Danger, Trust
from portico.errors import (
    BadRequest,
    ConfirmationNeeded,
    Forbidden,
    RateLimited,
    SiteError,
    TooLarge,
    Unauthenticated,
    UnknownCollection,
    UnknownField,
    UnknownOperation,
)
from portico.query import Condition, Query
from portico.requests import Ask, Call, Caller, Watch
from portico.safety.gate import Permit
from portico.search.pages import PageCache
from portico.server.assembly import Parts, open_site_without_index
from portico.site import Site
from portico.store import open_store
from portico.store.records import Put
from portico.telemetry import QueryServed, TelemetryEvent

CREATE = Call("create_room", {"id": "new", "input": {"beds": 1}})
DELETE = Call("delete_room", {"id": "attic"})


def test_a_permit_cannot_be_made_elsewhere() -> None:
    with pytest.raises(TypeError):
        Permit(Query("rooms"), OPERATOR, None, object())
    with pytest.raises(TypeError):
        Permit(Query("rooms"), OPERATOR, None)  # type: ignore[call-arg]


async def test_a_permit_cannot_be_altered_into_another(site: Site) -> None:
    permit = await site._gate.admit(Query("rooms"), OPERATOR)

    with pytest.raises(AttributeError):
        permit.caller = Caller()  # type: ignore[misc]


async def test_anybody_may_read_and_ask_but_not_write(parts: Parts) -> None:
    nobody = parts.site.access.anonymous_caller("1.2.3.4")

    assert len((await parts.site.query(Query("rooms"), nobody)).items) == 3
    assert [event async for event in parts.site.ask(Ask("attic"), nobody)]
    assert (await parts.site.call(Call("count_rooms"), nobody)).result == {"count": 3}
    with pytest.raises(Unauthenticated) as refusal:
        await parts.site.call(CREATE, nobody)
    assert refusal.value.details == {"scope": "create:rooms"}
    assert await parts.store.items.get("rooms", "new") is None


@pytest.mark.parametrize(
    ("scopes", "danger", "call", "refused"),
    [
        (["create:rooms"], Danger.REVERSIBLE, CREATE, None),
        (["create:*"], Danger.REVERSIBLE, CREATE, None),
        (["*:rooms"], Danger.REVERSIBLE, CREATE, None),
        (["*:*"], Danger.REVERSIBLE, CREATE, None),
        (["create:create_room"], Danger.REVERSIBLE, CREATE, None),
        (["create:guests"], Danger.REVERSIBLE, CREATE, Forbidden),
        (["read:rooms", "update:rooms"], Danger.REVERSIBLE, CREATE, Forbidden),
        (["ask"], Danger.DANGEROUS, CREATE, Forbidden),
        (["create:rooms"], Danger.SAFE, CREATE, Forbidden),
        (["*:*"], Danger.REVERSIBLE, DELETE, Forbidden),
        (["*:*"], Danger.DESTRUCTIVE, DELETE, None),
        (["delete:delete_room"], Danger.DESTRUCTIVE, DELETE, None),
        (["delete:create_room"], Danger.DESTRUCTIVE, DELETE, Forbidden),
    ],
)
async def test_a_key_opens_what_its_scopes_and_its_danger_say(
    parts: Parts, scopes: list[str], danger: Danger, call: Call, refused: type[SiteError] | None
) -> None:
    somebody = await key_holder(parts, *scopes, danger=danger, trust=Trust.CERTIFIED)
    if refused is None:
        await parts.site.call(call, somebody)
        return
    with pytest.raises(refused):
        await parts.site.call(call, somebody)


async def test_a_key_that_is_not_certified_deletes_nothing_until_somebody_else_has_agreed(parts: Parts) -> None:
    somebody = await key_holder(parts, "*:*", danger=Danger.DESTRUCTIVE)

    with pytest.raises(ConfirmationNeeded) as refusal:
        await parts.site.call(DELETE, somebody)
    assert await parts.store.items.get("rooms", "attic")

    [waiting] = (await parts.site.supervision.pending(OPERATOR)).confirmations
    assert waiting.token == refusal.value.details["token"]
    await parts.site.supervision.confirm(waiting.token, "approve", "", OPERATOR, digest=waiting.digest)
    await parts.site.call(DELETE, somebody)
    assert await parts.store.items.get("rooms", "attic") is None


async def test_a_key_reads_only_its_collections_through_every_door(parts: Parts) -> None:
    await parts.store.collections.declare(parts.config.collection("guests"))
    await parts.store.items.write("guests", [Put("ada", {"name": "Ada of the attic"})])
    somebody = await key_holder(parts, "ask", "read:rooms")

    found = [event.item.collection async for event in parts.site.ask(Ask("attic"), somebody) if hasattr(event, "item")]
    assert found == ["rooms"]
    with pytest.raises(Forbidden):
        await parts.site.query(Query("guests"), somebody)
    with pytest.raises(Forbidden):
        await anext(parts.site.watch(Watch("guests"), somebody))
    with pytest.raises(Forbidden):
        await anext(parts.site.ask(Ask("attic", ("guests",)), somebody))
    with pytest.raises(Forbidden):
        await parts.site.call(Call("list_guests"), somebody)


async def test_a_private_collection_is_invisible_to_all_but_the_operator(opened: Open) -> None:
    async with opened(collections={"ledger": {"private": True}}) as parts:
        await parts.store.items.write("ledger", [Put("a", {"name": "attic", "sum": 3})])
        await parts.index.sync(await parts.store.changes.head())
        site = parts.site
        somebody = await key_holder(parts, "ask", "*:*", danger=Danger.DANGEROUS)

        assert "ledger" not in [each.name for each in site.catalog.public]
        assert not [name for name in site.catalog.operations if "ledger" in name]
        with pytest.raises(UnknownCollection):
            await site.query(Query("ledger"), somebody)
        with pytest.raises(UnknownCollection):
            await anext(site.watch(Watch("ledger"), somebody))
        with pytest.raises(UnknownCollection):
            await anext(site.ask(Ask("attic", ("ledger",)), somebody))
        with pytest.raises(UnknownOperation):
            await site.call(Call("list_ledger"), somebody)
        assert [type(event).__name__ async for event in site.ask(Ask("attic"), somebody)] == [
            "InterpretationEvent",
            "EndEvent",
        ]
        assert [item.id for item in (await site.query(Query("ledger"), OPERATOR)).items] == ["a"]


async def test_a_key_that_is_wrong_expired_or_revoked_is_nobody(parts: Parts) -> None:
    expired, old = make_key("old", ["ask"], Danger.SAFE, days=-1)
    revoked, gone = make_key("gone", ["ask"], Danger.SAFE, days=1)
    for key in (old, gone):
        await parts.store.keys.add(key)
    await parts.store.keys.revoke(gone.id, datetime.now(UTC))

    for token in (expired, revoked, "pk_guess", " ", "\0"):
        with pytest.raises(Unauthenticated):
            await parts.site.identity.caller(RequestCredentials(token))


async def test_a_caller_is_slowed_down_alone_and_told_for_how_long(opened: Open) -> None:
    async with opened(limits={"anonymous_per_minute": 3, "keys_per_minute": 5}) as parts:
        await furnish(parts)
        noisy, quiet = (parts.site.access.anonymous_caller(address) for address in ("1.1.1.1", "2.2.2.2"))
        for _ in range(3):
            await parts.site.query(Query("rooms"), noisy)

        with pytest.raises(RateLimited) as refusal:
            await parts.site.query(Query("rooms"), noisy)

        assert refusal.value.details["limit"] == 3
        assert 0 < refusal.value.details["retry_after"] <= 20
        await parts.site.query(Query("rooms"), quiet)
        somebody = await key_holder(parts, "read:*")
        for _ in range(5):
            await parts.site.call(Call("count_rooms"), somebody)
        with pytest.raises(RateLimited):
            await anext(parts.site.watch(Watch("rooms"), somebody))


async def test_a_caller_has_one_allowance_at_all_replicas(tmp_path: Path, url: str) -> None:
    settings = config(tmp_path, url, limits={"anonymous_per_minute": 4})
    async with open_site_without_index(settings) as first, open_site_without_index(settings) as second:
        await furnish(first)
        nobody = first.site.access.anonymous_caller("1.1.1.1")
        for each in (first, second, first, second):
            await each.site.query(Query("rooms"), nobody)

        for each in (first, second):
            with pytest.raises(RateLimited):
                await each.site.query(Query("rooms"), nobody)


async def test_refused_requests_count_too(opened: Open) -> None:
    """Otherwise guessing names would be free."""
    async with opened(limits={"anonymous_per_minute": 2}) as parts:
        nobody = parts.site.access.anonymous_caller("1.1.1.1")
        for _ in range(2):
            with pytest.raises(UnknownCollection):
                await parts.site.query(Query("guess"), nobody)
        with pytest.raises(RateLimited):
            await parts.site.query(Query("guess"), nobody)


async def test_too_much_too_deep_and_too_long_are_refused_with_the_limit(opened: Open) -> None:
    async with opened(limits={"payload_bytes": 2000, "depth": 5, "text_characters": 100}) as parts:
        await furnish(parts)
        deep: dict = {}
        for _ in range(6):
            deep = {"in": deep}
        large = Call("create_room", {"input": {"name": "x" * 3000}})
        nested = Call("create_room", {"input": deep})

        with pytest.raises(TooLarge) as too_large:
            await parts.site.call(large, OPERATOR)
        with pytest.raises(TooLarge) as too_deep:
            await parts.site.call(nested, OPERATOR)
        with pytest.raises(TooLarge) as too_long:
            await parts.site.query(Query("rooms", text="x" * 101), OPERATOR)
        with pytest.raises(TooLarge):
            await anext(parts.site.ask(Ask("x" * 101), OPERATOR))

        assert too_large.value.details["limit"] == 2000
        assert too_deep.value.details["limit_type"] == "nesting_depth"
        assert too_long.value.details["limit"] == 100


async def test_what_is_not_json_is_a_bad_request(site: Site) -> None:
    for odd in ("\ud800", {"a": {"b": "\udfff"}}, {"bytes": object()}):
        with pytest.raises(BadRequest):
            await site.call(Call("create_room", {"id": "x", "input": {"name": odd}}), OPERATOR)


async def test_a_forbidden_operation_is_forbidden_to_everybody(opened: Open) -> None:
    own = """
from portico.operations import Context, operation
@operation(danger="forbidden")
async def burn_down(context: Context) -> str:
    return "burnt"
"""
    async with opened(own) as parts:
        with pytest.raises(Forbidden, match="is forbidden on this site"):
            await parts.site.call(Call("burn_down"), replace(OPERATOR, danger=Danger.FORBIDDEN))


async def test_a_refusal_is_observed(opened: Open) -> None:
    async with opened() as parts:
        with pytest.raises(UnknownOperation):
            await parts.site.call(Call("nothing"), OPERATOR)

        refused = parts.metrics.registry.get_sample_value("portico_events_total", {"event": "Refused"})
    assert refused == 1.0


# What another replica made a moment ago


async def test_a_new_collection_is_known_at_every_replica_at_once_for_one_token(tmp_path: Path, url: str) -> None:
    settings = config(tmp_path, url, limits={"anonymous_per_minute": 1})
    async with open_site_without_index(settings) as first, open_site_without_index(settings) as second:
        await furnish(first)

        page = await second.site.query(Query("rooms"), second.site.access.anonymous_caller("1.1.1.1"))

    assert [item.id for item in page.items] == ["attic", "cellar", "garden"]


async def test_operations_of_a_new_collection_are_known_at_every_replica_at_once(tmp_path: Path, url: str) -> None:
    async with (
        open_site_without_index(config(tmp_path, url)) as first,
        open_site_without_index(config(tmp_path, url)) as second,
    ):
        await furnish(first)

        assert (await second.site.call(Call("count_rooms"), OPERATOR)).result == {"count": 3}


async def test_a_new_collection_is_watched_and_asked_at_every_replica_at_once(tmp_path: Path, url: str) -> None:
    settings = config(tmp_path, url)
    async with open_site_without_index(settings) as second, open_site_without_index(settings) as third:
        async with open_site_without_index(settings) as first:
            await furnish(first)

        change = await anext(second.site.watch(Watch("rooms", since=0), OPERATOR))
        understood = await anext(third.site.ask(Ask("attic", ("rooms",)), OPERATOR))

    assert (change.kind, change.item.id) == ("create", "attic")
    assert understood == InterpretationEvent("attic", ("rooms",))


async def test_a_new_field_is_known_at_every_replica_at_once(tmp_path: Path, url: str) -> None:
    steep, steeper = Condition("steps", "gt", 30), Condition("stairs", "gt", 30)
    settings = config(tmp_path, url)
    async with open_site_without_index(settings) as first:
        await furnish(first)
        async with open_site_without_index(settings) as second, open_site_without_index(settings) as third:
            await first.store.items.write("rooms", [Put("tower", {"name": "The tower", "steps": 90})])

            change = await anext(second.site.watch(Watch("rooms", steep, since=0), OPERATOR))
            understood = await anext(third.site.ask(Ask("tower", where=steep), OPERATOR))
            with pytest.raises(UnknownField):
                await anext(third.site.ask(Ask("tower", where=steeper), OPERATOR))

    assert change.item.id == "tower"
    assert understood == InterpretationEvent("tower", ("rooms",))


async def test_a_replica_that_finds_nothing_new_refuses_as_before(tmp_path: Path, url: str) -> None:
    async with open_site_without_index(config(tmp_path, url)) as parts:
        await furnish(parts)

        with pytest.raises(UnknownCollection):
            await parts.site.query(Query("guests"), OPERATOR)
        with pytest.raises(UnknownOperation):
            await parts.site.call(Call("count_guests"), OPERATOR)
        with pytest.raises(UnknownField):
            await anext(parts.site.watch(Watch("rooms", Condition("stairs", "gt", 3)), OPERATOR))


async def test_a_collection_that_another_process_made_private_is_closed_at_once(parts: Parts) -> None:
    nobody = parts.site.access.anonymous_caller("1.2.3.4")
    assert (await parts.site.query(Query("rooms"), nobody)).items
    other = await open_store(parts.config.store_url)
    await other.collections.declare(replace((await other.collections.refresh())["rooms"], private=True))
    await other.close()

    with pytest.raises(UnknownCollection):
        await parts.site.query(Query("rooms", limit=1), nobody)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)  # where it is known at once whether somebody wrote
class TestACachedPage:
    """A page comes from the cache only as long as nothing that decides it has changed."""

    WHAT = Query("rooms", limit=2)

    @pytest.fixture
    async def nobody(self, parts: Parts) -> Caller:
        """A caller whose query is in the cache."""
        nobody = parts.site.access.anonymous_caller("1.2.3.4")
        await parts.site.query(self.WHAT, nobody)
        assert (await parts.site.query(self.WHAT, nobody)).is_cached
        return nobody

    async def test_it_costs_what_a_query_costs_and_is_told_as_one(
        self, parts: Parts, nobody: Caller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("portico.access.limits.LEASE_SECONDS", 60.0)
        before = parts.site.access.quota(nobody).remaining
        seen: list[TelemetryEvent] = []
        monkeypatch.setattr(parts.site, "_record", seen.append)

        assert (await parts.site.query(self.WHAT, nobody)).is_cached
        assert parts.site.access.quota(nobody).remaining == before - 1
        assert [(each.collection, each.items, each.caller) for each in seen if isinstance(each, QueryServed)] == [
            ("rooms", 2, "anonymous")
        ]

    async def test_after_a_change_the_page_is_found_anew(self, parts: Parts, nobody: Caller) -> None:
        await parts.store.items.write("rooms", [Put("aaa", {"name": "The loft"})])

        page = await parts.site.query(self.WHAT, nobody)
        assert not page.is_cached
        assert page.items[0].id == "aaa"

    async def test_once_its_collection_is_private_it_is_refused(self, parts: Parts, nobody: Caller) -> None:
        other = await open_store(parts.config.store_url)
        await other.collections.declare(replace((await other.collections.refresh())["rooms"], private=True))
        await other.close()

        with pytest.raises(UnknownCollection):
            await parts.site.query(self.WHAT, nobody)

    async def test_who_may_not_read_is_refused_what_others_have_read(self, parts: Parts, nobody: Caller) -> None:
        with pytest.raises(Forbidden):
            await parts.site.query(self.WHAT, replace(nobody, id="key:another", scopes=frozenset({"ask"})))

        assert (await parts.site.query(self.WHAT, nobody)).is_cached

    async def test_pages_of_older_states_are_dropped(self, parts: Parts, nobody: Caller) -> None:
        def shelves() -> int:
            gc.collect()
            return sum(isinstance(each, PageCache) for each in gc.get_objects())

        before = shelves()
        for number in range(5):
            await parts.store.items.write("rooms", [Put("loft", {"name": f"Loft {number}"})])
            await parts.site.query(self.WHAT, nobody)

        assert shelves() == before
