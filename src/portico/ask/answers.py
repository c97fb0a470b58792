"""Summaries and answers from the items themselves: every sentence states what an item states, and cites it.

Pure functions without a language model. What an item says is data: it is cleaned and quoted, never followed.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import Any, TypeAlias, cast

from portico.ask.facts import FACTS, MAX_NAME, TEXT_FIELDS, Data, other_values, relevant_facts, text_at, values_at
from portico.ask.languages.loader import load_language
from portico.ask.languages.phrasebook import Phrases, capitalize
from portico.ask.languages.wordlists import fold_words
from portico.ask.prose import plain_text, sentences, shorten, strip_markup
from portico.ask.understanding.constraints import is_factual
from portico.ask.understanding.kinds import ADVERBIAL_QUESTIONS, QUESTION_WORDS, WHAT_WORDS
from portico.catalog import singular
from portico.items import TITLES, Item
from portico.presentation import repeated_fields
from portico.search.index.text import STEMMERS, UNSEARCHED_FIELDS, Term, fold, parse_text_query, stemmer, words

MAX_SENTENCE = 400  # characters; a longer one is cut at a word
MAX_SENTENCES = 4  # sentences of a summary or an answer
MAX_FACTS = 4  # of the best match
MAX_NAMED = 3  # further matches
MAX_DESCRIPTION = 1200  # characters of the texts of an item that is spoken of alone
MAX_TERMS = 64  # words of a question
MAX_ITEMS = 10  # whose texts are read for an answer
MAX_CANDIDATES = 200  # sentences of an item
MAX_CHARACTERS = 20_000  # of an item
MAX_DEPTH = 8  # of objects and lists within each other
SAME_QUESTION_SHARE = 0.7  # of a question's words that an answered question has to share
OWN_ANSWER_SHARE = 0.5  # of them, for one that is found to be answered
MIN_SCORE_SHARE = 0.6  # of the best sentence's score that another one needs
DUPLICATE_SHARE = 0.8  # of the words of two sentences that make them one
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
class AcceptedAnswer:
    """An answer of an answered question, and the item that holds it."""

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
    """Return how many fit, if that is known; the best with its facts, the next by name, and the spans over all shown.

    The kind is that of all that fit, where these are more than the items.
    """
    if not items:
        return (Sentence(phrases.nothing, ()),)
    accepted = find_accepted_answer(question, items, phrases) if is_factual(question) else None
    if accepted:
        others = [item for item in items if item.ref != accepted.item.ref][:MAX_NAMED]
        return (*accepted.sentences, *_also(others, phrases))
    count = max(total or 0, len(items)) if is_counted else 0
    facts = _facts(question, items[0], phrases)
    replies = _own_answer(question, items[0], phrases)
    if count == 1:
        return (Sentence(phrases.only(phrases.name(_name(items[0])), facts), (items[0].ref,)), *replies)
    fit = phrases.fit(count, phrases.noun(kind or kind_of(items, phrases), count))
    summary = [
        *([Sentence(fit, tuple(item.ref for item in items))] if is_counted else ()),
        Sentence(phrases.best(phrases.name(_name(items[0])), facts), (items[0].ref,)),
    ]
    return (*summary, *replies, *_also(items[1 : 1 + MAX_NAMED], phrases), *_spans(items, phrases))


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
    """Return the sentences of the items that answer the question best, or a summary if none answers it."""
    accepted = find_accepted_answer(question, items, phrases)
    if accepted:
        return accepted.sentences
    languages = _languages(items, phrases)
    terms = _terms(question, languages)
    fact = _facts_of_one(question, items, phrases)
    speaking = [item for item in items[:MAX_ITEMS] if not fact or item.ref in fact[0].cites]
    candidates = [candidate for rank, item in enumerate(speaking) for candidate in _candidates(item, rank, languages)]
    chosen = (*fact, *_best(terms, candidates)[: MAX_SENTENCES - len(fact)])
    return chosen or summarize(question, items, phrases, total, is_counted=is_counted, kind=kind)


def _facts_of_one(question: str, items: Sequence[Item], phrases: Phrases) -> tuple[Sentence, ...]:
    """Return the facts that a question asks of the one item that it names: "how long does the fish pie take"."""
    if not is_factual(question):
        return ()
    match = _facts_by_name(question, items, phrases) or _facts_by_words(question, items, phrases)
    if match is None:
        return ()
    item, facts = match
    contrast = load_language(phrases.language).comparison_phrases
    return (Sentence(contrast.together([contrast.side(phrases.name(_name(item)), facts)]), (item.ref,)),)


def _facts_by_name(question: str, items: Sequence[Item], phrases: Phrases) -> tuple[Item, list[str]] | None:
    """Return the item whose whole name stands in a question, the longest of them, and its facts that are asked for."""
    padded_question = f" {_plainly(question)} "
    names_in_question = [
        (item, name) for item in items[:MAX_ITEMS] if (name := f" {_plainly(_name(item))} ") in padded_question
    ]
    longest = max((len(name) for _, name in names_in_question), default=0)
    matches = [(item, name) for item, name in names_in_question if len(name) == longest]
    if len(matches) != 1:
        return None
    item, name = matches[0]
    facts = _select_facts(padded_question.replace(name, " "), item, phrases)
    return (item, facts) if facts else None


def _facts_by_words(question: str, items: Sequence[Item], phrases: Phrases) -> tuple[Item, list[str]] | None:
    """Return the only item that has the fact and all other words in its name: "when does the library open"."""
    languages = _languages(items, phrases)
    terms = _terms(reduce(lambda rest, fact: fact.cue.sub(" ", rest), FACTS, question), languages)
    names = [(item, _stems(_name(item), languages)) for item in items[:MAX_ITEMS] if terms]
    candidates = [item for item, stems in names if all(_shares(term, stems) for term in terms)]
    matches = [(item, facts) for item in candidates if (facts := _select_facts(question, item, phrases))]
    return matches[0] if len(matches) == 1 else None


def _select_facts(question: str, item: Item, phrases: Phrases) -> list[str]:
    facts = [(fact, fact.read(item.data)) for fact in FACTS if fact.cue.search(question)]
    return [fact.say(phrases, value) for fact, value in facts if value is not None]


def _plainly(text: str) -> str:
    return " ".join(words(text)).lower()


def compare(question: str, items: Sequence[Item], phrases: Phrases) -> tuple[Sentence, ...]:
    """Return what sets items apart, by what was asked for if that can be said, and the facts they share or else have.

    Nothing, if none of them has any.
    """
    readings = [(fact, [fact.read(item.data) for item in items]) for fact in relevant_facts(question)]
    shared = [(fact, values) for fact, values in readings if all(value is not None for value in values)]
    shared.sort(key=lambda pair: not pair[0].cue.search(question))
    relevant = [pair for pair in shared if pair[0].cue.search(question)] or shared
    leads = [lead for fact, values in relevant if fact.apart and (lead := fact.apart(phrases, values))]
    ahead = [[text for place, text in leads if place == at] for at in range(len(items))]
    common = [[fact.say(phrases, values[at]) for fact, values in shared[:MAX_FACTS]] for at in range(len(items))]
    facts = [item_facts or _facts(question, item, phrases) for item, item_facts in zip(items, common, strict=True)]
    if not any(facts):
        return ()
    contrast, refs = load_language(phrases.language).comparison_phrases, tuple(item.ref for item in items)
    names = [phrases.name(_name(item)) for item in items]
    apart = [contrast.ahead(name, lead_texts) for name, lead_texts in zip(names, ahead, strict=True) if lead_texts]
    sides = [contrast.side(name, item_facts) for name, item_facts in zip(names, facts, strict=True)]
    return tuple(Sentence(contrast.together(parts), refs) for parts in (apart, sides) if parts)


def describe(item: Item, phrases: Phrases) -> tuple[Sentence, ...]:
    """Return what an item says of itself: its facts, its texts up to a length, and what else it holds in few words."""
    facts, texts, more = _describe_parts(item, phrases)
    head = [_head_sentence(item, facts, phrases)] if facts or not texts else []
    return tuple(Sentence(text, (item.ref,)) for text in (*head, *_take_within(texts, MAX_DESCRIPTION), *more))


def passage(question: str, item: Item, phrases: Phrases, most: int) -> str:
    """Return an item's own words within a length: its name, its facts, and the most relevant of its texts.

    All that an answer quotes or says of the item stands in it, as far as there is room.
    """
    facts, texts, more = _describe_parts(item, phrases)
    parts = [_head_sentence(item, facts, phrases), *texts, *more]
    if sum(map(len, parts)) + len(parts) > most:
        languages = _languages([item], phrases)
        terms = _terms(question, languages)
        shared = [sum(_shares(term, _stems(text, languages)) for term in terms) for text in parts]
        parts = _select_within(parts, sorted(range(len(parts)), key=lambda at: (at > 0, -shared[at], at)), most)
    return shorten(" ".join(parts), most)


def _select_within(parts: Sequence[str], order: Sequence[int], most: int) -> list[str]:
    """Return the first in this order that have room, as they follow each other; the very first in any case."""
    selected: set[int] = set()
    for at in order:
        if not selected or len(parts[at]) < most:
            selected.add(at)
            most -= len(parts[at]) + 1
    return [parts[at] for at in sorted(selected)]


def _describe_parts(item: Item, phrases: Phrases) -> tuple[list[str], list[str], list[str]]:
    """Return the facts of an item, the sentences of its texts, and one of what else it holds if it holds more."""
    fact_types = [fact for fact in relevant_facts() if fact.read(item.data) is not None]
    facts = [fact.say(phrases, fact.read(item.data)) for fact in fact_types]
    texts = _sentences_of(_iter_prose({name: item.data[name] for name in TEXT_FIELDS if name in item.data}, 0))
    more = [phrases.limits.value.format(phrases.word(label), text) for label, text in other_values(item.data, phrases)]
    return facts, texts, [capitalize(load_language(phrases.language).comparison_phrases.together(more))] if more else []


def _head_sentence(item: Item, facts: Sequence[str], phrases: Phrases) -> str:
    contrast, name = load_language(phrases.language).comparison_phrases, phrases.name(_name(item))
    return contrast.together([contrast.side(name, facts)]) if facts or name[-1:] not in "?!？！" else name


def quote_files(question: str, passages: Sequence[Item], phrases: Phrases) -> tuple[Sentence, ...]:
    """Return what attached files say, if no word of the question stands in them except those that mean files."""
    languages = _languages(passages, phrases)
    terms = _terms(_OF_FILES.sub(" ", question), languages)
    passages_with_refs = [(text, item.ref) for item in passages for text in _sentences_of(_iter_prose(item.data, 0))]
    if any(_shares(term, _stems(text, languages)) for text, _ in passages_with_refs for term in terms):
        return ()
    quoted = list(_take_within([text for text, _ in passages_with_refs], MAX_DESCRIPTION))
    return tuple(Sentence(text, (id,)) for text, id in passages_with_refs[: len(quoted)])


def mentions_files(question: str) -> bool:
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


def _take_within(sentences: Sequence[str], most: int) -> Iterator[str]:
    """Yield the first sentences that have room; the very first in any case."""
    for at, text in enumerate(sentences):
        most -= len(text)
        if at and most < 0:
            return
        yield text


def _name(item: Item) -> str:
    return (text_at(item.data, *TITLES) or shorten(plain_text(item.id), MAX_NAME)).rstrip(".。")


def kind_of(items: Sequence[Item], phrases: Phrases) -> str:
    """Return the type that the items share, or that their collection is named after, if there is a word for it."""
    kinds = {_type(item.data) for item in items}
    collection_kinds = {singular(item.collection.lower()).capitalize() for item in items}
    common = [*(kinds if len(kinds) == 1 else ()), *(collection_kinds if len(collection_kinds) == 1 else ())]
    return next((kind for kind in common if kind in phrases.nouns), "Thing")


def _type(data: Data) -> str:
    """Return the schema.org type, or a wider one that has a name in every language."""
    type_name = next(values_at(data, "@type"), "")
    kind = type_name.rsplit("/", 1)[-1].rsplit(":", 1)[-1] if isinstance(type_name, str) else ""
    wider = next((wide for wide in _WIDER if kind.endswith(wide)), kind)
    return _TYPES.get(wider, wider)


def _facts(question: str, item: Item, phrases: Phrases) -> list[str]:
    """Return the facts of an item, those first that the question asks for."""
    readings = [(fact, value) for fact in relevant_facts(question) if (value := fact.read(item.data)) is not None]
    readings.sort(key=lambda pair: not pair[0].cue.search(question))
    return [fact.say(phrases, value) for fact, value in readings[:MAX_FACTS]]


def _spans(items: Sequence[Item], phrases: Phrases) -> Iterator[Sentence]:
    """Yield what most of the items say and say differently, from the least to the most."""
    parts: list[str] = []
    cited: dict[str, None] = {}
    for fact in FACTS:
        by_ref = {item.ref: value for item in items if fact.span and (value := fact.read(item.data)) is not None}
        span = fact.span(phrases, list(by_ref.values())) if fact.span and len(by_ref) > len(items) // 2 else ""
        if span:
            parts.append(span)
            cited.update(dict.fromkeys(by_ref))
    if parts:
        yield Sentence(phrases.selection(parts), tuple(cited))


def _languages(items: Sequence[Item], phrases: Phrases) -> tuple[str, ...]:
    """Return those that the question and the items may be written in."""
    tags = [item.data.get("inLanguage") for item in items[:MAX_ITEMS]]
    languages = [language[:2].lower() for language in tags if isinstance(language, str)]
    return tuple(
        dict.fromkeys([phrases.language, *(language for language in languages if language in STEMMERS), "en"])
    )[:4]


def _stems(text: str, languages: tuple[str, ...]) -> Stems:
    distinct = set(words(text))
    return frozenset(stemmer(language)(word) for language in languages for word in distinct)


def _shares(term: Term, stems: Stems) -> bool:
    return not stems.isdisjoint(term.stems)


def find_accepted_answer(question: str, items: Sequence[Item], phrases: Phrases) -> AcceptedAnswer | None:
    """Return the accepted answer to an answered question, if one of the items holds it."""
    languages = _languages(items, phrases)
    terms = _terms(question, languages)
    best, closest = None, 0.0
    for item in items[:MAX_ITEMS]:
        for other in _questions(item.data):
            name = text_at(other, "name", "text")
            nearness = _similarity(terms, name, languages) if _asks_alike(question, name) else 0.0
            if nearness > closest and (accepted := _sentences_of_answer(other, item)):
                best, closest = AcceptedAnswer(item, accepted), nearness
    return best


def _terms(question: str, languages: tuple[str, ...]) -> Sequence[Term]:
    return parse_text_query(question, languages).terms[:MAX_TERMS]


def _own_answer(question: str, item: Item, phrases: Phrases) -> tuple[Sentence, ...]:
    """Return what an item answers, if it is a question itself that has half of the words of the one that is asked."""
    languages = _languages([item], phrases)
    terms, name = _terms(question, languages), text_at(item.data, *TITLES)
    shared = sum(_shares(term, _stems(name, languages)) for term in terms)
    # A mere yes would be one to what was asked.
    tells = _first_word(name) in ADVERBIAL_QUESTIONS | WHAT_WORDS
    is_near = shared > 0 and shared >= OWN_ANSWER_SHARE * len(terms) and tells and _asks_alike(question, name)
    return _sentences_of_answer(item.data, item) if is_near and "acceptedAnswer" in item.data else ()


def _asks_alike(question: str, other: str) -> bool:
    """Return whether two questions may ask the same. "Where" and "when" never do."""
    mine, its = _first_word(question), _first_word(other)
    return mine == its or mine not in ADVERBIAL_QUESTIONS or its not in _ASKING


_ASKING = fold_words(QUESTION_WORDS)


def _first_word(text: str) -> str:
    return fold(next(iter(words(text)), ""))


def _sentences_of_answer(question: Data, item: Item) -> tuple[Sentence, ...]:
    texts = _sentences_of(_iter_prose(question.get("acceptedAnswer"), 0))
    return tuple(Sentence(text, (item.ref,)) for text in texts[:MAX_SENTENCES])


def _questions(data: Data) -> Iterator[Data]:
    for part in (data, *values_at(data, "mainEntity")):
        if isinstance(part, Mapping) and "acceptedAnswer" in part:
            yield cast("Data", part)


def _similarity(terms: Sequence[Term], other: str, languages: tuple[str, ...]) -> float:
    """Return how much two questions have in common, from 0 to 2; 0 when it is too little."""
    stems = _stems(other, languages)
    shared = sum(_shares(term, stems) for term in terms)
    if not shared or shared < SAME_QUESTION_SHARE * len(terms):
        return 0.0
    return shared / len(terms) + shared / len(parse_text_query(other, languages).terms)


def _candidates(item: Item, rank: int, languages: tuple[str, ...]) -> Iterator[Candidate]:
    title = _stems(_name(item), languages)
    for place, text in enumerate(_sentences_of(_iter_prose(item.data, 0))):
        yield Candidate(text, item, rank, place, _stems(text, languages), title)


def _iter_prose(value: Any, depth: int) -> Iterator[str]:
    """Yield the running texts of an item. One that has none under the usual names speaks through all its fields."""
    match value:
        case str():
            yield value
        case list() if depth < MAX_DEPTH:
            for part in cast("list[Any]", value):
                yield from _iter_prose(part, depth + 1)
        case Mapping() if depth < MAX_DEPTH:
            data = cast("Data", value)
            text_fields = [name for name in TEXT_FIELDS if name in data]
            known = UNSEARCHED_FIELDS | set(TITLES) | (repeated_fields(data) if not text_fields else set[str]())
            for name in text_fields or [name for name in data if name not in known]:
                yield from _iter_prose(data[name], depth + 1)
        case _:
            pass


def _sentences_of(texts: Iterator[str]) -> list[str]:
    """Return the sentences of an item's texts as far as they are read, each once. What asks does not answer."""
    left, unique = MAX_CHARACTERS, dict[str, None]()
    for text in texts:
        for sentence in sentences(strip_markup(text[:left])):
            if not sentence.endswith(("?", "？")) and len(words(sentence)) > 1:
                unique[shorten(sentence, MAX_SENTENCE)] = None
        left -= max(len(text), 1)
        if left <= 0 or len(unique) >= MAX_CANDIDATES:
            break
    return list(islice(unique, MAX_CANDIDATES))


def _best(terms: Sequence[Term], candidates: Sequence[Candidate]) -> tuple[Sentence, ...]:
    """Return the sentences with the rarest of the question's words; those of one item stay in their order."""
    shared = {term: sum(_shares(term, candidate.stems) for candidate in candidates) for term in terms}
    weights = {term: math.log(1 + len(candidates) / max(count, 1)) for term, count in shared.items()}
    scored = [(score, candidate) for candidate in candidates if (score := _score(candidate, weights)) > 0]
    scored.sort(key=lambda pair: -pair[0])
    chosen: list[Candidate] = []
    for score, candidate in scored:
        if len(chosen) == MAX_SENTENCES or score < MIN_SCORE_SHARE * scored[0][0]:
            break
        if not any(_alike(candidate, other) for other in chosen):
            chosen.append(candidate)
    ranks = list(dict.fromkeys(candidate.rank for candidate in chosen))
    chosen.sort(key=lambda candidate: (ranks.index(candidate.rank), candidate.place))
    return tuple(Sentence(candidate.text, (candidate.item.ref,)) for candidate in chosen)


def _score(candidate: Candidate, weights: Mapping[Term, float]) -> float:
    own = {term for term in weights if _shares(term, candidate.stems)}
    in_title = {term for term in weights if _shares(term, candidate.title)}
    is_about = candidate.place == 0 and len(in_title) >= SAME_QUESTION_SHARE * len(weights)
    if not own and not is_about:
        return 0.0
    share = ABOUT_SHARE if is_about else TITLE_SHARE
    weight = sum(weights[term] for term in own) + share * sum(weights[term] for term in in_title - own)
    return weight * (1 + LEAD / (1 + candidate.place)) / (1 + RANK_LOSS * candidate.rank)


def _alike(a: Candidate, b: Candidate) -> bool:
    return len(a.stems & b.stems) >= DUPLICATE_SHARE * len(a.stems | b.stems)
