"""Reads the constraints in the words of a question: how much, when, in which order, without what, where, by whom.

Knows words and no catalog: whether there is a price to compare or a place of that name, the caller decides. Each
finding has the span of its words, so that they can be cut out of the text. What has a form of its own (quantities,
dates, orders, flags) is read first; what takes the words that follow (exclusions, places, makers) reads up to it.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import islice
from typing import TypeAlias

from portico.ask.languages.lexicon import (
    ADJECTIVAL,
    CONNECTORS,
    HAVING,
    HOUR,
    METRE,
    MINUTE,
    NOT_FREE_OF,
    NOT_FREI,
    NUMBER,
    PEOPLE,
    SEATED,
    SECOND,
    SYMBOLS,
    VAGUE,
    Lexicon,
    Op,
    Unit,
)
from portico.ask.languages.loader import load_language, supported_language
from portico.ask.understanding.dates import Calendar
from portico.ask.understanding.numbers import parse_number
from portico.search.index.text import fold

MAX_TOKENS = 400  # of a question; the rest is not read
MAX_FINDINGS = 32
MAX_DIGITS = 15
MAX_NAME_WORDS = 4  # words that may be the name of a place or a person
MAX_EXCLUDED_WORDS = 3  # words that may be one thing to leave out
ABOUT_TOLERANCE = 0.2  # how far "about 20" reaches to either side


@dataclass(frozen=True, slots=True)
class Quantity:
    """A comparison with a number.

    Kinds: price (the unit is the currency, if said), duration (in seconds, "s"), distance (in metres, "m"), rating,
    count (of the noun, in its unit), number (neither unit nor noun). Common nouns are given in English and in the
    plural, whatever the language. "For six people" is at least six: a table or a recipe for eight serves them too. A
    rating without a comparison is at least that rating, "30-minute meals" take no longer, and a price without one is
    that price.
    """

    kind: str
    op: Op
    value: float
    upper: float | None
    unit: str
    noun: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class DateRange:
    """A half-open interval of UTC; None is open."""

    start_at: datetime | None
    end_at: datetime | None
    words: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SortOrder:
    """An order by a role (price, duration, rating, date, distance) or by the noun that was said."""

    role: str
    descending: bool
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Exclusion:
    """One thing to leave out. Free: said as "nut-free", which items may say of themselves in the same words."""

    words: str
    start: int
    end: int
    free: bool = False


@dataclass(frozen=True, slots=True)
class NearPlace:
    """Close to a place; without words, close to the caller."""

    words: str
    start: int
    end: int
    metres: float | None = None


@dataclass(frozen=True, slots=True)
class PlaceMention:
    """Words that may name a place, perhaps with others behind the name."""

    words: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Flag:
    """One of: free, available, open, accessible, children."""

    name: str
    value: bool
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class MakerMention:
    """Words that may name a maker: an author, a brand."""

    words: str
    start: int
    end: int


Finding: TypeAlias = Quantity | DateRange | SortOrder | Exclusion | NearPlace | PlaceMention | Flag | MakerMention


@dataclass(frozen=True, slots=True)
class Token:
    """A word, a number or a mark. Joined: only a hyphen stands between it and the one before."""

    text: str
    start: int
    end: int
    joined: bool = False
    value: float | None = None


@dataclass(frozen=True, slots=True)
class TokenLine:
    """A question, cut into tokens. Taken: those that a reading has already used."""

    text: str
    tokens: tuple[Token, ...]
    texts: tuple[str, ...]
    words: Lexicon
    calendar: Calendar
    whole: bool = False
    used: frozenset[int] = frozenset()

    def span(self, at: int, upto: int) -> tuple[int, int]:
        return self.tokens[at].start, self.tokens[upto - 1].end

    def source(self, at: int, upto: int) -> str:
        start, end = self.span(at, upto)
        return self.text[start:end]

    def text_at(self, at: int) -> str:
        return self.texts[at] if 0 <= at < len(self.texts) else ""


@dataclass(frozen=True, slots=True)
class FindingSpan:
    """A finding and its tokens. An idiom takes tokens and is no finding."""

    finding: Finding | None
    at: int
    upto: int


_LETTERS = r"(?:[^\W\d_]|[\u0300-\u036f])+"
_TOKEN = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?![0-9])"
    r"|[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{4}(?![0-9])|[0-9]{1,2}/[0-9]{1,2}/[0-9]{4}(?![0-9])"
    r"|[0-9]+(?:[.,][0-9]+)*"
    rf"|(?:[ldjnsmtc]|qu|jusqu)['’](?=[^\W\d_])|{_LETTERS}(?:['’]{_LETTERS})*"
    r"|<=|>=|\.\.+|[^\w\s]",
    re.IGNORECASE,
)

_NUMERIC = frozenset("0123456789.,")
_FREI = re.compile(r"(\w{3,40}?)frei(?:e[nmrs]?)?", re.IGNORECASE)


def parse_question(text: str, today: date, language: str = "en") -> tuple[Finding, ...]:
    """Return what a question asks for, beside the words to search: in order of position, none over another."""
    return _parse(_line(text, today, supported_language(language), whole=False))


def parse_value(text: str, today: date, language: str = "en") -> tuple[Finding, ...]:
    """Return the same for the value of an attribute, where a number or a month alone says something: it equals."""
    return _parse(_line(text, today, supported_language(language), whole=True))


def _parse(line: TokenLine) -> tuple[Finding, ...]:
    closed = {span.at: span for span in _parse_closed(line)}
    used = frozenset(at for span in closed.values() for at in range(span.at, span.upto))
    findings = (span.finding for span in _all(replace(line, used=used), closed) if span.finding)
    return tuple(islice(findings, MAX_FINDINGS))


def _line(text: str, today: date, language: str, whole: bool) -> TokenLine:
    words = load_language(language).lexicon
    tokens = tuple(_with_numbers(_cut(text), words))
    texts = tuple(token.text for token in tokens)
    calendar = Calendar(tuple(map(_numeral, tokens)), today, load_language(language).date_words, whole)
    return TokenLine(text, tokens, texts, words, calendar, whole)


def _numeral(token: Token) -> str:
    spelled = token.value is not None and token.value.is_integer() and not token.text[0].isdigit()
    return str(int(token.value)) if spelled and token.value else token.text


def _cut(text: str) -> list[Token]:
    raw = [
        Token(word, *match.span())
        for match in islice(_TOKEN.finditer(text), MAX_TOKENS)
        if (word := fold(match[0]).replace("’", "'"))
    ]
    tokens: list[Token] = []
    joined = False
    for place, token in enumerate(raw):
        if _is_hyphen(raw, place):
            joined = True
            continue
        tokens.append(replace(token, joined=joined) if joined else token)
        joined = False
    return tokens


def _is_hyphen(tokens: list[Token], place: int) -> bool:
    """Return whether a dash touches the text on both sides, a word among them."""
    token = tokens[place]
    if token.text not in {"-", "‐", "‑"} or not 0 < place < len(tokens) - 1:
        return False
    before, after = tokens[place - 1], tokens[place + 1]
    touches = before.end == token.start and token.end == after.start
    return touches and (before.text[-1:].isalpha() or after.text[:1].isalpha())


def _with_numbers(tokens: list[Token], words: Lexicon) -> Iterator[Token]:
    """Yield the same with the values of numbers; a number of several words becomes one token."""
    texts = [token.text for token in tokens]
    at = 0
    while at < len(tokens):
        value, upto = words.numbers.match(texts, at) or _digits(tokens, at, words.decimal)
        token = tokens[at]
        yield Token(" ".join(texts[at:upto]), token.start, tokens[upto - 1].end, token.joined, value)
        at = upto


def _digits(tokens: list[Token], at: int, decimal: str) -> tuple[float | None, int]:
    """Parse digits: 20, or 20k for twenty thousand."""
    value = _number(tokens[at].text, decimal)
    following = tokens[at + 1] if at + 1 < len(tokens) else None
    if value is None or following is None or following.text != "k" or following.start != tokens[at].end:
        return value, at + 1
    return value * 1000, at + 2


def _number(text: str, decimal: str) -> float | None:
    if len(text) > MAX_DIGITS or not text[0].isdigit() or not set(text) <= _NUMERIC:
        return None
    value = parse_number(text, decimal)
    return None if value is None else float(value)


def _parse_closed(line: TokenLine) -> Iterator[FindingSpan]:
    """Return everything with a form of its own: at each position the longest, and of equals the first."""
    at = 0
    while at < len(line.tokens):
        spans = [span for reader in CLOSED if (span := reader(line, at))]
        best = max(spans, key=lambda span: span.upto, default=None)
        if best:
            yield best
        at = best.upto if best else at + 1


def _all(line: TokenLine, closed: dict[int, FindingSpan]) -> Iterator[FindingSpan]:
    """Yield the closed ones, and between them those that take the words behind them."""
    at = 0
    while at < len(line.tokens):
        spans = [_at_distance(line, closed[at])] if at in closed else _parse_open(line, at)
        yield from spans
        at = spans[-1].upto if spans else at + 1


def _parse_open(line: TokenLine, at: int) -> list[FindingSpan]:
    for reader in OPEN:
        if spans := reader(line, at):
            return spans
    return []


def _idiom(line: TokenLine, at: int) -> FindingSpan | None:
    match = line.words.idioms.match(line.texts, at)
    return FindingSpan(None, at, match[1]) if match else None


def _when(line: TokenLine, at: int) -> FindingSpan | None:
    parsed = line.calendar.read(at)
    if not parsed or (parsed.upto == at + 1 and _is_part_of_name(line, at)):
        return None
    return FindingSpan(
        DateRange(*parsed.interval, line.source(at, parsed.upto), *line.span(at, parsed.upto)), at, parsed.upto
    )


def _is_part_of_name(line: TokenLine, at: int) -> bool:
    """Return whether a date is part of a name: a Pancake Tuesday is not any Tuesday."""
    if at == 0 or line.words.capital_nouns or line.texts[at - 1] in line.words.stopwords:
        return False
    return line.source(at - 1, at)[0].isupper() and line.source(at, at + 1)[0].isupper()


def _flag(line: TokenLine, at: int) -> FindingSpan | None:
    negated = line.words.negations.match(line.texts, at)
    flag = line.words.flags.match(line.texts, negated[1] if negated else at)
    if not flag or line.tokens[at].joined:
        return None
    return FindingSpan(Flag(flag[0], negated is None, *line.span(at, flag[1])), at, flag[1])


def _sort(line: TokenLine, at: int) -> FindingSpan | None:
    match = line.words.sorts.match(line.texts, at)
    if not match:
        return _extreme(line, at)
    order, upto = match
    # "Next" orders what it stands before; alone it is talk.
    if order is None or (line.source(at, upto).lower() == "next" and not _is_plain(line, upto)):
        return None
    return FindingSpan(SortOrder(*order, *line.span(at, upto)), at, upto)


def _extreme(line: TokenLine, at: int) -> FindingSpan | None:
    """Return the most or the least of a noun."""
    extreme = line.words.extremes.match(line.texts, at)
    if not extreme:
        return None
    descending, begin = extreme
    unit = line.words.units.match(line.texts, begin)
    if unit:
        return FindingSpan(SortOrder(unit[0].noun or unit[0].kind, descending, *line.span(at, unit[1])), at, unit[1])
    before = at - 2 if line.text_at(at - 1) == "the" else at - 1
    if not _is_plain(line, begin) or (line.texts[at] in VAGUE and line.text_at(before) not in HAVING):
        return None
    return FindingSpan(
        SortOrder(line.source(begin, begin + 1).lower(), descending, *line.span(at, begin + 1)), at, begin + 1
    )


def _free_of(line: TokenLine, at: int) -> FindingSpan | None:
    """Parse nut-free, dairy free, free of gluten, glutenfrei."""
    text = line.texts[at]
    if line.words.says_frei:
        return _frei(line, at)
    if text == "free" and line.text_at(at + 1) in {"of", "from"} and not line.words.flags.match(line.texts, at + 1):
        return _free_from(line, at)
    if line.text_at(at + 1) != "free" or text in NOT_FREE_OF or not text[0].isalpha():
        return None
    if not line.tokens[at + 1].joined and text not in line.words.free_of:
        return None
    return FindingSpan(Exclusion(line.source(at, at + 1), *line.span(at, at + 2), free=True), at, at + 2)


def _frei(line: TokenLine, at: int) -> FindingSpan | None:
    text = line.source(at, at + 1)
    match = _FREI.fullmatch(text)
    if not match or fold(match[1]) in NOT_FREI:
        return None
    return FindingSpan(Exclusion(match[1], *line.span(at, at + 1), free=True), at, at + 1)


def _free_from(line: TokenLine, at: int) -> FindingSpan | None:
    words = _words(line, at + 2, 1)
    if not words or line.texts[words[0]] in {"charge", "cost"}:
        return None
    return FindingSpan(Exclusion(line.source(*words), *line.span(at, words[1]), free=True), at, words[1])


@dataclass(frozen=True, slots=True)
class Measure:
    """A number and its unit, with the comparison that is said behind it, if any."""

    number: float
    unit: Unit
    op: Op | None
    upto: int
    is_adjective: bool = False

    @property
    def value(self) -> float:
        return round(self.number * self.unit.factor, 6)


def _quantity(line: TokenLine, at: int) -> FindingSpan | None:
    spans = [
        span
        for hint, begin in _beginnings(line, at)
        for reader in (_range, _comparison, _bare)
        if (span := reader(line, at, begin, hint))
    ]
    return max(spans, key=lambda span: span.upto, default=None)


def _beginnings(line: TokenLine, at: int) -> Iterator[tuple[str, int]]:
    if line.tokens[at].joined:
        return
    yield "", at
    lead = line.words.leads.match(line.texts, at)
    if lead:
        yield lead


def _range(line: TokenLine, at: int, begin: int, hint: str) -> FindingSpan | None:
    between = line.words.between.match(line.texts, begin)
    opener = between or line.words.range_openers.match(line.texts, begin)
    low = _measure(line, opener[1] if opener else begin)
    joined = line.words.to.match(line.texts, low.upto) if low and not low.op else None
    high = _measure(line, joined[1]) if joined else None
    if not low or not high or not joined:
        return None
    low, high = _alike(_with_hint(low, hint), _with_hint(high, hint))
    if low.unit.kind != high.unit.kind or low.value > high.value:
        return None
    dotted = line.texts[joined[1] - 1].startswith("..")
    noun, upto = _noun(line, high) if between or dotted else (high.unit.noun, high.upto)
    vague = high.unit is NUMBER and not between and not dotted
    if vague and not _covers(line, at, upto):
        return None
    return _quantity_span(line, at, upto, high.unit, noun, "between", low.value, high.value)


def _alike(low: Measure, high: Measure) -> tuple[Measure, Measure]:
    """Return both measures in the unit that only one of them names."""
    if low.unit is NUMBER:
        return replace(low, unit=high.unit), high
    return low, replace(high, unit=low.unit) if high.unit is NUMBER else high


def _comparison(line: TokenLine, at: int, begin: int, hint: str) -> FindingSpan | None:
    comparison = line.words.comparisons.match(line.texts, begin)
    measure = _measure(line, comparison[1]) if comparison else None
    if not comparison or not measure:
        return None
    comparison_type = comparison[0]
    measure = _with_hint(measure, comparison_type.hint or hint)
    if comparison_type.kinds == SEATED and measure.unit is NUMBER:
        return _seats(line, at, measure)
    if comparison_type.kinds and not comparison_type.kinds & {measure.unit.kind, measure.unit.noun}:
        return None
    noun, upto = _noun(line, measure)
    if comparison_type.op == "about":
        low, high = (round(measure.value * (1 + reach), 6) for reach in (-ABOUT_TOLERANCE, ABOUT_TOLERANCE))
        return _quantity_span(line, at, upto, measure.unit, noun, "between", low, high)
    return _quantity_span(line, at, upto, measure.unit, noun, comparison_type.op, measure.value)


def _seats(line: TokenLine, at: int, measure: Measure) -> FindingSpan | None:
    """Parse the number of people: dinner for two."""
    if measure.op or measure.number > 12 or not measure.number.is_integer() or _is_plain(line, measure.upto):
        return None
    if at and line.tokens[at - 1].value is not None:  # two for one
        return None
    return _quantity_span(line, at, measure.upto, PEOPLE, PEOPLE.noun, "gte", measure.number)


def _bare(line: TokenLine, at: int, begin: int, hint: str) -> FindingSpan | None:
    """Return a measure without a comparing word before it."""
    measure = _measure(line, begin)
    if not measure:
        return None
    measure = _with_hint(measure, hint)
    noun, upto = _noun(line, measure) if measure.op or line.whole else (measure.unit.noun, measure.upto)
    op = measure.op or _default_operator(line, begin, measure, covers=_covers(line, at, upto))
    return _quantity_span(line, at, upto, measure.unit, noun, op, measure.value) if op else None


def _default_operator(line: TokenLine, begin: int, measure: Measure, covers: bool) -> Op | None:
    match measure.unit.kind:
        case "rating" if not covers:
            return "gte"
        case "duration" if measure.is_adjective and not covers:
            return "lte"
        # A pound may be a weight; its sign is money.
        case "price" if not measure.unit.symbol or SYMBOLS & set(line.texts[begin : measure.upto]):
            return "eq"
        case _:
            return "eq" if covers else None


def _covers(line: TokenLine, at: int, upto: int) -> bool:
    return line.whole and at == 0 and upto == len(line.tokens)


def _quantity_span(
    line: TokenLine, at: int, upto: int, unit: Unit, noun: str, op: Op, value: float, upper: float | None = None
) -> FindingSpan:
    kind = "count" if unit is NUMBER and noun else unit.kind
    return FindingSpan(Quantity(kind, op, value, upper, unit.symbol, noun, *line.span(at, upto)), at, upto)


def _with_hint(measure: Measure, hint: str) -> Measure:
    return replace(measure, unit=Unit(hint)) if hint and measure.unit is NUMBER else measure


def _measure(line: TokenLine, at: int) -> Measure | None:
    words = line.words
    before = words.units.match(line.texts, at)
    money = before if before and before[0].kind == "price" else None
    amount = _amount(line, money[1] if money else at)
    if not amount:
        return None
    number, place = amount
    op, upto = words.afterwards.match(line.texts, place) or (None, place)
    unit, upto = _unit(line, money, upto)
    # "A" is a number before a unit in words, and nowhere else.
    if line.tokens[place - 1].value is None and (money or unit is NUMBER or line.text_at(place) in SYMBOLS):
        return None
    measure = _with_rest(line, Measure(number, unit, op, upto, _is_adjective(line, place, number)))
    op, upto = words.afterwards.match(line.texts, measure.upto) or (op, measure.upto)
    return replace(measure, op=op, upto=upto)


def _amount(line: TokenLine, at: int) -> tuple[float, int] | None:
    if at >= len(line.tokens):
        return None
    value = line.tokens[at].value
    if value is None:
        return line.words.one_of.match(line.texts, at)
    half = line.words.and_a_half.match(line.texts, at + 1)
    return (value + 0.5, half[1]) if half else (value, at + 1)


def _unit(line: TokenLine, money: tuple[Unit, int] | None, at: int) -> tuple[Unit, int]:
    unit = line.words.units.match(line.texts, at)
    if money:
        return money[0], unit[1] if unit and unit[0].kind == "price" else at
    return unit or (NUMBER, at)


def _is_adjective(line: TokenLine, at: int, number: float) -> bool:
    """Return whether a measure is an adjective: 30-minute meals, 30 minute meals."""
    if at >= len(line.tokens):
        return False
    singular = line.texts[at] in ADJECTIVAL and number != 1 and _is_plain(line, at + 1)
    return singular or line.tokens[at].joined


def _with_rest(line: TokenLine, measure: Measure) -> Measure:
    """Return an hour and a half, 1 hour 30 minutes, 1h30."""
    if measure.unit.kind != "duration":
        return measure
    half = line.words.and_a_half.match(line.texts, measure.upto)
    if half:
        return replace(measure, number=measure.number + 0.5, upto=half[1])
    at = line.words.number_joiners.skip(line.texts, measure.upto)
    value = line.tokens[at].value if at < len(line.tokens) else None
    if value is None or value >= 60:
        return measure
    unit, upto = line.words.units.match(line.texts, at + 1) or (NUMBER, at + 1)
    if measure.unit is HOUR and (
        unit is METRE or (unit is NUMBER and line.tokens[at].start == line.tokens[at - 1].end)
    ):
        unit = MINUTE
    if unit.kind != "duration" or unit.factor >= measure.unit.factor:
        return measure
    return replace(measure, number=measure.value + value * unit.factor, unit=SECOND, upto=upto)


def _noun(line: TokenLine, measure: Measure) -> tuple[str, int]:
    """Return what is counted, and the position behind it."""
    unit, upto = measure.unit, measure.upto
    if unit.noun or unit.kind not in {"number", "count"}:
        return unit.noun, upto
    at = line.words.of.skip(line.texts, upto) if unit is not NUMBER else upto
    if not _is_plain(line, at) or not line.texts[at][0].isalpha() or line.tokens[at].value is not None:
        return "", upto
    if any(reader(line, at) for reader in (_idiom, _when, _flag, _sort, _free_of)):
        return "", upto
    return line.source(at, at + 1).lower(), at + 1


def _words(line: TokenLine, at: int, most: int) -> tuple[int, int] | None:
    """Return the words that follow, without articles before them and connecting words behind."""
    begin = line.words.articles.skip(line.texts, line.words.articles.skip(line.texts, at))
    upto, count = begin, 0
    while count < most and _continues(line, begin, upto):
        count += line.texts[upto] != "."  # an initial is one word with its full stop
        upto += 1
    while upto > begin and not _is_plain(line, upto - 1):
        upto -= 1
    return (begin, upto) if upto > begin and line.texts[begin][0].isalpha() else None


def _continues(line: TokenLine, begin: int, at: int) -> bool:
    if _is_plain(line, at):
        return True
    if at == begin or at in line.used or at + 1 >= len(line.tokens):
        return False
    following = line.source(at + 1, at + 2)
    is_initial = line.texts[at] == "." and len(line.texts[at - 1]) == 1
    return (line.texts[at] in CONNECTORS or is_initial) and following[0].isupper() and _is_plain(line, at + 1)


def _is_plain(line: TokenLine, at: int) -> bool:
    """Return whether a word stands for itself: unused, no function word, and not the beginning of a finding."""
    if at >= len(line.tokens) or at in line.used:
        return False
    text, words = line.texts[at], line.words
    if not text[0].isalnum() or text in words.stopwords:
        return False
    return not any(table.match(line.texts, at) for table in (words.exclusions, words.listing, words.near, words.makers))


def _without(line: TokenLine, at: int) -> list[FindingSpan]:
    trigger = line.words.exclusions.match(line.texts, at)
    if not trigger or (trigger[0] == "loose" and not _excludes(line, at)):
        return []
    words = _words(line, trigger[1], MAX_EXCLUDED_WORDS if trigger[0] == "firm" else MAX_EXCLUDED_WORDS - 1)
    return [_exclusion(line, at, words), *_exclusion_list(line, words[1])] if words else []


def _exclusion(line: TokenLine, at: int, words: tuple[int, int]) -> FindingSpan:
    return FindingSpan(Exclusion(line.source(*words), *line.span(at, words[1])), at, words[1])


def _exclusion_list(line: TokenLine, at: int) -> list[FindingSpan]:
    """Return the other things of a list.

    After a comma something else may begin, unless an "or" follows that ends the list.
    """
    spans: list[FindingSpan] = []
    last = 0
    while separator := line.words.listing.match(line.texts, at):
        words = _words(line, separator[1], MAX_EXCLUDED_WORDS - 1)
        if not words:
            break
        spans.append(_exclusion(line, at, words))
        at = words[1]
        last = len(spans) if separator[0] == "last" else last
    return spans[:last]


def _excludes(line: TokenLine, at: int) -> bool:
    """Return whether a "no" or "not" excludes something, and does not belong to a verb or a question of facts."""
    question_opening = line.words.question_openings.match(line.texts, 0)
    before = line.text_at(at - 1)
    if question_opening and question_opening[0] == "never":
        return False
    if before in line.words.ties:
        return True
    if before in line.words.beings:
        return line.text_at(at - 2) in line.words.relatives
    return question_opening is None and before not in line.words.verbs


def _near(line: TokenLine, at: int) -> list[FindingSpan]:
    trigger = line.words.near.match(line.texts, at)
    if not trigger:
        return []
    if trigger[0] == "here":
        return [FindingSpan(NearPlace("", *line.span(at, trigger[1])), at, trigger[1])]
    words = _words(line, trigger[1], MAX_NAME_WORDS)
    return [FindingSpan(NearPlace(line.source(*words), *line.span(at, words[1])), at, words[1])] if words else []


def _at_distance(line: TokenLine, span: FindingSpan) -> FindingSpan:
    """Parse "within 2 km of" a place as a nearness."""
    match span.finding:
        case Quantity(kind="distance", op="lt" | "lte", value=metres):
            return _near_within(line, span, metres) or span
        case _:
            return span


def _near_within(line: TokenLine, span: FindingSpan, metres: float) -> FindingSpan | None:
    linked = line.words.from_place.match(line.texts, span.upto)
    if not linked:
        return None
    here = line.words.here.match(line.texts, linked[1])
    if here:
        return FindingSpan(NearPlace("", *line.span(span.at, here[1]), metres), span.at, here[1])
    words = _words(line, linked[1], MAX_NAME_WORDS)
    if not words:
        return None
    return FindingSpan(NearPlace(line.source(*words), *line.span(span.at, words[1]), metres), span.at, words[1])


def _in(line: TokenLine, at: int) -> list[FindingSpan]:
    preposition = line.words.places.match(line.texts, at)
    words = _words(line, preposition[1], MAX_NAME_WORDS) if preposition and not line.tokens[at].joined else None
    return [FindingSpan(PlaceMention(line.source(*words), *line.span(at, words[1])), at, words[1])] if words else []


def _by(line: TokenLine, at: int) -> list[FindingSpan]:
    trigger = line.words.makers.match(line.texts, at)
    words = _words(line, trigger[1], MAX_NAME_WORDS) if trigger and trigger[0] else None
    return [FindingSpan(MakerMention(line.source(*words), *line.span(at, words[1])), at, words[1])] if words else []


CLOSED: tuple[Callable[[TokenLine, int], FindingSpan | None], ...] = (_idiom, _when, _free_of, _flag, _quantity, _sort)
OPEN: tuple[Callable[[TokenLine, int], list[FindingSpan]], ...] = (_without, _by, _near, _in)
