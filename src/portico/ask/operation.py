"""The operation `ask`: a question as an operation, for tasks, workflows and protocols that only know operations."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, fields, replace
from typing import Annotated, Any, TypeAlias, get_type_hints

import msgspec
from msgspec import Meta

from portico.access.identity import for_user
from portico.ask.events import Event
from portico.ask.record import record_events
from portico.catalog import Kind, Operation
from portico.errors import InvalidParams
from portico.operations import Context
from portico.requests import Ask, Caller

NAME = "ask"
# A filter of a protocol's own and files cannot be written as parameters, and the key is that of the call.
UNPUBLISHED = frozenset({"where", "key", "attached"})

Answer: TypeAlias = Callable[[Ask, Caller], Awaitable[Sequence[Event]]]

# As NLWeb's `meta.user`: any JSON value. No type is published, since not every MCP client reads lists of types.
User = Annotated[
    Any, Meta(description="One of your users: a string, or an object with an identifier. Left out: you yourself")
]

# What differs from the fields of `Ask`: nobody can be asked back, and nothing is done or stored.
_OVERRIDES: Mapping[str, tuple[Any, Any]] = {
    "may_clarify": (bool, False),
    "may_act": (bool, False),
    "user": (User, ""),  # the memories of this user count, and no others
    "remember": (Annotated[bool, Meta(description="Must be false: create_memories stores preferences")], False),
}


def _param_fields() -> list[Any]:
    """Return the fields of `Ask` as those of its parameters, in the form that msgspec builds a type from."""
    types = get_type_hints(Ask)
    published = [field for field in fields(Ask) if field.name not in UNPUBLISHED | _OVERRIDES.keys()]
    required = [(field.name, types[field.name]) for field in published if not _has_default(field)]
    optional = [
        (
            field.name,
            types[field.name],
            msgspec.field(default_factory=dict[str, Any]) if field.default is MISSING else field.default,
        )
        for field in published
        if _has_default(field)
    ]
    return [*required, *optional, *((name, *override) for name, override in _OVERRIDES.items())]


def _has_default(field: Any) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


AskParams = msgspec.defstruct(
    "AskParams", _param_fields(), module=__name__, frozen=True, forbid_unknown_fields=True, kw_only=True
)


def params_of(ask: Ask) -> dict[str, Any]:
    """Return the parameters of a call that asks the same and stores nothing."""
    params = {name: value for name, value in asdict(ask).items() if name not in UNPUBLISHED | {"remember"}}
    return msgspec.to_builtins({**params, "modes": sorted(ask.modes)})


def ask_operation(answer: Answer) -> Operation:
    async def ask(context: Context, params: Any) -> dict[str, Any]:
        question = {name: value for name, value in msgspec.structs.asdict(params).items() if name != "user"}
        parsed = replace(Ask(**question), may_clarify=False, may_act=False)
        return record_events(await answer(parsed, for_user(context.caller, params.user)))

    return Operation(
        NAME,
        Kind.READ,
        "Answer a question, as a record of what happened.",
        AskParams,
        dict[str, Any],
        ask,
        open=True,
        check=_check,
    )


def _check(params: Any) -> None:
    """Refuse to remember anything: `ask` reads. Tasks of earlier versions and some callers send `remember: false`."""
    if params.remember:
        raise InvalidParams(
            "`remember` must be false: `ask` stores nothing",
            operation=NAME,
            param="remember",
            hint="Call `create_memories` with the preferences to store.",
        )
