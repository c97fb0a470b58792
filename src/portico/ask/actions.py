"""The actions of an item: operations that take one of its kind. Knows no protocol."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from portico.ask.commands import accepts_item, parameter_for, shape_of
from portico.ask.events import Action
from portico.catalog import Collection, Operation
from portico.items import Item

# Types of schema.org for what an operation's name begins with.
TYPES_BY_VERB: dict[str, str] = {
    "add": "AddAction", "book": "ReserveAction", "reserve": "ReserveAction", "order": "OrderAction",
    "buy": "BuyAction", "pay": "PayAction", "cancel": "CancelAction", "plan": "PlanAction", "create": "CreateAction",
    "update": "UpdateAction", "delete": "DeleteAction", "remove": "DeleteAction", "search": "SearchAction",
    "subscribe": "SubscribeAction", "rate": "RateAction", "review": "ReviewAction", "share": "ShareAction",
    "watch": "WatchAction", "read": "ReadAction", "play": "PlayAction", "download": "DownloadAction",
    "register": "RegisterAction", "join": "JoinAction", "send": "SendAction", "check": "CheckAction",
    "find": "FindAction", "view": "ViewAction", "schedule": "ScheduleAction", "rent": "RentAction",
}  # fmt: skip
TYPES_BY_NAME = {"add_to_cart": "AddToCartAction"}  # as the NLWeb specification has it


def action_type(operation: Operation) -> str:
    return TYPES_BY_NAME.get(operation.name) or TYPES_BY_VERB.get(operation.name.partition("_")[0], "Action")


class ItemActions:
    """The actions of every collection, worked out once for a catalog."""

    def __init__(self, collections: Iterable[Collection], operations: Iterable[Operation]) -> None:
        candidates = [(operation, *shape_of(operation)) for operation in operations if _is_item_action(operation)]
        self._offers = {
            collection.name: tuple(
                ActionTemplate(operation, param, tuple(name for name in required if name != param))
                for operation, properties, required in candidates
                if (param := parameter_for(properties, collection.one))
            )
            for collection in collections
        }

    def of(self, item: Item, may: Callable[[Operation], bool]) -> tuple[Action, ...]:
        """Return what a caller may do with an item."""
        return tuple(
            Action(o.operation.name, o.operation.summary, {o.param: item.id}, o.missing, action_type(o.operation))
            for o in self._offers.get(item.collection, ())
            if may(o.operation) and accepts_item(o.operation, item)
        )


@dataclass(frozen=True, slots=True)
class ActionTemplate:
    operation: Operation
    param: str  # the one that takes the item's id
    missing: tuple[str, ...]


def _is_item_action(operation: Operation) -> bool:
    """Return whether an operation is worth offering with an item: not of a collection, and not an undoing."""
    undoes = action_type(operation) in {"DeleteAction", "CancelAction"}
    return not operation.collection and not operation.open and not undoes
