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

from portico.ask.languages import SPEECHES, known
from portico.ask.languages.followup_words import Opening, Speech
from portico.ask.understanding.kinds import ASIDE, WHAT
from portico.search.index.text import fold, stemmer

MAX_CARRIED = 5  # earlier questions
MAX_LOOKED_AT = 20  # previous questions
MAX_READ = 400  # characters; a longer question says enough to stand alone
MAX_LEANING = 24  # words of a question that leans on others
MAX_BASE = 240  # characters of earlier text that are carried whole; of a longer text only the subject is
MAX_SUBJECT = 6  # words that stand for a long question
MAX_KIND = 3  # words before "ones"
MIN_WHOLE = 4  # words of a question that may be about something else
MAX_NAMED = 4  # words of content in a question whose pronoun is explained
# How many words of content a question may have that only adds to the one before. With more it is a topic of its own.
MAX_ADDED = {Opening.NONE: 3, Opening.JOIN: 4, Opening.SHIFT: 2, Opening.CORRECT: 3}

_WORD = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*")
_BREAK = re.compile(r"[.,;:?!]")
_EDGES = " \t\r\n.,;:?!-–—"


@dataclass(frozen=True, slots=True)
class Standalone:
    """A question with what it leaves unsaid."""

    text: str  # for search, and for the person to see
    carried: tuple[str, ...] = ()  # the earlier questions that still hold, oldest first
    depends: bool = False  # leans on earlier questions
    refers: bool = False  # speaks of the results that were shown before


class Word(NamedTuple):
    text: str
    plain: str
    start: int
    end: int


@dataclass(frozen=True)  # no slots: what is derived is kept
class Turn:
    """A question as it is read: what opens it, and the words after that."""

    source: str
    words: tuple[Word, ...]
    speech: Speech
    opening: Opening = Opening.NONE

    @property
    def text(self) -> str:
        return self.cut(0, len(self.words))

    @cached_property
    def content(self) -> list[Word]:
        return [word for word in self.words if word.plain not in self.speech.empty]

    @cached_property
    def stems(self) -> set[str]:
        return {_stem(word, self) for word in self.content}

    @cached_property
    def asks(self) -> bool:
        """Is a whole sentence rather than some words."""
        return any(word.plain in self.speech.asking for word in self.words)

    @property
    def said(self) -> str:
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
        """The first and the end of the words that are one of the phrases."""
        plain = f" {' '.join(word.plain for word in self.words)} "
        for phrase in phrases:
            if (start := plain.find(f" {phrase} ")) >= 0:
                first = plain.count(" ", 0, start)
                return first, first + phrase.count(" ") + 1
        return None


@dataclass(frozen=True, slots=True)
class Thread:
    """The questions since the last that stood alone, what the latest of them means, and what all are about."""

    asked: tuple[str, ...]
    text: str
    subject: Turn
    named: bool  # the subject can stand in the place of a pronoun
    refers: bool = False


@dataclass(frozen=True, slots=True)
class Lean:
    """What a question means in its thread."""

    text: str
    adds: bool = False  # a constraint, for the questions after it too
    refers: bool = False


Rule: TypeAlias = Callable[[Turn, Thread], Lean | None]
Words: TypeAlias = Sequence[Word]
Swap: TypeAlias = tuple[Words, Words]  # old words of the base, new words of the question


def stand_alone(text: str, previous: Sequence[str], language: str = "en") -> Standalone:
    """The last question with what it leaves unsaid. Previous questions are as they were asked, oldest first."""
    speech = SPEECHES[known(language)]
    thread: Thread | None = None
    for question in (*previous[-MAX_LOOKED_AT:], text):
        if question.strip():
            thread = _follow(thread, question, speech)
    if thread is None or not text.strip() or len(thread.asked) == 1:
        return Standalone(text)
    meant = _read(thread.text, speech).stems
    holding = [each for each in thread.asked[:-1] if _read(each[:MAX_READ], speech).stems & meant]
    carried = (*holding[:1], *holding[1:][1 - MAX_CARRIED :])
    return Standalone(thread.text, carried, depends=True, refers=thread.refers)


def _follow(thread: Thread | None, question: str, speech: Speech) -> Thread:
    turn = _read(question[:MAX_READ], speech)
    lean = _lean(thread, turn) if thread and len(question) <= MAX_READ else None
    if thread is None or lean is None:
        return Thread((question,), question.strip(), *_subject(turn))
    asked = (*thread.asked, question)
    if not lean.adds:
        return replace(thread, asked=asked, text=lean.text, refers=lean.refers)
    # What was added one by one is wanted as a whole, so the gist of it is not enough.
    whole = _read(lean.text.strip(_EDGES), speech)
    subject = (whole, not whole.asks) if len(lean.text) <= MAX_BASE else _subject(whole)
    return Thread(asked, lean.text, *subject, lean.refers)


def _lean(thread: Thread, whole: Turn) -> Lean | None:
    if len(whole.words) > MAX_LEANING:
        return None
    turn = _opened(whole)
    if not turn.words or thread.subject.stems <= turn.stems:
        return None
    return next((lean for rule in RULES if (lean := rule(turn, thread))), None)


def _read(text: str, speech: Speech) -> Turn:
    return Turn(text, tuple(Word(each[0], _plain(each[0]), *each.span()) for each in _WORD.finditer(text)), speech)


def _plain(word: str) -> str:
    return word.lower() if word.isascii() else fold(word.replace("’", "'"))


def _opened(turn: Turn) -> Turn:
    """Without the words that only open or close it. They say the same at either end: "meat instead"."""
    speech, opening, first, end = turn.speech, Opening.NONE, 0, len(turn.words)
    while found := _opening(turn, first):
        opening, first = found[0] or opening, first + found[1]
    while end > first and turn.at(end - 1) in speech.closings:
        end -= 1
        opening = next((each for _, each in speech.openings.get(turn.at(end), ()) if each), opening)
    opened = Turn(turn.source, turn.words[first:end], speech, opening)
    # A bare word with a question mark: "Paris?"
    shifts = opening is Opening.NONE and turn.mark and len(opened.content) == 1 and not opened.asks
    return replace(opened, opening=Opening.SHIFT) if shifts else opened


def _opening(turn: Turn, first: int) -> tuple[Opening | None, int] | None:
    """What is announced by the words from there on, and by how many of them."""
    for phrase, opening in turn.speech.openings.get(turn.at(first), ()):
        if _begins(turn, first, phrase):
            return opening, len(phrase.split())
    return None


def _begins(turn: Turn, first: int, phrase: str) -> bool:
    """One that ends in a comma needs a break after it: "no, vegan", but not "no nuts"."""
    parts = phrase.rstrip(",").split()
    if any(turn.at(first + i) != part for i, part in enumerate(parts)):
        return False
    return not phrase.endswith(",") or _breaks_after(turn, first + len(parts) - 1)


def _subject(turn: Turn) -> tuple[Turn, bool]:
    """What a question is about, and whether that is a name: some words as they are; of a whole sentence its names."""
    speech = turn.speech
    if not turn.asks and len(turn.words) <= 2 * MAX_SUBJECT:
        return _read(_opened(turn).text[:MAX_BASE], speech), True
    if names := _capital_runs(turn):
        found = dict.fromkeys(turn.cut(*span) for span in names[:2])
        return _read(", ".join(found)[:MAX_BASE], speech), True
    return _read(_gist(turn)[:MAX_BASE], speech), False


def _gist(turn: Turn) -> str:
    """The first words of content, with the small ones between them if these are few."""
    places = [i for i, word in enumerate(turn.words) if word.plain not in turn.speech.empty][:MAX_SUBJECT]
    if places and places[-1] - places[0] < MAX_SUBJECT:
        return turn.cut(places[0], places[-1] + 1)
    return " ".join(turn.words[i].text for i in places)


def _names(turn: Turn) -> list[tuple[int, int]]:
    return _capital_runs(turn) if turn.speech.capitals else []


def _capital_runs(turn: Turn) -> list[tuple[int, int]]:
    """Runs of words with capitals, where these show anything."""
    big = [word.text[0].isupper() and word.plain not in turn.speech.asking for word in turn.words]
    if sum(big) > max(4, 0.7 * len(big)):
        return []
    spans: list[tuple[int, int]] = []
    i = 0
    while i < len(big):
        end = i
        while end < len(big) and big[end]:
            end += 1
        if end > i and not (end == i + 1 and (_starts_sentence(turn, i) or turn.at(i) in turn.speech.empty)):
            spans.append((i, end))
        i = max(end, i + 1)
    return spans


def _starts_sentence(turn: Turn, place: int) -> bool:
    before = turn.source[: turn.words[place].start].rstrip(" \"'“")
    return not before or before[-1] in ".?!"


def _exchange(turn: Turn, thread: Thread) -> Lean | None:
    found = turn.find((turn.speech.swapping,))
    if not found:
        return None
    first, end = found
    split = next((i for i in range(end, len(turn.words)) if _breaks_after(turn, i)), len(turn.words) - 1) + 1
    old, new = turn.words[end:split], (*turn.words[:first], *turn.words[split:])
    if not old or not new:
        return None
    base, wording = _base(thread, turn.speech), turn.source[new[0].start : new[-1].end]
    spots = [word for word in base.content if _stem(word, base) in {_stem(each, turn) for each in old}]
    text = _replace(base, spots[:1], wording) if spots else _joined(base.source, wording, turn.speech)
    return Lean(text + _mark(thread), adds=True)


def _stem(word: Word, turn: Turn) -> str:
    return stemmer(turn.speech.language)(word.text)


def _breaks_after(turn: Turn, place: int) -> bool:
    return bool(_BREAK.match(turn.source, turn.words[place].end))


def _narrow(turn: Turn, thread: Thread) -> Lean | None:
    speech, place = turn.speech, _ones(turn)
    kind = [word for word in turn.words[:place] if word.plain not in speech.asking]
    while kind and kind[0].plain in speech.empty and kind[0].plain not in speech.comparing:
        kind.pop(0)
    if not kind or len(kind) > MAX_KIND or kind[-1].plain in speech.ordinals or kind[-1].plain in speech.limiting:
        return None
    if place is None and (turn.asks or len(kind) > 2 or not any(word.plain in speech.comparing for word in kind)):
        return None
    base, rest = _merged(_base(thread, speech), kind, turn)
    wording = " ".join(word.text for word in rest)
    first = not rest or (speech.adjectives_first and not base.asks)
    text = f"{wording} {base.source}".strip() if first else _joined(base.source, wording, speech)
    more = "" if place is None else turn.cut(place + 1, len(turn.words))
    shown = any(turn.at(i) in speech.definite for i in range(place or 0))
    return Lean(f"{text} {more}".strip() + _mark(thread), adds=True, refers=shown)


def _ones(turn: Turn) -> int | None:
    """Where "ones" stands for the things that were asked for. What follows can only tell more of them."""
    for i, word in enumerate(turn.words):
        if word.plain in turn.speech.ones and (i + 1 == len(turn.words) or turn.at(i + 1) in turn.speech.limiting):
            return i
    return None


def _point(turn: Turn, thread: Thread) -> Lean | None:
    speech = turn.speech
    if found := turn.find(speech.among):
        rest = f"{turn.cut(0, found[0])} {turn.cut(found[1], len(turn.words))}".strip() + turn.mark
        return Lean(f"{thread.subject.source}: {rest}", refers=True)
    if len(turn.content) > MAX_NAMED or not (turn.find(speech.pointing) or _points(turn)):
        return None
    return Lean(f"{thread.subject.source}: {turn.said}", refers=True)


def _points(turn: Turn) -> bool:
    speech = turn.speech
    for i, word in enumerate(turn.words):
        after = turn.at(i + 1)
        closed = not after or after in speech.asking or after in speech.limiting
        if word.plain in speech.these and after not in speech.calendar and not _said_inside(turn, i):
            return True
        if word.plain in speech.ordinals and (closed or after in speech.ones) and i and turn.at(i - 1) in speech.empty:
            return True
        if word.plain in speech.ones and turn.at(i - 1) in speech.asking:
            return True
    return False


def _add(turn: Turn, thread: Thread) -> Lean | None:
    speech, old, limits = turn.speech, _base(thread, turn.speech), _limits(turn)
    if turn.asks or (turn.opening is Opening.NONE and not limits and not _is_value(turn, old)):
        return None
    if not 0 < len(turn.content) <= MAX_ADDED[turn.opening] or _has_pronoun(turn) is not None:
        return None
    base, rest = _merged(old, turn.words, turn)
    if not rest:
        return Lean(base.source + _mark(thread), adds=True)
    if base.asks and not limits and turn.opening is Opening.SHIFT:
        return Lean(f"{thread.subject.source}: {turn.said}")
    more = turn.source[rest[0].start : rest[-1].end]
    return Lean(_joined(base.source, more, speech) + _mark(thread), adds=True)


def _limits(turn: Turn) -> bool:
    """Begins like a constraint: "without nuts", "shorter than 5 km"."""
    first, speech = turn.at(0), turn.speech
    bounds = first in speech.bounds or first in speech.comparing
    return first in speech.limiting or (bounds and any(_is_number(word) for word in turn.words))


def _is_value(turn: Turn, base: Turn) -> bool:
    """Is nothing but a value: "vegan", or "20 minutes" for some other minutes."""
    if swap := _same_measure(base, turn.words, turn):
        return len(swap[1]) == len(turn.words)
    return all(any(word.plain in slot for slot in turn.speech.slots) for word in turn.content)


def _name(turn: Turn, thread: Thread) -> Lean | None:
    place = _has_pronoun(turn)
    if place is None or len(turn.content) > MAX_NAMED:
        return None
    speech, subject = turn.speech, thread.subject
    if turn.stems & subject.stems and len(turn.content) > 2:
        return None
    owns = turn.at(place) in speech.owners and place + 1 < len(turn.words)
    form = speech.possessive if owns else "{}" if turn.at(place).isalpha() else ""
    if not form or not thread.named or len(subject.words) > MAX_SUBJECT or turn.at(place) in speech.this:
        return Lean(f"{thread.subject.source}: {turn.said}")
    parts = turn.cut(0, place), form.format(subject.source), turn.cut(place + 1, len(turn.words))
    return Lean(" ".join(filter(None, parts)) + turn.mark)


def _has_pronoun(turn: Turn) -> int | None:
    """Where a pronoun is that no word of the question itself explains."""
    speech = turn.speech
    for i, word in enumerate(turn.words):
        pronoun = word.plain in speech.pronouns or word.plain in speech.owners
        if word.plain in speech.this:
            after = turn.at(i + 1)
            pronoun = (not after or after in speech.asking) and (i == 0 or turn.at(i - 1) in speech.empty)
        if pronoun and not _is_dummy(turn, i):
            return None if _said_inside(turn, i) else i
    return None


def _said_inside(turn: Turn, place: int) -> bool:
    """The pronoun speaks of a word of the question itself."""
    return _said_before(turn, place) or _is_held(turn, place) or _is_owned(turn, place)


def _said_before(turn: Turn, place: int) -> bool:
    """An earlier clause of the question has content of its own."""
    seen = False
    for i in range(place):
        seen = seen or turn.at(i) not in turn.speech.empty
        if seen and (_breaks_after(turn, i) or turn.at(i + 1) in turn.speech.joins):
            return True
    return False


def _is_held(turn: Turn, place: int) -> bool:
    """Something is said to be in it: "a book with pictures in it"."""
    held = turn.find(turn.speech.holding) if turn.at(place - 1) in turn.speech.inside else None
    return held is not None and _has_content(turn, held[1], place)


def _is_owned(turn: Turn, place: int) -> bool:
    """The owner stands before a clause: "someone who lost their keys", but not "a film that shows her life"."""
    speech, owner = turn.speech, turn.at(place)
    if turn.at(place + 1) in speech.own:
        return owner in speech.owners and _has_content(turn, 0, place)
    return any(owner in speech.relatives.get(turn.at(i), ()) and _has_head(turn, i, place) for i in range(place))


def _has_content(turn: Turn, first: int, end: int) -> bool:
    return any(turn.at(i) not in turn.speech.empty for i in range(first, end))


def _has_head(turn: Turn, clause: int, place: int) -> bool:
    """A thing or a person stands before the clause, perhaps among the words that open the question."""
    before = _WORD.findall(turn.source[: turn.words[clause].start])
    head = _plain(before[-1]) if before else ""
    # After a verb the owner begins a clause of another kind: "explain that its price is high".
    return head in turn.speech.unnamed or (head != "" and head not in turn.speech.empty and clause + 1 < place)


def _is_dummy(turn: Turn, place: int) -> bool:
    """Stands for a clause that follows: "is it safe to swim", "it is true that"."""
    if turn.at(place) not in turn.speech.dummies:
        return False
    after = range(place + 1, place + 4)
    compares = any(turn.at(i) in turn.speech.comparing for i in after)
    return not compares and any(turn.at(i) in turn.speech.clausal for i in after)


def _complete(turn: Turn, thread: Thread) -> Lean | None:
    speech, content, known = turn.speech, turn.content, turn.stems & thread.subject.stems
    if len(content) > 2 or _names(turn) or (known and not _shortens(turn, known)):
        return None
    relates = not content or any(word.plain in speech.relational for word in content)
    # Who looks for two words and then for one looks for something else; who asked more than that goes on asking.
    goes_on = (
        len(content) == 1
        and not _introduces(turn)
        and not _turns_away(turn, thread)
        and (turn.asks or not thread.named or len(_things(thread.subject)) > 2)
    )
    return Lean(f"{thread.subject.source}: {turn.said}") if relates or goes_on else None


def _things(subject: Turn) -> list[Word]:
    """The words of content beside limits and orders."""
    return [word for word in subject.content if not _is_number(word) and word.plain not in subject.speech.comparing]


def _turns_away(turn: Turn, thread: Thread) -> bool:
    """Who looked for things within a limit, and asks a whole question, wants something else: "where can I park?"."""
    is_chosen = len(_things(thread.subject)) < len(thread.subject.content) and not _base(thread, turn.speech).asks
    is_dated = turn.at(0) in WHAT and all(word.plain in turn.speech.calendar for word in turn.content)
    return is_chosen and len(turn.words) >= MIN_WHOLE and (is_dated or turn.at(0) in ASIDE)


def _introduces(turn: Turn) -> bool:
    """Speaks of something new: "what is a galaxy"."""
    return any(word.plain in turn.speech.indefinite for word in turn.words)


def _shortens(turn: Turn, known: set[str]) -> bool:
    """Speaks of the subject by one word of it: "how long is the wall", after "the great wall of China"."""
    return any(
        _stem(word, turn) in known and turn.at(i - 1) in turn.speech.definite for i, word in enumerate(turn.words)
    )


# In this order: what is said outright before what is only left out.
RULES: tuple[Rule, ...] = (_exchange, _point, _narrow, _add, _name, _complete)


def _base(thread: Thread, speech: Speech) -> Turn:
    """What a constraint is added to: the latest question, or of a very long one its subject."""
    text = thread.text.strip(_EDGES)
    return _read(text, speech) if len(text) <= MAX_BASE else thread.subject


def _mark(thread: Thread) -> str:
    return "?" if thread.text.rstrip().endswith("?") else ""


def _joined(base: str, more: str, speech: Speech) -> str:
    limits = fold(more.split(maxsplit=1)[0]) in speech.limiting
    return f"{base} {more}" if limits else f"{base}, {more}"


def _replace(turn: Turn, old: Words, wording: str) -> str:
    return f"{turn.source[: old[0].start]}{wording}{turn.source[old[-1].end :]}"


def _merged(base: Turn, words: Words, turn: Turn) -> tuple[Turn, list[Word]]:
    """The base with new values in the place of old ones, and the words that found no such place."""
    speech, rest, swapped = turn.speech, list(words), False
    for find in (_same_slot, _same_measure, _same_place, _same_name):
        while swap := find(base, rest, turn):
            old, new = swap
            wording = turn.source[new[0].start : new[-1].end]
            base = _read(_replace(base, old, wording), speech)
            rest, swapped = _without(rest, new, speech), True
    if swapped and all(_stem(word, turn) in base.stems for word in rest if word.plain not in speech.empty):
        return base, []
    return base, rest


def _without(words: Words, gone: Words, speech: Speech) -> list[Word]:
    """Without these words and the small ones before them: of "in January with piano" stays "with piano"."""
    first, end = words.index(gone[0]), words.index(gone[-1]) + 1
    while first and words[first - 1].plain in speech.empty:
        first -= 1
    return [*words[:first], *words[end:]]


def _same_slot(base: Turn, rest: Words, turn: Turn) -> Swap | None:
    for slot in turn.speech.slots:
        old = [word for word in base.words if word.plain in slot]
        new = [word for word in rest if word.plain in slot]
        if old and new:
            return _graded(base.words, old[0], turn.speech), _graded(rest, new[0], turn.speech)
    return None


def _graded(words: Words, word: Word, speech: Speech) -> Words:
    """A word with the one before it that says how much of it: the "most" of "most expensive"."""
    at = words.index(word)
    return words[at - 1 : at + 1] if at and words[at - 1].plain in speech.grading else [word]


def _same_measure(base: Turn, rest: Words, turn: Turn) -> Swap | None:
    """A number of the same unit. "20 minutes" keeps the bound that was said before, and "under 20" the unit."""
    for new in _measures(rest, turn.speech):
        for old in _measures(base.words, turn.speech):
            unit, bounded = _unit(new, turn), not _is_number(new[0])
            # Four digits are a year rather than another number of minutes.
            if unit != _unit(old, turn) and (unit or len(new[-1].plain) > 3):
                continue
            at = _number_in(old)
            return old[0 if bounded else at : None if unit else at + 1], new
    return None


def _unit(measure: Words, turn: Turn) -> str:
    return "" if _is_number(measure[-1]) else _stem(measure[-1], turn)


def _measures(words: Words, speech: Speech) -> list[Words]:
    """Numbers, with the bound before and the unit after them."""
    found: list[Words] = []
    for i, word in enumerate(words):
        if not _is_number(word):
            continue
        first, end = i, i + 1
        while first and words[first - 1].plain in speech.bounds:
            first -= 1
        if end < len(words) and words[end].plain not in speech.empty:
            end += 1
        found.append(words[first:end])
    return found


def _is_number(word: Word) -> bool:
    return word.plain[:1].isdigit()


def _number_in(words: Words) -> int:
    return next(i for i, word in enumerate(words) if _is_number(word))


def _same_place(base: Turn, rest: Words, turn: Turn) -> Swap | None:
    if not rest or rest[0].plain not in turn.speech.placing:
        return None
    new = _object(rest, 0, turn.speech)
    places = [i for i, word in enumerate(base.words) if word.plain == rest[0].plain]
    old = [_object(base.words, i, turn.speech) for i in places]
    fitting = [each for each in old if each and not _is_time(each[0], turn.speech)]
    return (fitting[-1], new) if fitting and new and not _is_time(new[0], turn.speech) else None


def _object(words: Words, place: int, speech: Speech) -> Words:
    """The words after a preposition, up to the next."""
    end = place + 1
    while end < len(words) and words[end].plain not in speech.limiting and words[end].plain not in speech.asking:
        end += 1
    return words[place + 1 : end]


def _is_time(word: Word, speech: Speech) -> bool:
    return _is_number(word) or word.plain in speech.calendar or any(word.plain in slot for slot in speech.slots)


def _same_name(base: Turn, rest: Words, turn: Turn) -> Swap | None:
    """Another name for the only one: "who wrote Emma" and then "what about Dracula"."""
    new = [word for word in rest if word.plain not in turn.speech.empty]
    if turn.opening is Opening.NONE or not new or not all(w.text[0].isupper() for w in new):
        return None
    spans = _names(base) if turn.speech.capitals else _placed(base)
    return (base.words[slice(*spans[0])], new) if len(spans) == 1 else None


def _placed(base: Turn) -> list[tuple[int, int]]:
    """Words with capitals right after a preposition of place: the names of a language that writes all nouns so."""
    return [
        (i, i + 1)
        for i, word in enumerate(base.words)
        if word.text[0].isupper() and base.at(i - 1) in base.speech.placing and not _is_time(word, base.speech)
    ]
