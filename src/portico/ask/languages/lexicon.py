"""The types of the words that are read in questions, and what these words mean.

Has what holds in every language; the words of each one are in its data file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, TypeAlias

from portico.ask.languages.wordlists import PhraseTable, fold_words

Op: TypeAlias = Literal["lt", "lte", "gt", "gte", "eq", "between"]
Order: TypeAlias = tuple[str, bool]  # by what, and whether the most comes first


@dataclass(frozen=True, slots=True)
class Unit:
    kind: str
    factor: float = 1.0
    symbol: str = ""
    noun: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a comparing word means. Kinds: what it compares, where not everything; "people" is a noun among them."""

    op: Op | Literal["about"]
    kinds: frozenset[str] = frozenset()
    hint: str = ""


NUMBER = Unit("number")
SECOND = Unit("duration", 1, "s")
MINUTE = Unit("duration", 60, "s")
HOUR = Unit("duration", 3600, "s")
METRE = Unit("distance", 1, "m")
PEOPLE = Unit("count", noun="people")
UNITS: Mapping[str, Unit] = {
    "dollar": Unit("price", symbol="USD"), "euro": Unit("price", symbol="EUR"), "pound": Unit("price", symbol="GBP"),
    "yen": Unit("price", symbol="JPY"), "franc": Unit("price", symbol="CHF"),
    "second": SECOND, "minute": MINUTE, "hour": HOUR, "day": Unit("duration", 86_400, "s"),
    "week": Unit("duration", 7 * 86_400, "s"), "month": Unit("duration", 30 * 86_400, "s"),
    "year": Unit("duration", 365 * 86_400, "s"),
    "metre": METRE, "kilometre": Unit("distance", 1000, "m"), "mile": Unit("distance", 1609.344, "m"),
    "foot": Unit("distance", 0.3048, "m"), "yard": Unit("distance", 0.9144, "m"),
    "star": Unit("rating"), "gram": Unit("count", symbol="g"), "kilogram": Unit("count", symbol="kg"),
    "percent": Unit("count", symbol="%"), "calorie": Unit("count", noun="calories"),
    "page": Unit("count", noun="pages"), "serving": Unit("count", noun="servings"), "person": PEOPLE,
    "ingredient": Unit("count", noun="ingredients"), "review": Unit("count", noun="reviews"),
    "year_of_age": Unit("count", symbol="years", noun="age"),
}  # fmt: skip

CODES = "usd eur gbp jpy chf cad aud nzd sek nok dkk pln czk inr cny brl mxn"
SCALES = "g kg mg ml cl l oz lb cm mm %"
SYMBOLS = frozenset("$€£¥")
UNITS_ANYWHERE: dict[Unit, str] = {
    **{Unit("price", symbol=code.upper()): code for code in CODES.split()},
    UNITS["dollar"]: "$|usd", UNITS["euro"]: "€|eur", UNITS["pound"]: "£|gbp", UNITS["yen"]: "¥|jpy",
    SECOND: "s|sec", MINUTE: "min|mins", HOUR: "h|hr|hrs",
    METRE: "m", UNITS["kilometre"]: "km", UNITS["mile"]: "mi",
    **{Unit("count", symbol=symbol): symbol for symbol in SCALES.split()},
    Unit("count", symbol="kcal", noun="calories"): "kcal",
}  # fmt: skip

MEASURED = frozenset({"price", "duration", "distance", "rating", "count"})
SEATED = frozenset({"people"})
COMPARISONS: Mapping[str, Comparison] = {
    "less": Comparison("lt"), "cheaper": Comparison("lt", hint="price"),
    "at_most": Comparison("lte"), "up_to": Comparison("lte", MEASURED),
    "within": Comparison("lte", frozenset({"duration", "distance"})),
    "in_time": Comparison("lte", frozenset({"duration"})),
    "at_hand": Comparison("lte", frozenset({"duration", "price"})),
    "more": Comparison("gt"), "dearer": Comparison("gt", hint="price"),
    "at_least": Comparison("gte"), "from": Comparison("gte", MEASURED), "for_people": Comparison("gte", SEATED),
    "exactly": Comparison("eq"), "about": Comparison("about", MEASURED),
}  # fmt: skip
COMPARISONS_ANYWHERE = {
    Comparison("lt"): "<", Comparison("lte"): "<=|≤|< =", Comparison("gt"): ">", Comparison("gte"): ">=|≥|> =",
    Comparison("eq"): "=", Comparison("about"): "~|≈",
}  # fmt: skip

ORDERS: Mapping[str, Order | None] = {
    "cheapest": ("price", False), "dearest": ("price", True), "shortest": ("duration", False),
    "longest": ("duration", True), "best_rated": ("rating", True), "worst_rated": ("rating", False),
    "newest": ("date", True), "oldest": ("date", False), "nearest": ("distance", False), "furthest": ("distance", True),
    "no_order": None,
}  # fmt: skip

ADJECTIVAL = fold_words("second minute hour day week min")  # "30 minute meals"
# "The most beautiful beach" is no order by beauty; "with the most beaches" may be one.
HAVING = fold_words("with has have having contains contain containing got")
VAGUE = frozenset({"most", "least"})
NOT_FREE_OF = fold_words("step hands toll duty tax stress risk hassle care barrier worry cruelty trouble obstacle")
NOT_FREI = fold_words("barriere kosten gebühren stufen einwand schul jugend vogel")
CONNECTORS = fold_words("of the de del la le les du des da di von van der den und and y et upon on sur am an &")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lexicon:
    """The words of one language, by what they do."""

    decimal: str
    numbers: PhraseTable[float]
    one_of: PhraseTable[float] = field(default_factory=PhraseTable[float])  # numbers only before a unit in words
    and_a_half: PhraseTable[bool] = field(default_factory=PhraseTable[bool])
    number_joiners: PhraseTable[bool]
    of: PhraseTable[bool]
    units: PhraseTable[Unit]
    comparisons: PhraseTable[Comparison]
    afterwards: PhraseTable[Op]
    between: PhraseTable[bool]
    range_openers: PhraseTable[bool]
    to: PhraseTable[bool]
    leads: PhraseTable[str]  # before a comparison and part of it; some say what is compared
    sorts: PhraseTable[Order | None]
    extremes: PhraseTable[bool]
    exclusions: PhraseTable[str]
    listing: PhraseTable[str]
    # How a question of facts begins, where "no" and "not" belong to the verb: never an exclusion, or only with a tie.
    question_openings: PhraseTable[str]
    ties: frozenset[str]
    # What "not" may belong to. "That is not spicy" leaves out, "that would not rise" does not.
    beings: frozenset[str]
    verbs: frozenset[str]
    relatives: frozenset[str]
    free_of: frozenset[str] = frozenset()
    flags: PhraseTable[str]
    negations: PhraseTable[bool]
    near: PhraseTable[str]
    from_place: PhraseTable[bool]
    here: PhraseTable[bool]
    places: PhraseTable[bool]
    makers: PhraseTable[bool]
    articles: PhraseTable[bool]
    idioms: PhraseTable[bool]  # look like one of the above and are none
    stopwords: frozenset[str]
    capital_nouns: bool = False  # so that a capital shows no name
    says_frei: bool = False  # "glutenfrei", where others say "gluten-free"


class Opening(Enum):
    """What the first words announce."""

    NONE = "without nuts"
    JOIN = "and without nuts"
    SHIFT = "what about January"
    CORRECT = "I meant January"


@dataclass(frozen=True, slots=True)
class FollowupWords:
    """The words of a language that show how a question hangs together: without accents and capitals."""

    language: str
    joins: tuple[str, ...]
    openings: Mapping[str, Sequence[tuple[str, Opening | None]]]  # by first word, longest first; None announces nothing
    closings: frozenset[str]  # say nothing at the end
    question_words: frozenset[str]  # make a whole question: question words, auxiliary verbs, I and you
    limiting: frozenset[str]  # begin a constraint
    placing: frozenset[str]  # of these, the ones that need to be said only once
    bounds: frozenset[str]  # stand before a number
    swapping: str  # "instead of"
    pronouns: frozenset[str]
    owners: frozenset[str]  # "its"
    dummies: frozenset[str]  # pronouns that may stand for a clause: "is it safe to swim"
    clausal: frozenset[str]  # and how the clause begins
    holding: tuple[str, ...]  # "with" in "with pictures in it"
    inside: frozenset[str]  # and the "in"
    relatives: Mapping[str, frozenset[str]]  # with the owners that may speak of what stands before them
    unnamed: frozenset[str]  # may stand there without being a noun: "something"
    own: frozenset[str]
    these: frozenset[str]
    this: frozenset[str]  # points back only where no noun follows
    pointing: tuple[str, ...]
    among: tuple[str, ...]  # "of those"
    ordinals: frozenset[str]
    definite: frozenset[str]
    indefinite: frozenset[str]
    ones: frozenset[str]
    comparing: frozenset[str]
    grading: frozenset[str]  # of these, the ones that grade the word after them: "more"
    relational: frozenset[str]  # nouns of something else: the price, the reason
    empty: frozenset[str]  # no content
    calendar: frozenset[str]  # "this week" points to no result
    slots: tuple[frozenset[str], ...]  # a word takes the place of another of its slot
    possessive: str = ""  # a name as an owner, where that may stand in the place of "its"
    adjectives_first: bool = True
    capitals: bool = True  # they show names
