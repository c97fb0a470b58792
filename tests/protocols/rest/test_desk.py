"""The operator's desk as a person with a key uses it, and as everybody else finds it."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import msgspec
import pytest
from tests.conformance.requirements import requirement
from tests.protocols.conftest import Inn, asking, listening

from portico.access.identity import RequestCredentials, make_key
from portico.catalog import Danger
from portico.conversations.feedback import Opinion
from portico.errors import AgentBlocked, ConfirmationNeeded, Forbidden, UnknownTask
from portico.requests import Call, Caller
from portico.server.assembly import Parts
from portico.telemetry import (
    AskAnswered,
    CallFinished,
    QueryServed,
    RequestRefused,
    RequestStats,
    TrafficHistory,
    TrafficMinute,
    UnexpectedError,
)

HINT = "drop_table rooms"


@dataclass
class Desk:
    """An inn with an agent that may risk much, and a person who may approve."""

    parts: Parts
    http: httpx.AsyncClient
    agent: Caller
    agent_key: str  # of an agent that, by mistake, may approve too
    person: str  # the person's key

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.http.get(f"/desk/api/{path}", headers={**_bearer(self.person), **headers})

    async def post(self, path: str, said: Any = None, **headers: str) -> httpx.Response:
        return await self.http.post(f"/desk/api/{path}", json=said or {}, headers={**_bearer(self.person), **headers})

    async def do(self, operation: str, **params: Any) -> Any:
        return (await self.parts.site.call(Call(operation, params), self.agent)).result

    async def wants(self, room: str) -> str:
        """The token under which the agent waits to delete a room."""
        with pytest.raises(ConfirmationNeeded) as waiting:
            await self.do("delete_room", id=room)
        return waiting.value.details["token"]

    async def approve(self, token: str, note: str = "", **headers: str) -> httpx.Response:
        """Agree to what waits under a token, as it is shown."""
        shown = (await self.get("pending")).json()["confirmations"]
        digest = next((each["digest"] for each in shown if each["token"] == token), "")
        said = {"decision": "approve", "digest": digest, "note": note}
        return await self.post(f"confirmations/{token}", said, **headers)

    async def goes_too_far(self) -> str:
        """The id of the challenge that an agent has brought on itself."""
        await self.do("execute_agent", element_name="bot")
        told = await self.do("record_execution_step", element_name="bot", next_action_hint=HINT)
        assert msgspec.to_builtins(told)["autonomy"]["stopped"]
        [challenge] = (await self.get("pending")).json()["challenges"]
        return challenge["id"]


def _bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def _key(parts: Parts, *scopes: str, danger: Danger = Danger.SAFE) -> str:
    token, key = make_key("somebody", scopes, danger, 1)
    await parts.store.keys.add(key)
    return token


@asynccontextmanager
async def seated(inn: Inn, **said: Any) -> AsyncIterator[Desk]:
    async with inn(safety={"start": "allow", **said.pop("safety", {})}, **said) as parts, asking(parts) as http:
        http.base_url = "http://127.0.0.1"
        agent = await _key(parts, "*:*", "approve", danger=Danger.DANGEROUS)
        caller = await parts.site.identity.caller(RequestCredentials(agent))
        yield Desk(parts, http, caller, agent, await _key(parts, "approve"))


@pytest.fixture
async def desk(inn: Inn) -> AsyncIterator[Desk]:
    async with seated(inn) as desk:
        yield desk


# Agreeing


async def test_what_waits_is_shown_and_what_is_agreed_to_runs_once(desk: Desk) -> None:
    token = await desk.wants("attic")

    shown = await desk.get("pending")
    said = await desk.approve(token, "Ann asked for it")
    await desk.do("delete_room", id="attic")

    [waiting] = shown.json()["confirmations"]
    about = {name: waiting[name] for name in ("token", "caller", "operation", "params", "danger")}
    assert about == {
        "token": token,
        "caller": desk.agent.id,
        "operation": "delete_room",
        "params": {"id": "attic"},
        "danger": "destructive",
    }
    assert (said.status_code, said.json()["operation"]) == (200, "delete_room")
    assert {answer.headers["cache-control"] for answer in (shown, said)} == {"no-store"}
    assert (await desk.get("pending")).json()["confirmations"] == []
    assert [each["body"].get("note") for each in (await desk.get("audit")).json()["lines"]].count(
        "Ann asked for it"
    ) == 1


async def test_what_is_refused_does_not_run(desk: Desk) -> None:
    token = await desk.wants("attic")

    said = await desk.post(f"confirmations/{token}", {"decision": "reject"})
    again = await desk.post(f"confirmations/{token}", {"decision": "approve"})

    assert (said.status_code, again.status_code, again.json()["title"]) == (200, 403, "Token used")
    with pytest.raises(Forbidden, match="call was rejected"):
        await desk.do("delete_room", id="attic")


async def test_nobody_agrees_to_their_own(desk: Desk) -> None:
    token, own = await desk.wants("attic"), _bearer(desk.agent_key)
    agreed = await desk.post(f"confirmations/{token}", {"decision": "approve"}, **own)
    challenge = await desk.goes_too_far()

    refused = [
        agreed,
        await desk.post(f"confirmations/{token}", {"decision": "approve"}, **own),
        await desk.post(f"challenges/{challenge}/code", **own),
        await desk.post(f"challenges/{challenge}/verify", {"code": "x"}, **own),
        await desk.post("agents/unblock", {"caller": desk.agent.id}, **own),
        await desk.post("sources/1/reload", **own),
    ]

    assert {each.status_code for each in refused} == {403}
    titles = [each.json()["title"] for each in refused]
    assert titles == ["Forbidden", *["Agent blocked"] * 5]


# Codes


@requirement("aql:oob:channels", "aql:oob:verified")
async def test_a_code_is_said_to_the_person_who_asks_and_releases_the_agent(desk: Desk) -> None:
    challenge = await desk.goes_too_far()

    issued = await desk.post(f"challenges/{challenge}/code")
    code = issued.json()["code"]
    verified = await desk.post(f"challenges/{challenge}/verify", {"code": code})
    elsewhere = [await desk.get("pending"), await desk.get("audit"), verified]

    assert (issued.status_code, issued.headers["cache-control"]) == (200, "no-store")
    assert issued.json()["challenge"]["hint"] == HINT
    assert (verified.status_code, verified.json()["id"]) == (200, challenge)
    assert [each for each in elsewhere if code in each.text] == []
    assert (await desk.do("execute_agent", element_name="bot")) is not None


async def test_a_wrong_code_releases_nobody(desk: Desk) -> None:
    challenge = await desk.goes_too_far()
    code = (await desk.post(f"challenges/{challenge}/code")).json()["code"]

    wrong = await desk.post(f"challenges/{challenge}/verify", {"code": code[::-1]})
    late = await desk.post(f"challenges/{challenge}/verify", {"code": code})

    assert (wrong.status_code, late.status_code) == (403, 403)
    with pytest.raises(AgentBlocked):
        await desk.do("execute_agent", element_name="other")


async def test_a_person_can_let_a_caller_go_on_without_a_code(desk: Desk) -> None:
    await desk.goes_too_far()
    [block] = (await desk.get("pending")).json()["blocks"]

    said = await desk.post("agents/unblock", {"caller": block["caller"], "note": "a drill"})
    again = await desk.post("agents/unblock", {"caller": block["caller"]})

    assert (said.status_code, again.status_code) == (200, 404)
    assert (await desk.get("pending")).json()["blocks"] == []
    assert (await desk.get("audit?limit=1000")).json()["lines"][-1]["body"]["note"] == "a drill"


async def test_the_trail_is_read_piece_by_piece(desk: Desk) -> None:
    for room in ("attic", "cellar", "garden"):
        await desk.wants(room)

    whole = (await desk.get("audit")).json()["lines"]
    part = (await desk.get("audit?after=1&limit=1")).json()["lines"]

    assert [each["seq"] for each in whole] == list(range(1, len(whole) + 1))
    assert part == whole[1:2]
    assert (await desk.get("audit?after=-1")).status_code == 400


async def test_the_whole_trail_is_checked(desk: Desk) -> None:
    await desk.wants("attic")

    assert (await desk.get("audit/check")).json() == {"problems": []}


# Looking on


async def test_agents_at_work_are_shown_until_they_are_done(desk: Desk) -> None:
    await desk.do("execute_agent", element_name="bot")
    await desk.do("record_execution_step", element_name="bot", next_action_hint="calling count_rooms")

    [shown] = (await desk.get("executions")).json()["executions"]
    await desk.do("complete_execution", element_name="bot")

    about = {name: shown["execution"][name] for name in ("element_name", "status")}
    assert (shown["caller"], about) == (desk.agent.id, {"element_name": "bot", "status": "running"})
    assert shown["execution"]["progress"]["current"] == 1
    assert (await desk.get("executions")).json() == {"executions": [], "names": {}}
    with pytest.raises(Forbidden):
        await desk.parts.site.supervision.executions(Caller("key:reader", scopes=frozenset({"*:*"})))


async def test_an_execution_is_ended_for_its_agent_and_the_trail_says_by_whom(desk: Desk) -> None:
    begun = await desk.do("execute_agent", element_name="bot")
    id = msgspec.to_builtins(begun)["execution_id"]

    ended, again = [await desk.post(f"executions/{id}/end", {"note": "Enough"}) for _ in range(2)]
    [*_, line] = (await desk.get("audit")).json()["lines"]

    assert (ended.status_code, ended.json()["execution"]["status"], again.status_code) == (200, "cancelled", 404)
    assert (line["event"], line["body"]["caller"]) == ("EXECUTION_CANCELLED", desk.agent.id)
    assert (line["body"]["note"], line["body"]["reason"]) == ("Enough", f"Ended by {line['body']['by']}")
    with pytest.raises(UnknownTask):
        await desk.do("record_execution_step", element_name="bot", next_action_hint="calling count_rooms")


async def test_who_is_named_in_the_trail_is_told_by_the_name_of_the_key(desk: Desk) -> None:
    token = await desk.wants("attic")
    await desk.post(f"confirmations/{token}", {"decision": "reject"})

    trail = (await desk.get("audit")).json()

    by = trail["lines"][-1]["body"]["by"]
    assert trail["names"] == {desk.agent.id: "somebody", by: "somebody"}


async def test_who_gave_the_code_is_told_by_the_name_of_the_key_as_well(desk: Desk) -> None:
    id = await desk.goes_too_far()
    code = (await desk.post(f"challenges/{id}/code")).json()["code"]
    await desk.post(f"challenges/{id}/verify", {"code": code})

    trail = (await desk.get("audit")).json()

    [words] = [each["body"]["by"] for each in trail["lines"] if str(each["body"].get("by")).startswith("verified by ")]
    assert trail["names"] == {desk.agent.id: "somebody", words.removeprefix("verified by "): "somebody"}


async def test_tasks_are_shown_without_what_they_were_given_or_gave(desk: Desk) -> None:
    began = [await desk.parts.site.call(Call("get_room", {"id": id}, run="later"), desk.agent) for id in ("attic", "x")]
    async with asyncio.timeout(60):
        while {each["state"] for each in (await desk.get("tasks")).json()["tasks"]} & {"pending", "running"}:
            await asyncio.sleep(0.01)

    found = await desk.get("tasks")
    [newest] = (await desk.get("tasks?limit=1")).json()["tasks"]

    shown = [(each["operation"], each["state"], each["caller"]) for each in found.json()["tasks"]]
    assert shown == [("get_room", "failed", desk.agent.id), ("get_room", "completed", desk.agent.id)]
    assert newest == found.json()["tasks"][0]
    assert newest["error"]
    assert [each.id for each in began if each.id in found.text] == []
    assert "The attic" not in found.text
    ended = [await desk.post(f"tasks/{id}/cancel") for id in (newest["id"], "0" * 12, began[0].id)]
    assert [each.status_code for each in ended] == [409, 404, 404]


async def test_what_people_say_of_answers_is_shown(desk: Desk) -> None:
    await desk.parts.site.feedback.give(Opinion("down", "Too short"), desk.agent)

    [said] = (await desk.get("feedback")).json()["feedback"]

    assert (said["caller"], said["opinion"]["comment"]) == (desk.agent.id, "Too short")


async def test_traffic_is_shown(desk: Desk) -> None:
    await desk.do("count_rooms")
    await desk.wants("attic")

    minutes = (await desk.get("traffic")).json()["minutes"]

    calls = [each["requests"]["call"] for each in minutes if each["requests"]]
    assert [sum(each[name] for each in calls) for name in ("count", "errors")] == [2, 1]


def test_of_traffic_an_hour_is_remembered() -> None:
    now = [0.0]
    traffic = TrafficHistory(lambda: now[0])

    traffic(AskAnswered(900.0, 1, "anonymous"))
    now[0] = 3599.0
    for ms in (10.0, 30.0):
        traffic(QueryServed("rooms", ms, 1, "anonymous"))
    traffic(CallFinished("get_room", 5.0, "anonymous", "NotFound"))
    before = traffic.minutes()
    now[0] = 3600.0
    traffic(RequestRefused("rooms", "anonymous", "Forbidden"))
    traffic(UnexpectedError("somewhere", "ValueError"))

    paces = {"query": RequestStats(2, 0, 40.0, 30.0), "call": RequestStats(1, 1, 5.0, 5.0)}
    busy = TrafficMinute(datetime(1970, 1, 1, 0, 59, tzinfo=UTC), paces, 0, 0)
    assert before == [
        TrafficMinute(datetime(1970, 1, 1, tzinfo=UTC), {"ask": RequestStats(1, 0, 900.0, 900.0)}, 0, 0),
        busy,
    ]
    assert traffic.minutes() == [busy, TrafficMinute(datetime(1970, 1, 1, 1, tzinfo=UTC), {}, 1, 1)]


# Loading again


async def test_a_source_is_loaded_again_one_at_a_time(inn: Inn, tmp_path: Path) -> None:
    (tmp_path / "rooms.jsonl").write_text('{"@id": "shed", "name": "The shed"}\n')
    there, gone = {"url": "rooms.jsonl", "collection": "rooms"}, {"url": "nothing.jsonl", "collection": "rooms"}
    async with seated(inn, source=[there, gone]) as desk:
        before = (await desk.get("sources")).json()["sources"]
        begun, busy = await desk.post("sources/1/reload"), await desk.post("sources/2/reload")
        [loaded, _] = await _settled(desk)
        again = await desk.post("sources/2/reload")
        [_, failed] = await _settled(desk)
        refused = [(await desk.post(f"sources/{number}/reload")).status_code for number in ("0", "3", "x", "-1")]
        shed = await desk.parts.store.items.get("rooms", "shed")

    assert [each["state"] for each in before] == ["never", "never"]
    assert (begun.status_code, begun.json()["state"], busy.status_code) == (202, "loading", 409)
    told = {name: loaded[name] for name in ("number", "url", "collection", "state", "items", "added")}
    assert told == {
        "number": 1,
        "url": "rooms.jsonl",
        "collection": "rooms",
        "state": "loaded",
        "items": 1,
        "added": 1,
    }
    assert shed is not None
    assert (again.status_code, failed["state"]) == (202, "failed")
    assert "nothing.jsonl" in failed["error"]
    assert refused == [404, 404, 400, 400]


async def _settled(desk: Desk) -> list[dict[str, Any]]:
    """The sources, once none of them is being loaded."""
    async with asyncio.timeout(60):
        while True:
            sources = (await desk.get("sources")).json()["sources"]
            if "loading" not in {each["state"] for each in sources}:
                return sources
            await asyncio.sleep(0.01)


# The page


async def test_the_page_holds_nothing_and_may_do_little(desk: Desk) -> None:
    token = await desk.wants("attic")

    page = await desk.http.get("/desk")
    assets = {name: await desk.http.get(name) for name in re.findall(r'(?:src|href)="(/assets/[^"]+)"', page.text)}

    policy = page.headers["content-security-policy"]
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert [each for each in ("default-src 'none'", "frame-ancestors 'none'") if each not in policy] == []
    assert "unsafe" not in policy
    assert [each for each in (token, desk.agent.id, "style=", "onclick=") if each in page.text] == []
    assert {name for name, answer in assets.items() if answer.status_code != 200} == set()
    assert {"/assets/desk.js", "/assets/desk.css"} <= assets.keys()


# Everybody else


READ = ("pending", "executions", "tasks", "sources", "traffic", "feedback", "audit", "audit/check")


async def test_what_is_read_is_what_is_published(desk: Desk) -> None:
    await desk.wants("attic")
    await desk.parts.site.call(Call("get_room", {"id": "attic"}, run="later"), desk.agent)
    await desk.goes_too_far()

    told = (await desk.http.get("/openapi.json")).json()
    for path in READ:
        answer = (await desk.get(path)).json()
        [media] = told["paths"][f"/desk/api/{path}"]["get"]["responses"]["200"]["content"].values()
        jsonschema.validate(answer, {**media["schema"], "components": told["components"]})
        published = told["components"]["schemas"][media["schema"]["$ref"].rpartition("/")[2]]
        assert published["properties"].keys() == answer.keys()


async def test_nothing_is_read_without_the_scope(desk: Desk) -> None:
    reader = await _key(desk.parts, "ask", "*:*")

    codes = {
        path: (
            (await desk.http.get(f"/desk/api/{path}")).status_code,
            (await desk.get(path, authorization=f"Bearer {reader}")).status_code,
            (await desk.get(path, **{"x-forwarded-for": "127.0.0.1"})).status_code,
            (await desk.get(path)).status_code,
        )
        for path in READ
    }

    assert codes == dict.fromkeys(READ, (401, 403, 403, 200))
    assert (await desk.get("sources/1/reload")).status_code == 405


@requirement("aql:attack:desk-forged")
async def test_the_desk_is_closed_to_everybody_else(inn: Inn) -> None:
    async with seated(inn, server={"origins": ["*"]}) as desk:
        token, reader = await desk.wants("attic"), await _key(desk.parts, "ask", "*:*")
        elsewhere = httpx.ASGITransport(desk.http._transport.app, client=("203.0.113.9", 1))
        agree = {"decision": "approve"}

        async with httpx.AsyncClient(transport=elsewhere, base_url="http://127.0.0.1") as foreign:
            answers = {
                "nobody": await desk.http.get("/desk/api/pending"),
                "a wrong key": await desk.get("pending", authorization="Bearer pk_wrong"),
                "no scope": await desk.get("pending", authorization=f"Bearer {reader}"),
                "a page elsewhere": await desk.post(f"confirmations/{token}", agree, origin="https://evil.example"),
                "passed on": await desk.get("pending", **{"x-forwarded-for": "127.0.0.1"}),
                "another machine": await foreign.get("/desk/api/pending", headers=_bearer(desk.person)),
                "a look from there": await foreign.get("/desk"),
                "a look under another name": await desk.http.get("/desk", headers={"host": "evil.example"}),
                "another name": await desk.get("pending", host="evil.example"),
                "a look": await desk.http.get("/desk"),
                "by GET": await desk.get(f"confirmations/{token}"),
                "no JSON": await desk.http.post(
                    f"/desk/api/confirmations/{token}", content=json.dumps(agree), headers=_bearer(desk.person)
                ),
                "no text": await desk.post("challenges/%00/code"),
                "no text inside": await desk.post(f"confirmations/{token}", {**agree, "note": "a\0b"}),
                "no decision": await desk.post(f"confirmations/{token}", {"decision": "maybe"}),
                "more than that": await desk.post(f"confirmations/{token}", {**agree, "caller": "key:1"}),
            }

        assert {who: answer.status_code for who, answer in answers.items()} == {
            "nobody": 401,
            "a wrong key": 401,
            "no scope": 403,
            "a page elsewhere": 403,
            "passed on": 403,
            "another machine": 403,
            "a look from there": 403,
            "a look under another name": 403,
            "another name": 403,
            "a look": 200,
            "by GET": 405,
            "no JSON": 400,
            "no text": 400,
            "no text inside": 422,
            "no decision": 422,
            "more than that": 422,
        }
        assert {answer.headers["cache-control"] for answer in answers.values()} == {"no-store"}
        assert len((await desk.get("pending")).json()["confirmations"]) == 1


async def test_a_desk_that_is_open_anywhere_still_wants_a_key(inn: Inn) -> None:
    async with seated(inn, safety={"desk": "anywhere"}) as desk:
        elsewhere = httpx.ASGITransport(desk.http._transport.app, client=("203.0.113.9", 1))
        async with httpx.AsyncClient(transport=elsewhere, base_url="http://127.0.0.1") as foreign:
            known = await foreign.get("/desk/api/pending", headers=_bearer(desk.person))
            unknown = await foreign.get("/desk/api/pending")

    assert (known.status_code, unknown.status_code) == (200, 401)


async def test_keys_cannot_be_tried_out(inn: Inn) -> None:
    async with seated(inn, limits={"anonymous_per_minute": 3}) as desk:
        tried = [await desk.get("pending", authorization=f"Bearer pk_{number}") for number in range(5)]

    assert [each.status_code for each in tried] == [401, 401, 401, 429, 429]


async def test_over_a_real_connection_only_this_machine_is_let_in(desk: Desk) -> None:
    async with listening(desk.parts) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        known = _bearer(desk.person)
        answers = [
            await client.get("/desk/api/pending", headers={**known, **passed})
            for passed in (
                {},
                {"x-forwarded-for": "203.0.113.9"},
                {"x-forwarded-for": "127.0.0.1"},
                {"x-forwarded-host": "127.0.0.1"},
                {"cf-connecting-ip": "127.0.0.1"},
                {"host": "127.0.0.1.evil.example"},
            )
        ]

    assert [each.status_code for each in answers] == [200, 403, 403, 403, 403, 403]
