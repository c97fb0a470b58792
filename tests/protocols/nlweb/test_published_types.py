"""Published types of answers, the renderers that build answers, and the client that parses them agree on members."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from tests.protocols.nlweb.test_render import ANSWER, BROKE_OFF, QUESTIONS, SUMMARY, SUMMED, TASK, UNDERSTOOD
from tests.protocols.nlweb.test_render import manner as options
from tests.protocols.nlweb.test_render import whole as collect

from portico.ask import events
from portico.ask.events import EndEvent, Event, ModelUsage, TaskEvent
from portico.client import models, wire
from portico.errors import RateLimited
from portico.protocols.nlweb import answers
from portico.protocols.nlweb.dialects import FLAT, V54, V55, ClientInfo

ENDED = EndEvent(1, notes=("One site did not answer",), cost=ModelUsage(calls=1))
LIMITED = events.ErrorEvent(RateLimited("Too many requests", retry_after=3))
KINDS: tuple[tuple[Event, ...], ...] = (
    (*ANSWER[:-1], ENDED),
    (*SUMMED[:-1], ENDED),
    (UNDERSTOOD, QUESTIONS, ENDED),
    (UNDERSTOOD, TaskEvent(TASK)),
    (BROKE_OFF,),
    (LIMITED,),
)
# Members of `_meta` for the template of a ChatGPT app, which only its host reads.
TEMPLATE = {"openai/outputTemplate", "openai/widgetAccessible"}


def members_of(kind: Any) -> set[str]:
    """Return the names of the members of a type on the wire."""
    return {field.encode_name for field in msgspec.inspect.type_info(kind).fields}  # type: ignore[union-attr]


def members_in(objects: Iterable[Any]) -> set[str]:
    return {name for value in objects if value for name in value}


async def render_all(dialect: Any) -> list[dict[str, Any]]:
    client = ClientInfo(dialect, request_id="r1", query_id="q1" if dialect is FLAT else "")
    formats = ("conversational_search", "chatgpt_app") if dialect is not FLAT else (dialect.format,)
    modes = (SUMMARY, frozenset({"generate"})) if dialect is FLAT else (SUMMARY,)
    return [
        (await collect(options(dialect, voice=client, format=format, modes=mode, memory_text="no nuts"), *kind)).body
        for format in formats
        for mode in modes
        for kind in KINDS
    ]


@pytest.mark.parametrize("dialect", [V55, V54])
async def test_answers_have_the_published_members_and_no_others(dialect: Any) -> None:
    bodies = await render_all(dialect)
    parts = {
        answers.NlwebAnswer: bodies,
        answers.AnswerMeta: [body["_meta"] for body in bodies],
        answers.Understanding: [body["_meta"].get("understood") for body in bodies],
        answers.ContentText: [part for body in bodies for part in body.get("content", ())],
        answers.AnswerElicitation: [body.get("elicitation") for body in bodies],
        answers.AnswerPromise: [body.get("promise") for body in bodies],
        answers.AnswerError: [body.get("error") for body in bodies],
    }

    assert {kind: members_in(objects) - TEMPLATE for kind, objects in parts.items()} == {
        kind: members_of(kind) for kind in parts
    }


async def test_flat_answers_have_the_published_members() -> None:
    bodies = [body for body in await render_all(FLAT) if "error" not in body]
    parts = {
        answers.FlatAnalysis: [body.get("query_analysis") for body in bodies],
        answers.FlatElicitation: [body.get("ask_user") for body in bodies],
        answers.FlatGenerated: [body.get("nlws") for body in bodies],
        answers.FlatMessage: [body.get(name) for body in bodies for name in ("remember", "summary")],
    }

    assert members_in(bodies) == members_of(answers.FlatAnswer)
    assert {kind: members_in(objects) for kind, objects in parts.items()} == {kind: members_of(kind) for kind in parts}


@pytest.mark.parametrize(
    ("parsed", "published", "added"),
    [
        # A stream sends the results one by one; the client does not ask for the format of ChatGPT apps.
        (wire._ResponseBody, answers.NlwebAnswer, {"index", "item"}),
        (wire._WireError, answers.AnswerError, set()),
        (models.Elicitation, answers.AnswerElicitation, {"session"}),
        (models.Promise, answers.AnswerPromise, {"session"}),
        (models.Question, events.Question, set()),
        (models.Constraint, events.Constraint, set()),
    ],
)
def test_the_client_parses_the_published_members(parsed: Any, published: Any, added: set[str]) -> None:
    unread = {"content", "structuredData"} if published is answers.NlwebAnswer else set()

    assert members_of(parsed) - added == members_of(published) - unread
