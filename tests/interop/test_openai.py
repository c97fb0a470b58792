"""PyPI: openai, and npm: openai, as published, against a running server."""

from typing import Any

import httpx
import pytest
from openai import APIStatusError, AsyncOpenAI, NotFoundError, OpenAI
from tests.interop.conftest import Drive

QUESTION = "Which soup has lemon and barley?"
SOUP = "Lemon Barley Soup"


@pytest.fixture
def openai_client(demo: str) -> OpenAI:
    return OpenAI(base_url=f"{demo}/v1", api_key="anonymous", max_retries=0)


@pytest.fixture
def expected_titles(demo: str) -> list[str]:
    """The names of the items that NLWeb finds for the question, in their order."""
    body = {"query": {"text": QUESTION}, "prefer": {"streaming": False}}
    return [item["name"] for item in httpx.post(f"{demo}/ask", json=body).json()["results"]]


def test_python_lists_models(openai_client: OpenAI) -> None:
    models = [model.id for model in openai_client.models.list()]

    assert models[0] == "portico"
    assert "portico/recipes" in models
    assert openai_client.models.retrieve("portico").owned_by == "Merrow Bay"


def test_python_completes_whole_and_streamed(openai_client: OpenAI, expected_titles: list[str]) -> None:
    messages: Any = [{"role": "user", "content": QUESTION}]
    completion = openai_client.chat.completions.create(model="portico", messages=messages)
    with openai_client.chat.completions.stream(model="portico", messages=messages) as stream:
        streamed = stream.get_final_completion()

    message = completion.choices[0].message
    assert [annotation.url_citation.title for annotation in message.annotations or ()] == expected_titles
    assert SOUP in (message.content or "")
    assert streamed.choices[0].message.content == message.content
    assert completion.usage is not None
    assert completion.usage.total_tokens > 0


def test_python_responds_whole_and_streamed(openai_client: OpenAI, expected_titles: list[str]) -> None:
    response = openai_client.responses.create(model="portico", input=QUESTION)
    with openai_client.responses.stream(model="portico", input=QUESTION) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()

    annotations: Any = response.output[0].content[0].annotations  # pyright: ignore
    assert [annotation.title for annotation in annotations] == expected_titles
    assert final.output_text == response.output_text
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"

    follow_up = openai_client.responses.create(model="portico", input="with chicken", previous_response_id=response.id)
    assert follow_up.output_text.index("Lemon and Barley Soup with Chicken") >= 0


async def test_python_streams_asynchronously(demo: str) -> None:
    async with AsyncOpenAI(base_url=f"{demo}/v1", api_key="anonymous") as client:
        messages: Any = [{"role": "user", "content": QUESTION}]
        chunks = await client.chat.completions.create(model="portico", messages=messages, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

    assert SOUP in text


def test_python_raises_typed_errors(openai_client: OpenAI, demo: str) -> None:
    messages: Any = [{"role": "user", "content": QUESTION}]
    with pytest.raises(NotFoundError) as unknown:
        openai_client.chat.completions.create(model="nothing", messages=messages)
    with pytest.raises(APIStatusError) as wrong, OpenAI(base_url=f"{demo}/v1", api_key="pk_wrong") as client:
        client.chat.completions.create(model="portico", messages=messages)

    assert unknown.value.code == "model_not_found"
    assert (wrong.value.status_code, wrong.value.code) == (401, "invalid_api_key")


def test_node_completes_and_responds_whole_and_streamed(demo: str, drive: Drive, expected_titles: list[str]) -> None:
    results = drive("openai_client.mjs", f"{demo}/v1", question=QUESTION, key="anonymous")

    message = results["completion"]["choices"][0]["message"]
    assert [annotation["url_citation"]["title"] for annotation in message["annotations"]] == expected_titles
    assert "".join(results["pieces"]) == message["content"] == results["streamed"]["choices"][0]["message"]["content"]
    assert results["outputText"] == message["content"]
    assert results["events"][-1]["type"] == "response.completed"
    assert results["events"][-1]["response"]["output"]
    assert results["models"][0] == "portico"
    assert results["thrown"] == {"name": "NotFoundError", "status": 404, "code": "model_not_found"}
