"""Events of an answer as text with citations. Pure; knows neither completions nor responses.

The text is what the site says, then every item that was found as a list of links, in order. Each item has one citation:
where the text relies on it, or its line in the list.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from portico.access.budget import find_tokenizer
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
from portico.ask.languages.localization import phrases
from portico.ask.outcomes import render_result
from portico.ask.prose import shorten
from portico.ask.understanding.fields import words_of
from portico.protocols.openai.requests import ConversationInput
from portico.protocols.rendering import (
    NOTHING,
    RenderContext,
    clarification_text,
    render_completed_action,
    render_item,
)
from portico.requests import Task

MAX_RESULT = 500  # characters of the result of an operation
MAX_SNIPPET = 160  # characters of a description in the list
MAX_CITED = 3  # items that one piece of text relies on
MAX_COUNTED = 50_000  # characters
BYTES_PER_TOKEN = 4
TOOLS_REMARK = "Tools are not called: this site answers from its own data."
_TOKENIZER = "o200k_base"
_MARKUP = str.maketrans({"[": "(", "]": ")", "<": "\\<"})  # no text of an item can make a link or an element
_URL_CHARACTERS = "%/:@!$&'*+,;=~"  # of a path, beside letters and digits; a parenthesis would end a link
_MARKDOWN = str.maketrans({character: f"\\{character}" for character in "\\`*_[]<>&|~"})


@dataclass(frozen=True, slots=True)
class UrlCitation:
    """A part of the text and the item that it relies on."""

    start: int
    end: int
    url: str
    title: str


@dataclass(frozen=True, slots=True)
class CitedItem:
    ref: str
    url: str
    title: str
    line: str  # in the list of items


@dataclass(slots=True)
class AnswerText:
    """Collects the events of one answer."""

    context: RenderContext
    prompt: ConversationInput
    text: str = ""
    clarification: ClarificationEvent | None = None
    interpretation: InterpretationEvent | None = None
    end: EndEvent | None = None
    _items: dict[int, CitedItem] = field(default_factory=dict[int, CitedItem])  # by place
    _spans: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])  # by ref
    _operation: OperationEvent | None = None
    _task: Task | None = None

    def add(self, event: Event) -> str:
        """Record an event. Return the text that it adds to the answer; raise the error that ends it."""
        match event:
            case TextEvent(text, cites):
                start = len(self.text)
                # What relies on many items is said of the whole answer, and cites none of them.
                for ref in cites if len(cites) <= MAX_CITED else ():
                    self._spans.setdefault(ref, (start, start + len(text.rstrip())))
                return self._append(text.translate(_MARKUP))
            case ItemEvent():
                self._items[event.place] = self._cite(event)
            case InterpretationEvent():
                self.interpretation = event
            case ClarificationEvent():
                self.clarification = event
            case OperationEvent():
                self._operation = event
            case TaskEvent(task):
                self._task = task
            case EndEvent():
                self.end = event
            case ErrorEvent(error):
                raise error
        return ""

    def finish(self) -> str:
        """Return the rest of the text, once no more events follow."""
        start = len(self.text)
        if not self.text.strip():
            self._append(self._statement().translate(_MARKUP))
        if self._items:
            self._append("\n\n" if self.text.strip() else "")
            for item in self.items:
                begin = len(self.text)
                self._append(item.line)
                self._spans.setdefault(item.ref, (begin, len(self.text)))
                self._append("\n")
            self.text = self.text.rstrip("\n")
        return self.text[start:]

    @property
    def items(self) -> list[CitedItem]:
        return [self._items[place] for place in sorted(self._items)]

    @property
    def citations(self) -> Iterator[UrlCitation]:
        """Yield one citation for each item, the best item first."""
        for item in self.items:
            start, end = self._spans[item.ref]
            yield UrlCitation(start, end, item.url, item.title)

    @property
    def usage(self) -> tuple[int, int]:
        """Return the tokens of the request and of the answer."""
        return count_tokens(self.prompt.full_text), count_tokens(self.text)

    def remarks(self) -> dict[str, Any]:
        """Return what clients of this site can know besides: the interpretation, what was ignored, and notes."""
        ignored = [*self.prompt.ignored, *(self.interpretation.ignored if self.interpretation else ())]
        notes = [*(self.end.notes if self.end else ()), *((TOOLS_REMARK,) if "tools" in self.prompt.ignored else ())]
        members: Mapping[str, Any] = {
            "understood": _render_interpretation(self.interpretation) if self.interpretation else None,
            "ignored": ignored[:50],
            "notes": notes,
            "cost": asdict(self.end.cost) if self.end and self.end.cost.calls else None,
        }
        return {name: value for name, value in members.items() if value}

    def _append(self, text: str) -> str:
        self.text += text
        return text

    def _cite(self, event: ItemEvent) -> CitedItem:
        rendered = render_item(event, self.context)
        title, url = str(rendered["name"]), _quote_url(str(rendered["url"]))
        snippet = " ".join(shorten(str(rendered.get("description") or ""), MAX_SNIPPET).split()).translate(_MARKDOWN)
        link = f"[{' '.join(title.split()).translate(_MARKDOWN)}]({url})"
        return CitedItem(event.item.ref, url, title, f"{event.place + 1}. {link}{': ' if snippet else ''}{snippet}")

    def _statement(self) -> str:
        """Return what to say where the events have no text."""
        speech = phrases(self.interpretation.language if self.interpretation else "en")
        if self.clarification:
            return clarification_text(self.clarification)
        if self._task:
            return self._task.message or speech.working
        if self._operation:
            result = render_completed_action(self._operation, self.context).get("result")
            text = shorten(render_result(result, self._operation.about, speech), MAX_RESULT)
            return f"{words_of(self._operation.operation).capitalize()}: {text or '✓'}"
        if self._items:
            return ""
        return next(reversed(self.end.notes), f"{NOTHING}.") if self.end else f"{NOTHING}."


def _quote_url(url: str) -> str:
    """Return a URL that can stand in a link of Markdown, whatever it has in it."""
    parts = urlsplit(url)
    host = quote(parts.netloc, safe="[]:@")
    path, query, fragment = (
        quote(part, safe=_URL_CHARACTERS + more)
        for part, more in ((parts.path, ""), (parts.query, "?"), (parts.fragment, "?"))
    )
    return urlunsplit((parts.scheme, host, path, query, fragment))


def count_tokens(text: str) -> int:
    """Return the tokens of a text; an estimate for a long one, and where no tokenizer is installed."""
    tokenizer = find_tokenizer(_TOKENIZER) if len(text) <= MAX_COUNTED else None
    return tokenizer.count(text) if tokenizer else math.ceil(len(text.encode()) / BYTES_PER_TOKEN)


def _render_interpretation(interpretation: InterpretationEvent) -> dict[str, Any]:
    return {
        "text": interpretation.text,
        "collections": list(interpretation.collections),
        "constraints": [asdict(constraint) for constraint in interpretation.constraints],
        "language": interpretation.language,
    }
