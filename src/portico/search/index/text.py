"""Turns items and queries into words: selects, splits, stems and folds text. Knows no arrays."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import Stemmer

from portico.catalog import Collection, FieldType, type_of
from portico.items import Item

VERSION = 4  # to be changed with the rules of this module: a stored index of another version is rebuilt

TITLE_WEIGHT = 2.0
# Fields that identify, link or illustrate an item, but do not describe it.
UNSEARCHED_FIELDS = frozenset(
    {"@context", "@id", "@type", "id", "url", "image", "logo", "sameAs", "inLanguage", "contentUrl"}
)
SEARCHED_FORMATS = frozenset({"year", "code"})  # of fields of numbers
MAX_DEPTH = 6
MAX_WORDS = 4000  # of one field; the rest of a very long text is not searched word by word
MAX_WORD = 64
MAX_QUESTION = 256  # words
MAX_EMBEDDING_CHARS = 2000

# Letters and digits, with the vowel signs that Indic scripts write as marks of their own.
_WORD = re.compile(
    r"[^\W_](?:[^\W_]|[\u0300-\u036f\u0900-\u0903\u093a-\u094f\u0980-\u0983\u09bc-\u09cd\u0a01-\u0a4d"
    r"\u0a81-\u0acd\u0b01-\u0b4d\u0b82-\u0bcd\u0c00-\u0c4d\u0c81-\u0ccd\u0d00-\u0d4d\u0e31\u0e34-\u0e4e])*"
)
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")
_PHRASE = re.compile(r'"([^"]+)"|“([^”]+)”')

STEMMERS = {
    "ar": "arabic", "ca": "catalan", "da": "danish", "de": "german", "el": "greek", "en": "english", "es": "spanish",
    "et": "estonian", "eu": "basque", "fi": "finnish", "fr": "french", "ga": "irish", "hi": "hindi", "hu": "hungarian",
    "hy": "armenian", "id": "indonesian", "it": "italian", "lt": "lithuanian", "ne": "nepali", "nl": "dutch",
    "no": "norwegian", "pt": "portuguese", "ro": "romanian", "ru": "russian", "sr": "serbian", "sv": "swedish",
    "ta": "tamil", "tr": "turkish", "yi": "yiddish",
}  # fmt: skip

# Function words. They are dropped from query texts only, never from items.
STOPWORDS = {
    language: frozenset(words.split())
    for language, words in {
        "en": """a about after all also am an and any are as at be because been before being but by can could did do
        does doing for from get had has have having he her here him his how i if in into is it its just me more most my
        no not now of off on one only or other our out over own same she should so some such than that the their them
        then there these they this those through to too under until up us very was we were what when where which while
        who whom why will with would you your yours tell show find give please want need looking""",
        "de": """aber alle als also am an auch auf aus bei bin bis bist da damit dann das dass dein deine dem den der
        des die dies diese dieser dieses doch dort du durch ein eine einem einen einer eines er es euch für gegen gibt
        hab habe haben hat hatte hier ich ihm ihn ihr im in ist ja jede jeder kann können man mehr mein meine mich mir
        mit muss nach nicht noch nur ob oder ohne sehr sein seine sich sie sind so soll über um und uns unser unter vom
        von vor wann war warum was welche welcher welches wenn wer werden wie wieder wir wird wo zu zum zur""",
        "es": """a al algo ante antes como con cual cuál cuando cuándo cuánto cuántos de del desde donde dónde durante e
        el ella ellas ellos en entre era es esa ese eso esta estaba están este esto fue ha hay hasta la las le les lo
        los más me mi mis muy nada ni no nos o os otra otro para pero por porque que qué quién se ser si sí sin sobre
        son su sus también te tiene tu un una uno y ya yo""",
        "fr": """à alors au aucun aussi autre aux avec avoir ce ces cet cette comme comment dans de des du elle en est
        et être eux fait font il ils je la le les leur lui ma mais mes moi mon ne nos notre nous on ou où par pas plus
        pour pourquoi qu quand que quel quelle quelles quels qui sa sans se ses si son sont sous sur ta te tes toi ton
        tous tout très tu un une vos votre vous y""",
        "it": """a ad al alla alle anche che chi ci come con cosa da dal dalla de dei del della delle di do dove e è ed
        gli ha hanno i il in io la le lei lo loro lui ma mi nel nella no noi non o per perché più qual quale quali
        quando questo questa se sei si sono su sua sue sul sulla suo ti tra tu un una uno vi voi""",
        "nl": """aan al als bij dat de deze die dit doch door een en er ge had heb hebben heeft het hij hoe hun ik in is
        je kan maar me meer met mij mijn naar niet nog nu of om onder ons ook op over te toen tot uit van veel voor want
        waar waarom wanneer was wat we welke werd wie wij worden zal ze zich zij zijn zo""",
        "pt": """a ao aos as até com como da das de dela dele do dos e é ela ele em entre era essa esse esta este eu foi
        há isso isto já lhe mais mas me mesmo meu minha muito na não nas nem no nos o onde os ou para pela pelo por
        porque qual quando que quem se sem ser seu são só sua também te tem um uma você""",
    }.items()
}


@dataclass(frozen=True, slots=True)
class WeightedText:
    """One text of an item, with the weight of its words."""

    text: str
    weight: float


@dataclass(frozen=True, slots=True)
class Term:
    """One word of a query: its stems in the languages of the collection."""

    stems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TextQuery:
    """A parsed query text. An item needs any of the terms and all of the phrases."""

    terms: tuple[Term, ...]
    phrases: tuple[tuple[Term, ...], ...]


def searched_numbers(collection: Collection) -> frozenset[str]:
    """Return the fields whose numbers are words to people: years, and numbers that identify something."""
    return frozenset(name for name in collection.fields if _is_searched_number(name, collection))


def passages(item: Item, collection: Collection) -> Iterator[WeightedText]:
    """Yield every searchable text of an item."""
    titles = collection.title_fields
    for name, value in item.data.items():
        weight = collection.weights.get(name, TITLE_WEIGHT if name in titles else 1.0)
        if weight > 0 and (name not in UNSEARCHED_FIELDS or name in collection.weights):
            is_word = name in titles or (type(value) is int and _is_searched_number(name, collection))
            for text in _named_texts(value) if is_word else _texts(value, 0):
                yield WeightedText(text, weight)


def _is_searched_number(name: str, collection: Collection) -> bool:
    field = collection.fields.get(name)
    return field is not None and field.format in SEARCHED_FORMATS


def _named_texts(value: Any) -> Iterator[str]:
    """Yield the texts of a field that names items, also if they are numbers, dates or durations: 1984."""
    match value:
        case str():
            yield value
        case int() | float() if not isinstance(value, bool):
            yield str(value)
        case _:
            yield from _texts(value, 0)


def iter_texts(value: Any) -> Iterator[str]:
    """Yield every scalar of the data as text, numbers included."""
    match value:
        case Mapping():
            for inner in cast("Mapping[str, Any]", value).values():
                yield from iter_texts(inner)
        case list():
            for element in cast("list[Any]", value):
                yield from iter_texts(element)
        case None | bool():
            pass
        case _:
            yield str(value)


def _texts(value: Any, depth: int) -> Iterator[str]:
    match value:
        case str():
            if not _is_unsearchable(value):
                yield value
        case list():
            for element in cast("list[Any]", value):
                yield from _texts(element, depth)
        case Mapping() if depth < MAX_DEPTH:
            for name, inner in cast("Mapping[str, Any]", value).items():
                if name not in UNSEARCHED_FIELDS:
                    yield from _texts(inner, depth + 1)
        case _:
            pass


def _is_unsearchable(text: str) -> bool:
    if text.startswith(("http://", "https://", "data:", "/")) and " " not in text:
        return True
    # A date or a duration begins with a digit or a P; most texts need no closer look.
    if len(text) > 40 or not (text[:1].isdigit() or text[:1] == "P"):
        return False
    return type_of(text) in {FieldType.TIMESTAMP, FieldType.DURATION}


def text_to_embed(item: Item, collection: Collection) -> str:
    """Return the text to embed: titles first, then the rest, up to the limit."""
    parts = sorted(passages(item, collection), key=lambda passage: -passage.weight)
    return ". ".join(part.text for part in parts)[:MAX_EMBEDDING_CHARS]


def words(text: str) -> list[str]:
    """Return the words of a text, in order, as written. Scripts without spaces are split into pairs of characters."""
    if text.isascii():
        return _ASCII_WORD.findall(text)[:MAX_WORDS]
    matches = _WORD.findall(unicodedata.normalize("NFC", text))[:MAX_WORDS]
    return [part for word in matches for part in _cut(word)][:MAX_WORDS] if _CJK.search(text) else matches


def _cut(word: str) -> list[str]:
    if len(word) == 1 or not _CJK.search(word):
        return [word]
    return [word[i : i + 2] for i in range(len(word) - 1)]


class Stem:
    """Return the stemmer of a language."""

    def __init__(self, language: str) -> None:
        name = STEMMERS.get(language)
        self._stemmer = Stemmer.Stemmer(name) if name else None

    def __call__(self, word: str) -> str:
        lower = word[:MAX_WORD].lower()
        return fold(self._stemmer.stemWord(lower) if self._stemmer else lower)


@lru_cache(maxsize=64)
def stemmer(language: str) -> Stem:
    return Stem(language)


def fold(word: str) -> str:
    """Remove accents and case: café, Cafe and CAFÉ are one word."""
    if word.isascii():
        return word.lower()
    decomposed = unicodedata.normalize("NFKD", word.casefold())
    return "".join(c for c in decomposed if not unicodedata.combining(c))


def parse_text_query(text: str, languages: tuple[str, ...]) -> TextQuery:
    """Parse a query text into terms and phrases. Stopwords are dropped unless nothing else is left."""
    quoted = [a or b for a, b in _PHRASE.findall(text)]
    phrases = tuple(terms for terms in (_terms(words(part), languages) for part in quoted) if terms)
    question = words(text)[:MAX_QUESTION]
    content = [word for word in question if word.lower() not in _stopwords(question, languages)] or question
    return TextQuery(tuple(dict.fromkeys(_terms(content, languages))), phrases)


def terms_of(text: str, languages: tuple[str, ...]) -> tuple[Term, ...]:
    """Return every word of a text as a term, in order."""
    return _terms(words(text)[:MAX_QUESTION], languages)


def _stopwords(question: list[str], languages: tuple[str, ...]) -> frozenset[str]:
    """Return the stopwords of the likely language: the one of which the query uses the most."""
    lowered = {word.lower() for word in question}
    lists = [STOPWORDS.get(language, frozenset[str]()) for language in languages]
    return max(lists, key=lambda words: len(words & lowered), default=frozenset[str]())


def _terms(tokens: list[str], languages: tuple[str, ...]) -> tuple[Term, ...]:
    return tuple(Term(tuple(dict.fromkeys(stemmer(language)(word) for language in languages))) for word in tokens)
