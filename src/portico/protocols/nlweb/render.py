"""From events to an answer: frames of a stream as they come, or one object in the end. Pure; sends nothing."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from portico.ask.events import (
    Clarify,
    Did,
    Event,
    Failed,
    Finished,
    Found,
    Promised,
    Question,
    Said,
    Understood,
)
from portico.ask.suggestions import FEWEST, followups
from portico.errors import SiteError
from portico.protocols.nlweb.compat_054 import is_known_kind, narrowed
from portico.protocols.nlweb.dialects import FLAT, V54, Format, ResponseType, Voice
from portico.protocols.nlweb.errors import BROKEN, NoResults, Whole, code_of, failure, headers_of, shown_error
from portico.protocols.nlweb.item_rendering import Premises, Shown, shown_deed, shown_item
from portico.requests import Mode, Task

MAX_IGNORED = 50  # attributes that are said to mean nothing
MAX_LABEL = 120  # characters of one
MAX_NAMES = 10  # that a list in a sentence names
NOTHING = "Nothing here fits that question"


@dataclass(frozen=True, slots=True)
class Frame:
    """One piece of a stream. Dialects without event names leave the name empty."""

    data: Shown
    name: str = ""

    @property
    def message(self) -> Shown:
        """The frame where there is no place for a name, as over WebSocket."""
        return {"event": self.name, "data": self.data} if self.name else self.data


@dataclass(frozen=True, slots=True)
class Manner:
    """How an answer is wanted, and what it may tell of itself."""

    voice: Voice
    premises: Premises
    now: Callable[[], datetime]
    elapsed: Callable[[], int]  # milliseconds since the request came
    session: Callable[[Clarify | None], Shown | None]  # context, as things stand after an answer or a question back
    format: Format = "conversational_search"
    modes: frozenset[Mode] = frozenset({"list"})
    ignored: tuple[str, ...] = ()
    remembers: str = ""
    dual_frames: bool = False  # results of a 0.55 stream are readable to clients of 0.54 too
    growing: bool = False  # a 0.55 stream tells the pieces of a summary before it has the whole


@dataclass(slots=True)
class Told:
    """What the events have told so far."""

    understood: Understood | None = None
    items: list[tuple[int, Shown]] = field(default_factory=list[tuple[int, Shown]])  # by index in the answer
    deeds: int = 0  # how many of the items are operations that were run; they stand before what was found
    pieces: list[str] = field(default_factory=list[str])
    cites: list[str] = field(default_factory=list[str])
    clarify: Clarify | None = None
    task: Task | None = None
    error: SiteError | None = None
    finished: Finished | None = None

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
    def in_order(self) -> list[Shown]:
        return [item for _, item in sorted(self.items, key=lambda each: each[0])]


class Rendering(ABC):
    """One answer in one dialect."""

    def __init__(self, manner: Manner) -> None:
        self.manner = manner
        self.told = Told()
        self._ids: dict[str, str] = {}  # of what was found, by refs: under these it is shown

    def take(self, event: Event) -> list[Frame]:
        """What to stream for an event."""
        item = self._note(event)
        return list(self.frames(event, item))

    @abstractmethod
    def frames(self, event: Event, item: Shown | None) -> Iterator[Frame]:
        """Frames for an event, and for the item it brought."""

    @abstractmethod
    def end(self) -> list[Frame]:
        """What to stream when no more events follow. Called once."""

    @abstractmethod
    def whole(self) -> Whole:
        """The answer as one object, after all events."""

    def broken(self) -> list[Frame]:
        """What to stream instead of what should have followed."""
        self.told.error = BROKEN
        return self.end()

    # What all dialects share

    def _note(self, event: Event) -> Shown | None:
        told = self.told
        match event:
            case Understood():
                told.understood = event
            case Clarify():
                told.clarify = event
            case Found():
                return self._found(event)
            case Said(text, cites):
                told.pieces.append(text)
                told.cites.extend(cite for cite in cites if cite not in told.cites)
            case Did():
                told.deeds += 1
                return self._keep(told.deeds - 1, shown_deed(event, self.manner.premises))
            case Promised(task):
                told.task = task
            case Failed(error):
                told.error = error
            case Finished():
                told.finished = event
        return None

    def _found(self, found: Found) -> Shown | None:
        if found.item.ref in self._ids:
            return None
        self._ids[found.item.ref] = found.item.id
        shown = shown_item(found, self.manner.premises, self.manner.voice.dialect)
        return self._keep(self.told.deeds + found.place, narrowed(shown) if self._is_earlier else shown)

    @property
    def _is_earlier(self) -> bool:
        return self.manner.voice.dialect is V54

    def _keep(self, place: int, item: Shown) -> Shown:
        self.told.items.append((place + self._reserved, item))
        return item

    @property
    def _reserved(self) -> int:
        """Places kept free before the items: one if a summary will come, so that they need not move for it."""
        wanted = not self.manner.modes.isdisjoint({"summarize", "generate"})
        return int(wanted and self.manner.format == "conversational_search")

    def _whole(self, body: Shown) -> Whole:
        error = self.told.error
        if error is not None:
            return Whole(code_of(error, self.manner.voice.dialect).status, body, headers_of(error))
        return Whole(202 if self.told.kind == "promise" else 200, body)

    def _opening(self) -> Shown:
        """`_meta` as far as it is known at the beginning."""
        manner, told = self.manner, self.told
        dialect = manner.voice.dialect
        shown: Shown = {"response_type": dialect.response_type(told.kind)}
        if told.kind == "answer":
            shown["response_format"] = manner.format
        shown["version"] = dialect.version
        if manner.voice.request_id != "":
            shown["request_id"] = manner.voice.request_id
        if manner.format == "chatgpt_app" and manner.premises.widget:
            shown["openai/outputTemplate"] = manner.premises.widget
            shown["openai/widgetAccessible"] = True
        if told.understood is not None:
            shown["decontextualized_query"] = told.understood.text
            shown["understood"] = _understanding(told.understood)
        understood = told.understood.ignored if told.understood else ()
        ignored = (*manner.voice.ignored, *manner.ignored, *understood)[:MAX_IGNORED]
        return {**shown, **({"ignored": [label[:MAX_LABEL] for label in ignored]} if ignored else {})}

    def _meta(self) -> Shown:
        """All of `_meta`."""
        shown = self._opening()
        session = self.manner.session(self.told.clarify)
        if session:
            shown["session_context"] = session
        shown["processing_time_ms"] = self.manner.elapsed()
        finished = self.told.finished
        if finished is not None and finished.notes:
            shown["notes"] = list(finished.notes)
        if finished is not None and finished.cost.calls:
            shown["cost"] = asdict(finished.cost)
        return shown

    def _asked_back(self) -> Shown:
        """The elicitation or the promise, if that is what the answer is."""
        told = self.told
        if told.kind == "elicitation" and told.clarify:
            return {"elicitation": elicitation(told.clarify)}
        if told.kind == "promise" and told.task:
            return {"promise": promise(told.task, self.manner.now())}
        return {}

    def _error(self) -> Shown:
        return {"error": shown_error(self.told.error, self.manner.voice.dialect)} if self.told.error else {}

    def _summary(self) -> Shown | None:
        if not self.told.text:
            return None
        shown: Shown = {"@type": self.manner.voice.dialect.summary, "text": self.told.text}
        return {**shown, "citations": self._citations(self.told.cites)} if self.told.cites else shown

    def _citations(self, refs: Iterable[str]) -> list[str]:
        return list(dict.fromkeys(self._ids.get(ref, ref) for ref in refs))

    def _content(self) -> list[Shown]:
        return [{"type": "text", "text": self.told.text or _names(self.told.in_order)}]

    def _answer(self) -> Shown:
        """The members of an answer, beside `_meta`."""
        if self.manner.format == "chatgpt_app":
            return {"content": self._content(), "structuredData": self.told.in_order}
        summary, items = self._summary(), self.told.in_order
        if summary is None:
            return {"results": items}
        return {"results": [summary, *items] if self._reserved else [*items, summary]}

    def _settle(self) -> None:
        """Make an answer without results a failure (B.5). Called after all events."""
        if self.told.is_empty:
            notes = self.told.finished.notes if self.told.finished else ()
            self.told.error = NoResults(notes[-1] if notes else NOTHING)

    def _members(self) -> Shown:
        return self._answer() if self.told.kind == "answer" else {**self._asked_back(), **self._error()}


class Current(Rendering):
    """0.55: named events, from `start` to `complete`."""

    def __init__(self, manner: Manner) -> None:
        super().__init__(manner)
        self._started = False

    def frames(self, event: Event, item: Shown | None) -> Iterator[Frame]:
        match event:
            case Understood() | Failed() | Finished():
                pass  # what kind of answer it is, which `start` says, the next event tells, or the end
            case Clarify() | Promised():
                yield from self._start()
            case Said():
                yield from self._start()
                if self.manner.growing:
                    yield self._piece(event)
            case Found() | Did():
                yield from self._start()
                if item is not None:
                    yield self._result(*self.told.items[-1])

    def end(self) -> list[Frame]:
        self._settle()
        frames = [*self._start()]
        summary = self._summary()
        if self.told.error is not None:
            frames.append(Frame({"_meta": self._opening(), **self._error()}, "error"))
        elif summary and self.manner.format == "conversational_search":
            frames.append(self._result(0 if self._reserved else len(self.told.items), summary))
        return [*frames, Frame({"_meta": self._meta(), **self._last()}, "complete")]

    def whole(self) -> Whole:
        self._settle()
        return self._whole({"_meta": self._meta(), **self._members()})

    def _meta(self) -> Shown:
        offered = self._followups()
        return {**super()._meta(), **({"followups": offered} if offered else {})}

    def _followups(self) -> list[str]:
        """What to go on with: one item or two are all there is to ask about."""
        understood, items = self.told.understood, self.told.in_order
        if self.told.kind != "answer" or understood is None or len(items) < FEWEST:
            return []
        return list(followups(items, understood.language, (understood.text,), understood.constraints))

    def _start(self) -> Iterator[Frame]:
        if not self._started:
            self._started = True
            yield Frame({"_meta": {**self._opening(), "streaming": True}, **self._asked_back()}, "start")

    def _result(self, index: int, item: Shown) -> Frame:
        both = {"results": [item]} if self.manner.dual_frames and not self.manner.voice.declared else {}
        return Frame({"index": index, "item": item, **both}, "result")

    def _piece(self, said: Said) -> Frame:
        """A piece of the summary. Where that will stand is known only if a place is kept for it."""
        index = {"index": 0} if self._reserved else {}
        return Frame({**index, "text": said.text, "citations": self._citations(said.cites)}, "text")

    def _last(self) -> Shown:
        if self.told.kind == "answer" and self.manner.format == "chatgpt_app":
            return {"content": self._content()}
        return self._asked_back()


class Earlier(Rendering):
    """0.54: unnamed frames, `_meta` first, then results, then the end of the stream."""

    def __init__(self, manner: Manner) -> None:
        super().__init__(manner)
        self._started = False

    def frames(self, event: Event, item: Shown | None) -> Iterator[Frame]:
        match event:
            case Understood() | Failed() | Finished():
                pass  # the first frame says what kind of answer this is, which only the next event tells, or the end
            case Found() | Did():
                yield from self._start()
                if item is not None:
                    yield Frame(self._listed(item))
            case Clarify() | Promised():
                self._started = True
                yield Frame({"_meta": self._meta(), **self._asked_back()})
            case Said():
                yield from self._start()

    def end(self) -> list[Frame]:
        self._settle()
        if self.told.error is not None:
            return [Frame({"_meta": self._meta(), **self._error()})]
        if self.told.kind != "answer":
            return []
        return [*self._start(), *self._last()]

    def whole(self) -> Whole:
        self._settle()
        return self._whole({"_meta": self._meta(), **self._members()})

    def _listed(self, item: Shown) -> Shown:
        """An item among the results. The known page drops kinds that it does not know unless they come as data, too."""
        if self._list == "results" and not is_known_kind(item):
            return {"results": [item], "structuredData": [item]}
        return {self._list: [item]}

    @property
    def _list(self) -> str:
        return "results" if self.manner.format == "conversational_search" else "structuredData"

    def _start(self) -> Iterator[Frame]:
        if not self._started:
            self._started = True
            yield Frame({"_meta": self._meta()})

    def _last(self) -> Iterator[Frame]:
        summary = self._summary()
        if self._list == "structuredData":
            yield Frame({"content": self._content()})
        elif summary:
            yield Frame({"results": [summary]})


class Flat(Rendering):
    """Frames with a `message_type`, of which `complete` is always the last: without it a browser asks again."""

    def frames(self, event: Event, item: Shown | None) -> Iterator[Frame]:
        match event:
            case Understood():
                yield self._frame("query_analysis", decontextualized_query=event.text)
                if self.manner.remembers and "meta.remember" not in event.ignored:
                    yield self._frame("remember", message=self.manner.remembers)
            case Found() | Did():
                if item is not None and not self._generates:
                    yield self._frame("result_batch", results=[item])
            case Clarify():
                questions = elicitation(event)["questions"]
                yield self._frame("ask_user", message=_in_words(event), questions=questions)
            case Promised(task):
                shown = promise(task, self.manner.now())
                message = shown.get("message") or "This takes a while"
                yield self._frame("intermediate_message", message=message, token=task.id, promise=shown)
            case Said() | Failed() | Finished():
                pass

    @staticmethod
    def refusal(error: SiteError, voice: Voice) -> list[Frame]:
        """A stream for a question that is not answered."""
        shown = shown_error(error, FLAT)
        about = {"query_id": voice.query_id}
        message = {"message_type": "intermediate_message", **about, "message": shown["message"], "error": shown}
        return [Frame(message), Frame({"message_type": "complete", **about})]

    def end(self) -> list[Frame]:
        return [*self._last(), self._frame("complete")]

    def whole(self) -> Whole:
        if self.told.error is not None:
            return failure(self.told.error, self.manner.voice)
        told = self.told
        body: Shown = {"query_id": self.manner.voice.query_id, "results": told.in_order}
        events: Iterable[Event | None] = (told.understood, told.clarify, Promised(told.task) if told.task else None)
        for frame in (*(each for event in events if event for each in self.frames(event, None)), *self._last()):
            data = dict(frame.data)
            kind = data.pop("message_type")
            data.pop("query_id")
            if kind != "result_batch":
                body[kind] = data
        return self._whole(body)

    @property
    def _generates(self) -> bool:
        return "generate" in self.manner.modes

    def _last(self) -> Iterator[Frame]:
        told = self.told
        if told.error is not None:
            # The known client shows an intermediate message, and nothing for a type it does not know.
            error = shown_error(told.error, FLAT)
            yield self._frame("intermediate_message", message=error["message"], error=error)
        elif self._generates and told.text:
            yield self._frame("nlws", answer=told.text, items=told.in_order)
        elif told.text:
            yield self._frame("summary", message=told.text)
        elif self._generates and told.items:
            yield self._frame("result_batch", results=told.in_order)
        elif told.is_empty:
            notes = told.finished.notes if told.finished else ()
            yield self._frame("intermediate_message", message=notes[-1] if notes else NOTHING)

    def _frame(self, kind: str, **data: Any) -> Frame:
        return Frame({"message_type": kind, "query_id": self.manner.voice.query_id, **data})


def rendering(manner: Manner) -> Rendering:
    match manner.voice.dialect.name:
        case "0.55":
            return Current(manner)
        case "0.54":
            return Earlier(manner)
        case "flat":
            return Flat(manner)


async def streamed(events: AsyncIterator[Event], answer: Rendering) -> AsyncGenerator[Frame]:
    async for event in events:
        for frame in answer.take(event):
            yield frame
    for frame in answer.end():
        yield frame


Hear: TypeAlias = Callable[[Event], Awaitable[None]]


async def folded(events: AsyncIterator[Event], answer: Rendering, hear: Hear | None = None) -> Whole:
    async for event in events:
        answer.take(event)
        if hear:
            await hear(event)
    return answer.whole()


# Members


def elicitation(clarify: Clarify) -> Shown:
    return {"text": clarify.text, "questions": [_question(each) for each in clarify.questions]}


def _question(question: Question) -> Shown:
    shown: Shown = {"id": question.id, "text": question.text, "type": question.type}
    if question.options:
        shown["options"] = list(question.options)
    return shown if question.default is None else {**shown, "default": question.default}


def promise(task: Task, now: datetime) -> Shown:
    shown: Shown = {"token": task.id}
    if task.estimate is not None:
        shown["estimated_time"] = max(0, round(task.estimate - (now - task.created).total_seconds()))
    if task.message:
        shown["message"] = task.message
    return {**shown, "progress": round(task.progress, 4)}


def _understanding(understood: Understood) -> Shown:
    return {
        "collections": list(understood.collections),
        "constraints": [asdict(each) for each in understood.constraints],
    }


def _in_words(clarify: Clarify) -> str:
    """Questions for somebody who only reads: each with its options."""
    lines = [clarify.text]
    for each in clarify.questions:
        options = f" ({', '.join(each.options)})" if each.options else ""
        lines.append(f"{each.text}{options}")
    return "\n".join(dict.fromkeys(line for line in lines if line))


def _names(items: list[Shown]) -> str:
    names = [str(item.get("name") or item.get("@id", "")) for item in items]
    if not names:
        return NOTHING + "."
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"{', '.join(names[:MAX_NAMES])}{more}."
