"""Makes a follow-up question stand alone, by rules over word lists. Knows no items, and asks no language model.

A question is read in the light of the thread before it: the last question that stood alone and what followed it. The
first rule that applies says how it leans on the thread.

    exchange   "instead of fish, meat"         one thing for another
    point      "which of those", "the first"   the results that were shown
    narrow     "only vegan ones", "cheaper"    the same things, of a certain kind
    add        "without nuts", "and January?"  one more constraint, or another value for an old one
    name       "how many pages does it have"   a pronoun stands for the subject
    complete   "what are the requirements"     the subject is left out

A question that none applies to is a topic of its own and begins a new thread.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

from portico.ask.languages.lexicon import FollowupWords, Opening
from portico.ask.languages.loader import load_language, supported_language
from portico.ask.understanding.kinds import ADVERBIAL_QUESTIONS, WHAT_WORDS
from portico.search.index.text import fold, stemmer

MAX_CARRIED = 5  # earlier questions
MAX_PREVIOUS = 20  # previous questions
MAX_READ = 400  # characters; a longer question says enough to stand alone
MAX_FOLLOWUP_WORDS = 24  # words of a question that leans on others
MAX_BASE = 240  # characters of earlier text that are carried whole; of a longer text only the subject is
MAX_SUBJECT = 6  # words that stand for a long question
MAX_KIND = 3  # words before "ones"
MIN_WHOLE = 4  # words of a question that may be about something else
MAX_PRONOUN_CONTENT = 4  # words of content in a question whose pronoun is explained
# How many words of content a question may have that only adds to the one before. With more it is a topic of its own.
MAX_ADDED = {Opening.NONE: 3, Opening.JOIN: 4, Opening.SHIFT: 2, Opening.CORRECT: 3}

_WORD = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*")
_BREAK = re.compile(r"[.,;:?!]")
_EDGES = " \t\r\n.,;:?!-–—"


@dataclass(frozen=True, slots=True)
class StandaloneQuestion:
    """A question with what it leaves unsaid."""

    text: str  # for search, and for the person to see
    carried_questions: tuple[str, ...] = ()  # the earlier questions that still hold, oldest first
    is_followup: bool = False  # leans on earlier questions
    has_reference: bool = False  # speaks of the results that were shown before


class WordToken(NamedTuple):
    text: str
    plain: str
    start: int
    end: int


@dataclass(frozen=True)  # no slots: what is derived is kept
class QuestionText:
    """A question as it is read: what opens it, and the words after that."""

    source: str
    words: tuple[WordToken, ...]
    vocabulary: FollowupWords
    opening: Opening = Opening.NONE

    @property
    def text(self) -> str:
        return self.cut(0, len(self.words))

    @cached_property
    def content(self) -> list[WordToken]:
        return [word for word in self.words if word.plain not in self.vocabulary.empty]

    @cached_property
    def stems(self) -> set[str]:
        return {_stem(word, self) for word in self.content}

    @cached_property
    def is_sentence(self) -> bool:
        """Whether it is a whole sentence rather than some words."""
        return any(word.plain in self.vocabulary.question_words for word in self.words)

    @property
    def text_with_mark(self) -> str:
        """The text, with its question mark."""
        return f"{self.text}{self.mark}"

    @property
    def mark(self) -> str:
        return "?" if self.source.rstrip().endswith("?") and "¿" not in self.source else ""

    def cut(self, first: int, end: int) -> str:
        return self.source[self.words[first].start : self.words[end - 1].end] if first < end else ""

    def at(self, place: int) -> str:
        return self.words[place].plain if 0 <= place < len(self.words) else ""

    def find(self, phrases: Iterable[str]) -> tuple[int, int] | None:
        """Return the first and the end of the words that are one of the phrases."""
        plain = f" {' '.join(word.plain for word in self.words)} "
        for phrase in phrases:
            if (start := plain.find(f" {phrase} ")) >= 0:
                first = plain.count(" ", 0, start)
                return first, first + phrase.count(" ") + 1
        return None


@dataclass(frozen=True, slots=True)
class QuestionThread:
    """The questions since the last that stood alone, what the latest of them means, and what all are about."""

    questions: tuple[str, ...]
    text: str
    subject: QuestionText
    has_name: bool  # the subject can stand in the place of a pronoun
    has_reference: bool = False


@dataclass(frozen=True, slots=True)
class ResolvedQuestion:
    """What a question means in its thread."""

    text: str
    is_refinement: bool = False  # a constraint, for the questions after it too
    has_reference: bool = False


Rule: TypeAlias = Callable[[QuestionText, QuestionThread], ResolvedQuestion | None]
Words: TypeAlias = Sequence[WordToken]
Swap: TypeAlias = tuple[Words, Words]  # old words of the base, new words of the question


def resolve_followup(text: str, previous: Sequence[str], language: str = "en") -> StandaloneQuestion:
    """Return the last question with what it leaves unsaid. Previous questions are as they were asked, oldest first."""
    vocabulary = load_language(supported_language(language)).followup_words
    thread: QuestionThread | None = None
    for question in (*previous[-MAX_PREVIOUS:], text):
        if question.strip():
            thread = _extend_thread(thread, question, vocabulary)
    if thread is None or not text.strip() or len(thread.questions) == 1:
        return StandaloneQuestion(text)
    stems = _read(thread.text, vocabulary).stems
    holding = [question for question in thread.questions[:-1] if _read(question[:MAX_READ], vocabulary).stems & stems]
    carried = (*holding[:1], *holding[1:][1 - MAX_CARRIED :])
    return StandaloneQuestion(thread.text, carried, is_followup=True, has_reference=thread.has_reference)


def _extend_thread(thread: QuestionThread | None, question: str, vocabulary: FollowupWords) -> QuestionThread:
    turn = _read(question[:MAX_READ], vocabulary)
    resolved = _resolve(thread, turn) if thread and len(question) <= MAX_READ else None
    if thread is None or resolved is None:
        return QuestionThread((question,), question.strip(), *_subject(turn))
    questions = (*thread.questions, question)
    if not resolved.is_refinement:
        return replace(thread, questions=questions, text=resolved.text, has_reference=resolved.has_reference)
    # What was added one by one is wanted as a whole, so the gist of it is not enough.
    whole = _read(resolved.text.strip(_EDGES), vocabulary)
    subject = (whole, not whole.is_sentence) if len(resolved.text) <= MAX_BASE else _subject(whole)
    return QuestionThread(questions, resolved.text, *subject, resolved.has_reference)


def _resolve(thread: QuestionThread, whole: QuestionText) -> ResolvedQuestion | None:
    if len(whole.words) > MAX_FOLLOWUP_WORDS:
        return None
    turn = _strip_opening(whole)
    if not turn.words or thread.subject.stems <= turn.stems:
        return None
    return next((resolved for rule in RULES if (resolved := rule(turn, thread))), None)


def _read(text: str, vocabulary: FollowupWords) -> QuestionText:
    return QuestionText(
        text,
        tuple(WordToken(match[0], _plain(match[0]), *match.span()) for match in _WORD.finditer(text)),
        vocabulary,
    )


def _plain(word: str) -> str:
    return word.lower() if word.isascii() else fold(word.replace("’", "'"))


def _strip_opening(turn: QuestionText) -> QuestionText:
    """Return the question without the words that only open or close it, at either end: "meat instead"."""
    vocabulary, opening, first, end = turn.vocabulary, Opening.NONE, 0, len(turn.words)
    while match := _find_opening(turn, first):
        opening, first = match[0] or opening, first + match[1]
    while end > first and turn.at(end - 1) in vocabulary.closings:
        end -= 1
        opening = next((announced for _, announced in vocabulary.openings.get(turn.at(end), ()) if announced), opening)
    stripped = QuestionText(turn.source, turn.words[first:end], vocabulary, opening)
    # A bare word with a question mark: "Paris?"
    shifts = opening is Opening.NONE and turn.mark and len(stripped.content) == 1 and not stripped.is_sentence
    return replace(stripped, opening=Opening.SHIFT) if shifts else stripped


def _find_opening(turn: QuestionText, first: int) -> tuple[Opening | None, int] | None:
    """Return what is announced by the words from there on, and by how many of them."""
    for phrase, opening in turn.vocabulary.openings.get(turn.at(first), ()):
        if _begins(turn, first, phrase):
            return opening, len(phrase.split())
    return None


def _begins(turn: QuestionText, first: int, phrase: str) -> bool:
    """Return whether a phrase begins here. One with a comma needs a break after it: "no, vegan", not "no nuts"."""
    parts = phrase.rstrip(",").split()
    if any(turn.at(first + i) != part for i, part in enumerate(parts)):
        return False
    return not phrase.endswith(",") or _breaks_after(turn, first + len(parts) - 1)


def _subject(turn: QuestionText) -> tuple[QuestionText, bool]:
    """Return what a question is about, and whether that is a name."""
    vocabulary = turn.vocabulary
    if not turn.is_sentence and len(turn.words) <= 2 * MAX_SUBJECT:
        return _read(_strip_opening(turn).text[:MAX_BASE], vocabulary), True
    if names := _capital_runs(turn):
        unique = dict.fromkeys(turn.cut(*span) for span in names[:2])
        return _read(", ".join(unique)[:MAX_BASE], vocabulary), True
    return _read(_gist(turn)[:MAX_BASE], vocabulary), False


def _gist(turn: QuestionText) -> str:
    """Return the first words of content, with the small ones between them if these are few."""
    places = [i for i, word in enumerate(turn.words) if word.plain not in turn.vocabulary.empty][:MAX_SUBJECT]
    if places and places[-1] - places[0] < MAX_SUBJECT:
        return turn.cut(places[0], places[-1] + 1)
    return " ".join(turn.words[i].text for i in places)


def _names(turn: QuestionText) -> list[tuple[int, int]]:
    return _capital_runs(turn) if turn.vocabulary.capitals else []


def _capital_runs(turn: QuestionText) -> list[tuple[int, int]]:
    """Return runs of words with capitals, where capitals show names."""
    big = [word.text[0].isupper() and word.plain not in turn.vocabulary.question_words for word in turn.words]
    if sum(big) > max(4, 0.7 * len(big)):
        return []
    spans: list[tuple[int, int]] = []
    i = 0
    while i < len(big):
        end = i
        while end < len(big) and big[end]:
            end += 1
        if end > i and not (end == i + 1 and (_starts_sentence(turn, i) or turn.at(i) in turn.vocabulary.empty)):
            spans.append((i, end))
        i = max(end, i + 1)
    return spans


def _starts_sentence(turn: QuestionText, place: int) -> bool:
    before = turn.source[: turn.words[place].start].rstrip(" \"'“")
    return not before or before[-1] in ".?!"


def _resolve_swap(turn: QuestionText, thread: QuestionThread) -> ResolvedQuestion | None:
    span = turn.find((turn.vocabulary.swapping,))
    if not span:
        return None
    first, end = span
    split = next((i for i in range(end, len(turn.words)) if _breaks_after(turn, i)), len(turn.words) - 1) + 1
    old, new = turn.words[end:split], (*turn.words[:first], *turn.words[split:])
    if not old or not new:
        return None
    base, wording = _base(thread, turn.vocabulary), turn.source[new[0].start : new[-1].end]
    spots = [word for word in base.content if _stem(word, base) in {_stem(old_word, turn) for old_word in old}]
    text = _replace(base, spots[:1], wording) if spots else _join_limit(base.source, wording, turn.vocabulary)
    return ResolvedQuestion(text + _mark(thread), is_refinement=True)


def _stem(word: WordToken, turn: QuestionText) -> str:
    return stemmer(turn.vocabulary.language)(word.text)


def _breaks_after(turn: QuestionText, place: int) -> bool:
    return bool(_BREAK.match(turn.source, turn.words[place].end))


def _resolve_narrowing(turn: QuestionText, thread: QuestionThread) -> ResolvedQuestion | None:
    vocabulary, place = turn.vocabulary, _ones(turn)
    kind = [word for word in turn.words[:place] if word.plain not in vocabulary.question_words]
    while kind and kind[0].plain in vocabulary.empty and kind[0].plain not in vocabulary.comparing:
        kind.pop(0)
    if (
        not kind
        or len(kind) > MAX_KIND
        or kind[-1].plain in vocabulary.ordinals
        or kind[-1].plain in vocabulary.limiting
    ):
        return None
    if place is None and (
        turn.is_sentence or len(kind) > 2 or not any(word.plain in vocabulary.comparing for word in kind)
    ):
        return None
    base, rest = _merge_values(_base(thread, vocabulary), kind, turn)
    wording = " ".join(word.text for word in rest)
    first = not rest or (vocabulary.adjectives_first and not base.is_sentence)
    text = f"{wording} {base.source}".strip() if first else _join_limit(base.source, wording, vocabulary)
    more = "" if place is None else turn.cut(place + 1, len(turn.words))
    is_definite = any(turn.at(i) in vocabulary.definite for i in range(place or 0))
    return ResolvedQuestion(f"{text} {more}".strip() + _mark(thread), is_refinement=True, has_reference=is_definite)


def _ones(turn: QuestionText) -> int | None:
    """Return where "ones" stands for the things that were asked for."""
    for i, word in enumerate(turn.words):
        if word.plain in turn.vocabulary.ones and (
            i + 1 == len(turn.words) or turn.at(i + 1) in turn.vocabulary.limiting
        ):
            return i
    return None


def _resolve_reference(turn: QuestionText, thread: QuestionThread) -> ResolvedQuestion | None:
    vocabulary = turn.vocabulary
    if span := turn.find(vocabulary.among):
        rest = f"{turn.cut(0, span[0])} {turn.cut(span[1], len(turn.words))}".strip() + turn.mark
        return ResolvedQuestion(f"{thread.subject.source}: {rest}", has_reference=True)
    if len(turn.content) > MAX_PRONOUN_CONTENT or not (turn.find(vocabulary.pointing) or _points(turn)):
        return None
    return ResolvedQuestion(f"{thread.subject.source}: {turn.text_with_mark}", has_reference=True)


def _points(turn: QuestionText) -> bool:
    vocabulary = turn.vocabulary
    for i, word in enumerate(turn.words):
        after = turn.at(i + 1)
        closed = not after or after in vocabulary.question_words or after in vocabulary.limiting
        if word.plain in vocabulary.these and after not in vocabulary.calendar and not _is_explained(turn, i):
            return True
        if (
            word.plain in vocabulary.ordinals
            and (closed or after in vocabulary.ones)
            and i
            and turn.at(i - 1) in vocabulary.empty
        ):
            return True
        if word.plain in vocabulary.ones and turn.at(i - 1) in vocabulary.question_words:
            return True
    return False


def _resolve_addition(turn: QuestionText, thread: QuestionThread) -> ResolvedQuestion | None:
    vocabulary, old, limits = turn.vocabulary, _base(thread, turn.vocabulary), _begins_like_limit(turn)
    if turn.is_sentence or (turn.opening is Opening.NONE and not limits and not _is_value(turn, old)):
        return None
    if not 0 < len(turn.content) <= MAX_ADDED[turn.opening] or _find_pronoun(turn) is not None:
        return None
    base, rest = _merge_values(old, turn.words, turn)
    if not rest:
        return ResolvedQuestion(base.source + _mark(thread), is_refinement=True)
    if base.is_sentence and not limits and turn.opening is Opening.SHIFT:
        return ResolvedQuestion(f"{thread.subject.source}: {turn.text_with_mark}")
    more = turn.source[rest[0].start : rest[-1].end]
    return ResolvedQuestion(_join_limit(base.source, more, vocabulary) + _mark(thread), is_refinement=True)


def _begins_like_limit(turn: QuestionText) -> bool:
    """Return whether it begins like a constraint: "without nuts", "shorter than 5 km"."""
    first, vocabulary = turn.at(0), turn.vocabulary
    bounds = first in vocabulary.bounds or first in vocabulary.comparing
    return first in vocabulary.limiting or (bounds and any(_is_number(word) for word in turn.words))


def _is_value(turn: QuestionText, base: QuestionText) -> bool:
    """Return whether it is nothing but a value: "vegan", or "20 minutes" in place of other minutes."""
    if swap := _same_measure(base, turn.words, turn):
        return len(swap[1]) == len(turn.words)
    return all(any(word.plain in slot for slot in turn.vocabulary.slots) for word in turn.content)


def _resolve_pronoun(turn: QuestionText, thread: QuestionThread) -> ResolvedQuestion | None:
    place = _find_pronoun(turn)
    if place is None or len(turn.content) > MAX_PRONOUN_CONTENT:
        return None
    vocabulary, subject = turn.vocabulary, thread.subject
    if turn.stems & subject.stems and len(turn.content) > 2:
        return None
    owns = turn.at(place) in vocabulary.owners and place + 1 < len(turn.words)
    form = vocabulary.possessive if owns else "{}" if turn.at(place).isalpha() else ""
    if not form or not thread.has_name or len(subject.words) > MAX_SUBJECT or turn.at(place) in vocabulary.this:
        return ResolvedQuestion(f"{thread.subject.source}: {turn.text_with_mark}")
    parts = turn.cut(0, place), form.format(subject.source), turn.cut(place + 1, len(turn.words))
    return ResolvedQuestion(" ".join(filter(None, parts)) + turn.mark)


def _find_pronoun(turn: QuestionText) -> int | None:
    """Return where a pronoun is that no word of the question itself explains."""
    vocabulary = turn.vocabulary
    for i, word in enumerate(turn.words):
        pronoun = word.plain in vocabulary.pronouns or word.plain in vocabulary.owners
        if word.plain in vocabulary.this:
            after = turn.at(i + 1)
            pronoun = (not after or after in vocabulary.question_words) and (
                i == 0 or turn.at(i - 1) in vocabulary.empty
            )
        if pronoun and not _is_dummy(turn, i):
            return None if _is_explained(turn, i) else i
    return None


def _is_explained(turn: QuestionText, place: int) -> bool:
    """Return whether the pronoun refers to a word of the question itself."""
    # Something may be said to be in it: "a book with pictures in it".
    inside = turn.find(turn.vocabulary.holding) if turn.at(place - 1) in turn.vocabulary.inside else None
    is_inside = inside is not None and _has_content(turn, inside[1], place)
    return is_inside or _has_earlier_content(turn, place) or _is_owned(turn, place)


def _has_earlier_content(turn: QuestionText, place: int) -> bool:
    """Return whether an earlier clause of the question has content of its own."""
    has_content = False
    for i in range(place):
        has_content = has_content or turn.at(i) not in turn.vocabulary.empty
        if has_content and (_breaks_after(turn, i) or turn.at(i + 1) in turn.vocabulary.joins):
            return True
    return False


def _is_owned(turn: QuestionText, place: int) -> bool:
    """Return whether the owner stands before a clause: "someone who lost their keys"."""
    vocabulary, owner = turn.vocabulary, turn.at(place)
    if turn.at(place + 1) in vocabulary.own:
        return owner in vocabulary.owners and _has_content(turn, 0, place)
    return any(owner in vocabulary.relatives.get(turn.at(i), ()) and _has_head(turn, i, place) for i in range(place))


def _has_content(turn: QuestionText, first: int, end: int) -> bool:
    return any(turn.at(i) not in turn.vocabulary.empty for i in range(first, end))


def _has_head(turn: QuestionText, clause: int, place: int) -> bool:
    """Return whether a thing or a person stands before the clause, perhaps among the opening words."""
    before = _WORD.findall(turn.source[: turn.words[clause].start])
    head = _plain(before[-1]) if before else ""
    # After a verb the owner begins a clause of another kind: "explain that its price is high".
    return head in turn.vocabulary.unnamed or (head != "" and head not in turn.vocabulary.empty and clause + 1 < place)


def _is_dummy(turn: QuestionText, place: int) -> bool:
    """Return whether the pronoun stands for a clause that follows: "is it safe to swim"."""
    if turn.at(place) not in turn.vocabulary.dummies:
        return False
    after = range(place + 1, place + 4)
    compares = any(turn.at(i) in turn.vocabulary.comparing for i in after)
    return not compares and any(turn.at(i) in turn.vocabulary.clausal for i in after)


def _resolve_ellipsis(turn: QuestionText, thread: QuestionThread) -> ResolvedQuestion | None:
    vocabulary, content, shared = turn.vocabulary, turn.content, turn.stems & thread.subject.stems
    if len(content) > 2 or _names(turn) or (shared and not _shortens(turn, shared)):
        return None
    relates = not content or any(word.plain in vocabulary.relational for word in content)
    # Who looks for two words and then for one looks for something else; who asked more than that goes on asking.
    goes_on = (
        len(content) == 1
        and not any(word.plain in turn.vocabulary.indefinite for word in turn.words)  # "what is a galaxy" is new
        and not _turns_away(turn, thread)
        and (turn.is_sentence or not thread.has_name or len(_things(thread.subject)) > 2)
    )
    return ResolvedQuestion(f"{thread.subject.source}: {turn.text_with_mark}") if relates or goes_on else None


def _things(subject: QuestionText) -> list[WordToken]:
    """Return the words of content beside limits and orders."""
    return [word for word in subject.content if not _is_number(word) and word.plain not in subject.vocabulary.comparing]


def _turns_away(turn: QuestionText, thread: QuestionThread) -> bool:
    """Return whether a whole question turns from the limited search before it: "where can I park?"."""
    is_chosen = (
        len(_things(thread.subject)) < len(thread.subject.content) and not _base(thread, turn.vocabulary).is_sentence
    )
    is_dated = turn.at(0) in WHAT_WORDS and all(word.plain in turn.vocabulary.calendar for word in turn.content)
    return is_chosen and len(turn.words) >= MIN_WHOLE and (is_dated or turn.at(0) in ADVERBIAL_QUESTIONS)


def _shortens(turn: QuestionText, shared: set[str]) -> bool:
    """Return whether one word stands for the subject: "how long is the wall", after "the great wall of China"."""
    return any(
        _stem(word, turn) in shared and turn.at(i - 1) in turn.vocabulary.definite for i, word in enumerate(turn.words)
    )


# In this order: what is said outright before what is only left out.
RULES: tuple[Rule, ...] = (
    _resolve_swap,
    _resolve_reference,
    _resolve_narrowing,
    _resolve_addition,
    _resolve_pronoun,
    _resolve_ellipsis,
)


def _base(thread: QuestionThread, vocabulary: FollowupWords) -> QuestionText:
    """Return what a constraint is added to: the latest question, or of a very long one its subject."""
    text = thread.text.strip(_EDGES)
    return _read(text, vocabulary) if len(text) <= MAX_BASE else thread.subject


def _mark(thread: QuestionThread) -> str:
    return "?" if thread.text.rstrip().endswith("?") else ""


def _join_limit(base: str, more: str, vocabulary: FollowupWords) -> str:
    limits = fold(more.split(maxsplit=1)[0]) in vocabulary.limiting
    return f"{base} {more}" if limits else f"{base}, {more}"


def _replace(turn: QuestionText, old: Words, wording: str) -> str:
    return f"{turn.source[: old[0].start]}{wording}{turn.source[old[-1].end :]}"


def _merge_values(base: QuestionText, words: Words, turn: QuestionText) -> tuple[QuestionText, list[WordToken]]:
    """Return the base with new values in the place of old ones, and the words that found no such place."""
    vocabulary, rest, swapped = turn.vocabulary, list(words), False
    for find in (_same_slot, _same_measure, _same_place, _same_name):
        while swap := find(base, rest, turn):
            old, new = swap
            wording = turn.source[new[0].start : new[-1].end]
            base = _read(_replace(base, old, wording), vocabulary)
            rest, swapped = _without(rest, new, vocabulary), True
    if swapped and all(_stem(word, turn) in base.stems for word in rest if word.plain not in vocabulary.empty):
        return base, []
    return base, rest


def _without(words: Words, gone: Words, vocabulary: FollowupWords) -> list[WordToken]:
    """Return the words without these and the small ones before them: "in January with piano" becomes "with piano"."""
    first, end = words.index(gone[0]), words.index(gone[-1]) + 1
    while first and words[first - 1].plain in vocabulary.empty:
        first -= 1
    return [*words[:first], *words[end:]]


def _same_slot(base: QuestionText, rest: Words, turn: QuestionText) -> Swap | None:
    for slot in turn.vocabulary.slots:
        old = [word for word in base.words if word.plain in slot]
        new = [word for word in rest if word.plain in slot]
        if old and new:
            return _with_grade(base.words, old[0], turn.vocabulary), _with_grade(rest, new[0], turn.vocabulary)
    return None


def _with_grade(words: Words, word: WordToken, vocabulary: FollowupWords) -> Words:
    """Return a word with the one before it that says how much of it: the "most" of "most expensive"."""
    at = words.index(word)
    return words[at - 1 : at + 1] if at and words[at - 1].plain in vocabulary.grading else [word]


def _same_measure(base: QuestionText, rest: Words, turn: QuestionText) -> Swap | None:
    """Return a number of the same unit. "20 minutes" keeps the bound that was said before, and "under 20" the unit."""
    for new in _measures(rest, turn.vocabulary):
        for old in _measures(base.words, turn.vocabulary):
            unit, has_bound = _unit(new, turn), not _is_number(new[0])
            # Four digits are a year rather than another number of minutes.
            if unit != _unit(old, turn) and (unit or len(new[-1].plain) > 3):
                continue
            at = _number_in(old)
            return old[0 if has_bound else at : None if unit else at + 1], new
    return None


def _unit(measure: Words, turn: QuestionText) -> str:
    return "" if _is_number(measure[-1]) else _stem(measure[-1], turn)


def _measures(words: Words, vocabulary: FollowupWords) -> list[Words]:
    """Return numbers, with the bound before and the unit after them."""
    measures: list[Words] = []
    for i, word in enumerate(words):
        if not _is_number(word):
            continue
        first, end = i, i + 1
        while first and words[first - 1].plain in vocabulary.bounds:
            first -= 1
        if end < len(words) and words[end].plain not in vocabulary.empty:
            end += 1
        measures.append(words[first:end])
    return measures


def _is_number(word: WordToken) -> bool:
    return word.plain[:1].isdigit()


def _number_in(words: Words) -> int:
    return next(i for i, word in enumerate(words) if _is_number(word))


def _same_place(base: QuestionText, rest: Words, turn: QuestionText) -> Swap | None:
    if not rest or rest[0].plain not in turn.vocabulary.placing:
        return None
    new = _object(rest, 0, turn.vocabulary)
    places = [i for i, word in enumerate(base.words) if word.plain == rest[0].plain]
    old = [_object(base.words, i, turn.vocabulary) for i in places]
    old_places = [place for place in old if place and not _is_time(place[0], turn.vocabulary)]
    return (old_places[-1], new) if old_places and new and not _is_time(new[0], turn.vocabulary) else None


def _object(words: Words, place: int, vocabulary: FollowupWords) -> Words:
    """Return the words after a preposition, up to the next."""
    end = place + 1
    while (
        end < len(words)
        and words[end].plain not in vocabulary.limiting
        and words[end].plain not in vocabulary.question_words
    ):
        end += 1
    return words[place + 1 : end]


def _is_time(word: WordToken, vocabulary: FollowupWords) -> bool:
    return _is_number(word) or word.plain in vocabulary.calendar or any(word.plain in slot for slot in vocabulary.slots)


def _same_name(base: QuestionText, rest: Words, turn: QuestionText) -> Swap | None:
    """Return the only name and the one in its place: "who wrote Emma" and then "what about Dracula"."""
    new = [word for word in rest if word.plain not in turn.vocabulary.empty]
    if turn.opening is Opening.NONE or not new or not all(w.text[0].isupper() for w in new):
        return None
    spans = _names(base) if turn.vocabulary.capitals else _place_names(base)
    return (base.words[slice(*spans[0])], new) if len(spans) == 1 else None


def _place_names(base: QuestionText) -> list[tuple[int, int]]:
    """Return capitalized words after a preposition of place, in a language that capitalizes all nouns."""
    return [
        (i, i + 1)
        for i, word in enumerate(base.words)
        if word.text[0].isupper() and base.at(i - 1) in base.vocabulary.placing and not _is_time(word, base.vocabulary)
    ]
