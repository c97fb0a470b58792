"""Language models against a real HTTP server on this machine, which answers what each test scripts."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

import pytest
from tests.models.endpoint import Answer, Api, Hang, ModelEndpoint, Raw, Reply, Status
from tests.ports import free_port

from portico.errors import ConfigError, TimedOut, Unavailable
from portico.models import LanguageModel, Prompt, Usage, estimate_tokens, open_language_model

KEY = "k-secret-1"
PROMPT = Prompt(system="Be brief.", user="What is a portico?")
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}
SHAPED = Prompt(system="Be brief.", user="What is a portico?", schema=SCHEMA, max_tokens=50)
APIS: tuple[Api, ...] = ("openai", "anthropic")

Opening = Callable[..., LanguageModel]


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def endpoint() -> Iterator[ModelEndpoint]:
    with ModelEndpoint() as endpoint:
        yield endpoint


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def opening(endpoint: ModelEndpoint, clock: Clock) -> AsyncIterator[Opening]:
    opened: list[LanguageModel] = []

    def open_model(api: Api = "openai", options: str = "", url: str | None = None) -> LanguageModel:
        model = open_language_model(
            url or endpoint.url(api, options), secret={"THE_KEY": f"{KEY}\n"}.__getitem__, clock=clock
        )
        assert model is not None
        opened.append(model)
        return model

    yield open_model
    for model in opened:
        await model.close()


async def replies(model: LanguageModel, prompt: Prompt = PROMPT) -> list[str | Usage]:
    async with asyncio.timeout(30):
        return [piece async for piece in model.stream(prompt)]


async def fails(model: LanguageModel, prompt: Prompt = PROMPT) -> Unavailable:
    with pytest.raises(Unavailable) as failure:
        await replies(model, prompt)
    shown = f"{failure.value} {failure.value.details}"
    assert not [each for each in (KEY, "words of the service", prompt.system, prompt.user) if each in shown]
    return failure.value


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_reply_comes_in_pieces_and_ends_with_what_it_took(
    endpoint: ModelEndpoint, opening: Opening, api: Api, streamed: bool
) -> None:
    endpoint.script = [Reply(["Ein Säulen", "gang\u2028", " 🏛"], usage=(2000, 500), streamed=streamed)]
    model = opening(api, "input_price=3&output_price=15")

    *pieces, usage = await replies(model)

    assert pieces == (["Ein Säulen", "gang\u2028", " 🏛"] if streamed else ["Ein Säulengang\u2028 🏛"])
    assert usage == Usage(2000, 500, price=0.0135)
    assert model.name == "org/model"


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_service_that_does_not_count_is_estimated(
    endpoint: ModelEndpoint, opening: Opening, api: Api, streamed: bool
) -> None:
    endpoint.script = [Reply(usage=None, streamed=streamed)]

    assert (await replies(opening(api)))[-1] == Usage(
        estimate_tokens(PROMPT.system + PROMPT.user), estimate_tokens("Hello world")
    )


async def test_a_chat_request_is_the_one_the_api_asks_for(endpoint: ModelEndpoint, opening: Opening) -> None:
    await replies(opening("openai", "key_env=THE_KEY&temperature=0.5"))

    (request,) = endpoint.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body == {
        "model": "org/model",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is a portico?"}],
        "max_tokens": 800,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
    }


async def test_a_messages_request_is_the_one_the_api_asks_for(endpoint: ModelEndpoint, opening: Opening) -> None:
    await replies(opening("anthropic", "key_env=THE_KEY"), SHAPED)

    (request,) = endpoint.requests
    assert request.path == "/v1/messages"
    assert (request.headers["x-api-key"], request.headers["anthropic-version"]) == (KEY, "2023-06-01")
    assert request.body == {
        "model": "org/model",
        "system": "Be brief.",
        "messages": [{"role": "user", "content": "What is a portico?"}],
        "max_tokens": 50,
        "stream": True,
        "temperature": 0.0,
        "tools": [{"name": "reply", "description": "Gives the reply.", "input_schema": SCHEMA}],
        "tool_choice": {"type": "tool", "name": "reply", "disable_parallel_tool_use": True},
    }


@pytest.mark.parametrize("api", APIS)
async def test_what_is_not_wanted_is_not_sent(endpoint: ModelEndpoint, opening: Opening, api: Api) -> None:
    await replies(opening(api, "temperature=null"), Prompt(system="", user="half \ud83d"))

    (request,) = endpoint.requests
    assert not {"temperature", "system", "tools", "response_format"} & set(request.body)
    assert request.body["messages"] == [{"role": "user", "content": "half ?"}]
    assert not {"authorization", "x-api-key"} & set(request.headers)


async def test_the_field_that_bounds_a_chat_reply_can_be_chosen(endpoint: ModelEndpoint, opening: Opening) -> None:
    await replies(opening("openai", "limit=max_completion_tokens"))

    assert endpoint.requests[0].body["max_completion_tokens"] == 800
    assert "max_tokens" not in endpoint.requests[0].body


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_reply_of_a_shape_is_its_json(
    endpoint: ModelEndpoint, opening: Opening, api: Api, streamed: bool
) -> None:
    endpoint.script = [Reply(['{"answer": ', '"a porch"}'], streamed=streamed)]

    *pieces, usage = await replies(opening(api), SHAPED)

    assert json.loads("".join(map(str, pieces))) == {"answer": "a porch"}
    assert usage == Usage(7, 3)


@pytest.mark.parametrize(
    ("structured", "response_format", "in_words"),
    [
        (
            "schema",
            {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": SCHEMA}},
            False,
        ),
        ("object", {"type": "json_object"}, True),
        ("none", None, True),
    ],
)
async def test_json_is_asked_for_as_the_service_can_take_it(
    endpoint: ModelEndpoint, opening: Opening, structured: str, response_format: Any, in_words: bool
) -> None:
    await replies(opening("openai", f"structured={structured}"), SHAPED)

    (request,) = endpoint.requests
    assert request.body.get("response_format") == response_format
    assert request.system.startswith("Be brief.")
    assert ('"answer"' in request.system) is in_words


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize("api", APIS)
async def test_a_server_that_refuses_a_shape_is_asked_in_words_from_then_on(
    endpoint: ModelEndpoint, opening: Opening, api: Api, status: int
) -> None:
    endpoint.reply = lambda request: Status(status) if request.wants_schema else Reply(["{}"])
    model = opening(api)

    assert [await replies(model, SHAPED) for _ in range(2)] == [["{}", Usage(7, 3)]] * 2

    assert [request.wants_schema for request in endpoint.requests] == [True, False, False]
    assert '"answer"' in endpoint.requests[-1].system


async def test_a_prompt_that_is_refused_either_way_does_not_change_how_the_next_is_asked(
    endpoint: ModelEndpoint, opening: Opening
) -> None:
    endpoint.script = [Status(400), Status(400)]
    model = opening()

    assert (await fails(model, SHAPED)).details == {"status": 400}
    await replies(model, SHAPED)

    assert [request.wants_schema for request in endpoint.requests] == [True, False, True]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    "setback",
    [Status(408), Status(429), Status(500), Status(503), Status(529), Reply([], then="cut"), Reply([], then="stop")],
    ids=str,
)
async def test_a_failure_that_may_pass_is_tried_again(
    endpoint: ModelEndpoint, opening: Opening, api: Api, setback: Answer
) -> None:
    endpoint.script = [setback]

    assert await replies(opening(api)) == ["Hello", " world", Usage(7, 3)]
    assert len(endpoint.requests) == 2


async def test_patience_ends(endpoint: ModelEndpoint, opening: Opening) -> None:
    endpoint.script = [Status(503, {"Retry-After": "0"})] * 3

    failure = await fails(opening("openai", "retries=2"))

    assert failure.message == "The language model's service returned status 503"
    assert failure.details == {"tries": 3}


async def test_a_wait_that_the_service_asks_for_is_not_begun_when_time_would_run_out(
    endpoint: ModelEndpoint, opening: Opening
) -> None:
    endpoint.script = [Status(429, {"Retry-After": "20"})]

    failure = await fails(opening("openai", "retries=5&timeout=15"))

    assert (failure.message, len(endpoint.requests)) == ("The language model's service returned status 429", 1)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("then", ["cut", "stop"])
async def test_a_reply_that_was_begun_is_never_begun_again(
    endpoint: ModelEndpoint, opening: Opening, api: Api, then: Any
) -> None:
    endpoint.script = [Reply(["Hello"], then=then)]

    async with aclosing(opening(api).stream(PROMPT)) as pieces:
        assert await anext(pieces) == "Hello"
        with pytest.raises(Unavailable, match="broke off its response"):
            await anext(pieces)

    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    ("status", "hint"),
    [(302, None), (400, "too long"), (401, "key_env"), (403, "key_env"), (404, "the path and the model")],
)
async def test_a_refusal_is_not_tried_again(
    endpoint: ModelEndpoint, opening: Opening, status: int, hint: str | None
) -> None:
    endpoint.script = [Status(status, {"Location": "/elsewhere"})]

    failure = await fails(opening("openai", "key_env=THE_KEY"))

    assert failure.message == f"The language model's service refused the request with status {status}"
    assert (failure.hint is None) if hint is None else (hint in (failure.hint or ""))
    assert (failure.details, len(endpoint.requests)) == ({"status": status}, 1)


UNREADABLE = "sent a response that its API does not describe"
FAILURE = "reported an error"


@pytest.mark.parametrize(
    ("api", "answer", "message"),
    [
        ("openai", Raw(b"<html>words of the service</html>", "text/html"), UNREADABLE),
        ("openai", Raw(b"data: words of the service\n\n"), UNREADABLE),
        ("openai", Raw(b'data: {"choices": [{"delta": {"content": 1}}]}\n\n'), UNREADABLE),
        ("openai", Raw(b'data: {"choices": [{"delta": {"content": "\xff"}}]}\n\n'), UNREADABLE),
        ("openai", Raw(b'data: {"choices": [], "usage": {"prompt_tokens": -1}}\n\n'), UNREADABLE),
        ("openai", Raw(b"data: {}\n\n"), UNREADABLE),
        ("openai", Raw(b'data: {"x": ' + b"[" * 50_000 + b"\n\n"), UNREADABLE),
        ("openai", Raw(b'data: {"error": {"message": "words of the service"}}\n\n'), FAILURE),
        ("openai", Raw(b'{"choices": []}', "application/json"), UNREADABLE),
        ("openai", Raw(b'{"choices": [{"message": {}}]}', "application/json"), UNREADABLE),
        ("openai", Raw(b'{"error": "words of the service"}', "application/json"), FAILURE),
        ("openai", Raw(b"data: [DONE]\n\n"), "sent an empty reply"),
        ("openai", Raw(b"data: [DONE]\n\n", headers={"Content-Encoding": "gzip"}), "compressed its response"),
        ("openai", Raw(b"data: " + b"x" * 2_000_000 + b"\n\n"), r"sent more than \d+ bytes"),
        ("openai", Raw(b"x" * 2_000_000), r"sent more than \d+ bytes"),
        ("openai", Raw(b"x" * 2_000_000, "application/json"), r"sent more than \d+ bytes"),
        ("anthropic", Raw(b"data: words of the service\n\n"), UNREADABLE),
        ("anthropic", Raw(b'data: {"type": "content_block_delta"}\n\n'), UNREADABLE),
        ("anthropic", Raw(b'data: {"type": "message_start"}\n\n'), UNREADABLE),
        ("anthropic", Raw(b'data: {"type": "error", "error": {"message": "words of the service"}}\n\n'), FAILURE),
        ("anthropic", Raw(b'data: {"type": "message_stop"}\n\n'), "sent an empty reply"),
        ("anthropic", Raw(b'{"type": "error", "error": {}}', "application/json"), FAILURE),
        ("anthropic", Raw(b'{"type": "message"}', "application/json"), UNREADABLE),
    ],
    ids=lambda value: str(value)[:70],
)
async def test_an_answer_that_is_no_reply_is_refused_in_our_own_words(
    endpoint: ModelEndpoint, opening: Opening, api: Api, answer: Answer, message: str
) -> None:
    endpoint.script = [answer]

    assert re.search(message, (await fails(opening(api))).message)
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_reply_ends_at_max_chars(endpoint: ModelEndpoint, opening: Opening, streamed: bool) -> None:
    endpoint.script = [Reply(["12345", "67890"], streamed=streamed), Reply(["12345", "678901"], streamed=streamed)]
    model = opening("openai", "max_chars=10")

    assert (await replies(model))[-1] == Usage(7, 3)
    failure = await fails(model)

    assert (failure.message, failure.details) == (
        "The language model sent more than 10 characters (max_chars)",
        {"limit": 10},
    )


@pytest.mark.parametrize("options", ["timeout=0.5", "first=0.5&timeout=600"])
@pytest.mark.parametrize("answer", [Hang(), Reply([], then="drip")], ids=str)
async def test_a_service_that_says_nothing_is_left(
    endpoint: ModelEndpoint, opening: Opening, answer: Answer, options: str
) -> None:
    endpoint.script = [answer]

    failure = await fails(opening("openai", options))

    assert (type(failure), failure.message) == (TimedOut, "The language model did not answer in time")
    assert await asyncio.to_thread(endpoint.left.wait, 20)
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize("then", ["hang", "drip"])
async def test_a_reply_that_never_ends_is_left_after_the_timeout(
    endpoint: ModelEndpoint, opening: Opening, then: Any
) -> None:
    endpoint.script = [Reply(["Hello"], then=then)]

    failure = await fails(opening("openai", "timeout=0.3"))

    assert type(failure) is TimedOut
    assert await asyncio.to_thread(endpoint.left.wait, 20)


async def test_a_reply_may_go_on_after_the_time_for_its_first_piece(endpoint: ModelEndpoint, opening: Opening) -> None:
    endpoint.script = [Reply(["Hello"], drips=170)]

    assert await replies(opening("openai", "first=1.5")) == ["Hello", Usage(7, 3)]


@pytest.mark.parametrize("then", ["hang", "drip"])
async def test_a_client_that_leaves_ends_the_exchange_and_frees_its_place(
    endpoint: ModelEndpoint, opening: Opening, then: Any
) -> None:
    endpoint.script = [Reply(["Hello"], then=then)]
    model = opening("openai", "concurrency=1")

    async with aclosing(model.stream(PROMPT)) as pieces:
        assert await anext(pieces) == "Hello"

    assert await asyncio.to_thread(endpoint.left.wait, 20)
    assert await replies(model) == ["Hello", " world", Usage(7, 3)]


@pytest.mark.parametrize("script", [[Status(401)], [Status(400), Reply()]], ids=["refused", "asked another way"])
async def test_an_answer_that_is_not_wanted_is_closed(
    endpoint: ModelEndpoint, opening: Opening, script: list[Answer]
) -> None:
    endpoint.script = [*script]
    model = opening("openai", "retries=0")

    with suppress(Unavailable):
        await replies(model, SHAPED)

    assert await asyncio.to_thread(endpoint.left.wait, 20)
    assert endpoint.script == []


async def test_a_cancelled_client_ends_the_exchange_and_frees_its_place(
    endpoint: ModelEndpoint, opening: Opening
) -> None:
    endpoint.script = [Hang()]
    model = opening("openai", "concurrency=1")
    waiting = asyncio.create_task(replies(model))
    assert await asyncio.to_thread(endpoint.asked.acquire, timeout=60)

    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await asyncio.to_thread(endpoint.left.wait, 20)
    assert await replies(model) == ["Hello", " world", Usage(7, 3)]


async def test_no_more_requests_run_at_once_than_there_are_places(endpoint: ModelEndpoint, opening: Opening) -> None:
    endpoint.script = [Reply(["Hello"], then="hang")]
    model = opening("openai", "concurrency=1&timeout=2")

    async with aclosing(model.stream(PROMPT)) as pieces:
        await anext(pieces)
        failure = await fails(model)

    assert (type(failure), failure.message) == (TimedOut, "The language model is busy with other requests")
    assert len(endpoint.requests) == 1


async def test_a_connection_is_used_again(endpoint: ModelEndpoint, opening: Opening) -> None:
    model = opening()

    for _ in range(3):
        await replies(model)

    assert (len(endpoint.requests), endpoint.connections) == (3, 1)


@pytest.mark.parametrize("api", APIS)
async def test_a_connection_that_stays_after_the_end_does_not_hold_up_the_reply(
    endpoint: ModelEndpoint, opening: Opening, api: Api
) -> None:
    endpoint.script = [Reply(["Hello"], then="linger")]

    assert await replies(opening(api, "timeout=30")) == ["Hello", Usage(7, 3)]


async def test_what_comes_after_the_end_is_passed_over(endpoint: ModelEndpoint, opening: Opening) -> None:
    hello = b'data:{"choices": [{"delta": {"content": "Hello"}}], "usage": {"completion_tokens": 1}}\n\n'
    endpoint.script = [Raw(hello + b"data: [DONE]\n\ndata: more\n\n")]

    assert await replies(opening()) == ["Hello", Usage(estimate_tokens(PROMPT.system + PROMPT.user), 1)]


async def test_a_proxy_in_the_environment_is_not_used(
    endpoint: ModelEndpoint, monkeypatch: pytest.MonkeyPatch, opening: Opening
) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")

    assert (await replies(opening()))[-1] == Usage(7, 3)
    assert len(endpoint.requests) == 1


async def fail_three_times(endpoint: ModelEndpoint, model: LanguageModel) -> None:
    endpoint.script = [Status(500)] * 3
    for _ in range(3):
        await fails(model)


async def test_a_model_that_keeps_failing_is_left_alone_for_a_while(
    endpoint: ModelEndpoint, opening: Opening, clock: Clock
) -> None:
    model = opening("openai", "retries=0")
    await fail_three_times(endpoint, model)

    clock.now += 14.5
    failure = await fails(model)

    assert failure.message == "The language model is paused: it failed 3 times in a row"
    assert (failure.hint, failure.details) == ("Try again in 1 seconds.", {"retry_after": 0.5})
    assert len(endpoint.requests) == 3


async def test_after_the_pause_one_try_is_let_through(endpoint: ModelEndpoint, opening: Opening, clock: Clock) -> None:
    model = opening("openai", "retries=0&concurrency=1")
    await fail_three_times(endpoint, model)
    clock.now += 15
    endpoint.script = [Reply(["Hello"], then="hang")]

    async with aclosing(model.stream(PROMPT)) as pieces:
        assert await anext(pieces) == "Hello"
        assert "is paused" in (await fails(model)).message

    assert len(endpoint.requests) == 4


async def test_those_who_wait_for_a_place_are_told_when_the_model_is_left_alone(
    endpoint: ModelEndpoint, opening: Opening
) -> None:
    endpoint.script = [Status(500)] * 4
    model = opening("openai", "retries=0&concurrency=1")

    failures = await asyncio.gather(*(fails(model) for _ in range(4)))

    assert ["is paused" in failure.message for failure in failures] == [False, False, False, True]
    assert len(endpoint.requests) == 3


async def test_a_try_that_fails_begins_another_pause_and_one_that_succeeds_ends_them(
    endpoint: ModelEndpoint, opening: Opening, clock: Clock
) -> None:
    model = opening("openai", "retries=0")
    await fail_three_times(endpoint, model)
    endpoint.script = [Status(500)]

    clock.now += 15
    assert "returned status 500" in (await fails(model)).message
    assert "is paused: it failed 4 times" in (await fails(model)).message
    clock.now += 15
    for _ in range(2):
        assert (await replies(model))[-1] == Usage(7, 3)


async def test_prompts_that_are_refused_do_not_count_against_the_model(
    endpoint: ModelEndpoint, opening: Opening
) -> None:
    model = opening("openai", "retries=0&max_chars=20")
    endpoint.script = [Status(500), Status(500), Status(413), Status(500), Reply(["x" * 21]), Reply([]), Status(400)]
    for _ in range(7):
        await fails(model)

    assert (await replies(model))[-1] == Usage(7, 3)


async def test_a_service_that_is_not_there_is_unavailable(opening: Opening) -> None:
    model = opening(url=f"openai+http://127.0.0.1:{free_port()}/v1/model?retries=0")

    assert (await fails(model)).message == "The language model's service cannot be reached"


def test_none_is_no_language_model() -> None:
    assert open_language_model("none:", secret=None) is None


def no_secret(name: str) -> str:
    raise KeyError(name)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("secret", [None, no_secret, lambda name: "", lambda name: "kéy", lambda name: "a\nb"])
def test_a_missing_or_unusable_key_is_refused_before_any_request(api: Api, secret: Callable[[str], str] | None) -> None:
    with pytest.raises(ConfigError, match="THE_KEY holds no usable key") as refusal:
        open_language_model(f"{api}://api.example/v1/model?key_env=THE_KEY", secret=secret)

    assert refusal.value.details == {"variable": "THE_KEY"}


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("gemini://host/model", "No language model has the scheme 'gemini'. Known schemes: openai:, openai\\+http:"),
        ("http://[", "model's URL is malformed"),
        ("openai://api.example", "must name a host and a model"),
        ("anthropic:///v1/model", "must name a host and a model.* Write anthropic://host/v1/model"),
        ("openai://user:key@api.example/v1/model", "must not hold a user or a key"),
        ("openai://api.example:port/v1/model", "model's URL is malformed"),
        ("openai://api.example/v1/model?api_key=k", "unknown field `api_key`.* Known options: key_env, timeout"),
        ("openai://api.example/v1/model?timeout=0", "timeout"),
        ("openai://api.example/v1/model?structured=xml", "structured"),
        ("anthropic://api.example/v1/model?structured=object", "structured"),
        ("anthropic://api.example/v1/model?limit=max_tokens", "unknown field `limit`"),
        ("openai://api.example/v1/model?retries=1&retries=2", "gives retries more than once"),
    ],
)
def test_a_url_that_makes_no_sense_is_refused_with_a_reason(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_language_model(url, secret=None)
