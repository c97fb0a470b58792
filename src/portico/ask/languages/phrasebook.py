"""The types of a language's phrases, and how it writes numbers, dates and lists. Has no language of its own."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TypeAlias

GROUPED_FROM = 10_000  # below it, digits stand together in every language

Say: TypeAlias = Callable[[str], str]
Span: TypeAlias = Callable[[str, str], str]
Forms: TypeAlias = tuple[str, str]  # for one and for many
Pair: TypeAlias = tuple[str, str]  # for one of two things, where {} is the difference, and for one of several

DAY, HOUR, MINUTE, SECOND = 86_400, 3_600, 60, 1
LENGTHS = (DAY, HOUR, MINUTE, SECOND)

_CURRENCY = re.compile(r"[A-Z]{3}|[A-Z]{0,3}[$\u00a2-\u00a5\u20a0-\u20cf]|[$\u00a2-\u00a5\u20a0-\u20cf]")
_SIGNS = {
    "GBP": "£", "EUR": "€", "USD": "$", "JPY": "¥", "CNY": "CN¥", "INR": "₹", "KRW": "₩", "BRL": "R$", "AUD": "A$",
    "CAD": "CA$", "NZD": "NZ$", "MXN": "MX$", "HKD": "HK$", "TWD": "NT$", "ILS": "₪", "VND": "₫", "UAH": "₴",
}  # fmt: skip
_WITHOUT_CENTS = frozenset({"CLP", "ISK", "JPY", "KRW", "PYG", "UGX", "VND", "XAF", "XOF"})


@dataclass(frozen=True, slots=True)
class Script:
    """How a language writes numbers, money, lengths of time, dates and lists."""

    decimal: str
    group: str
    money: Span  # a number and a currency's sign
    signs: Mapping[str, str]  # of currencies that are written otherwise here than elsewhere
    units: tuple[Forms, Forms, Forms, Forms]  # days, hours, minutes, seconds
    space: str  # between a number and its unit
    day: Callable[[date], str]
    comma: str
    last: Span  # what comes before, and the last of a list
    quote: Say


@dataclass(frozen=True, slots=True)
class ConstraintPhrases:
    """How a language says what it understood of a question. {} stands for a value."""

    words: Mapping[str, str]  # for fields, and for values that are no names, by what they are in English
    field: str  # {} and what is asked of it
    value: str  # {} and what it is to be
    compares: Mapping[str, str]  # by operator
    since: str
    until: str
    lowest: str
    highest: str
    oldest: str
    newest: str
    without: str
    free: str
    in_stock: str
    by: str
    within: str
    near: str  # metres and a place
    made_of: str  # a diet that no field names
    kind: str
    other_money: str


@dataclass(frozen=True, slots=True)
class Phrases:
    """The fixed phrases of one language. Names of items and fields are put in as they are."""

    language: str
    script: Script
    nouns: Mapping[str, Forms]  # by schema.org type, with the word that counts them where a language needs one

    nothing: str
    nothing_for: Say
    nothing_within: Callable[[Sequence[str]], str]  # the limits, as they were understood
    beyond: Callable[[str, Sequence[str]], str]  # names of what is there, and the limits that it lies beyond
    instead: Span  # a word that is unknown, and the one that was searched for
    reached: Callable[[str, Sequence[str]], str]  # who can be reached, and how
    unreachable: str
    fit: Callable[[int, str], str]
    best: Callable[[str, Sequence[str]], str]  # a name and its facts
    only: Callable[[str, Sequence[str]], str]
    also: Say
    selection: Callable[[Sequence[str]], str]  # spans over the items that are shown

    takes: Say
    costs: Say
    free: str
    rated: Say
    rated_of: Span
    on: Say
    at: Say
    by: Say
    cuisine: Say
    open: Say  # days and hours
    prices: Span
    times: Span
    ratings: Span
    dates: Span

    tell_more: str
    needs: str  # what is missing before something can be done
    before_doing: str  # a yes is asked for
    questions: Mapping[str, str]  # by facet: diet, time, price, kind, cuisine, date, place, rating, people
    which: Say
    which_collection: str
    missing: Say
    confirm: Say  # before something is done
    unbookable: Say  # what takes no reservations, by its name
    no_preference: str
    any: str
    yes: str
    no: str
    under: Say
    up_to: Say
    between: Span
    over: Say

    working: str
    waiting: str
    cancelled: str
    model_silent: str
    model_unsupported: str  # it wrote sentences, and none that the items support
    left_out: Say  # words that leave nothing: they do not count
    among: Callable[[int], str]  # the best matches that are sorted, where there are more
    cut_short: Callable[[int], str]  # the items that are shown, where more would be too many bytes
    ignored: Callable[[Sequence[str]], str]
    limits: ConstraintPhrases

    def question(self, facet: str, label: str) -> str:
        """Return what to ask back about a facet; one that is not known is called by its label."""
        return self.questions.get(facet) or self.which(label)

    def word(self, english: str) -> str:
        """Return a word for what a field or a value is called; as it is where there is none."""
        return self.limits.words.get(english, english)

    def noun(self, kind: str, count: int) -> str:
        """Return the word for a number of things of a schema.org type, or for things in general."""
        return _form(self.nouns.get(kind) or self.nouns["Thing"], count)

    def number(self, value: float) -> str:
        return self._write_number(f"{value:,.6f}".rstrip("0").rstrip("."), value)

    def figure(self, value: float, places: int) -> str:
        """Return a number as it stands alone: with fixed places, and its digits in groups."""
        return self._localize_marks(f"{value:,.{places}f}")

    def money(self, amount: float, currency: str = "") -> str:
        """Return an amount with the sign of its currency, which is a code or a sign; anything else is left out."""
        return self._add_sign(self._amount(amount), currency)

    def price_tag(self, amount: float, currency: str) -> str:
        """Return an amount as it stands alone: with cents in every currency that has them."""
        is_whole = currency.strip().upper() in _WITHOUT_CENTS if self.sign(currency) else amount == round(amount)
        return self._add_sign(self.figure(amount, 0 if is_whole else 2), currency)

    def sign(self, currency: str) -> str:
        """Return how a currency is written, of which a code or a sign is given; empty for anything else."""
        code = currency.strip()
        symbol = self.script.signs.get(code.upper()) or _SIGNS.get(code.upper())
        return symbol or (code if _CURRENCY.fullmatch(code) else "")

    def duration(self, seconds: float) -> str:
        """Return a length of time in up to three units: 1 hour 10 minutes."""
        left, parts = max(round(seconds), 0), list[str]()
        for length, forms in zip(LENGTHS, self.script.units, strict=True):
            count, left = divmod(left, length)
            if count:
                parts.append(self._count_of(count, forms))
        return self.script.space.join(parts[:3]) or self._count_of(0, self.script.units[2])

    def day(self, day: date) -> str:
        return self.script.day(day)

    def join(self, parts: Sequence[str]) -> str:
        """Return a list as people say it: A, B and C."""
        if len(parts) < 2:
            return "".join(parts)
        return self.script.last(self.script.comma.join(parts[:-1]), parts[-1])

    def name(self, name: str) -> str:
        """Return a name within a sentence, in quotes when it would end the sentence."""
        return self.script.quote(name) if name.endswith(("?", "!", "？", "！")) else name

    def names(self, names: Sequence[str]) -> str:
        """Return a list of names, all in quotes when one of them has a comma of its own or would end the sentence."""
        ambiguous = len(names) > 1 and any(mark in name for name in names for mark in ",，、?!？！")
        return self.join([self.script.quote(name) for name in names] if ambiguous else [*map(self.name, names)])

    def time_range(self, low: float | None, high: float | None) -> str:
        """Return an option such as "20-40 minutes", from whole seconds; `read_range` reads it back."""
        length = _common_length(low, high)
        forms = self.script.units[LENGTHS.index(length)]
        match low, high:
            case None, None:
                return self.any
            case None, most:
                return self.under(self._count_of(round(most) // length, forms))
            case least, None:
                return self.over(self._count_of(round(least) // length, forms))
            case least, most:
                return self.between(self.number(round(least) // length), self._count_of(round(most) // length, forms))

    def price_range(self, low: float | None, high: float | None, currency: str = "") -> str:
        """Return an option such as "£10-£25", to the cent; `read_range` reads it back."""
        match low, high:
            case None, None:
                return self.any
            case None, most:
                return self.up_to(self.money(round(most, 2), currency))
            case least, None:
                return self.over(self.money(round(least, 2), currency))
            case least, most:
                return self._price_span(round(least, 2), round(most, 2), currency)

    def _price_span(self, low: float, high: float, currency: str) -> str:
        most = self.money(high, currency)
        sign_leads = not most[:1].isdigit()
        return self.between(self.money(low, currency) if sign_leads else self._amount(low), most)

    def _count_of(self, count: float, forms: Forms) -> str:
        return f"{self.number(count)}{self.script.space}{_form(forms, count)}"

    def _amount(self, amount: float) -> str:
        whole, cents = round(amount), round(amount, 2)
        if amount == whole:
            return self._write_number(f"{whole:,}", amount)
        return self._write_number(f"{cents:,.2f}", amount) if amount == cents else self.number(amount)

    def _write_number(self, english: str, value: float) -> str:
        return self._localize_marks(english if abs(value) >= GROUPED_FROM else english.replace(",", ""))

    def _localize_marks(self, english: str) -> str:
        return english.translate({ord(","): self.script.group, ord("."): self.script.decimal})

    def _add_sign(self, number: str, currency: str) -> str:
        sign = self.sign(currency)
        return self.script.money(number, sign) if sign else number


@dataclass(frozen=True, slots=True)
class ComparisonPhrases:
    """The words of a language for it. What is read is without accents and capitals.

    What one thing is stands in pairs: said of one of two, where {} is the difference, and of one of several.
    """

    together: Callable[[Sequence[str]], str]  # makes one sentence of several
    side: Callable[[str, Sequence[str]], str]  # a name and its facts
    ahead: Callable[[str, Sequence[str]], str]  # a name and what it is
    price: Pair
    time: Pair
    rating: Pair
    day: Pair
    choosing: frozenset[str] = frozenset()  # "or": stands between names
    joining: frozenset[str] = frozenset()  # "and": does so where something else says that they are compared
    cues: frozenset[str] = frozenset()  # say that they are, or by what


@dataclass(frozen=True, slots=True)
class SmallTalkPhrases:
    """The small talk of a language, and the replies to a message that is nothing else."""

    greetings: str  # with bars between them; also the questions of who looks around
    thanks: str
    welcome: str
    reply: str  # {} stands for what can be asked about
    farewells: str
    goodbye: str


def _form(forms: Forms, count: float) -> str:
    return forms[0] if count == 1 else forms[1]


def _common_length(*lengths: float | None) -> int:
    """Return the longest unit that all of these are whole numbers of."""
    rounded = [round(length) for length in lengths if length is not None]
    return next(unit for unit in LENGTHS if all(length % unit == 0 for length in rounded))


def capitalize(label: str) -> str:
    return label[:1].upper() + label[1:]
