"""Collections made while others look."""

import asyncio

from portico.catalog import Collection
from portico.store import open_store
from portico.store.records import Put


async def test_a_collection_made_while_others_look_stays_known(url: str) -> None:
    """A reader that began before the collection was made must not bring the old schema back."""
    store = await open_store(url)
    looking = True

    async def look() -> None:
        while looking:
            await store.collections.refresh()

    lookers = [asyncio.create_task(look()) for _ in range(3)]
    try:
        for number in range(60):
            await store.collections.declare(Collection(f"c{number}"))
            assert f"c{number}" in store.collections.schema
            await store.items.write(f"c{number}", [Put("a", {"n": number})])
            assert (await store.items.get(f"c{number}", "a")).data == {"n": number}
    finally:
        looking = False
        await asyncio.wait(lookers)
        await store.close()
