"""From an Ask to its events: understood, found and ranked over all collections, finished."""

from collections.abc import AsyncIterator

from portico.ask.events import Event, Finished, Found, Understood
from portico.calls import Ask
from portico.search import Finder


async def answer(ask: Ask, collections: tuple[str, ...], finder: Finder, seen: int) -> AsyncIterator[Event]:
    """The best items of these collections for the question, best first."""
    yield Understood(ask.text, collections)
    hits, notes = await finder.find_across(collections, ask.text, ask.where, ask.limit, seen)
    for item, score in hits:
        yield Found(item, round(100 * score, 1))
    yield Finished(len(hits), notes)
