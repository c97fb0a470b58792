"""Conversations that the client carries."""

from dataclasses import replace
from typing import Any

import pytest
from tests.conformance.requirements import requirement
from tests.protocols.conftest import key_of

from portico.access.identity import Credentials
from portico.ask.events import Clarify, Question
from portico.config import Asking
from portico.protocols.nlweb.dialects import voice_of
from portico.protocols.nlweb.models import Session, Wish, read_ask
from portico.protocols.nlweb.sessions import MAX_TOKEN, conversation
from portico.requests import Ask, Caller
from portico.server.assembly import Parts
from portico.site import Site

ANYBODY = Caller()
CLARIFY = Clarify("Tell me more.", (Question("cuisine", "Which?", "free_text"), Question("spicy", "Hot?", "boolean")))
TOKEN = "meta.session_context.state_token"
NAME = "meta.session_context.conversation_id"


def wish(text: str | None = "soup", query: dict | None = None, **context: Any) -> Wish:
    raw = {"query": {**(query or {}), "text": text}, "context": context}
    return read_ask(raw, voice_of(raw), Asking())


def after(site: Site, ask: Ask, clarify: Clarify | None = None, caller: Caller = ANYBODY) -> Session:
    """The session that a client has after this was asked and answered, or asked back."""
    told = conversation(Session("conv_1"), site, caller).context(ask, clarify, site, caller)
    return Session(**told)


def resumed(site: Site, session: Session, wish: Wish, caller: Caller = ANYBODY) -> Ask:
    return conversation(session, site, caller).resumed(wish)


def test_a_conversation_keeps_its_name_or_gets_one(parts: Parts) -> None:
    assert conversation(Session("conv_98765"), parts.site, ANYBODY).id == "conv_98765"
    assert conversation(Session(), parts.site, ANYBODY).id.startswith("conv_")
    for strange in ("", "x" * 129, "a b", "a\nb", 5, {"a": 1}):
        talk = conversation(Session(strange), parts.site, ANYBODY)
        assert (talk.id[:5], talk.ignored) == ("conv_", (NAME,))


def test_questions_before_are_remembered_unless_the_client_tells_them(parts: Parts) -> None:
    session = after(parts.site, Ask("bread", previous=("cheese",)))

    assert resumed(parts.site, session, wish()).previous == ("cheese", "bread")
    assert resumed(parts.site, session, wish(prev=["wine"])).previous == ("wine",)
    assert resumed(parts.site, session, wish(prev=[])).previous == ()


def test_only_the_last_few_questions_are_remembered(parts: Parts) -> None:
    session = after(parts.site, Ask("q7", previous=tuple(f"q{number}" for number in range(7))))

    assert resumed(parts.site, session, wish()).previous == ("q3", "q4", "q5", "q6", "q7")


@requirement("nlweb:note:elicitation-state", "nlweb:note:elicitation-answers")
def test_answers_go_to_the_question_that_waits_for_them(parts: Parts) -> None:
    session = after(parts.site, Ask("dinner", previous=("bread",)), CLARIFY)

    by_context = resumed(parts.site, session, wish(None, answers={"cuisine": "Thai"}))
    by_attribute = resumed(parts.site, session, wish("Thai", {"cuisine": "Thai", "price": "low"}))

    expected = replace(wish().ask, text="dinner", previous=("bread",), answers={"cuisine": "Thai"}, rounds=1)
    expected = replace(expected, key=by_context.key)
    assert by_context == expected
    assert by_context.key
    assert by_attribute == replace(expected, filters={"price": "low"})


@requirement("nlweb:note:elicitation-prev")
def test_a_plain_text_instead_follows_up_on_the_question(parts: Parts) -> None:
    session = after(parts.site, Ask("dinner", previous=("bread",)), CLARIFY)

    few = resumed(parts.site, session, wish("something Thai"))
    other = resumed(parts.site, session, wish("where can I park?"))
    by_client = resumed(parts.site, session, wish("where can I park?", prev=["dinner"]))

    assert few == replace(wish("dinner, something Thai").ask, previous=("bread",), rounds=1)
    assert other == replace(wish("where can I park?").ask, previous=("bread", "dinner"), rounds=1)
    assert by_client.previous == ("dinner",)


@pytest.mark.parametrize("said", ["yes", "no", "ja", "はい"])
def test_a_plain_yes_or_no_confirms(parts: Parts, said: str) -> None:
    confirm = Clarify("", (Question("confirm", "Shall I?", "boolean"),))
    session = after(parts.site, Ask("book a table"), confirm)

    told = resumed(parts.site, session, wish(said))

    assert (told.text, told.answers) == ("book a table", {"confirm": said})


def test_rounds_are_counted_while_the_question_is_open_and_then_forgotten(parts: Parts) -> None:
    twice = after(parts.site, Ask("dinner", rounds=1), CLARIFY)
    answered = after(parts.site, Ask("dinner", rounds=2))

    assert resumed(parts.site, twice, wish(answers={"spicy": True})).rounds == 2
    assert resumed(parts.site, answered, wish()).rounds == 0


def test_answers_of_an_earlier_round_are_kept_and_later_ones_count_more(parts: Parts) -> None:
    once = after(parts.site, Ask("dinner", answers={"cuisine": "Thai", "spicy": True}, rounds=1), CLARIFY)

    ask = resumed(parts.site, once, wish(None, answers={"spicy": False}))

    assert (ask.text, ask.answers, ask.rounds) == ("dinner", {"cuisine": "Thai", "spicy": False}, 2)


def test_what_was_answered_holds_for_the_questions_that_follow(parts: Parts) -> None:
    answered = after(parts.site, Ask("dinner", answers={"cuisine": "Thai"}, rounds=1))

    cheapest = resumed(parts.site, answered, wish("which is cheapest"))
    later = resumed(parts.site, after(parts.site, cheapest), wish("and without nuts"))

    assert (cheapest.answers, cheapest.settled, cheapest.previous) == ({}, {"cuisine": "Thai"}, ("dinner",))
    assert (later.settled, later.previous) == ({"cuisine": "Thai"}, ("dinner", "which is cheapest"))


def test_answers_too_long_to_carry_are_not_carried(parts: Parts) -> None:
    answered = after(parts.site, Ask("dinner", answers={"cuisine": "x" * 2000}))

    assert resumed(parts.site, answered, wish()).settled == {}


def test_answers_without_a_question_stay_what_they_are(parts: Parts) -> None:
    asked = wish("soup", {"cuisine": "Thai"}, answers={"spicy": True})

    assert resumed(parts.site, Session(), asked) == asked.ask
    assert resumed(parts.site, after(parts.site, Ask("bread")), asked).filters == {"cuisine": "Thai"}


@requirement("nlweb:note:session-signed", "nlweb:note:elicitation-state")
async def test_a_token_that_is_not_good_is_left_aside(parts: Parts) -> None:
    site = parts.site
    somebody = await site.caller(Credentials(await key_of(parts)))
    good = after(site, Ask("bread"))
    bad = {
        "altered": Session("conv_1", good.state_token[:-2] + "xx"),
        "of another caller": after(site, Ask("bread"), caller=somebody),
        "of another conversation": Session("conv_2", good.state_token),
        "expired": Session("conv_1", site.seal({"c": "conv_1", "p": ["bread"]}, ANYBODY, -1)),
        "for something else": Session("conv_1", site.seal({"delete": "everything"}, ANYBODY, 60)),
        "no token": Session("conv_1", "encrypted_blob_xyz"),
        "not even a text": Session("conv_1", {"a": 1}),
    }

    for why, session in bad.items():
        talk = conversation(session, site, ANYBODY)
        assert (talk.resumed(wish()), talk.ignored) == (wish().ask, (TOKEN,)), why
    assert conversation(good, site, ANYBODY).ignored == ()


def test_a_token_alone_names_its_conversation(parts: Parts) -> None:
    session = after(parts.site, Ask("bread"))

    assert conversation(Session(None, session.state_token), parts.site, ANYBODY).id == "conv_1"


def test_a_token_stays_small_whatever_was_asked(parts: Parts) -> None:
    long = Ask("🍲" * 10_000, previous=("🍞" * 10_000,) * 20)
    many = Clarify("?", tuple(Question(f"{number}" * 90, "?", "free_text") for number in range(50)))

    for clarify in (None, CLARIFY, many):
        session = after(parts.site, long, clarify)
        assert len(session.state_token) <= MAX_TOKEN
        assert conversation(session, parts.site, ANYBODY).ignored == ()


def test_a_question_too_long_to_carry_is_the_one_that_the_client_sends_again(parts: Parts) -> None:
    session = after(parts.site, Ask("soup " * 1000), CLARIFY)

    ask = resumed(parts.site, session, wish("soup again", answers={"cuisine": "Thai"}))

    assert (ask.text, ask.answers, ask.rounds) == ("soup again", {"cuisine": "Thai"}, 1)
