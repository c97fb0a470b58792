"""The operations of the sample site: carts, orders, table bookings and plans."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta

from portico.demo.shopping import shopping_list
from portico.errors import Conflict, InvalidParams, UnknownItem
from portico.items import Item, title_of
from portico.operations import Context, operation
from portico.query import And, Query, condition

PACKING = ("Checking stock", "Packing", "Labelling", "Handing to the courier")


class Line(msgspec.Struct, frozen=True):
    product: str
    name: str
    quantity: int
    price: float
    currency: str = ""


class Cart(msgspec.Struct, frozen=True):
    """A cart with its total."""

    id: str
    lines: list[Line]
    total: float
    currency: str = ""


class OrderReceipt(msgspec.Struct, frozen=True):
    id: str
    status: str
    lines: list[Line]
    total: float
    currency: str = ""


class Booking(msgspec.Struct, frozen=True):
    id: str
    restaurant: str
    name: str
    time: str
    people: int
    status: str


class Stop(msgspec.Struct, frozen=True):
    time: str
    what: str
    id: str
    why: str


class DayPlan(msgspec.Struct, frozen=True):
    """A day in the town, stop by stop."""

    date: str
    stops: list[Stop]


class Meal(msgspec.Struct, frozen=True):
    day: int
    what: str
    id: str


class MealPlan(msgspec.Struct, frozen=True):
    """A meal for each day, and everything to buy for them."""

    meals: list[Meal]
    shopping: list[str]


Quantity = Annotated[int, Meta(ge=1, le=99, description="How many")]
CartId = Annotated[str, Meta(description="The cart; a new one is created by default")]


@operation(kind="execute", danger="reversible", transactional=True)
async def add_to_cart(context: Context, product: str, quantity: Quantity = 1, cart: CartId = "") -> Cart:
    """Put a product into a cart. Keep the ID of the cart: anyone who has it can order."""
    item = await context.get("products", product)
    if item.data["stock"] < quantity:
        raise Conflict(f"Only {item.data['stock']} of {item.data['name']} are in stock", stock=item.data["stock"])
    saved_cart = await context.get("carts", cart) if cart else None
    lines = _with(_lines(saved_cart), product, item, quantity)
    data = {"lines": msgspec.to_builtins(lines)}
    expected = saved_cart.version if saved_cart else ""
    return _to_cart(await context.put("carts", cart or secrets.token_hex(12), data, expect=expected))


@operation(kind="execute", danger="safe")
async def view_cart(context: Context, cart: str) -> Cart:
    """Show what is in a cart."""
    return _to_cart(await context.get("carts", cart))


@operation(kind="execute", danger="reversible", transactional=True)
async def remove_from_cart(context: Context, cart: str, product: str) -> Cart:
    """Take a product out of a cart."""
    saved_cart = await context.get("carts", cart)
    lines = [line for line in _lines(saved_cart) if line.product != product]
    return _to_cart(await context.put("carts", cart, {"lines": msgspec.to_builtins(lines)}, expect=saved_cart.version))


@operation(kind="execute", danger="reversible", long=True, attempts=3, estimate=8.0)
async def place_order(context: Context, cart: str) -> OrderReceipt:
    """Order what is in a cart. Takes a few seconds; the stock is taken and the cart emptied."""
    saved: Mapping[str, Any] = context.saved or {}
    order = str(saved.get("order") or secrets.token_hex(12))
    cart_lines = _lines(await context.get("carts", cart))
    lines = [msgspec.convert(line, Line) for line in saved.get("lines", msgspec.to_builtins(cart_lines))]
    if not lines:
        raise InvalidParams("The cart is empty", param="cart")
    if not saved:
        await _take_all(context, order, lines)
    for step, message in enumerate(PACKING[1:], 1):
        await asyncio.sleep(2)
        await context.progress((step + 1) / (len(PACKING) + 1), message)
    total = _total(lines)
    await context.put("orders", order, {"lines": msgspec.to_builtins(lines), "total": total, "status": "sent"})
    await context.put("carts", cart, {"lines": []})
    return OrderReceipt(order, "sent", lines, total, _currency(lines))


async def _take_all(context: Context, order: str, lines: Sequence[Line]) -> None:
    """Take every line from the stock, or none, and save that, so that a resumed task takes nothing twice."""
    for line in lines:
        try:
            await _take_stock(context, line)
        except Conflict as error:
            # An invalid parameter, not a conflict: a retry would not help.
            raise InvalidParams(error.message, param="cart") from error
    await context.progress(0.2, PACKING[0], save={"order": order, "lines": msgspec.to_builtins(lines)})


@operation(kind="execute", danger="reversible", idempotent=True)
async def cancel_order(context: Context, order: str) -> OrderReceipt:
    """Cancel an order and put its goods back into stock."""
    item = await context.get("orders", order)
    lines = _lines(item)
    if item.data["status"] != "cancelled":
        await context.merge("orders", order, {"status": "cancelled"}, expect=item.version)
        for line in lines:
            await _take_stock(context, line, back=True)
    return OrderReceipt(order, "cancelled", lines, item.data["total"], _currency(lines))


@operation(kind="execute", danger="reversible", transactional=True)
async def book_table(
    context: Context,
    restaurant: str,
    time: Annotated[str, Meta(description="Date and time, as in 2026-12-05T19:00")],
    people: Annotated[int, Meta(ge=1, le=12)] = 2,
) -> Booking:
    """Reserve a table. The booking's id is needed to cancel it."""
    place = await context.get("restaurants", restaurant)
    if not place.data.get("acceptsReservations"):
        raise Conflict(f"{place.data['name']} does not take reservations", hint="Just turn up.")
    when = _moment(time)
    data = {"restaurant": restaurant, "time": when.isoformat(), "people": people, "status": "confirmed"}
    booked = await context.put("bookings", secrets.token_hex(12), data, expect="")
    return _to_booking(booked, place.data["name"])


@operation(kind="execute", danger="reversible", idempotent=True)
async def cancel_booking(context: Context, booking: str) -> Booking:
    """Give a reserved table back."""
    item = await context.merge("bookings", booking, {"status": "cancelled"})
    place = await context.get("restaurants", item.data["restaurant"])
    return _to_booking(item, place.data["name"])


@operation(kind="execute", danger="safe", long=True, attempts=5, estimate=20.0, timeout=60.0)
async def plan_day(
    context: Context,
    date: Annotated[str, Meta(description="The day, as in 2026-12-05")],
    interests: Annotated[list[str], Meta(max_length=5, description="What you like, in words")],
    pace: Annotated[float, Meta(ge=0, le=60, description="Seconds to think about each stop")] = 3.0,
) -> DayPlan:
    """Plan a day in the town around your interests. Continues after a restart."""
    day = _day(date)
    stops: list[Stop] = [msgspec.convert(raw, Stop) for raw in cast("list[Any]", context.saved or [])]
    slots = _slots(interests)
    for number, (hour, collection, wish) in enumerate(slots):
        if number < len(stops):
            continue
        await context.progress(number / len(slots), f"Looking for something at {hour}")
        await asyncio.sleep(pace)
        stop = await _best_stop(context, day, hour, collection, wish, stops)
        stops.append(stop)
        share = (number + 1) / len(slots)
        await context.progress(share, f"{hour}: {stop.what}", save=msgspec.to_builtins(stops))
    return DayPlan(day.isoformat(), stops)


@operation(kind="execute", danger="safe", long=True, attempts=5, estimate=30.0, timeout=60.0)
async def plan_meals(
    context: Context,
    days: Annotated[int, Meta(ge=1, le=14, description="For how many days")] = 7,
    wish: Annotated[str, Meta(max_length=200, description="What the meals should be like, in words")] = "dinner",
    pace: Annotated[float, Meta(ge=0, le=60, description="Seconds to think about each meal")] = 4.0,
) -> MealPlan:
    """Create a weekly meal plan with a shopping list. Continues after a restart."""
    chosen: list[str] = [str(id) for id in cast("list[Any]", context.saved or [])]
    page = await context.find(Query("recipes", text=wish, limit=5 * days))
    fresh = iter([item for item in page.items if item.id not in chosen])
    while len(chosen) < days:
        await context.progress(len(chosen) / days, f"Choosing a meal for day {len(chosen) + 1}")
        await asyncio.sleep(pace)
        item = next(fresh, None)
        if item is None:
            break
        chosen.append(item.id)
        await context.progress(len(chosen) / days, f"Day {len(chosen)}: {_name(item)}", save=chosen)
    recipes = [await context.get("recipes", id) for id in chosen]
    meals = [Meal(number, _name(item), item.id) for number, item in enumerate(recipes, 1)]
    return MealPlan(meals, shopping_list(line for item in recipes for line in _ingredients(item)))


def _ingredients(recipe: Item) -> list[str]:
    """Return the lines of a recipe's ingredients: several, one, or none."""
    lines = recipe.data.get("recipeIngredient")
    several = cast("list[Any]", lines) if isinstance(lines, list) else [lines]
    return [line for line in several if isinstance(line, str)]


def _name(item: Item) -> str:
    return title_of(item.data) or item.id


def _slots(interests: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return the hours of the day, each with a collection and the words to search for."""
    wishes = list(interests) or ["harbour"]
    return [
        ("09:30", "restaurants", f"breakfast {wishes[0]}"),
        ("11:00", "places", wishes[0]),
        ("13:00", "restaurants", f"lunch {wishes[-1]}"),
        ("15:00", "places", wishes[1 % len(wishes)]),
        ("17:00", "events", wishes[-1]),
        ("19:30", "restaurants", f"dinner {wishes[len(wishes) // 2]}"),
    ]


async def _best_stop(
    context: Context, day: date, hour: str, collection: str, wish: str, chosen: Sequence[Stop]
) -> Stop:
    where = And(())
    if collection == "events":
        start, end = f"{day}T00:00:00Z", f"{day}T23:59:59Z"
        where = And((condition("startDate", "between", [start, end]),))
    page = await context.find(Query(collection, text=wish, where=where, limit=10))
    fresh = [item for item in page.items if item.id not in {stop.id for stop in chosen}]
    if not fresh:
        return Stop(hour, "Free time", "", f"Nothing in {collection} matches {wish!r} on this day.")
    best = fresh[0]
    return Stop(hour, _name(best), best.id, str(best.data.get("description", ""))[:160])


def _lines(holder: Item | None) -> list[Line]:
    return [msgspec.convert(line, Line) for line in holder.data["lines"]] if holder else []


def _with(lines: list[Line], product: str, item: Item, quantity: int) -> list[Line]:
    before = next((line.quantity for line in lines if line.product == product), 0)
    rest = [line for line in lines if line.product != product]
    data = item.data
    return [*rest, Line(product, data["name"], before + quantity, float(data["price"]), data.get("priceCurrency", ""))]


def _total(lines: Sequence[Line]) -> float:
    return round(sum(line.price * line.quantity for line in lines), 2)


def _currency(lines: Sequence[Line]) -> str:
    """Return the currency of all lines; empty if there are several, or no lines."""
    currencies = {line.currency for line in lines}
    return currencies.pop() if len(currencies) == 1 else ""


def _to_cart(item: Item) -> Cart:
    lines = _lines(item)
    return Cart(item.id, lines, _total(lines), _currency(lines))


def _to_booking(item: Item, name: str) -> Booking:
    data = item.data
    return Booking(item.id, data["restaurant"], name, data["time"], data["people"], data["status"])


async def _take_stock(context: Context, line: Line, *, back: bool = False) -> None:
    """Change a product's stock; the version prevents two buyers from taking the same last piece."""
    try:
        item = await context.get("products", line.product)
    except UnknownItem:
        return  # no longer sold: nothing to count
    left = item.data["stock"] + (line.quantity if back else -line.quantity)
    if left < 0:
        raise Conflict(f"{line.name} has sold out in the meantime", product=line.product)
    await context.merge("products", line.product, {"stock": left}, expect=item.version)


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidParams(f"{text!r} is not a time", param="time", hint="Write 2026-12-05T19:00.") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidParams(f"{text!r} is not a day", param="date", hint="Write 2026-12-05.") from None
