"""Token budgets: counts tokens, and trims records to a caller's budget, reporting what was dropped.

Names of tokenizers need the extra `tokens`. Without it, and for names that are not bundled, costs are estimated.
"""

import importlib
import importlib.util
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
MAX_COUNTED = 500_000  # bytes; longer texts are estimated, since nothing else runs while a tokenizer counts

# Tokens of the common unit for one token of each bundled vocabulary.
_RATES = {"cl100k_base": 1.0, "o200k_base": 1.0}

# The vocabularies of Claude, Gemini, Llama and Mistral are not available offline: their callers get the estimate.
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
    """Counts tokens. The first count loads the vocabulary; the time is linear in the text."""

    name: str  # one of `supported_tokenizers`
    rate: float  # tokens of the common unit for one of its own

    def count(self, text: str) -> int:
        """Return the tokens of a text in this tokenizer's own unit."""
        return _vocabulary(self.name).count(text)

    def count_within(self, text: str, limit: int) -> int | None:
        """Return the tokens of a text, or None as soon as they exceed the limit, without counting the rest."""
        return _vocabulary(self.name).count_till_limit(text, max(limit, 0))


@cache
def _vocabulary(name: str) -> Any:
    # Takes 50 to 200 ms and 30 to 60 MB, so it is loaded once and only if a caller names it.
    return getattr(importlib.import_module("rs_bpe.bpe").openai, name)()


def list_tokenizers() -> tuple[str, ...]:
    """Return the names of the bundled vocabularies; empty if the extra `tokens` is not installed."""
    return tuple(_RATES) if importlib.util.find_spec("rs_bpe") else ()


def find_tokenizer(*names: str) -> Tokenizer | None:
    """Return a tokenizer for the first of these vocabularies or models, such as openai/gpt-4o, that is supported.

    Return None if the caller gets the estimate.
    """
    name = next(filter(None, map(_find_vocabulary, names)), None)
    return Tokenizer(name, _RATES[name]) if name and list_tokenizers() else None


def _find_vocabulary(name: str) -> str | None:
    model = name.strip().lower().rpartition("/")[2]
    if model in _RATES:
        return model
    families = (family for family in _FAMILIES if model == family or model.startswith(f"{family}-"))
    return next((_FAMILIES[family] for family in families), None)


@dataclass(frozen=True, slots=True)
class TokenCost:
    """The cost of some records."""

    tokens: int  # of the common unit
    own: int | None = None  # in tokens of the tokenizer, if one counted
    tokenizer: str = ""  # the one that counted; empty for the estimate


def add_costs(first: TokenCost, second: TokenCost) -> TokenCost:
    """Return the cost of two parts of an answer. It has a tokenizer only if the same one counted both."""
    tokens = first.tokens + second.tokens
    if first.own is None or second.own is None or first.tokenizer != second.tokenizer:
        return TokenCost(tokens)
    return TokenCost(tokens, first.own + second.own, first.tokenizer)


def count_cost(encoded: bytes, counter: Tokenizer | None) -> TokenCost:
    """Return the cost of records as compact UTF-8 JSON, however they are sent. Very long ones are estimated."""
    if counter is None or len(encoded) > MAX_COUNTED:
        return estimate_cost(len(encoded))
    return _to_cost(counter.count(encoded.decode()), counter)


def estimate_cost(size: int) -> TokenCost:
    """Return the estimated cost of `size` bytes of compact JSON."""
    return TokenCost(math.ceil(size / BYTES_PER_TOKEN))


def _to_cost(own: int, counter: Tokenizer) -> TokenCost:
    # 100 tokens at 1.1 are 110, not the 111 that the error of a float would make of them.
    return TokenCost(math.ceil(round(own * counter.rate, 6)), own, counter.name)


def _cost_within(encoded: bytes, budget: int, counter: Tokenizer | None) -> TokenCost | None:
    """Return the cost, or None if it exceeds the budget."""
    if counter is None:
        spent = count_cost(encoded, None)
    else:
        own = counter.count_within(encoded.decode(), math.ceil(budget / counter.rate))
        spent = None if own is None else _to_cost(own, counter)
    return spent if spent and spent.tokens <= budget else None


@dataclass(frozen=True, slots=True)
class TrimmedRecords:
    """Records that fit, and everything that was dropped from them."""

    records: list[Record]
    cost: TokenCost
    dropped_fields: tuple[str, ...] = ()  # from all records, the most expensive first
    summarized_fields: tuple[str, ...] = ()  # some of whose texts are shortened
    dropped_records: int = 0  # from the end

    @property
    def is_whole(self) -> bool:
        return not (self.dropped_fields or self.summarized_fields or self.dropped_records)


Measure: TypeAlias = Callable[[TrimmedRecords], TokenCost | None]  # the cost of trimmed records; None if it is too much


def trim(
    records: Sequence[Mapping[str, Any]],
    budget: int,
    counter: Tokenizer | None,
    keep: Collection[str] = (),
    last: Collection[str] = (),
) -> TrimmedRecords:
    """Drop only as much as needed: summarize long texts, then drop fields, then records (NWP 13.3).

    A record keeps its id, its title and the fields to `keep`. Requested fields are dropped `last`, when only one
    record remains: fewer records with their values serve a caller better than more without. Apart from summaries,
    values are never cut.
    """
    whole = [dict(record) for record in records]
    encoded = _encoder.encode(whole)
    # With a small budget counting stops early, however long the records are.
    counter = counter if min(len(encoded), budget * BYTES_PER_TOKEN) <= MAX_COUNTED else None
    if spent := _cost_within(encoded, budget, counter):
        return TrimmedRecords(whole, spent)
    plan = _make_plan(whole, {*keep, *find_identifying_fields(whole)}, last)
    trimmed = _search_form(
        plan,
        plan.position_of(_room(encoded, budget, counter), len(encoded)),
        lambda trimmed: _cost_within(_encoder.encode(trimmed.records), budget, counter),
    )
    if trimmed is None:
        needed = count_cost(_encoder.encode(plan.render(plan.forms[-1])), counter).tokens
        raise BudgetExceeded(
            f"The smallest answer takes {needed} tokens; the budget is {budget}",
            budget=budget,
            needed=needed,
            hint=f"Ask for fewer fields, or allow {needed} tokens.",
        )
    return trimmed


def trim_to(
    records: Sequence[Mapping[str, Any]], measure: Measure, room: int, keep: Collection[str], last: Collection[str]
) -> TrimmedRecords | None:
    """Trim records to about `room` bytes, in the order of `trim`, until the measure accepts them.

    Only the fields to `keep` are safe, whether or not they identify a record. Return None if that is still too much.
    """
    whole = [dict(record) for record in records]
    plan = _make_plan(whole, keep, last)
    guess = plan.position_of(room, len(_encoder.encode(whole)))
    return plan.attempt(plan.forms[0], measure) or _search_form(plan, guess, measure)


def find_identifying_fields(records: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Return the id and the title of records; the first field of one that has neither, as a row of numbers may."""
    return frozenset(field for record in records for field in _identify(record))


@dataclass(frozen=True, slots=True)
class _TrimForm:
    """How much of each of a plan's lists is dropped."""

    texts: int = 0
    fields: int = 0
    records: int = 0


@dataclass(frozen=True, slots=True)
class _Plan:
    """What may be dropped, as a sequence of forms, each smaller than the one before. The first drops nothing."""

    records: list[Record]
    texts: tuple[str, ...]  # fields to summarize, in this order
    shorter: Sequence[int]  # bytes that the summaries of each save in all records
    spare: tuple[str, ...]  # fields that may go, in this order
    weights: Mapping[str, int]  # bytes of each field in all records, with summaries for long texts
    forms: tuple[_TrimForm, ...]

    def render(self, form: _TrimForm) -> list[Record]:
        """Return the records in this form."""
        dropped, short = frozenset(self.spare[: form.fields]), self.texts[: form.texts]
        records = self.records[: len(self.records) - form.records]
        rendered = [{field: value for field, value in record.items() if field not in dropped} for record in records]
        return [_summarize_fields(record, short) for record in rendered] if short else rendered

    def attempt(self, form: _TrimForm, measure: Measure) -> TrimmedRecords | None:
        """Return the records in this form if they fit."""
        rendered = self.render(form)
        dropped, records = self.spare[: form.fields], self.records[: len(rendered)]
        short = (field for field in self.texts[: form.texts] if field not in dropped)
        summarized = tuple(field for field in short if any(is_long_text(record.get(field)) for record in records))
        trimmed = TrimmedRecords(rendered, TokenCost(0), dropped, summarized, form.records)
        spent = measure(trimmed)
        return None if spent is None else replace(trimmed, cost=spent)

    def position_of(self, room: float, size: int) -> int:
        """Estimate the first form that fits into `room` bytes. `size` is that of the whole records."""
        fields = list(accumulate((self.weights[field] for field in self.spare), initial=0))
        texts = list(accumulate(self.shorter, initial=0))

        def bytes_saved(form: _TrimForm) -> float:
            left = size - fields[form.fields] - texts[form.texts]
            return size - left * (1 - form.records / max(1, len(self.records)))

        return bisect_left(self.forms, size - room, key=bytes_saved)


def _search_form(plan: _Plan, guess: int, measure: Measure) -> TrimmedRecords | None:
    """Find a form that fits while the one before it does not, in growing strides around a guess."""
    too_large, fits = 0, len(plan.forms) - 1
    best = plan.attempt(plan.forms[fits], measure)
    probe, stride = min(max(guess, 1), fits - 1), 1
    while best and fits - too_large > 1:
        if not too_large < probe < fits:
            probe = (too_large + fits) // 2
        if attempt := plan.attempt(plan.forms[probe], measure):
            best, fits, probe = attempt, probe, probe - stride
        else:
            too_large, probe = probe, probe + stride
        stride *= 2
    return best


def _room(encoded: bytes, budget: int, counter: Tokenizer | None) -> float:
    """Estimate how many bytes the budget pays for, from a sample of the beginning."""
    if counter is None or budget <= 0:
        return max(0, budget) * BYTES_PER_TOKEN
    sample = encoded[: 2 * BYTES_PER_TOKEN * budget]
    return budget * len(sample) / max(1, counter.rate * counter.count(sample.decode(errors="ignore")))


def _make_plan(records: list[Record], kept_fields: Collection[str], last: Collection[str]) -> _Plan:
    long = dict.fromkeys(field for record in records for field, value in record.items() if is_long_text(value))
    weights = _weights(records)
    short = _weights([_summarize_fields(record, long) for record in records])
    texts = sorted(
        (field for field in long if field not in kept_fields), key=lambda field: short[field] - weights[field]
    )
    described = next((field for field in _DESCRIBING if field in weights), "")
    free = (field for field in weights if field not in kept_fields)
    spare = sorted(free, key=lambda field: (field in last, field == described, -short[field]))
    unasked = sum(field not in last for field in spare)
    shorter = [weights[field] - short[field] for field in texts]
    forms = _forms(len(texts), unasked, len(spare), len(records))
    return _Plan(records, tuple(texts), shorter, tuple(spare), short, forms)


def _forms(texts: int, unasked: int, fields: int, records: int) -> tuple[_TrimForm, ...]:
    fewest = max(records - 1, 0)
    return (
        *(_TrimForm(count) for count in range(texts + 1)),
        *(_TrimForm(texts, count) for count in range(1, unasked + 1)),
        *(_TrimForm(texts, unasked, count) for count in range(1, fewest + 1)),
        *(_TrimForm(texts, count, fewest) for count in range(unasked + 1, fields + 1)),
    )


def _weights(records: Sequence[Record]) -> Counter[str]:
    """Return the bytes of each field, with its name, in all records."""
    weights: Counter[str] = Counter()
    for record in records:
        for field, value in record.items():
            weights[field] += len(_encoder.encode({field: value})) - 1  # a comma instead of two braces
    return weights


def _identify(record: Mapping[str, Any]) -> list[str]:
    titles = (field for field in TITLES if isinstance(text := record.get(field), str) and text.strip())
    title = next(titles, "")
    return [field for field in (_IDENTITY, title) if field in record] or list(record)[:1]


def _summarize_fields(record: Record, fields: Collection[str]) -> Record:
    return {
        field: summary(value) if field in fields and is_long_text(value) else value for field, value in record.items()
    }


def is_long_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and len(value.strip()) > _SHORT_CHARACTERS


def summary(text: str) -> str:
    """Return the first whole sentences of a text if they are short; otherwise its first words."""
    text = text.strip()
    if sentences := _SENTENCES.match(text):
        return sentences[0]
    words = _WORDS.match(text)
    return (words[0] if words else text[:SUMMARY_CHARACTERS]).rstrip() + "…"
