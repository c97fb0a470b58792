"""What to go on with, told with an answer."""

from tests.protocols.conftest import asking, scripted, telling

from portico.ask.events import Constraint, EndEvent, InterpretationEvent, ItemEvent
from portico.items import Item
from portico.server.assembly import Parts

LIMIT = Constraint("price", "Preis unter 9", "unter 9")
SOUPS = [
    ItemEvent(
        Item(f"recipes/{each}", "recipes", {"@type": "Recipe", "name": f"Soup {each}", "totalTime": time}), 90.0, place
    )
    for place, (each, time) in enumerate({"A": "PT10M", "B": "PT20M", "C": "PT50M"}.items())
]


async def meta(parts: Parts, *found: ItemEvent, **version: str) -> dict:
    events = (InterpretationEvent("Suppe", ("recipes",), (LIMIT,), language="de"), *found, EndEvent(len(found)))
    async with asking(scripted(parts, telling(*events))) as client:
        asked = {"query": {"text": "Suppe"}, "prefer": {"streaming": False}, "meta": version}
        return (await client.post("/ask", json=asked)).json()["_meta"]


async def test_an_answer_tells_what_to_go_on_with_in_its_language(parts: Parts) -> None:
    assert (await meta(parts, *SOUPS, version="0.55"))["followups"] == [
        "Erzähl mir mehr über Soup A",
        "Unter 20 Minuten",
        "Etwas wie Soup A",
        "Erzähl mir mehr über Soup B",
    ]


async def test_where_little_was_found_and_in_earlier_versions_nothing_is_told(parts: Parts) -> None:
    assert "followups" not in await meta(parts, *SOUPS[:2], version="0.55")
    assert "followups" not in await meta(parts, *SOUPS, api_version="0.54")
