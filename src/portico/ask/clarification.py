"""What to ask back, and when: typed questions whose options come from the data."""

from collections.abc import Iterable, Sequence

from portico.ask.events import Clarify, Question
from portico.ask.languages.localization import Phrases
from portico.ask.languages.phrasebook import capital
from portico.ask.languages.wordlists import folded
from portico.ask.understanding.fields import Fields, called, key_of, spoken
from portico.ask.understanding.kinds import ASKING
from portico.ask.understanding.planner import Meaning, Target
from portico.items import Item, title_of
from portico.search.index.text import fold, words

ENOUGH = 2  # things that a question says, for it to be answered where the site file asks for details
MAX_ROUNDS = 2  # times that one question is asked back
MAX_QUESTIONS = 4
MAX_OPTIONS = 8
NICE_MINUTES = (5, 10, 15, 20, 30, 40, 45, 60, 90, 120, 180, 240, 360, 480, 720, 1440)
_CURRENCIES = ("priceCurrency", "offers.priceCurrency", "currency")
# What to ask for when the site file does not say, the most telling first; and which phrase asks for it.
ASKED = ("diet", "category", "duration", "price", "place", "rating")
_CALLED = {"category": "kind", "duration": "time"}  # roles that the phrases call otherwise


def clarify(meaning: Meaning, rounds: int, phrases: Phrases, *, is_answered: bool) -> Clarify | None:
    """Questions that would help; None if the question says enough, or was asked back often enough.

    Once it was answered, only answers that mean nothing are asked for again.
    """
    if rounds >= MAX_ROUNDS or not meaning.targets:
        return None
    if is_answered:
        fields = meaning.targets[0].fields
        paths = [path for name in meaning.unclear if (path := fields.field(name))]
        again = [question for path in paths if (question := question_for(fields, path, phrases))]
        return Clarify(phrases.tell_more, tuple(again)) if again else None
    if meaning.content or meaning.constraints or meaning.kind:
        target = meaning.targets[0] if len(meaning.targets) == 1 else None
        if target is None or not _is_vague(meaning, target):
            return None
        questions = _details(meaning, target, phrases)
    else:
        questions = [_which_collection(meaning.targets, phrases)]
    return Clarify(phrases.tell_more, tuple(questions)) if questions else None


def _is_vague(meaning: Meaning, target: Target) -> bool:
    if target.fields.collection.details:
        return meaning.specifics < ENOUGH
    return meaning.is_open and not meaning.content and meaning.specifics < ENOUGH


def _details(meaning: Meaning, target: Target, phrases: Phrases) -> list[Question]:
    """For each detail that is not known yet: the ones of the site file, or the most telling there are."""
    fields = target.fields
    known = {each.field for each in meaning.constraints}
    wanted = fields.collection.details or tuple(path for role in ASKED for path in fields.paths(role)[:1])
    paths = [path for path in (fields.field(name) for name in wanted) if path and path not in known]
    asked = [question for path in paths if (question := question_for(fields, path, phrases))]
    return asked[:MAX_QUESTIONS]


def question_for(fields: Fields, path: str, phrases: Phrases) -> Question | None:
    """A question about a field, of the type that its values suggest; None if there is nothing to choose."""
    role = next((role for role in ASKED if path in fields.paths(role)), "")
    text = phrases.question(_CALLED.get(role, role), called(path))
    held = fields.held(path)
    if held and all(isinstance(value, bool) for value in held):
        return Question(path, text, "boolean")
    if fields.is_worded(path):
        return _choice(fields, path, role, text, phrases)
    numbers = fields.numbers(path)
    if len(set(numbers)) < 2:
        return Question(path, text, "free_text") if held and not numbers else None
    if role in {"duration", "price"}:
        return Question(path, text, "single_select", (*_ranges(fields, numbers, role, phrases), phrases.no_preference))
    return Question(path, text, "number")


def _choice(fields: Fields, path: str, role: str, text: str, phrases: Phrases) -> Question | None:
    options = fields.common(path, MAX_OPTIONS)
    if len(options) < 2:
        return None
    if len(fields.values[path]) > 10 * MAX_OPTIONS and role not in {"diet", "category"}:
        return Question(path, text, "free_text")
    several = role == "diet"
    offered = (*translated(options, phrases), phrases.no_preference)
    return Question(path, text, "multi_select" if several else "single_select", offered)


def translated(options: Sequence[str], phrases: Phrases) -> list[str]:
    """Options in the language of the answer, as far as it has words for them; `english_for` reads them back.

    Where two options have one word, both stay as they are.
    """
    words = [_in_language(option, phrases) for option in options]
    return [word if words.count(word) == 1 else option for option, word in zip(options, words, strict=True)]


def _in_language(option: str, phrases: Phrases) -> str:
    english = spoken(option)
    word = phrases.word(english)
    if word == english:
        return option
    return capital(word) if option[:1].isupper() else word


def _ranges(fields: Fields, numbers: Sequence[float], role: str, phrases: Phrases) -> list[str]:
    """Three ranges that each hold about a third of the items, with ends that people would choose."""
    numbers = [number for number in numbers if number > 0]
    if not numbers:
        return []
    thirds = [numbers[len(numbers) // 3], numbers[2 * len(numbers) // 3]]
    if role == "duration":
        low, high = (min(NICE_MINUTES, key=lambda nice: abs(nice - each / 60)) * 60 for each in thirds)
        ends = [(None, high), (high, None)] if low >= high else [(None, low), (low, high), (high, None)]
        return [phrases.time_range(least, most) for least, most in ends]
    low, high = (_nice(each) for each in thirds)
    ends = [(None, high), (high, None)] if low >= high else [(None, low), (low, high), (high, None)]
    currency = next((name for path in _CURRENCIES for name in fields.common(path, 1)), "")
    return [phrases.price_range(least, most, currency) for least, most in ends]


def _nice(value: float) -> float:
    """A round number near a value: 1, 2, 5, 10, 20, 50, …"""
    size = 10.0 ** len(str(int(abs(value)))) / 10 if value >= 1 else 0.1
    return min((size * step for step in (1, 2, 3, 5, 8, 10)), key=lambda nice: abs(nice - value))


def _which_collection(targets: Sequence[Target], phrases: Phrases) -> Question:
    titles = [target.fields.collection.title or target.name for target in targets][:MAX_OPTIONS]
    return Question("collection", phrases.which_collection, "single_select", tuple(translated(titles, phrases)))


# Items that are named


def named_by(said: str, items: Sequence[Item]) -> list[Item]:
    """The items that an answer may mean: the one it was offered as, or those whose names have what was said."""
    wanted, stems = fold(said.strip()), _stems(said)
    return (
        [item for item, label in zip(items, labels(items), strict=True) if fold(label) == wanted]
        or [item for item in items if fold(title_of(item.data)) == wanted]
        or named_in(said, items)
        or [item for item in items if stems and stems <= _stems(title_of(item.data))]
    )


def named_in(text: str, items: Sequence[Item]) -> list[Item]:
    """The items whose whole name stands in a text; the longest name counts."""
    said = frozenset(key_of(text))
    named = [(stems, item) for item in items if (stems := _stems(title_of(item.data))) and stems <= said]
    longest = max((len(stems) for stems, _ in named), default=0)
    return [item for stems, item in named if len(stems) == longest]


def hinted_at(hint: str, items: Sequence[Item]) -> list[Item]:
    """The items whose names share words with a hint, the ones that share most first."""
    stems = _stems(hint)
    shared = {item.id: len(stems & _stems(title_of(item.data))) for item in items}
    return sorted((item for item in items if shared[item.id]), key=lambda item: -shared[item.id])


def labels(items: Sequence[Item]) -> tuple[str, ...]:
    """What items are called where they are to choose from; the id tells those apart that have one name."""
    titles = [title_of(item.data) or item.id for item in items]
    return tuple(
        f"{title} ({item.id})" if titles.count(title) > 1 else title for item, title in zip(items, titles, strict=True)
    )


def _stems(name: str) -> frozenset[str]:
    stems = frozenset(key_of(name))
    return stems - _ARTICLES or stems


_ARTICLES = folded("the a an der die das ein eine el la los las un una le les une")


# What people say while something is asked


def gives_up(text: str) -> bool:
    """Whether somebody wants nothing more of what is asked back."""
    said = fold(" ".join(words(text)))
    return said.removesuffix(" please").removesuffix(" thanks") in _GIVEN_UP


def is_an_answer(text: str, collections: Iterable[str]) -> bool:
    """Whether words may answer what was asked for a command: few, that neither ask nor name what the site has."""
    said = [word.lower() for word in words(text)]
    if not said or len(said) > MAX_ANSWER_WORDS or "?" in text or "؟" in text or "？" in text:
        return False
    return said[0] not in ASKING and said[0] not in _LOOKING and not set(collections).intersection(said)


MAX_ANSWER_WORDS = 8
_LOOKING = frozenset(
    """show find list search tell give recommend suggest best zeig zeige finde suche empfiehl muestra busca recomienda
    montre cherche trouve recommande""".split()  # noqa: SIM905 - a list of words is read as words
)
_GIVEN_UP = frozenset(
    fold(" ".join(words(saying)))
    for language in (
        "never mind|nevermind|cancel|cancel that|cancel it|cancel this|forget it|forget that|forget about it|stop|quit",
        "no thanks|no thank you|leave it|drop it|not now",
        "vergiss es|vergessen Sie es|abbrechen|egal|schon gut|lass es|lassen Sie es|nein danke|stopp|doch nicht",
        "olvídalo|olvídelo|olvida|cancela|cancelar|cancélalo|déjalo|déjelo|no importa|da igual|no gracias",
        "laisse tomber|laissez tomber|annule|annuler|annulez|oublie|oubliez|oublie ça|peu importe|tant pis|non merci",
        "لا يهم|انس الأمر|إلغاء|ألغ ذلك|توقف|لا شكرا",
        "算了|取消|不用了|不要了|没关系|やめる|やめて|やめます|キャンセル|もういい|結構です|取り消し",
    )
    for saying in language.split("|")
)
