"""What a language model adds to an answer: an order of the items, and sentences that rely on them.

It is believed within bounds: the search says how far an item may move, and a sentence has to rely on an item.
"""

import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from portico.ask.events import Cost, Said
from portico.ask.languages import PHRASES
from portico.ask.prompts import answer_prompt, cited, rank_prompt, scores_in, sentences_in
from portico.ask.prose import plain
from portico.ask.ranking import Scored
from portico.ask.understanding.numbers import Figures, figures_in
from portico.errors import Unavailable
from portico.items import Item
from portico.models.language import LanguageModel, Prompt, Usage, tokens
from portico.search.index.text import said_by

SWAY = 35.0  # points by which a model may move an item from where the search put it
REMEMBERED = 256  # rankings
REMEMBERED_SECONDS = 120.0
MAX_SENTENCE = 2000  # characters
_ENDING = re.compile(r"[.!?…。！？\]\s]")


@dataclass(slots=True)
class Bill:
    """What models did for one answer, while it is made."""

    cost: Cost = field(default_factory=Cost)
    dropped: int = 0  # sentences that the items do not support

    def add(self, usage: Usage) -> None:
        self.cost += Cost(1, usage.prompt_tokens, usage.completion_tokens, usage.price)


@dataclass(frozen=True, slots=True)
class Matter:
    """What a model is asked about."""

    question: str
    history: tuple[str, ...]
    language: str  # of what it shall say, as the caller named it


class Judge:
    """Asks a model, once for an order and once for an answer. Remembers orders for a while."""

    def __init__(self, model: LanguageModel, prompt: int, candidates: int) -> None:
        self._model = model
        self._prompt = prompt
        self.candidates = candidates
        self.slowness = 0.0  # seconds until the first item, of late
        self._orders: OrderedDict[bytes, tuple[float, list[Scored]]] = OrderedDict()

    # Orders

    def remembered(self, key: str) -> list[Scored] | None:
        """The order that was found for the same question a moment ago."""
        since, order = self._orders.get(_digest(key), (0.0, None))
        return order if time.monotonic() - since < REMEMBERED_SECONDS else None

    def remember(self, key: str, order: list[Scored]) -> None:
        self._orders[_digest(key)] = (time.monotonic(), order)
        while len(self._orders) > REMEMBERED:
            self._orders.popitem(last=False)

    async def ranked(self, matter: Matter, scored: Sequence[Scored], bill: Bill) -> AsyncGenerator[Scored]:
        """The candidates as the model orders them, each as soon as it is sure; then those it was not shown.

        Unavailable if the model does not answer, or not with an order.
        """
        started = time.monotonic()
        candidates = scored[: self.candidates]
        prompt, shown = rank_prompt(matter.question, matter.history, [each.item for each in candidates], self._prompt)
        order = _Order(candidates[:shown])
        reply, at = "", 0
        async with aclosing(self._replies(prompt, bill)) as pieces:
            async for piece in pieces:
                reply += piece
                for number, score, end in scores_in(reply, shown, at) if "}" in piece else ():
                    at = end
                    for each in order.heard(number, score):
                        self._note_pace(started, order)
                        yield each
        if not order.placed:
            raise Unavailable("The language model ranked nothing")
        for each in order.rest():
            yield each
        for each in scored[shown:]:
            yield replace(each, score=min(each.score, order.lowest))

    def _note_pace(self, started: float, order: "_Order") -> None:
        if len(order.placed) == 1:
            self.slowness += (time.monotonic() - started - self.slowness) / 3

    # Sentences

    async def said(self, matter: Matter, items: Sequence[Item], mode: str, bill: Bill) -> AsyncGenerator[Said]:
        """Sentences that rely on items; what relies on none is not said, and counted on the bill."""
        prompt, shown = answer_prompt(matter.question, matter.history, items, self._prompt, mode, matter.language)
        async with aclosing(self._replies(prompt, bill)) as pieces:
            async for sentence in _sentences(pieces):
                supported = grounded(sentence, items[:shown], matter)
                if supported:
                    yield supported
                elif sentence.strip():
                    bill.dropped += 1

    async def _replies(self, prompt: Prompt, bill: Bill) -> AsyncGenerator[str]:
        """The pieces of a reply. It costs what the model says, or about as much, also if it breaks off."""
        used = Usage(tokens(prompt.system + prompt.user), 0)
        try:
            async with aclosing(self._model.stream(prompt)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, str):
                        used = replace(used, completion_tokens=used.completion_tokens + tokens(piece))
                        yield piece
                    else:
                        used = piece
        finally:
            bill.add(used)


class _Order:
    """Places for items as a model names them. No item moves by more than SWAY, or overtakes one better by more than it.

    So the next place is for an item at most SWAY points below the best that has none yet, whatever the model says.
    """

    def __init__(self, candidates: Sequence[Scored]) -> None:
        self._candidates = candidates
        self._unplaced = {number: candidate.score for number, candidate in enumerate(candidates)}  # by the search
        self._waiting: dict[int, float] = {}  # by the model, within its sway
        self.placed: set[int] = set()
        self.lowest = 100.0

    def heard(self, number: int, score: float) -> list[Scored]:
        """Take a judgement; gives the items whose place is settled by it."""
        if number not in self.placed and number not in self._waiting:
            local = self._candidates[number].score
            self._waiting[number] = min(max(score, local - SWAY), local + SWAY)
        settled: list[Scored] = []
        while (best := self._best()) is not None and self._waiting[best] >= self._least_unheard():
            settled.append(self._place(best))
        return settled

    def rest(self) -> list[Scored]:
        """Those that still wait. What the model left out is no answer, unless one of them may not overtake it."""
        bar = min((self._unplaced[number] for number in self._waiting), default=100.0) + SWAY
        left_out = {number: score for number, score in self._unplaced.items() if number not in self._waiting}
        self._waiting |= {number: score - SWAY for number, score in left_out.items() if score > bar}
        order: list[Scored] = []
        while (best := self._best()) is not None:
            order.append(self._place(best))
        return order

    def _best(self) -> int | None:
        """The best of those that the model named, among those that may have the next place."""
        bar = max(self._unplaced.values(), default=0.0) - SWAY
        allowed = [number for number in self._waiting if self._unplaced[number] >= bar]
        return max(allowed, key=self._waiting.__getitem__, default=None)

    def _least_unheard(self) -> float:
        """The least that an item may come to which the model has not named yet."""
        unheard = (score for number, score in self._unplaced.items() if number not in self._waiting)
        return max(unheard, default=SWAY) - SWAY

    def _place(self, number: int) -> Scored:
        self.lowest = min(self.lowest, self._waiting.pop(number))
        self.placed.add(number)
        del self._unplaced[number]
        return replace(self._candidates[number], score=round(self.lowest, 1))


async def _sentences(pieces: AsyncGenerator[str]) -> AsyncGenerator[str]:
    """The sentences of a reply, as soon as they are whole."""
    rest = ""
    async for piece in pieces:
        rest += piece
        if not _ENDING.search(piece) and len(rest) < MAX_SENTENCE:
            continue
        whole, rest = sentences_in(rest)
        whole, rest = ([*whole, rest], "") if len(rest) > MAX_SENTENCE else (whole, rest)
        for sentence in whole:
            yield sentence
    yield rest


def grounded(sentence: str, items: Sequence[Item], matter: Matter) -> Said | None:
    """A sentence with the refs of the items that it relies on. None if it relies on none, or says what they do not."""
    text, refs = cited(sentence, items)
    text = harmless(text)
    relied = [item for item in items if item.ref in refs]
    if not relied or not text.strip():
        return None
    known = [(matter.question, ""), *((passage, _decimal_mark(item)) for item in relied for passage in _passages(item))]
    is_backed = _has_numbers(text, known, matter.language) and _has_a_name(text, known)
    return Said(f"{text.strip()} ", refs) if is_backed else None


Known: TypeAlias = Sequence[tuple[str, str]]  # texts, each with the decimal mark of its language, if that is known


def _passages(item: Item) -> Iterator[str]:
    return (passage[:20_000] for passage in said_by(item.data))


def _decimal_mark(item: Item) -> str:
    language = item.data.get("inLanguage")
    return decimal_of(language) if isinstance(language, str) else ""


def decimal_of(language: str) -> str:
    """The mark that begins decimals in a language; "" if it is not known, or a region may use another."""
    known = PHRASES.get(language.lower())
    return known.script.decimal if known else ""


def _has_numbers(text: str, known: Known, language: str) -> bool:
    """Whether every number of a sentence stands in what is known, in whatever notation."""
    numbers, decimal = list(figures_in(text)), decimal_of(language)
    figures = Figures(known if numbers else ())
    return all(figures.has(number, decimal) for number in numbers)


def _has_a_name(text: str, known: Known) -> bool:
    """Whether one of the names of a sentence, if it has any, stands in what is known."""
    names = {name.lower() for name in _PROPER.findall(text)}
    return not names or any(word in names for passage, _ in known for word in _WORD.findall(passage.lower()))


def harmless(text: str) -> str:
    """Plain words: no markup, no links."""
    return plain(_ADDRESS.sub("", _LINK.sub(r"\1", text)))


_WORD = re.compile(r"\w+")
_PROPER = re.compile(r"(?<=[a-z,;] )([A-ZÄÖÜÉ]\w{2,40})")
_LINK = re.compile(r"!?\[([^\[\]]{0,200})\]\([^()]{0,500}\)")
_PLACE = r"\b(?:https?://|javascript:|data:|www\.)[^\s\[\]<>]{1,500}"
_ADDRESS = re.compile(rf"\[{_PLACE}\]|<{_PLACE}>|{_PLACE}", re.IGNORECASE)  # with the brackets that hold nothing else


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogatepass")).digest()
