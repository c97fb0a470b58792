"""How the tests of this folder talk to a site."""

import json
from datetime import UTC, datetime
from typing import Any

import httpx

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def message(role: str, content: str | None) -> dict[str, Any]:
    return {"role": role, "content": content}


QUIET: dict[str, Any] = {"messages": [message("user", "a quiet room")]}


async def chat(client: httpx.AsyncClient, headers: dict[str, str] | None = None, **body: Any) -> dict[str, Any]:
    answer = await client.post("/chat", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def said(client: httpx.AsyncClient, text: str, **more: Any) -> dict[str, Any]:
    return await chat(client, messages=[message("user", text)], **more)


def lines_of(text: str) -> list[dict[str, Any]]:
    """The objects of a stream, each of which ends with a newline."""
    assert text.endswith("\n")
    return [json.loads(line) for line in text[:-1].split("\n")]
