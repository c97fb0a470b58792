"""The part of a language model in an answer: it orders the items, and writes sentences that rely on them.

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

from portico.ask.events import ModelUsage, TextEvent
from portico.ask.languages.loader import LANGUAGES, load_language
from portico.ask.prompts import answer_prompt, rank_prompt, scores_in, sentences_in, split_citations
from portico.ask.prose import plain_text
from portico.ask.ranking import RankedItem
from portico.ask.understanding.numbers import Figures, figures_in
from portico.errors import Unavailable
from portico.items import Item
from portico.models.language import LanguageModel, Prompt, Usage, estimate_tokens
from portico.search.index.text import iter_texts

MAX_MOVE = 35.0  # points by which a model may move an item from where the search put it
CACHE_SIZE = 256  # rankings
CACHE_SECONDS = 120.0
MAX_SENTENCE = 2000  # characters
_ENDING = re.compile(r"[.!?…。！？\]\s]")


@dataclass(slots=True)
class LlmUsage:
    """The model usage of one answer, while it is made."""

    cost: ModelUsage = field(default_factory=ModelUsage)
    dropped: int = 0  # sentences that the items do not support

    def add(self, usage: Usage) -> None:
        self.cost += ModelUsage(1, usage.prompt_tokens, usage.completion_tokens, usage.price)


@dataclass(frozen=True, slots=True)
class LlmRequest:
    """What a model is asked about."""

    question: str
    history: tuple[str, ...]
    language: str  # of what it shall say, as the caller named it


class AnswerModel:
    """Asks a model, once for an order and once for an answer. Remembers orders for a while."""

    def __init__(self, model: LanguageModel, prompt: int, candidates: int) -> None:
        self._model = model
        self._prompt = prompt
        self.candidates = candidates
        self.latency = 0.0  # seconds until the first item, of late
        self._orders: OrderedDict[bytes, tuple[float, list[RankedItem]]] = OrderedDict()

    # Orders

    def get_order(self, key: str) -> list[RankedItem] | None:
        """Return the order that was found for the same question a moment ago."""
        since, order = self._orders.get(_digest(key), (0.0, None))
        return order if time.monotonic() - since < CACHE_SECONDS else None

    def set_order(self, key: str, order: list[RankedItem]) -> None:
        self._orders[_digest(key)] = (time.monotonic(), order)
        while len(self._orders) > CACHE_SIZE:
            self._orders.popitem(last=False)

    async def rank(
        self, request: LlmRequest, scored: Sequence[RankedItem], usage: LlmUsage
    ) -> AsyncGenerator[RankedItem]:
        """Yield the candidates as the model orders them, each as soon as it is sure; then those it was not shown.

        Unavailable if the model does not answer, or not with an order.
        """
        started = time.monotonic()
        candidates = scored[: self.candidates]
        prompt, count = rank_prompt(
            request.question, request.history, [candidate.item for candidate in candidates], self._prompt
        )
        order = _BoundedRanking(candidates[:count])
        reply, at = "", 0
        async with aclosing(self._replies(prompt, usage)) as pieces:
            async for piece in pieces:
                reply += piece
                for number, score, end in scores_in(reply, count, at) if "}" in piece else ():
                    at = end
                    for result in order.add(number, score):
                        self._record_latency(started, order)
                        yield result
        if not order.placed:
            raise Unavailable("The language model ranked nothing")
        for result in order.rest():
            yield result
        for result in scored[count:]:
            yield replace(result, score=min(result.score, order.lowest))

    def _record_latency(self, started: float, order: "_BoundedRanking") -> None:
        if len(order.placed) == 1:
            self.latency += (time.monotonic() - started - self.latency) / 3

    # Sentences

    async def write(
        self, request: LlmRequest, items: Sequence[Item], mode: str, usage: LlmUsage
    ) -> AsyncGenerator[TextEvent]:
        """Yield sentences that the items support; count the others as dropped."""
        prompt, count = answer_prompt(request.question, request.history, items, self._prompt, mode, request.language)
        async with aclosing(self._replies(prompt, usage)) as pieces:
            async for sentence in _sentences(pieces):
                supported = check_grounding(sentence, items[:count], request)
                if supported:
                    yield supported
                elif sentence.strip():
                    usage.dropped += 1

    async def _replies(self, prompt: Prompt, usage: LlmUsage) -> AsyncGenerator[str]:
        """Yield the pieces of a reply. It costs what the model says, or about as much, also if it breaks off."""
        used = Usage(estimate_tokens(prompt.system + prompt.user), 0)
        try:
            async with aclosing(self._model.stream(prompt)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, str):
                        used = replace(used, completion_tokens=used.completion_tokens + estimate_tokens(piece))
                        yield piece
                    else:
                        used = piece
        finally:
            usage.add(used)


class _BoundedRanking:
    """Places for items as a model names them. No item moves by more than SWAY, or overtakes one better by more than it.

    So the next place is for an item at most SWAY points below the best that has none yet, whatever the model says.
    """

    def __init__(self, candidates: Sequence[RankedItem]) -> None:
        self._candidates = candidates
        self._unplaced = {number: candidate.score for number, candidate in enumerate(candidates)}  # by the search
        self._waiting: dict[int, float] = {}  # by the model, within its sway
        self.placed: set[int] = set()
        self.lowest = 100.0

    def add(self, number: int, score: float) -> list[RankedItem]:
        """Add a judgement and return the items whose place it settles."""
        if number not in self.placed and number not in self._waiting:
            local = self._candidates[number].score
            self._waiting[number] = min(max(score, local - MAX_MOVE), local + MAX_MOVE)
        placed_items: list[RankedItem] = []
        while (best := self._best()) is not None and self._waiting[best] >= self._lowest_unscored():
            placed_items.append(self._place(best))
        return placed_items

    def rest(self) -> list[RankedItem]:
        """Return those that still wait.

        What the model left out is no answer, unless one of them may not overtake it.
        """
        bar = min((self._unplaced[number] for number in self._waiting), default=100.0) + MAX_MOVE
        left_out = {number: score for number, score in self._unplaced.items() if number not in self._waiting}
        self._waiting |= {number: score - MAX_MOVE for number, score in left_out.items() if score > bar}
        order: list[RankedItem] = []
        while (best := self._best()) is not None:
            order.append(self._place(best))
        return order

    def _best(self) -> int | None:
        """Return the best of those that the model named, among those that may have the next place."""
        bar = max(self._unplaced.values(), default=0.0) - MAX_MOVE
        allowed = [number for number in self._waiting if self._unplaced[number] >= bar]
        return max(allowed, key=self._waiting.__getitem__, default=None)

    def _lowest_unscored(self) -> float:
        """Return the least that an item may come to which the model has not named yet."""
        unheard = (score for number, score in self._unplaced.items() if number not in self._waiting)
        return max(unheard, default=MAX_MOVE) - MAX_MOVE

    def _place(self, number: int) -> RankedItem:
        self.lowest = min(self.lowest, self._waiting.pop(number))
        self.placed.add(number)
        del self._unplaced[number]
        return replace(self._candidates[number], score=round(self.lowest, 1))


async def _sentences(pieces: AsyncGenerator[str]) -> AsyncGenerator[str]:
    """Yield the sentences of a reply, as soon as they are whole."""
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


def check_grounding(sentence: str, items: Sequence[Item], request: LlmRequest) -> TextEvent | None:
    """Return a sentence with the refs it relies on, or None if the items do not support it."""
    text, refs = split_citations(sentence, items)
    text = strip_links(text)
    relied = [item for item in items if item.ref in refs]
    if not relied or not text.strip():
        return None
    sources = [
        (request.question, ""),
        *((passage, decimal_of(str(item.data.get("inLanguage")))) for item in relied for passage in _passages(item)),
    ]
    is_backed = _has_numbers(text, sources, request.language) and _has_a_name(text, sources)
    return TextEvent(f"{text.strip()} ", refs) if is_backed else None


SourceTexts: TypeAlias = Sequence[
    tuple[str, str]
]  # texts, each with the decimal mark of its language, if that is known


def _passages(item: Item) -> Iterator[str]:
    return (passage[:20_000] for passage in iter_texts(item.data))


def decimal_of(language: str) -> str:
    """Return the mark that begins decimals in a language; "" if it is not known, or a region may use another."""
    code = language.lower()
    return load_language(code).phrases.script.decimal if code in LANGUAGES else ""


def _has_numbers(text: str, sources: SourceTexts, language: str) -> bool:
    """Return whether every number of a sentence stands in what is known, in whatever notation."""
    numbers, decimal = list(figures_in(text)), decimal_of(language)
    figures = Figures(sources if numbers else ())
    return all(figures.has(number, decimal) for number in numbers)


def _has_a_name(text: str, sources: SourceTexts) -> bool:
    """Return whether one of the names of a sentence, if it has any, stands in what is known."""
    names = {name.lower() for name in _PROPER.findall(text)}
    return not names or any(word in names for passage, _ in sources for word in _WORD.findall(passage.lower()))


def strip_links(text: str) -> str:
    """Return text without markup and links."""
    return plain_text(_ADDRESS.sub("", _LINK.sub(r"\1", text)))


_WORD = re.compile(r"\w+")
_PROPER = re.compile(r"(?<=[a-z,;] )([A-ZÄÖÜÉ]\w{2,40})")
_LINK = re.compile(r"!?\[([^\[\]]{0,200})\]\([^()]{0,500}\)")
_PLACE = r"\b(?:https?://|javascript:|data:|www\.)[^\s\[\]<>]{1,500}"
_ADDRESS = re.compile(rf"\[{_PLACE}\]|<{_PLACE}>|{_PLACE}", re.IGNORECASE)  # with the brackets that hold nothing else


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogatepass")).digest()
