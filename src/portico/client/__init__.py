"""A client for NLWeb 0.55, sync and async. Needs httpx and msgspec, and nothing of the server.

    with Client("http://127.0.0.1:8000") as site:
        match site.ask("vegetarian dinner under 30 minutes"):
            case Answer(items=items): ...
            case Elicitation(questions=questions): ...
            case Promise() as promise: answer = site.wait(promise)

Both clients share one implementation, written for asyncio. The sync one runs it over a transport that blocks instead of
suspending, so that it needs no event loop.
"""

from portico.client.client import AsyncClient, AsyncConversation, Client, Conversation
from portico.client.models import (
    Action,
    Answer,
    AskFailed,
    BadAnswer,
    ClientError,
    Completed,
    Constraint,
    Elicitation,
    Event,
    Item,
    ItemFound,
    NotReached,
    Options,
    ProgressCallback,
    Promise,
    Question,
    Response,
    Session,
    Started,
    Summary,
    Understood,
)
from portico.client.transports.http import Carrier
from portico.client.wire import RequestPath

__all__ = [
    "Action",
    "Answer",
    "AskFailed",
    "AsyncClient",
    "AsyncConversation",
    "BadAnswer",
    "Carrier",
    "Client",
    "ClientError",
    "Completed",
    "Constraint",
    "Conversation",
    "Elicitation",
    "Event",
    "Item",
    "ItemFound",
    "NotReached",
    "Options",
    "ProgressCallback",
    "Promise",
    "Question",
    "RequestPath",
    "Response",
    "Session",
    "Started",
    "Summary",
    "Understood",
]
