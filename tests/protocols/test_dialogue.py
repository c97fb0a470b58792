"""Conversations that the client carries."""

from dataclasses import replace
from typing import Any

import pytest
from tests.conformance.requirements import requirement
from tests.protocols.conftest import key_of

from portico.access.identity import RequestCredentials
from portico.ask.events import ClarificationEvent, Question
from portico.config import AskSettings
from portico.conversations.dialogue import MAX_TOKEN, Dialogue, open_dialogue
from portico.protocols.nlweb.dialects import parse_client_info
from portico.protocols.nlweb.models import AskRequest, SessionContext, parse_ask
from portico.requests import Ask, Caller
from portico.server.assembly import Parts
from portico.site import Site

ANYBODY = Caller()
CLARIFY = ClarificationEvent(
    "Tell me more.", (Question("cuisine", "Which?", "free_text"), Question("spicy", "Hot?", "boolean"))
)


def request(text: str | None = "soup", query: dict | None = None, **context: Any) -> AskRequest:
    raw = {"query": {**(query or {}), "text": text}, "context": context}
    return parse_ask(raw, parse_client_info(raw), AskSettings())


def after(site: Site, ask: Ask, clarify: ClarificationEvent | None = None, caller: Caller = ANYBODY) -> SessionContext:
    """The session that a client has after this was asked and answered, or asked back."""
    return SessionContext("conv_1", open_dialogue("conv_1", None, site, caller).state_token(ask, clarify))


def dialogue_of(site: Site, session: SessionContext, caller: Caller = ANYBODY) -> Dialogue:
    return open_dialogue(session.conversation_id, session.state_token, site, caller)


def resume(site: Site, session: SessionContext, request: AskRequest, caller: Caller = ANYBODY) -> Ask:
    return dialogue_of(site, session, caller).resume(request.ask, has_previous=request.has_previous)


def test_a_conversation_keeps_its_name_or_gets_one(parts: Parts) -> None:
    assert dialogue_of(parts.site, SessionContext("conv_98765")).id == "conv_98765"
    assert dialogue_of(parts.site, SessionContext()).id.startswith("conv_")
    for strange in ("", "x" * 129, "a b", "a\nb", 5, {"a": 1}):
        dialogue = dialogue_of(parts.site, SessionContext(strange))
        assert (dialogue.id[:5], dialogue.invalid) == ("conv_", ("conversation_id",))


def test_questions_before_are_remembered_unless_the_client_tells_them(parts: Parts) -> None:
    session = after(parts.site, Ask("bread", previous=("cheese",)))

    assert resume(parts.site, session, request()).previous == ("cheese", "bread")
    assert resume(parts.site, session, request(prev=["wine"])).previous == ("wine",)
    assert resume(parts.site, session, request(prev=[])).previous == ()


def test_only_the_last_few_questions_are_remembered(parts: Parts) -> None:
    session = after(parts.site, Ask("q7", previous=tuple(f"q{number}" for number in range(7))))

    assert resume(parts.site, session, request()).previous == ("q3", "q4", "q5", "q6", "q7")


@requirement("nlweb:note:elicitation-state", "nlweb:note:elicitation-answers")
def test_answers_go_to_the_question_that_waits_for_them(parts: Parts) -> None:
    session = after(parts.site, Ask("dinner", previous=("bread",)), CLARIFY)

    by_context = resume(parts.site, session, request(None, answers={"cuisine": "Thai"}))
    by_attribute = resume(parts.site, session, request("Thai", {"cuisine": "Thai", "price": "low"}))

    expected = replace(request().ask, text="dinner", previous=("bread",), answers={"cuisine": "Thai"}, rounds=1)
    expected = replace(expected, key=by_context.key)
    assert by_context == expected
    assert by_context.key
    assert by_attribute == replace(expected, filters={"price": "low"})


@requirement("nlweb:note:elicitation-prev")
def test_a_plain_text_instead_follows_up_on_the_question(parts: Parts) -> None:
    session = after(parts.site, Ask("dinner", previous=("bread",)), CLARIFY)

    few = resume(parts.site, session, request("something Thai"))
    other = resume(parts.site, session, request("where can I park?"))
    by_client = resume(parts.site, session, request("where can I park?", prev=["dinner"]))

    assert few == replace(request("dinner, something Thai").ask, previous=("bread",), rounds=1)
    assert other == replace(request("where can I park?").ask, previous=("bread", "dinner"), rounds=1)
    assert by_client.previous == ("dinner",)


@pytest.mark.parametrize("text", ["yes", "no", "ja", "はい"])
def test_a_plain_yes_or_no_confirms(parts: Parts, text: str) -> None:
    confirm = ClarificationEvent("", (Question("confirm", "Shall I?", "boolean"),))
    session = after(parts.site, Ask("book a table"), confirm)

    ask = resume(parts.site, session, request(text))

    assert (ask.text, ask.answers) == ("book a table", {"confirm": text})


def test_rounds_are_counted_while_the_question_is_open_and_then_forgotten(parts: Parts) -> None:
    twice = after(parts.site, Ask("dinner", rounds=1), CLARIFY)
    answered = after(parts.site, Ask("dinner", rounds=2))

    assert resume(parts.site, twice, request(answers={"spicy": True})).rounds == 2
    assert resume(parts.site, answered, request()).rounds == 0


def test_answers_of_an_earlier_round_are_kept_and_later_ones_count_more(parts: Parts) -> None:
    once = after(parts.site, Ask("dinner", answers={"cuisine": "Thai", "spicy": True}, rounds=1), CLARIFY)

    ask = resume(parts.site, once, request(None, answers={"spicy": False}))

    assert (ask.text, ask.answers, ask.rounds) == ("dinner", {"cuisine": "Thai", "spicy": False}, 2)


def test_what_was_answered_holds_for_the_questions_that_follow(parts: Parts) -> None:
    answered = after(parts.site, Ask("dinner", answers={"cuisine": "Thai"}, rounds=1))

    cheapest = resume(parts.site, answered, request("which is cheapest"))
    later = resume(parts.site, after(parts.site, cheapest), request("and without nuts"))

    assert (cheapest.answers, cheapest.settled, cheapest.previous) == ({}, {"cuisine": "Thai"}, ("dinner",))
    assert (later.settled, later.previous) == ({"cuisine": "Thai"}, ("dinner", "which is cheapest"))


def test_answers_too_long_to_carry_are_not_carried(parts: Parts) -> None:
    answered = after(parts.site, Ask("dinner", answers={"cuisine": "x" * 2000}))

    assert resume(parts.site, answered, request()).settled == {}


def test_answers_without_a_question_stay_what_they_are(parts: Parts) -> None:
    asked = request("soup", {"cuisine": "Thai"}, answers={"spicy": True})

    assert resume(parts.site, SessionContext(), asked) == asked.ask
    assert resume(parts.site, after(parts.site, Ask("bread")), asked).filters == {"cuisine": "Thai"}


@requirement("nlweb:note:session-signed", "nlweb:note:elicitation-state")
async def test_a_token_that_is_not_good_is_left_aside(parts: Parts) -> None:
    site = parts.site
    somebody = await site.access.authenticate(RequestCredentials(await key_of(parts)))
    good = after(site, Ask("bread"))
    bad = {
        "altered": SessionContext("conv_1", good.state_token[:-2] + "xx"),
        "of another caller": after(site, Ask("bread"), caller=somebody),
        "of another conversation": SessionContext("conv_2", good.state_token),
        "expired": SessionContext("conv_1", site.tokens.seal({"c": "conv_1", "p": ["bread"]}, ANYBODY, -1)),
        "for something else": SessionContext("conv_1", site.tokens.seal({"delete": "everything"}, ANYBODY, 60)),
        "no token": SessionContext("conv_1", "encrypted_blob_xyz"),
        "not even a text": SessionContext("conv_1", {"a": 1}),
    }

    for why, session in bad.items():
        dialogue = dialogue_of(site, session)
        assert (dialogue.resume(request().ask, has_previous=False), dialogue.invalid) == (
            request().ask,
            ("state_token",),
        ), why
    assert dialogue_of(site, good).invalid == ()


def test_a_token_alone_names_its_conversation(parts: Parts) -> None:
    session = after(parts.site, Ask("bread"))

    assert dialogue_of(parts.site, SessionContext(None, session.state_token)).id == "conv_1"


def test_a_token_stays_small_whatever_was_asked(parts: Parts) -> None:
    long = Ask("🍲" * 10_000, previous=("🍞" * 10_000,) * 20)
    many = ClarificationEvent("?", tuple(Question(f"{number}" * 90, "?", "free_text") for number in range(50)))

    for clarify in (None, CLARIFY, many):
        session = after(parts.site, long, clarify)
        assert len(session.state_token) <= MAX_TOKEN
        assert dialogue_of(parts.site, session).invalid == ()


def test_a_question_too_long_to_carry_is_the_one_that_the_client_sends_again(parts: Parts) -> None:
    session = after(parts.site, Ask("soup " * 1000), CLARIFY)

    ask = resume(parts.site, session, request("soup again", answers={"cuisine": "Thai"}))

    assert (ask.text, ask.answers, ask.rounds) == ("soup again", {"cuisine": "Thai"}, 1)
