"""Budgets over HTTP: what an answer costs, how it is trimmed to what an agent can take, and that nothing gets lost."""

import json
import math
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio
from rs_bpe.bpe import openai
from tests.conformance.requirements import requirement
from tests.protocols.conftest import asking
from tests.protocols.nwp.shop import ask, capsule, refusal, refused, shop

from portico.access.identity import RequestCredentials
from portico.access.nip.authority import SiteAuthority
from portico.catalog import Danger
from portico.protocols.nwp.frames import CapsFrame, EncodingTier, QueryFrame, decode, encode, read_header
from portico.server.assembly import Parts

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Of each thing there is a name, a description worth a summary, and more that can go: words, a list and a number.
THINGS: dict[str, dict[str, Any]] = {
    f"t{n:02}": {
        "name": f"Thing 第{n}号",
        "description": f"A thing of number {n}. " + "It is made of wood, and of little else that anybody knows. " * 4,
        "notes": f"Seen in room {n}, under a table. " * 4,
        "tags": ["wood", f"room-{n}"],
        "n": n,
    }
    for n in range(12)
}
IDS = list(THINGS)
EXCEEDED = (429, "NPS-LIMIT-BUDGET", "NWP-BUDGET-EXCEEDED")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def parts(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Parts]:
    async with shop(tmp_path_factory.mktemp("shop"), THINGS, server={"url": "http://inn.example"}) as parts:
        yield parts


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(parts: Parts) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(parts) as client:
        yield client


def written(data: Any) -> bytes:
    return msgspec.json.encode(data)


def estimate(data: Any) -> int:
    return math.ceil(len(written(data)) / 4)


async def pages(client: httpx.AsyncClient, said: dict[str, Any], **headers: str) -> list[dict[str, Any]]:
    """Every page of a query."""
    found: list[dict[str, Any]] = []
    while not found or found[-1].get("next_cursor"):
        cursor = found[-1]["next_cursor"] if found else None
        found.append(await capsule(client, {**said, "cursor": cursor}, **headers))
    return found


def ids(found: list[dict[str, Any]]) -> list[str]:
    return [each["id"] for page in found for each in page["data"]]


@requirement("nwp:budget:npt", "nwp:budget:counted")
async def test_without_a_tokenizer_four_bytes_are_a_token_in_either_tier(client: httpx.AsyncClient) -> None:
    bare = await ask(client, {})
    packed = await client.post("/nwp/things/query", content=encode(QueryFrame(), EncodingTier.MSGPACK))
    frame = decode(packed.content)

    assert isinstance(frame, CapsFrame)
    expected = estimate([{"id": id, **data} for id, data in THINGS.items()])
    assert (bare.json()["token_est"], frame.token_est) == (expected, expected)
    for answer in (bare, packed):
        assert answer.headers["x-nwp-tokens"] == str(expected)
        assert not {"x-nwp-tokens-native", "x-nwp-tokenizer-used"} & set(answer.headers)
    assert "tokenizer_used" not in bare.json()


@requirement("nwp:budget:npt", "nwp:budget:tokenizers", "nwp:budget:counted")
@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base"])
async def test_a_known_tokenizer_counts_the_data_itself(client: httpx.AsyncClient, name: str) -> None:
    answer = await ask(client, {"limit": 3}, tokenizer=name)
    packed = decode(
        (
            await client.post(
                "/nwp/things/query", content=encode(QueryFrame(limit=3, tokenizer=name), EncodingTier.MSGPACK)
            )
        ).content
    )

    own = getattr(openai, name)().count(written(answer.json()["data"]).decode())
    told = {each: answer.headers[f"x-nwp-{each}"] for each in ("tokens", "tokens-native", "tokenizer-used")}
    assert told == {"tokens": str(own), "tokens-native": str(own), "tokenizer-used": name}
    assert (answer.json()["token_est"], answer.json()["tokenizer_used"]) == (own, name)
    assert isinstance(packed, CapsFrame)
    assert (packed.token_est, packed.tokenizer_used) == (own, name)


@requirement("nwp:budget:resolution")
async def test_the_first_tokenizer_that_is_known_counts(parts: Parts, client: httpx.AsyncClient) -> None:
    made = await SiteAuthority(parts.config, parts.store).issue(
        "ann", scopes=["read:*"], metadata={"tokenizer": "cl100k_base"}
    )
    shown = json.dumps(dict(made.certificate))

    async def used(field: str | None, **headers: str) -> str | None:
        return (await ask(client, {"limit": 1, "tokenizer": field}, **headers)).headers.get("x-nwp-tokenizer-used")

    assert await used("cl100k_base", tokenizer="o200k_base") == "o200k_base"
    assert await used("cl100k_base", tokenizer="claude-next") == "cl100k_base"
    assert await used("claude-next", tokenizer="openai/gpt-4o") == "o200k_base"
    assert await used("claude-next", tokenizer="gemini-9") == "fallback"
    assert await used(None) is None
    assert await used(None, ident=shown) == "cl100k_base"
    assert await used("claude-next", ident=shown) == "cl100k_base"
    assert await used("o200k_base", ident=shown) == "o200k_base"


@requirement("nwp:budget:limit", "nwp:budget:effective")
async def test_the_smallest_budget_counts_and_zero_is_none(parts: Parts, client: httpx.AsyncClient) -> None:
    made = await SiteAuthority(parts.config, parts.store).issue("bob", scopes=["read:*"], budget=45)
    shown = json.dumps(dict(made.certificate))
    whole = (await capsule(client, {}))["token_est"]

    async def spent(field: int | None = None, **headers: str) -> int:
        return (await capsule(client, {"token_budget": field}, **headers))["token_est"]

    plain = {most: await spent(most) for most in (30, 45, 60, 90)}
    for field, headers, most in (
        (None, {"budget": "60"}, 60),
        (60, {"budget": "90"}, 60),
        (90, {"budget": "60"}, 60),
        (0, {"budget": "60"}, 60),
        (60, {"budget": "0"}, 60),
        (None, {"ident": shown}, 45),
        (90, {"ident": shown, "budget": "60"}, 45),
        (90, {"ident": shown, "budget": "30"}, 30),
    ):
        assert await spent(field, **headers) == plain[most]
    assert all(most - 15 < tokens <= most for most, tokens in plain.items())
    assert [await spent(), await spent(0), await spent(budget="0"), await spent(whole)] == [whole] * 4
    for odd in ("-1", "1.5", "many", "1" * 11):
        assert (await ask(client, {}, budget=odd)).status_code == 400


@requirement("nwp:budget:trimmed", "nwp:budget:not-silent", "nwp:budget:limit")
async def test_first_long_texts_become_summaries_then_fields_go_then_records(client: httpx.AsyncClient) -> None:
    whole = await capsule(client, {"limit": 12})
    seen: list[tuple[tuple[str, ...], tuple[str, ...], bool]] = []
    for budget in range(whole["token_est"], 20, -7):
        page = await capsule(client, {"limit": 12, "token_budget": budget})
        told = page.get("trimmed") or {"dropped_fields": [], "summarized_fields": [], "dropped_records": 0}

        assert (page["token_est"], page["count"]) == (estimate(page["data"]), len(page["data"]))
        assert page["token_est"] <= budget
        assert (page["count"] + told["dropped_records"], "next_cursor" in page) == (12, told["dropped_records"] > 0)
        kept = [
            name for name in ("id", "name", "description", "notes", "tags", "n") if name not in told["dropped_fields"]
        ]
        assert all(set(record) == set(kept) for record in page["data"])
        step = (tuple(told["summarized_fields"]), tuple(told["dropped_fields"]), told["dropped_records"] > 0)
        if step not in seen:
            seen.append(step)

    assert seen == [
        ((), (), False),
        (("description",), (), False),
        (("description", "notes"), (), False),
        (("description",), ("notes",), False),
        (("description",), ("notes", "tags"), False),
        (("description",), ("notes", "tags", "n"), False),
        ((), ("notes", "tags", "n", "description"), False),
        ((), ("notes", "tags", "n", "description"), True),
    ]


@requirement("nwp:budget:not-silent", "nwp:budget:trimmed")
async def test_what_was_left_out_is_told(client: httpx.AsyncClient) -> None:
    said = {"limit": 2, "fields": ["id", "name", "description", "n"], "token_budget": 80}

    page = await capsule(client, said)

    assert page["trimmed"] == {
        "reason": "token_budget",
        "dropped_fields": [],
        "summarized_fields": ["description"],
        "dropped_records": 0,
    }
    assert [each["description"] for each in page["data"]] == [
        f"A thing of number {n}. It is made of wood, and of little else that anybody knows." for n in range(2)
    ]


@requirement("nwp:budget:not-silent")
@pytest.mark.parametrize("budget", [30, 45, 60, 130, 400])
@pytest.mark.parametrize("said", [{}, {"order": [{"field": "n", "dir": "DESC"}]}], ids=["plain", "sorted"])
async def test_all_pages_of_a_small_budget_have_every_record_once(
    client: httpx.AsyncClient, said: dict[str, Any], budget: int
) -> None:
    found = await pages(client, {**said, "limit": 12}, budget=str(budget))

    assert ids(found) == (sorted(IDS, reverse=True) if said else IDS)
    assert all(page["token_est"] <= budget for page in found)


@requirement("nwp:budget:not-silent")
async def test_records_that_went_are_told_even_if_those_that_stay_are_whole(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    things = {f"{n}" * 60: {"v": n} for n in range(8)}  # without `v` they are hardly smaller
    async with shop(tmp_path_factory.mktemp("ids"), things) as parts, asking(parts) as client:
        page = await capsule(client, {"limit": 8, "token_budget": 98})

    assert page["data"] == [{"id": f"{n}" * 60, "v": n} for n in range(5)]
    assert page["trimmed"]["dropped_fields"] == []
    assert page["trimmed"]["dropped_records"] == 3
    assert page["next_cursor"]


@requirement("nwp:errors:budget-exceeded")
async def test_a_budget_that_not_even_one_record_fits_is_exceeded(client: httpx.AsyncClient) -> None:
    assert await refusal(client, {"token_budget": 3}) == EXCEEDED
    assert refused(await ask(client, {"tokenizer": "cl100k_base"}, budget="3")) == EXCEEDED
    assert refused(await client.post("/nwp/things/stream", json={"token_budget": 3})) == EXCEEDED


@requirement("nwp:budget:tokenizers", "nwp:budget:not-silent")
async def test_a_tokenizer_trims_as_the_estimate_does(client: httpx.AsyncClient) -> None:
    count = openai.cl100k_base().count

    found = await pages(client, {"limit": 12, "tokenizer": "cl100k_base"}, budget="100")

    assert ids(found) == IDS
    assert [page["token_est"] for page in found] == [count(written(page["data"]).decode()) for page in found]
    assert all(page["token_est"] <= 100 for page in found)


async def test_what_is_very_long_is_estimated_whatever_the_tokenizer(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portico.access.budget.MAX_COUNTED", 1000)

    for budget in ("0", "100000"):
        page = await capsule(client, {"limit": 12}, tokenizer="cl100k_base", budget=budget)
        assert (page["tokenizer_used"], page["token_est"]) == ("fallback", estimate(page["data"]))
    assert (await capsule(client, {"limit": 1}, tokenizer="cl100k_base"))["tokenizer_used"] == "cl100k_base"
    small = await capsule(client, {"limit": 12}, tokenizer="cl100k_base", budget="100")
    assert small["tokenizer_used"] == "cl100k_base"


@requirement("nwp:budget:trimmed")
async def test_rows_of_an_aggregate_keep_their_values_and_come_in_more_pages(client: httpx.AsyncClient) -> None:
    operations = [
        {"func": "COUNT", "alias": "number_of_things"},
        {"func": "MAX", "field": "n", "alias": "the_largest_number_of_them"},
    ]
    said = {"aggregate": {"operations": operations, "group_by": ["name", "n"]}, "limit": 12}

    found = await pages(client, said, budget="60")

    assert len(found) > 1
    assert [row for page in found for row in page["data"]] == [
        {"name": each["name"], "n": each["n"], "number_of_things": 1, "the_largest_number_of_them": each["n"]}
        for each in sorted(THINGS.values(), key=lambda each: (each["name"], each["n"]))
    ]
    assert all(page["token_est"] <= 60 and not page.get("trimmed", {}).get("dropped_fields") for page in found)


@requirement("nwp:budget:trimmed")
async def test_values_of_an_aggregate_go_only_from_a_row_that_does_not_fit_by_itself(client: httpx.AsyncClient) -> None:
    operations = [{"func": "COUNT", "alias": "count"}, {"func": "MAX", "field": "n", "alias": "x" * 100}]
    said = {"aggregate": {"operations": operations, "group_by": ["n"]}, "limit": 12}

    page = await capsule(client, said, budget="12")

    assert page["data"] == [{"n": 0, "count": 1}]
    assert page["trimmed"]["dropped_fields"] == [f"{'x' * 64}"]


@requirement("nwp:budget:trimmed", "nwp:budget:not-silent")
@pytest.mark.parametrize("tokenizer", [None, "cl100k_base"])
async def test_named_fields_stay_and_records_go(client: httpx.AsyncClient, tokenizer: str | None) -> None:
    said = {"limit": 12, "fields": ["id", "n", "tags", "name"], "tokenizer": tokenizer}

    found = await pages(client, said, budget="60")

    assert len(found) > 1
    assert [record for page in found for record in page["data"]] == [
        {"id": id, **{name: data[name] for name in ("n", "tags", "name")}} for id, data in THINGS.items()
    ]
    assert all(page["token_est"] <= 60 for page in found)


# Actions


async def invoked(client: httpx.AsyncClient, action: str, params: dict[str, Any], ident: str, **said: Any) -> Any:
    body = {"action_id": action, "params": params, **said}
    headers = {"x-nwp-ident": ident} if ident else {}
    return (await client.post("/nwp/site/invoke", json=body, headers=headers)).json()


async def certificate(parts: Parts, budget: int | None) -> str:
    issued = await SiteAuthority(parts.config, parts.store).issue(
        f"agent-{budget}", scopes=["read:*", "create:*"], danger=Danger.REVERSIBLE, budget=budget
    )
    return json.dumps(dict(issued.certificate))


@requirement("nwp:budget:actions", "nwp:budget:not-silent")
async def test_the_budget_of_a_certificate_binds_actions(parts: Parts, client: httpx.AsyncClient) -> None:
    whole = await invoked(client, "things.get", {"id": "t01"}, "")
    for budget in (100, 60, 45):
        bound = await invoked(client, "things.get", {"id": "t01"}, await certificate(parts, budget))

        assert bound["token_est"] == estimate(bound["data"]) <= budget < whole["token_est"]
        assert bound["trimmed"]["reason"] == "token_budget"
        assert bound["trimmed"]["summarized_fields"] or bound["trimmed"]["dropped_fields"]
    large = await invoked(client, "things.get", {"id": "t01"}, await certificate(parts, 10_000))

    assert "trimmed" not in large
    assert (large["data"], large["token_est"]) == (whole["data"], whole["token_est"])


@requirement("nwp:budget:actions", "nwp:errors:budget-exceeded")
async def test_a_result_that_cannot_be_trimmed_to_the_certificate_is_refused_and_says_that_it_was_done(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    things, server = {"t": {"name": "A thing"}}, {"url": "http://inn.example"}
    async with shop(tmp_path_factory.mktemp("done"), things, server=server) as parts, asking(parts) as client:
        params = {"id": "long", "input": {"name": "A name that takes more tokens than the certificate allows"}}
        refused = await invoked(client, "things.create", params, await certificate(parts, 3))
        created = await parts.store.items.get("things", "long")

    assert (refused["error"], refused["details"]["budget"]) == ("NWP-BUDGET-EXCEEDED", 3)
    assert refused["message"].startswith("things.create succeeded")
    assert created


@requirement("nwp:budget:actions")
async def test_the_budget_of_a_certificate_binds_what_is_told_of_tasks(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    things, server = {"t": {"name": "A thing", "description": "Of use"}}, {"url": "http://inn.example"}
    async with shop(tmp_path_factory.mktemp("tasks"), things, server=server) as parts, asking(parts) as client:
        ident = await certificate(parts, 70)
        params = {"id": "new", "input": {"name": "A thing", "description": "Word " * 200}}
        key = {"async": True, "idempotency_key": "k-1"}
        begun = await invoked(client, "things.create", params, ident, **key)
        task = begun["task_id"]
        caller = await parts.site.access.authenticate(RequestCredentials(certificate=ident.encode()))
        await parts.site.tasks.wait(task, caller, 10)
        told = await invoked(client, "system.task.status", {"task_id": task}, ident)
        polled = await client.get(f"/nwp/site/actions/status/{task}", headers={"x-nwp-ident": ident})
        again = await invoked(client, "things.create", params, ident, **key)

    assert told["token_est"] <= 70
    assert "result" in told["trimmed"]["dropped_fields"]
    assert (told["data"][0]["task_id"], told["data"][0]["status"]) == (task, "completed")
    assert estimate([{name: value for name, value in polled.json().items() if name != "trimmed"}]) <= 70
    assert "result" in polled.json()["trimmed"]["dropped_fields"]
    assert "result" not in again["data"][0]


@requirement("nwp:budget:streams")
async def test_a_budget_holds_for_each_part_of_a_stream(client: httpx.AsyncClient) -> None:
    answer = await client.post("/nwp/things/stream", json={"limit": 5, "token_budget": 60})
    parts = [json.loads(line) for line in answer.text.splitlines()]

    assert ids(parts) == IDS
    assert all(part["token_est"] == estimate(part["data"]) <= 60 for part in parts)
    assert {tuple(part["trimmed"]["dropped_fields"]) for part in parts} == {("notes", "tags", "n", "description")}
    assert [part["is_last"] for part in parts] == [False] * (len(parts) - 1) + [True]


@requirement("nwp:frames:stream", "nwp:errors:budget-exceeded")
async def test_a_stream_that_cannot_go_on_says_why_with_its_last_part(tmp_path_factory: pytest.TempPathFactory) -> None:
    things = {"a": {"name": "Short"}, "b": {"name": "Long " * 100}}
    async with shop(tmp_path_factory.mktemp("long"), things) as parts, asking(parts) as client:
        answer = await client.post("/nwp/things/stream", json={"limit": 1, "token_budget": 20})

    first, last = (json.loads(line) for line in answer.text.splitlines())
    assert (first["data"], first["is_last"]) == ([{"id": "a", "name": "Short"}], False)
    assert last == {
        "frame": "0x03",
        "stream_id": first["stream_id"],
        "seq": 1,
        "is_last": True,
        "data": [],
        "error_code": "NWP-BUDGET-EXCEEDED",
    }


@pytest.mark.parametrize("tier", list(EncodingTier))
async def test_an_answer_larger_than_a_frame_goes_out_in_pages(
    tmp_path_factory: pytest.TempPathFactory, tier: EncodingTier
) -> None:
    large = {f"l{n:02}": {"title": f"{n:02}" * 1500, "n": n} for n in range(60)}
    huge = {"z": {"title": "z" * 100_000, "n": 60}}
    async with shop(tmp_path_factory.mktemp("large"), {**large, **huge}) as parts, asking(parts) as client:

        async def framed(**said: Any) -> tuple[bytes, CapsFrame]:
            frame = msgspec.convert(said, QueryFrame)
            answer = (await client.post("/nwp/things/query", content=encode(frame, tier))).content
            shown = decode(answer)
            assert isinstance(shown, CapsFrame)
            return answer, shown

        for order in (None, [{"field": "title", "dir": "ASC"}]):
            seen: list[str] = []
            cursor: str | None = None
            while cursor or not seen:
                raw, page = await framed(limit=1000, order=order, cursor=cursor)
                assert page.trimmed is None
                header = read_header(raw)
                assert header is not None
                assert header.is_extended == (page.data[0]["id"] == "z")
                assert header.size + header.length == len(raw)
                seen += [each["id"] for each in page.data]
                cursor = page.next_cursor
            assert seen == [*large, "z"]
        bare = await capsule(client, {"limit": 1000}, tokenizer="cl100k_base")

    assert (bare["count"], "next_cursor" in bare) == (61, False)
