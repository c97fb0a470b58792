"""Summaries and answers out of the items themselves: every sentence says what an item says, and names it.

Pure functions without a language model. What an item says is data: it is cleaned and quoted, never followed.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import Any, TypeAlias, cast

from portico.ask.facts import FACTS, MAX_NAME, SPOKEN, Data, further, text_at, values_at, worth_saying
from portico.ask.languages import CONTRASTS
from portico.ask.languages.phrasebook import Phrases, capital
from portico.ask.languages.wordlists import folded
from portico.ask.prose import plain, sentences, shortened, unmarked
from portico.ask.understanding.constraints import is_factual
from portico.ask.understanding.kinds import ASIDE, ASKING, WHAT
from portico.catalog import singular
from portico.items import TITLES, Item
from portico.search.index.text import SILENT, STEMMERS, Term, fold, stemmer, wanted, words

MAX_SENTENCE = 400  # characters; a longer one is cut at a word
MAX_SAID = 4  # sentences of a summary or an answer
MAX_FACTS = 4  # of the best match
MAX_NAMED = 3  # further matches
MAX_TOLD = 1200  # characters of the texts of an item that is spoken of alone
MAX_TERMS = 64  # words of a question
MAX_ITEMS = 10  # whose texts are read for an answer
MAX_CANDIDATES = 200  # sentences of an item
MAX_CHARACTERS = 20_000  # of an item
MAX_DEPTH = 8  # of objects and lists within each other
ASKED = 0.7  # of a question's words that an answered question has to share
HALF = 0.5  # of them, for one that is found to be answered
WORTH = 0.6  # of the best sentence's score that another one needs
ALIKE = 0.8  # of the words of two sentences that make them one
TITLE_SHARE = 0.4  # of a word's weight for a sentence that has it only in its item's name
ABOUT_SHARE = 0.75  # of it, if the sentence opens an item that is named after what is asked for
RANK_LOSS = 0.08  # of the weight of each further item
LEAD = 0.1  # more for the first sentence of an item, less for each that follows

Stems: TypeAlias = frozenset[str]

_WIDER = ("Event", "Article", "Restaurant", "Store", "Organization", "Course")
_TYPES = {
    "BlogPosting": "Article", "Report": "Article", "Festival": "Event", "BarOrPub": "Restaurant",
    "CafeOrCoffeeShop": "Restaurant", "Bakery": "Restaurant", "FoodEstablishment": "Restaurant", "Store": "Place",
    "City": "Place", "TouristAttraction": "Place", "LocalBusiness": "Place", "ProductGroup": "Product",
    "FAQPage": "Question", "LodgingBusiness": "Hotel", "Audiobook": "Book",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sentence:
    text: str
    cites: tuple[str, ...]  # refs of the items it relies on


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that somebody gave before, and the item that holds it."""

    item: Item
    sentences: tuple[Sentence, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sentence of an item that may answer, with the stems of its words."""

    text: str
    item: Item
    rank: int
    place: int
    stems: Stems
    title: Stems


def summarize(
    question: str,
    items: Sequence[Item],
    phrases: Phrases,
    total: int | None = None,
    *,
    is_counted: bool = True,
    kind: str = "",
) -> tuple[Sentence, ...]:
    """How many fit, if that is known; the best with its facts, the next by name, and the spans over all shown.

    The kind is that of all that fit, where these are more than the items.
    """
    if not items:
        return (Sentence(phrases.nothing, ()),)
    known = answered(question, items, phrases) if is_factual(question) else None
    if known:
        others = [item for item in items if item.ref != known.item.ref][:MAX_NAMED]
        return (*known.sentences, *_also(others, phrases))
    count = max(total or 0, len(items)) if is_counted else 0
    facts = _facts(question, items[0], phrases)
    replies = _replies(question, items[0], phrases)
    if count == 1:
        return (Sentence(phrases.only(phrases.name(_name(items[0])), facts), (items[0].ref,)), *replies)
    fit = phrases.fit(count, phrases.noun(kind or kind_of(items, phrases), count))
    said = [
        *([Sentence(fit, tuple(item.ref for item in items))] if is_counted else ()),
        Sentence(phrases.best(phrases.name(_name(items[0])), facts), (items[0].ref,)),
    ]
    return (*said, *replies, *_also(items[1 : 1 + MAX_NAMED], phrases), *_spans(items, phrases))


def _also(others: Sequence[Item], phrases: Phrases) -> Iterator[Sentence]:
    if others:
        names = phrases.names([_name(item) for item in others])
        yield Sentence(phrases.also(names), tuple(item.ref for item in others))


def answer(
    question: str,
    items: Sequence[Item],
    phrases: Phrases,
    total: int | None = None,
    *,
    is_counted: bool = True,
    kind: str = "",
) -> tuple[Sentence, ...]:
    """The sentences of the items that answer the question best, word for word; a summary if none speaks of it."""
    known = answered(question, items, phrases)
    if known:
        return known.sentences
    languages = _languages(items, phrases)
    terms = _terms(question, languages)
    fact = _asked_of_one(question, items, phrases)
    speaking = [item for item in items[:MAX_ITEMS] if not fact or item.ref in fact[0].cites]
    candidates = [each for rank, item in enumerate(speaking) for each in _candidates(item, rank, languages)]
    said = (*fact, *_best(terms, candidates)[: MAX_SAID - len(fact)])
    return said or summarize(question, items, phrases, total, is_counted=is_counted, kind=kind)


def _asked_of_one(question: str, items: Sequence[Item], phrases: Phrases) -> tuple[Sentence, ...]:
    """The facts that a question asks of the one item that it names: "how long does the fish pie take"."""
    if not is_factual(question):
        return ()
    told = _asked_of_a_name(question, items, phrases) or _asked_of_words(question, items, phrases)
    if told is None:
        return ()
    item, facts = told
    contrast = CONTRASTS[phrases.language]
    return (Sentence(contrast.together([contrast.side(phrases.name(_name(item)), facts)]), (item.ref,)),)


def _asked_of_a_name(question: str, items: Sequence[Item], phrases: Phrases) -> tuple[Item, list[str]] | None:
    """The item whose whole name stands in a question, the longest of them, and its facts that are asked for."""
    said = f" {_plainly(question)} "
    named = [(item, name) for item in items[:MAX_ITEMS] if (name := f" {_plainly(_name(item))} ") in said]
    longest = max((len(name) for _, name in named), default=0)
    found = [(item, name) for item, name in named if len(name) == longest]
    if len(found) != 1:
        return None
    item, name = found[0]
    facts = _asked_facts(said.replace(name, " "), item, phrases)
    return (item, facts) if facts else None


def _asked_of_words(question: str, items: Sequence[Item], phrases: Phrases) -> tuple[Item, list[str]] | None:
    """The only item that has what is asked for and, in its name, every other word: "when does the library open"."""
    languages = _languages(items, phrases)
    terms = _terms(reduce(lambda rest, fact: fact.asked.sub(" ", rest), FACTS, question), languages)
    meant = [item for item in items[:MAX_ITEMS] if terms and _has_all(terms, _stems(_name(item), languages))]
    told = [(item, facts) for item in meant if (facts := _asked_facts(question, item, phrases))]
    return told[0] if len(told) == 1 else None


def _has_all(terms: Sequence[Term], stems: Stems) -> bool:
    return all(_shares(term, stems) for term in terms)


def _asked_facts(question: str, item: Item, phrases: Phrases) -> list[str]:
    facts = [(fact, fact.read(item.data)) for fact in FACTS if fact.asked.search(question)]
    return [fact.say(phrases, value) for fact, value in facts if value is not None]


def _plainly(text: str) -> str:
    return " ".join(words(text)).lower()


def compare(question: str, items: Sequence[Item], phrases: Phrases) -> tuple[Sentence, ...]:
    """What sets items apart, by what was asked for if that can be said, and the facts they share or else have.

    Nothing, if none of them has any.
    """
    known = [(fact, [fact.read(item.data) for item in items]) for fact in worth_saying(question)]
    shared = [(fact, values) for fact, values in known if all(value is not None for value in values)]
    shared.sort(key=lambda pair: not pair[0].asked.search(question))
    asked = [pair for pair in shared if pair[0].asked.search(question)] or shared
    leads = [lead for fact, values in asked if fact.apart and (lead := fact.apart(phrases, values))]
    ahead = [[said for place, said in leads if place == at] for at in range(len(items))]
    common = [[fact.say(phrases, values[at]) for fact, values in shared[:MAX_FACTS]] for at in range(len(items))]
    facts = [said or _facts(question, item, phrases) for item, said in zip(items, common, strict=True)]
    if not any(facts):
        return ()
    contrast, refs = CONTRASTS[phrases.language], tuple(item.ref for item in items)
    names = [phrases.name(_name(item)) for item in items]
    apart = [contrast.ahead(name, said) for name, said in zip(names, ahead, strict=True) if said]
    sides = [contrast.side(name, said) for name, said in zip(names, facts, strict=True)]
    return tuple(Sentence(contrast.together(parts), refs) for parts in (apart, sides) if parts)


def describe(item: Item, phrases: Phrases) -> tuple[Sentence, ...]:
    """What an item says of itself: its facts, its texts up to a length, and what else it holds in few words."""
    facts, told, more = _account(item, phrases)
    head = [_headed(item, facts, phrases)] if facts or not told else []
    return tuple(Sentence(text, (item.ref,)) for text in (*head, *_within(told, MAX_TOLD), *more))


def passage(question: str, item: Item, phrases: Phrases, most: int) -> str:
    """What an item says of itself in so many characters: its name and facts, and of its texts what matters most.

    All that an answer quotes or says of the item stands in it, as far as there is room.
    """
    facts, told, more = _account(item, phrases)
    said = [_headed(item, facts, phrases), *told, *more]
    if sum(map(len, said)) + len(said) > most:
        languages = _languages([item], phrases)
        terms = _terms(question, languages)
        shared = [sum(_shares(term, _stems(text, languages)) for term in terms) for text in said]
        said = _fitting(said, sorted(range(len(said)), key=lambda at: (at > 0, -shared[at], at)), most)
    return shortened(" ".join(said), most)


def _fitting(said: Sequence[str], order: Sequence[int], most: int) -> list[str]:
    """The first in this order that have room, as they follow each other; the very first in any case."""
    kept: set[int] = set()
    for at in order:
        if not kept or len(said[at]) < most:
            kept.add(at)
            most -= len(said[at]) + 1
    return [said[at] for at in sorted(kept)]


def _account(item: Item, phrases: Phrases) -> tuple[list[str], list[str], list[str]]:
    """The facts of an item, the sentences of its texts, and one of what else it holds if it holds more."""
    known = [fact for fact in worth_saying() if fact.read(item.data) is not None]
    facts = [fact.say(phrases, fact.read(item.data)) for fact in known]
    told = _sentences_of(_spoken({name: item.data[name] for name in SPOKEN if name in item.data}, 0))
    more = [phrases.limits.value.format(phrases.word(label), text) for label, text in further(item.data, phrases)]
    return facts, told, [capital(CONTRASTS[phrases.language].together(more))] if more else []


def _headed(item: Item, facts: Sequence[str], phrases: Phrases) -> str:
    contrast, name = CONTRASTS[phrases.language], phrases.name(_name(item))
    return contrast.together([contrast.side(name, facts)]) if facts or name[-1:] not in "?!？！" else name


def recount(question: str, passages: Sequence[Item], phrases: Phrases) -> tuple[Sentence, ...]:
    """What files say that came with a question, if none of its words but those that speak of files is in them."""
    languages = _languages(passages, phrases)
    terms = _terms(_OF_FILES.sub(" ", question), languages)
    told = [(text, item.ref) for item in passages for text in _sentences_of(_spoken(item.data, 0))]
    if any(_shares(term, _stems(text, languages)) for text, _ in told for term in terms):
        return ()
    kept = list(_within([text for text, _ in told], MAX_TOLD))
    return tuple(Sentence(text, (id,)) for text, id in told[: len(kept)])


def speaks_of_files(question: str) -> bool:
    return _FILES.search(question) is not None


_FILES = re.compile(
    r"\b(?:files?|documents?|attach\w*|upload\w*|pdfs?|datei(?:en)?|dokumente?s?|anhang\w*|anhäng\w*"
    r"|archivos?|documentos?|adjunt\w+|fichiers?|pi[eè]ces?\s+jointes?)\b|文件|文档|附件|ファイル|文書|添付|ملف|مستند|مرفق",
    re.IGNORECASE,
)
_OF_FILES = re.compile(
    rf"{_FILES.pattern}|\b(?:say|says|said|read|tell|contains?|summar\w+|sum\s+up|main|points?|content\w*|explain|mean"
    r"|inhalt\w*|steht|sagt|fasse?n?|zusammen\w*|resum\w+|résum\w+|dice|contiene|dit|contient)\b|总结|概括|要約|まとめ|لخص",
    re.IGNORECASE,
)


def _within(sentences: Sequence[str], most: int) -> Iterator[str]:
    """The first sentences that have room; the very first in any case."""
    for at, text in enumerate(sentences):
        most -= len(text)
        if at and most < 0:
            return
        yield text


def _name(item: Item) -> str:
    return (text_at(item.data, *TITLES) or shortened(plain(item.id), MAX_NAME)).rstrip(".。")


def kind_of(items: Sequence[Item], phrases: Phrases) -> str:
    """The type that the items have in common, or that their collection is named after, if there is a word for it."""
    kinds = {_type(item.data) for item in items}
    named = {singular(item.collection.lower()).capitalize() for item in items}
    common = [*(kinds if len(kinds) == 1 else ()), *(named if len(named) == 1 else ())]
    return next((kind for kind in common if kind in phrases.nouns), "Thing")


def _type(data: Data) -> str:
    """The schema.org type, or a wider one that has a name in every language."""
    said = next(values_at(data, "@type"), "")
    kind = said.rsplit("/", 1)[-1].rsplit(":", 1)[-1] if isinstance(said, str) else ""
    wider = next((wide for wide in _WIDER if kind.endswith(wide)), kind)
    return _TYPES.get(wider, wider)


def _facts(question: str, item: Item, phrases: Phrases) -> list[str]:
    """The facts of an item, those first that the question asks for."""
    known = [(fact, value) for fact in worth_saying(question) if (value := fact.read(item.data)) is not None]
    known.sort(key=lambda pair: not pair[0].asked.search(question))
    return [fact.say(phrases, value) for fact, value in known[:MAX_FACTS]]


def _spans(items: Sequence[Item], phrases: Phrases) -> Iterator[Sentence]:
    """What most of the items say and say differently, from the least to the most."""
    parts: list[str] = []
    cited: dict[str, None] = {}
    for fact in FACTS:
        known = {item.ref: value for item in items if fact.span and (value := fact.read(item.data)) is not None}
        said = fact.span(phrases, list(known.values())) if fact.span and len(known) > len(items) // 2 else ""
        if said:
            parts.append(said)
            cited.update(dict.fromkeys(known))
    if parts:
        yield Sentence(phrases.selection(parts), tuple(cited))


def _languages(items: Sequence[Item], phrases: Phrases) -> tuple[str, ...]:
    """Those that the question and the items may be written in."""
    said = [item.data.get("inLanguage") for item in items[:MAX_ITEMS]]
    named = [language[:2].lower() for language in said if isinstance(language, str)]
    return tuple(dict.fromkeys([phrases.language, *(each for each in named if each in STEMMERS), "en"]))[:4]


def _stems(text: str, languages: tuple[str, ...]) -> Stems:
    found = set(words(text))
    return frozenset(stemmer(language)(word) for language in languages for word in found)


def _shares(term: Term, stems: Stems) -> bool:
    return not stems.isdisjoint(term.stems)


def answered(question: str, items: Sequence[Item], phrases: Phrases) -> Reply | None:
    """The accepted answer to a question that somebody asked before, if one of the items holds it."""
    languages = _languages(items, phrases)
    terms = _terms(question, languages)
    best, closest = None, 0.0
    for item in items[:MAX_ITEMS]:
        for asked in _questions(item.data):
            name = text_at(asked, "name", "text")
            nearness = _nearness(terms, name, languages) if _asks_alike(question, name) else 0.0
            if nearness > closest and (said := _accepted(asked, item)):
                best, closest = Reply(item, said), nearness
    return best


def _terms(question: str, languages: tuple[str, ...]) -> Sequence[Term]:
    return wanted(question, languages).terms[:MAX_TERMS]


def _replies(question: str, item: Item, phrases: Phrases) -> tuple[Sentence, ...]:
    """What an item answers, if it is a question itself that has half of the words of the one that is asked."""
    languages = _languages([item], phrases)
    terms, name = _terms(question, languages), text_at(item.data, *TITLES)
    shared = sum(_shares(term, _stems(name, languages)) for term in terms)
    # A mere yes would be one to what was asked.
    tells = _first_word(name) in ASIDE | WHAT
    is_near = shared > 0 and shared >= HALF * len(terms) and tells and _asks_alike(question, name)
    return _accepted(item.data, item) if is_near and "acceptedAnswer" in item.data else ()


def _asks_alike(question: str, other: str) -> bool:
    """Whether two questions may want the same: who asks where something is does not want to know when it opens."""
    mine, its = _first_word(question), _first_word(other)
    return mine == its or mine not in ASIDE or its not in _ASKING


_ASKING = folded(ASKING)


def _first_word(text: str) -> str:
    return fold(next(iter(words(text)), ""))


def _accepted(asked: Data, item: Item) -> tuple[Sentence, ...]:
    said = _sentences_of(_spoken(asked.get("acceptedAnswer"), 0))
    return tuple(Sentence(text, (item.ref,)) for text in said[:MAX_SAID])


def _questions(data: Data) -> Iterator[Data]:
    for each in (data, *values_at(data, "mainEntity")):
        if isinstance(each, Mapping) and "acceptedAnswer" in each:
            yield cast("Data", each)


def _nearness(terms: Sequence[Term], asked: str, languages: tuple[str, ...]) -> float:
    """How much two questions have in common, from 0 to 2; 0 when it is too little."""
    stems = _stems(asked, languages)
    shared = sum(_shares(term, stems) for term in terms)
    if not shared or shared < ASKED * len(terms):
        return 0.0
    return shared / len(terms) + shared / len(wanted(asked, languages).terms)


def _candidates(item: Item, rank: int, languages: tuple[str, ...]) -> Iterator[Candidate]:
    title = _stems(_name(item), languages)
    for place, text in enumerate(_sentences_of(_spoken(item.data, 0))):
        yield Candidate(text, item, rank, place, _stems(text, languages), title)


def _spoken(value: Any, depth: int) -> Iterator[str]:
    """The running texts of an item. One that has none under the usual names speaks through all its fields."""
    match value:
        case str():
            yield value
        case list() if depth < MAX_DEPTH:
            for each in cast("list[Any]", value):
                yield from _spoken(each, depth + 1)
        case Mapping() if depth < MAX_DEPTH:
            data = cast("Data", value)
            named = [name for name in SPOKEN if name in data]
            for name in named or [name for name in data if name not in SILENT and name not in TITLES]:
                yield from _spoken(data[name], depth + 1)
        case _:
            pass


def _sentences_of(texts: Iterator[str]) -> list[str]:
    """The sentences of an item's texts as far as they are read, each once. What asks does not answer."""
    left, found = MAX_CHARACTERS, dict[str, None]()
    for text in texts:
        for sentence in sentences(unmarked(text[:left])):
            if not sentence.endswith(("?", "？")) and len(words(sentence)) > 1:
                found[shortened(sentence, MAX_SENTENCE)] = None
        left -= max(len(text), 1)
        if left <= 0 or len(found) >= MAX_CANDIDATES:
            break
    return list(islice(found, MAX_CANDIDATES))


def _best(terms: Sequence[Term], candidates: Sequence[Candidate]) -> tuple[Sentence, ...]:
    """The sentences with the rarest of the question's words; those of one item stay in their order."""
    weights = {term: _weight(term, candidates) for term in terms}
    scored = [(score, each) for each in candidates if (score := _score(each, weights)) > 0]
    scored.sort(key=lambda pair: -pair[0])
    chosen: list[Candidate] = []
    for score, each in scored:
        if len(chosen) == MAX_SAID or score < WORTH * scored[0][0]:
            break
        if not any(_alike(each, other) for other in chosen):
            chosen.append(each)
    ranks = list(dict.fromkeys(each.rank for each in chosen))
    chosen.sort(key=lambda each: (ranks.index(each.rank), each.place))
    return tuple(Sentence(each.text, (each.item.ref,)) for each in chosen)


def _weight(term: Term, candidates: Sequence[Candidate]) -> float:
    shared = sum(_shares(term, each.stems) for each in candidates)
    return math.log(1 + len(candidates) / max(shared, 1))


def _score(candidate: Candidate, weights: Mapping[Term, float]) -> float:
    own = {term for term in weights if _shares(term, candidate.stems)}
    named = {term for term in weights if _shares(term, candidate.title)}
    is_about = candidate.place == 0 and len(named) >= ASKED * len(weights)
    if not own and not is_about:
        return 0.0
    share = ABOUT_SHARE if is_about else TITLE_SHARE
    found = sum(weights[term] for term in own) + share * sum(weights[term] for term in named - own)
    return found * (1 + LEAD / (1 + candidate.place)) / (1 + RANK_LOSS * candidate.rank)


def _alike(a: Candidate, b: Candidate) -> bool:
    return len(a.stems & b.stems) >= ALIKE * len(a.stems | b.stems)
