"""One site, many doors: the same question has the same answer, the same failure the name that each door has for it."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
import pytest_asyncio
from tests.parity.protocols import A2A, AQL, CHAT, NAMED, NLWEB, NWP, OPERATION, Face, Heard, visitor
from tests.protocols.conftest import listening

from portico import errors
from portico.access.identity import local_operator, make_key
from portico.ask.events import ErrorEvent, Event, InterpretationEvent
from portico.catalog import Danger
from portico.errors import SiteError
from portico.protocols import parse_config
from portico.requests import Ask, Call, Caller, Outcome, Task
from portico.server.assembly import Parts, open_site
from portico.server.http import application
from portico.site import Site
from portico.store.records import Put

pytestmark = pytest.mark.asyncio(loop_scope="module")

INTERNAL = -32603  # of JSON-RPC
OPERATOR = local_operator()
SECRET = "postgres://admin:hunter2@db"
SETTINGS = {
    "search": {"embedder": "none:"},
    "store": {"url": "sqlite:///:memory:"},
    "limits": {"anonymous_per_minute": 100_000},
}
ROOMS = {
    "attic": {"name": "The attic", "beds": 2, "price": 60.0, "description": "Quiet, under the roof."},
    "cellar": {"name": "The cellar", "beds": 6, "price": 25.0, "description": "Cool, with a stove."},
    "garden": {"name": "Garden room", "beds": 1, "price": 45.0, "description": "Quiet and green."},
    "harbour": {"name": "Harbour room", "beds": 2, "price": 80.0, "description": "A view of the boats, and a stove."},
    "loft": {"name": "The loft", "beds": 4, "price": 70.0, "description": "Wide, quiet, with a stove."},
    "tower": {"name": "Tower room", "beds": 1, "price": 95.0, "description": "A view over the garden."},
}
OWN = '''
from portico.operations import Context, operation

@operation(kind="execute", danger="safe")
async def ring_bell(context: Context) -> str:
    """Ring the bell of the house."""
    return "ding"
'''
# Words delete nothing, so a policy makes them wait. Visitors without a key see the rooms alone.
WATCHED = {
    **SETTINGS,
    "operations": ["own.py"],
    "anonymous": {"scopes": ["ask", "read:rooms"]},
    "mcp": {"operations": "all"},
    "chat": {"errors": "object"},
    "safety": {"policy": [{"operation": "ring_bell", "decision": "confirm"}]},
}
QUESTIONS = {
    "a quiet room": 3,
    "a room with a stove": 3,
    "a room for less than 50": 2,
    "the harbour": 1,
    "which rooms are there": 6,
}


@dataclass
class Troubled:
    """A site that fails as a test says; without trouble it is the site it stands before."""

    site: Site
    trouble: Exception | None = None
    is_late: bool = False  # the answer had begun

    def __getattr__(self, name: str) -> Any:
        return getattr(self.site, name)

    def ask(self, ask: Ask, caller: Caller) -> AsyncIterator[Event]:
        return self._failing(ask, self.trouble) if self.trouble else self.site.ask(ask, caller)

    async def _failing(self, ask: Ask, trouble: Exception) -> AsyncIterator[Event]:
        if not (self.is_late and isinstance(trouble, SiteError)):
            raise trouble
        yield InterpretationEvent(ask.text, ())
        yield ErrorEvent(trouble)

    async def call(self, call: Call, caller: Caller) -> Outcome | Task:
        if self.trouble:
            raise self.trouble
        return await self.site.call(call, caller)


@dataclass(frozen=True)
class House:
    site: Troubled
    port: int
    guest: str  # a key that may do everything, but not everything alone
    host: str  # a key that may do nothing but approve

    async def approve(self, operation: str) -> None:
        """Have somebody else agree to the one thing that waits."""
        async with visitor(self.port, self.host) as http:
            [waiting] = (await http.get("/desk/api/pending")).json()["confirmations"]
            seen = {"decision": "approve", "digest": waiting["digest"]}
            said = await http.post(f"/desk/api/confirmations/{waiting['token']}", json=seen)
        assert (said.status_code, waiting["operation"]) == (200, operation)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    folder = tmp_path_factory.mktemp("house")
    (folder / "own.py").write_text(OWN)
    async with open_site(parse_config({**WATCHED, "folder": str(folder)})) as parts:
        await parts.store.collections.declare(parts.config.collection("rooms"))
        await parts.store.items.write("rooms", [Put(id, {"@type": "HotelRoom", **room}) for id, room in ROOMS.items()])
        await parts.store.collections.declare(parts.config.collection("letters"))
        await parts.store.items.write("letters", [Put(door, {"name": f"To {door}"}) for door in NAMED])
        await parts.index.sync(await parts.store.changes.head())
        guest, host = await key_of(parts, "ask", "*:*"), await key_of(parts, "approve")
        site = Troubled(parts.site)
        async with listening(replace(parts, site=site)) as port:
            yield House(site, port, guest, host)


async def key_of(parts: Parts, *scopes: str) -> str:
    token, key = make_key("somebody", scopes, Danger.DESTRUCTIVE, 1)
    await parts.store.keys.add(key)
    return token


@pytest.fixture
def house(opened: House) -> House:
    opened.site.trouble, opened.site.is_late = None, False
    return opened


def each(*faces: Mapping[str, Face]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "face", [pytest.param(face, id=name) for some in faces for name, face in some.items()]
    )


# Answers


async def answers(face: Face, house: House) -> dict[str, tuple[str, ...]]:
    async with face(house.port) as ask:
        return {question: (await ask(question))[0].ids for question in QUESTIONS}


async def test_the_questions_tell_the_items_apart(house: House) -> None:
    found = await answers(NLWEB["http"], house)

    assert {question: len(ids) for question, ids in found.items()} == QUESTIONS
    assert len(set(found.values())) == len(QUESTIONS)


SMALL_TALK = {
    "hello": "Hello. You can ask me about rooms.",
    "Help!": "Hello. You can ask me about rooms.",
    "Vielen Dank": "Gern geschehen.",
    "bye": "Goodbye.",
}


@each(NLWEB, A2A, OPERATION, AQL, NWP, CHAT)
async def test_a_greeting_is_answered_alike_and_spoils_no_question(face: Face, opened: House) -> None:
    async with face(opened.port) as ask:
        replies = {text: await ask(text) for text in SMALL_TALK}
        greeting, _ = await ask("Hello, which rooms are there")
        plain, _ = await ask("which rooms are there")

    for text, reply in SMALL_TALK.items():
        heard, body = replies[text]
        assert heard.ids == ()
        assert reply in body
    assert len(greeting.ids) == 6
    assert greeting == plain


@each(NLWEB, A2A, OPERATION, NWP, CHAT)
async def test_a_question_has_the_same_items_in_the_same_order_through_every_door(face: Face, house: House) -> None:
    assert await answers(face, house) == await answers(NLWEB["http"], house)


# Failures


@dataclass(frozen=True)
class Told:
    """How a failure is told."""

    nlweb: str  # its code
    status: int  # that goes with it
    a2a: tuple[int, int] | None  # the code and the status of an error; None if the task tells
    problem: int  # the status of problem details
    nwp: tuple[str, int]  # the code of NWP and its status


FAILURES: dict[type[SiteError], Told] = {
    errors.BadRequest: Told("INVALID_QUERY", 400, (-32602, 200), 400, ("NWP-ACTION-PARAMS-INVALID", 422)),
    errors.InvalidParams: Told("INVALID_QUERY", 400, (-32602, 200), 422, ("NWP-ACTION-PARAMS-INVALID", 422)),
    errors.TooLarge: Told("TOKEN_LIMIT", 400, (-32600, 413), 413, ("NCP-FRAME-PAYLOAD-TOO-LARGE", 413)),
    errors.UnknownItem: Told("NOT_FOUND", 200, None, 404, ("NPS-CLIENT-NOT-FOUND", 404)),
    errors.UnknownOperation: Told("NOT_FOUND", 200, (-32602, 200), 404, ("NWP-ACTION-NOT-FOUND", 404)),
    errors.UnknownTask: Told("UNKNOWN_PROMISE", 200, None, 404, ("NWP-TASK-NOT-FOUND", 404)),
    errors.Unauthenticated: Told("UNAUTHENTICATED", 401, (-32041, 401), 401, ("NWP-AUTH-NID-UNTRUSTED-ISSUER", 401)),
    errors.Forbidden: Told("FORBIDDEN", 403, (-32043, 403), 403, ("NWP-AUTH-NID-SCOPE-VIOLATION", 403)),
    errors.ConfirmationNeeded: Told(
        "CONFIRMATION_NEEDED", 200, (-32043, 403), 403, ("NWP-AUTH-NID-SCOPE-VIOLATION", 403)
    ),
    errors.AgentBlocked: Told("FORBIDDEN", 403, (-32043, 403), 403, ("NWP-AUTH-NID-SCOPE-VIOLATION", 403)),
    errors.InvalidToken: Told("FORBIDDEN", 403, (-32043, 403), 403, ("NWP-AUTH-NID-SCOPE-VIOLATION", 403)),
    errors.Conflict: Told("CONFLICT", 200, None, 409, ("NPS-CLIENT-CONFLICT", 409)),
    errors.TaskCancelled: Told("CANCELLED", 200, None, 409, ("NPS-CLIENT-GONE", 410)),
    errors.RateLimited: Told("RATE_LIMITED", 429, (-32029, 429), 429, ("NWP-RATE-LIMIT-EXCEEDED", 429)),
    errors.Unavailable: Told("INTERNAL_ERROR", 500, None, 503, ("NWP-NODE-UNAVAILABLE", 503)),
    errors.TimedOut: Told("TIMEOUT", 200, None, 504, ("NPS-SERVER-TIMEOUT", 504)),
    errors.Unsupported: Told("UNSUPPORTED", 200, None, 501, ("NWP-QUERY-VECTOR-UNSUPPORTED", 501)),
    errors.OperationFailed: Told("INTERNAL_ERROR", 200, None, 500, ("NPS-SERVER-INTERNAL", 500)),
    errors.ConfigError: Told("INTERNAL_ERROR", 500, None, 500, ("NPS-SERVER-INTERNAL", 500)),
    errors.SourceError: Told("INTERNAL_ERROR", 500, None, 502, ("NPS-SERVER-INTERNAL", 500)),
}
INSIDE = {errors.Unavailable, errors.ConfigError, errors.SourceError}


def in_nlweb(kind: type[SiteError], *, has_status: bool) -> Heard:
    return Heard(code=FAILURES[kind].nlweb, status=FAILURES[kind].status if has_status else 200)


def in_a2a(kind: type[SiteError], *, is_late: bool) -> Heard:
    """An error before there is an answer; after that the task tells, in the words of NLWeb."""
    told = in_nlweb(kind, has_status=False)
    if is_late:
        return told
    if kind is errors.TaskCancelled:
        return Heard(code="canceled")
    refused = FAILURES[kind].a2a
    return Heard(code=refused[0], status=refused[1]) if refused else told


async def failures(face: Face, house: House) -> dict[type[SiteError], Heard]:
    """What is heard of each failure. What went wrong inside is not to be heard at all."""
    found: dict[type[SiteError], Heard] = {}
    async with face(house.port) as ask:
        for kind in FAILURES:
            house.site.trouble = kind(SECRET, hint=SECRET) if kind in INSIDE else kind("It went wrong")
            found[kind], said = await ask("a quiet room")
            assert "hunter2" not in said
            assert "Traceback" not in said
    return found


WITH_STATUS = ("http", "events", "link")


@pytest.mark.parametrize("name", NLWEB)
async def test_nlweb_and_mcp_tell_a_failure_by_the_code_of_nlweb(name: str, house: House) -> None:
    assert await failures(NLWEB[name], house) == {
        kind: in_nlweb(kind, has_status=name in WITH_STATUS) for kind in FAILURES
    }


@pytest.mark.parametrize("name", NLWEB)
async def test_a_failure_in_the_middle_of_an_answer_has_the_same_code(name: str, house: House) -> None:
    house.site.is_late = True

    # The status of a stream was said at its beginning.
    assert await failures(NLWEB[name], house) == {
        kind: in_nlweb(kind, has_status=name in WITH_STATUS and name != "events") for kind in FAILURES
    }


@pytest.mark.parametrize("is_late", [False, True], ids=["before", "midway"])
@each(A2A)
async def test_a2a_refuses_what_the_caller_can_mend_and_has_the_task_tell_the_rest(
    face: Face, house: House, is_late: bool
) -> None:
    house.site.is_late = is_late

    assert await failures(face, house) == {kind: in_a2a(kind, is_late=is_late) for kind in FAILURES}


@each(OPERATION)
async def test_an_operation_tells_a_failure_as_problem_details(face: Face, house: House) -> None:
    assert await failures(face, house) == {
        kind: Heard(code=f"urn:portico:error:{kind.__name__}", status=told.problem) for kind, told in FAILURES.items()
    }


@each(NWP)
async def test_nwp_tells_a_failure_by_a_code_and_its_status(face: Face, house: House) -> None:
    assert await failures(face, house) == {
        kind: Heard(code=told.nwp[0], status=told.nwp[1]) for kind, told in FAILURES.items()
    }


# Clients send a request again that met a 5xx: only what may succeed by itself is told so.
DENIED = {errors.Forbidden, errors.AgentBlocked, errors.InvalidToken, errors.ConfirmationNeeded}
CHATTED = {401: {errors.Unauthenticated}, 403: DENIED, 429: {errors.RateLimited}}
CHATTED |= {404: {errors.UnknownItem, errors.UnknownOperation, errors.UnknownTask}, 500: {*INSIDE, errors.TimedOut}}


@pytest.mark.parametrize("is_late", [False, True], ids=["before", "midway"])
@pytest.mark.parametrize("name", CHAT)
async def test_chat_tells_a_failure_by_the_code_of_nlweb_and_a_status(name: str, house: House, is_late: bool) -> None:
    house.site.is_late = is_late
    statuses = {kind: status for status, kinds in CHATTED.items() for kind in kinds}

    assert await failures(CHAT[name], house) == {
        kind: Heard(
            code=FAILURES[kind].nlweb, status=200 if is_late and name == "chat stream" else statuses.get(kind, 400)
        )
        for kind in FAILURES
    }


@each(NLWEB, A2A, OPERATION, NWP, CHAT)
async def test_of_what_should_not_happen_nobody_hears_more_than_that_it_did(face: Face, house: House) -> None:
    house.site.trouble = RuntimeError(SECRET)
    async with face(house.port) as ask:
        heard, said = await ask("a quiet room")

    assert heard.code in {"INTERNAL_ERROR", INTERNAL, "about:blank", "NPS-SERVER-INTERNAL"}
    assert "hunter2" not in said


# What somebody else has to agree to

ASKED_FIRST = {
    "operation": Heard(code="urn:portico:error:ConfirmationNeeded", status=403),
    "mcp 2026": Heard(code="ConfirmationNeeded"),
    "mcp before": Heard(code="ConfirmationNeeded"),
    "aql": Heard(code="CONFIRMATION_REQUIRED"),
    "a2a 1.0": Heard(code="CONFIRMATION_NEEDED"),
    "a2a 0.3": Heard(code="CONFIRMATION_NEEDED"),
    "nwp": Heard(code="NWP-AUTH-NID-SCOPE-VIOLATION", status=403),
    "nwp gateway": Heard(code="NWP-AUTH-NID-SCOPE-VIOLATION", status=403),
}


@pytest.mark.parametrize("name", NAMED)
async def test_what_cannot_be_undone_waits_at_every_door_until_somebody_else_has_agreed(
    name: str, house: House
) -> None:
    async with NAMED[name](house.port, house.guest) as call:
        assert [(await call("delete", {"id": name}))[0] for _ in range(2)] == [ASKED_FIRST[name]] * 2
        assert await house.site.find_item(name, OPERATOR)

        await house.approve("delete_letter")
        assert (await call("delete", {"id": name}))[0] == Heard()
    with pytest.raises(errors.UnknownItem):
        await house.site.find_item(name, OPERATOR)


@each({name: face for name, face in NLWEB.items() if name != "link"}, A2A, CHAT)  # a link does nothing but ask
async def test_a_command_in_words_waits_like_any_other_call(face: Face, house: House) -> None:
    async with face(house.port, house.guest) as ask:
        refused, _ = await ask("Ring the bell")
        await house.approve("ring_bell")
        done, _ = await ask("Ring the bell")

    assert [refused.code, done] == ["CONFIRMATION_NEEDED", Heard(("ring_bell",))]


@pytest.mark.parametrize("path", ["/ask", "/await", "/mcp", "/a2a", "/operations/ask", "/nwp/rooms/query", "/chat"])
async def test_what_cannot_be_read_costs_as_much_as_what_can(path: str) -> None:
    settings = {**SETTINGS, "limits": {"anonymous_per_minute": 2}}
    headers = {"content-type": "application/json"}
    async with open_site(parse_config(settings)) as parts:
        transport = httpx.ASGITransport(application(parts))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            statuses = [(await client.post(path, content="{")).status_code for _ in range(3)]

    assert statuses[0] == statuses[1] in {200, 400, 404}
    assert statuses[2] == 429
