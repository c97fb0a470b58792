"""Counting tokens; trimming a page of records to a caller's budget, visibly. Knows no protocol, fetches nothing."""

import importlib
import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from typing import Any, TypeAlias, TypeGuard

import msgspec

from portico.errors import BudgetExceeded
from portico.items import TITLES

Record: TypeAlias = dict[str, Any]

BYTES_PER_TOKEN = 4  # of the estimate
MAX_COUNTED = 500_000  # bytes: what is longer is estimated, since nothing else runs while a tokenizer counts

# What a token of each bundled vocabulary is in tokens of the common unit.
_RATES = {"cl100k_base": 1.0, "o200k_base": 1.0}

SUPPORTED: tuple[str, ...] = tuple(_RATES)

# The vocabularies of Claude, Gemini, Llama and Mistral are not to be had offline: callers of those get the estimate.
_FAMILIES = {
    "cl100k": "cl100k_base",
    "gpt-3.5": "cl100k_base",
    "gpt-4": "cl100k_base",
    "o200k": "o200k_base",
    "gpt-4o": "o200k_base",
    "chatgpt-4o": "o200k_base",
    "gpt-4.1": "o200k_base",
    "gpt-5": "o200k_base",
    "o1": "o200k_base",
    "o3": "o200k_base",
    "o4": "o200k_base",
}

_IDENTITY = "id"
_DESCRIBING = ("description", "abstract", "articleBody", "text")  # the first that records have says what they are

SUMMARY_CHARACTERS = 100
_SHORT_CHARACTERS = 120  # a text up to here is not worth a summary
_SENTENCES = re.compile(rf".{{0,{SUMMARY_CHARACTERS - 1}}}(?:[.!?](?=\s)|[。！？])", re.DOTALL)
_WORDS = re.compile(rf".{{{SUMMARY_CHARACTERS // 2},{SUMMARY_CHARACTERS}}}(?=\s)", re.DOTALL)

_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A way to count. The first count loads the vocabulary; the time grows evenly with a text, whatever it says."""

    name: str  # as callers say it, one of SUPPORTED
    rate: float  # tokens of the common unit for one of its own

    def count(self, text: str) -> int:
        """The text in tokens of its own."""
        return _vocabulary(self.name).count(text)

    def count_within(self, text: str, limit: int) -> int | None:
        """The same, or None as soon as there are more than the limit: what is far too long costs no more than it."""
        return _vocabulary(self.name).count_till_limit(text, max(limit, 0))


@cache
def _vocabulary(name: str) -> Any:
    # Takes 50 to 200 ms and 30 to 60 MB: only for those who ask for it, and once.
    return getattr(importlib.import_module("rs_bpe.bpe").openai, name)()


def tokenizer(*names: str) -> Tokenizer | None:
    """The first of these that can be counted with, be it a vocabulary or a model like openai/gpt-4o; None: estimate."""
    found = next(filter(None, map(_bundled, names)), None)
    return Tokenizer(found, _RATES[found]) if found else None


def _bundled(name: str) -> str | None:
    said = name.strip().lower().rpartition("/")[2]
    if said in _RATES:
        return said
    return next((each for family, each in _FAMILIES.items() if said == family or said.startswith(f"{family}-")), None)


@dataclass(frozen=True, slots=True)
class Cost:
    """What some records cost."""

    tokens: int  # of the common unit
    own: int | None = None  # of the tokenizer, if one ran
    tokenizer: str = ""  # the one that ran; empty for the estimate


def total(first: Cost, second: Cost) -> Cost:
    """Return what two parts of an answer cost together. They have a tokenizer only if the same one counted both."""
    tokens = first.tokens + second.tokens
    if first.own is None or second.own is None or first.tokenizer != second.tokenizer:
        return Cost(tokens)
    return Cost(tokens, first.own + second.own, first.tokenizer)


def cost(encoded: bytes, counter: Tokenizer | None) -> Cost:
    """Of the compact UTF-8 JSON of the records, in whichever form they travel. What is very long is estimated."""
    if counter is None or len(encoded) > MAX_COUNTED:
        return estimate(len(encoded))
    return _charged(counter.count(encoded.decode()), counter)


def estimate(size: int) -> Cost:
    """Of so many bytes of compact JSON."""
    return Cost(math.ceil(size / BYTES_PER_TOKEN))


def _charged(own: int, counter: Tokenizer) -> Cost:
    # 100 tokens at 1.1 are 110, not the 111 that the error of a float would make of them.
    return Cost(math.ceil(round(own * counter.rate, 6)), own, counter.name)


def _cost_within(encoded: bytes, budget: int, counter: Tokenizer | None) -> Cost | None:
    """The cost, unless it is over the budget."""
    if counter is None:
        spent = cost(encoded, None)
    else:
        own = counter.count_within(encoded.decode(), math.ceil(budget / counter.rate))
        spent = None if own is None else _charged(own, counter)
    return spent if spent and spent.tokens <= budget else None


@dataclass(frozen=True, slots=True)
class Trimmed:
    """Records that fit, and what was left out: nothing is that does not stand here."""

    records: list[Record]
    cost: Cost
    dropped_fields: tuple[str, ...] = ()  # of all records, the dearest first
    summarized_fields: tuple[str, ...] = ()  # some of whose texts are only a beginning
    dropped_records: int = 0  # from the end

    @property
    def is_whole(self) -> bool:
        return not (self.dropped_fields or self.summarized_fields or self.dropped_records)


Measure: TypeAlias = Callable[[Trimmed], Cost | None]  # what trimmed records cost; None if that is too much


def trim(
    records: Sequence[Mapping[str, Any]],
    budget: int,
    counter: Tokenizer | None,
    keep: Collection[str] = (),
    last: Collection[str] = (),
) -> Trimmed:
    """Leave out only as much as needed: long texts become summaries, then fields go, then records (NWP 13.3).

    A record keeps its id, its title and the fields to `keep`. Fields that were asked for go `last`, when only one
    record is left: fewer records with their values serve a caller better than more without. Apart from summaries,
    values are never cut.
    """
    whole = [dict(record) for record in records]
    encoded = _encoder.encode(whole)
    # With a small budget a count ends early, however long the records are.
    counter = counter if min(len(encoded), budget * BYTES_PER_TOKEN) <= MAX_COUNTED else None
    if spent := _cost_within(encoded, budget, counter):
        return Trimmed(whole, spent)
    plan = _plan(whole, {*keep, *identifying_fields(whole)}, last)
    trimmed = _first_that_fits(
        plan,
        plan.place_of(_room(encoded, budget, counter), len(encoded)),
        lambda trimmed: _cost_within(_encoder.encode(trimmed.records), budget, counter),
    )
    if trimmed is None:
        needed = cost(_encoder.encode(plan.shaped(plan.forms[-1])), counter).tokens
        raise BudgetExceeded(
            f"The smallest answer takes {needed} tokens; the budget is {budget}",
            budget=budget,
            needed=needed,
            hint=f"Ask for fewer fields, or allow {needed} tokens.",
        )
    return trimmed


def trim_to(
    records: Sequence[Mapping[str, Any]], measure: Measure, room: int, keep: Collection[str], last: Collection[str]
) -> Trimmed | None:
    """Trim records to about `room` bytes, in the order of `trim`, until the measure accepts them.

    Only the fields to `keep` are safe, whether or not they identify a record. Return None if that is still too much.
    """
    whole = [dict(record) for record in records]
    plan = _plan(whole, keep, last)
    guess = plan.place_of(room, len(_encoder.encode(whole)))
    return plan.attempt(plan.forms[0], measure) or _first_that_fits(plan, guess, measure)


def identifying_fields(records: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Return the id and the title of records; the first field of one that has neither, as a row of numbers may."""
    return frozenset(field for record in records for field in _known_by(record))


@dataclass(frozen=True, slots=True)
class _Form:
    """One way to show records smaller than they are: how much goes of what a plan lists."""

    texts: int = 0
    fields: int = 0
    records: int = 0


@dataclass(frozen=True, slots=True)
class _Plan:
    """What may go, and the forms that make of it, each smaller than the one before. The first leaves all as it is."""

    records: list[Record]
    texts: tuple[str, ...]  # fields to summarize, in this order
    shorter: Sequence[int]  # bytes that the summaries of each save in all records
    spare: tuple[str, ...]  # fields that may go, in this order
    weights: Mapping[str, int]  # bytes of each field in all records, with summaries for long texts
    forms: tuple[_Form, ...]

    def shaped(self, form: _Form) -> list[Record]:
        """The records in this form."""
        gone, short = frozenset(self.spare[: form.fields]), self.texts[: form.texts]
        kept = self.records[: len(self.records) - form.records]
        shown = [{field: value for field, value in record.items() if field not in gone} for record in kept]
        return [_summarized(record, short) for record in shown] if short else shown

    def attempt(self, form: _Form, measure: Measure) -> Trimmed | None:
        """The records in this form, if that fits."""
        shown = self.shaped(form)
        gone, kept = self.spare[: form.fields], self.records[: len(shown)]
        short = (field for field in self.texts[: form.texts] if field not in gone)
        summarized = tuple(field for field in short if any(is_long(record.get(field)) for record in kept))
        trimmed = Trimmed(shown, Cost(0), gone, summarized, form.records)
        spent = measure(trimmed)
        return None if spent is None else replace(trimmed, cost=spent)

    def place_of(self, room: float, size: int) -> int:
        """About where the forms begin that take so many bytes. `size` is that of the first."""
        fields = list(accumulate((self.weights[field] for field in self.spare), initial=0))
        texts = list(accumulate(self.shorter, initial=0))

        def saving(form: _Form) -> float:
            left = size - fields[form.fields] - texts[form.texts]
            return size - left * (1 - form.records / max(1, len(self.records)))

        return bisect_left(self.forms, size - room, key=saving)


def _first_that_fits(plan: _Plan, guess: int, measure: Measure) -> Trimmed | None:
    """The first form that fits where the one before it does not, looked for in growing strides around a guess."""
    too_large, fits = 0, len(plan.forms) - 1
    best = plan.attempt(plan.forms[fits], measure)
    probe, stride = min(max(guess, 1), fits - 1), 1
    while best and fits - too_large > 1:
        if not too_large < probe < fits:
            probe = (too_large + fits) // 2
        if found := plan.attempt(plan.forms[probe], measure):
            best, fits, probe = found, probe, probe - stride
        else:
            too_large, probe = probe, probe + stride
        stride *= 2
    return best


def _room(encoded: bytes, budget: int, counter: Tokenizer | None) -> float:
    """About how many bytes the budget pays for, judged by the first of them."""
    if counter is None or budget <= 0:
        return max(0, budget) * BYTES_PER_TOKEN
    sample = encoded[: 2 * BYTES_PER_TOKEN * budget]
    return budget * len(sample) / max(1, counter.rate * counter.count(sample.decode(errors="ignore")))


def _plan(records: list[Record], known: Collection[str], last: Collection[str]) -> _Plan:
    long = dict.fromkeys(field for record in records for field, value in record.items() if is_long(value))
    weights = _weights(records)
    short = _weights([_summarized(record, long) for record in records])
    texts = sorted((field for field in long if field not in known), key=lambda field: short[field] - weights[field])
    described = next((field for field in _DESCRIBING if field in weights), "")
    free = (field for field in weights if field not in known)
    spare = sorted(free, key=lambda field: (field in last, field == described, -short[field]))
    unasked = sum(field not in last for field in spare)
    shorter = [weights[field] - short[field] for field in texts]
    forms = _forms(len(texts), unasked, len(spare), len(records))
    return _Plan(records, tuple(texts), shorter, tuple(spare), short, forms)


def _forms(texts: int, unasked: int, fields: int, records: int) -> tuple[_Form, ...]:
    fewest = max(records - 1, 0)
    return (
        *(_Form(count) for count in range(texts + 1)),
        *(_Form(texts, count) for count in range(1, unasked + 1)),
        *(_Form(texts, unasked, count) for count in range(1, fewest + 1)),
        *(_Form(texts, count, fewest) for count in range(unasked + 1, fields + 1)),
    )


def _weights(records: Sequence[Record]) -> Counter[str]:
    """The bytes of each field in all records, with its name."""
    weights: Counter[str] = Counter()
    for record in records:
        for field, value in record.items():
            weights[field] += len(_encoder.encode({field: value})) - 1  # a comma instead of two braces
    return weights


def _known_by(record: Mapping[str, Any]) -> list[str]:
    title = next((field for field in TITLES if isinstance(said := record.get(field), str) and said.strip()), "")
    return [field for field in (_IDENTITY, title) if field in record] or list(record)[:1]


def _summarized(record: Record, fields: Collection[str]) -> Record:
    return {field: summary(value) if field in fields and is_long(value) else value for field, value in record.items()}


def is_long(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and len(value.strip()) > _SHORT_CHARACTERS


def summary(text: str) -> str:
    """The whole sentences it begins with, if they are short; else its first words."""
    text = text.strip()
    if sentences := _SENTENCES.match(text):
        return sentences[0]
    words = _WORDS.match(text)
    return (words[0] if words else text[:SUMMARY_CHARACTERS]).rstrip() + "…"
