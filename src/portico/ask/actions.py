"""What can be done with an item: operations that take one of its kind. Knows no protocol."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from portico.ask.commands import parameter_for, shape_of, suits
from portico.ask.events import Action
from portico.catalog import Collection, Operation
from portico.items import Item

# Types of schema.org for what an operation's name begins with.
TYPES: dict[str, str] = {
    "add": "AddAction", "book": "ReserveAction", "reserve": "ReserveAction", "order": "OrderAction",
    "buy": "BuyAction", "pay": "PayAction", "cancel": "CancelAction", "plan": "PlanAction", "create": "CreateAction",
    "update": "UpdateAction", "delete": "DeleteAction", "remove": "DeleteAction", "search": "SearchAction",
    "subscribe": "SubscribeAction", "rate": "RateAction", "review": "ReviewAction", "share": "ShareAction",
    "watch": "WatchAction", "read": "ReadAction", "play": "PlayAction", "download": "DownloadAction",
    "register": "RegisterAction", "join": "JoinAction", "send": "SendAction", "check": "CheckAction",
    "find": "FindAction", "view": "ViewAction", "schedule": "ScheduleAction", "rent": "RentAction",
}  # fmt: skip
WHOLE_NAMES = {"add_to_cart": "AddToCartAction"}  # as the NLWeb specification has it


def action_type(operation: Operation) -> str:
    return WHOLE_NAMES.get(operation.name) or TYPES.get(operation.name.partition("_")[0], "Action")


class Actions:
    """The actions of every collection, worked out once for a catalog."""

    def __init__(self, collections: Iterable[Collection], operations: Iterable[Operation]) -> None:
        known = [(operation, *shape_of(operation)) for operation in operations if _is_offered(operation)]
        self._offers = {
            collection.name: tuple(
                Offer(operation, param, tuple(name for name in required if name != param))
                for operation, properties, required in known
                if (param := parameter_for(properties, collection.one))
            )
            for collection in collections
        }

    def of(self, item: Item, may: Callable[[Operation], bool]) -> tuple[Action, ...]:
        """What a caller may do with an item."""
        return tuple(
            Action(o.operation.name, o.operation.summary, {o.param: item.id}, o.missing, action_type(o.operation))
            for o in self._offers.get(item.collection, ())
            if may(o.operation) and suits(o.operation, item)
        )


@dataclass(frozen=True, slots=True)
class Offer:
    operation: Operation
    param: str  # the one that takes the item's id
    missing: tuple[str, ...]


def _is_offered(operation: Operation) -> bool:
    """What every collection gets is no news, and nobody who has just found a thing wants to undo something."""
    undoes = action_type(operation) in {"DeleteAction", "CancelAction"}
    return not operation.collection and not operation.open and not undoes
