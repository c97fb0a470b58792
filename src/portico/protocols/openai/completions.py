"""`/v1/chat/completions`: an answer as one object, or as chunks of a stream. Pure; sends nothing."""

import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

from portico.ask.events import Event
from portico.errors import SiteError
from portico.protocols.http import sse
from portico.protocols.openai.answers import AnswerText, UrlCitation
from portico.protocols.openai.errors import error_body

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Completion:
    """One completion on its way."""

    answer: AnswerText
    model: str
    has_usage: bool = True  # of a stream: whether the client wants a last chunk with the usage
    id: str = field(default_factory=lambda: f"chatcmpl-{token_hex(16)}")
    created: int = field(default_factory=lambda: int(time.time()))

    async def collect(self, events: AsyncIterator[Event]) -> dict[str, Any]:
        async for event in events:
            self.answer.add(event)
        self.answer.finish()
        annotations = [_annotation(citation) for citation in self.answer.citations]
        message = {"role": "assistant", "content": self.answer.text, "refusal": None, "annotations": annotations}
        return {
            **self._head("chat.completion"),
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
            "usage": self._usage(),
            "portico": self.answer.remarks(),
        }

    async def frames(self, events: AsyncIterator[Event]) -> AsyncGenerator[bytes]:
        """Yield the frames of a stream. The citations come in the last chunk with a delta, when all are known."""
        try:
            yield self._chunk({"role": "assistant", "content": ""})
            async for event in events:
                if text := self.answer.add(event):
                    yield self._chunk({"content": text})
            if text := self.answer.finish():
                yield self._chunk({"content": text})
            if annotations := [_annotation(citation) for citation in self.answer.citations]:
                yield self._chunk({"annotations": annotations})
            yield self._chunk({}, "stop", portico=self.answer.remarks())
            if self.has_usage:
                yield sse({**self._head("chat.completion.chunk"), "choices": [], "usage": self._usage()})
            yield DONE
        except SiteError as error:
            yield sse({"error": error_body(error)})

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None, **members: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return sse({**self._head("chat.completion.chunk"), "choices": [choice], "usage": None, **members})

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _usage(self) -> dict[str, int]:
        prompt, completion = self.answer.usage
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _annotation(citation: UrlCitation) -> dict[str, Any]:
    members = {
        "start_index": citation.start,
        "end_index": citation.end,
        "url": citation.url,
        "title": citation.title,
    }
    return {"type": "url_citation", "url_citation": members}
