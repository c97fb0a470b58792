"""Cases, and the audit trail of what was decided: all of a decision is kept or none, and no line is ever changed."""

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import apsw
import asyncpg
import pytest
from tests.conformance.requirements import requirement
from tests.conftest import Opening

from portico.errors import Conflict
from portico.store import Store
from portico.store.records import AuditEntry, LedgerEntry, SafetyRecord, audit_digest

HOUR = timedelta(hours=1)
STARTED = datetime(2026, 5, 4, 3, 2, 1, 123457, tzinfo=UTC)


async def execute(url: str, *statements: str) -> list[str]:
    """What somebody with the password of the database is told of each statement; empty if it is carried out."""
    told: list[str] = []
    if url.startswith("sqlite"):
        with closing(apsw.Connection(url.removeprefix("sqlite:///"))) as file:
            for statement in statements:
                try:
                    file.execute(statement)
                    told.append("")
                except apsw.Error as error:
                    told.append(str(error))
        return told
    parts = urlsplit(url)
    path = {"search_path": parse_qs(parts.query)["schema"][0]}
    session = await asyncpg.connect(parts._replace(query="").geturl(), server_settings=path)
    for statement in statements:
        try:
            await session.execute(statement)
            told.append("")
        except asyncpg.PostgresError as error:
            told.append(str(error))
    await session.close()
    return told


def is_chain(lines: Sequence[AuditEntry]) -> bool:
    """Whether lines are numbered from 1 on, each says what the one before was, and each is what its digest says."""
    before = ""
    for number, line in enumerate(lines, 1):
        digest = audit_digest(before, number, line.at, line.event, line.body)
        if (line.seq, line.before, line.digest) != (number, before, digest):
            return False
        before = digest
    return True


async def count_up(store: Store, id: str) -> None:
    """Add one to a number that is kept as a case, however many others do the same."""
    while True:
        case = await store.audit.get("number", id) or SafetyRecord("number", id, b"0")
        number = int(case.data or b"0") + 1
        lines = await store.audit.commit([replace(case, data=b"%d" % number)], [("counted", {"to": number})])
        if lines is not None:
            return


def test_a_digest_can_be_checked_with_common_tools() -> None:
    said = '[2,1777863721123457,"tëst",{"a":[1.5,null],"b":"é"}]'
    expected = hashlib.sha256(f"{'f' * 64}\n{said}".encode()).hexdigest()

    assert audit_digest("f" * 64, 2, STARTED, "tëst", {"b": "é", "a": [1.5, None]}) == expected


async def test_a_case_is_kept_whole_and_its_version_counts_its_changes(store: Store) -> None:
    expires = datetime.now(UTC).replace(microsecond=999_999) + HOUR
    bobs, anns = SafetyRecord("block", "Ünn 'b'", b"\0\xff"), SafetyRecord("block", "ann", b"{}", expires=expires)
    other = SafetyRecord("token", "ann", b"")

    assert await store.audit.commit([bobs, anns, other], []) == []

    kept = [replace(anns, version=1), replace(bobs, version=1)]
    assert await store.audit.list_records("block") == sorted(kept, key=lambda case: case.id)
    assert await store.audit.list_records("block", limit=1) == [min(kept, key=lambda case: case.id)]
    assert await store.audit.get("token", "ann") == replace(other, version=1)
    assert (await store.audit.get("block", "eve"), await store.audit.list_records("blocks")) == (None, [])

    await store.audit.commit([replace(anns, version=1, data=b"new", expires=None)], [])

    assert await store.audit.get("block", "ann") == SafetyRecord("block", "ann", b"new", 2)


@requirement("aql:gate:audit-chain")
async def test_what_was_told_is_a_chain_of_lines_that_a_reopened_store_has_as_they_were(
    url: str, opening: Opening
) -> None:
    store = await opening(url)
    assert await store.audit.list_entries() == []
    before = datetime.now(UTC) - timedelta(minutes=1)

    first = await store.audit.commit(
        [SafetyRecord("block", "ann", b"1")], [("blocked", {"who": "ann", "at": STARTED, "n": (1.0, 2)})]
    )
    second = await store.audit.commit(
        [], [("looked", {}), ("Än\tdern", {"deep": {"é": [None, True, "\0"], "a": 2**64}})]
    )

    lines = [*(first or []), *(second or [])]
    assert [(line.seq, line.event, line.body) for line in lines] == [
        (1, "blocked", {"who": "ann", "at": "2026-05-04T03:02:01.123457Z", "n": [1.0, 2]}),
        (2, "looked", {}),
        (3, "Än\tdern", {"deep": {"é": [None, True, "\0"], "a": 2**64}}),
    ]
    assert is_chain(lines)
    assert not is_chain([replace(lines[0], body={}), *lines[1:]])
    assert all(before < line.at < datetime.now(UTC) + timedelta(minutes=1) for line in lines)
    again = await opening(url)
    assert await again.audit.list_entries() == lines
    assert await again.audit.list_entries(after=1, limit=1) == lines[1:2]
    assert await again.audit.get("block", "ann") == SafetyRecord("block", "ann", b"1", 1)


async def test_of_a_decision_on_a_case_that_was_changed_meanwhile_nothing_is_kept(store: Store) -> None:
    await store.audit.commit([SafetyRecord("a", "1", b"old"), SafetyRecord("a", "2", b"old")], [("made", {})])
    await store.audit.commit([SafetyRecord("a", "2", b"new", 1)], [("changed", {})])
    there, lines = await store.audit.list_records("a"), await store.audit.list_entries()

    for stale in (
        SafetyRecord("a", "2", b"mine", 1),
        SafetyRecord("a", "2", None, 1),
        SafetyRecord("a", "2", b"mine", 3),
        SafetyRecord("a", "2", b"mine"),
        SafetyRecord("a", "2", None),
        SafetyRecord("a", "9", b"mine", 1),
        SafetyRecord("a", "9", None, 1),
    ):
        others = [SafetyRecord("a", "1", b"mine", 1), SafetyRecord("a", "3", b"mine"), SafetyRecord("b", "1", b"mine")]
        assert await store.audit.commit([*others, stale], [("decided", {})]) is None

    assert (
        await store.audit.list_records("a"),
        await store.audit.list_records("b"),
        await store.audit.list_entries(),
    ) == (there, [], lines)


async def test_however_many_decide_on_one_case_each_decision_counts_once(url: str, opening: Opening) -> None:
    stores = [await opening(url), await opening(url)]

    async with asyncio.timeout(60):
        await asyncio.gather(*(count_up(stores[n % 2], "one") for n in range(20)))

    assert await stores[0].audit.get("number", "one") == SafetyRecord("number", "one", b"20", 20)
    lines = await stores[1].audit.list_entries()
    assert [line.body for line in lines] == [{"to": number} for number in range(1, 21)]
    assert is_chain(lines)


async def test_decisions_on_different_cases_are_all_kept_and_told_in_one_chain(url: str, opening: Opening) -> None:
    stores = [await opening(url), await opening(url)]
    names = [f"n{number}" for number in range(12)]

    async with asyncio.timeout(60):
        await asyncio.gather(*(count_up(stores[n % 2], name) for n, name in enumerate(names)))

    assert {case.id for case in await stores[0].audit.list_records("number")} == set(names)
    lines = await stores[0].audit.list_entries()
    assert (len(lines), is_chain(lines)) == (12, True)


async def test_of_many_who_begin_the_same_cases_at_once_one_does(url: str, opening: Opening) -> None:
    stores = [await opening(url), await opening(url)]

    def begin(number: int) -> list[SafetyRecord]:
        begun = [SafetyRecord("a", id, b"%d" % number) for id in "xyz"]
        return begun if number % 2 else begun[::-1]

    decided = await asyncio.gather(*(stores[n % 2].audit.commit(begin(n), [("begun", {"by": n})]) for n in range(10)))

    ((line,),) = [lines for lines in decided if lines is not None]
    assert await stores[0].audit.list_entries() == [line]
    assert {case.data for case in await stores[0].audit.list_records("a")} == {b"%d" % line.body["by"]}


async def test_a_case_that_is_taken_away_may_begin_anew(store: Store) -> None:
    await store.audit.commit([SafetyRecord("a", "1", b"x")], [])

    assert (
        await store.audit.commit([SafetyRecord("a", "1", None, 1), SafetyRecord("a", "2", None)], [("removed", {})])
        is not None
    )
    assert await store.audit.list_records("a") == []
    assert await store.audit.commit([SafetyRecord("a", "1", b"y", 2)], []) is None
    assert await store.audit.commit([SafetyRecord("a", "1", b"y")], []) == []
    assert await store.audit.get("a", "1") == SafetyRecord("a", "1", b"y", 1)


async def test_an_expired_case_is_none_and_is_swept_with_a_later_decision(store: Store) -> None:
    now = datetime.now(UTC)
    past, soon = now - HOUR, now + HOUR
    old: list[LedgerEntry] = [SafetyRecord("a", id, b"old", 7, past) for id in ("1", "2", "3")]
    await store.backup.restore_entries(
        [*old, SafetyRecord("a", "4", b"lasts", 1, soon), SafetyRecord("b", "5", b"stays", 1)]
    )

    assert (await store.audit.get("a", "1"), [case.id for case in await store.audit.list_records("a")]) == (None, ["4"])
    assert await store.audit.commit([SafetyRecord("a", "1", b"late", 7)], []) is None
    assert await store.audit.commit([SafetyRecord("a", "1", None, 7)], []) is None
    assert (
        await store.audit.commit([SafetyRecord("a", "1", b"new", expires=soon), SafetyRecord("a", "2", None)], []) == []
    )

    left = [entry async for some in store.backup.read_entries(past - HOUR) for entry in some]
    assert left == [
        SafetyRecord("a", "1", b"new", 1, soon),
        SafetyRecord("a", "4", b"lasts", 1, soon),
        SafetyRecord("b", "5", b"stays", 1),
    ]


@requirement("aql:gate:audit-chain")
async def test_no_line_is_changed_or_removed_not_even_by_hand(url: str, opening: Opening) -> None:
    store = await opening(url)
    lines = await store.audit.commit([], [("first", {"a": 1}), ("second", {}), ("third", {})])
    values = f"3, 0, 'mine', '{{}}', '', '{'0' * 64}'"
    by_hand = {
        "sqlite": (f"INSERT OR REPLACE INTO trail VALUES ({values})", f"REPLACE INTO trail VALUES ({values})"),
        "postgresql": ("TRUNCATE trail", f"INSERT INTO trail VALUES ({values}) ON CONFLICT (seq) DO UPDATE SET at = 0"),
    }

    told = await execute(
        url,
        "UPDATE trail SET body = '{}' WHERE seq = 1",
        "UPDATE trail SET seq = 9 WHERE seq = 3",
        "DELETE FROM trail WHERE seq = 2",
        "DELETE FROM trail",
        *by_hand[url.partition(":")[0]],
    )

    assert told == ["the audit trail only grows"] * 6
    assert await store.audit.list_entries() == lines
    await store.backup.delete_entries()
    assert await store.audit.list_entries() == lines


async def test_a_trail_is_restored_in_parts_and_goes_on(store: Store, opening: Opening) -> None:
    other = await opening("sqlite:///:memory:")
    lines = (
        await other.audit.commit(
            [SafetyRecord("a", "1", b"x", expires=None)], [(f"e{n}", {"n": n}) for n in range(1001)]
        )
        or []
    )
    await store.backup.restore_entries(
        [SafetyRecord("a", "1", b"old", 9), SafetyRecord("a", "2", b"gone", 1), *lines[:3]]
    )

    await store.backup.delete_entries()
    async for some in other.backup.read_entries(STARTED):
        await store.backup.restore_entries(some)

    assert await store.audit.list_entries(limit=2000) == lines
    assert await store.audit.list_records("a") == [SafetyRecord("a", "1", b"x", 1)]
    more = await store.audit.commit([SafetyRecord("a", "1", b"y", 1)], [("more", {})]) or []
    assert is_chain([*lines, *more])


async def test_a_line_that_does_not_continue_the_trail_is_refused_with_all_that_came_with_it(store: Store) -> None:
    one, two = await store.audit.commit([], [("one", {}), ("two", {})]) or []
    three = AuditEntry(3, STARTED, "three", {}, two.digest, audit_digest(two.digest, 3, STARTED, "three", {}))
    another = replace(three, before=one.digest)

    for wrong in (replace(two, digest="0" * 64), another, replace(three, seq=4), replace(three, seq=4, before="")):
        with pytest.raises(Conflict, match="audit trail") as refusal:
            await store.backup.restore_entries([SafetyRecord("a", "1", b"x", 1), wrong])
        assert refusal.value.details == {"seq": wrong.seq}
        assert "empty store" in (refusal.value.hint or "")

    assert (await store.audit.list_entries(), await store.audit.list_records("a")) == ([one, two], [])
    await store.backup.restore_entries([one, three])
    assert await store.audit.list_entries() == [one, two, three]
