"""Whatever is sent, in every dialect: the documented failure with its status and code, and nothing breaks."""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conformance.requirements import requirement
from tests.protocols.conftest import Inn, asking

from portico.access.identity import RequestCredentials, make_key
from portico.access.limits import Limits
from portico.catalog import Danger
from portico.requests import Call
from portico.server.assembly import Parts
from portico.telemetry import TelemetryEvent, UnexpectedError

Json = dict[str, Any]

OWN = '''
from portico.operations import Context, operation

@operation(kind="execute", danger="safe", long=True)
async def bake(context: Context) -> str:
    """Bake bread."""
    return "bread"
'''
INVALID = {"0.55": "INVALID_QUERY", "0.54": "INVALID_REQUEST", "flat": "INVALID_QUERY"}
TYPES = {"0.55": ("failure", "0.55"), "0.54": ("Failure", "0.54"), "flat": ("failure", "0.55")}
VERSIONS = {"0.55": {"version": "0.55"}, "0.54": {"api_version": "0.54"}, "flat": {}}
NESTED = ["0.55", "0.54"]
DIALECTS = [*NESTED, "flat"]


@dataclass
class Desk:
    """A site, somebody who sends it things, and what its operator would see."""

    parts: Parts
    client: httpx.AsyncClient
    seen: list[TelemetryEvent] = field(default_factory=list)

    async def send(self, body: Any, path: str = "/ask") -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.client.post(path, content=content, headers={"content-type": "application/json"})

    async def check(self, answer: httpx.Response, status: int, code: str, dialect: str = "0.55") -> None:
        """The failure that is documented; after it the site answers as before, and nothing broke."""
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json"), answer.text
        body = answer.json()
        assert (body["_meta"]["response_type"], body["_meta"]["version"]) == TYPES[dialect]
        assert (body["error"]["code"], bool(body["error"]["message"])) == (code, True)
        assert set(body) <= {"_meta", "error", "query_id"}
        assert (await self.send({"query": {"text": "attic"}})).json()["results"][0]["@id"] == "attic"
        assert [each for each in self.seen if isinstance(each, UnexpectedError)] == []


@pytest.fixture
async def desk(inn: Inn, tmp_path: Path) -> AsyncIterator[Desk]:
    (tmp_path / "own.py").write_text(OWN)
    async with inn(operations=["own.py"], anonymous={"scopes": ["ask", "read:*", "execute:bake"]}) as parts:
        seen: list[TelemetryEvent] = []
        observed = replace(parts, record=seen.append)
        async with asking(observed) as client:
            yield Desk(observed, client, seen)


# Wrong types

WRONG: list[Json] = [
    *({"query": wrong} for wrong in (None, 5, 0.5, True, [], ["soup"], {})),
    *({"query": {"text": wrong}} for wrong in (None, 5, True, ["soup"], {"text": "soup"}, "", " \n\t ")),
    *({"context": wrong} for wrong in (5, True, [], ["soup"])),
    *({"context": {"prev": wrong}} for wrong in (5, True, {}, [5], [None], [["soup"]])),
    *({"context": {"text": wrong}} for wrong in (5, True, [], {})),
    *({"context": {"memory": wrong}} for wrong in (5, True, {}, [5], [{}])),
    *({"context": {"answers": wrong}} for wrong in (5, True, "vegan", ["vegan"])),
    *({"prefer": wrong} for wrong in (5, True, "fast", [])),
    *({"prefer": {"streaming": wrong}} for wrong in ("yes", 1, [], {})),
    *({"prefer": {"mode": wrong}} for wrong in (5, True, {}, [5])),
    *({"prefer": {"response_format": wrong}} for wrong in (5, True, {}, [5])),
    *({"prefer": {"accept-language": wrong}} for wrong in (5, True, [], {})),
    *({"meta": {"session_context": wrong}} for wrong in (5, True, "x", [])),
    *({"meta": {"remember": wrong}} for wrong in (5, "yes", [], {})),
]


@requirement("nlweb:ask:query-required", "nlweb:ask:text-required", "nlweb:note:malformed", "nlweb:note:error-body")
@pytest.mark.parametrize("dialect", NESTED)
@pytest.mark.parametrize("wrong", WRONG, ids=json.dumps)
async def test_a_wrong_type_is_refused(desk: Desk, dialect: str, wrong: Json) -> None:
    body: Json = {"query": {"text": "attic"}, **wrong}
    body["meta"] = {**VERSIONS[dialect], **wrong.get("meta", {})}

    await desk.check(await desk.send(body), 400, INVALID[dialect], dialect)


@requirement("nlweb54:code:invalid-request", "nlweb54:response:failure", "nlweb54:ask:text-required")
@pytest.mark.parametrize("section", ["query", "context", "prefer", "meta"])
async def test_a_request_without_a_question_is_refused_also_where_a_stream_was_wanted(desk: Desk, section: str) -> None:
    body: Json = {"prefer": {"streaming": True}, "meta": {"api_version": "0.54"}}
    if section != "query":
        body = {section: body.get(section, {}), "meta": body["meta"]}

    await desk.check(await desk.send(body), 400, "INVALID_REQUEST", "0.54")


@pytest.mark.parametrize("meta", [5, True, "0.55", []])
async def test_a_meta_that_is_no_object_is_refused(desk: Desk, meta: Any) -> None:
    await desk.check(await desk.send({"query": {"text": "attic"}, "meta": meta}), 400, "INVALID_QUERY")


@pytest.mark.parametrize("version", ["version", "api_version"])
@pytest.mark.parametrize("said", [True, [], {}])
async def test_a_version_that_is_no_text_is_refused(desk: Desk, version: str, said: Any) -> None:
    dialect = "0.55" if version == "version" else "0.54"

    refused = await desk.send({"query": {"text": "attic"}, "meta": {version: said}})

    await desk.check(refused, 400, INVALID[dialect], dialect)


FLAT_WRONG: list[Json] = [
    *({"query": wrong} for wrong in ("", " ", "\t\n")),
    *({"generate_mode": wrong} for wrong in (5, [5], {"a": 1})),
    *({"response_format": wrong} for wrong in (5, [5], {"a": 1})),
    *({"memory": wrong} for wrong in (5, [5], {"a": 1})),
]


@requirement("nlwebflat:ask:query")
@pytest.mark.parametrize("wrong", FLAT_WRONG, ids=json.dumps)
async def test_a_wrong_type_of_a_flat_request_is_refused(desk: Desk, wrong: Json) -> None:
    body = {"query": "attic", "streaming": False, "query_id": "q1", **wrong}

    answer = await desk.send(body)

    await desk.check(answer, 400, "INVALID_QUERY", "flat")
    assert answer.json()["query_id"] == "q1"


@requirement("nlwebflat:ask:query")
@pytest.mark.parametrize(
    "url", ["/ask", "/ask?query=", "/ask?query=a&query=b", "/ask?query=%20", f"/ask?{'a=b&' * 300}"]
)
async def test_a_url_without_one_question_is_refused(desk: Desk, url: str) -> None:
    await desk.check(await desk.client.get(url), 400, "INVALID_QUERY", "flat")


# Too much, and what is no JSON

LIMIT = Limits().payload_bytes  # of a body

RAW: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "INVALID_QUERY"),
    "spaces": (b" \n", "INVALID_QUERY"),
    "half": (b'{"query": {"text": "attic"', "INVALID_QUERY"),
    "a list": (b"[]", "INVALID_QUERY"),
    "a text": (b'"attic"', "INVALID_QUERY"),
    "null": (b"null", "INVALID_QUERY"),
    "NaN": (b"NaN", "INVALID_QUERY"),
    "NaN inside": (b'{"query": {"text": "attic", "price": NaN}}', "INVALID_QUERY"),
    "Infinity inside": (b'{"query": {"text": "attic", "price": -Infinity}}', "INVALID_QUERY"),
    "a number beyond floats": (b'{"query": {"text": "attic", "price": 1e999}}', "INVALID_QUERY"),
    "a whole number beyond floats": (b'{"query": {"text": "attic", "price": 1' + b"0" * 400 + b"}}", "INVALID_QUERY"),
    "not UTF-8": (b'{"query": {"text": "\xff\xfe"}}', "INVALID_QUERY"),
    "UTF-16": ('{"query": {"text": "attic"}}'.encode("utf-16"), "INVALID_QUERY"),
    "half a character": (b'{"query": {"text": "\\ud800"}}', "INVALID_QUERY"),
    "a zero byte": (b'{"query": {"text": "a\\u0000b"}}', "INVALID_QUERY"),
    "lists without end": (b"[" * 100_000, "INVALID_QUERY"),
    "objects without end": (b'{"a":' * 100_000, "INVALID_QUERY"),
    "a deep filter": (b'{"query": {"text": "attic", "a": ' + b"[" * 40 + b"]" * 40 + b"}}", "INVALID_QUERY"),
    "a deep profile": (
        b'{"query": {"text": "attic"}, "context": ' + b'{"a":' * 40 + b"1" + b"}" * 40 + b"}",
        "INVALID_QUERY",
    ),
    "a body over the limit": (b'{"query": {"text": "attic"}, "x": "' + b"x" * LIMIT + b'"}', "TOKEN_LIMIT"),
    "spaces over the limit": (b" " * (LIMIT + 1), "TOKEN_LIMIT"),
}


@requirement("nlweb:failure:invalid-query", "nlweb:failure:token-limit", "nlweb:note:malformed", "nlweb:http:400")
@pytest.mark.parametrize("path", ["/ask", "/await"])
@pytest.mark.parametrize("name", RAW)
async def test_what_is_no_json_or_too_much_of_it_is_refused(desk: Desk, path: str, name: str) -> None:
    raw, code = RAW[name]

    await desk.check(await desk.send(raw, path), 400, code)


def long(dialect: str, length: int) -> Json:
    text = "soup " * (length // 5)
    query: Any = text if dialect == "flat" else {"text": text}
    return {"query": query, "meta": VERSIONS[dialect], "streaming": False, "prefer": {"streaming": False}}


@requirement("nlweb:failure:token-limit")
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("length", [20_000, LIMIT - 10_000, LIMIT, 3 * LIMIT])
async def test_a_megabyte_of_text_is_too_much(desk: Desk, dialect: str, length: int) -> None:
    refused = await desk.send(long(dialect, length))

    # What is too long to be read has not said yet which dialect it is in.
    await desk.check(refused, 400, "TOKEN_LIMIT", dialect if length < LIMIT else "0.55")


# What is not known


@requirement("nlweb:failure:unsupported-mode", "nlweb:failure:unsupported-format", "nlweb:note:mode-unknown")
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("prefer", "flat", "code"),
    [
        ({"mode": "dance"}, {"generate_mode": "dance"}, "UNSUPPORTED_MODE"),
        ({"mode": ["dance", "sing"]}, {"mode": "dance, sing"}, "UNSUPPORTED_MODE"),
        ({"response_format": "pdf"}, {"response_format": "pdf"}, "UNSUPPORTED_FORMAT"),
        ({"response_format": ["x" * 10_000]}, {"response_format": "x" * 10_000}, "UNSUPPORTED_FORMAT"),
    ],
)
async def test_unknown_modes_and_formats_are_failures(
    desk: Desk, dialect: str, prefer: Json, flat: Json, code: str
) -> None:
    nested = {"query": {"text": "attic"}, "prefer": prefer, "meta": VERSIONS[dialect]}

    answer = await desk.send({"query": "attic", **flat} if dialect == "flat" else nested)

    await desk.check(answer, 200, code, dialect)
    assert len(answer.text) < 1000


async def _token(desk: Desk) -> str:
    nobody = await desk.parts.site.access.authenticate(RequestCredentials(address="127.0.0.1"))
    return (await desk.parts.site.call(Call("bake"), nobody)).id


async def foreign(desk: Desk) -> str:
    token, record = make_key("other", ["ask", "execute:bake"], Danger.SAFE, 1)
    await desk.parts.store.keys.add(record)
    other = await desk.parts.site.access.authenticate(RequestCredentials(token))
    return (await desk.parts.site.call(Call("bake"), other)).id


async def forgotten(desk: Desk) -> str:
    token = await _token(desk)
    while (await desk.send({"promise_token": token, "action": "checkin"}, "/await")).status_code == 202:
        pass
    await desk.parts.store.backup.delete_entries()
    return token


async def unknown(_: Desk) -> str:
    return "promise_xyz789"


async def endless(_: Desk) -> str:
    return "x" * 500_000


@requirement("nlweb:note:unknown-promise")
@pytest.mark.parametrize("dialect", NESTED)
@pytest.mark.parametrize("action", ["checkin", "cancel"])
@pytest.mark.parametrize("made", [foreign, forgotten, unknown, endless], ids=lambda made: made.__name__)
async def test_a_promise_that_is_not_ones_own_is_unknown(
    desk: Desk, dialect: str, action: str, made: Callable[[Desk], Any]
) -> None:
    token = await made(desk)

    answer = await desk.send({"promise_token": token, "action": action, "meta": VERSIONS[dialect]}, "/await")

    await desk.check(answer, 200, "UNKNOWN_PROMISE", dialect)


LOOKS: list[tuple[Json, str, str]] = [
    *(
        ({"promise_token": "t", "action": wrong}, "INVALID_QUERY", "INVALID_ACTION")
        for wrong in ("dance", "", 5, [], {})
    ),
    ({"promise_token": "t", "action": None}, "INVALID_QUERY", "INVALID_ACTION"),
    ({"promise_token": "t"}, "INVALID_QUERY", "INVALID_ACTION"),
    ({"action": "checkin"}, "INVALID_QUERY", "MISSING_FIELD"),
    ({"promise_token": "", "action": "checkin"}, "INVALID_QUERY", "MISSING_FIELD"),
    ({"promise_token": None, "action": "cancel"}, "INVALID_QUERY", "MISSING_FIELD"),
    *(
        ({"promise_token": wrong, "action": "cancel"}, "INVALID_QUERY", "INVALID_REQUEST")
        for wrong in (5, True, [], {})
    ),
    ({"promise_token": "t", "action": "cancel", "prefer": "x"}, "INVALID_QUERY", "INVALID_REQUEST"),
    ({"query": {"text": "attic"}}, "INVALID_QUERY", "MISSING_FIELD"),
]


@requirement(
    "nlweb:await:token-required",
    "nlweb:await:action-required",
    "nlweb:note:bad-action",
    "nlweb54:code:missing-field",
    "nlweb54:code:invalid-action",
)
@pytest.mark.parametrize("dialect", NESTED)
@pytest.mark.parametrize(("body", "current", "earlier"), LOOKS, ids=[json.dumps(body) for body, _, _ in LOOKS])
async def test_a_look_that_is_not_well_formed_is_refused(
    desk: Desk, dialect: str, body: Json, current: str, earlier: str
) -> None:
    answer = await desk.send({**body, "meta": VERSIONS[dialect]}, "/await")

    await desk.check(answer, 400, current if dialect == "0.55" else earlier, dialect)


# What is strange and yet allowed


ODD: list[Json] = [
    {"query": {"text": "attic", "price": {"$where": "1; DROP TABLE rooms"}, "": 1, "a" * 5000: [None, {}]}},
    {"query": {"text": "attic", "beds": 10**300, "site": ["rooms", 5], "itemType": {"a": []}, "location": [[]]}},
    {"query": {"text": "attic"}, "context": {"@type": 5, "@context": {}, "restrictions": {"a": [1]}, "allergies": 7}},
    {"query": {"text": "attic"}, "meta": {"user": [1, {"a": None}], "start_num": "x", "request_id": {"a": 1}}},
    {"query": {"text": "attic"}, "meta": {"session_context": {"conversation_id": [], "state_token": {"a": 1}}}},
    {"query": {"text": "attic"}, "context": {"answers": {"x": {"y": [1, None]}, "": 5}}},
    {"query": {"text": "attic \U0001f3f4\u202e\ufdfd' OR 1=1 -- <script>%00"}},
    {"query": "attic", "streaming": False, "prev": {"a": 1}, "context": 5, "site": [1], "query_id": {"a": 1}},
]


@requirement("nlweb:note:filters-ignored", "nlweb:note:session-signed")
@pytest.mark.parametrize("body", ODD, ids=range(len(ODD)))
async def test_what_has_no_meaning_is_left_aside_and_breaks_nothing(desk: Desk, body: Json) -> None:
    answer = await desk.send(body)

    assert answer.status_code == 200, answer.text
    kind = answer.json().get("_meta", {}).get("response_type", "answer")
    assert kind == "answer" or answer.json()["error"]["code"] == "NO_RESULTS", answer.text
    assert [each for each in desk.seen if isinstance(each, UnexpectedError)] == []
