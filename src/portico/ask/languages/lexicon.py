"""What the words of a language do in a question: the tables that are read by, and what their words mean.

Has what holds in every language, and leaves the words of each to `portico.ask.languages`.
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from portico.ask.languages.wordlists import Sayings, folded

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
DAY = Unit("duration", 86_400, "s")
WEEK = Unit("duration", 7 * 86_400, "s")
MONTH = Unit("duration", 30 * 86_400, "s")
YEAR = Unit("duration", 365 * 86_400, "s")
METRE = Unit("distance", 1, "m")
KILOMETRE = Unit("distance", 1000, "m")
MILE = Unit("distance", 1609.344, "m")
STARS = Unit("rating")
DOLLAR, EURO, POUND, YEN, FRANC = (Unit("price", symbol=code) for code in ("USD", "EUR", "GBP", "JPY", "CHF"))
CALORIES = Unit("count", noun="calories")
PAGES = Unit("count", noun="pages")
PEOPLE = Unit("count", noun="people")
SERVINGS = Unit("count", noun="servings")
INGREDIENTS = Unit("count", noun="ingredients")
REVIEWS = Unit("count", noun="reviews")
AGE = Unit("count", symbol="years", noun="age")
GRAM, KILOGRAM, PERCENT = (Unit("count", symbol=symbol) for symbol in ("g", "kg", "%"))

CODES = "usd eur gbp jpy chf cad aud nzd sek nok dkk pln czk inr cny brl mxn"
SCALES = "g kg mg ml cl l oz lb cm mm %"
SYMBOLS = frozenset("$€£¥")
UNITS_ANYWHERE: dict[Unit, str] = {
    **{Unit("price", symbol=code.upper()): code for code in CODES.split()},
    DOLLAR: "$|usd", EURO: "€|eur", POUND: "£|gbp", YEN: "¥|jpy",
    SECOND: "s|sec", MINUTE: "min|mins", HOUR: "h|hr|hrs", METRE: "m", KILOMETRE: "km", MILE: "mi",
    **{Unit("count", symbol=symbol): symbol for symbol in SCALES.split()},
    Unit("count", symbol="kcal", noun="calories"): "kcal",
}  # fmt: skip

TIMED = frozenset({"duration"})
AFFORDED = frozenset({"duration", "price"})
MEASURED = frozenset({"price", "duration", "distance", "rating", "count"})
REACHED = frozenset({"duration", "distance"})
SEATED = frozenset({"people"})
COMPARISONS_ANYWHERE = {
    Comparison("lt"): "<", Comparison("lte"): "<=|≤|< =", Comparison("gt"): ">", Comparison("gte"): ">=|≥|> =",
    Comparison("eq"): "=", Comparison("about"): "~|≈",
}  # fmt: skip

CHEAP: Order = ("price", False)
COSTLY: Order = ("price", True)
QUICK: Order = ("duration", False)
LONG: Order = ("duration", True)
LIKED: Order = ("rating", True)
DISLIKED: Order = ("rating", False)
NEW: Order = ("date", True)
OLD: Order = ("date", False)
CLOSE: Order = ("distance", False)
FAR: Order = ("distance", True)

ADJECTIVAL = folded("second minute hour day week min")  # "30 minute meals"
# "The most beautiful beach" is no order by beauty; "with the most beaches" may be one.
HAVING = folded("with has have having contains contain containing got")
VAGUE = frozenset({"most", "least"})
NOT_FREE_OF = folded("step hands toll duty tax stress risk hassle care barrier worry cruelty trouble obstacle")
NOT_FREI = folded("barriere kosten gebühren stufen einwand schul jugend vogel")
CONNECTORS = folded("of the de del la le les du des da di von van der den und and y et upon on sur am an &")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lexicon:
    """The words of one language, by what they do."""

    decimal: str
    numbers: Sayings[float]
    one_of: Sayings[float] = field(default_factory=Sayings[float])  # numbers only before a unit in words
    and_a_half: Sayings[bool] = field(default_factory=Sayings[bool])
    and_: Sayings[bool]
    of: Sayings[bool]
    units: Sayings[Unit]
    comparisons: Sayings[Comparison]
    afterwards: Sayings[Op]
    between: Sayings[bool]
    from_: Sayings[bool]
    to: Sayings[bool]
    leads: Sayings[str]  # before a comparison and part of it; some say what is compared
    sorts: Sayings[Order | None]
    extremes: Sayings[bool]
    exclusions: Sayings[str]
    listing: Sayings[str]
    # How a question of facts begins, where "no" and "not" belong to the verb: never an exclusion, or only with a tie.
    asking: Sayings[str]
    ties: frozenset[str]
    # What "not" may belong to. "That is not spicy" leaves out, "that would not rise" does not.
    beings: frozenset[str]
    verbs: frozenset[str]
    relatives: frozenset[str]
    free_of: frozenset[str] = frozenset()
    flags: Sayings[str]
    not_: Sayings[bool]
    near: Sayings[str]
    from_place: Sayings[bool]
    here: Sayings[bool]
    places: Sayings[bool]
    makers: Sayings[bool]
    articles: Sayings[bool]
    idioms: Sayings[bool]  # look like one of the above and are none
    stopwords: frozenset[str]
    capital_nouns: bool = False  # so that a capital shows no name
    says_frei: bool = False  # "glutenfrei", where others say "gluten-free"
