"""From events to an answer: one object in the end, or chunks as they come. Pure; sends nothing.

What real clients enforce: the first chunk has the role and the whole context and no text, every chunk has a delta, and
the last one has what to ask next.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TypeAlias

from portico.ask.events import Clarify, Did, Event, Failed, Finished, Found, Promised, Said, Understood
from portico.ask.languages.localization import Phrases, phrases
from portico.ask.outcomes import in_words
from portico.ask.prose import shortened
from portico.ask.suggestions import followups
from portico.ask.understanding.fields import spoken
from portico.errors import SiteError
from portico.protocols.chat.overrides import Overrides
from portico.protocols.chat.points import Points
from portico.protocols.nlweb.item_rendering import Premises, shown_deed
from portico.protocols.nlweb.render import NOTHING, elicitation, promise
from portico.protocols.rest.operations import TASKS_PATH
from portico.requests import Ask, Task

Shown: TypeAlias = dict[str, Any]

MAX_RESULT = 500  # characters of what an operation gave, in words
MAX_LISTED = 10  # items that are named where nothing else is said
MAX_OPTIONS = 4  # of a question back
_BRACKETS = str.maketrans({"[": "(", "]": ")"})  # in an answer they hold citations and nothing else


@dataclass(frozen=True, slots=True)
class Manner:
    """How an answer is wanted, and what is told with it."""

    question: str  # as it was sent
    ask: Ask
    overrides: Overrides
    premises: Premises
    conversation: Shown
    messages: int = 1
    ignored: tuple[str, ...] = ()
    starters: tuple[str, ...] = ()  # what to ask next, where that is known beforehand
    asked: tuple[str, ...] = ()  # questions before
    state: Callable[[Clarify | None], str] = lambda _: ""
    session: Any = None  # None: there is none to tell
    session_name: str = "sessionState"
    session_id: str = ""  # for front ends that keep it in the context


@dataclass(slots=True)
class Told:
    """What the events have told so far."""

    understood: Understood | None = None
    clarify: Clarify | None = None
    task: Task | None = None
    did: Did | None = None
    finished: Finished | None = None
    pieces: list[str] = field(default_factory=list[str])
    marks: dict[str, float] = field(default_factory=dict[str, float])  # milliseconds until a step was done


class Telling:
    """One answer on its way."""

    def __init__(self, manner: Manner) -> None:
        self.manner = manner
        self.told = Told()
        self.points = Points(manner.premises)
        self.points.attach(manner.ask.attached)
        self._since = time.perf_counter()
        self._owed: tuple[str, ...] = ()  # items that the last sentence relied on
        self._gap = ""  # between it and the next

    @property
    def kind(self) -> str:
        told = self.told
        by_event = {"elicitation": told.clarify, "promise": told.task, "action": told.did}
        return next((kind for kind, event in by_event.items() if event), "answer")

    @property
    def text(self) -> str:
        return "".join(self.told.pieces)

    def take(self, event: Event) -> str:
        """Note an event; what is to be said of it at once."""
        told = self.told
        match event:
            case Understood():
                told.understood = event
                self._mark("understood")
            case Clarify():
                told.clarify = event
            case Found():
                understood = told.understood
                self.points.take(event, understood.text if understood else self.manner.question, self.language)
                self._mark("found")
            case Said():
                return self._say(event)
            case Did():
                told.did = event
            case Promised(task):
                told.task = task
            case Finished():
                told.finished = event
            case Failed(error):
                raise error
        return ""

    def rest(self) -> str:
        """What is left to be said when no more events follow."""
        said = self._cited() if self.text.strip() else self._otherwise()
        self.told.pieces.append(said)
        self._mark("said")
        return said

    def _say(self, said: Said) -> str:
        # Sentences that rely on the same items have their sources after the last of them.
        before = self._gap if said.cites == self._owed else f"{self._cited()}{self._gap}"
        text = said.text.translate(_BRACKETS)
        self._owed, self._gap = said.cites, text[len(text.rstrip()) :]
        piece = f"{before}{text.rstrip()}"
        self.told.pieces.append(piece)
        return piece

    def _cited(self) -> str:
        sources = self.points.cited(self._owed)
        return f" {sources}" if sources else ""

    def _otherwise(self) -> str:
        """The answer where nobody has said anything."""
        told, speech = self.told, phrases(self.language)
        if told.clarify:
            return _in_words(told.clarify).translate(_BRACKETS)
        if told.task:
            return (told.task.message or speech.working).translate(_BRACKETS)
        if told.did:
            return _deed(told.did, speech, self.manner.premises).translate(_BRACKETS)
        if self.points.items:
            return "\n".join(self._listed())
        notes = told.finished.notes if told.finished else ()
        return (notes[-1] if notes else f"{NOTHING}.").translate(_BRACKETS)

    def _listed(self) -> Iterable[str]:
        for item, ref in islice(zip(self.points.items, self.points.refs, strict=True), MAX_LISTED):
            yield f"- {str(item['name']).translate(_BRACKETS)} {self.points.cited([ref])}"

    @property
    def language(self) -> str:
        return self.told.understood.language if self.told.understood else self.manner.overrides.language

    def _mark(self, step: str) -> None:
        self.told.marks[step] = round((time.perf_counter() - self._since) * 1000, 1)

    # Members

    def followups(self) -> list[str]:
        manner, told = self.manner, self.told
        if not manner.overrides.followups:
            return []
        if told.clarify:
            return list(options(told.clarify))
        limits = told.understood.constraints if told.understood else ()
        asked = (*manner.asked, manner.question, *([told.understood.text] if told.understood else ()))
        return list(manner.starters or followups(self.points.items, self.language, asked, limits))

    def context(self) -> Shown:
        """Everything but what to ask next."""
        own = {"sessionId": self.manner.session_id} if self.manner.session_id else {}
        return {"data_points": self.points.shown(), "thoughts": list(self._thoughts()), "portico": self.own(), **own}

    def own(self) -> Shown:
        manner, told = self.manner, self.told
        understood, finished = told.understood, told.finished
        ignored = [*manner.ignored, *(understood.ignored if understood else ())]
        shown = {
            "kind": self.kind,
            "conversation": manner.conversation,
            "understood": _understood(understood) if understood else None,
            "items": self.points.items,
            "elicitation": elicitation(told.clarify) if told.clarify else None,
            "promise": _promise(told.task) if told.task else None,
            "action": shown_deed(told.did, manner.premises) if told.did else None,
            "not_applicable": dict(manner.overrides.unused) or None,
            "ignored": ignored[:50] or None,
            "notes": list(finished.notes) if finished and finished.notes else None,
            "cost": asdict(finished.cost) if finished and finished.cost.calls else None,
            "state": manner.state(told.clarify) or None,
        }
        return {name: value for name, value in shown.items() if value is not None}

    def _thoughts(self) -> Iterable[Shown]:
        manner, told, marks = self.manner, self.told, self.told.marks
        yield _thought("Original user query", manner.question, messages=manner.messages)
        if understood := told.understood:
            yield _thought(
                "Understood question",
                understood.text,
                collections=list(understood.collections),
                constraints=[each.says for each in understood.constraints],
                language=understood.language,
                milliseconds=marks.get("understood", 0),
            )
        if manner.ask.attached:
            read = [each.id for each in manner.ask.attached]
            yield _thought("Files", read, passages=len(read))
        if understood and self.kind == "answer":
            names = [f"{item['name']} ({item['score']:g})" for item in self.points.items]
            spent = round(marks.get("found", marks.get("understood", 0)) - marks.get("understood", 0), 1)
            yield _thought(
                "Results",
                names,
                count=len(names),
                top=manner.ask.limit,
                retrieval_mode=manner.ask.retrieval,
                milliseconds=spent,
            )
        yield self._answer_thought()

    def _answer_thought(self) -> Shown:
        marks, finished = self.told.marks, self.told.finished
        props: Shown = {"kind": self.kind}
        if "said" in marks:
            props |= {"characters": len(self.text), "milliseconds": marks["said"]}
        if finished and finished.cost.calls:
            props["model_calls"] = finished.cost.calls
        modes = [mode for mode in ("generate", "summarize") if mode in self.manner.ask.modes]
        how = {"generate": "Sentences of what was found", "summarize": "A summary of what was found"}
        words = how[modes[0]] if modes and self.kind == "answer" else spoken(self.kind).capitalize()
        return _thought("Answer", words, **props)

    # Whole and in chunks

    def whole(self) -> Shown:
        message = {"role": "assistant", "content": self.text}
        context = {**self.context(), "followup_questions": self.followups()}
        return {"message": message, "context": context, **self._session()}

    def first(self) -> Shown:
        return {"delta": {"role": "assistant"}, "context": self.context(), **self._session()}

    def last(self) -> Shown:
        finished = self.told.finished
        # Clients put what comes later in the place of what they have: the same again, and what is new.
        own = {"portico": self.own()} if finished and (finished.notes or finished.cost.calls) else {}
        return {"delta": {}, "context": {"followup_questions": self.followups(), **own}}

    def _session(self) -> Shown:
        return {} if self.manner.session is None else {self.manner.session_name: self.manner.session}


def _thought(title: str, description: str | list[str], **props: Any) -> Shown:
    return {"title": title, "description": description, "props": props}


def _understood(understood: Understood) -> Shown:
    return {
        "text": understood.text,
        "collections": list(understood.collections),
        "constraints": [asdict(each) for each in understood.constraints],
        "language": understood.language,
    }


def _promise(task: Task) -> Shown:
    return {**promise(task, datetime.now(UTC)), "task": f"{TASKS_PATH}/{task.id}", "operation": task.call.operation}


def _in_words(clarify: Clarify) -> str:
    lines = [clarify.text]
    for each in clarify.questions:
        choices = f" ({', '.join(each.options)})" if each.options else ""
        lines.append(f"{each.text}{choices}")
    return "\n".join(dict.fromkeys(line for line in lines if line))


def _deed(did: Did, speech: Phrases, premises: Premises) -> str:
    """What was done, in words."""
    said = shortened(in_words(shown_deed(did, premises).get("result"), did.about, speech), MAX_RESULT)
    return f"{spoken(did.operation).capitalize()}: {said or '✓'}"


Done: TypeAlias = Callable[[], Awaitable[None]]


async def folded(events: AsyncIterator[Event], telling: Telling, done: Done) -> Shown:
    """The whole answer. What it failed with is raised."""
    async for event in events:
        telling.take(event)
    telling.rest()
    await done()
    return telling.whole()


async def chunks(
    events: AsyncIterator[Event], telling: Telling, done: Done, refused: Callable[[SiteError], Shown]
) -> AsyncGenerator[Shown]:
    begun = False
    try:
        async for event in events:
            piece = telling.take(event)
            if piece and not begun:
                begun = True
                yield telling.first()
            if piece:
                yield {"delta": {"content": piece}}
        rest = telling.rest()
        if not begun:
            yield telling.first()
        if rest:
            yield {"delta": {"content": rest}}
        await done()
        yield telling.last()
    except SiteError as error:
        yield refused(error)


def options(clarify: Clarify) -> tuple[str, ...]:
    """What there is to choose from, as things to say next, where one question can be answered so."""
    first = next((each for each in clarify.questions if each.options), None)
    return first.options[:MAX_OPTIONS] if first else ()
