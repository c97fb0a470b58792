"""`/v1/responses`: an answer as one object, or as the events of a stream. Pure; sends nothing."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from secrets import token_hex
from typing import Any, TypeAlias

from portico.ask.events import Event
from portico.errors import SiteError
from portico.protocols.http import sse
from portico.protocols.openai.answers import AnswerText, UrlCitation
from portico.protocols.openai.errors import error_body
from portico.protocols.openai.requests import ResponseRequest

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ResponseBuilder:
    """One response on its way. `close` stores what the next request of the conversation needs."""

    answer: AnswerText
    request: ResponseRequest
    close: Callable[[str, AnswerText], Awaitable[None]]
    id: str = field(default_factory=lambda: f"resp_{token_hex(24)}")
    item_id: str = field(default_factory=lambda: f"msg_{token_hex(24)}")
    created: int = field(default_factory=lambda: int(time.time()))
    _numbers: Iterator[int] = field(default_factory=count)

    async def collect(self, events: AsyncIterator[Event]) -> Json:
        async for event in events:
            self.answer.add(event)
        self.answer.finish()
        await self.close(self.id, self.answer)
        return self._response("completed")

    async def frames(self, events: AsyncIterator[Event]) -> AsyncGenerator[bytes]:
        place = {"item_id": self.item_id, "output_index": 0, "content_index": 0}
        item = {"output_index": 0, "item": self._message("in_progress", [])}
        try:
            yield self._frame("response.created", response=self._response("in_progress"))
            yield self._frame("response.in_progress", response=self._response("in_progress"))
            yield self._frame("response.output_item.added", **item)
            yield self._frame("response.content_part.added", **place, part=_part("", []))
            async for event in events:
                if text := self.answer.add(event):
                    yield self._frame("response.output_text.delta", **place, delta=text, logprobs=[])
            if text := self.answer.finish():
                yield self._frame("response.output_text.delta", **place, delta=text, logprobs=[])
            annotations = self._annotations()
            for index, annotation in enumerate(annotations):
                members = {**place, "annotation_index": index, "annotation": annotation}
                yield self._frame("response.output_text.annotation.added", **members)
            await self.close(self.id, self.answer)
            yield self._frame("response.output_text.done", **place, text=self.answer.text, logprobs=[])
            part = _part(self.answer.text, annotations)
            yield self._frame("response.content_part.done", **place, part=part)
            message = self._message("completed", [part])
            yield self._frame("response.output_item.done", output_index=0, item=message)
            yield self._frame("response.completed", response=self._response("completed"))
        except SiteError as error:
            body = error_body(error)
            failure = {"code": body["code"] or body["type"], "message": body["message"]}
            yield self._frame("response.failed", response={**self._response("failed"), "error": failure})

    def _frame(self, kind: str, **members: Any) -> bytes:
        return sse({"type": kind, "sequence_number": next(self._numbers), **members}, kind)

    def _response(self, status: str) -> Json:
        is_complete = status == "completed"
        output = [self._message(status, [_part(self.answer.text, self._annotations())])] if is_complete else []
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "completed_at": int(time.time()) if is_complete else None,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": self.request.instructions,
            "max_output_tokens": None,
            "metadata": self.request.metadata or {},
            "model": self.request.model,
            "output": output,
            "parallel_tool_calls": False,
            "previous_response_id": self.request.previous_response_id,
            "store": self.request.store is not False,
            "temperature": None,
            "text": {"format": {"type": "text"}},
            "tool_choice": "none",
            "tools": [],
            "top_p": None,
            "truncation": "disabled",
            "usage": self._usage() if is_complete else None,
            "user": self.request.user,
            **({"portico": self.answer.remarks()} if is_complete else {}),
        }

    def _message(self, status: str, content: list[Json]) -> Json:
        return {"id": self.item_id, "type": "message", "status": status, "role": "assistant", "content": content}

    def _annotations(self) -> list[Json]:
        return [_annotation(citation) for citation in self.answer.citations]

    def _usage(self) -> Json:
        prompt, completion = self.answer.usage
        return {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": completion,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt + completion,
        }


def _part(text: str, annotations: list[Json]) -> Json:
    return {"type": "output_text", "text": text, "annotations": annotations, "logprobs": []}


def _annotation(citation: UrlCitation) -> Json:
    return {
        "type": "url_citation",
        "start_index": citation.start,
        "end_index": citation.end,
        "url": citation.url,
        "title": citation.title,
    }
