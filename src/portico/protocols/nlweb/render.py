"""Renders events as an answer: frames of a stream as they come, or one object at the end. Sends nothing."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from portico.ask.events import (
    ClarificationEvent,
    EndEvent,
    ErrorEvent,
    Event,
    InterpretationEvent,
    ItemEvent,
    OperationEvent,
    TaskEvent,
    TextEvent,
)
from portico.ask.suggestions import MIN_ITEMS, followups
from portico.errors import SiteError
from portico.protocols.nlweb.compat_054 import KNOWN, fit_to_054
from portico.protocols.nlweb.dialects import FLAT, V54, V55, ClientInfo, Format, NlwebDialect, ResponseType
from portico.protocols.nlweb.errors import JsonAnswer, NoResults, code_of, error_body, failure_answer
from portico.protocols.problems import BROKEN, error_headers
from portico.protocols.rendering import (
    NOTHING,
    Json,
    RenderContext,
    as_list,
    clarification_text,
    render_completed_action,
    render_elicitation,
    render_item,
    render_promise,
)
from portico.requests import Mode, Task

MAX_IGNORED = 50  # attributes that are said to mean nothing
MAX_LABEL = 120  # characters of one
MAX_NAMES = 10  # that a list in a sentence names


@dataclass(frozen=True, slots=True)
class AnswerFrame:
    """One piece of a stream. Dialects without event names leave the name empty."""

    data: Json
    name: str = ""

    @property
    def message(self) -> Json:
        """The frame for transports without event names, such as WebSocket."""
        return {"event": self.name, "data": self.data} if self.name else self.data


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """How to render an answer, and the metadata that comes from its request."""

    client: ClientInfo
    context: RenderContext
    now: Callable[[], datetime]
    elapsed: Callable[[], int]  # milliseconds since the request came
    session_context: Callable[
        [ClarificationEvent | None], Json | None
    ]  # context, as things stand after an answer or a question back
    format: Format = "conversational_search"
    modes: frozenset[Mode] = frozenset({"list"})
    ignored: tuple[str, ...] = ()
    memory_text: str = ""
    dual_frames: bool = False  # results of a 0.55 stream are readable to clients of 0.54 too
    streams_text: bool = False  # a 0.55 stream tells the pieces of a summary before it has the whole


@dataclass(slots=True)
class AnswerAccumulator:
    """What the events have brought so far."""

    interpretation: InterpretationEvent | None = None
    items: list[tuple[int, Json]] = field(default_factory=list[tuple[int, Json]])  # by index in the answer
    actions: int = 0  # how many of the items are operations that were run; they stand before what was found
    pieces: list[str] = field(default_factory=list[str])
    cites: list[str] = field(default_factory=list[str])
    clarify: ClarificationEvent | None = None
    task: Task | None = None
    error: SiteError | None = None
    finished: EndEvent | None = None

    @property
    def kind(self) -> ResponseType:
        if self.error is not None:
            return "failure"
        if self.clarify is not None:
            return "elicitation"
        return "promise" if self.task is not None else "answer"

    @property
    def text(self) -> str:
        return "".join(self.pieces).strip()

    @property
    def is_empty(self) -> bool:
        return self.kind == "answer" and not self.items and not self.text

    @property
    def in_order(self) -> list[Json]:
        return [item for _, item in sorted(self.items, key=lambda entry: entry[0])]


class Renderer(ABC):
    """One answer in one dialect."""

    def __init__(self, options: RenderOptions) -> None:
        self.options = options
        self.state = AnswerAccumulator()
        self._ids: dict[str, str] = {}  # of what was found, by refs: under these it is shown

    def add(self, event: Event) -> list[AnswerFrame]:
        """Add an event and return the frames to stream for it."""
        item = self._accumulate(event)
        return list(self.frames(event, item))

    @abstractmethod
    def frames(self, event: Event, item: Json | None) -> Iterator[AnswerFrame]:
        """Yield the frames for an event, and for the item it brought."""

    @abstractmethod
    def finish(self) -> list[AnswerFrame]:
        """Return the frames that end the stream. Called once."""

    @abstractmethod
    def to_json(self) -> JsonAnswer:
        """Return the answer as one object, after all events."""

    def abort(self) -> list[AnswerFrame]:
        """Return the frames that end a stream after a defect."""
        self.state.error = BROKEN
        return self.finish()

    # What all dialects share

    def _accumulate(self, event: Event) -> Json | None:
        state = self.state
        match event:
            case InterpretationEvent():
                state.interpretation = event
            case ClarificationEvent():
                state.clarify = event
            case ItemEvent():
                return self._add_item(event)
            case TextEvent(text, cites):
                state.pieces.append(text)
                state.cites.extend(cite for cite in cites if cite not in state.cites)
            case OperationEvent():
                state.actions += 1
                return self._place_item(state.actions - 1, render_completed_action(event, self.options.context))
            case TaskEvent(task):
                state.task = task
            case ErrorEvent(error):
                state.error = error
            case EndEvent():
                state.finished = event
        return None

    def _add_item(self, result: ItemEvent) -> Json | None:
        if result.item.ref in self._ids:
            return None
        self._ids[result.item.ref] = result.item.id
        item = render_result(result, self.options.context, self.options.client.dialect)
        return self._place_item(self.state.actions + result.place, fit_to_054(item) if self._is_earlier else item)

    @property
    def _is_earlier(self) -> bool:
        return self.options.client.dialect is V54

    def _place_item(self, place: int, item: Json) -> Json:
        self.state.items.append((place + self._summary_places, item))
        return item

    @property
    def _summary_places(self) -> int:
        """Places reserved before the items: one if a summary will come, so that items keep their index."""
        has_summary = not self.options.modes.isdisjoint({"summarize", "generate"})
        return int(has_summary and self.options.format == "conversational_search")

    def _json_answer(self, body: Json) -> JsonAnswer:
        error = self.state.error
        if error is not None:
            return JsonAnswer(code_of(error, self.options.client.dialect).status, body, error_headers(error))
        return JsonAnswer(202 if self.state.kind == "promise" else 200, body)

    def _initial_meta(self) -> Json:
        """Return the part of `_meta` that is known before the answer."""
        options, state = self.options, self.state
        dialect = options.client.dialect
        meta: Json = {"response_type": dialect.response_type(state.kind)}
        if state.kind == "answer":
            meta["response_format"] = options.format
        meta["version"] = dialect.version
        if options.client.request_id != "":
            meta["request_id"] = options.client.request_id
        if options.format == "chatgpt_app" and options.context.widget:
            meta["openai/outputTemplate"] = options.context.widget
            meta["openai/widgetAccessible"] = True
        if state.interpretation is not None:
            meta["decontextualized_query"] = state.interpretation.text
            meta["understood"] = _render_interpretation(state.interpretation)
        unused = state.interpretation.ignored if state.interpretation else ()
        ignored = (*options.client.ignored, *options.ignored, *unused)[:MAX_IGNORED]
        return {**meta, **({"ignored": [label[:MAX_LABEL] for label in ignored]} if ignored else {})}

    def _meta(self) -> Json:
        """Return the whole `_meta`."""
        meta = self._initial_meta()
        session = self.options.session_context(self.state.clarify)
        if session:
            meta["session_context"] = session
        meta["processing_time_ms"] = self.options.elapsed()
        finished = self.state.finished
        if finished is not None and finished.notes:
            meta["notes"] = list(finished.notes)
        if finished is not None and finished.cost.calls:
            meta["cost"] = asdict(finished.cost)
        return meta

    def _promise_members(self) -> Json:
        """Return the elicitation or the promise, if the answer is one."""
        state = self.state
        if state.kind == "elicitation" and state.clarify:
            return {"elicitation": render_elicitation(state.clarify)}
        if state.kind == "promise" and state.task:
            return {"promise": render_promise(state.task, self.options.now())}
        return {}

    def _error(self) -> Json:
        return {"error": error_body(self.state.error, self.options.client.dialect)} if self.state.error else {}

    def _summary(self) -> Json | None:
        if not self.state.text:
            return None
        summary: Json = {"@type": self.options.client.dialect.summary, "text": self.state.text}
        return {**summary, "citations": self._citations(self.state.cites)} if self.state.cites else summary

    def _citations(self, refs: Iterable[str]) -> list[str]:
        return list(dict.fromkeys(self._ids.get(ref, ref) for ref in refs))

    def _content(self) -> list[Json]:
        return [{"type": "text", "text": self.state.text or _names(self.state.in_order)}]

    def _answer(self) -> Json:
        """Return the members of an answer besides `_meta`."""
        if self.options.format == "chatgpt_app":
            return {"content": self._content(), "structuredData": self.state.in_order}
        summary, items = self._summary(), self.state.in_order
        if summary is None:
            return {"results": items}
        return {"results": [summary, *items] if self._summary_places else [*items, summary]}

    def _finish_state(self) -> None:
        """Turn an answer without results into a failure (B.5). Called after all events."""
        if self.state.is_empty:
            notes = self.state.finished.notes if self.state.finished else ()
            self.state.error = NoResults(notes[-1] if notes else NOTHING)

    def _members(self) -> Json:
        return self._answer() if self.state.kind == "answer" else {**self._promise_members(), **self._error()}


class CurrentRenderer(Renderer):
    """0.55: named events, from `start` to `complete`."""

    def __init__(self, options: RenderOptions) -> None:
        super().__init__(options)
        self._started = False

    def frames(self, event: Event, item: Json | None) -> Iterator[AnswerFrame]:
        match event:
            case InterpretationEvent() | ErrorEvent() | EndEvent():
                pass  # `start` names the kind of answer, which only the next event or the end decides
            case ClarificationEvent() | TaskEvent():
                yield from self._start()
            case TextEvent():
                yield from self._start()
                if self.options.streams_text:
                    yield self._piece(event)
            case ItemEvent() | OperationEvent():
                yield from self._start()
                if item is not None:
                    yield self._result(*self.state.items[-1])

    def finish(self) -> list[AnswerFrame]:
        self._finish_state()
        frames = [*self._start()]
        summary = self._summary()
        if self.state.error is not None:
            frames.append(AnswerFrame({"_meta": self._initial_meta(), **self._error()}, "error"))
        elif summary and self.options.format == "conversational_search":
            frames.append(self._result(0 if self._summary_places else len(self.state.items), summary))
        return [*frames, AnswerFrame({"_meta": self._meta(), **self._last()}, "complete")]

    def to_json(self) -> JsonAnswer:
        self._finish_state()
        return self._json_answer({"_meta": self._meta(), **self._members()})

    def _meta(self) -> Json:
        suggestions = self._followups()
        return {**super()._meta(), **({"followups": suggestions} if suggestions else {})}

    def _followups(self) -> list[str]:
        """Return suggestions for the next question; one or two items give no reason for any."""
        interpretation, items = self.state.interpretation, self.state.in_order
        if self.state.kind != "answer" or interpretation is None or len(items) < MIN_ITEMS:
            return []
        return list(followups(items, interpretation.language, (interpretation.text,), interpretation.constraints))

    def _start(self) -> Iterator[AnswerFrame]:
        if not self._started:
            self._started = True
            yield AnswerFrame(
                {"_meta": {**self._initial_meta(), "streaming": True}, **self._promise_members()}, "start"
            )

    def _result(self, index: int, item: Json) -> AnswerFrame:
        both = {"results": [item]} if self.options.dual_frames and not self.options.client.declared else {}
        return AnswerFrame({"index": index, "item": item, **both}, "result")

    def _piece(self, event: TextEvent) -> AnswerFrame:
        """Return a piece of the summary. Its index is known only if a place is reserved for it."""
        index = {"index": 0} if self._summary_places else {}
        return AnswerFrame({**index, "text": event.text, "citations": self._citations(event.cites)}, "text")

    def _last(self) -> Json:
        if self.state.kind == "answer" and self.options.format == "chatgpt_app":
            return {"content": self._content()}
        return self._promise_members()


class Renderer054(Renderer):
    """0.54: unnamed frames, `_meta` first, then results, then the end of the stream."""

    def __init__(self, options: RenderOptions) -> None:
        super().__init__(options)
        self._started = False

    def frames(self, event: Event, item: Json | None) -> Iterator[AnswerFrame]:
        match event:
            case InterpretationEvent() | ErrorEvent() | EndEvent():
                pass  # the first frame names the kind of answer, which only the next event or the end decides
            case ItemEvent() | OperationEvent():
                yield from self._start()
                if item is not None:
                    yield AnswerFrame(self._result(item))
            case ClarificationEvent() | TaskEvent():
                self._started = True
                yield AnswerFrame({"_meta": self._meta(), **self._promise_members()})
            case TextEvent():
                yield from self._start()

    def finish(self) -> list[AnswerFrame]:
        self._finish_state()
        if self.state.error is not None:
            return [AnswerFrame({"_meta": self._meta(), **self._error()})]
        if self.state.kind != "answer":
            return []
        return [*self._start(), *self._last()]

    def to_json(self) -> JsonAnswer:
        self._finish_state()
        return self._json_answer({"_meta": self._meta(), **self._members()})

    def _result(self, item: Json) -> Json:
        """Return an item among the results. The known search page drops unknown types unless they come as data too."""
        if self._list == "results" and KNOWN.isdisjoint(as_list(item.get("@type"))):
            return {"results": [item], "structuredData": [item]}
        return {self._list: [item]}

    @property
    def _list(self) -> str:
        return "results" if self.options.format == "conversational_search" else "structuredData"

    def _start(self) -> Iterator[AnswerFrame]:
        if not self._started:
            self._started = True
            yield AnswerFrame({"_meta": self._meta()})

    def _last(self) -> Iterator[AnswerFrame]:
        summary = self._summary()
        if self._list == "structuredData":
            yield AnswerFrame({"content": self._content()})
        elif summary:
            yield AnswerFrame({"results": [summary]})


class FlatRenderer(Renderer):
    """Frames with a `message_type`. The last is always `complete`: without it a browser asks again."""

    def frames(self, event: Event, item: Json | None) -> Iterator[AnswerFrame]:
        match event:
            case InterpretationEvent():
                yield self._frame("query_analysis", decontextualized_query=event.text)
                if self.options.memory_text and "meta.remember" not in event.ignored:
                    yield self._frame("remember", message=self.options.memory_text)
            case ItemEvent() | OperationEvent():
                if item is not None and not self._generates:
                    yield self._frame("result_batch", results=[item])
            case ClarificationEvent():
                questions = render_elicitation(event)["questions"]
                yield self._frame("ask_user", message=clarification_text(event), questions=questions)
            case TaskEvent(task):
                rendered = render_promise(task, self.options.now())
                message = rendered.get("message") or "This takes a while"
                yield self._frame("intermediate_message", message=message, token=task.id, promise=rendered)
            case TextEvent() | ErrorEvent() | EndEvent():
                pass

    @staticmethod
    def refusal(error: SiteError, client: ClientInfo) -> list[AnswerFrame]:
        """Return the stream for a question that is refused."""
        body = error_body(error, FLAT)
        about = {"query_id": client.query_id}
        message = {"message_type": "intermediate_message", **about, "message": body["message"], "error": body}
        return [AnswerFrame(message), AnswerFrame({"message_type": "complete", **about})]

    def finish(self) -> list[AnswerFrame]:
        return [*self._last(), self._frame("complete")]

    def to_json(self) -> JsonAnswer:
        if self.state.error is not None:
            return failure_answer(self.state.error, self.options.client)
        state = self.state
        body: Json = {"query_id": self.options.client.query_id, "results": state.in_order}
        events: Iterable[Event | None] = (
            state.interpretation,
            state.clarify,
            TaskEvent(state.task) if state.task else None,
        )
        for frame in (*(part for event in events if event for part in self.frames(event, None)), *self._last()):
            data = dict(frame.data)
            kind = data.pop("message_type")
            data.pop("query_id")
            if kind != "result_batch":
                body[kind] = data
        return self._json_answer(body)

    @property
    def _generates(self) -> bool:
        return "generate" in self.options.modes

    def _last(self) -> Iterator[AnswerFrame]:
        state = self.state
        if state.error is not None:
            # The known client shows an intermediate message, and ignores types that it does not know.
            error = error_body(state.error, FLAT)
            yield self._frame("intermediate_message", message=error["message"], error=error)
        elif self._generates and state.text:
            yield self._frame("nlws", answer=state.text, items=state.in_order)
        elif state.text:
            yield self._frame("summary", message=state.text)
        elif self._generates and state.items:
            yield self._frame("result_batch", results=state.in_order)
        elif state.is_empty:
            notes = state.finished.notes if state.finished else ()
            yield self._frame("intermediate_message", message=notes[-1] if notes else NOTHING)

    def _frame(self, kind: str, **data: Any) -> AnswerFrame:
        return AnswerFrame({"message_type": kind, "query_id": self.options.client.query_id, **data})


def render_result(result: ItemEvent, context: RenderContext, dialect: NlwebDialect) -> Json:
    """Return an item as this dialect has it."""
    return render_item(result, context, has_site_url=dialect is FLAT, has_source=dialect is not V55)


def make_renderer(options: RenderOptions) -> Renderer:
    match options.client.dialect.name:
        case "0.55":
            return CurrentRenderer(options)
        case "0.54":
            return Renderer054(options)
        case "flat":
            return FlatRenderer(options)


async def stream_frames(events: AsyncIterator[Event], answer: Renderer) -> AsyncGenerator[AnswerFrame]:
    async for event in events:
        for frame in answer.add(event):
            yield frame
    for frame in answer.finish():
        yield frame


EventListener: TypeAlias = Callable[[Event], Awaitable[None]]


async def collect_answer(
    events: AsyncIterator[Event], answer: Renderer, listener: EventListener | None = None
) -> JsonAnswer:
    async for event in events:
        answer.add(event)
        if listener:
            await listener(event)
    return answer.to_json()


def _render_interpretation(interpretation: InterpretationEvent) -> Json:
    return {
        "collections": list(interpretation.collections),
        "constraints": [asdict(constraint) for constraint in interpretation.constraints],
    }


def _names(items: list[Json]) -> str:
    names = [str(item.get("name") or item.get("@id", "")) for item in items]
    if not names:
        return NOTHING + "."
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"{', '.join(names[:MAX_NAMES])}{more}."
