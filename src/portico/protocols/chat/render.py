"""Renders events as an answer: one object at the end, or chunks as they come. Sends nothing.

Clients require this: the first chunk has the role and the whole context and no text, every chunk has a delta, and
the last one has what to ask next.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import islice
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
from portico.ask.languages.localization import Phrases, phrases
from portico.ask.outcomes import render_result
from portico.ask.prose import shorten
from portico.ask.suggestions import followups
from portico.ask.understanding.fields import words_of
from portico.errors import SiteError
from portico.protocols.chat.overrides import Overrides
from portico.protocols.chat.points import DataPoints
from portico.protocols.rendering import (
    NOTHING,
    RenderContext,
    clarification_text,
    render_completed_action,
    render_elicitation,
    render_promise,
)
from portico.protocols.rest.operations import TASKS_PATH
from portico.requests import Ask, Task

Shown: TypeAlias = dict[str, Any]

MAX_RESULT = 500  # characters of what an operation gave, in words
MAX_LISTED = 10  # items that are named where nothing else is said
MAX_OPTIONS = 4  # of a question back
_BRACKETS = str.maketrans({"[": "(", "]": ")"})  # in an answer they hold citations and nothing else


@dataclass(frozen=True, slots=True)
class ChatRenderOptions:
    """How to render an answer, and what its context tells."""

    question: str  # as it was sent
    ask: Ask
    overrides: Overrides
    context: RenderContext
    conversation: Shown
    messages: int = 1
    ignored: tuple[str, ...] = ()
    starters: tuple[str, ...] = ()  # what to ask next, where that is known beforehand
    earlier_questions: tuple[str, ...] = ()  # questions before
    state: Callable[[ClarificationEvent | None], str] = lambda _: ""
    session: Any = None  # None: there is none to tell
    session_name: str = "sessionState"
    session_id: str = ""  # for front ends that keep it in the context


@dataclass(slots=True)
class ChatAccumulator:
    """What the events have brought so far."""

    interpretation: InterpretationEvent | None = None
    clarify: ClarificationEvent | None = None
    task: Task | None = None
    completion: OperationEvent | None = None
    finished: EndEvent | None = None
    pieces: list[str] = field(default_factory=list[str])
    marks: dict[str, float] = field(default_factory=dict[str, float])  # milliseconds until a step was done


class ChatRenderer:
    """Renders one answer."""

    def __init__(self, options: ChatRenderOptions) -> None:
        self.options = options
        self.state = ChatAccumulator()
        self.points = DataPoints(options.context)
        self.points.attach(options.ask.attached)
        self._since = time.perf_counter()
        self._owed: tuple[str, ...] = ()  # items that the last sentence relied on
        self._gap = ""  # between it and the next

    @property
    def kind(self) -> str:
        state = self.state
        by_event = {"elicitation": state.clarify, "promise": state.task, "action": state.completion}
        return next((kind for kind, event in by_event.items() if event), "answer")

    @property
    def text(self) -> str:
        return "".join(self.state.pieces)

    def add(self, event: Event) -> str:
        """Add an event and return the text to send for it."""
        state = self.state
        match event:
            case InterpretationEvent():
                state.interpretation = event
                self._record_time("understood")
            case ClarificationEvent():
                state.clarify = event
            case ItemEvent():
                interpretation = state.interpretation
                self.points.take(event, interpretation.text if interpretation else self.options.question, self.language)
                self._record_time("found")
            case TextEvent():
                return self._say(event)
            case OperationEvent():
                state.completion = event
            case TaskEvent(task):
                state.task = task
            case EndEvent():
                state.finished = event
            case ErrorEvent(error):
                raise error
        return ""

    def finish(self) -> str:
        """Return the rest of the text, after all events."""
        text = self._citations() if self.text.strip() else self._fallback_text()
        self.state.pieces.append(text)
        self._record_time("said")
        return text

    def _say(self, event: TextEvent) -> str:
        # Sentences that rely on the same items share one citation, after the last of them.
        before = self._gap if event.cites == self._owed else f"{self._citations()}{self._gap}"
        text = event.text.translate(_BRACKETS)
        self._owed, self._gap = event.cites, text[len(text.rstrip()) :]
        piece = f"{before}{text.rstrip()}"
        self.state.pieces.append(piece)
        return piece

    def _citations(self) -> str:
        sources = self.points.cite(self._owed)
        return f" {sources}" if sources else ""

    def _fallback_text(self) -> str:
        """Return the text of an answer without a summary."""
        state, speech = self.state, phrases(self.language)
        if state.clarify:
            return clarification_text(state.clarify).translate(_BRACKETS)
        if state.task:
            return (state.task.message or speech.working).translate(_BRACKETS)
        if state.completion:
            return _outcome_text(state.completion, speech, self.options.context).translate(_BRACKETS)
        if self.points.items:
            return "\n".join(self._item_lines())
        notes = state.finished.notes if state.finished else ()
        return (notes[-1] if notes else f"{NOTHING}.").translate(_BRACKETS)

    def _item_lines(self) -> Iterable[str]:
        for item, ref in islice(zip(self.points.items, self.points.refs, strict=True), MAX_LISTED):
            yield f"- {str(item['name']).translate(_BRACKETS)} {self.points.cite([ref])}"

    @property
    def language(self) -> str:
        return self.state.interpretation.language if self.state.interpretation else self.options.overrides.language

    def _record_time(self, step: str) -> None:
        self.state.marks[step] = round((time.perf_counter() - self._since) * 1000, 1)

    # Members

    def followups(self) -> list[str]:
        manner, state = self.options, self.state
        if not manner.overrides.followups:
            return []
        if state.clarify:
            return list(options(state.clarify))
        limits = state.interpretation.constraints if state.interpretation else ()
        questions = (
            *manner.earlier_questions,
            manner.question,
            *([state.interpretation.text] if state.interpretation else ()),
        )
        return list(manner.starters or followups(self.points.items, self.language, questions, limits))

    def context(self) -> Shown:
        """Return the context without the suggestions."""
        own = {"sessionId": self.options.session_id} if self.options.session_id else {}
        return {
            "data_points": self.points.to_json(),
            "thoughts": list(self._thoughts()),
            "portico": self.portico_context(),
            **own,
        }

    def portico_context(self) -> Shown:
        options, state = self.options, self.state
        interpretation, finished = state.interpretation, state.finished
        ignored = [*options.ignored, *(interpretation.ignored if interpretation else ())]
        members = {
            "kind": self.kind,
            "conversation": options.conversation,
            "understood": _render_interpretation(interpretation) if interpretation else None,
            "items": self.points.items,
            "elicitation": render_elicitation(state.clarify) if state.clarify else None,
            "promise": _promise(state.task) if state.task else None,
            "action": render_completed_action(state.completion, options.context) if state.completion else None,
            "not_applicable": dict(options.overrides.unused) or None,
            "ignored": ignored[:50] or None,
            "notes": list(finished.notes) if finished and finished.notes else None,
            "cost": asdict(finished.cost) if finished and finished.cost.calls else None,
            "state": options.state(state.clarify) or None,
        }
        return {name: value for name, value in members.items() if value is not None}

    def _thoughts(self) -> Iterable[Shown]:
        options, state, marks = self.options, self.state, self.state.marks
        yield _thought("Original user query", options.question, messages=options.messages)
        if interpretation := state.interpretation:
            yield _thought(
                "Understood question",
                interpretation.text,
                collections=list(interpretation.collections),
                constraints=[entry.says for entry in interpretation.constraints],
                language=interpretation.language,
                milliseconds=marks.get("understood", 0),
            )
        if options.ask.attached:
            read = [entry.id for entry in options.ask.attached]
            yield _thought("Files", read, passages=len(read))
        if interpretation and self.kind == "answer":
            names = [f"{item['name']} ({item['score']:g})" for item in self.points.items]
            spent = round(marks.get("found", marks.get("understood", 0)) - marks.get("understood", 0), 1)
            yield _thought(
                "Results",
                names,
                count=len(names),
                top=options.ask.limit,
                retrieval_mode=options.ask.retrieval,
                milliseconds=spent,
            )
        yield self._answer_thought()

    def _answer_thought(self) -> Shown:
        marks, finished = self.state.marks, self.state.finished
        props: Shown = {"kind": self.kind}
        if "said" in marks:
            props |= {"characters": len(self.text), "milliseconds": marks["said"]}
        if finished and finished.cost.calls:
            props["model_calls"] = finished.cost.calls
        modes = [mode for mode in ("generate", "summarize") if mode in self.options.ask.modes]
        how = {"generate": "Sentences of what was found", "summarize": "A summary of what was found"}
        words = how[modes[0]] if modes and self.kind == "answer" else words_of(self.kind).capitalize()
        return _thought("Answer", words, **props)

    # Whole and in chunks

    def to_json(self) -> Shown:
        message = {"role": "assistant", "content": self.text}
        context = {**self.context(), "followup_questions": self.followups()}
        return {"message": message, "context": context, **self._session()}

    def first_chunk(self) -> Shown:
        return {"delta": {"role": "assistant"}, "context": self.context(), **self._session()}

    def last_chunk(self) -> Shown:
        finished = self.state.finished
        # Clients replace what they have with what comes later, so repeat it together with what is new.
        own = {"portico": self.portico_context()} if finished and (finished.notes or finished.cost.calls) else {}
        return {"delta": {}, "context": {"followup_questions": self.followups(), **own}}

    def _session(self) -> Shown:
        return {} if self.options.session is None else {self.options.session_name: self.options.session}


def _thought(title: str, description: str | list[str], **props: Any) -> Shown:
    return {"title": title, "description": description, "props": props}


def _render_interpretation(interpretation: InterpretationEvent) -> Shown:
    return {
        "text": interpretation.text,
        "collections": list(interpretation.collections),
        "constraints": [asdict(constraint) for constraint in interpretation.constraints],
        "language": interpretation.language,
    }


def _promise(task: Task) -> Shown:
    return {
        **render_promise(task, datetime.now(UTC)),
        "task": f"{TASKS_PATH}/{task.id}",
        "operation": task.call.operation,
    }


def _outcome_text(done: OperationEvent, phrases: Phrases, context: RenderContext) -> str:
    result = render_completed_action(done, context).get("result")
    text = shorten(render_result(result, done.about, phrases), MAX_RESULT)
    return f"{words_of(done.operation).capitalize()}: {text or '✓'}"


Done: TypeAlias = Callable[[], Awaitable[None]]


async def collect_answer(events: AsyncIterator[Event], renderer: ChatRenderer, done: Done) -> Shown:
    """Return the whole answer. Raises the error that it failed with."""
    async for event in events:
        renderer.add(event)
    renderer.finish()
    await done()
    return renderer.to_json()


async def chunks(
    events: AsyncIterator[Event], renderer: ChatRenderer, done: Done, render_error: Callable[[SiteError], Shown]
) -> AsyncGenerator[Shown]:
    has_started = False
    try:
        async for event in events:
            piece = renderer.add(event)
            if piece and not has_started:
                has_started = True
                yield renderer.first_chunk()
            if piece:
                yield {"delta": {"content": piece}}
        rest = renderer.finish()
        if not has_started:
            yield renderer.first_chunk()
        if rest:
            yield {"delta": {"content": rest}}
        await done()
        yield renderer.last_chunk()
    except SiteError as error:
        yield render_error(error)


def options(clarify: ClarificationEvent) -> tuple[str, ...]:
    """Return the options of the first question that has any, as suggestions."""
    first = next((question for question in clarify.questions if question.options), None)
    return first.options[:MAX_OPTIONS] if first else ()
